//! Decisions of cp about one entry of the tree.
//!
//! The source of an entry is stat'ed and compared with the existing sink ([`meet`]). Then the entry
//! is created. A directory is entered later ([`enter`]). A regular file is opened at both ends, and
//! the pipeline copies its bytes ([`regular`]). All other types are created immediately ([`make`]).

mod enter;
mod make;
mod meet;
mod ranges;
mod regular;
mod same;
mod standing;

pub(crate) use super::links::Memory;
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
use super::job::{Counted, Job, Walk};
use super::lane::Lane;
use super::links::{FirstSink, LinkAction, LinkedName};
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
    /// File type that the directory reported.
    pub(crate) kind_hint: Option<FileKind>,
    /// Facts about the operand if the command line named this entry.
    pub(crate) operand: Option<Operand>,
    /// Range to copy if it differs from the job's settings.
    pub(crate) part: Option<Part>,
    /// Ranges that follow this one and depend on its outcome.
    pub(crate) ranges: Option<Arc<Ranges>>,
    /// Backup name that the existing sink got before the job started.
    pub(crate) backup: Option<OsString>,
    pub(crate) counted: Counted,
}

/// Facts about an entry that the command line named.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operand {
    /// Result of an earlier stat call; operands are stat'ed in their order.
    pub(crate) source: Option<Stat>,
    /// True if a stat call that follows links found nothing at the sink.
    pub(crate) sink_is_missing: bool,
    /// True if the sink cannot exist, because its directory was created a moment ago.
    pub(crate) sink_is_new: bool,
    /// True if other operands may have the same sink.
    pub(crate) sinks_collide: bool,
}

impl Entry {
    /// Creates an entry for a name found in a directory.
    pub(crate) fn found(parent: &Opened, entry: DirEntry, counted: Counted) -> Entry {
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
            counted,
        }
    }
}

/// Outcome of an entry, as far as this worker handles it alone.
#[derive(Debug)]
enum EntryOutcome {
    /// Nothing is left to do.
    Through,
    /// Bytes must be copied.
    Move(Box<FileMove>),
    /// The directory exists at the sink and must be filled.
    Enter(Box<NewDirectory>),
}

/// Decides how to copy an entry, and copies it. Regular files continue in the pipeline.
pub(crate) fn copy(job: &Job<'_>, lane: &mut Lane, entry: Entry) {
    copy_then(job, lane, entry, || ());
}

/// Does the same, and calls `decided` once a directory is recorded and before its walk is offered.
pub(crate) fn copy_then(job: &Job<'_>, lane: &mut Lane, entry: Entry, decided: impl FnOnce()) {
    let counted = entry.counted == Counted::Ahead;
    let catch_up = || {
        if counted {
            job.tally.caught_up();
        }
    };
    if let Some(file) = regular::into_new_directory(job, &entry) {
        decided();
        catch_up();
        handled(job);
        return pipeline::move_file(job, lane, file);
    }
    let mut is_file = counted;
    let fate = decide(job, &entry, &mut is_file).unwrap_or_else(|error| {
        // If a stop came before anything was written, there is nothing to report.
        if !matches!(error, CopyError::Interrupted { .. }) {
            job.fail(&error);
        }
        EntryOutcome::Through
    });
    decided();
    catch_up();
    if !matches!(fate, EntryOutcome::Enter(_)) {
        handled(job);
    }
    match fate {
        EntryOutcome::Move(file) => copy_unless_attributes_only(job, lane, *file),
        EntryOutcome::Enter(new) => {
            if job.settings.rules.existing == Existing::Ask {
                // Questions appear in cp's order: those about the contents of the directory come
                // before those about later entries.
                job.share_entries(lane, &entry.parent);
            }
            job.pool.offer_walk(Walk::Enter(new));
        }
        EntryOutcome::Through => {
            if is_file {
                Tally::add(&job.tally.files_done, 1);
            }
            settle::leave(job, &entry.parent);
        }
    }
}

/// Copies a later range of a file, depending on the outcome of the first range. Releases `parent`
/// if there is nothing to do.
pub(crate) fn copy_range(
    job: &Job<'_>,
    lane: &mut Lane,
    (ranges, source_name): (&Arc<Ranges>, OsString),
    parent: &Opened,
    part: (Part, bool),
) {
    let opened = ranges::open_later(job, ranges, parent, source_name, part);
    handled(job);
    match opened {
        Ok(Some(file)) => copy_unless_attributes_only(job, lane, file),
        Ok(None) => settle::leave(job, parent),
        Err(error) => {
            ranges.fail();
            job.fail(&error);
            settle::leave(job, parent);
        }
    }
}

/// Records that one entry was handled or one directory was read to its end.
pub(crate) fn handled(job: &Job<'_>) {
    job.tally.handled();
}

