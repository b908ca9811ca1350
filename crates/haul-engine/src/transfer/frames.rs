//! Frames on a lane: messages, and payload that goes past them.

use haul_net::{LaneError, LaneReader, LaneWriter};
use haul_proto::{Flaw, HEADER_LEN, Header, Message};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Bytes of small frames that wait for company at most: what a lane encrypts at once.
const GATHERED_MAX: usize = 64 << 10;

/// Bytes that are taken from a lane at once where less is asked for: many small frames in one call.
const AHEAD_BYTES: usize = 64 << 10;

/// Why nothing more comes by a lane.
#[derive(Debug, Error)]
pub(super) enum FrameError {
    /// The lane failed.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// What came is no frame.
    #[error("what came is not understood: {0}")]
    Flaw(#[from] Flaw),
}

/// The frames that come by a lane.
pub(super) struct Frames {
    lane: LaneReader,
    /// What came and was not taken yet is `ahead[start..end]`.
    ahead: Vec<u8>,
    start: usize,
    end: usize,
}

impl Frames {
    /// The frames of a lane.
    pub(super) fn new(lane: LaneReader) -> Frames {
        Frames { lane, ahead: Vec::new(), start: 0, end: 0 }
    }

    /// Lets the lane be silent for so long at most; `None` for any time.
    pub(super) fn within(&mut self, time: Option<Duration>) {
        self.lane.set_stall(time);
    }

    /// Gives the lane until then in all, however much comes of it.
    pub(super) fn until(&mut self, deadline: Instant) {
        self.lane.set_deadline(deadline);
    }

    /// The next message; `None` where the other side finished the lane. The payload of a NEW_BLOCK is to be taken next.
    ///
    /// # Errors
    /// [`FrameError`]; the lane is of no more use then.
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

    /// Whether [`Frames::next`] would not wait for the other side. The payload of what comes next is not looked at.
    pub(super) fn has_next(&self) -> bool {
        let here = self.end - self.start;
        here >= HEADER_LEN && self.header().map_or(true, |header| here >= HEADER_LEN + header.body_len())
    }

    /// Whether so much payload can be taken without waiting for the other side.
    pub(super) fn has_payload(&self, len: usize) -> bool {
        self.end - self.start >= len
    }

    /// Takes payload.
    ///
    /// # Errors
    /// As [`Frames::next`].
    pub(super) fn payload(&mut self, into: &mut [u8]) -> Result<(), FrameError> {
        let here = into.len().min(self.end - self.start);
        let (first, rest) = into.split_at_mut(here);
        first.copy_from_slice(&self.ahead[self.start..self.start + here]);
        self.start += here;
        if rest.is_empty() { Ok(()) } else { Ok(self.lane.read_exact(rest)?) }
    }

    /// Takes payload that nobody wants.
    ///
    /// # Errors
    /// As [`Frames::next`].
    pub(super) fn skip(&mut self, mut len: u64) -> Result<(), FrameError> {
        let mut block = [0; 16 << 10];
        while len > 0 {
            let now = usize::try_from(len).unwrap_or(usize::MAX).min(block.len());
            self.payload(&mut block[..now])?;
            len -= now as u64;
        }
        Ok(())
    }

    /// The header of the next frame, all of which is here.
    fn header(&self) -> Result<Header, Flaw> {
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&self.ahead[self.start..self.start + HEADER_LEN]);
        Header::decode(&header)
    }

    /// Takes from the lane until so many bytes are here; false where it ended, well, before the first of them.
    fn gather(&mut self, len: usize) -> Result<bool, FrameError> {
        while self.end - self.start < len {
            if self.start > 0 {
                self.ahead.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            // Made at the first use, which lanes that only send hardly come to.
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

/// The frames that go by a lane. Small ones wait until [`Outbox::flush`], or until something larger goes.
pub(super) struct Outbox {
    lane: LaneWriter,
    gathered: Vec<u8>,
    waited: Duration,
}

impl Outbox {
    /// The frames of a lane.
    pub(super) fn new(lane: LaneWriter) -> Outbox {
        Outbox { lane, gathered: Vec::new(), waited: Duration::ZERO }
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }

    /// Adds a message.
    ///
    /// # Errors
    /// The lane's.
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

    /// Adds bytes of payload, which go at once where they are many.
    ///
    /// # Errors
    /// The lane's.
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

    /// Sends what waits.
    ///
    /// # Errors
    /// The lane's.
    pub(super) fn flush(&mut self) -> Result<(), LaneError> {
        if self.gathered.is_empty() { Ok(()) } else { self.write(&[]) }
    }

    /// How long the lane has held up who writes: until it had taken the bytes, encryption and rate included.
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

    /// Sends what waits and finishes this direction of the lane.
    ///
    /// # Errors
    /// The lane's.
    pub(super) fn finish(mut self) -> Result<(), LaneError> {
        self.flush()?;
        self.lane.finish()
    }
}
