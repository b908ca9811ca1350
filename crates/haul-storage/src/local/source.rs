//! A file that is read.

use super::device::LocalDevice;
use super::metadata::Held;
use crate::failure::FirstFailure;
use crate::storage::{DropRetries, ReadBack, SourceFile};
use haul_model::ByteRange;
use haul_sys::cache::{self, Advice, FOLIO_BYTES_MAX, Residency};
use haul_sys::direct::{self, Alignment};
use haul_sys::filesystem::Backing;
use haul_sys::open::{open_entry_at, open_source_at, reopen_source};
use haul_sys::place::{Place, place_of};
use haul_sys::{FileKind, Follow, Stat, Timespec, sparse, stat, transfer};
use parking_lot::RwLock;
use std::ffi::CStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Maximum number of attempts to drop a range from the page cache. The first may find pages in one
/// of the kernel's batches; later attempts are widened to complete folios.
const DROPS_MAX: u32 = 3;

/// Maximum number of further attempts, each with a longer delay. Another worker may be writing to a
/// page or a folio that also holds a part of this range. The delays add up to about 50 ms.
const PATIENT_DROPS_MAX: u32 = 9;

/// An open file.
#[derive(Debug)]
pub(super) struct LocalSource {
    descriptor: Descriptor,
    /// Metadata from when the file was opened.
    opened: Known<Stat>,
    /// The file system.
    device: Known<Arc<LocalDevice>>,
    direct: RwLock<Option<DirectReads>>,
    is_locked: AtomicBool,
}

/// A value that is given from the start, or found when it is first needed.
#[derive(Debug)]
enum Known<T> {
    Given(T),
    Found(OnceLock<T>),
}

impl<T> Known<T> {
    fn of(given: Option<T>) -> Known<T> {
        given.map_or_else(|| Known::Found(OnceLock::new()), Known::Given)
    }

    fn get_or_find(&self, find: impl FnOnce() -> T) -> &T {
        match self {
            Known::Given(given) => given,
            Known::Found(found) => found.get_or_init(find),
        }
    }
}

/// Descriptor of a file that is written, and its failed syncs. Its readers share them.
#[derive(Debug)]
pub(super) struct OpenSink {
    pub(super) file: File,
    pub(super) failure: FirstFailure,
}

/// Descriptor by which a file is read.
#[derive(Debug)]
enum Descriptor {
    /// One of its own.
    Own(File),
    /// That of the sink which is read back, or another one for the same file.
    OfSink(Arc<OpenSink>, Option<File>),
}

/// Reads past the page cache.
#[derive(Debug)]
struct DirectReads {
    alignment: Alignment,
    /// Second descriptor for these reads, if the first one is also written by.
    own: Option<OwnedFd>,
}

