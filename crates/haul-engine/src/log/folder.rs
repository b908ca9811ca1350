//! The files of a log: orders carried out, and what stands there.

use super::LogError;
use haul_log::objects::{HEAD_BYTES, Order, newer};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Files that are kept open between writes.
const OPEN_MAX: usize = 32;

/// Bytes that are read of a log: a thousand times what the largest job's takes.
const BYTES_MAX: u64 = 512 << 20;

/// A folder that orders are carried out in.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The folder itself, to make names durable.
    dir: File,
    syncs: bool,
    open: BTreeMap<String, File>,
    /// Files with writes that were not synced.
    dirty: BTreeSet<String>,
    /// Names came or went and were not synced.
    renamed: bool,
    /// The length of each file that was read or written.
    lengths: BTreeMap<String, u64>,
    /// Files that the orders in hand have made, and that are neither durable nor named by others.
    made: Vec<String>,
}

impl Folder {
    /// Opens a folder; it is made if it is not there, and must be ours alone to write.
    pub(super) fn open(path: PathBuf, syncs: bool) -> Result<Folder, LogError> {
        make(&path)?;
        let dir = File::open(&path).map_err(LogError::io("open the folder of the log", &path))?;
        let (open, dirty, lengths, made) = Default::default();
        Ok(Folder { path, dir, syncs, open, dirty, renamed: false, lengths, made })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All files by name, but what is no regular file.
    pub(super) fn read(&mut self) -> Result<BTreeMap<String, Vec<u8>>, LogError> {
        let failed = |path: &Path| LogError::io("read the log", path);
        let mut files = BTreeMap::new();
        let mut room = BYTES_MAX;
        for entry in fs::read_dir(&self.path).map_err(failed(&self.path))? {
            let entry = entry.map_err(failed(&self.path))?;
            let path = entry.path();
            if !entry.file_type().map_err(failed(&path))?.is_file() {
                continue;
            }
            let mut bytes = Vec::new();
            let file = options().open(&path).map_err(failed(&path))?;
            file.take(room + 1).read_to_end(&mut bytes).map_err(failed(&path))?;
            let left = room.checked_sub(bytes.len() as u64);
            room = left.ok_or_else(|| LogError::TooLarge { path: self.path.clone(), max: BYTES_MAX })?;
            files.insert(entry.file_name().to_string_lossy().into_owned(), bytes);
        }
        self.lengths = files.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect();
        Ok(files)
    }

    /// The length of each file once these orders are carried out.
    pub(super) fn lengths_after(&self, orders: &[Order]) -> impl Iterator<Item = u64> + use<> {
        let mut lengths = self.lengths.clone();
        orders.iter().for_each(|order| count(&mut lengths, order));
        lengths.into_values()
    }

    /// Carries out orders, one after the other, up to the first that fails. New files that were only begun then do not stay, nor those that an index
    /// was to name: where there is no room for a log each try would leave some.
    pub(super) fn perform(&mut self, orders: &[Order]) -> Result<(), LogError> {
        self.made.clear();
        let done = orders.iter().enumerate().try_for_each(|(at, order)| {
            count(&mut self.lengths, order);
            self.perform_one(order)?;
            // What is durable is true, and what is named is needed.
            if matches!(order, Order::Sync | Order::Replace { .. }) {
                let rest = &orders[at + 1..];
                self.made.retain(|name| rest.iter().any(|order| order.names(name)));
            }
            Ok(())
        });
        if done.is_err() {
            // Best effort: it is removed with the next orders otherwise.
            std::mem::take(&mut self.made).iter().for_each(|name| drop(self.remove(name)));
        }
        done
    }

    fn perform_one(&mut self, order: &Order) -> Result<(), LogError> {
        match order {
            Order::Write { name, at, bytes } => {
                self.write(name, *at, bytes).map_err(LogError::io("write the log", &self.path.join(name)))
            }
            Order::Replace { name, bytes } => {
                self.replace(name, bytes).map_err(LogError::io("write the log", &self.path.join(name)))
            }
            Order::Remove { name } => {
                self.remove(name).map_err(LogError::io("remove the log", &self.path.join(name)))
            }
            Order::Sync if !self.syncs => Ok(()),
            Order::Sync => self.sync(),
        }
    }

    /// Whether a file of this name may be there.
    pub(super) fn may_have(&self, name: &str) -> bool {
        self.lengths.contains_key(name)
    }

    /// Makes all durable that was written since the last time.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        for name in std::mem::take(&mut self.dirty) {
            let path = self.path.join(&name);
            let synced = self.file(&name).and_then(|file| file.sync_data());
            synced.map_err(LogError::io("make the log durable", &path))?;
        }
        if self.renamed {
            self.dir.sync_all().map_err(LogError::io("make the log durable", &self.path))?;
            self.renamed = false;
        }
        Ok(())
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.dirty.insert(name.to_owned());
        self.file(name)?.write_all_at(bytes, at)
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let draft = self.path.join(format!("{name}.new"));
        let put = || {
            let mut file = options().write(true).create(true).truncate(true).open(&draft)?;
            file.write_all(bytes)?;
            if self.syncs {
                file.sync_data()?;
            }
            fs::rename(&draft, self.path.join(name)).map(|()| file)
        };
        // What found no room does not stay behind when the job ends. Best effort: the next run removes it otherwise.
        let file = put().inspect_err(|_| drop(fs::remove_file(&draft)))?;
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

    /// The file of a name, made if it is not there.
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

    /// Makes room among the open files. One with unsynced writes is synced through the descriptor that wrote it, which
    /// alone is sure to hear of a failure.
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

/// Refuses a log that a newer program wrote, by how its files begin. There need be none.
pub(super) fn refuse_newer(log: &Path) -> Result<(), LogError> {
    let failed = |path: &Path| LogError::io("read the log", path);
    let entries = match fs::read_dir(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed(log))?,
    };
    for entry in entries {
        let entry = entry.map_err(failed(log))?;
        let path = entry.path();
        if !entry.file_type().map_err(failed(&path))?.is_file() {
            continue;
        }
        let mut head = Vec::new();
        let file = options().open(&path).map_err(failed(&path))?;
        file.take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(failed(&path))?;
        if let Some(flaw) = newer(&entry.file_name().to_string_lossy(), &head) {
            return Err(LogError::Newer { folder: log.to_path_buf(), flaw });
        }
    }
    Ok(())
}

/// What an order makes of the lengths of the files.
fn count(lengths: &mut BTreeMap<String, u64>, order: &Order) {
    match order {
        Order::Write { name, at, bytes } => {
            let end = at.saturating_add(bytes.len() as u64);
            let length = lengths.entry(name.clone()).or_default();
            *length = (*length).max(end);
        }
        Order::Replace { name, bytes } => {
            lengths.insert(name.clone(), bytes.len() as u64);
        }
        Order::Remove { name } => {
            lengths.remove(name);
        }
        Order::Sync => {}
    }
}

/// Makes a folder that its owner alone may use. One that is there must be of this user, and of nobody else to write.
pub(super) fn make(path: &Path) -> Result<(), LogError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(LogError::io("make the folder", path))?;
    let found = fs::symlink_metadata(path).map_err(LogError::io("look at the folder", path))?;
    if !found.is_dir() || found.uid() != haul_sys::process::effective_user() || found.mode() & 0o022 != 0 {
        return Err(LogError::Exposed { path: path.to_path_buf() });
    }
    Ok(())
}

/// How files of a job are opened for reading: through no link, which could lead to another file of ours.
pub(super) fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.read(true).mode(0o600).custom_flags(haul_sys::open::NO_FOLLOW);
    options
}
