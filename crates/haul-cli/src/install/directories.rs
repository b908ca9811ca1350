//! Creation of directories with all missing parents.

use super::labels::{DirectoryCreator, NamedByUser};
use super::mode::{SETGID, SETUID, STICKY};
use super::resolve::Properties;
use haul_engine::copy::{cause, quote, quote_word};
use haul_sys::dir::{open_dir_at, open_place_at};
use haul_sys::metadata::{set_mode_fd, set_mode_held, set_owner_fd, set_owner_held};
use haul_sys::{CWD, Follow, Stat, stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use thiserror::Error;

/// Permissions of directories that the command line does not name.
const PARENT_MODE: u32 = 0o755;

/// Permissions that a new directory lacks until its owner is set.
const OTHERS_MASK: u32 = 0o077;

/// Permissions that a new directory lacks until its special bits are set.
const OTHERS_WRITE_MASK: u32 = 0o022;

/// Error of creating a directory or setting its properties.
#[derive(Debug, Error)]
pub(super) enum DirectoryError {
    /// A parent of a file.
    #[error("cannot create directory {}: {}", quote(path), cause(source))]
    ParentDirectory { path: OsString, source: io::Error },
    /// A named directory, or a parent of one.
    #[error("cannot create directory {}: {}", quote_word(path), cause(source))]
    Create { path: OsString, source: io::Error },
    #[error("cannot change permissions of {}: {}", quote_word(path), cause(source))]
    Mode { path: OsString, source: io::Error },
    #[error("cannot change owner and permissions of {}: {}", quote_word(path), cause(source))]
    Owner { path: OsString, source: io::Error },
}

/// Creates the missing directories above the last component of `path`.
///
/// # Errors
/// Returns the first directory that could not be created.
pub(super) fn make_above(path: &OsStr, maker: &DirectoryCreator<'_>) -> Result<(), DirectoryError> {
    let failed = |(path, source)| DirectoryError::ParentDirectory { path, source };
    ParentDirectory::make(path, maker).map(drop).map_err(failed)
}

/// `-D -t`: creates a directory and all its parents, with the permissions of unnamed directories.
///
/// # Errors
/// Same as [`make_above`].
pub(super) fn make_all(path: &OsStr, maker: &DirectoryCreator<'_>) -> Result<(), DirectoryError> {
    let mut with_end = path.to_owned();
    with_end.push("/.");
    make_above(&with_end, maker)
}

/// `-d`: creates a directory and all its parents, and sets its properties even if it exists.
///
/// # Errors
/// Returns the directory or property that could not be created or set.
pub(super) fn install(
    path: &OsStr,
    properties: &Properties,
    maker: &DirectoryCreator<'_>,
) -> Result<(), DirectoryError> {
    let create = |(path, source)| DirectoryError::Create { path, source };
    let above = ParentDirectory::make(path, maker).map_err(create)?;
    let Properties { owner, group, mode } = *properties;
    let has_owner = owner.is_some() || group.is_some();
    let withheld = if has_owner {
        OTHERS_MASK
    } else if mode.named & (SETUID | SETGID) | mode.directory & STICKY != 0 {
        OTHERS_WRITE_MASK
    } else {
        0
    };
    let mode_made = mode.directory & !withheld;
    let made = maker.make(above.dir(), above.last, path, mode_made, NamedByUser::Yes);
    let failed = |source| {
        let path = path.to_owned();
        if has_owner { DirectoryError::Owner { path, source } } else { DirectoryError::Mode { path, source } }
    };
    // A newly created directory is not a link; an existing one may be a link to a directory.
    let follow = if made.is_ok() { Follow::No } else { Follow::Yes };
    let is_old = made.is_err();
    let standing = match (OpenDirectory::open(&above, follow), made) {
        (Ok(standing), _) => standing,
        // The existing file cannot be inspected: install reports this error too.
        (Err(error), Ok(())) => return Err(failed(error)),
        (Err(error), Err(made)) if made.kind() != io::ErrorKind::NotFound && !is_no_directory(&error) => {
            return Err(failed(error));
        }
        (Err(_), Err(made)) => return Err(create((path.to_owned(), made))),
    };
    standing.apply_properties(properties).map_err(failed)?;
    if is_old {
        maker.relabel(above.dir(), above.last, path);
    }
    Ok(())
}

/// An open directory that gets its properties, whatever happens to its name.
struct OpenDirectory {
    fd: OwnedFd,
    /// True if the directory is open for reading; else the descriptor is `O_PATH`.
    is_open: bool,
    found: Stat,
}

impl OpenDirectory {
    fn open(above: &ParentDirectory<'_>, follow: Follow) -> io::Result<OpenDirectory> {
        let (fd, is_open) = match open_dir_at(above.dir(), above.last, follow) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (open_place_at(above.dir(), above.last, follow)?, false)
            }
            opened => (opened?, true),
        };
        let found = stat::stat_fd(&fd)?;
        Ok(OpenDirectory { fd, is_open, found })
    }

    /// Sets owner and permissions if they differ. Unnamed properties keep their values, or those
    /// that the parent directory gave.
    fn apply_properties(&self, properties: &Properties) -> io::Result<()> {
        let Properties { owner, group, mode } = *properties;
        let differs = |wanted: Option<u32>, has: u32| wanted.is_some_and(|wanted| wanted != has);
        let changes_owner = differs(owner, self.found.uid) || differs(group, self.found.gid);
        if changes_owner {
            let set = if self.is_open { set_owner_fd } else { set_owner_held };
            set(&self.fd, owner, group)?;
        }
        // A change of the owner may clear a directory's set-id bits.
        let lost = if changes_owner { self.found.mode & (SETUID | SETGID) } else { 0 };
        if ((self.found.mode ^ mode.directory) | lost) & mode.named == 0 {
            return Ok(());
        }
        let set = if self.is_open { set_mode_fd } else { set_mode_held };
        set(&self.fd, mode.directory & mode.named | self.found.mode & !mode.named)
    }
}

