//! Decisions of cp about one entry of the tree.
//!
//! The source of an entry is stat'ed and compared with the existing sink ([`meet`]). Then the entry
//! is created. A directory is entered later ([`enter`]). A regular file is opened at both ends
//! ([`regular`]), and the data path of the engine copies its bytes. All other types are created
//! immediately ([`make`]).

mod enter;
mod later_range;
mod make;
mod meet;
mod regular;
mod same;
mod standing;
mod task;

pub(crate) use later_range::LaterRange;
pub(crate) use meet::{is_writable, mode_letters};
pub(crate) use same::is_one_name;

use super::copied_file::undo_backup;
use super::job::Job;
use super::links::{FirstSink, LinkAction};
use super::rules::{Dereference, Existing};
use super::tree_entry::Entry;
use super::tree_worker::{Counted, TreeWorker, Walk};
use haul_engine::copy::{CopyError, FileJob, Moved, Refusal, Tally};
use haul_storage::{FileKind, Follow, Stat};
use task::{EntryOutcome, Sink, Task};

/// Decides how to copy an entry, and copies it. The data path copies the bytes of regular files.
pub(crate) fn copy<'j>(job: &'j Job<'j>, worker: &mut TreeWorker<'_, 'j>, entry: Entry) {
    copy_then(job, worker, entry, || ());
}

/// Does the same, and calls `decided` once a directory is recorded and before its walk is offered.
pub(crate) fn copy_then<'j>(
    job: &'j Job<'j>,
    worker: &mut TreeWorker<'_, 'j>,
    entry: Entry,
    decided: impl FnOnce(),
) {
    let counted = entry.counted == Counted::Ahead;
    let catch_up = || {
        if counted {
            job.tally().caught_up();
        }
    };
    if let Some(file) = regular::into_new_directory(job, &entry) {
        decided();
        catch_up();
        job.tally().handled();
        return worker.move_file(file);
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
        job.tally().handled();
    }
    match fate {
        EntryOutcome::Move(file) => copy_unless_attributes_only(job, worker, *file),
        EntryOutcome::Enter(new) => {
            if job.settings.rules.existing == Existing::Ask {
                // Questions appear in cp's order: those about the contents of the directory come
                // before those about later entries.
                worker.share_entries();
            }
            worker.pool().offer_walk(Walk::Enter(new));
        }
        EntryOutcome::Through => {
            if is_file {
                Tally::add(&job.tally().files_done, 1);
            }
            job.leave(&entry.parent);
        }
    }
}

/// Copies a later range of a file, depending on the outcome of the first range. Releases `parent`
/// if there is nothing to do.
pub(crate) fn copy_range<'j>(job: &'j Job<'j>, worker: &mut TreeWorker<'_, 'j>, range: LaterRange<'_>) {
    let LaterRange { ranges, parent, .. } = range;
    let opened = later_range::open(job, range);
    job.tally().handled();
    match opened {
        Ok(Some(file)) => copy_unless_attributes_only(job, worker, file),
        Ok(None) => job.leave(parent),
        Err(error) => {
            ranges.fail();
            job.fail(&error);
            job.leave(parent);
        }
    }
}

/// With `--attributes-only`, copies no bytes and finishes the file like any other. Otherwise copies
/// the file.
fn copy_unless_attributes_only<'j>(job: &Job<'j>, worker: &mut TreeWorker<'_, 'j>, file: FileJob<'j>) {
    if job.settings.rules.attributes_only {
        Tally::add(&job.tally().bytes_skipped, file.source_stat.size);
        file.complete(Ok(Moved::received(0)));
    } else {
        worker.move_file(file);
    }
}

fn decide<'j>(job: &'j Job<'j>, entry: &Entry, is_file: &mut bool) -> Result<EntryOutcome<'j>, CopyError> {
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
    if job.is_own_waybill(&source) {
        // A waybill inside the tree is skipped, because it grows until the job ends.
        return match entry.operand {
            Some(_) => Err(Refusal::OwnWaybill(entry.source_path()).into()),
            None => Ok(EntryOutcome::Through),
        };
    }
    if source.kind == FileKind::Regular {
        *is_file = true;
        if entry.counted == Counted::Later {
            count_file(job.tally(), &source);
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

fn count_file(tally: &Tally, source: &Stat) {
    Tally::add(&tally.bytes_found, source.size);
    Tally::add(&tally.files_found, 1);
}

impl<'j> Task<'_, 'j> {
    /// Creates the entry at its sink. If that fails, the old sink gets its name back.
    fn carry_out(&self, sink: Sink) -> Result<EntryOutcome<'j>, CopyError> {
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
            undo_backup(
                &self.job.context.observer,
                self.rules,
                &self.entry.parent,
                &self.entry.sink_name,
                backup,
            );
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
}

/// Result of a look-up in the job's memory.
enum LookupResult<'m> {
    /// The entry must be created. The first name of a file that may have more names holds its claim
    /// meanwhile.
    Nothing(Option<FirstSink<'m>>),
    /// The entry is already created.
    Through,
}

/// Stats the source of an entry, following links as `-L`, `-H` and `-P` specify.
fn stat_source(entry: &Entry, dereference: Dereference) -> Result<Stat, CopyError> {
    let follow = if dereference == Dereference::Never { Follow::No } else { Follow::Yes };
    let failed = |source| CopyError::Cannot { action: "stat", path: entry.source_path(), source };
    entry.source().stat(follow).map_err(failed)
}
