//! Completion of files and directories: checks the source again, sets the metadata, and notifies
//! the parent.

use super::descriptors::Opened;
use super::digesting::FileHash;
use super::directory::Directory;
use super::error::CopyError;
use super::file::{FileMove, SinkState};
use super::job::Job;
use super::metadata;
use super::pipeline::Moved;
use super::receipt;
use super::report::{FileFigures, HashLine, Tally};
use super::steady;
use haul_digest::Digest;
use haul_model::{ByteOffset, ByteRange, Level};
use haul_sys::metadata::{Times, set_times_fd};
use haul_sys::sparse::set_len;
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{Contents, FileKind, Follow, Stat, Timespec, cache, open};
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Finishes a file whose bytes were copied, or failed to be. Metadata is set last and times last of
/// all. A sink with its source's modification time is therefore a finished one.
pub(crate) fn finish(job: &Job<'_>, file: &FileMove, moved: Result<Moved, CopyError>) {
    let settled = moved.and_then(|moved| {
        steady::check(job, file, &moved)?;
        if let Some(error) = file.settle.logged.as_ref().and_then(|logged| logged.take_failure()) {
            return Err(error);
        }
        if file.sink_is_regular {
            let failed = |source| CopyError::CloseFailed { path: file.sink_path(), source };
            job.closing.flush(&file.sink, file.sink_dev).map_err(failed)?;
        }
        metadata::settle_file(job, file)?;
        if job.settings.moving.sync_each && file.sink_is_regular {
            let failed =
                |source| CopyError::Failed { doing: "error syncing", path: file.sink_path(), source };
            cache::sync_all(&file.sink).map_err(failed)?;
        }
        if let Some(log) = job.settings.moving.log.as_ref().filter(|_| file.sink_is_regular) {
            log.sync_alone(job, file)?;
        }
        if let Some(sums) = moved.hash.as_ref().and_then(|hash| hash.receipt.as_ref())
            && file.sink_is_regular
        {
            receipt::file(job, file, &moved, sums)?;
        }
        Ok(moved)
    });
    match settled {
        Ok(mut moved) => {
            if file.settle.logged.as_ref().is_some_and(|logged| logged.compared_some.load(Ordering::Relaxed))
            {
                // Objects found by comparison came from the page cache, and were synced with the
                // rest.
                moved.level = moved.level.min(Level::Durable);
            }
            if let Some(log) = job.settings.moving.log.as_ref().filter(|_| file.sink_is_regular) {
                log.finished(job, file, moved.bytes);
            }
            tell(job, file, &moved);
            if job.settings.rules.new_mode.is_some() {
                job.hold_new_file(file);
            }
            if let Some(identity) = file.settle.linked {
                for (parent, name) in job.memory.settled(identity) {
                    let sink = parent.sink_path_of(&name);
                    receipt::same(job, &sink, &file.sink_path(), || stat_fd(&file.sink));
                }
            }
        }
        Err(error) => give_up(job, file, &error),
    }
    if file.source_stat.kind != FileKind::Regular {
        // A stream was not counted as a file when it was found, so it is counted when it is
        // finished.
        Tally::add(&job.tally.files_found, 1);
    }
    Tally::add(&job.tally.files_done, 1);
    leave(job, &file.parent);
}

/// Syncs the names in a directory. Reports a failure.
pub(crate) fn sync(job: &Job<'_>, sink: BorrowedFd<'_>, path: impl Fn() -> OsString) {
    if let Err(source) = cache::sync_all(sink) {
        job.is_unsynced.store(true, Ordering::Relaxed);
        job.fail(&CopyError::Failed { doing: "error syncing", path: path(), source });
    }
}

/// Returns true if the source's size or modification time changed since it was opened. Pipes and
/// devices have no state to compare.
pub(crate) fn source_was_replaced(file: &FileMove) -> bool {
    let was = &file.source_stat;
    let may_be_same = |now: Stat| now.contents_since(was) != Contents::Changed;
    was.kind == FileKind::Regular && !stat_fd(&file.source).is_ok_and(may_be_same)
}

