//! Inherited signal settings, and control over the arrival of signals.

use std::io;

/// Returns true if this signal is ignored.
///
/// The process was started like that (`nohup`, `trap '' INT`, a background job of a shell without
/// job control), or has ignored the signal since. Do not install a handler for such a signal: the
/// process is meant to survive it.
///
/// # Errors
///
/// Returns `EINVAL` if the number is not a signal.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    // SAFETY: `sigaction` is a plain C struct of integers, a set of bits and a handler address that
    // may be null. Zeros are valid for all of them.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null `act` changes nothing, and `now` is valid for one write of the struct.
    let status = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(now.sa_sigaction == libc::SIG_IGN)
}

/// Runs `work` while these signals are blocked in this thread. A signal that arrives meanwhile is
/// delivered right afterwards.
///
/// A program that still has one thread can set up its signal handling in several steps, and no
/// signal arrives between them.
///
/// # Errors
///
/// Returns `EINVAL` if a number is not a signal; `work` does not run then.
pub fn blocking<T>(signals: &[i32], work: impl FnOnce() -> T) -> io::Result<T> {
    let mut set = empty_set();
    for &signal in signals {
        // SAFETY: `set` is a signal set, valid for writes.
        if unsafe { libc::sigaddset(&raw mut set, signal) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let mut before = Mask(empty_set());
    // SAFETY: both sets are valid, one for a read and one for a write.
    let status = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before.0) };
    if status != 0 {
        std::mem::forget(before);
        return Err(io::Error::from_raw_os_error(status));
    }
    Ok(work())
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a signal set is a plain C struct of integers, for which zeros are valid: the empty
    // set.
    unsafe { std::mem::zeroed() }
}

/// Previous signal mask of a thread; dropping the value restores it.
struct Mask(libc::sigset_t);

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: the set is valid for a read, and the null pointer requests no result. With a
        // valid first argument the call cannot fail.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Ends the process by SIGPIPE because its output has no reader any more.
///
/// This is how a tool without a handler for the signal ends: silently, and with a status that tells
/// a shell the reason. Returns only if the signal is blocked.
pub fn end_by_broken_pipe() {
    // SAFETY: both calls take plain numbers. The default action is a valid handler for SIGPIPE, and
    // no handler of ours for it can be running.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
}

#[cfg(test)]
mod tests {
    use super::{blocking, empty_set, is_ignored};

    #[test]
    fn ignored_and_default_signals_are_distinguished() {
        // Rust's runtime ignores SIGPIPE before main.
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(!is_ignored(libc::SIGUSR2).unwrap());
        assert!(is_ignored(12_345).is_err());
    }

    #[test]
    fn signals_are_blocked_within_the_call_and_restored_after() {
        let blocked = || {
            let mut now = empty_set();
            // SAFETY: a null set changes nothing, and `now` is valid for a write.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now) };
            // SAFETY: `now` is a signal set.
            [libc::SIGUSR1, libc::SIGUSR2]
                .map(|signal| unsafe { libc::sigismember(&raw const now, signal) == 1 })
        };
        assert_eq!(blocked(), [false, false]);
        let within = blocking(&[libc::SIGUSR2], || {
            let inner = blocking(&[libc::SIGUSR1], blocked).unwrap();
            (inner, blocked())
        });
        assert_eq!(within.unwrap(), ([true, true], [false, true]));
        assert_eq!(blocked(), [false, false]);
        assert!(blocking(&[12_345], || ()).is_err());
    }
}
