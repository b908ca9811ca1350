//! Tests of frames: a written frame decodes to the same message, and any bytes give a message or a
//! clear error.

use crate::any::message;
use haul_proto::limits::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX};
use haul_proto::{FileKind, FileNumber, Flaw, HEADER_LEN, Header, Message, NewFile, Xattr};
use proptest::prelude::*;

pub(crate) fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn header_of(bytes: &[u8]) -> Result<Header, Flaw> {
    let mut header = [0; HEADER_LEN];
    header.copy_from_slice(&bytes[..HEADER_LEN]);
    Header::decode(&header)
}

pub(crate) fn decoded(bytes: &[u8]) -> Result<Option<Message>, Flaw> {
    let header = header_of(bytes)?;
    Message::decode(&header, &bytes[HEADER_LEN..])
}

/// Returns a frame with this body and these first fields and with correct checksums, as a hostile
/// peer can send.
pub(crate) fn forged(kind: u8, flags: u8, payload: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, flags];
    bytes.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
    bytes.extend(payload.to_le_bytes());
    bytes.extend(crc32fast::hash(body).to_le_bytes());
    let crc = crc32fast::hash(&bytes);
    let check = ((crc >> 16) ^ (crc & 0xffff)) as u16;
    bytes.splice(2..2, check.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Returns the number of cases of each property; `HAUL_PROTO_CASES=N` sets it.
pub(crate) fn cases() -> ProptestConfig {
    let asked = std::env::var("HAUL_PROTO_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig::with_cases(asked.unwrap_or(2000))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_message_round_trips(message in message()) {
        prop_assert_eq!(message.check(), Ok(()));
        let bytes = encoded(&message);
        prop_assert!(bytes.len() <= HEADER_LEN + BODY_BYTES_MAX);
        let header = header_of(&bytes).unwrap();
        prop_assert_eq!(header.body_len(), bytes.len() - HEADER_LEN);
        prop_assert_eq!(header.payload_len(), message.payload_len());
        prop_assert_eq!(decoded(&bytes), Ok(Some(message)));
    }

    /// Fields that a later version may add. The tags of the defined fields are below 16.
    #[test]
    fn unknown_optional_fields_are_skipped_and_mandatory_ones_refused(message in message(), tag in 16u16..0x8000, more in proptest::collection::vec(any::<u8>(), 0..30)) {
        let bytes = encoded(&message);
        let mut body = bytes[HEADER_LEN..].to_vec();
        let mut field = |tag: u16| {
            body.extend(tag.to_le_bytes());
            body.extend(u32::try_from(more.len()).unwrap().to_le_bytes());
            body.extend(&more);
            forged(bytes[0], bytes[1], message.payload_len(), &body)
        };
        prop_assert_eq!(decoded(&field(tag)), Ok(Some(message.clone())));
        prop_assert_eq!(decoded(&field(tag | 0x8000)), Err(Flaw::MustUnderstand(tag | 0x8000)));
    }

    /// A flipped bit is always detected: in the header by its checksum, behind it by the body's.
    #[test]
    fn flipped_bit_is_detected(message in message(), at in any::<proptest::sample::Index>(), bit in 0u32..8) {
        let mut bytes = encoded(&message);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        // A changed length would make a reader take more or fewer bytes: the header's checksum is
        // verified first.
        match header_of(&bytes) {
            Err(flaw) => prop_assert_eq!(flaw, Flaw::HeaderDamaged),
            Ok(header) => {
                prop_assert!(at >= HEADER_LEN, "one flipped bit always shows in the check");
                prop_assert_eq!(Message::decode(&header, &bytes[HEADER_LEN..]), Err(Flaw::BodyDamaged));
            }
        }
    }

    #[test]
    fn decoded_header_lengths_are_within_limits(bytes in any::<[u8; HEADER_LEN]>()) {
        if let Ok(header) = Header::decode(&bytes) {
            prop_assert!(header.body_len() <= BODY_BYTES_MAX && header.payload_len() <= PAYLOAD_BYTES_MAX);
        }
    }

    /// A hostile peer sends correct checksums. A body that decodes is encoded to the same message
    /// again.
    #[test]
    fn decoded_bodies_round_trip(kind in 0u8..22, payload in prop_oneof![Just(0u32), 0..PAYLOAD_BYTES_MAX], body in proptest::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..300)) {
        if let Ok(Some(message)) = decoded(&forged(kind, 0, payload, &body)) {
            prop_assert_eq!(decoded(&encoded(&message)), Ok(Some(message)));
        }
    }

    /// Near misses: a real message with a few changed bytes and corrected checksums.
    #[test]
    fn decoded_near_misses_round_trip(message in message(), changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4), cut in any::<proptest::sample::Index>()) {
        let bytes = encoded(&message);
        let mut body = bytes[HEADER_LEN..].to_vec();
        for (at, value) in changes {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = value;
            }
        }
        let _ = decoded(&forged(bytes[0], 0, message.payload_len(), &body));
        body.truncate(cut.index(body.len() + 1));
        if let Ok(Some(message)) = decoded(&forged(bytes[0], 0, message.payload_len(), &body)) {
            prop_assert_eq!(decoded(&encoded(&message)), Ok(Some(message)));
        }
    }
}

