//! Checksums of many files, and checking lists of them.
//!
//! [`run`] takes [`Orders`] (the files of a [`Walk`], the lines of a list to check), hashes them on several
//! workers, and hands the results on strictly in order. Each file is read once for all digests asked of it.
//! - Where all of them combine, a file larger than one object is cut into objects that any idle worker takes.
//! - Where one of them is serial, a worker hashes the file from start to end, and files go side by side; MD5,
//!   SHA-1 and SHA-2 alone also in the lanes of one register, many files to a worker. Workers that have nothing else
//!   to do read blocks of such a file ahead, and hash them when their turn comes.
//! - The leaves of a hash tree are independent: workers share them, and lanes too.

mod beside;
mod buffer;
mod counters;
mod job;
mod lanes;
mod order;
mod plain;
mod relay;
mod serial;
mod settings;
mod source;
mod split;
#[cfg(test)]
mod tests;
mod walk;
mod window;

pub use counters::Counters;
pub use job::run;
pub use order::{Order, Orders, Outcome, Source, SumError, Sums, Task, Work, reason};
pub(crate) use plain::Again;
pub use plain::{hash_rest, hash_rest_of_stdin, read_through};
pub use settings::{
    BLOCK_BYTES, BLOCKS_BYTES_MAX, ENTRIES_PER_TURN, Form, LANE_BLOCK_BYTES, LEAVES_PER_PIECE_MAX, PARTS_MAX,
    Recipe, Sample, Settings, WINDOW,
};
pub use walk::{Listed, Operand, Operands, Walk, Walked};
pub(crate) use window::Window;
