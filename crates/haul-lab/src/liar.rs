//! An end of a session that is no haul: it says what a test wants it to say, message by message, and hears what comes back.

use haul_model::{ByteRange, Moment, ObjectIndex};
use haul_net::{Lane, LaneReader, LaneWriter};
use haul_proto::{
    BlockDigest, Bye, Close, Connect, Encoding, Features, FileClose, FileKind, FileNumber, HEADER_LEN,
    Header, JobOptions, Message, NewBlock, NewFile, PeerText, Role, Runs, Stated, Summary, VERSION, WalkEnd,
    Window,
};
use std::time::Duration;

/// Longer than any answer in a test takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The liar's end of one lane.
#[derive(Debug)]
pub struct Liar {
    /// What the other end says, byte by byte.
    pub reader: LaneReader,
    /// What the other end hears.
    pub writer: LaneWriter,
}

impl Liar {
    /// At this end of a lane.
    pub fn at(lane: Lane) -> Liar {
        let (mut reader, writer) = lane.split();
        reader.set_stall(Some(PATIENCE));
        Liar { reader, writer }
    }

    /// Says a message, and what follows it.
    ///
    /// # Panics
    /// The other end hears nothing any more.
    #[track_caller]
    pub fn say(&mut self, message: &Message, payload: &[u8]) {
        self.writer.write_all_vectored(&[&frame(message), payload]).expect("the other end listens");
    }

    /// The next message that is no chatter.
    ///
    /// # Panics
    /// None comes, or what comes is none.
    #[track_caller]
    pub fn hear(&mut self) -> Message {
        loop {
            let mut header = [0; HEADER_LEN];
            self.reader.read_exact(&mut header).expect("the other end says more");
            let header = Header::decode(&header).expect("it begins as a message does");
            let mut body = vec![0; header.body_len()];
            self.reader.read_exact(&mut body).expect("the other end says all of it");
            match Message::decode(&header, &body).expect("it is a message") {
                Some(Message::KeepAlive | Message::BlockSync(_)) | None => {}
                Some(message) => return message,
            }
        }
    }

    /// Says that the walk is over after so many files, and ends the session well.
    ///
    /// # Panics
    /// The other end has another opinion.
    #[track_caller]
    pub fn part(&mut self, files: u64) {
        self.say(&walked(files, false), &[]);
        let last = self.hear();
        let is_well = matches!(&last, Message::Bye(bye) if bye.reason.is_none());
        assert!(is_well, "{last:?} instead of a good end of the session");
        self.say(&bye(), &[]);
        self.writer.finish().expect("the other end listens");
    }
}

/// The bytes of a message.
pub fn frame(message: &Message) -> Vec<u8> {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    frame
}

/// CONNECT of a source that says nothing out of the way.
pub fn connect(options: &JobOptions) -> Connect {
    Connect {
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
    }
}

/// NEW_FILE of a name that belongs to nobody in particular; of a regular file all is to follow.
pub fn new_file(number: u64, path: &[u8], kind: FileKind) -> NewFile {
    NewFile {
        number: FileNumber(number),
        whole: matches!(kind, FileKind::File { .. }),
        mode: 0o644,
        ..NewFile::new(path, kind)
    }
}

/// A regular file without holes.
pub fn plain(size: u64) -> FileKind {
    FileKind::File { size, holes: Runs::default() }
}

/// NEW_BLOCK of `bytes` as they are: the beginning of a file's first object.
pub fn block(number: u64, bytes: &[u8]) -> NewBlock {
    NewBlock {
        number: FileNumber(number),
        attempt: 0,
        object: ObjectIndex(0),
        range: ByteRange::between(0, bytes.len() as u64),
        encoding: Encoding::Raw,
        payload: bytes.len() as u32,
    }
}

/// BLOCK_DIGEST of an object.
pub fn block_digest(number: u64, object: u64, stated: Stated) -> Message {
    let (number, object) = (FileNumber(number), ObjectIndex(object));
    Message::BlockDigest(Box::new(BlockDigest { number, attempt: 0, object, stated }))
}

/// FILE_CLOSE of a file.
pub fn file_close(number: u64, close: Close) -> Message {
    Message::FileClose(Box::new(FileClose { number: FileNumber(number), attempt: 0, close }))
}

/// All of so many bytes were read.
pub fn read(size: u64) -> Close {
    Close::Read { size, mtime: Moment::default(), root: None }
}

/// WALK_END after so many files, of which none failed.
pub fn walked(files: u64, delete: bool) -> Message {
    Message::WalkEnd(WalkEnd { files, delete, ..WalkEnd::default() })
}

/// BYE of a session that went well and says nothing of it.
pub fn bye() -> Message {
    Message::Bye(Box::new(Bye { reason: None, summary: Summary::default(), times: None }))
}
