//! A regular file on its way in: under a temporary name beside its target until every byte is there and right.

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

/// Mode of a file before it is whole: nobody else may read half of it.
const MODE_UNTIL_SETTLED: u32 = 0o600;

/// Files of at least this length get their room before they are written, in bytes. Below, the calls cost more than they save.
const RESERVE_FROM: u64 = 1 << 20;

/// `errno` of a full file system, the same on every architecture of Linux.
const ENOSPC: i32 = 28;

/// An open file that is being filled, by any number of workers.
#[derive(Debug)]
pub(super) struct Arriving {
    file: OwnedFd,
    place: Arc<OwnedFd>,
    name: CString,
    /// `None`: it is written in place.
    temporary: Option<CString>,
    /// Whether this run made it, so that it has nothing but what a new file gets.
    pub(super) is_new: bool,
    /// Whether it stands under its own name by now.
    is_named: AtomicBool,
    /// What the object log knows it by, once it does.
    pub(super) logged: OnceLock<FileKey>,
    spelling: Arc<Spelling>,
}

impl Arriving {
    /// Makes a file under the temporary name `tag`, to become `name` in `place`, with `room` bytes kept for it.
    ///
    /// # Errors
    /// What the kernel says; for a larger file, a name that is a directory is refused before its bytes travel. Smaller ones
    /// hear of it when they take the name.
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
            // Left by a session of the same name that was killed.
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

    /// Opens what an earlier run left under the temporary name `tag`, of a file that will be `len` bytes long, with its facts as they were found;
    /// `None` where there is nothing.
    ///
    /// # Errors
    /// What the kernel says.
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

    /// Whether a file with these facts could be written by its owner alone, who is this user: nobody else can have put bytes there.
    pub(super) fn is_ours_alone(found: &Stat) -> bool {
        Arriving::is_ours(found) && found.mode & 0o777 == MODE_UNTIL_SETTLED
    }

    /// Whether a file with these facts is this user's: nobody else can have made it.
    pub(super) fn is_ours(found: &Stat) -> bool {
        found.uid == process::effective_user()
    }

    /// Takes a file back that had got its owner and its permissions already when the run that made it was killed, or power was lost over its name.
    ///
    /// # Errors
    /// What fchown(2) or fchmod(2) reports.
    pub(super) fn take_back(&self) -> io::Result<()> {
        set_owner_fd(self.fd(), Some(process::effective_user()), Some(process::effective_group()))?;
        set_mode_fd(self.fd(), MODE_UNTIL_SETTLED)
    }

    /// Whether it stands under its own name.
    pub(super) fn has_name(&self) -> bool {
        self.is_named.load(Ordering::Relaxed)
    }

    /// Opens `name` in `place`, which will be `len` bytes long, to be written over, or makes it, with `room` bytes kept for it.
    ///
    /// Returns `None` if the existing entry must not be written into: a file with several names, because each name may be
    /// another file at the source; or no regular file. The new file then replaces the name as without `--inplace`.
    ///
    /// # Errors
    /// What the kernel says.
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

    /// Finds a full disk before the bytes travel: room is kept where the file system can, and compared with what is free
    /// elsewhere. The length stays what was written.
    ///
    /// # Errors
    /// `ENOSPC` and what fallocate(2) reports: the file is as it was.
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
                // A part may have been kept behind the end.
                let _ = stat::stat_fd(&self.file).and_then(|now| sparse::set_len(&self.file, now.size));
                Err(error)
            }
        }
    }

    /// Writes one block.
    ///
    /// # Errors
    /// What pwrite(2) reports.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        transfer::write_all_at(&self.file, offset, bytes)
    }

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// What fallocate(2) or pwrite(2) reports.
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

    /// The open file, to set its metadata and to sync it.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Makes the file at least so long, which must not be more than it will have: nobody writes behind that.
    ///
    /// # Errors
    /// What ftruncate(2) reports.
    pub(super) fn grow_to(&self, len: u64) -> io::Result<()> {
        if stat::stat_fd(&self.file)?.size < len { sparse::set_len(&self.file, len) } else { Ok(()) }
    }

    /// Gives the file exactly its length: holes at its end have none of their own. Gives its facts but for that.
    ///
    /// # Errors
    /// What ftruncate(2) reports.
    pub(super) fn set_len(&self, len: u64) -> io::Result<Stat> {
        let now = stat::stat_fd(&self.file)?;
        if now.size != len {
            sparse::set_len(&self.file, len)?;
        }
        Ok(now)
    }

    /// Gives the file its name, in place of whatever file has it.
    ///
    /// # Errors
    /// As [`Spelling::rename`]; the temporary name is removed then.
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

    /// The name of the file until it is complete; `None` if it is written in place.
    pub(super) fn temporary_name(&self) -> Option<&CStr> {
        self.temporary.as_deref()
    }

    /// The directory that it stands in.
    pub(super) fn place(&self) -> &Arc<OwnedFd> {
        &self.place
    }

    /// Makes its name durable, and those of all that stands beside it.
    ///
    /// # Errors
    /// What fsync(2) reports. Some file systems on networks know no such thing for directories: their servers have names when they say so.
    pub(super) fn sync_name(&self) -> io::Result<()> {
        let synced = match open_dir_at(&self.place, c".", Follow::No) {
            Ok(place) => cache::sync_all(place),
            // A directory that may be written and not read.
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

    /// Removes what arrived so far. In place, what is there stays.
    pub(super) fn abandon(&self) {
        if let Some(temporary) = &self.temporary {
            // Best effort: the failure that led here is the one that is told.
            let _ = unlink_at(&self.place, temporary.as_c_str());
        }
    }
}

/// Opens `name` in `place` to be written over, or makes it.
fn made_in_place(place: &OwnedFd, name: &CStr, spelling: &Spelling) -> io::Result<OwnedFd> {
    match create_new_at(place, name, MODE_UNTIL_SETTLED) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            spelling.may_use(place, name)?;
            open_existing_at(place, name, false, Follow::No)
        }
        Ok(made) => {
            has_its_dots(place, name).inspect_err(|_| {
                // Best effort: that the name is not kept is what is told.
                let _ = unlink_at(place, name);
            })?;
            Ok(made)
        }
        Err(error) => Err(error),
    }
}

/// A directory, and a name in it.
pub(super) type Spot = (Arc<OwnedFd>, CString);

/// What tells the temporary names of one session from all others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    /// Of the job, where it can be gone on with; else of the session, at random.
    pub(super) session: u64,
    /// Of the file, within it.
    pub(super) number: u64,
}

impl Tag {
    /// Short whatever the file's own name is: those may already be as long as names can be.
    pub(super) fn name(&self) -> CString {
        CString::new(format!(".haul-{:016x}-{:x}", self.session, self.number)).unwrap_or_default()
    }
}

/// Opens the directory of `path` and splits off its last part.
///
/// # Errors
/// As [`Places::open`].
pub(super) fn spot(places: &Places, path: &[u8], missing: super::places::Missing) -> io::Result<Spot> {
    let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    Ok((places.open(dir, missing)?, CString::new(name)?))
}

/// Returns the facts of the entry at a path, or `None` if there is none.
///
/// # Errors
/// Errors of fstatat(2) and of [`Places::open`], but for `NotFound`.
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

    /// A file whose dots were left out was taken away again, and with it went the one of that name, into which another worker was writing.
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
