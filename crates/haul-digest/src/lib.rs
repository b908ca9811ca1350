//! Floor 1, pure: every checksum behind one registry, their combination, many streams in one register, and hash trees.
//!
//! - [`Algorithm`] is the registry, [`Hasher`] one stream, [`Digest`] what it ends with.
//! - Where [`Algorithm::algebra`] is [`Algebra::Combines`], objects of a file are hashed in any order by a
//!   [`PartHasher`] each and joined by an [`Assembly`]; [`combine`] joins values that others computed.
//! - Where it is [`Algebra::Serial`], a file is fed in order, or hashed as a [`tree`]; several files, or several
//!   leaves of one tree, run side by side in [`lanes`].
//! - [`forge`] makes corruptions that Adler-32 or a CRC can't see.
//! - [`list`] reads lists of checksums in the forms of the field's tools.
//!
//! Nothing here touches a clock, a file, a socket or a thread.

mod adler;
mod algorithm;
mod assembly;
mod blake2b_len;
mod blake3_extended;
mod blake3_parts;
mod combine;
mod crc;
mod digest;
mod forest;
pub mod forge;
mod hasher;
mod joint;
pub mod lanes;
mod leaves;
pub mod list;
mod md5;
mod objects;
mod part;
mod sha;
pub mod tree;
mod unix_sums;

pub use algorithm::{Algebra, Algorithm, UnknownAlgorithm};
pub use assembly::{Assembly, AssemblyError};
pub use blake2b_len::Blake2bLen;
pub use blake3_extended::{Blake3Mode, Blake3Output, ExtendedBlake3};
pub use combine::{CombineError, combine};
pub use digest::{DIGEST_BYTES_MAX, Digest, DigestError};
pub use hasher::{Hasher, digest};
pub use joint::Joint;
pub use leaves::LeafHasher;
pub use objects::{Found, ObjectStream};
pub use part::{Part, PartHasher, PartPlace};
