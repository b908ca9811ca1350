//! Inputs and outputs of the state machine of the sink.

use crate::{
    BlockDigest, Close, Encoding, End, Fate, FileNumber, JobOptions, LaneId, Message, NewFile, Outcome,
    Reason, Runs, Timing, Unread, Window,
};
use haul_digest::{Digest, KeyedDigest};
use haul_model::{ByteRange, Level, Object, ObjectIndex, RelPath};
use std::sync::Arc;
use std::time::Duration;

/// Settings of a sink.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Options as in ACCEPT.
    pub options: JobOptions,
    /// Window that the sink granted to the source. The session ends if twice as many files, or
    /// twice the metadata, are open.
    pub window: Window,
    /// Timeouts of the session.
    pub timing: Timing,
    /// Maximum number of times that an object, or a file, is requested again because it arrived
    /// damaged.
    pub retries: u8,
    /// True if both sides have [`Features::SHORT_BLOCKS`](crate::Features::SHORT_BLOCKS).
    pub short_blocks: bool,
}

/// Input of the machine.
#[derive(Debug)]
pub enum Event {
    /// A lane is open: CONNECT or JOIN was answered.
    LaneUp(LaneId),
    /// A lane is lost. An object that was arriving on it is dropped; its worker does not report it.
    LaneLost(LaneId),
    /// A message from the source, except for BLOCK_DIGEST, which is [`Event::ObjectEnd`]. The
    /// worker of that lane executes the resulting commands before it reads on, unless they are
    /// documented otherwise.
    Message(LaneId, Message),
    /// A BLOCK_DIGEST arrived. If it ends the object that the worker of the lane has been writing
    /// and hashing, `found` is the digest of the received bytes.
    ///
    /// `found` is `None` if nothing was hashed: the payload was discarded, the job does not verify
    /// objects, or the digest belongs to an object that ended earlier.
    ObjectEnd {
        /// Lane.
        lane: LaneId,
        /// The message.
        end: BlockDigest,
        /// Digest of the received bytes.
        found: Option<Digest>,
    },
    /// Bytes arrived on the lane, so it is not silent. Needed for messages that take longer than
    /// [`Timing::silence`].
    Progress(LaneId),
    /// Bytes of a file could not be written. The worker continues to read and discards the data.
    WriteFailed {
        /// File.
        file: FileNumber,
        /// Reason for the failure.
        reason: Reason,
    },
    /// [`Command::Open`] is done.
    Opened {
        /// File.
        file: FileNumber,
        /// Decision about the file.
        verdict: Verdict,
        /// True if the file must be read back, if the job leaves this decision to the sink
        /// ([`crate::Verify::Hybrid`]). Ignored for all other jobs.
        rereads: bool,
    },
    /// Digest of the sink's own file, for [`Verdict::UnlessDigest`]. It can arrive before
    /// [`Event::Opened`].
    OwnDigest {
        /// File.
        file: FileNumber,
        /// `None` if the file cannot be read, and is requested.
        digest: Option<KeyedDigest>,
    },
    /// An object that [`super::Sink::next_stated`] returned was compared. If it is the same, its
    /// bytes are in the file that the engine writes.
    Compared {
        /// File.
        file: FileNumber,
        /// Attempt to send the file.
        attempt: u16,
        /// Object.
        object: ObjectIndex,
        /// `None` if the object is missing or differs. Otherwise the digest of its bytes by the
        /// algorithm of the job, if the job compares objects.
        same: Option<Option<Digest>>,
    },
    /// [`Command::Settle`] is done for these objects: they reached the level. A level below the
    /// requested one is the highest that this storage provides, and then becomes the level of the
    /// file. For example, storage that cannot be read past the page cache allows no re-read.
    Settled {
        /// File.
        file: FileNumber,
        /// Attempt to send the file.
        attempt: u16,
        /// Level.
        level: Level,
        /// Objects.
        objects: Runs,
    },
    /// [`Command::Settle`] failed: the object that was read back differs (`None`), or the file
    /// fails for a reason.
    SettleFailed {
        /// File.
        file: FileNumber,
        /// Attempt to send the file.
        attempt: u16,
        /// Object.
        object: ObjectIndex,
        /// `None` if the bytes that were read back differ: the object is requested again.
        reason: Option<Reason>,
    },
    /// [`Command::Rehash`] is done.
    Rehashed {
        /// File.
        file: FileNumber,
        /// Attempt to send the file.
        attempt: u16,
        /// The object; `None` for the complete file.
        object: Option<ObjectIndex>,
        /// Digest of the bytes that were read.
        digest: Result<Digest, Reason>,
    },
    /// [`Command::Finish`] or [`Command::Make`] is done: the file has its final name, or failed.
    Finished {
        /// File.
        file: FileNumber,
        /// Result of the file.
        result: Result<Outcome, Unfinished>,
    },
    /// Names found in a directory of the sink during [`Command::Sweep`]: [`Command::Judged`]
    /// answers. Allowed only while [`super::Sink::may_ask`] returns true.
    ///
    /// Questions, which are this event and [`Event::NamesWanted`], are numbered in their order from
    /// 0 on.
    Listed {
        /// Directory beneath the root; empty for the root.
        directory: Box<[u8]>,
        /// At most [`crate::limits::NAMES_PER_LIST`] names.
        names: Vec<Box<[u8]>>,
    },
    /// The names of the source in this directory are needed, from a position on: [`Command::Named`]
    /// answers. Allowed only while [`super::Sink::may_ask`] returns true.
    NamesWanted {
        /// Directory beneath the root; empty for the root.
        directory: Box<[u8]>,
        /// Number of names that were received.
        from: u64,
    },
    /// Names were deleted.
    Removed {
        /// Number of names that were deleted.
        deleted: u64,
        /// Number of names that could not be deleted.
        failed: u64,
        /// Number of names that [`JobOptions::max_delete`] protects.
        over_limit: u64,
    },
    /// [`Command::Sweep`] is done.
    Swept,
    /// The job must stop.
    Stop(Reason),
    /// Time has passed. Sent at least once in each [`Timing::keep_alive`].
    Tick,
}

