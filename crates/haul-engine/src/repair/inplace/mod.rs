//! A file is repaired where it lies, so that it stays the same file under all its names and no room for a second one is
//! needed.
//!
//! What stands in the damaged ranges is written down in a journal beside the file, which is durable before the first byte
//! is written over. Then come the new bytes; the whole file is read back from the device and held against the waybill; if
//! that fails in any way the old bytes are put back. A repair that is cut off leaves its journal, and whoever repairs the
//! file next finishes or undoes what it began ([`recover`]). So the file is as it was or as the waybill says, but for the
//! time in which a journal stands beside it.

mod disk;
mod recover;
#[cfg(test)]
mod tests;

pub(super) use disk::{Disk, was_cut_off};
pub use recover::Recovered;
pub(super) use recover::recover;

use super::Why;
use super::survey::{Sources, Survey, holds, join};
use crate::sum::Counters;
use haul_log::journal::{
    CHUNK_BYTES_MAX, Chunk, Head, JournalFlaw, Reader, SECTOR_BYTES, Shape, Standing, Writer,
};
use haul_model::ByteRange;
use haul_sys::transfer;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// All that a repair in place does to the world: to one file, and to the journal beside it.
pub(super) trait Ground {
    /// A journal that is being written, under a name that nobody takes for a whole one.
    type Draft: Write;

    /// Whether a journal is about this very file.
    fn is_for(&self, head: &Head) -> bool;
    /// How long the file is.
    fn size(&self) -> io::Result<u64>;
    /// Reads the file; fewer bytes only at its end.
    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Makes room for writing a range, so that no write of it fails for want of that.
    fn reserve(&self, range: ByteRange) -> io::Result<()>;
    /// Writes into the file.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file off or lengthens it.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Gives the file its mode and capabilities, which writing may take, and these times.
    fn set_facts(&self, head: &Head, shape: &Shape) -> io::Result<()>;
    /// Makes all of the file durable.
    fn sync(&self) -> io::Result<()>;
    /// Has the next reads ask the device.
    fn forget(&self) -> io::Result<()>;
    /// Reads the file from the device: whether all of it is what the waybill says.
    fn prove(&self) -> Result<(), Why>;

    /// Begins a journal, in the place of a draft that was left.
    fn draft(&self) -> io::Result<Self::Draft>;
    /// Makes a draft durable, and then it is the journal, durably, too.
    fn seal(&self, draft: Self::Draft) -> io::Result<()>;
    /// The journal, read from the device.
    fn journal(&self) -> io::Result<Option<Box<dyn Read + '_>>>;
    /// Removes the journal, and a draft as well, durably.
    fn remove_journal(&self) -> io::Result<()>;
}

/// Takes bytes that belong at an offset.
pub(super) type Take<'t> = dyn FnMut(u64, &[u8]) -> Result<(), Why> + 't;

/// Where new bytes come from.
pub(super) trait Supply {
    /// Hands on all new bytes in order, at most [`CHUNK_BYTES_MAX`] at a time; they are proven when it returns.
    fn each(&self, take: &mut Take<'_>) -> Result<(), Why>;
    /// Brings those from `at` on once more.
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), Why>;
}

/// Replicas, as a survey found them.
pub(super) struct Replicas<'a> {
    pub(super) survey: &'a Survey,
    pub(super) sources: &'a Sources,
    pub(super) counters: &'a Counters,
    pub(super) stop: &'a AtomicBool,
}

/// Repairs a file in place.
///
/// # Errors
/// [`Why`]: the file is then as it was, but after [`Why::HalfDone`].
pub(super) fn mend<G: Ground>(ground: &G, head: &Head, supply: &impl Supply) -> Result<(), Why> {
    // What has to be set at the end is set once before, while nothing is lost: whoever may not do it is refused here.
    ground.set_facts(head, &head.before).map_err(Why::io("set its times, which writing moves"))?;
    let ranges = match write_down(ground, head, supply) {
        Ok(ranges) => ranges,
        Err(why) => {
            // No byte of the file was touched: a journal that stays says so. Why it was done matters more.
            let _ = ground.remove_journal();
            return Err(why);
        }
    };
    match write_over(ground, head, supply, &ranges) {
        Ok(()) => ground.remove_journal().map_err(Why::io("remove the journal of its repair, which is done")),
        Err(why) => Err(match put_back(ground, head) {
            Ok(()) => why,
            Err(trouble) => Why::HalfDone(Box::new(why), Box::new(trouble)),
        }),
    }
}

