//! In-place repair of a file of a storage, with its journal.

use super::{JournalFile, Privileges};
use crate::repair::LeftReason;
use crate::repair::places::{NameAt, is_unchanged};
use crate::repair::rebuild::prove;
use crate::repair::repair_target::RepairTarget;
use haul_digest::DigestKey;
use haul_log::journal::{Head, Shape};
use haul_log::waybill::Moment;
use haul_model::ByteRange;
use haul_storage::{
    Create, DropRetries, FileKind, Follow, Missing, Name, Remove, Replace, SinkFile, SourceFile, Stat,
    SyncWhat, Times, Timespec,
};
use std::ffi::CStr;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::sync::Arc;
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
pub(in crate::repair) struct InPlaceFile<'a> {
    name_at: &'a NameAt,
    /// Has the lock until the repair ends.
    _lock: Arc<dyn SinkFile>,
    /// The file, opened again after a failed sync.
    file: Arc<dyn SinkFile>,
    reader: Arc<dyn SourceFile>,
    facts: Stat,
    journal: Name,
    draft: Name,
    repair_target: &'a RepairTarget,
    /// `None` if this user has no key yet.
    key: Option<DigestKey>,
    stop: &'a AtomicBool,
}

/// Returns the names of a file's journal and of its draft, in the file's directory.
///
/// # Errors
/// Returns none: the names are short.
pub(in crate::repair) fn journal_names(name: &Name) -> io::Result<[Name; 2]> {
    let digest = haul_digest::digest(haul_digest::Algorithm::Xxh64, name.as_bytes());
    let name = |end| Name::new(format!(".haul-journal-{digest}{end}")).ok_or(io::ErrorKind::InvalidFilename);
    Ok([name("")?, name(".new")?])
}

/// Returns true if an interrupted in-place repair left files next to this file.
pub(in crate::repair) fn was_cut_off(name_at: &NameAt) -> bool {
    let stands = |name: &Name| name_at.dir.stat_at(name, Follow::No).is_ok();
    journal_names(&name_at.name).is_ok_and(|names| names.iter().any(stands))
}

fn moment(time: Timespec) -> Moment {
    Moment { sec: time.sec, nsec: time.nsec }
}

