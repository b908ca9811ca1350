//! Constructed corruptions: changed bytes whose checksum is unchanged.
//!
//! Each function here changes data, or returns bits to flip, so that one family of checksums does
//! not detect it. They support the advice on the choice of a checksum. A sum that is easy to forge
//! on purpose also misses the faults of hardware if these have a pattern.
//!
//! Adler-32 consists of the sum of all bytes and the sum of all bytes times their distance from the
//! end, both modulo [`ADLER_PERIOD`] (RFC 1950, section 8.2). It does not detect changes that
//! preserve both: [`balance`], [`flip_line`], [`swap_twice`], [`refill_run`], [`swap_blocks`] of
//! blocks that [`equal_sums`] finds.
//!
//! A CRC is a linear map, so it does not detect the multiples of its generator polynomial.
//! [`crc_blind_flips`] finds one by elimination, for one CRC or for several at the same time.

use haul_digest::{Algorithm, Hasher};
use std::collections::HashMap;

/// Modulus of Adler-32, the largest prime below 2^16. A run of this many equal bytes has the same
/// weight as zeros, and bytes at this distance have the same weight.
pub(super) const ADLER_PERIOD: usize = 65521;

/// Adds 1 to a byte, subtracts 2 from the byte `step` later and adds 1 to the byte another `step`
/// later.
///
/// Uses the first position at or after `from` where no byte overflows. Returns the three positions.
/// Returns `None` and changes nothing if there is no such position.
pub(super) fn balance(data: &mut [u8], from: usize, step: usize) -> Option<[usize; 3]> {
    let fits = |&at: &usize| data[at] < 255 && data[at + step] >= 2 && data[at + 2 * step] < 255;
    let at = places(data.len(), from, step, 3).find(fits)?;
    data[at] += 1;
    data[at + step] -= 2;
    data[at + 2 * step] += 1;
    Some([at, at + step, at + 2 * step])
}

/// Flips one bit (0 to 7) of four bytes at equal distances, like a faulty data line. Before the
/// change the bits are 0, 1, 1, 0 or 1, 0, 0, 1.
///
/// Returns the four positions, the first at or after `from`. Returns `None` and changes nothing if
/// there are none.
///
/// # Panics
///
/// Panics if `bit` is above 7.
pub(super) fn flip_line(data: &mut [u8], from: usize, step: usize, bit: u32) -> Option<[usize; 4]> {
    assert!(bit < 8, "a byte has eight bits");
    let mask = 1_u8 << bit;
    let set = |at: usize| data[at] & mask != 0;
    let fits = |&at: &usize| {
        let [a, b, c, d] = [set(at), set(at + step), set(at + 2 * step), set(at + 3 * step)];
        a == d && b == c && a != b
    };
    let at = places(data.len(), from, step, 4).find(fits)?;
    let four = [at, at + step, at + 2 * step, at + 3 * step];
    four.iter().for_each(|&at| data[at] ^= mask);
    Some(four)
}

/// Swaps two adjacent bytes that differ, and two other adjacent bytes with the opposite difference.
///
/// Returns the first position of each pair. Returns `None` and changes nothing if there are none at
/// or after `from`.
pub(super) fn swap_twice(data: &mut [u8], from: usize) -> Option<[usize; 2]> {
    // First position of each difference. The second pair must not share a byte with the first.
    let mut met: HashMap<i16, usize> = HashMap::new();
    for at in places(data.len(), from, 1, 2) {
        let difference = i16::from(data[at + 1]) - i16::from(data[at]);
        if difference == 0 {
            continue;
        }
        if let Some(&first) = met.get(&-difference).filter(|&&first| first + 1 < at) {
            data.swap(first, first + 1);
            data.swap(at, at + 1);
            return Some([first, at]);
        }
        met.entry(difference).or_insert(at);
    }
    None
}

/// Sets every byte of a run of [`ADLER_PERIOD`] equal bytes at `at` to another value. Returns false
/// and changes nothing if there is no such run or it already has that value.
pub(super) fn refill_run(data: &mut [u8], at: usize, value: u8) -> bool {
    let run = at.checked_add(ADLER_PERIOD).and_then(|end| data.get_mut(at..end));
    let Some(run) = run.filter(|run| run[0] != value && run.iter().all(|&byte| byte == run[0])) else {
        return false;
    };
    run.fill(value);
    true
}

/// Swaps two blocks of `len` bytes. Adler-32 does not detect this if their distance is a multiple
/// of [`ADLER_PERIOD`], or if their bytes have the same sum.
///
/// # Panics
///
/// Panics if the blocks overlap or extend past the end.
pub(super) fn swap_blocks(data: &mut [u8], first: usize, second: usize, len: usize) {
    let (left, right) = (first.min(second), first.max(second));
    assert!(left + len <= right, "the blocks lie apart");
    let (head, tail) = data.split_at_mut(right);
    head[left..left + len].swap_with_slice(&mut tail[..len]);
}

