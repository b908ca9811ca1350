//! Inputs and outputs of the state machine of the source.

use crate::{
    Close, End, Fate, FileNumber, JobOptions, LaneId, Message, Named, NewFile, Outcome, Reason, Runs, Timing,
    Window,
};
use haul_digest::{Digest, KeyedDigest};
use haul_model::{Level, Object, ObjectIndex};
use std::sync::Arc;
use std::time::Duration;

/// Settings of a source.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Options as in ACCEPT.
    pub options: JobOptions,
    /// The smaller of both sides' windows ([`Window::least`]).
    pub window: Window,
    /// Timeouts of the session.
    pub timing: Timing,
    /// Maximum number of times that an object, or a file, is sent again because it arrived damaged.
    pub retries: u8,
    /// True if the sink ran this job before. Each regular file then waits for an answer, because
    /// the sink may have it.
    pub awaits_answers: bool,
}

/// Input of the machine.
#[derive(Debug)]
pub enum Event {
    /// A lane is open: CONNECT or JOIN was answered.
    LaneUp(LaneId),
    /// A lane is lost: it was closed, reset, or delivered a [`crate::Flaw`]. Unfinished work on
    /// this lane counts as not sent; the worker does not report it.
    LaneLost(LaneId),
    /// A message from the sink.
    Message(LaneId, Message),
    /// [`Work::Whole`] was sent completely.
    WholeSent {
        /// Lane.
        lane: LaneId,
        /// File.
        file: FileNumber,
        /// Contents of the FILE_CLOSE; `Failed` if the file could not be read to its end.
        close: Close,
    },
    /// [`Work::Whole`] could not start, and nothing of it was sent.
    WholeFailed {
        /// Lane.
        lane: LaneId,
        /// File.
        file: FileNumber,
        /// Reason for the failure.
        reason: Reason,
    },
    /// [`Work::Object`] was sent completely, including its BLOCK_DIGEST.
    ObjectSent {
        /// Lane.
        lane: LaneId,
        /// File.
        file: FileNumber,
        /// Attempt to send the file, as in the work.
        attempt: u16,
        /// Object.
        object: ObjectIndex,
    },
    /// The object of [`Work::Object`] cannot be read, or the file differs from the announced one.
    /// If blocks of the object were sent, a BLOCK_DIGEST with [`crate::Stated::Abandoned`] ended
    /// them. The file fails; the job continues.
    ObjectFailed {
        /// Lane.
        lane: LaneId,
        /// File.
        file: FileNumber,
        /// Attempt to send the file.
        attempt: u16,
        /// Object.
        object: ObjectIndex,
        /// Reason for the failure.
        reason: Reason,
    },
    /// [`Work::Compare`] is done.
    Compared {
        /// Lane.
        lane: LaneId,
        /// File.
        file: FileNumber,
        /// Attempt to send the file, as in the work.
        attempt: u16,
        /// One digest for each object, or that of the complete file.
        digests: Result<Vec<KeyedDigest>, Reason>,
    },
    /// [`Work::Close`] is done: the final check of the file is complete. The machine sends the
    /// FILE_CLOSE.
    Closed {
        /// Lane.
        lane: LaneId,
        /// File.
        file: FileNumber,
        /// Attempt to send the file.
        attempt: u16,
        /// Contents of the FILE_CLOSE.
        close: Close,
    },
    /// A [`Check`] is done.
    Checked {
        /// The check.
        check: Check,
        /// Digest of the second read.
        digest: Result<Digest, Reason>,
    },
    /// [`Command::FindMissing`] is answered. If a fate is uncertain, it is [`Fate::Stays`].
    MissingFound {
        /// Number of the LIST.
        batch: u32,
        /// The fate of each name.
        fates: Vec<Fate>,
    },
    /// [`Command::FindNames`] is answered.
    NamesFound(Named),
    /// The walk found an entry that it could not list or read. Nothing will be deleted.
    Unread {
        /// Path beneath the root of the source.
        path: Box<[u8]>,
        /// Reason for the failure.
        reason: Reason,
    },
    /// The walk has finished: nothing more is offered.
    WalkEnded,
    /// The job must stop.
    Stop(Reason),
    /// Bytes arrived on the lane, so it is not silent. Needed for messages that take longer than
    /// [`Timing::silence`].
    Progress(LaneId),
    /// Time has passed. Sent at least once in each [`Timing::keep_alive`].
    Tick,
}

