//! A regular file being received: it has a temporary name next to its target until every byte is
//! present and verified.

use super::places::Places;
use super::spelling::{Spelling, has_its_dots};
use haul_log::objects::FileKey;
use haul_model::ByteRange;
use haul_sys::dir::open_dir_at;
use haul_sys::metadata::{set_mode_fd, set_owner_fd};
use haul_sys::open::{create_new_at, open_existing_at, unlink_at};
use haul_sys::sparse::{self, Support};
use haul_sys::{FileKind, Follow, Stat, cache, filesystem, process, stat, transfer};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Mode of an incomplete file: no other user may read it.
const MODE_UNTIL_SETTLED: u32 = 0o600;

/// Minimum size, in bytes, of a file whose space is reserved before it is written. For a smaller
/// file the calls cost more than they save.
const RESERVE_FROM: u64 = 1 << 20;

/// `errno` of a full file system, the same on every architecture of Linux.
const ENOSPC: i32 = 28;

/// An open file that any number of workers fill.
#[derive(Debug)]
pub(super) struct Arriving {
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
    spelling: Arc<Spelling>,
}

impl Arriving {
    /// Creates a file under the temporary name `tag`, which will become `name` in `place`. Reserves
    /// `room` bytes for it.
    ///
    /// # Errors
    /// Returns the error of the failed system call. For a larger file, returns `IsADirectory`
    /// before any data is transferred if `name` is a directory. For a smaller one, the rename fails
    /// instead.
    pub(super) fn beside(
        (place, name): Spot,
        tag: &Tag,
        room: u64,
        spelling: &Arc<Spelling>,
    ) -> io::Result<Arriving> {
        if room >= RESERVE_FROM
            && stat::stat_at(&place, name.as_c_str(), Follow::No)
                .is_ok_and(|now| now.kind == FileKind::Directory)
        {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let temporary = tag.name();
        let file = match create_new_at(&place, temporary.as_c_str(), MODE_UNTIL_SETTLED) {
            // A killed session with the same tag left this name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                unlink_at(&place, temporary.as_c_str())?;
                create_new_at(&place, temporary.as_c_str(), MODE_UNTIL_SETTLED)?
            }
            other => other?,
        };
        let arriving =
            Arriving { is_new: true, ..Arriving::new(file, (place, name), Some(temporary), spelling) };
        match arriving.reserve(room) {
            Ok(()) => Ok(arriving),
            Err(error) => {
                arriving.abandon();
                Err(error)
            }
        }
    }

    fn new(
        file: OwnedFd,
        (place, name): Spot,
        temporary: Option<CString>,
        spelling: &Arc<Spelling>,
    ) -> Arriving {
        let (is_named, logged) = (AtomicBool::new(false), OnceLock::new());
        let spelling = Arc::clone(spelling);
        Arriving { file, place, name, temporary, is_new: false, is_named, logged, spelling }
    }

    /// Opens the file that an earlier run left under the temporary name `tag`. Truncates it if it
    /// is longer than `len` bytes, the final length. Returns it with its metadata as found, or
    /// `None` if there is no usable file. An unusable one is removed.
    ///
    /// # Errors
    /// Returns the error of the failed system call.
    pub(super) fn again(
        (place, name): Spot,
        tag: &Tag,
        (len, room): (u64, u64),
        spelling: &Arc<Spelling>,
    ) -> io::Result<Option<(Arriving, Stat)>> {
        let temporary = tag.name();
        let file = match open_existing_at(&place, temporary.as_c_str(), false, Follow::No) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let found = stat::stat_fd(&file)?;
        if found.kind != FileKind::Regular || found.nlink != 1 {
            unlink_at(&place, temporary.as_c_str())?;
            return Ok(None);
        }
        if found.size > len {
            sparse::set_len(&file, len)?;
        }
        let arriving = Arriving::new(file, (place, name), Some(temporary), spelling);
        arriving.reserve(room)?;
        Ok(Some((arriving, found)))
    }

    /// Returns true if only this user can have written to a file with this metadata: this user owns
    /// it, and its mode admits no other user.
    pub(super) fn is_ours_alone(found: &Stat) -> bool {
        Arriving::is_ours(found) && found.mode & 0o777 == MODE_UNTIL_SETTLED
    }

    /// Returns true if this user owns a file with this metadata: no other user can have created it.
    pub(super) fn is_ours(found: &Stat) -> bool {
        found.uid == process::effective_user()
    }

