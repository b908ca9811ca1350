//! Operations on the files of a log.

use super::volume;

/// One step, to be carried out in the given order. Names are plain file names in the directory of
/// the log.
///
/// Between two [`Order::Sync`] the medium may apply any subset of the steps, each write up to any
/// byte, in any order. The log makes no stronger assumption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Write bytes at an offset of a file. Create the file if it does not exist; a gap between its
    /// end and the offset reads as zeros.
    Write {
        /// Name of the file.
        name: String,
        /// Offset in the file.
        at: u64,
        /// Bytes to write.
        bytes: Vec<u8>,
    },
    /// Replace a file atomically with exactly these parts: write a temporary file, sync it and
    /// rename it.
    Replace {
        /// Name of the file.
        name: String,
        /// Complete contents of the file: offsets and bytes in ascending order. Gaps between them
        /// read as zeros.
        parts: Vec<(u64, Vec<u8>)>,
    },
    /// Remove a file, if it exists.
    Remove {
        /// Name of the file.
        name: String,
    },
    /// Make all earlier orders durable, including names, before the next one starts.
    Sync,
}

impl Order {
    /// Returns true if this order installs an index that can refer to the log of this name. Before
    /// that, no reader reads the log.
    pub fn names(&self, log: &str) -> bool {
        matches!(self, Order::Replace { name, .. } if volume::is_log_of(log, name))
    }
}
