//! Bounds of the wire: what a peer may ask this side to hold. A length is held against them before anything is allocated.

use haul_model::{PATH_BYTES_MAX, limits::OBJECT_BYTES_MIN};

/// The version of the wire that this program speaks.
pub const VERSION: u16 = 1;

/// Bytes of the header that every frame begins with.
pub const HEADER_LEN: usize = 16;

/// Most bytes in a frame's body: a path, a target, and all extended attributes of a file.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// Most payload bytes behind a body, and most file bytes that one NEW_BLOCK with a payload stands for.
pub const PAYLOAD_BYTES_MAX: u32 = 16 << 20;

/// Most file bytes that one NEW_BLOCK with a packed payload stands for: what a receiver holds for each lane while it unpacks is
/// this twice, and no frame may ask for more.
pub const PACKED_BYTES_MAX: u32 = 1 << 20;

/// Most bytes of a text for people.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Most bytes of an owner's or a group's name.
pub const OWNER_BYTES_MAX: usize = 256;

/// Most extended attributes of one file.
pub const XATTRS_MAX: usize = 1024;

/// Most bytes in an extended attribute's name, as on Linux.
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Most bytes in an extended attribute's value, as on Linux.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// Most bytes of all names and values of one file's extended attributes. Linux bounds only each; a file with more fails by name.
pub const XATTRS_BYTES_MAX: usize = 768 << 10;

/// Most users and groups that one file's access control lists may name by more than their numbers. Those beyond go by number.
pub const PRINCIPALS_MAX: usize = 256;

/// Most runs of objects in one message: 64 KiB of them. What doesn't fit is left out, and then sent again at worst.
pub const RUNS_MAX: usize = 4096;

/// Most runs that a file's set of objects may fall into at the sink. An honest source keeps to far fewer: gaps come from
/// objects under way, which its window bounds, and from a set it was told of, which [`RUNS_MAX`] bounds.
pub const RUNS_HELD_MAX: usize = 4 * RUNS_MAX;

/// Most names in one LIST.
pub const NAMES_PER_LIST: usize = 512;

/// LISTs that wait for their DELETE at most.
pub const LISTS_AHEAD: usize = 8;

/// Most digests in one OBJECT_DIGESTS, and the most that the sink is ahead of what the source has sent.
pub const DIGESTS_PER_MESSAGE: usize = 1024;

/// Most paths that a CONNECT names. A job of more has [`Features::OPERANDS`](crate::Features::OPERANDS).
pub const OPERANDS_MAX: usize = 256;

/// Most bytes in all paths of one CONNECT, or of one OPERANDS.
pub const OPERANDS_BYTES_MAX: usize = 512 << 10;

/// Most paths in one OPERANDS.
pub const OPERANDS_PER_MESSAGE: usize = 8192;

/// Most paths that a job names: a million.
pub const OPERANDS_ALL_MAX: usize = 1 << 20;

/// Most bytes in all paths that a job names. With what holds each of a million, a list takes less than 256 MiB.
pub const OPERANDS_ALL_BYTES_MAX: usize = 32 << 20;

/// Most rules about names that a job has.
pub const RULES_MAX: usize = 1024;

/// Most bytes of all patterns that a job has.
pub const RULES_BYTES_MAX: usize = 64 << 10;

/// Most lanes of one session.
pub const LANES_MAX: u32 = 256;

/// Most UNREAD that wait to be sent: what is met beyond is only counted, so that a tree nobody may read fills no memory.
pub const UNREAD_AHEAD: usize = 256;

/// Times an object, or a file, is sent again because it arrived damaged.
pub const TRIES_MAX: u8 = 5;

const FILE_BYTES_MAX: usize = PATH_BYTES_MAX * 2 + XATTRS_BYTES_MAX + XATTRS_MAX * 8 + RUNS_MAX * 16;
const _: () = assert!(FILE_BYTES_MAX + PRINCIPALS_MAX * (OWNER_BYTES_MAX + 9) + 4096 <= BODY_BYTES_MAX);
const _: () =
    assert!(OPERANDS_BYTES_MAX + OPERANDS_MAX * 4 + RULES_BYTES_MAX + RULES_MAX * 5 + 8192 <= BODY_BYTES_MAX);
const _: () = assert!(OPERANDS_BYTES_MAX + OPERANDS_PER_MESSAGE * 4 + 64 <= BODY_BYTES_MAX);
const _: () = assert!(PATH_BYTES_MAX <= OPERANDS_BYTES_MAX && OPERANDS_MAX <= OPERANDS_PER_MESSAGE);
const _: () =
    assert!(NAMES_PER_LIST * (haul_model::PART_BYTES_MAX + 2) + PATH_BYTES_MAX + 64 <= BODY_BYTES_MAX);
const _: () = assert!(PAYLOAD_BYTES_MAX as u64 >= OBJECT_BYTES_MIN);
