//! The CRCs: polynomials over GF(2), and the arithmetic that joins the values of neighbours.
//!
//! A CRC register of `width` bits is a polynomial modulo P. Feeding a byte multiplies it by x^8 and adds the
//! byte (times x^width), so feeding n bytes to a register R gives `R * x^(8n) + F`, where F depends on the bytes
//! alone. All of this module follows from that line: zeros need one multiplication, and so do two neighbours.
//!
//! Reflected CRCs keep the coefficient of x^(width-1) in bit 0. The arithmetic below is done on the plain form
//! (coefficient of x^i in bit i); only the ends convert.

use crc_fast::CrcAlgorithm;
use std::fmt;

/// How many powers of x are kept: x^(2^k) for each bit k of a length in bits, a length in bytes having 64 bits.
const POWERS: usize = 64 + 3;

/// The parameters of one CRC, in the terms of the catalogue of parametrised CRC algorithms.
pub(crate) struct CrcSpec {
    /// 16, 32 or 64.
    width: u32,
    /// P without its highest term, plain form.
    poly: u64,
    /// Whether input and output are reflected.
    reflected: bool,
    /// The register before the first byte: 0 or all ones, so that reflecting it changes nothing.
    init: u64,
    /// What the last register is XORed with: 0 or all ones.
    xorout: u64,
    /// Its name in `crc_fast`.
    backend: CrcAlgorithm,
    /// x^(2^k) mod P, plain form.
    powers: [u64; POWERS],
}

impl fmt::Debug for CrcSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.backend)
    }
}

pub(crate) static CRC32: CrcSpec =
    CrcSpec::new(32, 0x04c1_1db7, true, true, true, CrcAlgorithm::Crc32IsoHdlc);
pub(crate) static CRC32C: CrcSpec = CrcSpec::new(32, 0x1edc_6f41, true, true, true, CrcAlgorithm::Crc32Iscsi);
pub(crate) static CKSUM: CrcSpec =
    CrcSpec::new(32, 0x04c1_1db7, false, false, true, CrcAlgorithm::Crc32Cksum);
pub(crate) static CRC64_NVME: CrcSpec =
    CrcSpec::new(64, 0xad93_d235_94c9_3659, true, true, true, CrcAlgorithm::Crc64Nvme);
pub(crate) static CRC64_XZ: CrcSpec =
    CrcSpec::new(64, 0x42f0_e1eb_a9ea_3693, true, true, true, CrcAlgorithm::Crc64Xz);
pub(crate) static CRC64_EOS: CrcSpec =
    CrcSpec::new(64, 0x42f0_e1eb_a9ea_3693, false, false, false, CrcAlgorithm::Crc64Ecma182);
pub(crate) static CRC16: CrcSpec = CrcSpec::new(16, 0x1021, true, true, true, CrcAlgorithm::Crc16IbmSdlc);

impl CrcSpec {
    /// `init_ones` and `xorout_ones`: all ones where true, 0 where false.
    const fn new(
        width: u32,
        poly: u64,
        reflected: bool,
        init_ones: bool,
        xorout_ones: bool,
        backend: CrcAlgorithm,
    ) -> CrcSpec {
        let ones = u64::MAX >> (64 - width);
        let mut powers = [0; POWERS];
        powers[0] = 2;
        let mut k = 1;
        while k < POWERS {
            powers[k] = multiply(width, poly, powers[k - 1], powers[k - 1]);
            k += 1;
        }
        let init = if init_ones { ones } else { 0 };
        let xorout = if xorout_ones { ones } else { 0 };
        CrcSpec { width, poly, reflected, init, xorout, backend, powers }
    }

    /// Whether the low bit of a byte goes in first.
    pub(crate) const fn is_reflected(&self) -> bool {
        self.reflected
    }

    /// The CRC of no bytes.
    pub(crate) const fn empty(&self) -> u64 {
        self.init ^ self.xorout
    }

    /// The CRC of two neighbours from theirs; `right_len` is the length of the right one in bytes.
    ///
    /// The right one's register started at `init` where it should have started at the left one's end, so the
    /// difference of the two, moved past the right one's bytes, is what is missing.
    pub(crate) fn combine(&self, left: u64, right: u64, right_len: u64) -> u64 {
        self.advance(left ^ self.xorout ^ self.init, right_len) ^ right
    }

