//! Names on file systems that keep them otherwise than Linux does: where upper and lower case are the same, or the dots at a name's end are left
//! out (vfat, exFAT), two names of a source must not become one file, of which the second would replace the first in silence.

use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::open::{RenameMode, rename_at};
use haul_sys::{Follow, stat};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{OnceLock, PoisonError, RwLock};

/// Names of a directory that are looked at together.
const NAMES_AT_ONCE: usize = 256;

/// What is known of how a sink's file system compares names. Learned once, from the first name that stands in it: where case counts, which is
/// nearly everywhere, that is all it costs.
#[derive(Debug, Default)]
pub(super) struct Spelling {
    folds: OnceLock<bool>,
    /// Held by whoever makes a name.
    making: RwLock<()>,
}

impl Spelling {
    /// Makes a name. One that ends in a dot is made while no other is: where its dots are left out it stands under another's name until it is taken
    /// away again, and with it would go what that other's worker has put there.
    pub(super) fn made<T>(&self, name: &CStr, make: impl FnOnce() -> T) -> T {
        if ends_in_dot(name) {
            let _alone = self.making.write().unwrap_or_else(PoisonError::into_inner);
            make()
        } else {
            let _beside_others = self.making.read().unwrap_or_else(PoisonError::into_inner);
            make()
        }
    }

    /// Gives what stands in `place` under a temporary name its own, in place of whatever is spelled the same.
    ///
    /// # Errors
    /// What renameat(2) reports; `AlreadyExists` for a name that is spelled otherwise, and would be replaced; `InvalidFilename` for one that
    /// would not be kept as it is.
    pub(super) fn rename(&self, place: &OwnedFd, temporary: &CStr, name: &CStr) -> io::Result<()> {
        self.made(name, || self.renamed(place, temporary, name))
    }

    fn renamed(&self, place: &OwnedFd, temporary: &CStr, name: &CStr) -> io::Result<()> {
        if ends_in_dot(name) && is_trimmed(place, temporary) {
            return Err(trimmed());
        }
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
    /// `AlreadyExists` if something does, `InvalidFilename` if that is the name without its dots; what reading the directory reports.
    pub(super) fn may_use(&self, place: &OwnedFd, name: &CStr) -> io::Result<()> {
        has_its_dots(place, name)?;
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
        let (Some(other), Some(own)) = (other_case(name), identity(place, name)) else { return false };
        *self.folds.get_or_init(|| identity(place, &other) == Some(own))
    }
}

/// That what stands in `place` under `name` has the dots at the name's end, if there are any.
///
/// # Errors
/// `InvalidFilename` if it stands there without them; what reading the directory reports.
pub(super) fn has_its_dots(place: &OwnedFd, name: &CStr) -> io::Result<()> {
    let has_them = !ends_in_dot(name) || !is_trimmed(place, name) || is_spelled(place, name)?;
    if has_them { Ok(()) } else { Err(trimmed()) }
}

/// What stands in `place` under `name`: its device and inode.
fn identity(place: &OwnedFd, name: &CStr) -> Option<(u64, u64)> {
    stat::stat_at(place, name, Follow::No).ok().map(|facts| facts.identity())
}

fn ends_in_dot(name: &CStr) -> bool {
    name.to_bytes().ends_with(b".")
}

/// Whether `name`, which stands in `place`, is found by one more dot at its end as well.
fn is_trimmed(place: &OwnedFd, name: &CStr) -> bool {
    let Ok(dotted) = CString::new([name.to_bytes(), b"."].concat()) else { return false };
    identity(place, name).is_some_and(|own| identity(place, &dotted) == Some(own))
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

fn trimmed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidFilename,
        "this file system leaves out the dots at the end of a name",
    )
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
