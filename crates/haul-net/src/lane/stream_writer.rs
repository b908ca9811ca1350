//! Writing half of a byte stream.

use super::{Halves, LaneError, Part, Slices, StreamControl, WaitTimeout};
use crate::pace::Pacer;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of bytes passed to the kernel in one call under a rate limit; without one there
/// is no limit.
const PACED_PIECE_BYTES: usize = 64 << 10;

/// Writing half of a [`StreamLane`](super::StreamLane). It buffers nothing: when a call returns,
/// the wire has all its bytes.
pub struct StreamWriter {
    halves: Arc<Halves>,
    timeout: WaitTimeout,
    pacer: Option<Arc<Pacer>>,
    finished: bool,
}

impl StreamWriter {
    pub(super) fn new(halves: Arc<Halves>) -> Self {
        Self { halves, timeout: WaitTimeout::default(), pacer: None, finished: false }
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Returns a [`LaneError`] if the wire or TLS fails. The number of bytes that were sent is
    /// unknown then, and the lane is unusable.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<(), LaneError> {
        self.write_all_vectored(&[bytes])
    }

    /// Writes all of `parts`, such as a header and its payload, as if they were one slice.
    ///
    /// # Errors
    /// Same as [`write_all`](Self::write_all).
    ///
    /// # Panics
    /// Panics after [`finish`](Self::finish).
    pub fn write_all_vectored(&mut self, parts: &[&[u8]]) -> Result<(), LaneError> {
        assert!(!self.finished, "a finished lane accepts no data");
        let shared = &*self.halves.shared;
        let mut slices = Slices::new(parts);
        while !slices.is_empty() {
            let limit = match &self.pacer {
                Some(pacer) => {
                    let piece = pacer.piece(slices.len().min(PACED_PIECE_BYTES));
                    shared.meter.time(Part::Paced, || shared.wire.sleep(pacer.take(piece)))?;
                    piece
                }
                None => usize::MAX,
            };
            let mut left = limit.min(slices.len());
            while left > 0 {
                let taken = match &shared.channel {
                    Some(channel) => {
                        channel.write(&*shared.wire, &mut slices, left, self.timeout, &shared.meter)?
                    }
                    None => shared.meter.time(Part::WaitingOut, || {
                        slices.advance(left, |next| shared.wire.write(next, self.timeout))
                    })?,
                };
                shared.meter.count_sent(taken);
                left -= taken;
            }
        }
        Ok(())
    }

    /// Signals to the peer that no more bytes follow; the reader of the peer sees the end after the
    /// last byte. A second call does nothing.
    ///
    /// # Errors
    /// Same as [`write_all`](Self::write_all).
    pub fn finish(&mut self) -> Result<(), LaneError> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let shared = &*self.halves.shared;
        shared.wire.unless_aborted()?;
        if let Some(channel) = &shared.channel {
            channel.finish(&*shared.wire, self.timeout)?;
        }
        shared.wire.finish()
    }

    /// Sets the time to wait for buffer space before [`LaneError::Stalled`]; `None` waits
    /// indefinitely.
    pub fn set_stall(&mut self, stall: Option<Duration>) {
        self.timeout = WaitTimeout { stall, deadline: None };
    }

    /// Limits the rate of all later writes to that of `pacer`; `None` removes the limit.
    pub fn set_pacer(&mut self, pacer: Option<Arc<Pacer>>) {
        self.pacer = pacer;
    }

    /// Sets the timeout of all later waits.
    pub(crate) fn set_timeout(&mut self, timeout: WaitTimeout) {
        self.timeout = timeout;
    }

    /// Sets a deadline for all waits together, even if bytes move.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.timeout = WaitTimeout::until(deadline);
    }

    /// Returns a handle that aborts the lane and reports its state from any thread.
    pub fn control(&self) -> StreamControl {
        StreamControl::new(self.halves.shared.clone())
    }
}

impl fmt::Debug for StreamWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamWriter").field(&self.control()).finish()
    }
}
