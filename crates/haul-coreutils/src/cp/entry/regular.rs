//! Regular files, and special files that are read like them: opens both ends, whose bytes the data
//! path copies.

use super::standing::{CompleteSink, complete, refuse_second_writer};
use super::task::{Sink, Task, made_line};
use crate::cp::contexts::{Label, Labelling};
use crate::cp::copied_file::CopiedFile;
use crate::cp::descriptors::{sink_descriptor, source_descriptor};
use crate::cp::directory::Identity;
use crate::cp::job::Job;
use crate::cp::links::WriteTurn;
use crate::cp::ranges::OpenedEnds;
use crate::cp::rules::{Contexts, CopyRules, Dereference, Make};
use crate::cp::tree_entry::Entry;
use crate::cp::tree_worker::Counted;
use haul_engine::copy::{CopyError, CopySink, CopySource, FileEnds, FileJob, Refusal, SinkState, Tally};
use haul_storage::local::Stream;
use haul_storage::{Backing, Create, FileKind, Follow, Missing, Stat};
use haul_sys::metadata::Place;
use haul_sys::open as sys;
use haul_sys::{stat, wait};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Opens both ends of a file on the fast path: from a directory into one that this job created, so
/// that no name can collide. Neither end is stat'ed by name before. Returns `None` if anything
/// differs from what the directory reported; the general path then handles the entry.
pub(super) fn into_new_directory<'j>(job: &'j Job<'j>, entry: &Entry) -> Option<FileJob<'j>> {
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
    let source = parent.source_at(&entry.source_name).source(Follow::No, &job.opened).ok()?;
    let source_stat = *source.opened();
    let may_have_others = source_stat.nlink > 1 || (rules.moves && job.memory.is_claimed(&source_stat));
    if job.is_own_waybill(&source_stat) || (rules.preserve.links && may_have_others) {
        return None;
    }
    let mode = NewMode::of(rules, job.user, &source_stat);
    let (source_path, sink_path) = (|| entry.source_path(), || entry.sink_path());
    let place = parent.sink_at(&entry.sink_name);
    let labelling = Labelling::of_file(job, (&source_path, &sink_path), &place, true);
    let source = CopySource::of(source);
    let label = announced(labelling.as_ref(), &source).ok()?;
    let sink = CopySink::File(place.sink(Create::New { mode: mode.first }, &job.opened).ok()?);
    checked(labelling.as_ref(), &label, &sink).ok()?;
    if entry.counted == Counted::Later {
        Tally::add(&job.tally().files_found, 1);
        Tally::add(&job.tally().bytes_found, source_stat.size);
    }
    let made = rules.verbose.then(|| made_line(rules, &entry.source_path(), &entry.sink_path()));
    let (now, later) = if rules.debug { (None, made) } else { (made, None) };
    if let Some(line) = now {
        job.report().made(&line);
    }
    let ends = FileEnds { source, source_stat, sink, sink_state: SinkState::New };
    let copied = CopiedFile {
        job,
        parent: Arc::clone(parent),
        source_name: entry.source_name.clone(),
        sink_name: entry.sink_name.clone(),
        differing: mode.differing,
        before: None,
        backup: None,
        linked: None,
        turn: None,
        ranges: None,
        made: later,
        more_follows: false,
    };
    Some(FileJob::new(ends, None, begun, copied))
}

/// Sets the security context that the kernel gives to the next file.
fn announced(labelling: Option<&Labelling<'_, '_>>, source: &CopySource) -> Result<Label, CopyError> {
    labelling.map_or(Ok(Label::Any), |labelling| labelling.announce(Place::File(source_descriptor(source))))
}

/// Labels a sink before any data is written into it.
fn checked(labelling: Option<&Labelling<'_, '_>>, label: &Label, sink: &CopySink) -> Result<(), CopyError> {
    labelling.map_or(Ok(()), |labelling| labelling.check(label, Place::File(sink_descriptor(sink))))
}

/// Mode with which a new file is opened.
struct NewMode {
    first: u32,
    differing: u32,
}

