//! Errors of a repair.

use crate::copy::quote;
use crate::log::LogError;
use crate::sum::reason;
use crate::verify::{Change, VerifyError};
use haul_digest::Algorithm;
use haul_log::journal::JournalFlaw;
use haul_log::waybill::{ReadError, RelPath};
use haul_model::{ByteRange, format_size};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use thiserror::Error;

/// Reason why a name was left unchanged.
#[derive(Debug, Error)]
pub enum LeftReason {
    /// The entry has visible changes, which may be intended.
    #[error("{0}{hint}", hint = hint(*.0))]
    Modified(Change),
    /// No replica has these bytes as recorded.
    #[error("no replica has the correct bytes {}{}{}", list(.lost), unread_too(.unread), absent_too(.absent))]
    NoSource {
        /// The missing ranges.
        lost: Vec<ByteRange>,
        /// Replicas on this host whose file could not be read completely, with the error; they may
        /// have the bytes.
        unread: Vec<(OsString, io::Error)>,
        /// Replicas on this host that have no file of this name.
        absent: Vec<OsString>,
    },
    /// No replica on this host has these bytes, and a dry run asks no other host.
    #[error("no replica on this host has the correct bytes {}, and a dry run does not ask other hosts", list(.0))]
    NotAsked(Vec<ByteRange>),
    /// The waybill has no digest that this program can compute.
    #[error("the waybill has no digest of the file")]
    NoDigest,
    /// The waybill has no cryptographic digest of the damaged bytes, only one of this algorithm.
    #[error(
        "cannot prove the bytes of a replica: {0}, the strongest digest in the waybill, can be forged; use \
         --trust-replica if you trust every replica"
    )]
    Unproven(Algorithm),
    /// Several names refer to a modified file; the change may be intended under another name.
    #[error("the file has {0} names and would change under all of them; use --in-place to repair it")]
    Names(u64),
    /// Its name is also the name of another entry, through a link to a directory, and that entry
    /// has different contents.
    #[error("the path also resolves to {}, an entry of the waybill with different contents", quote(OsStr::from_bytes(.0.as_bytes())))]
    OneName(RelPath),
    /// There is no space for a second file of this size, in bytes, next to it.
    #[error(
        "cannot write a repaired copy of {} next to the file: {}; free space, or use --in-place, which needs \
         space only for the damaged bytes", format_size(*.0), reason(.1)
    )]
    NoRoom(u64, #[source] io::Error),
    /// An in-place repair was interrupted, and this is a dry run.
    #[error("an in-place repair was interrupted; to finish or undo it, run without --dry-run")]
    CutOff,
    /// An in-place repair failed, and its writes could not be undone.
    #[error(
        "{0}; cannot restore the previous bytes: {1}; the journal next to the file keeps them, and the next \
         repair restores them"
    )]
    HalfDone(Box<LeftReason>, Box<LeftReason>),
    /// The restored bytes differ when they are read back.
    #[error("read-back of the restored bytes {0} differs: the storage device corrupts data")]
    NotPutBack(ByteRange),
    /// The journal of an in-place repair cannot be used.
    #[error("cannot read the journal of an interrupted in-place repair: {0}")]
    Journal(#[source] JournalFlaw),
    /// The damaged ranges contain bytes that no repair wrote.
    #[error(
        "cannot finish or undo an interrupted in-place repair: the file was modified since; \
         remove the journal to keep the current contents"
    )]
    Foreign,
    /// The entry is not a file, a directory, a symbolic link or a hard link.
    #[error("haul does not recreate devices, pipes and sockets")]
    Special,
    /// The entry cannot be examined.
    #[error("{0}")]
    Unreadable(String),
    /// Its path leads out of the root, or cannot be resolved.
    #[error("{0}")]
    Place(String),
    /// A system call failed.
    #[error("cannot {action}: {}", reason(source))]
    Io {
        /// Action that failed.
        action: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Metadata of the file cannot be copied to the repaired one.
    #[error("cannot copy the metadata to the repaired file: {0}")]
    Attribute(String),
    /// The written bytes differ when they are read back: the storage device corrupts data.
    #[error("read-back of the repaired file differs in bytes {0}: the storage device corrupts data")]
    StillWrong(ByteRange),
    /// A replica returned different bytes for the second read.
    #[error("a replica changed while bytes {0} were copied from it; run the repair again")]
    ReplicaChanged(ByteRange),
    /// The file changed during the repair.
    #[error("the file changed during the repair; run the repair again")]
    ChangedMeanwhile,
    /// Another repair holds the file.
    #[error("another repair holds the file; wait for it to finish")]
    Busy,
    /// A signal stopped the repair.
    #[error("interrupted")]
    Stopped,
}

/// Reason why a journal is not used. Anyone who may write to the directory of a file can put a
/// journal there.
#[derive(Debug, Error)]
pub enum JournalDistrust {
    /// Not a regular file of this user, or other users can write to it.
    #[error("not a file that only this user can write")]
    Foreign,
    /// The state directory has no key, so that this user wrote no journal, or lost the key.
    #[error("the state directory has no key to authenticate it")]
    NoKey,
    /// The bytes are not a journal of this user.
    #[error("{0}")]
    Flaw(JournalFlaw),
    /// The journal belongs to another file that had this name, or was moved from elsewhere.
    #[error("the journal belongs to another file")]
    OtherFile,
}

