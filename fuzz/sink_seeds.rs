//! Valid input of the sink's target: sessions in each way to verify, with each decision of the
//! engine, and with good and bad results.

use super::super::targets::regular;
use super::super::targets::sink_target::{
    CHOICES, CONTROLS, Choice, KINDS, WAYS, arrived_digest, job_options, own_digest,
};
use super::cut;
use haul_digest::{KEYED_DIGEST_BYTES, KeyedDigest};
use haul_model::{ByteRange, Moment, ObjectIndex};
use haul_proto::{
    BlockDigest, Bye, Close, Delete, Encoding, Fate, FileClose, FileNumber, JobOptions, Message, NewBlock,
    NewFile, ObjectDigests, Stated, Summary, Unit, Verify, WalkEnd,
};

/// Size in bytes of the large file, of three objects of [`OBJECT`] bytes.
const SIZE: u64 = 150_000;
const OBJECT: u64 = 64 << 10;

/// Choices of [`Choice::Open`], and whether the digests that the source then states are those of
/// the sink.
const DECISIONS: [(u8, bool); 10] = [
    (0, true),
    (1, true),
    (2, true),
    (3, true),
    (3, false),
    (4, true),
    (5, true),
    (5, false),
    (6, true),
    (7, true),
];

/// Returns all inputs.
pub(super) fn all() -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    for way in 0..WAYS.len() as u8 {
        for (decision, is_same) in DECISIONS {
            for spoils in
                [None, Some(Choice::Settle), Some(Choice::Rehash), Some(Choice::Finish), Some(Choice::Arrive)]
            {
                let mut choices = [0; KINDS * CHOICES];
                let mut set = |choice: Choice, values: [u8; CHOICES]| {
                    choices[choice as usize * CHOICES..][..CHOICES].copy_from_slice(&values);
                };
                set(Choice::Open, [decision; CHOICES]);
                if way % 2 == 1 {
                    set(Choice::Open, [decision | 24; CHOICES]);
                    set(Choice::Delay, [1, 0, 1, 0]);
                }
                if let Some(choice) = spoils {
                    set(choice, [2, 0, 0, 0]);
                }
                let options = [way, 8, way];
                let digests = digests(decision, is_same);
                let messages = session(&job_options(options), digests);
                let head = [&options[..], &choices].concat();
                inputs.push([head, cut(&messages)].concat());
            }
        }
    }
    // The last lane is lost, a lane is lost and opened again, and time passes.
    for controls in [&[CONTROLS][..], &[CONTROLS + 4, CONTROLS + 1], &[CONTROLS + 2], &[0xff]] {
        let mut input = [&[2, 0, 0][..], &[0; KINDS * CHOICES]].concat();
        let messages = session(&job_options([2, 0, 0]), None);
        input.extend(cut(&messages[..6]));
        controls.iter().for_each(|kind| input.extend([*kind, 0, 0, 0, 0]));
        input.extend(cut(&messages[6..]));
        inputs.push(input);
    }
    inputs
}

/// Returns the digests that the source states after the decision, if it states any.
fn digests(decision: u8, is_same: bool) -> Option<Message> {
    let digest = if is_same { own_digest() } else { KeyedDigest::from_bytes([8; KEYED_DIGEST_BYTES]) };
    let (first, count) = match decision {
        3 | 4 => (None, 1),
        5 | 6 => (Some(ObjectIndex(0)), 2),
        _ => return None,
    };
    let digests = vec![digest; count];
    Some(Message::ObjectDigests(Box::new(ObjectDigests {
        number: FileNumber(1),
        attempt: 0,
        first,
        digests,
    })))
}

/// Returns a session with a small file, a large file that is sent in two attempts, and deletions.
fn session(options: &JobOptions, digests: Option<Message>) -> Vec<Message> {
    let small = NewFile { whole: true, ..regular(0, 2048) };
    let mut messages = vec![Message::NewFile(Box::new(small))];
    messages.extend(sent(options, 0, 0, 2048));
    let large = NewFile { number: FileNumber(1), whole: false, ..regular(1, SIZE) };
    messages.push(Message::NewFile(Box::new(large)));
    messages.extend(digests);
    for attempt in [0, 0, 1, 2] {
        messages.extend(sent(options, 1, attempt, SIZE));
    }
    messages.push(Message::WalkEnd(WalkEnd { files: 2, errors: 0, unread: 0, delete: true }));
    for batch in 0..3 {
        messages.push(Message::Delete(Box::new(Delete { batch, fates: vec![Fate::Gone, Fate::Stays] })));
    }
    messages.push(Message::Bye(Box::new(Bye { reason: None, summary: Summary::default(), times: None })));
    messages
}

/// Returns the objects of a file and its end, as the options of the job demand.
fn sent(options: &JobOptions, number: u64, attempt: u16, size: u64) -> Vec<Message> {
    let number = FileNumber(number);
    let stated = Stated::Digest(arrived_digest(options.algorithm));
    let digest =
        |object, stated| Message::BlockDigest(Box::new(BlockDigest { number, attempt, object, stated }));
    let mut messages = Vec::new();
    for index in 0..size.div_ceil(OBJECT) {
        let object = ObjectIndex(index);
        let range = ByteRange::between(index * OBJECT, size.min((index + 1) * OBJECT));
        let block = NewBlock { number, attempt, object, range, encoding: Encoding::Zeros, payload: 0 };
        messages.push(Message::NewBlock(block));
        match options.verify {
            Verify::BlockPipeline => messages.extend([digest(object, Stated::Later), digest(object, stated)]),
            Verify::Stream | Verify::Reread | Verify::Hybrid if options.unit == Unit::Object => {
                messages.push(digest(object, stated));
            }
            _ => messages.push(digest(object, Stated::Nothing)),
        }
    }
    let root = (options.unit == Unit::File).then(|| arrived_digest(options.algorithm));
    let close = Close::Read { size, mtime: Moment { sec: 5, nsec: 6 }, root };
    messages.push(Message::FileClose(Box::new(FileClose { number, attempt, close })));
    messages
}