/// With `--attributes-only`, copies no bytes and finishes the file like any other. Otherwise copies
/// the file.
fn copy_unless_attributes_only(job: &Job<'_>, lane: &mut Lane, file: FileMove) {
    if job.settings.rules.attributes_only {
        Tally::add(&job.tally.bytes_skipped, file.source_stat.size);
        settle::finish(job, &file, Ok(pipeline::Moved::received(0)));
    } else {
        pipeline::move_file(job, lane, file);
    }
}

/// Context for the decision about one entry.
struct Task<'a, 'j> {
    job: &'a Job<'j>,
    rules: &'a CopyRules,
    entry: &'a Entry,
    /// Links that are followed here: with `-H`, only those that the command named.
    dereference: Dereference,
    source: Stat,
}

/// State of the sink at the time of the write.
#[derive(Debug, Default)]
struct Sink {
    /// Result of the stat call; `None` if nothing was found or the state is unknown.
    before: Option<Stat>,
    /// True if no sink exists (any more).
    is_new: bool,
    /// Backup name of the old sink.
    backup: Option<OsString>,
}

fn decide(job: &Job<'_>, entry: &Entry, is_file: &mut bool) -> Result<EntryOutcome, CopyError> {
    let rules = &job.settings.rules;
    let dereference = match rules.dereference {
        Dereference::Operands if entry.operand.is_none() => Dereference::Never,
        as_set => as_set,
    };
    let looked_at = entry.operand.and_then(|operand| operand.source);
    let source = match looked_at {
        Some(source) => source,
        None => stat_source(entry, dereference)?,
    };
    if is_own_waybill(job, &source) {
        // A waybill inside the tree is skipped, because it grows until the job ends.
        return match entry.operand {
            Some(_) => Err(Refusal::OwnWaybill(entry.source_path()).into()),
            None => Ok(EntryOutcome::Through),
        };
    }
    if source.kind == FileKind::Regular {
        *is_file = true;
        if entry.counted == Counted::Later {
            count_file(job, &source);
        }
    }
    if source.kind == FileKind::Directory && !rules.recursive {
        return Err(Refusal::NotRecursive(entry.source_path()).into());
    }
    let task = Task { job, rules, entry, dereference, source };
    match task.meet()? {
        None => Ok(EntryOutcome::Through),
        Some(sink) => {
            let fate = task.carry_out(sink)?;
            if matches!(fate, EntryOutcome::Through) {
                task.skipped();
            }
            Ok(fate)
        }
    }
}

/// Stats the source of an entry, following links as `-L`, `-H` and `-P` specify.
pub(crate) fn stat_source(entry: &Entry, dereference: Dereference) -> Result<Stat, CopyError> {
    let follow = if dereference == Dereference::Never { Follow::No } else { Follow::Yes };
    stat::stat_at(entry.parent.source(), &*entry.source_name, follow).map_err(|source| CopyError::Cannot {
        action: "stat",
        path: entry.source_path(),
        source,
    })
}

/// Returns true if the file is the waybill that this job writes.
pub(crate) fn is_own_waybill(job: &Job<'_>, file: &Stat) -> bool {
    job.settings.moving.receipt.as_ref().is_some_and(|receipt| receipt.is(file))
}

fn count_file(job: &Job<'_>, source: &Stat) {
    Tally::add(&job.tally.bytes_found, source.size);
    Tally::add(&job.tally.files_found, 1);
}

impl Task<'_, '_> {
    /// Counts the bytes of an entry that need not be copied.
    fn skipped(&self) {
        if self.source.kind == FileKind::Regular {
            Tally::add(&self.job.tally.bytes_skipped, self.source.size);
        }
    }

    /// Creates the entry at its sink. If that fails, the old sink gets its name back.
    fn carry_out(&self, sink: Sink) -> Result<EntryOutcome, CopyError> {
        let line = self.made_later(&sink);
        let tells = self.rules.verbose && self.source.kind != FileKind::Directory && line.is_none();
        if tells && !self.rules.moves {
            self.report_made(sink.backup.as_deref());
        }
        let made = match self.remembered() {
            Ok(LookupResult::Nothing(first)) => {
                // mv prints nothing for a name that becomes a link to an earlier one.
                if tells && self.rules.moves {
                    self.report_made(sink.backup.as_deref());
                }
                let made = self.make(&sink, first);
                if made.is_err() && self.source.kind == FileKind::Directory && self.entry.operand.is_some() {
                    self.job.memory.forget_directory(self.source.identity());
                }
                made
            }
            Ok(LookupResult::Through) => {
                self.report_line(line);
                return Ok(EntryOutcome::Through);
            }
            Err(error) => Err(error),
        };
        if made.is_err() {
            self.report_line(line);
        }
        if made.is_err()
            && let Some(backup) = &sink.backup
        {
            regular::undo_backup(self.job, &self.entry.parent, &self.entry.sink_name, backup);
        }
        made
    }

