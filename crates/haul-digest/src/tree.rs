//! Hash trees over the leaves of a file, like those of mutil's msum: for any algorithm, in
//! parallel.
//!
//! A file of at most one leaf has its plain digest. Any other node is the digest of its left
//! child's bytes followed by its right child's. The left child spans the largest power of two of
//! leaves that is smaller than the number of leaves of the node. No prefix distinguishes leaves
//! from nodes, so if an attacker can choose the length of the file, the tree protects only against
//! accidents.
//!
//! The roots are those of msum if its leaf size is its split size, which is the default. With
//! smaller leaves, mutil 1.76.4 drops the tail of a last split whose number of leaves is not a
//! power of two. This module does not imitate that.
//!
//! ```text
//!                 H(A B)                     5 leaves, the last one perhaps short
//!               /        \
//!         A = H(C D)      B = leaf 4
//!         /       \
//!     C = H(0 1)  D = H(2 3)
//! ```

use crate::forest::{Duplicate, Forest, Hole};
use crate::{Algorithm, Digest, Hasher, digest};
use haul_model::{ByteLen, ByteRange, Geometry};
use thiserror::Error;

/// Division of a file into leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShape {
    len: ByteLen,
    leaf: ByteLen,
}

impl TreeShape {
    /// Returns the division of `len` bytes into leaves of `leaf` bytes; the last one may be
    /// shorter.
    ///
    /// # Panics
    ///
    /// Panics if `leaf` is 0.
    pub const fn new(len: ByteLen, leaf: ByteLen) -> TreeShape {
        assert!(leaf.0 > 0, "a leaf holds at least one byte");
        TreeShape { len, leaf }
    }

    /// Returns the number of leaves; 0 for an empty file.
    pub const fn leaf_count(self) -> u64 {
        self.len.0.div_ceil(self.leaf.0)
    }

    /// Returns the size of every leaf except the last, in bytes.
    pub const fn leaf_size(self) -> ByteLen {
        self.leaf
    }

    /// Returns the range of a leaf, or `None` past the last one.
    pub fn range_of(self, leaf: u64) -> Option<ByteRange> {
        (leaf < self.leaf_count()).then(|| {
            let start = leaf * self.leaf.0;
            ByteRange::between(start, start.saturating_add(self.leaf.0).min(self.len.0))
        })
    }

    /// Returns the range of each leaf, in order.
    pub fn ranges(self) -> impl Iterator<Item = ByteRange> {
        (0..self.leaf_count()).filter_map(move |leaf| self.range_of(leaf))
    }

    /// Returns the range of each leaf in which two lists of leaf digests differ, in order.
    ///
    /// A leaf that only one list has counts as different. Leaves past the end of both lists do not.
    pub fn mismatches(self, ours: &[Digest], theirs: &[Digest]) -> Vec<ByteRange> {
        let known = ours.len().max(theirs.len());
        let leaves = self.ranges().enumerate().take(known);
        leaves.filter(|&(leaf, _)| ours.get(leaf) != theirs.get(leaf)).map(|(_, range)| range).collect()
    }
}

impl From<Geometry> for TreeShape {
    /// Each object becomes a leaf.
    fn from(geometry: Geometry) -> TreeShape {
        TreeShape::new(ByteLen(geometry.len()), ByteLen(geometry.object_size().bytes()))
    }
}

/// Reason why leaves do not form the tree of a file.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TreeError {
    /// There are no digests for the leaves of these bytes.
    #[error("the leaves of bytes {0} are missing")]
    Missing(ByteRange),
    /// There are two digests for one leaf.
    #[error("leaf {0} was hashed twice")]
    Duplicate(u64),
    /// There are more leaves than the file has.
    #[error("there are {found} leaves, but the file has {expected}")]
    Beyond {
        /// Number of leaves up to the last one that was added.
        found: u64,
        /// Number of leaves according to the length of the file.
        expected: u64,
    },
}

/// Computes the root from leaf digests in any order. Memory use grows with the number of gaps, not
/// of leaves.
#[derive(Clone, Debug)]
pub struct TreeAssembly {
    algorithm: Algorithm,
    forest: Forest<Digest>,
    /// The first error; reported by [`TreeAssembly::finish`].
    fault: Option<TreeError>,
}

impl TreeAssembly {
    /// Returns an assembly without leaves.
    pub fn new(algorithm: Algorithm) -> TreeAssembly {
        TreeAssembly { algorithm, forest: Forest::new(), fault: None }
    }

    /// Adds the digest of one leaf, counted from 0.
    ///
    /// # Panics
    ///
    /// Panics if the digest has another algorithm.
    pub fn add(&mut self, leaf: u64, leaf_digest: Digest) {
        assert_eq!(leaf_digest.algorithm(), self.algorithm, "leaves and nodes share one algorithm");
        let added = self.forest.insert(leaf, leaf_digest, node_digest);
        self.fault = self.fault.or(added.err().map(|Duplicate| TreeError::Duplicate(leaf)));
    }