impl NewMode {
    fn of(rules: &CopyRules, user: u32, source: &Stat) -> NewMode {
        let wanted = source.mode & 0o777;
        if let Some(first) = rules.new_mode {
            return NewMode { first, differing: 0 };
        }
        let preserve = &rules.preserve;
        // No other user may get access before the file has its owner.
        let omitted = if preserve.ownership { wanted & 0o077 } else { 0 };
        // The kernel lets users set attributes only on files that they may write.
        let extra = if preserve.xattr && user != 0 { 0o200 & !wanted } else { 0 };
        NewMode { first: (wanted & !omitted) | extra, differing: omitted | extra }
    }
}

/// Opens both ends of a file. `is_linked` is true if other names of the source become links to the
/// sink.
pub(super) fn open<'j>(task: &Task<'_, 'j>, sink: &Sink, is_linked: bool) -> Result<FileJob<'j>, CopyError> {
    let begun = Instant::now();
    let (source, source_stat) = task.open_source()?;
    let mode = NewMode::of(task.rules, task.job.user, &source_stat);
    let (source_path, sink_path) = (|| task.source_path(), || task.sink_path());
    let place = task.sink_at();
    let labelling = Labelling::of_file(task.job, (&source_path, &sink_path), &place, sink.is_new);
    let label = announced(labelling.as_ref(), &source)?;
    let complete = complete(task, sink, &source, &source_stat)?;
    let is_complete = complete.is_some();
    let (sink_end, standing, existing, held) = match complete {
        Some(CompleteSink { file, standing, turn }) => {
            (CopySink::File(file), standing, ExistingSink::File, Some(turn))
        }
        None => {
            let (sink_end, existing) = open_sink(task, sink, &mode)?;
            let standing = match &sink_end {
                CopySink::File(file) => file.opened(),
                CopySink::Stream(stream) => stream.file().stat(),
            };
            let standing = standing.map_err(task.cannot("fstat"))?;
            (sink_end, standing, existing, None)
        }
    };
    checked(labelling.as_ref(), &label, &sink_end)?;
    let is_new = existing.is_new();
    let is_another = |before: Stat| {
        let is_another = before.kind == FileKind::Regular && before.identity() != standing.identity();
        is_another && !was_copied_up(task, &sink_end, &before, &standing)
    };
    if !is_new && sink.before.is_some_and(is_another) {
        return Err(Refusal::Replaced(task.sink_path()).into());
    }
    let sink_is_regular = standing.kind == FileKind::Regular;
    let sink_state = match (existing, sink_is_regular && !task.keeps_bytes()) {
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
        None => begin_alone(task, &sink_end, standing.identity(), sink_state)?,
    };
    let linked = is_linked.then(|| task.source.identity());
    let more_follows = task.entry.ranges.is_some();
    let ends = FileEnds { source, source_stat, sink: sink_end, sink_state };
    let copied = CopiedFile {
        job: task.job,
        parent: Arc::clone(&task.entry.parent),
        source_name: task.entry.source_name.clone(),
        sink_name: task.owned_sink_name(),
        differing: if is_new { mode.differing } else { existing.opened() },
        before: Some(standing).filter(|_| !is_new),
        backup: sink.backup.clone(),
        linked: linked.filter(|_| !more_follows),
        turn: Some(turn),
        ranges: task.entry.ranges.clone(),
        made: task.made_later(sink),
        more_follows,
    };
    if let Some(ranges) = &task.entry.ranges {
        ranges.begin(opened_ends(task, &ends, &copied, standing.identity(), linked));
    }
    Ok(FileJob::new(ends, task.entry.part, begun, copied))
}

/// Returns both ends for the ranges after the first.
fn opened_ends(
    task: &Task<'_, '_>,
    ends: &FileEnds,
    copied: &CopiedFile<'_>,
    sink_identity: Identity,
    linked: Option<Identity>,
) -> OpenedEnds {
    OpenedEnds {
        source: ends.source.clone(),
        source_stat: ends.source_stat,
        follow: task.follows(),
        sink: ends.sink.clone(),
        sink_identity,
        sink_name: copied.sink_name.clone(),
        sink_state: ends.sink_state,
        differing: copied.differing,
        before: copied.before,
        backup: copied.backup.clone(),
        linked,
    }
}

