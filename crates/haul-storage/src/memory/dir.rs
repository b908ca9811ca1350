//! Open directories in memory.

use super::disk::{Contents, Disk, ROOT, TARGET_BYTES_MAX, key};
use super::errno::{EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, EPERM, EXDEV, ensure, error};
use super::faults::Call;
use super::file::{ForReading, ForWriting, ensure_file, new_file};
use super::names::Ino;
use super::open::{Handle, SharedDisk};
use super::pages::PAGE_BYTES;
use crate::name::{Name, Tag};
use crate::storage::{
    Create, Dir, Entry, Inode, Listing, Missing, Node, Remove, Replace, SinkFile, SourceFile,
};
use haul_sys::filesystem::Space;
use haul_sys::{FileKind, Follow, Stat};
use std::any::Any;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

/// Mode of a temporary file: no other user may read it.
const TEMPORARY_MODE: u32 = 0o600;

/// A directory that is open.
#[derive(Debug)]
pub(super) struct ForNames;

/// An inode that is held.
#[derive(Debug)]
struct Held;

/// List of a directory. It continues behind the last name.
#[derive(Debug)]
struct MemoryListing {
    dir: Arc<Handle<ForNames>>,
    last: Option<(u64, Name)>,
}

impl Handle<ForNames> {
    /// Returns the inode of another directory of this storage.
    fn other(&self, dir: &dyn Dir) -> io::Result<Ino> {
        let other = (dir as &dyn Any).downcast_ref::<Handle<ForNames>>().ok_or_else(|| error(EINVAL))?;
        ensure(Arc::ptr_eq(&self.shared, &other.shared), EXDEV)?;
        Ok(other.ino)
    }

    /// Returns the storage that is mounted on a directory.
    fn mounted(&self, ino: Ino) -> Option<Arc<SharedDisk>> {
        self.shared.mounts.lock().get(&ino).cloned()
    }

    fn add(&self, disk: &mut Disk, name: &Name, ino: Ino) {
        disk.set_names(vec![(self.ino, name.clone(), Some(ino))]);
    }

    fn drop_name(&self, disk: &mut Disk, name: &Name) {
        disk.set_names(vec![(self.ino, name.clone(), None)]);
    }

    /// Creates or opens a file under its final name.
    fn open_in_place(
        &self,
        disk: &mut Disk,
        name: &Name,
        missing: Missing,
        follow: Follow,
    ) -> io::Result<(Ino, bool)> {
        let (dir, name) = match follow {
            Follow::Yes => disk.behind_links(self.ino, name)?,
            Follow::No => (self.ino, name.clone()),
        };
        match (disk.find(dir, &name)?, missing) {
            (Some(found), _) => Ok((ensure_file(disk, found, EEXIST)?, false)),
            (None, Missing::Fail) => Err(error(ENOENT)),
            (None, Missing::Create { mode }) => {
                let ino = new_file(disk, mode);
                disk.set_names(vec![(dir, name, Some(ino))]);
                Ok((ino, true))
            }
        }
    }

    fn create(&self, disk: &mut Disk, name: &Name, mode: u32) -> Ino {
        let ino = new_file(disk, mode);
        self.add(disk, name, ino);
        ino
    }

    /// Returns what has a temporary name, unless it is a directory.
    fn leftover(&self, disk: &Disk, tag: Tag) -> io::Result<Option<Ino>> {
        let found = disk.find(self.ino, &tag.name())?;
        let is_directory = |ino| disk.node(ino).kind() == FileKind::Directory;
        ensure(!found.is_some_and(is_directory), EISDIR)?;
        Ok(found)
    }
}

impl Dir for Handle<ForNames> {
    fn list(&self) -> io::Result<Box<dyn Listing>> {
        self.call(Call::List, |disk| {
            let dir = self.shared.open(disk, self.ino, ForNames);
            Ok(Box::new(MemoryListing { dir, last: None }) as Box<dyn Listing>)
        })
    }

    fn stat_at(&self, name: &Name, follow: Follow) -> io::Result<Stat> {
        self.call(Call::Stat, |disk| {
            let ino = disk.look_up(self.ino, name, follow)?;
            match self.mounted(ino) {
                Some(other) => Ok(other.disk(|disk| disk.stat(ROOT, other.device.id))),
                None => Ok(disk.stat(ino, self.shared.device.id)),
            }
        })
    }

