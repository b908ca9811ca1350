//! What goes into the sink's machine and what comes out.

use crate::{
    BlockDigest, Close, Encoding, End, FileNumber, JobOptions, LaneId, Message, NewFile, Outcome, Reason,
    Runs, Timing, Unread, Window,
};
use haul_digest::Digest;
use haul_model::{ByteRange, Level, Object, ObjectIndex, RelPath};
use std::sync::Arc;
use std::time::Duration;

/// What a sink keeps to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The options as ACCEPT has them.
    pub options: JobOptions,
    /// The window that it let the source have: a source that goes beyond ends the session.
    pub window: Window,
    /// Its times.
    pub timing: Timing,
    /// Times that an object, or a file, is asked for again because it arrived damaged.
    pub tries: u8,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A lane stands, after CONNECT or JOIN was answered.
    LaneUp(LaneId),
    /// A lane is lost. An object that was arriving on it is forgotten; its worker says nothing more about it.
    LaneLost(LaneId),
    /// The source said something (but BLOCK_DIGEST, which is [`Event::ObjectEnd`]). Commands that come of it are for the
    /// worker of that lane to do before it reads on, unless they say otherwise.
    Message(LaneId, Message),
    /// A BLOCK_DIGEST came. If it ends the object that the lane's worker has been writing and hashing, `found` is the digest
    /// of what arrived; `None` where nothing was hashed: payload was dropped, the job does not verify by objects, or the
    /// digest is of an object that ended before.
    ObjectEnd {
        /// By which lane.
        lane: LaneId,
        /// The message.
        end: BlockDigest,
        /// What arrived.
        found: Option<Digest>,
    },
    /// Bytes of the lane's payload came and went: the lane is not silent. For objects that take longer than
    /// [`Timing::silence`].
    Progress(LaneId),
    /// Bytes of a file could not be written. The worker goes on reading and drops what comes.
    WriteFailed {
        /// Which file.
        file: FileNumber,
        /// Why.
        reason: Reason,
    },
    /// [`Command::Open`] is done.
    Opened {
        /// Which file.
        file: FileNumber,
        /// What becomes of it.
        verdict: Verdict,
        /// Whether the file is to be read back, where the job leaves that to the sink ([`crate::Verify::Hybrid`]); for all
        /// other jobs it means nothing.
        rereads: bool,
    },
    /// Digests of the sink's own copy, in order from the first object, for [`Verdict::Differing`]. `None` for an object that
    /// is not there in full.
    OwnDigests {
        /// Which file.
        file: FileNumber,
        /// At most [`crate::limits::DIGESTS_PER_MESSAGE`].
        digests: Vec<Option<Digest>>,
    },
    /// [`Command::Settle`] is done for these objects: they reached the level. One below what was asked for is the most that the file can have
    /// where it is, and then its own: storage that can't be asked past memory, for instance, gives nothing to re-read.
    Settled {
        /// Which file.
        file: FileNumber,
        /// Which try of the file.
        attempt: u16,
        /// The level.
        level: Level,
        /// Which objects.
        objects: Runs,
    },
    /// [`Command::Settle`] can't be done: the object read back differs (`None`), or a reason why the file fails.
    SettleFailed {
        /// Which file.
        file: FileNumber,
        /// Which try of the file.
        attempt: u16,
        /// Which object.
        object: ObjectIndex,
        /// `None` if what was read back differs: it is asked for again.
        reason: Option<Reason>,
    },
    /// [`Command::Rehash`] is done.
    Rehashed {
        /// Which file.
        file: FileNumber,
        /// Which try of the file.
        attempt: u16,
        /// The object; `None` for the whole file.
        object: Option<ObjectIndex>,
        /// What was read.
        digest: Result<Digest, Reason>,
    },
    /// [`Command::Finish`] or [`Command::Make`] is done: the file stands under its name (or not).
    Finished {
        /// Which file.
        file: FileNumber,
        /// How it ended.
        result: Result<Outcome, Unfinished>,
    },
    /// Names found in a directory of the sink during [`Command::Sweep`]. Only while [`super::Sink::may_list`] says so.
    Listed {
        /// The directory beneath the root; empty for the root.
        directory: Box<[u8]>,
        /// At most [`crate::limits::NAMES_PER_LIST`] names.
        names: Vec<Box<[u8]>>,
    },
    /// [`Command::Remove`] is done.
    Removed {
        /// The LIST.
        batch: u32,
        /// How many names went.
        deleted: u64,
        /// How many could not.
        failed: u64,
    },
    /// [`Command::Sweep`] is done: everything was listed.
    Swept,
    /// The job is to stop.
    Stop(Reason),
    /// Time passed. At least once in each [`Timing::keep_alive`].
    Tick,
}

/// What the engine decides about a file that the source announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it, but for the objects that are there, durable and of this very version of the file.
    Take {
        /// Those objects.
        have: Runs,
    },
    /// Send the objects that differ: [`Event::OwnDigests`] follow, by a worker beside the lanes.
    Differing {
        /// Objects that are there, durable and of this very version of the file: they are not looked at. Their digests are
        /// told as `None`.
        have: Runs,
        /// Objects that would be in `have`, and are compared to see whether it is to be trusted: if one of them differs the file
        /// begins anew.
        samples: Runs,
    },
    /// Send it unless its digest is this.
    Unless(Digest),
    /// It is the same by the job's rule; nothing is to be done but perhaps its metadata, which the engine has done.
    Same,
    /// It can't be taken.
    Refused(Reason),
}

