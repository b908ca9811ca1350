//! Slow, readable reference implementations. Each follows its standard line by line and shares no
//! code with the crate under test.

mod blake2b;
mod blake3;
mod sm3;
mod xxh3;

use haul_digest::{Algorithm, Blake3Mode, Digest, digest};

/// Returns the digest of the reference; `None` if this module has none for the algorithm.
pub(crate) fn bytes(algorithm: Algorithm, bytes: &[u8]) -> Option<Vec<u8>> {
    let width = algorithm.digest_len();
    Some(match algorithm {
        Algorithm::Blake2b | Algorithm::Blake2bOf(_) => blake2b::blake2b(bytes, width),
        Algorithm::Blake3 => blake3_output(&Blake3Mode::Hash, bytes, 0, width),
        Algorithm::Sm3 => sm3::sm3(bytes),
        Algorithm::Xxh3_64 => xxh3::xxh3_64(bytes).to_be_bytes().to_vec(),
        Algorithm::Xxh3_128 => xxh3::xxh3_128(bytes).to_be_bytes().to_vec(),
        _ => number(algorithm, bytes)?.to_be_bytes()[8 - width..].to_vec(),
    })
}

/// Returns BLAKE3's output in any mode, from byte `seek`.
pub(crate) fn blake3_output(mode: &Blake3Mode, bytes: &[u8], seek: u64, len: usize) -> Vec<u8> {
    blake3::blake3(mode, bytes, seek, len)
}

/// Returns BLAKE3's chaining value of a part that starts at byte `start` of a larger file.
pub(crate) fn blake3_inner(bytes: &[u8], start: usize) -> Vec<u8> {
    blake3::inner(bytes, start)
}

/// Parameters of a CRC as in the catalogue of parametrised CRC algorithms.
struct CrcTwin {
    width: u32,
    poly: u64,
    init: u64,
    reflected: bool,
    xorout: u64,
}

/// Returns the value of a numeric algorithm; `None` if this module has no reference for it.
pub(crate) fn number(algorithm: Algorithm, bytes: &[u8]) -> Option<u64> {
    const ONES_32: u64 = 0xffff_ffff;
    let crc = |width, poly, init, reflected, xorout| {
        Some(CrcTwin { width, poly, init, reflected, xorout }.over(bytes))
    };
    match algorithm {
        Algorithm::Adler32 => Some(adler32(bytes)),
        Algorithm::Crc32 => crc(32, 0x04c1_1db7, ONES_32, true, ONES_32),
        Algorithm::Crc32c => crc(32, 0x1edc_6f41, ONES_32, true, ONES_32),
        Algorithm::Cksum => Some(cksum(bytes)),
        Algorithm::Crc64Nvme => crc(64, 0xad93_d235_94c9_3659, u64::MAX, true, u64::MAX),
        Algorithm::Crc64Xz => crc(64, 0x42f0_e1eb_a9ea_3693, u64::MAX, true, u64::MAX),
        Algorithm::Crc64Eos => crc(64, 0x42f0_e1eb_a9ea_3693, 0, false, 0),
        Algorithm::Crc16 => crc(16, 0x1021, 0xffff, true, 0xffff),
        Algorithm::Bsd => Some(bsd(bytes)),
        Algorithm::Sysv => Some(sysv(bytes)),
        Algorithm::Xxh32 => Some(u64::from(xxh32(bytes))),
        Algorithm::Xxh64 => Some(xxh64(bytes)),
        _ => None,
    }
}

impl CrcTwin {
    /// Computes the CRC one bit at a time. If reflected, a byte's lowest bit comes first. The
    /// register's high bit leaves first.
    fn over(&self, bytes: &[u8]) -> u64 {
        let top = 1u64 << (self.width - 1);
        let mask = top | (top - 1);
        let mut register = self.init;
        for &byte in bytes {
            for bit in 0..8 {
                let place = if self.reflected { bit } else { 7 - bit };
                let incoming = u64::from(byte >> place & 1);
                let leaving = register >> (self.width - 1) & 1;
                register = register << 1 & mask;
                if incoming != leaving {
                    register ^= self.poly;
                }
            }
        }
        let out = if self.reflected { register.reverse_bits() >> (64 - self.width) } else { register };
        out ^ self.xorout
    }
}

/// POSIX: the CRC covers the bytes and then their number, low byte first, without leading zeros.
fn cksum(bytes: &[u8]) -> u64 {
    let mut all = bytes.to_vec();
    let mut len = bytes.len();
    while len > 0 {
        all.push((len & 0xff) as u8);
        len >>= 8;
    }
    CrcTwin { width: 32, poly: 0x04c1_1db7, init: 0, reflected: false, xorout: 0xffff_ffff }.over(&all)
}

