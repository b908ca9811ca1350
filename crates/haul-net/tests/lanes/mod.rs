//! Tests of the transport of bytes over lanes.

use crate::world::{KINDS, LONG, Numbers, World, lane};
use haul_net::{Kind, LaneControl as _, LaneError, Pacer, StreamLane, StreamReader, StreamWriter};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Number of bytes per direction in a soak test.
const SOAK_BYTES: usize = 12 << 20;

/// More bytes than the buffers of any lane within a machine hold.
const BULK_BYTES: usize = 48 << 20;

fn send(writer: &mut StreamWriter, seed: u64) {
    let (mut lengths, mut bytes) = (Numbers(seed), Numbers(!seed));
    let mut sent = 0;
    while sent < SOAK_BYTES {
        let mut message = vec![0; lengths.length()];
        bytes.fill(&mut message);
        let (header, payload) = message.split_at(lengths.draw() as usize % (message.len() + 1));
        writer.write_all_vectored(&[header, &[], payload]).expect("writes");
        sent += message.len();
    }
    writer.finish().expect("finishes");
}

fn receive(reader: &mut StreamReader, seed: u64) {
    let (mut lengths, mut bytes) = (Numbers(seed), Numbers(!seed));
    let (mut received, mut expected, mut got) = (0, Vec::new(), Vec::new());
    while received < SOAK_BYTES {
        expected.resize(lengths.length(), 0);
        bytes.fill(&mut expected);
        got.resize(expected.len(), 0xee);
        // The same bytes in two reads, split at another position than when they were sent.
        let cut = lengths.draw() as usize % (expected.len() + 1);
        let (head, tail) = got.split_at_mut(expected.len() - cut);
        reader.read_exact(head).expect("reads");
        reader.read_exact(tail).expect("reads");
        assert!(got == expected, "at byte {received}");
        received += expected.len();
    }
    reader.expect_end().expect("the end");
}

/// Sends and receives at both ends at the same time.
fn exchange(near: StreamLane, far: StreamLane) {
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.split(), far.split());
    thread::scope(|scope| {
        scope.spawn(|| send(&mut near_out, 1));
        scope.spawn(|| send(&mut far_out, 2));
        scope.spawn(|| receive(&mut near_in, 2));
        scope.spawn(|| receive(&mut far_in, 1));
    });
}

#[test]
fn both_directions_run_concurrently() {
    for kind in KINDS {
        let (near, far, _world) = lane(kind);
        assert_eq!(near.kind(), kind);
        let controls = [near.control(), far.control()];
        exchange(near, far);
        let [near, far] = controls.map(|control| control.stats());
        assert_eq!((near.bytes_out, near.bytes_in), (far.bytes_in, far.bytes_out));
        assert!(near.bytes_out >= SOAK_BYTES as u64);
        assert_eq!(near.crypto > Duration::ZERO, kind == Kind::Tls);
    }
}

#[test]
fn full_direction_does_not_block_the_other() {
    for kind in KINDS {
        let (near, far, _world) = lane(kind);
        let (mut near_in, mut near_out) = near.split();
        let (mut far_in, mut far_out) = far.split();
        let bulk = vec![7; BULK_BYTES];
        thread::scope(|scope| {
            // Nothing reads this yet: the writer blocks with full buffers.
            let full = scope.spawn(move || {
                near_out.write_all(&bulk).expect("writes");
                near_out.finish().expect("finishes");
            });
            for round in 0..200_u32 {
                far_out.write_all(&round.to_le_bytes()).expect("writes");
                let mut bytes = [0; 4];
                near_in.read_exact(&mut bytes).expect("reads");
                assert_eq!(u32::from_le_bytes(bytes), round);
            }
            assert!(!full.is_finished());
            let mut bytes = vec![0; BULK_BYTES];
            far_in.read_exact(&mut bytes).expect("reads");
            assert!(bytes.iter().all(|byte| *byte == 7));
            full.join().expect("no panic");
        });
    }
}

#[test]
fn end_between_reads_and_inside_a_read_are_distinguished() {
    for kind in KINDS {
        let (mut near, mut far, _world) = lane(kind);
        near.write_all(b"12345").expect("writes");
        near.finish().expect("finishes");
        far.read_exact(&mut [0; 2]).expect("reads");
        assert!(matches!(far.read_exact(&mut [0; 5]), Err(LaneError::EndedInside { missing: 2 })));
        assert!(!far.read_exact_or_end(&mut [0; 5]).expect("the end"));
        assert!(matches!(far.read_exact(&mut [0; 5]), Err(LaneError::Ended)));
        // The other direction is still open.
        far.write_all(b"6").expect("writes");
        near.read_exact(&mut [0]).expect("reads");
        far.write_all(b"7").expect("writes");
        far.finish().expect("finishes");
        let error = near.close(LONG).expect_err("more came");
        assert!(matches!(error, LaneError::Unexpected), "{error}");
    }
}

/// Regression: a sender that never reads must not lose its last bytes to a reset when it closes.
#[test]
fn the_last_bytes_of_a_one_way_lane_arrive() {
    for kind in KINDS {
        for _ in 0..5 {
            let (mut near, mut far, _world) = lane(kind);
            thread::scope(|scope| {
                let sender = scope.spawn(move || {
                    near.write_all(&vec![3; 1 << 20]).expect("writes");
                    near.close(LONG).expect("closes")
                });
                let mut bytes = vec![0; 1 << 20];
                // Late and small reads: everything is in buffers when the sender closes.
                thread::sleep(Duration::from_millis(20));
                for chunk in bytes.chunks_mut(1000) {
                    far.read_exact(chunk).expect("reads");
                }
                assert_eq!(far.close(LONG).expect("closes").bytes_in, 1 << 20);
                assert_eq!(sender.join().expect("no panic").bytes_out, 1 << 20);
            });
        }
    }
}

