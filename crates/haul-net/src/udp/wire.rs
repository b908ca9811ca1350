//! Wire over an association.

use super::carrier::Carrier;
use super::fallback::{Bounds, Control, Fallback};
use super::link::{Inner, Link, Stage};
use super::socket::Socket;
use super::{BLOCKED_TIMEOUT, UdpError};
use crate::lane::{LaneControl as _, LaneError, Operation, StreamLane, WaitTimeout, Wire};
use haul_udp::{Read, Stats};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Code that closes an association early.
pub(super) const CODE_ABORTED: u32 = 3;

/// Maximum time for which the end of a lane waits until the peer has all bytes, and that of a lane
/// that may fall back meanwhile.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_WITH_FALLBACK: Duration = Duration::from_secs(15);

/// One end of an association or of a QUIC connection, the thread that carries its datagrams, and
/// the TCP connection beside it, over which the lane can continue.
#[derive(Debug)]
pub(crate) struct UdpWire<C: Carrier> {
    pub(super) link: Arc<Link<C>>,
    driver: Mutex<Option<JoinHandle<()>>>,
    control: Arc<Control>,
}

/// Way in which a lane over UDP starts and may end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) is_client: bool,
    /// Bounds after which the lane falls back to its TCP connection, if it may.
    pub(super) bounds: Option<Bounds>,
    /// Round trip of the TCP connection.
    pub(super) round_trip: Duration,
}

impl<C: Carrier> UdpWire<C> {
    /// Starts `association`, whose time began at `clock`, over `socket`.
    pub(super) fn start(
        control: StreamLane,
        socket: Socket,
        association: C,
        clock: Instant,
        Terms { is_client, bounds, round_trip }: Terms,
    ) -> io::Result<Self> {
        let peer = control.control().peer().ok_or(io::ErrorKind::NotConnected)?.ip();
        let blocked = if is_client {
            BLOCKED_TIMEOUT.max(BLOCKED_TIMEOUT / 2 + 3 * round_trip)
        } else {
            // The client starts later, and its first datagram takes a while.
            BLOCKED_TIMEOUT + 3 * round_trip
        };
        let link = Arc::new(Link::new(association, clock, blocked, bounds, round_trip)?);
        let control = Arc::new(Control::new(control));
        let driver = thread::Builder::new().name("udp".to_owned()).spawn({
            let (link, control) = (link.clone(), control.clone());
            move || link.drive(socket, &control, peer)
        })?;
        Ok(Self { link, driver: Mutex::new(Some(driver)), control })
    }

    /// Ends the association and waits for its thread.
    fn join(&self) {
        self.link.wake_all();
        let driver = self.driver.lock().take();
        if let Some(driver) = driver {
            // A panic of the driver ended the association, which the halves reported.
            let _ = driver.join();
        }
    }
}

/// Returns the error of a lane that is over.
fn failure<C: Carrier>(inner: &Inner<C>) -> LaneError {
    inner.error().map_or(LaneError::Aborted, LaneError::Udp)
}

fn end_of(timeout: WaitTimeout, begin: Instant) -> Option<Instant> {
    timeout.remaining().and_then(|remaining| begin.checked_add(remaining))
}

/// Returns the timeout of the rest of a wait until `end`.
fn rest_of(timeout: WaitTimeout, end: Option<Instant>) -> WaitTimeout {
    WaitTimeout { deadline: end.or(timeout.deadline), ..timeout }
}

impl<C: Carrier> Wire for UdpWire<C> {
    fn read(&self, buffer: &mut [u8], timeout: WaitTimeout) -> Result<usize, LaneError> {
        let begin = Instant::now();
        let end = end_of(timeout, begin);
        let mut inner = self.link.lock();
        loop {
            if inner.is_aborted || inner.error == Some(UdpError::Panicked) {
                return Err(failure(&inner));
            }
            match inner.association.read(buffer) {
                Read::Bytes(bytes) => {
                    self.link.release(inner);
                    return Ok(bytes);
                }
                Read::End => return Ok(0),
                Read::Pending if inner.stage >= Stage::Repeating && inner.error.is_none() => {
                    drop(inner);
                    return self.control.read(buffer, rest_of(timeout, end));
                }
                Read::Pending if inner.is_over() => return Err(failure(&inner)),
                Read::Pending => {}
            }
            let waited = self.link.wait(inner, Operation::Reading, end, Inner::is_readable);
            inner = waited.ok_or_else(|| Operation::Reading.stalled(begin))?;
        }
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut inner = self.link.lock();
        if inner.is_over() {
            return Err(inner.error().map_or(Errno::PIPE.into(), io::Error::other));
        }
        let mut written = 0;
        for slice in slices {
            let taken = inner.association.write(slice);
            written += taken;
            if taken < slice.len() {
                break;
            }
        }
        self.link.release(inner);
        let is_full = written == 0 && slices.iter().any(|slice| !slice.is_empty());
        if is_full { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(written) }
    }

