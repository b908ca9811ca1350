//! In-place repair: the file keeps its identity under all its names, and no space for a second file
//! is needed.
//!
//! A journal next to the file records the current contents of the damaged ranges. The journal is
//! durable before the first byte is overwritten. The repair then writes the new bytes, reads the
//! whole file back from the device and compares it with the waybill. If any step fails, the old
//! bytes are restored.
//!
//! An interrupted repair leaves its journal. The next repair of the file finishes or undoes the
//! interrupted one ([`recover`]). So the file either is unchanged or matches the waybill, except
//! while a journal exists next to it.

mod disk;
mod recover;
#[cfg(test)]
mod tests;

pub(super) use disk::{Disk, was_cut_off};
pub(super) use recover::{Recovery, recover};

use super::LeftReason;
use super::survey::{Sources, Survey, holds, join};
use crate::sum::Counters;
use haul_digest::DigestKey;
use haul_log::journal::{
    CHUNK_BYTES_MAX, Chunk, ChunkState, Head, JournalFlaw, Reader, SECTOR_BYTES, Shape, Writer,
};
use haul_model::ByteRange;
use haul_sys::transfer;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// I/O of an in-place repair: on one file, and on the journal next to it.
pub(super) trait RepairIo {
    /// Incomplete journal, under a name that no run takes for a complete journal.
    type Draft: Write;

    /// Returns true if a journal belongs to this file.
    fn is_for(&self, head: &Head) -> bool;
    /// Returns the size of the file, in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Reads from the file; returns fewer bytes only at its end.
    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Reserves space for a range, so that no write of the range fails for lack of space.
    fn reserve(&self, range: ByteRange) -> io::Result<()>;
    /// Writes to the file.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Truncates or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Sets the mode and capabilities of the file, which a write may clear, and the times in
    /// `shape`.
    fn set_facts(&self, privileges: &Privileges, shape: &Shape) -> io::Result<()>;
    /// Returns the privileges of the file after a recovery: those that it has, and the setuid and
    /// setgid bits that both the waybill and the journal have. A journal adds nothing by itself.
    fn privileges_after(&self, head: &Head) -> io::Result<Privileges>;
    /// Syncs the data and metadata of the file.
    fn sync(&self) -> io::Result<()>;
    /// Drops the file from the page cache, so that the next reads come from the device.
    fn forget(&self) -> io::Result<()>;
    /// Reads the file from the device and checks that the whole file matches the waybill.
    fn prove(&self) -> Result<(), LeftReason>;

    /// Creates a draft of the journal; replaces an earlier draft.
    fn draft(&self) -> io::Result<Self::Draft>;
    /// Syncs a draft and renames it to the journal, durably.
    fn seal(&self, draft: Self::Draft) -> io::Result<()>;
    /// Returns the key of this user's journals.
    fn key(&self) -> Option<&DigestKey>;
    /// Opens the journal for reading from the device.
    fn journal(&self) -> io::Result<JournalFile<'_>>;
    /// Renames a journal that is not trusted, so that no run reads it again. Returns the new name.
    fn set_aside(&self) -> io::Result<String>;
    /// Removes the journal and a draft, durably.
    fn remove_journal(&self) -> io::Result<()>;
}

/// The name of a journal.
pub(super) enum JournalFile<'a> {
    /// There is nothing of this name.
    Missing,
    /// A file of this user that no other user can write.
    Own(Box<dyn Read + 'a>),
    /// Something else.
    Foreign,
}

/// Mode and capabilities of a file, which a write may clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Privileges {
    pub(super) mode: u32,
    /// Value of `security.capability`; if it is empty, the attribute is left as it is.
    pub(super) capability: Vec<u8>,
    /// True if a write removed capabilities that only the journal knows.
    pub(super) has_lost_capability: bool,
}

impl Privileges {
    /// Returns the privileges that a head in memory states.
    fn of(head: &Head) -> Privileges {
        Privileges { mode: head.mode, capability: head.capability.clone(), has_lost_capability: false }
    }
}

/// Callback that receives bytes and their offset.
pub(super) type Take<'t> = dyn FnMut(u64, &[u8]) -> Result<(), LeftReason> + 't;

/// Source of replacement bytes.
pub(super) trait ReplacementSource {
    /// Passes all new bytes in order, at most [`CHUNK_BYTES_MAX`] at a time. The bytes are verified
    /// when this function returns.
    fn each(&self, take: &mut Take<'_>) -> Result<(), LeftReason>;
    /// Returns [`LeftReason::Stopped`] if the repair is to end. Work whose length no call of the
    /// other functions limits checks this for each chunk.
    fn check_stop(&self) -> Result<(), LeftReason>;
    /// Reads the new bytes from `at` on again.
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), LeftReason>;
}

