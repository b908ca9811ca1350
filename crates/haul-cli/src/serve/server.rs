//! Sessions of a server, each in its own threads.

use super::counters::SessionCounters;
use super::resolved::{Issue, Share};
use super::sandboxing::Sandboxing;
use super::{NAME, logs};
use crate::console::say;
use crate::interrupt::Interrupt;
use crate::receipt;
use crate::remote::ending::EXIT_FAILED;
use crate::remote::output::{SessionReporter, Side, sentence};
use haul_engine::log::LogStore;
use haul_engine::transfer::{self, Logs, Offer, Outcome, Receipt, RunContext, Tally};
use haul_engine::waybill::Root;
use haul_log::objects::Style;
use haul_net::{Listener, Role, Session, TicketId, TicketTable};
use haul_storage::local::LocalStorage;
use parking_lot::Mutex;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Polling interval of the end conditions.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time for the first lane of a session to open; the lane is in transit when the session starts.
const LANE_TIMEOUT: Duration = Duration::from_secs(10);

/// A share and its ticket.
pub(super) struct TicketedShare {
    pub(super) share: Share,
    pub(super) id: TicketId,
    pub(super) expires: Option<SystemTime>,
}

/// Accept loop of the server, and the state that its sessions share.
pub(super) struct SessionServer {
    pub(super) served: Vec<TicketedShare>,
    pub(super) tickets: Arc<TicketTable>,
    /// Bytes in flight of each session.
    pub(super) buffers: u64,
    /// When sessions are confined to their directories.
    pub(super) sandbox: Sandboxing,
    /// Maximum number of lanes of a session.
    pub(super) lanes: u32,
    /// Maximum number of concurrent sessions.
    pub(super) sessions: usize,
    pub(super) quiet: bool,
    /// Directory of the sessions' waybills.
    pub(super) waybills: Option<PathBuf>,
    /// Log store of received jobs.
    pub(super) log_store: Option<Arc<LogStore>>,
    /// Layout of their logs.
    pub(super) log_style: Style,
    /// Polling interval for expired logs.
    pub(super) look_every: Duration,
    /// Counters of all sessions.
    pub(super) counters: Arc<SessionCounters>,
}

/// Counts and results of the sessions.
#[derive(Default)]
struct SessionCounts {
    under_way: AtomicUsize,
    ended: AtomicUsize,
    /// True if a session did not transfer everything.
    incomplete: AtomicBool,
    /// Reason of the last incomplete session.
    why: Mutex<Option<String>>,
}

/// Counts a session as active until it ends, also on panic.
struct ActiveSessionGuard<'a> {
    counts: &'a SessionCounts,
    /// True if the session transferred everything.
    is_complete: bool,
}

