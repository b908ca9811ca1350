//! A regular file being received: it has a temporary name next to its target until every byte is
//! present and verified.

use super::dirs::SinkDirs;
use super::name_folding::{NameFolding, check_trailing_dots};
use crate::transfer::reason::reason;
use haul_log::objects::FileKey;
use haul_model::ByteRange;
use haul_proto::Reason;
use haul_storage::sync_names;
use haul_sys::cache::Advice;
use haul_sys::metadata::{set_mode_fd, set_owner_fd};
use haul_sys::open::{create_new_at, open_regular_at, unlink_at};
use haul_sys::sparse::{self, Support};
use haul_sys::{FileKind, Follow, Stat, cache, filesystem, process, stat, transfer};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{CStr, CString};
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Mode of an incomplete file: no other user may read it.
const TEMPORARY_MODE: u32 = 0o600;

/// Minimum size, in bytes, of a file whose space is reserved before it is written. For a smaller
/// file the calls cost more than they save.
const RESERVE_BYTES_MIN: u64 = 1 << 20;

/// `errno` of a full file system, the same on every architecture of Linux.
const ENOSPC: i32 = 28;

/// `errno` of an input or output error.
const EIO: i32 = 5;

/// Text of a failed sync.
pub(super) const SYNC_FAILED: &str = "cannot sync";

/// An open file that any number of workers fill.
#[derive(Debug)]
pub(super) struct PartialFile {
    file: OwnedFd,
    place: Arc<OwnedFd>,
    name: CString,
    /// Temporary name; `None` if the file is written in place.
    temporary: Option<CString>,
    /// True if this run created the file, so that it has only the metadata of a new file.
    pub(super) is_new: bool,
    /// True once the file has its final name.
    is_named: AtomicBool,
    /// Key of the file in the object log, once it is logged.
    pub(super) logged: OnceLock<FileKey>,
    /// `errno` of the first sync that failed. Locked during each sync of the file, because the
    /// kernel reports a lost write to one of them only.
    sync_failure: Mutex<Option<i32>>,
    name_folding: Arc<NameFolding>,
}

impl PartialFile {
    /// Creates a file under the temporary name `tag`, which will become `name` in `place`. Reserves
    /// `room` bytes for it.
    ///
    /// # Errors
    /// Returns the error of the failed system call. For a larger file, returns `IsADirectory`
    /// before any data is transferred if `name` is a directory. For a smaller one, the rename fails
    /// instead.
    pub(super) fn create_temporary(
        (place, name): NameAt,
        tag: &Tag,
        room: u64,
        name_folding: &Arc<NameFolding>,
    ) -> io::Result<PartialFile> {
        if room >= RESERVE_BYTES_MIN
            && stat::stat_at(&place, name.as_c_str(), Follow::No)
                .is_ok_and(|now| now.kind == FileKind::Directory)
        {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let temporary = tag.name();
        let file = match create_new_at(&place, temporary.as_c_str(), TEMPORARY_MODE) {
            // A killed session with the same tag left this name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                unlink_at(&place, temporary.as_c_str())?;
                create_new_at(&place, temporary.as_c_str(), TEMPORARY_MODE)?
            }
            other => other?,
        };
        let partial_file = PartialFile {
            is_new: true,
            ..PartialFile::new(file, (place, name), Some(temporary), name_folding)
        };
        match partial_file.reserve(room) {
            Ok(()) => Ok(partial_file),
            Err(error) => {
                partial_file.abandon();
                Err(error)
            }
        }
    }

    fn new(
        file: OwnedFd,
        (place, name): NameAt,
        temporary: Option<CString>,
        name_folding: &Arc<NameFolding>,
    ) -> PartialFile {
        PartialFile {
            file,
            place,
            name,
            temporary,
            is_new: false,
            is_named: AtomicBool::new(false),
            logged: OnceLock::new(),
            sync_failure: Mutex::new(None),
            name_folding: Arc::clone(name_folding),
        }
    }

