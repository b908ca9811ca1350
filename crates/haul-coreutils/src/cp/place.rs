//! An open directory that names are relative to. It is resolved only once.
//!
//! During the job, a path may come to lead elsewhere. A backup may rename a link in the path, or a
//! replaced sink may have been part of the path. Another process may move a directory. An open
//! directory stays the same.

use crate::location::{Location, LocationName};
use haul_storage::local::{DirDescriptor, OpenedFiles, descriptor_of};
use haul_storage::{Dir, Follow};
use haul_sys::CWD;
use haul_sys::dir::open_place_at;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// An open directory, and its prefix in messages. Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct Place {
    storage: OpenedFiles,
    dir: Arc<dyn Dir>,
    /// `None` in another storage than the local file system.
    descriptor: Option<DirDescriptor>,
    lead: OsString,
}

impl Place {
    /// Opens the directory that operands go into. Links are followed now, and not again later.
    ///
    /// # Errors
    /// Returns the error of openat(2), for example `ENOTDIR` if the path is not a directory.
    pub fn open(path: &OsStr) -> io::Result<Place> {
        let directory = match open_place_at(CWD, path, Follow::Yes) {
            // A user without search permission may still use the working directory as a target.
            // Operations on names in it fail later.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_here(path) => {
                open_place_at(CWD, HERE, Follow::Yes)?
            }
            opened => opened?,
        };
        Place::of(directory, lead_of(path))
    }

    /// Returns the directory that contains the last component of `path`, and that component with
    /// its trailing slashes.
    ///
    /// # Errors
    /// See [`Place::open`].
    pub fn above(path: &OsStr) -> io::Result<(Place, &OsStr)> {
        let bytes = path.as_bytes();
        let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let (lead, name) = (OsStr::from_bytes(&bytes[..start]), OsStr::from_bytes(&bytes[start..]));
        let directory = if lead.is_empty() { OsStr::new(".") } else { lead };
        let directory = open_place_at(CWD, directory, Follow::Yes)?;
        Ok((Place::of(directory, lead.to_owned())?, name))
    }

    fn of(directory: OwnedFd, lead: OsString) -> io::Result<Place> {
        let storage = OpenedFiles::default();
        let dir = storage.dir(directory, false)?;
        let descriptor = Some(descriptor_of(&*dir)?);
        Ok(Place { storage, dir, descriptor, lead })
    }

    /// Returns an open directory of any storage. It has no descriptor ([`AsFd`] panics).
    pub fn within(dir: Arc<dyn Dir>) -> Place {
        Place { storage: OpenedFiles::default(), dir, descriptor: None, lead: OsString::new() }
    }

    /// Returns the path of a name in this directory, for messages.
    pub fn path_of(&self, name: &OsStr) -> OsString {
        let mut path = self.lead.clone();
        path.push(name);
        path
    }

    /// Returns the location of a name in this directory.
    pub(crate) fn at<'a>(&'a self, name: impl Into<LocationName<'a>>) -> Location<'a> {
        Location::within(&*self.dir, name)
    }

    /// Returns the prefix of names in this directory, for messages.
    pub(super) fn lead(&self) -> &OsStr {
        &self.lead
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> &Arc<dyn Dir> {
        &self.dir
    }

    /// Returns the storage of the directory.
    pub(crate) fn storage(&self) -> &OpenedFiles {
        &self.storage
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let descriptor = self.descriptor.as_ref().map(AsFd::as_fd);
        descriptor.unwrap_or_else(|| unreachable!("only for places of the local file system"))
    }
}

/// The working directory, by a path that needs no search permission in that directory.
const HERE: &str = "/proc/self/cwd";

/// Returns true for a path of dots and slashes alone that leads to the working directory.
pub fn is_here(path: &OsStr) -> bool {
    let mut parts = path.as_bytes().split(|&byte| byte == b'/');
    parts.next() == Some(b".") && parts.all(|part| matches!(part, b"" | b"."))
}

/// Returns the prefix of names in a directory, joined as cp and mv join paths: `a/` for `a` and for
/// `a//`. A root keeps its slashes.
fn lead_of(directory: &OsStr) -> OsString {
    let bytes = directory.as_bytes();
    match bytes.iter().rposition(|&byte| byte != b'/') {
        Some(last) => OsStr::from_bytes(&[&bytes[..=last], b"/"].concat()).to_owned(),
        None => directory.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_as_typed_or_joined() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().as_os_str();
        let typed = |behind: &str| [home, OsStr::new(behind)].into_iter().collect::<OsString>();
        for behind in ["", "/", "//"] {
            let place = Place::open(&typed(behind)).unwrap();
            assert_eq!(place.path_of(OsStr::new("x")), typed("/x"));
        }
        for (behind, name) in [("/x", "x"), ("//x//", "x//"), ("/./x", "x"), ("/.", "."), ("/..", "..")] {
            let path = typed(behind);
            let (place, found) = Place::above(&path).unwrap();
            assert_eq!((found, place.path_of(found)), (OsStr::new(name), path.clone()));
        }
        assert_eq!(Place::open(OsStr::new("//")).unwrap().path_of(OsStr::new("x")), "//x");
        for (path, name) in [("x/", "x/"), ("", ""), ("/", "/"), ("///", "///")] {
            let (place, found) = Place::above(OsStr::new(path)).unwrap();
            assert_eq!((found, place.path_of(found)), (OsStr::new(name), OsString::from(path)));
        }
    }

    #[test]
    fn is_here_accepts_spellings_of_the_working_directory() {
        for (path, expected) in [
            (".", true),
            ("./", true),
            (".//./", true),
            ("", false),
            ("/.", false),
            ("./x", false),
            ("..", false),
        ] {
            assert_eq!(is_here(OsStr::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn open_directory_stays_the_same_when_its_path_changes() {
        let home = tempfile::tempdir().unwrap();
        let (first, path) = (home.path().join("first"), home.path().join("path"));
        std::fs::create_dir(&first).unwrap();
        std::os::unix::fs::symlink("first", &path).unwrap();
        let place = Place::open(path.as_os_str()).unwrap();
        std::fs::remove_file(&path).unwrap();
        place.at(OsStr::new("made")).make_directory(0o700).unwrap();
        assert!(first.join("made").is_dir());
        assert_eq!(place.path_of(OsStr::new("made")), path.join("made"));
    }
}
