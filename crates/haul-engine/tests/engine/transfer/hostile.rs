//! Tests of a hostile source, which sends or answers a fetch. Names outside the root, through
//! links, or never requested are refused. The user of this side sees the reason, and the session
//! continues.

mod confined;
mod memory;
mod policy;

use super::pair::{Pair, offer};
use super::small_objects;
use haul_digest::{Algorithm, PartHasher, PartPlace};
use haul_engine::transfer::{
    BoxError, Dial, Failure, FetchJob, Offer, Outcome, Parts, Report, RunContext, Tally, TransferError,
    answer, fetch,
};
pub(super) use haul_lab::misbehaving_peer::scripts::accepted;
use haul_lab::misbehaving_peer::scripts::{
    end_of, file, file_by, hard_link, link, name, offered, refused, wrote,
};
use haul_lab::misbehaving_peer::{
    MisbehavingPeer, block, block_digest, bye, connect, file_close, frame, new_file, plain, read, walked,
};
use haul_lab::wait_until;
use haul_model::{ByteRange, Level, ObjectIndex, ObjectSize, RelPath};
use haul_net::StreamLane;
use haul_proto::{
    Answer, Close, Delete, Encoding, Fate, FileKind, JobOptions, Keep, Message, Named, NewBlock, NewFile,
    Outcome as Ended, Runs, Stated, Unit, Update, Verify, Why,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Recorder of the reports to the user.
#[derive(Default)]
struct Ears {
    failed: Mutex<Vec<String>>,
    lost: Mutex<Vec<String>>,
}

impl Report for Ears {
    fn failed(&self, failure: &Failure) {
        self.failed.lock().unwrap().push(failure.to_string());
    }

    fn lane_lost(&self, _: u32, why: &str) {
        self.lost.lock().unwrap().push(why.to_owned());
    }
}

/// Result of a session with a hostile peer.
pub(super) struct Told {
    pub(super) ended: Result<Outcome, TransferError>,
    failed: Vec<String>,
    lost: Vec<String>,
}

impl Told {
    fn new(ended: Result<Outcome, TransferError>, ears: Ears) -> Told {
        let (failed, lost) = (ears.failed.into_inner().unwrap(), ears.lost.into_inner().unwrap());
        for line in failed.iter().chain(&lost) {
            assert!(!line.contains(char::is_control), "{line:?} would steer a terminal");
        }
        Told { ended, failed, lost }
    }

    /// Checks that the job ended and that `count` names failed.
    #[track_caller]
    pub(super) fn assert_failures(&self, count: u64) {
        let outcome = self.ended.as_ref().expect("a session");
        assert!(outcome.broken.is_none(), "{outcome:?}");
        assert_eq!(outcome.summary.failed, count, "{:#?}", self.failed);
        assert_eq!(self.failed.len() as u64, count, "each failure is reported once: {:#?}", self.failed);
    }
}

/// Lets a hostile source send to the sink of `pair`.
pub(super) fn sent(pair: &Pair, options: &JobOptions, lies: impl FnOnce(&mut MisbehavingPeer)) -> Told {
    sent_to(&offer(&pair.sink()), options, lies)
}

/// Lets a hostile source send to a sink with this offer.
fn sent_to(offer: &Offer, options: &JobOptions, lies: impl FnOnce(&mut MisbehavingPeer)) -> Told {
    let (ours, theirs) = StreamLane::pair();
    let ears = Ears::default();
    let ended = std::thread::scope(|scope| {
        let ears = &ears;
        let answering = scope.spawn(move || {
            let (stop, tally) = (AtomicBool::new(false), Tally::default());
            let run_context = RunContext { stop: &stop, tally: &tally, report: ears, receipt: None };
            answer(theirs.into(), &mut || None, offer, &run_context)
        });
        let mut peer = MisbehavingPeer::at(ours);
        peer.say(&Message::Connect(Box::new(connect(options))), &[]);
        assert!(matches!(peer.hear(), Message::Accept(_)));
        lies(&mut peer);
        drop(peer);
        answering.join().unwrap()
    });
    Told::new(ended, ears)
}

/// Fetches `paths` from a hostile source into the sink of `pair`.
pub(super) fn fetched(
    pair: &Pair,
    options: &JobOptions,
    paths: &[&str],
    lies: impl FnOnce(&mut MisbehavingPeer) + Send,
) -> Told {
    let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    let options = JobOptions { keep: Keep(options.keep.0 & !Keep::SETUID.0), ..options.clone() };
    fetched_by(FetchJob { options, ..FetchJob::new(paths, pair.sink().into()) }, lies)
}

fn fetched_by(job: FetchJob, lies: impl FnOnce(&mut MisbehavingPeer) + Send) -> Told {
    fetched_with(fetch, job, lies)
}

type Fetching = fn(&dyn Dial, &FetchJob, &RunContext<'_>) -> Result<Outcome, TransferError>;

fn fetched_with(fetching: Fetching, job: FetchJob, lies: impl FnOnce(&mut MisbehavingPeer) + Send) -> Told {
    let (ours, theirs) = StreamLane::pair();
    let ours = Mutex::new(Some(ours));
    let dial =
        |_: u32| -> Result<StreamLane, BoxError> { ours.lock().unwrap().take().ok_or("one lane".into()) };
    let job = FetchJob { lanes: Some(1), ..job };
    let (ears, stop, tally) = (Ears::default(), AtomicBool::new(false), Tally::default());
    let ended = std::thread::scope(|scope| {
        let lying = scope.spawn(move || {
            let mut peer = MisbehavingPeer::at(theirs);
            let Message::Connect(asked) = peer.hear() else { panic!("CONNECT comes first") };
            peer.say(&accepted(&asked), &[]);
            lies(&mut peer);
        });
        let ended =
            fetching(&dial, &job, &RunContext { stop: &stop, tally: &tally, report: &ears, receipt: None });
        lying.join().unwrap();
        ended
    });
    Told::new(ended, ears)
}

/// Returns the answer of a source that has no names in a directory.
fn no_names(batch: u32) -> Message {
    Message::Named(Box::new(Named { batch, certain: true, last: true, names: Vec::new() }))
}

fn names_in(dir: &Path) -> Vec<String> {
    let found = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = found.collect();
    found.sort();
    found
}

#[test]
fn escaping_names_are_refused_and_the_rest_arrives() {
    let pair = Pair::new();
    let long = vec![b'x'; 256];
    let out: [&[u8]; 10] =
        [b"..", b"../out", b"a/../../out", b"/out", b"a\0b", b"", b"a//b", b"./a", b"\x1b[2J/../..", &long];
    let told = sent(&pair, &small_objects(), |peer| {
        let mut number = 0;
        for path in out {
            let kinds =
                [plain(5), FileKind::Directory, link(Path::new("/")), FileKind::Fifo, hard_link(b"good")];
            for kind in kinds {
                assert_eq!(refused(peer, number, path, kind), Why::Name);
                number += 1;
            }
            assert_eq!(refused(peer, number, b"fine", hard_link(path)), Why::Name);
            number += 1;
        }
        assert_eq!(wrote(peer, number, b"good", b"bytes"), Ended::Done(Level::Verified));
        peer.part(number + 1);
    });
    told.assert_failures(60);
    assert_eq!(names_in(&pair.sink()), ["good"]);
    assert_eq!(names_in(pair.sink().parent().unwrap()), ["sink", "source"]);
}

#[test]
fn nothing_is_written_through_a_received_symlink() {
    for in_place in [false, true] {
        let pair = Pair::new();
        let outside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o751)).unwrap();
        let options = JobOptions { in_place, ..small_objects() };
        let told = sent(&pair, &options, |peer| {
            let done = Ended::Done(Level::Verified);
            assert_eq!(offered(peer, 0, b"d", link(outside.path())), done);
            assert_eq!(offered(peer, 1, b"up", link(Path::new(".."))), done);
            assert_eq!(offered(peer, 2, b"f", link(&secret)), done);
            for (number, path) in [(3, &b"d/secret"[..]), (4, b"d/new"), (5, b"up/new"), (6, b"up/sink/new")]
            {
                assert!(matches!(wrote(peer, number, path, b"evil"), Ended::Failed(_)));
            }
            for (number, kind) in [(7, hard_link(b"d/secret")), (8, hard_link(b"up/source"))] {
                refused(peer, number, b"h", kind);
            }
            for (number, kind) in [(9, FileKind::Fifo), (10, link(Path::new("x"))), (11, FileKind::Directory)]
            {
                refused(peer, number, b"d/made", kind);
            }
            refused(peer, 12, b"d", FileKind::Directory);
            // A file replaces a link; the target of the link stays.
            assert_eq!(wrote(peer, 13, b"f", b"own"), done);
            peer.part(14);
        });
        told.assert_failures(10);
        assert_eq!(names_in(outside.path()), ["secret"]);
        assert_eq!(fs::read(&secret).unwrap(), b"secret");
        assert_eq!(fs::metadata(&secret).unwrap().nlink(), 1);
        assert_eq!(fs::metadata(outside.path()).unwrap().mode() & 0o7777, 0o751);
        assert_eq!(names_in(&pair.sink()), ["d", "f", "up"]);
        assert_eq!(names_in(&pair.source()), [""; 0]);
    }
}

