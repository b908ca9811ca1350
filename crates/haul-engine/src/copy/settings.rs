//! Settings for copying the bytes of files.

use super::receipt::Receipt;
use haul_digest::Algorithm;
use haul_model::{ByteLen, ByteOffset, ObjectSize, limits};
use haul_sys::process;
use std::sync::{Arc, LazyLock};

/// Values of `--sparse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SparseRule {
    /// Holes of a sparse source become holes.
    #[default]
    Auto,
    /// Every sufficiently long run of zeros becomes a hole.
    Always,
    /// No holes.
    Never,
}

/// Values of `--reflink`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reflink {
    /// Cloning if the file system supports it.
    #[default]
    Auto,
    /// Cloning, or the copy fails.
    Always,
    /// No cloning.
    Never,
}

/// Settings for copying the bytes.
#[derive(Clone, Debug)]
pub struct Moving {
    /// Worker threads.
    pub workers: Workers,
    /// Size of an object: larger files are split among workers.
    pub object: ObjectSize,
    /// True if the walk runs ahead of the copy, so that the total is known early.
    pub counts_ahead: bool,
    /// Number of bytes per read and write; `None` lets the engine choose according to the copy
    /// method.
    pub block: Option<usize>,
    /// True if reads bypass the page cache.
    pub direct_read: bool,
    /// True if writes bypass the page cache.
    pub direct_write: bool,
    /// True if read pages of the source are dropped from the page cache.
    pub fadvise_read: bool,
    /// True if written pages of the sink are written back and dropped from the page cache.
    pub fadvise_write: bool,
    /// True if a second thread hashes a file whose digest needs the bytes in order; `None` lets the
    /// engine choose.
    pub double_buffer: Option<bool>,
    /// Digest of each file, from the same read.
    pub digest: Option<(Algorithm, HashForm)>,
    /// Waybill of the job, with digests from the same read.
    pub receipt: Option<Arc<Receipt>>,
    /// Verification of the copy.
    pub verify: Verify,
    /// Condition for holes in the sink.
    pub sparse: SparseRule,
    /// Condition for sharing blocks with the source.
    pub reflink: Reflink,
    /// True if the source is removed after its copy, which is then compared and synced in any case.
    pub removes_source: bool,
    /// True if each file and directory is synced when it is finished, for file systems that cannot
    /// be synced as a whole.
    pub sync_each: bool,
    /// Offset in each source file at which the copy starts.
    pub offset: ByteOffset,
    /// Maximum number of bytes to copy from each source file.
    pub length: Option<ByteLen>,
    /// Offset in the sink of the first copied byte; `None` for the same offset.
    pub sink_offset: Option<ByteOffset>,
}

/// Number of worker threads: a given number, or as many as the process may run concurrently. The
/// system is asked only when the number is first needed. One small file never needs it, and the
/// query, which respects cgroups, takes a dozen system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workers(Option<usize>);

impl Workers {
    /// As many workers as this process may run concurrently.
    pub fn granted() -> Workers {
        Workers::default()
    }

    /// Exactly this many workers, limited to the range from 1 to [`limits::WORKERS_MAX`].
    pub fn exactly(workers: usize) -> Workers {
        Workers(Some(workers.clamp(1, limits::WORKERS_MAX)))
    }

    /// Returns the number, from 1 to [`limits::WORKERS_MAX`].
    pub fn count(self) -> usize {
        static GRANTED: LazyLock<usize> =
            LazyLock::new(|| process::cpu_count().clamp(1, limits::WORKERS_MAX));
        self.0.unwrap_or_else(|| *GRANTED)
    }
}

/// Form of a file's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashForm {
    /// The value of the algorithm itself, which every other tool prints.
    Plain,
    /// msum's hash tree with leaves of this size in bytes.
    Tree(ObjectSize),
    /// The values of the tree's leaves, one after the other (`--check-tree`).
    Leaves(ObjectSize),
}

/// Verification of the copy against its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// No verification.
    No,
    /// Every byte is hashed between read and write (CRC-64/NVME unless another digest is
    /// requested), and the digest is reported. Nothing is compared: in a local copy the written
    /// buffer is the buffer that was read.
    Stream,
    /// Each object is read back through the page cache right after its write, and compared.
    ReadBack,
    /// Each object is written back, dropped from the page cache, re-read from the device and
    /// compared while others are copied. An object that differs is rewritten a limited number of
    /// times.
    Reread,
    /// [`Verify::Stream`] for files that fit into free memory, [`Verify::Reread`] for larger ones
    /// (FIVER-Hybrid).
    Hybrid,
}

impl Verify {
    /// Returns true if the verification needs bytes to be written. Sharing the blocks of the source
    /// would prove nothing then.
    pub fn needs_bytes(self) -> bool {
        matches!(self, Verify::Stream | Verify::Reread | Verify::Hybrid)
    }
}

impl Moving {
    /// Returns the object size that suits the digests: at least one leaf, so that two workers never
    /// share a leaf.
    pub fn object_size(&self) -> ObjectSize {
        match self.digest {
            Some((_, HashForm::Tree(leaf) | HashForm::Leaves(leaf))) => self.object.max(leaf),
            _ => self.object,
        }
    }

    /// Returns the measured defaults for this number of workers.
    pub fn with(workers: Workers) -> Moving {
        Moving {
            workers,
            object: ObjectSize::DEFAULT,
            counts_ahead: false,
            block: None,
            direct_read: false,
            direct_write: false,
            fadvise_read: false,
            fadvise_write: false,
            double_buffer: None,
            digest: None,
            receipt: None,
            verify: Verify::No,
            sparse: SparseRule::Auto,
            reflink: Reflink::Auto,
            removes_source: false,
            sync_each: false,
            offset: ByteOffset(0),
            length: None,
            sink_offset: None,
        }
    }
}
