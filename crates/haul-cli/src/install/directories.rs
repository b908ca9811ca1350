//! Directories made with all that lie above them.

use super::mode::{SETGID, SETUID, STICKY};
use super::resolve::Properties;
use haul_engine::copy::{cause, quote, quote_word};
use haul_sys::metadata::{set_mode_at, set_owner_at};
use haul_sys::open::mkdir_at;
use haul_sys::{CWD, FileKind, Follow, stat};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use thiserror::Error;

/// Permissions of directories that nobody named.
const ABOVE: u32 = 0o755;

/// What a directory is made without, and gets when it has its owner.
const FOR_OTHERS: u32 = 0o077;

/// What a directory is made without, and gets when it has its special bits.
const WRITING_BY_OTHERS: u32 = 0o022;

/// Why a directory could not be made or given its properties.
#[derive(Debug, Error)]
pub(super) enum DirectoryError {
    /// One above a file.
    #[error("cannot create directory {}: {}", quote(path), cause(source))]
    Above { path: OsString, source: io::Error },
    /// One that was named, or lies above such a one.
    #[error("cannot create directory {}: {}", quote_word(path), cause(source))]
    Create { path: OsString, source: io::Error },
    #[error("cannot change permissions of {}: {}", quote_word(path), cause(source))]
    Mode { path: OsString, source: io::Error },
    #[error("cannot change owner and permissions of {}: {}", quote_word(path), cause(source))]
    Owner { path: OsString, source: io::Error },
}

/// Makes the directories above the last component of `path` that are missing. `tell` hears of each.
///
/// # Errors
/// The first that could not be made.
pub(super) fn make_above(path: &OsStr, tell: &mut dyn FnMut(&OsStr)) -> Result<(), DirectoryError> {
    above(path, tell).map_err(|(path, source)| DirectoryError::Above { path, source })
}

/// `-D -t`: makes a directory and all above it, with the permissions of those that nobody named.
///
/// # Errors
/// As [`make_above`].
pub(super) fn make_all(path: &OsStr, tell: &mut dyn FnMut(&OsStr)) -> Result<(), DirectoryError> {
    let mut with_end = path.to_owned();
    with_end.push("/.");
    make_above(&with_end, tell)
}

/// `-d`: makes a directory with all above it, and gives it its properties, whether it is new or not.
///
/// # Errors
/// What could not be made or set.
pub(super) fn install(
    path: &OsStr,
    properties: &Properties,
    tell: &mut dyn FnMut(&OsStr),
) -> Result<(), DirectoryError> {
    above(path, tell).map_err(|(path, source)| DirectoryError::Create { path, source })?;
    let Properties { owner, group, mode } = *properties;
    let has_owner = owner.is_some() || group.is_some();
    let withheld = if has_owner {
        FOR_OTHERS
    } else if mode.named & (SETUID | SETGID) | mode.directory & STICKY != 0 {
        WRITING_BY_OTHERS
    } else {
        0
    };
    let first = mode.directory & !withheld;
    let made = mkdir_at(CWD, path, first);
    let name = || path.to_owned();
    let failed = |source| {
        if has_owner {
            DirectoryError::Owner { path: name(), source }
        } else {
            DirectoryError::Mode { path: name(), source }
        }
    };
    if made.is_ok() {
        tell(path);
    }
    let found = match (stat::stat_at(CWD, path, Follow::Yes), made.as_ref().err().map(io::Error::kind)) {
        (Ok(found), _) if found.kind == FileKind::Directory => found,
        // What stands there can't be looked at: as with install, that is what is told of.
        (Err(error), Some(kind)) if kind != io::ErrorKind::NotFound && !is_no_directory(&error) => {
            return Err(failed(error));
        }
        (Err(error), None) => return Err(failed(error)),
        _ => {
            let source = made.err().unwrap_or_else(|| io::ErrorKind::NotADirectory.into());
            return Err(DirectoryError::Create { path: name(), source });
        }
    };
    // What nobody spoke of stays as it is, or as the directory above gave it.
    let wanted = mode.directory & mode.named | found.mode & !mode.named;
    // A link leads to the directory; what is set is the directory's.
    let is_link = stat::stat_at(CWD, path, Follow::No).is_ok_and(|name| name.kind == FileKind::Symlink);
    let mut place = path.to_owned();
    place.push(if is_link { "/." } else { "" });
    if has_owner {
        set_owner_at(CWD, &*place, owner, group).map_err(failed)?;
    }
    if has_owner || found.mode != wanted {
        // What a link leads to may be closed to a search, and so to all that goes by a name in it.
        let set = if is_link {
            fs::set_permissions(path, Permissions::from_mode(wanted))
        } else {
            set_mode_at(CWD, path, wanted)
        };
        set.map_err(failed)?;
    }
    Ok(())
}

/// Makes what is missing above the last component; what could not be made, and why.
fn above(path: &OsStr, tell: &mut dyn FnMut(&OsStr)) -> Result<(), (OsString, io::Error)> {
    let bytes = path.as_bytes();
    let last = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    for end in (1..last).filter(|&at| bytes[at] == b'/' && bytes[at - 1] != b'/') {
        let place = OsStr::from_bytes(&bytes[..end]);
        let source = match mkdir_at(CWD, place, ABOVE) {
            Ok(()) => {
                tell(place);
                continue;
            }
            Err(error) => error,
        };
        let mut inside = place.to_owned();
        inside.push("/.");
        match stat::stat_at(CWD, &*inside, Follow::Yes) {
            Ok(found) if found.kind == FileKind::Directory => {}
            Ok(_) => return Err((place.to_owned(), io::Error::from_raw_os_error(20))), // ENOTDIR
            // A file, or a directory that can't be gone through.
            Err(error) if is_no_directory(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
                return Err((place.to_owned(), error));
            }
            Err(_) => return Err((place.to_owned(), source)),
        }
    }
    Ok(())
}

fn is_no_directory(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotADirectory
}