    fn hold(&self, name: &Name) -> io::Result<Arc<dyn Inode>> {
        self.call(Call::Hold, |disk| {
            let ino = disk.look_up(self.ino, name, Follow::No)?;
            Ok(self.shared.open(disk, ino, Held) as Arc<dyn Inode>)
        })
    }

    fn hold_device(&self) -> io::Result<Arc<dyn Inode>> {
        self.call(Call::Hold, |disk| Ok(self.shared.open(disk, self.ino, Held) as Arc<dyn Inode>))
    }

    fn dir(&self, name: &Name, follow: Follow, missing: Missing) -> io::Result<Arc<dyn Dir>> {
        let open = |disk: &mut Disk, ino| {
            disk.directory(ino)?;
            match self.mounted(ino) {
                Some(other) => Ok(root(&other)),
                None => Ok(self.shared.open(disk, ino, ForNames) as Arc<dyn Dir>),
            }
        };
        let found = self.call(Call::OpenDir, |disk| match (disk.find(self.ino, name)?, missing) {
            (None, Missing::Create { .. }) => Ok(None),
            _ => {
                let ino = disk.look_up(self.ino, name, follow)?;
                open(disk, ino).map(Some)
            }
        })?;
        match (found, missing) {
            (Some(found), _) => Ok(found),
            (None, Missing::Fail) => Err(error(ENOENT)),
            (None, Missing::Create { mode }) => self.call(Call::Make, |disk| {
                let ino = match disk.find(self.ino, name)? {
                    // Another thread was faster.
                    Some(found) => found,
                    None => {
                        let ino = disk.add_directory(self.ino, mode);
                        self.add(disk, name, ino);
                        ino
                    }
                };
                open(disk, ino)
            }),
        }
    }

    fn source(&self, name: &Name, follow: Follow) -> io::Result<Arc<dyn SourceFile>> {
        self.call(Call::OpenSource, |disk| {
            let ino = disk.look_up(self.ino, name, follow)?;
            ensure(disk.node(ino).kind() != FileKind::Symlink, ELOOP)?;
            ensure_file(disk, ino, EINVAL)?;
            let source = ForReading::new(disk, ino, self.shared.device.id);
            Ok(self.shared.open(disk, ino, source) as Arc<dyn SourceFile>)
        })
    }

    fn sink(&self, name: &Name, create: Create) -> io::Result<Arc<dyn SinkFile>> {
        self.call(Call::OpenSink, |disk| {
            let (ino, is_new, temporary) = match create {
                Create::New { mode } => {
                    disk.ensure_free(self.ino, name)?;
                    (self.create(disk, name, mode), true, None)
                }
                Create::InPlace { missing, follow } => {
                    let (ino, is_new) = self.open_in_place(disk, name, missing, follow)?;
                    (ino, is_new, None)
                }
                Create::Complete { follow } => {
                    let (ino, is_new) = self.open_in_place(disk, name, Missing::Fail, follow)?;
                    (ino, is_new, None)
                }
                Create::Temporary(tag) => {
                    if self.leftover(disk, tag)?.is_some() {
                        self.drop_name(disk, &tag.name());
                    }
                    (self.create(disk, &tag.name(), TEMPORARY_MODE), true, Some(tag))
                }
                Create::Resume(tag) => {
                    let found = self.leftover(disk, tag)?.ok_or_else(|| error(ENOENT))?;
                    if disk.node(found).kind() != FileKind::Regular || disk.node(found).names > 1 {
                        self.drop_name(disk, &tag.name());
                        return Err(error(ENOENT));
                    }
                    (found, false, Some(tag))
                }
            };
            let temporary = temporary.map(|tag| (self.ino, tag.name(), name.clone()));
            let opened = (!is_new).then(|| disk.stat(ino, self.shared.device.id));
            let sink = ForWriting::new(disk, ino, opened, temporary);
            Ok(self.shared.open(disk, ino, sink) as Arc<dyn SinkFile>)
        })
    }

    fn nameless(&self) -> io::Result<Arc<dyn SinkFile>> {
        self.call(Call::OpenSink, |disk| {
            let ino = new_file(disk, TEMPORARY_MODE);
            let sink = ForWriting::new(disk, ino, None, None);
            Ok(self.shared.open(disk, ino, sink) as Arc<dyn SinkFile>)
        })
    }

