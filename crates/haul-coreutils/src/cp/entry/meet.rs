//! Checks of an existing sink and rules for its replacement: `-n`, `-i`, `-u`, `-b`,
//! `--remove-destination`.

use super::same::SelfCopy;
use super::task::{Sink, Task};
use crate::cp::backup;
use crate::cp::links::LinkAction;
use crate::cp::rules::{Dereference, Existing, Make};
use crate::location::Location;
use haul_engine::copy::{CopyError, Question, Refusal, Tally, is_as_new, quote};
use haul_storage::{FileKind, Follow, SourceFile, Stat};
use haul_sys::process;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

/// Returns true for `ELOOP`. The number is the same on all architectures of Linux but three; the
/// error kind is unstable in the standard library.
fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(40)
}

impl Task<'_, '_> {
    /// Checks the sink and removes obstacles. Returns `None` if the entry is to be skipped.
    pub(super) fn meet(&self) -> Result<Option<Sink>, CopyError> {
        let mut sink = self.look_at_sink()?;
        if let Some(before) = sink.before {
            if self.job.is_own_waybill(&before) {
                return Err(Refusal::OwnWaybill(self.sink_path()).into());
            }
            if self.was_finished(&before)? {
                return Ok(None);
            }
            if !self.may_replace(&before)? {
                self.skipped();
                return Ok(None);
            }
            // A question may have waited for a long time. If a stop came meanwhile, the sink is
            // left unchanged.
            if self.job.is_stopping() {
                return Ok(None);
            }
            self.clear(&before, &mut sink)?;
        }
        self.refuse_just_created_link()?;
        Ok(Some(sink))
    }

    /// Returns true if an earlier run of this job finished the sink. Other names of the source are
    /// still linked to it.
    fn was_finished(&self, before: &Stat) -> Result<bool, CopyError> {
        let Some(log) = self.job.context.log else { return Ok(false) };
        let open = || self.open_both(before);
        if !log.is_finished(&self.job.context.observer, before, &self.source, open, || self.sink_path()) {
            return Ok(false);
        }
        if self.keeps_links() {
            self.link_or_remember(before)?;
        }
        let tally = self.job.tally();
        Tally::add(&tally.bytes_done, self.source.size);
        Tally::add(&tally.bytes_kept, self.source.size);
        Tally::add(&tally.files_kept, 1);
        self.report_skipped();
        Ok(true)
    }

