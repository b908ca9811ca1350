//! Repair by replacement: the repaired file is created next to the damaged one, verified, and
//! renamed over it. If the work is interrupted at any point, the name refers to the old file or to
//! the complete new one.

use super::LeftReason;
use super::places::{NameAt, is_unchanged};
use super::repair_target::RepairTarget;
use super::survey::{Sources, Survey, holds};
use crate::copied_attributes::is_of_lustre;
use crate::pipeline::{BLOCK_BYTES, Block, BlockFault, read_blocks};
use crate::sum::Counters;
use haul_digest::Hasher;
use haul_log::waybill::Moment;
use haul_model::{ByteRange, is_zero};
use haul_storage::{
    Create, DropRetries, Follow, Metadata, Name, Offload, Offloaded, Part, Remove, Replace, SinkFile,
    SourceFile, SyncWhat, Times, Timespec, Unset,
};
use haul_sys::metadata::ACL_ACCESS;
use std::ffi::{CStr, CString};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of attempts to create a file whose name a killed repair left behind.
const ATTEMPTS: usize = 4;

/// File to repair or to create.
pub(super) struct Rebuild<'a> {
    pub(super) repair_target: &'a RepairTarget,
    pub(super) name_at: &'a NameAt,
    /// The damaged file; `None` if it is missing.
    pub(super) old: Option<&'a dyn SourceFile>,
    pub(super) survey: &'a Survey,
    pub(super) sources: &'a Sources,
    pub(super) counters: &'a Counters,
    pub(super) stop: &'a AtomicBool,
}

/// Temporary file of a repair. Its lock distinguishes a file in use from one that a killed repair
/// left.
struct RepairTemp<'a> {
    name_at: &'a NameAt,
    name: Name,
    file: Arc<dyn SinkFile>,
}

