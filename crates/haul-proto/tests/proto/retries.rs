//! Tests of the limits of the state machines: retries of an object, and the quota.

use haul_digest::{Algorithm, Digest, DigestKey, digest};
use haul_model::{ByteRange, Level, Moment, ObjectIndex};
use haul_proto::limits::ENTRY_CHARGE;
use haul_proto::sink::Verdict;
use haul_proto::source::{Event, Work};
use haul_proto::{
    Answer, BlockDigest, BlockReject, BlockSync, CONTROL, Close, Encoding, End, FileClose, FileDone, FileId,
    FileKind, FileNumber, JobOptions, Message, NewBlock, NewFile, ObjectDigests, Outcome, Reason, Runs, Sink,
    Source, Stated, Timing, Unit, Update, Verify, Why, Window, sink, source,
};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(100);
const OBJECT: u64 = 4 << 20;
const TRIES: u8 = 2;
const NUMBER: FileNumber = FileNumber(0);

fn options() -> JobOptions {
    JobOptions { verify: Verify::Reread, settle: Level::Reread, ..JobOptions::default() }
}

fn two_objects() -> NewFile {
    NewFile::new(&b"f"[..], FileKind::File { size: 2 * OBJECT, holes: Runs::default() })
}

fn right() -> Digest {
    digest(Algorithm::Blake3, b"right")
}

/// Regression: an object arrives correctly each time and never reads back correctly. Its arrival
/// reset the count of attempts, so that both machines repeated it indefinitely.
#[test]
fn object_that_never_reads_back_right_fails_its_file() {
    at_the_sink();
    at_the_source();
}

/// Passes an event to a sink. Returns its commands and its messages.
fn tell(sink: &mut Sink, event: sink::Event) -> (Vec<sink::Command>, Vec<Message>) {
    let mut out = Vec::new();
    sink.handle(event, NOW, &mut out);
    let mut said = Vec::new();
    while let sink::Outgoing::Send(message) = sink.next(CONTROL, NOW) {
        said.push(message);
    }
    (out, said)
}

/// Returns a sink that reads objects back, and that waits for the objects of a file.
fn rereading_sink() -> Sink {
    let (options, window, timing) = (options(), Window::default(), Timing::default());
    let mut sink = Sink::new(sink::Settings { options, window, timing, retries: TRIES, short_blocks: true });
    tell(&mut sink, sink::Event::LaneUp(CONTROL));
    tell(&mut sink, sink::Event::Message(CONTROL, Message::NewFile(Box::new(two_objects()))));
    let verdict = Verdict::Take { have: Runs::default() };
    tell(&mut sink, sink::Event::Opened { file: NUMBER, verdict, rereads: true });
    sink
}

/// Lets the first object of the file arrive; the sink must settle it.
fn arrives(sink: &mut Sink, what: &str) {
    let (number, attempt, object, range) = (NUMBER, 0, ObjectIndex(0), ByteRange::between(0, OBJECT));
    let payload = u32::try_from(OBJECT).unwrap();
    let block = NewBlock { number, attempt, object, range, encoding: Encoding::Raw, payload };
    let (written, _) = tell(sink, sink::Event::Message(CONTROL, Message::NewBlock(block)));
    assert!(matches!(written[..], [sink::Command::Write { .. }]), "{what}: {written:?}");
    let end = BlockDigest { number, attempt, object, stated: Stated::Digest(right()) };
    let (settles, said) = tell(sink, sink::Event::ObjectEnd { lane: CONTROL, end, found: Some(right()) });
    assert!(matches!(settles[..], [sink::Command::Settle { .. }]), "{what}: {settles:?}");
    assert!(matches!(said[..], [Message::BlockSync(_)]), "{what}: {said:?}");
}

fn reads_back_wrong() -> sink::Event {
    sink::Event::SettleFailed { file: NUMBER, attempt: 0, object: ObjectIndex(0), reason: None }
}

fn at_the_sink() {
    let mut sink = rereading_sink();
    for arrival in 0..=TRIES {
        arrives(&mut sink, &format!("arrival {arrival}"));
        let (out, said) = tell(&mut sink, reads_back_wrong());
        if arrival < TRIES {
            assert!(matches!(said[..], [Message::BlockReject(_)]) && out.is_empty(), "{arrival}: {said:?}");
        } else {
            assert!(matches!(said[..], [Message::FileDone(_)]), "{said:?}");
            let is_told =
                matches!(&out[0], sink::Command::Failed { reason, .. } if reason.why == Why::Differs);
            assert!(is_told, "{out:?}");
        }
    }
}

