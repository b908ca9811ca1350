//! State of a memory storage: its inodes, their names, and what of both is durable.

use super::errno::{
    EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY, ensure, error,
};
use super::faults::{Call, Choices, Faults};
use super::names::{Ino, NameSlot, PendingNames};
use super::pages::{PAGE_BYTES, Pages};
use crate::name::Name;
use haul_model::ByteRange;
use haul_sys::{FileKind, Follow, Stat, Timespec};
use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, CString};
use std::io;

/// Maximum size in bytes of a name, as on the usual file systems.
const NAME_BYTES_MAX: usize = 255;

/// Maximum number of links that one path follows, as on Linux.
const LINKS_MAX: u32 = 40;

/// Maximum size in bytes of the target of a link, as on Linux.
pub(super) const TARGET_BYTES_MAX: usize = 4095;

/// Number of the root directory.
pub(super) const ROOT: Ino = 1;

/// Seconds since the epoch at which the clock of a new storage starts.
const CLOCK_START_SEC: i64 = 1_700_000_000;

/// Attribute with the capabilities of a program.
const CAPABILITY: &CStr = c"security.capability";

/// All of a file.
pub(super) const WHOLE: ByteRange = ByteRange::between(0, u64::MAX);

/// Metadata that can be set.
#[derive(Clone, Debug)]
pub(super) struct Settable {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) atime: Timespec,
    pub(super) mtime: Timespec,
    pub(super) ctime: Timespec,
    pub(super) attributes: BTreeMap<CString, Vec<u8>>,
}

/// Contents of an inode by its kind.
#[derive(Clone, Debug)]
pub(super) enum Contents {
    File(Pages),
    Directory(DirectoryNames),
    Link(Vec<u8>),
    Special { kind: FileKind, rdev: u64 },
}

/// Names in a directory.
#[derive(Clone, Debug)]
pub(super) struct DirectoryNames {
    /// Names in the order of a list, which is not that of their bytes.
    pub(super) entries: BTreeMap<(u64, Name), Ino>,
    durable: BTreeMap<(u64, Name), Ino>,
    pub(super) parent: Ino,
}

/// An inode.
#[derive(Clone, Debug)]
pub(super) struct MemoryInode {
    pub(super) facts: Settable,
    durable_facts: Settable,
    pub(super) contents: Contents,
    birth: Timespec,
    /// Number of names; a directory has one, as on btrfs.
    pub(super) names: u64,
    /// Number of handles.
    handles: u64,
    /// Handle that holds the lock.
    pub(super) locked_by: Option<u64>,
    /// Number of failed write-backs, and the `errno` of the last one.
    pub(super) lost: (u64, i32),
}

/// All state of a storage.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) nodes: BTreeMap<Ino, MemoryInode>,
    pub(super) faults: Faults,
    pending: PendingNames,
    /// Number of inodes from which those are searched to which nothing leads.
    forget_from: usize,
    next_ino: Ino,
    clock: u64,
    /// Maximum number of pages.
    pub(super) capacity: u64,
    pub(super) occupied: u64,
    pub(super) umask: u32,
    /// User that calls, who owns new inodes.
    pub(super) user: u32,
}

impl DirectoryNames {
    fn new(parent: Ino) -> DirectoryNames {
        DirectoryNames { entries: BTreeMap::new(), durable: BTreeMap::new(), parent }
    }
}

/// Returns the key of a name in a directory, which starts with a hash of it (FNV-1a).
pub(super) fn key(name: &Name) -> (u64, Name) {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    (name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix), name.clone())
}

impl MemoryInode {
    pub(super) fn kind(&self) -> FileKind {
        match self.contents {
            Contents::File(_) => FileKind::Regular,
            Contents::Directory(_) => FileKind::Directory,
            Contents::Link(_) => FileKind::Symlink,
            Contents::Special { kind, .. } => kind,
        }
    }

    fn occupied(&self) -> u64 {
        if let Contents::File(pages) = &self.contents { pages.occupied() } else { 0 }
    }
}

impl Disk {
    /// Returns a disk with an empty root directory.
    pub(super) fn new() -> Disk {
        let mut disk = Disk {
            nodes: BTreeMap::new(),
            faults: Faults::default(),
            pending: PendingNames::default(),
            forget_from: 0,
            next_ino: ROOT,
            clock: 0,
            capacity: u64::MAX,
            occupied: 0,
            umask: 0o022,
            user: 0,
        };
        let root = disk.add(Contents::Directory(DirectoryNames::new(ROOT)), 0o777);
        disk.node_mut(root).names = 1;
        disk
    }

