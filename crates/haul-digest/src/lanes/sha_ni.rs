//! The SHA instructions of x86 (Intel SDM: SHA1RNDS4, SHA256RNDS2 and their message helpers), with
//! several streams interleaved. One stream waits four to six cycles for each result; two keep the
//! unit busy.

use core::arch::x86_64::*;

use super::compression::Job;
use super::sha2::ROOTS_256;

/// Number of parallel SHA-1 streams, from measurement: 1.9, 3.5, 4.0 and 4.5 GB/s for one to four.
pub(super) const SHA1_STREAMS: usize = 4;

/// Number of parallel SHA-256 streams, from measurement: 1.8, 3.3, 3.3 and, out of registers, 2.3
/// GB/s for one to four.
pub(super) const SHA256_STREAMS: usize = 2;

/// Size of a block in bytes.
const BLOCK: usize = 64;

/// Computes SHA-1 over the next `blocks` blocks of one to [`SHA1_STREAMS`] jobs.
///
/// # Panics
///
/// Panics if `lanes` lists no job or more jobs, or if a job has fewer than `blocks` blocks in
/// `now`.
#[target_feature(enable = "sha,ssse3,sse4.1")]
pub(super) fn sha1(jobs: &mut [Job<'_>], lanes: &[usize], blocks: usize) {
    match lanes.len() {
        1 => sha1_streams::<1>(jobs, lanes, blocks),
        2 => sha1_streams::<2>(jobs, lanes, blocks),
        3 => sha1_streams::<3>(jobs, lanes, blocks),
        _ => sha1_streams::<SHA1_STREAMS>(jobs, lanes, blocks),
    }
}

/// Computes SHA-256 over the next `blocks` blocks of one to [`SHA256_STREAMS`] jobs.
///
/// # Panics
///
/// Panics if `lanes` lists no job or more jobs, or if a job has fewer than `blocks` blocks in
/// `now`.
#[target_feature(enable = "sha,ssse3,sse4.1")]
pub(super) fn sha256(jobs: &mut [Job<'_>], lanes: &[usize], blocks: usize) {
    match lanes.len() {
        1 => sha256_streams::<1>(jobs, lanes, blocks),
        _ => sha256_streams::<SHA256_STREAMS>(jobs, lanes, blocks),
    }
}

/// Returns the start of the bytes of each job, after asserting that they are long enough.
///
/// # Panics
///
/// Panics if `lanes` does not list exactly `N` jobs, or if a job has fewer than `blocks` blocks in
/// `now`.
fn starts<const N: usize>(jobs: &[Job<'_>], lanes: &[usize], blocks: usize) -> [*const u8; N] {
    assert!(lanes.len() == N, "one job a stream");
    let mut at = [core::ptr::null(); N];
    for (at, &job) in at.iter_mut().zip(lanes) {
        assert!(jobs[job].now.len() >= blocks * BLOCK, "every stream has the requested blocks");
        *at = jobs[job].now.as_ptr();
    }
    at
}

/// Four steps of every stream with one function, and the four schedule words that are needed 12
/// steps later.
macro_rules! sha1_four {
    ($group:literal, $n:ident, $abcd:ident, $before:ident, $e:ident, $w:ident) => {
        for s in 0..$n {
            let words = $w[s][$group % 4];
            let sum = if $group == 0 {
                _mm_add_epi32($e[s], words)
            } else {
                _mm_sha1nexte_epu32($before[s], words)
            };
            $before[s] = $abcd[s];
            $abcd[s] = _mm_sha1rnds4_epu32::<{ $group / 5 }>($abcd[s], sum);
            if $group < 16 {
                let two = _mm_sha1msg1_epu32($w[s][$group % 4], $w[s][($group + 1) % 4]);
                let three = _mm_xor_si128(two, $w[s][($group + 2) % 4]);
                $w[s][$group % 4] = _mm_sha1msg2_epu32(three, $w[s][($group + 3) % 4]);
            }
        }
    };
}

/// Computes SHA-1 over the next `blocks` blocks of the `N` jobs in `lanes`.
///
/// # Panics
///
/// Panics if `lanes` does not list exactly `N` jobs, or if a job has fewer than `blocks` blocks in
/// `now`.
#[target_feature(enable = "sha,ssse3,sse4.1")]
fn sha1_streams<const N: usize>(jobs: &mut [Job<'_>], lanes: &[usize], blocks: usize) {
    let at = starts::<N>(jobs, lanes, blocks);
    let order = _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    let mut abcd = [_mm_setzero_si128(); N];
    let mut e = [_mm_setzero_si128(); N];
    for (s, &job) in lanes.iter().enumerate() {
        let [a, b, c, d, last, ..] = jobs[job].state.map(|word| word as i32);
        abcd[s] = _mm_set_epi32(a, b, c, d);
        e[s] = _mm_set_epi32(last, 0, 0, 0);
    }
    for block in 0..blocks {
        let (abcd_start, e_start) = (abcd, e);
        let mut before = abcd;
        let mut w = [[_mm_setzero_si128(); 4]; N];
        for s in 0..N {
            for (quarter, words) in w[s].iter_mut().enumerate() {
                // SAFETY: `starts` asserted `blocks` blocks after each pointer; the load requires
                // no alignment.
                let bytes = unsafe { _mm_loadu_si128(at[s].add(block * BLOCK + 16 * quarter).cast()) };
                *words = _mm_shuffle_epi8(bytes, order);
            }
        }
        sha1_four!(0, N, abcd, before, e, w);
        sha1_four!(1, N, abcd, before, e, w);
        sha1_four!(2, N, abcd, before, e, w);
        sha1_four!(3, N, abcd, before, e, w);
        sha1_four!(4, N, abcd, before, e, w);
        sha1_four!(5, N, abcd, before, e, w);
        sha1_four!(6, N, abcd, before, e, w);
        sha1_four!(7, N, abcd, before, e, w);
        sha1_four!(8, N, abcd, before, e, w);
        sha1_four!(9, N, abcd, before, e, w);
        sha1_four!(10, N, abcd, before, e, w);
        sha1_four!(11, N, abcd, before, e, w);
        sha1_four!(12, N, abcd, before, e, w);
        sha1_four!(13, N, abcd, before, e, w);
        sha1_four!(14, N, abcd, before, e, w);
        sha1_four!(15, N, abcd, before, e, w);
        sha1_four!(16, N, abcd, before, e, w);
        sha1_four!(17, N, abcd, before, e, w);
        sha1_four!(18, N, abcd, before, e, w);
        sha1_four!(19, N, abcd, before, e, w);
        for s in 0..N {
            e[s] = _mm_sha1nexte_epu32(before[s], e_start[s]);
            abcd[s] = _mm_add_epi32(abcd[s], abcd_start[s]);
        }
    }
    for (s, &job) in lanes.iter().enumerate() {
        let words = [
            _mm_extract_epi32::<3>(abcd[s]),
            _mm_extract_epi32::<2>(abcd[s]),
            _mm_extract_epi32::<1>(abcd[s]),
            _mm_extract_epi32::<0>(abcd[s]),
            _mm_extract_epi32::<3>(e[s]),
        ];
        for (word, new) in jobs[job].state.iter_mut().zip(words) {
            *word = u64::from(new as u32);
        }
    }
}

/// Four rounds of every stream, and the four schedule words that are needed 12 rounds later.
macro_rules! sha256_four {
    ($group:literal, $n:ident, $abef:ident, $cdgh:ident, $w:ident) => {
        let roots = _mm_set_epi32(
            ROOTS_256[4 * $group + 3] as i32,
            ROOTS_256[4 * $group + 2] as i32,
            ROOTS_256[4 * $group + 1] as i32,
            ROOTS_256[4 * $group] as i32,
        );
        for s in 0..$n {
            let sum = _mm_add_epi32($w[s][$group % 4], roots);
            $cdgh[s] = _mm_sha256rnds2_epu32($cdgh[s], $abef[s], sum);
            $abef[s] = _mm_sha256rnds2_epu32($abef[s], $cdgh[s], _mm_shuffle_epi32::<0x0e>(sum));
            if $group < 12 {
                let zero = _mm_sha256msg1_epu32($w[s][$group % 4], $w[s][($group + 1) % 4]);
                let nine = _mm_alignr_epi8::<4>($w[s][($group + 3) % 4], $w[s][($group + 2) % 4]);
                $w[s][$group % 4] = _mm_sha256msg2_epu32(_mm_add_epi32(zero, nine), $w[s][($group + 3) % 4]);
            }
        }
    };
}

/// Computes SHA-256 over the next `blocks` blocks of the `N` jobs in `lanes`.
///
/// # Panics
///
/// Panics if `lanes` does not list exactly `N` jobs, or if a job has fewer than `blocks` blocks in
/// `now`.
#[target_feature(enable = "sha,ssse3,sse4.1")]
fn sha256_streams<const N: usize>(jobs: &mut [Job<'_>], lanes: &[usize], blocks: usize) {
    let at = starts::<N>(jobs, lanes, blocks);
    let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    let mut abef = [_mm_setzero_si128(); N];
    let mut cdgh = [_mm_setzero_si128(); N];
    for (s, &job) in lanes.iter().enumerate() {
        let [a, b, c, d, e, f, g, h] = jobs[job].state.map(|word| word as i32);
        abef[s] = _mm_set_epi32(a, b, e, f);
        cdgh[s] = _mm_set_epi32(c, d, g, h);
    }
    for block in 0..blocks {
        let (abef_start, cdgh_start) = (abef, cdgh);
        let mut w = [[_mm_setzero_si128(); 4]; N];
        for s in 0..N {
            for (quarter, words) in w[s].iter_mut().enumerate() {
                // SAFETY: `starts` asserted `blocks` blocks after each pointer; the load requires
                // no alignment.
                let bytes = unsafe { _mm_loadu_si128(at[s].add(block * BLOCK + 16 * quarter).cast()) };
                *words = _mm_shuffle_epi8(bytes, order);
            }
        }
        sha256_four!(0, N, abef, cdgh, w);
        sha256_four!(1, N, abef, cdgh, w);
        sha256_four!(2, N, abef, cdgh, w);
        sha256_four!(3, N, abef, cdgh, w);
        sha256_four!(4, N, abef, cdgh, w);
        sha256_four!(5, N, abef, cdgh, w);
        sha256_four!(6, N, abef, cdgh, w);
        sha256_four!(7, N, abef, cdgh, w);
        sha256_four!(8, N, abef, cdgh, w);
        sha256_four!(9, N, abef, cdgh, w);
        sha256_four!(10, N, abef, cdgh, w);
        sha256_four!(11, N, abef, cdgh, w);
        sha256_four!(12, N, abef, cdgh, w);
        sha256_four!(13, N, abef, cdgh, w);
        sha256_four!(14, N, abef, cdgh, w);
        sha256_four!(15, N, abef, cdgh, w);
        for s in 0..N {
            abef[s] = _mm_add_epi32(abef[s], abef_start[s]);
            cdgh[s] = _mm_add_epi32(cdgh[s], cdgh_start[s]);
        }
    }
    for (s, &job) in lanes.iter().enumerate() {
        let words = [
            _mm_extract_epi32::<3>(abef[s]),
            _mm_extract_epi32::<2>(abef[s]),
            _mm_extract_epi32::<3>(cdgh[s]),
            _mm_extract_epi32::<2>(cdgh[s]),
            _mm_extract_epi32::<1>(abef[s]),
            _mm_extract_epi32::<0>(abef[s]),
            _mm_extract_epi32::<1>(cdgh[s]),
            _mm_extract_epi32::<0>(cdgh[s]),
        ];
        for (word, new) in jobs[job].state.iter_mut().zip(words) {
            *word = u64::from(new as u32);
        }
    }
}