    /// The register after `len` bytes of 0.
    fn advance(&self, register: u64, len: u64) -> u64 {
        let mut plain = self.swap_form(register);
        let mut rest = len;
        while rest != 0 && plain != 0 {
            let k = rest.trailing_zeros();
            plain = multiply(self.width, self.poly, plain, self.powers[k as usize + 3]);
            rest &= rest - 1;
        }
        self.swap_form(plain)
    }

    /// The register before `len` bytes of 0: [`CrcSpec::advance`] backwards, one bit at a time.
    fn retreat(&self, register: u64, len: u64) -> u64 {
        let mut plain = self.swap_form(register);
        for _ in 0..len * 8 {
            let carry = plain & 1;
            plain = (plain ^ (self.poly & carry.wrapping_neg())) >> 1 | carry << (self.width - 1);
        }
        self.swap_form(plain)
    }

    /// Between a register as the CRC keeps it and its plain form, either way.
    const fn swap_form(&self, register: u64) -> u64 {
        if self.reflected { register.reverse_bits() >> (64 - self.width) } else { register }
    }
}

/// The product of two plain polynomials modulo P, whose lower terms are `poly`.
const fn multiply(width: u32, poly: u64, left: u64, right: u64) -> u64 {
    let mask = u64::MAX >> (64 - width);
    let mut product = 0;
    let mut bit = width;
    while bit > 0 {
        bit -= 1;
        let overflow = (product >> (width - 1)) & 1;
        product = (product << 1) & mask ^ (poly & overflow.wrapping_neg());
        product ^= left & ((right >> bit) & 1).wrapping_neg();
    }
    product
}

/// A running CRC.
#[derive(Clone)]
pub(crate) struct CrcStream {
    spec: &'static CrcSpec,
    engine: Engine,
}

/// Who computes it. For zlib's CRC-32 the two are equally fast on large blocks, but on 1,400 bytes `crc32fast`
/// was 1.5 to 2 times as fast (measured on Cascade Lake and Zen 4).
#[derive(Clone)]
enum Engine {
    Zlib(crc32fast::Hasher),
    Folding(Box<crc_fast::Digest>),
}

impl CrcStream {
    pub(crate) fn new(spec: &'static CrcSpec) -> CrcStream {
        CrcStream::from_register(spec, spec.init)
    }

    /// A stream whose register is this already.
    fn from_register(spec: &'static CrcSpec, register: u64) -> CrcStream {
        let engine = match spec.backend {
            CrcAlgorithm::Crc32IsoHdlc => {
                Engine::Zlib(crc32fast::Hasher::new_with_initial((register ^ spec.xorout) as u32))
            }
            backend => Engine::Folding(Box::new(crc_fast::Digest::new_with_init_state(backend, register))),
        };
        CrcStream { spec, engine }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match &mut self.engine {
            Engine::Zlib(inner) => inner.update(bytes),
            Engine::Folding(inner) => inner.update(bytes),
        }
    }

    /// The same as feeding `len` bytes of 0, in at most 64 multiplications.
    pub(crate) fn update_zeros(&mut self, len: u64) {
        let register = self.spec.advance(self.value() ^ self.spec.xorout, len);
        *self = CrcStream::from_register(self.spec, register);
    }

    pub(crate) fn value(&self) -> u64 {
        match &self.engine {
            Engine::Zlib(inner) => u64::from(inner.clone().finalize()),
            Engine::Folding(inner) => inner.finalize(),
        }
    }
}

/// POSIX `cksum` of a file, from the CRC of its bytes alone: the length follows the bytes, its low byte first,
/// in as many bytes as it needs (none for an empty file).
pub(crate) fn cksum_close(crc: u64, len: u64) -> u64 {
    let (tail, count) = length_tail(len);
    let mut stream = CrcStream::from_register(&CKSUM, crc ^ CKSUM.xorout);
    stream.update(&tail[..count]);
    stream.value()
}

/// The CRC of a file's bytes alone, from its POSIX `cksum`: takes the length off again.
pub(crate) fn cksum_open(value: u64, len: u64) -> u64 {
    let (tail, count) = length_tail(len);
    let mut stream = CrcStream::new(&CKSUM);
    stream.update(&tail[..count]);
    // With init 0, a register is linear in its start: take away what the tail adds, then its shift.
    let start = CKSUM.retreat(value ^ stream.value(), count as u64);
    start ^ CKSUM.xorout
}

fn length_tail(len: u64) -> ([u8; 8], usize) {
    (len.to_le_bytes(), (64 - len.leading_zeros()).div_ceil(8) as usize)
}