    /// Returns the time, which differs from all earlier ones.
    pub(super) fn now(&mut self) -> Timespec {
        self.clock += 1;
        let sec = CLOCK_START_SEC + (self.clock / 1_000_000_000) as i64;
        Timespec { sec, nsec: (self.clock % 1_000_000_000) as u32 }
    }

    /// Adds an inode without a name. The umask applies to its mode.
    pub(super) fn add(&mut self, contents: Contents, mode: u32) -> Ino {
        let now = self.now();
        let facts = Settable {
            mode: if matches!(contents, Contents::Link(_)) { 0o777 } else { mode & 0o7777 & !self.umask },
            uid: self.user,
            gid: 0,
            atime: now,
            mtime: now,
            ctime: now,
            attributes: BTreeMap::new(),
        };
        let durable_facts = facts.clone();
        let (birth, ino) = (now, self.next_ino);
        let node = MemoryInode {
            facts,
            durable_facts,
            contents,
            birth,
            names: 0,
            handles: 0,
            locked_by: None,
            lost: (0, 0),
        };
        self.nodes.insert(ino, node);
        self.next_ino += 1;
        ino
    }

    pub(super) fn add_directory(&mut self, parent: Ino, mode: u32) -> Ino {
        self.add(Contents::Directory(DirectoryNames::new(parent)), mode)
    }

    pub(super) fn node(&self, ino: Ino) -> &MemoryInode {
        &self.nodes[&ino]
    }

    pub(super) fn node_mut(&mut self, ino: Ino) -> &mut MemoryInode {
        self.nodes.get_mut(&ino).expect("an inode with a name or a handle exists")
    }

    /// Returns the bytes of a regular file.
    pub(super) fn pages(&self, ino: Ino) -> &Pages {
        match &self.node(ino).contents {
            Contents::File(pages) => pages,
            _ => unreachable!("only regular files are opened as files"),
        }
    }

    /// Changes the bytes of a regular file, and counts the pages that it occupies.
    pub(super) fn change_pages<T>(&mut self, ino: Ino, change: impl FnOnce(&mut Pages) -> T) -> T {
        let Contents::File(pages) = &mut self.node_mut(ino).contents else {
            unreachable!("only regular files are opened as files")
        };
        let before = pages.occupied();
        let result = change(pages);
        let after = pages.occupied();
        self.occupied = self.occupied + after - before;
        result
    }

    /// Same as [`Disk::change_pages`], and sets the modification time and the change time to now.
    /// Takes the privileges of a program away, as the kernel does.
    pub(super) fn change_bytes(&mut self, ino: Ino, change: impl FnOnce(&mut Pages)) {
        self.change_pages(ino, change);
        let (now, user) = (self.now(), self.user);
        let facts = &mut self.node_mut(ino).facts;
        (facts.mtime, facts.ctime) = (now, now);
        facts.attributes.remove(CAPABILITY);
        if user != 0 {
            let is_program_of_group = facts.mode & 0o010 != 0;
            facts.mode &= if is_program_of_group { !0o6000 } else { !0o4000 };
        }
    }

    /// Fails unless this many further pages fit.
    pub(super) fn ensure_space(&self, pages: u64) -> io::Result<()> {
        let free = self.capacity.saturating_sub(self.occupied);
        ensure(pages <= free, ENOSPC)
    }

    /// Returns the metadata of an inode.
    pub(super) fn stat(&self, ino: Ino, device: u64) -> Stat {
        let node = self.node(ino);
        let facts = &node.facts;
        let (size, rdev) = match &node.contents {
            Contents::File(pages) => (pages.len(), 0),
            Contents::Directory(_) => (PAGE_BYTES, 0),
            Contents::Link(target) => (target.len() as u64, 0),
            Contents::Special { rdev, .. } => (0, *rdev),
        };
        Stat {
            kind: node.kind(),
            mode: facts.mode,
            uid: facts.uid,
            gid: facts.gid,
            size,
            nlink: node.names,
            dev: device,
            ino,
            rdev,
            blksize: PAGE_BYTES as u32,
            blocks: node.occupied() * (PAGE_BYTES / 512),
            atime: facts.atime,
            mtime: facts.mtime,
            ctime: facts.ctime,
            btime: Some(node.birth),
            may_be_mount_root: ino == ROOT,
        }
    }

