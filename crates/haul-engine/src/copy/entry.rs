//! What becomes of one entry of the tree: cp's decisions, one entry at a time.
//!
//! An entry is looked at, compared with what stands at its sink ([`meet`]), and then made: a directory is
//! entered later ([`enter`]), a regular file is opened at both ends and its bytes are moved by the pipeline
//! ([`regular`]), all else is made on the spot ([`make`]).

mod age;
mod enter;
mod make;
mod meet;
mod ranges;
mod regular;
mod same;
mod standing;

pub(crate) use super::links::Memory;
pub(crate) use age::{is_as_new, is_same_time};
pub(crate) use enter::{
    DirectoryFacts, DirectorySettle, NewDirectory, OperandNames, OperandSettle, SinkEnd, enter, open_sink,
    open_source,
};
pub(crate) use meet::{is_writable, mode_letters};
pub(crate) use ranges::Ranges;
pub(crate) use regular::FileSettle;
pub(crate) use same::is_one_name;

use super::descriptors::Opened;
use super::error::{CopyError, Refusal};
use super::file::{FileMove, Part};
use super::job::{Job, Walk};
use super::lane::Lane;
use super::links::{Claim, FirstSink, LinkedName};
use super::pipeline;
use super::quote::quote;
use super::report::Tally;
use super::settings::{CopyRules, Dereference, Existing, Make};
use super::settle;
use haul_sys::dir::DirEntry;
use haul_sys::{FileKind, Follow, Stat, stat};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// One entry to copy.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) parent: Opened,
    pub(crate) source_name: OsString,
    pub(crate) sink_name: OsString,
    /// What the directory said the entry is.
    pub(crate) kind_hint: Option<FileKind>,
    /// How it was named, where it was named on the command line.
    pub(crate) operand: Option<Operand>,
    /// What of it is copied, where the job's settings don't say it.
    pub(crate) part: Option<Part>,
    /// More parts of it follow, which go by what becomes of this one.
    pub(crate) ranges: Option<Arc<Ranges>>,
    /// What stood at the sink was given this name before the job began.
    pub(crate) backup: Option<OsString>,
}

/// What is known of an entry that the command line named.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operand {
    /// It was looked at already, in the order of the operands.
    pub(crate) source: Option<Stat>,
    /// A look through links found nothing at the sink.
    pub(crate) sink_is_missing: bool,
    /// Nothing can stand at the sink: its directory was made a moment ago.
    pub(crate) sink_is_new: bool,
    /// Other operands may become the same sink.
    pub(crate) sinks_collide: bool,
}

impl Entry {
    /// An entry found in a directory.
    pub(crate) fn found(parent: &Opened, entry: DirEntry) -> Entry {
        let name = entry.name_os().to_owned();
        Entry {
            parent: parent.clone(),
            source_name: name.clone(),
            sink_name: name,
            kind_hint: entry.kind_hint,
            operand: None,
            part: None,
            ranges: None,
            backup: None,
        }
    }
}

/// What an entry came to, as far as this worker takes it by itself.
#[derive(Debug)]
enum Fate {
    /// Nothing is left to do.
    Through,
    /// Bytes are to be moved.
    Move(Box<FileMove>),
    /// The directory stands at the sink and is to be filled.
    Enter(Box<NewDirectory>),
}

/// Decides what becomes of an entry and does it; regular files go on to the pipeline.
pub(crate) fn copy(job: &Job<'_>, lane: &mut Lane, entry: Entry) {
    if let Some(file) = regular::into_new_directory(job, &entry) {
        met(job);
        return pipeline::move_file(job, lane, file);
    }
    let mut is_file = false;
    let fate = decide(job, &entry, &mut is_file).unwrap_or_else(|error| {
        // A stop that came before anything was written leaves nothing to tell of.
        if !matches!(error, CopyError::Interrupted { .. }) {
            job.fail(&error);
        }
        Fate::Through
    });
    if !matches!(fate, Fate::Enter(_)) {
        met(job);
    }
    match fate {
        Fate::Move(file) => move_or_leave(job, lane, *file),
        Fate::Enter(new) => {
            if job.settings.rules.existing == Existing::Ask {
                // Questions come in cp's order: what the directory holds before what stands behind it.
                job.share_entries(lane, &entry.parent);
            }
            job.pool.offer_walk(Walk::Enter(new));
        }
        Fate::Through => {
            if is_file {
                Tally::add(&job.tally.files_done, 1);
            }
            settle::leave(job, &entry.parent);
        }
    }
}

/// Moves a part of a file after the first, by what became of the first; lets go of `parent` where nothing is to be done.
pub(crate) fn copy_range(
    job: &Job<'_>,
    lane: &mut Lane,
    (ranges, source_name): (&Arc<Ranges>, OsString),
    parent: &Opened,
    part: (Part, bool),
) {
    let opened = ranges::open_later(job, ranges, parent, source_name, part);
    met(job);
    match opened {
        Ok(Some(file)) => move_or_leave(job, lane, file),
        Ok(None) => settle::leave(job, parent),
        Err(error) => {
            ranges.fail();
            job.fail(&error);
            settle::leave(job, parent);
        }
    }
}

