//! Reading half of a byte stream.

use super::{Halves, LaneError, Part, Resource, Shared, StreamControl, WaitTimeout};
use crate::tls::Inlet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes read ahead for a caller that requests fewer, on an unencrypted lane: many small messages
/// in one call.
const AHEAD_BYTES: usize = 64 << 10;

/// The same before the peer is authenticated: an unauthenticated peer gets little memory.
const AHEAD_BYTES_AT_FIRST: usize = 1 << 10;

/// Reading half of a [`StreamLane`](super::StreamLane). It buffers bytes that arrived early, so
/// that small reads are cheap.
pub struct StreamReader {
    halves: Arc<Halves>,
    source: Source,
    timeout: WaitTimeout,
    ended: bool,
}

enum Source {
    Tls(Inlet),
    Plain(Ahead),
}

/// Bytes that were received before the caller requested them.
struct Ahead {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Length of the buffer from the next refill on.
    wanted: usize,
}

impl StreamReader {
    pub(super) fn new(halves: Arc<Halves>, inlet: Option<Inlet>) -> Self {
        let source = inlet.map_or_else(|| Source::Plain(Ahead::at_first()), Source::Tls);
        Self { halves, source, timeout: WaitTimeout::default(), ended: false }
    }

    /// Reads some bytes, at least one. Returns 0 if the peer closed the lane cleanly, or if
    /// `buffer` is empty.
    ///
    /// # Errors
    /// Returns a [`LaneError`] if the wire or TLS fails; the lane is unusable then.
    pub fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, LaneError> {
        if self.ended || buffer.is_empty() {
            return Ok(0);
        }
        let shared = &*self.halves.shared;
        let read = match &mut self.source {
            Source::Plain(ahead) => ahead.read(shared, buffer, self.timeout)?,
            Source::Tls(inlet) => {
                let channel = shared.channel.as_ref().expect("a lane with an inlet has a channel");
                channel.read(inlet, &*shared.wire, buffer, self.timeout, &shared.meter)?
            }
        };
        self.ended = read == 0;
        shared.meter.count_received(read);
        Ok(read)
    }

    /// Fills `buffer`.
    ///
    /// # Errors
    /// Returns [`LaneError::Ended`] if the peer closed the lane before the first byte, and
    /// [`LaneError::EndedInside`] if it closed the lane later. Otherwise fails like
    /// [`read_some`](Self::read_some).
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), LaneError> {
        if self.read_exact_or_end(buffer)? { Ok(()) } else { Err(LaneError::Ended) }
    }

    /// Fills `buffer`. Returns `false` if the peer closed the lane before the first byte.
    ///
    /// # Errors
    /// Returns [`LaneError::EndedInside`] if the peer closed the lane after the first byte.
    /// Otherwise fails like [`read_some`](Self::read_some).
    pub fn read_exact_or_end(&mut self, buffer: &mut [u8]) -> Result<bool, LaneError> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_some(&mut buffer[done..])? {
                0 if done == 0 => return Ok(false),
                0 => return Err(LaneError::EndedInside { missing: buffer.len() - done }),
                read => done += read,
            }
        }
        Ok(true)
    }

    /// Waits until the peer closes the lane cleanly.
    ///
    /// # Errors
    /// Returns [`LaneError::Unexpected`] if bytes arrive instead. Otherwise fails like
    /// [`read_some`](Self::read_some).
    pub fn expect_end(&mut self) -> Result<(), LaneError> {
        match self.read_some(&mut [0])? {
            0 => Ok(()),
            _ => Err(LaneError::Unexpected),
        }
    }

    /// Sets the time to wait for a byte before [`LaneError::Stalled`]; `None` waits indefinitely.
    pub fn set_stall(&mut self, stall: Option<Duration>) {
        self.timeout = WaitTimeout { stall, deadline: None };
    }

    /// Sets the timeout of all later waits.
    pub(crate) fn set_timeout(&mut self, timeout: WaitTimeout) {
        self.timeout = timeout;
    }

    /// Sets a deadline for all waits together, even if bytes move; [`set_stall`](Self::set_stall)
    /// removes it.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.timeout = WaitTimeout::until(deadline);
    }

    /// Prepares the lane for work once the peer is authenticated: resets the counters and enlarges
    /// the buffers.
    pub(super) fn begin(&mut self) {
        self.halves.shared.meter.reset();
        match &mut self.source {
            Source::Tls(inlet) => inlet.widen(),
            Source::Plain(ahead) => ahead.wanted = AHEAD_BYTES,
        }
    }

    /// Keeps `resource` until both halves are dropped.
    pub(super) fn keep(&mut self, resource: Resource) {
        assert!(self.halves.resource.set(resource).is_ok(), "a lane is proven once");
    }

    /// Returns a handle that aborts the lane and reports its state from any thread.
    pub fn control(&self) -> StreamControl {
        StreamControl::new(self.halves.shared.clone())
    }
}

impl Ahead {
    fn at_first() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, wanted: AHEAD_BYTES_AT_FIRST }
    }

    fn read(&mut self, shared: &Shared, buffer: &mut [u8], timeout: WaitTimeout) -> Result<usize, LaneError> {
        if self.start == self.end {
            let wire = &shared.wire;
            if buffer.len() >= self.wanted {
                return shared.meter.time(Part::WaitingIn, || wire.read(buffer, timeout));
            }
            // Allocated at the first use, because many lanes only send.
            self.bytes.resize(self.wanted, 0);
            (self.start, self.end) = (0, 0);
            self.end = shared.meter.time(Part::WaitingIn, || wire.read(&mut self.bytes, timeout))?;
        }
        let taken = buffer.len().min(self.end - self.start);
        buffer[..taken].copy_from_slice(&self.bytes[self.start..self.start + taken]);
        self.start += taken;
        Ok(taken)
    }
}

impl fmt::Debug for StreamReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamReader").field(&self.control()).finish()
    }
}
