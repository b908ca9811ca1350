//! Hasher of one stream, fed from its first byte to its last.

use crate::adler::AdlerStream;
use crate::blake2b_len::ShortBlake2b;
use crate::crc::{self, CrcSpec, CrcStream};
use crate::md5::Md5;
use crate::sha::{Sha, ShaKind};
use crate::unix_sums::{BsdStream, SysvStream, sysv_close};
use crate::{Algorithm, Digest};
use blake2::Digest as _;
use std::fmt;
use std::hash::Hasher as _;

/// Zeros of a hole, for the algorithms that must process each byte: 64 KiB stay in the first-level
/// caches.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// A running digest: bytes are fed in order, in pieces of any size.
#[derive(Clone)]
pub struct Hasher {
    algorithm: Algorithm,
    state: State,
}

/// Implementations. Large states are boxed, so that a hasher of about 100 bytes is cheap to move.
#[derive(Clone)]
enum State {
    Adler(AdlerStream),
    Crc(CrcStream),
    Cksum(CrcStream, u64),
    Md5(Md5),
    Sha(Sha),
    Bsd(BsdStream),
    Sysv(SysvStream),
    /// AWS-LC does not provide SHA3-224.
    Sha3_224(Box<sha3::Sha3_224>),
    Sm3(Box<sm3::Sm3>),
    Blake2b(Box<blake2::Blake2b512>),
    Blake2bOf(Box<ShortBlake2b>),
    Blake3(Box<blake3::Hasher>),
    Xxh32(Box<twox_hash::XxHash32>),
    Xxh64(Box<twox_hash::XxHash64>),
    Xxh3_64(Box<twox_hash::xxhash3_64::Hasher>),
    Xxh3_128(Box<twox_hash::xxhash3_128::Hasher>),
}

/// Returns the digest of `bytes`.
pub fn digest(algorithm: Algorithm, bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(bytes);
    hasher.finish()
}

impl Hasher {
    /// Returns a hasher without input.
    pub fn new(algorithm: Algorithm) -> Hasher {
        Hasher { algorithm, state: State::new(algorithm) }
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Feeds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Adler(inner) => inner.update(bytes),
            State::Crc(inner) => inner.update(bytes),
            State::Cksum(inner, len) => {
                inner.update(bytes);
                *len += bytes.len() as u64;
            }
            State::Md5(inner) => inner.update(bytes),
            State::Sha(inner) => inner.update(bytes),
            State::Bsd(inner) => inner.update(bytes),
            State::Sysv(inner) => inner.update(bytes),
            State::Sha3_224(inner) => inner.update(bytes),
            State::Sm3(inner) => inner.update(bytes),
            State::Blake2b(inner) => inner.update(bytes),
            State::Blake2bOf(inner) => inner.update(bytes),
            State::Blake3(inner) => {
                inner.update(bytes);
            }
            State::Xxh32(inner) => inner.write(bytes),
            State::Xxh64(inner) => inner.write(bytes),
            State::Xxh3_64(inner) => inner.write(bytes),
            State::Xxh3_128(inner) => inner.write(bytes),
        }
    }

    /// Feeds `len` zero bytes, like a hole of a sparse file.
    ///
    /// This takes constant or logarithmic time for Adler-32, the CRCs and System V's sum, and runs
    /// at the speed of the algorithm for all others.
    pub fn update_zeros(&mut self, len: u64) {
        match &mut self.state {
            State::Adler(inner) => inner.update_zeros(len),
            State::Crc(inner) => inner.update_zeros(len),
            State::Cksum(inner, total) => {
                inner.update_zeros(len);
                *total += len;
            }
            // Zeros add nothing.
            State::Sysv(_) => {}
            _ => each_zero_block(len, |zeros| self.update(zeros)),
        }
    }

    /// Returns the digest of all bytes so far.
    pub fn finish(self) -> Digest {
        let algorithm = self.algorithm;
        let number = |value| Digest::from_value(algorithm, value);
        let exact = |bytes: &[u8]| Digest::from_exact(algorithm, bytes);
        match self.state {
            State::Adler(inner) => number(u64::from(inner.value())),
            State::Crc(inner) => number(inner.value()),
            State::Cksum(inner, len) => number(crc::cksum_close(inner.value(), len)),
            State::Md5(inner) => exact(&inner.finish()),
            State::Sha(inner) => inner.finish(exact),
            State::Bsd(inner) => number(u64::from(inner.value())),
            State::Sysv(inner) => number(u64::from(sysv_close(inner.value()))),
            State::Sha3_224(inner) => exact(&inner.finalize()),
            State::Sm3(inner) => exact(&inner.finalize()),
            State::Blake2b(inner) => exact(&inner.finalize()),
            State::Blake2bOf(inner) => inner.finish(exact),
            State::Blake3(inner) => exact(inner.finalize().as_bytes()),
            State::Xxh32(inner) => number(u64::from(inner.finish_32())),
            State::Xxh64(inner) => number(inner.finish()),
            State::Xxh3_64(inner) => number(inner.finish()),
            State::Xxh3_128(inner) => exact(&inner.finish_128().to_be_bytes()),
        }
    }
}