impl Rebuild<'_> {
    /// Runs the repair.
    ///
    /// # Errors
    /// Returns a [`LeftReason`]. The name then still refers to the previous file.
    pub(super) fn run(&self) -> Result<(), LeftReason> {
        let temp =
            RepairTemp::create(self.name_at).map_err(|why| why.or_no_room(self.repair_target.size()))?;
        let file = &*temp.file;
        let failed = || LeftReason::io("write the repaired file");
        let done = self.fill(file).and_then(|()| {
            file.sync(SyncWhat::All).map_err(failed())?;
            prove(file, self.repair_target, self.stop)?;
            self.apply_metadata(file)?;
            file.sync(SyncWhat::All).map_err(failed())?;
            self.put_in_place(&temp)
        });
        match done {
            Ok(()) => self.name_at.sync(),
            Err(why) => Err(temp.discard(why.or_no_room(self.repair_target.size()))),
        }
    }

    /// Writes all bytes: the intact ones from the old file, the others from replicas.
    fn fill(&self, new: &dyn SinkFile) -> Result<(), LeftReason> {
        let failed = || LeftReason::io("write the repaired file");
        let is_cloned = self.old.is_some_and(|old| {
            let all = ByteRange::between(0, old.opened().size);
            matches!(new.offload(old, all, 0, Offload::Share), Ok(Offloaded::Done(_)))
        });
        new.set_len(self.repair_target.size()).map_err(failed())?;
        let mut buffer = vec![0; BLOCK_BYTES];
        if let Some(old) = self.old.filter(|_| !is_cloned) {
            for range in &self.survey.kept {
                self.copy(old, new, *range, &mut buffer)?;
            }
        }
        for (piece, replica) in &self.survey.mended {
            let source = self.sources.file(*replica).ok_or(LeftReason::ReplicaChanged(piece.range))?;
            let write = |at: u64, bytes: &[u8]| {
                self.counters.done_bytes(bytes.len() as u64);
                // A range that was not written reads as zeros already.
                if is_cloned || !is_zero(bytes) { new.write_at(at, bytes) } else { Ok(()) }
            };
            let held = holds(source, *piece, &mut buffer, self.stop, write);
            let held = held.map_err(|fault| fault_reason(fault, "read the replica"))?;
            if !held {
                return Err(LeftReason::ReplicaChanged(piece.range));
            }
        }
        Ok(())
    }

    fn copy(
        &self,
        old: &dyn SourceFile,
        new: &dyn SinkFile,
        range: ByteRange,
        buffer: &mut [u8],
    ) -> Result<(), LeftReason> {
        let read = read_blocks(old, range, buffer, self.stop, |at, bytes| {
            if is_zero(bytes) { Ok(()) } else { new.write_at(at, bytes) }
        });
        read.map_err(|fault| fault_reason(fault, "read the file again"))
    }

    fn check_stop(&self) -> Result<(), LeftReason> {
        if self.stop.load(Ordering::Relaxed) { Err(LeftReason::Stopped) } else { Ok(()) }
    }

    /// Sets the owner, attributes, access control list, mode and times: those of the old file, or
    /// the mode and time in the waybill if the file was missing. Takes nothing from a replica.
    fn apply_metadata(&self, new: &dyn SinkFile) -> Result<(), LeftReason> {
        let Moment { sec, nsec } = self.repair_target.entry.mtime;
        let mtime = Some(Timespec { sec, nsec });
        let metadata = match self.old {
            Some(old) => {
                let mut attributes = attributes_of(old)?;
                let cannot = |act: &str, error| LeftReason::Attribute(format!("cannot {act}: {error}"));
                let list = old.attribute(ACL_ACCESS);
                match list.map_err(|error| cannot("read the access control list", error))? {
                    Some(list) => attributes.push((ACL_ACCESS.to_owned(), list)),
                    // The directory may have given a list to the new file.
                    None => new
                        .remove_attribute(ACL_ACCESS)
                        .map(drop)
                        .map_err(|error| cannot("set the access control list", error))?,
                }
                let facts = old.opened();
                Metadata {
                    user: Some(facts.uid),
                    group: Some(facts.gid),
                    attributes: attributes.into(),
                    mode: Some(facts.mode),
                    times: Times { atime: Some(facts.atime), mtime },
                }
            }
            // The waybill has no owner, and a setuid program must not run as the user who repaired
            // it.
            None => Metadata {
                mode: Some(self.repair_target.entry.mode & 0o1777),
                times: Times { atime: None, mtime },
                ..Metadata::default()
            },
        };
        new.finish(self.repair_target.size(), &metadata).map_err(|unset| self.reason_of(unset))
    }

    /// Returns the reason for metadata that could not be set.
    fn reason_of(&self, Unset { part, error }: Unset) -> LeftReason {
        let action = match part {
            Part::Length | Part::Bytes => "write the repaired file",
            Part::Owner => "set the owner of the repaired file",
            Part::Mode if self.old.is_none() => "set the mode of the new file",
            Part::Mode => return LeftReason::Attribute(format!("cannot set the mode: {error}")),
            Part::Attribute(name) if *name == *ACL_ACCESS => {
                return LeftReason::Attribute(format!("cannot set the access control list: {error}"));
            }
            Part::Attribute(name) => return uncopied(&name, &error),
            Part::Times => "set the times of the repaired file",
        };
        LeftReason::io(action)(error)
    }

    /// Renames the file if the name still refers to the file that was examined.
    fn put_in_place(&self, temp: &RepairTemp<'_>) -> Result<(), LeftReason> {
        self.check_stop()?;
        let replace = match (self.old, self.name_at.stat()) {
            (Some(then), Ok(now)) if is_unchanged(&now, then) => Replace::Yes,
            (None, Err(error)) if error.kind() == io::ErrorKind::NotFound => Replace::No,
            _ => return Err(LeftReason::ChangedMeanwhile),
        };
        temp.check_name()?;
        let dir = &*self.name_at.dir;
        let rename = |replace| dir.rename(&temp.name, dir, &self.name_at.name, replace);
        let renamed = match rename(replace) {
            // The storage cannot guarantee this; a moment ago the name did not exist.
            Err(error) if replace == Replace::No && error.kind() == io::ErrorKind::InvalidInput => {
                rename(Replace::Yes)
            }
            other => other,
        };
        renamed.map_err(LeftReason::io("rename the repaired file"))
    }
}

/// Returns the attributes of a file that its repaired copy gets, without its access control list.
fn attributes_of(old: &dyn SourceFile) -> Result<Vec<(CString, Vec<u8>)>, LeftReason> {
    let mut attributes = Vec::new();
    for name in old.attributes().map_err(LeftReason::io("read the extended attributes"))? {
        let bytes = name.to_bytes();
        let is_list = bytes.starts_with(b"system.posix_acl_");
        if is_list || is_of_lustre(bytes, || old.device().capabilities.is_lustre) {
            continue;
        }
        if let Some(value) = old.attribute(&name).map_err(|error| uncopied(&name, &error))? {
            attributes.push((name, value));
        }
    }
    Ok(attributes)
}

/// Returns the reason why bytes that were to be written could not be read (`reading` is the action)
/// or written.
fn fault_reason(fault: BlockFault<io::Error>, reading: &'static str) -> LeftReason {
    match fault {
        BlockFault::Stopped => LeftReason::Stopped,
        BlockFault::Read(_, error) => LeftReason::io(reading)(error),
        BlockFault::Ended(..) => LeftReason::ChangedMeanwhile,
        BlockFault::Receiver(error) => LeftReason::io("write the repaired file")(error),
    }
}

