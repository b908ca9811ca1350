//! Jobs as a program wants them that has nothing special in mind.

use super::parts::Parts;
use super::report::{Failure, Report, Tally, Watch};
use super::source::Filter;
use super::{CheckSpace, FetchJob, Logs, Offer, SendJob};
use haul_model::ObjectSize;
use haul_proto::{JobOptions, Keep};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Lanes that a side that answers takes.
const LANES: u32 = super::LANES_UNASKED_MAX;

/// Bytes under way at most.
const BUFFERS: u64 = 256 << 20;

/// Failures that are kept.
const FAILURES_KEPT: usize = 1000;

/// What is kept of each file: all that its owner may give away.
const KEPT: Keep = Keep::MODE
    .with(Keep::TIMES)
    .with(Keep::XATTRS)
    .with(Keep::ACLS)
    .with(Keep::LINKS)
    .with(Keep::HARD_LINKS)
    .with(Keep::HOLES);

impl SendJob {
    /// These sources, into the other side's root; every object is compared by BLAKE3. Modes, times, attributes and links are
    /// kept, owners are the receiver's.
    pub fn new(sources: Vec<OsString>) -> SendJob {
        SendJob {
            sources,
            filter: Filter::default(),
            one_file_system: false,
            options: JobOptions { keep: KEPT, ..JobOptions::default() },
            to: Vec::new(),
            lanes: None,
            buffers: BUFFERS,
            resume: None,
            check_space: CheckSpace::default(),
        }
    }
}

impl FetchJob {
    /// These paths beneath the other side's root, into this directory, as [`SendJob::new`].
    pub fn new(paths: Vec<Vec<u8>>, into: OsString) -> FetchJob {
        let options = JobOptions { keep: KEPT, ..JobOptions::default() };
        FetchJob {
            paths,
            into,
            rules: Vec::new(),
            parts: None,
            options,
            lanes: None,
            buffers: BUFFERS,
            resume: None,
        }
    }

    /// Parts of files beneath a directory of the other side, into this directory, which is this user's alone: each file is written
    /// under its own name and has holes where nothing came. Owners are kept where that may be, and nothing else.
    pub fn of_parts(
        mut directory: Vec<u8>,
        into: OsString,
        object: ObjectSize,
        parts: Arc<Parts>,
    ) -> FetchJob {
        // What lies in it goes without its name.
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
    /// This directory to be written to, and not read; nobody gets owners or setuid bits by it.
    pub fn to_take(root: OsString) -> Offer {
        Offer { may_write: true, ..Offer::to_nobody(root) }
    }

    /// This directory to be read, and not written to.
    pub fn to_give(root: OsString) -> Offer {
        Offer { may_read: true, ..Offer::to_nobody(root) }
    }

    fn to_nobody(root: OsString) -> Offer {
        Offer {
            root,
            may_read: false,
            may_write: false,
            lanes: LANES,
            buffers: BUFFERS,
            quota: None,
            keep: KEPT,
            logs: Logs::None,
        }
    }
}

/// A watch for who only wants to know how it ended, and to be able to stop it.
#[derive(Debug, Default)]
pub struct Onlooker {
    stop: AtomicBool,
    tally: Tally,
    failures: Mutex<Vec<Failure>>,
}

impl Onlooker {
    /// What a transfer takes.
    pub fn watch(&self) -> Watch<'_> {
        Watch { stop: &self.stop, tally: &self.tally, report: self, receipt: None }
    }

    /// Ends the transfer, from any thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// How far it is.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The first thousand things that failed so far.
    pub fn failures(&self) -> Vec<Failure> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Report for Onlooker {
    fn failed(&self, failure: &Failure) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < FAILURES_KEPT {
            failures.push(failure.clone());
        }
    }
}
