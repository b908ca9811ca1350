//! Digests of a file, computed from the same bytes that are copied.
//!
//! A file that one worker copies in order feeds one [`InOrder`]. A file whose objects several
//! workers copy has one [`SharedDigest`], and each object supplies its [`ObjectHash`]. All of them
//! compute the digest to print and those for the waybill in one [`FileDigest`].

use super::receipt::ReceiptSums;
use super::settings::{HashForm, Moving};
use crate::waybill::{LeafGatherer, LeafStore, LeafSums, LeafWriter};
use haul_digest::{
    Algebra, Algorithm, Digest, DigestSpec, FileDigest, FileSum, Form, KEPT_MAX, Missing, ObjectDigest,
    Recipe, StreamDigest,
};
use haul_log::waybill::CopyMethod;
use haul_model::{ByteLen, ByteOffset, ByteRange, Object, ObjectSize};
use haul_plan::Plan;
use parking_lot::Mutex;
use std::sync::Arc;

/// Number of zeros that are hashed before the digests of their leaves are stored, in bytes.
const ZEROS_BYTES: u64 = 1 << 20;

/// The digests of a file.
#[derive(Debug)]
pub struct FileHash {
    /// One value, or one per leaf if leaves were requested.
    pub digests: Vec<Digest>,
    /// True if the value is the root of a tree with more than one leaf.
    pub tree: bool,
    /// Digests for the waybill.
    pub receipt: Option<ReceiptSums>,
}

impl FileHash {
    /// Records the copy method for the waybill.
    pub(crate) fn delivered(mut self, way: CopyMethod) -> FileHash {
        if let Some(receipt) = &mut self.receipt {
            receipt.delivered(way);
        }
        self
    }

    /// Returns the digest of the complete file, as the algorithm itself defines it.
    pub fn whole(&self) -> Option<Digest> {
        match (self.digests.as_slice(), &self.receipt) {
            ([digest], _) if !self.tree => Some(*digest),
            (_, Some(receipt)) => receipt.digests.first().copied(),
            _ => None,
        }
    }
}

/// Returns true if any digest is requested, so that every byte is hashed while it is copied.
pub(crate) fn is_any(moving: &Moving) -> bool {
    moving.digest.is_some() || moving.receipt.is_some()
}

/// Returns true if the requested digest needs each file in order, from the first byte to the last.
pub(crate) fn is_serial(moving: &Moving) -> bool {
    let printed =
        matches!(moving.digest, Some((algorithm, HashForm::Plain)) if algorithm.algebra() == Algebra::Serial);
    printed || moving.receipt.as_ref().is_some_and(|receipt| receipt.is_serial())
}

/// Returns true if each leaf of a file of `len` bytes is to be printed, and there are more than a
/// job keeps.
pub(crate) fn has_too_many_leaves(moving: &Moving, len: u64) -> bool {
    matches!(moving.digest, Some((_, HashForm::Leaves(leaf))) if len.div_ceil(leaf.bytes()) > KEPT_MAX)
}

/// Digests that a job requests of each file.
#[derive(Debug)]
struct Requested {
    /// The digests for the waybill, and then the digest to print if it is not one of them.
    recipe: Recipe,
    /// Number of digests for the waybill.
    in_receipt: usize,
    /// Digest to print: its place in the recipe and its form.
    printed: Option<(usize, HashForm)>,
    /// Store for the leaves of the waybill.
    store: Option<Arc<LeafStore>>,
}

