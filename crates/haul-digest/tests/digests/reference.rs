//! The slow reference of [`haul_digest::FileDigest`]: keeps all bytes of a file in memory and
//! computes each digest from its definition at the end.
//!
//! It is one of the slow references among the tests, because it needs their BLAKE3 and their tree,
//! and because no program may contain it.

use crate::twin;
use haul_digest::{Algebra, Algorithm, Digest, DigestSpec, Form, Missing, digest};
use haul_model::{ByteRange, ObjectIndex};

/// A file whose objects are added.
pub(crate) struct Reference<'a> {
    bytes: &'a [u8],
    piece: usize,
    /// Objects in the order in which they were added.
    added: Vec<u64>,
}

/// Same as [`haul_digest::FileSum`], with the objects as a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReferenceSum {
    pub(crate) digest: Option<Digest>,
    pub(crate) objects: Option<Vec<(ObjectIndex, Digest)>>,
    pub(crate) kept: Vec<Digest>,
}

impl<'a> Reference<'a> {
    /// Creates a file with these bytes, of which no object was added.
    pub(crate) fn new(bytes: &'a [u8], piece: usize) -> Reference<'a> {
        Reference { bytes, piece, added: Vec::new() }
    }

    /// Creates a file all of whose objects were added in order.
    pub(crate) fn complete(bytes: &'a [u8], piece: usize) -> Reference<'a> {
        let added = (0..bytes.len().div_ceil(piece) as u64).collect();
        Reference { bytes, piece, added }
    }

    pub(crate) fn add(&mut self, object: u64) {
        if !self.added.contains(&object) {
            self.added.push(object);
        }
    }

    pub(crate) fn object_bytes(&self, object: u64) -> &'a [u8] {
        let start = object as usize * self.piece;
        &self.bytes[start..self.bytes.len().min(start + self.piece)]
    }

    /// Returns the digest of an object that is hashed on its own; `None` if its digest is only a
    /// part of that of the file.
    pub(crate) fn object(&self, spec: DigestSpec, object: u64) -> Option<Digest> {
        let bytes = self.object_bytes(object);
        let combines = spec.algorithm.algebra() == Algebra::Combines;
        match spec.form {
            Form::Tree { .. } => None,
            Form::Plain if !combines => None,
            _ => Some(self.part(spec.algorithm, object as usize * self.piece, bytes)),
        }
    }

    /// Returns the digest of a range as a part of this file.
    pub(crate) fn part(&self, algorithm: Algorithm, start: usize, bytes: &[u8]) -> Digest {
        if algorithm == Algorithm::Blake3 && bytes.len() < self.bytes.len() {
            let value = twin::blake3_inner(bytes, start);
            return Digest::from_bytes(algorithm, &value).unwrap();
        }
        digest(algorithm, bytes)
    }

    /// Returns each digest.
    pub(crate) fn finish(&self, specs: &[DigestSpec]) -> Result<Vec<ReferenceSum>, Missing> {
        let count = self.bytes.len().div_ceil(self.piece) as u64;
        if let Some(gap) = (0..count).find(|object| !self.added.contains(object)) {
            let next = (gap..count).find(|object| self.added.contains(object)).unwrap_or(count);
            let byte = |object: u64| (object * self.piece as u64).min(self.bytes.len() as u64);
            return Err(Missing::Bytes(ByteRange::between(byte(gap), byte(next))));
        }
        specs.iter().map(|spec| self.one(*spec, count)).collect()
    }

    fn one(&self, spec: DigestSpec, count: u64) -> Result<ReferenceSum, Missing> {
        let DigestSpec { algorithm, form } = spec;
        let is_serial = algorithm.algebra() == Algebra::Serial;
        if form == Form::Plain && is_serial && !self.added.is_sorted() {
            return Err(Missing::Order(algorithm));
        }
        let (mut objects, mut kept) = (None, Vec::new());
        let value = match form {
            Form::Apart => None,
            Form::Plain | Form::Objects { .. } => Some(digest(algorithm, self.bytes)),
            Form::Tree { leaf, .. } => Some(twin::tree(algorithm, self.bytes, leaf.0 as usize)),
        };
        if matches!(form, Form::Objects { .. }) && count > 1 {
            let one = |object| (ObjectIndex(object), self.object(spec, object).unwrap());
            objects = Some((0..count).map(one).collect());
        }
        if let Form::Tree { leaf, keep: Some(size) } = form {
            let root = |bytes| twin::tree(algorithm, bytes, leaf.0 as usize);
            kept = self.bytes.chunks(size.0 as usize).map(root).collect();
            if kept.is_empty() {
                kept.push(root(&[]));
            }
        }
        Ok(ReferenceSum { digest: value, objects, kept })
    }

    /// Returns the digests of the leaves, each with its object. A file of one leaf has none besides
    /// its own.
    pub(crate) fn leaves(&self, spec: DigestSpec) -> Vec<(ObjectIndex, Digest)> {
        let Form::Objects { leaf: Some(leaf) } = spec.form else { return Vec::new() };
        let leaf = leaf.bytes() as usize;
        if self.bytes.len() <= leaf {
            return Vec::new();
        }
        let chunks = self.bytes.chunks(leaf).enumerate();
        let one = |(number, bytes): (usize, &[u8])| {
            let start = number * leaf;
            (ObjectIndex((start / self.piece) as u64), self.part(spec.algorithm, start, bytes))
        };
        chunks.map(one).collect()
    }
}