#[test]
fn an_object_that_was_requested_again_does_not_count_as_settled() {
    let mut sink = rereading_sink();
    let settled = || {
        let (file, attempt, level, objects) = (NUMBER, 0, Level::Reread, Runs::of(0, 1));
        sink::Event::Settled { file, attempt, level, objects }
    };
    arrives(&mut sink, "first");
    tell(&mut sink, reads_back_wrong());
    let (out, said) = tell(&mut sink, settled());
    assert!(out.is_empty() && said.is_empty(), "{out:?} {said:?}");
    arrives(&mut sink, "again");
    let (out, said) = tell(&mut sink, settled());
    assert!(matches!(out[..], [sink::Command::ObjectVerified { .. }]), "{out:?}");
    assert!(matches!(said[..], [Message::BlockSync(_)]), "{said:?}");
}

fn at_the_source() {
    let (options, window, timing) = (options(), Window::default(), Timing::default());
    let mut source =
        Source::new(source::Settings { options, window, timing, retries: TRIES, awaits_answers: false });
    let handle = |source: &mut Source, event| source.handle(event, NOW, &mut Vec::new());
    let hear = |source: &mut Source, message| handle(source, Event::Message(CONTROL, message));
    handle(&mut source, Event::LaneUp(CONTROL));
    source.offer(two_objects(), None).unwrap();
    assert!(matches!(source.next(CONTROL, NOW), Work::Send(Message::NewFile(_))));
    let (number, attempt, object) = (NUMBER, 0, ObjectIndex(0));
    let answer = Answer::Take { have: Runs::default() };
    hear(&mut source, Message::FileId(Box::new(FileId { number, attempt, answer })));
    for sent in 0..=TRIES {
        match source.next(CONTROL, NOW) {
            Work::Object { object, again, .. } => assert_eq!((object.index.0, again), (0, sent > 0)),
            other => panic!("time {sent}: {other:?}"),
        }
        handle(&mut source, Event::ObjectSent { lane: CONTROL, file: number, attempt, object });
        let sync = BlockSync { number, attempt, level: Level::Verified, objects: Runs::of(0, 1) };
        hear(&mut source, Message::BlockSync(Box::new(sync)));
        let (object, reason) = (Some(object), Why::Differs.into());
        hear(&mut source, Message::BlockReject(BlockReject { number, attempt, object, reason }));
    }
    let Work::Send(Message::FileClose(close)) = source.next(CONTROL, NOW) else { panic!("it failed") };
    assert!(matches!(&close.close, Close::Failed(reason) if reason.why == Why::Differs), "{close:?}");
}

/// Regression: a source continued to send when the sink had no space, and each remaining file
/// failed with a line of its own.
#[test]
fn source_offers_nothing_more_once_the_sink_has_no_space() {
    for why in [Why::NoSpace, Why::Quota] {
        let (options, window, timing) = (JobOptions::default(), Window::default(), Timing::default());
        let mut source =
            Source::new(source::Settings { options, window, timing, retries: TRIES, awaits_answers: false });
        let handle = |source: &mut Source, event| {
            let mut out = Vec::new();
            source.handle(event, NOW, &mut out);
            out
        };
        handle(&mut source, Event::LaneUp(CONTROL));
        for name in ["full", "continues", "waits", "waits too"] {
            let kind = FileKind::File { size: 2 * OBJECT, holes: Runs::default() };
            source.offer(NewFile::new(name.as_bytes(), kind), None).unwrap();
        }
        for _ in 0..2 {
            assert!(matches!(source.next(CONTROL, NOW), Work::Send(Message::NewFile(_))));
        }
        let done = |number: u64, outcome| {
            let done = FileDone { number: FileNumber(number), outcome };
            Event::Message(CONTROL, Message::FileDone(Box::new(done)))
        };
        let failed = Outcome::Failed(Reason::new(why, "cannot write"));
        let out = handle(&mut source, done(0, failed));
        assert_eq!(out.len(), 3, "it fails with the files that were not announced: {out:?}");
        assert_eq!((source.capacity(), source.open_files()), (0, 1), "the second continues");
        let out = handle(&mut source, done(1, Outcome::Same));
        let Some(source::Command::Ended(End::Broken { reason, summary })) = out.last() else {
            panic!("{out:?}")
        };
        assert_eq!(reason.why, why);
        assert!(reason.to_string().ends_with("full: cannot write; 3 files failed"), "{reason}");
        assert_eq!((summary.failed, summary.same), (3, 1));
        let Work::Send(Message::Bye(bye)) = source.next(CONTROL, NOW) else {
            panic!("the sink gets the reason")
        };
        assert_eq!(bye.reason.as_ref(), Some(reason));
    }
}

/// Returns a sink with a quota of this many bytes and entries of [`may_come`].
fn quota_sink(bytes: u64, entries: u64) -> Sink {
    let quota = bytes + entries * (ENTRY_CHARGE + 67);
    let (options, window, timing) = (JobOptions::default(), Window::default(), Timing::default());
    let settings = sink::Settings { options, window, timing, retries: TRIES, short_blocks: true };
    let mut sink = Sink::new(settings).with_quota(Some(quota));
    sink.handle(sink::Event::LaneUp(CONTROL), NOW, &mut Vec::new());
    sink
}

