//! Basic types of all crates: offsets and lengths in bytes, the division of a file into objects,
//! and the verification level of a range. Also sets of objects, relative paths that stay beneath
//! their root, the check for zeros, and the limits that bound memory.
//!
//! This crate uses no clock, file or socket.

mod geometry;
mod level;
pub mod limits;
mod moment;
mod path;
mod percent;
mod range;
mod runs;
mod size;
mod zeros;

pub use geometry::{Geometry, LeafSize, LeafSizeError, Object, ObjectIndex, ObjectSize, ObjectSizeError};
pub use level::Level;
pub use moment::Moment;
pub use path::{PART_BYTES_MAX, PATH_BYTES_MAX, PATH_PARTS_MAX, PathError, RelPath};
pub use percent::Percent;
pub use range::{ByteLen, ByteOffset, ByteRange};
pub use runs::Runs;
pub use size::{SizeError, format_count, format_size, parse_size};
pub use zeros::is_zero;
