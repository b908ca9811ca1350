//! A source that makes a file start again in each of its states. The receiver answers or ends the
//! session, without a panic; a server continues, or exits if it serves one session.

use super::receivers::{Job, Liar, OBJECT, Receiver, World};
use haul_digest::{Algorithm, Digest, DigestKey, digest};
use haul_lab::misbehaving_peer::{bye, new_file, plain, walked};
use haul_model::{ByteRange, Level, Moment, ObjectIndex};
use haul_proto::{
    BlockDigest, Close, Encoding, FileClose, FileNumber, JobOptions, Message, NewBlock, NewFile,
    ObjectDigests, Stated, Unit, Update, Verify,
};
use std::fs;

/// Number of objects of the file.
const OBJECTS: u64 = 3;

/// Content of the file in each object of the source.
const BYTE: u8 = 3;

const NUMBER: FileNumber = FileNumber(0);

/// One step of a source, which reads no answer.
#[derive(Clone, Copy, Debug)]
enum Step {
    Announce {
        whole: bool,
    },
    /// States keyed digests: of the complete file, or of the first objects.
    WholeDigest(u16),
    Digests(u16),
    /// Sends an object out of order, so that a file that is hashed in order starts again.
    Object(u16, u64),
    /// Sends all objects.
    Objects(u16),
    /// Ends the file with a digest that differs, or without one.
    Close(u16, bool),
}

use Step::{Announce, Close as End, Digests, Object, Objects, WholeDigest};

/// Options of a job, those of `haul fetch` with the same effect, and the steps of its source.
type Script = (JobOptions, &'static [&'static str], Vec<Step>);

fn scripts() -> Vec<Script> {
    let base = Job::default().options;
    let in_order = JobOptions { unit: Unit::File, in_order: true, algorithm: Algorithm::Md5, ..base.clone() };
    let with = |update| JobOptions { update, ..in_order.clone() };
    let twice = JobOptions { unit: Unit::File, verify: Verify::FilePipeline, ..base.clone() };
    let pairs = JobOptions { verify: Verify::BlockPipeline, ..base.clone() };
    let reread = JobOptions { verify: Verify::Reread, settle: Level::Reread, ..base.clone() };
    let file: &[&str] = &["--granularity=file", "--hash=md5"];
    let attempts = || 0..8;
    vec![
        // Open, before and between its objects.
        (
            with(Update::Always),
            file,
            [vec![Announce { whole: false }], attempts().map(|at| Object(at, 1)).collect()].concat(),
        ),
        (
            with(Update::Always),
            file,
            vec![
                Announce { whole: true },
                Object(0, 0),
                Object(0, 2),
                Object(1, 0),
                End(0, false),
                End(1, false),
            ],
        ),
        // Finishing, with a digest that differs.
        (
            with(Update::Always),
            file,
            [
                vec![Announce { whole: true }],
                attempts().flat_map(|at| [Objects(at), End(at, true), Object(at, 1)]).collect(),
            ]
            .concat(),
        ),
        // Compared as a whole: before, between and after the digests.
        (
            with(Update::Digest),
            &["--granularity=file", "--hash=md5", "--update=digest"],
            vec![
                Announce { whole: false },
                WholeDigest(0),
                Object(0, 1),
                WholeDigest(1),
                Object(1, 1),
                End(1, true),
            ],
        ),
        (
            with(Update::Digest),
            &["--granularity=file", "--hash=md5", "--update=digest"],
            vec![
                Announce { whole: true },
                Object(0, 1),
                WholeDigest(0),
                WholeDigest(1),
                Objects(1),
                End(1, true),
            ],
        ),
        // Compared by objects.
        (
            with(Update::Object),
            &["--granularity=file", "--hash=md5", "--update=object"],
            vec![
                Announce { whole: false },
                Digests(0),
                Object(0, 1),
                Digests(1),
                Digests(0),
                End(0, false),
                End(1, false),
            ],
        ),
        (
            JobOptions { update: Update::Object, ..twice.clone() },
            &["--verify=file-pipeline", "--granularity=file", "--update=object"],
            [
                vec![Announce { whole: false }, Digests(0)],
                attempts().flat_map(|at| [Objects(at), End(at, true), Digests(at + 1)]).collect(),
            ]
            .concat(),
        ),
        // Rehashed.
        (
            twice,
            &["--verify=file-pipeline", "--granularity=file"],
            [
                vec![Announce { whole: true }],
                attempts().flat_map(|at| [Objects(at), End(at, true)]).collect(),
            ]
            .concat(),
        ),
        (
            pairs,
            &["--verify=block-pipeline"],
            vec![Announce { whole: true }, Objects(0), Objects(0), Object(1, 0), End(0, true), End(1, true)],
        ),
        // Settled.
        (
            reread,
            &["--verify=reread"],
            vec![Announce { whole: true }, Objects(0), Objects(0), End(0, true), Objects(1), End(1, true)],
        ),
    ]
}

