//! How a program starts and ends. Rust's own runtime reads a map of the process's memory and sets up a stack for a
//! handler that would only name an overflow, a twelfth of what a call for a small file takes; [`program!`](crate::program!)
//! does without it, and keeps the rest of what it does.

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, fcntl_getfd};
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};

/// What Rust's runtime ends a program with that panicked.
const PANICKED: i32 = 101;

/// Makes a `fn() -> ExitCode` the program, in a crate with `#![no_main]`.
#[macro_export]
macro_rules! program {
    ($run:path) => {
        const _: () = {
            // SAFETY: the C library calls one function of this name, with the arguments that C's `main` has; a second
            // one in the program would not link.
            #[unsafe(export_name = "main")]
            extern "C" fn start(_count: i32, _words: *const *const u8) -> i32 {
                $crate::program::run($run)
            }
        };
    };
}

/// The standard descriptors that were closed when the program was started, one bit for each.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Returns true if the program was started without this standard descriptor.
pub fn was_closed(standard: RawFd) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << standard) != 0
}

/// Runs the program, and ends the process by the status that it comes to, all output written.
pub fn run(program: fn() -> ExitCode) -> ! {
    open_closed_descriptors();
    ignore_broken_pipes();
    let status = catch_unwind(AssertUnwindSafe(program)).map_or(PANICKED, status_of);
    std::process::exit(status)
}

/// The number of a status, which has no call to ask for it.
fn status_of(code: ExitCode) -> i32 {
    (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).map_or(1, i32::from)
}

/// A file that is opened must not become the standard output of a program that was started without one. What stands in for
/// a closed descriptor can't be used either way, so that who writes to it hears of that, as GNU's tools do.
fn open_closed_descriptors() {
    for (standard, flags) in [(0, OFlags::WRONLY), (1, OFlags::RDONLY), (2, OFlags::RDONLY)] {
        if is_closed(standard) {
            CLOSED.fetch_or(1 << standard, Ordering::Relaxed);
            // It takes the lowest number that is free, which is this one.
            if let Ok(null) = rustix::fs::open("/dev/null", flags, Mode::empty()) {
                let _ = null.into_raw_fd();
            }
        }
    }
}

fn is_closed(number: RawFd) -> bool {
    // SAFETY: the number is only asked about, by a call that tells of a closed one.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(descriptor) == Err(Errno::BADF)
}

/// Who writes to a pipe that nobody reads hears of it by the call, and says what it means.
fn ignore_broken_pipes() {
    // SAFETY: plain numbers; no handler of ours stands for the signal yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_told_by_its_number() {
        for number in [0, 1, 2, 101, 130, 255] {
            assert_eq!(status_of(ExitCode::from(number)), i32::from(number));
        }
        assert_eq!(status_of(ExitCode::SUCCESS), 0);
        assert_eq!(status_of(ExitCode::FAILURE), 1);
    }

    #[test]
    fn a_closed_descriptor_is_told_from_an_open_one() {
        assert!(is_closed(9_999));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_closed(std::os::fd::AsRawFd::as_raw_fd(&file)));
    }
}
