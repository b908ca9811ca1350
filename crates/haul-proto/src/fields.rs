//! Fields of a body: little-endian numbers, length-prefixed bytes, and a tail of optional fields.

use crate::Flaw;
use crate::limits::RUNS_MAX;
use haul_digest::{Algorithm, Blake2bLen, DIGEST_BYTES_MAX, Digest};
use haul_model::{Level, Moment, Runs};

/// Bit of a tag that must be understood: a receiver that does not know the tag refuses the message.
pub(crate) const MANDATORY: u16 = 0x8000;

/// Decoder that consumes a body from its front.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Fields<'a> {
        Fields { rest: body }
    }

    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Flaw> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Flaw::Short(what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Flaw> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Flaw> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Flaw> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Flaw> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Flaw> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(crate) fn id<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Flaw> {
        self.array(what)
    }

    /// Reads length-prefixed bytes, at most `most`.
    pub(crate) fn bytes(&mut self, most: usize, what: &'static str) -> Result<Box<[u8]>, Flaw> {
        let len = self.u32(what)?;
        if len as usize > most {
            return Err(Flaw::TooLong { what, len: u64::from(len), most: most as u64 });
        }
        self.take(len as usize, what).map(Box::from)
    }

    /// Reads the number of the elements that follow, at most `most`.
    pub(crate) fn count(&mut self, most: usize, what: &'static str) -> Result<usize, Flaw> {
        let count = self.u32(what)?;
        if count as usize > most {
            return Err(Flaw::TooLong { what, len: u64::from(count), most: most as u64 });
        }
        Ok(count as usize)
    }

    pub(crate) fn moment(&mut self, what: &'static str) -> Result<Moment, Flaw> {
        let sec = i64::from_le_bytes(self.array(what)?);
        let nsec = self.u32(what)?;
        if nsec >= 1_000_000_000 { Err(Flaw::Value(what)) } else { Ok(Moment { sec, nsec }) }
    }

    pub(crate) fn level(&mut self, what: &'static str) -> Result<Level, Flaw> {
        level_of(self.u8(what)?).ok_or(Flaw::Value(what))
    }

    pub(crate) fn algorithm(&mut self, what: &'static str) -> Result<Algorithm, Flaw> {
        let (code, len) = (self.u8(what)?, self.u8(what)?);
        algorithm_of(code, usize::from(len)).ok_or(Flaw::Value(what))
    }

    pub(crate) fn digest(&mut self, what: &'static str) -> Result<Digest, Flaw> {
        let algorithm = self.algorithm(what)?;
        self.digest_by(algorithm, what)
    }

    /// Reads only the bytes of a digest whose algorithm is known.
    pub(crate) fn digest_by(&mut self, algorithm: Algorithm, what: &'static str) -> Result<Digest, Flaw> {
        let bytes = self.take(algorithm.digest_len(), what)?;
        Digest::from_bytes(algorithm, bytes).map_err(|_| Flaw::Value(what))
    }

    /// Reads an optional algorithm: two bytes of 0 if it is missing.
    pub(crate) fn algorithm_if_any(&mut self, what: &'static str) -> Result<Option<Algorithm>, Flaw> {
        if self.rest.starts_with(&[0, 0]) {
            self.take(2, what)?;
            return Ok(None);
        }
        self.algorithm(what).map(Some)
    }

    /// Reads an optional digest: it is missing if its algorithm is missing.
    pub(crate) fn digest_if_any(&mut self, what: &'static str) -> Result<Option<Digest>, Flaw> {
        let algorithm = self.algorithm_if_any(what)?;
        algorithm.map(|algorithm| self.digest_by(algorithm, what)).transpose()
    }

    /// Reads runs in ascending order, of which none is empty and no two touch.
    pub(crate) fn runs(&mut self, what: &'static str) -> Result<Runs, Flaw> {
        let count = self.count(RUNS_MAX, what)?;
        let mut runs = Runs::default();
        for _ in 0..count {
            let (start, len) = (self.u64(what)?, self.u64(what)?);
            let end = start.checked_add(len).ok_or(Flaw::Value(what))?;
            if !runs.push(start, end) {
                return Err(Flaw::Value(what));
            }
        }
        Ok(runs)
    }

    /// Passes each of the optional fields at the end of a body to `take`. A field that `take` does
    /// not know is skipped, unless its tag has the bit [`MANDATORY`].
    pub(crate) fn tail(
        &mut self,
        mut take: impl FnMut(u16, &mut Fields<'_>) -> Result<bool, Flaw>,
    ) -> Result<(), Flaw> {
        while !self.rest.is_empty() {
            let tag = self.u16("optional field")?;
            let len = self.u32("optional field")?;
            let mut field = Fields::new(self.take(len as usize, "optional field")?);
            if !take(tag, &mut field)? && tag & MANDATORY != 0 {
                return Err(Flaw::MustUnderstand(tag));
            }
        }
        Ok(())
    }

    /// Reads a tail that has no known fields.
    pub(crate) fn end(mut self) -> Result<(), Flaw> {
        self.tail(|_, _| Ok(false))
    }
}

/// Encoder that appends to a body.
#[derive(Debug)]
pub(crate) struct Body<'a>(pub(crate) &'a mut Vec<u8>);

