//! Properties of one file system, which are asked once.

use super::name_folding::NameFolding;
use crate::device::{Capabilities, CopiesByItself, Device, Lengths};
use haul_model::ByteRange;
use haul_sys::filesystem::{self, FileSystem};
use haul_sys::sparse::{self, Support};
use haul_sys::{Stat, stat};
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `errno` of a full file system, the same on every architecture of Linux.
const ENOSPC: i32 = 28;

/// Maximum number of bytes that are promised to files before the free space is asked again.
const PROMISE_BYTES_MAX: u64 = 1 << 30;

/// A file system of this machine, or a subvolume of one.
#[derive(Debug)]
pub(super) struct LocalDevice {
    pub(super) device: Device,
    pub(super) name_folding: NameFolding,
    /// Free bytes that may still be promised to files before the free space is asked again.
    promise: AtomicU64,
}

/// The file systems met so far.
#[derive(Debug, Default)]
pub(super) struct Devices(Mutex<Vec<Arc<LocalDevice>>>);

impl Devices {
    /// Returns the file system `id`, which is asked by this descriptor if it is a new one.
    pub(super) fn of(&self, id: u64, fd: impl AsFd) -> Arc<LocalDevice> {
        let mut known = self.0.lock();
        if let Some(known) = known.iter().find(|known| known.device.id == id) {
            return Arc::clone(known);
        }
        let new = Arc::new(LocalDevice::of(id, fd));
        known.push(Arc::clone(&new));
        new
    }
}

impl LocalDevice {
    /// Asks for the properties of the file system `id`, by an open directory or file on it.
    pub(super) fn of(id: u64, fd: impl AsFd) -> LocalDevice {
        let capabilities = capabilities(fd.as_fd());
        LocalDevice {
            device: Device { id, capabilities },
            name_folding: NameFolding::default(),
            promise: AtomicU64::new(0),
        }
    }

    /// Detects a full file system before bytes arrive: compares `len` with the free space, and
    /// reserves the first `len` bytes of a file where that costs one call. Does not change the
    /// length of the file. A reservation of more than the free space would fill the file system
    /// until it fails, and other processes would find no space meanwhile.
    ///
    /// The free space is asked once for each [`PROMISE_BYTES_MAX`] that files were promised, and
    /// for each file that exceeds the rest.
    ///
    /// # Errors
    /// Returns `ENOSPC` or the errors of fallocate(2). The file is then unchanged.
    pub(super) fn reserve(&self, file: BorrowedFd<'_>, len: u64) -> io::Result<()> {
        self.compare_free(len, || filesystem::space(file).ok()?.free, || stat::stat_fd(file))?;
        if !self.device.capabilities.reserves {
            return Ok(());
        }
        match sparse::allocate(file, ByteRange::between(0, len), true) {
            Ok(Support::Done | Support::Unsupported) => Ok(()),
            Err(error) => {
                // A part may have been reserved beyond the end of the file.
                let _ = stat::stat_fd(file).and_then(|now| sparse::set_len(file, now.size));
                Err(error)
            }
        }
    }

    /// Compares `len` with the free space, which `free` asks for, and with what the file has
    /// already, which `found` asks for. Both may wait for the file system, and other files do not
    /// wait for them. Of files that ask at the same time, the promise of one counts.
    fn compare_free(
        &self,
        len: u64,
        free: impl FnOnce() -> Option<u64>,
        found: impl FnOnce() -> io::Result<Stat>,
    ) -> io::Result<()> {
        let take = |promise: u64| promise.checked_sub(len);
        if self.promise.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return Ok(());
        }
        let Some(free) = free() else { return Ok(()) };
        if free < len {
            let taken = found()?.blocks.saturating_mul(512);
            if free.saturating_add(taken) < len {
                return Err(io::Error::from_raw_os_error(ENOSPC));
            }
        }
        self.promise.store(free.min(PROMISE_BYTES_MAX).saturating_sub(len), Ordering::Relaxed);
        Ok(())
    }
}