/// Returns a header that states these lengths.
fn head(kind: u8, body: u32, payload: u32) -> Vec<u8> {
    let mut bytes = vec![kind, 0];
    bytes.extend(body.to_le_bytes());
    bytes.extend(payload.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    let crc = crc32fast::hash(&bytes);
    bytes.splice(2..2, (((crc >> 16) ^ (crc & 0xffff)) as u16).to_le_bytes());
    bytes
}

#[test]
fn oversized_frame_ends_the_session_with_a_reason() {
    let new_file = frame(&name(0, b"f", plain(5)))[0];
    for (body, payload) in [(u32::MAX, 0), (1 << 31, 0), ((1 << 20) + 1, 0), (10, u32::MAX)] {
        let pair = Pair::new();
        let told = sent(&pair, &small_objects(), |peer| {
            peer.writer.write_all(&head(new_file, body, payload)).unwrap();
            // Nothing waits for the announced bytes.
            let mut rest = [0; 4096];
            while peer.reader.read_some(&mut rest).is_ok_and(|read| read > 0) {}
        });
        let broken = told.ended.expect("a session").broken.expect("it broke");
        assert_eq!(broken.why, Why::LanesLost, "{broken}");
        assert!(told.lost.iter().any(|why| why.contains("invalid message received")), "{:?}", told.lost);
        assert_eq!(names_in(&pair.sink()), [""; 0]);
    }
}

#[test]
fn truncated_session_leaves_complete_files_or_none() {
    let bytes = vec![7; 3000];
    let mut all = Vec::new();
    let frames = [file(0, b"one", &bytes), file(1, b"sub/two", &bytes)].concat();
    for (message, payload) in frames.iter().chain(&[(walked(2, false), Vec::new())]) {
        message.encode(&mut all);
        all.extend_from_slice(payload);
    }
    let mut arrived = [0; 3];
    for cut in (0..all.len()).step_by(97).chain([all.len()]) {
        let pair = Pair::new();
        let told = sent(&pair, &small_objects(), |peer| {
            peer.writer.write_all(&all[..cut]).unwrap();
            if cut == all.len() {
                // The peer keeps reading: a sink that cannot send any more ends before it has read
                // everything.
                peer.writer.finish().unwrap();
                while peer.reader.read_some(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
            }
        });
        // After WALK_END the sink needs nothing more.
        let is_broken = told.ended.expect("a session").broken.is_some();
        assert_eq!(is_broken, cut < all.len(), "after {cut} of {} bytes", all.len());
        let mut whole = 0;
        for path in ["one", "sub/two"] {
            if let Ok(found) = fs::read(pair.sink().join(path)) {
                assert!(found == bytes, "{path} after {cut} bytes");
                whole += 1;
            }
        }
        arrived[whole] += 1;
        pair.nothing_is_left_over();
    }
    assert!(arrived[0] > 5 && arrived[2] > 0, "{arrived:?}");
}

#[test]
fn fetch_accepts_only_requested_names() {
    let pair = Pair::new();
    fs::write(pair.sink().join(".profile"), "own").unwrap();
    let told = fetched(&pair, &small_objects(), &["deep/data"], |peer| {
        let done = Ended::Done(Level::Verified);
        for (number, path) in
            [&b".profile"[..], b"deep/data", b".ssh/authorized_keys", b"database"].into_iter().enumerate()
        {
            assert!(matches!(wrote(peer, number as u64, path, b"evil"), Ended::Failed(_)));
        }
        assert_eq!(refused(peer, 4, b".ssh", FileKind::Directory), Why::Denied);
        assert_eq!(refused(peer, 5, b"data/x", hard_link(b".profile")), Why::Denied);
        assert_eq!(refused(peer, 6, b".profile", link(Path::new("/"))), Why::Denied);
        assert_eq!(refused(peer, 7, b"../data", plain(1)), Why::Name);
        assert_eq!(wrote(peer, 8, b"data/f", b"bytes"), done);
        assert_eq!(offered(peer, 9, b"data", FileKind::Directory), done);
        peer.part(10);
    });
    told.assert_failures(8);
    assert!(told.failed.iter().any(|line| line.contains("not requested")), "{:?}", told.failed);
    assert_eq!(names_in(&pair.sink()), [".profile", "data"]);
    assert_eq!(names_in(&pair.sink().join("data")), ["f"]);
    assert_eq!(fs::read(pair.sink().join(".profile")).unwrap(), b"own");
}

/// Regression: the source was shown every name below the directory, and its answer was accepted for
/// each.
#[test]
fn deleting_fetch_lists_only_requested_names() {
    let pair = Pair::new();
    for dir in ["data/old", "own"] {
        fs::create_dir_all(pair.sink().join(dir)).unwrap();
        fs::write(pair.sink().join(dir).join("f"), "bytes").unwrap();
    }
    let options = JobOptions { delete: true, ..small_objects() };
    let mut shown = Vec::new();
    let told = fetched(&pair, &options, &["data"], |peer| {
        assert_eq!(wrote(peer, 0, b"data/new", b"new"), Ended::Done(Level::Verified));
        peer.say(&walked(1, true), &[]);
        loop {
            match peer.hear() {
                Message::List(list) => {
                    // The source claims that everything is gone except the file that it has just
                    // sent.
                    let is_gone = |name: &[u8]| list.directory.starts_with(b"data") && name != b"new";
                    let fate = |is_gone| if is_gone { Fate::Gone } else { Fate::Stays };
                    let fates = list.names.iter().map(|name| fate(is_gone(name))).collect();
                    shown.push((list.directory.to_vec(), list.names.clone()));
                    peer.say(&Message::Delete(Box::new(Delete { batch: list.batch, fates })), &[]);
                }
                Message::Names(names) => {
                    assert_eq!(*names.directory, *b"data");
                    peer.say(&no_names(names.batch), &[]);
                }
                Message::Bye(bye) => break assert!(bye.reason.is_none()),
                other => panic!("{other:?}"),
            }
        }
        peer.say(&bye(), &[]);
        peer.writer.finish().unwrap();
    });
    assert!(told.ended.expect("a session").is_whole());
    let root = (Vec::new(), vec![Box::from(&b"data"[..])]);
    assert_eq!(shown.first(), Some(&root), "nothing else is for it to know");
    assert!(shown.iter().all(|(directory, _)| !directory.starts_with(b"own")));
    assert_eq!(names_in(&pair.sink()), ["data", "own"]);
    assert_eq!(names_in(&pair.sink().join("data")), ["new"]);
}

#[test]
fn fetch_ignores_special_mode_bits_from_the_peer() {
    let pair = Pair::new();
    let told = fetched(&pair, &small_objects(), &["tool"], |peer| {
        let mut frames = file(0, b"tool", b"#!");
        let Message::NewFile(facts) = &mut frames[0].0 else { unreachable!("it comes first") };
        facts.mode = 0o6777;
        frames.iter().for_each(|(message, payload)| peer.say(message, payload));
        assert_eq!(end_of(peer, 0), Ended::Done(Level::Verified));
        peer.part(1);
    });
    told.assert_failures(0);
    assert_eq!(fs::metadata(pair.sink().join("tool")).unwrap().mode() & 0o7000, 0);
}

/// Regression: the user of the fetching side saw the number of failed files, but not their names.
#[test]
fn files_that_fail_midway_are_named_at_the_sink() {
    let pair = Pair::new();
    fs::create_dir(pair.sink().join("closed")).unwrap();
    let told = fetched(&pair, &small_objects(), &["broken", "damaged"], |peer| {
        let mut broken = file(0, b"broken", b"bytes");
        broken.truncate(1);
        broken.push((file_close(0, Close::Failed(Why::Io.into())), Vec::new()));
        broken.iter().for_each(|(message, payload)| peer.say(message, payload));
        assert!(matches!(end_of(peer, 0), Ended::Failed(_)));
        let mut damaged = file(1, b"damaged", b"bytes");
        damaged[1].1 = b"other".to_vec();
        damaged.iter().for_each(|(message, payload)| peer.say(message, payload));
        loop {
            match peer.hear() {
                // A correct version is never sent.
                Message::BlockReject(_) => {
                    damaged[1..3].iter().for_each(|(message, payload)| peer.say(message, payload));
                }
                Message::FileDone(done) => break assert!(matches!(done.outcome, Ended::Failed(_))),
                other => panic!("{other:?}"),
            }
        }
        peer.part(2);
    });
    told.assert_failures(2);
    assert!(
        told.failed[0].starts_with("broken: ") && told.failed[0].contains("remote host"),
        "{:?}",
        told.failed
    );
    assert!(told.failed[1].starts_with("damaged: ") && !told.failed[1].contains("remote host"));
    pair.nothing_is_left_over();
}

/// With every digest, a byte that was changed in transit is requested again and not accepted
/// meanwhile.
#[test]
fn every_digest_detects_damage_in_transit() {
    for &algorithm in Algorithm::ALL {
        let pair = Pair::new();
        let told = sent(&pair, &JobOptions { algorithm, ..small_objects() }, |peer| {
            let frames = file_by(algorithm, 0, b"f", b"bytes");
            for (message, payload) in &frames {
                let is_block = matches!(message, Message::NewBlock(_));
                peer.say(message, if is_block { &b"bites"[..] } else { payload });
            }
            assert!(matches!(peer.hear(), Message::BlockReject(_)), "{algorithm:?}");
            assert!(!pair.sink().join("f").exists(), "{algorithm:?}");
            frames[1..3].iter().for_each(|(message, payload)| peer.say(message, payload));
            assert_eq!(end_of(peer, 0), Ended::Done(Level::Verified), "{algorithm:?}");
            peer.part(1);
        });
        told.assert_failures(0);
        assert_eq!(fs::read(pair.sink().join("f")).unwrap(), b"bytes", "{algorithm:?}");
    }
}

/// Each update rule looks at the existing entry below the root, and never through a link.
#[test]
fn update_rules_do_not_follow_symlinks() {
    let pair = Pair::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    symlink(outside.path(), pair.sink().join("d")).unwrap();
    for update in [Update::SizeTime, Update::Digest, Update::Object, Update::Missing, Update::Newer] {
        let options = JobOptions { update, verify: Verify::Stream, ..small_objects() };
        let told = sent(&pair, &options, |peer| {
            let facts = name(0, b"d/secret", plain(6));
            assert!(matches!(
                {
                    peer.say(&facts, &[]);
                    end_of(peer, 0)
                },
                Ended::Failed(_)
            ));
            peer.part(1);
        });
        told.assert_failures(1);
    }
}

/// A frame of 75 bytes can announce a terabyte of zeros: to hash them takes hours. Once, sessions
/// did not notice a stop meanwhile, and peers that had left kept a server full.
#[test]
fn stopped_session_ends_within_a_block_of_zeros() {
    const LEN: u64 = 1 << 40;
    let pair = Pair::new();
    let object = ObjectSize::new(LEN).unwrap();
    for unit in [Unit::Object, Unit::File] {
        let algorithm = Algorithm::Sha3_512;
        let options =
            JobOptions { object, algorithm, unit, in_order: unit == Unit::File, ..JobOptions::default() };
        let (ours, theirs) = StreamLane::pair();
        let (offer, stop) = (offer(&pair.sink()), AtomicBool::new(false));
        let ended = std::thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let (ears, tally) = (Ears::default(), Tally::default());
                let run_context = RunContext { stop: &stop, tally: &tally, report: &ears, receipt: None };
                answer(theirs.into(), &mut || None, &offer, &run_context)
            });
            let mut peer = MisbehavingPeer::at(ours);
            peer.say(&Message::Connect(Box::new(connect(&options))), &[]);
            assert!(matches!(peer.hear(), Message::Accept(_)));
            // A file with a hole gets no reserved space.
            let kind = FileKind::File { size: 2 * LEN, holes: Runs::of(1, 2) };
            peer.say(&Message::NewFile(Box::new(new_file(0, b"zeros", kind))), &[]);
            let range = ByteRange::between(0, LEN);
            let block = NewBlock { range, encoding: Encoding::Zeros, payload: 0, ..block(0, b"") };
            peer.say(&Message::NewBlock(block), &[]);
            let is_long =
                |name: &String| fs::metadata(pair.sink().join(name)).is_ok_and(|it| it.len() == 2 * LEN);
            wait_until("the temporary file", || names_in(&pair.sink()).iter().any(is_long));
            stop.store(true, Ordering::Relaxed);
            answering.join().unwrap()
        });
        assert!(ended.is_ok_and(|outcome| outcome.broken.is_some()), "{unit:?}");
        assert_eq!(names_in(&pair.sink()), [""; 0], "{unit:?}");
    }
}