/// RFC 1950, with a division for every byte.
fn adler32(bytes: &[u8]) -> u64 {
    let (mut a, mut b) = (1u64, 0u64);
    for &byte in bytes {
        a = (a + u64::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    b << 16 | a
}

/// BSD's `sum`: rotates a 16-bit sum right by one, then adds the byte.
fn bsd(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, &byte| ((sum >> 1) + ((sum & 1) << 15) + u64::from(byte)) & 0xffff)
}

/// System V's `sum`: adds the bytes modulo 2^32, adds the halves, and adds the carry of that too.
fn sysv(bytes: &[u8]) -> u64 {
    let sum = bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>() % (1 << 32);
    let halves = sum % (1 << 16) + (sum >> 16);
    halves % (1 << 16) + (halves >> 16)
}

/// The specification of XXH32 (xxHash's doc/xxhash_spec.md), seed 0.
fn xxh32(bytes: &[u8]) -> u32 {
    const P: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let round = |lane: u32, input: u32| {
        lane.wrapping_add(input.wrapping_mul(P[1])).rotate_left(13).wrapping_mul(P[0])
    };
    let stripes = bytes.chunks_exact(16);
    let mut rest = stripes.remainder();
    let mut hash = P[4];
    if bytes.len() >= 16 {
        let mut lanes = [P[0].wrapping_add(P[1]), P[1], 0, 0u32.wrapping_sub(P[0])];
        for stripe in stripes {
            for (lane, input) in lanes.iter_mut().zip(stripe.chunks_exact(4)) {
                *lane = round(*lane, word(input));
            }
        }
        let turned = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
        hash = turned.fold(0, u32::wrapping_add);
    }
    hash = hash.wrapping_add(bytes.len() as u32);
    while let Some((head, tail)) = rest.split_at_checked(4) {
        hash = hash.wrapping_add(word(head).wrapping_mul(P[2])).rotate_left(17).wrapping_mul(P[3]);
        rest = tail;
    }
    for &byte in rest {
        hash = hash.wrapping_add(u32::from(byte).wrapping_mul(P[4])).rotate_left(11).wrapping_mul(P[0]);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(P[1]);
    hash = (hash ^ hash >> 13).wrapping_mul(P[2]);
    hash ^ hash >> 16
}

/// The specification of XXH64, seed 0.
fn xxh64(bytes: &[u8]) -> u64 {
    const P: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let round = |lane: u64, input: u64| {
        lane.wrapping_add(input.wrapping_mul(P[1])).rotate_left(31).wrapping_mul(P[0])
    };
    let stripes = bytes.chunks_exact(32);
    let mut rest = stripes.remainder();
    let mut hash = P[4];
    if bytes.len() >= 32 {
        let mut lanes = [P[0].wrapping_add(P[1]), P[1], 0, 0u64.wrapping_sub(P[0])];
        for stripe in stripes {
            for (lane, input) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, word(input));
            }
        }
        let turned = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
        hash = turned.fold(0, u64::wrapping_add);
        for lane in lanes {
            hash = (hash ^ round(0, lane)).wrapping_mul(P[0]).wrapping_add(P[3]);
        }
    }
    hash = hash.wrapping_add(bytes.len() as u64);
    while let Some((head, tail)) = rest.split_at_checked(8) {
        hash = (hash ^ round(0, word(head))).rotate_left(27).wrapping_mul(P[0]).wrapping_add(P[3]);
        rest = tail;
    }
    if let Some((head, tail)) = rest.split_at_checked(4) {
        let input = u64::from(u32::from_le_bytes(head.try_into().unwrap()));
        hash = (hash ^ input.wrapping_mul(P[0])).rotate_left(23).wrapping_mul(P[1]).wrapping_add(P[2]);
        rest = tail;
    }
    for &byte in rest {
        hash = (hash ^ u64::from(byte).wrapping_mul(P[4])).rotate_left(11).wrapping_mul(P[0]);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(P[1]);
    hash = (hash ^ hash >> 29).wrapping_mul(P[2]);
    hash ^ hash >> 32
}

/// Returns the root of a hash tree, directly from its definition.
pub(crate) fn tree(algorithm: Algorithm, bytes: &[u8], leaf: usize) -> Digest {
    let leaves = bytes.len().div_ceil(leaf);
    if leaves <= 1 {
        return digest(algorithm, bytes);
    }
    let mut left_leaves = 1;
    while left_leaves * 2 < leaves {
        left_leaves *= 2;
    }
    let (left, right) = bytes.split_at(left_leaves * leaf);
    let children = [tree(algorithm, left, leaf), tree(algorithm, right, leaf)];
    digest(algorithm, &children.map(|child| child.as_bytes().to_vec()).concat())
}