/// Problem with the journals of in-place repairs that does not stop the repair.
#[derive(Debug, Error)]
pub enum JournalWarning {
    /// A journal is not trusted. The file is repaired like a file without a journal.
    #[error("ignored the journal of an interrupted in-place repair: {why}; {}", aside_step(.aside))]
    Distrusted {
        /// Reason of the distrust.
        why: JournalDistrust,
        /// Name that the journal has now, in the directory of the file, or the reason why it was
        /// not renamed.
        aside: io::Result<String>,
    },
    /// An interrupted repair removed the capabilities of the file. Only its journal has them, and
    /// a journal grants nothing.
    #[error(
        "an interrupted in-place repair removed the capabilities of the file; set them again with setcap"
    )]
    LostCapability,
    /// The state directory has no key that a later run can use.
    #[error(
        "cannot authenticate journals of in-place repairs: {0}; an interrupted in-place repair cannot be undone"
    )]
    NoKey(#[source] LogError),
}

/// Reason why nothing was repaired.
#[derive(Debug, Error)]
pub enum RepairError {
    /// The search for damage failed.
    #[error("{0}")]
    Verify(#[from] VerifyError),
    /// The waybill has this number of flaws, so its contents are not reliable.
    #[error(
        "{}: the waybill is damaged (flaws: {}); nothing was repaired; use an intact copy of the waybill",
        quote(.0), .1
    )]
    Flawed(OsString, u64),
    /// The waybill changed after the first pass.
    #[error("{}: {}", quote(.0), .1)]
    Refused(OsString, #[source] ReadError),
    /// A replica cannot be opened.
    #[error("cannot open the replica {}: {}; nothing was repaired", quote(.0), reason(.1))]
    Replica(OsString, #[source] io::Error),
    /// The root cannot be opened.
    #[error("cannot open {}: {}", quote(.0), reason(.1))]
    Root(OsString, #[source] io::Error),
    /// No name of the waybill exists below the root.
    #[error(
        "no name of the waybill exists in {}; names are relative to ROOT; nothing was repaired; to create a complete copy, use \
         haul cp", quote(.0)
    )]
    NoName(OsString),
    /// The directory for replaced bytes cannot be created or opened.
    #[error("cannot open directory {} for replaced bytes: {}; nothing was repaired", quote(.0), reason(.1))]
    Keep(OsString, #[source] io::Error),
}

impl LeftReason {
    /// Returns a function that wraps the error of a failed action.
    pub(super) fn io(action: &'static str) -> impl FnOnce(io::Error) -> LeftReason {
        move |source| LeftReason::Io { action, source }
    }

    /// Converts an out-of-space error to [`LeftReason::NoRoom`], for a file of `size` bytes.
    pub(super) fn or_no_room(self, size: u64) -> LeftReason {
        match self {
            LeftReason::Io { source, .. } if is_shortage(&source) => LeftReason::NoRoom(size, source),
            why => why,
        }
    }

    /// Returns true if the name is unchanged because there was no space for its repair.
    pub(super) fn is_shortage(&self) -> bool {
        match self {
            LeftReason::NoRoom(..) => true,
            LeftReason::Io { source, .. } => is_shortage(source),
            _ => false,
        }
    }

    /// Creates the error for a path that cannot be resolved.
    pub(super) fn place(error: io::Error) -> LeftReason {
        const EXDEV: i32 = 18;
        const ELOOP: i32 = 40;
        LeftReason::Place(match error.raw_os_error() {
            Some(EXDEV | ELOOP) => Change::LeadsOut.to_string(),
            _ => format!("cannot resolve the path: {}", reason(&error)),
        })
    }
}

fn hint(change: Change) -> &'static str {
    match change {
        Change::Size { .. } | Change::Bytes | Change::WhileRead => {
            "; the change may be intended; use --modified to repair the file anyway"
        }
        _ => "",
    }
}

fn aside_step(aside: &io::Result<String>) -> String {
    match aside {
        Ok(name) => format!("renamed it to {name}; remove it if you do not need the old bytes in it"),
        Err(error) => format!("cannot rename it: {}; remove it", reason(error)),
    }
}

fn unread_too(replicas: &[(OsString, io::Error)]) -> String {
    let told = replicas
        .iter()
        .map(|(name, why)| format!("; cannot read the file in {}: {}", quote(name), reason(why)));
    told.collect()
}

fn absent_too(replicas: &[OsString]) -> String {
    replicas.iter().map(|name| format!("; {} has no file of this name", quote(name))).collect()
}

fn list(ranges: &[ByteRange]) -> String {
    let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// Returns true for the errors of a full file system and of a used-up quota.
fn is_shortage(error: &io::Error) -> bool {
    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    matches!(error.raw_os_error(), Some(ENOSPC | EDQUOT))
}
