//! Sharing of one file: several workers hash its pieces in parallel.

use super::counters::Counters;
use super::lanes::LaneHands;
use super::order::{SumError, Sums};
use super::serial::{RunningDigests, leaves_of};
use super::settings::{Form, LEAVES_PER_PIECE_MAX, Recipe, Sample};
use super::source::{Opened, SourceRange};
use crate::waybill::{LeafStore, LeafSums, ObjectHasher, ObjectLeaves};
use haul_digest::tree::{TreeAssembly, TreeShape, root_of};
use haul_digest::{Algorithm, Assembly, Digest, Hasher, ObjectTable, Part, PartHasher, PartPlace};
use haul_model::{ByteLen, ByteOffset, ByteRange, Geometry, ObjectIndex, ObjectSize};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Open file that is cut into pieces, which any worker may take.
#[derive(Debug)]
pub(super) struct Split {
    opened: Opened,
    recipe: Arc<Recipe>,
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
    sums: Vec<CombinedDigests>,
    /// Object digests by the first algorithm, if they are kept.
    objects: Option<ObjectTable>,
    /// Digests of the leaves of the objects.
    leaf_sums: Option<LeafSums>,
}

#[derive(Debug)]
enum CombinedDigests {
    Parts(Assembly),
    Tree(TreeAssembly),
    /// Roots of the subtrees; each subtree is one piece.
    Subtrees(Vec<Option<Digest>>),
}

/// Result of one piece. It is a part for each algorithm (and leaves of the first), leaves with the
/// number of the first one, or the root of a subtree.
enum PieceResult {
    Parts(Vec<Part>, Option<ObjectLeaves>),
    Leaves(u64, Vec<Vec<Digest>>),
    Roots(Vec<Digest>),
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
        let sums = recipe.algorithms.iter().map(|&algorithm| cut.joined(algorithm, recipe.form)).collect();
        let objects = match recipe.form {
            Form::Objects { size, .. } => Some(ObjectTable::new(size)),
            _ => None,
        };
        let leaves = leaves.filter(|_| objects.is_some()).cloned();
        let leaf_sums = leaves.as_ref().map(LeafSums::new);
        let joint = Joint { pieces_left: cut.pieces(), failure: None, sums, objects, leaf_sums };
        let recipe = Arc::clone(recipe);
        Split { opened, recipe, range, cut, leaves, next: AtomicU64::new(0), joint: Mutex::new(joint) }
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
        let (failure, mut sums, objects, leaf_sums) = {
            let mut joint = self.lock();
            let sums = std::mem::take(&mut joint.sums);
            (joint.failure.take(), sums, joint.objects.take(), joint.leaf_sums.take().map(Arc::new))
        };
        if self.sample().is_some() {
            // Without the skipped objects there is no digest of the whole file.
            sums.clear();
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        self.opened.check_unchanged()?;
        let len = ByteLen(self.range.len());
        let misfit = |error: &dyn std::fmt::Display| SumError::Assembly(error.to_string());
        let (mut digests, mut subtrees) = (Vec::new(), Vec::new());
        for (&algorithm, joined) in self.recipe.algorithms.iter().zip(sums) {
            digests.push(match (joined, self.cut) {
                (CombinedDigests::Parts(assembly), _) => {
                    assembly.finish(len).map_err(|error| misfit(&error))?
                }
                (CombinedDigests::Tree(assembly), FilePieces::Leaves { shape, .. }) => {
                    assembly.finish(shape).map_err(|error| misfit(&error))?
                }
                (CombinedDigests::Subtrees(roots), _) => {
                    let roots: Option<Vec<Digest>> = roots.into_iter().collect();
                    let roots = roots.ok_or_else(|| misfit(&"a subtree is missing"))?;
                    let root = root_of(algorithm, &roots);
                    subtrees.push(roots);
                    root
                }
                (CombinedDigests::Tree(_), FilePieces::Objects(_)) => {
                    unreachable!("trees are cut into leaves")
                }
            });
        }
        let partial = self.range != ByteRange::between(0, self.opened.size());
        let leaves = leaves_of(self.recipe.form, self.range);
        let facts = self.opened.facts();
        Ok(Sums { range: self.range, partial, digests, leaves, subtrees, objects, leaf_sums, facts })
    }

