//! Waiting for pipes, terminals and the like without growing deaf to a request to stop.
//!
//! A read(2) or open(2) that waits in the kernel is not ended by a signal whose handler sets a flag: the kernel or
//! the library makes the call again. Here no call waits for longer than [`LOOK_EVERY`]; between two calls the
//! caller's `stopping` is asked, and a `true` from it ends the wait.

use crate::open::no_follow;
use crate::stat::Follow;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;
use std::io;
use std::time::Duration;

/// Time between two looks at whether to stop: short to a user at a keyboard, long to a processor.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a writer rests before it looks for a reader of its pipe again: nothing wakes it when one comes.
const READER_RETRY: Duration = Duration::from_millis(10);

/// Waits at most `timeout` until a read of `fd` would not wait: bytes are there, or its end, or a failure. `false`
/// where none came in time or a signal did. Regular files and directories are always ready.
///
/// # Errors
/// What poll(2) reports; never `EINTR`.
pub fn readable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    ready(fd, PollFlags::IN, timeout)
}

/// Waits at most `timeout` until a write to `fd` would take something or fail. `false` where that did not come in
/// time or a signal did.
///
/// # Errors
/// What poll(2) reports; never `EINTR`.
pub fn writable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    ready(fd, PollFlags::OUT, timeout)
}

fn ready(fd: impl AsFd, what: PollFlags, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
    match poll(&mut [PollFd::new(&fd, what)], Some(&timeout)) {
        // Whatever came (POLLHUP and POLLERR come unasked), the call itself now tells without waiting.
        Ok(found) => Ok(found > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until a read of `fd` would not wait. `Ok(false)`: `stopping` ended the wait.
///
/// # Errors
/// What poll(2) reports.
pub fn until_readable(fd: impl AsFd, stopping: impl Fn() -> bool) -> io::Result<bool> {
    until(|| readable(&fd, LOOK_EVERY), stopping)
}

fn until(ready: impl Fn() -> io::Result<bool>, stopping: impl Fn() -> bool) -> io::Result<bool> {
    while !stopping() {
        if ready()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Opens a named pipe to read it, and waits until it has bytes, or had a writer that left without any: until then
/// nothing need be made of what it will say. The descriptor does not wait itself; [`read_stream`] does. `None`:
/// `stopping` ended the wait.
///
/// # Errors
/// What openat(2) and poll(2) report.
pub fn open_pipe_source_at(
    dir: impl AsFd,
    name: impl Arg,
    follow: Follow,
    stopping: impl Fn() -> bool,
) -> io::Result<Option<OwnedFd>> {
    let fd = open_pipe(dir, name, OFlags::RDONLY | no_follow(follow))?;
    // Linux reports the end of a pipe to a reader that came before the first writer only once one has left.
    Ok(until_readable(&fd, stopping)?.then_some(fd))
}

/// Opens a named pipe to write to it, and waits until it has a reader. The descriptor does not wait itself;
/// [`write_stream`] does. `None`: `stopping` ended the wait.
///
/// # Errors
/// What openat(2) reports. Only for pipes: others give `ENXIO` where nobody will ever come.
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

/// Reads a stream until `buffer` is full or the stream ends; returns the bytes read. `None`: `stopping` ended the
/// wait, and what was read before is lost.
///
/// # Errors
/// What read(2) and poll(2) report.
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

/// Writes all of `bytes` to a stream; `false`: `stopping` ended the wait, and only some are written.
///
/// # Errors
/// What write(2) and poll(2) report; `WriteZero` where the stream takes nothing and says no reason.
pub fn write_stream(fd: impl AsFd, bytes: &[u8], stopping: impl Fn() -> bool) -> io::Result<bool> {
    let mut done = 0;
    while done < bytes.len() {
        if !until(|| writable(&fd, LOOK_EVERY), &stopping)? {
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