    /// Returns the root of the tree.
    ///
    /// # Errors
    ///
    /// Returns a [`TreeError`] if the leaves are not exactly those of the shape, each once.
    pub fn finish(self, shape: TreeShape) -> Result<Digest, TreeError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let expected = shape.leaf_count();
        let top = self.forest.top(expected, node_digest).map_err(|hole| match hole {
            Hole::Missing { start, end } => {
                let end = end.saturating_mul(shape.leaf.0).min(shape.len.0);
                TreeError::Missing(ByteRange::between(start * shape.leaf.0, end))
            }
            Hole::Beyond { count: found } => TreeError::Beyond { found, expected },
        })?;
        Ok(top.unwrap_or_else(|| digest(self.algorithm, &[])))
    }
}

/// Returns the digest of an inner node.
pub fn node_digest(left: Digest, right: Digest) -> Digest {
    let mut hasher = Hasher::new(left.algorithm());
    hasher.update(left.as_bytes());
    hasher.update(right.as_bytes());
    hasher.finish()
}

/// Returns the root over all leaf digests, given in order; without leaves, the digest of zero bytes
/// of input.
pub fn root_of(algorithm: Algorithm, leaves: &[Digest]) -> Digest {
    let mut spine = Spine::new(algorithm);
    for &leaf in leaves {
        spine.push(leaf);
    }
    spine.finish()
}

/// Running tree digest of one stream, fed in order.
#[derive(Clone, Debug)]
pub struct TreeHasher {
    leaf: ByteLen,
    /// The current leaf, and the number of bytes that it still takes.
    hasher: Hasher,
    room: u64,
    spine: Spine,
}

impl TreeHasher {
    /// Returns a hasher without input, for leaves of `leaf` bytes.
    ///
    /// # Panics
    ///
    /// Panics if `leaf` is 0.
    pub fn new(algorithm: Algorithm, leaf: ByteLen) -> TreeHasher {
        assert!(leaf.0 > 0, "a leaf holds at least one byte");
        TreeHasher { leaf, hasher: Hasher::new(algorithm), room: leaf.0, spine: Spine::new(algorithm) }
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.hasher.algorithm()
    }

    /// Feeds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let now = usize::try_from(self.room).map_or(rest.len(), |room| room.min(rest.len()));
            let (head, tail) = rest.split_at(now);
            self.hasher.update(head);
            self.filled(now as u64);
            rest = tail;
        }
    }

    /// Feeds `len` zero bytes, like a hole of a sparse file. All leaves that lie completely in the
    /// hole share one digest, which is computed once.
    pub fn update_zeros(&mut self, len: u64) {
        let mut rest = len;
        let mut zero_leaf = None;
        while rest > 0 {
            let now = self.room.min(rest);
            if now == self.leaf.0 {
                let leaf = *zero_leaf.get_or_insert_with(|| zeros_digest(self.algorithm(), now));
                self.spine.push(leaf);
            } else {
                self.hasher.update_zeros(now);
                self.filled(now);
            }
            rest -= now;
        }
    }

    /// Returns the root. A file of at most one leaf has its plain digest.
    pub fn finish(mut self) -> Digest {
        if self.room < self.leaf.0 {
            self.filled(self.room); // The last leaf is short.
        }
        self.spine.finish()
    }

    /// Counts `len` bytes in the current leaf, and ends the leaf if it is full.
    fn filled(&mut self, len: u64) {
        self.room -= len;
        if self.room == 0 {
            let next = Hasher::new(self.algorithm());
            self.spine.push(std::mem::replace(&mut self.hasher, next).finish());
            self.room = self.leaf.0;
        }
    }
}

/// Returns the digest of `len` zero bytes.
fn zeros_digest(algorithm: Algorithm, len: u64) -> Digest {
    let mut hasher = Hasher::new(algorithm);
    hasher.update_zeros(len);
    hasher.finish()
}

/// The complete subtrees to the left of the next leaf, largest first: at most 64, one for each bit
/// of the number of leaves so far.
#[derive(Clone, Debug)]
struct Spine {
    algorithm: Algorithm,
    leaves: u64,
    nodes: Vec<Digest>,
}

impl Spine {
    fn new(algorithm: Algorithm) -> Spine {
        Spine { algorithm, leaves: 0, nodes: Vec::new() }
    }

    fn push(&mut self, leaf: Digest) {
        let mut node = leaf;
        for _ in 0..self.leaves.trailing_ones() {
            if let Some(left) = self.nodes.pop() {
                node = node_digest(left, node);
            }
        }
        self.nodes.push(node);
        self.leaves += 1;
    }

    fn finish(self) -> Digest {
        let from_right = self.nodes.into_iter().rev();
        let root = from_right.reduce(|right, left| node_digest(left, right));
        root.unwrap_or_else(|| digest(self.algorithm, &[]))
    }
}