/// Announces a file of 1,000 bytes. Returns true if the sink lets it come after it was opened with
/// this verdict.
fn may_come(sink: &mut Sink, number: u64, verdict: Verdict) -> bool {
    let kind = FileKind::File { size: 1000, holes: Runs::default() };
    let number = FileNumber(number);
    let facts = NewFile { number, ..NewFile::new(format!("f{}", number.0).into_bytes(), kind) };
    let mut out = Vec::new();
    sink.handle(sink::Event::Message(CONTROL, Message::NewFile(Box::new(facts))), NOW, &mut out);
    out.clear();
    sink.handle(sink::Event::Opened { file: number, verdict, rereads: false }, NOW, &mut out);
    let is_refused = |command: &sink::Command| matches!(command, sink::Command::Failed { reason, .. } if reason.why == Why::Quota);
    !out.iter().any(is_refused)
}

/// Regression: the quota counted files that are the same, and files that are compared while others
/// are in flight.
#[test]
fn quota_counts_only_transferred_bytes() {
    let take = || Verdict::Take { have: Runs::default() };
    let mut sink = quota_sink(2500, 2);
    for same in 0..10 {
        assert!(may_come(&mut sink, same, Verdict::Same));
    }
    for compared in 10..20 {
        assert!(may_come(&mut sink, compared, Verdict::UnlessDigest));
    }
    assert!(may_come(&mut sink, 20, Verdict::Take { have: Runs::of(0, 1) }), "all of it is there");
    assert!(may_come(&mut sink, 21, take()) && may_come(&mut sink, 22, take()));
    assert!(!may_come(&mut sink, 23, take()), "3,000 bytes are too many");
    // If the bytes of a compared file arrive after all, they count.
    differs(&mut sink, FileNumber(10));
    let comes = bytes_come(&mut sink, FileNumber(10));
    assert!(matches!(&comes, sink::Command::Failed { reason, .. } if reason.why == Why::Quota), "{comes:?}");
}

/// Ends the comparison of a file, which the sink then requests.
fn differs(sink: &mut Sink, file: FileNumber) {
    sink.handle(sink::Event::OwnDigest { file, digest: None }, NOW, &mut Vec::new());
}

/// Returns the first command after the first bytes of a file of [`may_come`] arrived.
fn bytes_come(sink: &mut Sink, number: FileNumber) -> sink::Command {
    let (range, attempt, object) = (ByteRange::between(0, 1000), 0, ObjectIndex(0));
    let block = NewBlock { number, attempt, object, range, encoding: Encoding::Raw, payload: 1000 };
    let mut out = Vec::new();
    sink.handle(sink::Event::Message(CONTROL, Message::NewBlock(block)), NOW, &mut out);
    let stated = Stated::Digest(right());
    let end = BlockDigest { number, attempt, object, stated };
    let ended = sink::Event::ObjectEnd { lane: CONTROL, end, found: Some(right()) };
    sink.handle(ended, NOW, &mut Vec::new());
    out.remove(0)
}

/// Each compared file whose bytes arrive after all is charged; two of them leave no quota for a
/// third.
#[test]
fn compared_files_that_arrive_are_charged_to_the_quota() {
    let mut sink = quota_sink(2500, 2);
    for number in 0..3 {
        assert!(may_come(&mut sink, number, Verdict::UnlessDigest));
    }
    (0..3).for_each(|number| differs(&mut sink, FileNumber(number)));
    for number in 0..2 {
        let comes = bytes_come(&mut sink, FileNumber(number));
        assert!(matches!(comes, sink::Command::Write { .. }), "{number}: {comes:?}");
    }
    let comes = bytes_come(&mut sink, FileNumber(2));
    assert!(matches!(&comes, sink::Command::Failed { reason, .. } if reason.why == Why::Quota), "{comes:?}");
}

/// Regression: of two files that together exceeded the quota, both were refused, although one of
/// them fitted.
#[test]
fn failed_file_returns_its_quota() {
    let take = || Verdict::Take { have: Runs::default() };
    // The failed entry keeps the charge for its name: it may have left directories.
    let mut sink = quota_sink(1500, 2);
    assert!(may_come(&mut sink, 0, take()));
    assert!(!may_come(&mut sink, 1, take()), "the first has the room");
    let failed = sink::Event::WriteFailed { file: NUMBER, reason: Why::Io.into() };
    sink.handle(failed, NOW, &mut Vec::new());
    assert!(may_come(&mut sink, 2, take()));
}

