//! Errors of a move, with mv's wording.

use haul_engine::copy::{cause, quote};
use std::ffi::OsString;
use std::io;
use thiserror::Error;

/// A failure about one name. `Display` prints mv's wording without the tool's name.
#[derive(Debug, Error)]
pub enum MoveError {
    /// A system call on one path failed: `cannot <action> '<path>': <cause>`.
    #[error("cannot {action} {}: {}", quote(path), cause(source))]
    Cannot {
        /// The failed action: `stat`, `backup`, `remove`, ...
        action: &'static str,
        /// The path.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// The target of the operands is not a usable directory.
    #[error("target {}{}: {}", if *.is_given { "directory " } else { "" }, quote(path), cause(source))]
    Target {
        /// The path, as typed.
        path: OsString,
        /// True if it was named by `-t`.
        is_given: bool,
        /// The cause.
        source: io::Error,
    },
    /// The rename failed, and a copy would not help.
    #[error("cannot move {} to {}: {}", quote(path), quote(sink), cause(source))]
    Rename {
        /// The source.
        path: OsString,
        /// The sink.
        sink: OsString,
        /// The cause.
        source: io::Error,
    },
    /// `--exchange`: the two names could not be exchanged.
    #[error("cannot exchange {} and {}: {}", quote(path), quote(sink), cause(source))]
    Exchange {
        /// The source.
        path: OsString,
        /// The sink.
        sink: OsString,
        /// The cause.
        source: io::Error,
    },
    /// A directory would be inside itself.
    #[error("cannot move {} to a subdirectory of itself, {}", quote(path), quote(sink))]
    IntoItself {
        /// The source.
        path: OsString,
        /// The sink.
        sink: OsString,
    },
    /// A directory that was not moved was named again, with another sink.
    #[error("will not create hard link {} to directory {}", quote(sink), quote(earlier))]
    LinkToDirectory {
        /// The sink.
        sink: OsString,
        /// The first sink of the directory.
        earlier: OsString,
    },
    /// Source and sink are the same file.
    #[error("{} and {} are the same file", quote(path), quote(sink))]
    SameFile {
        /// The source.
        path: OsString,
        /// The sink.
        sink: OsString,
    },
    /// The sink is a non-directory where a directory is needed.
    #[error("cannot overwrite non-directory {} with directory {}", quote(sink), quote(path))]
    NonDirectory {
        /// The sink.
        sink: OsString,
        /// The source.
        path: OsString,
    },
    /// The sink is a directory where a non-directory is needed.
    #[error("cannot overwrite directory {} with non-directory", quote(.0))]
    Directory(OsString),
    /// An earlier operand of this command already created the sink.
    #[error("will not overwrite just-created {} with {}", quote(sink), quote(path))]
    JustCreated {
        /// The sink.
        sink: OsString,
        /// The source.
        path: OsString,
    },
    /// The source is the file that the sink's backup would replace.
    #[error("backing up {} might destroy source;  {} not moved", quote(sink), quote(path))]
    BackupIsSource {
        /// The sink.
        sink: OsString,
        /// The source.
        path: OsString,
    },
    /// The sink exists, and `--update=none-fail` is set.
    #[error("not replacing {}", quote(.0))]
    NotReplacing(OsString),
    /// The existing sink cannot be removed for a copy from another file system.
    #[error(
        "inter-device move failed: {} to {}; unable to remove target: {}",
        quote(path),
        quote(sink),
        cause(source)
    )]
    TargetStays {
        /// The source.
        path: OsString,
        /// The sink.
        sink: OsString,
        /// The cause.
        source: io::Error,
    },
    /// The copies could not be synced, so nothing was removed.
    #[error("cannot sync {}: {}; no source was removed", quote(path), cause(source))]
    NotDurable {
        /// The directory of the copies.
        path: OsString,
        /// The cause.
        source: io::Error,
    },
    /// The source has changed since it was copied.
    #[error(
        "cannot remove {}: it changed after it was copied to {}; move it again",
        quote(path),
        quote(sink)
    )]
    Changed {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
    },
    /// The copy differs from the source.
    #[error("cannot remove {}: its copy {} differs in {what}", quote(path), quote(sink))]
    Differs {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
        /// The property that differs.
        what: &'static str,
    },
    /// The source has no copy, because it was created after the copying.
    #[error("cannot remove {}: cannot access its copy {}: {}", quote(path), quote(sink), cause(source))]
    NoCopy {
        /// The source.
        path: OsString,
        /// The expected path of its copy.
        sink: OsString,
        /// The error of the stat call for the copy.
        source: io::Error,
    },
    /// The name of a directory that a tool must not remove.
    #[error("refusing to remove '.' or '..' directory: skipping {}", quote(.0))]
    DotDirectory(OsString),
}