#[test]
fn abort_wakes_blocked_reader_and_writer() {
    for kind in KINDS {
        let (near, far, _world) = lane(kind);
        let control = near.control();
        let (mut reader, mut writer) = near.split();
        thread::scope(|scope| {
            let reading = scope.spawn(move || reader.read_exact(&mut [0]));
            let writing = scope.spawn(move || {
                loop {
                    writer.write_all(&[0; 1 << 16])?;
                }
            });
            // Both are blocked by now, or will block.
            thread::sleep(Duration::from_millis(50));
            control.abort();
            let read: Result<(), LaneError> = reading.join().expect("no panic");
            let written: Result<(), LaneError> = writing.join().expect("no panic");
            assert!(matches!(read, Err(LaneError::Aborted)), "{kind:?} {read:?}");
            assert!(matches!(written, Err(LaneError::Aborted)), "{kind:?} {written:?}");
        });
        drop(far);
    }
}

/// Regression: with TLS, a write after an abort failed with EPIPE, as if the peer had left.
#[test]
fn every_call_after_an_abort_reports_the_abort() {
    for kind in KINDS {
        let (near, far, _world) = lane(kind);
        let control = near.control();
        let (mut reader, mut writer) = near.split();
        control.abort();
        let read = reader.read_exact(&mut [0]);
        assert!(matches!(read, Err(LaneError::Aborted)), "{kind:?} {read:?}");
        let written = writer.write_all(&[0; 1 << 16]);
        assert!(matches!(written, Err(LaneError::Aborted)), "{kind:?} {written:?}");
        let finished = writer.finish();
        assert!(matches!(finished, Err(LaneError::Aborted)), "{kind:?} {finished:?}");
        drop(far);
    }
}

#[test]
fn silent_peer_causes_a_stall_error() {
    for kind in KINDS {
        let (mut near, _far, _world) = lane(kind);
        near.set_stall(Some(Duration::from_millis(30)));
        let error = near.read_exact(&mut [0]).expect_err("no thread writes");
        assert!(matches!(error, LaneError::Stalled { .. }), "{error}");
        let error = loop {
            if let Err(error) = near.write_all(&[0; 1 << 16]) {
                break error;
            }
        };
        assert!(matches!(error, LaneError::Stalled { .. }), "{error}");
    }
}

/// The peer sees that a lane was dropped even if a handle for its statistics still exists.
#[test]
fn dropped_lane_ends_the_connection() {
    for kind in KINDS {
        let (mut near, mut far, _world) = lane(kind);
        near.write_all(b"x").expect("writes");
        let control = near.control();
        drop(near);
        far.read_exact(&mut [0]).expect("what was sent before");
        let end = far.read_exact(&mut [0]);
        match kind {
            Kind::Tls => assert!(matches!(end, Err(LaneError::Truncated)), "{end:?}"),
            Kind::Udp | Kind::Quic => assert!(matches!(end, Err(LaneError::Udp(_))), "{end:?}"),
            _ => assert!(matches!(end, Err(LaneError::Ended)), "{end:?}"),
        }
        assert_eq!(control.stats().bytes_out, 1);
    }
}

#[test]
fn rate_is_kept_by_waiting() {
    let (near, mut far, _world) = lane(Kind::Tls);
    let (_reader, mut writer) = near.split();
    let begun = Instant::now();
    writer.set_pacer(Some(Arc::new(Pacer::new(10_000_000))));
    thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&vec![0; 2_000_000]).expect("writes");
            writer.finish().expect("finishes");
        });
        far.read_exact(&mut vec![0; 2_000_000]).expect("reads");
    });
    // 0.2 s at the rate, without the first burst and the last piece. On a busy machine, part of
    // that is waiting for other things.
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert!(writer.control().stats().paced > Duration::ZERO);
}

#[test]
fn lane_waiting_for_its_rate_can_be_aborted() {
    let (near, _far) = StreamLane::pair();
    let control = near.control();
    let (_reader, mut writer) = near.split();
    writer.set_pacer(Some(Arc::new(Pacer::new(1))));
    thread::scope(|scope| {
        let writing = scope.spawn(move || writer.write_all(&[0; 100_000]));
        thread::sleep(Duration::from_millis(20));
        control.abort();
        let written = writing.join().expect("no panic");
        assert!(matches!(written, Err(LaneError::Aborted)), "{written:?}");
    });
}

#[test]
fn tcp_lane_reports_its_state() {
    let (mut near, mut far, _world) = lane(Kind::Plain);
    near.write_all(&[1; 1000]).expect("writes");
    far.read_exact(&mut [0; 1000]).expect("reads");
    let control = near.control();
    assert!(control.tcp().expect("TCP").congestion_window > 0);
    assert!(control.unacknowledged().is_some());
    assert!(control.facts().send_buffer > 0 && control.facts().congestion.is_some());
    assert!(far.control().facts().congestion.is_some());
    let (local, _other) = StreamLane::pair();
    assert!(local.control().tcp().is_none());
}

/// Every lane over SCTP is one over TLS. This test uses the number of TCP, because few kernels
/// have SCTP: the sockets get no option of TCP, and no direction is shut down alone.
#[test]
fn lane_over_a_stand_in_for_sctp_carries_bytes_and_ends() {
    let world = World::in_place_of_sctp(NonZeroU32::new(6));
    let (near, far) = world.lane_in_place_of_sctp(NonZeroU32::new(6));
    assert!(near.control().facts().notes.is_empty());
    exchange(near, far);
}
