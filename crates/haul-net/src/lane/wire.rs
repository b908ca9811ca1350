//! Byte transport of a lane: a socket, or two pipes. Every call ends at its timeout, and another
//! thread can cancel every wait.

use super::error::{LaneError, Operation};
use haul_sys::wait::POLL_INTERVAL;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that a pipe accepts without blocking when poll(2) reports it as writable: `PIPE_BUF` of
/// Linux.
const PIPE_PIECE_BYTES: usize = 4096;

/// Two directions of bytes. One thread can read while another writes.
#[derive(Debug)]
pub(crate) struct Wire {
    ends: Ends,
    aborted: AtomicBool,
}

#[derive(Debug)]
enum Ends {
    Socket(OwnedFd),
    Pipes(Pipes),
}

#[derive(Debug)]
struct Pipes {
    input: OwnedFd,
    /// `None` once finished: closing a pipe signals its end. Only the single writer locks it.
    output: Mutex<Option<OwnedFd>>,
    /// Becomes readable when the lane is aborted: nothing else would wake a thread that waits for a
    /// pipe.
    stop: OwnedFd,
    /// True if the kernel lacks non-blocking writes to pipes (before 6.4): small pieces are written
    /// instead.
    always_waits: AtomicBool,
}

/// Timeout of a wait for a byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitTimeout {
    /// Limit for each wait.
    pub(crate) stall: Option<Duration>,
    /// Limit for all waits together. Handshakes need it, because a peer could send them byte by
    /// byte.
    pub(crate) deadline: Option<Instant>,
}

impl WaitTimeout {
    pub(crate) fn until(deadline: Instant) -> Self {
        Self { stall: None, deadline: Some(deadline) }
    }

    /// Returns the timeout of the next wait; `None` waits indefinitely.
    fn remaining(&self) -> Option<Duration> {
        let to_deadline = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        [self.stall, to_deadline].into_iter().flatten().min()
    }
}

impl Wire {
    pub(crate) fn socket(socket: OwnedFd) -> Self {
        Self { ends: Ends::Socket(socket), aborted: AtomicBool::new(false) }
    }

    pub(crate) fn pipes(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let output = Mutex::new(Some(output));
        let pipes = Pipes { input, output, stop, always_waits: AtomicBool::new(false) };
        Ok(Self { ends: Ends::Pipes(pipes), aborted: AtomicBool::new(false) })
    }

