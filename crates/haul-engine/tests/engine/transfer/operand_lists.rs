//! Tests of operand lists that are too long for a CONNECT.

use super::misbehaving_peer::Nobody;
use super::pair::{Pair, offer};
use super::small_objects;
use haul_engine::transfer::{
    BoxError, FetchJob, Outcome, RunContext, SimpleObserver, Tally, TransferError, answer, fetch,
};
use haul_lab::misbehaving_peer::{MisbehavingPeer, connect};
use haul_net::StreamLane;
use haul_proto::limits::{OPERANDS_ALL_MAX, OPERANDS_MAX, OPERANDS_PER_MESSAGE};
use haul_proto::{Connect, Features, JobOptions, Message, Operands, Reason, Role, Why};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// Creates `files` names in directories of `per_dir` names and returns their paths relative to the
/// source. All names in a directory are hard links to one file that contains the first of them.
/// Inodes are slow to create and to remove on some file systems.
fn many(pair: &Pair, files: usize, per_dir: usize) -> Vec<String> {
    let names: Vec<String> = (0..files).map(|file| format!("d{}/f{file:05}", file / per_dir)).collect();
    for alike in names.chunks(per_dir) {
        let first = pair.source().join(&alike[0]);
        fs::create_dir(first.parent().unwrap()).unwrap();
        fs::write(&first, &alike[0]).unwrap();
        alike[1..].iter().for_each(|name| fs::hard_link(&first, pair.source().join(name)).unwrap());
    }
    names
}

fn fetched(pair: &Pair) -> usize {
    fs::read_dir(pair.sink()).unwrap().count()
}

#[test]
fn twenty_thousand_names_are_fetched_by_one_job() {
    let pair = Pair::new();
    let names = many(&pair, 20_000, 100);
    let named: Vec<&str> = names.iter().map(String::as_str).collect();
    let told = pair.fetch(&named, &small_objects(), 2);
    told.is_fine();
    assert_eq!((told.summary().done, fetched(&pair)), (20_000, 20_000));
    for (at, name) in names.iter().enumerate().step_by(997) {
        let held = fs::read_to_string(pair.sink().join(&name[name.len() - 6..])).unwrap();
        assert_eq!(held, names[at / 100 * 100], "{name}");
    }
}

/// Tests more directories than stay open for looking up names in them.
#[test]
fn contents_of_many_operands_are_looked_up_in_each_operand() {
    let pair = Pair::new();
    many(&pair, 800, 2);
    let directories: Vec<String> = (0..400).map(|dir| format!("d{dir}")).collect();
    let named: Vec<&str> = directories.iter().map(String::as_str).collect();
    for name in ["d7", "d300", "beside"] {
        fs::create_dir(pair.sink().join(name)).unwrap();
        fs::write(pair.sink().join(name).join("extra"), "").unwrap();
    }
    let told = pair.fetch(&named, &JobOptions { delete: true, ..small_objects() }, 1);
    told.is_fine();
    assert_eq!(told.summary().deleted, 2, "{:?}", told.summary());
    for (name, stands) in [
        ("d7/extra", false),
        ("d300/extra", false),
        ("beside/extra", true),
        ("d7/f00014", true),
        ("d300/f00601", true),
    ] {
        assert_eq!(pair.sink().join(name).exists(), stands, "{name}");
    }
}

/// One bad name does not end the transfer of the others.
#[test]
fn missing_names_of_a_long_list_fail_alone() {
    let pair = Pair::new();
    let mut names = many(&pair, OPERANDS_MAX + 10, 50);
    names.insert(3, "d0/nothing".to_owned());
    names.insert(200, "nowhere/f".to_owned());
    let named: Vec<&str> = names.iter().map(String::as_str).collect();
    let told = pair.fetch(&named, &small_objects(), 1);
    assert!(told.failures() > 0);
    assert_eq!((told.summary().unread, fetched(&pair)), (2, OPERANDS_MAX + 10));
}

#[test]
fn long_list_with_an_escaping_path_is_not_requested() {
    let pair = Pair::new();
    let mut names = many(&pair, OPERANDS_MAX + 1, 50);
    names.push("../secret".to_owned());
    let named: Vec<&str> = names.iter().map(String::as_str).collect();
    let told = pair.fetch(&named, &small_objects(), 1);
    assert!(told.failed_to_begin());
    assert_eq!(fetched(&pair), 0);
}

