//! Verifications for browsers: the engine of `haul verify`, with its results as lines of JSON.

use super::lines::Lines;
use crate::verify::Event;
use haul_engine::sum::{Counters, Settings, reason};
use haul_engine::verify::{Verdict, VerifyError, VerifyObserver, VerifySettings, VerifyTotals, verify};
use haul_log::waybill::ReadError;
use haul_web::{SendLines, Verification};
use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::Ordering;

/// Maximum number of flaws of a waybill that are sent. In a file that is not a waybill, every line
/// is a flaw.
const FLAWS_MAX: u64 = 20;

struct Observer<'a> {
    lines: &'a Lines<'a>,
    flaws: u64,
}

impl VerifyObserver for Observer<'_> {
    fn judged(&mut self, verdict: &Verdict) {
        self.lines.add(&Event::entry(verdict, false));
    }

    fn flawed(&mut self, flaw: &ReadError) {
        self.flaws += 1;
        if self.flaws <= FLAWS_MAX {
            self.lines.add(&Event::flaw(flaw));
        }
    }
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
    let (counters, lines) = (Counters::new(), Lines::new(send));
    let mut observer = Observer { lines: &lines, flaws: 0 };
    let work = || verify(&settings, &mut observer, &counters, &lines.stop);
    let verified = lines.during(|| Event::progress(&counters), work);
    lines.send(&end_of(&verified, lines.stop.load(Ordering::Relaxed)));
}

/// Returns the last event.
fn end_of(verified: &Result<VerifyTotals, VerifyError>, is_interrupted: bool) -> Event<'static> {
    // The paths are descriptors, which tell a user nothing.
    let message = match verified {
        Ok(totals) => return Event::summary(totals, is_interrupted),
        Err(VerifyError::Refused { source, .. }) => format!("cannot use the waybill: {source}"),
        Err(VerifyError::Waybill(_, error)) => format!("cannot read the waybill: {}", reason(error)),
        Err(VerifyError::Root(_, error)) => format!("cannot open the directory: {}", reason(error)),
        Err(VerifyError::Empty(_)) => "the waybill has no entries, so that it proves nothing".to_owned(),
        Err(error) => error.to_string(),
    };
    Event::Error { message }
}

/// Returns a path of an open file.
pub(super) fn path_of(file: &OwnedFd) -> OsString {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
