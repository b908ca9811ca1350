//! Tests of stored digests: values are read back, every flipped bit is detected, and fixed samples
//! of all three formats decode.

use haul_digest::{Algorithm, Digest, digest};
use haul_log::stored::xrootd::{XrootdFlaw, XrootdValue};
use haul_log::stored::{Stored, StoredFlaw, StoredObjects, eos, xrootd};
use haul_log::waybill::Moment;
use haul_model::ObjectSize;
use proptest::prelude::*;

fn value(size: u64, object: u64, algorithms: &[Algorithm]) -> Stored {
    let count = size.div_ceil(object);
    let objects = (count > 1).then(|| StoredObjects {
        size: ObjectSize::new(object).unwrap(),
        digests: (0..count).map(|at| digest(Algorithm::Blake3, &at.to_le_bytes())).collect(),
    });
    let digests = algorithms.iter().map(|&algorithm| digest(algorithm, b"bytes")).collect();
    Stored { size, mtime: Moment { sec: -5, nsec: 999_999_999 }, digests, objects }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn every_flipped_bit_and_truncation_is_detected() {
    let bytes = value(200_000, 65_536, &[Algorithm::Blake3, Algorithm::Adler32]).encode();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let flaw = Stored::decode(&flipped).unwrap_err();
        let expected = match bit / 8 {
            0..8 => matches!(flaw, StoredFlaw::NotOurs),
            8 => matches!(flaw, StoredFlaw::Newer(_) | StoredFlaw::Damaged),
            _ => flaw == StoredFlaw::Damaged,
        };
        assert!(expected, "bit {bit}: {flaw}");
    }
    for len in 0..bytes.len() {
        assert!(Stored::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    assert!(Stored::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
}

#[test]
fn documented_sample_is_encoded_and_decoded() {
    let sample = "6861756c73756d73 01 00 02 00 15cd5b07 0100000000000000 0900000000000000
                  06 626c616b6533 20 b7d65b48420d1033cb2595293263b6f72eabee20d55e699d0df1973b3c9deed1
                  07 61646c65723332 04 091e01de f723b482";
    let expected = Stored {
        size: 9,
        mtime: Moment { sec: 1, nsec: 123_456_789 },
        digests: [Algorithm::Blake3, Algorithm::Adler32].map(|alg| digest(alg, b"123456789")).to_vec(),
        objects: None,
    };
    assert_eq!(hex(sample), expected.encode());
    assert_eq!(Stored::decode(&hex(sample)), Ok(expected));
}

/// Appends a correct CRC to any bytes.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = digest(Algorithm::Crc32c, &bytes).value().unwrap() as u32;
    bytes.extend(crc.to_le_bytes());
    bytes
}

#[test]
fn contradictory_values_are_refused_and_unknown_algorithms_skipped() {
    let good = value(100_000, 65_536, &[Algorithm::Md5]).encode();
    let body = &good[..good.len() - 4];
    let with = |at: usize, byte: u8| {
        let mut bytes = body.to_vec();
        bytes[at] = byte;
        Stored::decode(&sealed(bytes))
    };
    for (at, byte) in [(9, 1), (9, 63), (9, 200), (9, 0), (10, 2), (10, 255), (15, 0xff), (31, 1)] {
        assert!(matches!(with(at, byte), Err(StoredFlaw::Contradictory(_))), "{at} {byte}");
    }
    assert_eq!(with(8, 2), Err(StoredFlaw::Newer(2)));
    // An algorithm of a later version.
    let mut stranger = body.to_vec();
    stranger[33] = b'z';
    assert_eq!(Stored::decode(&sealed(stranger)).unwrap().digests, []);
    assert!(Stored::decode(&sealed([body, &[0; 32]].concat())).is_err());
    assert!(Stored::decode(&sealed([body, &[0; 31]].concat())).is_err());
}

#[test]
fn xrootd_values_match_the_layout_of_xrootd() {
    // adler32 of "123456789", computed 2 seconds after the file was written at 1,700,000,000.
    let sample = hex(&format!(
        "61646c65723332 000000000000000000 000000006553f100 00000002 0000 00 04 091e01de {}",
        "00".repeat(60)
    ));
    let expected =
        XrootdValue { digest: digest(Algorithm::Adler32, b"123456789"), mtime: 1_700_000_000, delay: 2 };
    assert_eq!(XrootdValue::decode(Algorithm::Adler32, &sample), Ok(expected));
    assert_eq!(expected.encode().unwrap().to_vec(), sample);
    assert_eq!(XrootdValue::decode(Algorithm::Md5, &sample), Err(XrootdFlaw::Name));
    assert_eq!(XrootdValue::decode(Algorithm::Adler32, &sample[1..]), Err(XrootdFlaw::Length(95)));
    for len in [0, 3, 5, 64, 65, 255] {
        let mut bytes = sample.clone();
        bytes[31] = len;
        assert_eq!(XrootdValue::decode(Algorithm::Adler32, &bytes), Err(XrootdFlaw::Value(len)));
    }
    assert_eq!(xrootd::name_of(Algorithm::Cksum), Some("crc32"));
    assert_eq!(xrootd::name_of(Algorithm::Crc32), None);
    assert_eq!(XrootdValue { digest: digest(Algorithm::Blake3, b""), ..expected }.encode(), None);
    for algorithm in xrootd::algorithms() {
        let value = XrootdValue { digest: digest(algorithm, b"x"), mtime: -1, delay: -7 };
        assert_eq!(XrootdValue::decode(algorithm, &value.encode().unwrap()), Ok(value));
    }
}

#[test]
fn eos_stores_numbers_little_endian_and_hashes_in_order() {
    let adler = digest(Algorithm::Adler32, b"123456789");
    assert_eq!(eos::encode(adler), [0xde, 0x01, 0x1e, 0x09]);
    assert_eq!(eos::decode(b"adler", &[0xde, 0x01, 0x1e, 0x09]), Ok(adler));
    let md5 = digest(Algorithm::Md5, b"");
    assert_eq!(eos::encode(md5)[..4], [0xd4, 0x1d, 0x8c, 0xd9]);
    for algorithm in Algorithm::ALL.iter().copied() {
        let value = digest(algorithm, b"some");
        match eos::name_of(algorithm) {
            Some(name) => {
                assert_eq!(eos::decode(name.as_bytes(), &eos::encode(value)), Ok(value));
                assert_eq!(eos::decode(&[name.as_bytes(), b"\0"].concat(), &eos::encode(value)), Ok(value));
            }
            None => assert!(matches!(
                eos::decode(algorithm.name().as_bytes(), value.as_bytes()),
                Err(eos::EosFlaw::Type(_))
            )),
        }
    }
    assert_eq!(eos::decode(b"adler", &[1, 2, 3]), Err(eos::EosFlaw::Value(3)));
    assert_eq!(eos::decode(b"\x1b[2J", &[]).unwrap_err().to_string().matches('\x1b').count(), 0);
}

proptest! {
    #[test]
    fn stored_values_round_trip(size in 0_u64..3_000_000, log in 16_u32..22, which in 0_usize..27, sec: i64, nsec in 0_u32..1_000_000_000) {
        let mut stored = value(size, 1 << log, &Algorithm::ALL[which..]);
        stored.mtime = Moment { sec, nsec };
        prop_assert_eq!(Stored::decode(&stored.encode()), Ok(stored));
    }

    #[test]
    fn arbitrary_bytes_never_panic_the_readers(bytes in proptest::collection::vec(any::<u8>(), 0..200), head: bool) {
        let bytes = if head { sealed([&b"haulsums\x01"[..], &bytes].concat()) } else { bytes };
        if let Ok(stored) = Stored::decode(&bytes) {
            prop_assert!(stored.encode().len() <= bytes.len());
        }
        let _ = XrootdValue::decode(Algorithm::Md5, &bytes);
        let _: Result<Digest, _> = eos::decode(&bytes, &bytes);
    }
}