    /// Opens the file that an earlier run left under the temporary name `tag`. Truncates it if it
    /// is longer than `len` bytes, the final length. Returns it with its metadata as found, or
    /// `None` if there is no usable file. An unusable one is removed.
    ///
    /// # Errors
    /// Returns the error of the failed system call.
    pub(super) fn reopen_temporary(
        (place, name): NameAt,
        tag: &Tag,
        len: u64,
        room: u64,
        name_folding: &Arc<NameFolding>,
    ) -> io::Result<Option<(PartialFile, Stat)>> {
        let temporary = tag.name();
        let file = match open_regular_at(&place, temporary.as_c_str()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let found = file.as_ref().map(stat::stat_fd).transpose()?;
        let (Some(file), Some(found)) = (file, found.filter(|found| found.nlink == 1)) else {
            unlink_at(&place, temporary.as_c_str())?;
            return Ok(None);
        };
        if found.size > len {
            sparse::set_len(&file, len)?;
        }
        let partial_file = PartialFile::new(file, (place, name), Some(temporary), name_folding);
        partial_file.reserve(room)?;
        Ok(Some((partial_file, found)))
    }

    /// Returns true if only this user can have written to a file with this metadata: this user owns
    /// it, and its mode admits no other user.
    pub(super) fn is_private(found: &Stat) -> bool {
        PartialFile::is_owned(found) && found.mode & 0o777 == TEMPORARY_MODE
    }

    /// Returns true if this user owns a file with this metadata: no other user can have created it.
    pub(super) fn is_owned(found: &Stat) -> bool {
        found.uid == process::effective_user()
    }

    /// Takes back a file that had its owner and permissions already when its run was killed, or
    /// when a power failure lost its rename.
    ///
    /// # Errors
    /// Returns the errors of fchown(2) and fchmod(2).
    pub(super) fn make_private(&self) -> io::Result<()> {
        set_owner_fd(self.fd(), Some(process::effective_user()), Some(process::effective_group()))?;
        set_mode_fd(self.fd(), TEMPORARY_MODE)
    }

    /// Returns true if the file has its final name.
    pub(super) fn has_name(&self) -> bool {
        self.is_named.load(Ordering::Relaxed)
    }

    /// Opens `name` in `place` for overwriting, or creates it, with `room` bytes reserved. The file
    /// will be `len` bytes long.
    ///
    /// Returns `None` if the existing entry must not be overwritten: it is not a regular file, or
    /// it has several names, each of which can be another file at the source. The new file then
    /// replaces the name, as without `--inplace`.
    ///
    /// The file is locked (flock(2)) until it is closed, so that two jobs do not mix their bytes in
    /// it. A file system without locks is used without.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::ResourceBusy`] if another job writes the file, and the error of the
    /// failed system call otherwise.
    pub(super) fn in_place(
        (place, name): NameAt,
        len: u64,
        room: u64,
        name_folding: &Arc<NameFolding>,
    ) -> io::Result<Option<PartialFile>> {
        let may_be_opened = |found: &Stat| found.kind == FileKind::Regular && found.nlink == 1;
        if stat::stat_at(&place, name.as_c_str(), Follow::No).is_ok_and(|found| !may_be_opened(&found)) {
            return Ok(None);
        }
        let Some(file) = name_folding.create_name(&name, || create_in_place(&place, &name, name_folding))?
        else {
            return Ok(None);
        };
        let file = File::from(file);
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another job writes this file in place"));
        }
        let file = OwnedFd::from(file);
        let now = stat::stat_fd(&file)?;
        if !may_be_opened(&now) {
            return Ok(None);
        }
        if now.size > len {
            sparse::set_len(&file, len)?;
        }
        let partial_file = PartialFile::new(file, (place, name), None, name_folding);
        partial_file.reserve(room)?;
        Ok(Some(partial_file))
    }

    /// Detects a full disk before the data is transferred. Compares `room` with the free space, and
    /// reserves the space if the file system supports that. Does not change the length.
    ///
    /// # Errors
    /// Returns `ENOSPC` or the errors of fallocate(2). The file is then unchanged.
    fn reserve(&self, room: u64) -> io::Result<()> {
        if room < RESERVE_BYTES_MIN {
            return Ok(());
        }
        let Ok(space) = filesystem::space(&self.file) else { return Ok(()) };
        if space.free.is_some_and(|free| free < room) {
            let taken = stat::stat_fd(&self.file)?.blocks.saturating_mul(512);
            if space.free.is_some_and(|free| free.saturating_add(taken) < room) {
                return Err(io::Error::from_raw_os_error(ENOSPC));
            }
        }
        if !space.reserves {
            return Ok(());
        }
        match sparse::allocate(&self.file, ByteRange::between(0, room), true) {
            Ok(Support::Done | Support::Unsupported) => Ok(()),
            Err(error) => {
                // A part may have been reserved beyond the end of the file.
                let _ = stat::stat_fd(&self.file).and_then(|now| sparse::set_len(&self.file, now.size));
                Err(error)
            }
        }
    }

