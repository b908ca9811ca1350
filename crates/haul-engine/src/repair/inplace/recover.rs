//! Recovery of an interrupted in-place repair: the repair is finished or undone.

use super::{InPlaceFile, JournalFile, Privileges, current_bytes, finish, roll_back};
use crate::repair::{JournalDistrust, LeftReason, Recovered};
use haul_log::journal::{CHUNK_BYTES_MAX, Chunk, ChunkState, Head, JournalFlaw, Reader};
use std::io;

/// Result of the search for a journal.
#[derive(Debug)]
pub(in crate::repair) enum Recovery {
    /// There is no journal.
    None,
    /// The journal was used.
    Done {
        became: Recovered,
        /// True if the file lost capabilities, which a journal never restores.
        has_lost_capability: bool,
    },
    /// The journal is not trusted. The file is as it was.
    Distrusted {
        why: JournalDistrust,
        /// Name that the journal has now, or the reason why it was not renamed.
        aside: io::Result<String>,
    },
}

/// Finishes or undoes the repair that the journal next to a file describes. Removes a draft,
/// because the file is unchanged while there is only a draft. Renames a journal that is not
/// trusted, and leaves the file unchanged then.
///
/// # Errors
/// Returns a [`LeftReason`]. The journal stays, with everything that the next call needs.
pub(in crate::repair) fn recover(file: &mut InPlaceFile<'_>) -> Result<Recovery, LeftReason> {
    let distrusted = |file: &InPlaceFile<'_>, why| Ok(Recovery::Distrusted { why, aside: file.set_aside() });
    let input = match file.journal().map_err(|error| LeftReason::Journal(error.into()))? {
        JournalFile::Missing => {
            file.remove_journal().map_err(LeftReason::io("remove an incomplete journal"))?;
            return Ok(Recovery::None);
        }
        JournalFile::Foreign => return distrusted(file, JournalDistrust::Foreign),
        JournalFile::Own(input) => input,
    };
    let Some(key) = file.key() else { return distrusted(file, JournalDistrust::NoKey) };
    let reader = match Reader::new(input, key) {
        Err(JournalFlaw::Io(error)) => return Err(LeftReason::Journal(error.into())),
        Err(flaw) => return distrusted(file, JournalDistrust::Flaw(flaw)),
        Ok(reader) => reader,
    };
    let head = reader.head().clone();
    if !file.is_for(&head) {
        return distrusted(file, JournalDistrust::OtherFile);
    }
    let size = file.size().map_err(LeftReason::io("check the file"))?;
    let (before, after) = (head.before.size, head.after.size);
    let is_size_known = (before.min(after)..=before.max(after)).contains(&size);
    let privileges = file.privileges_after(&head).map_err(LeftReason::io("check the file"))?;
    let has_lost_capability = privileges.has_lost_capability;
    let done = |became| Ok(Recovery::Done { became, has_lost_capability });
    let is_new = match all_new(file, reader)? {
        Err(flaw) => return distrusted(file, JournalDistrust::Flaw(flaw)),
        Ok(_) if !is_size_known => return Err(LeftReason::Foreign),
        Ok(is_new) => is_new,
    };
    if is_new && finish_what_is_done(file, &head, &privileges)? {
        file.remove_journal().map_err(LeftReason::io("remove the journal of the finished repair"))?;
        return done(Recovered::Finished);
    }
    roll_back(file, &head, &privileges)?;
    done(Recovered::Undone)
}

/// Returns true if the file has all new bytes, or the flaw of a journal that is not authentic.
/// Reads the whole journal before the caller acts on it.
fn all_new(
    file: &InPlaceFile<'_>,
    chunks: impl Iterator<Item = Result<Chunk, JournalFlaw>>,
) -> Result<Result<bool, JournalFlaw>, LeftReason> {
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    let (mut is_new, mut is_foreign) = (true, false);
    for chunk in chunks {
        let chunk = match chunk {
            Err(JournalFlaw::Io(error)) => return Err(LeftReason::Journal(error.into())),
            Err(flaw) => return Ok(Err(flaw)),
            Ok(chunk) => chunk,
        };
        match chunk.state(current_bytes(file, &chunk, &mut buffer)?) {
            ChunkState::New => {}
            ChunkState::Old | ChunkState::Mixed => is_new = false,
            ChunkState::Foreign => is_foreign = true,
        }
    }
    if is_foreign { Err(LeftReason::Foreign) } else { Ok(Ok(is_new)) }
}

/// Syncs and verifies the written bytes; returns false if that fails.
fn finish_what_is_done(
    file: &InPlaceFile<'_>,
    head: &Head,
    privileges: &Privileges,
) -> Result<bool, LeftReason> {
    match finish(file, head, privileges) {
        Ok(()) => Ok(true),
        Err(LeftReason::Stopped) => Err(LeftReason::Stopped),
        // The device returns other bytes than the read before, or another part of the file is
        // damaged.
        Err(_) => Ok(false),
    }
}
