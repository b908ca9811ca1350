//! Relative paths that stay beneath a root.

use crate::Percent;
use std::fmt;
use thiserror::Error;

/// Maximum size in bytes of a path. Trees can be deeper than the 4,096 bytes that one system call
/// accepts.
pub const PATH_BYTES_MAX: usize = 32 << 10;

/// Maximum size in bytes of one component of a path: four times the limit of Linux itself, which is
/// what FUSE accepts.
pub const PART_BYTES_MAX: usize = 1024;

/// Maximum number of components of a path. A directory is reached name by name from its root, so
/// the time for a chain of directories grows with the square of its depth.
pub const PATH_PARTS_MAX: usize = 1024;

/// A path beneath a root (of a waybill, of a job, of a peer). It contains any bytes but NUL, and
/// its components are neither empty nor `.` nor `..`.
///
/// It prints percent-encoded, so that no name can control a terminal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Box<[u8]>);

/// Reason for bytes that are not a path beneath a root.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PathError {
    /// No bytes, or, for [`RelPath::clean`], only components that are removed.
    #[error("it is empty")]
    Empty,
    /// The path starts with a slash.
    #[error("it is absolute")]
    Absolute,
    /// A component is `..`.
    #[error("it contains '..'")]
    Climbs,
    /// A component is `.` or empty.
    #[error("a component of it is empty or '.'")]
    EmptyPart,
    /// The path contains a NUL byte.
    #[error("it contains a NUL byte")]
    Nul,
    /// The path is longer than [`PATH_BYTES_MAX`], or a component is longer than
    /// [`PART_BYTES_MAX`].
    #[error("it exceeds {PATH_BYTES_MAX} bytes, or a component exceeds {PART_BYTES_MAX}")]
    TooLong,
    /// The path has more than [`PATH_PARTS_MAX`] components.
    #[error("it has more than {PATH_PARTS_MAX} components")]
    TooDeep,
    /// A symbolic link in it leads out of the root.
    #[error("a symbolic link in it leads out of the root directory")]
    LeadsOut,
}

impl RelPath {
    /// Creates a path of exactly these bytes.
    ///
    /// # Errors
    /// Returns a [`PathError`] if the bytes are not a path beneath a root.
    pub fn new(bytes: &[u8]) -> Result<RelPath, PathError> {
        if bytes.is_empty() {
            return Err(PathError::Empty);
        }
        if bytes.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        if bytes[0] == b'/' {
            return Err(PathError::Absolute);
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        for (before, part) in bytes.split(|&byte| byte == b'/').enumerate() {
            match part {
                b".." => return Err(PathError::Climbs),
                b"" | b"." => return Err(PathError::EmptyPart),
                _ if part.len() > PART_BYTES_MAX => return Err(PathError::TooLong),
                _ if before >= PATH_PARTS_MAX => return Err(PathError::TooDeep),
                _ => {}
            }
        }
        Ok(RelPath(bytes.into()))
    }

    /// Creates a path from user input: removes repeated and trailing slashes, and components that
    /// are `.`.
    ///
    /// # Errors
    /// Returns a [`PathError`] if the rest is not a path beneath a root.
    pub fn clean(bytes: &[u8]) -> Result<RelPath, PathError> {
        if bytes.first() == Some(&b'/') {
            return Err(PathError::Absolute);
        }
        let parts = bytes.split(|&byte| byte == b'/');
        let kept: Vec<&[u8]> = parts.filter(|part| !part.is_empty() && *part != b".").collect();
        RelPath::new(&kept.join(&b'/'))
    }

    /// Returns the bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the components, outermost first; at least one.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/')
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Percent(&self.0).fmt(f)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_or_malformed_paths_are_refused() {
        let long = [b'x'; PART_BYTES_MAX + 1];
        let large = "x/".repeat(PATH_BYTES_MAX / 2) + "xy";
        let deep = "x/".repeat(PATH_PARTS_MAX) + "x";
        assert!(RelPath::new(&deep.as_bytes()[2..]).is_ok());
        let cases: [(&[u8], PathError); 14] = [
            (b"", PathError::Empty),
            (b"/", PathError::Absolute),
            (b"/etc/passwd", PathError::Absolute),
            (b"..", PathError::Climbs),
            (b"a/../b", PathError::Climbs),
            (b"a/..", PathError::Climbs),
            (b".", PathError::EmptyPart),
            (b"a//b", PathError::EmptyPart),
            (b"a/", PathError::EmptyPart),
            (b"a/./b", PathError::EmptyPart),
            (b"a\0b", PathError::Nul),
            (&long, PathError::TooLong),
            (large.as_bytes(), PathError::TooLong),
            (deep.as_bytes(), PathError::TooDeep),
        ];
        for (bytes, fault) in cases {
            assert_eq!(RelPath::new(bytes), Err(fault));
        }
        for good in ["a", "...", "..a/b..", ".hidden", "a b/\u{1b}[2J", "-rf"] {
            assert_eq!(RelPath::new(good.as_bytes()).unwrap().as_bytes(), good.as_bytes());
        }
    }

    #[test]
    fn typed_paths_are_normalized_and_may_not_escape() {
        let clean = |text: &str| RelPath::clean(text.as_bytes()).map(|path| path.to_string());
        assert_eq!(clean("./a//b/./c/"), Ok("a/b/c".to_owned()));
        assert_eq!(clean("."), Err(PathError::Empty));
        assert_eq!(clean("a/../b"), Err(PathError::Climbs));
        assert_eq!(clean("/a"), Err(PathError::Absolute));
    }
}
