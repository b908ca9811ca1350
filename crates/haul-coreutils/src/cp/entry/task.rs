//! Context of the decisions about one entry.

use crate::cp::directory::NewDirectory;
use crate::cp::job::Job;
use crate::cp::links::LinkedName;
use crate::cp::rules::{CopyRules, Dereference, Make};
use crate::cp::tree_entry::Entry;
use crate::location::{EntryName, Location};
use haul_engine::copy::{CopyError, FileJob, Tally, quote};
use haul_model::ByteOffset;
use haul_storage::{FileKind, Follow, Stat};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// Outcome of an entry, as far as this worker handles it alone.
#[derive(Debug)]
pub(super) enum EntryOutcome<'j> {
    /// Nothing is left to do.
    Through,
    /// Bytes must be copied.
    Move(Box<FileJob<'j>>),
    /// The directory exists at the sink and must be filled.
    Enter(Box<NewDirectory>),
}

/// Context for the decision about one entry.
pub(super) struct Task<'a, 'j> {
    pub(super) job: &'j Job<'j>,
    pub(super) rules: &'a CopyRules,
    pub(super) entry: &'a Entry,
    /// Links that are followed here: with `-H`, only those that the command named.
    pub(super) dereference: Dereference,
    pub(super) source: Stat,
}

/// State of the sink at the time of the write.
#[derive(Debug, Default)]
pub(super) struct Sink {
    /// Result of the stat call; `None` if nothing was found or the state is unknown.
    pub(super) before: Option<Stat>,
    /// True if no sink exists (any more).
    pub(super) is_new: bool,
    /// Backup name of the old sink.
    pub(super) backup: Option<OsString>,
}

impl Task<'_, '_> {
    /// Returns true if the sink keeps the data outside the copied part.
    pub(super) fn keeps_bytes(&self) -> bool {
        let moving = self.job.context.moving;
        self.rules.attributes_only
            || self.entry.part.is_some()
            || moving.offset != ByteOffset(0)
            || moving.length.is_some()
            || moving.sink_offset.is_some()
    }

    /// Counts the bytes of an entry that need not be copied.
    pub(super) fn skipped(&self) {
        if self.source.kind == FileKind::Regular {
            Tally::add(&self.job.tally().bytes_skipped, self.source.size);
        }
    }

    /// Returns true if other names of this file may follow that must become links to one sink.
    pub(super) fn keeps_links(&self) -> bool {
        self.rules.preserve.links && self.rules.make != Make::HardLink && self.may_have_other_names()
    }

    /// Returns true if other names of this file may follow.
    pub(super) fn may_have_other_names(&self) -> bool {
        let by_link = self.dereference == Dereference::Always
            || (self.entry.operand.is_some() && self.dereference == Dereference::Operands);
        // An operand moved earlier may have been another name of this file, which now has one name
        // left.
        let by_move = self.rules.moves && self.job.memory.is_claimed(&self.source);
        self.source.nlink > 1 || by_link || by_move
    }

    /// Returns true if no name of a file occurs twice: with one operand and no followed links. A
    /// moved name does not occur twice either.
    pub(super) fn has_unique_names(&self) -> bool {
        let one_operand =
            self.entry.parent.names().is_some_and(|names| names.is_only_one || self.rules.moves);
        self.dereference == Dereference::Never && one_operand
    }

    /// Returns the follow mode for the source's links.
    pub(super) fn follows(&self) -> Follow {
        if self.dereference == Dereference::Never { Follow::No } else { Follow::Yes }
    }

    pub(super) fn source_path(&self) -> OsString {
        self.entry.source_path()
    }

    pub(super) fn sink_path(&self) -> OsString {
        self.entry.sink_path()
    }

    /// Returns the sink, so that other names of the source can be linked to it.
    pub(super) fn linkable(&self) -> LinkedName {
        (Arc::clone(&self.entry.parent), self.sink_name().to_owned())
    }

    /// Returns a copy of [`Task::sink_name`].
    pub(super) fn owned_sink_name(&self) -> EntryName {
        match self.sink_name() {
            name if name == OsStr::new(".") => EntryName::Path(name.to_owned()),
            _ => self.entry.sink_name.clone(),
        }
    }

    /// Returns the name relative to the parent's sink. An empty name means that directory
    /// itself.
    pub(super) fn sink_name(&self) -> &OsStr {
        let name = &*self.entry.sink_name;
        if name.is_empty() && !self.entry.parent.sink_path().is_empty() { OsStr::new(".") } else { name }
    }

    /// Returns the location of the sink.
    pub(super) fn sink_at(&self) -> Location<'_> {
        match self.sink_name() {
            name if name == OsStr::new(".") => self.entry.parent.sink_at(name),
            _ => self.entry.parent.sink_at(&self.entry.sink_name),
        }
    }

    pub(super) fn cannot(&self, action: &'static str) -> impl FnOnce(std::io::Error) -> CopyError {
        move |source| CopyError::Cannot { action, path: self.sink_path(), source }
    }

    /// Prints the line of `-v`: `'a' -> 'b' (backup: 'b~')`.
    pub(super) fn report_made(&self, backup: Option<&OsStr>) {
        self.report_line(Some(self.made_line(backup)));
    }

    pub(super) fn made_line(&self, backup: Option<&OsStr>) -> OsString {
        let mut line = made_line(self.rules, &self.source_path(), &self.sink_path());
        if let Some(backup) = backup {
            let path = self.entry.parent.sink_path_of(backup);
            line.push(format!(" (backup: {})", quote(&path)));
        }
        line
    }

    pub(super) fn report_line(&self, line: Option<OsString>) {
        if let Some(line) = line {
            self.job.report().made(&line);
        }
    }

    /// Returns the line of `-v` if it must wait for the copy method, which `--debug` appends.
    pub(super) fn made_later(&self, sink: &Sink) -> Option<OsString> {
        let rules = self.rules;
        let moves = self.reads_as_regular(self.source.kind) && rules.make == Make::Copy;
        let waits = rules.debug && moves && !rules.attributes_only && self.entry.ranges.is_none();
        waits.then(|| self.made_line(sink.backup.as_deref()))
    }

    /// Prints the line of `-v` for a file removed to make place for the sink.
    pub(super) fn report_removed(&self) {
        if self.rules.verbose {
            let line = format!("removed {}", quote(&self.sink_path()));
            self.job.report().made(OsStr::new(&line));
        }
    }
}

/// Returns the line `'a' -> 'b'`, or `copied 'a' -> 'b'` for mv.
pub(super) fn made_line(rules: &CopyRules, source: &OsStr, sink: &OsStr) -> OsString {
    let verb = if rules.moves { "copied " } else { "" };
    OsString::from(format!("{verb}{} -> {}", quote(source), quote(sink)))
}
