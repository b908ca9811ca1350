//! Compression functions of SHA-2 (FIPS 180-4, sections 6.2.2 and 6.4.2), over any register.
//!
//! SHA-256 and SHA-512 have the same structure with different words, rotations and numbers of
//! rounds.

use super::compression::Compression;
use super::register::Register;

/// SHA-256 and SHA-224: eight state words of 32 bits, big-endian.
pub(super) struct Sha256;

/// SHA-512 and SHA-384: eight state words of 64 bits, big-endian.
pub(super) struct Sha512;

/// State of SHA-224 before the first block, FIPS 180-4 section 5.3.2.
#[rustfmt::skip]
pub(super) const START_224: [u64; 8] = [
    0xc105_9ed8, 0x367c_d507, 0x3070_dd17, 0xf70e_5939, 0xffc0_0b31, 0x6858_1511, 0x64f9_8fa7, 0xbefa_4fa4,
];

/// State of SHA-256 before the first block, FIPS 180-4 section 5.3.3.
#[rustfmt::skip]
pub(super) const START_256: [u64; 8] = [
    0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19,
];

/// State of SHA-384 before the first block, FIPS 180-4 section 5.3.4.
#[rustfmt::skip]
pub(super) const START_384: [u64; 8] = [
    0xcbbb_9d5d_c105_9ed8, 0x629a_292a_367c_d507, 0x9159_015a_3070_dd17, 0x152f_ecd8_f70e_5939,
    0x6733_2667_ffc0_0b31, 0x8eb4_4a87_6858_1511, 0xdb0c_2e0d_64f9_8fa7, 0x47b5_481d_befa_4fa4,
];

/// State of SHA-512 before the first block, FIPS 180-4 section 5.3.5.
#[rustfmt::skip]
pub(super) const START_512: [u64; 8] = [
    0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1, 0x9b05_688c_2b3e_6c1f, 0x1f83_d9ab_fb41_bd6b, 0x5be0_cd19_137e_2179,
];

/// The first 32 fractional bits of the cube roots of the first 64 primes, FIPS 180-4 section 4.2.2.
#[rustfmt::skip]
pub(super) const ROOTS_256: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// The first 64 fractional bits of the cube roots of the first 80 primes, FIPS 180-4 section 4.2.3.
#[rustfmt::skip]
pub(super) const ROOTS_512: [u64; 80] = [
    0x428a_2f98_d728_ae22, 0x7137_4491_23ef_65cd, 0xb5c0_fbcf_ec4d_3b2f, 0xe9b5_dba5_8189_dbbc,
    0x3956_c25b_f348_b538, 0x59f1_11f1_b605_d019, 0x923f_82a4_af19_4f9b, 0xab1c_5ed5_da6d_8118,
    0xd807_aa98_a303_0242, 0x1283_5b01_4570_6fbe, 0x2431_85be_4ee4_b28c, 0x550c_7dc3_d5ff_b4e2,
    0x72be_5d74_f27b_896f, 0x80de_b1fe_3b16_96b1, 0x9bdc_06a7_25c7_1235, 0xc19b_f174_cf69_2694,
    0xe49b_69c1_9ef1_4ad2, 0xefbe_4786_384f_25e3, 0x0fc1_9dc6_8b8c_d5b5, 0x240c_a1cc_77ac_9c65,
    0x2de9_2c6f_592b_0275, 0x4a74_84aa_6ea6_e483, 0x5cb0_a9dc_bd41_fbd4, 0x76f9_88da_8311_53b5,
    0x983e_5152_ee66_dfab, 0xa831_c66d_2db4_3210, 0xb003_27c8_98fb_213f, 0xbf59_7fc7_beef_0ee4,
    0xc6e0_0bf3_3da8_8fc2, 0xd5a7_9147_930a_a725, 0x06ca_6351_e003_826f, 0x1429_2967_0a0e_6e70,
    0x27b7_0a85_46d2_2ffc, 0x2e1b_2138_5c26_c926, 0x4d2c_6dfc_5ac4_2aed, 0x5338_0d13_9d95_b3df,
    0x650a_7354_8baf_63de, 0x766a_0abb_3c77_b2a8, 0x81c2_c92e_47ed_aee6, 0x9272_2c85_1482_353b,
    0xa2bf_e8a1_4cf1_0364, 0xa81a_664b_bc42_3001, 0xc24b_8b70_d0f8_9791, 0xc76c_51a3_0654_be30,
    0xd192_e819_d6ef_5218, 0xd699_0624_5565_a910, 0xf40e_3585_5771_202a, 0x106a_a070_32bb_d1b8,
    0x19a4_c116_b8d2_d0c8, 0x1e37_6c08_5141_ab53, 0x2748_774c_df8e_eb99, 0x34b0_bcb5_e19b_48a8,
    0x391c_0cb3_c5c9_5a63, 0x4ed8_aa4a_e341_8acb, 0x5b9c_ca4f_7763_e373, 0x682e_6ff3_d6b2_b8a3,
    0x748f_82ee_5def_b2fc, 0x78a5_636f_4317_2f60, 0x84c8_7814_a1f0_ab72, 0x8cc7_0208_1a64_39ec,
    0x90be_fffa_2363_1e28, 0xa450_6ceb_de82_bde9, 0xbef9_a3f7_b2c6_7915, 0xc671_78f2_e372_532b,
    0xca27_3ece_ea26_619c, 0xd186_b8c7_21c0_c207, 0xeada_7dd6_cde0_eb1e, 0xf57d_4f7f_ee6e_d178,
    0x06f0_67aa_7217_6fba, 0x0a63_7dc5_a2c8_98a6, 0x113f_9804_bef9_0dae, 0x1b71_0b35_131c_471b,
    0x28db_77f5_2304_7d84, 0x32ca_ab7b_40c7_2493, 0x3c9e_be0a_15c9_bebc, 0x431d_67c4_9c10_0d4c,
    0x4cc5_d4be_cb3e_42b6, 0x597f_299c_fc65_7e2a, 0x5fcb_6fab_3ad6_faec, 0x6c44_198c_4a47_5817,
];