/// One entry's fate is decided, or one directory was read to its end.
pub(crate) fn met(job: &Job<'_>) {
    job.tally.met();
}

/// `--attributes-only` moves nothing, but ends a file as any other ends.
fn move_or_leave(job: &Job<'_>, lane: &mut Lane, file: FileMove) {
    if job.settings.rules.attributes_only {
        Tally::add(&job.tally.bytes_skipped, file.source_stat.size);
        settle::finish(job, &file, Ok(pipeline::Moved::received(0)));
    } else {
        pipeline::move_file(job, lane, file);
    }
}

/// One entry while its fate is decided.
struct Task<'a, 'j> {
    job: &'a Job<'j>,
    rules: &'a CopyRules,
    entry: &'a Entry,
    /// Which links are followed here: with `-H`, only those that the command named.
    dereference: Dereference,
    source: Stat,
}

/// What stands at the sink when it is written.
#[derive(Debug, Default)]
struct Sink {
    /// What was found; `None` where nothing was, or where it could not be told.
    before: Option<Stat>,
    /// Nothing stands there (any more).
    is_new: bool,
    /// What the old sink is called now.
    backup: Option<OsString>,
}

fn decide(job: &Job<'_>, entry: &Entry, is_file: &mut bool) -> Result<Fate, CopyError> {
    let rules = &job.settings.rules;
    let dereference = match rules.dereference {
        Dereference::Operands if entry.operand.is_none() => Dereference::Never,
        as_set => as_set,
    };
    let looked_at = entry.operand.and_then(|operand| operand.source);
    let source = match looked_at {
        Some(source) => source,
        None => look(entry, dereference)?,
    };
    if is_own_waybill(job, &source) {
        // One that lies in a tree is left out of it, for it grows until the job is over.
        return match entry.operand {
            Some(_) => Err(Refusal::OwnWaybill(entry.source_path()).into()),
            None => Ok(Fate::Through),
        };
    }
    if source.kind == FileKind::Regular {
        *is_file = true;
        count_file(job, &source);
    }
    if source.kind == FileKind::Directory && !rules.recursive {
        return Err(Refusal::NotRecursive(entry.source_path()).into());
    }
    let task = Task { job, rules, entry, dereference, source };
    match task.meet()? {
        None => Ok(Fate::Through),
        Some(sink) => {
            let fate = task.carry_out(sink)?;
            if matches!(fate, Fate::Through) {
                task.skipped();
            }
            Ok(fate)
        }
    }
}

/// Looks at an entry's source as `-L`, `-H` and `-P` say.
pub(crate) fn look(entry: &Entry, dereference: Dereference) -> Result<Stat, CopyError> {
    let follow = if dereference == Dereference::Never { Follow::No } else { Follow::Yes };
    stat::stat_at(entry.parent.source(), &*entry.source_name, follow).map_err(|source| CopyError::Cannot {
        action: "stat",
        path: entry.source_path(),
        source,
    })
}

/// Whether a file is the waybill that this job writes.
fn is_own_waybill(job: &Job<'_>, file: &Stat) -> bool {
    job.settings.moving.receipt.as_ref().is_some_and(|receipt| receipt.is(file))
}

fn count_file(job: &Job<'_>, source: &Stat) {
    Tally::add(&job.tally.bytes_found, source.size);
    Tally::add(&job.tally.files_found, 1);
}

impl Task<'_, '_> {
    /// No byte of the entry has to be moved.
    fn skipped(&self) {
        if self.source.kind == FileKind::Regular {
            Tally::add(&self.job.tally.bytes_skipped, self.source.size);
        }
    }

    /// Makes what the entry is at its sink. Where that fails, the old sink gets its name back.
    fn carry_out(&self, sink: Sink) -> Result<Fate, CopyError> {
        let line = self.made_later(&sink);
        let tells = self.rules.verbose && self.source.kind != FileKind::Directory && line.is_none();
        if tells && !self.rules.moves {
            self.tell_made(sink.backup.as_deref());
        }
        let made = match self.remembered() {
            Ok(Remembered::Nothing(first)) => {
                // mv says nothing of a name that becomes a link to an earlier one.
                if tells && self.rules.moves {
                    self.tell_made(sink.backup.as_deref());
                }
                let made = self.make(&sink, first);
                if made.is_err() && self.source.kind == FileKind::Directory && self.entry.operand.is_some() {
                    self.job.memory.forget_directory(self.source.identity());
                }
                made
            }
            Ok(Remembered::Through) => {
                self.tell_line(line);
                return Ok(Fate::Through);
            }
            Err(error) => Err(error),
        };
        if made.is_err() {
            self.tell_line(line);
        }
        if made.is_err()
            && let Some(backup) = &sink.backup
        {
            regular::undo_backup(self.job, &self.entry.parent, &self.entry.sink_name, backup);
        }
        made
    }

