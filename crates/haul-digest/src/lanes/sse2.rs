//! SSE2: four 32-bit lanes or two 64-bit lanes in one register. Every x86-64 CPU has it, so no
//! check is needed.

use core::arch::x86_64::*;

use super::register::Register;

/// Four lanes of 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Xmm32(__m128i);

/// Two lanes of 64 bits.
#[derive(Clone, Copy)]
pub(super) struct Xmm64(__m128i);

macro_rules! xmm_register {
    ($name:ident, $word:ty, $lanes:literal, $block:ident, $splat:ident, $lane:ty, $add:ident, $shl:ident, $shr:ident) => {
        impl Register for $name {
            type Word = $word;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn gather(words: &[$word]) -> Self {
                let words = &words[..$lanes];
                // SAFETY: the slice holds 16 bytes, and the caller guarantees SSE2.
                unsafe { $name(_mm_loadu_si128(words.as_ptr().cast())) }
            }
            #[inline(always)]
            unsafe fn load_block(at: &[*const u8], offset: usize, big_endian: bool) -> [Self; 16] {
                // SAFETY: the same conditions, guaranteed by the caller.
                unsafe { $block(at, offset, big_endian) }
            }
            #[inline(always)]
            fn scatter(self, words: &mut [$word]) {
                let words = &mut words[..$lanes];
                // SAFETY: the slice holds 16 bytes; register values exist only if the CPU has SSE2.
                unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), self.0) }
            }
            #[inline(always)]
            fn splat(self, word: $word) -> Self {
                // SAFETY: a register value exists only if the CPU has SSE2.
                unsafe { $name($splat(word as $lane)) }
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: a register value exists only if the CPU has SSE2.
                unsafe { $name($add(self.0, other.0)) }
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                // SAFETY: a register value exists only if the CPU has SSE2.
                unsafe { $name(_mm_xor_si128(self.0, other.0)) }
            }
            #[inline(always)]
            fn xor3(self, b: Self, c: Self) -> Self {
                self.xor(b.xor(c))
            }
            #[inline(always)]
            fn choose(self, yes: Self, no: Self) -> Self {
                // SAFETY: a register value exists only if the CPU has SSE2.
                unsafe { $name(_mm_or_si128(_mm_and_si128(self.0, yes.0), _mm_andnot_si128(self.0, no.0))) }
            }
            #[inline(always)]
            fn majority(self, b: Self, c: Self) -> Self {
                // If `self` and `b` agree, that is the result; otherwise `c` decides.
                // SAFETY: a register value exists only if the CPU has SSE2.
                unsafe {
                    let either = _mm_or_si128(self.0, b.0);
                    let both = _mm_and_si128(self.0, b.0);
                    $name(_mm_or_si128(both, _mm_and_si128(either, c.0)))
                }
            }
            #[inline(always)]
            fn or_not_xor(self, b: Self, c: Self) -> Self {
                // SAFETY: a register value exists only if the CPU has SSE2.
                unsafe {
                    let not_c = _mm_xor_si128(c.0, _mm_set1_epi32(-1));
                    $name(_mm_xor_si128(b.0, _mm_or_si128(self.0, not_c)))
                }
            }
            #[inline(always)]
            fn rotl(self, bits: u32) -> Self {
                // SAFETY: a register value exists only if the CPU has SSE2.
                unsafe {
                    let up = $shl(self.0, _mm_cvtsi32_si128(bits as i32));
                    let down = $shr(self.0, _mm_cvtsi32_si128((<$word>::BITS - bits) as i32));
                    $name(_mm_or_si128(up, down))
                }
            }
            #[inline(always)]
            fn rotr(self, bits: u32) -> Self {
                self.rotl(<$word>::BITS - bits)
            }
            #[inline(always)]
            fn shr(self, bits: u32) -> Self {
                // SAFETY: a register value exists only if the CPU has SSE2.
                unsafe { $name($shr(self.0, _mm_cvtsi32_si128(bits as i32))) }
            }
        }
    };
}

