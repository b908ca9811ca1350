//! Messages about an object: NEW_BLOCK, BLOCK_DIGEST, BLOCK_SYNC, BLOCK_REJECT, and OBJECT_DIGESTS
//! and COMPARED before them.

use super::FileNumber;
use super::options::one_of;
use crate::fields::{Body, Fields};
use crate::limits::{DIGESTS_PER_MESSAGE, PACKED_BYTES_MAX};
use crate::{Flaw, Reason};
use haul_digest::{Digest, KeyedDigest};
use haul_model::{ByteRange, Level, ObjectIndex, Runs};

/// NEW_BLOCK: bytes of an object. An object is sent as one or more blocks, in order, on one lane,
/// without gaps. BLOCK_DIGEST ends the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBlock {
    /// Number of the file.
    pub number: FileNumber,
    /// Attempt to send the file.
    pub attempt: u16,
    /// Object that contains the bytes.
    pub object: ObjectIndex,
    /// Range of the file that the block represents.
    pub range: ByteRange,
    /// Encoding of the bytes.
    pub encoding: Encoding,
    /// Size in bytes of the payload behind this message, from the header of the frame.
    pub payload: u32,
}

/// Encoding of the bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The bytes, unchanged.
    Raw,
    /// One zstd frame (RFC 8878) with exactly these bytes, at most
    /// [`crate::limits::PACKED_BYTES_MAX`].
    Zstd,
    /// Zeros, without payload.
    Zeros,
    /// A hole, without payload: it reads as zeros and occupies no space.
    Hole,
}

const ENCODINGS: [Encoding; 4] = [Encoding::Raw, Encoding::Zstd, Encoding::Zeros, Encoding::Hole];

/// BLOCK_DIGEST: the end of an object, or the digest of an object that ended earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDigest {
    /// Number of the file.
    pub number: FileNumber,
    /// Attempt to send the file.
    pub attempt: u16,
    /// The object.
    pub object: ObjectIndex,
    /// Statement of the source about the bytes.
    pub stated: Stated,
}

/// Statement of the source about the bytes of an object at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stated {
    /// No statement: the job does not verify, or compares whole files.
    Nothing,
    /// The digest of the bytes.
    Digest(Digest),
    /// The digest follows when the source has read the bytes again (block-pipeline).
    Later,
    /// The source cannot read the object to its end. The sink discards the received part.
    Abandoned,
}

/// BLOCK_SYNC: objects that reached a level at the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSync {
    /// Number of the file.
    pub number: FileNumber,
    /// Attempt to send the file.
    pub attempt: u16,
    /// The level.
    pub level: Level,
    /// Objects that reached the level.
    pub objects: Runs,
}

/// BLOCK_REJECT: request to send an object, or the file, again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockReject {
    /// Number of the file.
    pub number: FileNumber,
    /// Rejected attempt. If the complete file is rejected, the next attempt has the next number.
    pub attempt: u16,
    /// The object; `None` for the complete file.
    pub object: Option<ObjectIndex>,
    /// Reason for the rejection.
    pub reason: Reason,
}

/// OBJECT_DIGESTS: digests of the source's bytes, which only the two sides of the session can
/// compute.
///
/// The sink compares them with its own and reveals none of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDigests {
    /// Number of the file.
    pub number: FileNumber,
    /// Attempt to send the file.
    pub attempt: u16,
    /// Object of the first digest; `None` if the only digest is that of the complete file.
    pub first: Option<ObjectIndex>,
    /// One digest for each object that the sink compares, ascending: objects that it has
    /// ([`super::Answer::Differing`]) and holes have none.
    pub digests: Vec<KeyedDigest>,
}

/// COMPARED: the sink compared objects with the digests of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Number of the file.
    pub number: FileNumber,
    /// Attempt to send the file.
    pub attempt: u16,
    /// One past the last compared object.
    pub end: u64,
    /// Objects, of those compared since the previous COMPARED, that the source must send. The
    /// others are the same.
    pub wanted: Runs,
}

