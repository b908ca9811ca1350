//! Regular files, and special files that are read like them: opens both ends, and the pipeline
//! copies the bytes.

use super::standing::{complete, refuse_second_writer};
use super::{Entry, Ranges, Sink, Task, is_own_waybill, made_line};
use crate::copy::contexts::{Label, Labelling};
use crate::copy::descriptors::Opened;
use crate::copy::directory::Directory;
use crate::copy::error::{CopyError, Refusal};
use crate::copy::explain::CopyDetails;
use crate::copy::file::{FileMove, SinkState};
use crate::copy::job::{Counted, Job};
use crate::copy::links::{Identity, WriteTurn};
use crate::copy::quote::quote;
use crate::copy::report::Tally;
use crate::copy::resume::Logged;
use crate::copy::settings::{Contexts, Dereference, Make};
use haul_model::ByteOffset;
use haul_sys::metadata::{Place, set_mode_at};
use haul_sys::open::{self as sys, RenameMode};
use haul_sys::{FileKind, Follow, Stat, filesystem, sparse, stat, wait};
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// Metadata to set on a file after its bytes have arrived, and the state to restore if they have
/// not.
#[derive(Debug, Default)]
pub(crate) struct FileSettle {
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
    pub(super) turn: Option<WriteTurn>,
    /// State shared with the other parts of the same file.
    pub(super) ranges: Option<Arc<Ranges>>,
    /// Copy method, for `--debug`.
    pub(crate) copy_details: CopyDetails,
    /// Log of the file's objects.
    pub(crate) logged: Option<Arc<Logged>>,
    /// True while an existing file is unchanged, in its bytes and its times.
    pub(crate) untouched: Mutex<bool>,
    /// True if more parts follow. Until then, the file only gets a time that cannot be mistaken for
    /// its source's.
    pub(crate) more_follows: bool,
}

impl FileSettle {
    /// Returns true if no other worker of this job can wait for this file.
    pub(crate) fn has_no_waiters(&self) -> bool {
        self.turn.is_none() && self.ranges.is_none() && self.linked.is_none()
    }

    /// Records that a sync of the file failed: no object of it counts as durable from then on.
    pub(crate) fn sync_failed(&self) {
        self.logged.iter().for_each(|logged| logged.mark_failed());
    }

    /// Returns true if this is the last part and earlier parts left the sink with the time of an
    /// unfinished file.
    pub(crate) fn ends_parts(&self) -> bool {
        self.ranges.is_some() && !self.more_follows
    }
}

/// Opens both ends of a file on the fast path: from a directory into one that this job created, so
/// that no name can collide. Neither end is stat'ed by name before. Returns `None` if anything
/// differs from what the directory reported; the general path then handles the entry.
pub(super) fn into_new_directory(job: &Job<'_>, entry: &Entry) -> Option<FileMove> {
    let rules = &job.settings.rules;
    let parent = &entry.parent;
    let plain = entry.kind_hint == Some(FileKind::Regular)
        && entry.operand.is_none()
        && parent.sink_is_new
        && rules.make == Make::Copy
        && !rules.attributes_only
        // An error that fails the file must be found before the file is created.
        && !matches!(rules.contexts, Contexts::Sources { is_required: true, .. });
    // Followed links lead to files outside this directory.
    if !plain || (rules.preserve.links && rules.dereference == Dereference::Always) {
        return None;
    }
    let begun = Instant::now();
    let source = sys::open_entry_at(parent.source(), &*entry.source_name).ok()?;
    let source_stat = stat::stat_fd(&source).ok()?;
    let may_have_others = source_stat.nlink > 1 || (rules.moves && job.memory.is_claimed(&source_stat));
    let is_plain = source_stat.kind == FileKind::Regular && !is_own_waybill(job, &source_stat);
    if !is_plain || (rules.preserve.links && may_have_others) {
        return None;
    }
    let mode = NewMode::of(job, &source_stat);
    let (source_path, sink_path) = (|| entry.source_path(), || entry.sink_path());
    let place = (parent.sink(), &*entry.sink_name);
    let labelling = Labelling::of_file(job, (&source_path, &sink_path), place, true);
    let label = announced(labelling.as_ref(), &source).ok()?;
    let sink = sys::create_new_at(parent.sink(), &*entry.sink_name, mode.first).ok()?;
    checked(labelling.as_ref(), &label, &sink).ok()?;
    if entry.counted == Counted::Later {
        Tally::add(&job.tally.files_found, 1);
        Tally::add(&job.tally.bytes_found, source_stat.size);
    }
    let made = rules.verbose.then(|| made_line(rules, &entry.source_path(), &entry.sink_path()));
    let (now, later) = if rules.debug { (None, made) } else { (made, None) };
    if let Some(line) = now {
        job.report.made(&line);
    }
    Some(FileMove {
        parent: parent.clone(),
        source_name: entry.source_name.clone(),
        sink_name: entry.sink_name.clone(),
        source,
        source_stat,
        sink,
        sink_state: SinkState::New,
        sink_dev: parent.sink_dev.unwrap_or(0),
        sink_is_regular: true,
        part: None,
        settle: FileSettle {
            differing: mode.differing,
            copy_details: CopyDetails::of(later),
            ..FileSettle::default()
        },
        begun,
    })
}