xmm_register!(Xmm32, u32, 4, block_of_4, _mm_set1_epi32, i32, _mm_add_epi32, _mm_sll_epi32, _mm_srl_epi32);
xmm_register!(Xmm64, u64, 2, block_of_2, _mm_set1_epi64x, i64, _mm_add_epi64, _mm_sll_epi64, _mm_srl_epi64);

/// Loads four 64-byte blocks, one per lane, and transposes them: each register holds one word of
/// all blocks.
///
/// # Safety
///
/// Same as [`Register::load_block`].
#[inline(always)]
unsafe fn block_of_4(at: &[*const u8], offset: usize, big_endian: bool) -> [Xmm32; 16] {
    let at = &at[..4];
    // SAFETY: the caller guarantees 64 readable bytes at `offset` of 4 pointers.
    unsafe {
        let mut by_word = [Xmm32(_mm_setzero_si128()); 16];
        for quarter in 0..4 {
            let offset = offset + 16 * quarter;
            let (row_0, row_1) = (row(at[0], offset), row(at[1], offset));
            let (row_2, row_3) = (row(at[2], offset), row(at[3], offset));
            let (low_01, high_01) = (_mm_unpacklo_epi32(row_0, row_1), _mm_unpackhi_epi32(row_0, row_1));
            let (low_23, high_23) = (_mm_unpacklo_epi32(row_2, row_3), _mm_unpackhi_epi32(row_2, row_3));
            let turned = [
                _mm_unpacklo_epi64(low_01, low_23),
                _mm_unpackhi_epi64(low_01, low_23),
                _mm_unpacklo_epi64(high_01, high_23),
                _mm_unpackhi_epi64(high_01, high_23),
            ];
            for (column, words) in turned.into_iter().enumerate() {
                by_word[4 * quarter + column] = Xmm32(if big_endian { swapped_32(words) } else { words });
            }
        }
        by_word
    }
}

/// Loads two 128-byte blocks, one per lane, and transposes them: each register holds one word of
/// both blocks.
///
/// # Safety
///
/// Same as [`Register::load_block`].
#[inline(always)]
unsafe fn block_of_2(at: &[*const u8], offset: usize, big_endian: bool) -> [Xmm64; 16] {
    let at = &at[..2];
    // SAFETY: the caller guarantees 128 readable bytes at `offset` of 2 pointers.
    unsafe {
        let mut by_word = [Xmm64(_mm_setzero_si128()); 16];
        for eighth in 0..8 {
            let offset = offset + 16 * eighth;
            let (first, second) = (row(at[0], offset), row(at[1], offset));
            let turned = [_mm_unpacklo_epi64(first, second), _mm_unpackhi_epi64(first, second)];
            for (column, words) in turned.into_iter().enumerate() {
                by_word[2 * eighth + column] = Xmm64(if big_endian { swapped_64(words) } else { words });
            }
        }
        by_word
    }
}

/// Loads the next 16 bytes of the message of a lane.
///
/// # Safety
///
/// 16 bytes must be readable `offset` bytes after `at`.
#[inline(always)]
unsafe fn row(at: *const u8, offset: usize) -> __m128i {
    // SAFETY: guaranteed by the caller; the load requires no alignment.
    unsafe { _mm_loadu_si128(at.add(offset).cast()) }
}

/// Reverses the bytes of each 32-bit word: swaps the halves, then the bytes within the halves.
#[inline(always)]
fn swapped_32(words: __m128i) -> __m128i {
    // SAFETY: every x86-64 has SSE2.
    unsafe {
        let halves = _mm_shufflehi_epi16::<0xb1>(_mm_shufflelo_epi16::<0xb1>(words));
        _mm_or_si128(_mm_slli_epi16::<8>(halves), _mm_srli_epi16::<8>(halves))
    }
}

/// Reverses the bytes of each 64-bit word: reverses the quarters, then the bytes within the
/// quarters.
#[inline(always)]
fn swapped_64(words: __m128i) -> __m128i {
    // SAFETY: every x86-64 has SSE2.
    unsafe {
        let quarters = _mm_shufflehi_epi16::<0x1b>(_mm_shufflelo_epi16::<0x1b>(words));
        _mm_or_si128(_mm_slli_epi16::<8>(quarters), _mm_srli_epi16::<8>(quarters))
    }
}
