//! Wire over two pipes, such as the standard input and output of a remote shell.

use super::{WaitTimeout, Wire, wait};
use crate::lane::error::{LaneError, Operation};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that a pipe accepts without blocking when poll(2) reports it as writable: `PIPE_BUF` of
/// Linux.
const PIPE_PIECE_BYTES: usize = 4096;

/// A pipe for each direction.
#[derive(Debug)]
pub(crate) struct PipeWire {
    input: OwnedFd,
    /// `None` once finished: closing a pipe signals its end. Only the single writer locks it.
    output: Mutex<Option<OwnedFd>>,
    /// Becomes readable when the lane is aborted: nothing else would wake a thread that waits for a
    /// pipe.
    stop: OwnedFd,
    aborted: AtomicBool,
    /// True if the kernel lacks non-blocking writes to pipes (before 6.4): small pieces are written
    /// instead.
    always_waits: AtomicBool,
}

impl PipeWire {
    pub(crate) fn new(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (aborted, always_waits) = Default::default();
        Ok(Self { input, output: Mutex::new(Some(output)), stop, aborted, always_waits })
    }

    fn output(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.output.lock()
    }

    fn write_once(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
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

impl Wire for PipeWire {
    fn read(&self, buffer: &mut [u8], timeout: WaitTimeout) -> Result<usize, LaneError> {
        loop {
            self.until_ready(Operation::Reading, timeout)?;
            let read = rustix::io::read(&self.input, &mut *buffer);
            self.unless_aborted()?;
            match read {
                Ok(bytes) => return Ok(bytes),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(Operation::Reading.failed(errno.into())),
            }
        }
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match self.write_once(slices) {
                Err(Errno::INTR) => {}
                other => return other.map_err(io::Error::from),
            }
        }
    }

    fn until_ready(&self, doing: Operation, timeout: WaitTimeout) -> Result<(), LaneError> {
        let stop = Some(self.stop.as_fd());
        if doing == Operation::Reading {
            return wait(self, self.input.as_fd(), stop, doing, timeout);
        }
        match self.output().as_ref() {
            Some(output) => wait(self, output.as_fd(), stop, doing, timeout),
            None => Err(self.failed(doing, Errno::PIPE.into())),
        }
    }

    fn finish(&self) -> Result<(), LaneError> {
        drop(self.output().take());
        Ok(())
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        // Fails only if 2^64 - 1 wake-ups are pending already.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }
}
