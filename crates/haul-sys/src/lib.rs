//! Floor 2: the operating system: files, metadata, sparse ranges, direct I/O, io_uring, cache residency.
//!
//! Calls that take a name take it beneath an open directory, so that a tree may lie deeper than `PATH_MAX`;
//! [`dir::CWD`] stands for the working directory. Errors are [`std::io::Error`] with the kernel's number
//! kept. Calls cut short by a signal are made again, and transfers cut short are carried on.
//!
//! This crate speaks to Linux.

pub mod beneath;
pub mod buffer;
pub mod cache;
pub mod closing;
pub mod dir;
pub mod direct;
pub mod filesystem;
mod math;
pub mod metadata;
pub mod open;
pub mod place;
pub mod process;
pub mod program;
pub mod selinux;
pub mod signals;
pub mod socket;
pub mod sparse;
pub mod stat;
pub mod transfer;
pub mod tunnel;
pub mod uring;
pub mod users;
pub mod wait;

pub use dir::CWD;
/// What a name may be given as: `&CStr`, `&OsStr`, `&Path`, `&str`, ... A `&CStr` costs no copy.
pub use rustix::path::Arg;
pub use stat::{Contents, FileKind, Follow, Stat, Timespec};