/// Writes the journal; gives the ranges that are to be written over. When it returns they can be.
fn write_down<G: Ground>(ground: &G, head: &Head, supply: &impl Supply) -> Result<Vec<ByteRange>, Why> {
    let failed = || Why::io("write a journal of what is replaced");
    let draft = ground.draft().map_err(failed())?;
    let mut writer = Writer::new(draft, head).map_err(failed())?;
    let mut ranges = Vec::new();
    let mut keep = |at: u64, new: &[u8], len: usize| {
        let mut old = vec![0; len];
        let within = head.before.size.saturating_sub(at).min(len as u64) as usize;
        old.truncate(within);
        // Bytes that can't be read could not be put back: then the file must not be written over.
        let got = ground.read(at, &mut old).map_err(Why::io("read what would be replaced"))?;
        if got < within {
            return Err(Why::ChangedMeanwhile);
        }
        if old != new {
            let chunk = Chunk::new(at, old, new);
            join(&mut ranges, chunk.range());
            writer.chunk(&chunk).map_err(failed())?;
        }
        Ok(())
    };
    supply.each(&mut |at, new| keep(at, new, new.len()))?;
    let mut at = head.after.size;
    while at < head.before.size {
        // What is told apart by the sector begins with one.
        let sector = at.next_multiple_of(SECTOR_BYTES as u64) - at;
        let most = if sector > 0 { sector } else { CHUNK_BYTES_MAX as u64 };
        let len = (head.before.size - at).min(most);
        keep(at, &[], len as usize)?;
        at += len;
    }
    if ranges.is_empty() && head.before.size == head.after.size {
        return Err(Why::ChangedMeanwhile);
    }
    ground.seal(writer.close().map_err(failed())?).map_err(failed())?;
    each_chunk(ground, head, |_| Ok(()))?;
    Ok(ranges)
}

/// Brings the new bytes into the file, and proves them.
fn write_over<G: Ground>(
    ground: &G,
    head: &Head,
    supply: &impl Supply,
    ranges: &[ByteRange],
) -> Result<(), Why> {
    let failed = || Why::io("write into it");
    let end = head.after.size;
    for range in ranges.iter().filter_map(|range| range.intersect(ByteRange::between(0, end))) {
        ground.reserve(range).map_err(failed())?;
    }
    if end > head.before.size {
        // First, and durably: or a sector at the old end could come to have new bytes, and be cut off amidst them.
        ground.set_len(end).and_then(|()| ground.sync()).map_err(failed())?;
    }
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    each_chunk(ground, head, |chunk| {
        let new = &mut buffer[..chunk.new_len as usize];
        if new.is_empty() {
            return Ok(());
        }
        supply.read(chunk.at, new)?;
        if !chunk.is_new(new) {
            return Err(Why::ReplicaChanged(chunk.range()));
        }
        ground.write(chunk.at, new).map_err(failed())
    })?;
    finish(ground, head)
}

/// What comes when all new bytes are in the file.
fn finish<G: Ground>(ground: &G, head: &Head) -> Result<(), Why> {
    let failed = || Why::io("write into it");
    if ground.size().map_err(failed())? != head.after.size {
        ground.set_len(head.after.size).map_err(failed())?;
    }
    ground.sync().map_err(failed())?;
    ground.prove()?;
    ground.set_facts(head, &head.after).map_err(Why::io("give it its mode and times"))?;
    ground.sync().map_err(failed())
}

