//! Tests of single rules of the protocol.

use haul_model::{ByteRange, Level, Moment, ObjectIndex};
use haul_proto::limits::UNREAD_AHEAD;
use haul_proto::sink::Verdict;
use haul_proto::source::{Command, Event, Settings, Work};
use haul_proto::{
    BlockDigest, BlockReject, BlockSync, CONTROL, Close, Connect, Encoding, End, Features, FileClose,
    FileDone, FileId, FileKind, FileNumber, JobOptions, LaneId, Message, NewBlock, NewFile, Outcome,
    PeerText, Role, Runs, Sink, Source, Stated, Timing, Unit, Update, Verify, Why, Window, sink,
};
use std::sync::Arc;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(100);
const OBJECT: u64 = 4 << 20;

fn file(size: u64) -> NewFile {
    NewFile::new(&b"d/f"[..], FileKind::File { size, holes: Runs::default() })
}

fn source(lanes: u32, window: Window) -> Source {
    let settings = Settings {
        options: JobOptions::default(),
        window,
        timing: Timing::default(),
        retries: 2,
        awaits_answers: false,
    };
    let mut source = Source::new(settings);
    for lane in 0..lanes {
        assert_eq!(told(&mut source, Event::LaneUp(LaneId(lane))), []);
    }
    source
}

fn told(source: &mut Source, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    source.handle(event, NOW, &mut out);
    out
}

fn hears(source: &mut Source, message: Message) -> Vec<Command> {
    told(source, Event::Message(CONTROL, message))
}

fn take(number: u64) -> Message {
    let answer = haul_proto::Answer::Take { have: Runs::default() };
    Message::FileId(Box::new(FileId { number: FileNumber(number), attempt: 0, answer }))
}

fn done(number: u64) -> Message {
    let outcome = Outcome::Done(Level::Verified);
    Message::FileDone(Box::new(FileDone { number: FileNumber(number), outcome }))
}

fn read() -> Close {
    Close::Read { size: 0, mtime: Moment::default(), root: None }
}

/// 4,000 small files are sent before the sink's first message.
#[test]
fn small_files_are_sent_without_waiting() {
    let mut source = source(1, Window::default());
    for sent in 0..4000 {
        source.offer(file(4096), None).unwrap();
        let Work::Whole { facts, object } = source.next(CONTROL, NOW) else { panic!("file {sent} waits") };
        assert!(facts.whole && object.is_some_and(|object| object.range == ByteRange::between(0, 4096)));
        let report = Event::WholeSent { lane: CONTROL, file: facts.number, close: read() };
        assert_eq!(told(&mut source, report), []);
    }
}

#[test]
fn the_window_bounds_files_and_bytes() {
    let window = Window { files: 3, facts: 1 << 20, bytes: OBJECT + 100 };
    let mut source = source(1, window);
    assert_eq!(source.capacity(), 3);
    for _ in 0..3 {
        source.offer(file(OBJECT), None).unwrap();
    }
    assert_eq!(source.capacity(), 0);
    assert!(matches!(source.next(CONTROL, NOW), Work::Whole { .. }));
    assert!(matches!(source.next(CONTROL, NOW), Work::Wait { .. }), "a second object does not fit");
    told(&mut source, Event::WholeSent { lane: CONTROL, file: FileNumber(0), close: read() });
    assert_eq!(hears(&mut source, done(0)).len(), 1);
    assert_eq!((source.capacity(), source.open_files()), (1, 2));
    assert!(matches!(source.next(CONTROL, NOW), Work::Whole { .. }));
}

/// The objects of one large file are sent on all lanes, each once.
#[test]
fn a_large_file_spreads_over_the_lanes() {
    let mut source = source(3, Window::default());
    source.offer(file(3 * OBJECT), None).unwrap();
    assert!(matches!(source.next(CONTROL, NOW), Work::Send(Message::NewFile(_))));
    assert!(matches!(source.next(LaneId(1), NOW), Work::Wait { .. }), "nothing goes before FILE_ID");
    assert_eq!(hears(&mut source, take(0)), []);
    let mut taken: Vec<u64> = (0..3)
        .map(|lane| match source.next(LaneId(lane), NOW) {
            Work::Object { object, again: false, .. } => object.index.0,
            other => panic!("{other:?}"),
        })
        .collect();
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 2]);
}

