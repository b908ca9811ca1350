//! Frames on a lane: messages, and payload that goes past them.

use haul_net::{LaneError, LaneReader, LaneWriter};
use haul_proto::{Flaw, HEADER_LEN, Header, Message};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Bytes of small messages that wait for company at most.
const GATHERED_MAX: usize = 64 << 10;

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
    body: Vec<u8>,
}

impl Frames {
    /// The frames of a lane.
    pub(super) fn new(lane: LaneReader) -> Frames {
        Frames { lane, body: Vec::new() }
    }

    /// Lets the lane be silent for so long at most; `None` for any time.
    pub(super) fn within(&mut self, time: Option<Duration>) {
        self.lane.set_stall(time);
    }

    /// The next message; `None` where the other side finished the lane. The payload of a NEW_BLOCK is to be taken next.
    ///
    /// # Errors
    /// [`FrameError`]; the lane is of no more use then.
    pub(super) fn next(&mut self) -> Result<Option<Message>, FrameError> {
        loop {
            let mut header = [0; HEADER_LEN];
            if !self.lane.read_exact_or_end(&mut header)? {
                return Ok(None);
            }
            let header = Header::decode(&header)?;
            self.body.resize(header.body_len(), 0);
            self.lane.read_exact(&mut self.body)?;
            match Message::decode(&header, &self.body)? {
                Some(message) => return Ok(Some(message)),
                None => self.skip(u64::from(header.payload_len()))?,
            }
        }
    }

    /// Takes payload.
    ///
    /// # Errors
    /// As [`Frames::next`].
    pub(super) fn payload(&mut self, into: &mut [u8]) -> Result<(), FrameError> {
        Ok(self.lane.read_exact(into)?)
    }

    /// Takes payload that nobody wants.
    ///
    /// # Errors
    /// As [`Frames::next`].
    pub(super) fn skip(&mut self, mut len: u64) -> Result<(), FrameError> {
        let mut block = [0; 16 << 10];
        while len > 0 {
            let now = usize::try_from(len).unwrap_or(usize::MAX).min(block.len());
            self.lane.read_exact(&mut block[..now])?;
            len -= now as u64;
        }
        Ok(())
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
        message.encode(&mut self.gathered);
        if self.gathered.len() >= GATHERED_MAX { self.flush() } else { Ok(()) }
    }

    /// Adds bytes of payload, which go at once where they are many.
    ///
    /// # Errors
    /// The lane's.
    pub(super) fn payload(&mut self, bytes: &[u8]) -> Result<(), LaneError> {
        if self.gathered.len() + bytes.len() < GATHERED_MAX {
            self.gathered.extend_from_slice(bytes);
            return Ok(());
        }
        self.write(bytes)
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
