//! What the process inherited about signals.

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
    use super::is_ignored;

    #[test]
    fn what_the_runtime_ignores_is_told_from_what_it_leaves() {
        // Rust's runtime ignores SIGPIPE before main.
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(!is_ignored(libc::SIGUSR2).unwrap());
        assert!(is_ignored(12_345).is_err());
    }
}
