//! End of a session: WALK_END, four messages for `--delete`, BYE.

use super::connect::at_most;
use super::options::one_of;
use super::times::{Times, put, take};
use crate::fields::{Body, Fields};
use crate::limits::NAMES_PER_LIST;
use crate::{Flaw, Reason};
use haul_model::{PART_BYTES_MAX, PATH_BYTES_MAX};
use std::time::Duration;

/// WALK_END: the source has announced every file, and the sink has answered for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkEnd {
    /// Number of announced files, directories and other entries.
    pub files: u64,
    /// Number of entries that failed at the source. With any failure, nothing is deleted.
    pub errors: u64,
    /// Number of those that the source could not list or read, and so did not announce.
    pub unread: u64,
    /// True if the sink may ask what to delete.
    pub delete: bool,
}

/// UNREAD: an entry that the source could not list or read, and so did not announce. It is reported
/// to the user; WALK_END counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Path beneath the root of the source.
    pub path: Box<[u8]>,
    /// Reason for the failure.
    pub reason: Reason,
}

/// LIST: names in a directory of the sink. The source answers with the fate of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Number of the message, ascending.
    pub batch: u32,
    /// Directory beneath the root of the job; empty for the root itself.
    pub directory: Box<[u8]>,
    /// At most [`NAMES_PER_LIST`] names in the directory.
    pub names: Vec<Box<[u8]>>,
}

/// DELETE: the fates of the names of a LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Number of the LIST that this message answers.
    pub batch: u32,
    /// The fate of each name of the LIST, in order.
    pub fates: Vec<Fate>,
}

/// Fate of a name of the sink in a job that deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The source has the name, or cannot tell. A directory is listed.
    Stays,
    /// The source lacks the name. The sink deletes it, unless one of the names of the source
    /// belongs to the same entry at the sink.
    Gone,
    /// The name does not belong to the job, or the job excludes it. It is neither deleted nor
    /// entered.
    Excluded,
    /// The source lacks the name, but it sent nothing beneath the operand that would contain it.
    /// The name stays, and the job is incomplete.
    Guarded,
}

const FATES: [Fate; 4] = [Fate::Stays, Fate::Gone, Fate::Excluded, Fate::Guarded];

/// NAMES: asks for the names that the source has in a directory, from a position on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Number of the message, in one sequence with those of LIST.
    pub batch: u32,
    /// Directory beneath the root of the job; empty for the root itself.
    pub directory: Box<[u8]>,
    /// Number of names that the sink has received.
    pub from: u64,
}

/// NAMED: names that the source has in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Number of the NAMES that this message answers.
    pub batch: u32,
    /// False if the source cannot read its directory. The sink then deletes nothing in its own.
    pub certain: bool,
    /// True if no further name follows.
    pub last: bool,
    /// At most [`NAMES_PER_LIST`] names. Only the last message has none.
    pub names: Vec<Box<[u8]>>,
}

/// Totals of a side in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files that arrived.
    pub done: u64,
    /// Files that were the same and were left unchanged.
    pub same: u64,
    /// Files that would be sent (dry run).
    pub would: u64,
    /// Files that failed.
    pub failed: u64,
    /// Entries that the source could not list or read, and so did not announce.
    pub unread: u64,
    /// Names that were deleted.
    pub deleted: u64,
    /// Names that could not be deleted.
    pub undeleted: u64,
    /// Names that were not deleted because of [`JobOptions::max_delete`](crate::JobOptions).
    pub over_limit: u64,
    /// Size in bytes of the files that arrived.
    pub bytes: u64,
    /// Objects that were sent again because they arrived damaged.
    pub again: u64,
}

/// BYE: the last message of a side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bye {
    /// Reason for a session that ends before its work is done; `None` if the work is done.
    pub reason: Option<Reason>,
    /// Totals of this side.
    pub summary: Summary,
    /// Time statistics of this side; the sender of the BYE fills them in.
    pub times: Option<Times>,
}

/// Optional field with [`Bye::times`].
const TIMES: u16 = 1;

/// Optional field with [`Times::run_delay`].
const RUN_DELAY: u16 = 2;

/// Optional field with [`Summary::over_limit`].
const OVER_LIMIT: u16 = 3;

impl WalkEnd {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u64(self.files);
        body.u64(self.errors);
        body.u64(self.unread);
        body.u8(u8::from(self.delete));
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<WalkEnd, Flaw> {
        let (files, errors, unread) = (fields.u64("files")?, fields.u64("errors")?, fields.u64("unread")?);
        Ok(WalkEnd { files, errors, unread, delete: flag(fields.u8("flag")?)? })
    }
}

impl Unread {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.bytes(&self.path);
        self.reason.encode(body);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Unread, Flaw> {
        let path = fields.bytes(PATH_BYTES_MAX, "path")?;
        Ok(Unread { path, reason: Reason::decode(fields)? })
    }
}

