//! AVX2: eight 32-bit lanes or four 64-bit lanes in one register.

use core::arch::x86_64::*;

use super::register::Register;

/// Eight lanes of 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Ymm32(__m256i);

/// Four lanes of 64 bits.
#[derive(Clone, Copy)]
pub(super) struct Ymm64(__m256i);

macro_rules! ymm_register {
    ($name:ident, $word:ty, $lanes:literal, $block:ident, $splat:ident, $lane:ty, $add:ident, $shl:ident, $shr:ident) => {
        impl Register for $name {
            type Word = $word;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn gather(words: &[$word]) -> Self {
                let words = &words[..$lanes];
                // SAFETY: the slice holds 32 bytes, and the caller guarantees AVX2.
                unsafe { $name(_mm256_loadu_si256(words.as_ptr().cast())) }
            }
            #[inline(always)]
            unsafe fn load_block(at: &[*const u8], offset: usize, big_endian: bool) -> [Self; 16] {
                // SAFETY: the same conditions, guaranteed by the caller.
                unsafe { $block(at, offset, big_endian) }
            }
            #[inline(always)]
            fn scatter(self, words: &mut [$word]) {
                let words = &mut words[..$lanes];
                // SAFETY: the slice holds 32 bytes; register values exist only if the CPU has AVX2.
                unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), self.0) }
            }
            #[inline(always)]
            fn splat(self, word: $word) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX2.
                unsafe { $name($splat(word as $lane)) }
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX2.
                unsafe { $name($add(self.0, other.0)) }
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX2.
                unsafe { $name(_mm256_xor_si256(self.0, other.0)) }
            }
            #[inline(always)]
            fn xor3(self, b: Self, c: Self) -> Self {
                self.xor(b.xor(c))
            }
            #[inline(always)]
            fn choose(self, yes: Self, no: Self) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX2.
                unsafe {
                    $name(_mm256_or_si256(_mm256_and_si256(self.0, yes.0), _mm256_andnot_si256(self.0, no.0)))
                }
            }
            #[inline(always)]
            fn majority(self, b: Self, c: Self) -> Self {
                // If `self` and `b` agree, that is the result; otherwise `c` decides.
                // SAFETY: a register value exists only if the CPU has AVX2.
                unsafe {
                    let either = _mm256_or_si256(self.0, b.0);
                    let both = _mm256_and_si256(self.0, b.0);
                    $name(_mm256_or_si256(both, _mm256_and_si256(either, c.0)))
                }
            }
            #[inline(always)]
            fn or_not_xor(self, b: Self, c: Self) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX2.
                unsafe {
                    let not_c = _mm256_xor_si256(c.0, _mm256_set1_epi32(-1));
                    $name(_mm256_xor_si256(b.0, _mm256_or_si256(self.0, not_c)))
                }
            }
            #[inline(always)]
            fn rotl(self, bits: u32) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX2.
                unsafe {
                    let up = $shl(self.0, $splat(bits as $lane));
                    let down = $shr(self.0, $splat((<$word>::BITS - bits) as $lane));
                    $name(_mm256_or_si256(up, down))
                }
            }
            #[inline(always)]
            fn rotr(self, bits: u32) -> Self {
                self.rotl(<$word>::BITS - bits)
            }
            #[inline(always)]
            fn shr(self, bits: u32) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX2.
                unsafe { $name($shr(self.0, $splat(bits as $lane))) }
            }
        }
    };
}

ymm_register!(
    Ymm32,
    u32,
    8,
    block_of_8,
    _mm256_set1_epi32,
    i32,
    _mm256_add_epi32,
    _mm256_sllv_epi32,
    _mm256_srlv_epi32
);
ymm_register!(
    Ymm64,
    u64,
    4,
    block_of_4,
    _mm256_set1_epi64x,
    i64,
    _mm256_add_epi64,
    _mm256_sllv_epi64,
    _mm256_srlv_epi64
);

