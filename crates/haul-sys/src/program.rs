//! Start and end of a program.
//!
//! Rust's own runtime reads the memory map of the process and sets up a signal stack for a handler
//! that only reports a stack overflow. This takes a twelfth of the time of a call for a small file.
//! [`program!`](crate::program!) avoids that cost and keeps the other parts of the runtime.

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, fcntl_getfd};
use rustix::process::{Resource, getrlimit};
use std::io::Write;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};

/// Exit status that Rust's runtime uses after a panic.
const PANICKED: i32 = 101;

/// Limit of the first thread's stack below which the program runs on another one, and the size of
/// the stack there, which is the usual limit.
const STACK_MIN: u64 = 1 << 20;
const STACK_BYTES: usize = 8 << 20;

/// Makes a `fn() -> ExitCode` the entry point of the program, in a crate with `#![no_main]`.
#[macro_export]
macro_rules! program {
    ($run:path) => {
        const _: () = {
            // SAFETY: the C library calls one function of this name, with the arguments of C's
            // `main`. A second definition in the program would fail to link.
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

/// Runs the program, flushes its output and exits with its status.
pub fn run(program: fn() -> ExitCode) -> ! {
    open_closed_descriptors();
    ignore_broken_pipes();
    std::process::exit(on_enough_stack(program))
}

/// Runs the program on this thread, or on another one if the limit of this thread's stack is small.
fn on_enough_stack(program: fn() -> ExitCode) -> i32 {
    let status = move || catch_unwind(AssertUnwindSafe(program)).map_or(PANICKED, status_of);
    if getrlimit(Resource::Stack).current.is_none_or(|limit| limit >= STACK_MIN) {
        return status();
    }
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(status);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(status) => status.unwrap_or(PANICKED),
        Err(error) => {
            let message = format!("haul: cannot start a thread: {error}; raise the limit on the stack\n");
            let _ = std::io::stderr().write_all(message.as_bytes());
            1
        }
    }
}

/// Returns the number of a status; `ExitCode` has no accessor.
fn status_of(code: ExitCode) -> i32 {
    (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).map_or(1, i32::from)
}

/// Opens a substitute for each closed standard descriptor.
///
/// Otherwise a file that is opened later could become the standard output of a program that was
/// started without one. The substitute cannot be used in the normal direction, so that a write to
/// it fails, as in GNU's tools.
fn open_closed_descriptors() {
    for (standard, flags) in [(0, OFlags::WRONLY), (1, OFlags::RDONLY), (2, OFlags::RDONLY)] {
        if is_closed(standard) {
            CLOSED.fetch_or(1 << standard, Ordering::Relaxed);
            // The open returns the lowest free number, which is this one.
            if let Ok(null) = rustix::fs::open("/dev/null", flags, Mode::empty()) {
                let _ = null.into_raw_fd();
            }
        }
    }
}

fn is_closed(number: RawFd) -> bool {
    // SAFETY: the number is only passed to a call that reports a closed descriptor.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(descriptor) == Err(Errno::BADF)
}

/// Ignores SIGPIPE. A write to a pipe without readers then returns an error, which the writer
/// reports.
fn ignore_broken_pipes() {
    // SAFETY: the call takes plain numbers; no handler of ours is installed for the signal yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_map_to_their_numbers() {
        for number in [0, 1, 2, 101, 130, 255] {
            assert_eq!(status_of(ExitCode::from(number)), i32::from(number));
        }
        assert_eq!(status_of(ExitCode::SUCCESS), 0);
        assert_eq!(status_of(ExitCode::FAILURE), 1);
    }

    #[test]
    fn closed_and_open_descriptors_are_distinguished() {
        assert!(is_closed(9_999));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_closed(std::os::fd::AsRawFd::as_raw_fd(&file)));
    }
}
