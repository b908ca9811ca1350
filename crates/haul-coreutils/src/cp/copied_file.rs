//! End of a file: checks the source again, sets the metadata, tells the observer, or reverts what
//! was done.

use super::directory::{Directory, Identity};
use super::job::Job;
use super::links::WriteTurn;
use super::ranges::Ranges;
use super::rules::CopyRules;
use super::{explain, metadata, receipt_entries};
use crate::location::{EntryName, Location};
use haul_digest::Digest;
use haul_engine::copy::{
    CopyError, CopySink, FileFigures, FileHash, FileJob, Finish, HashLine, JobObserver, Moved, SinkState,
    Tally, check_source, quote, unfinished,
};
use haul_model::{ByteOffset, ByteRange, Level};
use haul_storage::{FileKind, Follow, Inode, Replace, Stat, SyncWhat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;

/// A file of the tree that is being copied: its names, the metadata to set after its bytes have
/// arrived, and the state to restore if they have not.
pub(crate) struct CopiedFile<'j> {
    pub(crate) job: &'j Job<'j>,
    /// The directory that contains the file. It is notified when the file is finished.
    pub(crate) parent: Arc<Directory>,
    /// Name relative to the parent's source.
    pub(crate) source_name: EntryName,
    /// Name relative to the parent's sink.
    pub(crate) sink_name: EntryName,
    /// Permissions that the file lacks until its owner is set, or has in excess until its
    /// attributes are set.
    pub(crate) differing: u32,
    /// State of an existing sink.
    pub(crate) before: Option<Stat>,
    /// Backup name of the old sink.
    pub(crate) backup: Option<OsString>,
    /// Identity of the source if other names of it were linked to this sink. The sink is complete
    /// after this file.
    pub(crate) linked: Option<Identity>,
    /// Lock that prevents other files of this job from writing the sink meanwhile.
    pub(crate) turn: Option<WriteTurn>,
    /// State shared with the other parts of the same file.
    pub(crate) ranges: Option<Arc<Ranges>>,
    /// The line of `--verbose`, if it is printed together with the copy method, so that lines of
    /// other workers do not separate them.
    pub(crate) made: Option<OsString>,
    /// True if more parts follow. Until then, the file only gets a time that cannot be mistaken for
    /// its source's.
    pub(crate) more_follows: bool,
}

impl std::fmt::Debug for CopiedFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopiedFile").field("sink", &self.sink_path()).finish_non_exhaustive()
    }
}

impl Finish for CopiedFile<'_> {
    fn source_path(&self) -> OsString {
        self.parent.source_path_of(&self.source_name)
    }

    fn sink_path(&self) -> OsString {
        self.parent.sink_path_of(&self.sink_name)
    }

    fn open_device(&self, file: &FileJob<'_>) -> io::Result<Arc<dyn Inode>> {
        let sink = file.sink.file()?;
        let opened = self.job.open_device(&self.sink_at(), sink.device().id);
        // This user may be allowed to read neither.
        opened.or_else(|_| Ok(Arc::clone(sink) as Arc<dyn Inode>))
    }

    fn has_source_name(&self, file: &FileJob<'_>) -> bool {
        let found = self.parent.source_at(&self.source_name).stat(Follow::Yes);
        found.is_ok_and(|now| now.identity() == file.source_stat.identity())
    }

    fn is_awaited(&self) -> bool {
        self.turn.is_some() || self.ranges.is_some() || self.linked.is_some()
    }

    /// Metadata is set last and times last of all. A sink with its source's modification time is
    /// therefore a finished one.
    fn complete(&self, file: &FileJob<'_>, moved: Result<Moved, CopyError>) {
        let job = self.job;
        match moved.and_then(|moved| self.finish_metadata(file, moved)) {
            Ok(moved) => self.finished(file, moved),
            Err(error) => self.give_up(file, &error),
        }
        if file.source_stat.kind != FileKind::Regular {
            // A stream was not counted as a file when it was found, so it is counted when it is
            // finished.
            Tally::add(&job.tally().files_found, 1);
        }
        Tally::add(&job.tally().files_done, 1);
        job.leave(&self.parent);
    }
}