impl Requested {
    fn of(moving: &Moving) -> Requested {
        let receipt = moving.receipt.as_deref();
        let store = receipt.and_then(|receipt| receipt.leaves()).cloned();
        let algorithms = receipt.map_or(&[][..], |receipt| receipt.algorithms());
        let kept = Form::Objects { leaf: store.as_ref().map(|store| store.leaf()) };
        let forms = std::iter::once(kept).chain(std::iter::repeat(Form::Plain));
        let mut specs: Vec<DigestSpec> =
            algorithms.iter().zip(forms).map(|(&algorithm, form)| DigestSpec::new(algorithm, form)).collect();
        let in_receipt = specs.len();
        let place = |algorithm: Algorithm| algorithms.iter().position(|&other| other == algorithm);
        let printed = moving.digest.map(|(algorithm, form)| match place(algorithm) {
            Some(place) if form == HashForm::Plain => (place, form),
            _ => {
                let tree = |leaf: ObjectSize| ByteLen(leaf.bytes());
                specs.push(DigestSpec::new(
                    algorithm,
                    match form {
                        HashForm::Plain => Form::Plain,
                        HashForm::Tree(leaf) => Form::Tree { leaf: tree(leaf), keep: None },
                        HashForm::Leaves(leaf) => Form::Tree { leaf: tree(leaf), keep: Some(tree(leaf)) },
                    },
                ));
                (specs.len() - 1, form)
            }
        });
        Requested { recipe: Recipe::new(specs), in_receipt, printed, store }
    }

    fn is_any(&self) -> bool {
        !self.recipe.specs().is_empty()
    }

    /// Returns the requested digests of a file of `len` bytes.
    fn hash(&self, mut sums: Vec<FileSum>, leaves: Option<LeafSums>, len: u64) -> FileHash {
        let (mut digests, mut tree) = (Vec::new(), false);
        if let Some((place, form)) = self.printed {
            (digests, tree) = match form {
                HashForm::Plain => (sums[place].digest.into_iter().collect(), false),
                HashForm::Tree(leaf) => (sums[place].digest.into_iter().collect(), len > leaf.bytes()),
                HashForm::Leaves(leaf) => (std::mem::take(&mut sums[place].kept), len > leaf.bytes()),
            };
        }
        let receipt = (self.in_receipt > 0).then(|| {
            let objects = sums.first_mut().and_then(|first| first.objects.take());
            let digests = sums[..self.in_receipt].iter().filter_map(|sum| sum.digest);
            ReceiptSums::new(digests.collect(), objects, leaves)
        });
        FileHash { digests, tree, receipt }
    }
}

/// The digests of a file whose bytes arrive in order; `None` if none is requested.
pub(crate) struct InOrder(Option<OrderedDigests>);

struct OrderedDigests {
    requested: Requested,
    stream: StreamDigest,
    leaves: Option<LeafGatherer>,
}

impl InOrder {
    /// Creates the hashers that the job requests.
    pub(crate) fn new(moving: &Moving) -> InOrder {
        InOrder(is_any(moving).then(|| OrderedDigests::new(moving)))
    }

    /// Returns true if there is anything to compute.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.0.is_some()
    }

    /// Hashes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(digests) = &mut self.0 {
            digests.update(bytes);
        }
    }

    fn update_zeros(&mut self, len: u64) {
        if let Some(digests) = &mut self.0 {
            digests.update_zeros(len);
        }
    }

    /// Returns the digests of all `len` bytes, or `None` if no digest was requested.
    ///
    /// # Errors
    /// Returns [`Missing::Subtrees`] if the leaves to print are too many.
    pub(crate) fn finish(self, len: u64) -> Result<Option<FileHash>, Missing> {
        self.0.map(|digests| digests.finish(len)).transpose()
    }
}

impl OrderedDigests {
    fn new(moving: &Moving) -> OrderedDigests {
        let requested = Requested::of(moving);
        let stream = FileDigest::stream(&requested.recipe, moving.object_size());
        let leaves = requested.store.as_ref().map(LeafGatherer::new);
        OrderedDigests { requested, stream, leaves }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.stream.update(bytes);
        if let Some(leaves) = &mut self.leaves {
            leaves.take(self.stream.take_leaves());
        }
    }

    fn update_zeros(&mut self, len: u64) {
        let Some(leaves) = &mut self.leaves else { return self.stream.zeros(len) };
        for step in ByteRange::from_len(ByteOffset(0), ByteLen(len)).steps(ZEROS_BYTES) {
            self.stream.zeros(step.len());
            leaves.take(self.stream.take_leaves());
        }
    }

    fn finish(self, len: u64) -> Result<FileHash, Missing> {
        let (sums, last_leaves) = self.stream.finish()?;
        let leaves = self.leaves.map(|mut leaves| {
            leaves.take(last_leaves);
            leaves.finish(sums.first().is_none_or(|first| first.objects.is_none()))
        });
        Ok(self.requested.hash(sums, leaves, len))
    }
}

