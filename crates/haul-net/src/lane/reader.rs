//! The half of a lane that reads.

use super::{Halves, LaneControl, LaneError, Part, Pass, Patience, Shared};
use crate::tls::Inlet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes read ahead of a caller that asks for less, where nothing is encrypted: many small messages in one call.
const AHEAD_BYTES: usize = 64 << 10;

/// The same before the other end is known: a stranger gets little memory.
const AHEAD_BYTES_AT_FIRST: usize = 1 << 10;

/// The half of a lane that reads. It keeps what came early, so that small reads are cheap.
pub struct LaneReader {
    halves: Arc<Halves>,
    source: Source,
    patience: Patience,
    ended: bool,
}

enum Source {
    Tls(Inlet),
    Plain(Ahead),
}

/// Bytes that came before they were asked for.
struct Ahead {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// What its length is to be at the next refill.
    wanted: usize,
}

impl LaneReader {
    pub(super) fn new(halves: Arc<Halves>, inlet: Option<Inlet>) -> Self {
        let source = inlet.map_or_else(|| Source::Plain(Ahead::at_first()), Source::Tls);
        Self { halves, source, patience: Patience::default(), ended: false }
    }

    /// Reads some bytes, at least one; 0 is the other end's clean end. An empty `buffer` gets 0 bytes too.
    ///
    /// # Errors
    /// [`LaneError`]; the lane is of no more use then.
    pub fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, LaneError> {
        if self.ended || buffer.is_empty() {
            return Ok(0);
        }
        let shared = &*self.halves.shared;
        let read = match &mut self.source {
            Source::Plain(ahead) => ahead.read(shared, buffer, self.patience)?,
            Source::Tls(inlet) => {
                let channel = shared.channel.as_ref().expect("a lane with an inlet has a channel");
                channel.read(inlet, &shared.wire, buffer, self.patience, &shared.meter)?
            }
        };
        self.ended = read == 0;
        shared.meter.came(read);
        Ok(read)
    }

    /// Fills `buffer`.
    ///
    /// # Errors
    /// [`LaneError::Ended`] if the other end finished before the first byte, [`LaneError::EndedInside`] if after it, else as
    /// [`read_some`](Self::read_some).
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), LaneError> {
        if self.read_exact_or_end(buffer)? { Ok(()) } else { Err(LaneError::Ended) }
    }

    /// Fills `buffer`; `false` if the other end finished before the first byte of it.
    ///
    /// # Errors
    /// [`LaneError::EndedInside`] if it finished after the first byte, else as [`read_some`](Self::read_some).
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

    /// Waits for the other end's clean end.
    ///
    /// # Errors
    /// [`LaneError::Unexpected`] if bytes come instead, else as [`read_some`](Self::read_some).
    pub fn expect_end(&mut self) -> Result<(), LaneError> {
        match self.read_some(&mut [0])? {
            0 => Ok(()),
            _ => Err(LaneError::Unexpected),
        }
    }

    /// How long to wait for a byte before [`LaneError::Stalled`]; `None` is for ever.
    pub fn set_stall(&mut self, stall: Option<Duration>) {
        self.patience = Patience { stall, deadline: None };
    }

    /// Waits until then in all, whatever moves; [`set_stall`](Self::set_stall) takes that back.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.patience = Patience::until(deadline);
    }

    /// Begins the work: the other end is known. Counts from here on, with the buffers that work takes.
    pub(super) fn begin(&mut self) {
        self.halves.shared.meter.reset();
        match &mut self.source {
            Source::Tls(inlet) => inlet.widen(),
            Source::Plain(ahead) => ahead.wanted = AHEAD_BYTES,
        }
    }

    /// Holds `pass` until both halves are gone.
    pub(super) fn keep(&mut self, pass: Pass) {
        assert!(self.halves.pass.set(pass).is_ok(), "a lane is proven once");
    }

    /// Ends the lane and tells about it from any thread.
    pub fn control(&self) -> LaneControl {
        LaneControl::new(self.halves.shared.clone())
    }
}

impl Ahead {
    fn at_first() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, wanted: AHEAD_BYTES_AT_FIRST }
    }

    fn read(&mut self, shared: &Shared, buffer: &mut [u8], patience: Patience) -> Result<usize, LaneError> {
        if self.start == self.end {
            let wire = &shared.wire;
            if buffer.len() >= self.wanted {
                return shared.meter.time(Part::WaitingIn, || wire.read(buffer, patience));
            }
            // Made at the first use, which many a lane that only sends never comes to.
            self.bytes.resize(self.wanted, 0);
            (self.start, self.end) = (0, 0);
            self.end = shared.meter.time(Part::WaitingIn, || wire.read(&mut self.bytes, patience))?;
        }
        let taken = buffer.len().min(self.end - self.start);
        buffer[..taken].copy_from_slice(&self.bytes[self.start..self.start + taken]);
        self.start += taken;
        Ok(taken)
    }
}

impl fmt::Debug for LaneReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LaneReader").field(&self.control()).finish()
    }
}
