//! Open files in memory.

use super::disk::{Contents, Disk};
use super::errno::{EFBIG, EINVAL, EXDEV, ensure, error};
use super::faults::Call;
use super::names::Ino;
use super::open::Handle;
use super::pages::{PAGE_BYTES, Pages};
use crate::failure::FirstFailure;
use crate::metadata::{Metadata, Part, Unset};
use crate::name::Name;
use crate::storage::{
    DropRetries, Inode, Offload, Offloaded, ReadBack, Replace, SinkFile, SourceFile, SyncWhat,
};
use haul_model::ByteRange;
use haul_sys::Stat;
use haul_sys::cache::{Advice, Residency};
use haul_sys::direct::Alignment;
use parking_lot::Mutex;
use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum size in bytes of a file, as of ext4.
const FILE_BYTES_MAX: u64 = 16 << 40;

/// Maximum number of bytes that one step of a long call clears or copies.
const STEP_BYTES: u64 = 1 << 20;

/// A file that is open for reading.
#[derive(Debug)]
pub(super) struct ForReading {
    opened: Stat,
    /// Failed write-backs that this handle knows.
    seen: Mutex<u64>,
    /// Failed syncs of the file that is read back.
    failure: Option<Arc<FirstFailure>>,
}

/// A file that is open for writing.
#[derive(Debug)]
pub(super) struct ForWriting {
    /// Metadata from when the file was opened; `None` if the open created it.
    opened: Option<Stat>,
    /// Temporary name and final name in a directory.
    temporary: Option<(Ino, Name, Name)>,
    is_committed: AtomicBool,
    seen: Mutex<u64>,
    failure: Arc<FirstFailure>,
}

impl ForReading {
    pub(super) fn new(disk: &Disk, ino: Ino, device: u64) -> ForReading {
        let seen = Mutex::new(disk.node(ino).lost.0);
        ForReading { opened: disk.stat(ino, device), seen, failure: None }
    }
}

impl ForWriting {
    pub(super) fn new(
        disk: &Disk,
        ino: Ino,
        opened: Option<Stat>,
        temporary: Option<(Ino, Name, Name)>,
    ) -> ForWriting {
        ForWriting {
            opened,
            temporary,
            is_committed: AtomicBool::new(false),
            seen: Mutex::new(disk.node(ino).lost.0),
            failure: Arc::default(),
        }
    }
}

/// Fails if bytes of a file were lost since the handle last reported that.
fn report_lost(disk: &Disk, ino: Ino, seen: &Mutex<u64>) -> io::Result<()> {
    let (count, errno) = disk.node(ino).lost;
    let was = std::mem::replace(&mut *seen.lock(), count);
    ensure(was == count, errno)
}

impl SourceFile for Handle<ForReading> {
    fn opened(&self) -> &Stat {
        &self.role.opened
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.shared.call(Call::Read, into.len() as u64, |disk| Ok(disk.pages(self.ino).read_at(at, into)))
    }

    fn next_data(&self, range: ByteRange) -> io::Result<Option<ByteRange>> {
        self.call(Call::NextData, |disk| Ok(disk.pages(self.ino).next_data(range)))
    }

    fn lock(&self) -> io::Result<bool> {
        ensure(self.role.failure.is_none(), EINVAL)?;
        self.take_lock()
    }

    fn advise(&self, _: ByteRange, _: Advice) {}

    fn residency(&self, _: ByteRange) -> Option<Residency> {
        None
    }

    fn write_back(&self, range: ByteRange) -> io::Result<()> {
        self.shared.observe(Call::WriteBack, range.len());
        let write_back = || {
            self.shared.disk(|disk| {
                disk.write_back(self.ino, range);
                report_lost(disk, self.ino, &self.role.seen)
            })
        };
        match &self.role.failure {
            Some(failure) => failure.run(write_back),
            None => write_back(),
        }
    }

    fn evict(&self, range: ByteRange, _: DropRetries) -> io::Result<ReadBack> {
        self.write_back(range)?;
        self.shared.disk(|disk| disk.change_pages(self.ino, |pages| pages.evict(range)));
        Ok(ReadBack::FromDevice)
    }

    fn set_direct(&self, _: bool) -> io::Result<Option<Alignment>> {
        Ok(None)
    }
}

