//! Regular files, and what is read as one: both ends are opened, and the pipeline moves the bytes.

use super::{Entry, Sink, Task, made_line};
use crate::copy::directory::Directory;
use crate::copy::error::{CopyError, Refusal};
use crate::copy::file::{FileMove, SinkState};
use crate::copy::job::Job;
use crate::copy::links::Identity;
use crate::copy::quote::quote;
use crate::copy::report::Tally;
use crate::copy::settings::{CopySettings, Dereference, Make};
use haul_model::ByteOffset;
use haul_sys::open::{self as sys, RenameMode};
use haul_sys::{FileKind, Follow, Stat, process, stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// What is set on a file when its bytes have arrived, and what is undone where they did not.
#[derive(Debug, Default)]
pub(crate) struct FileSettle {
    /// Permissions the file lacks until it has its owner, or has in excess until it has its attributes.
    pub(crate) differing: u32,
    /// What stood there, where something did.
    pub(crate) before: Option<Stat>,
    /// What the old sink is called now.
    pub(crate) backup: Option<OsString>,
    /// The source, where other names of it were linked to this sink.
    pub(crate) linked: Option<Identity>,
}

/// The way most files take: from a directory into one that this job made, so that no name can collide. Both
/// ends are opened without a look at either; `None` where anything is not as the directory said, and the
/// general way finds out what.
pub(super) fn into_new_directory(job: &Job<'_>, entry: &Entry) -> Option<FileMove> {
    let rules = &job.settings.rules;
    let parent = &entry.parent;
    let plain = entry.kind_hint == Some(FileKind::Regular)
        && entry.operand.is_none()
        && parent.sink_is_new
        && rules.make == Make::Copy
        && !rules.attributes_only;
    // Followed links lead to files that this directory says nothing of.
    if !plain || (rules.preserve.links && rules.dereference == Dereference::Always) {
        return None;
    }
    let begun = Instant::now();
    let source = sys::open_source_at(parent.source(), &*entry.source_name, Follow::No, false).ok()?;
    let source_stat = stat::stat_fd(&source).ok()?;
    if source_stat.kind != FileKind::Regular || (rules.preserve.links && source_stat.nlink > 1) {
        return None;
    }
    let mode = NewMode::of(job.settings, &source_stat);
    let sink = sys::create_new_at(parent.sink(), &*entry.sink_name, mode.first).ok()?;
    Tally::add(&job.tally.files_found, 1);
    Tally::add(&job.tally.bytes_found, source_stat.size);
    if rules.verbose {
        job.report.made(&made_line(&entry.source_path(), &entry.sink_path()));
    }
    Some(FileMove {
        parent: Arc::clone(parent),
        source_name: entry.source_name.clone(),
        sink_name: entry.sink_name.clone(),
        source,
        source_stat,
        sink,
        sink_state: SinkState::New,
        sink_dev: parent.sink_dev.unwrap_or(0),
        sink_is_regular: true,
        part: None,
        settle: FileSettle { differing: mode.differing, ..FileSettle::default() },
        begun,
    })
}

/// The mode a new file is opened with.
struct NewMode {
    first: u32,
    differing: u32,
}

impl NewMode {
    fn of(settings: &CopySettings, source: &Stat) -> NewMode {
        let wanted = source.mode & 0o777;
        let preserve = &settings.rules.preserve;
        // Nobody else gets in before the file has its owner.
        let omitted = if preserve.ownership { wanted & 0o077 } else { 0 };
        // The kernel lets users set attributes only on files they may write.
        let extra = if preserve.xattr && process::effective_user() != 0 { 0o200 & !wanted } else { 0 };
        NewMode { first: (wanted & !omitted) | extra, differing: omitted | extra }
    }
}

/// Opens both ends of a file. `is_linked`: other names of the source become links to the sink.
pub(super) fn open(task: &Task<'_, '_>, sink: &Sink, is_linked: bool) -> Result<FileMove, CopyError> {
    let begun = Instant::now();
    let (source, source_stat) = open_source(task)?;
    let mode = NewMode::of(task.job.settings, &source_stat);
    let (fd, is_new) = open_sink(task, sink, &mode)?;
    let standing = stat::stat_fd(&fd).map_err(|source| CopyError::Cannot {
        action: "fstat",
        path: task.sink_path(),
        source,
    })?;
    let sink_is_regular = standing.kind == FileKind::Regular;
    let sink_state = match (is_new, sink_is_regular && !keeps_bytes(task)) {
        (true, _) => SinkState::New,
        (false, true) => SinkState::Truncated,
        (false, false) => SinkState::Kept,
    };
    Ok(FileMove {
        parent: Arc::clone(&task.entry.parent),
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
            differing: if is_new { mode.differing } else { 0 },
            before: Some(standing).filter(|_| !is_new),
            backup: sink.backup.clone(),
            linked: is_linked.then(|| task.source.identity()),
        },
        begun,
    })
}

