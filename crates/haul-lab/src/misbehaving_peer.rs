//! Test peer of a session that can break the protocol: it sends exactly the messages of a test and
//! receives the answers.

pub mod scripts;

use haul_model::{ByteRange, Moment, ObjectIndex};
use haul_net::{StreamLane, StreamReader, StreamWriter};
use haul_proto::{
    BlockDigest, Bye, Close, Connect, Encoding, FileClose, FileKind, FileNumber, HEADER_LEN, Header,
    JobOptions, Message, NewBlock, NewFile, PeerText, Role, Runs, Stated, Summary, WalkEnd,
};
use std::time::Duration;

/// Timeout for an answer, longer than any answer in a test takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The test peer's end of one lane.
#[derive(Debug)]
pub struct MisbehavingPeer {
    /// Reader of the other end's bytes.
    pub reader: StreamReader,
    /// Writer to the other end.
    pub writer: StreamWriter,
}

impl MisbehavingPeer {
    /// Takes this end of a lane.
    pub fn at(lane: StreamLane) -> MisbehavingPeer {
        let (mut reader, writer) = lane.split();
        reader.set_stall(Some(ANSWER_TIMEOUT));
        MisbehavingPeer { reader, writer }
    }

    /// Sends a message and the payload that follows it.
    ///
    /// # Panics
    /// Panics if the other end has closed the lane.
    #[track_caller]
    pub fn say(&mut self, message: &Message, payload: &[u8]) {
        self.writer.write_all_vectored(&[&frame(message), payload]).expect("the other end listens");
    }

    /// Receives the next message other than KEEPALIVE, BLOCK_SYNC and unknown messages.
    ///
    /// # Panics
    /// Panics if no message arrives, or if the bytes are not a message.
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

    /// Sends WALK_END after `files` files, and ends the session without an error.
    ///
    /// # Panics
    /// Panics if the other end reports an error.
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

/// Returns the encoded bytes of a message.
pub fn frame(message: &Message) -> Vec<u8> {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    frame
}

/// Returns CONNECT of a source with ordinary values.
pub fn connect(options: &JobOptions) -> Connect {
    Connect::new(Role::Source, options.clone(), PeerText::new("liar"))
}

/// Returns NEW_FILE of a name without an owner. The whole content of a regular file is to follow.
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

/// Returns NEW_BLOCK of uncompressed `bytes` at the beginning of a file's first object.
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

/// Returns BLOCK_DIGEST of an object.
pub fn block_digest(number: u64, object: u64, stated: Stated) -> Message {
    let (number, object) = (FileNumber(number), ObjectIndex(object));
    Message::BlockDigest(Box::new(BlockDigest { number, attempt: 0, object, stated }))
}

/// Returns FILE_CLOSE of a file.
pub fn file_close(number: u64, close: Close) -> Message {
    Message::FileClose(Box::new(FileClose { number: FileNumber(number), attempt: 0, close }))
}

/// Returns the close of a file whose `size` bytes were all read.
pub fn read(size: u64) -> Close {
    Close::Read { size, mtime: Moment::default(), root: None }
}

/// Returns WALK_END after `files` files, of which none failed.
pub fn walked(files: u64, delete: bool) -> Message {
    Message::WalkEnd(WalkEnd { files, delete, ..WalkEnd::default() })
}

/// Returns BYE of a session without errors and with an empty summary.
pub fn bye() -> Message {
    Message::Bye(Box::new(Bye { reason: None, summary: Summary::default(), times: None }))
}
