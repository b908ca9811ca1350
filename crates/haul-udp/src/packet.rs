//! Bytes of a datagram: a header and frames. `docs/formats/udp.md` describes every byte.
//!
//! ```text
//! | version 1 | connection 4 | number 6 | body: frames, sealed | tag |
//! ```

pub use crate::train::Spread;
use std::ops::RangeInclusive;

/// First byte of each datagram: the version of this format.
pub const VERSION: u8 = 0xd1;
/// Length of the header in bytes.
pub const HEADER_LEN: usize = 11;
/// Highest packet number. An association that reaches this number ends.
pub const NUMBER_MAX: u64 = (1 << 48) - 1;
/// Length of a STREAM frame without its data, in bytes.
pub const STREAM_LEN: usize = 9;
/// Length of an ACK frame without its runs, in bytes.
pub const ACK_LEN: usize = 21;
/// Length of PING and PONG in bytes.
pub const PING_LEN: usize = 9;
/// Length of an RTT frame in bytes.
pub const RTT_LEN: usize = 5;
/// Length of a TRAIN frame in bytes.
pub const TRAIN_LEN: usize = 3;
/// Length of a SPREAD frame in bytes.
pub const SPREAD_LEN: usize = 15;

/// Code of CLOSE: both streams are complete at the sender. The peer answers with [`FINISHED`].
pub const COMPLETE: u32 = 0;
/// Code of CLOSE: the answer to [`COMPLETE`].
pub const FINISHED: u32 = 1;
/// Code of CLOSE: the peer violated the protocol, or datagrams do not pass.
pub const VIOLATION: u32 = 2;

const PADDING: u8 = 0;
const PING: u8 = 1;
const PONG: u8 = 2;
const ACK: u8 = 3;
const RTT: u8 = 4;
const TRAIN: u8 = 5;
const STREAM: u8 = 6;
const STREAM_END: u8 = 7;
const CLOSE: u8 = 8;
const SPREAD: u8 = 9;

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Identifier of the association, chosen by the receiver of the datagram.
    pub connection: u32,
    /// Packet number, 0 to [`NUMBER_MAX`]. Each number is used once in each direction.
    pub number: u64,
}

impl Header {
    /// Returns the bytes of the header.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let mut bytes = [VERSION; HEADER_LEN];
        bytes[1..5].copy_from_slice(&self.connection.to_le_bytes());
        bytes[5..].copy_from_slice(&self.number.to_le_bytes()[..6]);
        bytes
    }

    /// Returns the header at the start of a datagram, or `None` if the datagram is shorter than a
    /// header or has another version.
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let mut rest = datagram.get(..HEADER_LEN)?;
        (take_u8(&mut rest)? == VERSION).then_some(())?;
        Some(Self { connection: take_u32(&mut rest)?, number: take_u48(&mut rest)? })
    }
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Requests an acknowledgement without delay, and a [`Frame::Pong`] with the same token.
    Ping(u64),
    /// Returns the token of a [`Frame::Ping`], which proves that its sender receives at its
    /// address.
    Pong(u64),
    /// Numbers of received packets, and credit.
    Ack(Ack<'a>),
    /// Minimum round-trip time that the sender measured, in microseconds.
    Rtt(u32),
    /// A train starts with this packet: the number of packets that leave together.
    Train(u16),
    /// Spread of a train of the peer.
    Spread(Spread),
    /// Bytes of the stream. This frame extends to the end of the packet.
    Stream {
        /// Position of the first byte in the stream, in bytes.
        offset: u64,
        /// Bytes of the stream; may be empty.
        data: &'a [u8],
        /// True if the stream ends after `data`.
        is_end: bool,
    },
    /// Ends the association: [`COMPLETE`], [`FINISHED`], [`VIOLATION`] or a code of the user.
    Close(u32),
}

/// An ACK frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Highest received packet number.
    pub largest: u64,
    /// Time between the arrival of packet `largest` and the acknowledgement, in microseconds.
    pub delay: u32,
    /// Position in the stream up to which the receiver has space, in bytes.
    pub credit: u64,
    /// Lengths of runs and gaps: see [`Ack::ranges`].
    pub runs: &'a [u8],
}

impl<'a> Ack<'a> {
    /// Returns the received packet numbers as ranges, highest first. Ends at the first malformed
    /// run, which a decoded frame does not have.
    pub fn ranges(self) -> impl Iterator<Item = RangeInclusive<u64>> + 'a {
        let mut runs = self.runs;
        let mut next = Some(self.largest);
        std::iter::from_fn(move || {
            let high = next.take()?;
            let low = high.checked_sub(take_varint(&mut runs)?)?;
            if !runs.is_empty() {
                // The packet below `low` is missing, and at least one packet is below the gap.
                next = low.checked_sub(2).and_then(|below| below.checked_sub(take_varint(&mut runs)?));
            }
            Some(low..=high)
        })
    }

    fn is_well_formed(self) -> bool {
        let mut runs = self.runs;
        let mut high = self.largest;
        loop {
            let Some(low) = take_varint(&mut runs).and_then(|run| high.checked_sub(run)) else {
                return false;
            };
            if runs.is_empty() {
                return true;
            }
            let Some(gap) = take_varint(&mut runs) else { return false };
            let Some(below) = low.checked_sub(2).and_then(|below| below.checked_sub(gap)) else {
                return false;
            };
            high = below;
        }
    }
}