/// One round; each of the capital sigmas rotates by three numbers.
macro_rules! round {
    ($sums:tt, $k:expr, $word:expr, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident, $f:ident, $g:ident, $h:ident) => {
        let early = $h.add($word.add($a.splat($k))).add($e.choose($f, $g));
        let first = early.add(big_sigma!($sums, 1, $e));
        $d = $d.add(first);
        $h = first.add($a.majority($b, $c)).add(big_sigma!($sums, 0, $a));
    };
}

macro_rules! big_sigma {
    ([[$r0:literal, $r1:literal, $r2:literal], $one:tt], 0, $x:ident) => {
        $x.rotr($r0).xor3($x.rotr($r1), $x.rotr($r2))
    };
    ([$zero:tt, [$r0:literal, $r1:literal, $r2:literal]], 1, $x:ident) => {
        $x.rotr($r0).xor3($x.rotr($r1), $x.rotr($r2))
    };
}

/// Eight rounds, after which the eight names have their original roles again.
macro_rules! eight {
    ($sums:tt, $k:ident, $w:ident, $t:literal, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident, $f:ident, $g:ident, $h:ident) => {
        round!($sums, $k[$t], $w[$t], $a, $b, $c, $d, $e, $f, $g, $h);
        round!($sums, $k[$t + 1], $w[$t + 1], $h, $a, $b, $c, $d, $e, $f, $g);
        round!($sums, $k[$t + 2], $w[$t + 2], $g, $h, $a, $b, $c, $d, $e, $f);
        round!($sums, $k[$t + 3], $w[$t + 3], $f, $g, $h, $a, $b, $c, $d, $e);
        round!($sums, $k[$t + 4], $w[$t + 4], $e, $f, $g, $h, $a, $b, $c, $d);
        round!($sums, $k[$t + 5], $w[$t + 5], $d, $e, $f, $g, $h, $a, $b, $c);
        round!($sums, $k[$t + 6], $w[$t + 6], $c, $d, $e, $f, $g, $h, $a, $b);
        round!($sums, $k[$t + 7], $w[$t + 7], $b, $c, $d, $e, $f, $g, $h, $a);
    };
}

/// Replaces schedule word `t - 16` by word `t`; each of the small sigmas rotates and shifts by
/// three numbers.
macro_rules! next {
    ([[$z0:literal, $z1:literal, $z2:literal], [$o0:literal, $o1:literal, $o2:literal]], $w:ident, $t:expr) => {
        let (old, new) = ($w[($t + 1) % 16], $w[($t + 14) % 16]);
        let zero = old.rotr($z0).xor3(old.rotr($z1), old.shr($z2));
        let one = new.rotr($o0).xor3(new.rotr($o1), new.shr($o2));
        $w[$t] = $w[$t].add($w[($t + 9) % 16]).add(zero).add(one);
    };
}

/// Replaces eight schedule words, starting at `$t`.
macro_rules! next_eight {
    ($sigmas:tt, $w:ident, $t:literal) => {
        next!($sigmas, $w, $t);
        next!($sigmas, $w, $t + 1);
        next!($sigmas, $w, $t + 2);
        next!($sigmas, $w, $t + 3);
        next!($sigmas, $w, $t + 4);
        next!($sigmas, $w, $t + 5);
        next!($sigmas, $w, $t + 6);
        next!($sigmas, $w, $t + 7);
    };
}

/// The complete function for one word size: constants, rotations of the capital sigmas, rotations
/// and shift of the small ones.
macro_rules! compression {
    ($name:ident, $word:ty, $roots:ident, $sums:tt, $sigmas:tt) => {
        impl Compression for $name {
            type Word = $word;
            const BIG_ENDIAN: bool = true;

            #[inline(always)]
            fn compress<R: Register<Word = $word>>(state: &mut [R; 8], block: [R; 16]) {
                let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
                let mut w = block;
                for (sixteen, k) in $roots.as_chunks::<16>().0.iter().enumerate() {
                    if sixteen > 0 {
                        next_eight!($sigmas, w, 0);
                        next_eight!($sigmas, w, 8);
                    }
                    eight!($sums, k, w, 0, a, b, c, d, e, f, g, h);
                    eight!($sums, k, w, 8, a, b, c, d, e, f, g, h);
                }
                for (word, sum) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                    *word = word.add(sum);
                }
            }
        }
    };
}

compression!(Sha256, u32, ROOTS_256, [[2, 13, 22], [6, 11, 25]], [[7, 18, 3], [17, 19, 10]]);
compression!(Sha512, u64, ROOTS_512, [[28, 34, 39], [14, 18, 41]], [[1, 8, 7], [19, 61, 6]]);
