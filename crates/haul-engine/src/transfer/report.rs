//! What a transfer tells while it runs.

use super::receipt::Receipt;
use haul_model::Percent;
use haul_proto::{Outcome, Reason};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Who hears what happens to files. Workers call it at the same time.
pub trait Report: Sync {
    /// A file failed, or something could not be read. The rest goes on.
    fn failed(&self, failure: &Failure);

    /// A file is at its end and did not fail.
    fn ended(&self, _path: &[u8], _outcome: &Outcome) {}

    /// A name was deleted at the sink, or would be.
    fn deleted(&self, _path: &[u8]) {}

    /// Something worth a line that is no failure: what of an earlier run is not trusted, or can't be written down.
    fn note(&self, _text: &str) {}

    /// A lane was lost; the others go on with what it had, if there are any.
    fn lane_lost(&self, _lane: u32, _why: &str) {}
}

/// A file that did not arrive.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which: as it was named here, or beneath the root of the other side.
    pub path: Vec<u8>,
    /// Whether it failed on this side.
    pub here: bool,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Failure {
    /// Without anything that steers a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.here { "" } else { " (at the other side)" };
        write!(f, "{}: {}{side}", Percent(&self.path), self.reason)
    }
}

/// Counters of a transfer. They only grow.
#[derive(Debug, Default)]
pub struct Tally {
    /// Names met by the walk.
    pub files_found: AtomicU64,
    /// Names at their end, failed ones too.
    pub files_done: AtomicU64,
    /// Bytes of the files met.
    pub bytes_found: AtomicU64,
    /// Bytes that the sink has settled, by its word.
    pub bytes_done: AtomicU64,
    /// Whether all is found.
    pub walked: AtomicBool,
}

impl Tally {
    pub(super) fn found(&self, bytes: u64) {
        self.files_found.fetch_add(1, Ordering::Relaxed);
        self.bytes_found.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes to the files found: a name that was announced as a link is sent as a file.
    pub(super) fn grew(&self, bytes: u64) {
        if bytes > 0 {
            self.bytes_found.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn ended(&self) {
        self.files_done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn settled(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Who watches a transfer.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Turns true when the transfer is to stop.
    pub stop: &'a AtomicBool,
    /// What is counted.
    pub tally: &'a Tally,
    /// What is told.
    pub report: &'a dyn Report,
    /// The waybill that this side writes, begun with the session; a dry run writes none.
    pub receipt: Option<&'a Receipt>,
}
