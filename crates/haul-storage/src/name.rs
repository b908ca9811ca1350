//! Names of directory entries: one checked component of a path, and temporary names.

use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Maximum size in bytes of a name. File systems have their own limit, usually 255 bytes.
pub const NAME_BYTES_MAX: usize = haul_model::PART_BYTES_MAX;

/// Name of an entry in a directory: 1 to [`NAME_BYTES_MAX`] bytes without `/` and NUL, neither `.`
/// nor `..`. It cannot lead out of its directory.
///
/// It prints percent-encoded, so that no name can control a terminal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(CString);

impl Name {
    /// Creates a name of these bytes, or `None` if they are not a name.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Name> {
        CString::new(bytes).ok().and_then(Name::from_c_string)
    }

    /// Creates a name without a copy of its bytes, or `None` if they are not a name.
    pub fn from_c_string(name: CString) -> Option<Name> {
        let bytes = name.as_bytes();
        let is_name = (1..=NAME_BYTES_MAX).contains(&bytes.len())
            && !bytes.contains(&b'/')
            && bytes != b"."
            && bytes != b"..";
        is_name.then_some(Name(name))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the bytes with a NUL behind them, as system calls take them.
    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }

    /// Returns the name as a part of a path.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(self.as_bytes())
    }
}

impl TryFrom<&OsStr> for Name {
    type Error = io::Error;

    /// Fails with [`io::ErrorKind::InvalidFilename`] if the string is not a name.
    fn try_from(name: &OsStr) -> io::Result<Name> {
        Name::new(name.as_bytes()).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        haul_model::Percent(self.as_bytes()).fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// Identity of a temporary file. A later run of the same job finds the file by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Number of the job if it is resumable; otherwise a random number of the session.
    pub session: u64,
    /// Number of the file within the job or session.
    pub number: u64,
}

impl Tag {
    /// Returns the temporary name. It is short, because the file's own name can already have the
    /// maximum length.
    pub fn name(&self) -> Name {
        // No character of it is special, and it has at most 39.
        let name = CString::new(format!(".haul-{:016x}-{:x}", self.session, self.number));
        Name(name.unwrap_or_default())
    }

    /// Returns the tag whose temporary name this is, or `None` if it is another name.
    pub fn of(name: &Name) -> Option<Tag> {
        let rest = std::str::from_utf8(name.as_bytes()).ok()?.strip_prefix(".haul-")?;
        let (session, number) = rest.split_once('-')?;
        let parse = |digits| u64::from_str_radix(digits, 16).ok();
        let tag = Tag { session: parse(session)?, number: parse(number)? };
        (tag.name() == *name).then_some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_that_lead_elsewhere_are_no_names() {
        for bytes in ["", ".", "..", "a/b", "/", "a\0b"] {
            assert_eq!(Name::new(bytes), None, "{bytes:?}");
        }
        assert_eq!(Name::new("n".repeat(NAME_BYTES_MAX + 1)), None);
        for bytes in [&b"..."[..], b"a", b".a", b"\xff\n", &[b'n'; NAME_BYTES_MAX]] {
            assert_eq!(Name::new(bytes).expect("a name").as_bytes(), bytes);
        }
        assert_eq!(Name::new("a\x1b").expect("a name").to_string(), "a%1B");
    }

    #[test]
    fn a_tag_is_found_by_its_temporary_name_only() {
        let tag = Tag { session: 0xabc, number: u64::MAX };
        assert_eq!(tag.name().as_bytes(), b".haul-0000000000000abc-ffffffffffffffff");
        assert_eq!(Tag::of(&tag.name()), Some(tag));
        for other in
            [".haul-abc-1", ".haul-0000000000000abc-01", ".haul-0000000000000ABC-1", ".haul-1-2-3", "x"]
        {
            assert_eq!(Tag::of(&Name::new(other).expect("a name")), None, "{other}");
        }
    }
}
