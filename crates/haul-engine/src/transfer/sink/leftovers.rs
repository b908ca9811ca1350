//! Temporary files that an abandoned job left at its sink: incomplete files, under names of the
//! job's own.

use super::Destination;
use crate::log::{LockedJob, LogError, Target, logged_paths};
use haul_log::objects::Identity;
use haul_model::RelPath;
use haul_storage::{Dir, Name, Remove, Tag};
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::Path;

/// Length of the prefix that all temporary names of a job share, in bytes.
const TAG_OF_JOB: usize = ".haul-0123456789abcdef-".len();

/// Number of names read in one batch.
const NAMES_AT_ONCE: usize = 256;

/// Returns the tag of the temporary name of a job's file.
pub(super) fn tag(job: Identity, path: &[u8]) -> Tag {
    let number =
        |identity: Identity| identity.0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    Tag { session: number(job), number: number(Identity::of(path)) }
}

/// Removes the temporary files of a job in one directory, except the names in `stay`.
///
/// # Errors
/// Returns the error if the directory cannot be read or a name cannot be removed.
pub(super) fn sweep(dir: &dyn Dir, job: Identity, stay: &HashSet<Name>) -> io::Result<()> {
    let own = tag(job, b"").name();
    let ours = &own.as_bytes()[..TAG_OF_JOB];
    let mut listing = dir.list()?;
    let (mut found, mut more) = (Vec::new(), true);
    while more {
        more = listing.next(NAMES_AT_ONCE, &mut found)?;
        found.retain(|entry| entry.name.as_bytes().starts_with(ours) && !stay.contains(&entry.name));
    }
    found.iter().try_for_each(|entry| dir.remove(&entry.name, Remove::File))
}

/// Deletes a client's job below a state directory: first its temporary files in directories that
/// its log lists, and then the log. Returns false, without a change, if a process holds the job.
///
/// # Errors
/// Returns a [`LogError`] if part of the log is left.
pub fn forget(state: &Path, job: Identity) -> Result<bool, LogError> {
    let locked_job = match LockedJob::take(state, job, false) {
        Err(LogError::Held { .. }) => return Ok(false),
        taken => taken?,
    };
    if let Some(target) = Target::read(locked_job.folder())? {
        let paths = logged_paths(&locked_job, job, target.object).unwrap_or_default();
        // Ignore an error: the temporary names are unique, so they conflict with no other file.
        let _ = sweep_all(&target, job, &paths);
    }
    locked_job.forget()?;
    Ok(true)
}

/// Removes the temporary files of a job in its destination directory and in the directories of
/// these files.
fn sweep_all(target: &Target, job: Identity, paths: &BTreeSet<RelPath>) -> io::Result<()> {
    let destination = Destination::open(target.root.as_os_str(), &target.into, 0, None)?;
    let none = HashSet::new();
    let mut swept: HashSet<&[u8]> = HashSet::new();
    for path in paths.iter().map(RelPath::as_bytes).chain([&b"-"[..]]) {
        let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        if swept.insert(&path[..end]) {
            // Ignore an error: a directory that is gone or inaccessible does not affect the others.
            let _ = destination.dirs.entry(path).and_then(|at| sweep(&*at.dir, job, &none));
        }
    }
    Ok(())
}