    /// Returns the socket, or `None` for pipes.
    pub(crate) fn as_socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.ends {
            Ends::Socket(socket) => Some(socket.as_fd()),
            Ends::Pipes(_) => None,
        }
    }

    /// Reads the available bytes, and waits for the first one. Returns 0 at the end.
    pub(crate) fn read(&self, buffer: &mut [u8], timeout: WaitTimeout) -> Result<usize, LaneError> {
        loop {
            let read = match &self.ends {
                Ends::Socket(socket) => {
                    recv(socket, &mut *buffer, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
                }
                Ends::Pipes(pipes) => {
                    self.wait(pipes.input.as_fd(), Operation::Reading, timeout)?;
                    rustix::io::read(&pipes.input, &mut *buffer)
                }
            };
            self.unless_aborted()?;
            match read {
                Ok(bytes) => return Ok(bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.until_ready(Operation::Reading, timeout)?,
                Err(errno) => return Err(Operation::Reading.failed(errno.into())),
            }
        }
    }

    /// Writes some of `slices`, and waits until at least one byte is accepted.
    pub(crate) fn write(&self, slices: &[IoSlice<'_>], timeout: WaitTimeout) -> Result<usize, LaneError> {
        loop {
            let written = self.try_write(slices);
            self.unless_aborted()?;
            match written {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.until_ready(Operation::Writing, timeout)?;
                }
                Err(error) => return Err(Operation::Writing.failed(error)),
            }
        }
    }

    /// Writes as much as possible without blocking.
    ///
    /// # Errors
    /// Returns `WouldBlock` if nothing can be written. Otherwise returns the error of the system,
    /// never `Interrupted`.
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let written = match &self.ends {
                Ends::Socket(socket) => {
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)
                }
                Ends::Pipes(pipes) => pipes.try_write(slices),
            };
            match written {
                Err(Errno::INTR) => {}
                other => return other.map_err(io::Error::from),
            }
        }
    }

    /// Waits until a read or a write would not block.
    pub(crate) fn until_ready(&self, doing: Operation, timeout: WaitTimeout) -> Result<(), LaneError> {
        match &self.ends {
            Ends::Socket(socket) => self.wait(socket.as_fd(), doing, timeout),
            Ends::Pipes(pipes) if doing == Operation::Reading => {
                self.wait(pipes.input.as_fd(), doing, timeout)
            }
            Ends::Pipes(pipes) => match pipes.output().as_ref() {
                Some(output) => self.wait(output.as_fd(), doing, timeout),
                None => Err(doing.failed(Errno::PIPE.into())),
            },
        }
    }

    /// Waits until `fd` is ready. Fails if the lane is aborted meanwhile.
    fn wait(&self, fd: BorrowedFd<'_>, doing: Operation, timeout: WaitTimeout) -> Result<(), LaneError> {
        let event = if doing == Operation::Reading { PollFlags::IN } else { PollFlags::OUT };
        let begin = Instant::now();
        loop {
            self.unless_aborted()?;
            let remaining = timeout.remaining();
            let timeout = remaining.and_then(|remaining| Timespec::try_from(remaining).ok());
            let mut fds = [PollFd::from_borrowed_fd(fd, event), PollFd::from_borrowed_fd(fd, event)];
            let watched = match &self.ends {
                // A socket that is shut down becomes ready by itself.
                Ends::Socket(_) => 1,
                Ends::Pipes(pipes) => {
                    fds[1] = PollFd::new(&pipes.stop, PollFlags::IN);
                    2
                }
            };
            match poll(&mut fds[..watched], timeout.as_ref()) {
                Ok(0) => return Err(LaneError::Stalled { doing, after: begin.elapsed() }),
                Ok(_) => return self.unless_aborted(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(doing.failed(errno.into())),
            }
        }
    }

    /// Signals to the peer that no more bytes follow.
    pub(crate) fn finish(&self) -> Result<(), LaneError> {
        match &self.ends {
            Ends::Socket(socket) => {
                shutdown(socket, Shutdown::Write).map_err(|errno| Operation::Writing.failed(errno.into()))
            }
            Ends::Pipes(pipes) => {
                drop(pipes.output().take());
                Ok(())
            }
        }
    }

    /// Aborts the lane: every current and later wait ends.
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        match &self.ends {
            // An error is harmless: a socket without a connection needs no shutdown.
            Ends::Socket(socket) => drop(shutdown(socket, Shutdown::Both)),
            // Fails only if 2^64 - 1 wake-ups are pending already.
            Ends::Pipes(pipes) => drop(rustix::io::write(&pipes.stop, &1_u64.to_ne_bytes())),
        }
    }

    /// Sleeps for `time`, unless the lane is aborted.
    pub(crate) fn sleep(&self, time: Duration) -> Result<(), LaneError> {
        let end = Instant::now() + time;
        loop {
            self.unless_aborted()?;
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(());
            }
            std::thread::sleep(remaining.min(POLL_INTERVAL));
        }
    }

    fn unless_aborted(&self) -> Result<(), LaneError> {
        if self.aborted.load(Ordering::SeqCst) { Err(LaneError::Aborted) } else { Ok(()) }
    }
}

impl Pipes {
    fn output(&self) -> std::sync::MutexGuard<'_, Option<OwnedFd>> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let guard = self.output();
        let output = guard.as_ref().ok_or(Errno::PIPE)?;
        if !self.always_waits.load(Ordering::Relaxed) {
            // The maximum offset, -1, means the file's own position, which is the only one that a
            // pipe has.
            match pwritev2(output, slices, u64::MAX, ReadWriteFlags::NOWAIT) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.always_waits.store(true, Ordering::Relaxed);
                }
                other => return other,
            }
        }
        let mut fds = [PollFd::new(output, PollFlags::OUT)];
        if poll(&mut fds, Some(&Timespec::default()))? == 0 {
            return Err(Errno::AGAIN);
        }
        let first = slices.iter().find(|slice| !slice.is_empty());
        first.map_or(Ok(0), |slice| rustix::io::write(output, &slice[..slice.len().min(PIPE_PIECE_BYTES)]))
    }
}
