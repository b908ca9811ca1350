//! Input and output types of a checksum job.

use super::input::stat_file;
use super::settings::Recipe;
use crate::waybill::LeafSums;
use haul_digest::{Digest, FileSum, ObjectTable};
use haul_model::{ByteLen, ByteOffset, ByteRange};
use haul_storage::{Dir, Follow, Name, Stat};
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// Source of orders: operands, a directory tree, or the lines of a list. Only one worker calls it
/// at a time.
pub trait Orders: Send {
    /// Value that is returned with the result, in the same order.
    type Ticket: Send;

    /// Returns the next order; `None` at the end.
    fn next(&mut self) -> Option<Order<Self::Ticket>>;

    /// Returns true if [`Orders::next`] can return without waiting for an external process, such as
    /// the writer of a pipe.
    fn ready(&self) -> bool {
        true
    }
}

/// One order of the job.
#[derive(Debug)]
pub struct Order<T> {
    /// Identification of the result for the caller.
    pub ticket: T,
    /// Work of the order.
    pub work: Work,
}

/// Work of an order.
#[derive(Debug)]
pub enum Work {
    /// Hash this task.
    Hash(Task),
    /// No work: the ticket only takes its position among the results.
    Nothing,
    /// No work: the source has already failed.
    Failed(SumError),
}

/// File, or a part of it, to hash.
#[derive(Clone, Debug)]
pub struct Task {
    /// Source of the bytes.
    pub source: Source,
    /// Digests to compute.
    pub recipe: Arc<Recipe>,
    /// Offset of the first byte to hash.
    pub offset: ByteOffset,
    /// Maximum number of bytes to hash; `None` for the rest of the source.
    pub length: Option<ByteLen>,
}

/// Source of bytes.
#[derive(Clone, Debug)]
pub enum Source {
    /// Path, absolute or relative to the working directory. Links are followed; pipes and devices
    /// are read to their end.
    Path(OsString),
    /// Path that another party names, such as a list: like [`Source::Path`], but a named pipe is
    /// refused, because the wait for its writer may never end.
    Named(OsString),
    /// Name in an open directory; a link is not followed, and a named pipe is refused.
    Beneath(Arc<dyn Dir>, Name),
    /// Path beneath an open directory, as [`Source::Named`]; a path and links that lead out of the
    /// directory are refused.
    Within(Arc<dyn Dir>, OsString),
    /// Standard input.
    Stdin,
    /// Standard input again, after an earlier order has read it to its end.
    StdinAgain,
}

impl Source {
    /// Returns true if the source can be opened again and read from its start.
    pub fn can_be_reopened(&self) -> bool {
        !matches!(self, Source::Stdin | Source::StdinAgain)
    }

    /// Returns the metadata of a source of a walk that is about to be read; `None` for the sources
    /// that no walk finds.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    pub(crate) fn stat(&self) -> io::Result<Option<Stat>> {
        match self {
            Source::Path(path) | Source::Named(path) => stat_file(path).map(Some),
            Source::Beneath(dir, name) => dir.stat_at(name, Follow::No).map(Some),
            Source::Within(..) | Source::Stdin | Source::StdinAgain => Ok(None),
        }
    }
}

/// Result for one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Range of bytes that was hashed.
    pub range: ByteRange,
    /// True if the file has bytes outside that range.
    pub partial: bool,
    /// One digest for each algorithm of the recipe, in the same order.
    pub digests: Vec<Digest>,
    /// Number of leaves of the tree; 1 for a plain digest.
    pub leaves: u64,
    /// Roots of the requested subtrees, for each algorithm; empty otherwise.
    pub subtrees: Vec<Vec<Digest>>,
    /// Digests of the objects, if the recipe requests them and there is more than one.
    pub objects: Option<ObjectTable>,
    /// Digests of the leaves of the objects, if the job keeps them.
    pub leaf_sums: Option<Arc<LeafSums>>,
    /// Metadata of a regular file before its first byte was read.
    pub facts: Option<Box<Stat>>,
}

impl Sums {
    /// Creates the result for a range without digests.
    pub(super) fn new(range: ByteRange, partial: bool, leaves: u64) -> Sums {
        Sums {
            range,
            partial,
            digests: Vec::new(),
            leaves,
            subtrees: Vec::new(),
            objects: None,
            leaf_sums: None,
            facts: None,
        }
    }

    /// Sets the digests of a complete range, with the objects and subtrees that they keep.
    pub(super) fn set_digests(&mut self, columns: Vec<FileSum>) {
        for FileSum { digest, objects, kept } in columns {
            self.digests.extend(digest);
            self.objects = self.objects.take().or(objects);
            if !kept.is_empty() {
                self.subtrees.push(kept);
            }
        }
    }
}

/// Outcome of an order.
#[derive(Debug)]
pub enum Outcome {
    /// The digests.
    Done(Sums),
    /// No digests, for this reason.
    Failed(SumError),
    /// The order had no work.
    Nothing,
}

/// Reason why a file has no digest.
#[derive(Debug, Error)]
pub enum SumError {
    /// The file could not be opened.
    #[error("{}", reason(.0))]
    Open(#[source] io::Error),
    /// The file is a directory.
    #[error("Is a directory")]
    Directory,
    /// The file is a named pipe or a socket, whose bytes are no contents to check.
    #[error("not a regular file")]
    NotRegular,
    /// A symbolic link leads out of the directory of the source.
    #[error("a symbolic link leads out of the directory")]
    LeadsOut,
    /// A read failed.
    #[error("{}", reason(.source))]
    Read {
        /// Offset of the first byte that could not be read.
        at: ByteOffset,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The size or modification time of the file changed during the read.
    #[error("file changed as we read it")]
    Changed,
    /// The change time of the file moved during every read. The bytes may have changed if the
    /// modification time was set back.
    #[error("file changed as we read it")]
    MayHaveChanged,
    /// A directory could not be listed.
    #[error("{}", reason(.0))]
    List(#[source] io::Error),
    /// The recipe requests more subtrees than a job keeps.
    #[error("too many parts: {count} exceed the limit of {most}; choose larger parts")]
    TooManyParts {
        /// Number of parts of the file, as far as it was read.
        count: u64,
        /// Maximum number of parts.
        most: u64,
    },
    /// The pieces do not cover the file: an internal error.
    #[error("cannot combine the pieces of the file: {0}")]
    Assembly(String),
    /// The job was stopped before it read the file.
    #[error("stopped before the file was read")]
    Stopped,
}

/// Returns the error text of the kernel, without the number that the standard library appends.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) if error.raw_os_error().is_some() => text[..at].to_owned(),
        _ => text,
    }
}