    /// Writes one block.
    ///
    /// # Errors
    /// Returns the errors of pwrite(2).
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        transfer::write_all_at(&self.file, offset, bytes)
    }

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// Returns the errors of pwrite(2), and `Interrupted` once `over` is true.
    pub(super) fn clear(&self, range: ByteRange, over: &AtomicBool) -> io::Result<()> {
        match sparse::clear(&self.file, range, || over.load(Ordering::Relaxed))? {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    /// Syncs the file by `sync`, after any other sync of it.
    ///
    /// # Errors
    /// Returns the error of `sync`, and the same error from then on: the kernel reports a lost
    /// write once, so a later success proves nothing.
    pub(super) fn sync(&self, sync: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
        self.sync_locked(&mut self.sync_failure(), sync)
    }

    /// Same as [`PartialFile::sync`], but returns `false` and syncs nothing if the file has its
    /// final name.
    ///
    /// # Errors
    /// Same as [`PartialFile::sync`].
    pub(super) fn sync_unless_named(
        &self,
        sync: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<bool> {
        let mut failure = self.sync_failure();
        if self.has_name() {
            return Ok(false);
        }
        self.sync_locked(&mut failure, sync).map(|()| true)
    }

    fn sync_locked(
        &self,
        failure: &mut Option<i32>,
        sync: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(errno) = *failure {
            return Err(io::Error::from_raw_os_error(errno));
        }
        sync(self.fd()).inspect_err(|error| {
            *failure = Some(error.raw_os_error().unwrap_or(EIO));
            // The kernel may keep bytes that the device lacks in clean pages. Without them a later
            // run compares what the device has. Ignore an error, because the file fails anyway.
            let _ = cache::advise_all(&self.file, Advice::DontNeed);
        })
    }

    /// Returns true while another thread syncs the file.
    pub(super) fn is_syncing(&self) -> bool {
        self.sync_failure.is_locked()
    }

    /// Returns true if a later run can resume from the file: it has its temporary name, and its
    /// data can be trusted. If a sync failed, only objects in the log can.
    pub(super) fn may_be_kept(&self) -> bool {
        !self.has_name() && (self.logged.get().is_some() || self.sync_failure().is_none())
    }

    fn sync_failure(&self) -> MutexGuard<'_, Option<i32>> {
        self.sync_failure.lock()
    }

    /// Returns the open file, to set its metadata.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Extends the file to at least `len` bytes. `len` must not exceed the final length, because
    /// nothing is written beyond that.
    ///
    /// # Errors
    /// Returns the errors of ftruncate(2).
    pub(super) fn grow_to(&self, len: u64) -> io::Result<()> {
        if stat::stat_fd(&self.file)?.size < len { sparse::set_len(&self.file, len) } else { Ok(()) }
    }

    /// Sets the final length of the file: a hole at its end does not extend it. Returns the
    /// metadata from before.
    ///
    /// # Errors
    /// Returns the errors of ftruncate(2).
    pub(super) fn set_len(&self, len: u64) -> io::Result<Stat> {
        let now = stat::stat_fd(&self.file)?;
        if now.size != len {
            sparse::set_len(&self.file, len)?;
        }
        Ok(now)
    }

    /// Renames the file to its final name, after any sync of it. Replaces an existing file with
    /// that name.
    ///
    /// # Errors
    /// Returns the error of a failed sync: the file then keeps its temporary name. Otherwise same
    /// as [`NameFolding::rename`]; the temporary name is then removed.
    pub(super) fn rename_to_final(&self) -> Result<(), Reason> {
        {
            let failure = self.sync_failure();
            if let Some(errno) = *failure {
                return Err(reason(SYNC_FAILED, &io::Error::from_raw_os_error(errno)));
            }
            self.is_named.store(true, Ordering::Relaxed);
        }
        let Some(temporary) = &self.temporary else { return Ok(()) };
        let (from, to) = (temporary.as_c_str(), self.name.as_c_str());
        let rename_checked = self.name_folding.rename(&self.place, from, to);
        if rename_checked.is_err() {
            self.abandon();
        }
        rename_checked.map_err(|error| reason("cannot rename to the final name", &error))
    }

    /// Returns the name of the file until it is complete; `None` if it is written in place.
    pub(super) fn temporary_name(&self) -> Option<&CStr> {
        self.temporary.as_deref()
    }

    /// Returns the directory that contains the file.
    pub(super) fn place(&self) -> &Arc<OwnedFd> {
        &self.place
    }

    /// Syncs the directory of the file, which makes all names in it durable.
    ///
    /// # Errors
    /// Returns the errors of fsync(2). `EINVAL` and unsupported operations are no error: on some
    /// network file systems directories cannot be synced, and the server makes names durable before
    /// it replies.
    pub(super) fn sync_name(&self) -> io::Result<()> {
        sync_names(&self.place).or_else(|error| match error.kind() {
            // The directory can be written but not read.
            io::ErrorKind::PermissionDenied => cache::sync_filesystem(&self.file),
            _ => Err(error),
        })
    }

    /// Removes the received data. A file that is written in place stays.
    pub(super) fn abandon(&self) {
        if let Some(temporary) = &self.temporary {
            // Ignore an error: the caller reports the failure that led here.
            let _ = unlink_at(&self.place, temporary.as_c_str());
        }
    }
}

/// Opens `name` in `place` for overwriting, or creates it. Returns `None` if an entry of another
/// kind has taken the name meanwhile.
fn create_in_place(place: &OwnedFd, name: &CStr, name_folding: &NameFolding) -> io::Result<Option<OwnedFd>> {
    match create_new_at(place, name, TEMPORARY_MODE) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            name_folding.check_no_clash(place, name)?;
            open_regular_at(place, name)
        }
        Ok(made) => {
            check_trailing_dots(place, name).inspect_err(|_| {
                // Ignore an error: the caller reports that the name is not kept.
                let _ = unlink_at(place, name);
            })?;
            Ok(Some(made))
        }
        Err(error) => Err(error),
    }
}

