//! What is to be done to the files of a log.

use super::volume;

/// One step, to be done in the order given. Names are plain file names within the folder of the log.
///
/// Between two [`Order::Sync`] the medium may keep any of the steps, each write up to any byte, in any order; the log
/// counts on no more than that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Write bytes at an offset of a file, which is made if it is not there; what lies between its end and the offset
    /// reads as zeros.
    Write {
        /// Which file.
        name: String,
        /// Where in it.
        at: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Put a file of exactly these bytes under the name, whole or not at all: a draft beside it is written, made durable
    /// and renamed.
    Replace {
        /// Which file.
        name: String,
        /// All of it.
        bytes: Vec<u8>,
    },
    /// Remove a file; it need not be there.
    Remove {
        /// Which file.
        name: String,
    },
    /// All that was ordered before is made durable, names too, before anything that follows begins.
    Sync,
}

impl Order {
    /// Whether this puts an index in place that is to tell of a log of this name: nobody reads that log before.
    pub fn names(&self, log: &str) -> bool {
        matches!(self, Order::Replace { name, .. } if volume::is_log_of(log, name))
    }
}
