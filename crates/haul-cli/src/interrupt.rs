//! Ctrl-C and its relatives: the first asks the job to stop in order, the second ends the process at once.

use crate::tool;
use haul_sys::signals;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Signals that ask a process to end: Ctrl-C, kill(1), and a terminal or a remote login that went away.
const ASKING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Whether the process was asked to end, and by what.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    stop: Arc<AtomicBool>,
    /// The signal that came, 0 for none.
    signal: Arc<AtomicUsize>,
    /// The signal ends the process itself, after the job was stopped in order.
    dies: bool,
}

impl Interrupt {
    /// Watches for signals that ask the process to end, but for those it was started with ignored: who ran it under
    /// nohup(1), or in the background of a script, meant it to go on. A second signal ends the process on the spot.
    ///
    /// # Errors
    /// What sigaction(2) reports.
    pub(crate) fn watch() -> io::Result<Interrupt> {
        Interrupt::default().watching()
    }

    /// As [`Interrupt::watch`], for a tool that goes by another's name and so ends as that one does: by the signal. A shell goes
    /// on with its script or loop after a command that took Ctrl-C for a reason to exit, and stops after one that it ended.
    ///
    /// # Errors
    /// What sigaction(2) reports.
    pub(crate) fn watch_as(tool: &str) -> io::Result<Interrupt> {
        Interrupt { dies: !tool::is_own_name(tool), ..Interrupt::default() }.watching()
    }

    /// No signal comes between the steps of this: half an answer would take it, and ask for nothing.
    fn watching(self) -> io::Result<Interrupt> {
        signals::blocking(&ASKING, || self.registered())?
    }

    fn registered(self) -> io::Result<Interrupt> {
        for signal in ASKING {
            if signals::is_ignored(signal)? {
                continue;
            }
            // In this order: the first signal finds the flag false and only sets it, the second finds it true.
            if self.dies {
                flag::register_conditional_default(signal, Arc::clone(&self.stop))?;
            } else {
                let status = i32::from(status_of(signal));
                flag::register_conditional_shutdown(signal, status, Arc::clone(&self.stop))?;
            }
            flag::register_usize(signal, Arc::clone(&self.signal), signal as usize)?;
            flag::register(signal, Arc::clone(&self.stop))?;
        }
        Ok(self)
    }

    /// The flag that turns true when the process is asked to end.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// The exit status of a job that was interrupted.
    pub(crate) fn status(&self) -> u8 {
        status_of(self.signal())
    }

    /// Ends a job that was interrupted, when all of it is told and nothing of it runs any more.
    pub(crate) fn end(&self) -> ExitCode {
        if self.dies {
            // Returns only for a number that is no signal.
            let _ = low_level::emulate_default_handler(self.signal());
        }
        ExitCode::from(self.status())
    }

    fn signal(&self) -> i32 {
        match self.signal.load(Ordering::Relaxed) {
            0 => SIGINT,
            signal => signal as i32,
        }
    }
}

/// 128 and the signal's number, as shells report a process that a signal ended.
fn status_of(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_the_one_that_shells_report() {
        assert_eq!(ASKING.map(status_of), [130, 143, 129]);
        assert_eq!(Interrupt::default().status(), 130);
    }
}
