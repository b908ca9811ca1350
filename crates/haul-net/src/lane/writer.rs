//! The half of a lane that writes.

use super::{Halves, LaneControl, LaneError, Part, Patience, Slices};
use crate::pace::Pacer;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes handed to the kernel at once where a rate is held; without one, all there are.
const PACED_PIECE_BYTES: usize = 64 << 10;

/// The half of a lane that writes. It keeps nothing back: when a call returns, all its bytes are with the kernel.
pub struct LaneWriter {
    halves: Arc<Halves>,
    patience: Patience,
    pacer: Option<Arc<Pacer>>,
    finished: bool,
}

impl LaneWriter {
    pub(super) fn new(halves: Arc<Halves>) -> Self {
        Self { halves, patience: Patience::default(), pacer: None, finished: false }
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// [`LaneError`]; how much of it left is not known then, and the lane is of no more use.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<(), LaneError> {
        self.write_all_vectored(&[bytes])
    }

    /// Writes all of `parts`, a header and its payload, as if they were one.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    ///
    /// # Panics
    /// After [`finish`](Self::finish).
    pub fn write_all_vectored(&mut self, parts: &[&[u8]]) -> Result<(), LaneError> {
        assert!(!self.finished, "a finished lane takes no more");
        let shared = &*self.halves.shared;
        let mut slices = Slices::new(parts);
        while !slices.is_empty() {
            let limit = match &self.pacer {
                Some(pacer) => {
                    let piece = pacer.piece(slices.len().min(PACED_PIECE_BYTES));
                    shared.meter.time(Part::Paced, || shared.wire.rest(pacer.take(piece)))?;
                    piece
                }
                None => usize::MAX,
            };
            let mut left = limit.min(slices.len());
            while left > 0 {
                let taken = match &shared.channel {
                    Some(channel) => {
                        channel.write(&shared.wire, &mut slices, left, self.patience, &shared.meter)?
                    }
                    None => shared.meter.time(Part::WaitingOut, || {
                        slices.advance(left, |next| shared.wire.write(next, self.patience))
                    })?,
                };
                shared.meter.left(taken);
                left -= taken;
            }
        }
        Ok(())
    }

    /// Tells the other end that nothing more will come; its reader sees the end after the last byte. A second call does
    /// nothing.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub fn finish(&mut self) -> Result<(), LaneError> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let shared = &*self.halves.shared;
        if let Some(channel) = &shared.channel {
            channel.finish(&shared.wire, self.patience)?;
        }
        shared.wire.finish()
    }

    /// How long to wait for room before [`LaneError::Stalled`]; `None` is for ever.
    pub fn set_stall(&mut self, stall: Option<Duration>) {
        self.patience = Patience { stall, deadline: None };
    }

    /// Holds the rate of `pacer` from now on, or none.
    pub fn set_pacer(&mut self, pacer: Option<Arc<Pacer>>) {
        self.pacer = pacer;
    }

    /// Waits until then in all, whatever moves.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.patience = Patience::until(deadline);
    }

    /// Ends the lane and tells about it from any thread.
    pub fn control(&self) -> LaneControl {
        LaneControl::new(self.halves.shared.clone())
    }
}

impl fmt::Debug for LaneWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LaneWriter").field(&self.control()).finish()
    }
}