    /// Takes back a file that had its owner and permissions already when its run was killed, or
    /// when a power failure lost its rename.
    ///
    /// # Errors
    /// Returns the errors of fchown(2) and fchmod(2).
    pub(super) fn take_back(&self) -> io::Result<()> {
        set_owner_fd(self.fd(), Some(process::effective_user()), Some(process::effective_group()))?;
        set_mode_fd(self.fd(), MODE_UNTIL_SETTLED)
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
    /// # Errors
    /// Returns the error of the failed system call.
    pub(super) fn in_place(
        (place, name): Spot,
        len: u64,
        room: u64,
        spelling: &Arc<Spelling>,
    ) -> io::Result<Option<Arriving>> {
        let may_be_opened = |found: &Stat| found.kind == FileKind::Regular && found.nlink == 1;
        if stat::stat_at(&place, name.as_c_str(), Follow::No).is_ok_and(|found| !may_be_opened(&found)) {
            return Ok(None);
        }
        let file = spelling.made(&name, || made_in_place(&place, &name, spelling))?;
        let now = stat::stat_fd(&file)?;
        if !may_be_opened(&now) {
            return Ok(None);
        }
        if now.size > len {
            sparse::set_len(&file, len)?;
        }
        let arriving = Arriving::new(file, (place, name), None, spelling);
        arriving.reserve(room)?;
        Ok(Some(arriving))
    }

    /// Detects a full disk before the data is transferred. Compares `room` with the free space, and
    /// reserves the space if the file system supports that. Does not change the length.
    ///
    /// # Errors
    /// Returns `ENOSPC` or the errors of fallocate(2). The file is then unchanged.
    fn reserve(&self, room: u64) -> io::Result<()> {
        if room < RESERVE_FROM {
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
    /// Returns the errors of fallocate(2) and pwrite(2).
    pub(super) fn clear(&self, range: ByteRange) -> io::Result<()> {
        if sparse::punch_hole(&self.file, range)? == Support::Done {
            return Ok(());
        }
        let zeros = vec![0_u8; 64 << 10];
        let mut at = range.start.0;
        while at < range.end.0 {
            let len = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(zeros.len());
            self.write(at, &zeros[..len])?;
            at += len as u64;
        }
        Ok(())
    }

    /// Returns the open file, to set its metadata and to sync it.
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

    /// Renames the file to its final name. Replaces an existing file with that name.
    ///
    /// # Errors
    /// Same as [`Spelling::rename`]. The temporary name is then removed.
    pub(super) fn take_name(&self) -> io::Result<()> {
        self.is_named.store(true, Ordering::Relaxed);
        let Some(temporary) = &self.temporary else { return Ok(()) };
        let (from, to) = (temporary.as_c_str(), self.name.as_c_str());
        let renamed = self.spelling.rename(&self.place, from, to);
        if renamed.is_err() {
            self.abandon();
        }
        renamed
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
        let synced = match open_dir_at(&self.place, c".", Follow::No) {
            Ok(place) => cache::sync_all(place),
            // The directory can be written but not read.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                cache::sync_filesystem(&self.file)
            }
            Err(error) => Err(error),
        };
        synced.or_else(|error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => Ok(()),
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

/// Opens `name` in `place` for overwriting, or creates it.
fn made_in_place(place: &OwnedFd, name: &CStr, spelling: &Spelling) -> io::Result<OwnedFd> {
    match create_new_at(place, name, MODE_UNTIL_SETTLED) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            spelling.may_use(place, name)?;
            open_existing_at(place, name, false, Follow::No)
        }
        Ok(made) => {
            has_its_dots(place, name).inspect_err(|_| {
                // Ignore an error: the caller reports that the name is not kept.
                let _ = unlink_at(place, name);
            })?;
            Ok(made)
        }
        Err(error) => Err(error),
    }
}

/// A directory and a name in it.
pub(super) type Spot = (Arc<OwnedFd>, CString);

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
/// Same as [`Places::open`].
pub(super) fn spot(places: &Places, path: &[u8], missing: super::places::Missing) -> io::Result<Spot> {
    let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    Ok((places.open(dir, missing)?, CString::new(name)?))
}

/// Returns the metadata of the entry at a path, or `None` if there is none.
///
/// # Errors
/// Returns the errors of fstatat(2) and of [`Places::open`], except `NotFound`.
pub(super) fn stands(places: &Places, path: &haul_model::RelPath) -> io::Result<Option<Stat>> {
    let found = spot(places, path.as_bytes(), super::places::Missing::Fails)
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
    use std::sync::Barrier;

    /// Removing a file whose dots were left out once also removed the file of that shorter name,
    /// into which another worker was writing.
    #[test]
    fn a_file_whose_name_is_not_kept_takes_no_other_with_it() {
        if !met_or_skip(&[Need::Fuse]) {
            return;
        }
        let [store, view] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let rules = "* name .. trim".parse().expect("a rule");
        let faults = FaultFs::mount(store.path(), view.path(), rules).expect("mounted");
        let place = Arc::new(open_dir_at(CWD, view.path(), Follow::No).expect("opens"));
        let spelling = Arc::default();
        for round in 0..300 {
            let begin = Barrier::new(2);
            let made = |name: String| {
                let spot = (Arc::clone(&place), CString::new(name).expect("no zeros"));
                begin.wait();
                Arriving::in_place(spot, 0, 0, &spelling)
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
