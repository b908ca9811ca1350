//! Wire over a connected stream socket.

use super::{WaitTimeout, Wire, wait};
use crate::lane::error::{LaneError, Operation};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A connected stream socket.
#[derive(Debug)]
pub(crate) struct SocketWire {
    socket: OwnedFd,
    aborted: AtomicBool,
    /// False if shutdown(2) of one direction ends both, as with SCTP. TLS then signals the end.
    is_half_closable: bool,
}

impl SocketWire {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, aborted: AtomicBool::new(false), is_half_closable: true }
    }

    /// Creates the wire of a socket whose directions end together if `is_sctp`.
    pub(crate) fn of_connection(socket: OwnedFd, is_sctp: bool) -> Self {
        Self { is_half_closable: !is_sctp, ..Self::new(socket) }
    }
}

impl Wire for SocketWire {
    fn read(&self, buffer: &mut [u8], timeout: WaitTimeout) -> Result<usize, LaneError> {
        loop {
            let read = recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT);
            self.unless_aborted()?;
            match read {
                Ok((bytes, _)) => return Ok(bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.until_ready(Operation::Reading, timeout)?,
                Err(errno) => return Err(Operation::Reading.failed(errno.into())),
            }
        }
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match sendmsg(&self.socket, slices, &mut SendAncillaryBuffer::default(), flags) {
                Err(Errno::INTR) => {}
                other => return other.map_err(io::Error::from),
            }
        }
    }

    fn until_ready(&self, doing: Operation, timeout: WaitTimeout) -> Result<(), LaneError> {
        // A socket that is shut down becomes ready by itself.
        wait(self, self.socket.as_fd(), None, doing, timeout)
    }

    fn finish(&self) -> Result<(), LaneError> {
        if !self.is_half_closable {
            return Ok(());
        }
        shutdown(&self.socket, Shutdown::Write).map_err(|errno| self.failed(Operation::Writing, errno.into()))
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        // An error is harmless: a socket without a connection needs no shutdown.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    fn as_socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