/// Sets the security context that the kernel gives to the next file.
fn announced(labelling: Option<&Labelling<'_, '_>>, source: &OwnedFd) -> Result<Label, CopyError> {
    labelling.map_or(Ok(Label::Any), |labelling| labelling.announce(Place::file(source)))
}

/// Labels a sink before any data is written into it.
fn checked(labelling: Option<&Labelling<'_, '_>>, label: &Label, sink: &OwnedFd) -> Result<(), CopyError> {
    labelling.map_or(Ok(()), |labelling| labelling.check(label, Place::file(sink)))
}

/// Mode with which a new file is opened.
struct NewMode {
    first: u32,
    differing: u32,
}

impl NewMode {
    fn of(job: &Job<'_>, source: &Stat) -> NewMode {
        let wanted = source.mode & 0o777;
        if let Some(first) = job.settings.rules.new_mode {
            return NewMode { first, differing: 0 };
        }
        let preserve = &job.settings.rules.preserve;
        // No other user may get access before the file has its owner.
        let omitted = if preserve.ownership { wanted & 0o077 } else { 0 };
        // The kernel lets users set attributes only on files that they may write.
        let extra = if preserve.xattr && job.user != 0 { 0o200 & !wanted } else { 0 };
        NewMode { first: (wanted & !omitted) | extra, differing: omitted | extra }
    }
}

/// Opens both ends of a file. `is_linked` is true if other names of the source become links to the
/// sink.
pub(super) fn open(task: &Task<'_, '_>, sink: &Sink, is_linked: bool) -> Result<FileMove, CopyError> {
    let begun = Instant::now();
    let (source, source_stat) = open_source(task)?;
    let mode = NewMode::of(task.job, &source_stat);
    let (source_path, sink_path) = (|| task.source_path(), || task.sink_path());
    let place = (task.entry.parent.sink(), task.sink_name());
    let labelling = Labelling::of_file(task.job, (&source_path, &sink_path), place, sink.is_new);
    let label = announced(labelling.as_ref(), &source)?;
    let complete = complete(task, sink, (&source, &source_stat))?;
    let is_complete = complete.is_some();
    let (fd, existing, held) = match complete {
        Some((fd, turn)) => (fd, ExistingSink::File, Some(turn)),
        None => {
            let (fd, existing) = open_sink(task, sink, &mode)?;
            (fd, existing, None)
        }
    };
    checked(labelling.as_ref(), &label, &fd)?;
    let is_new = !matches!(existing, ExistingSink::File | ExistingSink::ReadOnly);
    let standing = stat::stat_fd(&fd).map_err(|source| CopyError::Cannot {
        action: "fstat",
        path: task.sink_path(),
        source,
    })?;
    let is_another = |before: Stat| {
        let is_another = before.kind == FileKind::Regular && before.identity() != standing.identity();
        is_another && !was_copied_up(task, &fd, (&before, &standing))
    };
    if !is_new && sink.before.is_some_and(is_another) {
        return Err(Refusal::Replaced(task.sink_path()).into());
    }
    let sink_is_regular = standing.kind == FileKind::Regular;
    let sink_state = match (existing, sink_is_regular && !keeps_bytes(task)) {
        _ if is_complete => SinkState::Complete,
        (ExistingSink::Nothing, _) => SinkState::New,
        (_, true) if may_be_partial(task, &source_stat, &standing) => SinkState::Resumed,
        // This job may not remove the name.
        (_, true) => SinkState::Truncated,
        (_, false) => SinkState::Kept,
    };
    if !is_new {
        refuse_second_writer(task, &standing)?;
    }
    let turn = match held {
        Some(turn) => turn,
        None => begin_alone(task, &fd, standing.identity(), sink_state)?,
    };
    let linked = is_linked.then(|| task.source.identity());
    let more_follows = task.entry.ranges.is_some();
    let file = FileMove {
        parent: task.entry.parent.clone(),
        source_name: task.entry.source_name.clone(),
        sink_name: task.sink_name().to_owned(),
        source,
        source_stat,
        sink: fd,
        sink_state,
        sink_dev: standing.dev,
        sink_is_regular,
        part: task.entry.part,
        settle: FileSettle {
            differing: if is_new { mode.differing } else { existing.opened() },
            before: Some(standing).filter(|_| !is_new),
            backup: sink.backup.clone(),
            linked: linked.filter(|_| !more_follows),
            turn: Some(turn),
            ranges: task.entry.ranges.clone(),
            copy_details: CopyDetails::of(task.made_later(sink)),
            logged: None,
            untouched: Mutex::new(matches!(sink_state, SinkState::Resumed | SinkState::Complete)),
            more_follows,
        },
        begun,
    };
    if let Some(ranges) = &task.entry.ranges {
        ranges
            .begin(&file, standing.identity(), task.follows(), linked)
            .map_err(task.cannot("create regular file"))?;
    }
    Ok(file)
}