/// Replicas that a survey selected.
pub(super) struct Replicas<'a> {
    pub(super) survey: &'a Survey,
    pub(super) sources: &'a Sources,
    pub(super) counters: &'a Counters,
    pub(super) stop: &'a AtomicBool,
}

/// Repairs a file in place.
///
/// # Errors
/// Returns a [`LeftReason`]. The file is then unchanged, except after [`LeftReason::HalfDone`].
pub(super) fn mend<G: RepairIo>(
    repair_io: &G,
    head: &Head,
    replacements: &impl ReplacementSource,
) -> Result<(), LeftReason> {
    let privileges = &Privileges::of(head);
    // Set the final metadata once now, before anything is at risk: a user without the permission
    // fails here.
    repair_io.set_facts(privileges, &head.before).map_err(LeftReason::io("restore the times of the file"))?;
    let ranges = match write_down(repair_io, head, replacements) {
        Ok(ranges) => ranges,
        Err(why) => {
            // The file is unchanged, and a remaining journal also shows this. The first error is
            // more important.
            let _ = repair_io.remove_journal();
            return Err(why);
        }
    };
    match write_over(repair_io, head, replacements, &ranges) {
        Ok(()) => {
            repair_io.remove_journal().map_err(LeftReason::io("remove the journal of the finished repair"))
        }
        Err(why) => Err(match roll_back(repair_io, head, privileges) {
            Ok(()) => why,
            Err(trouble) => LeftReason::HalfDone(Box::new(why), Box::new(trouble)),
        }),
    }
}

/// Writes the journal and returns the ranges to overwrite. The caller may overwrite them
/// afterwards.
fn write_down<G: RepairIo>(
    repair_io: &G,
    head: &Head,
    replacements: &impl ReplacementSource,
) -> Result<Vec<ByteRange>, LeftReason> {
    let failed = || LeftReason::io("write the journal of the replaced bytes");
    let draft = repair_io.draft().map_err(failed())?;
    let key = repair_io.key().ok_or_else(|| failed()(io::ErrorKind::NotFound.into()))?;
    let mut writer = Writer::new(draft, head, key).map_err(failed())?;
    let mut ranges = Vec::new();
    let mut keep = |at: u64, new: &[u8], len: usize| {
        let mut old = vec![0; len];
        let within = head.before.size.saturating_sub(at).min(len as u64) as usize;
        old.truncate(within);
        // Unreadable bytes could not be restored, so the file must not be overwritten.
        let got = repair_io.read(at, &mut old).map_err(LeftReason::io("read the bytes to replace"))?;
        if got < within {
            return Err(LeftReason::ChangedMeanwhile);
        }
        if old != new {
            let chunk = Chunk::new(at, old, new);
            join(&mut ranges, chunk.range());
            writer.chunk(&chunk).map_err(failed())?;
        }
        Ok(())
    };
    replacements.each(&mut |at, new| keep(at, new, new.len()))?;
    let mut at = head.after.size;
    while at < head.before.size {
        // Chunks are compared by sectors, so each one must start at a sector boundary.
        let sector = at.next_multiple_of(SECTOR_BYTES as u64) - at;
        let most = if sector > 0 { sector } else { CHUNK_BYTES_MAX as u64 };
        let len = (head.before.size - at).min(most);
        replacements.check_stop()?;
        keep(at, &[], len as usize)?;
        at += len;
    }
    if ranges.is_empty() && head.before.size == head.after.size {
        return Err(LeftReason::ChangedMeanwhile);
    }
    repair_io.seal(writer.close().map_err(failed())?).map_err(failed())?;
    each_chunk(repair_io, head, |_| replacements.check_stop())?;
    Ok(ranges)
}

/// Writes the new bytes to the file and verifies the file.
fn write_over<G: RepairIo>(
    repair_io: &G,
    head: &Head,
    replacements: &impl ReplacementSource,
    ranges: &[ByteRange],
) -> Result<(), LeftReason> {
    let failed = || LeftReason::io("write to the file");
    let end = head.after.size;
    for range in ranges.iter().filter_map(|range| range.intersect(ByteRange::between(0, end))) {
        repair_io.reserve(range).map_err(failed())?;
    }
    if end > head.before.size {
        // Extend the file first, durably. Otherwise the last sector could get new bytes and end in
        // their middle, at the old size.
        repair_io.set_len(end).and_then(|()| repair_io.sync()).map_err(failed())?;
    }
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    each_chunk(repair_io, head, |chunk| {
        replacements.check_stop()?;
        let new = &mut buffer[..chunk.new_len as usize];
        if new.is_empty() {
            return Ok(());
        }
        replacements.read(chunk.at, new)?;
        if !chunk.is_new(new) {
            return Err(LeftReason::ReplicaChanged(chunk.range()));
        }
        repair_io.write(chunk.at, new).map_err(failed())
    })?;
    finish(repair_io, head, &Privileges::of(head))
}

