//! Memory that hostile input takes: live bytes above those before, at most [`PER_BYTE`] for each
//! byte received, and [`BESIDES`]. The settings of these sessions state no further buffers.
//!
//! The counts are those of the process, so that each test needs a process of its own.

use super::{Ears, Pair, small_objects};
use crate::fuzzed;
use haul_digest::Algorithm;
use haul_engine::sum::{Counters, Settings as Reading};
use haul_engine::transfer::{Logs, Offer, Receipt, RunContext, Tally, answer};
use haul_engine::verify::{Verdict, VerifyObserver, VerifySettings, verify};
use haul_lab::misbehaving_peer::scripts::{name, plain_block};
use haul_lab::misbehaving_peer::{MisbehavingPeer, block_digest, connect, frame, new_file, plain};
use haul_lab::random::Random;
use haul_log::objects::{self, Encoding, Identity, Mechanism, SourceVersion, Style, Subject};
use haul_log::waybill::{Job, ReadError};
use haul_model::{Moment, ObjectIndex, ObjectSize, RelPath};
use haul_net::StreamLane;
use haul_proto::{Connect, FileKind, LogRequest, Message, NameRule, NewFile, Role, Stated};
use peak_alloc::PeakAlloc;
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::AtomicBool;

/// Live bytes allowed for each byte received.
const PER_BYTE: usize = 64;

/// Live bytes allowed besides.
const BESIDES: usize = 16 << 20;

/// Runs `work`, which takes `received` bytes of hostile input, and asserts that its memory is
/// bounded.
#[track_caller]
fn bounded<T>(what: &str, received: usize, work: impl FnOnce() -> T) -> T {
    PeakAlloc.reset_peak_usage();
    let before = PeakAlloc.current_usage();
    let done = work();
    let most = PeakAlloc.peak_usage().saturating_sub(before);
    let allowed = PER_BYTE * received + BESIDES;
    assert!(most <= allowed, "{what}: {most} live bytes for {received} received, {allowed} are allowed");
    done
}

/// Sends a request and messages to a side with this offer, as a hostile client, and leaves after
/// its answer to the last message, if it has one.
fn session(
    what: &str,
    offer: &Offer,
    receipt: Option<&Receipt>,
    request: Connect,
    said: &[(Message, Vec<u8>)],
) {
    let connect = Message::Connect(Box::new(request));
    let parts = said.iter().map(|(message, payload)| frame(message).len() + payload.len());
    let received = frame(&connect).len() + parts.sum::<usize>();
    bounded(what, received, || {
        let (ours, theirs) = StreamLane::pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (stop, tally, ears) = (AtomicBool::new(false), Tally::default(), Ears::default());
                let run_context = RunContext { stop: &stop, tally: &tally, report: &ears, receipt };
                // The session ends as a client that leaves makes it end.
                drop(answer(theirs.into(), &mut || None, offer, &run_context));
            });
            let mut peer = MisbehavingPeer::at(ours);
            peer.say(&connect, &[]);
            if said.is_empty() {
                // Accepted or refused.
                drop(peer.hear());
                return;
            }
            assert!(matches!(peer.hear(), Message::Accept(_)), "{what}");
            said.iter().for_each(|(message, payload)| peer.say(message, payload));
            while !matches!(peer.hear(), Message::FileDone(done) if done.number.0 == END) {}
        });
    });
}

/// Number of the last name of a session, which is refused.
const END: u64 = 9;

/// Regression: one object of a large file took memory for the digests, and for the log, of all
/// objects before it.
#[test]
fn the_last_object_of_a_large_file_takes_little_memory() {
    let options = small_objects();
    let object = options.object.bytes();
    // As large as ext4 allows, with room to spare.
    let last = (8 << 40) / object - 1;
    let bytes = vec![7; object as usize];
    let stated = Stated::Digest(haul_digest::digest(Algorithm::Blake3, &bytes));
    let large =
        Message::NewFile(Box::new(NewFile { whole: false, ..new_file(0, b"f", plain((last + 1) * object)) }));
    let said = [
        (large, Vec::new()),
        (plain_block(0, last, options.object, bytes.len()), bytes),
        (block_digest(0, last, stated), Vec::new()),
        (name(END, b"../x", FileKind::Directory), Vec::new()),
    ];
    let log = LogRequest { mechanism: 1, encoding: 5, sync: 1, ..LogRequest::default() };
    let request = Connect { job: [5; 16], log: Some(log), ..connect(&options) };
    for mechanism in Mechanism::ALL {
        for encoding in Encoding::ALL {
            let pair = Pair::new();
            let state = pair.sink().with_file_name("state");
            let logs = Logs::Own { state, style: Style { mechanism, encoding } };
            let offer = Offer { logs, ..super::offer(&pair.sink()) };
            let receipt = Receipt::new(pair.sink().with_file_name("waybill").into(), Job::default());
            let what = format!("{mechanism}, {encoding}");
            session(&what, &offer, Some(&receipt), request.clone(), &said);
        }
    }
}

