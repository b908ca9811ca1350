//! Slow reference implementation: MD5 and SHA as in their standards, one complete padded message at
//! a time.

use super::LaneAlgorithm;
use super::sha2::ROOTS_512;

/// Returns the digest of a message, exactly as in RFC 1321 and FIPS 180-4.
pub(super) fn digest(algorithm: LaneAlgorithm, message: &[u8]) -> Vec<u8> {
    match algorithm {
        LaneAlgorithm::Md5 => md5(message),
        LaneAlgorithm::Sha1 => sha1(message),
        LaneAlgorithm::Sha224 | LaneAlgorithm::Sha256 => sha256(algorithm, message),
        LaneAlgorithm::Sha384 | LaneAlgorithm::Sha512 => sha512(algorithm, message),
    }
}

/// Appends a one bit and zeros until `block` minus `length` bytes are in the last block, then the
/// length.
fn padded(message: &[u8], block: usize, length: &[u8]) -> Vec<u8> {
    let mut out = message.to_vec();
    out.push(0x80);
    while out.len() % block != block - length.len() {
        out.push(0);
    }
    out.extend_from_slice(length);
    out
}

fn md5(message: &[u8]) -> Vec<u8> {
    const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let bits = (message.len() as u64 * 8).to_le_bytes();
    for block in padded(message, 64, &bits).chunks(64) {
        let x: Vec<u32> =
            block.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect();
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64 {
            let (f, k) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((b & d) | (c & !d), (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), (7 * i) % 16),
            };
            let sine = (4_294_967_296.0 * ((i + 1) as f64).sin().abs()) as u32;
            let sum = a.wrapping_add(f).wrapping_add(x[k]).wrapping_add(sine);
            (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(TURNS[i / 16][i % 4])));
        }
        for (word, add) in state.iter_mut().zip([a, b, c, d]) {
            *word = word.wrapping_add(add);
        }
    }
    state.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn sha1(message: &[u8]) -> Vec<u8> {
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let bits = (message.len() as u64 * 8).to_be_bytes();
    for block in padded(message, 64, &bits).chunks(64) {
        let mut w: Vec<u32> =
            block.chunks(4).map(|word| u32::from_be_bytes(word.try_into().expect("four bytes"))).collect();
        for t in 16..80 {
            w.push((w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16]).rotate_left(1));
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (t, word) in w.iter().enumerate() {
            let (f, k) = match t / 20 {
                0 => ((b & c) ^ (!b & d), 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => ((b & c) ^ (b & d) ^ (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6u32),
            };
            let sum = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum);
        }
        for (word, add) in state.iter_mut().zip([a, b, c, d, e]) {
            *word = word.wrapping_add(add);
        }
    }
    state.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns the first `count` primes.
fn primes(count: usize) -> Vec<u128> {
    (2..).filter(|n| (2..*n).all(|d| n % d != 0)).take(count).collect()
}

/// Returns the largest number whose `power` is at most `of`, by bisection.
fn root(of: u128, power: u32) -> u128 {
    let (mut low, mut high) = (0u128, 1 << 40);
    while low + 1 < high {
        let middle = (low + high) / 2;
        if middle.pow(power) <= of { low = middle } else { high = middle }
    }
    low
}

fn sha256(algorithm: LaneAlgorithm, message: &[u8]) -> Vec<u8> {
    // Fractional bits of roots of primes: 32 of the cube roots, 32 of the square roots. SHA-224 has
    // another initial state.
    let k: Vec<u32> = primes(64).into_iter().map(|p| root(p << 96, 3) as u32).collect();
    let mut state: Vec<u32> = if algorithm == LaneAlgorithm::Sha256 {
        primes(8).into_iter().map(|p| root(p << 64, 2) as u32).collect()
    } else {
        vec![
            0xc105_9ed8,
            0x367c_d507,
            0x3070_dd17,
            0xf70e_5939,
            0xffc0_0b31,
            0x6858_1511,
            0x64f9_8fa7,
            0xbefa_4fa4,
        ]
    };
    let bits = (message.len() as u64 * 8).to_be_bytes();
    for block in padded(message, 64, &bits).chunks(64) {
        let mut w: Vec<u32> =
            block.chunks(4).map(|word| u32::from_be_bytes(word.try_into().expect("four bytes"))).collect();
        for t in 16..64 {
            let one = w[t - 2].rotate_right(17) ^ w[t - 2].rotate_right(19) ^ (w[t - 2] >> 10);
            let zero = w[t - 15].rotate_right(7) ^ w[t - 15].rotate_right(18) ^ (w[t - 15] >> 3);
            w.push(one.wrapping_add(w[t - 7]).wrapping_add(zero).wrapping_add(w[t - 16]));
        }
        let mut v = state.clone();
        for t in 0..64 {
            let one = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
            let first = v[7].wrapping_add(one).wrapping_add(choice).wrapping_add(k[t]).wrapping_add(w[t]);
            let zero = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
            v.rotate_right(1);
            v[4] = v[4].wrapping_add(first);
            v[0] = first.wrapping_add(zero).wrapping_add(majority);
        }
        for (word, add) in state.iter_mut().zip(v) {
            *word = word.wrapping_add(add);
        }
    }
    state.iter().flat_map(|word| word.to_be_bytes()).take(algorithm.digest_len()).collect()
}

fn sha512(algorithm: LaneAlgorithm, message: &[u8]) -> Vec<u8> {
    let mut state = algorithm.start().to_vec();
    let bits = (message.len() as u128 * 8).to_be_bytes();
    for block in padded(message, 128, &bits).chunks(128) {
        let mut w: Vec<u64> =
            block.chunks(8).map(|word| u64::from_be_bytes(word.try_into().expect("eight bytes"))).collect();
        for t in 16..80 {
            let one = w[t - 2].rotate_right(19) ^ w[t - 2].rotate_right(61) ^ (w[t - 2] >> 6);
            let zero = w[t - 15].rotate_right(1) ^ w[t - 15].rotate_right(8) ^ (w[t - 15] >> 7);
            w.push(one.wrapping_add(w[t - 7]).wrapping_add(zero).wrapping_add(w[t - 16]));
        }
        let mut v = state.clone();
        for t in 0..80 {
            let one = v[4].rotate_right(14) ^ v[4].rotate_right(18) ^ v[4].rotate_right(41);
            let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
            let first =
                v[7].wrapping_add(one).wrapping_add(choice).wrapping_add(ROOTS_512[t]).wrapping_add(w[t]);
            let zero = v[0].rotate_right(28) ^ v[0].rotate_right(34) ^ v[0].rotate_right(39);
            let majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
            v.rotate_right(1);
            v[4] = v[4].wrapping_add(first);
            v[0] = first.wrapping_add(zero).wrapping_add(majority);
        }
        for (word, add) in state.iter_mut().zip(v) {
            *word = word.wrapping_add(add);
        }
    }
    state.iter().flat_map(|word| word.to_be_bytes()).take(algorithm.digest_len()).collect()
}
