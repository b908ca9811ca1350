//! Sharing of one file: several workers hash its pieces in parallel.

use super::counters::Counters;
use super::lanes::LaneHands;
use super::order::{SumError, Sums};
use super::serial::{leaves_of, no_digest};
use super::settings::{Form, LEAVES_PER_PIECE_MAX, Recipe, Sample};
use super::source::{Opened, SourceRange};
use crate::pipeline::read_blocks;
use crate::waybill::{LeafStore, LeafSums, LeafWriter, ObjectLeaves};
use haul_digest::tree::TreeShape;
use haul_digest::{Digest, FileDigest, ObjectSums};
use haul_model::{ByteLen, ByteOffset, ByteRange, Geometry, Object, ObjectIndex, ObjectSize};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Open file that is cut into pieces, which any worker may take.
#[derive(Debug)]
pub(super) struct Split {
    opened: Opened,
    recipe: Arc<Recipe>,
    /// Digests that each piece contributes to.
    digests: haul_digest::Recipe,
    range: ByteRange,
    cut: FilePieces,
    /// Store for the leaves of objects.
    leaves: Option<Arc<LeafStore>>,
    /// Number of the next piece to take.
    next: AtomicU64,
    joint: Mutex<Joint>,
}

/// Plan for sharing a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    range: ByteRange,
    cut: FilePieces,
}

/// Cut of a file into pieces.
#[derive(Clone, Copy, Debug)]
enum FilePieces {
    /// Objects whose digests combine.
    Objects(Geometry),
    /// Runs of leaves; each run has `unit` bytes, a multiple of the leaf size.
    Leaves { shape: TreeShape, unit: u64, side_by_side: bool },
}

/// Combined result of the finished pieces.
#[derive(Debug)]
struct Joint {
    pieces_left: u64,
    failure: Option<SumError>,
    /// Digests of the file; `None` after the end.
    digests: Option<FileDigest>,
    /// Digests of the leaves of the objects.
    leaf_sums: Option<LeafSums>,
}

/// Result of one piece.
enum PieceResult {
    /// The digests of the piece, and the leaves of an object.
    Hashed(ObjectSums, Option<ObjectLeaves>),
    /// Leaves of a tree for each algorithm, hashed in lanes.
    Leaves(Object, Vec<Vec<Digest>>),
    /// Nothing: the object is not in the sample.
    Passed,
}

/// State of the job while a piece is hashed.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) counters: &'a Counters,
    /// True once the job is to stop.
    pub(super) stop: &'a AtomicBool,
}

impl Turn<'_> {
    /// Counts bytes as hashed.
    ///
    /// # Errors
    /// Returns [`SumError::Stopped`] if the job is to stop.
    fn done_bytes(self, bytes: usize) -> Result<(), SumError> {
        self.counters.done_bytes(bytes as u64);
        if self.stop.load(Ordering::Relaxed) { Err(SumError::Stopped) } else { Ok(()) }
    }
}

/// State of the file after a finished piece.
pub(super) enum Progress {
    /// Pieces are left, or other workers are still hashing.
    Going,
    /// This was the last piece.
    Last,
}

impl Split {
    /// Returns a plan for sharing an open file. Returns `None` if the file is a single piece or is
    /// not a range of a file. Also returns `None` if a digest needs its input in order.
    pub(super) fn plan(
        opened: &Opened,
        recipe: &Recipe,
        object: ObjectSize,
        hands: &mut LaneHands,
        workers: usize,
    ) -> Option<Plan> {
        let SourceRange::Range(range) = opened.reach() else { return None };
        if !recipe.splits() {
            return None;
        }
        let len = ByteLen(range.len());
        let cut = match recipe.form {
            Form::Plain => FilePieces::Objects(Geometry::new(len, object)),
            Form::Objects { size, .. } => FilePieces::Objects(Geometry::new(len, size)),
            Form::Tree { leaf, subtree } => {
                let shape = TreeShape::new(len, leaf);
                let lanes = hands.leaves_in_lanes(recipe, shape, workers);
                let run = leaf.0.saturating_mul(lanes.unwrap_or(1) as u64);
                // If each subtree is one leaf, a piece may hold any number of them.
                let unit = match subtree {
                    Some(size) if size != leaf => size.0,
                    _ => whole_leaves(run, leaf, object),
                };
                let side_by_side = lanes.is_some() && unit / leaf.0 <= LEAVES_PER_PIECE_MAX;
                FilePieces::Leaves { shape, unit, side_by_side }
            }
        };
        let alone = cut.pieces() <= 1 && !matches!(cut, FilePieces::Leaves { side_by_side: true, .. });
        (!alone).then_some(Plan { range, cut })
    }

