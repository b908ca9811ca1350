//! What a checksum job is asked to do, with nothing left open.

use crate::waybill::LeafStore;
use haul_digest::{Algebra, Algorithm};
use haul_model::{ByteLen, ObjectIndex, ObjectSize, limits};
use haul_plan::Pace;
use std::sync::{Arc, Mutex};

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
    /// Where a file can't be read past the page cache, make it durable and drop it from the cache before it is read.
    pub drop_before: bool,
    /// The most bytes a second that all workers read together.
    pub pace: Option<Arc<Mutex<Pace>>>,
    /// Where the leaves of files wait of which objects are kept; `None` where leaves are not.
    pub leaves: Option<Arc<LeafStore>>,
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
    /// The digest of the bytes; and of the first algorithm, which is BLAKE3, those of the objects as well.
    Objects {
        /// The size of an object, whatever [`Settings::object`] says.
        size: ObjectSize,
        /// Read only some of the objects, and make none of the digests of the whole.
        sample: Option<Sample>,
    },
    /// The root of a hash tree, as mutil's msum makes it.
    Tree {
        /// Bytes in a leaf; never 0.
        leaf: ByteLen,
        /// Keep the roots of the subtrees over this many bytes as well: the leaf times a power of two.
        subtree: Option<ByteLen>,
    },
}

/// Which objects of a file are read, by chance that a seed decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The share of all objects, from 0 to 1.
    pub share: f64,
    /// Another seed picks other objects; of each file its own.
    pub seed: u64,
}

// The share is a number, never NaN: it equals itself.
impl Eq for Sample {}

impl Sample {
    /// Whether an object is picked.
    pub fn picks(self, object: ObjectIndex) -> bool {
        // SplitMix64 over the place: neighbours fall independently.
        let mut x = self.seed ^ object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = ((x ^ x >> 31) >> 11) as f64 / (1u64 << 53) as f64;
        unit < self.share
    }
}

impl Recipe {
    /// Whether the pieces of one file may be hashed apart: trees always, plain digests if all of them combine.
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
    /// Whole files with as many workers as this process may run at once.
    pub fn new() -> Settings {
        Settings::for_workers(haul_sys::process::cpu_count().min(limits::WORKERS_MAX))
    }

    /// Whole files with so many workers, at least 1.
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

    /// Whole files past the page cache, where every read waits for the device: for each processor
    /// [`DIRECT_READERS`] workers unless so many are asked for, at least 1, so that it has work while some of them hash; and
    /// long reads.
    pub fn from_device(workers: Option<usize>) -> Settings {
        let suits = haul_sys::process::cpu_count().saturating_mul(DIRECT_READERS);
        let workers = workers.unwrap_or(suits).clamp(1, limits::WORKERS_MAX);
        let share = BLOCKS_BYTES_MAX / workers / 4096 * 4096;
        let block_bytes = share.clamp(BLOCK_BYTES_MIN, DIRECT_BLOCK_BYTES);
        Settings { direct: true, drop_before: true, block_bytes, ..Settings::for_workers(workers) }
    }

    /// Bytes of one read that suit so many workers: [`BLOCK_BYTES`], or less where the blocks of all of them would
    /// take more than [`BLOCKS_BYTES_MAX`]; never below 128 KiB.
    pub fn block_bytes_for(workers: usize) -> usize {
        let share = BLOCKS_BYTES_MAX / workers.max(1) / 4096 * 4096;
        share.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings::new()
    }
}

/// Bytes of one read unless the user chose otherwise. The kernel spends less time on a byte of a long read, and a
/// block this size still fits the second-level cache when it is hashed. On a Zen 4 with two workers, 4 GiB of page
/// cache take, with blocks of 128 KiB, 256 KiB, 512 KiB, 1 MiB and 2 MiB: CRC-32 0.30, 0.27, 0.25, 0.23 and 0.22 s,
/// BLAKE3 0.56, 0.55, 0.54, 0.52 and 0.52 s.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Workers for each processor where reads go past the page cache.
const DIRECT_READERS: usize = 2;

/// Bytes of one read past the page cache: nothing reads ahead there, so a request is what the device has to work on.
const DIRECT_BLOCK_BYTES: usize = 4 << 20;

/// Bytes that the blocks of all workers may take together before each gets a smaller one.
pub const BLOCKS_BYTES_MAX: usize = 16 << 20;

/// The smallest block that many workers are left with.
const BLOCK_BYTES_MIN: usize = 128 << 10;

/// Bytes each file has in the buffer of a worker that hashes several files side by side. Of 32 KiB, 64 KiB, 128 KiB
/// and 256 KiB it was the fastest for MD5, SHA-1 and SHA-2 over 64 files of 16 MiB: longer reads cost less than the
/// first-level cache, which no such buffer fits anyway, could give back.
pub const LANE_BLOCK_BYTES: usize = 128 << 10;

/// Subtrees of one file whose roots are kept, for each algorithm: 2^20 digests of 66 bytes are 66 MiB.
pub const PARTS_MAX: u64 = 1 << 20;

/// Leaves of a tree that a worker hashes before it hands their digests in: a bound on its memory where leaves are tiny.
pub const LEAVES_PER_PIECE_MAX: u64 = 1 << 14;

/// Files and objects whose results may wait for one before them. Bounds the memory for names and digests.
pub const WINDOW: u64 = 4096;

/// Entries a worker takes from the walk at a time.
pub const ENTRIES_PER_TURN: usize = 16;

const _: () = assert!(BLOCK_BYTES.is_multiple_of(4096) && LANE_BLOCK_BYTES.is_multiple_of(4096));
const _: () = assert!(DIRECT_BLOCK_BYTES.is_multiple_of(4096));
const _: () = assert!(BLOCK_BYTES_MIN.is_multiple_of(4096) && BLOCK_BYTES_MIN <= BLOCK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_the_device_take_long_reads_and_little_memory() {
        for workers in [1, 2, 3, 4, 16, 128] {
            let settings = Settings::from_device(Some(workers));
            assert!(settings.direct && settings.drop_before && settings.workers == workers);
            assert!(settings.block_bytes.is_multiple_of(4096) && settings.block_bytes <= DIRECT_BLOCK_BYTES);
            assert!(workers * settings.block_bytes <= BLOCKS_BYTES_MAX, "{workers}");
        }
        assert_eq!(Settings::from_device(Some(4)).block_bytes, 4 << 20);
        assert_eq!(Settings::from_device(Some(limits::WORKERS_MAX)).block_bytes, 128 << 10, "never less");
        assert!(Settings::from_device(None).workers > 1, "one hashes while another reads");
    }
}