/// The digests of a file whose objects arrive in any order.
#[derive(Debug)]
pub(crate) struct SharedDigest {
    requested: Requested,
    state: Mutex<SharedState>,
}

#[derive(Debug)]
struct SharedState {
    /// `None` after the end.
    file: Option<FileDigest>,
    leaves: Option<LeafSums>,
}

impl SharedDigest {
    /// Creates the digests that the job requests, for a file cut as `plan` specifies.
    pub(crate) fn new(moving: &Moving, plan: &Plan) -> SharedDigest {
        let requested = Requested::of(moving);
        let file = Some(FileDigest::new(&requested.recipe, plan.geometry()));
        let leaves = requested.store.as_ref().map(LeafSums::new);
        SharedDigest { requested, state: Mutex::new(SharedState { file, leaves }) }
    }

    /// Starts one object of several.
    pub(crate) fn object(&self, object: Object) -> ObjectHash {
        let leaves = self.requested.store.as_ref().map(LeafWriter::new);
        ObjectHash { hasher: self.requested.recipe.object(object, false), leaves }
    }

    /// Adds a finished object.
    pub(crate) fn add(&self, object: Object, hash: ObjectHash) {
        if !self.requested.is_any() {
            return;
        }
        let sums = hash.hasher.finish();
        let leaves = hash.leaves.map(|leaves| leaves.finish_with(sums.leaves(), false));
        let mut state = self.state.lock();
        if let Some((all, leaves)) = state.leaves.as_mut().zip(leaves) {
            all.set(object.index, leaves);
        }
        if let Some(file) = &mut state.file {
            file.add(sums);
        }
    }

    /// Returns the digests of the file, or `None` if no digest was requested. Must be called only
    /// once.
    ///
    /// # Errors
    /// Returns [`Missing::Subtrees`] if the leaves to print are too many.
    ///
    /// # Panics
    /// Panics if an object is missing. The caller ends a file only after every object has finished.
    pub(crate) fn finish(&self, len: u64) -> Result<Option<FileHash>, Missing> {
        if !self.requested.is_any() {
            return Ok(None);
        }
        let (file, leaves) = {
            let mut state = self.state.lock();
            (state.file.take(), state.leaves.take())
        };
        let file = file.unwrap_or_else(|| unreachable!("a file is settled once"));
        match file.finish() {
            Ok(sums) => Ok(Some(self.requested.hash(sums, leaves, len))),
            Err(Missing::Subtrees) => Err(Missing::Subtrees),
            Err(missing) => panic!("every object of the file was hashed once: {missing}"),
        }
    }
}

/// The digests of one object.
pub(crate) struct ObjectHash {
    hasher: ObjectDigest,
    /// Leaves for the waybill.
    leaves: Option<LeafWriter>,
}

impl ObjectHash {
    fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        if let Some(leaves) = &mut self.leaves {
            self.hasher.take_leaves().for_each(|leaf| leaves.push(leaf));
        }
    }

    fn update_zeros(&mut self, len: u64) {
        let Some(leaves) = &mut self.leaves else { return self.hasher.zeros(len) };
        for step in ByteRange::from_len(ByteOffset(0), ByteLen(len)).steps(ZEROS_BYTES) {
            self.hasher.zeros(step.len());
            self.hasher.take_leaves().for_each(|leaf| leaves.push(leaf));
        }
    }
}

/// Observer of the bytes between read and write.
pub(crate) trait DataObserver {
    /// Returns true if the observer needs the bytes at all.
    fn watches(&self) -> bool;
    /// Observes the next bytes.
    fn see(&mut self, bytes: &[u8]);
    /// Observes the next `len` bytes, which are a hole.
    fn see_hole(&mut self, len: u64);
}

impl DataObserver for InOrder {
    fn watches(&self) -> bool {
        self.is_asked_for()
    }
    fn see(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
    fn see_hole(&mut self, len: u64) {
        self.update_zeros(len);
    }
}

impl DataObserver for ObjectHash {
    fn watches(&self) -> bool {
        self.hasher.is_needed()
    }
    fn see(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
    fn see_hole(&mut self, len: u64) {
        self.update_zeros(len);
    }
}
