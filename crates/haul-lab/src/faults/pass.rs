//! Effect of each operation on the source directory, and the rules that change this effect.

use super::faultfs::{Control, Recorded, hold};
use super::nodes::{Nodes, errno_of, kind, seconds_of};
use super::rules::{Action, Op};
use fuser::{FileAttr, FileType, Request, TimeOrNow};
use parking_lot::Mutex;
use rustix::fs as sys;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// State of the file system; the kernel's requests are served one at a time.
pub(super) struct Pass {
    pub(super) nodes: Nodes,
    pub(super) control: Arc<Mutex<Control>>,
    pub(super) open: HashMap<u64, Open>,
    last: u64,
    is_root: bool,
    /// Files that lost their name while they were open, by inode: the path of each until it is
    /// closed.
    silly: HashMap<u64, PathBuf>,
    /// Attributes first reported to the kernel for files whose attributes lag, by inode.
    pub(super) lagging: HashMap<u64, FileAttr>,
    /// Number of changes of the shown inode number, by inode.
    pub(super) renumbered: HashMap<u64, u64>,
}

/// An open file or directory; a file with the path by which it was opened.
pub(super) enum Open {
    File(File, PathBuf),
    List(Vec<(u64, FileType, OsString)>),
}

impl Pass {
    /// Creates a file system over the directory `root`. With root's rights, a new entry gets the
    /// owner of the request.
    pub(super) fn new(root: PathBuf, control: Arc<Mutex<Control>>, is_root: bool) -> Self {
        Self {
            nodes: Nodes::new(root),
            control,
            open: HashMap::new(),
            last: 0,
            is_root,
            silly: HashMap::new(),
            lagging: HashMap::new(),
            renumbered: HashMap::new(),
        }
    }

    /// Applies the rules for an operation without bytes. Returns `Ok(true)` if the operation is to
    /// be dropped.
    pub(super) fn meet(&self, op: Op, path: &Path) -> Result<bool, Errno> {
        Ok(self.actions(op, path, 0, 0)?.contains(&Action::Drop))
    }

    /// Applies the errors and delays of the rules for an operation on these bytes. Returns all
    /// actions of the rules.
    pub(super) fn actions(&self, op: Op, path: &Path, from: u64, to: u64) -> Result<Vec<Action>, Errno> {
        let actions = self.control.lock().meet(op, path, from, to);
        for action in &actions {
            match *action {
                Action::Errno(errno) => return Err(errno),
                Action::Delay(ms) => hold(&self.control, ms),
                _ => {}
            }
        }
        Ok(actions)
    }

    pub(super) fn file(&self, handle: u64) -> Result<(&File, &Path), Errno> {
        match self.open.get(&handle) {
            Some(Open::File(file, path)) => Ok((file, path)),
            _ => Err(Errno::BADF),
        }
    }

    /// Returns the attributes of a file if the file is open.
    pub(super) fn held(&self, ino: u64) -> Option<fs::Metadata> {
        let open = self.open.values().filter_map(|open| match open {
            Open::File(file, _) => file.metadata().ok(),
            Open::List(_) => None,
        });
        open.into_iter().find(|meta| meta.ino() == ino)
    }

    pub(super) fn keep(&mut self, open: Open) -> u64 {
        self.last += 1;
        self.open.insert(self.last, open);
        self.last
    }

    pub(super) fn open_file(
        &mut self,
        path: PathBuf,
        flags: i32,
        more: OFlags,
        mode: Mode,
    ) -> Result<u64, Errno> {
        // The kernel itself positions appending writes and truncates. Direct I/O would require
        // alignment.
        let flags = OFlags::from_bits_retain(flags.cast_unsigned())
            - (OFlags::APPEND | OFlags::DIRECT | OFlags::TRUNC | OFlags::CREATE | OFlags::EXCL);
        let file = sys::openat(CWD, self.nodes.real(&path), flags | more | OFlags::CLOEXEC, mode)?;
        Ok(self.keep(Open::File(file.into(), path)))
    }

    /// Applies the rules for creating `name`, creates it with `make`, and sets the owner to that of
    /// the request.
    pub(super) fn make(
        &mut self,
        request: &Request<'_>,
        parent: u64,
        name: &OsStr,
        make: impl FnOnce(&Path) -> Result<(), Errno>,
    ) -> Result<FileAttr, Errno> {
        let path = self.child(parent, name)?;
        self.meet(Op::Create, &path)?;
        let real = self.nodes.real(&path);
        make(&real)?;
        self.own(request, &real)?;
        self.look_up(&path)
    }