impl<'a> InPlaceFile<'a> {
    /// Opens the file for writing and locks it.
    pub(in crate::repair) fn hold(
        name_at: &'a NameAt,
        open: &dyn SourceFile,
        repair_target: &'a RepairTarget,
        key: Option<DigestKey>,
        stop: &'a AtomicBool,
    ) -> Result<InPlaceFile<'a>, LeftReason> {
        let failed = || LeftReason::io("open the file for writing");
        let file = opened(name_at).map_err(failed())?;
        let is_locked = file.lock().map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => LeftReason::Busy,
            _ => LeftReason::io("lock the file")(error),
        })?;
        if !is_locked {
            return Err(LeftReason::io("lock the file")(io::ErrorKind::Unsupported.into()));
        }
        let facts = file.stat().map_err(failed())?;
        if !facts.is_same_file(open.opened()) {
            return Err(LeftReason::ChangedMeanwhile);
        }
        let reader = file.reader().map_err(failed())?;
        let [journal, draft] = journal_names(&name_at.name).map_err(failed())?;
        Ok(InPlaceFile {
            name_at,
            _lock: Arc::clone(&file),
            file,
            reader,
            facts,
            journal,
            draft,
            repair_target,
            key,
            stop,
        })
    }

    /// Returns the journal's head for this file, if the file is unchanged since it was opened as
    /// `then`.
    pub(in crate::repair) fn head(&self, then: &dyn SourceFile) -> Result<Head, LeftReason> {
        let now = &self.facts;
        if !is_unchanged(now, then) {
            return Err(LeftReason::ChangedMeanwhile);
        }
        let capability = self.capability();
        let before = Shape { size: now.size, mtime: moment(now.mtime), atime: moment(then.opened().atime) };
        Ok(Head {
            inode: now.ino,
            birth: now.btime.map(moment),
            name: self.name_at.name.as_bytes().to_vec(),
            mode: now.mode,
            capability: capability
                .map_err(LeftReason::io("read the capabilities of the file"))?
                .unwrap_or_default(),
            before,
            after: Shape { size: self.repair_target.size(), mtime: self.repair_target.entry.mtime, ..before },
        })
    }

    fn capability(&self) -> io::Result<Option<Vec<u8>>> {
        self.file.attribute(CAPABILITY)
    }

    /// Returns the metadata of an entry in the directory of the file, if there is one.
    fn find(&self, name: &Name) -> io::Result<Option<Stat>> {
        match self.name_at.dir.stat_at(name, Follow::No) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    fn remove(&self, name: &Name) -> io::Result<bool> {
        match self.name_at.dir.remove(name, Remove::File) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Opens the regular file of a name for writing.
fn opened(name_at: &NameAt) -> io::Result<Arc<dyn SinkFile>> {
    name_at.dir.sink(&name_at.name, Create::InPlace { missing: Missing::Fail, follow: Follow::No })
}

/// Journal that is written under the name of its draft.
pub(in crate::repair) struct JournalDraft {
    file: Arc<dyn SinkFile>,
    len: u64,
}

impl Write for JournalDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(self.len, bytes)?;
        self.len += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Journal that is read from its start.
struct JournalReader {
    file: Arc<dyn SourceFile>,
    at: u64,
}

impl Read for JournalReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(self.at, into)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl InPlaceFile<'_> {
    /// Returns true if a journal belongs to this file.
    pub(super) fn is_for(&self, head: &Head) -> bool {
        let birth = self.facts.btime.map(moment);
        let same_birth = head.birth.is_none() || birth.is_none() || head.birth == birth;
        head.inode == self.facts.ino && same_birth && head.name == self.name_at.name.as_bytes()
    }

    /// Opens the file again if a sync of it failed: an open file fails every sync after that. The
    /// old bytes can then be restored, and are read back.
    pub(super) fn reopen_failed(&mut self) -> io::Result<()> {
        if self.file.failure().is_none() {
            return Ok(());
        }
        let file = opened(self.name_at)?;
        if !file.stat()?.is_same_file(&self.facts) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.reader = file.reader()?;
        self.file = file;
        Ok(())
    }

    /// Returns the size of the file, in bytes.
    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(self.file.stat()?.size)
    }

    /// Reads from the file; returns fewer bytes only at its end.
    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read_at(at, buffer)
    }

    /// Reserves space for a range, so that no write of the range fails for lack of space.
    pub(super) fn reserve(&self, range: ByteRange) -> io::Result<()> {
        // If the storage does not support this, the writes fail instead, and the written part is
        // undone.
        self.file.reserve_range(range)
    }

    /// Writes to the file.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(at, bytes)
    }

    /// Truncates or extends the file.
    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// Sets the mode and capabilities of the file, which a write may clear, and the times in
    /// `shape`.
    pub(super) fn set_facts(&self, privileges: &Privileges, shape: &Shape) -> io::Result<()> {
        if self.file.stat()?.mode != privileges.mode {
            self.file.set_mode(privileges.mode)?;
        }
        let capability = &privileges.capability;
        if !capability.is_empty() && self.capability()?.as_ref() != Some(capability) {
            self.file.set_attribute(CAPABILITY, capability)?;
        }
        let time = |Moment { sec, nsec }| Some(Timespec { sec, nsec });
        self.file.set_times(Times { atime: time(shape.atime), mtime: time(shape.mtime) })
    }

    /// Returns the privileges of the file after a recovery: those that it has, and the setuid and
    /// setgid bits that both the waybill and the journal have. A journal adds nothing by itself.
    pub(super) fn privileges_after(&self, head: &Head) -> io::Result<Privileges> {
        let both = head.mode & self.repair_target.entry.mode & SET_ID;
        let has_lost_capability = !head.capability.is_empty() && self.capability()?.is_none();
        let mode = self.file.stat()?.mode | both;
        Ok(Privileges { mode, capability: Vec::new(), has_lost_capability })
    }

    /// Syncs the data and metadata of the file.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync(SyncWhat::All)
    }

    /// Drops the file from the page cache, so that the next reads come from the device.
    pub(super) fn forget(&self) -> io::Result<()> {
        self.reader.evict(ByteRange::between(0, self.size()?), DropRetries::None).map(drop)
    }

    /// Reads the file from the device and checks that the whole file matches the waybill.
    pub(super) fn prove(&self) -> Result<(), LeftReason> {
        prove(&*self.file, self.repair_target, self.stop)
    }

    /// Creates a draft of the journal; replaces an earlier draft.
    pub(super) fn draft(&self) -> io::Result<BufWriter<JournalDraft>> {
        let create = || self.name_at.dir.sink(&self.draft, Create::New { mode: 0o600 });
        let file = match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A killed repair left a draft.
                if self.find(&self.draft)?.is_some_and(|found| found.kind != FileKind::Regular) {
                    return Err(error);
                }
                self.remove(&self.draft)?;
                create()?
            }
            created => created?,
        };
        Ok(BufWriter::with_capacity(BUFFER_BYTES, JournalDraft { file, len: 0 }))
    }

    /// Syncs a draft and renames it to the journal, durably.
    pub(super) fn seal(&self, draft: BufWriter<JournalDraft>) -> io::Result<()> {
        let JournalDraft { file, .. } = draft.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync(SyncWhat::Data)?;
        drop(file);
        let dir = &*self.name_at.dir;
        dir.rename(&self.draft, dir, &self.journal, Replace::Yes)?;
        dir.sync()
    }

    /// Returns the key of this user's journals.
    pub(super) fn key(&self) -> Option<&DigestKey> {
        self.key.as_ref()
    }

    /// Opens the journal for reading from the device.
    pub(super) fn journal(&self) -> io::Result<JournalFile> {
        let Some(found) = self.find(&self.journal)? else { return Ok(JournalFile::Missing) };
        // Bytes that other users could write here must not get into a file that those users cannot
        // write.
        let is_own = |facts: &Stat| {
            let is_private = facts.uid == self.file.user() && facts.mode & 0o022 == 0;
            facts.kind == FileKind::Regular && is_private
        };
        if !is_own(&found) {
            return Ok(JournalFile::Foreign);
        }
        let file = match self.name_at.dir.source(&self.journal, Follow::No) {
            // Another process replaced it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(JournalFile::Foreign),
            file => file?,
        };
        if !is_own(file.opened()) {
            return Ok(JournalFile::Foreign);
        }
        file.evict(ByteRange::between(0, file.opened().size), DropRetries::None)?;
        let reader = BufReader::with_capacity(BUFFER_BYTES, JournalReader { file, at: 0 });
        Ok(JournalFile::Own(Box::new(reader)))
    }

    /// Renames a journal that is not trusted, so that no run reads it again. Returns the new name.
    pub(super) fn set_aside(&self) -> io::Result<String> {
        let dir = &*self.name_at.dir;
        for number in 0..SET_ASIDE_MAX {
            let text = match number {
                0 => format!("{}.untrusted", self.journal),
                _ => format!("{}.untrusted.{number}", self.journal),
            };
            let name = Name::new(&*text).ok_or(io::ErrorKind::InvalidFilename)?;
            let rename = |replace| dir.rename(&self.journal, dir, &name, replace);
            let renamed = match rename(Replace::No) {
                // The storage cannot guarantee that.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => match self.find(&name)? {
                    None => rename(Replace::Yes),
                    Some(_) => continue,
                },
                renamed => renamed,
            };
            match renamed {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => return dir.sync().map(|()| text),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes the journal and a draft, durably.
    pub(super) fn remove_journal(&self) -> io::Result<()> {
        let [journal, draft] = [&self.journal, &self.draft].map(|name| self.remove(name));
        if journal? | draft? { self.name_at.dir.sync() } else { Ok(()) }
    }
}
