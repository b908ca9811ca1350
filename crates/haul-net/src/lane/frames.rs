//! Frames on a byte stream: messages, and payload that follows them.

use super::{FrameError, FrameReader, FrameWriter, LaneError, StreamReader, StreamWriter};
use haul_proto::{Flaw, HEADER_LEN, Header, Message};
use std::time::{Duration, Instant};

/// Maximum number of bytes of small frames that are gathered before a write: the amount that a lane
/// encrypts in one step.
const GATHERED_MAX: usize = 64 << 10;

/// Minimum size of the read buffer, in bytes, so that one call returns many small frames.
const AHEAD_BYTES: usize = 64 << 10;

/// Reader of the frames of a byte stream.
pub(super) struct StreamFrameReader {
    stream: StreamReader,
    /// Received bytes; `ahead[start..end]` is not consumed yet.
    ahead: Vec<u8>,
    start: usize,
    end: usize,
}

impl StreamFrameReader {
    pub(super) fn new(stream: StreamReader) -> Self {
        Self { stream, ahead: Vec::new(), start: 0, end: 0 }
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
            match self.stream.read_some(&mut self.ahead[self.end..])? {
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

impl FrameReader for StreamFrameReader {
    fn next(&mut self) -> Result<Option<Message>, FrameError> {
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

    fn has_next(&self) -> bool {
        let here = self.end - self.start;
        here >= HEADER_LEN && self.header().map_or(true, |header| here >= HEADER_LEN + header.body_len())
    }

    fn payload(&mut self, into: &mut [u8]) -> Result<(), FrameError> {
        let here = into.len().min(self.end - self.start);
        let (first, rest) = into.split_at_mut(here);
        first.copy_from_slice(&self.ahead[self.start..self.start + here]);
        self.start += here;
        if rest.is_empty() { Ok(()) } else { Ok(self.stream.read_exact(rest)?) }
    }

    fn has_payload(&self, len: usize) -> bool {
        self.end - self.start >= len
    }

    fn skip(&mut self, mut len: u64) -> Result<(), FrameError> {
        let mut block = [0; 16 << 10];
        while len > 0 {
            let now = usize::try_from(len).unwrap_or(usize::MAX).min(block.len());
            self.payload(&mut block[..now])?;
            len -= now as u64;
        }
        Ok(())
    }

    fn set_stall(&mut self, stall: Option<Duration>) {
        self.stream.set_stall(stall);
    }

    fn set_deadline(&mut self, deadline: Instant) {
        self.stream.set_deadline(deadline);
    }
}

/// Writer of the frames of a byte stream.
pub(super) struct StreamFrameWriter {
    stream: StreamWriter,
    gathered: Vec<u8>,
    waited: Duration,
}

impl StreamFrameWriter {
    pub(super) fn new(stream: StreamWriter) -> Self {
        Self { stream, gathered: Vec::new(), waited: Duration::ZERO }
    }

    fn write(&mut self, behind: &[u8]) -> Result<(), LaneError> {
        let begin = Instant::now();
        self.stream.write_all_vectored(&[&self.gathered, behind])?;
        self.waited += begin.elapsed();
        self.gathered.clear();
        Ok(())
    }
}

impl FrameWriter for StreamFrameWriter {
    fn push(&mut self, message: &Message) -> Result<(), LaneError> {
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

    fn payload(&mut self, bytes: &[u8]) -> Result<(), LaneError> {
        if bytes.len() >= GATHERED_MAX / 2 {
            return self.write(bytes);
        }
        if self.gathered.len() + bytes.len() > GATHERED_MAX {
            self.flush()?;
        }
        self.gathered.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LaneError> {
        if self.gathered.is_empty() { Ok(()) } else { self.write(&[]) }
    }

    fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }

    fn waited(&self) -> Duration {
        self.waited
    }

    fn finish(mut self: Box<Self>) -> Result<(), LaneError> {
        self.flush()?;
        self.stream.finish()
    }
}
