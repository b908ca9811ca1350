//! Frames: a header with a check of its own, a body, and for NEW_BLOCK a payload.
//!
//! ```text
//!   0      1      2        4          8            12         16
//!   | kind | flags | check | body len | payload len | body CRC | body ...  | payload ... |
//!     u8     u8      u16     u32        u32           u32        <= 1 MiB    <= 16 MiB
//! ```
//!
//! The reader of a lane reads [`HEADER_LEN`] bytes and calls [`Header::decode`]. It then reads the
//! body and calls [`Message::decode`]. It moves the payload itself: payload never passes through
//! this crate.

use crate::Message;
use crate::limits::{BODY_BYTES_MAX, HEADER_LEN, PAYLOAD_BYTES_MAX};
use thiserror::Error;

/// Flag of a frame: a receiver that does not know the kind skips the frame with its payload.
pub(crate) const OPTIONAL: u8 = 1;

/// Defect in bytes that should be a frame. The lane that carried them is unusable from then on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Flaw {
    /// The check of the header differs.
    #[error("damaged frame header, or not a haul session")]
    HeaderDamaged,
    /// The checksum of the body differs.
    #[error("damaged frame body")]
    BodyDamaged,
    /// A length exceeds its limit.
    #[error("{what}: {len} is more than {most}")]
    TooLong {
        /// Name of the length.
        what: &'static str,
        /// Length as stated by the peer.
        len: u64,
        /// Maximum length.
        most: u64,
    },
    /// The body ends within a field.
    #[error("truncated frame body: it ends within its {0}")]
    Short(&'static str),
    /// A field has an invalid value.
    #[error("invalid {0} in a frame")]
    Value(&'static str),
    /// The kind of the frame is unknown, and the frame is not optional.
    #[error("unknown frame kind {0}; update haul on this host")]
    UnknownKind(u8),
    /// A field is unknown, and its tag is mandatory.
    #[error("unknown frame field {0:#06x}; update haul on this host")]
    MustUnderstand(u16),
    /// A payload is present where none is allowed, or it is missing, or its length is wrong.
    #[error("invalid payload in a frame of kind {0}")]
    Payload(u8),
}

/// The first [`HEADER_LEN`] bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub(crate) kind: u8,
    flags: u8,
    body_len: u32,
    payload_len: u32,
    body_crc: u32,
}

impl Header {
    /// Decodes a header and checks its lengths against the limits.
    ///
    /// # Errors
    /// Returns [`Flaw::HeaderDamaged`] if the check of the header differs, and [`Flaw::TooLong`] if
    /// a length exceeds its limit.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Header, Flaw> {
        let u32_at = |at: usize| {
            let mut array = [0; 4];
            array.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(array)
        };
        let header = Header {
            kind: bytes[0],
            flags: bytes[1],
            body_len: u32_at(4),
            payload_len: u32_at(8),
            body_crc: u32_at(12),
        };
        if header.check() != u16::from_le_bytes([bytes[2], bytes[3]]) {
            return Err(Flaw::HeaderDamaged);
        }
        bounded("body", header.body_len, BODY_BYTES_MAX as u64)?;
        bounded("payload", header.payload_len, u64::from(PAYLOAD_BYTES_MAX))?;
        Ok(header)
    }

    /// Returns the size in bytes of the body, at most [`BODY_BYTES_MAX`].
    pub fn body_len(&self) -> usize {
        self.body_len as usize
    }

    /// Returns the size in bytes of the payload behind the body, at most [`PAYLOAD_BYTES_MAX`].
    pub fn payload_len(&self) -> u32 {
        self.payload_len
    }

    /// Returns true if a receiver that does not know the kind skips the frame.
    pub fn is_optional(&self) -> bool {
        self.flags & OPTIONAL != 0
    }

    /// Returns both halves of the CRC-32 of the other fields, folded into 16 bits. No length is
    /// trusted before this check.
    fn check(&self) -> u16 {
        let mut bytes = [0; 14];
        bytes[0] = self.kind;
        bytes[1] = self.flags;
        bytes[2..6].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[6..10].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[10..14].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        ((crc >> 16) ^ (crc & 0xffff)) as u16
    }

    fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = self.kind;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.check().to_le_bytes());
        bytes[4..8].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes
    }
}

fn bounded(what: &'static str, len: u32, most: u64) -> Result<(), Flaw> {
    let len = u64::from(len);
    if len > most { Err(Flaw::TooLong { what, len, most }) } else { Ok(()) }
}

impl Message {
    /// Appends the frame: header and body. The caller writes the payload of a NEW_BLOCK, as many
    /// bytes as the message states, directly behind it.
    ///
    /// # Panics
    /// Panics if a part exceeds the limits, which is a caller error. [`Message::check`] detects
    /// this first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        self.encode_body(out);
        let body = &out[at + HEADER_LEN..];
        assert!(body.len() <= BODY_BYTES_MAX, "a message is checked against the limits before it is sent");
        let header = Header {
            kind: self.kind(),
            flags: if self.is_ignorable() { OPTIONAL } else { 0 },
            body_len: u32::try_from(body.len()).expect("at most 1 MiB"),
            payload_len: self.payload_len(),
            body_crc: crc32fast::hash(body),
        };
        out[at..at + HEADER_LEN].copy_from_slice(&header.encode());
    }

    /// Decodes the message of a frame. Returns `None` if its kind is unknown and the frame is
    /// optional.
    ///
    /// # Errors
    /// Returns a [`Flaw`] if the body is damaged, truncated or invalid, or if its kind is unknown
    /// and not optional. Allocates at most a few times the length of the body.
    ///
    /// # Panics
    /// Panics if the length of `body` differs from that in the header, which is a caller error.
    pub fn decode(header: &Header, body: &[u8]) -> Result<Option<Message>, Flaw> {
        assert_eq!(body.len(), header.body_len(), "the caller reads the body that the header announces");
        if crc32fast::hash(body) != header.body_crc {
            return Err(Flaw::BodyDamaged);
        }
        let message = match Message::decode_body(header.kind, body, header.payload_len) {
            Err(Flaw::UnknownKind(_)) if header.is_optional() => return Ok(None),
            decoded => decoded?,
        };
        if message.payload_len() == header.payload_len {
            Ok(Some(message))
        } else {
            Err(Flaw::Payload(header.kind))
        }
    }
}
