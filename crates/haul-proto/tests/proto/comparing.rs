//! Tests of the source's part in a comparison: how far its digests are ahead of the sink, and what
//! it accepts as the result.

use haul_digest::KeyedDigest;
use haul_model::ObjectIndex;
use haul_proto::limits::DIGESTS_PER_MESSAGE;
use haul_proto::source::{Command, Event, Settings, Work};
use haul_proto::{
    Answer, BlockReject, CONTROL, Compared, End, FileId, FileKind, FileNumber, JobOptions, Message, NewFile,
    Runs, Source, Timing, Update, Why, Window,
};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(100);
const NUMBER: FileNumber = FileNumber(0);
const OBJECTS: u64 = 3000;

fn hear(source: &mut Source, message: Message) -> Vec<Command> {
    let mut out = Vec::new();
    source.handle(Event::Message(CONTROL, message), NOW, &mut out);
    out
}

/// Returns a source that was asked to compare the first `end` objects of its file, except for
/// `have`.
fn asked(have: Runs, end: u64) -> Source {
    let options = JobOptions { update: Update::Object, ..JobOptions::default() };
    let size = OBJECTS * options.object.bytes();
    let (window, timing) = (Window { bytes: size, ..Window::default() }, Timing::default());
    let mut source = Source::new(Settings { options, window, timing, retries: 2, awaits_answers: false });
    source.handle(Event::LaneUp(CONTROL), NOW, &mut Vec::new());
    let kind = FileKind::File { size, holes: Runs::default() };
    source.offer(NewFile::new(&b"f"[..], kind), None).unwrap();
    assert!(matches!(source.next(CONTROL, NOW), Work::Send(Message::NewFile(_))));
    let answer = Answer::Differing { have, end };
    hear(&mut source, Message::FileId(Box::new(FileId { number: NUMBER, attempt: 0, answer })));
    source
}

/// Does all work of the source. Returns the objects whose digests it stated, and those that it
/// sent.
fn work(source: &mut Source) -> (Vec<u64>, Vec<u64>) {
    let (mut hashed, mut told, mut sent) = (Vec::new(), 0, Vec::new());
    loop {
        match source.next(CONTROL, NOW) {
            Work::Compare { attempt, objects, .. } => {
                let objects = objects.expect("no whole file");
                hashed.extend(objects.iter().map(|object| object.index.0));
                let digests = Ok(vec![KeyedDigest::from_bytes([1; 32]); objects.len()]);
                let event = Event::Compared { lane: CONTROL, file: NUMBER, attempt, digests };
                source.handle(event, NOW, &mut Vec::new());
            }
            Work::Send(Message::ObjectDigests(digests)) => {
                assert_eq!(digests.first, hashed.get(told).map(|index| ObjectIndex(*index)));
                told += digests.digests.len();
            }
            Work::Object { object, attempt, .. } => {
                sent.push(object.index.0);
                let object = object.index;
                let event = Event::ObjectSent { lane: CONTROL, file: NUMBER, attempt, object };
                source.handle(event, NOW, &mut Vec::new());
            }
            Work::Wait { .. } | Work::Close { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(hashed.len(), told);
    (hashed, sent)
}

fn compared(end: u64, wanted: Runs) -> Message {
    Message::Compared(Box::new(Compared { number: NUMBER, attempt: 0, end, wanted }))
}

#[test]
fn a_source_is_a_bounded_number_of_digests_ahead_and_sends_what_is_wanted() {
    let mut source = asked(Runs::of(2, 4), 2000);
    let (hashed, sent) = work(&mut source);
    assert_eq!(sent, [0; 0], "nothing is sent before it was compared");
    assert_eq!(hashed[..3], [0, 1, 4], "what is there is not compared");
    assert!(hashed.len() <= DIGESTS_PER_MESSAGE && hashed.len() > DIGESTS_PER_MESSAGE - 64);
    let out = hear(&mut source, compared(500, Runs::of(5, 7)));
    let same: Runs = [(0, 2), (4, 5), (7, 500)].into_iter().collect();
    assert_eq!(out, [Command::Same { file: NUMBER, objects: same }]);
    let (more, sent) = work(&mut source);
    assert_eq!(sent, [5, 6]);
    let ahead = hashed.len() + more.len() - 498;
    assert!(ahead <= DIGESTS_PER_MESSAGE && ahead > DIGESTS_PER_MESSAGE - 64, "{ahead}");
    // The rest is the same, and what is not compared is sent.
    let mut last = more.last().map_or(0, |last| last + 1);
    let mut sent = Vec::new();
    while last < 2000 {
        hear(&mut source, compared(last, Runs::default()));
        let (more, now) = work(&mut source);
        last = more.last().map_or(2000, |last| last + 1);
        sent.extend(now);
    }
    hear(&mut source, compared(2000, Runs::default()));
    sent.extend(work(&mut source).1);
    assert_eq!(sent.first(), Some(&2000));
    assert!(sent.windows(2).all(|two| two[0] + 1 == two[1]));
}

#[test]
fn a_comparison_of_what_was_not_stated_ends_the_session() {
    for message in [
        compared(0, Runs::default()),
        compared(2000, Runs::default()),
        compared(5, Runs::of(2, 3)),
        compared(u64::MAX, Runs::default()),
    ] {
        let mut source = asked(Runs::of(2, 4), 2000);
        work(&mut source);
        let out = hear(&mut source, message.clone());
        let is_breach =
            matches!(&out[..], [Command::Ended(End::Broken { reason, .. })] if reason.why == Why::Protocol);
        assert!(is_breach, "{message:?}: {out:?}");
    }
}

/// An object that is the same and reads back wrong from the device is sent, although it never was.
#[test]
fn an_object_that_was_the_same_can_be_requested() {
    let mut source = asked(Runs::default(), 4);
    work(&mut source);
    hear(&mut source, compared(4, Runs::default()));
    let (_, sent) = work(&mut source);
    assert_eq!(sent.first(), Some(&4));
    let reject = |index| {
        let (object, reason) = (Some(ObjectIndex(index)), Why::Differs.into());
        Message::BlockReject(BlockReject { number: NUMBER, attempt: 0, object, reason })
    };
    let out = hear(&mut source, reject(1));
    assert_eq!(out, []);
    assert_eq!(work(&mut source).1, [1]);
    let mut source = asked(Runs::default(), 4);
    work(&mut source);
    hear(&mut source, compared(4, Runs::of(0, 1)));
    hear(&mut source, reject(2));
    assert_eq!(work(&mut source).1[..3], [0, 2, 4]);
}
