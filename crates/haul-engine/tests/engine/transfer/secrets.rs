//! Tests of a source that tries to learn what the sink holds. A sink reveals which objects it
//! needs, and no digest of its own bytes: a digest of eight bytes under a CRC is their content.

use super::hostile::{Told, fetched, sent};
use super::pair::Pair;
use super::small_objects;
use haul_digest::{Algorithm, DigestKey, KeyedDigest, digest};
use haul_engine::transfer::{Offer, SimpleObserver, answer};
use haul_lab::misbehaving_peer::scripts::{all_that_is_said, assert_nothing_told};
use haul_lab::misbehaving_peer::{
    MisbehavingPeer, block, block_digest, connect, file_close, new_file, plain, read,
};
use haul_model::{Level, ObjectIndex};
use haul_net::StreamLane;
use haul_proto::{
    Answer, Close, FileNumber, JobOptions, Message, NewFile, ObjectDigests, Outcome as Ended, Stated, Update,
    Why,
};
use std::fs;

/// Content of the sink's file.
const SECRET: &[u8] = b"\x00s3cret!";

/// Size in bytes of an object of the tests.
const OBJECT: usize = 64 << 10;

const COMPARING: [Update; 2] = [Update::Digest, Update::Object];

#[test]
fn a_sink_tells_no_digest_of_its_bytes() {
    for algorithm in [Algorithm::Crc32c, Algorithm::Md5, Algorithm::Blake3] {
        for update in COMPARING {
            let options = JobOptions { update, algorithm, ..small_objects() };
            let pair = Pair::new();
            fs::write(pair.sink().join("secret"), SECRET).unwrap();
            let mut said = Vec::new();
            let tell = |liar: &mut MisbehavingPeer| all_that_is_said(liar, b"secret", SECRET.len() as u64);
            sent(&pair, &options, |liar| said = tell(liar));
            assert_nothing_told(&said, SECRET, algorithm);
            fetched(&pair, &options, &["secret"], |liar| said = tell(liar));
            assert_nothing_told(&said, SECRET, algorithm);
        }
    }
}

/// Key of the session that `fetched` opens.
fn key() -> DigestKey {
    DigestKey::derive(&[7; 32])
}

fn fetch(pair: &Pair, update: Update, lies: impl FnOnce(&mut MisbehavingPeer) + Send) -> Told {
    fetched(pair, &JobOptions { update, ..small_objects() }, &["secret"], lies)
}

/// Announces the file of the sink with `size` bytes. Returns the answer.
fn announced(liar: &mut MisbehavingPeer, size: u64) -> Message {
    let facts = NewFile { whole: false, ..new_file(0, b"secret", plain(size)) };
    liar.say(&Message::NewFile(Box::new(facts)), &[]);
    liar.hear()
}

fn digests(first: Option<u64>, digests: Vec<KeyedDigest>) -> Message {
    let first = first.map(ObjectIndex);
    Message::ObjectDigests(Box::new(ObjectDigests { number: FileNumber(0), attempt: 0, first, digests }))
}

/// Ends the session after the file failed at the source.
fn give_up(liar: &mut MisbehavingPeer) {
    liar.say(&file_close(0, Close::Failed(Why::Io.into())), &[]);
    assert!(matches!(liar.hear(), Message::FileDone(_)));
    liar.part(1);
}

/// A source that guesses the bytes finds out if it is right, but only about whole objects: it
/// cannot guess one byte after the other.
#[test]
fn a_file_cannot_be_guessed_byte_by_byte() {
    for size in 0..2 * SECRET.len() {
        let pair = Pair::new();
        fs::write(pair.sink().join("secret"), SECRET).unwrap();
        let guess: Vec<u8> = SECRET.iter().copied().chain([0; 8]).take(size).collect();
        let told = fetch(&pair, Update::Object, |liar| {
            let Message::FileId(id) = announced(liar, size as u64) else { panic!("FILE_ID comes") };
            if size == SECRET.len() {
                assert!(matches!(id.answer, Answer::Differing { end: 1, .. }), "{id:?}");
                liar.say(&digests(Some(0), vec![key().digest(&guess)]), &[]);
                let Message::Compared(compared) = liar.hear() else { panic!("COMPARED comes") };
                assert!(compared.end == 1 && compared.wanted.is_empty());
            } else {
                assert!(matches!(id.answer, Answer::Take { .. }), "{size} bytes: {id:?}");
            }
            give_up(liar);
        });
        told.assert_failures(1);
        assert_eq!(fs::read(pair.sink().join("secret")).unwrap(), SECRET);
    }
}

/// Digests of another session, and digests without a key, count as different bytes.
#[test]
fn what_is_the_same_is_decided_by_digests_of_this_session() {
    let plain = KeyedDigest::from_bytes(*digest(Algorithm::Blake3, SECRET).as_bytes().first_chunk().unwrap());
    for (told, is_same) in [
        (key().digest(SECRET), true),
        (DigestKey::derive(&[8; 32]).digest(SECRET), false),
        (plain, false),
        (key().digest(b"\x01s3cret!"), false),
    ] {
        for update in COMPARING {
            let pair = Pair::new();
            fs::write(pair.sink().join("secret"), SECRET).unwrap();
            fetch(&pair, update, |liar| {
                announced(liar, SECRET.len() as u64);
                let first = (update == Update::Object).then_some(0);
                liar.say(&digests(first, vec![told]), &[]);
                match liar.hear() {
                    Message::FileDone(done) => {
                        assert!(is_same && update == Update::Digest && done.outcome == Ended::Same);
                        return liar.part(1);
                    }
                    Message::FileId(id) => {
                        assert!(!is_same && update == Update::Digest);
                        assert!(matches!(id.answer, Answer::Take { .. }), "{id:?}");
                    }
                    Message::Compared(compared) => {
                        assert!(update == Update::Object && compared.wanted.is_empty() == is_same);
                    }
                    other => panic!("{other:?}"),
                }
                give_up(liar);
            });
            assert_eq!(fs::read(pair.sink().join("secret")).unwrap(), SECRET);
        }
    }
}