/// Returns true if a file of overlayfs got another inode number because it was opened for writing.
/// Without an index, as in containers, this happens to a file with several names in the lower
/// layer. The new file has one name, and the other properties of the old one.
fn was_copied_up(task: &Task<'_, '_>, sink: &OwnedFd, (before, now): (&Stat, &Stat)) -> bool {
    let facts = |stat: &Stat| (stat.kind, stat.size, stat.mtime, stat.mode, stat.uid, stat.gid);
    before.nlink > 1
        && now.nlink == 1
        && facts(before) == facts(now)
        && now.identity() != task.source.identity()
        && filesystem::is_overlay(sink)
}

/// Returns true if the sink may hold a part of the source and must not be truncated. This is so for
/// a file of several objects in a resumable job.
fn may_be_partial(task: &Task<'_, '_>, source: &Stat, standing: &Stat) -> bool {
    let moving = &task.job.settings.moving;
    moving.log.is_some()
        && source.kind == FileKind::Regular
        && standing.size > 0
        && source.size > moving.receipt_object().bytes()
}

/// Waits until no other worker writes the sink, under any name. Then truncates the sink to zero
/// bytes if it must be empty.
fn begin_alone(
    task: &Task<'_, '_>,
    sink: &OwnedFd,
    identity: Identity,
    state: SinkState,
) -> Result<WriteTurn, CopyError> {
    let (turn, waited) = task.job.memory.write_alone(identity);
    // Another worker may have written to a new file under another name before this worker's turn.
    let is_cut = state == SinkState::Truncated || (state == SinkState::New && waited);
    if is_cut {
        if task.job.pool.stopping() {
            return Err(CopyError::Interrupted { path: task.source_path(), sink: task.sink_path() });
        }
        sparse::set_len(sink, 0).map_err(task.cannot("create regular file"))?;
        // After this stat call, kernels with fine-grained timestamps give the write a new
        // timestamp, as after cp's truncation. The next copy from this file is then newer than an
        // earlier one.
        let _ = stat::stat_fd(sink);
    }
    Ok(turn)
}

