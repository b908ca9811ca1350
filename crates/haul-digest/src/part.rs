//! Hashing of one object of a file, independent of the others.

use crate::adler::AdlerStream;
use crate::blake3_parts::{Blake3Part, Blake3Stream};
use crate::crc::CrcStream;
use crate::hasher::{digest, each_zero_block};
use crate::unix_sums::{SysvStream, sysv_close, sysv_combine};
use crate::{Algebra, Algorithm, Digest, crc};
use haul_model::{ByteLen, ByteOffset, ByteRange};
use std::fmt;

/// Place of a part in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartPlace {
    /// Offset of its first byte; for BLAKE3 a multiple of the object size.
    pub offset: ByteOffset,
    /// True if the part is the complete file (or all of it that is hashed): BLAKE3 finalizes its
    /// root differently from the nodes below.
    pub whole: bool,
}

/// Running state of one part of a file: its bytes are fed in order, but parts can be hashed in any
/// order.
#[derive(Clone)]
pub struct PartHasher {
    algorithm: Algorithm,
    start: ByteOffset,
    len: u64,
    state: StreamState,
}

#[derive(Clone)]
enum StreamState {
    Adler(AdlerStream),
    Crc(CrcStream),
    Sysv(SysvStream),
    Blake3(Blake3Stream),
}

/// Result of hashing a part: its place, and a state that can be combined with those of its
/// neighbors.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub(crate) algorithm: Algorithm,
    pub(crate) range: ByteRange,
    pub(crate) state: PartState,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum PartState {
    /// The Adler-32, CRC or sum of the part alone. For `cksum` this is the value before the length
    /// is appended, for System V's sum the value before folding.
    Sum(u64),
    /// A node of the BLAKE3 tree.
    Blake3(Blake3Part),
}

