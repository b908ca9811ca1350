//! Frames on a lane: messages, and payload that follows them.

use haul_net::{LaneError, LaneReader, LaneWriter};
use haul_proto::{Flaw, HEADER_LEN, Header, Message};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Maximum number of bytes of small frames that are gathered before a write: the amount that a lane
/// encrypts in one step.
const GATHERED_MAX: usize = 64 << 10;

/// Minimum size of the read buffer, in bytes, so that one call returns many small frames.
const AHEAD_BYTES: usize = 64 << 10;

/// Error that ends the reading of a lane.
#[derive(Debug, Error)]
pub(super) enum FrameError {
    /// The lane failed.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// The received data is not a valid frame.
    #[error("invalid message received: {0}")]
    Flaw(#[from] Flaw),
}

/// Reader of the frames of a lane.
pub(super) struct Frames {
    lane: LaneReader,
    /// Received bytes; `ahead[start..end]` is not consumed yet.
    ahead: Vec<u8>,
    start: usize,
    end: usize,
}

impl Frames {
    /// Creates the reader of a lane.
    pub(super) fn new(lane: LaneReader) -> Frames {
        Frames { lane, ahead: Vec::new(), start: 0, end: 0 }
    }

    /// Sets the maximum time without received data; `None` for no limit.
    pub(super) fn within(&mut self, time: Option<Duration>) {
        self.lane.set_stall(time);
    }

    /// Sets the deadline for all reads, regardless of received data.
    pub(super) fn until(&mut self, deadline: Instant) {
        self.lane.set_deadline(deadline);
    }

    /// Returns the next message, or `None` if the peer finished the lane. The payload of a
    /// NEW_BLOCK must be taken next.
    ///
    /// # Errors
    /// Returns a [`FrameError`]. The lane is then unusable.
    pub(super) fn next(&mut self) -> Result<Option<Message>, FrameError> {
        loop {
            if !self.gather(HEADER_LEN)? {
                return Ok(None);
            }
            let header = self.header()?;
            let len = HEADER_LEN + header.body_len();
            self.gather(len)?;
            let body = &self.ahead[self.start + HEADER_LEN..self.start + len];
            let message = Message::decode(&header, body)?;
            self.start += len;
            match message {
                Some(message) => return Ok(Some(message)),
                None => self.skip(u64::from(header.payload_len()))?,
            }
        }
    }

    /// Returns true if [`Frames::next`] would not wait for the peer. Ignores the payload of the
    /// next message.
    pub(super) fn has_next(&self) -> bool {
        let here = self.end - self.start;
        here >= HEADER_LEN && self.header().map_or(true, |header| here >= HEADER_LEN + header.body_len())
    }

    /// Returns true if `len` bytes of payload can be taken without waiting for the peer.
    pub(super) fn has_payload(&self, len: usize) -> bool {
        self.end - self.start >= len
    }

    /// Takes payload.
    ///
    /// # Errors
    /// Same as [`Frames::next`].
    pub(super) fn payload(&mut self, into: &mut [u8]) -> Result<(), FrameError> {
        let here = into.len().min(self.end - self.start);
        let (first, rest) = into.split_at_mut(here);
        first.copy_from_slice(&self.ahead[self.start..self.start + here]);
        self.start += here;
        if rest.is_empty() { Ok(()) } else { Ok(self.lane.read_exact(rest)?) }
    }

    /// Discards payload.
    ///
    /// # Errors
    /// Same as [`Frames::next`].
    pub(super) fn skip(&mut self, mut len: u64) -> Result<(), FrameError> {
        let mut block = [0; 16 << 10];
        while len > 0 {
            let now = usize::try_from(len).unwrap_or(usize::MAX).min(block.len());
            self.payload(&mut block[..now])?;
            len -= now as u64;
        }
        Ok(())
    }

    /// Decodes the header of the next frame, which must be completely received.
    fn header(&self) -> Result<Header, Flaw> {
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&self.ahead[self.start..self.start + HEADER_LEN]);
        Header::decode(&header)
    }

    /// Reads from the lane until `len` bytes are available. Returns false if the lane ended
    /// properly before the first of them.
    fn gather(&mut self, len: usize) -> Result<bool, FrameError> {
        while self.end - self.start < len {
            if self.start > 0 {
                self.ahead.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            // Allocated at the first use, because lanes that only send hardly ever need it.
            let room = self.ahead.len().max(AHEAD_BYTES).max(len);
            self.ahead.resize(room, 0);
            match self.lane.read_some(&mut self.ahead[self.end..])? {
                0 if self.start == self.end => return Ok(false),
                0 => {
                    let missing = len - (self.end - self.start);
                    return Err(LaneError::EndedInside { missing }.into());
                }
                came => self.end += came,
            }
        }
        Ok(true)
    }
}

/// Writer of the frames of a lane. Small frames are gathered until [`Outbox::flush`] or until a
/// larger one is sent.
pub(super) struct Outbox {
    lane: LaneWriter,
    gathered: Vec<u8>,
    waited: Duration,
}

impl Outbox {
    /// Creates the writer of a lane.
    pub(super) fn new(lane: LaneWriter) -> Outbox {
        Outbox { lane, gathered: Vec::new(), waited: Duration::ZERO }
    }

    /// Returns true if no frame is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }

    /// Adds a message.
    ///
    /// # Errors
    /// Returns the error of the lane.
    pub(super) fn push(&mut self, message: &Message) -> Result<(), LaneError> {
        let before = self.gathered.len();
        message.encode(&mut self.gathered);
        if self.gathered.len() <= GATHERED_MAX {
            return Ok(());
        }
        let last = self.gathered.split_off(before);
        self.flush()?;
        self.gathered = last;
        if self.gathered.len() <= GATHERED_MAX { Ok(()) } else { self.flush() }
    }

    /// Adds payload. Large payload is sent immediately.
    ///
    /// # Errors
    /// Returns the error of the lane.
    pub(super) fn payload(&mut self, bytes: &[u8]) -> Result<(), LaneError> {
        if bytes.len() >= GATHERED_MAX / 2 {
            return self.write(bytes);
        }
        if self.gathered.len() + bytes.len() > GATHERED_MAX {
            self.flush()?;
        }
        self.gathered.extend_from_slice(bytes);
        Ok(())
    }

    /// Sends the gathered frames.
    ///
    /// # Errors
    /// Returns the error of the lane.
    pub(super) fn flush(&mut self) -> Result<(), LaneError> {
        if self.gathered.is_empty() { Ok(()) } else { self.write(&[]) }
    }

    /// Returns the total time that writes to the lane took, including encryption and rate limit.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    fn write(&mut self, behind: &[u8]) -> Result<(), LaneError> {
        let begin = Instant::now();
        self.lane.write_all_vectored(&[&self.gathered, behind])?;
        self.waited += begin.elapsed();
        self.gathered.clear();
        Ok(())
    }

    /// Sends the gathered frames and finishes this direction of the lane.
    ///
    /// # Errors
    /// Returns the error of the lane.
    pub(super) fn finish(mut self) -> Result<(), LaneError> {
        self.flush()?;
        self.lane.finish()
    }
}