/// Writes bytes to a file.
fn write_in(disk: &mut Disk, ino: Ino, at: u64, bytes: &[u8]) -> io::Result<()> {
    let end = at.checked_add(bytes.len() as u64).filter(|&end| end <= FILE_BYTES_MAX);
    let range = ByteRange::between(at, end.ok_or_else(|| error(EFBIG))?);
    disk.ensure_space(disk.pages(ino).missing(range))?;
    disk.change_bytes(ino, |pages| pages.write_at(at, bytes));
    Ok(())
}

impl SinkFile for Handle<ForWriting> {
    fn is_new(&self) -> bool {
        self.role.opened.is_none()
    }

    fn opened(&self) -> io::Result<Stat> {
        self.role.opened.map_or_else(|| self.stat(), Ok)
    }

    fn lock(&self) -> io::Result<bool> {
        self.take_lock()
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.call(Call::Reserve, |disk| {
            disk.ensure_space(disk.pages(self.ino).missing(ByteRange::between(0, len)))?;
            disk.change_pages(self.ino, |pages| pages.reserve(len));
            Ok(())
        })
    }

    fn reserve_range(&self, range: ByteRange) -> io::Result<()> {
        self.call(Call::Reserve, |disk| {
            disk.ensure_space(disk.pages(self.ino).missing(range))?;
            disk.change_bytes(self.ino, |pages| pages.reserve_range(range));
            Ok(())
        })
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.shared.observe(Call::Write, bytes.len() as u64);
        self.shared.disk(|disk| {
            let failure = disk.faults.check(Call::Write);
            let written = if failure.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
            failure.and(write_in(disk, self.ino, at, written))
        })
    }

    fn clear(&self, range: ByteRange, stop: &AtomicBool) -> io::Result<()> {
        let len = self.shared.disk(|disk| disk.pages(self.ino).len());
        for step in range.intersect(ByteRange::between(0, len)).unwrap_or_default().steps(STEP_BYTES) {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.shared.observe(Call::Clear, step.len());
            self.shared.disk(|disk| {
                let failure = disk.faults.check(Call::Clear);
                let half = ByteRange::between(step.start.0, step.start.0 + step.len() / 2);
                let cleared = if failure.is_ok() { step } else { half };
                disk.change_bytes(self.ino, |pages| pages.clear(cleared));
                failure
            })?;
        }
        Ok(())
    }

