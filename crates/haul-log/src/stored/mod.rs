//! Digests that are kept with a file: in its extended attributes, or in a file of their own beside it.
//!
//! [`Stored`] is this project's form, with digests of objects; [`xrootd`] and [`eos`] are those of two storage systems,
//! which keep one value for a whole file. `docs/formats/stored.md` draws all of them.

pub mod eos;
mod value;
pub mod xrootd;

pub use value::{STORED_BYTES_MAX, Stored, StoredFlaw, StoredObjects, VERSION};
