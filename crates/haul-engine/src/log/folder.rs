//! Files of an object log: executes the write orders and reads the existing files.

use super::LogError;
use haul_log::objects::{HEAD_BYTES, Order, newer};
use haul_storage::{
    Create, Dir, Draft, Durability, Entry, FileKind, Follow, Missing, Name, Remove, SinkFile, SyncWhat,
    Writers, local,
};
use haul_sys::open::NO_FOLLOW;
use haul_sys::process;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of files that stay open between writes.
const OPEN_MAX: usize = 32;

/// Read limit for a log, in bytes: a thousand times the size of the largest job's log.
const BYTES_MAX: usize = 512 << 20;

/// Number of entries of a directory that are read at a time.
const ENTRIES_AT_ONCE: usize = 1024;

/// Directory of an object log, in which orders are executed.
#[derive(Debug)]
pub(super) struct LogDir {
    path: PathBuf,
    dir: Arc<dyn Dir>,
    syncs: bool,
    open: BTreeMap<String, Arc<dyn SinkFile>>,
    /// Files with unsynced writes.
    dirty: BTreeSet<String>,
    /// True if names were created or removed since the last sync.
    renamed: bool,
    /// Length of each file that was read or written, in bytes.
    lengths: BTreeMap<String, u64>,
    /// Files that the current orders created and that are neither durable nor named by another file
    /// yet.
    made: Vec<String>,
    /// True while orders are executed, and after a panic in between.
    is_performing: bool,
}

impl LogDir {
    /// Opens a directory; creates it if it is missing. Only this user may have write access.
    pub(super) fn open(path: PathBuf, syncs: bool) -> Result<LogDir, LogError> {
        make(&path)?;
        let dir = local::open(&path, Follow::Yes).map_err(LogError::io("open log directory", &path))?;
        let (open, dirty, lengths, made) = Default::default();
        Ok(LogDir { path, dir, syncs, open, dirty, renamed: false, lengths, made, is_performing: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all regular files; returns their contents by name.
    pub(super) fn read(&mut self) -> Result<BTreeMap<String, Vec<u8>>, LogError> {
        let failed = |path: &Path| LogError::io("read log", path);
        let mut files = BTreeMap::new();
        let mut room = BYTES_MAX;
        for (name, kind) in entries(&*self.dir).map_err(failed(&self.path))? {
            if kind != FileKind::Regular {
                continue;
            }
            let read = self.dir.source(&name, Follow::No).and_then(|file| file.read_all(room));
            let bytes = read.map_err(|error| match error.kind() {
                io::ErrorKind::FileTooLarge => {
                    LogError::TooLarge { path: self.path.clone(), max: BYTES_MAX as u64 }
                }
                _ => failed(&self.path.join(name.as_os_str()))(error),
            })?;
            room -= bytes.len();
            files.insert(name.as_os_str().to_string_lossy().into_owned(), bytes);
        }
        self.lengths = files.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect();
        Ok(files)
    }

    /// Returns the length of each file after the execution of `orders`.
    pub(super) fn lengths_after(&self, orders: &[Order]) -> impl Iterator<Item = u64> + use<> {
        let mut lengths = self.lengths.clone();
        orders.iter().for_each(|order| count(&mut lengths, order));
        lengths.into_values()
    }

    /// Returns true if the last orders ended by a panic, so that any of them may be undone.
    pub(super) fn is_interrupted(&self) -> bool {
        self.is_performing
    }

    /// Executes `orders` in sequence and stops at the first failure.
    ///
    /// After a failure, removes the new files that are incomplete or that no index names yet.
    /// Otherwise each attempt on a full file system would leave some.
    pub(super) fn perform(&mut self, orders: &[Order]) -> Result<(), LogError> {
        self.made.clear();
        self.is_performing = true;
        let done = orders.iter().enumerate().try_for_each(|(at, order)| {
            count(&mut self.lengths, order);
            self.perform_one(order)?;
            // A durable file is valid, and a named file is needed: both stay. Removable are only
            // logs whose index a later order writes.
            if matches!(order, Order::Sync | Order::Replace { .. }) {
                let rest = &orders[at + 1..];
                self.made.retain(|name| rest.iter().any(|order| order.names(name)));
            }
            Ok(())
        });
        if done.is_err() {
            // If the removal fails, the next orders remove the file.
            std::mem::take(&mut self.made).iter().for_each(|name| drop(self.remove(name)));
        }
        self.is_performing = false;
        done
    }

    fn perform_one(&mut self, order: &Order) -> Result<(), LogError> {
        match order {
            Order::Write { name, at, bytes } => {
                self.write(name, *at, bytes).map_err(LogError::io("write log", &self.path.join(name)))
            }
            Order::Replace { name, parts } => {
                self.replace(name, parts).map_err(LogError::io("write log", &self.path.join(name)))
            }
            Order::Remove { name } => {
                self.remove(name).map_err(LogError::io("remove log", &self.path.join(name)))
            }
            Order::Sync if !self.syncs => Ok(()),
            Order::Sync => self.sync(),
        }
    }

    /// Returns true if a file of this name may exist.
    pub(super) fn may_have(&self, name: &str) -> bool {
        self.lengths.contains_key(name)
    }

    /// Syncs everything that was written since the last sync.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        for name in std::mem::take(&mut self.dirty) {
            let path = self.path.join(&name);
            let synced = self.file(&name).and_then(|file| file.sync(SyncWhat::Data));
            synced.map_err(LogError::io("sync log", &path))?;
        }
        if self.renamed {
            self.dir.sync().map_err(LogError::io("sync log", &self.path))?;
            self.renamed = false;
        }
        Ok(())
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.dirty.insert(name.to_owned());
        self.file(name)?.write_at(at, bytes)
    }

    fn replace(&mut self, name: &str, parts: &[(u64, Vec<u8>)]) -> io::Result<()> {
        let entry = name_of(name)?;
        let draft = Draft::create(&*self.dir, &entry, Writers::One, 0o600)?;
        parts.iter().try_for_each(|(at, bytes)| draft.file().write_at(*at, bytes))?;
        let file = Arc::clone(draft.file());
        draft.replace(&entry, if self.syncs { Durability::Data } else { Durability::None })?;
        self.renamed = true;
        self.dirty.remove(name);
        self.open.insert(name.to_owned(), file);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open.remove(name);
        self.dirty.remove(name);
        self.renamed = true;
        match self.dir.remove(&name_of(name)?, Remove::File) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.lengths.remove(name);
        Ok(())
    }

    /// Returns the open file of this name; creates the file if it is missing.
    fn file(&mut self, name: &str) -> io::Result<&dyn SinkFile> {
        if !self.open.contains_key(name) {
            if self.open.len() >= OPEN_MAX {
                self.close_one()?;
            }
            let entry = name_of(name)?;
            let existing = Create::InPlace { missing: Missing::Fail, follow: Follow::No };
            let file = match self.dir.sink(&entry, existing) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.renamed = true;
                    self.made.push(name.to_owned());
                    self.dir.sink(&entry, Create::New { mode: 0o600 })?
                }
                opened => opened?,
            };
            self.open.insert(name.to_owned(), file);
        }
        Ok(&*self.open[name])
    }

    /// Closes one open file. If the file has unsynced writes, syncs it first: only the open file
    /// that wrote is certain to report a failed write.
    fn close_one(&mut self) -> io::Result<()> {
        let clean = self.open.keys().find(|name| !self.dirty.contains(*name)).cloned();
        if let Some((name, file)) = match clean {
            Some(name) => self.open.remove_entry(&name),
            None => self.open.pop_first(),
        } && self.dirty.remove(&name)
        {
            file.sync(SyncWhat::Data)?;
        }
        Ok(())
    }
}