impl CopiedFile<'_> {
    /// Returns the location of the sink.
    fn sink_at(&self) -> Location<'_> {
        self.parent.sink_at(&self.sink_name)
    }

    /// Returns true if this is the last part and earlier parts left the sink with the time of an
    /// unfinished file.
    pub(crate) fn ends_parts(&self) -> bool {
        self.ranges.is_some() && !self.more_follows
    }

    /// Checks the source, and brings the sink to its final state.
    fn finish_metadata(&self, file: &FileJob<'_>, moved: Moved) -> Result<Moved, CopyError> {
        let job = self.job;
        let context = &job.context;
        check_source(context, file, &moved)?;
        if let Some(error) = file.logged.as_ref().and_then(|logged| logged.take_failure()) {
            return Err(error);
        }
        if let CopySink::File(sink) = &file.sink {
            let failed = |source| CopyError::CloseFailed { path: file.sink_path(), source };
            sink.flush().map_err(failed)?;
        }
        metadata::settle_file(self, file)?;
        let CopySink::File(sink) = &file.sink else { return Ok(moved) };
        if context.moving.sync_each {
            let failed =
                |source| CopyError::Failed { doing: "error syncing", path: file.sink_path(), source };
            sink.sync(SyncWhat::All).map_err(failed)?;
        }
        if let Some(log) = context.log {
            log.sync_alone(&context.observer, file)?;
        }
        if let Some(sums) = moved.hash.as_ref().and_then(|hash| hash.receipt.as_ref()) {
            receipt_entries::file(context, file, &self.sink_at(), &moved, sums)?;
        }
        Ok(moved)
    }

    /// Records a file that is complete.
    fn finished(&self, file: &FileJob<'_>, moved: Moved) {
        let job = self.job;
        if moved.level < Level::Verified {
            Tally::add(&job.tally().files_unverified, 1);
        }
        if let Some(log) = job.context.log.filter(|_| file.sink.is_file()) {
            log.finished(&job.context.observer, file, moved.bytes);
        }
        self.tell(file, &moved);
        if job.settings.rules.new_mode.is_some() {
            job.hold_new_file(file);
        }
        if let Some(identity) = self.linked {
            for (parent, name) in job.memory.settled(identity) {
                let sink = parent.sink_path_of(&name);
                receipt_entries::same(&job.context, &sink, &file.sink_path(), || file.sink.stat());
            }
        }
    }

    fn tell(&self, file: &FileJob<'_>, moved: &Moved) {
        let job = self.job;
        self.report_copy_details(file);
        let print = &job.settings.print;
        let moving = job.context.moving;
        // A digest that was computed only to check the transfer is not printed.
        let is_asked = print.hash && moving.digest.is_some();
        if let (true, Some(hash)) = (is_asked, &moved.hash) {
            let name = if print.source_name { file.source_path() } else { file.sink_path() };
            let (offset, length) = file.part.map_or((moving.offset, moving.length), |part| (part.0, part.1));
            let part = (offset != ByteOffset(0) || length.is_some())
                .then(|| ByteRange::between(offset.0, offset.0 + moved.bytes));
            job.report().hashed(&HashLine { name: &name, digests: &hash.digests, tree: hash.tree, part });
        }
        if job.report().wants_figures() {
            // Digest of bytes that were hashed but not compared.
            let only_passed = moving.verify.needs_bytes() && moved.level == Level::Received;
            let passed: Option<Digest> =
                moved.hash.as_ref().filter(|_| only_passed).and_then(FileHash::whole);
            job.report().finished(&FileFigures {
                source: &file.source_path(),
                sink: &file.sink_path(),
                bytes: moved.bytes,
                took: file.opened_at.elapsed(),
                level: moved.level,
                passed,
            });
        }
    }

    /// Prints the line of a file and its copy method for `--debug`.
    fn report_copy_details(&self, file: &FileJob<'_>) {
        if !self.job.settings.rules.debug {
            return;
        }
        let mut text = self.made.clone().unwrap_or_default();
        if let Some(method) = explain::method(file, self.job.context.moving) {
            text.push(if text.is_empty() { "" } else { "\n" });
            text.push(method);
        }
        if !text.is_empty() {
            self.job.report().made(&text);
        }
    }

    /// Leaves a failed file in a state that never counts as finished. The file gets a modification
    /// time older than any source's, so that `--update` copies it again. If a stop interrupted the
    /// file and this job created it, the file is removed.
    fn give_up(&self, file: &FileJob<'_>, error: &CopyError) {
        let job = self.job;
        self.report_copy_details(file);
        let interrupted = matches!(error, CopyError::Interrupted { .. });
        // Errors are ignored here: a file that cannot be marked or removed is still named in a
        // message. The file is marked even before its removal, because it may have other names.
        if let Some(sink) = file.sink.file().ok().filter(|_| !file.is_untouched()) {
            // Preallocated space that was not filled is released.
            let _ = sink.stat().and_then(|now| sink.set_len(now.size));
            let _ = sink.set_times(unfinished(&file.source_stat));
        }
        if let (Some(log), Some(logged)) = (job.context.log, &file.logged)
            && logged.has_failed()
        {
            log.revoke_failed(&job.context.observer, logged);
        }
        // Data that a later run resumes with is kept.
        let is_resumable = file.logged.is_some();
        if interrupted && file.sink_state == SinkState::New && !is_resumable {
            let _ = self.sink_at().unlink();
        }
        for follow in [Follow::No, Follow::Yes] {
            if let Ok(sink) = self.sink_at().stat(follow) {
                job.memory.forget_sink(&self.sink_name, &sink, file.source_stat.identity());
            }
        }
        self.undo();
        if interrupted {
            job.was_cut_off(file.sink_path());
        } else {
            job.fail(error);
        }
    }

    /// Reverts the effects of a file that did not become complete. The old sink gets its name back,
    /// and names linked to the new sink are removed. Other names of the source are copied again.
    fn undo(&self) {
        let job = self.job;
        let ranges = self.ranges.as_ref();
        if let Some(ranges) = ranges {
            ranges.fail();
        }
        if let Some(identity) = self.linked.or_else(|| ranges.and_then(|ranges| ranges.linked())) {
            for (parent, name) in job.memory.forget(identity) {
                self.undo_link(&parent, &name);
            }
        }
        if let Some(backup) = &self.backup {
            undo_backup(&job.context.observer, &job.settings.rules, &self.parent, &self.sink_name, backup);
        }
    }

    /// Removes a link to a sink that did not become complete.
    fn undo_link(&self, parent: &Arc<Directory>, name: &OsStr) {
        let (job, path) = (self.job, parent.sink_path_of(name));
        let _held = match parent.reach() {
            Ok(held) => held,
            Err(error) => return job.fail(&error),
        };
        match parent.sink_at(name).unlink() {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                job.fail(&CopyError::Cannot { action: "remove", path, source });
            }
            _ if job.is_stopping() => job.was_cut_off(path),
            _ => job.fail(&CopyError::LinkUndone { path, target: self.sink_path() }),
        }
    }
}

/// Renames a backup to its former name.
pub(crate) fn undo_backup(
    observer: &JobObserver<'_>,
    rules: &CopyRules,
    parent: &Directory,
    sink: &EntryName,
    backup: &OsStr,
) {
    let path = parent.sink_path_of(sink);
    match parent.sink_at(backup).rename(&parent.sink_at(sink), Replace::Yes) {
        Err(source) => observer.fail(&CopyError::Cannot { action: "un-backup", path, source }),
        Ok(()) if rules.verbose => {
            let line = format!("{} -> {} (unbackup)", quote(&parent.sink_path_of(backup)), quote(&path));
            observer.report.made(OsStr::new(&line));
        }
        Ok(()) => {}
    }
}