    pub(super) fn own(&self, request: &Request<'_>, real: &Path) -> Result<(), Errno> {
        if !self.is_root || request.uid() == 0 {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(request.uid()), Gid::from_raw(request.gid()));
        sys::chownat(CWD, real, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }

    pub(super) fn remove(&mut self, parent: u64, name: &OsStr, flags: AtFlags) -> Result<(), Errno> {
        let path = self.child(parent, name)?;
        let real = self.nodes.real(&path);
        let is_silly = self.actions(Op::Remove, &path, 0, 0)?.contains(&Action::Silly);
        let found = fs::symlink_metadata(&real).map_err(|e| errno_of(&e))?;
        self.lagging.remove(&found.ino());
        if !is_silly || found.nlink() > 1 || self.held(found.ino()).is_none() {
            return sys::unlinkat(CWD, real, flags);
        }
        let other = self.child(parent, OsStr::new(&format!(".nfs{:016x}", found.ino())))?;
        fs::rename(real, self.nodes.real(&other)).map_err(|e| errno_of(&e))?;
        self.nodes.renamed(&path, &other);
        self.silly.insert(found.ino(), other);
        Ok(())
    }

    /// Closes a handle. If a file lost its name and this was its last handle, removes the file.
    pub(super) fn release_handle(&mut self, handle: u64) {
        let Some(Open::File(file, _)) = self.open.remove(&handle) else { return };
        let Ok(ino) = file.metadata().map(|meta| meta.ino()) else { return };
        if self.held(ino).is_none()
            && let Some(path) = self.silly.remove(&ino)
        {
            // Another process may have removed the file by its `.nfs` name.
            let _ = fs::remove_file(self.nodes.real(&path));
        }
    }

    /// Copies by reading and writing, so that the rules for both apply.
    pub(super) fn copy(&self, from: (u64, u64), to: (u64, u64), len: u64) -> Result<usize, Errno> {
        /// Maximum number of bytes of one request; the caller repeats for the rest.
        const STEP: u64 = 1 << 20;
        let (_, path) = self.file(to.0)?;
        let mut len = len.min(STEP);
        for action in self.actions(Op::Copy, path, to.1, to.1 + len)? {
            if let Action::Short(most) = action {
                len = len.min(most);
            }
        }
        let (bytes, pause) = self.read_at(from.0, from.1, u32::try_from(len).unwrap_or(u32::MAX))?;
        if let Some(ms) = pause {
            hold(&self.control, ms);
        }
        if bytes.is_empty() { Ok(0) } else { self.write_at(to.0, to.1, &bytes) }
    }

    /// Reads bytes. Returns them with the milliseconds for which the rules pause this read, if any.
    pub(super) fn read_at(&self, handle: u64, from: u64, size: u32) -> Result<(Vec<u8>, Option<u64>), Errno> {
        let (file, path) = self.file(handle)?;
        let mut bytes = vec![0; size as usize];
        let count = file.read_at(&mut bytes, from).map_err(|e| errno_of(&e))?;
        bytes.truncate(count);
        self.control.lock().bytes_read += count as u64;
        let mut pause = None;
        for action in self.actions(Op::Read, path, from, from + count as u64)? {
            match action {
                Action::Short(most) => bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX)),
                Action::Flip { at, bit } => flip_bit(&mut bytes, from, at, bit),
                Action::Pause(ms) => pause = Some(ms),
                _ => {}
            }
        }
        Ok((bytes, pause))
    }

    pub(super) fn write_at(&self, handle: u64, from: u64, data: &[u8]) -> Result<usize, Errno> {
        let (file, path) = self.file(handle)?;
        let mut bytes = std::borrow::Cow::Borrowed(data);
        let mut dropped = false;
        for action in self.actions(Op::Write, path, from, from + data.len() as u64)? {
            match action {
                Action::Short(most) => bytes.to_mut().truncate(usize::try_from(most).unwrap_or(usize::MAX)),
                Action::Flip { at, bit } => flip_bit(bytes.to_mut(), from, at, bit),
                Action::Drop => dropped = true,
                _ => {}
            }
        }
        if dropped {
            return Ok(bytes.len());
        }
        let written = file.write_at(&bytes, from).map_err(|e| errno_of(&e))?;
        self.record(|| Recorded::Write { path: path.to_owned(), at: from, bytes: bytes[..written].to_vec() });
        Ok(written)
    }

    /// Records an event at the storage if a recording is active.
    pub(super) fn record(&self, what: impl FnOnce() -> Recorded) {
        if let Some(recorded) = &mut self.control.lock().recorded {
            recorded.push(what());
        }
    }

    pub(super) fn truncate(&self, path: &Path, handle: Option<u64>, size: u64) -> Result<(), Errno> {
        self.actions(Op::Truncate, path, size, size + 1)?;
        let opened;
        let file = match handle {
            Some(handle) => self.file(handle)?.0,
            None => {
                let path = self.nodes.real(path);
                opened = File::options().write(true).open(path).map_err(|e| errno_of(&e))?;
                &opened
            }
        };
        if size > file.metadata().map_err(|e| errno_of(&e))?.len() {
            self.actions(Op::Extend, path, size, size + 1)?;
        }
        file.set_len(size).map_err(|e| errno_of(&e))
    }

    pub(super) fn set_properties(&self, path: &Path, change: &Change) -> Result<(), Errno> {
        if change.is_nothing() || self.meet(Op::SetAttr, path)? {
            return Ok(());
        }
        let is_kept =
            |op: Op, is_asked: bool| -> Result<bool, Errno> { Ok(is_asked && !self.meet(op, path)?) };
        let owner = is_kept(Op::Owner, change.uid.is_some() || change.gid.is_some())?;
        let permissions = is_kept(Op::Mode, change.mode.is_some())?;
        let times = is_kept(Op::Times, change.atime.is_some() || change.mtime.is_some())?;
        let real = self.nodes.real(path);
        if owner {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            sys::chownat(CWD, &real, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let Some(mode) = change.mode.filter(|_| permissions) {
            sys::chmodat(CWD, &real, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
        }
        if times {
            let times =
                Timestamps { last_access: timespec(change.atime), last_modification: timespec(change.mtime) };
            sys::utimensat(CWD, &real, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    pub(super) fn list(&mut self, ino: u64) -> Result<Vec<(u64, FileType, OsString)>, Errno> {
        let path = self.nodes.path(ino)?;
        let renumbers = self.actions(Op::List, path, 0, 0)?.contains(&Action::Renumber);
        let mut list = vec![(ino, FileType::Directory, ".".into()), (1, FileType::Directory, "..".into())];
        for entry in fs::read_dir(self.nodes.real(path)).map_err(|e| errno_of(&e))? {
            let entry = entry.map_err(|e| errno_of(&e))?;
            let what = entry.file_type().map_err(|e| errno_of(&e))?;
            list.push((entry.ino(), kind(what), entry.file_name()));
        }
        for (ino, ..) in &mut list[2..] {
            if renumbers {
                *self.renumbered.entry(*ino).or_default() += 1;
            }
            *ino = self.number(*ino);
        }
        Ok(list)
    }

    pub(super) fn xattr<T>(&self, ino: u64, get: impl FnOnce(&Path) -> Result<T, Errno>) -> Result<T, Errno> {
        let path = self.nodes.path(ino)?;
        self.meet(Op::Xattr, path)?;
        get(&self.nodes.real(path))
    }
}

/// Changes of a setattr request other than the length.
pub(super) struct Change {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
}

impl Change {
    fn is_nothing(&self) -> bool {
        let owner = self.uid.is_some() || self.gid.is_some();
        !(owner || self.mode.is_some() || self.atime.is_some() || self.mtime.is_some())
    }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let time = match time {
        None => return Timespec { tv_sec: 0, tv_nsec: sys::UTIME_OMIT },
        Some(TimeOrNow::Now) => return Timespec { tv_sec: 0, tv_nsec: sys::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => time,
    };
    let (tv_sec, tv_nsec) = seconds_of(time);
    Timespec { tv_sec, tv_nsec }
}

/// Flips a bit of the byte at offset `at` if `bytes`, which begin at offset `from`, contain that
/// byte.
fn flip_bit(bytes: &mut [u8], from: u64, at: u64, bit: u8) {
    let index = at.checked_sub(from).and_then(|i| usize::try_from(i).ok());
    if let Some(byte) = index.and_then(|i| bytes.get_mut(i)) {
        *byte ^= 1 << bit;
    }
}