/// Puts back what the journal has, makes sure of it, and removes the journal.
fn put_back<G: Ground>(ground: &G, head: &Head) -> Result<(), Why> {
    let failed = || Why::io("write into it");
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    each_chunk(ground, head, |chunk| {
        if chunk.standing(standing_bytes(ground, &chunk, &mut buffer)?) == Standing::Old {
            return Ok(());
        }
        // Behind the old end stand zeros until it is cut off there, for the same reason as above.
        let mut old = chunk.old.clone();
        old.resize(chunk.range().len() as usize, 0);
        ground.write(chunk.at, &old).map_err(failed())
    })?;
    ground.sync().map_err(failed())?;
    if ground.size().map_err(failed())? != head.before.size {
        ground.set_len(head.before.size).and_then(|()| ground.sync()).map_err(failed())?;
    }
    ground.forget().map_err(Why::io("read back what was put back"))?;
    each_chunk(ground, head, |chunk| {
        let now = standing_bytes(ground, &chunk, &mut buffer)?;
        if now == chunk.old { Ok(()) } else { Err(Why::NotPutBack(chunk.range())) }
    })?;
    ground.set_facts(head, &head.before).map_err(Why::io("give it its mode and times"))?;
    ground.sync().map_err(failed())?;
    ground.remove_journal().map_err(Why::io("remove the journal, which is undone"))
}

/// What the file has where a chunk is about.
fn standing_bytes<'b>(ground: &impl Ground, chunk: &Chunk, buffer: &'b mut [u8]) -> Result<&'b [u8], Why> {
    let wanted = &mut buffer[..chunk.range().len() as usize];
    let got = ground.read(chunk.at, wanted).map_err(Why::io("read it"))?;
    Ok(&wanted[..got])
}

/// Visits the chunks of the journal, which must be whole and this head's.
fn each_chunk<G: Ground>(
    ground: &G,
    head: &Head,
    mut visit: impl FnMut(Chunk) -> Result<(), Why>,
) -> Result<(), Why> {
    let input = ground.journal().map_err(|error| Why::Journal(error.into()))?;
    let input = input.ok_or_else(|| Why::Journal(io::Error::from(io::ErrorKind::NotFound).into()))?;
    let reader = Reader::new(input).map_err(Why::Journal)?;
    if reader.head() != head {
        return Err(Why::Journal(JournalFlaw::NotOurs));
    }
    for chunk in reader {
        visit(chunk.map_err(Why::Journal)?)?;
    }
    Ok(())
}

impl Supply for Replicas<'_> {
    fn each(&self, take: &mut Take<'_>) -> Result<(), Why> {
        let mut buffer = vec![0; CHUNK_BYTES_MAX];
        for (piece, replica) in &self.survey.mended {
            let source = self.sources.file(*replica).ok_or(Why::ReplicaChanged(piece.range))?;
            let mut refused = None;
            let held = holds(source, *piece, &mut buffer, |at, bytes| {
                self.check_stop().and_then(|()| take(at, bytes)).map_err(|why| {
                    refused = Some(why);
                    io::ErrorKind::Other.into()
                })
            });
            if let Some(why) = refused {
                return Err(why);
            }
            if !held.map_err(Why::io("read the replica"))? {
                return Err(Why::ReplicaChanged(piece.range));
            }
        }
        Ok(())
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), Why> {
        self.check_stop()?;
        let mended = &self.survey.mended;
        let number = mended.partition_point(|(piece, _)| piece.range.end.0 <= at);
        let len = buffer.len() as u64;
        let changed = || Why::ReplicaChanged(ByteRange::between(at, at.saturating_add(len)));
        let source = mended.get(number).and_then(|(_, replica)| self.sources.file(*replica));
        let got = transfer::read_at(source.ok_or_else(changed)?, at, buffer);
        if (got.map_err(Why::io("read the replica"))? as u64) < len {
            return Err(changed());
        }
        self.counters.done_bytes(len);
        Ok(())
    }
}

impl Replicas<'_> {
    fn check_stop(&self) -> Result<(), Why> {
        if self.stop.load(Ordering::Relaxed) { Err(Why::Stopped) } else { Ok(()) }
    }
}