/// A directory and a name in it.
pub(super) type NameAt = (Arc<OwnedFd>, CString);

/// Unique part of a temporary name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    /// Number of the job if it is resumable; otherwise a random number of the session.
    pub(super) session: u64,
    /// Number of the file within the job or session.
    pub(super) number: u64,
}

impl Tag {
    /// Returns the temporary name. It is short, because the file's own name can already have the
    /// maximum length.
    pub(super) fn name(&self) -> CString {
        CString::new(format!(".haul-{:016x}-{:x}", self.session, self.number)).unwrap_or_default()
    }
}

/// Opens the parent directory of `path` and returns it with the last component.
///
/// # Errors
/// Same as [`SinkDirs::open`].
pub(super) fn name_at(dirs: &SinkDirs, path: &[u8], missing: super::dirs::Missing) -> io::Result<NameAt> {
    let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    Ok((dirs.open(dir, missing)?, CString::new(name)?))
}

/// Returns the metadata of the entry at a path, or `None` if there is none.
///
/// # Errors
/// Returns the errors of fstatat(2) and of [`SinkDirs::open`], except `NotFound`.
pub(super) fn stat_existing(dirs: &SinkDirs, path: &haul_model::RelPath) -> io::Result<Option<Stat>> {
    let found = name_at(dirs, path.as_bytes(), super::dirs::Missing::Fail)
        .and_then(|(place, name)| stat::stat_at(&place, name.as_c_str(), Follow::No));
    match found {
        Ok(standing) => Ok(Some(standing)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_lab::faults::FaultFs;
    use haul_lab::needs::{Need, met_or_skip};
    use haul_sys::CWD;
    use haul_sys::dir::open_dir_at;
    use std::sync::Barrier;

    /// Removing a file whose dots were left out once also removed the file of that shorter name,
    /// into which another worker was writing.
    #[test]
    fn file_with_an_altered_name_does_not_remove_another() {
        if !met_or_skip(&[Need::Fuse]) {
            return;
        }
        let [store, view] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let rules = "* name .. trim".parse().expect("a rule");
        let faults = FaultFs::mount(store.path(), view.path(), rules).expect("mounted");
        let place = Arc::new(open_dir_at(CWD, view.path(), Follow::No).expect("opens"));
        let name_folding = Arc::default();
        for round in 0..300 {
            let begin = Barrier::new(2);
            let made = |name: String| {
                let name_at = (Arc::clone(&place), CString::new(name).expect("no zeros"));
                begin.wait();
                PartialFile::in_place(name_at, 0, 0, &name_folding)
            };
            std::thread::scope(|scope| {
                let dotted = scope.spawn(|| made(format!("{round}.")).is_err());
                made(round.to_string()).expect("made").expect("a regular file");
                assert!(dotted.join().expect("no panic"), "its name would not be kept");
            });
            assert!(store.path().join(round.to_string()).exists());
        }
        drop(place);
        faults.close();
    }
}