/// Rejects a log that a newer version of haul wrote, according to the first bytes of its files. A
/// missing log is accepted.
pub(super) fn refuse_newer(log: &Path) -> Result<(), LogError> {
    let failed = |path: &Path| LogError::io("read log", path);
    let dir = match local::open(log, Follow::Yes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        dir => dir.map_err(failed(log))?,
    };
    for (name, kind) in entries(&*dir).map_err(failed(log))? {
        if kind != FileKind::Regular {
            continue;
        }
        let mut head = [0; HEAD_BYTES];
        let read = dir.source(&name, Follow::No).and_then(|file| file.read_at(0, &mut head));
        let got = read.map_err(failed(&log.join(name.as_os_str())))?;
        if let Some(flaw) = newer(&name.as_os_str().to_string_lossy(), &head[..got]) {
            return Err(LogError::Newer { folder: log.to_path_buf(), flaw });
        }
    }
    Ok(())
}

/// Returns the entries of a directory of the state with their kinds, in any order.
///
/// # Errors
/// Returns an error if the directory, or the kind of an entry, cannot be read.
pub(super) fn entries(dir: &dyn Dir) -> io::Result<Vec<(Name, FileKind)>> {
    let (mut list, mut found) = (dir.list()?, Vec::new());
    while list.next(ENTRIES_AT_ONCE, &mut found)? {}
    let with_kind = |Entry { name, kind, .. }| match kind {
        Some(kind) => Some(Ok((name, kind))),
        None => match dir.stat_at(&name, Follow::No) {
            // A running job removes files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found.map(|found| (name, found.kind))),
        },
    };
    found.into_iter().filter_map(with_kind).collect()
}

/// Returns the name of a file of a log.
fn name_of(name: &str) -> io::Result<Name> {
    Name::try_from(OsStr::new(name))
}

/// Updates the file lengths for one order.
fn count(lengths: &mut BTreeMap<String, u64>, order: &Order) {
    match order {
        Order::Write { name, at, bytes } => {
            let end = at.saturating_add(bytes.len() as u64);
            let length = lengths.entry(name.clone()).or_default();
            *length = (*length).max(end);
        }
        Order::Replace { name, parts } => {
            let end = parts.last().map_or(0, |(at, bytes)| at.saturating_add(bytes.len() as u64));
            lengths.insert(name.clone(), end);
        }
        Order::Remove { name } => {
            lengths.remove(name);
        }
        Order::Sync => {}
    }
}

/// Creates a directory with mode 0700. An existing directory must belong to this user, and no other
/// user may have write access.
pub(crate) fn make(path: &Path) -> Result<(), LogError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(LogError::io("create directory", path))?;
    let found = fs::symlink_metadata(path).map_err(LogError::io("check directory", path))?;
    if !found.is_dir() || !is_own(&found) || found.mode() & 0o022 != 0 {
        return Err(LogError::Exposed { path: path.to_path_buf() });
    }
    Ok(())
}

/// Returns true if a file or directory belongs to the user of this process.
pub(super) fn is_own(found: &Metadata) -> bool {
    found.uid() == process::effective_user()
}

/// Returns the options for reading files of a job. They follow no link: a link could lead to
/// another file of this user.
pub(super) fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.read(true).mode(0o600).custom_flags(NO_FOLLOW);
    options
}
