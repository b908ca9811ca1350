//! This project's form.

use crate::waybill::Moment;
use haul_digest::{Algorithm, Digest, digest};
use haul_model::{ByteLen, Geometry, ObjectSize};
use thiserror::Error;

/// The version that is written, and the highest that is read.
pub const VERSION: u8 = 1;

/// The longest value that is read: the objects of 8 TiB in pieces of 4 MiB.
pub const STORED_BYTES_MAX: usize = 64 << 20;

/// What every value begins with.
const MAGIC: [u8; 8] = *b"haulsums";

/// Bytes before the digests.
const HEAD_BYTES: usize = 32;

/// Bytes of the CRC at the end.
const CRC_BYTES: usize = 4;

/// Bytes of an object's digest, which is BLAKE3's.
const OBJECT_BYTES: usize = 32;

/// What was known of a file's bytes when the digests were stored.
///
/// ```text
///   0        8   9      10      11     12      16     24     32
///   +--------+---+------+-------+------+-------+------+------+-----------------+------------------+-------+
///   |haulsums|ver|object|digests|  0   | nsec  | sec  | size | digests         | objects          | CRC   |
///   +--------+---+------+-------+------+-------+------+------+-----------------+------------------+-------+
///       8      1    1       1      1       4       8      8    (1 + n + 1 + d)    32 bytes each       4
/// ```
/// Numbers have their low byte first. `object` is the binary logarithm of the object size, or 0 where no objects are kept.
/// A digest is the length of its algorithm's name, the name, the length of the digest, the digest. The CRC-32C covers all
/// before it. What a reader must know first stands first; what grows stands last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// How many bytes the file had.
    pub size: u64,
    /// Its modification time.
    pub mtime: Moment,
    /// Digests of all of its bytes, at most one of each algorithm and 255 in all.
    pub digests: Vec<Digest>,
    /// Digests of its objects, where it has more than one.
    pub objects: Option<StoredObjects>,
}

/// The digests of a file's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObjects {
    /// The size of all but the last.
    pub size: ObjectSize,
    /// BLAKE3 of each, in order: the chaining value of its subtree (see [`haul_digest::Part::digest`]).
    pub digests: Vec<Digest>,
}

/// Why bytes are no stored value.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoredFlaw {
    /// They begin with something else.
    #[error("they are of another kind")]
    NotOurs,
    /// A later version wrote them.
    #[error("they are of version {0}, this program knows {VERSION}; use a newer one")]
    Newer(u8),
    /// Their CRC says that bytes were changed, or some are missing.
    #[error("they are damaged themselves: their own CRC differs; store them anew")]
    Damaged,
    /// The CRC is right, but the fields contradict each other.
    #[error("they contradict themselves: {0}; store them anew")]
    Contradictory(&'static str),
}

impl Stored {
    /// The bytes of this value.
    ///
    /// # Panics
    /// If there are more than 255 digests, or the objects are not those of the size: mistakes of the caller.
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

    /// The value that these bytes are.
    ///
    /// # Errors
    /// [`StoredFlaw`]. Digests of algorithms that this program does not know are passed over.
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

/// Reads what the CRC vouches for: at least a head.
fn decode_covered(bytes: &[u8]) -> Result<Stored, StoredFlaw> {
    let (head, mut rest) = bytes.split_at(HEAD_BYTES);
    let (log, count) = (head[9], head[10]);
    let nsec = number(&head[12..16]) as u32;
    if nsec >= 1_000_000_000 {
        return Err(StoredFlaw::Contradictory("a second has 1,000,000,000 nanoseconds"));
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
        let digest = digest.map_err(|_| StoredFlaw::Contradictory("a digest is of the wrong length"))?;
        if digests.iter().any(|known| known.algorithm() == algorithm) {
            return Err(StoredFlaw::Contradictory("an algorithm has two digests"));
        }
        digests.push(digest);
    }
    let objects = if log == 0 {
        None
    } else {
        let bytes = 1_u64.checked_shl(u32::from(log));
        let object = bytes.and_then(|bytes| ObjectSize::new(bytes).ok());
        let size = object.ok_or(StoredFlaw::Contradictory("there are no objects of that size"))?;
        let parts = rest.chunks(OBJECT_BYTES).map(|part| Digest::from_bytes(Algorithm::Blake3, part));
        let digests: Result<Vec<Digest>, _> = parts.collect();
        rest = &[];
        Some(StoredObjects {
            size,
            digests: digests.map_err(|_| StoredFlaw::Contradictory("an object's digest is cut off"))?,
        })
    };
    if objects.as_ref().is_some_and(|objects| !objects.fits(size)) || !rest.is_empty() {
        return Err(StoredFlaw::Contradictory("there are more or fewer objects than the size makes"));
    }
    Ok(Stored { size, mtime, digests, objects })
}

impl StoredObjects {
    /// Whether there are as many as a file of `size` bytes has, and more than one.
    fn fits(&self, size: u64) -> bool {
        let count = Geometry::new(ByteLen(size), self.size).count();
        count > 1 && count == self.digests.len() as u64
    }
}

/// The bytes behind their own number, taken off `rest`.
fn counted<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], StoredFlaw> {
    let cut_off = StoredFlaw::Contradictory("a digest is cut off");
    let (&len, behind) = rest.split_first().ok_or(cut_off.clone())?;
    let (part, behind) = behind.split_at_checked(usize::from(len)).ok_or(cut_off)?;
    *rest = behind;
    Ok(part)
}

/// A number of up to 8 bytes, the low one first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn crc(bytes: &[u8]) -> [u8; CRC_BYTES] {
    let value = digest(Algorithm::Crc32c, bytes).value().unwrap_or(0);
    (value as u32).to_le_bytes()
}