impl<'a> ActiveSessionGuard<'a> {
    fn new(counts: &'a SessionCounts) -> ActiveSessionGuard<'a> {
        counts.under_way.fetch_add(1, Ordering::AcqRel);
        ActiveSessionGuard { counts, is_complete: false }
    }

    /// Records the result of the session.
    fn end(&mut self, served: Result<(), String>) {
        self.is_complete = served.is_ok();
        if let Err(why) = served {
            *self.counts.why.lock() = Some(why);
        }
    }
}

impl Drop for ActiveSessionGuard<'_> {
    fn drop(&mut self) {
        self.counts.incomplete.fetch_or(!self.is_complete, Ordering::AcqRel);
        self.counts.ended.fetch_add(1, Ordering::AcqRel);
        self.counts.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl SessionServer {
    /// Serves until a signal requests the end; with `once`, until the first session has ended; and
    /// until no ticket is valid. Returns the exit status.
    pub(super) fn open(&self, listener: &Listener, once: bool, interrupt: &Interrupt) -> u8 {
        let counts = SessionCounts::default();
        let stop = interrupt.flag();
        let mut looked = Instant::now();
        thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) {
                if once && counts.ended.load(Ordering::Acquire) > 0 {
                    break;
                }
                if counts.under_way.load(Ordering::Acquire) == 0 && self.is_expired() {
                    say(NAME, &"all tickets have expired");
                    break;
                }
                if let Some(log_store) =
                    self.log_store.as_deref().filter(|_| looked.elapsed() >= self.look_every)
                {
                    looked = Instant::now();
                    // The accept loop does not wait for the deletion.
                    scope.spawn(move || logs::clear(log_store, self.quiet));
                }
                let Some(session) = listener.next_session_within(POLL_INTERVAL) else { continue };
                let mut counted = ActiveSessionGuard::new(&counts);
                let started =
                    thread::Builder::new().name("haul-session".into()).spawn_scoped(scope, move || {
                        let served = AssertUnwindSafe(|| self.session(session, stop));
                        let served = panic::catch_unwind(served);
                        counted.end(served.unwrap_or_else(|_| {
                            Err("internal error: the thread of the session panicked".to_owned())
                        }));
                    });
                if let Err(error) = started {
                    say(NAME, &format_args!("cannot start a thread for a session: {error}"));
                }
            }
            listener.stop();
        });
        self.part();
        let ended = counts.ended.load(Ordering::Acquire);
        match (once, ended) {
            // A server without `--once` ends only on request, which is success.
            (false, _) => 0,
            (true, 0) if stop.load(Ordering::Relaxed) => interrupt.status(),
            (true, 0) => EXIT_FAILED,
            (true, _) => {
                if !counts.incomplete.load(Ordering::Acquire) {
                    return 0;
                }
                // Without --quiet, the log has the reason already.
                let why = counts.why.into_inner();
                if let Some(why) = why.filter(|_| self.quiet) {
                    say(NAME, &format_args!("session incomplete: {why}"));
                }
                EXIT_FAILED
            }
        }
    }

    /// Deletes the logs of tickets that end with the process: no client can resume these jobs.
    fn part(&self) {
        let Some(log_store) = &self.log_store else { return };
        let ends = |served: &&TicketedShare| !matches!(served.share.issue, Issue::Kept(_));
        self.served.iter().filter(ends).for_each(|served| logs::part(log_store, &served.id.0));
    }

    /// Returns the log location for a share. Each ticket has its own logs: the holder of another
    /// ticket cannot resume these jobs and learns nothing about them.
    fn logs_of(&self, served: &TicketedShare) -> Logs {
        match &self.log_store {
            Some(log_store) if logs::is_resumable(&served.share) => {
                let (log_store, client) = (Arc::clone(log_store), served.id.0.to_vec());
                Logs::Guest { log_store, client, style: self.log_style }
            }
            _ => Logs::None,
        }
    }

    fn is_expired(&self) -> bool {
        let now = SystemTime::now();
        self.tickets.forget_expired(now);
        self.served.iter().all(|served| served.expires.is_some_and(|end| now >= end))
    }

    /// Returns the limits of a session with a share, whose ticket grants `role`.
    pub(super) fn offer(&self, served: &TicketedShare, role: Role) -> Offer {
        let share = &served.share;
        let may_read = share.role.may_read() && role.may_read();
        Offer {
            root: share.root.clone(),
            storage: Arc::new(LocalStorage),
            may_read,
            may_write: share.role.may_write() && role.may_write(),
            may_list: may_read,
            lanes: self.lanes,
            buffers: self.buffers,
            sessions: self.sessions,
            quota: share.quota,
            keep: share.keep,
            policy: share.policy,
            logs: self.logs_of(served),
        }
    }

    /// Serves one session. Returns the reason if some data did not arrive.
    fn session(&self, session: Session, stop: &AtomicBool) -> Result<(), String> {
        let name = session.id().to_string();
        let found = self.served.iter().find(|served| served.id == session.ticket());
        let (Some(served), Some((_, first))) = (found, session.next_lane(LANE_TIMEOUT)) else {
            let why = "connection lost before the session started".to_owned();
            self.log(&format_args!("session {name}: {why}"));
            return Err(why);
        };
        let share = &served.share;
        self.log(&format_args!("session {name}: {} opened by {}", share.name, session.peer()));
        let offer = self.offer(served, session.role());
        if let Err(why) = self.sandbox.enter(&offer) {
            self.log(&format_args!("session {name}: {why}"));
            return Err(why);
        }
        let (tally, begun) = (Arc::new(Tally::default()), Instant::now());
        let mut counted = self.counters.begin(&tally);
        let report = SessionReporter::new(NAME, &name, self.quiet);
        let more = &mut || session.try_next_lane().map(|(_, lane)| lane.into());
        let receipt = self.waybills.as_ref().map(|dir| receipt_in(dir, share, &name));
        let run_context = RunContext { stop, tally: &tally, report: &report, receipt: receipt.as_ref() };
        let ended = transfer::answer(first.into(), more, &offer, &run_context);
        report.end();
        let mut written = Ok(());
        if let Some(Err(error)) = receipt.map(|receipt| receipt.close()) {
            // Printed even with --quiet, because the user relies on the waybill.
            say(NAME, &format_args!("session {name}: {error}"));
            written = Err(error.to_string());
        }
        let told = match &ended {
            Ok(outcome) => {
                counted.end(outcome);
                told(outcome, begun.elapsed())
            }
            Err(error) => error.to_string(),
        };
        self.log(&format_args!("session {name}: {told}"));
        match ended {
            Ok(outcome) if outcome.is_whole() => written,
            _ => Err(told),
        }
    }

    fn log(&self, message: &dyn std::fmt::Display) {
        if !self.quiet {
            say(NAME, message);
        }
    }
}

/// Returns the waybill of a session. Its name starts with the time, so that listings are sorted,
/// and ends with the session's name in the log.
fn receipt_in(dir: &Path, share: &Share, session: &str) -> Receipt {
    let job = receipt::job(NAME, &Root::new(share.root.clone()));
    let time = job.date().replace(['-', ':'], "");
    Receipt::new(dir.join(format!("{time}-{session}.waybill")).into_os_string(), job)
}

fn told(outcome: &Outcome, took: Duration) -> String {
    if let Some(names) = outcome.listed {
        return format!("listed a directory; names: {names}");
    }
    sentence(outcome, Side::Server, took, outcome.summary.would > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a server for one session waited indefinitely after that session had panicked.
    #[test]
    fn a_session_that_panics_counts_as_ended_and_incomplete() {
        let counts = SessionCounts::default();
        let session = AssertUnwindSafe(|| {
            let _counted = ActiveSessionGuard::new(&counts);
            panic!("in the middle");
        });
        assert!(panic::catch_unwind(session).is_err());
        assert_eq!(counts.under_way.load(Ordering::Acquire), 0);
        assert_eq!(counts.ended.load(Ordering::Acquire), 1);
        assert!(counts.incomplete.load(Ordering::Acquire));
    }
}