/// Loads eight 64-byte blocks, one per lane, and transposes them: each register holds one word of
/// all blocks.
///
/// # Safety
///
/// Same as [`Register::load_block`].
#[inline(always)]
unsafe fn block_of_8(at: &[*const u8], offset: usize, big_endian: bool) -> [Ymm32; 16] {
    let at = &at[..8];
    // SAFETY: the caller guarantees AVX2 and 64 readable bytes at `offset` of 8 pointers.
    unsafe {
        let mut by_word = [Ymm32(_mm256_setzero_si256()); 16];
        for half in 0..2 {
            let mut turned = [_mm256_setzero_si256(); 8];
            for four in 0..2 {
                let (rows, offset) = (&at[4 * four..], offset + 32 * half);
                let (row_0, row_1) = (row(rows[0], offset), row(rows[1], offset));
                let (row_2, row_3) = (row(rows[2], offset), row(rows[3], offset));
                let (low_01, high_01) =
                    (_mm256_unpacklo_epi32(row_0, row_1), _mm256_unpackhi_epi32(row_0, row_1));
                let (low_23, high_23) =
                    (_mm256_unpacklo_epi32(row_2, row_3), _mm256_unpackhi_epi32(row_2, row_3));
                turned[4 * four] = _mm256_unpacklo_epi64(low_01, low_23);
                turned[4 * four + 1] = _mm256_unpackhi_epi64(low_01, low_23);
                turned[4 * four + 2] = _mm256_unpacklo_epi64(high_01, high_23);
                turned[4 * four + 3] = _mm256_unpackhi_epi64(high_01, high_23);
            }
            for column in 0..4 {
                let (top, bottom) = (turned[column], turned[4 + column]);
                let first = _mm256_permute2x128_si256::<0x20>(top, bottom);
                let second = _mm256_permute2x128_si256::<0x31>(top, bottom);
                by_word[8 * half + column] = Ymm32(if big_endian { swapped_32(first) } else { first });
                by_word[8 * half + 4 + column] = Ymm32(if big_endian { swapped_32(second) } else { second });
            }
        }
        by_word
    }
}

/// Loads four 128-byte blocks, one per lane, and transposes them: each register holds one word of
/// all blocks.
///
/// # Safety
///
/// Same as [`Register::load_block`].
#[inline(always)]
unsafe fn block_of_4(at: &[*const u8], offset: usize, big_endian: bool) -> [Ymm64; 16] {
    let at = &at[..4];
    // SAFETY: the caller guarantees AVX2 and 128 readable bytes at `offset` of 4 pointers.
    unsafe {
        let mut by_word = [Ymm64(_mm256_setzero_si256()); 16];
        for quarter in 0..4 {
            let offset = offset + 32 * quarter;
            let (row_0, row_1) = (row(at[0], offset), row(at[1], offset));
            let (row_2, row_3) = (row(at[2], offset), row(at[3], offset));
            let turned = [
                (_mm256_unpacklo_epi64(row_0, row_1), _mm256_unpacklo_epi64(row_2, row_3)),
                (_mm256_unpackhi_epi64(row_0, row_1), _mm256_unpackhi_epi64(row_2, row_3)),
            ];
            for (column, (top, bottom)) in turned.into_iter().enumerate() {
                let first = _mm256_permute2x128_si256::<0x20>(top, bottom);
                let second = _mm256_permute2x128_si256::<0x31>(top, bottom);
                by_word[4 * quarter + column] = Ymm64(if big_endian { swapped_64(first) } else { first });
                by_word[4 * quarter + 2 + column] =
                    Ymm64(if big_endian { swapped_64(second) } else { second });
            }
        }
        by_word
    }
}

/// Loads the next 32 bytes of the message of a lane.
///
/// # Safety
///
/// The CPU must have AVX2, and 32 bytes must be readable `offset` bytes after `at`.
#[inline(always)]
unsafe fn row(at: *const u8, offset: usize) -> __m256i {
    // SAFETY: guaranteed by the caller; the load requires no alignment.
    unsafe { _mm256_loadu_si256(at.add(offset).cast()) }
}

/// Reverses the bytes of each 32-bit word.
///
/// # Safety
///
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn swapped_32(words: __m256i) -> __m256i {
    // SAFETY: the caller guarantees AVX2.
    unsafe {
        let order = _mm_set_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
        _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order))
    }
}

/// Reverses the bytes of each 64-bit word.
///
/// # Safety
///
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn swapped_64(words: __m256i) -> __m256i {
    // SAFETY: the caller guarantees AVX2.
    unsafe {
        let order = _mm_set_epi32(0x0809_0a0b, 0x0c0d_0e0f, 0x0001_0203, 0x0405_0607);
        _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order))
    }
}