#[test]
fn unknown_kinds_are_skipped_only_if_optional() {
    assert_eq!(decoded(&forged(99, 1, 7, b"later")), Ok(None));
    assert_eq!(decoded(&forged(99, 0, 0, b"later")), Err(Flaw::UnknownKind(99)));
}

#[test]
fn excessive_lengths_are_refused_by_the_header() {
    let mut bytes = forged(1, 0, 0, b"");
    for (at, what) in [(4, "body"), (8, "payload")] {
        let mut long = bytes[..HEADER_LEN].to_vec();
        long[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut checked = long.clone();
        checked.drain(2..4);
        let crc = crc32fast::hash(&checked);
        long[2..4].copy_from_slice(&(((crc >> 16) ^ (crc & 0xffff)) as u16).to_le_bytes());
        assert!(matches!(header_of(&long), Err(Flaw::TooLong { what: found, .. }) if found == what));
    }
    bytes[0] ^= 1;
    assert_eq!(header_of(&bytes), Err(Flaw::HeaderDamaged));
}

#[test]
fn only_blocks_have_a_payload() {
    assert_eq!(decoded(&forged(16, 0, 5, b"")), Err(Flaw::Payload(16)));
}

/// First bytes of other programs on the port.
#[test]
fn foreign_protocols_fail_the_header_check() {
    for hello in [&b"GET / HTTP/1.1\r\nHost: x\r\n"[..], b"SSH-2.0-OpenSSH_9.2p1\r\n", &[0; 16], &[255; 16]] {
        assert_eq!(header_of(hello), Err(Flaw::HeaderDamaged));
    }
}

#[test]
fn oversized_attributes_are_refused_before_sending() {
    let value: Box<[u8]> = vec![7; XATTR_VALUE_BYTES_MAX].into();
    let xattr = Xattr { name: Box::from(&b"user.x"[..]), value };
    let mut file = NewFile {
        xattrs: vec![xattr; XATTRS_BYTES_MAX / (XATTR_VALUE_BYTES_MAX + 6)],
        ..NewFile::new(&b"a"[..], FileKind::Directory)
    };
    let message = Message::NewFile(Box::new(file.clone()));
    assert_eq!(message.check(), Ok(()));
    assert_eq!(decoded(&encoded(&message)), Ok(Some(message)));
    file.xattrs.extend(file.xattrs.clone());
    let message = Message::NewFile(Box::new(file));
    assert!(matches!(message.check(), Err(Flaw::TooLong { .. })));
}

/// Bytes of one frame as docs/formats/wire.md draws them. They must never change.
#[test]
fn version_1_frame_is_unchanged() {
    let message = Message::BlockReject(haul_proto::BlockReject {
        number: FileNumber(0x0102_0304),
        attempt: 5,
        object: None,
        reason: haul_proto::Reason::new(haul_proto::Why::Differs, "hm"),
    });
    let body =
        [4, 3, 2, 1, 0, 0, 0, 0, 5, 0, 255, 255, 255, 255, 255, 255, 255, 255, 12, 0, 2, 0, 0, 0, b'h', b'm'];
    assert_eq!(encoded(&message), forged(11, 0, 0, &body));
    assert_eq!(encoded(&message)[..HEADER_LEN], [11, 0, 219, 104, 26, 0, 0, 0, 0, 0, 0, 0, 183, 28, 9, 5]);
}
