//! Ctrl-C and related signals: the first one stops the job cleanly, the second one ends the process
//! immediately.

use crate::tool;
use haul_sys::signals;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Signals that request the end of a process: Ctrl-C, kill(1), and the loss of a terminal or a
/// remote login.
const TERMINATION_SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Termination request of the process, with the signal that made it.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    stop: Arc<AtomicBool>,
    /// The signal that arrived, 0 for none.
    signal: Arc<AtomicUsize>,
    /// True if the process ends itself by the signal after the job has stopped cleanly.
    dies: bool,
}

impl Interrupt {
    /// Handles signals that request the end of the process. Signals that were ignored at the start
    /// stay ignored: under nohup(1), or in the background of a script, the user wants the job to
    /// continue. A second signal ends the process immediately.
    ///
    /// # Errors
    /// Returns the error of sigaction(2).
    pub(crate) fn watch() -> io::Result<Interrupt> {
        Interrupt::default().watching()
    }

    /// Same as [`Interrupt::watch`], for a tool under another tool's name: the process then ends by
    /// the signal, as that tool does. A shell continues its script or loop if a command exits on
    /// Ctrl-C, and stops if the signal ended the command.
    ///
    /// # Errors
    /// Returns the error of sigaction(2).
    pub(crate) fn watch_as(tool: &str) -> io::Result<Interrupt> {
        Interrupt { dies: !tool::is_own_name(tool), ..Interrupt::default() }.watching()
    }

    /// Registers the handlers with the signals blocked. A signal between two steps would find only
    /// half of the handlers, and would not stop the job.
    fn watching(self) -> io::Result<Interrupt> {
        signals::blocking(&TERMINATION_SIGNALS, || self.registered())?
    }

    fn registered(self) -> io::Result<Interrupt> {
        for signal in TERMINATION_SIGNALS {
            if signals::is_ignored(signal)? {
                continue;
            }
            // The order matters: the first signal finds the flag false and only sets it; the second
            // one finds it true.
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

    /// Returns the flag that turns true when a signal requests the end of the process.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Returns the exit status of a job that was interrupted.
    pub(crate) fn status(&self) -> u8 {
        status_of(self.signal())
    }

    /// Ends the process after an interrupted job. Call this when all messages are printed and no
    /// thread of the job runs.
    pub(crate) fn end(&self) -> ExitCode {
        if self.dies {
            // Returns only if the number is not a signal.
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

/// Returns 128 plus the signal's number, as shells report a process that a signal ended.
fn status_of(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_is_128_plus_the_signal_number() {
        assert_eq!(TERMINATION_SIGNALS.map(status_of), [130, 143, 129]);
        assert_eq!(Interrupt::default().status(), 130);
    }
}
