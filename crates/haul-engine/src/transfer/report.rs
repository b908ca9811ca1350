//! Events of a running transfer.

use super::receipt::Receipt;
use super::time_stats::Datagrams;
use crate::copy::quote_if_needed;
use haul_proto::{Outcome, Reason};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Receiver of the events of a transfer. Workers call it concurrently.
pub trait Report: Sync {
    /// A file failed, or an entry could not be read. The transfer continues.
    fn failed(&self, failure: &Failure);

    /// A file has finished without a failure.
    fn ended(&self, _path: &[u8], _outcome: &Outcome) {}

    /// A name was deleted at the sink, or would be in a dry run.
    fn deleted(&self, _path: &[u8]) {}

    /// A message that is not a failure, for example about a log that is rejected or cannot be
    /// written.
    fn note(&self, _text: &str) {}

    /// Datagrams so far of lanes that send datagrams themselves, several times in a second.
    fn datagrams(&self, _so_far: &Datagrams) {}

    /// Returns the reason for the peer if this side stops before the end.
    fn stop_reason(&self) -> &'static str {
        "the job was interrupted"
    }

    /// A lane was lost. The other lanes, if any, take over its work.
    fn lane_lost(&self, _lane: u32, _why: &str) {}
}

/// A file that did not arrive.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Path as given here, or beneath the root of the peer.
    pub path: Vec<u8>,
    /// True if it failed on this side.
    pub here: bool,
    /// Cause.
    pub reason: Reason,
}

impl fmt::Display for Failure {
    /// Formats the failure without terminal control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.here { "" } else { " (on the remote host)" };
        write!(f, "{}: {}{side}", quote_if_needed(OsStr::from_bytes(&self.path)), self.reason)
    }
}

/// Counters of a transfer. All but one never decrease.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of names that the walk found.
    pub files_found: AtomicU64,
    /// Number of finished names, including failed ones.
    pub files_done: AtomicU64,
    /// Total size of the files found, in bytes.
    pub bytes_found: AtomicU64,
    /// Number of bytes that the sink reports as settled.
    pub bytes_done: AtomicU64,
    /// Number of bytes that arrived in objects that the sink has not compared yet. Unlike the other
    /// counters, it decreases.
    pub unverified: AtomicU64,
    /// True if the walk is complete.
    pub walked: AtomicBool,
}

impl Tally {
    pub(super) fn found(&self, bytes: u64) {
        self.files_found.fetch_add(1, Ordering::Relaxed);
        add(&self.bytes_found, bytes);
    }

    /// Adds bytes to the files found: a name that was announced as a link is sent as a file.
    pub(super) fn grew(&self, bytes: u64) {
        if bytes > 0 {
            add(&self.bytes_found, bytes);
        }
    }

    pub(super) fn ended(&self) {
        self.files_done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn settled(&self, bytes: u64) {
        add(&self.bytes_done, bytes);
    }
}

/// Adds to a counter without wrapping: a peer can announce two files of 2^63 - 1 bytes.
fn add(counter: &AtomicU64, bytes: u64) {
    let sum = counter.fetch_add(bytes, Ordering::Relaxed).checked_add(bytes);
    if sum.is_none() {
        counter.store(u64::MAX, Ordering::Relaxed);
    }
}

/// Stop flag, counters and event receiver that the caller passes to a transfer.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    /// Set to `true` to stop the transfer.
    pub stop: &'a AtomicBool,
    /// Progress counters.
    pub tally: &'a Tally,
    /// Receiver of events.
    pub report: &'a dyn Report,
    /// Waybill that this side writes, started with the session; a dry run writes none.
    pub receipt: Option<&'a Receipt>,
}
