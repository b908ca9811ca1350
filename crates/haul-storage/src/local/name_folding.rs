//! Names on file systems that do not keep every name as is. On some, upper and lower case are
//! equal, or dots at the end of a name are dropped (vfat, exFAT). Two names of a job must not
//! become one file there, because the second would silently replace the first.

use crate::storage::Replace;
use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::open::{RenameMode, rename_at};
use haul_sys::{Follow, stat};
use icu_normalizer::DecomposingNormalizerBorrowed;
use parking_lot::RwLock;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

/// Number of names read in one batch.
const NAMES_AT_ONCE: usize = 256;

/// An open directory and a name in it.
pub(super) type NameAt<'a> = (&'a OwnedFd, &'a CStr);

/// Rules by which one file system compares names. They are determined once, from the first existing
/// name with a letter. On a case-sensitive file system, which is the usual case, this is the only
/// cost.
#[derive(Debug, Default)]
pub(super) struct NameFolding {
    folds: OnceLock<bool>,
    /// Held by threads that create a name: shared, or exclusively for a name that ends in a dot.
    making: RwLock<()>,
}

impl NameFolding {
    /// Creates a name. A name that ends in a dot is created exclusively. If its dots are dropped,
    /// it exists under another name until it is removed, and the removal would delete what another
    /// worker has put there.
    pub(super) fn create_name<T>(&self, name: &CStr, make: impl FnOnce() -> T) -> T {
        if ends_in_dot(name) {
            let _alone = self.making.write();
            make()
        } else {
            let _beside_others = self.making.read();
            make()
        }
    }

    /// Renames the entry `from` to the name `to`. Replaces an existing entry only if its name is
    /// spelled the same, and if `replace` permits it.
    ///
    /// # Errors
    /// Returns the errors of renameat2(2), `AlreadyExists` if an entry with another spelling would
    /// be replaced, and `InvalidFilename` if the file system would not keep the name.
    pub(super) fn rename(&self, from: NameAt<'_>, to: NameAt<'_>, replace: Replace) -> io::Result<()> {
        self.create_name(to.1, || self.rename_checked(from, to, replace))
    }

    fn rename_checked(
        &self,
        (old_place, old): NameAt<'_>,
        (place, name): NameAt<'_>,
        replace: Replace,
    ) -> io::Result<()> {
        if ends_in_dot(name) && is_trimmed(old_place, old) {
            return Err(trimmed());
        }
        if replace == Replace::No {
            return rename_at(old_place, old, place, name, RenameMode::NoReplace);
        }
        let replace = || rename_at(old_place, old, place, name, RenameMode::Replace).map_err(not_empty);
        if !self.folds(old_place, old) {
            return replace();
        }
        // Rename in one step: two workers may rename to two spellings concurrently.
        match rename_at(old_place, old, place, name, RenameMode::NoReplace) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_itself = || identity(old_place, old) == identity(place, name);
                if has_exact_name(place, name)? || is_itself() { replace() } else { Err(clash()) }
            }
            // This file system does not support `RENAME_NOREPLACE`.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.check_no_clash(place, name)?;
                replace()
            }
            rename_checked => rename_checked,
        }
    }

    /// Checks that no entry exists in `place` under another spelling of `name`.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if one exists, `InvalidFilename` if it is the name without its dots,
    /// and the errors of reading the directory.
    pub(super) fn check_no_clash(&self, place: &OwnedFd, name: &CStr) -> io::Result<()> {
        check_trailing_dots(place, name)?;
        let is_free = !self.folds(place, name)
            || stat::stat_at(place, name, Follow::No).is_err()
            || has_exact_name(place, name)?;
        if is_free { Ok(()) } else { Err(clash()) }
    }

    /// Returns true if the file system is known to ignore case. `name`, if it exists in `place`, is
    /// used to find out.
    fn folds(&self, place: &OwnedFd, name: &CStr) -> bool {
        if let Some(&folds) = self.folds.get() {
            return folds;
        }
        let (Some(other), Some(own)) = (other_case(name), identity(place, name)) else { return false };
        *self.folds.get_or_init(|| identity(place, &other) == Some(own))
    }
}

/// Checks that the entry found in `place` as `name` has the dots at the end of `name`, if there are
/// any.
///
/// # Errors
/// Returns `InvalidFilename` if the entry exists without them, and the errors of reading the
/// directory.
pub(super) fn check_trailing_dots(place: &OwnedFd, name: &CStr) -> io::Result<()> {
    let has_them = !ends_in_dot(name) || !is_trimmed(place, name) || has_exact_name(place, name)?;
    if has_them { Ok(()) } else { Err(trimmed()) }
}

/// Returns the device and inode of the entry `name` in `place`.
fn identity(place: &OwnedFd, name: &CStr) -> Option<(u64, u64)> {
    stat::stat_at(place, name, Follow::No).ok().map(|facts| facts.identity())
}

