//! A storage in memory, with the faults of a disk.
//!
//! Calls fail where a test plans it. Bytes and names that are not synced may be lost by a power
//! cut, per sector of 512 bytes and per change of a name; a failed write-back loses pages and is
//! reported once to each open file, as on Linux. Everything else is as on a local file system for
//! root: owners can be set, and no permission is checked.
//!
//! The same calls in the same order give the same results, times and inode numbers included: the
//! clock counts changes. One mutex guards all state.

mod dir;
mod disk;
mod errno;
mod faults;
mod file;
mod names;
mod open;
mod pages;

pub use faults::Call;

use crate::name::Name;
use crate::storage::{Dir, Missing, Storage};
use disk::Disk;
use haul_sys::Follow;
use open::SharedDisk;
use pages::PAGE_BYTES;
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

/// A storage in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryStorage(Arc<SharedDisk>);

impl MemoryStorage {
    /// Creates an empty storage with this device number. The umask is `0o022`, and the space is
    /// unlimited.
    pub fn new(device: u64) -> MemoryStorage {
        MemoryStorage(Arc::new(SharedDisk::new(Disk::new(), device)))
    }

    /// Opens the root directory.
    pub fn root(&self) -> Arc<dyn Dir> {
        dir::root(&self.0)
    }

    /// Mounts the root directory of another storage on an open directory of this one:
    /// [`Dir::dir`] and [`Dir::stat_at`] lead there from now on. The copies that
    /// [`after_kill`](Self::after_kill) and [`after_power_cut`](Self::after_power_cut) return have
    /// no mounts.
    ///
    /// # Errors
    /// Returns the errors of [`Inode::stat`].
    pub fn mount(&self, on: &dyn Dir, other: &MemoryStorage) -> io::Result<()> {
        let ino = on.stat()?.ino;
        self.0.mounts.lock().insert(ino, Arc::clone(&other.0));
        Ok(())
    }

    /// Makes the calls from now on those of this user, root at first: new entries belong to the
    /// user. A write of another user than root takes setuid and setgid from a program. No
    /// permission is checked.
    pub fn set_user(&self, user: u32) {
        self.0.disk(|disk| disk.user = user);
    }

    /// Limits the space to this number of bytes, rounded down to blocks of 4,096 bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.disk(|disk| disk.capacity = bytes / PAGE_BYTES);
    }

    /// Lets the `nth` call of this kind from now on (1: the next one) fail with `errno`. [`Call`]
    /// says which calls have an effect nevertheless.
    pub fn fail(&self, call: Call, nth: u64, errno: i32) {
        self.0.disk(|disk| disk.faults.plan(call, nth, errno));
    }

    /// Returns the number of calls of this kind so far.
    pub fn count(&self, call: Call) -> u64 {
        self.0.disk(|disk| disk.faults.count(call))
    }

    /// Lets `observer` see each later call, with its number of bytes, before the call has an
    /// effect. It is called without a lock and may block the call, as a slow device does.
    pub fn observe(&self, observer: impl Fn(Call, u64) + Send + Sync + 'static) {
        *self.0.observer.lock() = Some(Arc::new(Box::new(observer)));
    }

    /// Writes all dirty pages to the device, as the kernel does in the background at any time. They
    /// are not durable afterwards.
    pub fn write_back(&self) {
        self.0.disk(Disk::write_back_all);
    }

    /// Changes the byte at offset `at` of the file with this inode number where the device stores
    /// it, as a defective device does. Reads return the changed byte once the page is evicted.
    /// Returns false if the device does not have the byte, and for an inode that is not a file.
    pub fn damage(&self, ino: u64, at: u64) -> bool {
        self.0.disk(|disk| disk.damage(ino, at))
    }

    /// Returns the storage as a kill of all processes at this moment leaves it: nothing is lost,
    /// and locks have ended. This storage does not change.
    pub fn after_kill(&self) -> MemoryStorage {
        let disk = self.0.disk(|disk| disk.after_kill());
        MemoryStorage(Arc::new(SharedDisk::new(disk, self.0.device.id)))
    }

    /// Returns the storage as a power cut at this moment leaves it. The seed chooses what survives
    /// of bytes, lengths, metadata and names that are not synced. This storage does not change.
    pub fn after_power_cut(&self, seed: u64) -> MemoryStorage {
        let disk = self.0.disk(|disk| disk.after_power_cut(seed));
        MemoryStorage(Arc::new(SharedDisk::new(disk, self.0.device.id)))
    }
}

impl Storage for MemoryStorage {
    /// Opens a directory. There is no working directory, and the path has no `..`.
    fn open(&self, path: &Path, follow: Follow) -> io::Result<Arc<dyn Dir>> {
        let mut dir = self.root();
        for part in path.components() {
            match part {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => dir = dir.dir(&Name::try_from(name)?, follow, Missing::Fail)?,
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(io::ErrorKind::InvalidFilename.into());
                }
            }
        }
        Ok(dir)
    }
}
