//! A directory that names are beneath: resolved once, and held from then on.
//!
//! What a job does on its way may change where a path leads: a backup renames a link that the path passes through, a
//! sink that is replaced was part of it, somebody else moves a directory. Whoever holds the directory is not led elsewhere.

use haul_sys::dir::open_place_at;
use haul_sys::{CWD, Follow};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// A held directory, and how its names are written in messages. Clones hold the same one.
#[derive(Clone, Debug)]
pub struct Place {
    directory: Arc<OwnedFd>,
    lead: OsString,
}

impl Place {
    /// The directory that operands go into. Links are followed now, and never again.
    ///
    /// # Errors
    /// What openat(2) reports; `ENOTDIR` for what is no directory.
    pub fn open(path: &OsStr) -> io::Result<Place> {
        let directory = match open_place_at(CWD, path, Follow::Yes) {
            // The working directory stays where it is for a user who may not search it: names in it fail then.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_here(path) => {
                open_place_at(CWD, HERE, Follow::Yes)?
            }
            opened => opened?,
        };
        Ok(Place { directory: Arc::new(directory), lead: lead_of(path) })
    }

    /// The directory that the last component of `path` stands in, and that component with the slashes behind it.
    ///
    /// # Errors
    /// As [`Place::open`].
    pub fn above(path: &OsStr) -> io::Result<(Place, &OsStr)> {
        let bytes = path.as_bytes();
        let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let (lead, name) = (OsStr::from_bytes(&bytes[..start]), OsStr::from_bytes(&bytes[start..]));
        let directory = if lead.is_empty() { OsStr::new(".") } else { lead };
        let directory = Arc::new(open_place_at(CWD, directory, Follow::Yes)?);
        Ok((Place { directory, lead: lead.to_owned() }, name))
    }

    /// The path of a name in it, for messages.
    pub fn path_of(&self, name: &OsStr) -> OsString {
        let mut path = self.lead.clone();
        path.push(name);
        path
    }

    /// What stands before its names in messages.
    pub(super) fn lead(&self) -> &OsStr {
        &self.lead
    }

    /// The descriptor, held as long as anybody has it.
    pub(super) fn directory(&self) -> &Arc<OwnedFd> {
        &self.directory
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// The working directory, by a way that leads through no directory of its own.
const HERE: &str = "/proc/self/cwd";

/// Returns true for a path of dots and slashes alone that leads to the working directory.
pub fn is_here(path: &OsStr) -> bool {
    let mut parts = path.as_bytes().split(|&byte| byte == b'/');
    parts.next() == Some(b".") && parts.all(|part| matches!(part, b"" | b"."))
}

/// What a directory's names begin with, joined as cp and mv join: `a/` for `a` and for `a//`; a root keeps its slashes.
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
    fn names_are_written_as_they_were_typed_or_joined() {
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
    fn the_working_directory_has_many_names() {
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
    fn a_held_directory_is_the_one_it_was_when_its_path_leads_elsewhere() {
        let home = tempfile::tempdir().unwrap();
        let (first, path) = (home.path().join("first"), home.path().join("path"));
        std::fs::create_dir(&first).unwrap();
        std::os::unix::fs::symlink("first", &path).unwrap();
        let place = Place::open(path.as_os_str()).unwrap();
        std::fs::remove_file(&path).unwrap();
        haul_sys::open::mkdir_at(&place, "made", 0o700).unwrap();
        assert!(first.join("made").is_dir());
        assert_eq!(place.path_of(OsStr::new("made")), path.join("made"));
    }
}