impl State {
    fn new(algorithm: Algorithm) -> State {
        let crc = |spec: &'static CrcSpec| State::Crc(CrcStream::new(spec));
        match algorithm {
            Algorithm::Adler32 => State::Adler(AdlerStream::new()),
            Algorithm::Crc32 => crc(&crc::CRC32),
            Algorithm::Crc32c => crc(&crc::CRC32C),
            Algorithm::Cksum => State::Cksum(CrcStream::new(&crc::CKSUM), 0),
            Algorithm::Crc64Nvme => crc(&crc::CRC64_NVME),
            Algorithm::Crc64Xz => crc(&crc::CRC64_XZ),
            Algorithm::Crc64Eos => crc(&crc::CRC64_EOS),
            Algorithm::Crc16 => crc(&crc::CRC16),
            Algorithm::Md5 => State::Md5(Md5::new()),
            Algorithm::Sha1 => State::Sha(Sha::new(ShaKind::Sha1)),
            Algorithm::Sha224 => State::Sha(Sha::new(ShaKind::Sha224)),
            Algorithm::Sha256 => State::Sha(Sha::new(ShaKind::Sha256)),
            Algorithm::Sha384 => State::Sha(Sha::new(ShaKind::Sha384)),
            Algorithm::Sha512 => State::Sha(Sha::new(ShaKind::Sha512)),
            Algorithm::Bsd => State::Bsd(BsdStream::default()),
            Algorithm::Sysv => State::Sysv(SysvStream::default()),
            Algorithm::Sha3_224 => State::Sha3_224(Box::default()),
            Algorithm::Sha3_256 => State::Sha(Sha::new(ShaKind::Sha3_256)),
            Algorithm::Sha3_384 => State::Sha(Sha::new(ShaKind::Sha3_384)),
            Algorithm::Sha3_512 => State::Sha(Sha::new(ShaKind::Sha3_512)),
            Algorithm::Sm3 => State::Sm3(Box::default()),
            Algorithm::Blake2b => State::Blake2b(Box::default()),
            Algorithm::Blake2bOf(len) => State::Blake2bOf(Box::new(ShortBlake2b::new(len))),
            Algorithm::Blake3 => State::Blake3(Box::default()),
            Algorithm::Xxh32 => State::Xxh32(Box::new(twox_hash::XxHash32::with_seed(0))),
            Algorithm::Xxh64 => State::Xxh64(Box::new(twox_hash::XxHash64::with_seed(0))),
            Algorithm::Xxh3_64 => State::Xxh3_64(Box::new(twox_hash::xxhash3_64::Hasher::new())),
            Algorithm::Xxh3_128 => State::Xxh3_128(Box::new(twox_hash::xxhash3_128::Hasher::new())),
        }
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// Calls `take` with blocks of zeros that have `len` bytes in total.
pub(crate) fn each_zero_block(len: u64, mut take: impl FnMut(&[u8])) {
    let mut rest = len;
    while rest > 0 {
        let now = rest.min(ZEROS.len() as u64);
        take(&ZEROS[..now as usize]);
        rest -= now;
    }
}
