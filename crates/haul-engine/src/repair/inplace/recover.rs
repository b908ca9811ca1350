//! What a repair in place left that was cut off: it is finished, or undone.

use super::{Ground, finish, put_back, standing_bytes};
use crate::repair::Why;
use haul_log::journal::{CHUNK_BYTES_MAX, Chunk, Head, Reader, Standing};

/// What became of a repair that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// All of its bytes were written: they are durable and proven now.
    Finished,
    /// The file is what it was before.
    Undone,
}

/// Finishes or undoes what the journal beside a file says was begun; `None` where there is none. A draft, of which nothing
/// was done, is removed.
///
/// # Errors
/// [`Why`]: the journal stays, and with it all that the next call needs.
pub(in crate::repair) fn recover<G: Ground>(ground: &G) -> Result<Option<Recovered>, Why> {
    let Some(input) = ground.journal().map_err(|error| Why::Journal(error.into()))? else {
        ground.remove_journal().map_err(Why::io("remove the beginnings of a journal"))?;
        return Ok(None);
    };
    let reader = Reader::new(input).map_err(Why::Journal)?;
    let head = reader.head().clone();
    if !ground.is_for(&head) {
        return Err(Why::OthersJournal);
    }
    let size = ground.size().map_err(Why::io("look at it"))?;
    let (before, after) = (head.before.size, head.after.size);
    if size < before.min(after) || size > before.max(after) {
        return Err(Why::Foreign);
    }
    let is_done = all_new(ground, reader)? && finish_what_is_done(ground, &head)?;
    if is_done {
        ground.remove_journal().map_err(Why::io("remove the journal of its repair, which is done"))?;
        return Ok(Some(Recovered::Finished));
    }
    put_back(ground, &head)?;
    Ok(Some(Recovered::Undone))
}

/// Whether all new bytes stand in the file. All of the journal was read before anything is done by it.
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

/// Makes durable and proves what was written; false if that can't be.
fn finish_what_is_done<G: Ground>(ground: &G, head: &Head) -> Result<bool, Why> {
    match finish(ground, head) {
        Ok(()) => Ok(true),
        Err(Why::Stopped) => Err(Why::Stopped),
        // The device has something else than was read a moment ago, or another part is damaged, too.
        Err(_) => Ok(false),
    }
}
