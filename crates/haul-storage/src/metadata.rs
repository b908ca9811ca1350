//! Metadata to set on an inode, and the part of it that could not be set.

use haul_sys::metadata::Times;
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;

/// Metadata to set on an inode. The default sets nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// Owning user.
    pub user: Option<u32>,
    /// Owning group.
    pub group: Option<u32>,
    /// Extended attributes, access control lists included: names with values.
    pub attributes: Cow<'a, [(CString, Vec<u8>)]>,
    /// Permission bits: `0` to `0o7777`.
    pub mode: Option<u32>,
    /// Last access and last change of the contents.
    pub times: Times,
}

/// Part of the metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Length in bytes.
    Length,
    /// Bytes that the storage reports as lost when a file is closed.
    Bytes,
    /// User and group.
    Owner,
    /// Extended attribute of this name.
    Attribute(CString),
    /// Permission bits.
    Mode,
    /// Times.
    Times,
}

/// A part of the metadata that could not be set.
#[derive(Debug)]
pub struct Unset {
    /// The part.
    pub part: Part,
    /// Cause.
    pub error: io::Error,
}

impl Unset {
    /// Returns a function that adds the part to an error.
    pub fn of(part: Part) -> impl FnOnce(io::Error) -> Unset {
        |error| Unset { part, error }
    }
}

impl From<Unset> for io::Error {
    fn from(unset: Unset) -> io::Error {
        unset.error
    }
}

impl std::error::Error for Unset {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl fmt::Display for Unset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attribute = |name: &CStr| format!("the attribute {}", haul_model::Percent(name.to_bytes()));
        match &self.part {
            Part::Length => f.write_str("cannot set the length"),
            Part::Bytes => f.write_str("cannot write all bytes"),
            Part::Owner => f.write_str("cannot set the owner"),
            Part::Attribute(name) => write!(f, "cannot set {}", attribute(name)),
            Part::Mode => f.write_str("cannot set the permissions"),
            Part::Times => f.write_str("cannot set the times"),
        }
    }
}
