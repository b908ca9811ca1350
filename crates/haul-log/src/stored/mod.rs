//! Digests that are stored with a file: in its extended attributes, or in a separate file next to
//! it.
//!
//! [`Stored`] is haul's own form, with digests of objects. [`xrootd`] and [`eos`] are the forms of
//! two storage systems, which store one value for a complete file. `docs/formats/stored.md`
//! specifies all of them.

pub mod eos;
mod value;
pub mod xrootd;

pub use value::{STORED_BYTES_MAX, Stored, StoredFlaw, StoredObjects, VERSION};
