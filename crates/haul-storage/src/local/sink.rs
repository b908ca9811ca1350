//! A file that is being written: under a temporary name next to its target until every byte is
//! present and verified, or under its final name.

use super::device::LocalDevice;
use super::dir_place::DirPlace;
use super::metadata::Held;
use super::name_folding::check_trailing_dots;
use super::source::{LocalSource, forget_pages, try_lock};
use crate::failure::FirstFailure;
use crate::metadata::{Metadata, Part, Unset};
use crate::name::Name;
use crate::storage::{
    Create, Inode as _, Missing, Offload, Offloaded, Replace, SinkFile, SourceFile, SyncWhat,
};
use haul_model::ByteRange;
use haul_sys::direct::{self, Alignment};
use haul_sys::open::{
    ForUpdate, create_new_at, create_through_at, open_regular_for_update_at, reopen_source, unlink_at,
};
use haul_sys::sparse::Support;
use haul_sys::transfer::CopyRange;
use haul_sys::{Follow, cache, sparse, stat, transfer};
use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Mode of an incomplete file: no other user may read it.
const INCOMPLETE_MODE: u32 = 0o600;

/// An open file that any number of workers fill.
#[derive(Debug)]
pub(super) struct LocalSink {
    file: Arc<File>,
    device: Arc<LocalDevice>,
    dir: Arc<DirPlace>,
    /// Final name.
    name: Name,
    /// Temporary name; `None` if the file has its final name from the start.
    temporary: Option<Name>,
    /// True if this open file created its inode.
    is_new: bool,
    /// True if the file can be read by its descriptor.
    is_readable: bool,
    /// Maximum number of bytes that were reserved.
    reserved: AtomicU64,
    is_locked: AtomicBool,
    is_committed: AtomicBool,
    failure: Arc<FirstFailure>,
    direct: RwLock<Option<Alignment>>,
    /// True once a reader uses the descriptor. Locked while the use of the descriptor changes.
    is_shared: Mutex<bool>,
}

/// A regular file that was just opened for writing.
enum OpenedFile {
    Created(OwnedFd),
    Existing(ForUpdate),
}

impl LocalSink {
    /// Opens or creates the file `name` in a directory.
    ///
    /// # Errors
    /// Returns the errors that [`Create`] names, and the errors of openat(2).
    pub(super) fn open(dir: &Arc<DirPlace>, name: &Name, create: Create) -> io::Result<LocalSink> {
        match create {
            Create::New { mode } => {
                let file = created(dir, name.as_c_str(), mode)?;
                Ok(LocalSink::new(dir, name, None, OpenedFile::Created(file)))
            }
            Create::InPlace { missing, follow } => LocalSink::in_place(dir, name, missing, follow),
            Create::Temporary(tag) => LocalSink::temporary(dir, name, tag.name()),
            Create::Resume(tag) => LocalSink::resumed(dir, name, tag.name()),
        }
    }

    fn new(dir: &Arc<DirPlace>, name: &Name, temporary: Option<Name>, opened: OpenedFile) -> LocalSink {
        let (file, device, is_new, is_readable) = match opened {
            OpenedFile::Created(file) => (file, Arc::clone(dir.device()), true, true),
            OpenedFile::Existing(ForUpdate { file, found, is_readable }) => {
                let device = dir.device_of(found.dev, &file);
                (file, device, false, is_readable)
            }
        };
        LocalSink {
            file: Arc::new(file.into()),
            device,
            dir: Arc::clone(dir),
            name: name.clone(),
            temporary,
            is_new,
            is_readable,
            reserved: AtomicU64::new(0),
            is_locked: AtomicBool::new(false),
            is_committed: AtomicBool::new(false),
            failure: Arc::default(),
            direct: RwLock::default(),
            is_shared: Mutex::default(),
        }
    }

    /// Opens `name` with its contents, or creates it.
    fn in_place(dir: &Arc<DirPlace>, name: &Name, missing: Missing, follow: Follow) -> io::Result<LocalSink> {
        if let Missing::Create { mode } = missing {
            match created(dir, name.as_c_str(), mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => return Ok(LocalSink::new(dir, name, None, OpenedFile::Created(file?))),
            }
        }
        let place = dir.open()?;
        if follow == Follow::No {
            dir.name_folding().check_no_clash(place.fd(), name.as_c_str())?;
        }
        let opened = match (open_regular_for_update_at(place.fd(), name.as_c_str(), follow), missing) {
            // A dangling link, because the name existed a moment ago.
            (Err(error), Missing::Create { mode })
                if follow == Follow::Yes && error.kind() == io::ErrorKind::NotFound =>
            {
                let file = create_through_at(place.fd(), name.as_c_str(), mode)?;
                let device = dir.device_of(stat::stat_fd(&file)?.dev, &file);
                let mut sink = LocalSink::new(dir, name, None, OpenedFile::Created(file));
                sink.device = device;
                return Ok(sink);
            }
            (opened, _) => opened?,
        };
        match opened {
            Some(file) => Ok(LocalSink::new(dir, name, None, OpenedFile::Existing(file))),
            None => Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a regular file")),
        }
    }

