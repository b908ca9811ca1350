//! Layer 1: the operating system: files, metadata, sparse ranges, direct I/O, cache
//! residency.
//!
//! Calls that take a name resolve it relative to an open directory, so that a tree may be deeper
//! than `PATH_MAX`. [`dir::CWD`] is the working directory. Errors are [`std::io::Error`] and keep
//! the error number of the kernel. Calls interrupted by a signal are restarted, and short transfers
//! are continued.
//!
//! This crate supports only Linux.

pub mod beneath;
pub mod buffer;
pub mod cache;
pub mod closing;
pub mod dir;
pub mod direct;
pub mod filesystem;
pub mod metadata;
pub mod open;
pub mod place;
pub mod process;
pub mod program;
pub mod sandbox;
pub mod selinux;
pub mod signals;
pub mod socket;
pub mod sparse;
pub mod stat;
pub mod transfer;
pub mod tunnel;
pub mod users;
pub mod wait;

pub use dir::CWD;
/// Types that can be passed as a name: `&CStr`, `&OsStr`, `&Path`, `&str`, ... A `&CStr` costs no
/// copy.
pub use rustix::path::Arg;
pub use stat::{FileKind, Follow, Stat, Timespec};
