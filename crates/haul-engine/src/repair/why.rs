//! Why something was not repaired.

use crate::copy::quote;
use crate::sum::reason;
use crate::verify::{Change, VerifyError};
use haul_log::journal::JournalFlaw;
use haul_log::waybill::{ReadError, RelPath};
use haul_model::{ByteRange, format_size};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use thiserror::Error;

/// Why a name was left as it was.
#[derive(Debug, Error)]
pub enum Why {
    /// It does not hide that it was changed, so somebody may have meant it.
    #[error("{0}{hint}", hint = hint(*.0))]
    Modified(Change),
    /// No replica has these bytes as the waybill describes them.
    #[error("no replica has the right bytes {}{}", list(.lost), unread_too(.unread))]
    NoSource {
        /// Which bytes.
        lost: Vec<ByteRange>,
        /// Replicas of this host whose file could not be read, or not all of it, and why: they may have them.
        unread: Vec<(OsString, io::Error)>,
    },
    /// No replica of this host has these bytes, and in a dry run no other host is asked.
    #[error("no replica of this host has the right bytes {}, and a dry run asks no other host", list(.0))]
    NotAsked(Vec<ByteRange>),
    /// The waybill has no digest that this program can compute.
    #[error("the waybill has no digest of it")]
    NoDigest,
    /// Several names lead to a file that was modified: by another of them somebody may have meant it.
    #[error("it has {0} names, and would change under all of them; --in-place does that")]
    Names(u64),
    /// Its name is the name of another entry as well, by a link to a directory, and that one has other bytes.
    #[error("its name leads to {} of the waybill too, which has other bytes", quote(OsStr::from_bytes(.0.as_bytes())))]
    OneName(RelPath),
    /// There is no room for a second file of so many bytes beside it.
    #[error(
        "no room for a repaired copy of {} beside it: {}; free some, or repair it --in-place, which needs \
         room for the damaged bytes alone", format_size(*.0), reason(.1)
    )]
    NoRoom(u64, #[source] io::Error),
    /// A repair in place was cut off, and this is a dry run.
    #[error("a repair in place of it was cut off; without --dry-run that is finished or undone first")]
    CutOff,
    /// A repair in place failed, and what it had written could not be undone.
    #[error(
        "{0}; and what stood there could not be put back: {1}. The journal beside it keeps that, and the next \
         repair puts it back"
    )]
    HalfDone(Box<Why>, Box<Why>),
    /// The bytes that were put back did not come back when they were read.
    #[error("bytes {0} are other ones when they are read back: the storage does not keep what it is given")]
    NotPutBack(ByteRange),
    /// The journal of a repair in place can't be used.
    #[error("the journal of a repair in place that was cut off: {0}")]
    Journal(#[source] JournalFlaw),
    /// The journal is about a file that had this name before.
    #[error(
        "the journal of a repair in place that was cut off is about another file, which had this name; remove \
         the journal if that file is of no use any more"
    )]
    OthersJournal,
    /// In the damaged ranges stand bytes that no repair left there.
    #[error(
        "a repair in place of it was cut off, and some of the bytes there are neither those from before nor the \
         repaired ones: somebody wrote to it since. Remove the journal if it is to stay as it is"
    )]
    Foreign,
    /// It is neither a file, a directory, a link nor a further name.
    #[error("devices, pipes and sockets are not made anew")]
    Special,
    /// It can't be looked at.
    #[error("{0}")]
    Unreadable(String),
    /// The way to it leads out of the root, or can't be gone.
    #[error("{0}")]
    Place(String),
    /// The system refused a step.
    #[error("cannot {action}: {}", reason(source))]
    Io {
        /// Which.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something that belongs to the file can't be given to the repaired one.
    #[error("cannot carry over what belongs to it: {0}")]
    Attribute(String),
    /// What was written did not come back: the storage is not to be trusted.
    #[error(
        "the repaired file was not right when it was read back, in bytes {0}: the storage does not keep what it is given"
    )]
    StillWrong(ByteRange),
    /// A replica gave other bytes the second time.
    #[error("a replica changed while bytes {0} were taken from it; repair again")]
    ReplicaChanged(ByteRange),
    /// It changed while it was repaired.
    #[error("it changed while it was repaired; repair again")]
    ChangedMeanwhile,
    /// Another repair has it.
    #[error("another repair is at work on it")]
    Busy,
    /// A signal came.
    #[error("interrupted")]
    Stopped,
}

/// Why nothing was repaired.
#[derive(Debug, Error)]
pub enum RepairError {
    /// The damage can't be looked for.
    #[error("{0}")]
    Verify(#[from] VerifyError),
    /// The waybill has flaws, so many: what it says can't be built on.
    #[error(
        "{}: the waybill is damaged (flaws: {}); nothing was repaired. Repair by a copy of it that is whole",
        quote(.0), .1
    )]
    Flawed(OsString, u64),
    /// The waybill changed since it was looked through.
    #[error("{}: {}", quote(.0), .1)]
    Refused(OsString, #[source] ReadError),
    /// A replica can't be opened.
    #[error("cannot open the replica {}: {}; nothing was repaired", quote(.0), reason(.1))]
    Replica(OsString, #[source] io::Error),
    /// The root can't be opened.
    #[error("cannot open {}: {}", quote(.0), reason(.1))]
    Root(OsString, #[source] io::Error),
    /// None of the waybill's names is beneath the root.
    #[error(
        "none of the waybill's names is in {}; they are relative to ROOT; nothing was repaired. To have a whole copy made, use \
         haul cp", quote(.0)
    )]
    NoName(OsString),
    /// The directory for what is replaced can't be made or opened.
    #[error("cannot open {} to keep what is damaged: {}; nothing was repaired", quote(.0), reason(.1))]
    Keep(OsString, #[source] io::Error),
}

impl Why {
    /// A step that failed.
    pub(super) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Why {
        move |source| Why::Io { action, source }
    }

    /// Where a file of `size` bytes was to be written and there was no room, that and what can be done.
    pub(super) fn or_no_room(self, size: u64) -> Why {
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        match self {
            Why::Io { source, .. } if matches!(source.raw_os_error(), Some(ENOSPC | EDQUOT)) => {
                Why::NoRoom(size, source)
            }
            why => why,
        }
    }

    /// The way to a name can't be gone.
    pub(super) fn place(error: io::Error) -> Why {
        const EXDEV: i32 = 18;
        const ELOOP: i32 = 40;
        Why::Place(match error.raw_os_error() {
            Some(EXDEV | ELOOP) => Change::LeadsOut.to_string(),
            _ => format!("cannot reach it: {}", reason(&error)),
        })
    }
}

fn hint(change: Change) -> &'static str {
    match change {
        Change::Size { .. } | Change::Bytes | Change::WhileRead => {
            "; somebody may have meant it (--modified repairs it all the same)"
        }
        _ => "",
    }
}

fn unread_too(replicas: &[(OsString, io::Error)]) -> String {
    let told =
        replicas.iter().map(|(name, why)| format!("; {} can't be read there: {}", quote(name), reason(why)));
    told.collect()
}

fn list(ranges: &[ByteRange]) -> String {
    let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