impl List {
    pub(super) fn check(&self) -> Result<(), Flaw> {
        at_most("directory", self.directory.len(), PATH_BYTES_MAX)?;
        check_names(&self.names)
    }

    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u32(self.batch);
        body.bytes(&self.directory);
        encode_names(&self.names, body);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<List, Flaw> {
        let batch = fields.u32("batch")?;
        let directory = fields.bytes(PATH_BYTES_MAX, "directory")?;
        Ok(List { batch, directory, names: decode_names(fields)? })
    }
}

impl Delete {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u32(self.batch);
        body.count(self.fates.len());
        for fate in &self.fates {
            let code = FATES.iter().position(|known| known == fate).unwrap_or(0);
            body.u8(u8::try_from(code).expect("fewer than 256 fates"));
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Delete, Flaw> {
        let batch = fields.u32("batch")?;
        let count = fields.count(NAMES_PER_LIST, "names")?;
        let fates =
            (0..count).map(|_| one_of(&FATES, fields.u8("fate")?, "fate")).collect::<Result<_, _>>()?;
        Ok(Delete { batch, fates })
    }
}

impl Names {
    pub(super) fn check(&self) -> Result<(), Flaw> {
        at_most("directory", self.directory.len(), PATH_BYTES_MAX)
    }

    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u32(self.batch);
        body.bytes(&self.directory);
        body.u64(self.from);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Names, Flaw> {
        let batch = fields.u32("batch")?;
        let directory = fields.bytes(PATH_BYTES_MAX, "directory")?;
        Ok(Names { batch, directory, from: fields.u64("position")? })
    }
}

impl Named {
    pub(super) fn check(&self) -> Result<(), Flaw> {
        check_names(&self.names)?;
        // A peer could otherwise send empty messages without end.
        if self.names.is_empty() && !self.last { Err(Flaw::Value("names")) } else { Ok(()) }
    }

    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u32(self.batch);
        body.u8(u8::from(self.certain));
        body.u8(u8::from(self.last));
        encode_names(&self.names, body);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Named, Flaw> {
        let batch = fields.u32("batch")?;
        let (certain, last) = (flag(fields.u8("flag")?)?, flag(fields.u8("flag")?)?);
        let named = Named { batch, certain, last, names: decode_names(fields)? };
        named.check()?;
        Ok(named)
    }
}

fn check_names(names: &[Box<[u8]>]) -> Result<(), Flaw> {
    at_most("names", names.len(), NAMES_PER_LIST)?;
    names.iter().try_for_each(|name| at_most("name", name.len(), PART_BYTES_MAX))
}

fn encode_names(names: &[Box<[u8]>], body: &mut Body<'_>) {
    body.count(names.len());
    for name in names {
        body.bytes(name);
    }
}

fn decode_names(fields: &mut Fields<'_>) -> Result<Vec<Box<[u8]>>, Flaw> {
    let count = fields.count(NAMES_PER_LIST, "names")?;
    (0..count).map(|_| fields.bytes(PART_BYTES_MAX, "name")).collect()
}

impl Bye {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        let Summary { done, same, would, failed, unread, deleted, undeleted, over_limit, bytes, again } =
            self.summary;
        for number in [done, same, would, failed, unread, deleted, undeleted, bytes, again] {
            body.u64(number);
        }
        body.u8(u8::from(self.reason.is_some()));
        if let Some(reason) = &self.reason {
            reason.encode(body);
        }
        if let Some(times) = &self.times {
            body.optional(TIMES, |body| times.encode(body));
            if times.run_delay.as_micros() > 0 {
                body.optional(RUN_DELAY, |body| put(body, times.run_delay));
            }
        }
        if over_limit > 0 {
            body.optional(OVER_LIMIT, |body| body.u64(over_limit));
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Bye, Flaw> {
        let mut number = || fields.u64("summary");
        let summary = Summary {
            done: number()?,
            same: number()?,
            would: number()?,
            failed: number()?,
            unread: number()?,
            deleted: number()?,
            undeleted: number()?,
            over_limit: 0,
            bytes: number()?,
            again: number()?,
        };
        let reason = if flag(fields.u8("flag")?)? { Some(Reason::decode(fields)?) } else { None };
        let (mut times, mut run_delay, mut over_limit) = (None, Duration::ZERO, 0);
        fields.tail(|tag, field| {
            match tag {
                TIMES => times = Some(Times::decode(field)?),
                RUN_DELAY => run_delay = take(field)?,
                OVER_LIMIT => over_limit = field.u64("summary")?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let times = times.map(|times| Times { run_delay, ..times });
        Ok(Bye { reason, summary: Summary { over_limit, ..summary }, times })
    }
}

fn flag(byte: u8) -> Result<bool, Flaw> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Flaw::Value("flag")),
    }
}