/// Returns the frames of a step.
fn frames(step: Step, options: &JobOptions) -> Vec<(Message, Vec<u8>)> {
    let algorithm = options.algorithm;
    let bytes = vec![BYTE; OBJECT];
    let size = OBJECTS * OBJECT as u64;
    let object = |attempt, index: u64| {
        let range = ByteRange::between(index * OBJECT as u64, (index + 1) * OBJECT as u64);
        let (object, encoding, payload) = (ObjectIndex(index), Encoding::Raw, OBJECT as u32);
        let stated = match options.verify {
            Verify::Stream | Verify::Reread if options.unit == Unit::Object => {
                Stated::Digest(part(algorithm, index, &bytes))
            }
            Verify::BlockPipeline => Stated::Later,
            _ => Stated::Nothing,
        };
        let block = NewBlock { number: NUMBER, attempt, object, range, encoding, payload };
        vec![
            (Message::NewBlock(block), bytes.clone()),
            (
                Message::BlockDigest(Box::new(BlockDigest { number: NUMBER, attempt, object, stated })),
                Vec::new(),
            ),
        ]
    };
    let digests = |attempt, first: Option<u64>, count| {
        let digests = vec![DigestKey::derive(&[7; 32]).digest(&bytes); count];
        let first = first.map(ObjectIndex);
        vec![(
            Message::ObjectDigests(Box::new(ObjectDigests { number: NUMBER, attempt, first, digests })),
            Vec::new(),
        )]
    };
    match step {
        Announce { whole } => {
            vec![(
                Message::NewFile(Box::new(NewFile { whole, ..new_file(0, b"f", plain(size)) })),
                Vec::new(),
            )]
        }
        WholeDigest(attempt) => digests(attempt, None, 1),
        Digests(attempt) => digests(attempt, Some(0), 2),
        Object(attempt, index) => object(attempt, index),
        Objects(attempt) => (0..OBJECTS).flat_map(|index| object(attempt, index)).collect(),
        End(attempt, differs) => {
            let root = differs.then(|| digest(algorithm, b"of other bytes"));
            let close = Close::Read { size, mtime: Moment::default(), root };
            vec![(Message::FileClose(Box::new(FileClose { number: NUMBER, attempt, close })), Vec::new())]
        }
    }
}

/// Returns the digest of an object at its place in the file.
fn part(algorithm: Algorithm, index: u64, bytes: &[u8]) -> Digest {
    let mut hasher = haul_digest::PartHasher::new(
        algorithm,
        haul_digest::PartPlace { offset: haul_model::ByteOffset(index * OBJECT as u64), whole: false },
    );
    hasher.update(bytes);
    hasher.finish().digest()
}

/// Sends all steps, then the end of the walk, and reads until the receiver has ended the session.
fn run(liar: &mut Liar, options: &JobOptions, steps: &[Step]) {
    let goes_on = steps
        .iter()
        .flat_map(|&step| frames(step, options))
        .all(|(message, payload)| liar.try_say(&message, &payload));
    if goes_on && liar.try_say(&walked(1, false), &[]) {
        liar.try_say(&bye(), &[]);
    }
    liar.hear_all();
}

#[test]
fn a_file_that_starts_again_in_any_state_ends_at_most_its_session() {
    for receiver in Receiver::ALL {
        for (options, fetch, steps) in scripts() {
            let job = Job { options: options.clone(), fetch, ..Job::default() };
            let world = World::new(receiver, job);
            fs::write(world.root().join("f"), vec![BYTE + 1; OBJECTS as usize * OBJECT]).unwrap();
            let ended = world.session(|liar| run(liar, &options, &steps));
            assert!(!ended.log.contains("internal error"), "{receiver:?}, {steps:?}: {}", ended.log);
            // The file is the receiver's own or, if the steps brought all of it, that of the
            // source.
            let found = fs::read(world.root().join("f")).unwrap();
            let is_one = [BYTE, BYTE + 1].iter().any(|byte| found == vec![*byte; OBJECTS as usize * OBJECT]);
            assert!(is_one, "{receiver:?}, {steps:?}");
            world.assert_unharmed();
        }
    }
}

/// A server for one session once waited indefinitely after that session had failed.
#[test]
fn a_server_for_one_session_exits_after_a_hostile_session() {
    for (options, _, steps) in scripts() {
        let world = World::new(
            Receiver::Serve,
            Job { options: options.clone(), serve: &["--once"], ..Job::default() },
        );
        let ended = world.session(|liar| run(liar, &options, &steps));
        // A source that ends its walk with an open file has taken the file back: the status is 0.
        let status = world.server_status();
        assert!(matches!(status, Some(0 | 1)), "{status:?} after {steps:?}: {}", ended.log);
    }
}
