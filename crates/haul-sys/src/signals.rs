//! What the process inherited about signals, and when they may come.

use std::io;

/// Whether the process was started with this signal ignored (`nohup`, `trap '' INT`, a background job of a shell
/// without job control), or ignored it since. Such a signal is not to be taken over: whoever started the process
/// meant it to live on.
///
/// # Errors
/// `EINVAL` for a number that names no signal.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    // SAFETY: `sigaction` is a plain C struct of integers, a set of bits and a handler's address that may be null,
    // for all of which zeros are a value.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null `act` changes nothing, and `now` is valid for one write of the struct.
    let status = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(now.sa_sigaction == libc::SIG_IGN)
}

/// Does `work` while these signals are blocked in this thread: one that comes meanwhile is met right behind it. A program that has one thread so far
/// can set up its answers to a signal in several steps, and none comes between them.
///
/// # Errors
/// `EINVAL` for a number that names no signal; nothing is done then.
pub fn blocking<T>(signals: &[i32], work: impl FnOnce() -> T) -> io::Result<T> {
    let mut set = empty_set();
    for &signal in signals {
        // SAFETY: `set` is a set of signals, valid for writes.
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
    // SAFETY: a set of signals is a plain C struct of integers, for which zeros are a value; no signal is in that.
    unsafe { std::mem::zeroed() }
}

/// What a thread blocked before; so it is again when this goes.
struct Mask(libc::sigset_t);

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: the set is valid for a read, and a null pointer asks for no answer. With a known first argument the call can't fail.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Ends the process by SIGPIPE, as a tool ends that never took the signal over, when nobody reads its output any
/// more: silently, and with a status by which a shell knows why. Returns only where the signal is blocked.
pub fn end_by_broken_pipe() {
    // SAFETY: both calls take plain numbers; the default action is a valid handler for SIGPIPE, and no handler of ours
    // stands for it that could be running.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
}

#[cfg(test)]
mod tests {
    use super::{blocking, empty_set, is_ignored};

    #[test]
    fn what_the_runtime_ignores_is_told_from_what_it_leaves() {
        // Rust's runtime ignores SIGPIPE before main.
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(!is_ignored(libc::SIGUSR2).unwrap());
        assert!(is_ignored(12_345).is_err());
    }

    #[test]
    fn signals_are_blocked_meanwhile_and_as_they_were_afterwards() {
        let blocked = || {
            let mut now = empty_set();
            // SAFETY: a null set changes nothing, and `now` is valid for a write.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now) };
            // SAFETY: `now` is a set of signals.
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
