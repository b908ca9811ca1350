//! What can go wrong with a move, in the words of mv.

use crate::copy::{cause, quote};
use std::ffi::OsString;
use std::io;
use thiserror::Error;

/// A failure about one name. `Display` gives mv's words without the tool's name.
#[derive(Debug, Error)]
pub enum MoveError {
    /// A system call on one path failed: `cannot <action> '<path>': <cause>`.
    #[error("cannot {action} {}: {}", quote(path), cause(source))]
    Cannot {
        /// What was tried: `stat`, `backup`, `remove`, ...
        action: &'static str,
        /// On what.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// Where the operands were to go is no directory that can be used.
    #[error("target {}{}: {}", if *.is_given { "directory " } else { "" }, quote(path), cause(source))]
    Target {
        /// As typed.
        path: OsString,
        /// It was named by `-t`.
        is_given: bool,
        /// Why.
        source: io::Error,
    },
    /// The rename failed, and a copy would be no answer.
    #[error("cannot move {} to {}: {}", quote(path), quote(sink), cause(source))]
    Rename {
        /// The source.
        path: OsString,
        /// The sink.
        sink: OsString,
        /// Why.
        source: io::Error,
    },
    /// `--exchange`: the two names could not change places.
    #[error("cannot exchange {} and {}: {}", quote(path), quote(sink), cause(source))]
    Exchange {
        /// The source.
        path: OsString,
        /// The sink.
        sink: OsString,
        /// Why.
        source: io::Error,
    },
    /// A directory would lie in itself.
    #[error("cannot move {} to a subdirectory of itself, {}", quote(path), quote(sink))]
    IntoItself {
        /// The source.
        path: OsString,
        /// The sink.
        sink: OsString,
    },
    /// A directory that stayed where it is was named once more, to get another name.
    #[error("will not create hard link {} to directory {}", quote(sink), quote(earlier))]
    LinkToDirectory {
        /// The sink.
        sink: OsString,
        /// What it was to become at first.
        earlier: OsString,
    },
    /// Source and sink are one.
    #[error("{} and {} are the same file", quote(path), quote(sink))]
    SameFile {
        /// The source.
        path: OsString,
        /// The sink.
        sink: OsString,
    },
    /// The sink is a file where a directory should be.
    #[error("cannot overwrite non-directory {} with directory {}", quote(sink), quote(path))]
    NonDirectory {
        /// The sink.
        sink: OsString,
        /// The source.
        path: OsString,
    },
    /// The sink is a directory where something else should be.
    #[error("cannot overwrite directory {} with non-directory", quote(.0))]
    Directory(OsString),
    /// An earlier operand of this command became that sink.
    #[error("will not overwrite just-created {} with {}", quote(sink), quote(path))]
    JustCreated {
        /// The sink.
        sink: OsString,
        /// The source.
        path: OsString,
    },
    /// The source is the name the sink's backup would get.
    #[error("backing up {} might destroy source;  {} not moved", quote(sink), quote(path))]
    BackupIsSource {
        /// The sink.
        sink: OsString,
        /// The source.
        path: OsString,
    },
    /// `--update=none-fail` met an existing sink.
    #[error("not replacing {}", quote(.0))]
    NotReplacing(OsString),
    /// What stands at the sink can't make way for a copy from another file system.
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
        /// Why.
        source: io::Error,
    },
    /// The copies could not be made durable: nothing was removed.
    #[error("cannot make {} durable, so that nothing was removed: {}", quote(path), cause(source))]
    NotDurable {
        /// Where the copies are.
        path: OsString,
        /// Why.
        source: io::Error,
    },
    /// The source has moved on since it was copied.
    #[error("{} changed after it was copied to {}, and stays; move it again", quote(path), quote(sink))]
    Changed {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
    },
    /// The copy lacks something that the source has.
    #[error("{} stays: its copy {} differs in {what}", quote(path), quote(sink))]
    Differs {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
        /// What differs.
        what: &'static str,
    },
    /// The source has no copy: it came after the copying.
    #[error("{} stays: it has no copy {}: {}", quote(path), quote(sink), cause(source))]
    NoCopy {
        /// The source.
        path: OsString,
        /// Where its copy should be.
        sink: OsString,
        /// What a look there gave.
        source: io::Error,
    },
    /// The name of a directory that a tool must not remove.
    #[error("refusing to remove '.' or '..' directory: skipping {}", quote(.0))]
    DotDirectory(OsString),
}
