//! Handles of inodes in memory, and their metadata.

use super::disk::{Contents, Disk, MemoryInode, ROOT};
use super::errno::{EINVAL, EOPNOTSUPP, EPERM, ERANGE, ensure, error};
use super::faults::Call;
use super::names::Ino;
use crate::device::{Capabilities, CopiesByItself, Device, Lengths};
use crate::storage::Inode;
use haul_sys::filesystem::Backing;
use haul_sys::metadata::Times;
use haul_sys::{FileKind, Stat};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Maximum size in bytes of the value of an attribute, as on Linux.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Observer of calls: kind and number of bytes. It is called before the call, without a lock, and
/// may block it.
pub(super) type CallObserver = Box<dyn Fn(Call, u64) + Send + Sync>;

/// A storage, shared by its handles.
pub(super) struct SharedDisk {
    disk: Mutex<Disk>,
    pub(super) device: Device,
    pub(super) observer: Mutex<Option<Arc<CallObserver>>>,
    /// Other storages, by the directories that they are mounted on.
    pub(super) mounts: Mutex<HashMap<Ino, Arc<SharedDisk>>>,
}

/// Handle of an inode, and what it is open for.
#[derive(Debug)]
pub(super) struct Handle<R> {
    pub(super) shared: Arc<SharedDisk>,
    pub(super) ino: Ino,
    pub(super) role: R,
}

impl SharedDisk {
    pub(super) fn new(disk: Disk, device: u64) -> SharedDisk {
        let capabilities = Capabilities {
            backing: Backing::Storage,
            is_read_only: false,
            is_local: true,
            keeps_as_given: true,
            syncs_as_a_whole: true,
            reports_holes: true,
            lengths: Lengths::Certain,
            reserves: true,
            preallocates: false,
            copies_by_itself: CopiesByItself::None,
            close_may_fail: false,
            is_lustre: false,
        };
        let device = Device { id: device, capabilities };
        SharedDisk { disk: Mutex::new(disk), device, observer: Mutex::default(), mounts: Mutex::default() }
    }

    /// Runs `act` on the disk, which nothing else changes meanwhile. Counts no call.
    pub(super) fn disk<T>(&self, act: impl FnOnce(&mut Disk) -> T) -> T {
        act(&mut self.disk.lock())
    }

    /// Carries out a call of this kind for `bytes` bytes. Fails without an effect if that is
    /// planned.
    pub(super) fn call<T>(
        &self,
        call: Call,
        bytes: u64,
        act: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> io::Result<T> {
        self.observe(call, bytes);
        self.disk(|disk| {
            disk.faults.check(call)?;
            act(disk)
        })
    }

    /// Reports a call to the observer.
    pub(super) fn observe(&self, call: Call, bytes: u64) {
        let observer = self.observer.lock().clone();
        if let Some(observer) = observer {
            observer(call, bytes);
        }
    }

    /// Returns a handle of an inode.
    pub(super) fn open<R>(self: &Arc<SharedDisk>, disk: &mut Disk, ino: Ino, role: R) -> Arc<Handle<R>> {
        disk.hold(ino);
        Arc::new(Handle { shared: Arc::clone(self), ino, role })
    }

    /// Returns a handle of the root directory.
    pub(super) fn open_root<R>(self: &Arc<SharedDisk>, role: R) -> Arc<Handle<R>> {
        self.disk(|disk| self.open(disk, ROOT, role))
    }
}

impl fmt::Debug for SharedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryStorage({})", self.device.id)
    }
}

/// Returns true if an inode of this kind may have the attribute: those of the class `user` belong
/// to files and directories.
fn may_have(node: &MemoryInode, attribute: &CStr) -> bool {
    let is_of_user = attribute.to_bytes().starts_with(b"user.");
    !is_of_user || matches!(node.kind(), FileKind::Regular | FileKind::Directory)
}

impl<R> Handle<R> {
    /// Carries out a call of this kind.
    pub(super) fn call<T>(&self, call: Call, act: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        self.shared.call(call, 0, act)
    }

