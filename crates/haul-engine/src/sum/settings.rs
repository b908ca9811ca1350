//! Resolved settings of a checksum job.

use crate::pipeline::Reads;
use crate::waybill::LeafStore;
use haul_digest::{Algebra, Algorithm, DigestSpec};
use haul_model::{ByteLen, LeafSize, ObjectIndex, ObjectSize, limits};
use haul_plan::Pace;
use parking_lot::Mutex;
use std::sync::Arc;

/// Settings for reads and workers, the same for every file.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of worker threads, 1 to [`limits::WORKERS_MAX`].
    pub workers: usize,
    /// Size of one read when a worker hashes one file or object, in bytes; a positive multiple of
    /// 4,096.
    pub block_bytes: usize,
    /// Size of the pieces in which workers share a file.
    pub object: ObjectSize,
    /// True to read past the page cache if the file system supports it.
    pub direct: bool,
    /// True to announce sequential reads to the kernel, and to drop the read data from the page
    /// cache.
    pub drop_behind: bool,
    /// True to sync a file and drop it from the page cache before the read, if it cannot be read
    /// past the cache.
    pub drop_before: bool,
    /// Rate limit for all workers together, in bytes per second.
    pub pace: Option<Arc<Mutex<Pace>>>,
    /// Store for the leaves of files whose objects are kept; `None` if leaves are not kept.
    pub leaves: Option<Arc<LeafStore>>,
}

/// Digests to compute for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Algorithms, each for one digest, in this order. Never empty.
    pub algorithms: Vec<Algorithm>,
    /// Form of the digests: plain or hash tree.
    pub form: Form,
}

/// Form of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Digest of the bytes.
    Plain,
    /// Digest of the bytes. In addition, digests of the objects by the first algorithm, which is
    /// BLAKE3.
    Objects {
        /// Object size, independent of [`Settings::object`].
        size: ObjectSize,
        /// Read only a sample of the objects, and compute no digest of the whole file.
        sample: Option<Sample>,
    },
    /// Root of a hash tree in the form of mutil's msum.
    Tree {
        /// Leaf size, in bytes; never 0.
        leaf: ByteLen,
        /// Size of subtrees whose roots are kept as well, in bytes: the leaf size times a power of
        /// two.
        subtree: Option<ByteLen>,
    },
}

/// Pseudo-random sample of the objects of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Share of all objects, from 0 to 1.
    pub share: f64,
    /// Seed of the selection; each file has its own.
    pub seed: u64,
}

// The share is a number, never NaN, so it equals itself.
impl Eq for Sample {}

impl Sample {
    /// Returns true if the sample contains an object.
    pub fn picks(self, object: ObjectIndex) -> bool {
        // SplitMix64 over the index: the selection of adjacent objects is independent.
        let mut x = self.seed ^ object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = ((x ^ x >> 31) >> 11) as f64 / (1u64 << 53) as f64;
        unit < self.share
    }
}

impl Recipe {
    /// Returns the digests of one file. With `leaf`, the leaves of objects are hashed too.
    pub(super) fn digests(&self, leaf: Option<LeafSize>) -> haul_digest::Recipe {
        let spec = |(number, &algorithm): (usize, &Algorithm)| {
            let form = match self.form {
                Form::Objects { .. } if number == 0 => haul_digest::Form::Objects { leaf },
                Form::Plain | Form::Objects { .. } => haul_digest::Form::Plain,
                Form::Tree { leaf, subtree } => haul_digest::Form::Tree { leaf, keep: subtree },
            };
            DigestSpec::new(algorithm, form)
        };
        haul_digest::Recipe::new(self.algorithms.iter().enumerate().map(spec))
    }

    /// Returns true if the pieces of one file can be hashed independently: always for trees, and
    /// for plain digests if all of them combine.
    pub fn splits(&self) -> bool {
        match self.form {
            Form::Tree { .. } => true,
            Form::Plain | Form::Objects { .. } => {
                self.algorithms.iter().all(|alg| alg.algebra() == Algebra::Combines)
            }
        }
    }
}

impl Settings {
    /// Returns settings for whole files, with as many workers as this process may run in parallel.
    pub fn new() -> Settings {
        Settings::for_workers(haul_sys::process::cpu_count().min(limits::WORKERS_MAX))
    }

    /// Returns settings for whole files with the given number of workers, which must be at least 1.
    pub fn for_workers(workers: usize) -> Settings {
        Settings {
            workers,
            block_bytes: Settings::block_bytes_for(workers),
            object: ObjectSize::DEFAULT,
            direct: false,
            drop_behind: false,
            drop_before: false,
            pace: None,
            leaves: None,
        }
    }

    /// Returns settings for whole files past the page cache, where every read waits for the device.
    ///
    /// Uses long reads, and by default [`DIRECT_READERS`] workers for each processor, so that the
    /// device has work while some workers hash. A given number of workers is raised to at least 1.
    pub fn from_device(workers: Option<usize>) -> Settings {
        let suits = haul_sys::process::cpu_count().saturating_mul(DIRECT_READERS);
        let workers = workers.unwrap_or(suits).clamp(1, limits::WORKERS_MAX);
        let block_bytes = Reads::Direct.bytes_for(workers);
        Settings { direct: true, drop_before: true, block_bytes, ..Settings::for_workers(workers) }
    }

    /// Returns the size of a read through the page cache of each of some workers, in bytes.
    pub fn block_bytes_for(workers: usize) -> usize {
        Reads::Cached.bytes_for(workers)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings::new()
    }
}

/// Number of workers for each processor when reads bypass the page cache.
const DIRECT_READERS: usize = 2;

/// Maximum number of kept subtree roots of one file, for each algorithm.
pub const PARTS_MAX: u64 = haul_digest::KEPT_MAX;

/// Maximum number of leaves that a worker hashes before it returns their digests. Bounds its memory
/// if leaves are tiny.
pub const LEAVES_PER_PIECE_MAX: u64 = 1 << 14;

/// Maximum number of files and objects whose results wait for an earlier one. Bounds the memory for
/// names and digests.
pub const WINDOW: u64 = 4096;

/// Number of entries that a worker takes from the walk at a time.
pub const ENTRIES_PER_TURN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_readers_use_long_reads_within_the_memory_limit() {
        for workers in [1, 2, 3, 4, 16, 128] {
            let settings = Settings::from_device(Some(workers));
            assert!(settings.direct && settings.drop_before && settings.workers == workers);
            assert!(settings.block_bytes.is_multiple_of(4096) && settings.block_bytes <= 4 << 20);
            assert!(workers * settings.block_bytes <= 16 << 20, "{workers}");
        }
        assert_eq!(Settings::from_device(Some(4)).block_bytes, 4 << 20);
        assert_eq!(Settings::from_device(Some(limits::WORKERS_MAX)).block_bytes, 128 << 10, "never less");
        assert!(Settings::from_device(None).workers > 1, "one hashes while another reads");
    }
}
