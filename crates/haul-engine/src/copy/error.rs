//! Errors about one entry, with cp's wording.

use super::quote::{quote, quote_if_needed, quote_word};
use crate::log::LogError;
use haul_log::waybill::PathError;
use haul_model::{ByteOffset, ByteRange};
use haul_storage::attributes::AclError;
use std::ffi::OsString;
use std::io;
use thiserror::Error;

/// A failure (or warning) about one entry. `Display` prints cp's wording without the tool's name.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The log entry of a file does not match the file at the sink.
    #[error(
        "cannot resume {}: it differs from its log entry, so everything from the earlier run must be compared; run the same command again",
        quote(path)
    )]
    LogFalse {
        /// The sink.
        path: OsString,
    },
    /// Like [`CopyError::LogFalse`], but found in a run that compares everything anyway.
    #[error("{} differed from its log entry and was copied again", quote(path))]
    LogMended {
        /// The sink.
        path: OsString,
    },
    /// The log entry of a file cannot be revoked, so the file must not be overwritten.
    #[error("cannot overwrite {}: its log entry cannot be revoked: {source}", quote(path))]
    NotRevoked {
        /// The sink.
        path: OsString,
        /// The cause.
        source: Box<LogError>,
    },
    /// The log cannot be written.
    #[error("{0}; the copy continues, but more of it will be compared again if it is interrupted")]
    Unlogged(Box<LogError>),
    /// A file system could not be synced.
    #[error("error syncing the file system of the destination: {}", cause(.0))]
    Unsynced(io::Error),
    /// The source could not be read at some offset.
    #[error("error reading {}: {}", quote(path), cause(source))]
    ReadFailed {
        /// The source.
        path: OsString,
        /// Offset of the failed read.
        at: ByteOffset,
        /// The cause.
        source: io::Error,
    },
    /// The sink could not be written at some offset.
    #[error("error writing {}: {}", quote(path), cause(source))]
    WriteFailed {
        /// The sink.
        path: OsString,
        /// Offset of the failed write.
        at: ByteOffset,
        /// The cause.
        source: io::Error,
    },
    /// The file system of the sink reported lost bytes at close.
    #[error("failed to close {}: {}", quote(path), cause(source))]
    CloseFailed {
        /// The sink.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// The file was copied, but the waybill cannot store its path.
    #[error("cannot add {} to the waybill: invalid path: {fault}; the file was copied", quote(path))]
    NotInWaybill {
        /// The sink.
        path: OsString,
        /// The cause.
        fault: PathError,
    },
    /// The size or a timestamp of the source changed during the copy.
    #[error(
        "cannot copy {} to {}: the source changed during the copy, which is incomplete; copy it again",
        quote(path),
        quote(sink)
    )]
    SourceChanged {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
    },
    /// The source was replaced by a rename or removed during the copy (a warning). The copy has the
    /// bytes of the opened source.
    #[error(
        "{} was replaced or removed during the copy; the copy has the contents of the original file",
        quote(path)
    )]
    SourceReplaced {
        /// The source.
        path: OsString,
    },
    /// The copy that was read back differs from the bytes read from the source.
    #[error(
        "{} differs from {} in bytes {range}: the data was damaged before it reached the storage; copy the file again",
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
    /// The device returns bytes other than those written, after every rewrite.
    #[error(
        "{} differs from {} in bytes {range} when read back from the device, after each of {writes} writes; \
         the storage device corrupts data, copy to another device",
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
        /// Number of writes.
        writes: u32,
    },
    /// An object was wrong when read back, was rewritten, and is correct now (a warning).
    #[error(
        "warning: bytes {range} of {} differed when read back from the device; rewritten ({rewrites} times), they are correct now",
        quote(sink)
    )]
    Mended {
        /// The sink.
        sink: OsString,
        /// The object.
        range: ByteRange,
        /// Number of rewrites.
        rewrites: u32,
    },
    /// An unchanged source returns other bytes when it is read again.
    #[error(
        "bytes {range} of {} differ on each read, although the file did not change: its storage device is failing",
        quote(path)
    )]
    SourceUnsteady {
        /// The source.
        path: OsString,
        /// The object.
        range: ByteRange,
    },
    /// A file was not re-read from the device although the options request that (a warning, printed
    /// once per job).
    #[error(
        "warning: {} was not read back from the device: {why} (this may apply to other files)",
        quote(sink)
    )]
    NotReread {
        /// The sink.
        sink: OsString,
        /// The reason.
        why: &'static str,
    },
    /// `--reflink=always`, but the file system cannot clone.
    #[error("failed to clone {} from {}: {}", quote(path), quote(from), cause(source))]
    CloneFailed {
        /// The sink.
        path: OsString,
        /// The source.
        from: OsString,
        /// The cause.
        source: io::Error,
    },
    /// The job was stopped while this file was in progress.
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
        /// The failed action in cp's words: `stat`, `open`, `create regular file`, ...
        action: &'static str,
        /// The path.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// A step on one path failed: `<doing> '<path>': <cause>`.
    #[error("{doing} {}: {}", quote(path), cause(source))]
    Failed {
        /// The failed step in cp's words: `preserving times for`, `target directory`, ...
        doing: &'static str,
        /// The path.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// The kernel rejects the security context of a source for a new file.
    #[error("failed to set default file creation context to {}: {}", quote_word(context), cause(source))]
    ContextRefused {
        /// The context.
        context: OsString,
        /// The cause.
        source: io::Error,
    },
    /// A mode or an access control list could not be set. Like [`CopyError::Failed`], but with the
    /// quotation marks of the user's language, as in cp.
    #[error("{doing} {}: {}", quote_word(path), cause(source))]
    PermissionsFailed {
        /// The failed step.
        doing: &'static str,
        /// The path.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// The source's access control list could not be read.
    #[error("{}: {}", quote_word(path), cause(source))]
    ListUnread {
        /// The source.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// The owner of a symbolic link could not be set.
    #[error("failed to preserve ownership for {}: {}", quote_if_needed(path), cause(source))]
    LinkOwnerFailed {
        /// The link.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// The source could not be opened.
    #[error("cannot open {} for reading: {}", quote(path), cause(source))]
    OpenSource {
        /// The source.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// A link could not be created.
    #[error("cannot create {kind} link {} to {}: {}", quote(path), quote(target), cause(source))]
    LinkFailed {
        /// `hard` or `symbolic`.
        kind: &'static str,
        /// The link.
        path: OsString,
        /// Target of the link.
        target: OsString,
        /// The cause.
        source: io::Error,
    },
    /// A link to an incomplete sink was removed.
    #[error("removed {}, a link to {}, which is incomplete", quote(path), quote(target))]
    LinkUndone {
        /// The link.
        path: OsString,
        /// Target of the link.
        target: OsString,
    },
    /// A line of a batch names nothing to copy, or could not be read.
    #[error("{0}")]
    BatchLine(Box<dyn std::error::Error + Send + Sync>),
    /// An extended attribute could not be preserved.
    #[error("setting attribute {} for {}: {}", quote(name), quote(path), cause(source))]
    XattrFailed {
        /// The attribute, with its namespace.
        name: OsString,
        /// The sink.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// An extended attribute could not be read.
    #[error("getting attribute {} of {}: {}", quote(name), quote(path), cause(source))]
    XattrUnread {
        /// The attribute, with its namespace.
        name: OsString,
        /// The source.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// A refusal: an obstacle at the sink, or a copy without purpose.
    #[error("{0}")]
    Refused(#[from] Refusal),
}

impl CopyError {
    /// Returns the error of the system call, if there was one.
    pub fn io(&self) -> Option<&io::Error> {
        std::error::Error::source(self)?.downcast_ref()
    }

    /// Returns the error for a sink whose owner could not be set.
    pub fn owner_failed(path: OsString, source: io::Error) -> CopyError {
        CopyError::Failed { doing: "failed to preserve ownership for", path, source }
    }

    /// Returns the error for permissions that could not be copied. It names the side that failed.
    pub fn permissions_failed(
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

/// Reason for not copying an entry although every system call would succeed.
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
    /// Source and sink are the same file.
    #[error("{} and {} are the same file", quote(source_path), quote(sink))]
    SameFile {
        /// The source.
        source_path: OsString,
        /// The sink.
        sink: OsString,
    },
    /// The sink is a non-directory where a directory is needed.
    #[error("cannot overwrite non-directory {} with directory {}", quote(sink), quote(source_path))]
    NonDirectory {
        /// The sink.
        sink: OsString,
        /// The source.
        source_path: OsString,
    },
    /// The sink is a directory where a non-directory is needed.
    #[error("cannot overwrite directory {} with non-directory", quote(.0))]
    Directory(OsString),
    /// The sink exists and may not be replaced.
    #[error("not replacing {}", quote(.0))]
    NotReplacing(OsString),
    /// The entry is the waybill that this job writes.
    #[error("cannot copy or overwrite {}: it is the waybill of this job", quote(.0))]
    OwnWaybill(OsString),
    /// An earlier operand of this command already created the sink.
    #[error("will not overwrite just-created {} with {}", quote(sink), quote(source_path))]
    JustCreated {
        /// The sink.
        sink: OsString,
        /// The source.
        source_path: OsString,
    },
    /// The sink is another name of a file that this job wrote from another source. The job verifies
    /// or records that file.
    #[error(
        "cannot copy {} to {}: the destination is the same file as {}, which this command already wrote",
        quote(source_path),
        quote(sink),
        quote(earlier)
    )]
    WrittenBefore {
        /// The source.
        source_path: OsString,
        /// The sink.
        sink: OsString,
        /// The name under which the file was written.
        earlier: OsString,
    },
    /// An earlier operand of this command created a link that this operand would be written
    /// through.
    #[error("will not copy {} through just-created symlink {}", quote(source_path), quote(sink))]
    ThroughJustCreated {
        /// The source.
        source_path: OsString,
        /// The sink.
        sink: OsString,
    },
    /// The sink is inside the source.
    #[error("cannot copy a directory, {}, into itself, {}", quote(source_path), quote(sink))]
    IntoItself {
        /// The source, as the command named it.
        source_path: OsString,
        /// The sink of that operand.
        sink: OsString,
    },
    /// The directory was already copied under another name.
    #[error("will not create hard link {} to directory {}", quote(sink), quote(earlier))]
    LinkToDirectory {
        /// The sink.
        sink: OsString,
        /// Its first copy.
        earlier: OsString,
    },
    /// A followed link leads to a directory that contains the link.
    #[error("cannot copy cyclic symbolic link {}", quote(.0))]
    Cyclic(OsString),
    /// `-s` with a relative source and a sink in another directory.
    #[error("{}: can make relative symbolic links only in current directory", quote_if_needed(.0))]
    RelativeLink(OsString),
    /// The source is the file that the sink's backup would replace.
    #[error("backing up {} might destroy source;  {} not copied", quote(sink), quote(source_path))]
    BackupIsSource {
        /// The sink.
        sink: OsString,
        /// The source.
        source_path: OsString,
    },
    /// The source was replaced a moment ago.
    #[error("skipping file {}, as it was replaced while being copied", quote(.0))]
    Replaced(OsString),
    /// The sink is a dangling link.
    #[error("not writing through dangling symlink {}", quote(.0))]
    DanglingSink(OsString),
    /// The type of the source is unknown to this program.
    #[error("{} has unknown file type", quote(.0))]
    UnknownKind(OsString),
    /// `--parents` would need a directory where a file exists.
    #[error("{} exists but is not a directory", quote(.0))]
    ParentIsFile(OsString),
}

/// Returns an error's text in the C library's wording, without Rust's `(os error N)`.
pub fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
