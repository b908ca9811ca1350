//! Trees at the limits of a file system: any byte in a name, names and paths of any length, any
//! depth, loops, and trees that are changed while they are walked.

pub(crate) mod chain;
mod deep;
mod few_files;
mod loops;
mod moved;
mod names;
mod swapped;
