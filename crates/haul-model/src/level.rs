//! Verification levels of a range of a file.

use std::fmt;

/// The verification level that a range has reached; each level includes those before it.
///
/// The log and the waybill record these levels and never claim a higher one than was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The sink accepted the bytes.
    Received,
    /// The digest of the received bytes equals that of the sent bytes.
    Verified,
    /// The sink's `fdatasync` returned after the bytes were written.
    Durable,
    /// The bytes were read back from the device, past the page cache, and match.
    Reread,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Received => "received",
            Level::Verified => "verified",
            Level::Durable => "durable",
            Level::Reread => "re-read",
        })
    }
}