/// A worker may take several objects at once to hash them together; no lane may become idle because
/// of that.
#[test]
fn long_file_has_several_objects_for_each_lane() {
    let mut source = source(2, Window::default());
    source.offer(file(7 * OBJECT), None).unwrap();
    source.next(CONTROL, NOW);
    assert!(source.lanes() == 2 && !source.has_for_each_lane(1), "nothing goes before FILE_ID");
    hears(&mut source, take(0));
    let enough: [(u32, u64); 7] = [(1, 3), (2, 2), (3, 2), (4, 1), (5, 1), (6, 0), (7, 0)];
    for (taken, each) in enough {
        assert!(matches!(source.next(LaneId(taken % 2), NOW), Work::Object { .. }));
        assert!(source.has_for_each_lane(each) && !source.has_for_each_lane(each + 1), "{taken}");
    }
}

/// Regression: a BLOCK_SYNC may arrive before the report of the worker that sent the object.
#[test]
fn sync_message_before_the_worker_report_counts() {
    let mut source = source(1, Window::default());
    source.offer(file(2 * OBJECT), None).unwrap();
    source.next(CONTROL, NOW);
    hears(&mut source, take(0));
    for index in 0..2 {
        assert!(matches!(source.next(CONTROL, NOW), Work::Object { .. }));
        let objects = Runs::of(index, index + 1);
        let sync = BlockSync { number: FileNumber(0), attempt: 0, level: Level::Verified, objects };
        assert_eq!(hears(&mut source, Message::BlockSync(Box::new(sync))).len(), 1);
        let object = ObjectIndex(index);
        told(&mut source, Event::ObjectSent { lane: CONTROL, file: FileNumber(0), attempt: 0, object });
    }
    assert_eq!(source.settled_bytes(), 2 * OBJECT);
    assert!(matches!(source.next(CONTROL, NOW), Work::Close { .. }));
}

#[test]
fn damaged_object_is_resent_until_the_attempt_limit() {
    let mut source = source(1, Window::default());
    source.offer(file(100), None).unwrap();
    source.next(CONTROL, NOW);
    told(&mut source, Event::WholeSent { lane: CONTROL, file: FileNumber(0), close: read() });
    let reject = || {
        let object = Some(ObjectIndex(0));
        let reason = Why::Differs.into();
        Message::BlockReject(BlockReject { number: FileNumber(0), attempt: 0, object, reason })
    };
    for _ in 0..2 {
        hears(&mut source, reject());
        let Work::Object { again: true, .. } = source.next(CONTROL, NOW) else { panic!("it goes again") };
        let object = ObjectIndex(0);
        told(&mut source, Event::ObjectSent { lane: CONTROL, file: FileNumber(0), attempt: 0, object });
    }
    hears(&mut source, reject());
    let Work::Send(Message::FileClose(close)) = source.next(CONTROL, NOW) else { panic!("it is given up") };
    assert!(matches!(close.close, Close::Failed(reason) if reason.why == Why::Differs));
}