fn open_source(task: &Task<'_, '_>) -> Result<(OwnedFd, Stat), CopyError> {
    let (dir, name) = (task.entry.parent.source(), &*task.entry.source_name);
    let opened = if task.source.kind == FileKind::Regular {
        sys::open_source_at(dir, name, task.follows(), false)
    } else {
        sys::open_stream_at(dir, name, task.follows())
    };
    let fd = opened.map_err(|source| CopyError::OpenSource { path: task.source_path(), source })?;
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

/// Whether the sink keeps what the copied part does not cover.
fn keeps_bytes(task: &Task<'_, '_>) -> bool {
    let moving = &task.job.settings.moving;
    task.rules.attributes_only
        || task.entry.part.is_some()
        || moving.offset != ByteOffset(0)
        || moving.sink_offset.is_some()
}

/// Opens what stands at the sink, or makes it; returns whether it is new.
fn open_sink(task: &Task<'_, '_>, sink: &Sink, mode: &NewMode) -> Result<(OwnedFd, bool), CopyError> {
    let (dir, name) = (task.entry.parent.sink(), task.sink_name());
    if !sink.is_new {
        match sys::open_existing_at(dir, name, !keeps_bytes(task), Follow::Yes) {
            Ok(fd) => return Ok((fd, false)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) if task.rules.force => make_way(task)?,
            Err(error) => return Err(task.cannot("create regular file")(error)),
        }
    }
    let error = match sys::create_new_at(dir, name, mode.first) {
        Ok(fd) => return Ok((fd, true)),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::AlreadyExists {
        if sys::read_link_at(dir, name).is_ok() {
            return Err(Refusal::DanglingSink(task.sink_path()).into());
        }
        // Made by somebody else a moment ago, or by an operand of the same name.
        if let Ok(fd) = sys::open_existing_at(dir, name, !keeps_bytes(task), Follow::No) {
            return Ok((fd, false));
        }
    }
    let ends_in_slash = name.as_encoded_bytes().ends_with(b"/");
    let error = if error.kind() == io::ErrorKind::IsADirectory && ends_in_slash {
        io::Error::from_raw_os_error(20) // ENOTDIR: it is the slash that asked for a directory.
    } else {
        error
    };
    Err(task.cannot("create regular file")(error))
}

/// `-f`: removes a sink that can't be opened.
fn make_way(task: &Task<'_, '_>) -> Result<(), CopyError> {
    match sys::unlink_at(task.entry.parent.sink(), task.sink_name()) {
        Ok(()) => task.tell_removed(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(task.cannot("remove")(error)),
    }
    Ok(())
}

impl FileMove {
    /// The file did not become whole: what stood at its sink gets its name back, and other names of the source
    /// are copied anew.
    pub(crate) fn undo(&self, job: &Job<'_>) {
        if let Some(identity) = self.settle.linked {
            job.memory.forget(identity);
        }
        if let Some(backup) = &self.settle.backup {
            undo_backup(job, &self.parent, &self.sink_name, backup);
        }
    }
}

/// Renames a backup to what it was.
pub(super) fn undo_backup(job: &Job<'_>, parent: &Directory, sink: &OsStr, backup: &OsStr) {
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
