//! What goes into a checksum job and what comes out of it.

use super::settings::Recipe;
use crate::waybill::{LeafSums, ObjectSums};
use haul_digest::Digest;
use haul_model::{ByteLen, ByteOffset, ByteRange};
use haul_sys::Stat;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thiserror::Error;

/// Where orders come from: operands, a walked tree, the lines of a list. Asked by one worker at a time.
pub trait Orders: Send {
    /// What comes back with the result, in the same order.
    type Ticket: Send;

    /// The next order; `None` once there are no more.
    fn next(&mut self) -> Option<Order<Self::Ticket>>;

    /// Whether [`Orders::next`] can answer without waiting for someone outside, such as the writer of a pipe.
    fn ready(&self) -> bool {
        true
    }
}

/// One step of the job.
#[derive(Debug)]
pub struct Order<T> {
    /// What the caller wants to know the result by.
    pub ticket: T,
    /// What to do.
    pub work: Work,
}

/// What an order asks for.
#[derive(Debug)]
pub enum Work {
    /// Hash this.
    Hash(Task),
    /// Nothing: the ticket alone takes its place among the results.
    Nothing,
    /// Nothing: the source already failed.
    Failed(SumError),
}

/// One file, or a part of it, to be hashed.
#[derive(Clone, Debug)]
pub struct Task {
    /// Where the bytes are.
    pub source: Source,
    /// Which digests are wanted.
    pub recipe: Arc<Recipe>,
    /// The first byte to hash.
    pub offset: ByteOffset,
    /// Most bytes to hash; `None` for all that follow.
    pub length: Option<ByteLen>,
}

/// Where bytes come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A path, absolute or from the working directory. Links are followed; pipes and devices are read to their end.
    Path(OsString),
    /// A name found in an open directory; a link there is not followed.
    Beneath(Arc<OwnedFd>, CString),
    /// The standard input.
    Stdin,
    /// The standard input once more, after an earlier order has read it to its end.
    StdinAgain,
}

impl Source {
    /// Returns true if it can be opened again and read from its beginning.
    pub(super) fn can_be_reopened(&self) -> bool {
        matches!(self, Source::Path(_) | Source::Beneath(..))
    }
}

/// The result for one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// The bytes that were hashed.
    pub range: ByteRange,
    /// Whether the file holds bytes outside that range.
    pub partial: bool,
    /// One digest for each algorithm of the recipe, in its order.
    pub digests: Vec<Digest>,
    /// Leaves of the tree; 1 for a plain digest.
    pub leaves: u64,
    /// The roots of the subtrees that the recipe asked for, for each algorithm; else empty.
    pub subtrees: Vec<Vec<Digest>>,
    /// The digests of the objects, where the recipe asked for them and there is more than one.
    pub objects: Option<ObjectSums>,
    /// Those of their leaves, where the job keeps them.
    pub leaf_sums: Option<Arc<LeafSums>>,
    /// What the file system said of a regular file before its first byte was read.
    pub facts: Option<Box<Stat>>,
}

/// What became of an order.
#[derive(Debug)]
pub enum Outcome {
    /// The digests.
    Done(Sums),
    /// There are none, and why.
    Failed(SumError),
    /// The order asked for nothing.
    Nothing,
}

/// Why a file has no digest.
#[derive(Debug, Error)]
pub enum SumError {
    /// It could not be opened.
    #[error("{}", reason(.0))]
    Open(#[source] io::Error),
    /// It is a directory.
    #[error("Is a directory")]
    Directory,
    /// A read failed.
    #[error("{}", reason(.source))]
    Read {
        /// The first byte that could not be read.
        at: ByteOffset,
        /// What the kernel said.
        source: io::Error,
    },
    /// Its size or modification time changed while it was read.
    #[error("file changed as we read it")]
    Changed,
    /// Its change time moved while it was read, each time that it was read: perhaps its bytes did, and the modification time was set back.
    #[error("file changed as we read it")]
    MayHaveChanged,
    /// A directory could not be listed.
    #[error("{}", reason(.0))]
    List(#[source] io::Error),
    /// More subtrees are asked for than are kept at once.
    #[error("{count} parts are more than the {most} that are kept; choose larger ones")]
    TooManyParts {
        /// Parts of the file, as far as it was read.
        count: u64,
        /// How many may be kept.
        most: u64,
    },
    /// The pieces did not make the file: a fault of this program.
    #[error("the pieces of the file don't fit together: {0}")]
    Assembly(String),
    /// The job was told to stop before the file's turn came.
    #[error("stopped before it was read")]
    Stopped,
}

/// The kernel's word for an error, without the number that the standard library appends.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) if error.raw_os_error().is_some() => text[..at].to_owned(),
        _ => text,
    }
}
