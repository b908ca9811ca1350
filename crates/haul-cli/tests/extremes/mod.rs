//! Trees at the borders of what a file system can hold: any byte in a name, names and paths of any length, any depth,
//! loops, and trees that somebody turns over while they are walked.

pub(crate) mod chain;
mod deep;
mod few_files;
mod loops;
mod moved;
mod names;
mod swapped;