/// Earlier versions counted only bytes: a source could create any number of names.
#[test]
fn quota_counts_names_and_metadata() {
    let mut sink = quota_sink(0, 10);
    let mut make = |number: u64, target: usize, outcome: Outcome| {
        let kind = FileKind::Symlink { target: vec![b'x'; target].into() };
        let facts = NewFile { number: FileNumber(number), ..NewFile::new(*b"l", kind) };
        let mut out = Vec::new();
        let file = facts.number;
        sink.handle(sink::Event::Message(CONTROL, Message::NewFile(Box::new(facts))), NOW, &mut out);
        let is_made = matches!(out[..], [sink::Command::Make { .. }]);
        if is_made {
            let result = Ok(outcome);
            sink.handle(sink::Event::Finished { file, result }, NOW, &mut Vec::new());
        } else {
            assert!(matches!(&out[..], [sink::Command::Refused { reason, .. }] if reason.why == Why::Quota));
        }
        is_made
    };
    assert!((0..100).all(|number| make(number, 0, Outcome::Same)), "an unchanged name does not count");
    assert!((100..109).all(|number| make(number, 0, Outcome::Done(Level::Verified))));
    assert!(!make(109, 2000, Outcome::Done(Level::Verified)), "a long target counts");
    assert!(make(110, 0, Outcome::Done(Level::Verified)));
    assert!(!make(111, 0, Outcome::Done(Level::Verified)));
}

/// Earlier versions did not count the directories above an entry, of which one name can need
/// thousands.
#[test]
fn quota_counts_the_directories_above_an_entry_once() {
    let mut sink = quota_sink(0, 100);
    let mut out = Vec::new();
    let mut charge = |number: u64, path: &[u8]| {
        let before = sink.charged();
        let facts = NewFile { number: FileNumber(number), ..NewFile::new(path, FileKind::Directory) };
        let metadata = facts.facts_len();
        sink.handle(sink::Event::Message(CONTROL, Message::NewFile(Box::new(facts))), NOW, &mut out);
        (sink.charged() - before - metadata) / ENTRY_CHARGE
    };
    let names = [&b"a/b/c/d"[..], b"a/b/c/e", b"a/b/c", b"a/b/f/g", b"h"];
    let charges: Vec<u64> = (0..).zip(names).map(|(number, path)| charge(number, path)).collect();
    assert_eq!(charges, [4, 1, 1, 2, 1]);
}

/// Regression: the sink read a file of holes back as soon as it was opened, because no object was
/// missing. That created the file, or opened it to be written in place, although its digest showed
/// that it was the same: its time was lost, or a temporary file was left.
#[test]
fn compared_file_without_data_is_read_back_only_if_different() {
    for (size, holes) in [(0, Runs::default()), (2 * OBJECT, Runs::of(0, 2))] {
        for is_same in [true, false] {
            let options = JobOptions {
                verify: Verify::FilePipeline,
                unit: Unit::File,
                update: Update::Digest,
                ..JobOptions::default()
            };
            let (window, timing) = (Window::default(), Timing::default());
            let mut sink =
                Sink::new(sink::Settings { options, window, timing, retries: TRIES, short_blocks: true });
            tell(&mut sink, sink::Event::LaneUp(CONTROL));
            let facts = NewFile::new(&b"f"[..], FileKind::File { size, holes: holes.clone() });
            tell(&mut sink, sink::Event::Message(CONTROL, Message::NewFile(Box::new(facts))));
            let verdict = Verdict::UnlessDigest;
            let (opened, _) = tell(&mut sink, sink::Event::Opened { file: NUMBER, verdict, rereads: false });
            assert_eq!(opened, [], "{size} bytes");
            let keyed = |bytes: &[u8]| DigestKey::derive(b"token").digest(bytes);
            let told =
                ObjectDigests { number: NUMBER, attempt: 0, first: None, digests: vec![keyed(b"own")] };
            tell(&mut sink, sink::Event::Message(CONTROL, Message::ObjectDigests(Box::new(told))));
            let digest = Some(keyed(if is_same { b"own" } else { b"old" }));
            let (mut out, said) = tell(&mut sink, sink::Event::OwnDigest { file: NUMBER, digest });
            let is_asked_for = matches!(said[..], [Message::FileId(_)]);
            assert_eq!(is_asked_for, !is_same, "{size} bytes: {said:?}");
            if is_same {
                assert!(matches!(out[..], [sink::Command::Finish { close: None, .. }]), "{out:?}");
            } else {
                let close = Close::Read { size, mtime: Moment { sec: 0, nsec: 0 }, root: Some(right()) };
                let close = FileClose { number: NUMBER, attempt: 0, close };
                out = tell(&mut sink, sink::Event::Message(CONTROL, Message::FileClose(Box::new(close)))).0;
            }
            let rehashes = out.iter().any(|command| matches!(command, sink::Command::Rehash { .. }));
            assert_eq!(rehashes, !is_same, "{size} bytes: {out:?}");
        }
    }
}
