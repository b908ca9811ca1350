//! Limits that bound memory, each with its unit and its reason.

/// Default size in bytes of an object. It is large enough that scheduling an object costs nothing
/// compared with moving it. It is small enough that several workers share a file of a few tens of
/// megabytes.
pub const OBJECT_BYTES_DEFAULT: u64 = 4 << 20;

/// Minimum size in bytes of an object: one BLAKE3 subtree of a useful size, and one page on every
/// architecture.
pub const OBJECT_BYTES_MIN: u64 = 64 << 10;

/// Maximum size in bytes of an object; bounds the cost of sending one damaged object again.
pub const OBJECT_BYTES_MAX: u64 = 1 << 40;

/// Minimum size in bytes of a leaf of an object: the chunk of BLAKE3, below which its tree has no
/// nodes.
pub const LEAF_BYTES_MIN: u64 = 1 << 10;

/// Maximum size in bytes of a block for `--buffer-size` (the tests of mcp used 128 MiB).
pub const BLOCK_BYTES_MAX: usize = 1 << 30;

/// Maximum number of workers of one job.
pub const WORKERS_MAX: usize = 1024;

/// Number of directory entries that a worker takes from a directory at a time. Bounds the work that
/// other workers cannot take.
pub const ENTRIES_PER_BATCH: usize = 128;

/// Maximum number of entries that the walk of a copy holds ahead of the copy, to know the total
/// early. An entry needs some hundred bytes.
pub const ENTRIES_AHEAD_MAX: u64 = 1_000_000;

/// Maximum number of directories that a process keeps open. When a descriptor table
/// outgrows a power of two, every thread waits while the kernel moves the table. With this limit it
/// stays within 1024.
pub const OPEN_DIRECTORIES_MAX: usize = 400;

/// Descriptors that one worker has open concurrently, besides directories in progress: both ends of
/// a file, its source for direct reads, its sink to read it back, and a ring. Calls by way of /proc
/// also hold some for a moment.
pub const OPEN_FILES_PER_WORKER: u64 = 12;

/// Descriptors of a process besides those of its workers: the standard streams, inherited ones,
/// target directories.
pub const OPEN_FILES_RESERVED: u64 = 32;

/// Maximum size in bytes of one line in a list of files or checksums: a name of `PATH_MAX` bytes,
/// each escaped, a digest of 64 bytes in hex, and some reserve.
pub const LIST_LINE_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(OBJECT_BYTES_DEFAULT.is_power_of_two() && OBJECT_BYTES_MIN.is_power_of_two());
const _: () = assert!(LEAF_BYTES_MIN.is_power_of_two() && LEAF_BYTES_MIN <= OBJECT_BYTES_MIN);
const _: () = assert!(OBJECT_BYTES_MIN <= OBJECT_BYTES_DEFAULT && OBJECT_BYTES_DEFAULT <= OBJECT_BYTES_MAX);
const _: () = assert!(2 * OPEN_DIRECTORIES_MAX + OPEN_FILES_RESERVED as usize <= 1024);