fn tell(job: &Job<'_>, file: &FileMove, moved: &Moved) {
    report_copy_details(job, file);
    let print = &job.settings.print;
    // A digest that was computed only to check the transfer is not printed.
    let is_asked = print.hash && job.settings.moving.digest.is_some();
    if let (true, Some(hash)) = (is_asked, &moved.hash) {
        let name = if print.source_name { file.source_path() } else { file.sink_path() };
        let moving = &job.settings.moving;
        let (offset, length) = file.part.map_or((moving.offset, moving.length), |part| (part.0, part.1));
        let part = (offset != ByteOffset(0) || length.is_some())
            .then(|| ByteRange::between(offset.0, offset.0 + moved.bytes));
        job.report.hashed(&HashLine { name: &name, digests: &hash.digests, tree: hash.tree, part });
    }
    if job.report.wants_figures() {
        job.report.finished(&FileFigures {
            source: &file.source_path(),
            sink: &file.sink_path(),
            bytes: moved.bytes,
            took: file.begun.elapsed(),
            level: moved.level,
            passed: passed(job, moved),
        });
    }
}

/// Returns the digest of bytes that were hashed but not compared, if the options request it.
fn passed(job: &Job<'_>, moved: &Moved) -> Option<Digest> {
    let only_passed = job.settings.moving.verify.needs_bytes() && moved.level == Level::Received;
    moved.hash.as_ref().filter(|_| only_passed).and_then(FileHash::whole)
}

/// Prints the line of a file and its copy method for `--debug`.
fn report_copy_details(job: &Job<'_>, file: &FileMove) {
    if let Some(text) = file.settle.copy_details.debug_text() {
        job.report.made(&text);
    }
}

/// Leaves a failed file in a state that never counts as finished. The file gets a modification time
/// older than any source's, so that `--update` copies it again. If a stop interrupted the file and
/// this job created it, the file is removed.
fn give_up(job: &Job<'_>, file: &FileMove, error: &CopyError) {
    report_copy_details(job, file);
    let interrupted = matches!(error, CopyError::Interrupted { .. });
    // Errors are ignored here: a file that cannot be marked or removed is still named in a message.
    // The file is marked even before its removal, because it may have other names.
    if file.sink_is_regular && !file.is_untouched() {
        // Preallocated space that was not filled is released.
        let _ = stat_fd(&file.sink).and_then(|now| set_len(&file.sink, now.size));
        let _ = set_times_fd(&file.sink, unfinished(&file.source_stat));
    }
    if let (Some(log), Some(logged)) = (&job.settings.moving.log, &file.settle.logged)
        && logged.has_failed()
    {
        log.revoke_failed(job, logged);
    }
    // Data that a later run resumes with is kept.
    let is_resumable = file.settle.logged.is_some();
    if interrupted && file.sink_state == SinkState::New && !is_resumable {
        let _ = open::unlink_at(file.parent.sink(), &*file.sink_name);
    }
    for follow in [Follow::No, Follow::Yes] {
        if let Ok(sink) = stat_at(file.parent.sink(), &*file.sink_name, follow) {
            job.memory.forget_sink(&file.sink_name, &sink, file.source_stat.identity());
        }
    }
    file.undo(job);
    if interrupted {
        job.was_cut_off(file.sink_path());
    } else {
        job.fail(error);
    }
}

/// Returns the times of an incomplete sink: modified in 1970, or before its source if the source is
/// even older.
pub(crate) fn unfinished(source: &Stat) -> Times {
    let before = source.mtime.sec.saturating_sub(1);
    Times { atime: None, mtime: Some(Timespec { sec: before.min(0), nsec: 0 }) }
}

/// Records that one item beneath a directory has finished. Settles the directory if it was the last
/// one, and continues upward.
pub(crate) fn leave(job: &Job<'_>, directory: &Arc<Directory>) {
    go_up(job, directory, None);
}

/// Like [`leave`], for an open directory, which is closed as early as possible.
pub(crate) fn leave_open(job: &Job<'_>, opened: Opened) {
    let directory = Arc::clone(&opened);
    go_up(job, &directory, Some(opened));
}

fn go_up(job: &Job<'_>, mut current: &Arc<Directory>, mut above: Option<Opened>) {
    // An open directory beneath another opens the upper one in one step.
    while current.finish_one() {
        let opened = above.take().map_or_else(|| job.descriptors.open(current), Ok);
        // This must happen before the directory gets its mode, which may deny access to its parent.
        above = opened.as_ref().ok().and_then(|opened| job.descriptors.open_above(opened));
        let has_receipt = job.settings.moving.receipt.is_some();
        let standing = opened.as_ref().ok().filter(|_| has_receipt).cloned();
        metadata::settle_directory(job, current, opened, above.as_ref());
        receipt::directory(job, current, standing.as_ref());
        match &current.parent {
            Some(parent) => current = parent,
            None => return,
        }
    }
}
