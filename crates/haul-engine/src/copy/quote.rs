//! Names in messages, quoted as the coreutils quote them, so that no control character reaches a terminal.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// A name that prints quoted.
#[derive(Debug)]
pub struct Quoted<'a>(&'a OsStr);

/// Quotes a name for a message.
pub fn quote(name: &OsStr) -> Quoted<'_> {
    Quoted(name)
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", String::from_utf8_lossy(self.0.as_bytes()))
    }
}
