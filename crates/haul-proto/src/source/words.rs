//! What goes into the source's machine and what comes out.

use crate::{
    Close, End, FileNumber, JobOptions, LaneId, Message, NewFile, Outcome, Reason, Runs, Timing, Window,
};
use haul_digest::Digest;
use haul_model::{Level, Object, ObjectIndex};
use std::sync::Arc;
use std::time::Duration;

/// What a source keeps to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The options as ACCEPT has them.
    pub options: JobOptions,
    /// The smaller of both sides' windows ([`Window::least`]).
    pub window: Window,
    /// Its times.
    pub timing: Timing,
    /// Times that an object, or a file, is sent again because it arrived damaged.
    pub tries: u8,
    /// Whether the sink was at this job before: each regular file waits for its answer, for it may be there.
    pub asks: bool,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A lane stands, after CONNECT or JOIN was answered.
    LaneUp(LaneId),
    /// A lane is lost: it was closed, reset, or brought a [`crate::Flaw`]. What a worker had in hand on it counts as not
    /// sent; the worker says nothing more about it.
    LaneLost(LaneId),
    /// The sink said something.
    Message(LaneId, Message),
    /// [`Work::Whole`] went out in full.
    WholeSent {
        /// By which lane.
        lane: LaneId,
        /// Which file.
        file: FileNumber,
        /// What its FILE_CLOSE said; `Failed` if the file could not be read to its end.
        close: Close,
    },
    /// [`Work::Whole`] could not begin: nothing was sent of it.
    WholeFailed {
        /// By which lane.
        lane: LaneId,
        /// Which file.
        file: FileNumber,
        /// Why.
        reason: Reason,
    },
    /// [`Work::Object`] went out in full, its BLOCK_DIGEST with it.
    ObjectSent {
        /// By which lane.
        lane: LaneId,
        /// Which file.
        file: FileNumber,
        /// Which try of the file, as the work said.
        attempt: u16,
        /// Which object.
        object: ObjectIndex,
    },
    /// [`Work::Object`] can't be read, or the file is no longer the one that was announced. If blocks of it went out, a
    /// BLOCK_DIGEST with [`crate::Stated::Abandoned`] ended it. The file fails, the job goes on.
    ObjectFailed {
        /// By which lane.
        lane: LaneId,
        /// Which file.
        file: FileNumber,
        /// Which try of the file.
        attempt: u16,
        /// Which object.
        object: ObjectIndex,
        /// Why.
        reason: Reason,
    },
    /// [`Work::Compare`] is done: whether the file's digest is the sink's.
    Compared {
        /// By which lane.
        lane: LaneId,
        /// Which file.
        file: FileNumber,
        /// The answer, or why there is none.
        same: Result<bool, Reason>,
    },
    /// [`Work::Close`] is done: the file was looked at for the last time. The machine sends the FILE_CLOSE.
    Closed {
        /// By which lane.
        lane: LaneId,
        /// Which file.
        file: FileNumber,
        /// Which try of the file.
        attempt: u16,
        /// What to say.
        close: Close,
    },
    /// A [`Check`] is done.
    Checked {
        /// What was asked.
        check: Check,
        /// The digest of what was read again.
        digest: Result<Digest, Reason>,
    },
    /// [`Command::Judge`] is answered: for each name, whether the source does not have it. Where that can't be told for
    /// sure, the answer is false.
    Judged {
        /// The LIST.
        batch: u32,
        /// One for each name.
        gone: Vec<bool>,
    },
    /// The walk met something that it could not list or read; nothing will be deleted.
    Unread {
        /// Which: beneath the source's root.
        path: Box<[u8]>,
        /// Why.
        reason: Reason,
    },
    /// The walk is at its end: nothing more is offered.
    WalkEnded,
    /// The job is to stop.
    Stop(Reason),
    /// Time passed. At least once in each [`Timing::keep_alive`].
    Tick,
}

/// What the engine is told. Commands come in order and need no answer, but [`Command::Judge`].
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// The sink says that objects reached a level: for the log and for progress.
    Synced {
        /// Which file.
        file: FileNumber,
        /// The level.
        level: Level,
        /// Which objects.
        objects: Runs,
    },
    /// The sink has these objects already, of which none is a hole: they are not sent.
    Had {
        /// Which file.
        file: FileNumber,
        /// Which objects.
        objects: Runs,
    },
    /// A file is at its end. Nothing more is asked about it; workers that still hold it may close it.
    FileDone {
        /// Which file.
        file: FileNumber,
        /// How it ended.
        outcome: Outcome,
        /// Whether it failed at the source and not at the sink.
        here: bool,
    },
    /// Which of these names, in a directory beneath the job's root, does the source not have?
    Judge {
        /// The LIST.
        batch: u32,
        /// The directory; empty for the root. Not judged yet: take it through [`haul_model::RelPath`].
        directory: Box<[u8]>,
        /// The names.
        names: Vec<Box<[u8]>>,
    },
    /// Close this lane: it was silent for too long. The machine has forgotten it.
    DropLane {
        /// Which.
        lane: LaneId,
    },
    /// The session is over. Lanes may still have a BYE to send; [`Work::Done`] follows it.
    Ended(End),
}

/// What the worker of a lane does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// Write this frame.
    Send(Message),
    /// Write all of a small file at once: NEW_FILE, then of a regular file its object's blocks, BLOCK_DIGEST, and a
    /// FILE_CLOSE with what the file's second look said. Then [`Event::WholeSent`].
    Whole {
        /// What NEW_FILE says.
        facts: Arc<NewFile>,
        /// Its only object; `None` for an empty file and for all that has no bytes (which have no FILE_CLOSE, but for
        /// empty regular files).
        object: Option<Object>,
    },
    /// Read an object, and write its blocks and its BLOCK_DIGEST. Then [`Event::ObjectSent`].
    Object {
        /// The file.
        facts: Arc<NewFile>,
        /// Which try of the file; every block says it.
        attempt: u16,
        /// The object.
        object: Object,
        /// The digest of the sink's own copy: if the object's is the same, one block [`crate::Encoding::Same`] stands for it.
        theirs: Option<Digest>,
        /// Whether it was sent before. The file must still be the one that was announced.
        again: bool,
    },
    /// Hash the file and compare with the sink's digest. Then [`Event::Compared`].
    Compare {
        /// The file.
        facts: Arc<NewFile>,
        /// The sink's digest.
        theirs: Digest,
    },
    /// Look at the file for the last time: has it changed? Then [`Event::Closed`].
    Close {
        /// The file.
        facts: Arc<NewFile>,
        /// Which try of the file.
        attempt: u16,
        /// The digest that a [`Check`] of the whole file found: it goes into [`Close::Read`].
        root: Option<Digest>,
    },
    /// Nothing until something happens or this moment comes; then ask again.
    Wait {
        /// The moment.
        until: Duration,
    },
    /// Nothing more on this lane: close it.
    Done,
}

/// Whether there is something for a lane to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// No.
    Nothing,
    /// Yes, and for no other lane.
    Own,
    /// Yes; other lanes that are told the same may take it first.
    Shared,
}

/// A second read, in the modes that hash after sending ([`crate::Verify::reads_twice`]): for a worker beside the lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The file.
    pub facts: Arc<NewFile>,
    /// Which try of the file.
    pub attempt: u16,
    /// The object; `None` for the whole file.
    pub object: Option<Object>,
}
