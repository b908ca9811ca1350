//! Haul's own form of stored digests.

use crate::waybill::Moment;
use haul_digest::{Algorithm, Digest, digest};
use haul_model::{ByteLen, Geometry, ObjectSize};
use thiserror::Error;

/// Version that is written, and the highest version that is read.
pub const VERSION: u8 = 1;

/// Maximum size of a value that is read, in bytes: the objects of 8 TiB in pieces of 4 MiB.
pub const STORED_BYTES_MAX: usize = 64 << 20;

/// First bytes of every value.
const MAGIC: [u8; 8] = *b"haulsums";

/// Number of bytes before the digests.
const HEAD_BYTES: usize = 32;

/// Size of the CRC at the end, in bytes.
const CRC_BYTES: usize = 4;

/// Size of the digest of an object in bytes: a BLAKE3 digest.
const OBJECT_BYTES: usize = 32;

/// Metadata and digests of a file at the time when the digests were stored.
///
/// ```text
///   0        8   9      10      11     12      16     24     32
///   +--------+---+------+-------+------+-------+------+------+-----------------+------------------+-------+
///   |haulsums|ver|object|digests|  0   | nsec  | sec  | size | digests         | objects          | CRC   |
///   +--------+---+------+-------+------+-------+------+------+-----------------+------------------+-------+
///       8      1    1       1      1       4       8      8    (1 + n + 1 + d)    32 bytes each       4
/// ```
/// Numbers are little-endian. `object` is the binary logarithm of the object size, or 0 if there
/// are no object digests. A digest consists of the length of its algorithm's name, the name, the
/// length of the digest and the digest. The CRC-32C covers everything before it. Fields that a
/// reader needs first come first, and fields of variable length come last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Size of the file in bytes.
    pub size: u64,
    /// Modification time of the file.
    pub mtime: Moment,
    /// Digests of the complete file: at most one per algorithm, and at most 255.
    pub digests: Vec<Digest>,
    /// Digests of the objects, if the file has more than one.
    pub objects: Option<StoredObjects>,
}

/// Digests of the objects of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObjects {
    /// Size of every object except the last.
    pub size: ObjectSize,
    /// BLAKE3 digests of the objects, in order: the chaining values of their subtrees (see
    /// [`haul_digest::Part::digest`]).
    pub digests: Vec<Digest>,
}

/// Reason why bytes are not a stored value.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoredFlaw {
    /// The bytes start with something else.
    #[error("not stored digests")]
    NotOurs,
    /// A newer version of the format.
    #[error("unsupported version {0} (this program supports {VERSION}); use a newer haul")]
    Newer(u8),
    /// The CRC shows that bytes are changed or missing.
    #[error("damaged: the CRC differs; store the digests again")]
    Damaged,
    /// The CRC is correct, but the fields are inconsistent.
    #[error("inconsistent: {0}; store the digests again")]
    Contradictory(&'static str),
}

impl Stored {
    /// Returns the encoded value.
    ///
    /// # Panics
    ///
    /// Panics if there are more than 255 digests, or if the objects do not match the size.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.digests.len() <= 255, "an algorithm has one digest");
        assert!(
            self.objects.as_ref().is_none_or(|objects| objects.fits(self.size)),
            "every object has a digest"
        );
        let log = self.objects.as_ref().map_or(0, |objects| objects.size.bytes().trailing_zeros() as u8);
        let mut bytes = MAGIC.to_vec();
        bytes.extend([VERSION, log, self.digests.len() as u8, 0]);
        bytes.extend(self.mtime.nsec.to_le_bytes());
        bytes.extend(self.mtime.sec.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        for digest in &self.digests {
            for part in [digest.algorithm().name().as_bytes(), digest.as_bytes()] {
                bytes.push(part.len() as u8);
                bytes.extend(part);
            }
        }
        let objects = self.objects.iter().flat_map(|objects| &objects.digests);
        objects.for_each(|digest| bytes.extend(digest.as_bytes()));
        bytes.extend(crc(&bytes));
        bytes
    }