/// Completes a repair after all new bytes are in the file.
fn finish<G: RepairIo>(repair_io: &G, head: &Head, privileges: &Privileges) -> Result<(), LeftReason> {
    let failed = || LeftReason::io("write to the file");
    if repair_io.size().map_err(failed())? != head.after.size {
        repair_io.set_len(head.after.size).map_err(failed())?;
    }
    repair_io.sync().map_err(failed())?;
    repair_io.prove()?;
    repair_io.set_facts(privileges, &head.after).map_err(LeftReason::io("set mode and times of the file"))?;
    repair_io.sync().map_err(failed())
}

/// Restores the bytes of the journal, checks them, and removes the journal.
fn roll_back<G: RepairIo>(repair_io: &G, head: &Head, privileges: &Privileges) -> Result<(), LeftReason> {
    let failed = || LeftReason::io("write to the file");
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    each_chunk(repair_io, head, |chunk| {
        if chunk.state(current_bytes(repair_io, &chunk, &mut buffer)?) == ChunkState::Old {
            return Ok(());
        }
        // Write zeros after the old end until the file is truncated there, for the same reason as
        // in `write_over`.
        let mut old = chunk.old.clone();
        old.resize(chunk.range().len() as usize, 0);
        repair_io.write(chunk.at, &old).map_err(failed())
    })?;
    repair_io.sync().map_err(failed())?;
    if repair_io.size().map_err(failed())? != head.before.size {
        repair_io.set_len(head.before.size).and_then(|()| repair_io.sync()).map_err(failed())?;
    }
    repair_io.forget().map_err(LeftReason::io("read back the restored bytes"))?;
    each_chunk(repair_io, head, |chunk| {
        let now = current_bytes(repair_io, &chunk, &mut buffer)?;
        if now == chunk.old { Ok(()) } else { Err(LeftReason::NotPutBack(chunk.range())) }
    })?;
    repair_io
        .set_facts(privileges, &head.before)
        .map_err(LeftReason::io("set mode and times of the file"))?;
    repair_io.sync().map_err(failed())?;
    repair_io.remove_journal().map_err(LeftReason::io("remove the journal of the undone repair"))
}

/// Reads the current bytes of the file in the range of a chunk.
fn current_bytes<'b>(
    repair_io: &impl RepairIo,
    chunk: &Chunk,
    buffer: &'b mut [u8],
) -> Result<&'b [u8], LeftReason> {
    let wanted = &mut buffer[..chunk.range().len() as usize];
    let got = repair_io.read(chunk.at, wanted).map_err(LeftReason::io("read the file"))?;
    Ok(&wanted[..got])
}

/// Visits the chunks of the journal, which must be complete and have this head.
fn each_chunk<G: RepairIo>(
    repair_io: &G,
    head: &Head,
    mut visit: impl FnMut(Chunk) -> Result<(), LeftReason>,
) -> Result<(), LeftReason> {
    let input = repair_io.journal().map_err(|error| LeftReason::Journal(error.into()))?;
    let (JournalFile::Own(input), Some(key)) = (input, repair_io.key()) else {
        return Err(LeftReason::Journal(JournalFlaw::NotOurs));
    };
    let reader = Reader::new(input, key).map_err(LeftReason::Journal)?;
    if reader.head() != head {
        return Err(LeftReason::Journal(JournalFlaw::NotOurs));
    }
    for chunk in reader {
        visit(chunk.map_err(LeftReason::Journal)?)?;
    }
    Ok(())
}

impl ReplacementSource for Replicas<'_> {
    fn each(&self, take: &mut Take<'_>) -> Result<(), LeftReason> {
        let mut buffer = vec![0; CHUNK_BYTES_MAX];
        for (piece, replica) in &self.survey.mended {
            let source = self.sources.file(*replica).ok_or(LeftReason::ReplicaChanged(piece.range))?;
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
            if !held.map_err(LeftReason::io("read the replica"))? {
                return Err(LeftReason::ReplicaChanged(piece.range));
            }
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<(), LeftReason> {
        if self.stop.load(Ordering::Relaxed) { Err(LeftReason::Stopped) } else { Ok(()) }
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), LeftReason> {
        self.check_stop()?;
        let mended = &self.survey.mended;
        let number = mended.partition_point(|(piece, _)| piece.range.end.0 <= at);
        let len = buffer.len() as u64;
        let changed = || LeftReason::ReplicaChanged(ByteRange::between(at, at.saturating_add(len)));
        let source = mended.get(number).and_then(|(_, replica)| self.sources.file(*replica));
        let got = transfer::read_at(source.ok_or_else(changed)?, at, buffer);
        if (got.map_err(LeftReason::io("read the replica"))? as u64) < len {
            return Err(changed());
        }
        self.counters.done_bytes(len);
        Ok(())
    }
}