    /// Creates the shared file with the planned cut. If objects are kept, their leaves go to the
    /// store, if there is one.
    pub(super) fn new(
        opened: Opened,
        recipe: &Arc<Recipe>,
        Plan { range, cut }: Plan,
        leaves: Option<&Arc<LeafStore>>,
    ) -> Split {
        let leaves = leaves.filter(|_| matches!(recipe.form, Form::Objects { .. })).cloned();
        let digests = recipe.digests(leaves.as_ref().map(|store| store.leaf()));
        let file = match cut {
            FilePieces::Objects(geometry) => FileDigest::new(&digests, geometry),
            FilePieces::Leaves { unit, .. } => {
                FileDigest::in_pieces(&digests, ByteLen(range.len()), ByteLen(unit))
            }
        };
        let leaf_sums = leaves.as_ref().map(LeafSums::new);
        let joint = Joint { pieces_left: cut.pieces(), failure: None, digests: Some(file), leaf_sums };
        let (recipe, next) = (Arc::clone(recipe), AtomicU64::new(0));
        Split { opened, recipe, digests, range, cut, leaves, next, joint: Mutex::new(joint) }
    }

    /// Returns the next piece for a worker; `None` if all are taken.
    pub(super) fn take(&self) -> Option<u64> {
        let piece = self.next.fetch_add(1, Ordering::Relaxed);
        (piece < self.cut.pieces()).then_some(piece)
    }

    /// Takes all pieces that are left. Returns their number.
    fn take_rest(&self) -> u64 {
        let pieces = self.cut.pieces();
        pieces.saturating_sub(self.next.fetch_max(pieces, Ordering::Relaxed))
    }