/// Opens a regular file to read it. Never blocks on a named pipe.
///
/// # Errors
/// Returns the errors of openat(2); `ELOOP` for a link that is not followed; `InvalidInput` for an
/// entry of any other kind.
pub(super) fn open_source(place: impl AsFd, name: &CStr, follow: Follow) -> io::Result<(OwnedFd, Stat)> {
    let opened = match follow {
        Follow::Yes => open_source_at(&place, name, follow, false),
        Follow::No => match open_entry_at(&place, name) {
            // Another process holds a lease on the file. Only a blocking open breaks the lease.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                open_source_at(&place, name, follow, false)
            }
            opened => opened,
        },
    };
    let is_other = || {
        stat::stat_at(&place, name, follow)
            .is_ok_and(|found| !matches!(found.kind, FileKind::Regular | FileKind::Symlink))
    };
    let file = match opened {
        // A socket cannot be opened, and neither can a device without a driver.
        Err(error) if error.kind() != io::ErrorKind::NotFound && is_other() => {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        opened => opened?,
    };
    let found = stat::stat_fd(&file)?;
    if found.kind == FileKind::Regular { Ok((file, found)) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl LocalSource {
    /// Returns a file that was just opened, on this file system if it is known.
    pub(super) fn new(file: File, opened: Stat, device: Option<Arc<LocalDevice>>) -> LocalSource {
        LocalSource::by(Descriptor::Own(file), Some(opened), device)
    }

    /// Returns a file of any kind that was opened a while ago.
    pub(super) fn opened_before(file: File) -> LocalSource {
        LocalSource::by(Descriptor::Own(file), None, None)
    }

    /// Returns the reader of a file that is written, by the descriptor that writes or by another
    /// one.
    pub(super) fn reader(own: Option<File>, sink: &Arc<OpenSink>, device: &Arc<LocalDevice>) -> LocalSource {
        let descriptor = Descriptor::OfSink(Arc::clone(sink), own);
        LocalSource::by(descriptor, None, Some(Arc::clone(device)))
    }

    fn by(descriptor: Descriptor, opened: Option<Stat>, device: Option<Arc<LocalDevice>>) -> LocalSource {
        LocalSource {
            descriptor,
            opened: Known::of(opened),
            device: Known::of(device),
            direct: RwLock::default(),
            is_locked: AtomicBool::new(false),
        }
    }

    /// Returns the descriptor.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file().as_fd()
    }

    fn file(&self) -> &File {
        match &self.descriptor {
            Descriptor::Own(file) | Descriptor::OfSink(_, Some(file)) => file,
            Descriptor::OfSink(sink, None) => &sink.file,
        }
    }

    /// Returns the sink whose file is read back.
    fn written(&self) -> Option<&OpenSink> {
        match &self.descriptor {
            Descriptor::OfSink(sink, _) => Some(sink),
            Descriptor::Own(_) => None,
        }
    }

    /// Runs a sync of a file that is written, after any other sync of it.
    fn after_syncs<T>(&self, sync: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.written() {
            Some(written) => written.failure.run(sync).inspect_err(|_| forget_pages(self.file())),
            None => sync(),
        }
    }

    /// Writes a range back and drops it from the page cache.
    fn clear(&self, range: ByteRange, retries: DropRetries) -> io::Result<ReadBack> {
        let drop_once = |range| {
            cache::wait_writeback(self.file(), range)?;
            // The residency check below detects pages that stay.
            let _ = cache::advise(self.file(), range, Advice::DontNeed);
            Ok::<(), io::Error>(())
        };
        match self.local_device().device.capabilities.backing {
            Backing::Storage => {}
            Backing::Memory => return Ok(ReadBack::FromCache("the file system is in memory")),
            Backing::FileBelow => {
                drop_once(widened(range, cache::page_bytes()))?;
                return Ok(ReadBack::FromCache("overlayfs does not report cached pages"));
            }
        }
        let patient = if retries == DropRetries::Some { PATIENT_DROPS_MAX } else { 0 };
        for attempt in 0..DROPS_MAX + patient {
            if let Some(late) = attempt.checked_sub(DROPS_MAX - 1) {
                std::thread::sleep(Duration::from_millis(u64::from(late)));
            }
            let boundary = if attempt == 0 { cache::page_bytes() } else { FOLIO_BYTES_MAX };
            drop_once(widened(range, boundary))?;
            match cache::residency(self.file(), range) {
                Ok(Some(found)) if found.cached == 0 => return Ok(ReadBack::FromDevice),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    // No further attempt is known to be needed.
                    drop_once(widened(range, FOLIO_BYTES_MAX))?;
                    return Ok(ReadBack::FromCache("the kernel does not report cached pages"));
                }
            }
        }
        Ok(ReadBack::FromCache(
            "the kernel does not drop cached pages; another process may have the file mapped",
        ))
    }
}

impl Held for LocalSource {
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        act(self.file().as_fd())
    }

    fn local_device(&self) -> &LocalDevice {
        self.device.get_or_find(|| Arc::new(LocalDevice::of(self.opened().dev, self.file())))
    }
}

impl SourceFile for LocalSource {
    fn opened(&self) -> &Stat {
        // A reader asks when it is first needed: most read a small file once.
        self.opened.get_or_find(|| stat::stat_fd(self.file()).unwrap_or(UNKNOWN))
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        match &*self.direct.read() {
            None => transfer::read_at(self.file(), at, into),
            Some(DirectReads { alignment, own: None }) => direct::read_at(self.file(), at, into, *alignment),
            Some(DirectReads { alignment, own: Some(own) }) => direct::read_at(own, at, into, *alignment),
        }
    }