/// A repair fetches a few objects from another host. That host may try to fill the disk or to lead
/// the repair elsewhere.
#[test]
fn fetch_of_parts_accepts_only_requested_objects() {
    const OBJECT: usize = 65_536;
    let pair = Pair::new();
    let mut parts = Parts::default();
    parts.add(&RelPath::new(b"a").unwrap(), &[ByteRange::between(OBJECT as u64, OBJECT as u64 + 4)]);
    let object = small_objects().object;
    let job = FetchJob::of_parts(b"data".to_vec(), pair.sink().into(), object, Arc::new(parts));
    let told = fetched_by(job, |peer| {
        assert_eq!(wrote(peer, 0, b"other", b"bytes"), Ended::Same);
        for (number, path, kind) in [
            (1, &b"dir"[..], FileKind::Directory),
            (2, b"link", link(Path::new("/etc"))),
            (3, b"hard", hard_link(b"a")),
            (4, b"pipe", FileKind::Fifo),
        ] {
            assert_eq!(offered(peer, number, path, kind), Ended::Same);
        }
        let chunk = [7; OBJECT];
        let facts = new_file(5, b"a", plain(3 * OBJECT as u64));
        peer.say(&Message::NewFile(Box::new(NewFile { whole: false, ..facts })), &[]);
        let Message::FileId(id) = peer.hear() else { panic!("FILE_ID comes") };
        let Answer::Take { have } = id.answer else { panic!("objects are taken: {id:?}") };
        assert_eq!(have.iter().collect::<Vec<_>>(), [(0, 1), (2, 3)]);
        for index in 0..3 {
            let range = ByteRange::between(index * OBJECT as u64, (index + 1) * OBJECT as u64);
            let block = NewBlock { object: ObjectIndex(index), range, ..block(5, &chunk) };
            let place = PartPlace { offset: range.start, whole: false };
            let mut hasher = PartHasher::new(Algorithm::Blake3, place);
            hasher.update(&chunk);
            peer.say(&Message::NewBlock(block), &chunk);
            peer.say(&block_digest(5, index, Stated::Digest(hasher.finish().digest())), &[]);
        }
        peer.say(&file_close(5, read(3 * OBJECT as u64)), &[]);
        assert!(matches!(end_of(peer, 5), Ended::Done(_)));
        peer.part(6);
    });
    told.assert_failures(0);
    let names: Vec<_> = fs::read_dir(pair.sink()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a"]);
    let came = fs::read(pair.sink().join("a")).unwrap();
    let expected = [[0_u8; OBJECT], [7; OBJECT], [0; OBJECT]].concat();
    assert!(came == expected, "{} bytes came", came.iter().filter(|byte| **byte == 7).count());
    assert_eq!(fs::metadata(pair.sink().join("a")).unwrap().mode() & 0o777, 0o600);
}