    /// Returns a directory that still has a name.
    pub(super) fn directory(&self, ino: Ino) -> io::Result<&DirectoryNames> {
        match &self.node(ino).contents {
            Contents::Directory(_) if self.node(ino).names == 0 => Err(error(ENOENT)),
            Contents::Directory(dir) => Ok(dir),
            _ => Err(error(ENOTDIR)),
        }
    }

    /// Returns the inode that a name in a directory leads to, if the name exists.
    pub(super) fn find(&self, dir: Ino, name: &Name) -> io::Result<Option<Ino>> {
        ensure(name.as_bytes().len() <= NAME_BYTES_MAX, ENAMETOOLONG)?;
        Ok(self.directory(dir)?.entries.get(&key(name)).copied())
    }

    /// Returns the inode that a name leads to.
    pub(super) fn look_up(&self, dir: Ino, name: &Name, follow: Follow) -> io::Result<Ino> {
        let ino = self.find(dir, name)?.ok_or_else(|| error(ENOENT))?;
        match &self.node(ino).contents {
            Contents::Link(target) if follow == Follow::Yes => self.resolve(dir, target, &mut 0),
            _ => Ok(ino),
        }
    }

    /// Returns the inode that a path leads to from a directory.
    fn resolve(&self, dir: Ino, path: &[u8], links: &mut u32) -> io::Result<Ino> {
        *links += 1;
        ensure(*links <= LINKS_MAX, ELOOP)?;
        let mut at = if path.starts_with(b"/") { ROOT } else { dir };
        for part in path.split(|&byte| byte == b'/') {
            let here = at;
            let parent = self.directory(at)?.parent;
            at = match Name::new(part) {
                None if part == b".." => parent,
                None => here,
                Some(name) => self.find(here, &name)?.ok_or_else(|| error(ENOENT))?,
            };
            if let Contents::Link(target) = &self.node(at).contents {
                at = self.resolve(here, target, links)?;
            }
        }
        Ok(at)
    }

    /// Returns the directory and the name that a name leads to when links are followed. There may
    /// be no such entry.
    pub(super) fn behind_links(&self, dir: Ino, name: &Name) -> io::Result<(Ino, Name)> {
        let (mut dir, mut name) = (dir, name.clone());
        for _ in 0..LINKS_MAX {
            let Some(found) = self.find(dir, &name)? else { return Ok((dir, name)) };
            let Contents::Link(target) = &self.node(found).contents else { return Ok((dir, name)) };
            let start = target.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
            dir = self.resolve(dir, &target[..start], &mut 0)?;
            // Any other component is a directory.
            name = Name::new(&target[start..]).ok_or_else(|| error(EEXIST))?;
        }
        Err(error(ELOOP))
    }

    /// Fails with `EEXIST` if a name exists, and with `ENOENT` if its directory is removed.
    pub(super) fn ensure_free(&self, dir: Ino, name: &Name) -> io::Result<()> {
        ensure(self.find(dir, name)?.is_none(), EEXIST)
    }

    /// Returns true if `dir` is `above` or beneath it.
    pub(super) fn is_beneath(&self, mut dir: Ino, above: Ino) -> bool {
        while dir != above && dir != ROOT {
            let Contents::Directory(directory) = &self.node(dir).contents else { return false };
            dir = directory.parent;
        }
        dir == above
    }

    /// Fails unless an entry can be removed as a directory or as something else.
    pub(super) fn ensure_removable(&self, ino: Ino, is_directory: bool) -> io::Result<()> {
        match &self.node(ino).contents {
            Contents::Directory(_) if !is_directory => Err(error(EISDIR)),
            Contents::Directory(dir) => ensure(dir.entries.is_empty(), ENOTEMPTY),
            _ => ensure(!is_directory, ENOTDIR),
        }
    }

