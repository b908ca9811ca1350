//! Checks of an existing sink: whether it may be replaced, and its backup or removal.

use super::error::MoveError;
use super::job::{Job, Operand, cannot};
use super::settings::MoveExisting;
use crate::cp::{self, BackupMethod, is_one_name};
use crate::location::Location;
use crate::paths::last_component;
use haul_engine::copy::{Question, is_as_new, quote};
use haul_storage::{FileKind, Follow, Stat};
use std::ffi::{OsStr, OsString};
use std::io;

impl Job<'_> {
    /// Applies mv's rules for existing sinks. Returns false if the operand is to be skipped.
    pub(super) fn may_replace(
        &self,
        operand: &Operand<'_>,
        source: &Stat,
        standing: &Stat,
    ) -> Result<bool, MoveError> {
        let (path, sink) = (operand.source.to_owned(), operand.sink.to_owned());
        // An operand that is skipped anyway needs no error.
        let is_kept = matches!(self.rules.existing, MoveExisting::Keep | MoveExisting::KeepAndFail);
        if !is_kept && self.is_same_file(operand, source, standing) {
            return Err(MoveError::SameFile { path, sink });
        }
        let from_directory = source.kind == FileKind::Directory;
        let to_directory = standing.kind == FileKind::Directory;
        if self.rules.update && !from_directory && !is_newer(source, standing) {
            return Ok(false);
        }
        if !self.is_wanted(operand, standing)? {
            return Ok(false);
        }
        if from_directory && !to_directory && self.rules.backup.is_none() {
            return Err(MoveError::NonDirectory { sink, path });
        }
        let numbered =
            self.rules.backup.as_ref().is_some_and(|backup| backup.method == BackupMethod::Numbered);
        if !to_directory && !numbered && self.was_created(operand, standing) {
            return Err(MoveError::JustCreated { sink, path });
        }
        if to_directory && !from_directory && self.rules.backup.is_none() {
            return Err(MoveError::Directory(sink));
        }
        Ok(true)
    }

    /// Returns true if an earlier operand created this sink. It is identified by its name. If the
    /// file system treats two names as one, it is identified as an existing file with a single
    /// name.
    fn was_created(&self, operand: &Operand<'_>, standing: &Stat) -> bool {
        let names = self.created.get(&standing.identity());
        names.is_some_and(|names| standing.nlink == 1 || names.contains(operand.name))
    }

    /// Applies `-i`, `-n` and the default question on a terminal.
    fn is_wanted(&self, operand: &Operand<'_>, standing: &Stat) -> Result<bool, MoveError> {
        let writable = || cp::is_writable(standing);
        Ok(match self.rules.existing {
            MoveExisting::Replace => true,
            MoveExisting::AskIfUnwritable => writable() || self.ask(operand, standing, false),
            MoveExisting::Ask => self.ask(operand, standing, writable()),
            MoveExisting::Keep => false,
            MoveExisting::KeepAndFail => return Err(MoveError::NotReplacing(operand.sink.to_owned())),
        })
    }

    fn ask(&self, operand: &Operand<'_>, standing: &Stat, writable: bool) -> bool {
        let text = if writable {
            format!("overwrite {}? ", quote(operand.sink))
        } else {
            let (mode, letters) = (standing.mode, cp::mode_letters(standing.mode));
            format!("replace {}, overriding mode {mode:04o} ({letters})? ", quote(operand.sink))
        };
        self.report.ask(&Question { text: OsStr::new(&text) })
    }

    /// Returns true if a move would lose the source: both names lead to one file, or one is a link
    /// to the other.
    fn is_same_file(&self, operand: &Operand<'_>, source: &Stat, standing: &Stat) -> bool {
        let one_inode = source.identity() == standing.identity();
        let (from_link, to_link) = (is_link(source), is_link(standing));
        let backs_up = self.rules.backup.is_some();
        let one_name = || is_one_name(&operand.source_at(), &operand.sink_at());
        if from_link && to_link {
            if one_name() {
                return true;
            }
            // A rename between two names of one link has no effect and leaves both names.
            return one_inode && !backs_up;
        }
        if backs_up {
            return one_inode && one_name();
        }
        if !from_link {
            // A link can be replaced, even one that leads to the source.
            return one_inode && !to_link;
        }
        if standing.nlink > 1 {
            // The link may replace a name of its file if its target is another name.
            return self.leads_to(operand);
        }
        let target = operand.source_at().stat(Follow::Yes);
        target.is_ok_and(|target| target.identity() == standing.identity())
    }

    /// Returns true if the source, a link, leads to exactly the name of the sink.
    fn leads_to(&self, operand: &Operand<'_>) -> bool {
        std::fs::canonicalize(operand.source)
            .is_ok_and(|target| is_one_name(&Location::here(target.as_os_str()), &operand.sink_at()))
    }

    /// Renames the existing sink (`--backup`). Returns the backup name, relative to the same
    /// directory as the sink.
    pub(super) fn move_aside(
        &self,
        operand: &Operand<'_>,
        source: &Stat,
    ) -> Result<Option<OsString>, MoveError> {
        let last = last_component(operand.source);
        let Some(rule) = self.rules.backup.as_ref().filter(|_| last != "." && last != "..") else {
            return Ok(None);
        };
        let standing = operand.sink_at();
        if cp::would_take_source((last, source), &standing, rule) {
            let (sink, path) = (operand.sink.to_owned(), operand.source.to_owned());
            return Err(MoveError::BackupIsSource { sink, path });
        }
        cp::rename_to_backup(&standing, rule).map_err(|source| cannot("backup", operand.sink, source))
    }

    /// Removes an existing sink before a copy.
    pub(super) fn clear(&self, operand: &Operand<'_>, is_directory: bool) -> Result<(), MoveError> {
        let standing = operand.sink_at();
        let removed = if is_directory { standing.remove_directory() } else { standing.unlink() };
        match removed {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(MoveError::TargetStays {
                path: operand.source.to_owned(),
                sink: operand.sink.to_owned(),
                source,
            }),
            _ => Ok(()),
        }
    }
}

/// Returns true if the source is newer, allowing for a file system that rounds times down.
fn is_newer(source: &Stat, standing: &Stat) -> bool {
    !is_as_new(standing, source, source.dev != standing.dev)
}

fn is_link(stat: &Stat) -> bool {
    stat.kind == FileKind::Symlink
}