impl PartHasher {
    /// Returns a hasher for the part at `place`.
    ///
    /// # Panics
    ///
    /// Panics if the algorithm does not combine. For BLAKE3, panics if the offset is not a multiple
    /// of its chunk of 1,024 bytes. Also panics if a BLAKE3 part that is the complete file does not
    /// start at 0.
    pub fn new(algorithm: Algorithm, place: PartPlace) -> PartHasher {
        assert_eq!(algorithm.algebra(), Algebra::Combines, "{algorithm} must be fed in order");
        let state = match LinearSum::of(algorithm) {
            Some(LinearSum::Adler) => StreamState::Adler(AdlerStream::new()),
            Some(LinearSum::Crc(spec)) => StreamState::Crc(CrcStream::new(spec)),
            Some(LinearSum::Sysv) => StreamState::Sysv(SysvStream::default()),
            None => StreamState::Blake3(Blake3Stream::new(place)),
        };
        PartHasher { algorithm, start: place.offset, len: 0, state }
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Feeds the next bytes of the part.
    ///
    /// # Panics
    ///
    /// Panics for BLAKE3 if the part exceeds the largest subtree that can start at its offset. This
    /// cannot happen if the object size is a power of two.
    pub fn update(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        match &mut self.state {
            StreamState::Adler(inner) => inner.update(bytes),
            StreamState::Crc(inner) => inner.update(bytes),
            StreamState::Sysv(inner) => inner.update(bytes),
            StreamState::Blake3(inner) => inner.update(bytes),
        }
    }

    /// Feeds `len` zero bytes, like a hole of a sparse file. This is immediate for all algorithms
    /// except BLAKE3, which runs at its normal speed.
    pub fn update_zeros(&mut self, len: u64) {
        self.len += len;
        match &mut self.state {
            StreamState::Adler(inner) => inner.update_zeros(len),
            StreamState::Crc(inner) => inner.update_zeros(len),
            StreamState::Sysv(_) => {}
            StreamState::Blake3(inner) => each_zero_block(len, |zeros| inner.update(zeros)),
        }
    }

    /// Returns the part, for an [`crate::Assembly`].
    pub fn finish(self) -> Part {
        let state = match self.state {
            StreamState::Adler(inner) => PartState::Sum(u64::from(inner.value())),
            StreamState::Crc(inner) => PartState::Sum(inner.value()),
            StreamState::Sysv(inner) => PartState::Sum(u64::from(inner.value())),
            StreamState::Blake3(inner) => PartState::Blake3(inner.finish()),
        };
        Part { algorithm: self.algorithm, range: ByteRange::from_len(self.start, ByteLen(self.len)), state }
    }
}

impl Algorithm {
    /// Returns true if the digests of parts, as [`Part::digest`] returns them, can be combined into
    /// that of the file. System V's sum combines only before it is folded.
    pub const fn digests_join(self) -> bool {
        matches!(self.algebra(), Algebra::Combines) && !matches!(self, Algorithm::Sysv)
    }
}

impl PartHasher {
    /// Returns the part as the complete file, for a stream whose length is known only at its end.
    ///
    /// # Panics
    ///
    /// Panics if the part does not start at 0.
    pub fn finish_whole(mut self) -> Part {
        assert_eq!(self.start, ByteOffset(0), "a part that is the whole file starts at 0");
        if let StreamState::Blake3(inner) = &mut self.state {
            inner.end_as_whole();
        }
        self.finish()
    }
}

impl fmt::Debug for PartHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartHasher")
            .field("algorithm", &self.algorithm)
            .field("start", &self.start)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Part {
    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the range of bytes of the part.
    pub fn range(&self) -> ByteRange {
        self.range
    }

    /// Returns a digest from which [`Part::from_digest`] can restore the part.
    ///
    /// For Adler-32 and the CRCs it is the digest of the bytes of the part as a separate file. For
    /// BLAKE3 it is the chaining value of the subtree of the part. If the part is the complete file
    /// (or empty), it is the digest of the file.
    pub fn digest(&self) -> Digest {
        let len = self.range.len();
        match self.state {
            PartState::Sum(value) if self.algorithm == Algorithm::Cksum => {
                Digest::from_value(self.algorithm, crc::cksum_close(value, len))
            }
            PartState::Sum(value) if self.algorithm == Algorithm::Sysv => {
                Digest::from_value(self.algorithm, u64::from(sysv_close(value as u32)))
            }
            PartState::Sum(value) => Digest::from_value(self.algorithm, value),
            PartState::Blake3(Blake3Part::Whole(bytes) | Blake3Part::Inner(bytes)) => {
                Digest::from_exact(self.algorithm, &bytes)
            }
            PartState::Blake3(Blake3Part::Empty) => digest(self.algorithm, &[]),
        }
    }

    /// Returns the part of `len` bytes at `place` from its [`Part::digest`].
    ///
    /// # Panics
    ///
    /// Panics if [`Algorithm::digests_join`] is false.
    pub fn from_digest(digest: Digest, place: PartPlace, len: ByteLen) -> Part {
        let algorithm = digest.algorithm();
        assert!(algorithm.digests_join(), "{algorithm} has no parts that can be read back");
        let state = match digest.value() {
            Some(value) if algorithm == Algorithm::Cksum => PartState::Sum(crc::cksum_open(value, len.0)),
            Some(value) => PartState::Sum(value),
            None => {
                let mut bytes = [0; blake3::OUT_LEN];
                bytes.copy_from_slice(digest.as_bytes());
                PartState::Blake3(match (place.whole, len.0) {
                    (true, _) => Blake3Part::Whole(bytes),
                    (false, 0) => Blake3Part::Empty,
                    (false, _) => Blake3Part::Inner(bytes),
                })
            }
        };
        Part { algorithm, range: ByteRange::from_len(place.offset, len), state }
    }
}

/// The linear sums: the value of two adjacent ranges follows from their values and the length of
/// the right one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinearSum {
    Adler,
    Crc(&'static crate::crc::CrcSpec),
    Sysv,
}

impl LinearSum {
    /// Returns the sum of an algorithm, or `None` for BLAKE3 and all serial algorithms.
    pub(crate) fn of(algorithm: Algorithm) -> Option<LinearSum> {
        use crate::crc;
        Some(match algorithm {
            Algorithm::Adler32 => LinearSum::Adler,
            Algorithm::Crc32 => LinearSum::Crc(&crc::CRC32),
            Algorithm::Crc32c => LinearSum::Crc(&crc::CRC32C),
            Algorithm::Cksum => LinearSum::Crc(&crc::CKSUM),
            Algorithm::Crc64Nvme => LinearSum::Crc(&crc::CRC64_NVME),
            Algorithm::Crc64Xz => LinearSum::Crc(&crc::CRC64_XZ),
            Algorithm::Crc64Eos => LinearSum::Crc(&crc::CRC64_EOS),
            Algorithm::Crc16 => LinearSum::Crc(&crc::CRC16),
            Algorithm::Sysv => LinearSum::Sysv,
            _ => return None,
        })
    }

    /// Returns the value of zero bytes of input.
    pub(crate) fn empty(self) -> u64 {
        match self {
            LinearSum::Adler => u64::from(crate::adler::ADLER_EMPTY),
            LinearSum::Crc(spec) => spec.empty(),
            LinearSum::Sysv => 0,
        }
    }

    /// Returns the value of two adjacent ranges; `right_len` is the length of the right one in
    /// bytes.
    pub(crate) fn combine(self, left: u64, right: u64, right_len: u64) -> u64 {
        match self {
            LinearSum::Adler => u64::from(crate::adler::adler_combine(left as u32, right as u32, right_len)),
            LinearSum::Crc(spec) => spec.combine(left, right, right_len),
            LinearSum::Sysv => u64::from(sysv_combine(left as u32, right as u32)),
        }
    }
}