    /// Lets names lead elsewhere, all at once.
    pub(super) fn set_names(&mut self, slots: Vec<NameSlot>) {
        let mut inodes = Vec::new();
        let now = self.now();
        let mut is_ordered = false;
        for (dir, name, ino) in &slots {
            let Contents::Directory(directory) = &mut self.node_mut(*dir).contents else { continue };
            let entries = &mut directory.entries;
            let before = match ino {
                Some(ino) => entries.insert(key(name), *ino),
                None => entries.remove(&key(name)),
            };
            let facts = &mut self.node_mut(*dir).facts;
            (facts.mtime, facts.ctime) = (now, now);
            for (ino, gains) in ino.iter().map(|&ino| (ino, true)).chain(before.map(|ino| (ino, false))) {
                let node = self.node_mut(ino);
                node.facts.ctime = now;
                node.names = if gains { node.names + 1 } else { node.names - 1 };
                // A new directory has no earlier name, so only a move or a removal is ordered.
                is_ordered |= !gains && node.kind() == FileKind::Directory;
                if let (true, Contents::Directory(moved)) = (gains, &mut node.contents) {
                    moved.parent = *dir;
                }
                inodes.push(ino);
            }
        }
        self.pending.push(slots, inodes.clone(), is_ordered);
        for ino in inodes {
            self.free_if_unused(ino);
        }
    }

    /// Renames an entry. If `replaces` is false, the new name must not exist.
    pub(super) fn rename(
        &mut self,
        dir: Ino,
        from: &Name,
        to_dir: Ino,
        to: &Name,
        replaces: bool,
    ) -> io::Result<()> {
        let ino = self.look_up(dir, from, Follow::No)?;
        let existing = self.find(to_dir, to)?;
        ensure(existing.is_none() || replaces, EEXIST)?;
        if existing == Some(ino) {
            return Ok(());
        }
        let is_directory = self.node(ino).kind() == FileKind::Directory;
        ensure(!is_directory || !self.is_beneath(to_dir, ino), EINVAL)?;
        if let Some(existing) = existing {
            self.ensure_removable(existing, is_directory)?;
        }
        self.set_names(vec![(dir, from.clone(), None), (to_dir, to.clone(), Some(ino))]);
        Ok(())
    }

    /// Counts a further handle of an inode.
    pub(super) fn hold(&mut self, ino: Ino) {
        self.node_mut(ino).handles += 1;
    }

    /// Counts a handle less.
    pub(super) fn release(&mut self, ino: Ino) {
        self.node_mut(ino).handles -= 1;
        self.free_if_unused(ino);
    }

    /// Frees the space of an inode without names and handles. Its bytes stay as long as a power cut
    /// can bring a name back.
    fn free_if_unused(&mut self, ino: Ino) {
        let node = self.node(ino);
        if node.names == 0 && node.handles == 0 {
            self.occupied -= node.occupied();
        }
    }

    /// Forgets inodes to which nothing can lead any more, once their number may have doubled.
    fn forget_unused(&mut self) {
        if self.nodes.len() < self.forget_from {
            return;
        }
        let mut reachable: HashSet<Ino> = self.pending.inodes();
        for node in self.nodes.values() {
            if let Contents::Directory(dir) = &node.contents {
                reachable.extend(dir.durable.values());
            }
        }
        self.nodes.retain(|ino, node| node.names > 0 || node.handles > 0 || reachable.contains(ino));
        self.forget_from = 2 * self.nodes.len();
    }

    /// Writes the dirty pages of a range of a file to the device, as one call if there are any.
    ///
    /// # Errors
    /// Returns nothing: the error counts as lost bytes of the file.
    pub(super) fn write_back(&mut self, ino: Ino, range: ByteRange) {
        if !self.pages(ino).is_dirty(range) {
            return;
        }
        let failure = self.faults.check(Call::WriteBack).err();
        self.change_pages(ino, |pages| pages.write_back(range, failure.is_some()));
        if let Some(failure) = failure {
            let lost = &mut self.node_mut(ino).lost;
            *lost = (lost.0 + 1, failure.raw_os_error().unwrap_or(super::errno::EIO));
        }
    }

    /// Makes what the device has of a file durable, with all metadata or only the length.
    ///
    /// # Errors
    /// Returns a planned error. Nothing is then durable.
    pub(super) fn flush(&mut self, ino: Ino, all: bool) -> io::Result<()> {
        self.faults.check(Call::Flush)?;
        let node = self.node_mut(ino);
        if let Contents::File(pages) = &mut node.contents {
            pages.flush();
        }
        if all {
            node.durable_facts = node.facts.clone();
        }
        Ok(())
    }