fn uncopied(name: &CStr, error: &io::Error) -> LeftReason {
    LeftReason::Attribute(format!("cannot copy attribute {name:?}: {error}"))
}

impl<'a> RepairTemp<'a> {
    /// Creates a new file; replaces one that a killed repair left.
    fn create(name_at: &'a NameAt) -> Result<RepairTemp<'a>, LeftReason> {
        let failed = || LeftReason::io("create a temporary file");
        let name = temp_name(name_at)?;
        for _ in 0..ATTEMPTS {
            match name_at.dir.sink(&name, Create::New { mode: 0o600 }) {
                Ok(file) => {
                    let temp = RepairTemp { name_at, name, file };
                    return match temp.file.lock() {
                        Ok(true) => Ok(temp),
                        Ok(false) => Err(temp.discard(failed()(io::ErrorKind::Unsupported.into()))),
                        // Another repair takes it for one that a killed repair left.
                        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(LeftReason::Busy),
                        Err(error) => Err(temp.discard(failed()(error))),
                    };
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => remove_stale(name_at, &name)?,
                Err(error) => return Err(failed()(error)),
            }
        }
        Err(LeftReason::Busy)
    }

    /// Checks that the name still refers to the file: another repair has not removed it as stale.
    fn check_name(&self) -> Result<(), LeftReason> {
        let ours = self.file.stat().map_err(LeftReason::io("check the repaired file"))?;
        match self.name_at.dir.stat_at(&self.name, Follow::No) {
            Ok(found) if found.is_same_file(&ours) => Ok(()),
            _ => Err(LeftReason::Busy),
        }
    }

    /// Removes the file. A failure is ignored, because the first error is more important.
    fn discard(self, why: LeftReason) -> LeftReason {
        if self.check_name().is_ok() {
            let _ = self.name_at.dir.remove(&self.name, Remove::File);
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
    let dir = &*name.dir;
    let renamed = file.dir.link(&file.name, Follow::No, dir, &temp).and_then(|()| {
        let renamed = dir.rename(&temp, dir, &name.name, Replace::Yes);
        // The first failure counts.
        renamed.inspect_err(|_| drop(dir.remove(&temp, Remove::File)))
    });
    renamed.map_err(LeftReason::io("create a hard link to the repaired file"))?;
    name.sync()
}

/// Returns the name of a file that is made beside another.
fn temp_name(name_at: &NameAt) -> Result<Name, LeftReason> {
    let digest = haul_digest::digest(haul_digest::Algorithm::Xxh64, name_at.name.as_bytes());
    let failed = || LeftReason::io("create a temporary file")(io::ErrorKind::InvalidFilename.into());
    Name::new(format!(".haul-repair-{digest}")).ok_or_else(failed)
}

/// Removes a regular file of this user that no repair holds.
fn remove_stale(name_at: &NameAt, name: &Name) -> Result<(), LeftReason> {
    let failed = || LeftReason::io("check the temporary file of an earlier repair");
    let file = match name_at.dir.source(name, Follow::No) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // Not a regular file.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(LeftReason::Busy),
        Err(error) => return Err(failed()(error)),
    };
    let user = file.user();
    // A repair that was killed in its last steps may have changed the owner and other metadata
    // already.
    let is_ours = file.opened().uid == user || user == 0;
    if !matches!(file.lock(), Ok(true)) || !is_ours {
        return Err(LeftReason::Busy);
    }
    name_at
        .dir
        .remove(name, Remove::File)
        .map_err(LeftReason::io("remove the temporary file of an earlier repair"))
}

/// Reads the repaired file again, past the page cache, and compares it with all recorded digests of
/// its contents.
pub(super) fn prove(
    new: &dyn SinkFile,
    repair_target: &RepairTarget,
    stop: &AtomicBool,
) -> Result<(), LeftReason> {
    let failed = || LeftReason::io("read back the repaired file");
    let size = repair_target.size();
    let file = new.reader().map_err(failed())?;
    file.evict(ByteRange::between(0, size), DropRetries::None).map_err(failed())?;
    if size > 0 {
        file.set_direct(true).map_err(failed())?;
    }
    let mut buffer = Block::new(BLOCK_BYTES).map_err(failed())?;
    let mut wholes: Vec<Hasher> =
        repair_target.digests().iter().map(|digest| Hasher::new(digest.algorithm())).collect();
    let mut pieces = repair_target.pieces().into_iter();
    let mut open = pieces.next().map(|piece| (piece, piece.hasher()));
    let mut at = 0;
    while at < size {
        if stop.load(Ordering::Relaxed) {
            return Err(LeftReason::Stopped);
        }
        let got = (file.read_at(at, &mut buffer).map_err(failed())? as u64).min(size - at);
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
