//! The examples of docs/formats/udp.md, byte by byte.

use haul_udp::packet::{
    Ack, Frame, Frames, HEADER_LEN, Header, PING_LEN, RTT_LEN, SPREAD_LEN, STREAM_LEN, Spread, TRAIN_LEN,
};
use haul_udp::{Crc16, Crc32c, Seal};

const DOCUMENT: &str = include_str!("../../../../docs/formats/udp.md");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn assert_documented(name: &str, bytes: &[u8]) {
    let line = format!("{name}: {}", hex(bytes));
    assert!(DOCUMENT.lines().any(|found| found == line), "docs/formats/udp.md is to have this line:\n{line}");
}

fn frames() -> Vec<(&'static str, Frame<'static>)> {
    vec![
        ("PING", Frame::Ping(0x1122_3344_5566_7788)),
        ("PONG", Frame::Pong(0x1122_3344_5566_7788)),
        // Packets 300, 299, 290 and 10 to 20.
        (
            "ACK",
            Frame::Ack(Ack { largest: 300, delay: 2500, credit: 1 << 20, runs: &[1, 7, 0, 0x8c, 2, 10] }),
        ),
        ("RTT", Frame::Rtt(89_000)),
        ("TRAIN", Frame::Train(64)),
        ("SPREAD", Frame::Spread(Spread { first: 4, bytes: 56_640, nanos: 461_500 })),
        ("STREAM", Frame::Stream { offset: 65_536, data: b"haul", is_end: false }),
        ("STREAM_END", Frame::Stream { offset: 65_540, data: b"", is_end: true }),
        ("CLOSE", Frame::Close(0)),
    ]
}

#[test]
fn documented_frames_are_those_of_the_encoder() {
    for (name, frame) in frames() {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert_documented(name, &bytes);
        assert_eq!(Frames::new(&bytes).collect::<Vec<_>>(), [Ok(frame)], "{name}");
        // Each truncation is refused, except those of the stream's data.
        for len in 1..bytes.len().min(STREAM_LEN) {
            let first = Frames::new(&bytes[..len]).next();
            assert!(matches!(first, Some(Err(_))), "{name} cut to {len} bytes: {first:?}");
        }
    }
    let Frame::Ack(ack) = frames()[2].1 else { panic!("an ACK") };
    assert_eq!(ack.ranges().collect::<Vec<_>>(), [299..=300, 290..=290, 10..=20]);
    assert_eq!((PING_LEN, RTT_LEN, TRAIN_LEN, SPREAD_LEN), (9, 5, 3, 15));
}

#[test]
fn documented_datagrams_are_those_of_the_seals() {
    let header = Header { connection: 0x0403_0201, number: 0x0102_0304_0506 };
    assert_documented("header", &header.encode());
    assert_eq!(Header::decode(&header.encode()), Some(header));
    for (name, seal) in [("crc32c", &mut Crc32c as &mut dyn Seal), ("crc16", &mut Crc16)] {
        let mut bytes = header.encode().to_vec();
        Frame::Ping(0x1122_3344_5566_7788).encode(&mut bytes);
        bytes.resize(bytes.len() + seal.overhead(), 0);
        let (head, body) = bytes.split_at_mut(HEADER_LEN);
        seal.seal(header.number, head, body);
        assert_documented(name, &bytes);
    }
}