impl Event {
    /// Returns the file whose sets the event can enlarge.
    pub(super) fn changed_file(&self) -> Option<FileNumber> {
        match self {
            Event::ObjectEnd { end, .. } => Some(end.number),
            Event::Message(_, Message::NewFile(facts)) => Some(facts.number),
            Event::Message(_, Message::ObjectDigests(digests)) => Some(digests.number),
            Event::Opened { file, .. }
            | Event::Compared { file, .. }
            | Event::Settled { file, .. }
            | Event::SettleFailed { file, .. }
            | Event::Rehashed { file, .. } => Some(*file),
            _ => None,
        }
    }
}

/// Decision of the engine about a file that the source announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Request the file, except for objects that are present, durable and of exactly this version
    /// of the file.
    Take {
        /// Those objects.
        have: Runs,
    },
    /// Request the objects that differ. A background worker takes digests of the source by
    /// [`super::Sink::next_stated`] and answers each by [`Event::Compared`].
    Differing {
        /// Objects that are present, durable and of exactly this version of the file. They are not
        /// compared.
        have: Runs,
        /// Index from which on no object is present, so that all are requested without a
        /// comparison.
        end: u64,
        /// Objects that would belong to `have`, but are compared to check if `have` is trustworthy.
        /// If one of them differs, the file starts again from the beginning.
        samples: Runs,
    },
    /// Request the file unless the digest of the source is that of the sink's own file. A
    /// background worker sends [`Event::OwnDigest`].
    UnlessDigest,
    /// The file is the same by the rule of the job. At most its metadata needs an update, which the
    /// engine has done.
    Same,
    /// The file cannot be accepted.
    Refused(Reason),
}

/// Reason for a file that could not be finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// The digest of the complete file differs from the one in FILE_CLOSE: the file is requested
    /// again.
    Differs,
    /// The file failed.
    Failed(Reason),
}

