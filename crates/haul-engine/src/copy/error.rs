//! What can go wrong with one entry, in the words of cp.

use super::quote::{quote, quote_if_needed, quote_word};
use crate::log::LogError;
use haul_log::waybill::PathFault;
use haul_model::{ByteOffset, ByteRange};
use haul_sys::metadata::AclError;
use std::ffi::OsString;
use std::io;
use thiserror::Error;

/// A failure (or warning) about one entry. `Display` gives cp's words without the tool's name.
#[derive(Debug, Error)]
pub enum CopyError {
    /// What was logged of a file is not what stands there.
    #[error(
        "{}: what was logged of it does not hold; all of it, and all else of the earlier run, is compared: run the same command again",
        quote(path)
    )]
    LogFalse {
        /// The sink.
        path: OsString,
    },
    /// As [`CopyError::LogFalse`], found where all was compared anyhow.
    #[error("{}: what was logged of it did not hold, and was copied again", quote(path))]
    LogMended {
        /// The sink.
        path: OsString,
    },
    /// What is logged of a file can't be taken back, so nothing may be written over it.
    #[error("{} is left as it is, because what is logged of it can't be taken back: {source}", quote(path))]
    NotRevoked {
        /// The sink.
        path: OsString,
        /// Why.
        source: Box<LogError>,
    },
    /// The log can't be written.
    #[error("the copy goes on, but if it is cut off more of it will be looked at again: {0}")]
    Unlogged(Box<LogError>),
    /// A file system could not be made durable.
    #[error("error syncing the file system of the destination: {}", cause(.0))]
    Unsynced(io::Error),
    /// The source could not be read at a place.
    #[error("error reading {}: {}", quote(path), cause(source))]
    ReadFailed {
        /// The source.
        path: OsString,
        /// Where.
        at: ByteOffset,
        /// Why.
        source: io::Error,
    },
    /// The sink could not be written at a place.
    #[error("error writing {}: {}", quote(path), cause(source))]
    WriteFailed {
        /// The sink.
        path: OsString,
        /// Where.
        at: ByteOffset,
        /// Why.
        source: io::Error,
    },
    /// The sink's file system said at the end that bytes were lost.
    #[error("failed to close {}: {}", quote(path), cause(source))]
    CloseFailed {
        /// The sink.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// It arrived, but the waybill can't hold its path.
    #[error("{} is copied, but not in the waybill: its path is refused: {fault}", quote(path))]
    NotInWaybill {
        /// The sink.
        path: OsString,
        /// Why.
        fault: PathFault,
    },
    /// The source's size or time moved while it was read.
    #[error(
        "{} changed while it was copied; its copy {} is not complete: copy it again",
        quote(path),
        quote(sink)
    )]
    SourceChanged {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
    },
    /// The source was renamed over or removed while it was read (a warning): its copy has the bytes that it had.
    #[error(
        "{} names another file, or none, since it was copied: the copy has the bytes of the file that was there before",
        quote(path)
    )]
    SourceReplaced {
        /// The source.
        path: OsString,
    },
    /// The copy, read back, differs from what was read of the source.
    #[error(
        "{} differs from {} in bytes {range}: the copy was damaged on its way to storage; copy it again",
        quote(sink),
        quote(path)
    )]
    DigestMismatch {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
        /// The object that differs.
        range: ByteRange,
    },
    /// The device gives other bytes back than were written, however often.
    #[error(
        "{} differs from {} in bytes {range}: read back from the device, it did so after each of {writes} writes; \
         the storage is damaging data, copy to another device",
        quote(sink),
        quote(path)
    )]
    NotMended {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
        /// The object that differs.
        range: ByteRange,
        /// How often it was written.
        writes: u32,
    },
    /// An object came back wrong, was written again, and is right now (a warning).
    #[error(
        "warning: bytes {range} of {} came back wrong from the device; written again ({rewrites} times), they are right now",
        quote(sink)
    )]
    Mended {
        /// The sink.
        sink: OsString,
        /// The object.
        range: ByteRange,
        /// How often it was written again.
        rewrites: u32,
    },
    /// A source that has not changed gives other bytes when it is read again.
    #[error(
        "bytes {range} of {} read differently each time, though the file did not change: its storage is failing",
        quote(path)
    )]
    SourceUnsteady {
        /// The source.
        path: OsString,
        /// The object.
        range: ByteRange,
    },
    /// A file was not read back from the device although that was asked for (a warning, told once a job).
    #[error("warning: {} was not read back from the device: {why} (other files may be alike)", quote(sink))]
    NotReread {
        /// The sink.
        sink: OsString,
        /// The reason.
        why: &'static str,
    },
    /// `--reflink=always` and the file system can't.
    #[error("failed to clone {} from {}: {}", quote(path), quote(from), cause(source))]
    CloneFailed {
        /// The sink.
        path: OsString,
        /// The source.
        from: OsString,
        /// Why.
        source: io::Error,
    },
    /// The job was told to stop while this file was on its way.
    #[error("interrupted while copying {} to {}", quote(path), quote(sink))]
    Interrupted {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
    },
    /// A system call on one path failed: `cannot <action> '<path>': <cause>`.
    #[error("cannot {action} {}: {}", quote(path), cause(source))]
    Cannot {
        /// What was tried, in cp's words: `stat`, `open`, `create regular file`, ...
        action: &'static str,
        /// On what.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// A step on one path failed: `<doing> '<path>': <cause>`.
    #[error("{doing} {}: {}", quote(path), cause(source))]
    Failed {
        /// What was tried, in cp's words: `preserving times for`, `target directory`, ...
        doing: &'static str,
        /// On what.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not take a source's security context for a new file.
    #[error("failed to set default file creation context to {}: {}", quote_word(context), cause(source))]
    ContextRefused {
        /// The context.
        context: OsString,
        /// Why.
        source: io::Error,
    },
    /// A mode or an access control list could not be set: as [`CopyError::Failed`], in the quotation marks of the user's
    /// language, as cp has it.
    #[error("{doing} {}: {}", quote_word(path), cause(source))]
    PermissionsFailed {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// The source's access control list could not be read.
    #[error("{}: {}", quote_word(path), cause(source))]
    ListUnread {
        /// The source.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// A symbolic link could not be given its owner.
    #[error("failed to preserve ownership for {}: {}", quote_if_needed(path), cause(source))]
    LinkOwnerFailed {
        /// The link.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// The source could not be opened.
    #[error("cannot open {} for reading: {}", quote(path), cause(source))]
    OpenSource {
        /// The source.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// A link could not be made.
    #[error("cannot create {kind} link {} to {}: {}", quote(path), quote(target), cause(source))]
    LinkFailed {
        /// `hard` or `symbolic`.
        kind: &'static str,
        /// The link.
        path: OsString,
        /// What it should lead to.
        target: OsString,
        /// Why.
        source: io::Error,
    },
    /// A name was a link to a sink that did not become whole, and was removed.
    #[error("removed {}, a link to {}, which is not complete", quote(path), quote(target))]
    LinkUndone {
        /// The link.
        path: OsString,
        /// What it led to.
        target: OsString,
    },
    /// A line of a batch says nothing to copy, or could not be read.
    #[error("{0}")]
    BatchLine(Box<dyn std::error::Error + Send + Sync>),
    /// An extended attribute could not be kept.
    #[error("setting attribute {} for {}: {}", quote(name), quote(path), cause(source))]
    XattrFailed {
        /// The attribute, with its namespace.
        name: OsString,
        /// The sink.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// An extended attribute could not be read.
    #[error("getting attribute {} of {}: {}", quote(name), quote(path), cause(source))]
    XattrUnread {
        /// The attribute, with its namespace.
        name: OsString,
        /// The source.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// What stands in the way, or makes the copy pointless.
    #[error("{0}")]
    Refused(#[from] Refusal),
}

impl CopyError {
    /// The sink could not be given its owner.
    pub(crate) fn owner_failed(path: OsString, source: io::Error) -> CopyError {
        CopyError::Failed { doing: "failed to preserve ownership for", path, source }
    }

    /// Permissions could not be copied: tells of the side that failed.
    pub(crate) fn permissions_failed(
        error: AclError,
        source_path: impl Fn() -> OsString,
        sink_path: impl Fn() -> OsString,
    ) -> CopyError {
        match error {
            AclError::Read(source) => CopyError::ListUnread { path: source_path(), source },
            AclError::Write(source) | AclError::Mode(source) => {
                let (doing, path) = ("preserving permissions for", sink_path());
                CopyError::PermissionsFailed { doing, path, source }
            }
        }
    }
}

/// Why an entry is not copied although every system call would do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// A directory without `-r`.
    #[error("-r not specified; omitting directory {}", quote(.0))]
    NotRecursive(OsString),
    /// One file named twice (a warning).
    #[error("warning: source file {} specified more than once", quote(.0))]
    FileTwice(OsString),
    /// One directory named twice (a warning).
    #[error("warning: source directory {} specified more than once", quote(.0))]
    DirectoryTwice(OsString),
    /// Source and sink are one.
    #[error("{} and {} are the same file", quote(source_path), quote(sink))]
    SameFile {
        /// The source.
        source_path: OsString,
        /// The sink.
        sink: OsString,
    },
    /// The sink is a file where a directory should be.
    #[error("cannot overwrite non-directory {} with directory {}", quote(sink), quote(source_path))]
    NonDirectory {
        /// The sink.
        sink: OsString,
        /// The source.
        source_path: OsString,
    },
    /// The sink is a directory where something else should be.
    #[error("cannot overwrite directory {} with non-directory", quote(.0))]
    Directory(OsString),
    /// Something stands at the sink, and nothing may be replaced.
    #[error("not replacing {}", quote(.0))]
    NotReplacing(OsString),
    /// The waybill that this job writes.
    #[error("{} is the waybill of this job: it is neither copied nor written over", quote(.0))]
    OwnWaybill(OsString),
    /// An earlier operand of this command became that sink.
    #[error("will not overwrite just-created {} with {}", quote(sink), quote(source_path))]
    JustCreated {
        /// The sink.
        sink: OsString,
        /// The source.
        source_path: OsString,
    },
    /// The sink is another name of a file that this job wrote, and that is vouched for with other bytes.
    #[error(
        "not writing {} over {}: it is the same file as {}, which this command wrote and proves or writes down",
        quote(source_path),
        quote(sink),
        quote(earlier)
    )]
    WrittenBefore {
        /// The source.
        source_path: OsString,
        /// The sink.
        sink: OsString,
        /// The name that it was written by.
        earlier: OsString,
    },
    /// An earlier operand of this command became a link that this one would be written through.
    #[error("will not copy {} through just-created symlink {}", quote(source_path), quote(sink))]
    ThroughJustCreated {
        /// The source.
        source_path: OsString,
        /// The sink.
        sink: OsString,
    },
    /// The sink lies in the source.
    #[error("cannot copy a directory, {}, into itself, {}", quote(source_path), quote(sink))]
    IntoItself {
        /// The source, as the command named it.
        source_path: OsString,
        /// The sink of that operand.
        sink: OsString,
    },
    /// A directory was copied before under another name.
    #[error("will not create hard link {} to directory {}", quote(sink), quote(earlier))]
    LinkToDirectory {
        /// The sink.
        sink: OsString,
        /// Its first copy.
        earlier: OsString,
    },
    /// A followed link leads to a directory that it lies in.
    #[error("cannot copy cyclic symbolic link {}", quote(.0))]
    Cyclic(OsString),
    /// `-s` with a relative source, into another directory.
    #[error("{}: can make relative symbolic links only in current directory", quote_if_needed(.0))]
    RelativeLink(OsString),
    /// The source is the name the sink's backup would get.
    #[error("backing up {} might destroy source;  {} not copied", quote(sink), quote(source_path))]
    BackupIsSource {
        /// The sink.
        sink: OsString,
        /// The source.
        source_path: OsString,
    },
    /// The source is another file than a moment ago.
    #[error("skipping file {}, as it was replaced while being copied", quote(.0))]
    Replaced(OsString),
    /// The sink is a link that leads to nothing.
    #[error("not writing through dangling symlink {}", quote(.0))]
    DanglingSink(OsString),
    /// A sort of file this program has no word for.
    #[error("{} has unknown file type", quote(.0))]
    UnknownKind(OsString),
    /// `--parents` would go through a file.
    #[error("{} exists but is not a directory", quote(.0))]
    ParentIsFile(OsString),
}

/// An error's text as the C library words it, without Rust's `(os error N)`.
pub fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
