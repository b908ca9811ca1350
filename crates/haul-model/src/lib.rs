//! The words every crate of the house speaks in: places and lengths in bytes, how a file is cut into
//! objects, what level of proof a range has reached, paths that
//! can't leave their root, and the limits that bound memory.
//!
//! Nothing here touches a clock, a file or a socket.

mod geometry;
mod level;
pub mod limits;
mod moment;
mod path;
mod percent;
mod range;
mod size;

pub use geometry::{Geometry, LeafSize, LeafSizeError, Object, ObjectIndex, ObjectSize, ObjectSizeError};
pub use level::Level;
pub use moment::Moment;
pub use path::{PART_BYTES_MAX, PATH_BYTES_MAX, PathFault, RelPath};
pub use percent::Percent;
pub use range::{ByteLen, ByteOffset, ByteRange};
pub use size::{SizeError, format_size, parse_size};
