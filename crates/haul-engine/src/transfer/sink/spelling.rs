//! Names on file systems that take upper and lower case for the same: two names of a source must not become one file there, of which the second
//! would replace the first in silence.

use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::open::{RenameMode, rename_at};
use haul_sys::{Follow, stat};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

/// Names of a directory that are looked at together.
const NAMES_AT_ONCE: usize = 256;

/// What is known of how a sink's file system compares names. Learned once, from the first name that stands in it: where case counts, which is
/// nearly everywhere, that is all it costs.
#[derive(Debug, Default)]
pub(super) struct Spelling {
    folds: OnceLock<bool>,
}

impl Spelling {
    /// Gives what stands in `place` under a temporary name its own, in place of whatever is spelled the same.
    ///
    /// # Errors
    /// What renameat(2) reports; `AlreadyExists` for a name that is spelled otherwise, and would be replaced.
    pub(super) fn rename(&self, place: &OwnedFd, temporary: &CStr, name: &CStr) -> io::Result<()> {
        let replace = || rename_at(place, temporary, place, name, RenameMode::Replace);
        if !self.folds(place, temporary) {
            return replace();
        }
        // In one step: two workers may come with two spellings at once.
        match rename_at(place, temporary, place, name, RenameMode::NoReplace) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if is_spelled(place, name)? {
                    replace()
                } else {
                    Err(clash())
                }
            }
            // This one can't promise that.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.may_use(place, name)?;
                replace()
            }
            renamed => renamed,
        }
    }

    /// That nothing stands in `place` under another spelling of `name`.
    ///
    /// # Errors
    /// `AlreadyExists` if something does; what reading the directory reports.
    pub(super) fn may_use(&self, place: &OwnedFd, name: &CStr) -> io::Result<()> {
        let is_free = !self.folds(place, name)
            || stat::stat_at(place, name, Follow::No).is_err()
            || is_spelled(place, name)?;
        if is_free { Ok(()) } else { Err(clash()) }
    }

    /// Whether cases are one here, as far as is known; `name`, which may stand in `place`, tells.
    fn folds(&self, place: &OwnedFd, name: &CStr) -> bool {
        if let Some(&folds) = self.folds.get() {
            return folds;
        }
        let identity =
            |name: &CStr| stat::stat_at(place, name, Follow::No).ok().map(|facts| facts.identity());
        let (Some(other), Some(own)) = (other_case(name), identity(name)) else { return false };
        *self.folds.get_or_init(|| identity(&other) == Some(own))
    }
}

/// The name with the cases of its ASCII letters turned round; `None` for one without any.
fn other_case(name: &CStr) -> Option<CString> {
    let turned = |&byte: &u8| match byte {
        b'a'..=b'z' => byte.to_ascii_uppercase(),
        _ => byte.to_ascii_lowercase(),
    };
    let other: Vec<u8> = name.to_bytes().iter().map(turned).collect();
    (other != name.to_bytes()).then(|| CString::new(other).ok()).flatten()
}

/// Whether a directory has exactly this name.
fn is_spelled(place: &OwnedFd, name: &CStr) -> io::Result<bool> {
    // A descriptor of its own: reading moves it.
    let mut reader = DirReader::new(open_dir_at(place, c".", Follow::No)?);
    loop {
        let mut entries = Vec::new();
        let more = reader.read_batch(NAMES_AT_ONCE, &mut entries)?;
        if entries.iter().any(|entry| entry.name.as_c_str() == name) {
            return Ok(true);
        }
        if !more {
            return Ok(false);
        }
    }
}

fn clash() -> io::Error {
    let text =
        "a name that differs only in its case stands there, and this file system takes them for the same";
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::CWD;
    use std::fs;

    #[test]
    fn where_case_counts_names_are_taken_as_ever() {
        let home = tempfile::tempdir().expect("a folder");
        let place = open_dir_at(CWD, home.path(), Follow::Yes).expect("opens");
        let spelling = Spelling::default();
        for (temporary, name) in [(c".t1", c"a"), (c".t2", c"A"), (c".t3", c"a")] {
            fs::write(home.path().join(temporary.to_str().expect("text")), name.to_bytes()).expect("writes");
            spelling.rename(&place, temporary, name).expect("renames");
        }
        assert_eq!(spelling.folds.get(), Some(&false));
        spelling.may_use(&place, c"B").expect("it is free");
        assert_eq!(fs::read_dir(home.path()).expect("lists").count(), 2);
    }

    /// Two names of one file look as if cases were one: what is there decides then.
    #[test]
    fn where_cases_seem_one_the_exact_spelling_decides() {
        let home = tempfile::tempdir().expect("a folder");
        let place = open_dir_at(CWD, home.path(), Follow::Yes).expect("opens");
        fs::write(home.path().join("x"), "1").expect("writes");
        fs::hard_link(home.path().join("x"), home.path().join("X")).expect("links");
        let spelling = Spelling::default();
        spelling.may_use(&place, c"x").expect("it is spelled so");
        assert_eq!(spelling.folds.get(), Some(&true));
        fs::write(home.path().join(".t"), "2").expect("writes");
        spelling.rename(&place, c".t", c"x").expect("it is replaced");
        assert_eq!(fs::read(home.path().join("x")).expect("reads"), b"2");
    }

    #[test]
    fn cases_are_turned_round() {
        assert_eq!(other_case(c"aB-1").as_deref(), Some(c"Ab-1"));
        assert_eq!(other_case(c"1.2"), None);
    }
}