fn capabilities(fd: BorrowedFd<'_>) -> Capabilities {
    let found = FileSystem::of(fd);
    Capabilities {
        backing: found.backing(),
        is_read_only: found.is_read_only(),
        is_local: found.is_local(),
        keeps_as_given: found.keeps_as_given(),
        syncs_as_a_whole: found.syncs_as_a_whole(),
        reports_holes: found.reports_holes(),
        lengths: match [0, 1].map(|len| found.is_length_certain(len)) {
            [true, _] => Lengths::Certain,
            [false, true] => Lengths::CertainUnlessZero,
            [false, false] => Lengths::Uncertain,
        },
        reserves: found.space().is_some_and(|space| space.reserves),
        preallocates: found.preallocates(),
        copies_by_itself: match [true, false].map(|same| found.copies_by_itself(same)) {
            [_, true] => CopiesByItself::All,
            [true, false] => CopiesByItself::SameDevice,
            [false, false] => CopiesByItself::None,
        },
        close_may_fail: found.close_may_fail(),
        is_lustre: found.is_lustre(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    #[test]
    fn capabilities_of_a_file_system_in_memory_and_of_a_computed_one() {
        let shm = LocalDevice::of(1, File::open("/dev/shm").unwrap()).device.capabilities;
        assert_eq!(shm.backing, filesystem::Backing::Memory);
        assert!(!shm.reserves && !shm.close_may_fail && shm.reports_holes && !shm.syncs_as_a_whole);
        assert_eq!((shm.lengths, shm.copies_by_itself), (Lengths::Certain, CopiesByItself::None));
        let proc = LocalDevice::of(2, File::open("/proc").unwrap()).device.capabilities;
        assert!(!proc.keeps_as_given && !proc.reports_holes && proc.close_may_fail);
        assert_eq!(proc.lengths, Lengths::Uncertain);
    }

    #[test]
    fn free_space_is_compared_when_the_promised_bytes_are_used_up() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = File::create(home.path().join("f")).unwrap();
        let device = LocalDevice::of(file.metadata().unwrap().dev(), &file);
        let free = filesystem::space(&file).unwrap().free.expect("tmpfs reports its space");
        device.reserve(file.as_fd(), 1).unwrap();
        let rest = device.promise.load(Ordering::Relaxed);
        assert!(rest > 0 && rest < PROMISE_BYTES_MAX, "one question for many files");
        device.reserve(file.as_fd(), 2).unwrap();
        assert_eq!(device.promise.load(Ordering::Relaxed), rest - 2);
        for _ in 0..2 {
            let error = device.reserve(file.as_fd(), free * 2).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    /// Regression test: every file waited for the answer of a slow file system to one of them.
    #[test]
    fn files_do_not_wait_while_the_free_space_of_another_is_asked() {
        let device = Arc::new(LocalDevice::of(1, File::open("/dev/shm").unwrap()));
        device.promise.store(10, Ordering::Relaxed);
        let asked = || {
            let (done, is_done) = std::sync::mpsc::channel();
            let other = Arc::clone(&device);
            std::thread::spawn(move || {
                let compared = other.compare_free(3, || panic!("it was promised"), || unreachable!());
                let _ = done.send(compared.is_ok());
            });
            assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(true));
            Some(100)
        };
        device.compare_free(11, asked, || unreachable!("there is enough")).unwrap();
        assert_eq!(device.promise.load(Ordering::Relaxed), 100 - 11);
    }

    /// A file of a terabyte once filled the disk until the reservation failed, and other processes
    /// found no space meanwhile.
    #[test]
    fn more_than_the_free_space_is_refused_before_any_is_reserved() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = home.path().join("f");
        std::fs::write(&path, "").unwrap();
        // By this descriptor no space can be reserved: fallocate(2) fails with `EBADF`.
        let file = File::open(path).unwrap();
        let mut device = LocalDevice::of(1, &file);
        device.device.capabilities.reserves = true;
        let free = filesystem::space(&file).unwrap().free.expect("tmpfs reports its space");
        let error = device.reserve(file.as_fd(), free * 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