fn open_source(task: &Task<'_, '_>) -> Result<(OwnedFd, Stat), CopyError> {
    let (dir, name) = (task.entry.parent.source(), &*task.entry.source_name);
    let opened = match task.source.kind {
        FileKind::Regular => sys::open_source_at(dir, name, task.follows(), false).map(Some),
        FileKind::Fifo => wait::open_pipe_source_at(dir, name, task.follows(), || task.job.pool.stopping()),
        _ => sys::open_stream_at(dir, name, task.follows()).map(Some),
    };
    let fd = opened
        .map_err(|source| CopyError::OpenSource { path: task.source_path(), source })?
        .ok_or_else(|| stopped(task))?;
    let found = stat::stat_fd(&fd).map_err(|source| CopyError::Cannot {
        action: "fstat",
        path: task.source_path(),
        source,
    })?;
    if found.identity() != task.source.identity() {
        return Err(Refusal::Replaced(task.source_path()).into());
    }
    Ok((fd, found))
}

/// Returns the error for a job that was stopped while a pipe had no peer.
fn stopped(task: &Task<'_, '_>) -> CopyError {
    CopyError::Interrupted { path: task.source_path(), sink: task.sink_path() }
}

/// Returns true if the sink keeps the data outside the copied part.
pub(super) fn keeps_bytes(task: &Task<'_, '_>) -> bool {
    let moving = &task.job.settings.moving;
    task.rules.attributes_only
        || task.entry.part.is_some()
        || moving.offset != ByteOffset(0)
        || moving.length.is_some()
        || moving.sink_offset.is_some()
}

/// State of the sink's name before the open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExistingSink {
    /// Nothing: the file and its name are new.
    Nothing,
    /// A dangling link: the file is new.
    Link,
    /// An object that can be written.
    File,
    /// Like [`ExistingSink::File`], after its owner got write permission.
    ReadOnly,
}

impl ExistingSink {
    /// Returns the permissions that the file now has in excess.
    fn opened(self) -> u32 {
        if self == ExistingSink::ReadOnly { 0o200 } else { 0 }
    }
}