/// Regression: the patterns of one request took 90 MiB.
#[test]
fn filter_rules_of_a_request_take_little_memory() {
    let pair = Pair::new();
    fs::write(pair.sink().join("a name that is matched"), "x").unwrap();
    let shapes: [fn(usize) -> String; 6] = [
        |number| format!("*a{number}*b*c*d*e*f*g*h*i*j*k*l*m*n*o*p*q*r*s*t*u*v*w*x*y*z"),
        |number| format!("*a{number}*b*c*d*e*f*g*h*i*j*k*l*m*n*o*p*q*r*s*t*u*v*w*x.txt"),
        |number| format!("*[!\u{e4}-\u{fff0}][!\u{100}-\u{2fff}][!\u{100}-\u{2fff}]*{number}.txt"),
        |number| format!("{{a{number},b,c,d,e}}{{a,b,c,d,e}}{{a,b,c,d}}{{a,b,c,d,e,f}}{{a,b,c,d}}"),
        |number| format!("{number}{}", "?".repeat(56)),
        |number| format!("/directory {number}/with a long name/that is/a literal/**"),
    ];
    for shape in shapes {
        // As many as the messages can hold, which may be refused, and as many as are accepted.
        for wildcards_max in [usize::MAX, 2048] {
            let (mut rules, mut bytes, mut wildcards) = (Vec::new(), 0, 0);
            for number in 0..haul_proto::limits::RULES_MAX {
                let pattern = shape(number);
                bytes += pattern.len();
                wildcards += pattern.matches(['*', '?', '[', '{', ',']).count();
                if bytes > haul_proto::limits::RULES_BYTES_MAX || wildcards > wildcards_max {
                    break;
                }
                rules.push(NameRule { is_include: false, pattern: pattern.as_bytes().into() });
            }
            let request = connect(&small_objects());
            let request =
                Connect { role: Role::Sink, operands: vec![b"".as_slice().into()], rules, ..request };
            session(&shape(0), &super::offer(&pair.sink()), None, request, &[]);
        }
    }
}

struct Silent;

impl VerifyObserver for Silent {
    fn judged(&mut self, _: &Verdict) {}
    fn flawed(&mut self, _: &ReadError) {}
}

/// Regression: after a damaged line, the number of an object was arbitrary, and memory held the
/// digests of all objects before it.
#[test]
fn object_numbers_of_a_waybill_take_no_memory() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("w");
    let lines = |numbers: &[u64]| {
        let value = "A".repeat(42) + "Q";
        let mut lines = vec![
            "surehaul-waybill version=1 section=1 at=2026-01-01T00:00:00Z program=x root=. run=x".to_owned(),
            "file path=f size=4611686018427387904 mode=0644 mtime=0.000000000 object=65536 of=blake3"
                .to_owned(),
            format!("0 {value}"),
        ];
        lines.extend(numbers.iter().map(|number| format!("{number} {value}")));
        let mut crc = crc32fast::Hasher::new();
        let sealed = |line: String| {
            crc.update(format!("{line} ").as_bytes());
            format!("{line} {:08x}\n", crc.clone().finalize())
        };
        let text: String = lines.into_iter().map(sealed).collect();
        // The line of the first object is damaged.
        text.replacen("\n0 A", "\n0 B", 1)
    };
    let last = (1 << 46) - 1;
    for numbers in [vec![last], vec![1, 1 << 20, last], (0..2000).map(|number| 1 + 1000 * number).collect()] {
        let text = lines(&numbers);
        fs::write(&path, &text).unwrap();
        let settings = VerifySettings {
            waybill: path.clone().into(),
            root: home.path().into(),
            reading: Reading::for_workers(1),
            sample: None,
            extra: true,
            locate: true,
            resume: None,
            any_seed: false,
        };
        let totals = bounded("a waybill", text.len(), || {
            verify(&settings, &mut Silent, &Counters::new(), &AtomicBool::new(false)).unwrap()
        });
        assert!(totals.flaws > 0 && totals.missing == 1, "{totals:?}");
    }
}

/// A log states the number of the objects of each file, and the place of their bits.
#[test]
fn a_log_of_large_files_takes_little_memory() {
    for mechanism in Mechanism::ALL {
        for encoding in Encoding::ALL {
            let job = objects::Job { id: Identity([1; 16]), object: ObjectSize::new(64 << 10).unwrap() };
            let mut log = objects::Log::new(job, Style { mechanism, encoding }, 1);
            for number in 0..20 {
                let source = SourceVersion {
                    size: 1 << 37,
                    mtime: Moment { sec: 1, nsec: 0 },
                    identity: Identity([number; 16]),
                };
                let path = RelPath::new(format!("f{number}").as_bytes()).unwrap();
                let key = log.open(&Subject { path, source, sink: Identity([2; 16]) }).unwrap();
                log.done(key, ObjectIndex((1 << 21) - 1));
            }
            let orders = bounded("a commit", 20 * 100, || log.commit());
            let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
            for order in orders {
                if let objects::Order::Write { name, at, bytes: part } = order {
                    let file = files.entry(name).or_default();
                    let end = at as usize + part.len();
                    file.resize(file.len().max(end), 0);
                    file[at as usize..end].copy_from_slice(&part);
                }
            }
            let bytes = files.values().map(Vec::len).sum();
            let found = bounded("a replay", bytes, || objects::replay(&job, &files));
            assert_eq!(found.facts.len(), 20, "{mechanism}, {encoding}: {:?}", found.flaws);
        }
    }
}

/// All decoders: of the wire, waybills, logs, journals, lists, tickets, and the first bytes of
/// connections.
#[test]
fn decoders_take_memory_in_proportion_to_their_input() {
    let mut random = Random::from_seed(11);
    for (name, target, inputs) in fuzzed::targets_with_inputs() {
        let rounds = if name == "receiver" { 4 } else { 40 };
        for input in &inputs {
            bounded(name, input.len(), || target(input));
        }
        for _ in 0..rounds {
            let seed = random.index(inputs.len());
            let input = random.mutate(&inputs[seed]);
            bounded(name, input.len(), || target(&input));
        }
    }
}
