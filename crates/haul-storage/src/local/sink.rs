//! A file that is being written: under a temporary name next to its target until every byte is
//! present and verified, or under its final name.

use super::device::LocalDevice;
use super::dir_place::{DirPlace, LocalTree};
use super::metadata::Held;
use super::source::{LocalSource, OpenSink, forget_pages, open_source, try_lock, widened};
use crate::failure::FirstFailure;
use crate::metadata::{Metadata, Part, Unset};
use crate::name::Name;
use crate::storage::{
    Create, Inode as _, Missing, Offload, Offloaded, Remove, Replace, SinkFile, SourceFile, SyncWhat,
};
use haul_model::ByteRange;
use haul_sys::cache::{Advice, FOLIO_BYTES_MAX};
use haul_sys::direct::{self, Alignment};
use haul_sys::filesystem::Backing;
use haul_sys::open::{
    ForUpdate, create_nameless_at, create_new_at, create_through_at, open_regular_for_update_at,
    reopen_source, unlink_at,
};
use haul_sys::sparse::Support;
use haul_sys::transfer::CopyRange;
use haul_sys::{Follow, Stat, cache, closing, sparse, stat, transfer};
use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `errno` of files of different storages.
const EXDEV: i32 = 18;

/// `errno` of a file system that cannot copy a range. It is the same on all architectures but four.
const EOPNOTSUPP: i32 = 95;

/// `errno` of a link that is not followed. It is the same on all architectures but three.
const ELOOP: i32 = 40;

/// Mode of an incomplete file: no other user may read it.
const INCOMPLETE_MODE: u32 = 0o600;

/// An open file that any number of workers fill.
#[derive(Debug)]
pub(super) struct LocalSink {
    open: Arc<OpenSink>,
    device: Arc<LocalDevice>,
    /// `None` if the file has its final name from the start.
    temporary: Option<TemporaryName>,
    /// True if this open file created its inode.
    is_new: bool,
    /// True if the file can be read by its descriptor.
    is_readable: bool,
    /// Metadata of an existing file from when it was opened.
    opened: Option<Box<Stat>>,
    /// Maximum number of bytes that were reserved.
    reserved: AtomicU64,
    is_locked: AtomicBool,
    is_committed: AtomicBool,
    direct: RwLock<Option<Alignment>>,
    /// True once a reader uses the descriptor. Locked while the use of the descriptor changes.
    is_shared: Mutex<bool>,
}

/// Temporary name of a file, and its final name in the same directory.
#[derive(Debug)]
struct TemporaryName {
    dir: Arc<DirPlace>,
    temporary: Name,
    name: Name,
}

impl LocalSink {
    /// Opens or creates the file `name` in a directory.
    ///
    /// # Errors
    /// Returns the errors that [`Create`] names, and the errors of openat(2).
    pub(super) fn open(dir: &Arc<DirPlace>, name: &Name, create: Create) -> io::Result<LocalSink> {
        match create {
            Create::New { mode } => LocalSink::created(dir, created(dir, name.as_c_str(), mode)?),
            Create::InPlace { missing, follow } => LocalSink::in_place(dir, name, missing, follow),
            Create::Complete { follow } => {
                let opened = open_complete(dir.open()?.fd(), name.as_c_str(), follow)?;
                Ok(LocalSink::existing_in(dir, opened))
            }
            Create::Temporary(tag) => LocalSink::temporary(dir, name, tag.name()),
            Create::Resume(tag) => LocalSink::resumed(dir, name, tag.name()),
        }
    }