    /// Creates a file under a temporary name. Replaces a file that a killed job left there.
    fn temporary(dir: &Arc<DirPlace>, name: &Name, temporary: Name) -> io::Result<LocalSink> {
        let place = dir.open()?;
        let create = || create_new_at(place.fd(), temporary.as_c_str(), INCOMPLETE_MODE);
        let file = match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                unlink_at(place.fd(), temporary.as_c_str())?;
                create()?
            }
            created => created?,
        };
        Ok(LocalSink::new(dir, name, Some(temporary), OpenedFile::Created(file)))
    }

    /// Opens the file that an earlier job left under a temporary name. Removes an unusable one.
    fn resumed(dir: &Arc<DirPlace>, name: &Name, temporary: Name) -> io::Result<LocalSink> {
        let place = dir.open()?;
        let file = open_regular_for_update_at(place.fd(), temporary.as_c_str(), Follow::No)?;
        match file.filter(|file| file.found.nlink == 1) {
            Some(file) => Ok(LocalSink::new(dir, name, Some(temporary), OpenedFile::Existing(file))),
            None => {
                unlink_at(place.fd(), temporary.as_c_str())?;
                Err(io::ErrorKind::NotFound.into())
            }
        }
    }

    /// Runs `sync`, after any other sync of the file.
    fn sync_by(&self, sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        self.failure.run(|| sync(&self.file).inspect_err(|_| forget_pages(&self.file)))
    }
}

/// Creates a file under its final name.
fn created(dir: &Arc<DirPlace>, name: &CStr, mode: u32) -> io::Result<OwnedFd> {
    let place = dir.open()?;
    dir.name_folding().create_name(name, || {
        let file = create_new_at(place.fd(), name, mode)?;
        check_trailing_dots(place.fd(), name).inspect_err(|_| {
            // Ignore an error: the caller reports that the name is not kept.
            let _ = unlink_at(place.fd(), name);
        })?;
        Ok(file)
    })
}

impl Held for LocalSink {
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        act(self.file.as_fd())
    }

    fn local_device(&self) -> &LocalDevice {
        &self.device
    }
}

impl SinkFile for LocalSink {
    fn is_new(&self) -> bool {
        self.is_new
    }

    fn lock(&self) -> io::Result<bool> {
        let has_lock = try_lock(&self.file, "another job writes this file in place")?;
        self.is_locked.fetch_or(has_lock, Ordering::Relaxed);
        Ok(has_lock)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.device.reserve(self.file.as_fd(), len)?;
        self.reserved.fetch_max(len, Ordering::Relaxed);
        Ok(())
    }

    fn reserve_range(&self, range: ByteRange) -> io::Result<()> {
        sparse::allocate(&self.file, range, true).map(drop)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match *self.direct.read() {
            None => transfer::write_all_at(&self.file, at, bytes),
            Some(alignment) => direct::write_all_at(&self.file, at, bytes, alignment),
        }
    }

