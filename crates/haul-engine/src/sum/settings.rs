//! What a checksum job is asked to do, with nothing left open.

use haul_digest::{Algebra, Algorithm};
use haul_model::{ByteLen, ObjectSize, limits};

/// How the job reads and how many hands it has. The same for every file.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Worker threads, 1 to [`limits::WORKERS_MAX`].
    pub workers: usize,
    /// Bytes of one read where a worker hashes one file or object; a positive multiple of 4,096.
    pub block_bytes: usize,
    /// The pieces in which workers share a file.
    pub object: ObjectSize,
    /// Read past the page cache where the file system can.
    pub direct: bool,
    /// Tell the kernel that files are read from start to end, and to drop what was read from the page cache.
    pub drop_behind: bool,
}

/// What is computed of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// One digest is made for each, in this order. Never empty.
    pub algorithms: Vec<Algorithm>,
    /// Plain digests or those of a hash tree.
    pub form: Form,
}

/// The form of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The digest of the bytes.
    Plain,
    /// The root of a hash tree, as mutil's msum makes it.
    Tree {
        /// Bytes in a leaf; never 0.
        leaf: ByteLen,
        /// Keep the roots of the subtrees over this many bytes as well: the leaf times a power of two.
        subtree: Option<ByteLen>,
    },
}

impl Recipe {
    /// Whether the pieces of one file may be hashed apart: trees always, plain digests if all of them combine.
    pub fn splits(&self) -> bool {
        match self.form {
            Form::Tree { .. } => true,
            Form::Plain => self.algorithms.iter().all(|alg| alg.algebra() == Algebra::Combines),
        }
    }
}

impl Settings {
    /// Whole files with as many workers as this process may run at once.
    pub fn new() -> Settings {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Settings {
            workers: workers.min(limits::WORKERS_MAX),
            block_bytes: BLOCK_BYTES,
            object: ObjectSize::DEFAULT,
            direct: false,
            drop_behind: false,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings::new()
    }
}

/// Bytes of one read unless the user chose otherwise: a block this size is still in the second-level cache when it
/// is hashed. Of 64 KiB, 128 KiB, 256 KiB, 512 KiB and 1 MiB it was the fastest for BLAKE3 on a Zen 4 with two workers.
pub const BLOCK_BYTES: usize = 128 << 10;

/// Bytes each file has in the buffer of a worker that hashes several files side by side. 32 files of 32 KiB are
/// 1 MiB, what the second-level cache of a current core holds.
pub const LANE_BLOCK_BYTES: usize = 32 << 10;

/// Files and objects whose results may wait for one before them. Bounds the memory for names and digests.
pub const WINDOW: u64 = 4096;

/// Entries a worker takes from the walk at a time.
pub const ENTRIES_PER_TURN: usize = 16;

const _: () = assert!(BLOCK_BYTES.is_multiple_of(4096) && LANE_BLOCK_BYTES.is_multiple_of(4096));
