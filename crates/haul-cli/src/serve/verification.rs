//! Verifications for browsers: the engine of `haul verify`, with its results as lines of JSON.

use crate::verify::Event;
use haul_engine::sum::{Counters, Settings, reason};
use haul_engine::verify::{
    Resumption, Verdict, VerifyError, VerifyObserver, VerifySettings, VerifyTotals, verify,
};
use haul_log::waybill::ReadError;
use haul_web::Verification;
use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Interval of lines with the progress.
const INTERVAL: Duration = Duration::from_millis(250);

/// Bytes of lines that are sent at once.
const BLOCK_BYTES: usize = 32 << 10;

/// Maximum number of flaws of a waybill that are sent. In a file that is not a waybill, every line
/// is a flaw.
const FLAWS_MAX: u64 = 20;

type SendLines<'a> = &'a mut (dyn FnMut(Vec<u8>) -> bool + Send);

/// Lines that are gathered for the browser.
struct Lines<'a> {
    block: Vec<u8>,
    flaws: u64,
    send: SendLines<'a>,
    /// Set to true when the browser takes no more lines.
    stop: &'a AtomicBool,
}

impl Lines<'_> {
    fn add(&mut self, event: &Event<'_>) {
        // Writing to memory cannot fail, and events have no maps.
        let _ = serde_json::to_writer(&mut self.block, event);
        self.block.push(b'\n');
        if self.block.len() >= BLOCK_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let block = std::mem::take(&mut self.block);
        if !(self.send)(block) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Observer that shares the lines with the thread that reports the progress.
struct Observer<'a>(&'a Mutex<Lines<'a>>);

impl<'a> Observer<'a> {
    fn lines(&self) -> MutexGuard<'a, Lines<'a>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VerifyObserver for Observer<'_> {
    fn judged(&mut self, verdict: &Verdict) {
        self.lines().add(&Event::entry(verdict, false));
    }

    fn flawed(&mut self, flaw: &ReadError) {
        let mut lines = self.lines();
        lines.flaws += 1;
        if lines.flaws <= FLAWS_MAX {
            lines.add(&Event::flaw(flaw));
        }
    }

    fn resumption(&mut self, _: &Resumption) {}
}

/// Verifies, and passes lines to `send` until it returns false.
pub(super) fn verify_for_browser(verification: &Verification, send: SendLines<'_>) {
    let settings = VerifySettings {
        waybill: path_of(&verification.waybill),
        root: path_of(&verification.directory),
        reading: Settings::from_device(None),
        sample: None,
        extra: false,
        locate: true,
        resume: None,
        any_seed: false,
    };
    let (counters, stop) = (Counters::new(), AtomicBool::new(false));
    let lines = Mutex::new(Lines { block: Vec::new(), flaws: 0, send, stop: &stop });
    let (counters, lines) = (&counters, &lines);
    let verified = thread::scope(|scope| {
        let (ended, end) = mpsc::channel::<()>();
        let report = move || {
            while end.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let mut lines = Observer(lines).lines();
                lines.add(&Event::progress(counters));
                lines.flush();
            }
        };
        // Without this thread, the browser sees no progress.
        let _ = thread::Builder::new().name("haul-web-progress".into()).spawn_scoped(scope, report);
        let verified = verify(&settings, &mut Observer(lines), counters, &stop);
        drop(ended);
        verified
    });
    let mut lines = Observer(lines).lines();
    lines.add(&end_of(&verified, stop.load(Ordering::Relaxed)));
    lines.flush();
}

/// Returns the last event.
fn end_of(verified: &Result<VerifyTotals, VerifyError>, is_interrupted: bool) -> Event<'static> {
    // The paths are descriptors, which tell a user nothing.
    let message = match verified {
        Ok(totals) => return Event::summary(totals, is_interrupted),
        Err(VerifyError::Refused { source, .. }) => format!("cannot use the waybill: {source}"),
        Err(VerifyError::Waybill(_, error)) => format!("cannot read the waybill: {}", reason(error)),
        Err(VerifyError::Root(_, error)) => format!("cannot open the directory: {}", reason(error)),
        Err(error) => error.to_string(),
    };
    Event::Error { message }
}

/// Returns a path of an open file.
fn path_of(file: &OwnedFd) -> OsString {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
