//! Repair by replacement: the repaired file is created next to the damaged one, verified, and
//! renamed over it. If the work is interrupted at any point, the name refers to the old file or to
//! the complete new one.

use super::LeftReason;
use super::places::{NameAt, is_unchanged};
use super::repair_target::RepairTarget;
use super::survey::{Sources, Survey, holds};
use crate::copied_attributes::is_of_lustre;
use crate::sum::{BLOCK_BYTES, Counters};
use haul_digest::Hasher;
use haul_log::waybill::Moment;
use haul_model::ByteRange;
use haul_sys::buffer::AlignedBuffer;
use haul_sys::metadata::{self, Place, Times};
use haul_sys::open::{
    RenameMode, create_new_at, link_at, open_entry_at, rename_at, reopen_source, unlink_at,
};
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{FileKind, Follow, Stat, Timespec, cache, direct, filesystem, process, sparse, transfer};
use std::ffi::CString;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of attempts to create a file whose name a killed repair left behind.
const ATTEMPTS: usize = 4;

/// File to repair or to create.
pub(super) struct Rebuild<'a> {
    pub(super) repair_target: &'a RepairTarget,
    pub(super) name_at: &'a NameAt,
    /// The damaged file; `None` if it is missing.
    pub(super) old: Option<&'a (OwnedFd, Stat)>,
    pub(super) survey: &'a Survey,
    pub(super) sources: &'a Sources,
    pub(super) counters: &'a Counters,
    pub(super) stop: &'a AtomicBool,
}

/// Temporary file of a repair. Its lock distinguishes a file in use from one that a killed repair
/// left.
struct RepairTemp<'a> {
    name_at: &'a NameAt,
    name: CString,
    file: File,
}

