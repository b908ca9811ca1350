//! In-place repair of a file in a real file system, with its journal.

use super::RepairIo;
use crate::repair::LeftReason;
use crate::repair::places::{NameAt, is_unchanged};
use crate::repair::rebuild::prove;
use crate::repair::repair_target::RepairTarget;
use haul_log::journal::{Head, Shape};
use haul_log::waybill::Moment;
use haul_model::ByteRange;
use haul_sys::metadata::{self, Place, Times};
use haul_sys::open::{RenameMode, create_new_at, open_entry_at, rename_at, reopen_for_update, unlink_at};
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{FileKind, Follow, Stat, Timespec, cache, process, sparse, transfer};
use std::ffi::CStr;
use std::fs::{File, TryLockError};
use std::io::{self, BufReader, BufWriter, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;

/// Extended attribute of a program that every write removes.
const CAPABILITY: &CStr = c"security.capability";

/// Buffer size for journals, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Open file for an in-place repair, with a lock that excludes other repairs.
pub(in crate::repair) struct Disk<'a> {
    name_at: &'a NameAt,
    file: File,
    facts: Stat,
    journal: String,
    draft: String,
    repair_target: &'a RepairTarget,
    stop: &'a AtomicBool,
}

/// Returns the names of a file's journal and of its draft, in the file's directory.
pub(in crate::repair) fn journal_names(name: &CStr) -> [String; 2] {
    let digest = haul_digest::digest(haul_digest::Algorithm::Xxh64, name.to_bytes());
    ["", ".new"].map(|end| format!(".haul-journal-{digest}{end}"))
}

/// Returns true if an interrupted in-place repair left files next to this file.
pub(in crate::repair) fn was_cut_off(name_at: &NameAt) -> bool {
    let stands = |name: &String| stat_at(&name_at.place, name.as_str(), Follow::No).is_ok();
    journal_names(&name_at.name).iter().any(stands)
}

fn moment(time: Timespec) -> Moment {
    Moment { sec: time.sec, nsec: time.nsec }
}

impl<'a> Disk<'a> {
    /// Opens the file for writing and locks it.
    pub(in crate::repair) fn hold(
        name_at: &'a NameAt,
        open: &OwnedFd,
        repair_target: &'a RepairTarget,
        stop: &'a AtomicBool,
    ) -> Result<Disk<'a>, LeftReason> {
        let failed = || LeftReason::io("open the file for writing");
        let file = File::from(reopen_for_update(open).map_err(failed())?);
        file.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => LeftReason::io("lock the file")(error),
            TryLockError::WouldBlock => LeftReason::Busy,
        })?;
        let facts = stat_fd(&file).map_err(failed())?;
        let [journal, draft] = journal_names(&name_at.name);
        Ok(Disk { name_at, file, facts, journal, draft, repair_target, stop })
    }

    /// Returns the journal's head for this file, if the file is unchanged since `then`.
    pub(in crate::repair) fn head(&self, then: &Stat) -> Result<Head, LeftReason> {
        let now = &self.facts;
        if !is_unchanged(now, then) {
            return Err(LeftReason::ChangedMeanwhile);
        }
        let capability = metadata::get_xattr(Place::file(&self.file), CAPABILITY);
        let before = Shape { size: now.size, mtime: moment(now.mtime), atime: moment(then.atime) };
        Ok(Head {
            inode: now.ino,
            birth: now.btime.map(moment),
            name: self.name_at.name.to_bytes().to_vec(),
            mode: now.mode,
            capability: capability
                .map_err(LeftReason::io("read the capabilities of the file"))?
                .unwrap_or_default(),
            before,
            after: Shape { size: self.repair_target.size(), mtime: self.repair_target.entry.mtime, ..before },
        })
    }

    fn remove(&self, name: &str) -> io::Result<bool> {
        match unlink_at(&self.name_at.place, name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl RepairIo for Disk<'_> {
    type Draft = BufWriter<File>;

    fn is_for(&self, head: &Head) -> bool {
        let birth = self.facts.btime.map(moment);
        let same_birth = head.birth.is_none() || birth.is_none() || head.birth == birth;
        head.inode == self.facts.ino && same_birth && head.name == self.name_at.name.to_bytes()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(stat_fd(&self.file)?.size)
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        transfer::read_at(&self.file, at, buffer)
    }

    fn reserve(&self, range: ByteRange) -> io::Result<()> {
        // If the file system does not support this, the writes fail instead, and the written part
        // is undone.
        sparse::allocate(&self.file, range, true).map(|_| ())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        transfer::write_all_at(&self.file, at, bytes)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        sparse::set_len(&self.file, len)
    }

    fn set_facts(&self, head: &Head, shape: &Shape) -> io::Result<()> {
        if stat_fd(&self.file)?.mode != head.mode {
            metadata::set_mode_fd(&self.file, head.mode)?;
        }
        let place = || Place::file(&self.file);
        let capability = &head.capability;
        if !capability.is_empty() && metadata::get_xattr(place(), CAPABILITY)?.as_ref() != Some(capability) {
            metadata::set_xattr(place(), CAPABILITY, capability)?;
        }
        let time = |Moment { sec, nsec }| Some(Timespec { sec, nsec });
        metadata::set_times_fd(&self.file, Times { atime: time(shape.atime), mtime: time(shape.mtime) })
    }

    fn sync(&self) -> io::Result<()> {
        cache::sync_all(&self.file)
    }

    fn forget(&self) -> io::Result<()> {
        cache::drop_range(&self.file, ByteRange::between(0, self.size()?))
    }

    fn prove(&self) -> Result<(), LeftReason> {
        prove(&self.file, self.repair_target, self.stop)
    }

    fn draft(&self) -> io::Result<BufWriter<File>> {
        self.remove(&self.draft)?;
        let file = create_new_at(&self.name_at.place, self.draft.as_str(), 0o600)?;
        Ok(BufWriter::with_capacity(BUFFER_BYTES, File::from(file)))
    }

    fn seal(&self, draft: BufWriter<File>) -> io::Result<()> {
        let file = draft.into_inner().map_err(io::IntoInnerError::into_error)?;
        cache::sync_all(&file)?;
        let place = &self.name_at.place;
        rename_at(place, self.draft.as_str(), place, self.journal.as_str(), RenameMode::Replace)?;
        self.name_at.sync_names()
    }

    fn journal(&self) -> io::Result<Option<Box<dyn Read + '_>>> {
        let fd = match open_entry_at(&self.name_at.place, self.journal.as_str()) {
            Ok(fd) => fd,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let facts = stat_fd(&fd)?;
        // Bytes that other users could write here must not get into a file that those users cannot
        // write.
        if facts.kind != FileKind::Regular
            || facts.uid != process::effective_user()
            || facts.mode & 0o022 != 0
        {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "created by another user"));
        }
        cache::drop_range(&fd, ByteRange::between(0, facts.size))?;
        Ok(Some(Box::new(BufReader::with_capacity(BUFFER_BYTES, File::from(fd)))))
    }

    fn remove_journal(&self) -> io::Result<()> {
        let [journal, draft] = [&self.journal, &self.draft].map(|name| self.remove(name));
        if journal? | draft? { self.name_at.sync_names() } else { Ok(()) }
    }
}