    fn make(&self, name: &Name, node: &Node<'_>) -> io::Result<()> {
        self.call(Call::Make, |disk| {
            disk.ensure_free(self.ino, name)?;
            let ino = match *node {
                Node::Directory { mode } => disk.add_directory(self.ino, mode),
                Node::Link { target } => {
                    ensure(!target.is_empty(), ENOENT)?;
                    ensure(!target.contains(&0), EINVAL)?;
                    ensure(target.len() <= TARGET_BYTES_MAX, ENAMETOOLONG)?;
                    disk.add(Contents::Link(target.to_owned()), 0o777)
                }
                Node::Special { kind, mode, rdev } => {
                    let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
                    ensure(is_device || matches!(kind, FileKind::Fifo | FileKind::Socket), EINVAL)?;
                    let rdev = if is_device { rdev } else { 0 };
                    disk.add(Contents::Special { kind, rdev }, mode)
                }
            };
            self.add(disk, name, ino);
            Ok(())
        })
    }

    fn link(&self, from: &Name, follow: Follow, to_dir: &dyn Dir, to: &Name) -> io::Result<()> {
        let to_dir = self.other(to_dir)?;
        self.call(Call::Link, |disk| {
            let ino = disk.look_up(self.ino, from, follow)?;
            disk.ensure_free(to_dir, to)?;
            ensure(disk.node(ino).kind() != FileKind::Directory, EPERM)?;
            disk.set_names(vec![(to_dir, to.clone(), Some(ino))]);
            Ok(())
        })
    }

    fn rename(&self, from: &Name, to_dir: &dyn Dir, to: &Name, replace: Replace) -> io::Result<()> {
        let to_dir = self.other(to_dir)?;
        self.call(Call::Rename, |disk| disk.rename(self.ino, from, to_dir, to, replace == Replace::Yes))
    }

    fn exchange(&self, name: &Name, other_dir: &dyn Dir, other: &Name) -> io::Result<()> {
        let other_dir = self.other(other_dir)?;
        self.call(Call::Rename, |disk| {
            let first = disk.look_up(self.ino, name, Follow::No)?;
            let second = disk.look_up(other_dir, other, Follow::No)?;
            ensure(!disk.is_beneath(other_dir, first) && !disk.is_beneath(self.ino, second), EINVAL)?;
            if first != second {
                disk.set_names(vec![
                    (self.ino, name.clone(), Some(second)),
                    (other_dir, other.clone(), Some(first)),
                ]);
            }
            Ok(())
        })
    }

    fn remove(&self, name: &Name, what: Remove) -> io::Result<()> {
        self.call(Call::Remove, |disk| {
            let ino = disk.look_up(self.ino, name, Follow::No)?;
            disk.ensure_removable(ino, what == Remove::Directory)?;
            self.drop_name(disk, name);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.call(Call::SyncNames, |disk| {
            disk.sync_names(self.ino);
            Ok(())
        })
    }

    fn space(&self) -> io::Result<Space> {
        self.call(Call::Space, |disk| {
            let free = disk.capacity.saturating_sub(disk.occupied).saturating_mul(PAGE_BYTES);
            Ok(Space { free: Some(free), reserves: true })
        })
    }
}

impl Listing for MemoryListing {
    fn next(&mut self, max: usize, out: &mut Vec<Entry>) -> io::Result<bool> {
        let last = &mut self.last;
        self.dir.call(Call::List, |disk| {
            let Ok(directory) = disk.directory(self.dir.ino) else { return Ok(false) };
            let from = last.clone().map_or(Bound::Unbounded, Bound::Excluded);
            let mut rest = directory.entries.range((from, Bound::Unbounded));
            out.extend(rest.by_ref().take(max).map(|((_, name), &ino)| {
                *last = Some(key(name));
                Entry { name: name.clone(), kind: Some(disk.node(ino).kind()), ino }
            }));
            Ok(rest.next().is_some())
        })
    }
}

/// Returns the root directory of a storage.
pub(super) fn root(shared: &Arc<SharedDisk>) -> Arc<dyn Dir> {
    shared.open_root(ForNames)
}