/// Returns true if a file of overlayfs got another inode number because it was opened for writing.
/// Without an index, as in containers, this happens to a file with several names in the lower
/// layer. The new file has one name, and the other properties of the old one.
fn was_copied_up(task: &Task<'_, '_>, sink: &CopySink, before: &Stat, now: &Stat) -> bool {
    let facts = |stat: &Stat| (stat.kind, stat.size, stat.mtime, stat.mode, stat.uid, stat.gid);
    before.nlink > 1
        && now.nlink == 1
        && facts(before) == facts(now)
        && now.identity() != task.source.identity()
        && sink.inode().device().capabilities.backing == Backing::FileBelow
}

/// Returns true if the sink may hold a part of the source and must not be truncated. This is so for
/// a file of several objects in a resumable job.
fn may_be_partial(task: &Task<'_, '_>, source: &Stat, standing: &Stat) -> bool {
    let moving = task.job.context.moving;
    task.job.context.log.is_some()
        && source.kind == FileKind::Regular
        && standing.size > 0
        && source.size > moving.object_size().bytes()
}

/// Waits until no other worker writes the sink, under any name. Then truncates the sink to zero
/// bytes if it must be empty.
fn begin_alone(
    task: &Task<'_, '_>,
    sink: &CopySink,
    identity: Identity,
    state: SinkState,
) -> Result<WriteTurn, CopyError> {
    let (turn, waited) = task.job.memory.write_alone(identity);
    // Another worker may have written to a new file under another name before this worker's turn.
    let is_cut = state == SinkState::Truncated || (state == SinkState::New && waited);
    if is_cut {
        if task.job.is_stopping() {
            return Err(CopyError::Interrupted { path: task.source_path(), sink: task.sink_path() });
        }
        sink.file().and_then(|file| file.set_len(0)).map_err(task.cannot("create regular file"))?;
        // After this stat call, kernels with fine-grained timestamps give the write a new
        // timestamp, as after cp's truncation. The next copy from this file is then newer than an
        // earlier one.
        let _ = sink.stat();
    }
    Ok(turn)
}

/// Returns true for the error of [`Job::open_source`] for a file that another kind replaced.
pub(super) fn is_of_another_kind(error: &io::Error) -> bool {
    // An error of openat(2) has a number.
    error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none()
}

impl Task<'_, '_> {
    fn open_source(&self) -> Result<(CopySource, Stat), CopyError> {
        let replaced = || Refusal::Replaced(self.source_path()).into();
        match self.job.open_source(&self.entry.source(), self.source.kind, self.follows()) {
            Ok(Some((_, found))) if found.identity() != self.source.identity() => Err(replaced()),
            Ok(opened) => opened.ok_or_else(|| stopped(self)),
            Err(error) if is_of_another_kind(&error) => Err(replaced()),
            Err(source) => Err(CopyError::OpenSource { path: self.source_path(), source }),
        }
    }
}

/// Returns the error for a job that was stopped while a pipe had no peer.
fn stopped(task: &Task<'_, '_>) -> CopyError {
    CopyError::Interrupted { path: task.source_path(), sink: task.sink_path() }
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
    /// Returns true if the open created the file.
    fn is_new(self) -> bool {
        matches!(self, ExistingSink::Nothing | ExistingSink::Link)
    }

    /// Returns the permissions that the file now has in excess.
    fn opened(self) -> u32 {
        if self == ExistingSink::ReadOnly { 0o200 } else { 0 }
    }
}

