//! Hash trees over the leaves of a file, as mutil's msum makes them: any algorithm, in parallel.
//!
//! A file of at most one leaf has its plain digest. Any other node is the digest of its left child's bytes
//! followed by its right child's; the left child spans the largest power of two of leaves that is smaller than
//! the node's number of leaves. Leaves and nodes are not told apart by a prefix, so the tree guards against
//! accidents and, where an attacker may choose the file's length, against nothing more.
//!
//! The roots are msum's where its leaf size is its split size, as it is unless set. With smaller leaves, mutil
//! 1.76.4 drops the tail of a last split whose number of leaves is not a power of two; that is not imitated.
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

/// How a file is cut into leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShape {
    len: ByteLen,
    leaf: ByteLen,
}

impl TreeShape {
    /// The cut of `len` bytes into leaves of `leaf` bytes, the last one perhaps shorter.
    ///
    /// # Panics
    /// If `leaf` is 0.
    pub const fn new(len: ByteLen, leaf: ByteLen) -> TreeShape {
        assert!(leaf.0 > 0, "a leaf holds at least one byte");
        TreeShape { len, leaf }
    }

    /// How many leaves there are; 0 for an empty file.
    pub const fn leaf_count(self) -> u64 {
        self.len.0.div_ceil(self.leaf.0)
    }

    /// The size of all leaves but the last, in bytes.
    pub const fn leaf_size(self) -> ByteLen {
        self.leaf
    }

    /// The bytes of a leaf; `None` past the last.
    pub fn range_of(self, leaf: u64) -> Option<ByteRange> {
        (leaf < self.leaf_count()).then(|| {
            let start = leaf * self.leaf.0;
            ByteRange::between(start, start.saturating_add(self.leaf.0).min(self.len.0))
        })
    }

    /// The bytes of each leaf, in order.
    pub fn ranges(self) -> impl Iterator<Item = ByteRange> {
        (0..self.leaf_count()).filter_map(move |leaf| self.range_of(leaf))
    }

    /// The bytes of each leaf in which two lists of leaf digests differ, in order. A leaf that only one list has
    /// counts as different; where both lists end early, the leaves that neither has do not.
    pub fn mismatches(self, ours: &[Digest], theirs: &[Digest]) -> Vec<ByteRange> {
        let known = ours.len().max(theirs.len());
        let leaves = self.ranges().enumerate().take(known);
        leaves.filter(|&(leaf, _)| ours.get(leaf) != theirs.get(leaf)).map(|(_, range)| range).collect()
    }
}

impl From<Geometry> for TreeShape {
    /// Each object is a leaf.
    fn from(geometry: Geometry) -> TreeShape {
        TreeShape::new(ByteLen(geometry.len()), ByteLen(geometry.object_size().bytes()))
    }
}

/// Why leaves don't make the tree of a file.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TreeError {
    /// No digest for the leaves of these bytes.
    #[error("the leaves of bytes {0} are missing")]
    Missing(ByteRange),
    /// Two digests for one leaf.
    #[error("leaf {0} was hashed twice")]
    Duplicate(u64),
    /// More leaves than the file has.
    #[error("there are {found} leaves, but the file has {expected}")]
    Beyond {
        /// Up to the last one that was added.
        found: u64,
        /// As the file's length says.
        expected: u64,
    },
}

/// Makes the root from leaf digests that come in any order. Memory grows with the number of gaps, not of leaves.
#[derive(Clone, Debug)]
pub struct TreeAssembly {
    algorithm: Algorithm,
    forest: Forest<Digest>,
    /// What went wrong first; told by [`TreeAssembly::finish`].
    fault: Option<TreeError>,
}

impl TreeAssembly {
    /// No leaves yet.
    pub fn new(algorithm: Algorithm) -> TreeAssembly {
        TreeAssembly { algorithm, forest: Forest::new(), fault: None }
    }

    /// Adds the digest of one leaf, counted from 0.
    ///
    /// # Panics
    /// If the digest is of another algorithm: a mistake of the caller.
    pub fn add(&mut self, leaf: u64, leaf_digest: Digest) {
        assert_eq!(leaf_digest.algorithm(), self.algorithm, "leaves and nodes share one algorithm");
        let added = self.forest.insert(leaf, leaf_digest, node_digest);
        self.fault = self.fault.or(added.err().map(|Duplicate| TreeError::Duplicate(leaf)));
    }

    /// The root of the file's tree.
    ///
    /// # Errors
    /// [`TreeError`] if the leaves are not exactly those of the shape, each once.
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

/// The digest of an inner node.
pub fn node_digest(left: Digest, right: Digest) -> Digest {
    let mut hasher = Hasher::new(left.algorithm());
    hasher.update(left.as_bytes());
    hasher.update(right.as_bytes());
    hasher.finish()
}

/// The root over leaf digests that are all there, in order; for no leaves the digest of no bytes.
pub fn root_of(algorithm: Algorithm, leaves: &[Digest]) -> Digest {
    let mut spine = Spine::new(algorithm);
    for &leaf in leaves {
        spine.push(leaf);
    }
    spine.finish()
}

/// The tree digest of one stream, fed in order.
#[derive(Clone, Debug)]
pub struct TreeHasher {
    leaf: ByteLen,
    /// The leaf in the making, and how many bytes it still takes.
    hasher: Hasher,
    room: u64,
    spine: Spine,
}

impl TreeHasher {
    /// A hasher that has seen no bytes, for leaves of `leaf` bytes.
    ///
    /// # Panics
    /// If `leaf` is 0.
    pub fn new(algorithm: Algorithm, leaf: ByteLen) -> TreeHasher {
        assert!(leaf.0 > 0, "a leaf holds at least one byte");
        TreeHasher { leaf, hasher: Hasher::new(algorithm), room: leaf.0, spine: Spine::new(algorithm) }
    }

    /// What it computes.
    pub fn algorithm(&self) -> Algorithm {
        self.hasher.algorithm()
    }

    /// Takes the next bytes.
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

    /// Takes `len` bytes of 0, as a hole of a sparse file reads. Leaves that lie wholly in the hole share one
    /// digest, which is computed once.
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

    /// The root. A file of at most one leaf has its plain digest.
    pub fn finish(mut self) -> Digest {
        if self.room < self.leaf.0 {
            self.filled(self.room); // The last leaf is short.
        }
        self.spine.finish()
    }

    /// Notes that `len` bytes went into the leaf, and ends it once it is full.
    fn filled(&mut self, len: u64) {
        self.room -= len;
        if self.room == 0 {
            let next = Hasher::new(self.algorithm());
            self.spine.push(std::mem::replace(&mut self.hasher, next).finish());
            self.room = self.leaf.0;
        }
    }
}

/// The digest of `len` bytes of 0.
fn zeros_digest(algorithm: Algorithm, len: u64) -> Digest {
    let mut hasher = Hasher::new(algorithm);
    hasher.update_zeros(len);
    hasher.finish()
}

/// The complete subtrees to the left of the next leaf, largest first: at most 64, one for each bit of the number
/// of leaves so far.
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