    fn next_data(&self, range: ByteRange) -> io::Result<Option<ByteRange>> {
        sparse::next_data(self.file(), range.start.0, range.len())
    }

    fn place(&self) -> io::Result<Place> {
        place_of(self.file())
    }

    fn lock(&self) -> io::Result<bool> {
        if self.written().is_some() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let has_lock = try_lock(self.file(), "another job uses this file")?;
        self.is_locked.fetch_or(has_lock, Ordering::Relaxed);
        Ok(has_lock)
    }

    fn advise(&self, range: ByteRange, advice: Advice) {
        // Otherwise the kernel searches the cache for each page of a file that was read recently. A
        // file that is read back was usually dropped from the cache just before.
        let may_be_cached = advice == Advice::WillNeed && self.written().is_none();
        if may_be_cached && cache::ends_in_memory(self.file(), range) {
            return;
        }
        // Advice may be ignored.
        let _ = cache::advise(self.file(), range, advice);
    }

    fn residency(&self, range: ByteRange) -> Option<Residency> {
        cache::residency(self.file(), range).ok().flatten()
    }

    fn write_back(&self, range: ByteRange) -> io::Result<()> {
        self.after_syncs(|| cache::wait_writeback(self.file(), range))
    }

    fn evict(&self, range: ByteRange, retries: DropRetries) -> io::Result<ReadBack> {
        self.after_syncs(|| self.clear(range, retries))
    }

    fn set_direct(&self, is_on: bool) -> io::Result<Option<Alignment>> {
        let mut reads = self.direct.write();
        if !is_on {
            if let Some(DirectReads { own: None, .. }) = &*reads {
                direct::set_direct(self.file(), false)?;
            }
            *reads = None;
            return Ok(None);
        }
        if let Some(DirectReads { alignment, .. }) = &*reads {
            return Ok(Some(*alignment));
        }
        // The flag belongs to the open file, which the sink of a reader may use as well.
        let own = self.written().is_some().then(|| reopen_source(self.file(), false)).transpose()?;
        let probed = match &own {
            Some(own) => direct::probe_read(own)?,
            None => direct::probe_read(self.file())?,
        };
        *reads = probed.map(|alignment| DirectReads { alignment, own });
        Ok(probed)
    }
}

impl Drop for LocalSource {
    /// Ends the lock, although a child between fork and exec may have the file open.
    fn drop(&mut self) {
        if self.is_locked.load(Ordering::Relaxed) {
            // After an error the lock ends with the last descriptor.
            let _ = self.file().unlock();
        }
    }
}

/// Takes the lock of a file. Returns false if its file system has no locks.
///
/// # Errors
/// Returns `ResourceBusy` with the text `busy` if another open file has the lock.
pub(super) fn try_lock(file: &File, busy: &'static str) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(io::ErrorKind::ResourceBusy, busy)),
        Err(TryLockError::Error(_)) => Ok(false),
    }
}

/// Drops the pages of a file after a failed sync. The kernel may keep bytes that the device lacks
/// in clean pages. Without them a later read returns what the device has.
pub(super) fn forget_pages(file: &File) {
    // Ignore an error, because the file fails anyway.
    let _ = cache::advise_all(file, Advice::DontNeed);
}

/// Widens a range to the next multiples of `boundary`, as far as offsets allow.
pub(super) fn widened(range: ByteRange, boundary: u64) -> ByteRange {
    let start = range.start.0 / boundary * boundary;
    ByteRange::between(start, range.end.0.checked_next_multiple_of(boundary).unwrap_or(range.end.0))
}

/// Metadata of a file whose metadata cannot be read: every later result differs from this one.
const UNKNOWN: Stat = Stat {
    kind: FileKind::Unknown,
    mode: 0,
    uid: 0,
    gid: 0,
    size: 0,
    nlink: 0,
    dev: 0,
    ino: 0,
    rdev: 0,
    blksize: 0,
    blocks: 0,
    atime: Timespec { sec: 0, nsec: 0 },
    mtime: Timespec { sec: 0, nsec: 0 },
    ctime: Timespec { sec: 0, nsec: 0 },
    btime: None,
    may_be_mount_root: false,
};
