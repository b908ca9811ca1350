//! Deletion tasks: list the names of the sink, and remove those that the source does not have.
//!
//! Listing waits until the state machine accepts another list, and that waits for removals. Each
//! therefore has its own worker.
//!
//! The source judges every name separately, because it knows the filters of the job. A directory is
//! never removed together with its contents. It is listed after all entries in it, and removed only
//! if it is empty then.

use super::SinkContext;
use super::dirs::Missing;
use super::tasks::Remove;
use crate::copy::quote;
use crate::transfer::monitor::{Reply, WaitKey};
use crate::transfer::reason::reason;
use crate::transfer::report::Failure;
use haul_model::RelPath;
use haul_proto::sink::Event;
use haul_proto::{Keep, limits};
use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::metadata::{Times, set_times_fd};
use haul_sys::open::{rmdir_at, unlink_at};
use haul_sys::{FileKind, Follow, stat};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Maximum number of names of a directory that are listed together.
const NAMES_AT_ONCE: usize = 256;
const _: () = assert!(NAMES_AT_ONCE <= limits::NAMES_PER_LIST);

/// A directory whose subdirectories are being listed.
struct Level {
    path: Vec<u8>,
    /// Names of the subdirectories.
    directories: Vec<Box<[u8]>>,
    /// Number of subdirectories that were entered.
    entered: usize,
}

impl SinkContext<'_> {
    /// Lists the sink when the state machine requests it, until the session ends.
    pub(super) fn run_sweeping(&self) {
        while self.tasks.sweeping.next().is_some() {
            self.sweep();
        }
    }

    /// Removes names until the session ends.
    pub(super) fn run_removing(&self) {
        while let Some(Remove { batch, directory, names }) = self.tasks.removing.next() {
            self.remove(batch, &directory, &names);
        }
    }

    /// Lists every directory, each after its subdirectories. Lists only requested names that the
    /// filter includes: the source must not learn or judge any other.
    fn sweep(&self) {
        let Some(root) = self.enter(Vec::new()) else { return };
        let mut levels = vec![root];
        while let Some(level) = levels.last_mut() {
            let next = level.directories.get(level.entered).map(|name| join(&level.path, name));
            level.entered += 1;
            let entered = match next {
                Some(path) => self.enter(path).map(|deeper| levels.push(deeper)),
                None => {
                    let Level { path, directories, .. } = levels.pop().expect("the loop holds the last one");
                    let mut parts = directories.chunks(NAMES_AT_ONCE);
                    parts.all(|names| self.list(&path, names.to_vec())).then_some(())
                }
            };
            if entered.is_none() {
                return;
            }
        }
        self.handle(Event::Swept);
    }

    /// Lists the entries of a directory that are not directories. Returns `None` if the session is
    /// over. Lists nothing if the directory cannot be read.
    fn enter(&self, path: Vec<u8>) -> Option<Level> {
        let mut level = Level { path, directories: Vec::new(), entered: 0 };
        let Ok(place) = self.destination.dirs.open(&level.path, Missing::Fail) else { return Some(level) };
        // Open a separate descriptor, because reading moves its offset.
        let Ok(own) = open_dir_at(&place, c".", Follow::No) else { return Some(level) };
        let mut reader = DirReader::new(own);
        let is_session_lock = |name: &CStr| self.log.as_ref().is_some_and(|log| log.is_session_lock(name));
        let mut more = true;
        while more {
            let mut entries = Vec::new();
            more = reader.read_batch(NAMES_AT_ONCE, &mut entries).unwrap_or(false);
            let mut names: Vec<Box<[u8]>> = Vec::new();
            for entry in entries {
                let name = entry.name.as_bytes();
                let is_here = || self.destination.expected.may_have(&join(&level.path, name));
                if (level.path.is_empty() && is_session_lock(&entry.name)) || !is_here() {
                    continue;
                }
                let kind = entry.kind_hint.or_else(|| {
                    stat::stat_at(&place, entry.name.as_c_str(), Follow::No).ok().map(|facts| facts.kind)
                });
                let is_directory = kind == Some(FileKind::Directory);
                if is_directory { &mut level.directories } else { &mut names }.push(name.into());
            }
            if !names.is_empty() && !self.list(&level.path, names) {
                return None;
            }
        }
        Some(level)
    }

    /// Sends a list of names when the state machine accepts it. Returns false if the session is
    /// over.
    fn list(&self, directory: &[u8], names: Vec<Box<[u8]>>) -> bool {
        let may = self.session.monitor.ask(|machine, now| match machine.may_list() {
            _ if machine.is_over() => Reply::Ready(false),
            true => Reply::Ready(true),
            false => Reply::Wait(WaitKey::Lists, now + Duration::from_secs(1)),
        });
        if may {
            self.handle(Event::Listed { directory: directory.into(), names });
        }
        may
    }

    fn remove(&self, batch: u32, directory: &[u8], names: &[Box<[u8]>]) {
        let place = self.destination.dirs.open(directory, Missing::Fail);
        // The times of the directory came from the source and must not become those of the
        // deletion.
        let keeps_times =
            self.options.keep.has(Keep::TIMES) && !self.options.dry_run && !directory.is_empty();
        let before = place.as_ref().ok().filter(|_| keeps_times).and_then(|place| stat::stat_fd(place).ok());
        let (mut deleted, mut failed) = (0, 0);
        for name in names {
            let path = join(directory, name);
            let removed = RelPath::new(&path).map_err(io::Error::other).and_then(|_| {
                let place = place.as_ref().map_err(|error| io::Error::from(error.kind()))?;
                self.destination.dirs.forget(&path);
                if self.options.dry_run { Ok(true) } else { remove_one(place, &CString::new(&**name)?) }
            });
            match removed {
                Ok(true) => {
                    deleted += 1;
                    self.session.report.deleted(&path);
                }
                Ok(false) => self.session.report.note(&format!(
                    "{}: directory not deleted: it contains files that this job excludes",
                    quote(OsStr::from_bytes(&path))
                )),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    failed += 1;
                    let reason = reason("cannot delete", &error);
                    self.session.report.failed(&Failure { path, here: true, reason });
                }
            }
        }
        if let (Ok(place), Some(before)) = (&place, before) {
            // Ignore an error: this user can write to the directory, so the call rarely fails.
            let _ =
                set_times_fd(place.as_fd(), Times { atime: Some(before.atime), mtime: Some(before.mtime) });
        }
        self.handle(Event::Removed { batch, deleted, failed });
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Removes a name, but a directory only if it is empty. Returns true if it removed the name.
fn remove_one(place: &OwnedFd, name: &CString) -> io::Result<bool> {
    match unlink_at(place, name.as_c_str()) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
        other => return other.map(|()| true),
    }
    match rmdir_at(place, name.as_c_str()) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            // An unreadable directory was not listed. Report that as an error.
            open_dir_at(place, name.as_c_str(), Follow::No).map(|_| false)
        }
        other => other.map(|()| true),
    }
}
