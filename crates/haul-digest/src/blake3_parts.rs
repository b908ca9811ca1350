//! BLAKE3 of a file whose objects are hashed in any order.
//!
//! BLAKE3 is a binary tree over chunks of 1,024 bytes. An object, a power of two of bytes at a
//! multiple of its size, is a complete subtree. Two adjacent subtrees with an even and an odd
//! number are the children of the next higher node.
//!
//! Only the root is finalized differently, and only the length of the file determines which node is
//! the root. A node with two children therefore keeps both. It is not the root if it gets a parent,
//! and it is the root if the file is complete without one.

use crate::lanes::chunks::{CHUNK_BYTES, chunk_values};
use crate::part::PartPlace;
use blake3::hazmat::{self, ChainingValue, HasherExt, Mode};
use haul_model::LeafSize;

/// Running hash of one object.
#[derive(Clone)]
pub(crate) struct Blake3Stream {
    inner: Box<blake3::Hasher>,
    whole: bool,
}

/// A finished object as a node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blake3Part {
    /// Digest of a file that consists of this part.
    Whole([u8; 32]),
    /// Chaining value of a part of a larger file.
    Inner(ChainingValue),
    /// An empty part, which is not a node.
    Empty,
}

impl Blake3Stream {
    pub(crate) fn new(place: PartPlace) -> Blake3Stream {
        assert!(!place.whole || place.offset.0 == 0, "a part that is the whole file starts at 0");
        let mut inner = Box::new(blake3::Hasher::new());
        inner.set_input_offset(place.offset.0);
        Blake3Stream { inner, whole: place.whole }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.inner.update(bytes);
    }

    /// Marks the part, which starts at 0, as the complete file.
    pub(crate) fn end_as_whole(&mut self) {
        self.whole = true;
    }

    pub(crate) fn finish(self) -> Blake3Part {
        if self.whole {
            Blake3Part::Whole(*self.inner.finalize().as_bytes())
        } else if self.inner.count() == 0 {
            Blake3Part::Empty
        } else {
            Blake3Part::Inner(self.inner.finalize_non_root())
        }
    }
}

/// Passes the chaining values of consecutive complete leaves, the first of which is at `offset`, to
/// `found`.
pub(crate) fn leaf_values(bytes: &[u8], offset: u64, leaf: LeafSize, mut found: impl FnMut(&ChainingValue)) {
    let size = leaf.bytes() as usize;
    // Larger leaves fill the lanes of the `blake3` crate with their own chunks.
    let taken =
        if size == CHUNK_BYTES { chunk_values(bytes, offset / CHUNK_BYTES as u64, &mut found) } else { 0 };
    for (number, leaf) in bytes[taken..].chunks_exact(size).enumerate() {
        // Create a new hasher each time: a reset keeps the old offset.
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(offset + (taken + number * size) as u64);
        hasher.update(leaf);
        found(&hasher.finalize_non_root());
    }
}

/// A node that may still become the root.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blake3Node {
    /// Chaining value of one object; it cannot be the root.
    Object(ChainingValue),
    /// Two children that are not combined yet.
    Pair(ChainingValue, ChainingValue),
}

impl Blake3Node {
    /// Returns the parent of two adjacent nodes.
    pub(crate) fn parent(left: Blake3Node, right: Blake3Node) -> Blake3Node {
        Blake3Node::Pair(left.chaining_value(), right.chaining_value())
    }

    /// Returns the digest with this node as the root. Returns `None` for a single object, whose
    /// last compression was made for an inner node.
    pub(crate) fn root(self) -> Option<[u8; 32]> {
        match self {
            Blake3Node::Object(_) => None,
            Blake3Node::Pair(left, right) => {
                Some(*hazmat::merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
            }
        }
    }

    /// Returns the value of the node for its parent.
    pub(crate) fn chaining_value(self) -> ChainingValue {
        match self {
            Blake3Node::Object(value) => value,
            Blake3Node::Pair(left, right) => hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash),
        }
    }
}
