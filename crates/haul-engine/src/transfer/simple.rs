//! Jobs with default settings, for programs without special requirements.

use super::parts::Parts;
use super::report::{Failure, Report, RunContext, Tally};
use super::source::Filter;
use super::{CheckSpace, FetchJob, Logs, Offer, SendJob, SinkPolicy};
use haul_model::ObjectSize;
use haul_proto::{JobOptions, Keep};
use haul_storage::local::LocalStorage;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of lanes of an answering side.
const LANES: u32 = super::DEFAULT_LANES_MAX;

/// Maximum number of bytes in flight.
const BUFFERS: u64 = 256 << 20;

/// Maximum number of failures that are stored.
const FAILURES_KEPT: usize = 1000;

/// Preserved metadata: everything that the owner of a file may set.
const PRESERVED: Keep = Keep::MODE
    .with(Keep::TIMES)
    .with(Keep::XATTRS)
    .with(Keep::ACLS)
    .with(Keep::LINKS)
    .with(Keep::HARD_LINKS)
    .with(Keep::HOLES);

impl SendJob {
    /// Creates a job that sends these sources into the peer's root. BLAKE3 verifies every object.
    /// Modes, times, attributes and links are preserved; files belong to the receiving user.
    pub fn new(sources: Vec<OsString>) -> SendJob {
        SendJob {
            storage: Arc::new(LocalStorage),
            sources,
            filter: Filter::default(),
            one_file_system: false,
            options: JobOptions { keep: PRESERVED, ..JobOptions::default() },
            to: Vec::new(),
            lanes: None,
            buffers: BUFFERS,
            resume: None,
            check_space: CheckSpace::default(),
            forgets: false,
        }
    }
}

impl FetchJob {
    /// Creates a job that fetches these paths beneath the peer's root into this directory, with the
    /// same settings as [`SendJob::new`].
    pub fn new(paths: Vec<Vec<u8>>, into: OsString) -> FetchJob {
        let options = JobOptions { keep: PRESERVED, ..JobOptions::default() };
        FetchJob {
            paths,
            into,
            rules: Vec::new(),
            parts: None,
            options,
            policy: SinkPolicy::default(),
            lanes: None,
            buffers: BUFFERS,
            resume: None,
        }
    }

    /// Creates a job that fetches parts of files beneath a directory of the peer. The destination
    /// directory must be private to this user. Each file is written under its own name and has
    /// holes where no part was fetched. Only owners are preserved, if possible.
    pub fn of_parts(
        mut directory: Vec<u8>,
        into: OsString,
        object: ObjectSize,
        parts: Arc<Parts>,
    ) -> FetchJob {
        // Fetch the contents of the directory without its name.
        if !directory.is_empty() && !directory.ends_with(b"/") {
            directory.push(b'/');
        }
        let keep = Keep::OWNER.with(Keep::HOLES);
        let options = JobOptions { object, keep, in_place: true, ..JobOptions::default() };
        let rules = parts.rules();
        FetchJob { rules, parts: Some(parts), options, ..FetchJob::new(vec![directory], into) }
    }
}

impl Offer {
    /// Offers this directory for writing only. Nothing sent to it gets owners or set-user-ID bits.
    pub fn writable(root: OsString) -> Offer {
        Offer { may_write: true, ..Offer::closed(root) }
    }

    /// Offers this directory for reading only.
    pub fn readable(root: OsString) -> Offer {
        Offer { may_read: true, ..Offer::closed(root) }
    }

    fn closed(root: OsString) -> Offer {
        Offer {
            root,
            storage: Arc::new(LocalStorage),
            may_read: false,
            may_write: false,
            may_list: false,
            lanes: LANES,
            buffers: BUFFERS,
            sessions: 1,
            quota: None,
            keep: PRESERVED,
            policy: SinkPolicy::default(),
            logs: Logs::None,
        }
    }
}

/// An observer for callers that only need the outcome and a way to stop the transfer.
#[derive(Debug, Default)]
pub struct SimpleObserver {
    stop: AtomicBool,
    tally: Tally,
    failures: Mutex<Vec<Failure>>,
}

impl SimpleObserver {
    /// Returns the context to pass to a transfer.
    pub fn run_context(&self) -> RunContext<'_> {
        RunContext { stop: &self.stop, tally: &self.tally, report: self, receipt: None }
    }

    /// Stops the transfer, from any thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns the progress counters.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the first 1,000 failures so far.
    pub fn failures(&self) -> Vec<Failure> {
        self.failures.lock().clone()
    }
}

impl Report for SimpleObserver {
    fn failed(&self, failure: &Failure) {
        let mut failures = self.failures.lock();
        if failures.len() < FAILURES_KEPT {
            failures.push(failure.clone());
        }
    }
}
