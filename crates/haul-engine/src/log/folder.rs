//! Files of an object log: executes the write orders and reads the existing files.

use super::LogError;
use haul_log::objects::{HEAD_BYTES, Order, newer};
use haul_storage::{Draft, Durability, Writers};
use haul_sys::FileKind;
use haul_sys::dir::read_dir;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Maximum number of files that stay open between writes.
const OPEN_MAX: usize = 32;

/// Read limit for a log, in bytes: a thousand times the size of the largest job's log.
const BYTES_MAX: u64 = 512 << 20;

/// Directory of an object log, in which orders are executed.
#[derive(Debug)]
pub(super) struct LogDir {
    path: PathBuf,
    /// Open directory, for syncs of its names.
    dir: File,
    syncs: bool,
    open: BTreeMap<String, File>,
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
        let dir = File::open(&path).map_err(LogError::io("open log directory", &path))?;
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
        for entry in read_dir(&self.path).map_err(failed(&self.path))? {
            let entry = entry.map_err(failed(&self.path))?;
            let path = self.path.join(entry.name_os());
            if entry.kind_in(&self.dir).map_err(failed(&path))? != FileKind::Regular {
                continue;
            }
            let mut bytes = Vec::new();
            let file = options().open(&path).map_err(failed(&path))?;
            file.take(room + 1).read_to_end(&mut bytes).map_err(failed(&path))?;
            let left = room.checked_sub(bytes.len() as u64);
            room = left.ok_or_else(|| LogError::TooLarge { path: self.path.clone(), max: BYTES_MAX })?;
            files.insert(entry.name_os().to_string_lossy().into_owned(), bytes);
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
            let synced = self.file(&name).and_then(|file| file.sync_data());
            synced.map_err(LogError::io("sync log", &path))?;
        }
        if self.renamed {
            self.dir.sync_all().map_err(LogError::io("sync log", &self.path))?;
            self.renamed = false;
        }
        Ok(())
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.dirty.insert(name.to_owned());
        self.file(name)?.write_all_at(bytes, at)
    }

    fn replace(&mut self, name: &str, parts: &[(u64, Vec<u8>)]) -> io::Result<()> {
        let draft = Draft::create(self.dir.as_fd(), name, Writers::One, 0o600)?;
        parts.iter().try_for_each(|(at, bytes)| draft.file().write_all_at(bytes, *at))?;
        let file = draft.file().try_clone()?;
        draft.replace(name, if self.syncs { Durability::Data } else { Durability::None })?;
        self.renamed = true;
        self.dirty.remove(name);
        self.open.insert(name.to_owned(), file);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open.remove(name);
        self.dirty.remove(name);
        self.renamed = true;
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.lengths.remove(name);
        Ok(())
    }

    /// Returns the open file of this name; creates the file if it is missing.
    fn file(&mut self, name: &str) -> io::Result<&File> {
        if !self.open.contains_key(name) {
            if self.open.len() >= OPEN_MAX {
                self.close_one()?;
            }
            let path = self.path.join(name);
            let file = match options().write(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.renamed = true;
                    self.made.push(name.to_owned());
                    options().write(true).create_new(true).open(&path)?
                }
                opened => opened?,
            };
            self.open.insert(name.to_owned(), file);
        }
        Ok(&self.open[name])
    }

    /// Closes one open file. If the file has unsynced writes, syncs it first: only the descriptor
    /// that wrote is certain to report a failed write.
    fn close_one(&mut self) -> io::Result<()> {
        let clean = self.open.keys().find(|name| !self.dirty.contains(*name)).cloned();
        if let Some((name, file)) = match clean {
            Some(name) => self.open.remove_entry(&name),
            None => self.open.pop_first(),
        } && self.dirty.remove(&name)
        {
            file.sync_data()?;
        }
        Ok(())
    }
}

/// Rejects a log that a newer version of haul wrote, according to the first bytes of its files. A
/// missing log is accepted.
pub(super) fn refuse_newer(log: &Path) -> Result<(), LogError> {
    let failed = |path: &Path| LogError::io("read log", path);
    let mut entries = match read_dir(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed(log))?,
    };
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(failed(log))?;
        let path = log.join(entry.name_os());
        if entry.kind_in(entries.fd()).map_err(failed(&path))? != FileKind::Regular {
            continue;
        }
        let mut head = Vec::new();
        let file = options().open(&path).map_err(failed(&path))?;
        file.take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(failed(&path))?;
        if let Some(flaw) = newer(&entry.name_os().to_string_lossy(), &head) {
            return Err(LogError::Newer { folder: log.to_path_buf(), flaw });
        }
    }
    Ok(())
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
    if !found.is_dir() || found.uid() != haul_sys::process::effective_user() || found.mode() & 0o022 != 0 {
        return Err(LogError::Exposed { path: path.to_path_buf() });
    }
    Ok(())
}

/// Returns the options for reading files of a job. They follow no link: a link could lead to
/// another file of this user.
pub(super) fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.read(true).mode(0o600).custom_flags(haul_sys::open::NO_FOLLOW);
    options
}
