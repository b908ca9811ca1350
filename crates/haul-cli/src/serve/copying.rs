//! Copies between two directories of the server, or to and from another server, for browsers.
//! Within the server, it sends to itself, so that objects are verified, and limits hold, as for any
//! other transfer.

use super::lines::Lines;
use super::sandboxing::Sandboxing;
use super::verification::path_of;
use crate::remote::way::STALL_TIMEOUT;
use haul_engine::sum::reason;
use haul_engine::transfer::{
    self, BoxError, Failure, FetchJob, Outcome, Report, RunContext, SendJob, Tally, TransferError,
};
use haul_model::Level;
use haul_net::{DialSettings, Dialer, Grant, StreamLane, Ticket, Uses};
use haul_proto::{JobOptions, Outcome as FileOutcome, Update};
use haul_storage::Name;
use haul_web::{CopyWork, PeerConnection, PeerLanes, PeerListing, PeerPage, SendLines, ServerCopy};
use parking_lot::Mutex;
use serde::Serialize;
use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Level that all files of a copy reach.
const LEVEL: Level = Level::Durable;

/// Time to connect to another server, at all of its addresses.
const DIAL_TIMEOUT: Duration = Duration::from_secs(60);

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
        let level = match outcome {
            FileOutcome::Done(level) if *level == LEVEL => *level,
            // Directories and links have no contents, which could be durable.
            FileOutcome::Done(_) => return,
            // An equal file was there before: this copy did not make it durable.
            _ => Level::Received,
        };
        let mut lowest = self.level.lock();
        *lowest = Some(lowest.map_or(level, |lowest| lowest.min(level)));
    }
}

/// Copies, and passes lines to `send` until it returns false.
pub(super) fn copy_for_browser(copy: &ServerCopy, send: SendLines<'_>) {
    let directory = path_of(&copy.directory);
    let update = if copy.may_compare { Update::Digest } else { Update::Always };
    let with_options = |options| JobOptions { settle: LEVEL, update, ..options };
    let (lines, tally) = (Lines::new(send), Tally::default());
    let observer = Observer {
        lines: &lines,
        directory: directory.as_bytes(),
        failures: AtomicU64::new(0),
        level: Mutex::default(),
    };
    let context = RunContext { stop: &lines.stop, tally: &tally, report: &observer, receipt: None };
    let dial = |number: u32| (copy.connect)(number).map_err(BoxError::from);
    let work = || match &copy.work {
        CopyWork::Send { names, to } => {
            let source =
                |name: &Name| OsString::from_vec([directory.as_bytes(), b"/", name.as_bytes()].concat());
            let job = SendJob::new(names.iter().map(source).collect());
            let options = with_options(job.options);
            transfer::send(&dial, &SendJob { to: to.clone(), options, ..job }, &context)
        }
        CopyWork::Fetch { paths } => {
            let job = FetchJob::new(paths.clone(), directory.clone());
            let options = with_options(job.options);
            transfer::fetch(&dial, &FetchJob { options, ..job }, &context)
        }
    };
    let copied = lines.during(|| progress(&tally), work);
    lines.send(&progress(&tally));
    lines.send(&end_of(copied, &observer));
}

/// Connects to the server of a ticket for browsers. A thread that no sandbox confines opens the
/// lanes; it ends when the result is dropped. The error is a message.
pub(super) fn connect_peer(ticket: &str) -> Result<PeerConnection, String> {
    let ticket = Ticket::parse(ticket).map_err(|error| format!("cannot use the ticket: {error}"))?;
    let Grant { role, uses, .. } = ticket.grant();
    let settings = DialSettings { stall: Some(STALL_TIMEOUT), ..DialSettings::default() };
    let dialer = Dialer::new(ticket, settings).map_err(|error| error.to_string())?;
    let (requests, requested) = mpsc::channel::<(u16, mpsc::Sender<Result<StreamLane, String>>)>();
    let dial = move || {
        for (number, reply) in requested {
            // The copy may be over.
            let _ = reply.send(dialer.lane(number).map_err(|error| error.to_string()));
        }
    };
    let started = thread::Builder::new().name("haul-web-dial".into()).spawn(dial);
    started.map_err(|error| format!("cannot start a thread: {}", reason(&error)))?;
    let lanes: PeerLanes = Box::new(move |number| {
        let number = u16::try_from(number).map_err(|_| "too many connections".to_owned())?;
        let (reply, lane) = mpsc::channel();
        let lost = || "cannot connect: the thread for connections has ended".to_owned();
        requests.send((number, reply)).map_err(|_| lost())?;
        lane.recv_timeout(DIAL_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout => "cannot connect: the other server does not answer".to_owned(),
            RecvTimeoutError::Disconnected => lost(),
        })?
    });
    Ok(PeerConnection { lanes, may_read: role.may_read(), is_one_time: uses == Uses::Once })
}

/// Lists a page of a directory of another server for browsers, on a thread that is confined: it has
/// no rights on files. The error is a message.
pub(super) fn list_peer(sandbox: Sandboxing, listing: &PeerListing) -> Result<PeerPage, String> {
    sandbox.enter_without_files()?;
    let dial = |number: u32| (listing.lanes)(number).map_err(BoxError::from);
    let mut entries = Vec::new();
    let has_more = transfer::list(&dial, &listing.path, &listing.after, &mut |entry| {
        let is_full = entries.len() == listing.max;
        if !is_full {
            entries.push(entry);
        }
        !is_full
    });
    Ok(PeerPage { has_more: has_more.map_err(|error| error.to_string())?, entries })
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
    let lowest = *observer.level.lock();
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
