//! A source that is no haul: it says what it wants, frame by frame, to the engine's sink.

use super::pair::{Pair, offer};
use haul_digest::{Algorithm, Digest, digest};
use haul_engine::transfer::{Failure, Report, Tally, Watch, answer};
use haul_model::{ByteRange, Level, Moment, ObjectIndex};
use haul_net::{Lane, LaneReader, LaneWriter};
use haul_proto::{
    BlockDigest, Bye, Close, Compression, Connect, Encoding, Features, FileClose, FileKind, FileNumber,
    HEADER_LEN, Header, JobOptions, Message, NewBlock, NewFile, Outcome, PeerText, Reason, Role, Runs,
    Stated, Summary, VERSION, Verify, WalkEnd, Why, Window,
};
use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(super) struct Nobody;

impl Report for Nobody {
    fn failed(&self, _: &Failure) {}
}

/// The liar's end of one lane.
pub(super) struct Liar {
    pub(super) reader: LaneReader,
    pub(super) writer: LaneWriter,
}

impl Liar {
    /// At this end of a lane; waits for no answer longer than anything here takes.
    pub(super) fn at(lane: Lane) -> Liar {
        let (mut reader, writer) = lane.split();
        reader.set_stall(Some(Duration::from_secs(120)));
        Liar { reader, writer }
    }

    pub(super) fn say(&mut self, message: &Message, payload: &[u8]) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.writer.write_all_vectored(&[&frame, payload]).unwrap();
    }

    /// The next message that is no chatter.
    pub(super) fn hear(&mut self) -> Message {
        loop {
            let mut header = [0; HEADER_LEN];
            self.reader.read_exact(&mut header).unwrap();
            let header = Header::decode(&header).unwrap();
            let mut body = vec![0; header.body_len()];
            self.reader.read_exact(&mut body).unwrap();
            match Message::decode(&header, &body).unwrap() {
                Some(Message::KeepAlive | Message::BlockSync(_)) | None => {}
                Some(message) => return message,
            }
        }
    }
}

/// Sends one small file `f` of `len` bytes that is said to have this digest, as one packed block with the first of these
/// payloads, and with the next (or the last again) as often as it is asked for. Gives how it ended, and how often it went.
fn send_packed(
    pair: &Pair,
    options: &JobOptions,
    len: u64,
    payloads: &[&[u8]],
    stated: Option<Digest>,
) -> (Outcome, u32) {
    let (ours, theirs) = Lane::pair().unwrap();
    let offer = offer(&pair.sink());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (stop, tally) = (AtomicBool::new(false), Tally::default());
            answer(
                theirs,
                &mut || None,
                &offer,
                &Watch { stop: &stop, tally: &tally, report: &Nobody, receipt: None },
            )
            .unwrap()
        });
        let mut liar = Liar::at(ours);
        liar.say(&connect(options), &[]);
        assert!(matches!(liar.hear(), Message::Accept(_)));
        let number = FileNumber(0);
        liar.say(&new_file(number, len), &[]);
        let block = |payload: &[u8]| {
            Message::NewBlock(NewBlock {
                number,
                attempt: 0,
                object: ObjectIndex(0),
                range: ByteRange::between(0, len),
                encoding: Encoding::Zstd,
                payload: payload.len() as u32,
            })
        };
        let stated = stated.map_or(Stated::Nothing, Stated::Digest);
        let end = Message::BlockDigest(Box::new(BlockDigest {
            number,
            attempt: 0,
            object: ObjectIndex(0),
            stated,
        }));
        liar.say(&block(payloads[0]), payloads[0]);
        liar.say(&end, &[]);
        let close = Close::Read { size: len, mtime: Moment::default(), root: None };
        liar.say(&Message::FileClose(Box::new(FileClose { number, attempt: 0, close })), &[]);
        let mut went = 1;
        let outcome = loop {
            match liar.hear() {
                Message::BlockReject(reject) => {
                    assert_eq!((reject.reason.why, reject.object), (Why::Differs, Some(ObjectIndex(0))));
                    let payload = payloads.get(went as usize).or(payloads.last()).unwrap();
                    went += 1;
                    liar.say(&block(payload), payload);
                    liar.say(&end, &[]);
                }
                Message::FileDone(done) => break done.outcome,
                other => panic!("{} is no answer", other.name()),
            }
        };
        liar.say(&Message::WalkEnd(WalkEnd { files: 1, ..WalkEnd::default() }), &[]);
        assert!(
            matches!(liar.hear(), Message::Bye(bye) if bye.reason.is_none()),
            "the session goes on to its end"
        );
        liar.say(
            &Message::Bye(Box::new(Bye { reason: None, summary: Summary::default(), times: None })),
            &[],
        );
        liar.writer.finish().unwrap();
        (outcome, went)
    })
}

