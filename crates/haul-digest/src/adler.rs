//! Adler-32 (RFC 1950), with the arithmetic that combines the values of adjacent ranges.
//!
//! For the bytes d1 ... dn it consists of a = 1 + d1 + ... + dn and b = a1 + ... + an, where ai is
//! a after i bytes. Both are modulo 65521, and the value is `b << 16 | a`.

/// The largest prime below 2^16.
const MODULUS: u64 = 65521;

/// Value of zero bytes of input.
pub(crate) const ADLER_EMPTY: u32 = 1;

/// A running Adler-32.
#[derive(Clone)]
pub(crate) struct AdlerStream(simd_adler32::Adler32);

impl AdlerStream {
    pub(crate) fn new() -> AdlerStream {
        AdlerStream(simd_adler32::Adler32::new())
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Has the effect of feeding `len` zero bytes, in constant time.
    pub(crate) fn update_zeros(&mut self, len: u64) {
        let (a, b) = sums(self.value());
        let b = (b + a * (len % MODULUS)) % MODULUS;
        self.0 = simd_adler32::Adler32::from_checksum(join(a, b));
    }

    pub(crate) fn value(&self) -> u32 {
        self.0.finish()
    }
}

/// Returns the Adler-32 of two adjacent ranges from their values; `right_len` is the length of the
/// right range in bytes.
///
/// After the left range, the right range starts with a = `left_a` instead of 1. Therefore each of
/// its bytes adds `left_a - 1` more to b.
pub(crate) fn adler_combine(left: u32, right: u32, right_len: u64) -> u32 {
    let (left_a, left_b) = sums(left);
    let (right_a, right_b) = sums(right);
    let carried = left_a + MODULUS - 1;
    let a = (carried + right_a) % MODULUS;
    let b = (left_b + right_b + (carried % MODULUS) * (right_len % MODULUS)) % MODULUS;
    join(a, b)
}

fn sums(value: u32) -> (u64, u64) {
    (u64::from(value & 0xffff) % MODULUS, u64::from(value >> 16) % MODULUS)
}

/// Joins two sums, which must be below 2^16.
fn join(a: u64, b: u64) -> u32 {
    (b as u32) << 16 | a as u32
}
