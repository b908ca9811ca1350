//! Layer 2: storage: small files that are replaced as a whole.
//!
//! [`durable_file`] writes the state, the keys and the certificates of all jobs: the new contents
//! get a temporary name, and one rename replaces the file.

pub mod durable_file;

pub use durable_file::{
    Draft, Durability, Replacement, Writers, open_parent, replace_file, replace_path, sync_names,
};
