//! An association over datagrams, against a peer that sends any frames in any order.

use haul_udp::packet::{Ack, Frame, HEADER_LEN, Header, Spread};
use haul_udp::{Association, Config, Crc32c, Read, Role, Seal, State};

/// A CRC that counts as authentic, so that violations end the association.
#[derive(Debug)]
struct Trusted;

impl Seal for Trusted {
    fn overhead(&self) -> usize {
        Crc32c.overhead()
    }

    fn is_authentic(&self) -> bool {
        true
    }

    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) {
        Crc32c.seal(number, header, body);
    }

    fn open(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> Option<usize> {
        Crc32c.open(number, header, body)
    }
}

const BUFFER: usize = 64 << 10;

fn seal(is_trusted: bool) -> Box<dyn Seal> {
    if is_trusted { Box::new(Trusted) } else { Box::new(Crc32c) }
}

/// Takes a byte of settings, and then packets: the length of the body, the step of the packet
/// number, the time in milliseconds until the packet arrives, 1 byte each, and the frames.
pub fn association(data: &[u8]) {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let role = if first & 1 == 0 { Role::Acceptor } else { Role::Initiator(1_u8) };
    let mut config = Config::new(role, 1, 2, 77);
    config.send_buffer = BUFFER;
    config.receive_buffer = BUFFER;
    config.remote_buffer = 4096;
    let mut end = Association::new(config, seal(first & 2 == 0), seal(first & 2 == 0), 0);
    end.write(&[3; 10_000]);
    if first & 4 == 0 {
        end.finish();
    }
    let (mut now, mut number) = (0, 0);
    let mut buffer = Vec::new();
    let mut target = [0; 4096];
    while let Some(([len, step, wait], after)) = rest.split_first_chunk::<3>() {
        let (frames, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        now += u64::from(*wait) * 1_000_000;
        let mut datagram = Header { connection: 1, number }.encode().to_vec();
        number += u64::from(*step);
        datagram.extend_from_slice(frames);
        datagram.extend([0; 4]);
        let (header, body) = datagram.split_at_mut(HEADER_LEN);
        Crc32c.seal(0, header, body);
        end.receive(now, 1, &mut datagram);
        while let Read::Bytes(_) = end.read(&mut target) {}
        let mut sends = 0;
        while let Some(transmit) = end.transmit(now, &mut buffer) {
            assert!(transmit.to == 1 && transmit.segment <= buffer.len());
            sends += 1;
            assert!(sends < 1000, "datagrams without end");
        }
        let stats = end.stats();
        assert!(stats.memory < 4 << 20, "{} bytes", stats.memory);
        assert!(stats.packets_received > 0 || role != Role::Acceptor || stats.bytes_sent == 0);
    }
    // Without further packets, the association ends.
    for _ in 0..10_000 {
        let Some(next) = end.next_time() else { break };
        now = now.max(next);
        while end.transmit(now, &mut buffer).is_some() {}
    }
    assert!(end.state() != State::Open || end.peer().is_none(), "{end:?}");
}

/// Frames that an association accepts in this order.
pub fn seeds() -> Vec<Vec<u8>> {
    let ack = |largest, runs| Frame::Ack(Ack { largest, delay: 10, credit: 1 << 20, runs });
    let sessions: [&[&[Frame<'_>]]; 3] = [
        &[
            &[Frame::Ping(5), Frame::Stream { offset: 0, data: b"abc", is_end: false }],
            &[Frame::Pong(77), ack(0, &[0])],
            &[ack(3, &[1, 0, 0]), Frame::Rtt(3000), Frame::Stream { offset: 6, data: b"gh", is_end: true }],
            &[
                Frame::Train(64),
                Frame::Spread(Spread { first: 0, bytes: 40_000, nanos: 400_000 }),
                Frame::Stream { offset: 3, data: b"def", is_end: false },
            ],
            &[Frame::Close(0)],
        ],
        &[&[Frame::Ping(5)], &[ack(0, &[0])], &[Frame::Close(9)]],
        &[
            &[Frame::Stream { offset: 0, data: b"", is_end: true }],
            &[Frame::Pong(77), ack(1, &[1])],
            &[Frame::Close(1)],
        ],
    ];
    let write = |first: u8, packets: &[&[Frame<'_>]]| {
        let mut bytes = vec![first];
        for frames in packets {
            let mut body = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut body));
            bytes.extend([u8::try_from(body.len()).expect("a short packet"), 1, 20]);
            bytes.extend(body);
        }
        bytes
    };
    sessions.iter().flat_map(|packets| (0..8).map(|first| write(first, packets))).collect()
}

/// Datagrams with each frame.
pub fn datagrams() -> Vec<Vec<u8>> {
    seeds()
        .iter()
        .map(|frames| [&Header { connection: 1, number: 9 }.encode(), &frames[4..]].concat())
        .collect()
}
