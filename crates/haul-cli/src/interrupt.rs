//! Ctrl-C: the first asks the job to stop in order, the second ends the process at once.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Exit status of a job that was interrupted: 128 and the signal's number, as shells report it.
pub(crate) const INTERRUPTED: u8 = 130;

/// A flag that turns true when the process is asked to end (SIGINT, SIGTERM). A second request ends it on the spot.
///
/// # Errors
/// What sigaction(2) reports.
pub(crate) fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag false and only sets it, the second finds it true.
        flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
