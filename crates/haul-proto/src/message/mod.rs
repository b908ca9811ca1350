//! Messages of a session. They have the names of FT-LADS (Listing 1 of its paper), plus further
//! messages for a verified, resumable job.

mod block;
mod connect;
mod entries;
mod file;
mod log_request;
mod operands;
mod options;
mod rule;
mod session;
mod times;

pub use block::{BlockDigest, BlockReject, BlockSync, Compared, Encoding, NewBlock, ObjectDigests, Stated};
pub use connect::{Accept, Connect, Features, Join, Role, SESSION_TOKEN_BYTES, Window};
pub use entries::{Entries, EntryKind, ListedEntry};
pub use file::{Answer, Close, FileClose, FileDone, FileId, FileKind, NewFile, Outcome, Principal, Xattr};
pub use log_request::LogRequest;
pub use operands::{OperandList, Operands, check_list};
pub use options::{Compression, JobOptions, Keep, Unit, Update, Verify};
pub use rule::NameRule;
pub use session::{Bye, Delete, Fate, List, Named, Names, Summary, Unread, WalkEnd};
pub use times::{LaneTimes, Times};

use crate::fields::{Body, Fields};
use crate::{Flaw, Reason};

/// Number that the source gives a file: ascending, and never reused in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u64);

/// A lane of a session. Lane 0 carried CONNECT. The number of a lost lane is not reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// Lane 0, which the session requires.
pub const CONTROL: LaneId = LaneId(0);

/// One message. Large messages are boxed, so that a queue of messages stays small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// First message of a session, from the side that started the job.
    Connect(Box<Connect>),
    /// Source: announces a file.
    NewFile(Box<NewFile>),
    /// Sink: requests the file, except for the parts that it has.
    FileId(Box<FileId>),
    /// Source: bytes of an object. Their payload follows.
    NewBlock(NewBlock),
    /// Sink: objects reached a level.
    BlockSync(Box<BlockSync>),
    /// Either: ends its side of the session.
    Bye(Box<Bye>),
    /// Source: the file was sent completely, or cannot be sent.
    FileClose(Box<FileClose>),
    /// Positive answer to CONNECT.
    Accept(Box<Accept>),
    /// Negative answer to CONNECT or JOIN.
    Refuse(Reason),
    /// First message of an additional lane.
    Join(Join),
    /// Source: the object ends, and this is its digest.
    BlockDigest(Box<BlockDigest>),
    /// Sink: an object, or a complete file, arrived damaged and must be sent again.
    BlockReject(BlockReject),
    /// Source: digests of its bytes, so that the sink requests only what differs.
    ObjectDigests(Box<ObjectDigests>),
    /// Source: every file was sent and answered.
    WalkEnd(WalkEnd),
    /// Sink: names in one of its directories.
    List(Box<List>),
    /// Source: which of the names in a LIST are missing at the source.
    Delete(Box<Delete>),
    /// Either: the lane is alive.
    KeepAlive,
    /// Sink: the result of a file.
    FileDone(Box<FileDone>),
    /// Source: an entry that it could not list or read.
    Unread(Box<Unread>),
    /// A sink that started the job: the paths that it wants, if a CONNECT cannot hold them.
    Operands(Box<Operands>),
    /// Sink: objects that it compared, and those of them that it wants.
    Compared(Box<Compared>),
    /// Names in a directory, for a CONNECT that requests a listing.
    Entries(Box<Entries>),
    /// Sink: asks for the names of the source in a directory.
    Names(Box<Names>),
    /// Source: answers a NAMES.
    Named(Box<Named>),
}

