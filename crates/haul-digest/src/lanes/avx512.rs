//! AVX-512: sixteen 32-bit lanes or eight 64-bit lanes in one register.
//!
//! Needs AVX-512F, and AVX-512BW to reverse the bytes of big-endian words.

use core::arch::x86_64::*;

use super::register::Register;

/// Sixteen lanes of 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Zmm32(__m512i);

/// Eight lanes of 64 bits.
#[derive(Clone, Copy)]
pub(super) struct Zmm64(__m512i);

/// One three-operand logic instruction by its truth table (Intel SDM, VPTERNLOG: bit `4a + 2b + c`
/// of the table).
macro_rules! logic3 {
    ($table:literal, $a:expr, $b:expr, $c:expr) => {
        // SAFETY: the operands are register values, which exist only if the CPU has AVX-512.
        unsafe { _mm512_ternarylogic_epi32::<$table>($a.0, $b.0, $c.0) }
    };
}

macro_rules! zmm_register {
    ($name:ident, $word:ty, $lanes:literal, $block:ident, $splat:ident, $lane:ty, $add:ident, $rotl:ident, $rotr:ident, $shr:ident) => {
        impl Register for $name {
            type Word = $word;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn gather(words: &[$word]) -> Self {
                let words = &words[..$lanes];
                // SAFETY: the slice holds 64 bytes, and the caller guarantees AVX-512.
                unsafe { $name(_mm512_loadu_si512(words.as_ptr().cast())) }
            }
            #[inline(always)]
            unsafe fn load_block(at: &[*const u8], offset: usize, big_endian: bool) -> [Self; 16] {
                // SAFETY: the same conditions, guaranteed by the caller.
                unsafe { $block(at, offset, big_endian) }
            }
            #[inline(always)]
            fn scatter(self, words: &mut [$word]) {
                let words = &mut words[..$lanes];
                // SAFETY: the slice holds 64 bytes, and a register value exists only if the CPU has
                // AVX-512.
                unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), self.0) }
            }
            #[inline(always)]
            fn splat(self, word: $word) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX-512.
                unsafe { $name($splat(word as $lane)) }
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX-512.
                unsafe { $name($add(self.0, other.0)) }
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX-512.
                unsafe { $name(_mm512_xor_si512(self.0, other.0)) }
            }
            #[inline(always)]
            fn xor3(self, b: Self, c: Self) -> Self {
                $name(logic3!(0x96, self, b, c))
            }
            #[inline(always)]
            fn choose(self, yes: Self, no: Self) -> Self {
                $name(logic3!(0xca, self, yes, no))
            }
            #[inline(always)]
            fn majority(self, b: Self, c: Self) -> Self {
                $name(logic3!(0xe8, self, b, c))
            }
            #[inline(always)]
            fn or_not_xor(self, b: Self, c: Self) -> Self {
                $name(logic3!(0x39, self, b, c))
            }
            #[inline(always)]
            fn rotl(self, bits: u32) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX-512.
                unsafe { $name($rotl(self.0, $splat(bits as $lane))) }
            }
            #[inline(always)]
            fn rotr(self, bits: u32) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX-512.
                unsafe { $name($rotr(self.0, $splat(bits as $lane))) }
            }
            #[inline(always)]
            fn shr(self, bits: u32) -> Self {
                // SAFETY: a register value exists only if the CPU has AVX-512.
                unsafe { $name($shr(self.0, $splat(bits as $lane))) }
            }
        }
    };
}

zmm_register!(
    Zmm32,
    u32,
    16,
    block_of_16,
    _mm512_set1_epi32,
    i32,
    _mm512_add_epi32,
    _mm512_rolv_epi32,
    _mm512_rorv_epi32,
    _mm512_srlv_epi32
);
zmm_register!(
    Zmm64,
    u64,
    8,
    block_of_8,
    _mm512_set1_epi64,
    i64,
    _mm512_add_epi64,
    _mm512_rolv_epi64,
    _mm512_rorv_epi64,
    _mm512_srlv_epi64
);

/// Loads the next 64 bytes of the message of a lane.
///
/// # Safety
///
/// The CPU must have AVX-512F, and 64 bytes must be readable `offset` bytes after `at`.
#[inline(always)]
unsafe fn row(at: *const u8, offset: usize) -> __m512i {
    // SAFETY: guaranteed by the caller; the load requires no alignment.
    unsafe { _mm512_loadu_si512(at.add(offset).cast()) }
}