/// Output for the engine. Commands arrive in order and need no answer, except for
/// [`Command::FindMissing`] and [`Command::FindNames`].
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// The sink reports that objects reached a level: for the log and for progress.
    Synced {
        /// File.
        file: FileNumber,
        /// Level.
        level: Level,
        /// Objects.
        objects: Runs,
    },
    /// The sink already has these objects, and none of them is a hole. They are not sent.
    AlreadyPresent {
        /// File.
        file: FileNumber,
        /// Objects.
        objects: Runs,
    },
    /// The sink has the same bytes in these objects. They are not sent.
    Same {
        /// File.
        file: FileNumber,
        /// Objects.
        objects: Runs,
    },
    /// A file is finished, and nothing else refers to it. Workers that still have it open can close
    /// it.
    FileDone {
        /// File.
        file: FileNumber,
        /// Result of the file.
        outcome: Outcome,
        /// True if the file failed at the source and not at the sink.
        here: bool,
    },
    /// Asks which of these names, in a directory beneath the root of the job, the source lacks.
    FindMissing {
        /// Number of the LIST.
        batch: u32,
        /// Directory; empty for the root. Not validated yet: pass it through
        /// [`haul_model::RelPath`].
        directory: Box<[u8]>,
        /// Names.
        names: Vec<Box<[u8]>>,
    },
    /// Asks which names the source has in a directory beneath the root of the job, including those
    /// that the job excludes.
    FindNames {
        /// Number of the NAMES.
        batch: u32,
        /// Directory, as in [`Command::FindMissing`].
        directory: Box<[u8]>,
        /// Number of names to skip.
        from: u64,
    },
    /// Close this lane: its timeout has expired. The machine has removed it.
    DropLane {
        /// Lane.
        lane: LaneId,
    },
    /// The session is over. Lanes may still have a BYE to send; [`Work::Done`] follows it.
    Ended(End),
}

/// Next work for the worker of a lane.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// Write this frame.
    Send(Message),
    /// Write a complete small file at once: NEW_FILE, then for a regular file the blocks of its
    /// object, BLOCK_DIGEST, and a FILE_CLOSE with the result of the final check. Then report
    /// [`Event::WholeSent`].
    Whole {
        /// Contents of NEW_FILE.
        facts: Arc<NewFile>,
        /// The only object. `None` for an empty file and for every entry without bytes. Such
        /// entries have no FILE_CLOSE, except for empty regular files.
        object: Option<Object>,
    },
    /// Read an object, and write its blocks and its BLOCK_DIGEST. Then report
    /// [`Event::ObjectSent`].
    Object {
        /// The file.
        facts: Arc<NewFile>,
        /// Attempt to send the file; every block contains it.
        attempt: u16,
        /// The object.
        object: Object,
        /// True if the object was sent before. The file must still be the announced one.
        again: bool,
    },
    /// Hash objects, or the complete file, so that the sink can compare them. Then report
    /// [`Event::Compared`].
    Compare {
        /// The file.
        facts: Arc<NewFile>,
        /// Attempt to send the file.
        attempt: u16,
        /// The objects; `None` for the complete file.
        objects: Option<Vec<Object>>,
    },
    /// Check for the last time if the file has changed. Then report [`Event::Closed`].
    Close {
        /// The file.
        facts: Arc<NewFile>,
        /// Attempt to send the file.
        attempt: u16,
        /// Digest that a [`Check`] of the complete file found. It is copied to [`Close::Read`].
        root: Option<Digest>,
    },
    /// Wait for an event or until this moment, then ask again.
    Wait {
        /// The moment.
        until: Duration,
    },
    /// Close this lane: it has no more work.
    Done,
}

/// Work that is available to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// No work.
    Nothing,
    /// Work that no other lane can take.
    Own,
    /// Work that another lane with the same answer can take first.
    Shared,
}

/// A second read, in the modes that hash after sending ([`crate::Verify::reads_twice`]), for a
/// background worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The file.
    pub facts: Arc<NewFile>,
    /// Attempt to send the file.
    pub attempt: u16,
    /// The object; `None` for the complete file.
    pub object: Option<Object>,
}