    /// Returns the effect of earlier entries on this one: a name to link to, or a directory that
    /// was already copied.
    fn remembered(&self) -> Result<LookupResult<'_>, CopyError> {
        if self.source.kind == FileKind::Directory {
            let known = self.is_known_directory()?;
            return Ok(if known { LookupResult::Through } else { LookupResult::Nothing(None) });
        }
        if !self.keeps_links() {
            return Ok(LookupResult::Nothing(None));
        }
        loop {
            match self.job.memory.claim(&self.source, self.has_unique_names()) {
                LinkAction::First(first) => return Ok(LookupResult::Nothing(Some(first))),
                LinkAction::Earlier(earlier) if self.link_to_earlier(&earlier, None)? => {
                    return Ok(LookupResult::Through);
                }
                // The earlier sink is not a complete copy, so this name is copied like a first one.
                LinkAction::Earlier(_) => {}
            }
        }
    }

    /// Returns true if other names of this file may follow that must become links to one sink.
    fn keeps_links(&self) -> bool {
        self.rules.preserve.links && self.rules.make != Make::HardLink && self.may_have_other_names()
    }

    /// Returns true if other names of this file may follow.
    fn may_have_other_names(&self) -> bool {
        let by_link = self.dereference == Dereference::Always
            || (self.entry.operand.is_some() && self.dereference == Dereference::Operands);
        // An operand moved earlier may have been another name of this file, which now has one name
        // left.
        let by_move = self.rules.moves && self.job.memory.is_claimed(&self.source);
        self.source.nlink > 1 || by_link || by_move
    }

    /// Returns true if no name of a file occurs twice: with one operand and no followed links. A
    /// moved name does not occur twice either.
    fn has_unique_names(&self) -> bool {
        let one_operand =
            self.entry.parent.names().is_some_and(|names| names.is_only_one || self.rules.moves);
        self.dereference == Dereference::Never && one_operand
    }

    /// Returns the follow mode for the source's links.
    fn follows(&self) -> Follow {
        if self.dereference == Dereference::Never { Follow::No } else { Follow::Yes }
    }

    fn source_path(&self) -> OsString {
        self.entry.source_path()
    }

    fn sink_path(&self) -> OsString {
        self.entry.sink_path()
    }

    /// Returns the sink, so that other names of the source can be linked to it.
    fn linkable(&self) -> LinkedName {
        (Arc::clone(&self.entry.parent), self.sink_name().to_owned())
    }

    /// Returns the name relative to the parent's sink end. An empty name means that directory
    /// itself.
    fn sink_name(&self) -> &OsStr {
        let name = &*self.entry.sink_name;
        if name.is_empty() && !self.entry.parent.sink_path().is_empty() { OsStr::new(".") } else { name }
    }

    fn cannot(&self, action: &'static str) -> impl FnOnce(std::io::Error) -> CopyError {
        move |source| CopyError::Cannot { action, path: self.sink_path(), source }
    }

    /// Prints the line of `-v`: `'a' -> 'b' (backup: 'b~')`.
    fn report_made(&self, backup: Option<&OsStr>) {
        self.report_line(Some(self.made_line(backup)));
    }

    fn made_line(&self, backup: Option<&OsStr>) -> OsString {
        let mut line = made_line(self.rules, &self.source_path(), &self.sink_path());
        if let Some(backup) = backup {
            let path = self.entry.parent.sink_path_of(backup);
            line.push(format!(" (backup: {})", quote(&path)));
        }
        line
    }

    fn report_line(&self, line: Option<OsString>) {
        if let Some(line) = line {
            self.job.report.made(&line);
        }
    }

    /// Returns the line of `-v` if it must wait for the copy method, which `--debug` appends.
    fn made_later(&self, sink: &Sink) -> Option<OsString> {
        let rules = self.rules;
        let moves = self.reads_as_regular(self.source.kind) && rules.make == Make::Copy;
        let waits = rules.debug && moves && !rules.attributes_only && self.entry.ranges.is_none();
        waits.then(|| self.made_line(sink.backup.as_deref()))
    }

    /// Prints the line of `-v` for a file removed to make place for the sink.
    fn report_removed(&self) {
        if self.rules.verbose {
            let line = format!("removed {}", quote(&self.sink_path()));
            self.job.report.made(OsStr::new(&line));
        }
    }
}

/// Result of a look-up in the job's memory.
enum LookupResult<'m> {
    /// The entry must be created. The first name of a file that may have more names holds its claim
    /// meanwhile.
    Nothing(Option<FirstSink<'m>>),
    /// The entry is already created.
    Through,
}

/// Returns the line `'a' -> 'b'`, or `copied 'a' -> 'b'` for mv.
pub(crate) fn made_line(rules: &CopyRules, source: &OsStr, sink: &OsStr) -> OsString {
    let verb = if rules.moves { "copied " } else { "" };
    OsString::from(format!("{verb}{} -> {}", quote(source), quote(sink)))
}

impl Entry {
    /// Returns the path of the source for messages.
    pub(crate) fn source_path(&self) -> OsString {
        self.parent.source_path_of(&self.source_name)
    }

    /// Returns the path of the sink for messages.
    pub(crate) fn sink_path(&self) -> OsString {
        self.parent.sink_path_of(&self.sink_name)
    }
}
