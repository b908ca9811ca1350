//! Checksums of many files, and of lists that are being checked.
//!
//! [`run`] takes [`Orders`]: the files of a [`Walk`], or the lines of a list to check. It hashes
//! them on several workers, and passes the results on strictly in order. Each file is read once for
//! all of its digests.
//!
//! - If all digests combine, a file larger than one object is split into objects that any idle
//!   worker takes.
//! - If one digest is serial, a worker hashes the file from start to end, and several files are
//!   hashed in parallel. With MD5, SHA-1 or SHA-2 alone, one worker also hashes many files in the
//!   lanes of one register. Idle workers read the next blocks of such a file, and hash them in
//!   turn.
//! - The leaves of a hash tree are independent: workers share them, and so do lanes.

mod counters;
#[cfg(test)]
mod faulty_storage;
mod input;
mod job;
mod lane_files;
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
pub(crate) use plain::RangeReader;
pub use plain::{hash_rest, hash_rest_of_stdin, read_through};
pub use settings::{
    ENTRIES_PER_TURN, Form, LEAVES_PER_PIECE_MAX, PARTS_MAX, Recipe, Sample, Settings, WINDOW,
};
pub use walk::{Listed, Operand, Operands, Walk, WalkTag};
pub(crate) use window::Window;