/// Returns all pairs of different blocks of `block` bytes whose bytes have the same sum modulo
/// [`ADLER_PERIOD`], as offsets, each pair once. The first block is at 0; a short last one is
/// ignored.
///
/// # Panics
///
/// Panics if `block` is 0.
pub(super) fn equal_sums(data: &[u8], block: usize) -> Vec<(usize, usize)> {
    let mut of_sum: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut pairs = Vec::new();
    for (number, bytes) in data.chunks_exact(block).enumerate() {
        let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
        let alike = of_sum.entry(sum % ADLER_PERIOD as u64).or_default();
        let others = alike.iter().filter(|&&other| data[other..other + block] != *bytes);
        pairs.extend(others.map(|&other| (other, number * block)));
        alike.push(number * block);
    }
    pairs
}

/// Returns bits to flip, as bytes to XOR with data, that none of these CRCs detects if `after`
/// bytes follow them. (The CRCs then miss them before any other number of bytes as well.)
///
/// The result ends with its last non-zero byte. Returns `None` if one of the algorithms is not a
/// CRC, or if there are no such bits. For one CRC of w bits these are w + 1 consecutive bits, its
/// generator polynomial itself.
pub(super) fn crc_blind_flips(algorithms: &[Algorithm], after: u64) -> Option<Vec<u8>> {
    let mut width = 0;
    for &algorithm in algorithms {
        takes_low_bits_first(algorithm)?;
        width += algorithm.digest_len() * 8;
    }
    let low_bits_first = takes_low_bits_first(*algorithms.first()?)?;
    // One bit more than all values together, so some combination must cancel.
    let len = width / 8 + 1;
    let untouched = values(algorithms, &vec![0; len], after);
    let mut basis: Vec<Effect> = Vec::new();
    for bit in 0..=width {
        let mut flips = vec![0; len];
        let within = if low_bits_first { bit % 8 } else { 7 - bit % 8 };
        flips[bit / 8] = 1 << within;
        let mut effect = Effect { on_values: values(algorithms, &flips, after), flips };
        xor(&mut effect.on_values, &untouched);
        // For each basis element, no earlier element has its leading bit.
        for known in &basis {
            if effect.on_values.get(known.lead() / 8).is_some_and(|byte| byte & known.lead_mask() != 0) {
                xor(&mut effect.on_values, &known.on_values);
                xor(&mut effect.flips, &known.flips);
            }
        }
        if effect.on_values.iter().all(|&byte| byte == 0) {
            let used = effect.flips.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            effect.flips.truncate(used);
            return Some(effect.flips);
        }
        basis.push(effect);
    }
    None
}

/// Returns true if a CRC takes the lowest bit of a byte first; `None` if the algorithm is not a
/// CRC.
fn takes_low_bits_first(algorithm: Algorithm) -> Option<bool> {
    match algorithm {
        Algorithm::Crc16
        | Algorithm::Crc32
        | Algorithm::Crc32c
        | Algorithm::Crc64Nvme
        | Algorithm::Crc64Xz => Some(true),
        Algorithm::Cksum | Algorithm::Crc64Eos => Some(false),
        _ => None,
    }
}

/// Bits to flip, and the resulting change in the concatenated values of all CRCs.
struct Effect {
    on_values: Vec<u8>,
    flips: Vec<u8>,
}

impl Effect {
    /// Returns the first changed bit; 0 is the highest bit of the first byte.
    fn lead(&self) -> usize {
        let byte = self.on_values.iter().position(|&byte| byte != 0).unwrap_or(0);
        byte * 8 + self.on_values[byte].leading_zeros() as usize
    }

    fn lead_mask(&self) -> u8 {
        0x80 >> (self.lead() % 8)
    }
}

/// Returns the values over `bytes` and `after` zeros.
fn values(algorithms: &[Algorithm], bytes: &[u8], after: u64) -> Vec<u8> {
    let value = |&algorithm: &Algorithm| {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(bytes);
        hasher.update_zeros(after);
        hasher.finish().as_bytes().to_vec()
    };
    algorithms.iter().flat_map(value).collect()
}

fn xor(into: &mut [u8], other: &[u8]) {
    into.iter_mut().zip(other).for_each(|(to, from)| *to ^= from);
}

/// Returns the positions, from `from` on, at which `count` bytes `step` apart lie within `len`
/// bytes.
fn places(len: usize, from: usize, step: usize, count: usize) -> std::ops::Range<usize> {
    let reach = step.saturating_mul(count - 1);
    if step == 0 { 0..0 } else { from..len.saturating_sub(reach) }
}