impl Message {
    /// Returns the kind of the message on the wire. Kinds 0 to 6 are the numbers of FT-LADS.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Message::Connect(_) => 0,
            Message::NewFile(_) => 1,
            Message::FileId(_) => 2,
            Message::NewBlock(_) => 3,
            Message::BlockSync(_) => 4,
            Message::Bye(_) => 5,
            Message::FileClose(_) => 6,
            Message::Accept(_) => 7,
            Message::Refuse(_) => 8,
            Message::Join(_) => 9,
            Message::BlockDigest(_) => 10,
            Message::BlockReject(_) => 11,
            Message::ObjectDigests(_) => 12,
            Message::WalkEnd(_) => 13,
            Message::List(_) => 14,
            Message::Delete(_) => 15,
            Message::KeepAlive => 16,
            Message::FileDone(_) => 17,
            Message::Unread(_) => 18,
            Message::Operands(_) => 19,
            Message::Compared(_) => 20,
            Message::Entries(_) => 21,
            Message::Names(_) => 22,
            Message::Named(_) => 23,
        }
    }

    /// Returns the name of the message as in `docs/formats/wire.md`.
    pub fn name(&self) -> &'static str {
        const NAMES: [&str; 24] = [
            "CONNECT",
            "NEW_FILE",
            "FILE_ID",
            "NEW_BLOCK",
            "BLOCK_SYNC",
            "BYE",
            "FILE_CLOSE",
            "ACCEPT",
            "REFUSE",
            "JOIN",
            "BLOCK_DIGEST",
            "BLOCK_REJECT",
            "OBJECT_DIGESTS",
            "WALK_END",
            "LIST",
            "DELETE",
            "KEEPALIVE",
            "FILE_DONE",
            "UNREAD",
            "OPERANDS",
            "COMPARED",
            "ENTRIES",
            "NAMES",
            "NAMED",
        ];
        NAMES[usize::from(self.kind())]
    }

    pub(crate) fn is_ignorable(&self) -> bool {
        matches!(self, Message::KeepAlive | Message::Unread(_))
    }

    /// Returns the size in bytes of the payload behind the message: 0 unless it is a NEW_BLOCK.
    pub fn payload_len(&self) -> u32 {
        if let Message::NewBlock(block) = self { block.payload } else { 0 }
    }

    /// Checks a message that the caller built against the limits of the wire. The attributes or
    /// names of a file can exceed them.
    ///
    /// # Errors
    /// Returns [`Flaw::TooLong`], which names the part that exceeds its limit. Returns
    /// [`Flaw::Value`] if an OPERANDS or ENTRIES without contents is not the last one, or if the
    /// names of ENTRIES are invalid or do not ascend.
    pub fn check(&self) -> Result<(), Flaw> {
        match self {
            Message::Connect(connect) => connect.check(),
            Message::NewFile(file) => file.check(),
            Message::List(list) => list.check(),
            Message::Operands(operands) => operands.check(),
            Message::Entries(entries) => entries.check(),
            Message::Names(names) => names.check(),
            Message::Named(named) => named.check(),
            _ => Ok(()),
        }
    }

    pub(crate) fn encode_body(&self, out: &mut Vec<u8>) {
        let mut body = Body(out);
        match self {
            Message::Connect(connect) => connect.encode(&mut body),
            Message::NewFile(file) => file.encode(&mut body),
            Message::FileId(id) => id.encode(&mut body),
            Message::NewBlock(block) => block.encode(&mut body),
            Message::BlockSync(sync) => sync.encode(&mut body),
            Message::Bye(bye) => bye.encode(&mut body),
            Message::FileClose(close) => close.encode(&mut body),
            Message::Accept(accept) => accept.encode(&mut body),
            Message::Refuse(reason) => reason.encode(&mut body),
            Message::Join(join) => join.encode(&mut body),
            Message::BlockDigest(digest) => digest.encode(&mut body),
            Message::BlockReject(reject) => reject.encode(&mut body),
            Message::ObjectDigests(digests) => digests.encode(&mut body),
            Message::WalkEnd(end) => end.encode(&mut body),
            Message::List(list) => list.encode(&mut body),
            Message::Delete(delete) => delete.encode(&mut body),
            Message::KeepAlive => {}
            Message::FileDone(done) => done.encode(&mut body),
            Message::Unread(unread) => unread.encode(&mut body),
            Message::Operands(operands) => operands.encode(&mut body),
            Message::Compared(compared) => compared.encode(&mut body),
            Message::Entries(entries) => entries.encode(&mut body),
            Message::Names(names) => names.encode(&mut body),
            Message::Named(named) => named.encode(&mut body),
        }
    }

    pub(crate) fn decode_body(kind: u8, body: &[u8], payload: u32) -> Result<Message, Flaw> {
        let mut fields = Fields::new(body);
        let from = &mut fields;
        let message = match kind {
            0 => Message::Connect(Box::new(Connect::decode(from)?)),
            1 => Message::NewFile(Box::new(NewFile::decode(from)?)),
            2 => Message::FileId(Box::new(FileId::decode(from)?)),
            3 => Message::NewBlock(NewBlock::decode(from, payload)?),
            4 => Message::BlockSync(Box::new(BlockSync::decode(from)?)),
            5 => Message::Bye(Box::new(Bye::decode(from)?)),
            6 => Message::FileClose(Box::new(FileClose::decode(from)?)),
            7 => Message::Accept(Box::new(Accept::decode(from)?)),
            8 => Message::Refuse(Reason::decode(from)?),
            9 => Message::Join(Join::decode(from)?),
            10 => Message::BlockDigest(Box::new(BlockDigest::decode(from)?)),
            11 => Message::BlockReject(BlockReject::decode(from)?),
            12 => Message::ObjectDigests(Box::new(ObjectDigests::decode(from)?)),
            13 => Message::WalkEnd(WalkEnd::decode(from)?),
            14 => Message::List(Box::new(List::decode(from)?)),
            15 => Message::Delete(Box::new(Delete::decode(from)?)),
            16 => Message::KeepAlive,
            17 => Message::FileDone(Box::new(FileDone::decode(from)?)),
            18 => Message::Unread(Box::new(Unread::decode(from)?)),
            19 => Message::Operands(Box::new(Operands::decode(from)?)),
            20 => Message::Compared(Box::new(Compared::decode(from)?)),
            21 => Message::Entries(Box::new(Entries::decode(from)?)),
            22 => Message::Names(Box::new(Names::decode(from)?)),
            23 => Message::Named(Box::new(Named::decode(from)?)),
            unknown => return Err(Flaw::UnknownKind(unknown)),
        };
        fields.end()?;
        Ok(message)
    }
}