    /// Takes the lock of the inode until the handle is dropped.
    pub(super) fn take_lock(&self) -> io::Result<bool> {
        let id = self.id();
        self.call(Call::Lock, |disk| match disk.node_mut(self.ino).locked_by.get_or_insert(id) {
            holder if *holder == id => Ok(true),
            _ => Err(io::ErrorKind::ResourceBusy.into()),
        })
    }

    /// Returns a number that no other handle has while this one exists.
    pub(super) fn id(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }
}

impl<R> Drop for Handle<R> {
    fn drop(&mut self) {
        let id = self.id();
        self.shared.disk(|disk| {
            disk.node_mut(self.ino).locked_by.take_if(|holder| *holder == id);
            disk.release(self.ino);
        });
    }
}

impl<R: fmt::Debug + Send + Sync + 'static> Inode for Handle<R> {
    fn stat(&self) -> io::Result<Stat> {
        self.call(Call::Stat, |disk| Ok(disk.stat(self.ino, self.shared.device.id)))
    }

    fn user(&self) -> u32 {
        self.shared.disk(|disk| disk.user)
    }

    fn device(&self) -> &Device {
        &self.shared.device
    }

    fn sync_device(&self) -> io::Result<()> {
        self.call(Call::SyncDevice, Disk::sync_device)
    }

    fn read_link(&self) -> io::Result<Vec<u8>> {
        self.call(Call::ReadLink, |disk| match &disk.node(self.ino).contents {
            Contents::Link(target) => Ok(target.clone()),
            _ => Err(error(EINVAL)),
        })
    }

    fn attributes(&self) -> io::Result<Vec<CString>> {
        self.call(Call::Attribute, |disk| Ok(disk.node(self.ino).facts.attributes.keys().cloned().collect()))
    }

    fn attribute(&self, name: &CStr) -> io::Result<Option<Vec<u8>>> {
        self.call(Call::Attribute, |disk| Ok(disk.node(self.ino).facts.attributes.get(name).cloned()))
    }

    fn set_attribute(&self, name: &CStr, value: &[u8]) -> io::Result<()> {
        self.call(Call::SetAttribute, |disk| {
            let is_stored = [&b"user."[..], b"trusted.", b"security.", b"system.posix_acl_"]
                .iter()
                .any(|class| name.to_bytes().starts_with(class));
            ensure(is_stored, EOPNOTSUPP)?;
            ensure(may_have(disk.node(self.ino), name), EPERM)?;
            ensure(value.len() <= VALUE_BYTES_MAX, ERANGE)?;
            let now = disk.now();
            let facts = &mut disk.node_mut(self.ino).facts;
            facts.attributes.insert(name.to_owned(), value.to_owned());
            facts.ctime = now;
            Ok(())
        })
    }

    fn remove_attribute(&self, name: &CStr) -> io::Result<bool> {
        self.call(Call::SetAttribute, |disk| {
            ensure(may_have(disk.node(self.ino), name), EPERM)?;
            let now = disk.now();
            let facts = &mut disk.node_mut(self.ino).facts;
            let had_it = facts.attributes.remove(name).is_some();
            if had_it {
                facts.ctime = now;
            }
            Ok(had_it)
        })
    }

    fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        self.call(Call::SetOwner, |disk| {
            let now = disk.now();
            let node = disk.node_mut(self.ino);
            let is_file = node.kind() == FileKind::Regular;
            let facts = &mut node.facts;
            facts.uid = user.unwrap_or(facts.uid);
            facts.gid = group.unwrap_or(facts.gid);
            if is_file {
                facts.mode &= !0o6000;
            }
            facts.ctime = now;
            Ok(())
        })
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.call(Call::SetMode, |disk| {
            let now = disk.now();
            let node = disk.node_mut(self.ino);
            ensure(node.kind() != FileKind::Symlink, EOPNOTSUPP)?;
            node.facts.mode = mode & 0o7777;
            node.facts.ctime = now;
            Ok(())
        })
    }

    fn set_times(&self, times: Times) -> io::Result<()> {
        self.call(Call::SetTimes, |disk| {
            let now = disk.now();
            let facts = &mut disk.node_mut(self.ino).facts;
            facts.atime = times.atime.unwrap_or(facts.atime);
            facts.mtime = times.mtime.unwrap_or(facts.mtime);
            facts.ctime = now;
            Ok(())
        })
    }
}
