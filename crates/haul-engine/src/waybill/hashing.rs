//! BLAKE3 digests for a waybill: of a file, of its objects, and of their leaves if requested.

use super::leaves::{LeafStore, LeafSums, LeafWriter, ObjectLeaves};
use haul_digest::{
    Algorithm, Digest, Found, LeafHasher, ObjectStream, ObjectTable, Part, PartHasher, PartPlace,
};
use haul_model::{ObjectIndex, ObjectSize};
use std::sync::Arc;

/// Digests of a file with input in order.
#[derive(Debug)]
pub(crate) struct StreamSums {
    stream: ObjectStream,
    gathered: Gathered,
}

#[derive(Debug)]
struct Gathered {
    objects: ObjectTable,
    leaves: Option<(LeafSums, LeafWriter)>,
}

impl StreamSums {
    /// Creates digests for objects of `size`; with a store, also for their leaves.
    pub(crate) fn new(size: ObjectSize, store: Option<&Arc<LeafStore>>) -> StreamSums {
        let leaf = store.map(|store| store.leaf());
        let leaves = store.map(|store| (LeafSums::new(store), LeafWriter::new(store)));
        StreamSums {
            stream: ObjectStream::new(Algorithm::Blake3, size, leaf),
            gathered: Gathered { objects: ObjectTable::new(size), leaves },
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.stream.update(bytes, |found| self.gathered.take(found));
    }

    /// Returns the digest of the file, those of its objects if there is more than one, and its
    /// leaves.
    pub(crate) fn finish(mut self) -> (Digest, ObjectTable, Option<LeafSums>) {
        let digest = self.stream.finish(|found| self.gathered.take(found));
        let Gathered { objects, leaves } = self.gathered;
        let leaves = leaves.map(|(mut sums, last)| {
            // With several objects, the leaves of the last one were added with its own digest.
            if objects.is_empty() {
                sums.set(ObjectIndex(0), last.finish(true));
            }
            sums
        });
        (digest, objects, leaves)
    }
}

impl Gathered {
    fn take(&mut self, found: Found) {
        match (found, &mut self.leaves) {
            (Found::Leaf(_, leaf), Some((_, writer))) => writer.push(leaf),
            (Found::Leaf(..), None) => {}
            (Found::Object(index, value), leaves) => {
                self.objects.set(index, value);
                if let Some((sums, writer)) = leaves {
                    let next = LeafWriter::new(sums.store());
                    sums.set(index, std::mem::replace(writer, next).finish(false));
                }
            }
        }
    }
}

/// Digest of one object that is hashed independently of the others.
#[derive(Debug)]
pub(crate) enum ObjectHasher {
    /// The object's digest only.
    Whole(PartHasher),
    /// The digests of its leaves as well.
    Leaves(Box<LeafHasher>, LeafWriter, PartPlace),
}

impl ObjectHasher {
    /// Creates a BLAKE3 hasher, with leaves if there is a store for them.
    pub(crate) fn new(place: PartPlace, store: Option<&Arc<LeafStore>>) -> ObjectHasher {
        match store {
            None => ObjectHasher::Whole(PartHasher::new(Algorithm::Blake3, place)),
            Some(store) => {
                let hasher = LeafHasher::new(Algorithm::Blake3, place.offset, store.leaf());
                ObjectHasher::Leaves(Box::new(hasher), LeafWriter::new(store), place)
            }
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            ObjectHasher::Whole(hasher) => hasher.update(bytes),
            ObjectHasher::Leaves(hasher, writer, _) => hasher.update(bytes, |leaf| writer.push(leaf)),
        }
    }

    /// Returns the digest of the object, and its leaves.
    pub(crate) fn finish(self) -> (Part, Option<ObjectLeaves>) {
        match self {
            ObjectHasher::Whole(hasher) => (hasher.finish(), None),
            ObjectHasher::Leaves(hasher, mut writer, place) => {
                let part = hasher.finish(place.whole, |leaf| writer.push(leaf));
                (part, Some(writer.finish(place.whole)))
            }
        }
    }
}