    /// Returns true if no piece is left to take.
    pub(super) fn all_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.cut.pieces()
    }

    /// Hashes one piece and adds its result. After a failure the remaining pieces are only counted.
    pub(super) fn work(&self, piece: u64, hands: &mut LaneHands, turn: Turn<'_>) -> Progress {
        let broken = self.lock().failure.is_some();
        let hash = || turn.done_bytes(0).and_then(|()| self.hash(piece, hands, turn));
        let brought = (!broken).then(hash);
        let mut joint = self.lock();
        match brought {
            Some(Ok(brought)) => joint.add(piece, brought),
            Some(Err(error)) if joint.failure.is_none() => joint.failure = Some(error),
            _ => {}
        }
        // Exabytes of holes are a trillion pieces.
        let dropped = if joint.failure.is_some() { self.take_rest() } else { 0 };
        joint.pieces_left -= 1 + dropped;
        if joint.pieces_left == 0 { Progress::Last } else { Progress::Going }
    }

    /// Returns the digests after the last piece.
    pub(super) fn finish(&self) -> Result<Sums, SumError> {
        let (failure, digests, leaf_sums) = {
            let mut joint = self.lock();
            (joint.failure.take(), joint.digests.take(), joint.leaf_sums.take().map(Arc::new))
        };
        if let Some(failure) = failure {
            return Err(failure);
        }
        self.opened.check_unchanged()?;
        let digests = digests.unwrap_or_else(|| unreachable!("a file ends once"));
        let partial = self.range != ByteRange::between(0, self.opened.size());
        let mut sums = Sums::new(self.range, partial, leaves_of(self.recipe.form, self.range));
        (sums.leaf_sums, sums.facts) = (leaf_sums, self.opened.facts());
        if self.sample().is_some() {
            // Without the skipped objects there is no digest of the whole file.
            sums.objects = digests.into_objects().find_map(|objects| objects);
            return Ok(sums);
        }
        sums.set_digests(digests.finish().map_err(no_digest)?);
        Ok(sums)
    }

    fn sample(&self) -> Option<Sample> {
        if let Form::Objects { sample, .. } = self.recipe.form { sample } else { None }
    }

    fn hash(&self, piece: u64, hands: &mut LaneHands, turn: Turn<'_>) -> Result<PieceResult, SumError> {
        if self.sample().is_some_and(|sample| !sample.picks(ObjectIndex(piece))) {
            return Ok(PieceResult::Passed);
        }
        let object = self.cut.object(piece, self.range.len());
        if let FilePieces::Leaves { shape, side_by_side: true, .. } = self.cut {
            let first = object.range.start.0 / shape.leaf_size().0;
            let leaves = first..first + object.range.len().div_ceil(shape.leaf_size().0);
            let read = |at: ByteOffset, buffer: &mut [u8]| {
                self.fill(at.0, buffer)?;
                turn.done_bytes(buffer.len())
            };
            let leaves = hands.hash_leaves(self.recipe.algorithms[0], shape, leaves, read)?;
            return Ok(PieceResult::Leaves(object, vec![leaves]));
        }
        let whole = object.range.len() == self.range.len();
        let mut hasher = self.digests.object(object, whole);
        let mut leaves = self.leaves.as_ref().map(LeafWriter::new);
        let start = self.range.start.0;
        let range = ByteRange::between(start + object.range.start.0, start + object.range.end.0);
        read_blocks(&self.opened, range, hands.block()?, turn.stop, |_, bytes| {
            hasher.update(bytes);
            if let Some(leaves) = &mut leaves {
                hasher.take_leaves().for_each(|leaf| leaves.push(leaf));
            }
            turn.done_bytes(bytes.len())
        })?;
        let sums = hasher.finish();
        let leaves = leaves.map(|leaves| leaves.finish_with(sums.leaves(), whole));
        Ok(PieceResult::Hashed(sums, leaves))
    }

    /// Fills the buffer from an offset in the hashed range. A file that ends before has changed.
    fn fill(&self, at: u64, buffer: &mut [u8]) -> Result<(), SumError> {
        let got = self.opened.read(self.range.start.0 + at, buffer)?;
        if got == buffer.len() { Ok(()) } else { Err(SumError::Changed) }
    }

    fn lock(&self) -> MutexGuard<'_, Joint> {
        self.joint.lock()
    }
}

impl FilePieces {
    fn pieces(self) -> u64 {
        match self {
            FilePieces::Objects(geometry) => geometry.count(),
            FilePieces::Leaves { shape, unit, .. } => {
                let len = shape.leaf_count().saturating_mul(shape.leaf_size().0);
                len.div_ceil(unit)
            }
        }
    }

    /// Returns a piece of a range of `len` bytes.
    fn object(self, piece: u64, len: u64) -> Object {
        let size = match self {
            FilePieces::Objects(geometry) => geometry.object_size().bytes(),
            FilePieces::Leaves { unit, .. } => unit,
        };
        let start = piece * size;
        let range = ByteRange::between(start, start.saturating_add(size).min(len));
        Object { index: ObjectIndex(piece), range }
    }
}

impl Joint {
    fn add(&mut self, piece: u64, brought: PieceResult) {
        let Some(digests) = &mut self.digests else { return };
        match brought {
            PieceResult::Passed => {}
            PieceResult::Hashed(sums, leaves) => {
                if let Some((all, leaves)) = self.leaf_sums.as_mut().zip(leaves) {
                    all.set(ObjectIndex(piece), leaves);
                }
                digests.add(sums);
            }
            PieceResult::Leaves(object, leaves) => {
                digests.known_leaves(object, leaves);
            }
        }
    }
}

/// Returns the piece size for runs of leaves, in bytes. Small leaves are grouped into pieces of an
/// object's size, with at most [`LEAVES_PER_PIECE_MAX`] leaves.
fn whole_leaves(run: u64, leaf: ByteLen, object: ObjectSize) -> u64 {
    let runs = object.bytes() / run;
    let most = LEAVES_PER_PIECE_MAX / (run / leaf.0);
    run.saturating_mul(runs.min(most).max(1))
}
