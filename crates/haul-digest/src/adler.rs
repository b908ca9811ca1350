//! Adler-32 (RFC 1950), with the arithmetic that joins the sums of neighbours.
//!
//! Over the bytes d1 ... dn it is a = 1 + d1 + ... + dn and b = a1 + ... + an (ai being a after i bytes), both
//! modulo 65521, written as `b << 16 | a`.

/// The largest prime below 2^16.
const MODULUS: u64 = 65521;

/// The value of no bytes.
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

    /// The same as feeding `len` bytes of 0, in constant time.
    pub(crate) fn update_zeros(&mut self, len: u64) {
        let (a, b) = sums(self.value());
        let b = (b + a * (len % MODULUS)) % MODULUS;
        self.0 = simd_adler32::Adler32::from_checksum(join(a, b));
    }

    pub(crate) fn value(&self) -> u32 {
        self.0.finish()
    }
}

/// The Adler-32 of two neighbours, from theirs; `right_len` is the length of the right one in bytes.
///
/// Behind the left one the right one starts with a = `left_a` where it counted from 1, so each of its bytes
/// adds `left_a - 1` more to b.
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

/// Joins two sums, both below 2^16.
fn join(a: u64, b: u64) -> u32 {
    (b as u32) << 16 | a as u32
}