/// Command for the engine.
///
/// The worker of a lane executes the commands of an [`Event::Message`] in order, before it reads
/// on. It answers [`Command::Open`] immediately. [`Command::Settle`], [`Command::Rehash`],
/// [`Command::Finish`], [`Command::Sweep`] and the answers to its questions can be handed to other
/// workers.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Report to the user that the source could not list or read an entry.
    Unread(Unread),
    /// Check the existing file under this name, decide, and answer by [`Event::Opened`]. Preferably
    /// create the file only when its first bytes arrive.
    Open {
        /// Announcement of the source.
        facts: Arc<NewFile>,
        /// Path of the file, validated.
        path: RelPath,
    },
    /// Create an entry without bytes (a directory, a link, a special file) with its metadata. Then
    /// report [`Event::Finished`].
    Make {
        /// Announcement of the source.
        facts: Arc<NewFile>,
        /// Path of the entry, validated.
        path: RelPath,
        /// First name of a hard link, validated.
        first: Option<RelPath>,
    },
    /// Write the block whose payload follows, and hash it. The first block of an object starts a
    /// new hash.
    Write {
        /// The file.
        file: FileNumber,
        /// Attempt to send the file.
        attempt: u16,
        /// The object.
        object: Object,
        /// Range of the file that the block represents.
        range: ByteRange,
        /// Encoding of the bytes.
        encoding: Encoding,
        /// Size in bytes of the payload that follows on the lane.
        payload: u32,
    },
    /// Read and discard the payload that follows: it is no longer wanted.
    Discard {
        /// Size in bytes of the payload that follows on the lane.
        payload: u32,
    },
    /// An object of a file with several objects equals what the source sent, as far as the job
    /// compares objects.
    ///
    /// If the level of the file is reached object by object, the object has it. The object may be
    /// logged once it is durable. It is not written again in this attempt.
    ObjectVerified {
        /// The file.
        file: FileNumber,
        /// Attempt to send the file.
        attempt: u16,
        /// The object.
        object: Object,
    },
    /// Bring an object to a level, then report [`Event::Settled`]. One sync can settle many
    /// objects.
    Settle {
        /// The file.
        file: FileNumber,
        /// Attempt to send the file.
        attempt: u16,
        /// The object.
        object: Object,
        /// The level.
        to: Level,
        /// Digest that the bytes must have.
        digest: Option<Digest>,
    },
    /// Read an object, or the complete file, again and hash it. Then report [`Event::Rehashed`].
    Rehash {
        /// The file.
        file: FileNumber,
        /// Attempt to send the file.
        attempt: u16,
        /// The object; `None` for the complete file.
        object: Option<Object>,
    },
    /// Discard the received bytes and hashes of a file: it is sent again from its first byte.
    Restart {
        /// The file.
        file: FileNumber,
        /// Number of the new attempt.
        attempt: u16,
    },
    /// The file has arrived completely. Compare its digest if FILE_CLOSE states one, set its
    /// metadata, bring it to the level of the job, and rename it to its final name. Then report
    /// [`Event::Finished`].
    Finish {
        /// The file.
        file: FileNumber,
        /// Contents of FILE_CLOSE; `None` if the sink's own file is the same and only metadata must
        /// be set.
        close: Option<Close>,
        /// Level that the file must have before it is reported.
        settle: Level,
    },
    /// The machine refuses a name: nothing is opened or created for it. The source receives the
    /// reason; report it to the user of this side too.
    Refused {
        /// Path as received from the source.
        path: Box<[u8]>,
        /// Reason for the refusal.
        reason: Reason,
    },
    /// A file fails. Report the reason to the user of this side. [`Command::Abandon`] follows. Also
    /// sent for a failure that the engine has just reported.
    Failed {
        /// The file.
        file: FileNumber,
        /// Reason for the failure.
        reason: Reason,
        /// True if the source could not provide the file.
        by_source: bool,
    },
    /// The file ended without being finished. Close it, and remove its temporary name unless the
    /// job may be resumed from it. Another worker may be writing to it at this moment.
    Abandon {
        /// The file.
        file: FileNumber,
    },
    /// Delete the names that the source lacks. List the root and the directories that the source
    /// has by [`Event::Listed`]; report [`Event::Removed`] after deletions, and [`Event::Swept`] at
    /// the end.
    Sweep,
    /// The source answers an [`Event::Listed`].
    Judged {
        /// Number of the question.
        batch: u32,
        /// The fate of each name.
        fates: Vec<Fate>,
    },
    /// The source answers an [`Event::NamesWanted`].
    Named {
        /// Number of the question.
        batch: u32,
        /// Names of the source. They are not validated.
        names: Vec<Box<[u8]>>,
        /// False if the source cannot read its directory.
        certain: bool,
        /// True if no further name follows.
        last: bool,
    },
    /// Close this lane: its timeout has expired. The machine has removed it.
    DropLane {
        /// Lane.
        lane: LaneId,
    },
    /// The session is over. Lanes may still have a BYE to send.
    Ended(End),
}

/// Next output for a lane.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// Write this frame.
    Send(Message),
    /// Wait for an event or until this moment, then ask again.
    Wait {
        /// The moment.
        until: Duration,
    },
    /// Close this lane: it has no more output.
    Done,
}