    /// What earlier entries mean for this one: a name to link to, or a directory that was copied before.
    fn remembered(&self) -> Result<Remembered<'_>, CopyError> {
        if self.source.kind == FileKind::Directory {
            let known = self.is_known_directory()?;
            return Ok(if known { Remembered::Through } else { Remembered::Nothing(None) });
        }
        if !self.keeps_links() {
            return Ok(Remembered::Nothing(None));
        }
        loop {
            match self.job.memory.claim(&self.source, self.meets_each_name_once()) {
                Claim::First(first) => return Ok(Remembered::Nothing(Some(first))),
                Claim::Earlier(earlier) if self.link_to_earlier(&earlier)? => return Ok(Remembered::Through),
                // That sink did not become whole: this name is copied like a first one.
                Claim::Earlier(_) => {}
            }
        }
    }

    /// Whether other names of this file may come that are to be links to one sink.
    fn keeps_links(&self) -> bool {
        self.rules.preserve.links && self.rules.make != Make::HardLink && self.may_have_other_names()
    }

    /// Whether other names of this file may come.
    fn may_have_other_names(&self) -> bool {
        let by_link = self.dereference == Dereference::Always
            || (self.entry.operand.is_some() && self.dereference == Dereference::Operands);
        // An operand moved before may have been the other name of a file that has only this one left.
        let by_move = self.rules.moves && self.job.memory.is_claimed(&self.source);
        self.source.nlink > 1 || by_link || by_move
    }

    /// With one operand and no links followed, no name of a file is met twice; nor is one that was moved.
    fn meets_each_name_once(&self) -> bool {
        let one_operand =
            self.entry.parent.names().is_some_and(|names| names.is_only_one || self.rules.moves);
        self.dereference == Dereference::Never && one_operand
    }

    /// Whether a followed link leads here.
    fn follows(&self) -> Follow {
        if self.dereference == Dereference::Never { Follow::No } else { Follow::Yes }
    }

    fn source_path(&self) -> OsString {
        self.entry.source_path()
    }

    fn sink_path(&self) -> OsString {
        self.entry.sink_path()
    }

    /// The sink, for other names of the source to be linked to.
    fn linkable(&self) -> LinkedName {
        (Arc::clone(&self.entry.parent), self.sink_name().to_owned())
    }

    /// The name beneath the parent's sink end; an empty one stands for that directory itself.
    fn sink_name(&self) -> &OsStr {
        let name = &*self.entry.sink_name;
        if name.is_empty() && !self.entry.parent.sink_path().is_empty() { OsStr::new(".") } else { name }
    }

    fn cannot(&self, action: &'static str) -> impl FnOnce(std::io::Error) -> CopyError {
        move |source| CopyError::Cannot { action, path: self.sink_path(), source }
    }

    /// `-v`: `'a' -> 'b' (backup: 'b~')`.
    fn tell_made(&self, backup: Option<&OsStr>) {
        self.tell_line(Some(self.made_line(backup)));
    }

    fn made_line(&self, backup: Option<&OsStr>) -> OsString {
        let mut line = made_line(self.rules, &self.source_path(), &self.sink_path());
        if let Some(backup) = backup {
            let path = self.entry.parent.sink_path_of(backup);
            line.push(format!(" (backup: {})", quote(&path)));
        }
        line
    }

    fn tell_line(&self, line: Option<OsString>) {
        if let Some(line) = line {
            self.job.report.made(&line);
        }
    }

    /// The line of `-v` where it waits for what `--debug` adds to it: how the bytes went.
    fn made_later(&self, sink: &Sink) -> Option<OsString> {
        let rules = self.rules;
        let moves = self.reads_as_regular(self.source.kind) && rules.make == Make::Copy;
        let waits = rules.debug && moves && !rules.attributes_only && self.entry.ranges.is_none();
        waits.then(|| self.made_line(sink.backup.as_deref()))
    }

    /// `-v`: something that stood in the way is gone.
    fn tell_removed(&self) {
        if self.rules.verbose {
            let line = format!("removed {}", quote(&self.sink_path()));
            self.job.report.made(OsStr::new(&line));
        }
    }
}

/// What memory says about an entry.
enum Remembered<'m> {
    /// It is to be made; the first name of a file that may have more holds its claim meanwhile.
    Nothing(Option<FirstSink<'m>>),
    /// It is made already.
    Through,
}

/// `'a' -> 'b'`, as mv says it `copied 'a' -> 'b'`.
pub(crate) fn made_line(rules: &CopyRules, source: &OsStr, sink: &OsStr) -> OsString {
    let verb = if rules.moves { "copied " } else { "" };
    OsString::from(format!("{verb}{} -> {}", quote(source), quote(sink)))
}

impl Entry {
    /// The source's path for messages.
    pub(crate) fn source_path(&self) -> OsString {
        self.parent.source_path_of(&self.source_name)
    }

    /// The sink's path for messages.
    pub(crate) fn sink_path(&self) -> OsString {
        self.parent.sink_path_of(&self.sink_name)
    }
}