    /// Opens or creates the file at a path of any kind, under its final name.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for a temporary name, and otherwise the same errors
    /// as [`LocalSink::open`].
    pub(super) fn at_path(
        tree: &LocalTree,
        place: BorrowedFd<'_>,
        path: &CStr,
        create: Create,
    ) -> io::Result<LocalSink> {
        let made = |file: OwnedFd| {
            let device = tree.devices.of(stat::stat_fd(&file)?.dev, &file);
            Ok(LocalSink::new(file, device))
        };
        let existing = |file: ForUpdate| {
            let device = tree.devices.of(file.found.dev, &file.file);
            Ok(LocalSink::existing(device, file))
        };
        match create {
            Create::New { mode } => made(create_new_at(place, path, mode)?),
            Create::InPlace { missing, follow } => {
                match (open_regular_for_update_at(place, path, follow), missing) {
                    (Err(error), Missing::Create { mode }) if error.kind() == io::ErrorKind::NotFound => {
                        made(match follow {
                            Follow::Yes => create_through_at(place, path, mode)?,
                            Follow::No => create_new_at(place, path, mode)?,
                        })
                    }
                    (opened, _) => existing(opened?.ok_or_else(not_regular)?),
                }
            }
            Create::Complete { follow } => existing(open_complete(place, path, follow)?),
            Create::Temporary(_) | Create::Resume(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Returns a file that was just created.
    fn new(file: OwnedFd, device: Arc<LocalDevice>) -> LocalSink {
        LocalSink {
            open: Arc::new(OpenSink { file: file.into(), failure: FirstFailure::default() }),
            device,
            temporary: None,
            is_new: true,
            is_readable: true,
            opened: None,
            reserved: AtomicU64::new(0),
            is_locked: AtomicBool::new(false),
            is_committed: AtomicBool::new(false),
            direct: RwLock::default(),
            is_shared: Mutex::default(),
        }
    }

    /// Creates a file without a name on the device of a directory.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(super) fn nameless(dir: &DirPlace) -> io::Result<LocalSink> {
        LocalSink::created(dir, create_nameless_at(dir.open()?.fd())?)
    }

    /// Returns a file that was created in a directory.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    fn created(dir: &DirPlace, file: OwnedFd) -> io::Result<LocalSink> {
        let device = match dir.device().device.capabilities.backing {
            // The file can have the number of another layer than its directory.
            Backing::FileBelow => dir.device_of(stat::stat_fd(&file)?.dev, &file),
            _ => Arc::clone(dir.device()),
        };
        Ok(LocalSink::new(file, device))
    }

    /// Returns a file that existed.
    fn existing(device: Arc<LocalDevice>, opened: ForUpdate) -> LocalSink {
        let ForUpdate { file, found, is_readable } = opened;
        let mut sink = LocalSink::new(file, device);
        (sink.is_new, sink.is_readable, sink.opened) = (false, is_readable, Some(Box::new(found)));
        sink
    }

    /// Returns a file that existed in a directory.
    fn existing_in(dir: &DirPlace, opened: ForUpdate) -> LocalSink {
        LocalSink::existing(dir.device_of(opened.found.dev, &opened.file), opened)
    }

    /// Returns the file, which has a temporary name.
    fn named(mut self, dir: &Arc<DirPlace>, temporary: Name, name: &Name) -> LocalSink {
        self.temporary = Some(TemporaryName { dir: Arc::clone(dir), temporary, name: name.clone() });
        self
    }

    /// Opens `name` with its contents, or creates it.
    fn in_place(dir: &Arc<DirPlace>, name: &Name, missing: Missing, follow: Follow) -> io::Result<LocalSink> {
        if let Missing::Create { mode } = missing {
            match created(dir, name.as_c_str(), mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => return LocalSink::created(dir, file?),
            }
        }
        let place = dir.open()?;
        if follow == Follow::No {
            dir.check_no_clash((place.fd(), name.as_c_str()))?;
        }
        let opened = match (open_regular_for_update_at(place.fd(), name.as_c_str(), follow), missing) {
            // A dangling link, because the name existed a moment ago.
            (Err(error), Missing::Create { mode })
                if follow == Follow::Yes && error.kind() == io::ErrorKind::NotFound =>
            {
                let file = create_through_at(place.fd(), name.as_c_str(), mode)?;
                let device = dir.device_of(stat::stat_fd(&file)?.dev, &file);
                return Ok(LocalSink::new(file, device));
            }
            (opened, _) => opened?,
        };
        Ok(LocalSink::existing_in(dir, opened.ok_or_else(not_regular)?))
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
        Ok(LocalSink::created(dir, file)?.named(dir, temporary, name))
    }

    /// Opens the file that an earlier job left under a temporary name. Removes an unusable one.
    fn resumed(dir: &Arc<DirPlace>, name: &Name, temporary: Name) -> io::Result<LocalSink> {
        let place = dir.open()?;
        let file = open_regular_for_update_at(place.fd(), temporary.as_c_str(), Follow::No)?;
        match file.filter(|file| file.found.nlink == 1) {
            Some(file) => Ok(LocalSink::existing_in(dir, file).named(dir, temporary, name)),
            None => {
                unlink_at(place.fd(), temporary.as_c_str())?;
                Err(io::ErrorKind::NotFound.into())
            }
        }
    }

    /// Returns the descriptor.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.open.file.as_fd()
    }

