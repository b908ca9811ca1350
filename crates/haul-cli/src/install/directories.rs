//! Directories made with all that lie above them.

use super::labels::{Asked, Maker};
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

/// Makes the directories above the last component of `path` that are missing.
///
/// # Errors
/// The first that could not be made.
pub(super) fn make_above(path: &OsStr, maker: &Maker<'_>) -> Result<(), DirectoryError> {
    let failed = |(path, source)| DirectoryError::Above { path, source };
    Above::make(path, maker).map(drop).map_err(failed)
}

/// `-D -t`: makes a directory and all above it, with the permissions of those that nobody named.
///
/// # Errors
/// As [`make_above`].
pub(super) fn make_all(path: &OsStr, maker: &Maker<'_>) -> Result<(), DirectoryError> {
    let mut with_end = path.to_owned();
    with_end.push("/.");
    make_above(&with_end, maker)
}

/// `-d`: makes a directory with all above it, and gives it its properties, whether it is new or not.
///
/// # Errors
/// What could not be made or set.
pub(super) fn install(
    path: &OsStr,
    properties: &Properties,
    maker: &Maker<'_>,
) -> Result<(), DirectoryError> {
    let create = |(path, source)| DirectoryError::Create { path, source };
    let above = Above::make(path, maker).map_err(create)?;
    let Properties { owner, group, mode } = *properties;
    let has_owner = owner.is_some() || group.is_some();
    let withheld = if has_owner {
        FOR_OTHERS
    } else if mode.named & (SETUID | SETGID) | mode.directory & STICKY != 0 {
        WRITING_BY_OTHERS
    } else {
        0
    };
    let mode_made = mode.directory & !withheld;
    let made = maker.make(above.dir(), (above.last, path), mode_made, Asked::Yes);
    let failed = |source| {
        let path = path.to_owned();
        if has_owner { DirectoryError::Owner { path, source } } else { DirectoryError::Mode { path, source } }
    };
    // What was made a moment ago is no link; what stood there may be one to a directory.
    let follow = if made.is_ok() { Follow::No } else { Follow::Yes };
    let is_old = made.is_err();
    let standing = match (Standing::open(&above, follow), made) {
        (Ok(standing), _) => standing,
        // What stands there can't be looked at: as with install, that is what is told of.
        (Err(error), Ok(())) => return Err(failed(error)),
        (Err(error), Err(made)) if made.kind() != io::ErrorKind::NotFound && !is_no_directory(&error) => {
            return Err(failed(error));
        }
        (Err(_), Err(made)) => return Err(create((path.to_owned(), made))),
    };
    standing.dress(properties).map_err(failed)?;
    if is_old {
        maker.relabel(above.dir(), (above.last, path));
    }
    Ok(())
}

/// A directory that gets its properties: held, whatever becomes of its name.
struct Standing {
    fd: OwnedFd,
    /// It could be opened to be read; else it is only held.
    is_open: bool,
    found: Stat,
}

impl Standing {
    fn open(above: &Above<'_>, follow: Follow) -> io::Result<Standing> {
        let (fd, is_open) = match open_dir_at(above.dir(), above.last, follow) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (open_place_at(above.dir(), above.last, follow)?, false)
            }
            opened => (opened?, true),
        };
        let found = stat::stat_fd(&fd)?;
        Ok(Standing { fd, is_open, found })
    }

    /// Sets owner and permissions, as far as it has others. What nobody spoke of stays as it is, or as the directory above
    /// gave it.
    fn dress(&self, properties: &Properties) -> io::Result<()> {
        let Properties { owner, group, mode } = *properties;
        let differs = |wanted: Option<u32>, has: u32| wanted.is_some_and(|wanted| wanted != has);
        let changes_owner = differs(owner, self.found.uid) || differs(group, self.found.gid);
        if changes_owner {
            let set = if self.is_open { set_owner_fd } else { set_owner_held };
            set(&self.fd, owner, group)?;
        }
        // A new owner may cost a directory its set-id bits.
        let lost = if changes_owner { self.found.mode & (SETUID | SETGID) } else { 0 };
        if ((self.found.mode ^ mode.directory) | lost) & mode.named == 0 {
            return Ok(());
        }
        let set = if self.is_open { set_mode_fd } else { set_mode_held };
        set(&self.fd, mode.directory & mode.named | self.found.mode & !mode.named)
    }
}

/// The directory that a path's last component is in, held; reached step by step, so that nothing that happens to the path
/// meanwhile leads elsewhere.
struct Above<'a> {
    /// `None`: the working directory.
    directory: Option<OwnedFd>,
    /// The last component, with what slashes are behind it; of an absolute name in the root, with those before it.
    last: &'a OsStr,
}

impl<'a> Above<'a> {
    /// Makes what is missing above the last component; what could not be made, and why.
    fn make(path: &'a OsStr, maker: &Maker<'_>) -> Result<Above<'a>, (OsString, io::Error)> {
        let bytes = path.as_bytes();
        let last = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        let mut above = Above { directory: None, last: path };
        let mut start = 0;
        for end in (1..last).filter(|&at| bytes[at] == b'/' && bytes[at - 1] != b'/') {
            let so_far = OsStr::from_bytes(&bytes[..end]);
            let step = OsStr::from_bytes(&bytes[start..end]);
            above.enter((step, so_far), maker).map_err(|error| (so_far.to_owned(), error))?;
            start = end + bytes[end..].iter().take_while(|&&byte| byte == b'/').count();
            above.last = OsStr::from_bytes(&bytes[start..]);
        }
        Ok(above)
    }

    /// Goes one directory down, and makes it first where it is missing.
    fn enter(&mut self, (name, path): (&OsStr, &OsStr), maker: &Maker<'_>) -> io::Result<()> {
        let missing = maker.make(self.dir(), (name, path), ABOVE, Asked::No).err();
        let follow = if missing.is_none() { Follow::No } else { Follow::Yes };
        let entered = open_place_at(self.dir(), name, follow).and_then(|fd| {
            // Whoever may not go through it may not work in it.
            stat::stat_at(&fd, c".", Follow::No)?;
            Ok(fd)
        });
        match (entered, missing) {
            (Ok(fd), _) => {
                self.directory = Some(fd);
                Ok(())
            }
            // Nothing is there: why it could not be made says more.
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