/// Runs a sink that sends an operand list after its CONNECT, and disconnects without reading if
/// `hears` is false. Returns the source's answer and its result.
fn lists(
    messages: impl Iterator<Item = Message>,
    hears: bool,
) -> (Option<Message>, Result<Outcome, TransferError>) {
    let pair = Pair::new();
    let (ours, theirs) = StreamLane::pair();
    let offer = offer(&pair.source());
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let (stop, tally) = (AtomicBool::new(false), Tally::default());
            let run_context = RunContext { stop: &stop, tally: &tally, report: &Nobody, receipt: None };
            answer(theirs.into(), &mut || None, &offer, &run_context)
        });
        let mut peer = MisbehavingPeer::at(ours);
        let (role, lists, operands) = (Role::Sink, Features::OPERANDS, Vec::new());
        let asks = Connect { role, offers: lists, needs: lists, operands, ..connect(&JobOptions::default()) };
        peer.say(&Message::Connect(Box::new(asks)), &[]);
        let Message::Accept(accept) = peer.hear() else { panic!("it is accepted") };
        assert_eq!(accept.features, Features::OPERANDS);
        for message in messages {
            peer.say(&message, &[]);
        }
        let heard = hears.then(|| peer.hear());
        drop(peer);
        (heard, answering.join().unwrap())
    })
}

fn operands(last: bool, paths: Vec<&[u8]>) -> Message {
    let paths = paths.into_iter().map(Box::from).collect();
    Message::Operands(Box::new(Operands { last, paths }))
}

fn assert_refused(messages: impl Iterator<Item = Message>, why: Why) {
    let (heard, ended) = lists(messages, true);
    let Some(Message::Bye(bye)) = heard else { panic!("{heard:?} is no refusal") };
    assert_eq!(bye.reason.map(|reason| reason.why), Some(why));
    assert!(matches!(ended, Err(TransferError::Denied(reason)) if reason.why == why));
}

#[test]
fn hostile_list_ends_the_session_with_a_reason() {
    for path in [&b"../secret"[..], b"/etc/passwd", b"a\0b", b"a/../../b"] {
        let told = [operands(false, vec![b"d"]), operands(true, vec![b"e", path])];
        assert_refused(told.into_iter(), Why::Name);
    }
    assert_refused([operands(true, vec![])].into_iter(), Why::Name);
    // One more operand than the maximum of a job, of the cheapest kind.
    let full = operands(false, vec![b""; OPERANDS_PER_MESSAGE]);
    let flood = vec![full; OPERANDS_ALL_MAX / OPERANDS_PER_MESSAGE];
    assert_refused(flood.into_iter().chain([operands(false, vec![b""])]), Why::TooLarge);
}

#[test]
fn incomplete_or_invalid_list_ends_the_session() {
    let (_, ended) = lists([operands(false, vec![b"d"])].into_iter(), false);
    assert!(matches!(ended, Err(TransferError::Lane(_))), "{ended:?}");
    let (_, ended) = lists([operands(false, vec![b"d"]), Message::KeepAlive].into_iter(), false);
    assert!(
        matches!(&ended, Err(TransferError::NotUnderstood(why)) if why.contains("KEEPALIVE")),
        "{ended:?}"
    );
}

/// Fetches `names` paths from a peer that answers CONNECT with `answered`. Returns that CONNECT and
/// the result of the fetch.
fn asked_of_an_older_side(names: usize, answered: Message) -> (Connect, Result<Outcome, TransferError>) {
    let pair = Pair::new();
    let (ours, theirs) = StreamLane::pair();
    let ours = Mutex::new(Some(ours));
    let dial =
        |_: u32| -> Result<StreamLane, BoxError> { Ok(ours.lock().unwrap().take().expect("one lane")) };
    let paths = (0..names).map(|name| name.to_string().into_bytes()).collect();
    let job = FetchJob { lanes: Some(1), ..FetchJob::new(paths, pair.sink().into()) };
    std::thread::scope(|scope| {
        let older = scope.spawn(move || {
            let mut older = MisbehavingPeer::at(theirs);
            let Message::Connect(connect) = older.hear() else { panic!("CONNECT comes first") };
            older.say(&answered, &[]);
            *connect
        });
        let ended = fetch(&dial, &job, &SimpleObserver::default().run_context());
        (older.join().unwrap(), ended)
    })
}

#[test]
fn older_peer_gets_short_requests_and_refuses_long_lists() {
    let refused = |why| Message::Refuse(Reason::new(why, "features 0x1"));
    let (connect, ended) = asked_of_an_older_side(OPERANDS_MAX, refused(Why::Feature));
    assert_eq!((connect.needs, connect.operands.len()), (Features::default(), OPERANDS_MAX));
    assert!(matches!(ended, Err(TransferError::Refused(reason)) if reason.why == Why::Feature));
    let (connect, ended) = asked_of_an_older_side(OPERANDS_MAX + 1, refused(Why::Feature));
    assert_eq!((connect.needs, connect.operands.len()), (Features::OPERANDS, 0));
    let error = ended.expect_err("it cannot be fetched");
    assert!(matches!(error, TransferError::TooMany { requested: 257 }), "{error:?}");
    assert!(error.to_string().contains("accepts at most 256"), "{error}");
    let (_, ended) = asked_of_an_older_side(OPERANDS_MAX + 1, refused(Why::Denied));
    assert!(matches!(ended, Err(TransferError::Refused(_))), "other reasons stay what they are");
}