impl Body<'_> {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn id(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// # Panics
    /// Panics if the count exceeds 2^32 - 1. Messages are checked against the limits before they
    /// are encoded.
    pub(crate) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("a length within the limits"));
    }

    /// Appends an optional field: its tag, its length, and the bytes that `put` writes.
    pub(crate) fn optional(&mut self, tag: u16, put: impl FnOnce(&mut Body<'_>)) {
        self.u16(tag);
        let at = self.0.len();
        self.u32(0);
        put(self);
        let len = u32::try_from(self.0.len() - at - 4).expect("a field within the limits");
        self.0[at..at + 4].copy_from_slice(&len.to_le_bytes());
    }

    pub(crate) fn moment(&mut self, moment: Moment) {
        self.0.extend_from_slice(&moment.sec.to_le_bytes());
        self.u32(moment.nsec);
    }

    pub(crate) fn level(&mut self, level: Level) {
        self.u8(code_of_level(level));
    }

    pub(crate) fn algorithm(&mut self, algorithm: Algorithm) {
        let len = u8::try_from(algorithm.digest_len()).expect("at most 64");
        self.u8(code_of_algorithm(algorithm));
        self.u8(len);
    }

    pub(crate) fn digest(&mut self, digest: &Digest) {
        self.algorithm(digest.algorithm());
        self.0.extend_from_slice(digest.as_bytes());
    }

    pub(crate) fn digest_if_any(&mut self, digest: Option<&Digest>) {
        match digest {
            Some(digest) => self.digest(digest),
            None => self.u16(0),
        }
    }

    pub(crate) fn runs(&mut self, runs: &Runs) {
        self.count(runs.pieces());
        for (start, end) in runs.iter() {
            self.u64(start);
            self.u64(end - start);
        }
    }
}

const fn code_of_level(level: Level) -> u8 {
    match level {
        Level::Received => 1,
        Level::Verified => 2,
        Level::Durable => 3,
        Level::Reread => 4,
    }
}

fn level_of(code: u8) -> Option<Level> {
    [Level::Received, Level::Verified, Level::Durable, Level::Reread]
        .into_iter()
        .find(|level| code_of_level(*level) == code)
}

/// Digest algorithms in the order of their codes, which start at 1. Codes never change; a new
/// algorithm takes the next code.
const ALGORITHMS: [Algorithm; 27] = [
    Algorithm::Adler32,
    Algorithm::Crc32,
    Algorithm::Crc32c,
    Algorithm::Cksum,
    Algorithm::Crc64Nvme,
    Algorithm::Crc64Xz,
    Algorithm::Crc64Eos,
    Algorithm::Crc16,
    Algorithm::Bsd,
    Algorithm::Sysv,
    Algorithm::Md5,
    Algorithm::Sha1,
    Algorithm::Sha224,
    Algorithm::Sha256,
    Algorithm::Sha384,
    Algorithm::Sha512,
    Algorithm::Sha3_224,
    Algorithm::Sha3_256,
    Algorithm::Sha3_384,
    Algorithm::Sha3_512,
    Algorithm::Sm3,
    Algorithm::Blake2b,
    Algorithm::Blake3,
    Algorithm::Xxh32,
    Algorithm::Xxh64,
    Algorithm::Xxh3_64,
    Algorithm::Xxh3_128,
];

fn code_of_algorithm(algorithm: Algorithm) -> u8 {
    let full = if let Algorithm::Blake2bOf(_) = algorithm { Algorithm::Blake2b } else { algorithm };
    let place = ALGORITHMS.iter().position(|known| *known == full);
    let place = place.expect("every algorithm has a code: a test compares the table with the registry");
    u8::try_from(place + 1).expect("fewer than 255 algorithms")
}

fn algorithm_of(code: u8, len: usize) -> Option<Algorithm> {
    let algorithm = *ALGORITHMS.get(usize::from(code).checked_sub(1)?)?;
    match algorithm {
        Algorithm::Blake2b if len != DIGEST_BYTES_MAX => Blake2bLen::new(len).map(Algorithm::Blake2bOf),
        _ => (algorithm.digest_len() == len).then_some(algorithm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_its_own_code() {
        assert_eq!(ALGORITHMS.len(), Algorithm::ALL.len());
        let short = (1..64).filter_map(Blake2bLen::new).map(Algorithm::Blake2bOf);
        for algorithm in Algorithm::ALL.iter().copied().chain(short) {
            let back = algorithm_of(code_of_algorithm(algorithm), algorithm.digest_len());
            assert_eq!(back, Some(algorithm));
        }
        assert_eq!(algorithm_of(0, 4), None);
        assert_eq!(algorithm_of(1, 5), None);
        assert_eq!(algorithm_of(22, 0), None);
        assert_eq!(algorithm_of(255, 4), None);
    }

    #[test]
    fn unknown_optional_fields_are_skipped_and_mandatory_ones_refused() {
        let mut body = Vec::new();
        let mut put = Body(&mut body);
        put.u16(77);
        put.bytes(b"later");
        assert_eq!(Fields::new(&body).end(), Ok(()));
        Body(&mut body).u16(77 | MANDATORY);
        Body(&mut body).bytes(b"");
        assert_eq!(Fields::new(&body).end(), Err(Flaw::MustUnderstand(77 | MANDATORY)));
    }

    #[test]
    fn a_length_of_4_gib_allocates_nothing() {
        let body = [255, 255, 255, 255, 0];
        assert!(matches!(Fields::new(&body).bytes(10, "x"), Err(Flaw::TooLong { .. })));
        assert!(matches!(Fields::new(&body).bytes(usize::MAX, "x"), Err(Flaw::Short("x"))));
    }
}