/// Error of [`Frames`]: the body contains an unknown, truncated or contradictory frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Iterator of the frames of a packet's body.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Returns an iterator of the frames in `body`.
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    fn take(&mut self) -> Option<Frame<'a>> {
        let rest = &mut self.rest;
        Some(match take_u8(rest)? {
            PING => Frame::Ping(take_u64(rest)?),
            PONG => Frame::Pong(take_u64(rest)?),
            ACK => {
                let (largest, delay) = (take_u48(rest)?, take_u32(rest)?);
                let credit = take_u64(rest)?;
                let len = usize::from(u16::from_le_bytes(take(rest)?));
                let (runs, after) = rest.split_at_checked(len)?;
                *rest = after;
                let ack = Ack { largest, delay, credit, runs };
                ack.is_well_formed().then_some(Frame::Ack(ack))?
            }
            RTT => Frame::Rtt(take_u32(rest)?),
            TRAIN => Frame::Train(u16::from_le_bytes(take(rest)?)),
            SPREAD => {
                let (first, bytes) = (take_u48(rest)?, take_u32(rest)?);
                Frame::Spread(Spread { first, bytes, nanos: take_u32(rest)? })
            }
            kind @ (STREAM | STREAM_END) => {
                let offset = take_u64(rest)?;
                let data = std::mem::take(rest);
                offset.checked_add(u64::try_from(data.len()).ok()?)?;
                Frame::Stream { offset, data, is_end: kind == STREAM_END }
            }
            CLOSE => Frame::Close(take_u32(rest)?),
            _ => return None,
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.first().is_none_or(|kind| *kind == PADDING) {
            // PADDING extends to the end of the packet; its bytes have no meaning.
            self.rest = &[];
            return None;
        }
        let frame = self.take().ok_or(Malformed);
        if frame.is_err() {
            self.rest = &[];
        }
        Some(frame)
    }
}

impl Frame<'_> {
    /// Appends the frame to `buffer`.
    ///
    /// # Panics
    /// Panics if the runs of an ACK are longer than 65,535 bytes.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        match *self {
            Frame::Ping(token) => put(buffer, PING, &token.to_le_bytes()),
            Frame::Pong(token) => put(buffer, PONG, &token.to_le_bytes()),
            Frame::Ack(Ack { largest, delay, credit, runs }) => {
                put(buffer, ACK, &largest.to_le_bytes()[..6]);
                buffer.extend_from_slice(&delay.to_le_bytes());
                buffer.extend_from_slice(&credit.to_le_bytes());
                let len = u16::try_from(runs.len()).expect("runs fit a packet");
                buffer.extend_from_slice(&len.to_le_bytes());
                buffer.extend_from_slice(runs);
            }
            Frame::Rtt(micros) => put(buffer, RTT, &micros.to_le_bytes()),
            Frame::Train(len) => put(buffer, TRAIN, &len.to_le_bytes()),
            Frame::Spread(Spread { first, bytes, nanos }) => {
                put(buffer, SPREAD, &first.to_le_bytes()[..6]);
                buffer.extend_from_slice(&bytes.to_le_bytes());
                buffer.extend_from_slice(&nanos.to_le_bytes());
            }
            Frame::Stream { offset, data, is_end } => {
                put(buffer, if is_end { STREAM_END } else { STREAM }, &offset.to_le_bytes());
                buffer.extend_from_slice(data);
            }
            Frame::Close(code) => put(buffer, CLOSE, &code.to_le_bytes()),
        }
    }
}

fn put(buffer: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    buffer.push(kind);
    buffer.extend_from_slice(bytes);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*bytes)
}

fn take_u8(rest: &mut &[u8]) -> Option<u8> {
    take(rest).map(|[byte]| byte)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn take_u48(rest: &mut &[u8]) -> Option<u64> {
    let bytes: [u8; 6] = take(rest)?;
    let mut wide = [0; 8];
    wide[..6].copy_from_slice(&bytes);
    Some(u64::from_le_bytes(wide))
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

/// Takes a number of 7 bits a byte, lowest first (LEB128), at most 5 bytes.
fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..5 {
        let byte = take_u8(rest)?;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Appends a number that [`Ack::ranges`] reads, saturated at 35 bits.
pub(crate) fn put_varint(buffer: &mut Vec<u8>, value: u64) {
    let mut value = value.min((1 << 35) - 1);
    while value >= 0x80 {
        buffer.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    buffer.push(value.to_le_bytes()[0]);
}