/// If the first name failed, or the update rule kept the existing file, a link would lead to
/// another file.
#[test]
fn hard_link_waits_for_its_first_name_and_links_only_to_that_file() {
    for (update, outcome, is_link) in [
        (Update::Always, Outcome::Done(Level::Verified), true),
        (Update::Always, Outcome::Failed(Why::Permission.into()), false),
        (Update::Missing, Outcome::Done(Level::Verified), true),
        (Update::Missing, Outcome::Same, false),
        (Update::Newer, Outcome::Same, false),
        (Update::SizeTime, Outcome::Same, true),
        (Update::Digest, Outcome::Same, true),
    ] {
        let options = JobOptions { update, ..JobOptions::default() };
        let (window, timing) = (Window::default(), Timing::default());
        let mut source = Source::new(Settings { options, window, timing, retries: 2, awaits_answers: false });
        told(&mut source, Event::LaneUp(CONTROL));
        let first = source.offer(file(10), None).unwrap();
        for name in ["d/g", "d/h"] {
            let kind = FileKind::HardLink { first: Box::from(&b"d/f"[..]) };
            source.offer(NewFile::new(name.as_bytes(), kind), Some(first)).unwrap();
        }
        let work = source.next(CONTROL, NOW);
        if matches!(work, Work::Whole { .. }) {
            told(&mut source, Event::WholeSent { lane: CONTROL, file: first, close: read() });
        } else {
            assert!(matches!(work, Work::Send(Message::NewFile(_))));
            hears(&mut source, take(0));
            assert!(matches!(source.next(CONTROL, NOW), Work::Object { .. }));
            let object = ObjectIndex(0);
            told(&mut source, Event::ObjectSent { lane: CONTROL, file: first, attempt: 0, object });
            assert!(matches!(source.next(CONTROL, NOW), Work::Close { .. }));
            told(&mut source, Event::Closed { lane: CONTROL, file: first, attempt: 0, close: read() });
            assert!(matches!(source.next(CONTROL, NOW), Work::Send(Message::FileClose(_))));
        }
        assert!(matches!(source.next(CONTROL, NOW), Work::Wait { .. }), "the links wait");
        let end = FileDone { number: first, outcome: outcome.clone() };
        assert_eq!(hears(&mut source, Message::FileDone(Box::new(end))).len(), 1);
        assert_eq!(source.is_left(first), !is_link, "names that are offered later are sent in the same way");
        let next = match source.next(CONTROL, NOW) {
            Work::Whole { facts, .. } => facts,
            Work::Send(Message::NewFile(facts)) => Arc::from(facts),
            other => panic!("{other:?}"),
        };
        assert_eq!(&*next.path, b"d/g");
        let size = FileKind::File { size: 10, holes: Runs::default() };
        let link = FileKind::HardLink { first: Box::from(&b"d/f"[..]) };
        assert_eq!(next.kind, if is_link { link } else { size }, "{update:?}, {outcome:?}");
        // In that case the third name is a link to the second one, and waits for it.
        assert_eq!(matches!(source.next(CONTROL, NOW), Work::Whole { .. }), is_link);
    }
}

#[test]
fn silent_lanes_get_keepalives_and_then_time_out() {
    let mut source = source(2, Window::default());
    let timing = Timing::default();
    assert_eq!(source.next(LaneId(1), NOW), Work::Wait { until: NOW + timing.keep_alive });
    assert_eq!(source.next(LaneId(1), NOW + timing.keep_alive), Work::Send(Message::KeepAlive));
    let mut out = Vec::new();
    let late = NOW + timing.silence;
    source.handle(Event::Message(CONTROL, Message::KeepAlive), late - Duration::from_secs(1), &mut out);
    source.handle(Event::Tick, late, &mut out);
    assert_eq!(out, [Command::DropLane { lane: LaneId(1) }]);
    out.clear();
    source.handle(Event::Tick, late + timing.silence, &mut out);
    assert_eq!(out.len(), 2);
    assert!(
        matches!(&out[1], Command::Ended(End::Broken { reason, .. }) if reason.why == Why::Silent),
        "{out:?}"
    );
}

fn unread() -> Event {
    Event::Unread { path: b"locked".as_slice().into(), reason: Why::Io.into() }
}