    /// Runs `sync`, after any other sync of the file.
    fn sync_by(&self, sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        // Also after an earlier failure, when nothing is run: pages written since may be lost too.
        self.open.failure.run(|| sync(&self.open.file)).inspect_err(|_| forget_pages(&self.open.file))
    }
}

/// Opens a file that is not written.
fn open_complete(place: impl AsFd, name: &CStr, follow: Follow) -> io::Result<ForUpdate> {
    match open_source(place, name, follow) {
        Ok((file, found)) => Ok(ForUpdate { file, found, is_readable: true }),
        Err(error) => {
            let is_link = follow == Follow::No && error.raw_os_error() == Some(ELOOP);
            let is_other = error.kind() == io::ErrorKind::InvalidInput || is_link;
            Err(if is_other { not_regular() } else { error })
        }
    }
}

/// Returns the error of an entry of another kind.
fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "it is not a regular file")
}

/// Returns true for the errors of a file that this process may not open again.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound)
}

/// Creates a file under its final name.
fn created(dir: &Arc<DirPlace>, name: &CStr, mode: u32) -> io::Result<OwnedFd> {
    let place = dir.open()?;
    dir.create_name((place.fd(), name), Remove::File, || create_new_at(place.fd(), name, mode))
}

impl Held for LocalSink {
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        act(self.open.file.as_fd())
    }

    fn local_device(&self) -> &LocalDevice {
        &self.device
    }
}

impl SinkFile for LocalSink {
    fn opened(&self) -> io::Result<Stat> {
        self.opened.as_deref().map_or_else(|| self.stat(), |opened| Ok(*opened))
    }

    fn is_new(&self) -> bool {
        self.is_new
    }

    fn lock(&self) -> io::Result<bool> {
        let has_lock = try_lock(&self.open.file, "another job writes this file in place")?;
        self.is_locked.fetch_or(has_lock, Ordering::Relaxed);
        Ok(has_lock)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.device.reserve(self.open.file.as_fd(), len)?;
        self.reserved.fetch_max(len, Ordering::Relaxed);
        Ok(())
    }

    fn reserve_range(&self, range: ByteRange) -> io::Result<()> {
        sparse::allocate(&self.open.file, range, true).map(drop)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match *self.direct.read() {
            None => transfer::write_all_at(&self.open.file, at, bytes),
            Some(alignment) => direct::write_all_at(&self.open.file, at, bytes, alignment),
        }
    }

