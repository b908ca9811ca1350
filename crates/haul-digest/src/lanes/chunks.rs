//! Chaining values of BLAKE3 chunks, as many in parallel as a register has lanes.
//!
//! A chunk is 1,024 bytes: sixteen blocks, each compressed into the value of the previous one.
//! Chunks are independent of each other (O'Connor, Aumasson, Neves, Wilcox-O'Hearn: "BLAKE3: one
//! function, fast everywhere", 2020, sections 2.1, 2.2 and 5.3). The `blake3` crate does the same
//! internally, but does not return the values of single chunks.

// Only x86-64 has lanes here. Elsewhere the `blake3` crate computes the values.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use super::backend::Backend;
use super::register::{MAX_LANES, Register};
use std::sync::OnceLock;

/// Size of a chunk in bytes.
pub(crate) const CHUNK_BYTES: usize = 1024;

/// Size of a block in bytes.
const BLOCK_BYTES: usize = 64;

/// Initial value of every chunk, which is that of SHA-256 (section 2.2, table 1).
const IV: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Index of the message word at each position of each round: each round applies the permutation of
/// table 2 to the order of the previous round.
const ORDER: [[usize; 16]; 7] = order();

const fn order() -> [[usize; 16]; 7] {
    const PERMUTATION: [usize; 16] = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
    let mut order = [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]; 7];
    let mut round = 1;
    while round < 7 {
        let mut at = 0;
        while at < 16 {
            order[round][at] = order[round - 1][PERMUTATION[at]];
            at += 1;
        }
        round += 1;
    }
    order
}

/// Flags of the first and the last block of a chunk (section 2.2, table 3).
const CHUNK_START: u32 = 1;
const CHUNK_END: u32 = 2;

/// A loop over the chunks of all lanes of a register, created only if the CPU supports its
/// instructions.
#[derive(Clone, Copy)]
struct Kernel {
    lanes: usize,
    run: unsafe fn(&[u8], u64, &mut [[u8; 32]; MAX_LANES]),
}

/// Passes the values of the chunks at the start of `bytes` to `found`, in groups that fill the
/// lanes of this CPU's registers. `first` is the number of the first chunk in its file.
///
/// Returns the number of bytes processed: 0 on a CPU without such registers.
pub(crate) fn chunk_values(bytes: &[u8], first: u64, found: impl FnMut(&[u8; 32])) -> usize {
    static WIDEST: OnceLock<Option<Kernel>> = OnceLock::new();
    let widest = WIDEST.get_or_init(|| Backend::ALL.into_iter().find_map(Kernel::of));
    widest.map_or(0, |kernel| kernel.values(bytes, first, found))
}

