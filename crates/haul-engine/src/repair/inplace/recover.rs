//! Recovery of an interrupted in-place repair: the repair is finished or undone.

use super::{Ground, finish, put_back, standing_bytes};
use crate::repair::Why;
use haul_log::journal::{CHUNK_BYTES_MAX, Chunk, Head, Reader, Standing};

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
/// Returns a [`Why`]. The journal stays, with everything that the next call needs.
pub(in crate::repair) fn recover<G: Ground>(ground: &G) -> Result<Option<Recovered>, Why> {
    let Some(input) = ground.journal().map_err(|error| Why::Journal(error.into()))? else {
        ground.remove_journal().map_err(Why::io("remove an incomplete journal"))?;
        return Ok(None);
    };
    let reader = Reader::new(input).map_err(Why::Journal)?;
    let head = reader.head().clone();
    if !ground.is_for(&head) {
        return Err(Why::OthersJournal);
    }
    let size = ground.size().map_err(Why::io("check the file"))?;
    let (before, after) = (head.before.size, head.after.size);
    if size < before.min(after) || size > before.max(after) {
        return Err(Why::Foreign);
    }
    let is_done = all_new(ground, reader)? && finish_what_is_done(ground, &head)?;
    if is_done {
        ground.remove_journal().map_err(Why::io("remove the journal of the finished repair"))?;
        return Ok(Some(Recovered::Finished));
    }
    put_back(ground, &head)?;
    Ok(Some(Recovered::Undone))
}

/// Returns true if the file has all new bytes. Reads the whole journal before the caller acts on
/// it.
fn all_new<G: Ground>(
    ground: &G,
    chunks: impl Iterator<Item = Result<Chunk, haul_log::journal::JournalFlaw>>,
) -> Result<bool, Why> {
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    let (mut is_new, mut is_foreign) = (true, false);
    for chunk in chunks {
        let chunk = chunk.map_err(Why::Journal)?;
        match chunk.standing(standing_bytes(ground, &chunk, &mut buffer)?) {
            Standing::New => {}
            Standing::Old | Standing::Mixed => is_new = false,
            Standing::Foreign => is_foreign = true,
        }
    }
    if is_foreign { Err(Why::Foreign) } else { Ok(is_new) }
}

/// Syncs and verifies the written bytes; returns false if that fails.
fn finish_what_is_done<G: Ground>(ground: &G, head: &Head) -> Result<bool, Why> {
    match finish(ground, head) {
        Ok(()) => Ok(true),
        Err(Why::Stopped) => Err(Why::Stopped),
        // The device returns other bytes than the read before, or another part of the file is
        // damaged.
        Err(_) => Ok(false),
    }
}