/// Transposes a 4 x 4 matrix of 128-bit elements, one row per register.
///
/// # Safety
///
/// The CPU must have AVX-512F.
#[inline(always)]
unsafe fn transpose_quarters(rows: [__m512i; 4]) -> [__m512i; 4] {
    // SAFETY: the caller guarantees AVX-512F.
    unsafe {
        let even_low = _mm512_shuffle_i32x4::<0x88>(rows[0], rows[1]);
        let odd_low = _mm512_shuffle_i32x4::<0xdd>(rows[0], rows[1]);
        let even_high = _mm512_shuffle_i32x4::<0x88>(rows[2], rows[3]);
        let odd_high = _mm512_shuffle_i32x4::<0xdd>(rows[2], rows[3]);
        [
            _mm512_shuffle_i32x4::<0x88>(even_low, even_high),
            _mm512_shuffle_i32x4::<0x88>(odd_low, odd_high),
            _mm512_shuffle_i32x4::<0xdd>(even_low, even_high),
            _mm512_shuffle_i32x4::<0xdd>(odd_low, odd_high),
        ]
    }
}

/// Loads sixteen 64-byte blocks, one per lane, and transposes them: each register holds one word of
/// all blocks.
///
/// # Safety
///
/// Same as [`Register::load_block`].
#[inline(always)]
unsafe fn block_of_16(at: &[*const u8], offset: usize, big_endian: bool) -> [Zmm32; 16] {
    let at = &at[..16];
    // SAFETY: the caller guarantees AVX-512 and 64 readable bytes at `offset` of 16 pointers.
    unsafe {
        let mut by_word = [Zmm32(_mm512_setzero_si512()); 16];
        let mut turned = [_mm512_setzero_si512(); 16];
        for four in 0..4 {
            let rows = &at[4 * four..];
            let (row_0, row_1) = (row(rows[0], offset), row(rows[1], offset));
            let (row_2, row_3) = (row(rows[2], offset), row(rows[3], offset));
            let (low_01, high_01) =
                (_mm512_unpacklo_epi32(row_0, row_1), _mm512_unpackhi_epi32(row_0, row_1));
            let (low_23, high_23) =
                (_mm512_unpacklo_epi32(row_2, row_3), _mm512_unpackhi_epi32(row_2, row_3));
            turned[4 * four] = _mm512_unpacklo_epi64(low_01, low_23);
            turned[4 * four + 1] = _mm512_unpackhi_epi64(low_01, low_23);
            turned[4 * four + 2] = _mm512_unpacklo_epi64(high_01, high_23);
            turned[4 * four + 3] = _mm512_unpackhi_epi64(high_01, high_23);
        }
        for column in 0..4 {
            let quarters = transpose_quarters([
                turned[column],
                turned[4 + column],
                turned[8 + column],
                turned[12 + column],
            ]);
            for quarter in 0..4 {
                let words = quarters[quarter];
                by_word[4 * quarter + column] =
                    Zmm32(if big_endian { _mm512_shuffle_epi8(words, swap_mask_32()) } else { words });
            }
        }
        by_word
    }
}

/// Loads eight 128-byte blocks, one per lane, and transposes them: each register holds one word of
/// all blocks.
///
/// # Safety
///
/// Same as [`Register::load_block`].
#[inline(always)]
unsafe fn block_of_8(at: &[*const u8], offset: usize, big_endian: bool) -> [Zmm64; 16] {
    let at = &at[..8];
    // SAFETY: the caller guarantees AVX-512 and 128 readable bytes at `offset` of 8 pointers.
    unsafe {
        let mut by_word = [Zmm64(_mm512_setzero_si512()); 16];
        for half in 0..2 {
            let mut turned = [[_mm512_setzero_si512(); 4]; 2];
            for two in 0..4 {
                let (first, second) =
                    (row(at[2 * two], offset + 64 * half), row(at[2 * two + 1], offset + 64 * half));
                turned[0][two] = _mm512_unpacklo_epi64(first, second);
                turned[1][two] = _mm512_unpackhi_epi64(first, second);
            }
            for column in 0..2 {
                let quarters = transpose_quarters(turned[column]);
                for quarter in 0..4 {
                    let words = quarters[quarter];
                    by_word[8 * half + 2 * quarter + column] =
                        Zmm64(if big_endian { _mm512_shuffle_epi8(words, swap_mask_64()) } else { words });
                }
            }
        }
        by_word
    }
}

/// Returns the byte positions that reverse each 32-bit word.
///
/// # Safety
///
/// The CPU must have AVX-512F.
#[inline(always)]
unsafe fn swap_mask_32() -> __m512i {
    // SAFETY: the caller guarantees AVX-512F.
    unsafe { _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203) }
}

/// Returns the byte positions that reverse each 64-bit word.
///
/// # Safety
///
/// The CPU must have AVX-512F.
#[inline(always)]
unsafe fn swap_mask_64() -> __m512i {
    // SAFETY: the caller guarantees AVX-512F.
    unsafe { _mm512_set4_epi32(0x0809_0a0b, 0x0c0d_0e0f, 0x0001_0203, 0x0405_0607) }
}
