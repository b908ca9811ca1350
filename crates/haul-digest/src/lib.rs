//! Layer 1, pure: all checksums in one registry, their combination, many streams in one register,
//! and hash trees.
//!
//! - [`Algorithm`] is the registry, [`Hasher`] a stream, and [`Digest`] its result.
//! - If [`Algorithm::algebra`] is [`Algebra::Combines`], the objects of a file can be hashed in any
//!   order by one [`PartHasher`] each, and an [`Assembly`] combines them. [`combine`] combines
//!   values that other programs computed.
//! - If it is [`Algebra::Serial`], a file is fed in order, or hashed as a [`tree`]. Several files,
//!   or several leaves of one tree, run in parallel in [`lanes`].
//! - A [`FileDigest`] computes all digests that a job wants of one file.
//! - [`list`] reads lists of checksums in the formats of common tools.
//!
//! The crate uses no clock, files, sockets or threads.

mod adler;
mod algorithm;
mod assembly;
mod blake2b_len;
mod blake3_extended;
mod blake3_file;
mod blake3_parts;
mod combine;
mod crc;
mod digest;
mod file_digest;
mod forest;
mod hasher;
mod joint;
mod keyed;
pub mod lanes;
mod leaves;
pub mod list;
mod md5;
mod object_table;
mod part;
mod sha;
pub mod tree;
mod unix_sums;

pub use algorithm::{Algebra, Algorithm, UnknownAlgorithm};
pub use assembly::{Assembly, AssemblyError};
pub use blake2b_len::Blake2bLen;
pub use blake3_extended::{Blake3Mode, Blake3Output, ExtendedBlake3};
pub use blake3_file::{Blake3File, Blake3Object};
pub use combine::{CombineError, combine};
pub use digest::{DIGEST_BYTES_MAX, Digest, DigestError};
pub use file_digest::{
    Added, DigestSpec, FileDigest, FileSum, Form, KEPT_MAX, Missing, ObjectDigest, ObjectLeaf, ObjectSums,
    Recipe, StreamDigest,
};
pub use hasher::{Hasher, digest};
pub use joint::Joint;
pub use keyed::{DigestKey, KEYED_DIGEST_BYTES, KeyedDigest, KeyedHasher};
pub use leaves::LeafHasher;
pub use object_table::ObjectTable;
pub use part::{Part, PartHasher, PartPlace};