    fn sample(&self) -> Option<Sample> {
        if let Form::Objects { sample, .. } = self.recipe.form { sample } else { None }
    }

    fn hash(&self, piece: u64, hands: &mut LaneHands, turn: Turn<'_>) -> Result<PieceResult, SumError> {
        if self.sample().is_some_and(|sample| !sample.picks(ObjectIndex(piece))) {
            return Ok(PieceResult::Passed);
        }
        match self.cut {
            FilePieces::Objects(geometry) => self.hash_object(geometry, ObjectIndex(piece), hands, turn),
            FilePieces::Leaves { shape, unit, side_by_side } => {
                self.hash_leaves(shape, piece, unit, side_by_side, hands, turn)
            }
        }
    }

    fn hash_object(
        &self,
        geometry: Geometry,
        index: ObjectIndex,
        hands: &mut LaneHands,
        turn: Turn<'_>,
    ) -> Result<PieceResult, SumError> {
        let Some(object) = geometry.object(index) else { unreachable!("only objects of the file are taken") };
        let place = PartPlace { offset: object.range.start, whole: geometry.count() == 1 };
        // The first algorithm of a recipe with objects is BLAKE3.
        let mut first = self.leaves.as_ref().map(|store| ObjectHasher::new(place, Some(store)));
        let others = self.recipe.algorithms.iter().skip(usize::from(first.is_some()));
        let mut hashers: Vec<_> = others.map(|&algorithm| PartHasher::new(algorithm, place)).collect();
        self.read(object.range, hands.block()?, |bytes| {
            if let Some(first) = &mut first {
                first.update(bytes);
            }
            hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
            turn.done_bytes(bytes.len())
        })?;
        let (first, leaves) = first.map(ObjectHasher::finish).unzip();
        let parts = first.into_iter().chain(hashers.into_iter().map(PartHasher::finish)).collect();
        Ok(PieceResult::Parts(parts, leaves.flatten()))
    }

    fn hash_leaves(
        &self,
        shape: TreeShape,
        piece: u64,
        unit: u64,
        side_by_side: bool,
        hands: &mut LaneHands,
        turn: Turn<'_>,
    ) -> Result<PieceResult, SumError> {
        let per_unit = unit / shape.leaf_size().0;
        let first = piece * per_unit;
        let last = (first + per_unit).min(shape.leaf_count());
        let subtrees = matches!(self.recipe.form, Form::Tree { leaf, subtree: Some(size) } if size != leaf);
        if subtrees && !side_by_side {
            // The root of a large subtree is computed as a stream, because its leaves may be too
            // many to keep.
            let ranges = (shape.range_of(first), shape.range_of(last - 1));
            let (Some(head), Some(tail)) = ranges else { unreachable!("the leaves are the file's") };
            let whole = Form::Tree { leaf: shape.leaf_size(), subtree: None };
            let recipe = Recipe { algorithms: self.recipe.algorithms.clone(), form: whole };
            let mut running_digests = RunningDigests::new(&recipe, None);
            self.read(ByteRange { start: head.start, end: tail.end }, hands.block()?, |bytes| {
                running_digests.update(bytes);
                turn.done_bytes(bytes.len())
            })?;
            return Ok(PieceResult::Roots(running_digests.finish(head, false).digests));
        }
        let digests = if side_by_side {
            let algorithm = self.recipe.algorithms[0];
            let read = |at: ByteOffset, buffer: &mut [u8]| {
                self.fill(at.0, buffer)?;
                turn.done_bytes(buffer.len())
            };
            vec![hands.hash_leaves(algorithm, shape, first..last, read)?]
        } else {
            self.hash_one_by_one(shape, first..last, hands, turn)?
        };
        if !subtrees {
            return Ok(PieceResult::Leaves(first, digests));
        }
        let algorithms = self.recipe.algorithms.iter();
        Ok(PieceResult::Roots(algorithms.zip(&digests).map(|(&alg, leaves)| root_of(alg, leaves)).collect()))
    }

