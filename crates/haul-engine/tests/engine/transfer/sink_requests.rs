//! Tests of a sink that stays silent, or asks about files that it may not ask about: what the
//! source accepts and sends.

use super::hostile::accepted;
use super::misbehaving_peer::Nobody;
use super::pair::Pair;
use super::small_objects;
use haul_engine::transfer::{BoxError, Outcome, RunContext, SendJob, Tally, TransferError, send};
use haul_lab::misbehaving_peer::{MisbehavingPeer, bye};
use haul_model::Level;
use haul_net::StreamLane;
use haul_proto::{
    Fate, FileDone, FileNumber, JobOptions, List, Message, Names, NewBlock, Outcome as Ended, WalkEnd,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Sends `name` from the source of `pair` to a sink that runs `sink` after its ACCEPT.
fn sent_to(
    pair: &Pair,
    (name, options): (&str, &JobOptions),
    tally: &Tally,
    sink: impl FnOnce(&mut MisbehavingPeer) + Send,
) -> Result<Outcome, TransferError> {
    let (ours, theirs) = StreamLane::pair();
    let ours = Mutex::new(Some(ours));
    let dial =
        |_: u32| -> Result<StreamLane, BoxError> { ours.lock().unwrap().take().ok_or("one lane".into()) };
    let job = SendJob {
        options: options.clone(),
        lanes: Some(1),
        ..SendJob::new(vec![pair.source().join(name).into()])
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let mut peer = MisbehavingPeer::at(theirs);
            let Message::Connect(asked) = peer.hear() else { panic!("CONNECT comes first") };
            peer.say(&accepted(&asked), &[]);
            sink(&mut peer);
            peer.say(&bye(), &[]);
            while !matches!(peer.hear(), Message::Bye(_)) {}
            peer.writer.finish().unwrap();
        });
        let ended = send(&dial, &job, &RunContext { stop: &stop, tally, report: &Nobody, receipt: None });
        answering.join().unwrap();
        ended
    })
}

/// Receives messages until `is_last`. Returns the last message and the number of block bytes before
/// it.
fn heard_until(peer: &mut MisbehavingPeer, is_last: impl Fn(&Message) -> bool) -> (Message, u64) {
    let mut bytes = 0;
    loop {
        let message = peer.hear();
        if let Message::NewBlock(NewBlock { payload, .. }) = message {
            peer.reader.read_exact(&mut vec![0; payload as usize]).unwrap();
            bytes += u64::from(payload);
        }
        if is_last(&message) {
            return (message, bytes);
        }
    }
}

fn walk_end(message: &Message) -> bool {
    matches!(message, Message::WalkEnd(_))
}

fn done(number: u64) -> Message {
    let outcome = Ended::Done(Level::Verified);
    Message::FileDone(Box::new(FileDone { number: FileNumber(number), outcome }))
}

#[test]
fn progress_counts_only_bytes_that_the_sink_has_settled() {
    let pair = Pair::new();
    fs::write(pair.source().join("f"), vec![7; 3000]).unwrap();
    let tally = Tally::default();
    let done_by_now = || tally.bytes_done.load(Ordering::Relaxed);
    let ended = sent_to(&pair, ("f", &small_objects()), &tally, |peer| {
        let (_, bytes) = heard_until(peer, |message| matches!(message, Message::FileClose(_)));
        assert_eq!((bytes, done_by_now()), (3000, 0), "all of it was sent, and nothing is done");
        peer.say(&done(0), &[]);
        // The walk may have ended before the source receives the message; only waiting shows that.
        let begun = Instant::now();
        while done_by_now() != 3000 {
            assert!(begun.elapsed() < Duration::from_secs(40), "{} bytes are called done", done_by_now());
            thread::sleep(Duration::from_millis(2));
        }
        heard_until(peer, walk_end);
    });
    assert!(ended.expect("a session").is_whole());
}

#[test]
fn sink_learns_nothing_outside_and_deletes_only_on_clear_answers() {
    let pair = Pair::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "").unwrap();
    fs::create_dir(pair.source().join("d")).unwrap();
    fs::write(pair.source().join("d/f"), "bytes").unwrap();
    fs::write(pair.source().join("beside"), "").unwrap();
    symlink(outside.path(), pair.source().join("d/link")).unwrap();
    let options = JobOptions { delete: true, ..small_objects() };
    let ended = sent_to(&pair, ("d", &options), &Tally::default(), |peer| {
        // The file, the link, and the directory that follows them.
        for _ in 0..3 {
            let (message, _) = heard_until(peer, |message| matches!(message, Message::NewFile(_)));
            let Message::NewFile(facts) = message else { unreachable!("it is one") };
            if facts.is_regular() {
                heard_until(peer, |message| matches!(message, Message::FileClose(_)));
            }
            peer.say(&done(facts.number.0), &[]);
        }
        let (message, _) = heard_until(peer, walk_end);
        assert!(matches!(message, Message::WalkEnd(WalkEnd { delete: true, .. })));
        use Fate::{Excluded, Gone, Stays};
        let asks: [(&str, &[&str], &[Fate]); 5] = [
            (
                "d",
                &["f", "gone", "..", "x/../f", "", "link"],
                &[Stays, Gone, Excluded, Excluded, Excluded, Stays],
            ),
            ("d/link", &["secret", "nothing"], &[Stays, Stays]),
            ("..", &["source", "nothing"], &[Excluded, Excluded]),
            ("/etc", &["passwd", "nothing"], &[Excluded, Excluded]),
            ("", &["d", "beside"], &[Stays, Excluded]),
        ];
        for (batch, (directory, names, expected)) in asks.into_iter().enumerate() {
            let list = List {
                batch: batch as u32,
                directory: directory.as_bytes().into(),
                names: names.iter().map(|name| name.as_bytes().into()).collect(),
            };
            peer.say(&Message::List(Box::new(list)), &[]);
            let (message, _) = heard_until(peer, |message| matches!(message, Message::Delete(_)));
            let Message::Delete(answer) = message else { unreachable!("it is one") };
            assert_eq!(answer.fates, expected, "{directory}: {names:?}");
        }
        let named: [(&str, Option<&[&str]>); 5] =
            [("d", Some(&["f", "link"])), ("d/link", None), ("..", None), ("/etc", None), ("", Some(&["d"]))];
        for (batch, (directory, expected)) in (5..).zip(named) {
            let directory = directory.as_bytes().into();
            peer.say(&Message::Names(Box::new(Names { batch, directory, from: 0 })), &[]);
            let (message, _) = heard_until(peer, |message| matches!(message, Message::Named(_)));
            let Message::Named(mut answer) = message else { unreachable!("it is one") };
            answer.names.sort();
            let names = answer.names.iter().map(|name| std::str::from_utf8(name).unwrap());
            assert_eq!(answer.certain.then(|| Vec::from_iter(names)), expected.map(<[_]>::to_vec));
            assert!(answer.last);
        }
    });
    assert!(ended.expect("a session").is_whole());
}