impl Kernel {
    /// Returns the loop of one backend, if this CPU supports it. Plain words have no loop, because
    /// the `blake3` crate is faster for a single chunk.
    fn of(backend: Backend) -> Option<Kernel> {
        if !backend.is_available() {
            return None;
        }
        #[cfg(target_arch = "x86_64")]
        return x86::kernel(backend);
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    fn values(self, bytes: &[u8], first: u64, mut found: impl FnMut(&[u8; 32])) -> usize {
        let group = self.lanes * CHUNK_BYTES;
        let mut values = [[0; 32]; MAX_LANES];
        for (number, chunks) in (0..).zip(bytes.chunks_exact(group)) {
            // SAFETY: only `Kernel::of` creates kernels, after a check that the CPU supports their
            // instructions.
            unsafe { (self.run)(chunks, first + number * self.lanes as u64, &mut values) };
            values[..self.lanes].iter().for_each(&mut found);
        }
        bytes.len() / group * group
    }
}

/// Processes one chunk per lane.
///
/// # Panics
///
/// Panics if the number of chunks is not the number of lanes of the register.
///
/// # Safety
///
/// The CPU must have the instructions of `R`.
#[inline(always)]
unsafe fn run<R: Register<Word = u32>>(chunks: &[u8], first: u64, values: &mut [[u8; 32]; MAX_LANES]) {
    assert!(chunks.len() == R::LANES * CHUNK_BYTES, "one chunk a lane");
    let mut at = [chunks.as_ptr(); MAX_LANES];
    let (mut low, mut high) = ([0; MAX_LANES], [0; MAX_LANES]);
    for lane in 0..R::LANES {
        let number = first + lane as u64;
        at[lane] = chunks[lane * CHUNK_BYTES..].as_ptr();
        (low[lane], high[lane]) = (number as u32, (number >> 32) as u32);
    }
    // SAFETY: the caller guarantees the instructions.
    let counter = unsafe { [R::gather(&low), R::gather(&high)] };
    let start = IV.map(|word| counter[0].splat(word));
    let mut value = start;
    for block in 0..CHUNK_BYTES / BLOCK_BYTES {
        // SAFETY: each pointer is the start of a chunk, which has sixteen blocks (asserted above),
        // and the caller guarantees the instructions.
        let message = unsafe { R::load_block(&at, block * BLOCK_BYTES, false) };
        let flags = match block {
            0 => CHUNK_START,
            15 => CHUNK_END,
            _ => 0,
        };
        let tail = [counter[0], counter[1], counter[0].splat(BLOCK_BYTES as u32), counter[0].splat(flags)];
        value = compress(value, &start, tail, &message);
    }
    for (word, register) in value.into_iter().enumerate() {
        let mut row = [0; MAX_LANES];
        register.scatter(&mut row);
        for (value, word_of_lane) in values.iter_mut().zip(row).take(R::LANES) {
            value[4 * word..4 * word + 4].copy_from_slice(&word_of_lane.to_le_bytes());
        }
    }
}

/// The quarter-round of section 2.2, on the words at four positions of the state.
macro_rules! mix {
    ($v:ident, $a:literal, $b:literal, $c:literal, $d:literal, $x:expr, $y:expr) => {
        $v[$a] = $v[$a].add($v[$b]).add($x);
        $v[$d] = $v[$d].xor($v[$a]).rotr(16);
        $v[$c] = $v[$c].add($v[$d]);
        $v[$b] = $v[$b].xor($v[$c]).rotr(12);
        $v[$a] = $v[$a].add($v[$b]).add($y);
        $v[$d] = $v[$d].xor($v[$a]).rotr(8);
        $v[$c] = $v[$c].add($v[$d]);
        $v[$b] = $v[$b].xor($v[$c]).rotr(7);
    };
}

/// The compression function, reduced to the half of its output that is a chaining value.
#[inline(always)]
fn compress<R: Register<Word = u32>>(
    value: [R; 8],
    start: &[R; 8],
    [low, high, len, flags]: [R; 4],
    m: &[R; 16],
) -> [R; 8] {
    let [a, b, c, d, e, f, g, h] = value;
    let mut v = [a, b, c, d, e, f, g, h, start[0], start[1], start[2], start[3], low, high, len, flags];
    for order in &ORDER {
        mix!(v, 0, 4, 8, 12, m[order[0]], m[order[1]]);
        mix!(v, 1, 5, 9, 13, m[order[2]], m[order[3]]);
        mix!(v, 2, 6, 10, 14, m[order[4]], m[order[5]]);
        mix!(v, 3, 7, 11, 15, m[order[6]], m[order[7]]);
        mix!(v, 0, 5, 10, 15, m[order[8]], m[order[9]]);
        mix!(v, 1, 6, 11, 12, m[order[10]], m[order[11]]);
        mix!(v, 2, 7, 8, 13, m[order[12]], m[order[13]]);
        mix!(v, 3, 4, 9, 14, m[order[14]], m[order[15]]);
    }
    [
        v[0].xor(v[8]),
        v[1].xor(v[9]),
        v[2].xor(v[10]),
        v[3].xor(v[11]),
        v[4].xor(v[12]),
        v[5].xor(v[13]),
        v[6].xor(v[14]),
        v[7].xor(v[15]),
    ]
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::avx2::Ymm32;
    use super::super::avx512::Zmm32;
    use super::super::sse2::Xmm32;
    use super::{Backend, Kernel, MAX_LANES, Register, run};

    /// Returns the loop of one x86 backend. The caller must have checked that the CPU supports it.
    pub(super) fn kernel(backend: Backend) -> Option<Kernel> {
        Some(match backend {
            Backend::Avx512 => Kernel { lanes: Zmm32::LANES, run: avx512 },
            Backend::Avx2 => Kernel { lanes: Ymm32::LANES, run: avx2 },
            Backend::Sse2 => Kernel { lanes: Xmm32::LANES, run: run::<Xmm32> },
            Backend::ShaNi | Backend::Portable => return None,
        })
    }

    /// [`run`], compiled for AVX-512.
    ///
    /// # Safety
    ///
    /// The CPU must have AVX-512F and AVX-512BW.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn avx512(chunks: &[u8], first: u64, values: &mut [[u8; 32]; MAX_LANES]) {
        // SAFETY: the caller guarantees the instructions.
        unsafe { run::<Zmm32>(chunks, first, values) }
    }

    /// [`run`], compiled for AVX2.
    ///
    /// # Safety
    ///
    /// The CPU must have AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn avx2(chunks: &[u8], first: u64, values: &mut [[u8; 32]; MAX_LANES]) {
        // SAFETY: the caller guarantees the instructions.
        unsafe { run::<Ymm32>(chunks, first, values) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blake3::hazmat::HasherExt;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// Every backend returns the same values as the crate for single chunks.
        #[test]
        fn parallel_chunk_values_match_single_chunks(
            count in 0_usize..70,
            first in prop_oneof![0_u64..1000, Just(u64::from(u32::MAX) - 5), 0..1_u64 << 53],
            seed in any::<u8>(),
            shift in 0_usize..64,
        ) {
            let bytes: Vec<u8> =
                (0..count * CHUNK_BYTES + shift).map(|at| (at % 251) as u8 ^ (at >> 11) as u8 ^ seed).collect();
            let bytes = &bytes[shift..];
            let expected: Vec<[u8; 32]> = bytes.chunks(CHUNK_BYTES).zip(first..).map(|(chunk, number)| {
                let mut hasher = blake3::Hasher::new();
                hasher.set_input_offset(number * CHUNK_BYTES as u64);
                hasher.update(chunk).finalize_non_root()
            }).collect();
            for kernel in Backend::ALL.into_iter().filter_map(Kernel::of) {
                let mut found = Vec::new();
                let taken = kernel.values(bytes, first, |value| found.push(*value));
                let whole = count / kernel.lanes * kernel.lanes;
                prop_assert_eq!(taken, whole * CHUNK_BYTES);
                prop_assert_eq!(&found, &expected[..whole], "{} lanes", kernel.lanes);
            }
        }
    }
}