    /// Decodes a value. Digests of algorithms that this program does not know are skipped.
    ///
    /// # Errors
    ///
    /// Returns a [`StoredFlaw`] if the bytes are not a stored value, are damaged or inconsistent,
    /// or have a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Stored, StoredFlaw> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] || bytes.is_empty() {
            return Err(StoredFlaw::NotOurs);
        }
        if let Some(&version) = bytes.get(MAGIC.len()).filter(|&&version| version > VERSION) {
            return Err(StoredFlaw::Newer(version));
        }
        if bytes.len() < HEAD_BYTES + CRC_BYTES {
            return Err(StoredFlaw::Damaged);
        }
        let (covered, stated) = bytes.split_at(bytes.len() - CRC_BYTES);
        if crc(covered) != *stated {
            return Err(StoredFlaw::Damaged);
        }
        decode_covered(covered)
    }
}

/// Decodes the bytes that the CRC covers: at least a header.
fn decode_covered(bytes: &[u8]) -> Result<Stored, StoredFlaw> {
    let (head, mut rest) = bytes.split_at(HEAD_BYTES);
    let (log, count) = (head[9], head[10]);
    let nsec = number(&head[12..16]) as u32;
    if nsec >= 1_000_000_000 {
        return Err(StoredFlaw::Contradictory("nanoseconds out of range"));
    }
    let mtime = Moment { sec: number(&head[16..24]) as i64, nsec };
    let size = number(&head[24..32]);
    let mut digests: Vec<Digest> = Vec::new();
    for _ in 0..count {
        let name = counted(&mut rest)?;
        let value = counted(&mut rest)?;
        let algorithm = std::str::from_utf8(name).ok().and_then(|name| Algorithm::parse(name).ok());
        let Some(algorithm) = algorithm else { continue };
        let digest = Digest::from_bytes(algorithm, value);
        let digest = digest.map_err(|_| StoredFlaw::Contradictory("wrong length of a digest"))?;
        if digests.iter().any(|known| known.algorithm() == algorithm) {
            return Err(StoredFlaw::Contradictory("duplicate algorithm"));
        }
        digests.push(digest);
    }
    let objects = if log == 0 {
        None
    } else {
        let bytes = 1_u64.checked_shl(u32::from(log));
        let object = bytes.and_then(|bytes| ObjectSize::new(bytes).ok());
        let size = object.ok_or(StoredFlaw::Contradictory("invalid object size"))?;
        let parts = rest.chunks(OBJECT_BYTES).map(|part| Digest::from_bytes(Algorithm::Blake3, part));
        let digests: Result<Vec<Digest>, _> = parts.collect();
        rest = &[];
        Some(StoredObjects {
            size,
            digests: digests.map_err(|_| StoredFlaw::Contradictory("truncated digest of an object"))?,
        })
    };
    if objects.as_ref().is_some_and(|objects| !objects.fits(size)) || !rest.is_empty() {
        return Err(StoredFlaw::Contradictory("the number of objects does not match the size"));
    }
    Ok(Stored { size, mtime, digests, objects })
}

impl StoredObjects {
    /// Returns true if the number of objects matches a file of `size` bytes and is more than one.
    fn fits(&self, size: u64) -> bool {
        let count = Geometry::new(ByteLen(size), self.size).count();
        count > 1 && count == self.digests.len() as u64
    }
}

/// Removes a length-prefixed field from the front of `rest` and returns its bytes.
fn counted<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], StoredFlaw> {
    let cut_off = StoredFlaw::Contradictory("truncated digest");
    let (&len, behind) = rest.split_first().ok_or(cut_off.clone())?;
    let (part, behind) = behind.split_at_checked(usize::from(len)).ok_or(cut_off)?;
    *rest = behind;
    Ok(part)
}

/// Decodes a little-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn crc(bytes: &[u8]) -> [u8; CRC_BYTES] {
    let value = digest(Algorithm::Crc32c, bytes).value().unwrap_or(0);
    (value as u32).to_le_bytes()
}