/// Why a file could not be finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// The whole file's digest is not the one that FILE_CLOSE states: it is asked for again.
    Differs,
    /// It failed.
    Failed(Reason),
}

/// What the engine does. Those of a [`Event::Message`] are for that lane's worker, in order, before it reads on; it answers
/// [`Command::Open`] at once. [`Command::Settle`], [`Command::Rehash`], [`Command::Finish`], [`Command::Sweep`] and
/// [`Command::Remove`] may be handed to others.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Tell people of something that the source could not list or read.
    Unread(Unread),
    /// Look at what stands under this name, decide, and answer by [`Event::Opened`]. It is best to make the file only
    /// when its first bytes come.
    Open {
        /// What the source says.
        facts: Arc<NewFile>,
        /// Its path, judged.
        path: RelPath,
    },
    /// Make what has no bytes: a directory, a link, a special file, with its metadata. Then [`Event::Finished`].
    Make {
        /// What the source says.
        facts: Arc<NewFile>,
        /// Its path, judged.
        path: RelPath,
        /// Of a hard link, the first name, judged.
        first: Option<RelPath>,
    },
    /// Write the block whose payload follows, and hash it. At the object's first block a new hash begins.
    Write {
        /// The file.
        file: FileNumber,
        /// Which try of the file.
        attempt: u16,
        /// The object.
        object: Object,
        /// The bytes of the file that the block stands for.
        range: ByteRange,
        /// How they are given.
        encoding: Encoding,
        /// Bytes of payload that follow on the lane.
        payload: u32,
    },
    /// Read and drop the payload that follows: nobody wants it any more.
    Discard {
        /// Bytes of payload that follow on the lane.
        payload: u32,
    },
    /// An object of a file of several is what the source sent, as far as the job compares objects, and has the file's level, where that
    /// is reached by objects: it may be logged when it is durable. It is not written again in this try of the file.
    Proved {
        /// The file.
        file: FileNumber,
        /// Which try of the file.
        attempt: u16,
        /// The object.
        object: Object,
    },
    /// Bring an object to a level, then [`Event::Settled`]. Many may be settled by one sync.
    Settle {
        /// The file.
        file: FileNumber,
        /// Which try of the file.
        attempt: u16,
        /// The object.
        object: Object,
        /// The level.
        to: Level,
        /// The digest that its bytes must have.
        digest: Option<Digest>,
    },
    /// Read an object, or the whole file, again and hash it. Then [`Event::Rehashed`].
    Rehash {
        /// The file.
        file: FileNumber,
        /// Which try of the file.
        attempt: u16,
        /// The object; `None` for the whole file.
        object: Option<Object>,
    },
    /// Forget the bytes and hashes that came of a file: it is sent again from its first byte.
    Restart {
        /// The file.
        file: FileNumber,
        /// The number of the new try.
        attempt: u16,
    },
    /// Everything of the file is there: compare its digest if FILE_CLOSE states one, set its metadata, bring it to the
    /// job's level, give it its name. Then [`Event::Finished`].
    Finish {
        /// The file.
        file: FileNumber,
        /// What FILE_CLOSE says; [`Close::Same`] if only metadata is to be set.
        close: Close,
        /// The level that the file must have before it is told of.
        settle: Level,
    },
    /// A name that the machine does not take: nothing is opened or made for it. The source hears why; so should people of this side.
    Refused {
        /// What the source calls it, as it came.
        path: Box<[u8]>,
        /// Why.
        reason: Reason,
    },
    /// A file fails, and people of this side should hear why. [`Command::Abandon`] follows. Told as well of what the engine has just
    /// said to have failed.
    Failed {
        /// The file.
        file: FileNumber,
        /// Why.
        reason: Reason,
        /// Whether it is the source that could not give it.
        by_source: bool,
    },
    /// The file ended without being finished: close it, take its temporary name away unless the job may be resumed from
    /// it. Another worker may be writing it at this moment.
    Abandon {
        /// The file.
        file: FileNumber,
    },
    /// List the sink's directories by [`Event::Listed`], each after all that lies in it, then [`Event::Swept`]: the source judges
    /// every name by itself.
    Sweep,
    /// Delete these names, a directory only if it is empty. Then [`Event::Removed`].
    Remove {
        /// The LIST.
        batch: u32,
        /// The directory; empty for the root.
        directory: Box<[u8]>,
        /// The names.
        names: Vec<Box<[u8]>>,
    },
    /// Close this lane: it was silent for too long. The machine has forgotten it.
    DropLane {
        /// Which.
        lane: LaneId,
    },
    /// The session is over. Lanes may still have a BYE to send.
    Ended(End),
}

/// What to write on a lane next.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// This frame.
    Send(Message),
    /// Nothing until something happens or this moment comes; then ask again.
    Wait {
        /// The moment.
        until: Duration,
    },
    /// Nothing more on this lane: close it.
    Done,
}
