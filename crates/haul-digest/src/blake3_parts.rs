//! BLAKE3 of a file whose objects are hashed in any order.
//!
//! BLAKE3 is a binary tree over chunks of 1,024 bytes. An object, a power of two of bytes at a multiple of its
//! size, is a whole subtree, and two neighbours at an even and an odd place are the children of the next node
//! up. Only the topmost node ends differently, and which one that is shows with the file's length alone. So a
//! node made of two children keeps both until it gets a parent itself (then it is not the topmost) or the file
//! is complete (then it is).

use crate::lanes::chunks::{CHUNK_BYTES, chunk_values};
use crate::part::PartPlace;
use blake3::hazmat::{self, ChainingValue, HasherExt, Mode};
use haul_model::LeafSize;

/// The running hash of one object.
#[derive(Clone)]
pub(crate) struct Blake3Stream {
    inner: Box<blake3::Hasher>,
    whole: bool,
}

/// A finished object as a node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blake3Part {
    /// The digest of the file that this part is all of.
    Whole([u8; 32]),
    /// The chaining value of a part of a larger file.
    Inner(ChainingValue),
    /// A part of no bytes, which is no node.
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

    /// The part, which starts at 0, turns out to be the whole file.
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

/// The chaining values of neighbouring leaves, all of them whole, the first one at `offset`.
pub(crate) fn leaf_values(bytes: &[u8], offset: u64, leaf: LeafSize, mut found: impl FnMut(&ChainingValue)) {
    let size = leaf.bytes() as usize;
    // Larger leaves fill the crate's own lanes with chunks of each.
    let taken =
        if size == CHUNK_BYTES { chunk_values(bytes, offset / CHUNK_BYTES as u64, &mut found) } else { 0 };
    for (number, leaf) in bytes[taken..].chunks_exact(size).enumerate() {
        // A new one each time: resetting keeps the old offset.
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(offset + (taken + number * size) as u64);
        hasher.update(leaf);
        found(&hasher.finalize_non_root());
    }
}

/// A node that may still turn out to be the topmost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blake3Node {
    /// The chaining value of one object; it cannot be the topmost.
    Object(ChainingValue),
    /// Two children, not yet joined.
    Pair(ChainingValue, ChainingValue),
}

impl Blake3Node {
    /// The parent of two neighbours.
    pub(crate) fn parent(left: Blake3Node, right: Blake3Node) -> Blake3Node {
        Blake3Node::Pair(left.chaining_value(), right.chaining_value())
    }

    /// The digest with this node as the topmost; `None` for one object, whose last compression was made for a
    /// place below the top.
    pub(crate) fn root(self) -> Option<[u8; 32]> {
        match self {
            Blake3Node::Object(_) => None,
            Blake3Node::Pair(left, right) => {
                Some(*hazmat::merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
            }
        }
    }

    /// The node's value for a parent.
    pub(crate) fn chaining_value(self) -> ChainingValue {
        match self {
            Blake3Node::Object(value) => value,
            Blake3Node::Pair(left, right) => hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash),
        }
    }
}
