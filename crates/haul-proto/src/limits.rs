//! Limits of the wire: bounds on what a peer can make this side hold. Every length is checked
//! against its limit before anything is allocated.

use haul_model::{PATH_BYTES_MAX, limits::OBJECT_BYTES_MIN};

/// Version of the wire protocol that this program speaks.
pub const VERSION: u16 = 2;

/// Size in bytes of the header that starts every frame.
pub const HEADER_LEN: usize = 16;

/// Maximum size in bytes of the body of a frame: a path, a link target, and all extended attributes
/// of a file.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// Maximum size in bytes of the payload behind a body. Also the maximum number of file bytes that
/// one NEW_BLOCK with a payload carries.
pub const PAYLOAD_BYTES_MAX: u32 = 16 << 20;

/// Maximum number of file bytes that one NEW_BLOCK of zeros, or of a hole, represents, if both
/// sides have [`Features::SHORT_BLOCKS`](crate::Features::SHORT_BLOCKS). A receiver hashes at most
/// this amount before it checks if the session is over.
pub const ZERO_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of file bytes that one NEW_BLOCK with a packed payload carries. While a receiver
/// unpacks, it holds twice this amount for each lane, and no frame can request more.
pub const PACKED_BYTES_MAX: u32 = 1 << 20;

/// Maximum size in bytes of a human-readable text.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Maximum size in bytes of the name of an owner or a group.
pub const OWNER_BYTES_MAX: usize = 256;

/// Maximum number of extended attributes of one file.
pub const XATTRS_MAX: usize = 1024;

/// Maximum size in bytes of the name of an extended attribute, as on Linux.
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Maximum size in bytes of the value of an extended attribute, as on Linux.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// Maximum size in bytes of all names and values of the extended attributes of one file. Linux
/// limits only each attribute. A file with more fails, and its path is reported.
pub const XATTRS_BYTES_MAX: usize = 768 << 10;

/// Maximum number of users and groups whose names are sent for the access control lists of one
/// file. The others are sent only by number.
pub const PRINCIPALS_MAX: usize = 256;

/// Maximum number of runs of objects in one message, which take 64 KiB. Runs beyond the limit are
/// left out; in the worst case their objects are sent again.
pub const RUNS_MAX: usize = 4096;

/// Maximum number of runs in the sink's set of objects of one file. A correct source causes far
/// fewer. The gaps come from objects in flight, which the window bounds, and from a set that the
/// source received, which [`RUNS_MAX`] bounds.
pub const RUNS_HELD_MAX: usize = 4 * RUNS_MAX;

/// Maximum number of entries in the sink's sets of all files in progress, without the announced
/// holes, which the window bounds. An entry takes less than 256 bytes. A file that exceeds a
/// quarter of the limit, or with which all files exceed it, fails.
///
/// A correct source stays far below it: each object in flight has a few entries, and the window
/// bounds those objects.
pub const STATE_ENTRIES_MAX: usize = 1 << 18;

/// Number of bytes that a name counts against a quota, besides its data and metadata: about the
/// size of an inode and a directory entry.
pub const ENTRY_CHARGE: u64 = 512;

/// Maximum number of names in one LIST.
pub const NAMES_PER_LIST: usize = 512;

/// Maximum number of entries in one ENTRIES.
pub const ENTRIES_PER_MESSAGE: usize = 512;

/// Maximum number of LIST messages that wait for their DELETE.
pub const LISTS_AHEAD: usize = 8;

/// Maximum number of digests in one OBJECT_DIGESTS. Also the maximum number of digests of a file
/// that the source has sent and the sink has not answered by COMPARED.
pub const DIGESTS_PER_MESSAGE: usize = 1024;

/// Maximum number of paths in a CONNECT. A job with more uses
/// [`Features::OPERANDS`](crate::Features::OPERANDS).
pub const OPERANDS_MAX: usize = 256;

/// Maximum size in bytes of all paths in one CONNECT, or in one OPERANDS.
pub const OPERANDS_BYTES_MAX: usize = 512 << 10;

/// Maximum number of paths in one OPERANDS.
pub const OPERANDS_PER_MESSAGE: usize = 8192;

/// Maximum number of paths that a job names: about a million.
pub const OPERANDS_ALL_MAX: usize = 1 << 20;

/// Maximum size in bytes of all paths that a job names. With the overhead of each of a million
/// paths, a list takes less than 256 MiB.
pub const OPERANDS_ALL_BYTES_MAX: usize = 32 << 20;

/// Maximum number of name rules of a job.
pub const RULES_MAX: usize = 1024;

/// Maximum size in bytes of all patterns of a job.
pub const RULES_BYTES_MAX: usize = 64 << 10;

/// Maximum number of lanes of one session.
pub const LANES_MAX: u32 = 256;

/// Maximum number of UNREAD messages that wait to be sent. The source only counts further entries,
/// so that an unreadable tree does not fill memory.
pub const UNREAD_AHEAD: usize = 256;

/// Maximum number of times that an object, or a file, is sent again because it arrived damaged.
pub const RETRIES_MAX: u8 = 5;

const FILE_BYTES_MAX: usize = PATH_BYTES_MAX * 2 + XATTRS_BYTES_MAX + XATTRS_MAX * 8 + RUNS_MAX * 16;
const _: () = assert!(FILE_BYTES_MAX + PRINCIPALS_MAX * (OWNER_BYTES_MAX + 9) + 4096 <= BODY_BYTES_MAX);
const _: () =
    assert!(OPERANDS_BYTES_MAX + OPERANDS_MAX * 4 + RULES_BYTES_MAX + RULES_MAX * 5 + 8192 <= BODY_BYTES_MAX);
const _: () = assert!(OPERANDS_BYTES_MAX + OPERANDS_PER_MESSAGE * 4 + 64 <= BODY_BYTES_MAX);
const _: () = assert!(PATH_BYTES_MAX <= OPERANDS_BYTES_MAX && OPERANDS_MAX <= OPERANDS_PER_MESSAGE);
const _: () =
    assert!(NAMES_PER_LIST * (haul_model::PART_BYTES_MAX + 2) + PATH_BYTES_MAX + 64 <= BODY_BYTES_MAX);
const _: () = assert!(ENTRIES_PER_MESSAGE * (crate::NAME_BYTES_MAX + 29) + 64 <= BODY_BYTES_MAX);
const _: () = assert!(PAYLOAD_BYTES_MAX as u64 >= OBJECT_BYTES_MIN);
