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

mod file;
mod recover;
#[cfg(test)]
mod tests;

pub(super) use file::{InPlaceFile, was_cut_off};
pub(super) use recover::{Recovery, recover};

use super::LeftReason;
use super::survey::{Sources, Survey, holds, join};
use crate::pipeline::BlockFault;
use crate::sum::Counters;
use haul_log::journal::{
    CHUNK_BYTES_MAX, Chunk, ChunkState, Head, JournalFlaw, Reader, SECTOR_BYTES, Writer,
};
use haul_model::ByteRange;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

/// The name of a journal.
pub(super) enum JournalFile {
    /// There is nothing of this name.
    Missing,
    /// A file of this user that no other user can write.
    Own(Box<dyn Read>),
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
pub(super) fn mend(
    file: &mut InPlaceFile<'_>,
    head: &Head,
    replacements: &impl ReplacementSource,
) -> Result<(), LeftReason> {
    let privileges = &Privileges::of(head);
    // Set the final metadata once now, before anything is at risk: a user without the permission
    // fails here.
    file.set_facts(privileges, &head.before).map_err(LeftReason::io("restore the times of the file"))?;
    let ranges = match write_down(file, head, replacements) {
        Ok(ranges) => ranges,
        Err(why) => {
            // The file is unchanged, and a remaining journal also shows this. The first error is
            // more important.
            let _ = file.remove_journal();
            return Err(why);
        }
    };
    match write_over(file, head, replacements, &ranges) {
        Ok(()) => file.remove_journal().map_err(LeftReason::io("remove the journal of the finished repair")),
        Err(why) => Err(match roll_back(file, head, privileges) {
            Ok(()) => why,
            Err(trouble) => LeftReason::HalfDone(Box::new(why), Box::new(trouble)),
        }),
    }
}

/// Writes the journal and returns the ranges to overwrite. The caller may overwrite them
/// afterwards.
fn write_down(
    file: &InPlaceFile<'_>,
    head: &Head,
    replacements: &impl ReplacementSource,
) -> Result<Vec<ByteRange>, LeftReason> {
    let failed = || LeftReason::io("write the journal of the replaced bytes");
    let draft = file.draft().map_err(failed())?;
    let key = file.key().ok_or_else(|| failed()(io::ErrorKind::NotFound.into()))?;
    let mut writer = Writer::new(draft, head, key).map_err(failed())?;
    let mut ranges = Vec::new();
    let mut keep = |at: u64, new: &[u8], len: usize| {
        let mut old = vec![0; len];
        let within = head.before.size.saturating_sub(at).min(len as u64) as usize;
        old.truncate(within);
        // Unreadable bytes could not be restored, so the file must not be overwritten.
        let got = file.read(at, &mut old).map_err(LeftReason::io("read the bytes to replace"))?;
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
    file.seal(writer.close().map_err(failed())?).map_err(failed())?;
    each_chunk(file, head, |_| replacements.check_stop())?;
    Ok(ranges)
}

/// Writes the new bytes to the file and verifies the file.
fn write_over(
    file: &InPlaceFile<'_>,
    head: &Head,
    replacements: &impl ReplacementSource,
    ranges: &[ByteRange],
) -> Result<(), LeftReason> {
    let failed = || LeftReason::io("write to the file");
    let end = head.after.size;
    for range in ranges.iter().filter_map(|range| range.intersect(ByteRange::between(0, end))) {
        file.reserve(range).map_err(failed())?;
    }
    if end > head.before.size {
        // Extend the file first, durably. Otherwise the last sector could get new bytes and end in
        // their middle, at the old size.
        file.set_len(end).and_then(|()| file.sync()).map_err(failed())?;
    }
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    each_chunk(file, head, |chunk| {
        replacements.check_stop()?;
        let new = &mut buffer[..chunk.new_len as usize];
        if new.is_empty() {
            return Ok(());
        }
        replacements.read(chunk.at, new)?;
        if !chunk.is_new(new) {
            return Err(LeftReason::ReplicaChanged(chunk.range()));
        }
        file.write(chunk.at, new).map_err(failed())
    })?;
    finish(file, head, &Privileges::of(head))
}

/// Completes a repair after all new bytes are in the file.
fn finish(file: &InPlaceFile<'_>, head: &Head, privileges: &Privileges) -> Result<(), LeftReason> {
    let failed = || LeftReason::io("write to the file");
    if file.size().map_err(failed())? != head.after.size {
        file.set_len(head.after.size).map_err(failed())?;
    }
    file.sync().map_err(failed())?;
    file.prove()?;
    file.set_facts(privileges, &head.after).map_err(LeftReason::io("set mode and times of the file"))?;
    file.sync().map_err(failed())
}

/// Restores the bytes of the journal, checks them, and removes the journal.
fn roll_back(file: &mut InPlaceFile<'_>, head: &Head, privileges: &Privileges) -> Result<(), LeftReason> {
    let failed = || LeftReason::io("write to the file");
    file.reopen_failed().map_err(LeftReason::io("open the file for writing"))?;
    let file = &*file;
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    each_chunk(file, head, |chunk| {
        if chunk.state(current_bytes(file, &chunk, &mut buffer)?) == ChunkState::Old {
            return Ok(());
        }
        // Write zeros after the old end until the file is truncated there, for the same reason as
        // in `write_over`.
        let mut old = chunk.old.clone();
        old.resize(chunk.range().len() as usize, 0);
        file.write(chunk.at, &old).map_err(failed())
    })?;
    file.sync().map_err(failed())?;
    if file.size().map_err(failed())? != head.before.size {
        file.set_len(head.before.size).and_then(|()| file.sync()).map_err(failed())?;
    }
    file.forget().map_err(LeftReason::io("read back the restored bytes"))?;
    each_chunk(file, head, |chunk| {
        let now = current_bytes(file, &chunk, &mut buffer)?;
        if now == chunk.old { Ok(()) } else { Err(LeftReason::NotPutBack(chunk.range())) }
    })?;
    file.set_facts(privileges, &head.before).map_err(LeftReason::io("set mode and times of the file"))?;
    file.sync().map_err(failed())?;
    file.remove_journal().map_err(LeftReason::io("remove the journal of the undone repair"))
}

/// Reads the current bytes of the file in the range of a chunk.
fn current_bytes<'b>(
    file: &InPlaceFile<'_>,
    chunk: &Chunk,
    buffer: &'b mut [u8],
) -> Result<&'b [u8], LeftReason> {
    let wanted = &mut buffer[..chunk.range().len() as usize];
    let got = file.read(chunk.at, wanted).map_err(LeftReason::io("read the file"))?;
    Ok(&wanted[..got])
}

/// Visits the chunks of the journal, which must be complete and have this head.
fn each_chunk(
    file: &InPlaceFile<'_>,
    head: &Head,
    mut visit: impl FnMut(Chunk) -> Result<(), LeftReason>,
) -> Result<(), LeftReason> {
    let input = file.journal().map_err(|error| LeftReason::Journal(error.into()))?;
    let (JournalFile::Own(input), Some(key)) = (input, file.key()) else {
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
            let held = holds(source, *piece, &mut buffer, self.stop, &mut *take);
            let held = held.map_err(|fault| match fault {
                BlockFault::Stopped => LeftReason::Stopped,
                BlockFault::Read(_, error) => LeftReason::io("read the replica")(error),
                BlockFault::Ended(..) => LeftReason::ReplicaChanged(piece.range),
                BlockFault::Receiver(why) => why,
            });
            if !held? {
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
        let got = source.ok_or_else(changed)?.read_at(at, buffer);
        if (got.map_err(LeftReason::io("read the replica"))? as u64) < len {
            return Err(changed());
        }
        self.counters.done_bytes(len);
        Ok(())
    }
}