    /// Opens source and sink for reading, if both are still the files that were found.
    fn open_both(&self, before: &Stat) -> io::Result<(Arc<dyn SourceFile>, Arc<dyn SourceFile>)> {
        let follow = if self.looks_at_link() { Follow::No } else { Follow::Yes };
        let open = |place: Location<'_>, follow, met: &Stat| {
            let file = place.source(follow, &self.job.opened)?;
            match file.opened().identity() == met.identity() {
                true => Ok(file),
                false => Err(io::Error::other("another file has this name now")),
            }
        };
        let source = open(self.entry.source(), self.follows(), &self.source)?;
        Ok((source, open(self.sink_at(), follow, before)?))
    }

    fn look_at_sink(&self) -> Result<Sink, CopyError> {
        let new = Sink { before: None, is_new: true, backup: self.entry.backup.clone() };
        let operand = self.entry.operand.unwrap_or_default();
        let known_new = if self.entry.operand.is_some() {
            operand.sink_is_new || (operand.sink_is_missing && !self.looks_at_link())
        } else {
            self.entry.parent.sink_is_new
        };
        if known_new {
            return Ok(new);
        }
        let follow = if self.looks_at_link() { Follow::No } else { Follow::Yes };
        match self.sink_at().stat(follow) {
            Ok(before) => {
                let before = self.linked_directory(&before).unwrap_or(before);
                Ok(Sink { before: Some(before), is_new: false, backup: None })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(new),
            // The open will fail, and then the link is removed.
            Err(error) if is_loop(&error) && self.rules.force => {
                Ok(Sink { before: None, is_new: false, backup: None })
            }
            Err(error) => Err(self.cannot("stat")(error)),
        }
    }

    /// Returns the directory that a link at the sink leads to, if a directory is copied with
    /// `--keep-directory-symlink`.
    fn linked_directory(&self, before: &Stat) -> Option<Stat> {
        let is_asked_for = self.rules.keep_directory_symlink && self.source.kind == FileKind::Directory;
        if !is_asked_for || before.kind != FileKind::Symlink {
            return None;
        }
        let led_to = self.sink_at().stat(Follow::Yes).ok();
        led_to.filter(|led_to| led_to.kind == FileKind::Directory)
    }

    /// Returns true if a link at the sink is checked itself, because no data will be written
    /// through it.
    fn looks_at_link(&self) -> bool {
        let kind = self.source.kind;
        let made_by_name = !self.reads_as_regular(kind);
        made_by_name
            || self.rules.make != Make::Copy
            || self.rules.backup.is_some()
            || self.removes_destination()
    }

    /// Returns the value of `--remove-destination`.
    pub(super) fn removes_destination(&self) -> bool {
        self.rules.remove_destination
    }

    /// Applies the rules for existing sinks. Returns false if the entry is to be skipped.
    fn may_replace(&self, before: &Stat) -> Result<bool, CopyError> {
        let keeps = matches!(self.rules.existing, Existing::Keep | Existing::Refuse);
        let self_copy = if keeps { SelfCopy::Apart } else { self.self_copy(before) };
        if self_copy == SelfCopy::Same {
            let (source_path, sink) = (self.source_path(), self.sink_path());
            return Err(Refusal::SameFile { source_path, sink }.into());
        }
        let is_directory = self.source.kind == FileKind::Directory;
        if self.rules.update
            && !is_directory
            && is_as_new(before, &self.source, self.rules.preserve.timestamps)
        {
            // As with cp, this applies even if links are not preserved otherwise.
            if self.may_have_other_names() {
                self.link_or_remember(before)?;
            }
            self.report_skipped();
            return Ok(false);
        }
        if !is_directory {
            let wanted = match self.rules.existing {
                Existing::Overwrite => true,
                Existing::Keep => false,
                Existing::Refuse => return Err(Refusal::NotReplacing(self.sink_path()).into()),
                Existing::Ask => self.ask(before),
            };
            if !wanted {
                self.report_skipped();
                return Ok(false);
            }
        }
        if self_copy == SelfCopy::Done {
            return Ok(false);
        }
        self.refuse_kinds(before)?;
        Ok(true)
    }

    /// Handles links of a skipped sink: links other names of the source to the sink, or the sink to
    /// the sink of an earlier name.
    fn link_or_remember(&self, standing: &Stat) -> Result<(), CopyError> {
        match self.job.memory.claim(&self.source, self.has_unique_names()) {
            LinkAction::First(first) => {
                first.made(self.linkable(), true);
                Ok(())
            }
            LinkAction::Earlier(earlier) if self.link_to_earlier(&earlier, Some(standing))? => Ok(()),
            LinkAction::Earlier(earlier) => {
                Err(CopyError::LinkUndone { path: self.sink_path(), target: earlier.path() })
            }
        }
    }

    /// Refuses to replace a file by a directory, a directory by a file, or the sink of an earlier
    /// operand.
    fn refuse_kinds(&self, before: &Stat) -> Result<(), CopyError> {
        let ends = || (self.source_path(), self.sink_path());
        let from_directory = self.source.kind == FileKind::Directory;
        let to_directory = before.kind == FileKind::Directory;
        if !to_directory && from_directory {
            let (source_path, sink) = ends();
            return Err(Refusal::NonDirectory { sink, source_path }.into());
        }
        let numbered = self
            .rules
            .backup
            .as_ref()
            .is_some_and(|backup| backup.method == crate::cp::rules::BackupMethod::Numbered);
        if !to_directory && self.sinks_collide() && !numbered && self.was_made_before(before) {
            let (source_path, sink) = ends();
            return Err(Refusal::JustCreated { sink, source_path }.into());
        }
        if to_directory && !from_directory {
            return Err(Refusal::Directory(self.sink_path()).into());
        }
        Ok(())
    }

    /// Moves an existing sink away or removes it, if the rules require that before it is opened.
    fn clear(&self, before: &Stat, sink: &mut Sink) -> Result<(), CopyError> {
        if before.kind == FileKind::Directory {
            return Ok(());
        }
        let standing = self.sink_at();
        let last = crate::paths::last_component(&self.entry.source_name);
        if let Some(rule) = &self.rules.backup
            && last != "."
            && last != ".."
        {
            let ends_source =
                self.needs_source_behind_link() && backup::would_end_source(&self.source, &standing, rule);
            if ends_source || backup::would_take_source((last, &self.source), &standing, rule) {
                let (sink, source_path) = (self.sink_path(), self.source_path());
                return Err(Refusal::BackupIsSource { sink, source_path }.into());
            }
            sink.backup = backup::rename(&standing, rule).map_err(self.cannot("backup"))?;
            sink.is_new = true;
        } else if self.removes_destination() || self.breaks_links(before) {
            match standing.unlink() {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.cannot("remove")(error));
                }
                _ => {}
            }
            self.report_removed();
            sink.is_new = true;
        }
        Ok(())
    }

    /// Returns true if the source must still be read or linked to by a name that is not its own.
    fn needs_source_behind_link(&self) -> bool {
        let is_needed = match self.rules.make {
            Make::Copy => self.reads_as_regular(self.source.kind),
            Make::HardLink => true,
            Make::SymbolicLink => false,
        };
        is_needed && self.dereference != Dereference::Never
    }

    /// Returns true if an existing sink must be removed and not written into. If hard links are
    /// preserved, the other names of the sink belong to other files. A sink for a non-regular
    /// source cannot be written into.
    fn breaks_links(&self, before: &Stat) -> bool {
        let links = self.rules.preserve.links && before.nlink > 1;
        let by_name = self.dereference == Dereference::Never && self.source.kind != FileKind::Regular;
        !self.rules.attributes_only && (links || by_name)
    }

    /// Refuses to write through a link that an earlier operand created.
    fn refuse_just_created_link(&self) -> Result<(), CopyError> {
        if !self.sinks_collide() || self.rules.backup.is_some() {
            return Ok(());
        }
        match self.sink_at().stat(Follow::No) {
            Ok(standing) if standing.kind == FileKind::Symlink && self.was_made_before(&standing) => {
                let (source_path, sink) = (self.source_path(), self.sink_path());
                Err(Refusal::ThroughJustCreated { source_path, sink }.into())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn sinks_collide(&self) -> bool {
        self.entry.operand.is_some_and(|operand| operand.sinks_collide)
    }

    fn was_made_before(&self, standing: &Stat) -> bool {
        self.job.memory.sink_was_made(&self.entry.sink_name, standing.identity())
    }

    /// Prints a skipped sink for `--debug`.
    fn report_skipped(&self) {
        if self.rules.debug {
            let line = format!("skipped {}", quote(&self.sink_path()));
            self.job.report().made(OsStr::new(&line));
        }
    }

    /// Asks the user (`-i`).
    fn ask(&self, before: &Stat) -> bool {
        let sink = self.sink_path();
        let name = quote(&sink);
        let text = if is_writable(before) {
            format!("overwrite {name}? ")
        } else {
            let (mode, letters) = (before.mode, mode_letters(before.mode));
            if self.rules.force || self.removes_destination() {
                format!("replace {name}, overriding mode {mode:04o} ({letters})? ")
            } else {
                format!("unwritable {name} (mode {mode:04o}, {letters}); try anyway? ")
            }
        };
        self.job.report().ask(&Question { text: OsStr::new(&text) })
    }
}

/// Returns true if this process may write the file, according to the mode of the file.
pub(crate) fn is_writable(file: &Stat) -> bool {
    let user = process::effective_user();
    let may = if user == 0 {
        0o222
    } else if file.uid == user {
        0o200
    } else if process::groups().is_ok_and(|groups| groups.contains(&file.gid)) {
        0o020
    } else {
        0o002
    };
    user == 0 || file.kind == FileKind::Symlink || file.mode & may != 0
}

/// Returns the permission bits as ls prints them, without the letter for the file type.
pub(crate) fn mode_letters(mode: u32) -> String {
    let triple = |shift: u32, special: u32, set: char| {
        let bits = mode >> shift;
        let execute = match (bits & 1 != 0, mode & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => set,
            (false, true) => set.to_ascii_uppercase(),
        };
        let read = if bits & 4 != 0 { 'r' } else { '-' };
        let write = if bits & 2 != 0 { 'w' } else { '-' };
        [read, write, execute]
    };
    let all = [triple(6, 0o4000, 's'), triple(3, 0o2000, 's'), triple(0, 0o1000, 't')];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::mode_letters;

    #[test]
    fn modes_are_formatted_like_ls() {
        for (mode, letters) in [
            (0o644, "rw-r--r--"),
            (0o000, "---------"),
            (0o4755, "rwsr-xr-x"),
            (0o4644, "rwSr--r--"),
            (0o2775, "rwxrwsr-x"),
            (0o1777, "rwxrwxrwt"),
            (0o1776, "rwxrwxrwT"),
        ] {
            assert_eq!(mode_letters(mode), letters);
        }
    }
}