/// Open directory of a path's last component. The path is walked step by step, so that later
/// changes to the path lead nowhere else.
struct ParentDirectory<'a> {
    /// `None` for the working directory.
    directory: Option<OwnedFd>,
    /// The last component with its trailing slashes; for an absolute name in the root, also with
    /// the leading ones.
    last: &'a OsStr,
}

impl<'a> ParentDirectory<'a> {
    /// Creates the missing directories above the last component. Returns the directory that could
    /// not be created, and the error.
    fn make(
        path: &'a OsStr,
        maker: &DirectoryCreator<'_>,
    ) -> Result<ParentDirectory<'a>, (OsString, io::Error)> {
        let bytes = path.as_bytes();
        let last = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        let mut above = ParentDirectory { directory: None, last: path };
        let mut start = 0;
        for end in (1..last).filter(|&at| bytes[at] == b'/' && bytes[at - 1] != b'/') {
            let so_far = OsStr::from_bytes(&bytes[..end]);
            let step = OsStr::from_bytes(&bytes[start..end]);
            above.enter(step, so_far, maker).map_err(|error| (so_far.to_owned(), error))?;
            start = end + bytes[end..].iter().take_while(|&&byte| byte == b'/').count();
            above.last = OsStr::from_bytes(&bytes[start..]);
        }
        Ok(above)
    }

    /// Enters a directory, and creates it first if it is missing.
    fn enter(&mut self, name: &OsStr, path: &OsStr, maker: &DirectoryCreator<'_>) -> io::Result<()> {
        let missing = maker.make(self.dir(), name, path, PARENT_MODE, NamedByUser::No).err();
        let follow = if missing.is_none() { Follow::No } else { Follow::Yes };
        let entered = open_place_at(self.dir(), name, follow).and_then(|fd| {
            // A user without search permission cannot work in the directory.
            stat::stat_at(&fd, c".", Follow::No)?;
            Ok(fd)
        });
        match (entered, missing) {
            (Ok(fd), _) => {
                self.directory = Some(fd);
                Ok(())
            }
            // The directory is missing: the error of its creation is more specific.
            (Err(error), Some(missing)) if error.kind() == io::ErrorKind::NotFound => Err(missing),
            (Err(error), _) => Err(error),
        }
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.directory.as_ref().map_or(CWD, |fd| fd.as_fd())
    }
}

fn is_no_directory(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotADirectory
}
