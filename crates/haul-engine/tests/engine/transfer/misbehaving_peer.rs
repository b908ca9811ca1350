//! Tests of compressed blocks from a test peer: no block becomes other bytes than intended.

use super::pair::{Pair, offer};
use haul_digest::{Algorithm, Digest, digest};
use haul_engine::transfer::{Failure, Report, RunContext, Tally, answer};
use haul_lab::misbehaving_peer::{self, MisbehavingPeer};
use haul_model::{ByteRange, Level, ObjectIndex};
use haul_net::StreamLane;
use haul_proto::{
    Compression, Encoding, JobOptions, Message, NewBlock, Outcome, Reason, Stated, Verify, Why,
};
use std::fs;
use std::sync::atomic::AtomicBool;

pub(super) struct Nobody;

impl Report for Nobody {
    fn failed(&self, _: &Failure) {}
}

/// Sends one small file `f` of `len` bytes with the digest `stated`, as one compressed block with
/// the first of `payloads`. Sends the next payload (or the last one again) for each repeat that the
/// sink requests. Returns the outcome and the number of blocks sent.
fn send_packed(
    pair: &Pair,
    options: &JobOptions,
    len: u64,
    payloads: &[&[u8]],
    stated: Option<Digest>,
) -> (Outcome, u32) {
    let (ours, theirs) = StreamLane::pair();
    let offer = offer(&pair.sink());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (stop, tally) = (AtomicBool::new(false), Tally::default());
            answer(
                theirs.into(),
                &mut || None,
                &offer,
                &RunContext { stop: &stop, tally: &tally, report: &Nobody, receipt: None },
            )
            .unwrap()
        });
        let mut peer = MisbehavingPeer::at(ours);
        peer.say(&Message::Connect(Box::new(misbehaving_peer::connect(options))), &[]);
        assert!(matches!(peer.hear(), Message::Accept(_)));
        peer.say(
            &Message::NewFile(Box::new(misbehaving_peer::new_file(0, b"f", misbehaving_peer::plain(len)))),
            &[],
        );
        let block = |payload: &[u8]| {
            let (range, encoding) = (ByteRange::between(0, len), Encoding::Zstd);
            Message::NewBlock(NewBlock { range, encoding, ..misbehaving_peer::block(0, payload) })
        };
        let end = misbehaving_peer::block_digest(0, 0, stated.map_or(Stated::Nothing, Stated::Digest));
        peer.say(&block(payloads[0]), payloads[0]);
        peer.say(&end, &[]);
        peer.say(&misbehaving_peer::file_close(0, misbehaving_peer::read(len)), &[]);
        let mut went = 1;
        let outcome = loop {
            match peer.hear() {
                Message::BlockReject(reject) => {
                    assert_eq!((reject.reason.why, reject.object), (Why::Differs, Some(ObjectIndex(0))));
                    let payload = payloads.get(went as usize).or(payloads.last()).unwrap();
                    went += 1;
                    peer.say(&block(payload), payload);
                    peer.say(&end, &[]);
                }
                Message::FileDone(done) => break done.outcome,
                other => panic!("{} is no answer", other.name()),
            }
        };
        peer.part(1);
        (outcome, went)
    })
}

fn options(verify: Verify) -> JobOptions {
    let settle = if verify == Verify::None { Level::Received } else { Level::Verified };
    JobOptions { verify, settle, compression: Compression::Zstd(3), ..JobOptions::default() }
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).unwrap()
}

fn of(bytes: &[u8]) -> Option<Digest> {
    Some(digest(Algorithm::Blake3, bytes))
}

#[test]
fn valid_packed_block_is_accepted() {
    let pair = Pair::new();
    let bytes = b"the same again ".repeat(60_000);
    let (outcome, went) =
        send_packed(&pair, &options(Verify::Stream), bytes.len() as u64, &[&pack(&bytes)], of(&bytes));
    assert_eq!((outcome, went), (Outcome::Done(Level::Verified), 1));
    assert!(fs::read(pair.sink().join("f")).unwrap() == bytes);
}

#[test]
fn block_that_decompresses_beyond_its_length_is_refused() {
    let pair = Pair::new();
    let announced = 1 << 20;
    let bomb = pack(&vec![b'A'; 256 << 20]);
    assert!(bomb.len() < announced);
    let stated = of(&vec![b'A'; announced]);
    let (outcome, went) = send_packed(&pair, &options(Verify::Stream), announced as u64, &[&bomb], stated);
    assert_eq!(outcome, Outcome::Failed(Why::Differs.into()));
    assert_eq!(went, 6, "requested again five times");
    assert_eq!(fs::read_dir(pair.sink()).unwrap().count(), 0);
}

#[test]
fn block_shorter_than_its_length_is_refused() {
    let pair = Pair::new();
    let bytes = vec![b'A'; 1000];
    let mut longer = bytes.clone();
    longer.push(b'A');
    let (outcome, _) = send_packed(&pair, &options(Verify::Stream), 1001, &[&pack(&bytes)], of(&longer));
    assert_eq!(outcome, Outcome::Failed(Why::Differs.into()));
    assert_eq!(fs::read_dir(pair.sink()).unwrap().count(), 0);
}

#[test]
fn invalid_frame_fails_the_file_without_verification() {
    let pair = Pair::new();
    let (outcome, went) = send_packed(&pair, &options(Verify::None), 1000, &[b"this is no frame"], None);
    let Outcome::Failed(Reason { why, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((why, went), (Why::Differs, 1));
    assert_eq!(fs::read_dir(pair.sink()).unwrap().count(), 0);
}

#[test]
fn undecodable_frame_is_accepted_as_zeros_only_if_zeros_match() {
    // A block that cannot be decompressed counts as zeros. Those must never be accepted for other
    // bytes.
    let pair = Pair::new();
    let mut almost = vec![0; 5000];
    almost[4999] = 1;
    let (outcome, _) = send_packed(&pair, &options(Verify::Stream), 5000, &[b"no frame"], of(&almost));
    assert_eq!(outcome, Outcome::Failed(Why::Differs.into()));
    let (outcome, _) = send_packed(&pair, &options(Verify::Stream), 5000, &[b"no frame"], of(&[0; 5000]));
    assert_eq!(outcome, Outcome::Done(Level::Verified));
    assert!(fs::read(pair.sink().join("f")).unwrap() == [0; 5000]);
}

#[test]
fn frame_damaged_in_transit_is_requested_again() {
    let pair = Pair::new();
    let bytes = b"words that come again ".repeat(20_000);
    let frame = pack(&bytes);
    let mut damaged = frame.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    let cut = &frame[..frame.len() - 3];
    let payloads: [&[u8]; 3] = [&damaged, cut, &frame];
    let (outcome, went) =
        send_packed(&pair, &options(Verify::Stream), bytes.len() as u64, &payloads, of(&bytes));
    assert_eq!((outcome, went), (Outcome::Done(Level::Verified), 3));
    assert!(fs::read(pair.sink().join("f")).unwrap() == bytes);
}