    fn clear(&self, range: ByteRange, stop: &AtomicBool) -> io::Result<()> {
        if matches!(sparse::punch_hole(&self.open.file, range), Ok(Support::Done)) {
            return Ok(());
        }
        // Zeros are written instead, and never behind the end.
        let end = range.end.0.min(stat::stat_fd(&self.open.file)?.size);
        let range = ByteRange::between(range.start.0.min(end), end);
        match sparse::clear(&self.open.file, range, || stop.load(Ordering::Relaxed))? {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    fn leave_out(&self, range: ByteRange) {
        if self.device.device.capabilities.preallocates && !range.is_empty() {
            // An error is harmless: no byte depends on the hole, and the file only takes more
            // space.
            let _ = sparse::punch_hole(&self.open.file, range);
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        sparse::set_len(&self.open.file, len)
    }

    fn offload(
        &self,
        from: &dyn SourceFile,
        range: ByteRange,
        to: u64,
        how: Offload,
    ) -> io::Result<Offloaded> {
        let from: &dyn std::any::Any = from;
        let Some(from) = from.downcast_ref::<LocalSource>() else {
            return Ok(Offloaded::NeverBetween(EXDEV));
        };
        // The file system decides whether an empty file may share its blocks.
        let is_clone_of_nothing = how == Offload::Share && from.opened().size == 0;
        if range.is_empty() && !is_clone_of_nothing {
            return Ok(Offloaded::Done(0));
        }
        // The file may have grown since it was opened. Its range then ends at no block border.
        let is_whole = range.start.0 == 0 && to == 0 && range.end.0 == from.opened().size;
        let share = |from: BorrowedFd<'_>| match is_whole {
            true => transfer::clone_file(from, &self.open.file),
            false => transfer::clone_range(from, range.start.0, &self.open.file, to, range.len()),
        };
        from.with_fd(|from| match how {
            Offload::Share => match share(from) {
                Ok(()) => Ok(Offloaded::Done(range.len())),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(EOPNOTSUPP);
                    match () {
                        () if transfer::clone_never_works_between(&error) => {
                            Ok(Offloaded::NeverBetween(errno))
                        }
                        () if transfer::clone_is_unsupported(&error) => Ok(Offloaded::Unsupported(errno)),
                        () => Err(error),
                    }
                }
            },
            Offload::Copy => {
                match transfer::copy_range(from, range.start.0, &self.open.file, to, range.len())? {
                    CopyRange::Whole => Ok(Offloaded::Done(range.len())),
                    CopyRange::SourceEnded { copied } => Ok(Offloaded::Done(copied)),
                    CopyRange::Unsupported { copied: 0 } => Ok(Offloaded::Unsupported(EOPNOTSUPP)),
                    CopyRange::Unsupported { copied } => Ok(Offloaded::Done(copied)),
                }
            }
        })
    }

    fn start_writeback(&self, range: ByteRange) {
        // A later sync writes the range, and reports failures.
        let _ = cache::start_writeback(&self.open.file, range);
    }

    fn drop_pages(&self, range: ByteRange) {
        // Pages that stay only occupy memory.
        let _ = cache::advise(&self.open.file, widened(range, FOLIO_BYTES_MAX), Advice::DontNeed);
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
        self.open.failure.get()
    }

    fn is_syncing(&self) -> bool {
        self.open.failure.is_syncing()
    }

    fn reader(&self) -> io::Result<Arc<dyn SourceFile>> {
        let mut is_shared = self.is_shared.lock();
        let can_share = self.is_readable && self.direct.read().is_none();
        let capabilities = &self.device.device.capabilities;
        // A network file system checks at each open whether the file still is what was written.
        let is_own_enough = capabilities.is_local || capabilities.backing != Backing::Storage;
        let reopened = match can_share && is_own_enough {
            true => None,
            false => match reopen_source(&self.open.file, false) {
                // The mode of the file forbids it, or /proc is missing.
                Err(error) if can_share && is_unreachable(&error) => None,
                reopened => Some(reopened?),
            },
        };
        *is_shared |= reopened.is_none();
        Ok(Arc::new(LocalSource::reader(reopened.map(File::from), &self.open, &self.device)))
    }

    fn reopen(&self) -> io::Result<Arc<dyn SourceFile>> {
        let file = File::from(reopen_source(&self.open.file, false)?);
        let opened = stat::stat_fd(&file)?;
        Ok(Arc::new(LocalSource::new(file, opened, Some(Arc::clone(&self.device)))))
    }

    fn set_direct(&self, is_on: bool) -> io::Result<Option<Alignment>> {
        let is_shared = self.is_shared.lock();
        let mut writes = self.direct.write();
        if !is_on {
            if writes.take().is_some() {
                direct::set_direct(&self.open.file, false)?;
            }
            return Ok(None);
        }
        // A reader has buffers of its own, which need not be aligned. Only an empty file shows
        // whether such writes work.
        if writes.is_none() && !*is_shared && stat::stat_fd(&self.open.file)?.size == 0 {
            *writes = direct::probe_write(&self.open.file)?;
        }
        Ok(*writes)
    }

    fn flush(&self) -> io::Result<()> {
        match self.device.device.capabilities.close_may_fail {
            true => self.sync_by(|file| closing::flush(file)),
            false => Ok(()),
        }
    }

    fn finish(&self, len: u64, metadata: &Metadata<'_>) -> Result<(), Unset> {
        let now = stat::stat_fd(&self.open.file).map_err(Unset::of(Part::Length))?;
        // A file of the right length may have reserved more space, which this gives back.
        if now.size != len || self.reserved.load(Ordering::Relaxed) > len {
            sparse::set_len(&self.open.file, len).map_err(Unset::of(Part::Length))?;
        }
        self.flush().map_err(Unset::of(Part::Bytes))?;
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
        self.open.failure.unless_failed(|| {
            if let Some(TemporaryName { dir, temporary, name }) = &self.temporary
                && !self.is_committed()
            {
                let place = dir.open()?;
                let (from, to) = ((place.fd(), temporary.as_c_str()), (place.fd(), name.as_c_str()));
                dir.rename_here(from, to, replace)?;
            }
            self.is_committed.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    fn is_committed(&self) -> bool {
        self.is_committed.load(Ordering::Relaxed)
    }

    fn abandon(&self) -> io::Result<()> {
        let Some(TemporaryName { dir, temporary, .. }) =
            self.temporary.as_ref().filter(|_| !self.is_committed())
        else {
            return Ok(());
        };
        match unlink_at(dir.open()?.fd(), temporary.as_c_str()) {
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
            let _ = self.open.file.unlock();
        }
    }
}
