//! `--backup`: renames an existing sink before its name is reused.

use super::rules::{Backup, BackupMethod};
use crate::location::Location;
use crate::paths::{last_component, without_slashes};
use haul_storage::{Follow, Replace, Stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Maximum number of names per directory read during the search for numbered backups.
const NAMES_PER_READ: usize = 1024;

/// Maximum number of attempts to get a number if other processes take it first.
const ATTEMPTS: usize = 100;

/// Renames a sink to its backup name and returns the backup name. Returns `None` if the sink no
/// longer exists.
///
/// # Errors
/// Returns the error of renameat(2) or of reading the directory.
pub(crate) fn rename(sink: &Location<'_>, backup: &Backup) -> io::Result<Option<OsString>> {
    for _ in 0..ATTEMPTS {
        let (kept, replace) = match number_for(sink, backup.method)? {
            None => (simple(sink.name(), &backup.suffix), Replace::Yes),
            Some(number) => (numbered(sink.name(), number), Replace::No),
        };
        match sink.rename(&sink.beside(&kept), replace) {
            Ok(()) => return Ok(Some(kept)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // The file system does not support `RENAME_NOREPLACE`. The number was free a moment
            // ago.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && replace == Replace::No => {
                sink.rename(&sink.beside(&kept), Replace::Yes)?;
                return Ok(Some(kept));
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns the name that the next backup of a sink would get.
///
/// # Errors
/// Returns the error of reading the directory.
pub(crate) fn next_name(sink: &Location<'_>, backup: &Backup) -> io::Result<OsString> {
    let (name, number) = (sink.name(), number_for(sink, backup.method)?);
    Ok(number.map_or_else(|| simple(name, &backup.suffix), |number| numbered(name, number)))
}

/// Returns true if the source is the file that the simple backup of the sink would replace.
pub(crate) fn would_take_source(source: (&OsStr, &Stat), sink: &Location<'_>, backup: &Backup) -> bool {
    let expected = simple(last_component(sink.name()), &backup.suffix);
    let kept = || sink.beside(&simple(sink.name(), &backup.suffix)).stat(Follow::Yes);
    backup.method != BackupMethod::Numbered
        && last_component(source.0) == expected
        && kept().is_ok_and(|kept| kept.identity() == source.1.identity())
}

/// Returns true if the backup of the sink would replace the only name of the source, which was
/// found through a link.
pub(crate) fn would_end_source(source: &Stat, sink: &Location<'_>, backup: &Backup) -> bool {
    source.nlink == 1
        && next_name(sink, backup)
            .and_then(|kept| sink.beside(&kept).stat(Follow::No))
            .is_ok_and(|standing| standing.identity() == source.identity())
}

fn simple(name: &OsStr, suffix: &OsStr) -> OsString {
    let mut kept = without_slashes(name).to_owned();
    kept.push(suffix);
    kept
}

fn numbered(name: &OsStr, number: u64) -> OsString {
    let mut kept = without_slashes(name).to_owned();
    kept.push(format!(".~{number}~"));
    kept
}

/// Returns the number for a new backup, or `None` if the simple suffix applies.
fn number_for(sink: &Location<'_>, method: BackupMethod) -> io::Result<Option<u64>> {
    if method == BackupMethod::Simple {
        return Ok(None);
    }
    let last = last_component(sink.name()).as_bytes();
    let mut highest = 0;
    let mut entries = Vec::new();
    let mut listing = match sink.list_around() {
        Ok(listing) => listing,
        // A user without read permission may still have write permission. As in GNU's tools, no
        // number is known then.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok((method == BackupMethod::Numbered).then_some(1));
        }
        Err(error) => return Err(error),
    };
    loop {
        let more = listing.next(NAMES_PER_READ, &mut entries)?;
        for entry in entries.drain(..) {
            highest = highest.max(number_in(entry.name.as_bytes(), last).unwrap_or(0));
        }
        if !more {
            break;
        }
    }
    let next = (highest > 0 || method == BackupMethod::Numbered).then(|| highest.saturating_add(1));
    Ok(next)
}

/// Returns the number in `name.~N~`, or `None` if there is none or it has leading zeros.
fn number_in(candidate: &[u8], name: &[u8]) -> Option<u64> {
    let digits = candidate.strip_prefix(name)?.strip_prefix(b".~")?.strip_suffix(b"~")?;
    if digits.first() == Some(&b'0') || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cp::Place;
    use std::fs;

    #[test]
    fn backup_numbers_are_parsed_only_from_matching_names() {
        assert_eq!(number_in(b"a.~12~", b"a"), Some(12));
        for other in ["a.~~", "a.~01~", "a.~1", "b.~1~", "a.~1x~", "a~"] {
            assert_eq!(number_in(other.as_bytes(), b"a"), None, "{other}");
        }
    }

    #[test]
    fn existing_method_continues_numbers_or_uses_the_suffix() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "a.~9~", "a.~10~"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let place = Place::open(folder.path().as_os_str()).unwrap();
        let rename = |name: &str, rule| rename(&place.at(OsStr::new(name)), rule);
        let rule = Backup { method: BackupMethod::Existing, suffix: OsString::from("~") };
        let kept = rename("a", &rule).unwrap();
        assert_eq!(kept, Some(OsString::from("a.~11~")));
        assert_eq!(rename("a", &rule).unwrap(), None, "it is gone");
        fs::write(folder.path().join("b"), "").unwrap();
        assert_eq!(rename("b", &rule).unwrap(), Some(OsString::from("b~")));
    }
}