/// Each session ends with its reason, whatever digests the source sends.
#[test]
fn digests_that_were_not_asked_for_end_the_session() {
    let one = || key().digest(b"anything");
    let cases: [(Update, &[Message]); 9] = [
        (Update::Digest, &[digests(Some(0), vec![one()])]),
        (Update::Digest, &[digests(None, vec![one()]), digests(None, vec![one()])]),
        (Update::Object, &[digests(None, vec![one()])]),
        (Update::Object, &[digests(Some(1), vec![one()])]),
        (Update::Object, &[digests(Some(0), vec![one(); 5])]),
        (Update::Object, &[digests(Some(0), vec![one(); 1024])]),
        (Update::Object, &[digests(Some(0), vec![one()]), digests(Some(0), vec![one()])]),
        (Update::Always, &[digests(None, vec![one()])]),
        (Update::Always, &[digests(Some(0), vec![one()])]),
    ];
    for (update, messages) in cases {
        let pair = Pair::new();
        let bytes = vec![7; 4 * OBJECT];
        fs::write(pair.sink().join("secret"), &bytes).unwrap();
        let told = fetch(&pair, update, |liar| {
            announced(liar, 4 * OBJECT as u64);
            messages.iter().for_each(|message| liar.say(message, &[]));
            loop {
                if let Message::Bye(bye) = liar.hear() {
                    let why = bye.reason.map(|reason| reason.why);
                    break assert_eq!(why, Some(Why::Protocol), "{update:?} {messages:?}");
                }
            }
        });
        assert_eq!(told.ended.expect("a session").broken.expect("it broke").why, Why::Protocol);
        assert_eq!(fs::read(pair.sink().join("secret")).unwrap(), bytes);
        pair.nothing_is_left_over();
    }
}

/// Bytes that come before the comparison would replace what is compared.
#[test]
fn bytes_before_their_comparison_end_the_session() {
    for update in COMPARING {
        let pair = Pair::new();
        fs::write(pair.sink().join("secret"), SECRET).unwrap();
        let told = fetch(&pair, update, |liar| {
            announced(liar, SECRET.len() as u64);
            liar.say(&Message::NewBlock(block(0, b"88888888")), b"88888888");
            while !matches!(liar.hear(), Message::Bye(_)) {}
        });
        assert_eq!(told.ended.expect("a session").broken.expect("it broke").why, Why::Protocol);
        assert_eq!(fs::read(pair.sink().join("secret")).unwrap(), SECRET);
    }
}

/// A source that never states its digests keeps its own file waiting, and no other.
#[test]
fn a_source_that_states_no_digest_delays_its_own_file_only() {
    for update in COMPARING {
        let pair = Pair::new();
        fs::write(pair.sink().join("secret"), SECRET).unwrap();
        let told = fetched(&pair, &JobOptions { update, ..small_objects() }, &["secret", "other"], |liar| {
            announced(liar, SECRET.len() as u64);
            let facts = NewFile { whole: true, ..new_file(1, b"other", plain(5)) };
            liar.say(&Message::NewFile(Box::new(facts)), &[]);
            liar.say(&Message::NewBlock(block(1, b"bytes")), b"bytes");
            liar.say(&block_digest(1, 0, Stated::Digest(digest(Algorithm::Blake3, b"bytes"))), &[]);
            liar.say(&file_close(1, read(5)), &[]);
            let Message::FileDone(done) = liar.hear() else { panic!("FILE_DONE comes") };
            assert_eq!((done.number, done.outcome), (FileNumber(1), Ended::Done(Level::Verified)));
            liar.say(&file_close(0, Close::Failed(Why::Io.into())), &[]);
            assert!(matches!(liar.hear(), Message::FileDone(_)));
            liar.part(2);
        });
        told.assert_failures(1);
    }
}

/// A source that may not read a directory gets no list of its names.
#[test]
fn only_who_may_read_deletes() {
    let pair = Pair::new();
    fs::write(pair.sink().join("secret"), SECRET).unwrap();
    let (ours, theirs) = StreamLane::pair();
    let offer = Offer::writable(pair.sink().into());
    std::thread::scope(|scope| {
        let answering = scope
            .spawn(|| answer(theirs.into(), &mut || None, &offer, &SimpleObserver::default().run_context()));
        let mut liar = MisbehavingPeer::at(ours);
        let options = JobOptions { delete: true, ..small_objects() };
        let options = JobOptions { keep: offer.keep, ..options };
        liar.say(&Message::Connect(Box::new(connect(&options))), &[]);
        let Message::Refuse(reason) = liar.hear() else { panic!("REFUSE comes") };
        assert_eq!(reason.why, Why::Denied);
        assert!(reason.text.to_string().contains("cannot delete here"), "{reason}");
        drop(liar);
        answering.join().unwrap().expect_err("it was refused");
    });
}
