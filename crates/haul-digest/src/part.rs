//! One object of a file, hashed apart from the others.

use crate::adler::AdlerStream;
use crate::blake3_parts::{Blake3Part, Blake3Stream};
use crate::crc::CrcStream;
use crate::hasher::{digest, each_zero_block};
use crate::unix_sums::{SysvStream, sysv_close, sysv_combine};
use crate::{Algebra, Algorithm, Digest, crc};
use haul_model::{ByteLen, ByteOffset, ByteRange};
use std::fmt;

/// Where a part stands in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartPlace {
    /// Its first byte; for BLAKE3 a multiple of the object size.
    pub offset: ByteOffset,
    /// Whether the part is the entire file (or all of it that there is to hash): BLAKE3 ends its topmost node
    /// in another way than those below.
    pub whole: bool,
}

/// The state of one part of a file in the making: its bytes go in in order, but parts may go in any order.
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

/// What is kept of a part that was hashed: its place and a state that joins with its neighbours'.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub(crate) algorithm: Algorithm,
    pub(crate) range: ByteRange,
    pub(crate) state: PartState,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum PartState {
    /// The Adler-32, CRC or sum of the part alone (for `cksum`, before the length is appended; for System V's sum,
    /// before it is folded).
    Sum(u64),
    /// A node of BLAKE3's tree.
    Blake3(Blake3Part),
}

impl PartHasher {
    /// A hasher for the part at `place`.
    ///
    /// # Panics
    /// If the algorithm does not combine; or for BLAKE3, if the offset is not a multiple of its chunk of 1,024
    /// bytes, or a part that is the whole file does not start at 0. Those are mistakes of the caller.
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

    /// What it computes.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Takes the part's next bytes.
    ///
    /// # Panics
    /// For BLAKE3, if the part grows past the largest subtree that can start at its offset: a caller that cuts
    /// a file by an object size that is a power of two never does.
    pub fn update(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        match &mut self.state {
            StreamState::Adler(inner) => inner.update(bytes),
            StreamState::Crc(inner) => inner.update(bytes),
            StreamState::Sysv(inner) => inner.update(bytes),
            StreamState::Blake3(inner) => inner.update(bytes),
        }
    }

    /// Takes `len` bytes of 0, as a hole of a sparse file reads: at once for all but BLAKE3, at that
    /// algorithm's speed there.
    pub fn update_zeros(&mut self, len: u64) {
        self.len += len;
        match &mut self.state {
            StreamState::Adler(inner) => inner.update_zeros(len),
            StreamState::Crc(inner) => inner.update_zeros(len),
            StreamState::Sysv(_) => {}
            StreamState::Blake3(inner) => each_zero_block(len, |zeros| inner.update(zeros)),
        }
    }

    /// The part, for an [`crate::Assembly`].
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
    /// Whether the digests of parts, as [`Part::digest`] writes them down, make that of the whole. System V's sum
    /// combines only before it is folded.
    pub const fn digests_join(self) -> bool {
        matches!(self.algebra(), Algebra::Combines) && !matches!(self, Algorithm::Sysv)
    }
}

impl PartHasher {
    /// The part as the whole file, which shows only at the end where a stream's length is not known before.
    ///
    /// # Panics
    /// If the part does not begin at 0: a mistake of the caller.
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
    /// What it was hashed with.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The bytes it stands for.
    pub fn range(&self) -> ByteRange {
        self.range
    }

    /// What is written down of a part, to be made one again by [`Part::from_digest`]. For Adler-32 and the CRCs the
    /// digest of the part's bytes as of a file of their own; for BLAKE3 the chaining value of the part's subtree, or
    /// the file's digest if the part is the whole file (or holds no bytes).
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

    /// The part of `len` bytes at `place` that [`Part::digest`] wrote down.
    ///
    /// # Panics
    /// Unless [`Algorithm::digests_join`]: a mistake of the caller.
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

/// The sums that are linear: the value of two neighbours follows from theirs and the right one's length.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinearSum {
    Adler,
    Crc(&'static crate::crc::CrcSpec),
    Sysv,
}

impl LinearSum {
    /// The sum behind an algorithm; `None` for BLAKE3 and all that are serial.
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

    /// The value of no bytes.
    pub(crate) fn empty(self) -> u64 {
        match self {
            LinearSum::Adler => u64::from(crate::adler::ADLER_EMPTY),
            LinearSum::Crc(spec) => spec.empty(),
            LinearSum::Sysv => 0,
        }
    }

    /// The value of two neighbours; `right_len` is the length of the right one in bytes.
    pub(crate) fn combine(self, left: u64, right: u64, right_len: u64) -> u64 {
        match self {
            LinearSum::Adler => u64::from(crate::adler::adler_combine(left as u32, right as u32, right_len)),
            LinearSum::Crc(spec) => spec.combine(left, right, right_len),
            LinearSum::Sysv => u64::from(sysv_combine(left as u32, right as u32)),
        }
    }
}
