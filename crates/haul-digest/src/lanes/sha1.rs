//! Compression function of SHA-1 (FIPS 180-4, section 6.1.2), over any register.

use super::compression::Compression;
use super::register::Register;

/// SHA-1: five state words, big-endian.
pub(super) struct Sha1;

/// State before the first block, FIPS 180-4 section 5.3.1.
pub(super) const START: [u64; 8] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0, 0, 0, 0];

/// Constant of each 20 steps, FIPS 180-4 section 4.2.1.
const CONSTANTS: [u32; 4] = [0x5a82_7999, 0x6ed9_eba1, 0x8f1b_bcdc, 0xca62_c1d6];

/// One step; `$f` is the function of b, c and d for the 20 steps that contain it.
macro_rules! step {
    ($f:ident, $k:ident, $w:ident, $t:expr, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident) => {
        if $t >= 16 {
            $w[$t % 16] = next_word(&$w, $t);
        }
        let early = $e.add($w[$t % 16].add($k)).add($f($b, $c, $d));
        $e = early.add($a.rotl(5));
        $b = $b.rotl(30);
    };
}

/// Five steps, after which the five names have their original roles again.
macro_rules! five {
    ($f:ident, $k:ident, $w:ident, $t:expr, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident) => {
        step!($f, $k, $w, $t, $a, $b, $c, $d, $e);
        step!($f, $k, $w, $t + 1, $e, $a, $b, $c, $d);
        step!($f, $k, $w, $t + 2, $d, $e, $a, $b, $c);
        step!($f, $k, $w, $t + 3, $c, $d, $e, $a, $b);
        step!($f, $k, $w, $t + 4, $b, $c, $d, $e, $a);
    };
}

/// Twenty steps with one function and one constant.
macro_rules! twenty {
    ($constants:ident, $f:ident, $k:literal, $w:ident, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident) => {
        let k = $a.splat($constants[$k]);
        five!($f, k, $w, 20 * $k, $a, $b, $c, $d, $e);
        five!($f, k, $w, 20 * $k + 5, $a, $b, $c, $d, $e);
        five!($f, k, $w, 20 * $k + 10, $a, $b, $c, $d, $e);
        five!($f, k, $w, 20 * $k + 15, $a, $b, $c, $d, $e);
    };
}

/// Returns word `t` of the message schedule, computed from the previous 16.
#[inline(always)]
fn next_word<R: Register>(w: &[R; 16], t: usize) -> R {
    w[(t + 13) % 16].xor3(w[(t + 8) % 16], w[(t + 2) % 16]).xor(w[t % 16]).rotl(1)
}

#[inline(always)]
fn choose<R: Register>(b: R, c: R, d: R) -> R {
    b.choose(c, d)
}

#[inline(always)]
fn parity<R: Register>(b: R, c: R, d: R) -> R {
    b.xor3(c, d)
}

#[inline(always)]
fn majority<R: Register>(b: R, c: R, d: R) -> R {
    b.majority(c, d)
}

impl Compression for Sha1 {
    type Word = u32;
    const BIG_ENDIAN: bool = true;

    #[inline(always)]
    fn compress<R: Register<Word = u32>>(state: &mut [R; 8], block: [R; 16]) {
        // Hidden from the compiler for the same reason as the sines of MD5.
        let constants = *core::hint::black_box(&CONSTANTS);
        let [mut a, mut b, mut c, mut d, mut e, ..] = *state;
        let mut w = block;
        twenty!(constants, choose, 0, w, a, b, c, d, e);
        twenty!(constants, parity, 1, w, a, b, c, d, e);
        twenty!(constants, majority, 2, w, a, b, c, d, e);
        twenty!(constants, parity, 3, w, a, b, c, d, e);
        for (word, sum) in state.iter_mut().zip([a, b, c, d, e]) {
            *word = word.add(sum);
        }
    }
}