    /// Makes the names in a directory durable, with its metadata.
    pub(super) fn sync_names(&mut self, dir: Ino) {
        let slots = self.pending.take_of(dir);
        self.make_durable(slots);
        let node = self.node_mut(dir);
        node.durable_facts = node.facts.clone();
        self.forget_unused();
    }

    /// Makes everything durable. Files whose bytes are lost remember that.
    ///
    /// # Errors
    /// Returns the first error of a flush.
    pub(super) fn sync_device(&mut self) -> io::Result<()> {
        self.write_back_all();
        let slots = self.pending.take_all();
        self.make_durable(slots);
        let inodes: Vec<Ino> = self.nodes.keys().copied().collect();
        let flushed = inodes.into_iter().try_for_each(|ino| self.flush(ino, true));
        self.forget_unused();
        flushed
    }

    /// Writes all dirty pages to the device, as the kernel does in the background.
    pub(super) fn write_back_all(&mut self) {
        let is_file = |node: &MemoryInode| matches!(node.contents, Contents::File(_));
        let files: Vec<Ino> =
            self.nodes.iter().filter(|(_, node)| is_file(node)).map(|(&ino, _)| ino).collect();
        for ino in files {
            self.write_back(ino, WHOLE);
        }
    }

    /// Changes the byte of a file on the device. Returns false if the device does not have it.
    pub(super) fn damage(&mut self, ino: Ino, at: u64) -> bool {
        match self.nodes.get_mut(&ino).map(|node| &mut node.contents) {
            Some(Contents::File(pages)) => pages.damage(at),
            _ => false,
        }
    }

    fn make_durable(&mut self, slots: Vec<NameSlot>) {
        for (dir, name, ino) in slots {
            if let Some(Contents::Directory(directory)) =
                self.nodes.get_mut(&dir).map(|node| &mut node.contents)
            {
                match ino {
                    Some(ino) => directory.durable.insert(key(&name), ino),
                    None => directory.durable.remove(&key(&name)),
                };
            }
        }
    }

    /// Returns the disk after a power cut.
    pub(super) fn after_power_cut(&self, seed: u64) -> Disk {
        let mut choices = Choices(seed);
        let mut left = Disk {
            nodes: self.nodes.clone(),
            faults: Faults::default(),
            pending: PendingNames::default(),
            occupied: 0,
            ..*self
        };
        left.make_durable(self.pending.survivors(&mut choices));
        for node in left.nodes.values_mut() {
            if choices.either() {
                node.facts = node.durable_facts.clone();
            }
            (node.names, node.handles, node.locked_by, node.lost) = (0, 0, None, (0, 0));
            match &mut node.contents {
                Contents::File(pages) => *pages = pages.after_power_cut(&mut choices),
                Contents::Directory(dir) => dir.entries = dir.durable.clone(),
                Contents::Link(_) | Contents::Special { .. } => {}
            }
            node.durable_facts = node.facts.clone();
        }
        left.count_names();
        left.nodes.retain(|_, node| node.names > 0);
        left.occupied = left.nodes.values().map(MemoryInode::occupied).sum();
        left
    }

    /// Returns the disk after a kill of all who use it.
    pub(super) fn after_kill(&self) -> Disk {
        let (nodes, pending) = (self.nodes.clone(), self.pending.clone());
        let mut left = Disk { nodes, pending, faults: Faults::default(), ..*self };
        for node in left.nodes.values_mut() {
            (node.handles, node.locked_by) = (0, None);
        }
        let named = left.nodes.values().filter(|node| node.names > 0);
        left.occupied = named.map(MemoryInode::occupied).sum();
        left
    }

    /// Counts the names of all inodes from the root.
    fn count_names(&mut self) {
        self.node_mut(ROOT).names = 1;
        let mut waiting = vec![ROOT];
        while let Some(dir) = waiting.pop() {
            let Contents::Directory(directory) = &self.node(dir).contents else { continue };
            let inner: Vec<Ino> = directory.entries.values().copied().collect();
            for ino in inner {
                let node = self.node_mut(ino);
                node.names += 1;
                if let Contents::Directory(found) = &mut node.contents {
                    found.parent = dir;
                    waiting.push(ino);
                }
            }
        }
    }
}
