//! Layer 2: storage.
//!
//! [`storage`] defines directories and files as traits. [`local`] implements them by system calls,
//! [`memory`] in memory, with the faults of a disk. [`durable_file`] writes the state, the keys and
//! the certificates of all jobs: the new contents get a temporary name, and one rename replaces the
//! file.

pub mod attributes;
mod device;
pub mod durable_file;
mod failure;
pub mod local;
pub mod memory;
pub mod metadata;
mod name;
pub mod storage;
mod version;

pub use device::{Capabilities, CopiesByItself, Device, Lengths};
pub use durable_file::{Draft, Durability, Replacement, Writers, open_parent, replace_file, replace_path};
pub use failure::FirstFailure;
pub use haul_sys::cache::{Advice, Residency};
pub use haul_sys::direct::Alignment;
pub use haul_sys::filesystem::{Backing, Space};
pub use haul_sys::metadata::Times;
pub use haul_sys::place::Place;
pub use haul_sys::{FileKind, Follow, Stat, Timespec};
pub use metadata::{Metadata, Part, Unset};
pub use name::{NAME_BYTES_MAX, Name, Tag};
pub use storage::{
    Create, Dir, DropRetries, Entry, Inode, Listing, Missing, Node, Offload, Offloaded, Reached, ReadBack,
    Remove, Replace, SinkFile, SourceFile, Storage, SyncWhat,
};
pub use version::{Change, Version};
