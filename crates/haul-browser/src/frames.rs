//! Splits the bytes of a lane into messages and payload. The bytes arrive in pieces of any length.

use haul_proto::limits::{BODY_BYTES_MAX, HEADER_LEN};
use haul_proto::{Flaw, Header, Message};

/// Part of the byte stream of a lane.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// A complete message. If it is a NEW_BLOCK, its payload follows.
    Message(Message),
    /// Next bytes of the payload of the last message. Never empty.
    Payload(&'a [u8]),
}

#[derive(Debug)]
enum State {
    /// Within a header.
    Header,
    /// Within the body that belongs to this header.
    Body(Header),
    /// Within a payload of which this many bytes are missing.
    Payload(u32),
    /// Within the payload of a frame of an unknown kind, which is skipped.
    Skipped(u32),
}

/// Reader of the frames of one lane. Holds at most one header or one body, which has at most
/// [`BODY_BYTES_MAX`] bytes. Payload is never copied.
#[derive(Debug)]
pub(crate) struct FrameReader {
    state: State,
    held: Vec<u8>,
}

impl FrameReader {
    pub(crate) fn new() -> FrameReader {
        FrameReader { state: State::Header, held: Vec::new() }
    }

    /// Returns the next part and removes its bytes from `bytes`. Returns `None` if more bytes are
    /// needed; `bytes` is empty then.
    ///
    /// # Errors
    /// Returns the [`Flaw`] of a damaged or invalid frame. The lane is unusable from then on.
    pub(crate) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Part<'a>>, Flaw> {
        loop {
            match &mut self.state {
                State::Payload(0) | State::Skipped(0) => self.state = State::Header,
                State::Payload(missing) => {
                    let payload = take(bytes, missing);
                    return Ok((!payload.is_empty()).then_some(Part::Payload(payload)));
                }
                State::Skipped(missing) => {
                    if take(bytes, missing).is_empty() {
                        return Ok(None);
                    }
                }
                State::Header => {
                    if !fill(&mut self.held, HEADER_LEN, bytes) {
                        return Ok(None);
                    }
                    let mut header = [0; HEADER_LEN];
                    header.copy_from_slice(&self.held);
                    self.held.clear();
                    self.state = State::Body(Header::decode(&header)?);
                }
                State::Body(header) => {
                    let header = *header;
                    if !fill(&mut self.held, header.body_len(), bytes) {
                        return Ok(None);
                    }
                    let message = Message::decode(&header, &self.held);
                    self.held.clear();
                    if self.held.capacity() > KEPT_BYTES {
                        self.held = Vec::new();
                    }
                    let payload = header.payload_len();
                    match message? {
                        None => self.state = State::Skipped(payload),
                        Some(message) => {
                            self.state = State::Payload(payload);
                            return Ok(Some(Part::Message(message)));
                        }
                    }
                }
            }
        }
    }
}

/// Capacity in bytes that is kept for the next body. Almost all bodies are shorter.
const KEPT_BYTES: usize = 64 << 10;

const _: () = assert!(KEPT_BYTES <= BODY_BYTES_MAX);

/// Takes at most `missing` bytes and counts them off.
fn take<'a>(bytes: &mut &'a [u8], missing: &mut u32) -> &'a [u8] {
    let len = bytes.len().min(*missing as usize);
    let (now, later) = bytes.split_at(len);
    *bytes = later;
    *missing -= len as u32;
    now
}

/// Moves bytes to `held` until it has `len` of them. Returns false if it still lacks some.
fn fill(held: &mut Vec<u8>, len: usize, bytes: &mut &[u8]) -> bool {
    let (now, later) = bytes.split_at(bytes.len().min(len - held.len()));
    held.extend_from_slice(now);
    *bytes = later;
    held.len() == len
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::{ByteRange, ObjectIndex};
    use haul_proto::{Encoding, FileNumber, NewBlock};
    use proptest::prelude::*;

    fn block(payload: &[u8]) -> Message {
        Message::NewBlock(NewBlock {
            number: FileNumber(3),
            attempt: 0,
            object: ObjectIndex(0),
            range: ByteRange::between(0, payload.len() as u64),
            encoding: Encoding::Raw,
            payload: payload.len() as u32,
        })
    }

    proptest! {
        #[test]
        fn frames_in_pieces_of_any_length_are_the_same(
            cuts in proptest::collection::vec(1usize..70, 1..40),
            payload in proptest::collection::vec(any::<u8>(), 1..300),
        ) {
            let mut stream = Vec::new();
            Message::KeepAlive.encode(&mut stream);
            block(&payload).encode(&mut stream);
            stream.extend_from_slice(&payload);
            Message::KeepAlive.encode(&mut stream);
            let (mut reader, mut messages, mut found) = (FrameReader::new(), Vec::new(), Vec::new());
            let (mut rest, mut cut) = (&stream[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cut.next().expect("cycles")));
                rest = later;
                let mut now = now;
                while let Some(part) = reader.next(&mut now).expect("valid frames") {
                    match part {
                        Part::Message(message) => messages.push(message),
                        Part::Payload(bytes) => found.extend_from_slice(bytes),
                    }
                }
                prop_assert!(now.is_empty());
            }
            prop_assert_eq!(messages, vec![Message::KeepAlive, block(&payload), Message::KeepAlive]);
            prop_assert_eq!(found, payload);
        }
    }

    #[test]
    fn damaged_header_is_a_flaw() {
        let mut stream = Vec::new();
        Message::KeepAlive.encode(&mut stream);
        stream[4] ^= 1;
        assert_eq!(FrameReader::new().next(&mut &stream[..]), Err(Flaw::HeaderDamaged));
    }
}