/// Opens the existing sink or creates it. An existing sink keeps its bytes for now, because another
/// worker of this job may be writing it.
fn open_sink(task: &Task<'_, '_>, sink: &Sink, mode: &NewMode) -> Result<(OwnedFd, ExistingSink), CopyError> {
    let (dir, name) = (task.entry.parent.sink(), task.sink_name());
    if !sink.is_new {
        let opened = if sink.before.is_some_and(|before| before.kind == FileKind::Fifo) {
            wait::open_pipe_sink_at(dir, name, Follow::Yes, || task.job.pool.stopping())
        } else {
            sys::open_existing_at(dir, name, false, Follow::Yes).map(Some)
        };
        match opened {
            Ok(fd) => return fd.map(|fd| (fd, ExistingSink::File)).ok_or_else(|| stopped(task)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_own_read_only(task, sink, &error) => {
                return open_read_only(task, sink).map_err(task.cannot("create regular file"));
            }
            Err(error) if task.rules.force && removing_helps(&error) => remove_unopenable_sink(task)?,
            Err(error) => return Err(task.cannot("create regular file")(error)),
        }
    }
    let error = match sys::create_new_at(dir, name, mode.first) {
        Ok(fd) => return Ok((fd, ExistingSink::Nothing)),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::AlreadyExists && sys::read_link_at(dir, name).is_ok() {
        if !task.rules.open_dangling {
            return Err(Refusal::DanglingSink(task.sink_path()).into());
        }
        let made = sys::create_through_at(dir, name, mode.first);
        return made.map(|fd| (fd, ExistingSink::Link)).map_err(task.cannot("create regular file"));
    }
    let ends_in_slash = name.as_encoded_bytes().ends_with(b"/");
    let error = if error.kind() == io::ErrorKind::IsADirectory && ends_in_slash {
        io::Error::from_raw_os_error(20) // ENOTDIR: only the trailing slash asks for a directory.
    } else {
        error
    };
    Err(task.cannot("create regular file")(error))
}

/// Returns true if an earlier run may have made this sink read-only, as its source is.
fn is_own_read_only(task: &Task<'_, '_>, sink: &Sink, error: &io::Error) -> bool {
    let is_ours = |before: Stat| {
        before.kind == FileKind::Regular
            && before.uid == task.job.user
            && before.mode & 0o200 == 0
            && task.source.mode & 0o200 == 0
    };
    let may_have_made = task.job.settings.moving.log.is_some() && sink.before.is_some_and(is_ours);
    may_have_made && error.kind() == io::ErrorKind::PermissionDenied
}

/// Opens a read-only sink of this user. It gets its mode when it is complete.
fn open_read_only(task: &Task<'_, '_>, sink: &Sink) -> io::Result<(OwnedFd, ExistingSink)> {
    let (dir, name) = (task.entry.parent.sink(), task.sink_name());
    let mode = sink.before.map_or(0, |before| before.mode);
    set_mode_at(dir, name, mode | 0o200)?;
    Ok((sys::open_existing_at(dir, name, false, Follow::No)?, ExistingSink::ReadOnly))
}

/// Returns true if removing the sink helps after this open error. The cause must be the file
/// itself, and not this process (descriptors, memory), the storage, or an interrupted open.
fn removing_helps(error: &io::Error) -> bool {
    const ENXIO: i32 = 6;
    const ENODEV: i32 = 19;
    const ELOOP: i32 = 40;
    let in_the_file = matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ExecutableFileBusy
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::IsADirectory
    );
    in_the_file || matches!(error.raw_os_error(), Some(ENXIO | ENODEV | ELOOP))
}

/// Removes a sink that cannot be opened (`-f`).
fn remove_unopenable_sink(task: &Task<'_, '_>) -> Result<(), CopyError> {
    match sys::unlink_at(task.entry.parent.sink(), task.sink_name()) {
        Ok(()) => task.report_removed(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(task.cannot("remove")(error)),
    }
    Ok(())
}

impl FileMove {
    /// Marks an existing file as unfinished before its first byte is overwritten, by giving it a
    /// length other than its source's.
    ///
    /// # Errors
    /// Returns the error of ftruncate(2). The caller must not write then.
    pub(crate) fn touch(&self) -> Result<(), CopyError> {
        // Other workers of the file wait until it is marked.
        let mut untouched = self.settle.untouched.lock();
        if *untouched {
            let failed = |source| CopyError::Cannot { action: "resume", path: self.sink_path(), source };
            sparse::set_len(&self.sink, self.source_stat.size + 1).map_err(failed)?;
            *untouched = false;
        }
        Ok(())
    }

    /// Returns true while an existing file is unchanged.
    pub(crate) fn is_untouched(&self) -> bool {
        *self.settle.untouched.lock()
    }

    /// Reverts the effects of a file that did not become complete. The old sink gets its name back,
    /// and names linked to the new sink are removed. Other names of the source are copied again.
    pub(crate) fn undo(&self, job: &Job<'_>) {
        let ranges = self.settle.ranges.as_ref();
        if let Some(ranges) = ranges {
            ranges.fail();
        }
        if let Some(identity) = self.settle.linked.or_else(|| ranges.and_then(|ranges| ranges.linked())) {
            for (parent, name) in job.memory.forget(identity) {
                undo_link(job, &parent, &name, self.sink_path());
            }
        }
        if let Some(backup) = &self.settle.backup {
            undo_backup(job, &self.parent, &self.sink_name, backup);
        }
    }
}

/// Removes a link to a sink that did not become complete.
fn undo_link(job: &Job<'_>, parent: &Arc<Directory>, name: &OsStr, target: OsString) {
    let path = parent.sink_path_of(name);
    let parent = match job.descriptors.open(parent) {
        Ok(parent) => parent,
        Err(error) => return job.fail(&error),
    };
    match sys::unlink_at(parent.sink(), name) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            job.fail(&CopyError::Cannot { action: "remove", path, source });
        }
        _ if job.pool.stopping() => job.was_cut_off(path),
        _ => job.fail(&CopyError::LinkUndone { path, target }),
    }
}

/// Renames a backup to its former name.
pub(super) fn undo_backup(job: &Job<'_>, parent: &Opened, sink: &OsStr, backup: &OsStr) {
    let path = parent.sink_path_of(sink);
    match sys::rename_at(parent.sink(), backup, parent.sink(), sink, RenameMode::Replace) {
        Err(source) => job.fail(&CopyError::Cannot { action: "un-backup", path, source }),
        Ok(()) if job.settings.rules.verbose => {
            let line = format!("{} -> {} (unbackup)", quote(&parent.sink_path_of(backup)), quote(&path));
            job.report.made(OsStr::new(&line));
        }
        Ok(()) => {}
    }
}
