//! In-place repair of a file in a real file system, with its journal.

use super::{JournalFile, Privileges, RepairIo};
use crate::repair::LeftReason;
use crate::repair::places::{NameAt, is_unchanged};
use crate::repair::rebuild::prove;
use crate::repair::repair_target::RepairTarget;
use haul_digest::DigestKey;
use haul_log::journal::{Head, Shape};
use haul_log::waybill::Moment;
use haul_model::ByteRange;
use haul_storage::{Draft, Durability, Writers};
use haul_sys::metadata::{self, Place, Times};
use haul_sys::open::{RenameMode, open_entry_at, rename_at, reopen_for_update, unlink_at};
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{FileKind, Follow, Stat, Timespec, cache, process, sparse, transfer};
use std::ffi::CStr;
use std::fs::{File, TryLockError};
use std::io::{self, BufReader, BufWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;

/// Extended attribute of a program that every write removes.
const CAPABILITY: &CStr = c"security.capability";

/// Bits that a write by a user other than root clears.
const SET_ID: u32 = 0o6000;

/// Maximum number of journals of one name that are set aside.
const SET_ASIDE_MAX: u32 = 100;

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
    /// `None` if this user has no key yet.
    key: Option<DigestKey>,
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
        key: Option<DigestKey>,
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
        Ok(Disk { name_at, file, facts, journal, draft, repair_target, key, stop })
    }

    /// Returns the journal's head for this file, if the file is unchanged since `then`.
    pub(in crate::repair) fn head(&self, then: &Stat) -> Result<Head, LeftReason> {
        let now = &self.facts;
        if !is_unchanged(now, then) {
            return Err(LeftReason::ChangedMeanwhile);
        }
        let capability = self.capability();
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

    fn capability(&self) -> io::Result<Option<Vec<u8>>> {
        metadata::get_xattr(Place::file(&self.file), CAPABILITY)
    }

    fn remove(&self, name: &str) -> io::Result<bool> {
        match unlink_at(&self.name_at.place, name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl<'a> RepairIo for Disk<'a> {
    type Draft = BufWriter<Draft<'a>>;

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

    fn set_facts(&self, privileges: &Privileges, shape: &Shape) -> io::Result<()> {
        if stat_fd(&self.file)?.mode != privileges.mode {
            metadata::set_mode_fd(&self.file, privileges.mode)?;
        }
        let capability = &privileges.capability;
        if !capability.is_empty() && self.capability()?.as_ref() != Some(capability) {
            metadata::set_xattr(Place::file(&self.file), CAPABILITY, capability)?;
        }
        let time = |Moment { sec, nsec }| Some(Timespec { sec, nsec });
        metadata::set_times_fd(&self.file, Times { atime: time(shape.atime), mtime: time(shape.mtime) })
    }

    fn privileges_after(&self, head: &Head) -> io::Result<Privileges> {
        let both = head.mode & self.repair_target.entry.mode & SET_ID;
        let has_lost_capability = !head.capability.is_empty() && self.capability()?.is_none();
        let mode = stat_fd(&self.file)?.mode | both;
        Ok(Privileges { mode, capability: Vec::new(), has_lost_capability })
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

    fn draft(&self) -> io::Result<BufWriter<Draft<'a>>> {
        let draft = Draft::create(self.name_at.place.as_fd(), &self.journal, Writers::One, 0o600)?;
        Ok(BufWriter::with_capacity(BUFFER_BYTES, draft))
    }

    fn seal(&self, draft: BufWriter<Draft<'a>>) -> io::Result<()> {
        let draft = draft.into_inner().map_err(io::IntoInnerError::into_error)?;
        draft.replace(&self.journal, Durability::DataAndName)
    }

    fn key(&self) -> Option<&DigestKey> {
        self.key.as_ref()
    }

    fn journal(&self) -> io::Result<JournalFile<'_>> {
        let (place, name) = (&self.name_at.place, self.journal.as_str());
        let found = match stat_at(place, name, Follow::No) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(JournalFile::Missing),
            Err(error) => return Err(error),
        };
        // Bytes that other users could write here must not get into a file that those users cannot
        // write.
        let is_own = |facts: &Stat| {
            let is_private = facts.uid == process::effective_user() && facts.mode & 0o022 == 0;
            facts.kind == FileKind::Regular && is_private
        };
        if !is_own(&found) {
            return Ok(JournalFile::Foreign);
        }
        let fd = open_entry_at(place, name)?;
        let facts = stat_fd(&fd)?;
        if !is_own(&facts) {
            return Ok(JournalFile::Foreign);
        }
        cache::drop_range(&fd, ByteRange::between(0, facts.size))?;
        Ok(JournalFile::Own(Box::new(BufReader::with_capacity(BUFFER_BYTES, File::from(fd)))))
    }

    fn set_aside(&self) -> io::Result<String> {
        let place = &self.name_at.place;
        for number in 0..SET_ASIDE_MAX {
            let name = match number {
                0 => format!("{}.untrusted", self.journal),
                _ => format!("{}.untrusted.{number}", self.journal),
            };
            let rename = |mode| rename_at(place, self.journal.as_str(), place, name.as_str(), mode);
            let renamed = match rename(RenameMode::NoReplace) {
                // The file system does not support this flag.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    match stat_at(place, name.as_str(), Follow::No) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => rename(RenameMode::Replace),
                        _ => continue,
                    }
                }
                renamed => renamed,
            };
            match renamed {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => return self.name_at.sync_names().map(|()| name),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn remove_journal(&self) -> io::Result<()> {
        let [journal, draft] = [&self.journal, &self.draft].map(|name| self.remove(name));
        if journal? | draft? { self.name_at.sync_names() } else { Ok(()) }
    }
}
