//! Compression function of MD5 (RFC 1321, section 3.4), over any register.

use super::compression::Compression;
use super::register::Register;

/// MD5: four state words, little-endian.
pub(super) struct Md5;

/// `floor(2^32 x |sin(i + 1)|)`, RFC 1321 section 3.4.
#[rustfmt::skip]
const SINES: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];

/// State before the first block, RFC 1321 section 3.3.
pub(super) const START: [u64; 8] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0, 0, 0, 0];

/// One step: `a = b + ((a + f + word + sine) <<< turn)`. Terms that are known early are added
/// first.
macro_rules! step {
    ($sines:ident, $f:expr, $a:ident, $b:ident, $word:expr, $i:expr, $turn:literal) => {
        let early = $a.add($word.add($a.splat($sines[$i])));
        $a = early.add($f).rotl($turn).add($b);
    };
}

/// Sixteen steps of one round: the function, the first word and the distance between words, the
/// four rotations.
macro_rules! round {
    ($sines:ident, $f:ident, $first:literal, $start:literal, $stride:literal, $turns:tt, $block:ident, $a:ident, $b:ident, $c:ident, $d:ident) => {
        round!(@four $sines, $f, $first, 0, $start, $stride, $turns, $block, $a, $b, $c, $d);
        round!(@four $sines, $f, $first, 4, $start, $stride, $turns, $block, $a, $b, $c, $d);
        round!(@four $sines, $f, $first, 8, $start, $stride, $turns, $block, $a, $b, $c, $d);
        round!(@four $sines, $f, $first, 12, $start, $stride, $turns, $block, $a, $b, $c, $d);
    };
    (@four $sines:ident, $f:ident, $first:literal, $i:literal, $start:literal, $stride:literal, [$s0:literal, $s1:literal, $s2:literal, $s3:literal], $block:ident, $a:ident, $b:ident, $c:ident, $d:ident) => {
        step!($sines, $f($b, $c, $d), $a, $b, $block[($start + $stride * $i) % 16], $first + $i, $s0);
        step!($sines, $f($a, $b, $c), $d, $a, $block[($start + $stride * ($i + 1)) % 16], $first + $i + 1, $s1);
        step!($sines, $f($d, $a, $b), $c, $d, $block[($start + $stride * ($i + 2)) % 16], $first + $i + 2, $s2);
        step!($sines, $f($c, $d, $a), $b, $c, $block[($start + $stride * ($i + 3)) % 16], $first + $i + 3, $s3);
    };
}

#[inline(always)]
fn f<R: Register>(b: R, c: R, d: R) -> R {
    b.choose(c, d)
}

#[inline(always)]
fn g<R: Register>(b: R, c: R, d: R) -> R {
    d.choose(b, c)
}

#[inline(always)]
fn h<R: Register>(b: R, c: R, d: R) -> R {
    b.xor3(c, d)
}

#[inline(always)]
fn i<R: Register>(b: R, c: R, d: R) -> R {
    b.or_not_xor(c, d)
}

impl Compression for Md5 {
    type Word = u32;
    const BIG_ENDIAN: bool = false;

    #[inline(always)]
    fn compress<R: Register<Word = u32>>(state: &mut [R; 8], block: [R; 16]) {
        // If the compiler knows the sines, it adds them last, where the next step waits for the
        // sum. This costs up to a sixth of the speed, so `black_box` hides them.
        let sines = *core::hint::black_box(&SINES);
        let [mut a, mut b, mut c, mut d, ..] = *state;
        round!(sines, f, 0, 0, 1, [7, 12, 17, 22], block, a, b, c, d);
        round!(sines, g, 16, 1, 5, [5, 9, 14, 20], block, a, b, c, d);
        round!(sines, h, 32, 5, 3, [4, 11, 16, 23], block, a, b, c, d);
        round!(sines, i, 48, 0, 7, [6, 10, 15, 21], block, a, b, c, d);
        for (word, sum) in state.iter_mut().zip([a, b, c, d]) {
            *word = word.add(sum);
        }
    }
}
