//! Waits for pipes, terminals and similar files that end when a stop is requested.
//!
//! A signal whose handler sets a flag does not end a blocking read(2) or open(2): the kernel or the
//! library restarts the call. Here no call blocks for longer than [`POLL_INTERVAL`]. Between two
//! calls the caller's `stopping` is called, and `true` from it ends the wait.

use crate::open::no_follow;
use crate::stat::Follow;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;
use std::io;
use std::time::Duration;

/// Polling interval for the request to stop: short for a user at a keyboard, long for a CPU.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Polling interval of a writer that waits for a reader of its pipe: no event reports a new reader.
const READER_RETRY: Duration = Duration::from_millis(10);

/// Waits at most `timeout` until a read of `fd` would not block: bytes, the end or an error are
/// available.
///
/// Returns false after the timeout or a signal. Regular files and directories are always ready.
///
/// # Errors
///
/// Returns the errors of poll(2), but never `EINTR`.
pub fn readable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    ready(fd, PollFlags::IN, timeout)
}

/// Waits at most `timeout` until a write to `fd` would accept bytes or fail. Returns false after
/// the timeout or a signal.
///
/// # Errors
///
/// Returns the errors of poll(2), but never `EINTR`.
pub fn writable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    ready(fd, PollFlags::OUT, timeout)
}

fn ready(fd: impl AsFd, what: PollFlags, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
    match poll(&mut [PollFd::new(&fd, what)], Some(&timeout)) {
        // After any event (POLLHUP and POLLERR are always reported) the call itself returns the
        // result without blocking.
        Ok(found) => Ok(found > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until a read of `fd` would not block. Returns false if `stopping` ended the wait.
///
/// # Errors
///
/// Returns the errors of poll(2).
pub fn until_readable(fd: impl AsFd, stopping: impl Fn() -> bool) -> io::Result<bool> {
    until(|| readable(&fd, POLL_INTERVAL), stopping)
}

fn until(ready: impl Fn() -> io::Result<bool>, stopping: impl Fn() -> bool) -> io::Result<bool> {
    while !stopping() {
        if ready()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Opens a named pipe for reading, and waits until it has bytes, or until a writer has left without
/// writing any. Before that the caller need not create anything for the data.
///
/// The descriptor is non-blocking; [`read_stream`] waits for it. Returns `None` if `stopping` ended
/// the wait.
///
/// # Errors
///
/// Returns the errors of openat(2) and poll(2).
pub fn open_pipe_source_at(
    dir: impl AsFd,
    name: impl Arg,
    follow: Follow,
    stopping: impl Fn() -> bool,
) -> io::Result<Option<OwnedFd>> {
    let fd = open_pipe(dir, name, OFlags::RDONLY | no_follow(follow))?;
    // Linux reports the end of a pipe to a reader that came before the first writer only after a
    // writer has left.
    Ok(until_readable(&fd, stopping)?.then_some(fd))
}

/// Opens a named pipe for writing, and waits until it has a reader.
///
/// The descriptor is non-blocking; [`write_stream`] waits for it. Returns `None` if `stopping`
/// ended the wait.
///
/// # Errors
///
/// Returns the errors of openat(2). Only for pipes: for other files `ENXIO` never goes away.
pub fn open_pipe_sink_at(
    dir: impl AsFd,
    name: impl Arg,
    follow: Follow,
    stopping: impl Fn() -> bool,
) -> io::Result<Option<OwnedFd>> {
    let name = name.into_c_str()?;
    while !stopping() {
        match open_pipe(&dir, &*name, OFlags::WRONLY | no_follow(follow)) {
            Ok(fd) => return Ok(Some(fd)),
            Err(Errno::NXIO) => std::thread::sleep(READER_RETRY),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(None)
}

fn open_pipe(dir: impl AsFd, name: impl Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let name = name.into_c_str()?;
    retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))
}

/// Reads a stream until `buffer` is full or the stream ends. Returns the number of bytes read.
///
/// Returns `None` if `stopping` ended the wait; bytes read before are lost.
///
/// # Errors
///
/// Returns the errors of read(2) and poll(2).
pub fn read_stream(
    fd: impl AsFd,
    buffer: &mut [u8],
    stopping: impl Fn() -> bool,
) -> io::Result<Option<usize>> {
    let mut filled = 0;
    while filled < buffer.len() {
        if !until_readable(&fd, &stopping)? {
            return Ok(None);
        }
        match retry_on_intr(|| rustix::io::read(&fd, &mut buffer[filled..])) {
            Ok(0) => break,
            Ok(got) => filled += got,
            // Another reader was faster.
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Some(filled))
}

/// Writes all of `bytes` to a stream. Returns false if `stopping` ended the wait; then only a part
/// is written.
///
/// # Errors
///
/// Returns the errors of write(2) and poll(2); `WriteZero` if the stream accepts no bytes without
/// an error.
pub fn write_stream(fd: impl AsFd, bytes: &[u8], stopping: impl Fn() -> bool) -> io::Result<bool> {
    let mut done = 0;
    while done < bytes.len() {
        if !until(|| writable(&fd, POLL_INTERVAL), &stopping)? {
            return Ok(false);
        }
        match retry_on_intr(|| rustix::io::write(&fd, &bytes[done..])) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => done += taken,
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}