    fn clear(&self, range: ByteRange, stop: &AtomicBool) -> io::Result<()> {
        if matches!(sparse::punch_hole(&self.file, range), Ok(Support::Done)) {
            return Ok(());
        }
        // Zeros are written instead, and never behind the end.
        let end = range.end.0.min(stat::stat_fd(&self.file)?.size);
        let range = ByteRange::between(range.start.0.min(end), end);
        match sparse::clear(&self.file, range, || stop.load(Ordering::Relaxed))? {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    fn leave_out(&self, range: ByteRange) {
        if self.device.device.capabilities.preallocates && !range.is_empty() {
            // An error is harmless: no byte depends on the hole, and the file only takes more
            // space.
            let _ = sparse::punch_hole(&self.file, range);
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        sparse::set_len(&self.file, len)
    }

    fn offload(
        &self,
        from: &dyn SourceFile,
        range: ByteRange,
        to: u64,
        how: Offload,
    ) -> io::Result<Offloaded> {
        let from: &dyn std::any::Any = from;
        let Some(from) = from.downcast_ref::<LocalSource>() else { return Ok(Offloaded::NeverBetween) };
        if range.is_empty() {
            return Ok(Offloaded::Done(0));
        }
        from.with_fd(|from| match how {
            Offload::Share => match transfer::clone_range(from, range.start.0, &self.file, to, range.len()) {
                Ok(()) => Ok(Offloaded::Done(range.len())),
                Err(error) if transfer::clone_never_works_between(&error) => Ok(Offloaded::NeverBetween),
                Err(error) if transfer::clone_is_unsupported(&error) => Ok(Offloaded::Unsupported),
                Err(error) => Err(error),
            },
            Offload::Copy => match transfer::copy_range(from, range.start.0, &self.file, to, range.len())? {
                CopyRange::Whole => Ok(Offloaded::Done(range.len())),
                CopyRange::SourceEnded { copied } => Ok(Offloaded::Done(copied)),
                CopyRange::Unsupported { copied: 0 } => Ok(Offloaded::Unsupported),
                CopyRange::Unsupported { copied } => Ok(Offloaded::Done(copied)),
            },
        })
    }

    fn sync(&self, what: SyncWhat) -> io::Result<()> {
        self.sync_by(|file| match what {
            SyncWhat::Range(range) => cache::wait_writeback(file, range),
            SyncWhat::Data => cache::sync_data(file),
            SyncWhat::All => cache::sync_all(file),
        })
    }

    fn check(&self) -> io::Result<()> {
        self.sync_by(|file| cache::check_writeback(file))
    }

    fn failure(&self) -> Option<io::Error> {
        self.failure.get()
    }

    fn is_syncing(&self) -> bool {
        self.failure.is_syncing()
    }

    fn reader(&self) -> io::Result<Arc<dyn SourceFile>> {
        let mut is_shared = self.is_shared.lock();
        let file = if self.is_readable && self.direct.read().is_none() {
            *is_shared = true;
            Arc::clone(&self.file)
        } else {
            Arc::new(reopen_source(&self.file, false)?.into())
        };
        Ok(Arc::new(LocalSource::reader(file, &self.device, &self.failure)))
    }

    fn set_direct(&self, is_on: bool) -> io::Result<Option<Alignment>> {
        let is_shared = self.is_shared.lock();
        let mut writes = self.direct.write();
        if !is_on {
            if writes.take().is_some() {
                direct::set_direct(&self.file, false)?;
            }
            return Ok(None);
        }
        // A reader has buffers of its own, which need not be aligned. Only an empty file shows
        // whether such writes work.
        if writes.is_none() && !*is_shared && stat::stat_fd(&self.file)?.size == 0 {
            *writes = direct::probe_write(&self.file)?;
        }
        Ok(*writes)
    }

    fn finish(&self, len: u64, metadata: &Metadata<'_>) -> Result<(), Unset> {
        let now = stat::stat_fd(&self.file).map_err(Unset::of(Part::Length))?;
        // A file of the right length may have reserved more space, which this gives back.
        if now.size != len || self.reserved.load(Ordering::Relaxed) > len {
            sparse::set_len(&self.file, len).map_err(Unset::of(Part::Length))?;
        }
        if self.device.device.capabilities.close_may_fail {
            let flushed = self.sync_by(|file| self.device.flush(file.as_fd()));
            flushed.map_err(Unset::of(Part::Bytes))?;
        }
        let has_owner = metadata.user.is_none_or(|user| user == now.uid)
            && metadata.group.is_none_or(|group| group == now.gid);
        if self.is_new && has_owner {
            // No other process changed the owner of a new file.
            let attributes = Cow::Borrowed(&*metadata.attributes);
            return self.set_metadata(&Metadata {
                attributes,
                mode: metadata.mode,
                times: metadata.times,
                ..Metadata::default()
            });
        }
        self.set_metadata(metadata)
    }

    fn commit(&self, replace: Replace) -> io::Result<()> {
        self.failure.unless_failed(|| {
            if let Some(temporary) = &self.temporary
                && !self.is_committed()
            {
                let place = self.dir.open()?;
                let (from, to) = ((place.fd(), temporary.as_c_str()), (place.fd(), self.name.as_c_str()));
                self.dir.name_folding().rename(from, to, replace)?;
            }
            self.is_committed.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    fn is_committed(&self) -> bool {
        self.is_committed.load(Ordering::Relaxed)
    }

    fn abandon(&self) -> io::Result<()> {
        let Some(temporary) = self.temporary.as_ref().filter(|_| !self.is_committed()) else {
            return Ok(());
        };
        match unlink_at(self.dir.open()?.fd(), temporary.as_c_str()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl Drop for LocalSink {
    /// Ends the lock, although a reader or a child between fork and exec may have the file open.
    fn drop(&mut self) {
        if self.is_locked.load(Ordering::Relaxed) {
            // After an error the lock ends with the last descriptor.
            let _ = self.file.unlock();
        }
    }
}