impl NewBlock {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        let code = ENCODINGS.iter().position(|encoding| *encoding == self.encoding).unwrap_or(0);
        body.u64(self.number.0);
        body.u64(self.object.0);
        body.u64(self.range.start.0);
        body.u64(self.range.len());
        body.u16(self.attempt);
        body.u8(u8::try_from(code).unwrap_or(0));
    }

    pub(super) fn decode(fields: &mut Fields<'_>, payload: u32) -> Result<NewBlock, Flaw> {
        let number = FileNumber(fields.u64("file number")?);
        let object = ObjectIndex(fields.u64("object")?);
        let (start, len) = (fields.u64("offset")?, fields.u64("length")?);
        let attempt = fields.u16("attempt")?;
        let encoding = one_of(&ENCODINGS, fields.u8("encoding")?, "encoding")?;
        let end =
            start.checked_add(len).filter(|end| *end < 1 << 63 && len > 0).ok_or(Flaw::Value("length"))?;
        let fits = match encoding {
            Encoding::Raw => len == u64::from(payload),
            // The source sends data that does not shrink as raw data.
            Encoding::Zstd => len <= u64::from(PACKED_BYTES_MAX) && payload > 0 && u64::from(payload) <= len,
            Encoding::Zeros | Encoding::Hole => payload == 0,
        };
        if !fits {
            return Err(Flaw::Payload(3));
        }
        Ok(NewBlock { number, attempt, object, range: ByteRange::between(start, end), encoding, payload })
    }
}

impl BlockDigest {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u64(self.number.0);
        body.u64(self.object.0);
        body.u16(self.attempt);
        match &self.stated {
            Stated::Nothing => body.u8(0),
            Stated::Digest(digest) => {
                body.u8(1);
                body.digest(digest);
            }
            Stated::Later => body.u8(2),
            Stated::Abandoned => body.u8(3),
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<BlockDigest, Flaw> {
        let number = FileNumber(fields.u64("file number")?);
        let object = ObjectIndex(fields.u64("object")?);
        let attempt = fields.u16("attempt")?;
        let stated = match fields.u8("statement")? {
            0 => Stated::Nothing,
            1 => Stated::Digest(fields.digest("digest")?),
            2 => Stated::Later,
            3 => Stated::Abandoned,
            _ => return Err(Flaw::Value("statement")),
        };
        Ok(BlockDigest { number, attempt, object, stated })
    }
}

impl BlockSync {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u64(self.number.0);
        body.u16(self.attempt);
        body.level(self.level);
        body.runs(&self.objects);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<BlockSync, Flaw> {
        let number = FileNumber(fields.u64("file number")?);
        let attempt = fields.u16("attempt")?;
        let level = fields.level("level")?;
        Ok(BlockSync { number, attempt, level, objects: fields.runs("objects")? })
    }
}

impl BlockReject {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u64(self.number.0);
        body.u16(self.attempt);
        body.u64(self.object.map_or(u64::MAX, |object| object.0));
        self.reason.encode(body);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<BlockReject, Flaw> {
        let number = FileNumber(fields.u64("file number")?);
        let attempt = fields.u16("attempt")?;
        let object = fields.u64("object")?;
        let object = (object != u64::MAX).then_some(ObjectIndex(object));
        Ok(BlockReject { number, attempt, object, reason: Reason::decode(fields)? })
    }
}

impl ObjectDigests {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u64(self.number.0);
        body.u16(self.attempt);
        body.u64(self.first.map_or(u64::MAX, |object| object.0));
        body.count(self.digests.len());
        for digest in &self.digests {
            body.id(digest.as_bytes());
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<ObjectDigests, Flaw> {
        let number = FileNumber(fields.u64("file number")?);
        let attempt = fields.u16("attempt")?;
        let first = fields.u64("object")?;
        let first = (first != u64::MAX).then_some(ObjectIndex(first));
        let count = fields.count(DIGESTS_PER_MESSAGE, "digests")?;
        if first.is_none() && count != 1 {
            return Err(Flaw::Value("digests"));
        }
        let digests = (0..count).map(|_| fields.id("digest").map(KeyedDigest::from_bytes));
        Ok(ObjectDigests { number, attempt, first, digests: digests.collect::<Result<_, _>>()? })
    }
}

impl Compared {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u64(self.number.0);
        body.u16(self.attempt);
        body.u64(self.end);
        body.runs(&self.wanted);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Compared, Flaw> {
        let number = FileNumber(fields.u64("file number")?);
        let attempt = fields.u16("attempt")?;
        let end = fields.u64("object")?;
        let wanted = fields.runs("objects")?;
        if wanted.end() > end {
            return Err(Flaw::Value("objects"));
        }
        Ok(Compared { number, attempt, end, wanted })
    }
}
