//! Byte transports of a lane. Every wait ends at its timeout, and another thread can cancel it.

mod memory;
mod pipes;
mod socket;

pub(crate) use memory::MemoryWire;
pub(crate) use pipes::PipeWire;
pub(crate) use socket::SocketWire;

use super::error::{LaneError, Operation};
use crate::udp::Fallback;
use haul_sys::socket::tcp_facts;
use haul_sys::wait::POLL_INTERVAL;
use haul_udp::Stats as PacketStats;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Two directions of bytes. One thread can read while another writes.
pub(crate) trait Wire: Send + Sync + fmt::Debug {
    /// Reads the available bytes, and waits for the first one. Returns 0 at the end.
    fn read(&self, buffer: &mut [u8], timeout: WaitTimeout) -> Result<usize, LaneError>;

    /// Writes as much as possible without blocking.
    ///
    /// # Errors
    /// Returns `WouldBlock` if nothing can be written. Otherwise returns the error of the system,
    /// never `Interrupted`.
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits until a read or a write would not block.
    fn until_ready(&self, doing: Operation, timeout: WaitTimeout) -> Result<(), LaneError>;

    /// Signals to the peer that no more bytes follow.
    fn finish(&self) -> Result<(), LaneError>;

    /// Aborts the lane: every current and later wait ends.
    fn abort(&self);

    /// Returns true after [`abort`](Self::abort).
    fn is_aborted(&self) -> bool;

    /// Ends the connection once no thread uses it any more. The peer detects an early end.
    fn disconnect(&self) {
        // Fails if the connection has ended already.
        let _ = self.finish();
        self.abort();
    }

    /// Returns the stream socket, or `None` if the wire has none.
    fn as_socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the shortest round trip that was measured.
    fn round_trip(&self) -> Option<Duration> {
        self.as_socket().and_then(|socket| tcp_facts(socket).ok()).map(|tcp| tcp.shortest_round_trip)
    }

    /// Returns the statistics of the datagrams, if the wire sends datagrams.
    fn packets(&self) -> Option<PacketStats> {
        None
    }

    /// Returns the reason why the wire has left UDP.
    fn fallback(&self) -> Option<Fallback> {
        None
    }

    /// Fails if the lane is aborted.
    fn unless_aborted(&self) -> Result<(), LaneError> {
        if self.is_aborted() { Err(LaneError::Aborted) } else { Ok(()) }
    }

    /// Returns the error of a call that failed with `error`. An abort by this end is the cause of
    /// what the wire reports after it, such as EPIPE.
    fn failed(&self, doing: Operation, error: io::Error) -> LaneError {
        if self.is_aborted() { LaneError::Aborted } else { doing.failed(error) }
    }

    /// Writes some of `slices`, and waits until at least one byte is accepted.
    fn write(&self, slices: &[IoSlice<'_>], timeout: WaitTimeout) -> Result<usize, LaneError> {
        loop {
            if let Some(bytes) = self.write_or_wait(slices, timeout)? {
                return Ok(bytes);
            }
        }
    }

    /// Writes some of `slices` and returns the number of bytes, or waits and returns `None`.
    fn write_or_wait(
        &self,
        slices: &[IoSlice<'_>],
        timeout: WaitTimeout,
    ) -> Result<Option<usize>, LaneError> {
        let written = self.try_write(slices);
        self.unless_aborted()?;
        match written {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.until_ready(Operation::Writing, timeout).map(|()| None)
            }
            Err(error) => Err(self.failed(Operation::Writing, error)),
        }
    }

    /// Sleeps for `time`, unless the lane is aborted.
    fn sleep(&self, time: Duration) -> Result<(), LaneError> {
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
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let to_deadline = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        [self.stall, to_deadline].into_iter().flatten().min()
    }
}

/// Waits until `fd` is ready, or until `stop` becomes readable. Fails if the lane is aborted
/// meanwhile.
fn wait(
    wire: &dyn Wire,
    fd: BorrowedFd<'_>,
    stop: Option<BorrowedFd<'_>>,
    doing: Operation,
    timeout: WaitTimeout,
) -> Result<(), LaneError> {
    let event = if doing == Operation::Reading { PollFlags::IN } else { PollFlags::OUT };
    let begin = Instant::now();
    loop {
        wire.unless_aborted()?;
        let remaining = timeout.remaining().and_then(|remaining| Timespec::try_from(remaining).ok());
        let mut fds = [
            PollFd::from_borrowed_fd(fd, event),
            PollFd::from_borrowed_fd(stop.unwrap_or(fd), PollFlags::IN),
        ];
        let watched = if stop.is_some() { 2 } else { 1 };
        match poll(&mut fds[..watched], remaining.as_ref()) {
            Ok(0) => return Err(doing.stalled(begin)),
            Ok(_) => return wire.unless_aborted(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(wire.failed(doing, errno.into())),
        }
    }
}