/// CONNECT of a source.
pub(super) fn connect(options: &JobOptions) -> Message {
    Message::Connect(Box::new(Connect {
        versions: (VERSION, VERSION),
        offers: Features::default(),
        needs: Features::default(),
        role: Role::Source,
        job: [0; 16],
        options: options.clone(),
        window: Window::default(),
        operands: vec![b""[..].into()],
        agent: PeerText::new("liar"),
        log: None,
        resumes: false,
        rules: Vec::new(),
    }))
}

/// A file `f`, all of which follows.
pub(super) fn new_file(number: FileNumber, size: u64) -> Message {
    Message::NewFile(Box::new(NewFile {
        number,
        whole: true,
        again: false,
        path: b"f"[..].into(),
        kind: FileKind::File { size, holes: Runs::default() },
        mode: 0o644,
        mtime: Moment::default(),
        atime: Moment::default(),
        uid: 0,
        gid: 0,
        user: Box::default(),
        group: Box::default(),
        xattrs: Vec::new(),
        version: None,
    }))
}

fn options(verify: Verify) -> JobOptions {
    let settle = if verify == Verify::None { Level::Received } else { Level::Verified };
    JobOptions { verify, settle, compression: Compression::Zstd(3), ..JobOptions::default() }
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).unwrap()
}

fn of(bytes: &[u8]) -> Option<Digest> {
    Some(digest(Algorithm::Blake3, bytes))
}

#[test]
fn an_honest_packed_block_is_taken() {
    let pair = Pair::new();
    let bytes = b"the same again ".repeat(60_000);
    let (outcome, went) =
        send_packed(&pair, &options(Verify::Stream), bytes.len() as u64, &[&pack(&bytes)], of(&bytes));
    assert_eq!((outcome, went), (Outcome::Done(Level::Verified), 1));
    assert!(fs::read(pair.sink().join("f")).unwrap() == bytes);
}

#[test]
fn a_block_that_inflates_past_its_length_is_refused() {
    let pair = Pair::new();
    let announced = 1 << 20;
    let bomb = pack(&vec![b'A'; 256 << 20]);
    assert!(bomb.len() < announced);
    let stated = of(&vec![b'A'; announced]);
    let (outcome, went) = send_packed(&pair, &options(Verify::Stream), announced as u64, &[&bomb], stated);
    assert_eq!(outcome, Outcome::Failed(Why::Differs.into()));
    assert_eq!(went, 6, "asked for again five times");
    assert_eq!(fs::read_dir(pair.sink()).unwrap().count(), 0);
}

#[test]
fn a_block_that_is_shorter_than_its_length_is_refused() {
    let pair = Pair::new();
    let bytes = vec![b'A'; 1000];
    let mut longer = bytes.clone();
    longer.push(b'A');
    let (outcome, _) = send_packed(&pair, &options(Verify::Stream), 1001, &[&pack(&bytes)], of(&longer));
    assert_eq!(outcome, Outcome::Failed(Why::Differs.into()));
    assert_eq!(fs::read_dir(pair.sink()).unwrap().count(), 0);
}

#[test]
fn noise_instead_of_a_frame_fails_the_file_where_nothing_is_compared() {
    let pair = Pair::new();
    let (outcome, went) = send_packed(&pair, &options(Verify::None), 1000, &[b"this is no frame"], None);
    let Outcome::Failed(Reason { why, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((why, went), (Why::Differs, 1));
    assert_eq!(fs::read_dir(pair.sink()).unwrap().count(), 0);
}

#[test]
fn damaged_frames_of_zeros_are_zeros_only_where_zeros_were_meant() {
    // What can't be unpacked stands for zeros: that must never pass for anything else.
    let pair = Pair::new();
    let mut almost = vec![0; 5000];
    almost[4999] = 1;
    let (outcome, _) = send_packed(&pair, &options(Verify::Stream), 5000, &[b"no frame"], of(&almost));
    assert_eq!(outcome, Outcome::Failed(Why::Differs.into()));
    let (outcome, _) = send_packed(&pair, &options(Verify::Stream), 5000, &[b"no frame"], of(&[0; 5000]));
    assert_eq!(outcome, Outcome::Done(Level::Verified));
    assert!(fs::read(pair.sink().join("f")).unwrap() == [0; 5000]);
}

#[test]
fn a_frame_that_was_damaged_on_the_way_is_asked_for_again() {
    let pair = Pair::new();
    let bytes = b"words that come again ".repeat(20_000);
    let frame = pack(&bytes);
    let mut damaged = frame.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    let cut = &frame[..frame.len() - 3];
    let payloads: [&[u8]; 3] = [&damaged, cut, &frame];
    let (outcome, went) =
        send_packed(&pair, &options(Verify::Stream), bytes.len() as u64, &payloads, of(&bytes));
    assert_eq!((outcome, went), (Outcome::Done(Level::Verified), 3));
    assert!(fs::read(pair.sink().join("f")).unwrap() == bytes);
}