#[test]
fn unreadable_files_are_counted_with_a_bounded_report_queue() {
    let settings = Settings {
        options: JobOptions::default(),
        window: Window::default(),
        timing: Timing::default(),
        retries: 2,
        awaits_answers: false,
    };
    let mut source = Source::new(settings);
    told(&mut source, Event::LaneUp(CONTROL));
    for _ in 0..10_000 {
        told(&mut source, unread());
    }
    told(&mut source, Event::WalkEnded);
    let mut heard = 0;
    let end = loop {
        match source.next(CONTROL, NOW) {
            Work::Send(Message::Unread(unread)) => {
                assert_eq!(&*unread.path, b"locked");
                heard += 1;
            }
            Work::Send(Message::WalkEnd(end)) => break end,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((heard, end.unread, end.errors), (UNREAD_AHEAD as u64, 10_000, 10_000));
    assert_eq!(source.summary().unread, 10_000);
}

#[test]
fn nothing_is_deleted_after_an_error_at_the_source() {
    for errors in [0, 1] {
        let settings = Settings {
            options: JobOptions { delete: true, ..JobOptions::default() },
            window: Window::default(),
            timing: Timing::default(),
            retries: 2,
            awaits_answers: false,
        };
        let mut source = Source::new(settings);
        told(&mut source, Event::LaneUp(CONTROL));
        (0..errors).for_each(|_| drop(told(&mut source, unread())));
        told(&mut source, Event::WalkEnded);
        for _ in 0..errors {
            assert!(matches!(source.next(CONTROL, NOW), Work::Send(Message::Unread(_))));
        }
        let Work::Send(Message::WalkEnd(end)) = source.next(CONTROL, NOW) else { panic!("the walk ended") };
        assert_eq!((end.delete, end.errors), (errors == 0, errors));
    }
}

#[test]
fn unsupported_sessions_are_refused_with_a_reason() {
    let connect = Connect {
        versions: (1, 3),
        offers: Features(6),
        needs: Features(0),
        role: Role::Source,
        job: [7; 16],
        options: JobOptions::default(),
        window: Window::default(),
        operands: Vec::new(),
        agent: PeerText::default(),
        log: None,
        resumes: false,
        rules: Vec::new(),
    };
    let answer = |connect: &Connect| {
        connect
            .answer(Features(2), Window::default(), 8, [1; 32], PeerText::default())
            .map_err(|reason| reason.why)
    };
    let accept = answer(&connect).unwrap();
    assert_eq!((accept.version, accept.features, accept.lanes), (2, Features(2), 8));
    for versions in [(1, 1), (3, 4)] {
        assert_eq!(answer(&Connect { versions, ..connect.clone() }), Err(Why::Version));
    }
    assert_eq!(answer(&Connect { needs: Features(4), ..connect.clone() }), Err(Why::Feature));
    let options = JobOptions { verify: Verify::Sequential, unit: Unit::Object, ..JobOptions::default() };
    assert_eq!(answer(&Connect { options, ..connect.clone() }), Err(Why::Unsupported));
    for (verify, settle) in [(Verify::Reread, Level::Reread), (Verify::Hybrid, Level::Verified)] {
        let options = JobOptions { verify, settle, unit: Unit::File, ..JobOptions::default() };
        assert_eq!(answer(&Connect { options, ..connect.clone() }), Err(Why::Unsupported));
    }
}

/// Returns the sink of a job that reads back as `verify` says.
fn sink_of(verify: Verify) -> Sink {
    let settle = if verify == Verify::Reread { Level::Reread } else { Level::Verified };
    Sink::new(sink::Settings {
        options: JobOptions { verify, settle, ..JobOptions::default() },
        window: Window::default(),
        timing: Timing::default(),
        retries: 2,
        short_blocks: true,
    })
}

/// Returns the sink after a small file was opened with these settings and its bytes arrived with
/// the correct digest, and the sink's commands.
fn small_file_arrives(verify: Verify, rereads: bool) -> (Sink, Vec<sink::Command>) {
    let mut sink = sink_of(verify);
    let number = FileNumber(0);
    let found = haul_digest::digest(haul_digest::Algorithm::Blake3, &[7; 4096]);
    let range = ByteRange::between(0, 4096);
    let (object, attempt) = (ObjectIndex(0), 0);
    let block = NewBlock { number, attempt, object, range, encoding: Encoding::Raw, payload: 4096 };
    let end = BlockDigest { number, attempt, object, stated: Stated::Digest(found) };
    let close = Close::Read { size: 4096, mtime: Moment::default(), root: None };
    let mut said = Vec::new();
    for event in [
        sink::Event::LaneUp(CONTROL),
        sink::Event::Message(CONTROL, Message::NewFile(Box::new(NewFile { whole: true, ..file(4096) }))),
        sink::Event::Opened { file: number, verdict: Verdict::Take { have: Runs::default() }, rereads },
        sink::Event::Message(CONTROL, Message::NewBlock(block)),
        sink::Event::ObjectEnd { lane: CONTROL, end, found: Some(found) },
        sink::Event::Message(CONTROL, Message::FileClose(Box::new(FileClose { number, attempt, close }))),
    ] {
        sink.handle(event, NOW, &mut said);
    }
    // The first two commands open the file and write its bytes.
    (sink, said.split_off(2))
}

/// Regression: a file of one object was reported as re-read although it was only durable.
#[test]
fn small_file_is_read_back_before_it_counts_as_reread() {
    for (verify, rereads) in [(Verify::Reread, false), (Verify::Hybrid, true)] {
        let (mut sink, mut said) = small_file_arrives(verify, rereads);
        let (file, attempt) = (FileNumber(0), 0);
        let close = Close::Read { size: 4096, mtime: Moment::default(), root: None };
        let digest = haul_digest::digest(haul_digest::Algorithm::Blake3, &[7; 4096]);
        let is_settle = |command: &sink::Command| matches!(command, sink::Command::Settle { to: Level::Reread, digest: Some(wanted), .. } if *wanted == digest);
        assert!(said.len() == 1 && is_settle(&said[0]), "nothing else before it was read back: {said:?}");
        said.clear();
        let settled = sink::Event::Settled { file, attempt, level: Level::Reread, objects: Runs::of(0, 1) };
        sink.handle(settled, NOW, &mut said);
        assert_eq!(said, [sink::Command::Finish { file, close: Some(close), settle: Level::Reread }]);
    }
}

/// If the storage cannot be read past the page cache, nothing is re-read: the file ends as durable
/// and does not wait.
#[test]
fn file_that_cannot_be_read_from_its_device_ends_as_durable() {
    let (mut sink, mut said) = small_file_arrives(Verify::Reread, false);
    let (file, attempt) = (FileNumber(0), 0);
    said.clear();
    let settled = sink::Event::Settled { file, attempt, level: Level::Durable, objects: Runs::of(0, 1) };
    sink.handle(settled, NOW, &mut said);
    let ends =
        |command: &sink::Command| matches!(command, sink::Command::Finish { settle: Level::Durable, .. });
    assert!(said.len() == 1 && ends(&said[0]), "{said:?}");
}

#[test]
fn object_that_differs_on_read_back_is_requested_again() {
    let (mut sink, _) = small_file_arrives(Verify::Reread, true);
    let failed =
        sink::Event::SettleFailed { file: FileNumber(0), attempt: 0, object: ObjectIndex(0), reason: None };
    sink.handle(failed, NOW, &mut Vec::new());
    let sink::Outgoing::Send(Message::BlockReject(reject)) = sink.next(CONTROL, NOW) else {
        panic!("it is requested again")
    };
    assert_eq!((reject.object, reject.reason.why), (Some(ObjectIndex(0)), Why::Differs));
}

/// The engine's choice counts only if the job leaves the choice to the engine.
#[test]
fn sink_chooses_read_back_only_in_hybrid_jobs() {
    for (verify, rereads) in [(Verify::Hybrid, false), (Verify::Stream, true)] {
        let (_, said) = small_file_arrives(verify, rereads);
        assert!(
            matches!(said[..], [sink::Command::Finish { settle: Level::Verified, .. }]),
            "{verify:?}: {said:?}"
        );
    }
}

/// Regression: a file was reported as re-read although an earlier run, whose objects were kept, may
/// have read them back from the page cache only.
#[test]
fn file_with_objects_of_an_earlier_run_is_not_reported_as_reread() {
    let object = JobOptions::default().object.bytes();
    for (have, expected) in [(Runs::of(0, 1), Level::Durable), (Runs::default(), Level::Reread)] {
        let mut sink = sink_of(Verify::Reread);
        let (number, attempt) = (FileNumber(0), 0);
        let digest = haul_digest::digest(haul_digest::Algorithm::Blake3, b"any");
        let missing: Vec<u64> = (0..2).filter(|index| !have.contains(*index)).collect();
        let mut said = Vec::new();
        let mut events = vec![
            sink::Event::LaneUp(CONTROL),
            sink::Event::Message(CONTROL, Message::NewFile(Box::new(file(2 * object)))),
            sink::Event::Opened { file: number, verdict: Verdict::Take { have }, rereads: false },
        ];
        for &index in &missing {
            let range = ByteRange::between(index * object, (index + 1) * object);
            let (object, payload) = (ObjectIndex(index), object as u32);
            let block = NewBlock { number, attempt, object, range, encoding: Encoding::Raw, payload };
            let end = BlockDigest { number, attempt, object, stated: Stated::Digest(digest) };
            events.push(sink::Event::Message(CONTROL, Message::NewBlock(block)));
            events.push(sink::Event::ObjectEnd { lane: CONTROL, end, found: Some(digest) });
        }
        let close = Close::Read { size: 2 * object, mtime: Moment::default(), root: None };
        let close = FileClose { number, attempt, close };
        events.push(sink::Event::Message(CONTROL, Message::FileClose(Box::new(close))));
        for index in missing {
            let objects = Runs::of(index, index + 1);
            events.push(sink::Event::Settled { file: number, attempt, level: Level::Reread, objects });
        }
        events.into_iter().for_each(|event| sink.handle(event, NOW, &mut said));
        let ends = |command: &&sink::Command| matches!(command, sink::Command::Finish { .. });
        let Some(sink::Command::Finish { settle, .. }) = said.iter().find(ends) else {
            panic!("it ends: {said:?}")
        };
        assert_eq!(*settle, expected);
    }
}
