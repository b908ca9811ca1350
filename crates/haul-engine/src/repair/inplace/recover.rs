//! Recovery of an interrupted in-place repair: the repair is finished or undone.

use super::{RepairIo, current_bytes, finish, roll_back};
use crate::repair::LeftReason;
use haul_log::journal::{CHUNK_BYTES_MAX, Chunk, ChunkState, Head, Reader};

/// Result of the recovery of an interrupted repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// All new bytes were written; they are now durable and verified.
    Finished,
    /// The file has its contents from before the repair.
    Undone,
}

/// Finishes or undoes the repair that the journal next to a file describes. Returns `None` if there
/// is no journal. Removes a draft, because the file is unchanged while there is only a draft.
///
/// # Errors
/// Returns a [`LeftReason`]. The journal stays, with everything that the next call needs.
pub(in crate::repair) fn recover<G: RepairIo>(repair_io: &G) -> Result<Option<Recovered>, LeftReason> {
    let Some(input) = repair_io.journal().map_err(|error| LeftReason::Journal(error.into()))? else {
        repair_io.remove_journal().map_err(LeftReason::io("remove an incomplete journal"))?;
        return Ok(None);
    };
    let reader = Reader::new(input).map_err(LeftReason::Journal)?;
    let head = reader.head().clone();
    if !repair_io.is_for(&head) {
        return Err(LeftReason::OthersJournal);
    }
    let size = repair_io.size().map_err(LeftReason::io("check the file"))?;
    let (before, after) = (head.before.size, head.after.size);
    if size < before.min(after) || size > before.max(after) {
        return Err(LeftReason::Foreign);
    }
    let is_done = all_new(repair_io, reader)? && finish_what_is_done(repair_io, &head)?;
    if is_done {
        repair_io.remove_journal().map_err(LeftReason::io("remove the journal of the finished repair"))?;
        return Ok(Some(Recovered::Finished));
    }
    roll_back(repair_io, &head)?;
    Ok(Some(Recovered::Undone))
}

/// Returns true if the file has all new bytes. Reads the whole journal before the caller acts on
/// it.
fn all_new<G: RepairIo>(
    repair_io: &G,
    chunks: impl Iterator<Item = Result<Chunk, haul_log::journal::JournalFlaw>>,
) -> Result<bool, LeftReason> {
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    let (mut is_new, mut is_foreign) = (true, false);
    for chunk in chunks {
        let chunk = chunk.map_err(LeftReason::Journal)?;
        match chunk.state(current_bytes(repair_io, &chunk, &mut buffer)?) {
            ChunkState::New => {}
            ChunkState::Old | ChunkState::Mixed => is_new = false,
            ChunkState::Foreign => is_foreign = true,
        }
    }
    if is_foreign { Err(LeftReason::Foreign) } else { Ok(is_new) }
}

/// Syncs and verifies the written bytes; returns false if that fails.
fn finish_what_is_done<G: RepairIo>(repair_io: &G, head: &Head) -> Result<bool, LeftReason> {
    match finish(repair_io, head) {
        Ok(()) => Ok(true),
        Err(LeftReason::Stopped) => Err(LeftReason::Stopped),
        // The device returns other bytes than the read before, or another part of the file is
        // damaged.
        Err(_) => Ok(false),
    }
}