fn ends_in_dot(name: &CStr) -> bool {
    name.to_bytes().ends_with(b".")
}

/// Returns true if the existing entry `name` is also found with an additional dot at its end.
fn is_trimmed(place: &OwnedFd, name: &CStr) -> bool {
    let Ok(dotted) = CString::new([name.to_bytes(), b"."].concat()) else { return false };
    identity(place, name).is_some_and(|own| identity(place, &dotted) == Some(own))
}

/// Swaps upper and lower case of the ASCII letters. Returns `None` for a name without any.
fn other_case(name: &CStr) -> Option<CString> {
    let turned = |&byte: &u8| match byte {
        b'a'..=b'z' => byte.to_ascii_uppercase(),
        _ => byte.to_ascii_lowercase(),
    };
    let other: Vec<u8> = name.to_bytes().iter().map(turned).collect();
    (other != name.to_bytes()).then(|| CString::new(other).ok()).flatten()
}

/// Returns true if a directory has exactly this name, or stores it in another Unicode form.
fn has_exact_name(place: &OwnedFd, name: &CStr) -> io::Result<bool> {
    // Open a separate descriptor, because reading moves its offset.
    let mut reader = DirReader::new(open_dir_at(place, c".", Follow::No)?);
    loop {
        let mut entries = Vec::new();
        let more = reader.read_batch(NAMES_AT_ONCE, &mut entries)?;
        if entries.iter().any(|entry| is_same_name(entry.name.as_c_str(), name)) {
            return Ok(true);
        }
        if !more {
            return Ok(false);
        }
    }
}

/// Returns true if two names are equal, apart from their Unicode form.
fn is_same_name(one: &CStr, other: &CStr) -> bool {
    if one == other || one.to_bytes().is_ascii() || other.to_bytes().is_ascii() {
        return one == other;
    }
    let nfd = DecomposingNormalizerBorrowed::new_nfd();
    one.to_str().is_ok_and(|one| other.to_str().is_ok_and(|other| nfd.normalize(one) == nfd.normalize(other)))
}

/// Returns the error of a call that fails for a directory with entries: some file systems return
/// `EEXIST` for one, and others `ENOTEMPTY`.
pub(super) fn not_empty(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::AlreadyExists { io::ErrorKind::DirectoryNotEmpty.into() } else { error }
}

fn clash() -> io::Error {
    let text = "a name that differs only in case exists, and this file system ignores case";
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

fn trimmed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidFilename, "this file system drops dots at the end of a name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::CWD;
    use std::fs;

    #[test]
    fn case_sensitive_sink_accepts_names_that_differ_in_case() {
        let home = tempfile::tempdir().expect("a folder");
        let place = open_dir_at(CWD, home.path(), Follow::Yes).expect("opens");
        let name_folding = NameFolding::default();
        for (temporary, name) in [(c".t1", c"a"), (c".t2", c"A"), (c".t3", c"a")] {
            fs::write(home.path().join(temporary.to_str().expect("text")), name.to_bytes()).expect("writes");
            name_folding.rename((&place, temporary), (&place, name), Replace::Yes).expect("renames");
        }
        assert_eq!(name_folding.folds.get(), Some(&false));
        name_folding.check_no_clash(&place, c"B").expect("it is free");
        assert_eq!(fs::read_dir(home.path()).expect("lists").count(), 2);
    }

    /// Two hard links whose names differ only in case look like a case-insensitive file system. The
    /// exact spelling decides then.
    #[test]
    fn exact_spelling_decides_if_case_seems_folded() {
        let home = tempfile::tempdir().expect("a folder");
        let place = open_dir_at(CWD, home.path(), Follow::Yes).expect("opens");
        fs::write(home.path().join("x"), "1").expect("writes");
        fs::hard_link(home.path().join("x"), home.path().join("X")).expect("links");
        let name_folding = NameFolding::default();
        name_folding.check_no_clash(&place, c"x").expect("it is spelled so");
        assert_eq!(name_folding.folds.get(), Some(&true));
        fs::write(home.path().join(".t"), "2").expect("writes");
        name_folding.rename((&place, c".t"), (&place, c"x"), Replace::Yes).expect("it is replaced");
        assert_eq!(fs::read(home.path().join("x")).expect("reads"), b"2");
    }

    #[test]
    fn unicode_forms_of_a_name_are_one_name() {
        for (one, other, expected) in [
            ("\u{e9}", "e\u{301}", true),
            ("a", "a", true),
            ("a", "A", false),
            ("\u{e9}", "\u{c9}", false),
            ("\u{e9}", "e", false),
        ] {
            let [one, other] = [one, other].map(|name| CString::new(name).expect("no NUL"));
            assert_eq!(is_same_name(&one, &other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn other_case_swaps_letter_case() {
        assert_eq!(other_case(c"aB-1").as_deref(), Some(c"Ab-1"));
        assert_eq!(other_case(c"1.2"), None);
    }
}