    fn leave_out(&self, _: ByteRange) {}

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(Call::SetLen, |disk| {
            ensure(len <= FILE_BYTES_MAX, EFBIG)?;
            disk.change_bytes(self.ino, |pages| pages.set_len(len));
            Ok(())
        })
    }

    fn offload(
        &self,
        from: &dyn SourceFile,
        range: ByteRange,
        to: u64,
        how: Offload,
    ) -> io::Result<Offloaded> {
        let Some(from) = (from as &dyn Any).downcast_ref::<Handle<ForReading>>() else {
            return Ok(Offloaded::NeverBetween(EXDEV));
        };
        if !Arc::ptr_eq(&from.shared, &self.shared) {
            return Ok(Offloaded::NeverBetween(EXDEV));
        }
        self.shared.call(Call::Offload, range.len(), |disk| {
            let len = disk.pages(from.ino).len();
            ensure(range.end.0 <= len && to.checked_add(range.len()).is_some(), EINVAL)?;
            let is_page = |at: u64| at.is_multiple_of(PAGE_BYTES);
            let own_len = disk.pages(self.ino).len();
            let is_end = range.end.0 == len && to + range.len() >= own_len;
            let can_share = is_page(range.start.0)
                && is_page(to)
                && (is_page(range.end.0) || is_end)
                && from.ino != self.ino;
            match how {
                Offload::Share if !can_share => Ok(Offloaded::Unsupported(EINVAL)),
                Offload::Share => {
                    disk.ensure_space(
                        disk.pages(self.ino).missing(ByteRange::between(to, to + range.len())),
                    )?;
                    let source = disk.pages(from.ino).clone();
                    disk.change_bytes(self.ino, |pages| pages.share(&source, range, to));
                    Ok(Offloaded::Done(range.len()))
                }
                Offload::Copy => {
                    let mut bytes = vec![0; range.len().min(STEP_BYTES) as usize];
                    disk.pages(from.ino).read_at(range.start.0, &mut bytes);
                    write_in(disk, self.ino, to, &bytes)?;
                    Ok(Offloaded::Done(bytes.len() as u64))
                }
            }
        })
    }

    fn start_writeback(&self, _: ByteRange) {}

    fn drop_pages(&self, _: ByteRange) {}

    fn sync(&self, what: SyncWhat) -> io::Result<()> {
        let range = match what {
            SyncWhat::Range(range) => range,
            SyncWhat::Data | SyncWhat::All => super::disk::WHOLE,
        };
        self.role.failure.run(|| {
            self.shared.observe(Call::WriteBack, range.len());
            self.shared.disk(|disk| {
                disk.write_back(self.ino, range);
                report_lost(disk, self.ino, &self.role.seen)
            })?;
            if let SyncWhat::Range(_) = what {
                return Ok(());
            }
            self.shared.observe(Call::Flush, 0);
            self.shared.disk(|disk| disk.flush(self.ino, what == SyncWhat::All))
        })
    }

    fn check(&self) -> io::Result<()> {
        self.role.failure.run(|| self.shared.disk(|disk| report_lost(disk, self.ino, &self.role.seen)))
    }

    fn failure(&self) -> Option<io::Error> {
        self.role.failure.get()
    }

    fn is_syncing(&self) -> bool {
        self.role.failure.is_syncing()
    }

    fn reopen(&self) -> io::Result<Arc<dyn SourceFile>> {
        self.call(Call::OpenSource, |disk| {
            let source = ForReading::new(disk, self.ino, self.shared.device.id);
            Ok(self.shared.open(disk, self.ino, source) as Arc<dyn SourceFile>)
        })
    }

    fn reader(&self) -> io::Result<Arc<dyn SourceFile>> {
        self.call(Call::OpenSource, |disk| {
            let failure = Some(Arc::clone(&self.role.failure));
            let source = ForReading { failure, ..ForReading::new(disk, self.ino, self.shared.device.id) };
            Ok(self.shared.open(disk, self.ino, source) as Arc<dyn SourceFile>)
        })
    }

    fn set_direct(&self, _: bool) -> io::Result<Option<Alignment>> {
        Ok(None)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&self, len: u64, metadata: &Metadata<'_>) -> Result<(), Unset> {
        if self.shared.disk(|disk| disk.pages(self.ino).len()) != len {
            self.set_len(len).map_err(Unset::of(Part::Length))?;
        }
        // Gives back what was reserved beyond the end.
        self.shared.disk(|disk| disk.change_pages(self.ino, |pages| pages.set_len(len)));
        self.set_metadata(metadata)
    }

    fn commit(&self, replace: Replace) -> io::Result<()> {
        self.role.failure.unless_failed(|| {
            if let Some((dir, temporary, name)) = &self.role.temporary
                && !self.is_committed()
            {
                self.call(Call::Rename, |disk| {
                    disk.rename(*dir, temporary, *dir, name, replace == Replace::Yes)
                })?;
            }
            self.role.is_committed.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    fn is_committed(&self) -> bool {
        self.role.is_committed.load(Ordering::Relaxed)
    }

    fn abandon(&self) -> io::Result<()> {
        let Some((dir, temporary, _)) = &self.role.temporary else { return Ok(()) };
        if self.is_committed() {
            return Ok(());
        }
        self.call(Call::Remove, |disk| {
            // Another file can have the name by now.
            if disk.find(*dir, temporary).ok().flatten() == Some(self.ino) {
                disk.set_names(vec![(*dir, temporary.clone(), None)]);
            }
            Ok(())
        })
    }
}

/// Returns the inode of a regular file, or fails with `errno`.
pub(super) fn ensure_file(disk: &Disk, ino: Ino, errno: i32) -> io::Result<Ino> {
    match &disk.node(ino).contents {
        Contents::File(_) => Ok(ino),
        _ => Err(error(errno)),
    }
}

/// Returns a new regular file without a name.
pub(super) fn new_file(disk: &mut Disk, mode: u32) -> Ino {
    disk.add(Contents::File(Pages::default()), mode)
}