    fn write(&self, slices: &[IoSlice<'_>], timeout: WaitTimeout) -> Result<usize, LaneError> {
        loop {
            if self.is_over_tcp() {
                let parts: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
                self.control.write(&parts, timeout)?;
                return Ok(parts.iter().map(|part| part.len()).sum());
            }
            if let Some(bytes) = self.write_or_wait(slices, timeout)? {
                return Ok(bytes);
            }
        }
    }

    fn until_ready(&self, doing: Operation, timeout: WaitTimeout) -> Result<(), LaneError> {
        let begin = Instant::now();
        let end = end_of(timeout, begin);
        let is_ready = match doing {
            Operation::Reading => Inner::is_readable,
            Operation::Writing => Inner::is_writable,
        };
        let waited = self.link.wait(self.link.lock(), doing, end, is_ready);
        let inner = waited.ok_or_else(|| doing.stalled(begin))?;
        if doing == Operation::Writing && inner.is_over() { Err(failure(&inner)) } else { Ok(()) }
    }

    fn finish(&self) -> Result<(), LaneError> {
        let mut inner = self.link.lock();
        inner.association.finish();
        let is_over_tcp = inner.stage == Stage::Tcp;
        self.link.release(inner);
        // Earlier, the driver finishes behind the bytes that it sends again.
        if is_over_tcp { self.control.finish() } else { Ok(()) }
    }

    fn abort(&self) {
        let mut inner = self.link.lock();
        inner.is_aborted = true;
        inner.association.close(self.link.now(), CODE_ABORTED);
        let has_left = inner.stage != Stage::Datagrams;
        drop(inner);
        if has_left {
            self.control.state.abort();
        }
        self.link.wake_all();
    }

    fn is_aborted(&self) -> bool {
        self.link.lock().is_aborted
    }

    /// Unlike a TCP connection, an association ends with its process: waits until the peer has all
    /// bytes, and the end of the stream if this end finished.
    fn disconnect(&self) {
        let linger = if self.link.bounds.is_some() { LINGER_WITH_FALLBACK } else { LINGER };
        let end = Instant::now() + linger;
        let waited = self.link.wait(self.link.lock(), Operation::Writing, Some(end), Inner::is_done);
        let mut inner = waited.unwrap_or_else(|| self.link.lock());
        inner.association.close(self.link.now(), CODE_ABORTED);
        let is_over_tcp = inner.stage == Stage::Tcp;
        // Otherwise the driver could leave UDP now.
        inner.is_aborted |= !is_over_tcp;
        let has_left = inner.stage != Stage::Datagrams;
        drop(inner);
        if has_left && !is_over_tcp {
            self.control.state.abort();
        }
        self.join();
        self.control.state.wire().disconnect();
    }

    fn round_trip(&self) -> Option<Duration> {
        let stats = self.stats();
        let measured = (stats.rtt_min > 0).then(|| Duration::from_nanos(stats.rtt_min));
        measured.or_else(|| self.control.state.round_trip())
    }

    fn fallback(&self) -> Option<Fallback> {
        self.link.fallback()
    }

    fn packets(&self) -> Option<Stats> {
        Some(self.stats())
    }
}

impl<C: Carrier> UdpWire<C> {
    fn is_over_tcp(&self) -> bool {
        let inner = self.link.lock();
        inner.stage == Stage::Tcp && !inner.is_over()
    }

    fn stats(&self) -> Stats {
        self.link.lock().association.stats()
    }
}
