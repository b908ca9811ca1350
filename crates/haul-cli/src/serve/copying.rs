//! Copies between two directories of the server, for browsers: this server sends to itself, so that
//! objects are verified, and limits hold, as for any other transfer.

use super::lines::{Lines, SendLines};
use super::verification::path_of;
use haul_engine::transfer::{
    self, BoxError, Failure, Outcome, Report, RunContext, SendJob, Tally, TransferError,
};
use haul_model::Level;
use haul_proto::{Outcome as FileOutcome, Update};
use haul_web::ServerCopy;
use serde::Serialize;
use std::borrow::Cow;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maximum number of failures that are sent.
const FAILURES_MAX: u64 = 200;

/// One line.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Progress {
        files: u64,
        bytes: u64,
        /// Numbers of files and bytes that were found so far.
        files_found: u64,
        bytes_found: u64,
        /// True if all were found.
        walked: bool,
    },
    Failed {
        path: Cow<'a, str>,
        message: String,
    },
    /// The end.
    Copied {
        /// True if every file has an outcome and none failed.
        whole: bool,
        done: u64,
        same: u64,
        failed: u64,
        /// Lowest level of a file.
        level: &'static str,
        message: String,
    },
}

struct Observer<'a> {
    lines: &'a Lines<'a>,
    /// Start of the paths of this side.
    directory: &'a [u8],
    failures: AtomicU64,
    /// Lowest level of a file so far.
    level: Mutex<Option<Level>>,
}

impl Report for Observer<'_> {
    fn failed(&self, failure: &Failure) {
        if self.failures.fetch_add(1, Ordering::Relaxed) < FAILURES_MAX {
            let path = failure.path.strip_prefix(self.directory).unwrap_or(&failure.path);
            let path = String::from_utf8_lossy(path.strip_prefix(b"/").unwrap_or(path));
            self.lines.add(&Event::Failed { path, message: failure.reason.to_string() });
        }
    }

    fn ended(&self, _: &[u8], outcome: &FileOutcome) {
        // An equal file was there before: this copy did not make it durable.
        let level = if let FileOutcome::Done(level) = outcome { *level } else { Level::Received };
        let mut lowest = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        *lowest = Some(lowest.map_or(level, |lowest| lowest.min(level)));
    }
}

/// Copies, and passes lines to `send` until it returns false.
pub(super) fn copy_for_browser(copy: &ServerCopy, send: SendLines<'_>) {
    let directory = path_of(&copy.directory);
    let source =
        |name: &CString| OsString::from_vec([directory.as_bytes(), b"/", name.as_bytes()].concat());
    let mut job = SendJob::new(copy.names.iter().map(source).collect());
    job.to.clone_from(&copy.to);
    job.options.settle = Level::Durable;
    if copy.may_compare {
        job.options.update = Update::Digest;
    }
    let (lines, tally) = (Lines::new(send), Tally::default());
    let observer = Observer {
        lines: &lines,
        directory: directory.as_bytes(),
        failures: AtomicU64::new(0),
        level: Mutex::default(),
    };
    let context = RunContext { stop: &lines.stop, tally: &tally, report: &observer, receipt: None };
    let dial = |_: u32| (copy.connect)().map_err(|verdict| BoxError::from(verdict.to_string()));
    let sent = lines.during(|| progress(&tally), || transfer::send(&dial, &job, &context));
    lines.send(&progress(&tally));
    lines.send(&end_of(sent, &observer));
}

fn progress(tally: &Tally) -> Event<'static> {
    Event::Progress {
        files: tally.files_done.load(Ordering::Relaxed),
        bytes: tally.bytes_done.load(Ordering::Relaxed),
        files_found: tally.files_found.load(Ordering::Relaxed),
        bytes_found: tally.bytes_found.load(Ordering::Relaxed),
        walked: tally.walked.load(Ordering::Relaxed),
    }
}

/// Returns the last event.
fn end_of(sent: Result<Outcome, TransferError>, observer: &Observer<'_>) -> Event<'static> {
    let lowest = *observer.level.lock().unwrap_or_else(PoisonError::into_inner);
    let level = match lowest {
        None => "none",
        Some(Level::Received) => "received",
        Some(Level::Verified) => "verified",
        Some(Level::Durable) => "durable",
        Some(Level::Reread) => "reread",
    };
    match sent {
        Ok(outcome) => Event::Copied {
            whole: outcome.is_whole(),
            done: outcome.summary.done,
            same: outcome.summary.same,
            failed: outcome.summary.failed + outcome.summary.unread,
            level,
            message: outcome.broken.map_or(String::new(), |reason| reason.to_string()),
        },
        Err(error) => {
            let message = error.to_string();
            Event::Copied { whole: false, done: 0, same: 0, failed: 0, level, message }
        }
    }
}