impl Rebuild<'_> {
    /// Runs the repair.
    ///
    /// # Errors
    /// Returns a [`LeftReason`]. The name then still refers to the previous file.
    pub(super) fn run(&self) -> Result<(), LeftReason> {
        let temp =
            RepairTemp::create(self.name_at).map_err(|why| why.or_no_room(self.repair_target.size()))?;
        let done = self.fill(&temp.file).and_then(|()| {
            cache::sync_all(&temp.file).map_err(LeftReason::io("write the repaired file"))?;
            prove(&temp.file, self.repair_target, self.stop)?;
            self.apply_metadata(&temp.file)?;
            cache::sync_all(&temp.file).map_err(LeftReason::io("write the repaired file"))?;
            self.put_in_place(&temp)
        });
        match done {
            Ok(()) => self.name_at.sync(),
            Err(why) => Err(temp.discard(why.or_no_room(self.repair_target.size()))),
        }
    }

    /// Writes all bytes: the intact ones from the old file, the others from replicas.
    fn fill(&self, new: &File) -> Result<(), LeftReason> {
        let failed = || LeftReason::io("write the repaired file");
        let is_cloned = self.old.is_some_and(|(old, _)| transfer::clone_file(old, new).is_ok());
        sparse::set_len(new, self.repair_target.size()).map_err(failed())?;
        let mut buffer = vec![0; BLOCK_BYTES];
        if let Some((old, _)) = self.old.filter(|_| !is_cloned) {
            for range in &self.survey.kept {
                self.copy(old, new, *range, &mut buffer)?;
            }
        }
        for (piece, replica) in &self.survey.mended {
            let source = self.sources.file(*replica).ok_or(LeftReason::ReplicaChanged(piece.range))?;
            let write = |at: u64, bytes: &[u8]| {
                // A piece is as long as an object, up to the whole file.
                self.check_stop().map_err(|_| io::ErrorKind::Interrupted)?;
                self.counters.done_bytes(bytes.len() as u64);
                // A range that was not written reads as zeros already.
                if is_cloned || !sparse::is_zero(bytes) {
                    transfer::write_all_at(new, at, bytes)?;
                }
                Ok(())
            };
            let held = holds(source, *piece, &mut buffer, write);
            self.check_stop()?;
            if !held.map_err(failed())? {
                return Err(LeftReason::ReplicaChanged(piece.range));
            }
        }
        Ok(())
    }

    fn copy(&self, old: &OwnedFd, new: &File, range: ByteRange, buffer: &mut [u8]) -> Result<(), LeftReason> {
        let mut at = range.start.0;
        while at < range.end.0 {
            self.check_stop()?;
            let want = (buffer.len() as u64).min(range.end.0 - at) as usize;
            let got = transfer::read_at(old, at, &mut buffer[..want])
                .map_err(LeftReason::io("read the file again"))?;
            if got < want {
                return Err(LeftReason::ChangedMeanwhile);
            }
            if !sparse::is_zero(&buffer[..got]) {
                transfer::write_all_at(new, at, &buffer[..got])
                    .map_err(LeftReason::io("write the repaired file"))?;
            }
            at += got as u64;
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<(), LeftReason> {
        if self.stop.load(Ordering::Relaxed) { Err(LeftReason::Stopped) } else { Ok(()) }
    }

    /// Sets the owner, attributes, access control list, mode and times: those of the old file, or
    /// the mode and time in the waybill if the file was missing. Takes nothing from a replica.
    fn apply_metadata(&self, new: &File) -> Result<(), LeftReason> {
        let Moment { sec, nsec } = self.repair_target.entry.mtime;
        let mtime = Some(Timespec { sec, nsec });
        let times = match self.old {
            Some((old, facts)) => {
                metadata::set_owner_fd(new, Some(facts.uid), Some(facts.gid))
                    .map_err(LeftReason::io("set the owner of the repaired file"))?;
                let (src, dst) = (Place::file(old), Place::file(new));
                let is_wanted = |name: &std::ffi::CStr| {
                    let name = name.to_bytes();
                    !name.starts_with(b"system.posix_acl_")
                        && !is_of_lustre(name, || filesystem::is_lustre(old))
                };
                let failures = metadata::copy_xattrs(src, dst, is_wanted)
                    .map_err(LeftReason::io("read the extended attributes"))?;
                if let Some(failure) = failures.into_iter().next() {
                    return Err(LeftReason::Attribute(failure.to_string()));
                }
                metadata::copy_acl(src, dst, FileKind::Regular, facts.mode)
                    .map_err(|error| LeftReason::Attribute(error.to_string()))?;
                Times { atime: Some(facts.atime), mtime }
            }
            None => {
                // The waybill has no owner, and a setuid program must not run as the user who
                // repaired it.
                let mode = self.repair_target.entry.mode & 0o1777;
                metadata::set_mode_fd(new, mode).map_err(LeftReason::io("set the mode of the new file"))?;
                Times { atime: None, mtime }
            }
        };
        metadata::set_times_fd(new, times).map_err(LeftReason::io("set the times of the repaired file"))
    }

    /// Renames the file if the name still refers to the file that was examined.
    fn put_in_place(&self, temp: &RepairTemp<'_>) -> Result<(), LeftReason> {
        self.check_stop()?;
        let (place, name) = (&self.name_at.place, self.name_at.name.as_c_str());
        let now = stat_at(place, name, Follow::No);
        let mode = match (self.old, now) {
            (Some((_, then)), Ok(now)) => {
                if !is_unchanged(&now, then) {
                    return Err(LeftReason::ChangedMeanwhile);
                }
                RenameMode::Replace
            }
            (None, Err(error)) if error.kind() == io::ErrorKind::NotFound => RenameMode::NoReplace,
            _ => return Err(LeftReason::ChangedMeanwhile),
        };
        temp.check_name()?;
        let rename = |mode| rename_at(place, temp.name.as_c_str(), place, name, mode);
        let renamed = match rename(mode) {
            // The file system does not support this flag; a moment ago the name did not exist.
            Err(error) if mode == RenameMode::NoReplace && error.kind() == io::ErrorKind::InvalidInput => {
                rename(RenameMode::Replace)
            }
            other => other,
        };
        renamed.map_err(LeftReason::io("rename the repaired file"))
    }
}

impl<'a> RepairTemp<'a> {
    /// Creates a new file; replaces one that a killed repair left.
    fn create(name_at: &'a NameAt) -> Result<RepairTemp<'a>, LeftReason> {
        let failed = || LeftReason::io("create a temporary file");
        let name = temp_name(name_at)?;
        for _ in 0..ATTEMPTS {
            match create_new_at(&name_at.place, name.as_c_str(), 0o600) {
                Ok(fd) => {
                    let file = File::from(fd);
                    file.try_lock().map_err(|error| match error {
                        TryLockError::Error(error) => failed()(error),
                        TryLockError::WouldBlock => LeftReason::Busy,
                    })?;
                    return Ok(RepairTemp { name_at, name, file });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => remove_stale(name_at, &name)?,
                Err(error) => return Err(failed()(error)),
            }
        }
        Err(LeftReason::Busy)
    }

    /// Checks that the name still refers to the file: another repair has not removed it as stale.
    fn check_name(&self) -> Result<(), LeftReason> {
        let ours = stat_fd(&self.file).map_err(LeftReason::io("check the repaired file"))?;
        match stat_at(&self.name_at.place, self.name.as_c_str(), Follow::No) {
            Ok(found) if found.is_same_file(&ours) => Ok(()),
            _ => Err(LeftReason::Busy),
        }
    }

    /// Removes the file. A failure is ignored, because the first error is more important.
    fn discard(self, why: LeftReason) -> LeftReason {
        if self.check_name().is_ok() {
            let _ = unlink_at(&self.name_at.place, self.name.as_c_str());
        }
        why
    }
}

/// Makes a name lead to the file of another name, by one rename.
///
/// # Errors
/// [`LeftReason::Io`]: the name then leads to the file that it led to before.
pub(super) fn link_over(file: &NameAt, name: &NameAt) -> Result<(), LeftReason> {
    let temp = temp_name(name)?;
    remove_stale(name, &temp)?;
    let (place, temp) = (&name.place, temp.as_c_str());
    let linked = link_at(&file.place, file.name.as_c_str(), place, temp, Follow::No);
    let renamed = linked.and_then(|()| {
        let renamed = rename_at(place, temp, place, name.name.as_c_str(), RenameMode::Replace);
        // The first failure counts.
        renamed.inspect_err(|_| drop(unlink_at(place, temp)))
    });
    renamed.map_err(LeftReason::io("create a hard link to the repaired file"))?;
    name.sync()
}

/// Returns the name of a file that is made beside another.
fn temp_name(name_at: &NameAt) -> Result<CString, LeftReason> {
    let digest = haul_digest::digest(haul_digest::Algorithm::Xxh64, name_at.name.as_bytes());
    let name = CString::new(format!(".haul-repair-{digest}"));
    name.map_err(|error| LeftReason::io("create a temporary file")(error.into()))
}

/// Removes a regular file of this user that no repair holds.
fn remove_stale(name_at: &NameAt, name: &CString) -> Result<(), LeftReason> {
    let file = match open_entry_at(&name_at.place, name.as_c_str()) {
        Ok(fd) => File::from(fd),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(LeftReason::io("check the temporary file of an earlier repair")(error)),
    };
    let facts = stat_fd(&file).map_err(LeftReason::io("check the temporary file of an earlier repair"))?;
    let is_ours = facts.kind == FileKind::Regular && facts.uid == process::effective_user();
    // A repair that was killed in its last steps may have changed the owner and other metadata
    // already.
    if file.try_lock().is_err() || !(is_ours || process::effective_user() == 0) {
        return Err(LeftReason::Busy);
    }
    unlink_at(&name_at.place, name.as_c_str())
        .map_err(LeftReason::io("remove the temporary file of an earlier repair"))
}

/// Reads the repaired file again, past the page cache, and compares it with all recorded digests of
/// its contents.
pub(super) fn prove(new: &File, repair_target: &RepairTarget, stop: &AtomicBool) -> Result<(), LeftReason> {
    let failed = || LeftReason::io("read back the repaired file");
    let size = repair_target.size();
    cache::drop_range(new, ByteRange::between(0, size)).map_err(failed())?;
    let file = reopen_source(new, false).map_err(failed())?;
    let alignment = if size > 0 { direct::probe_read(&file).map_err(failed())? } else { None };
    let mut buffer = AlignedBuffer::new(BLOCK_BYTES).map_err(failed())?;
    let mut wholes: Vec<Hasher> =
        repair_target.digests().iter().map(|digest| Hasher::new(digest.algorithm())).collect();
    let mut pieces = repair_target.pieces().into_iter();
    let mut open = pieces.next().map(|piece| (piece, piece.hasher()));
    let mut at = 0;
    while at < size {
        if stop.load(Ordering::Relaxed) {
            return Err(LeftReason::Stopped);
        }
        let read = match alignment {
            Some(alignment) => direct::read_at(&file, at, &mut buffer, alignment),
            None => transfer::read_at(&file, at, &mut buffer),
        };
        let got = (read.map_err(failed())? as u64).min(size - at);
        if got == 0 {
            return Err(LeftReason::StillWrong(ByteRange::between(at, size)));
        }
        let bytes = &buffer[..got as usize];
        wholes.iter_mut().for_each(|whole| whole.update(bytes));
        let mut from = 0;
        while from < got {
            let Some((piece, mut hasher)) = open.take() else { break };
            let upto = (piece.range.end.0 - at).min(got);
            hasher.update(&bytes[from as usize..upto as usize]);
            from = upto;
            if at + upto < piece.range.end.0 {
                open = Some((piece, hasher));
            } else if piece.is_proven_by(hasher) {
                open = pieces.next().map(|piece| (piece, piece.hasher()));
            } else {
                return Err(LeftReason::StillWrong(piece.range));
            }
        }
        at += got;
    }
    let is_right =
        wholes.into_iter().map(Hasher::finish).zip(repair_target.digests()).all(|(ours, said)| ours == *said);
    if is_right { Ok(()) } else { Err(LeftReason::StillWrong(ByteRange::between(0, size))) }
}