/// Opens the existing sink or creates it. An existing sink keeps its bytes for now, because another
/// worker of this job may be writing it.
fn open_sink(
    task: &Task<'_, '_>,
    sink: &Sink,
    mode: &NewMode,
) -> Result<(CopySink, ExistingSink), CopyError> {
    let cannot = task.cannot("create regular file");
    let (place, storage) = (task.sink_at(), &task.job.opened);
    if !sink.is_new {
        match open_existing(task, sink.before.map(|before| before.kind)) {
            Ok(opened) => {
                return opened.map(|end| (end, ExistingSink::File)).ok_or_else(|| stopped(task));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_own_read_only(task, sink, &error) => {
                return open_read_only(task, sink).map_err(cannot);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Refusal::Replaced(task.sink_path()).into());
            }
            Err(error) if task.rules.force && removing_helps(&error) => remove_unopenable_sink(task)?,
            Err(error) => return Err(cannot(error)),
        }
    }
    let error = match place.sink(Create::New { mode: mode.first }, storage) {
        Ok(file) => return Ok((CopySink::File(file), ExistingSink::Nothing)),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::AlreadyExists && place.read_link().is_ok() {
        if !task.rules.open_dangling {
            return Err(Refusal::DanglingSink(task.sink_path()).into());
        }
        let missing = Missing::Create { mode: mode.first };
        let through = Create::InPlace { missing, follow: Follow::Yes };
        let made = place.sink(through, storage).map_err(cannot)?;
        let existing = if made.is_new() { ExistingSink::Link } else { ExistingSink::File };
        return Ok((CopySink::File(made), existing));
    }
    let ends_in_slash = place.name().as_encoded_bytes().ends_with(b"/");
    let error = if error.kind() == io::ErrorKind::IsADirectory && ends_in_slash {
        io::Error::from_raw_os_error(20) // ENOTDIR: only the trailing slash asks for a directory.
    } else {
        error
    };
    Err(cannot(error))
}

/// Opens an existing sink, which had this kind. Returns `None` if the job stopped while a pipe had
/// no reader.
///
/// # Errors
/// Returns the errors of openat(2), and [`io::ErrorKind::AlreadyExists`] if a file of another kind
/// replaced it.
fn open_existing(task: &Task<'_, '_>, kind: Option<FileKind>) -> io::Result<Option<CopySink>> {
    let place = task.sink_at();
    if kind.is_none_or(|kind| kind == FileKind::Regular) {
        let there = Create::InPlace { missing: Missing::Fail, follow: Follow::Yes };
        return place.sink(there, &task.job.opened).map(CopySink::File).map(Some);
    }
    let (dir, name) = (place.base()?, place.name());
    let opened = match kind {
        Some(FileKind::Fifo) => wait::open_pipe_sink_at(dir, name, Follow::Yes, || task.job.is_stopping())?,
        _ => Some(sys::open_existing_at(dir, name, Follow::Yes)?),
    };
    let Some(file) = opened else { return Ok(None) };
    if stat::stat_fd(&file)?.kind == FileKind::Regular {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    Ok(Some(CopySink::Stream(Stream::new(file.into()))))
}

/// Returns true if an earlier run may have made this sink read-only, as its source is.
fn is_own_read_only(task: &Task<'_, '_>, sink: &Sink, error: &io::Error) -> bool {
    let is_ours = |before: Stat| {
        before.kind == FileKind::Regular
            && before.uid == task.job.user
            && before.mode & 0o200 == 0
            && task.source.mode & 0o200 == 0
    };
    let may_have_made = task.job.context.log.is_some() && sink.before.is_some_and(is_ours);
    may_have_made && error.kind() == io::ErrorKind::PermissionDenied
}

/// Opens a read-only sink of this user. It gets its mode when it is complete.
fn open_read_only(task: &Task<'_, '_>, sink: &Sink) -> io::Result<(CopySink, ExistingSink)> {
    let (place, mode) = (task.sink_at(), sink.before.map_or(0, |before| before.mode));
    place.set_mode(mode | 0o200)?;
    let there = Create::InPlace { missing: Missing::Fail, follow: Follow::No };
    Ok((CopySink::File(place.sink(there, &task.job.opened)?), ExistingSink::ReadOnly))
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
    match task.sink_at().unlink() {
        Ok(()) => task.report_removed(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(task.cannot("remove")(error)),
    }
    Ok(())
}
