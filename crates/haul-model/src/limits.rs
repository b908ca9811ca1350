//! Every bound that keeps memory flat, with its unit and its reason.

/// Bytes in an object unless the user chose otherwise. Large enough that scheduling one costs nothing
/// beside moving it, small enough that several workers share a file of a few tens of megabytes.
pub const OBJECT_BYTES_DEFAULT: u64 = 4 << 20;

/// Smallest object, in bytes: one BLAKE3 subtree of a useful size and one page on every architecture.
pub const OBJECT_BYTES_MIN: u64 = 64 << 10;

/// Largest object, in bytes; bounds what one damaged object costs to send again.
pub const OBJECT_BYTES_MAX: u64 = 1 << 40;

/// Smallest leaf of an object, in bytes: BLAKE3's chunk, below which its tree has no nodes.
pub const LEAF_BYTES_MIN: u64 = 1 << 10;

/// Bytes moved by one read and one write unless the user chose otherwise: a block this size is still in
/// the second-level cache when it is hashed and written.
pub const BLOCK_BYTES_DEFAULT: usize = 256 << 10;

/// Largest block in bytes that `--buffer-size` may ask for (mcp's own tests used 128 MiB).
pub const BLOCK_BYTES_MAX: usize = 1 << 30;

/// Most workers one job may have.
pub const WORKERS_MAX: usize = 1024;

/// Directory entries a worker takes from a directory at a time. Bounds the work that waits unshared.
pub const ENTRIES_PER_BATCH: usize = 128;

/// Directories that a copy keeps open at most, at both ends. A table of descriptors that outgrows a power of two makes
/// every thread wait while the kernel moves it: with these it stays within 1024.
pub const OPEN_DIRECTORIES_MOST: usize = 400;

/// Descriptors that one worker has open at once, besides directories under way: both ends of a file, its source for
/// direct reads, its sink to read it back, a ring, and what calls by way of /proc hold for a moment.
pub const OPEN_FILES_OF_A_WORKER: u64 = 12;

/// Descriptors of a process besides those of its workers: the standard streams, what it inherited, target directories.
pub const OPEN_FILES_OF_THE_PROCESS: u64 = 32;

/// Most bytes in one line of a list of files or checksums: a name of `PATH_MAX` bytes, each escaped, a
/// digest of 64 bytes in hex, and room to spare.
pub const LIST_LINE_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(OBJECT_BYTES_DEFAULT.is_power_of_two() && OBJECT_BYTES_MIN.is_power_of_two());
const _: () = assert!(LEAF_BYTES_MIN.is_power_of_two() && LEAF_BYTES_MIN <= OBJECT_BYTES_MIN);
const _: () = assert!(OBJECT_BYTES_MIN <= OBJECT_BYTES_DEFAULT && OBJECT_BYTES_DEFAULT <= OBJECT_BYTES_MAX);
const _: () = assert!(2 * OPEN_DIRECTORIES_MOST + OPEN_FILES_OF_THE_PROCESS as usize <= 1024);
const _: () = assert!(BLOCK_BYTES_DEFAULT <= BLOCK_BYTES_MAX);
