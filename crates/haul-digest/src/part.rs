//! One object of a file, hashed apart from the others.

use crate::adler::AdlerStream;
use crate::blake3_parts::{Blake3Part, Blake3Stream};
use crate::crc::CrcStream;
use crate::hasher::each_zero_block;
use crate::unix_sums::{SysvStream, sysv_combine};
use crate::{Algebra, Algorithm};
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