    fn hash_one_by_one(
        &self,
        shape: TreeShape,
        leaves: std::ops::Range<u64>,
        hands: &mut LaneHands,
        turn: Turn<'_>,
    ) -> Result<Vec<Vec<Digest>>, SumError> {
        let algorithms = &self.recipe.algorithms;
        let mut digests = vec![Vec::new(); algorithms.len()];
        for leaf in leaves {
            let Some(range) = shape.range_of(leaf) else { unreachable!("the leaves are the file's") };
            let mut hashers: Vec<_> = algorithms.iter().map(|&alg| Hasher::new(alg)).collect();
            self.read(range, hands.block()?, |bytes| {
                hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
                turn.done_bytes(bytes.len())
            })?;
            for (column, hasher) in digests.iter_mut().zip(hashers) {
                column.push(hasher.finish());
            }
        }
        Ok(digests)
    }

    /// Reads a range block by block; offsets count from the first byte of the hashed range.
    fn read(
        &self,
        range: ByteRange,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]) -> Result<(), SumError>,
    ) -> Result<(), SumError> {
        let mut at = range.start.0;
        while at < range.end.0 {
            let want = buffer.len().min(usize::try_from(range.end.0 - at).unwrap_or(usize::MAX));
            self.fill(at, &mut buffer[..want])?;
            take(&buffer[..want])?;
            at += want as u64;
        }
        Ok(())
    }

    /// Fills the buffer from an offset in the hashed range. A file that ends before has changed.
    fn fill(&self, at: u64, buffer: &mut [u8]) -> Result<(), SumError> {
        let got = self.opened.read_at(self.range.start.0 + at, buffer)?;
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

    fn joined(self, algorithm: Algorithm, form: Form) -> CombinedDigests {
        match (self, form) {
            (FilePieces::Objects(geometry), _) => {
                CombinedDigests::Parts(Assembly::new(algorithm, geometry.object_size()))
            }
            (FilePieces::Leaves { shape, .. }, Form::Tree { subtree: Some(size), .. }) => {
                let len = shape.leaf_count().saturating_mul(shape.leaf_size().0);
                CombinedDigests::Subtrees(vec![
                    None;
                    usize::try_from(len.div_ceil(size.0)).unwrap_or(usize::MAX)
                ])
            }
            (FilePieces::Leaves { .. }, _) => CombinedDigests::Tree(TreeAssembly::new(algorithm)),
        }
    }
}

impl Joint {
    fn add(&mut self, piece: u64, brought: PieceResult) {
        match brought {
            PieceResult::Passed => {}
            PieceResult::Parts(parts, leaves) => {
                if let Some((sums, leaves)) = self.leaf_sums.as_mut().zip(leaves) {
                    sums.set(ObjectIndex(piece), leaves);
                }
                if let (Some(objects), Some(first)) = (&mut self.objects, parts.first()) {
                    objects.set(ObjectIndex(piece), first.digest());
                }
                for (joined, part) in self.sums.iter_mut().zip(parts) {
                    if let CombinedDigests::Parts(assembly) = joined {
                        assembly.add(ObjectIndex(piece), part);
                    }
                }
            }
            PieceResult::Leaves(first, columns) => {
                for (joined, leaves) in self.sums.iter_mut().zip(columns) {
                    for (leaf, digest) in (first..).zip(leaves) {
                        match joined {
                            CombinedDigests::Tree(assembly) => assembly.add(leaf, digest),
                            CombinedDigests::Subtrees(all) => all[leaf as usize] = Some(digest),
                            CombinedDigests::Parts(_) => unreachable!("leaves are joined by a tree"),
                        }
                    }
                }
            }
            PieceResult::Roots(roots) => {
                for (joined, root) in self.sums.iter_mut().zip(roots) {
                    if let CombinedDigests::Subtrees(all) = joined {
                        all[piece as usize] = Some(root);
                    }
                }
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
