//! Wire over an association.

use super::BLOCKED_TIMEOUT;
use super::carrier::Carrier;
use super::link::{Inner, Link};
use super::socket::Socket;
use crate::lane::{LaneControl as _, LaneError, Operation, StreamLane, WaitTimeout, Wire};
use haul_udp::{Read, Stats};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Code that closes an association early.
pub(super) const CODE_ABORTED: u32 = 3;

/// Maximum time for which the end of a lane waits until the peer has all bytes.
const LINGER: Duration = Duration::from_secs(5);

/// One end of an association or of a QUIC connection, the thread that carries its datagrams, and
/// the TCP connection beside it.
#[derive(Debug)]
pub(crate) struct UdpWire<C: Carrier> {
    link: Arc<Link<C>>,
    driver: Mutex<Option<JoinHandle<()>>>,
    /// TCP connection beside the association.
    control: StreamLane,
}

impl<C: Carrier> UdpWire<C> {
    /// Starts `association`, whose time began at `clock`, over `socket`.
    pub(super) fn start(
        control: StreamLane,
        socket: Socket,
        association: C,
        clock: Instant,
    ) -> io::Result<Self> {
        let link = Arc::new(Link::new(association, clock, BLOCKED_TIMEOUT)?);
        let connection = control.clone_socket()?;
        let peer = control.control().peer().ok_or(io::ErrorKind::NotConnected)?.ip();
        let driver = thread::Builder::new().name("udp".to_owned()).spawn({
            let link = link.clone();
            move || link.drive(&socket, connection.as_ref().map(std::os::fd::AsFd::as_fd), peer)
        })?;
        Ok(Self { link, driver: Mutex::new(Some(driver)), control })
    }

    /// Ends the association and waits for its thread.
    fn join(&self) {
        self.link.wake_all();
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner).take();
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

impl<C: Carrier> Wire for UdpWire<C> {
    fn read(&self, buffer: &mut [u8], timeout: WaitTimeout) -> Result<usize, LaneError> {
        let begin = Instant::now();
        let end = end_of(timeout, begin);
        let mut inner = self.link.lock();
        loop {
            if inner.is_aborted {
                return Err(failure(&inner));
            }
            match inner.association.read(buffer) {
                Read::Bytes(bytes) => {
                    self.link.release(inner);
                    return Ok(bytes);
                }
                Read::End => return Ok(0),
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
        self.link.release(inner);
        Ok(())
    }

    fn abort(&self) {
        let mut inner = self.link.lock();
        inner.is_aborted = true;
        inner.association.close(self.link.now(), CODE_ABORTED);
        drop(inner);
        self.link.wake_all();
    }

    fn is_aborted(&self) -> bool {
        self.link.lock().is_aborted
    }

    /// Unlike a TCP connection, an association ends with its process: waits until the peer has all
    /// bytes, and the end of the stream if this end finished.
    fn disconnect(&self) {
        let end = Instant::now() + LINGER;
        let waited = self.link.wait(self.link.lock(), Operation::Writing, Some(end), Inner::is_done);
        let mut inner = waited.unwrap_or_else(|| self.link.lock());
        inner.association.close(self.link.now(), CODE_ABORTED);
        drop(inner);
        self.join();
        self.control.control().abort();
    }

    fn round_trip(&self) -> Option<Duration> {
        let stats = self.stats();
        (stats.rtt_min > 0).then(|| Duration::from_nanos(stats.rtt_min))
    }

    fn packets(&self) -> Option<Stats> {
        Some(self.stats())
    }
}

impl<C: Carrier> UdpWire<C> {
    fn stats(&self) -> Stats {
        self.link.lock().association.stats()
    }
}
