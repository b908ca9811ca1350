//! Hashing of one source by one worker, from the first byte to the last.

use super::counters::Counters;
use super::order::{SumError, Sums};
use super::settings::{Form, PARTS_MAX, Recipe};
use super::source::{Opened, SourceRange};
use crate::waybill::{LeafStore, StreamSums};
use haul_digest::{Algorithm, Digest, Hasher, tree};
use haul_model::{ByteLen, ByteRange};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Hashes an open source in order. `buffer` receives each read.
pub(super) fn hash_in_order(
    opened: &Opened,
    recipe: &Recipe,
    mut running_digests: RunningDigests,
    buffer: &mut [u8],
    counters: &Counters,
    stop: &AtomicBool,
) -> Result<Sums, SumError> {
    check_parts(recipe.form, opened.len())?;
    let mut taken: u64 = 0;
    let mut take = |bytes: &[u8]| {
        taken += bytes.len() as u64;
        check_parts(recipe.form, taken)?;
        running_digests.update(bytes);
        counters.done_bytes(bytes.len() as u64);
        if stop.load(Ordering::Relaxed) { Err(SumError::Stopped) } else { Ok(()) }
    };
    let range = match opened.reach() {
        SourceRange::Spent => ByteRange::default(),
        SourceRange::Range(range) => read_range(opened, range, buffer, &mut take)?,
        SourceRange::Stream { skip, most } => read_stream(opened, skip, most, buffer, stop, &mut take)?,
    };
    conclude(opened, running_digests, range)
}

/// Checks that the requested subtrees of `len` bytes can be kept.
pub(super) fn check_parts(form: Form, len: u64) -> Result<(), SumError> {
    let Form::Tree { subtree: Some(size), .. } = form else { return Ok(()) };
    let count = len.div_ceil(size.0);
    if count <= PARTS_MAX { Ok(()) } else { Err(SumError::TooManyParts { count, most: PARTS_MAX }) }
}

/// Returns the result after `range` of an open source was hashed.
pub(super) fn conclude(
    opened: &Opened,
    running_digests: RunningDigests,
    range: ByteRange,
) -> Result<Sums, SumError> {
    opened.check_unchanged()?;
    // A source without a size (a pipe, a file in /proc) counts as complete unless a part was
    // requested.
    let partial = match opened.reach() {
        SourceRange::Range(wanted) => wanted != ByteRange::between(0, opened.size()),
        SourceRange::Stream { skip, most } => skip > 0 || most < u64::MAX,
        SourceRange::Spent => false,
    };
    Ok(Sums { facts: opened.facts(), ..running_digests.finish(range, partial) })
}

/// Reads a range of a file and returns the part that exists. A file may report a larger size than
/// it has (files in sysfs do). Its end is accepted if size and time stay unchanged, which the
/// caller checks.
fn read_range(
    opened: &Opened,
    range: ByteRange,
    buffer: &mut [u8],
    take: &mut impl FnMut(&[u8]) -> Result<(), SumError>,
) -> Result<ByteRange, SumError> {
    let mut at = range.start.0;
    while at < range.end.0 {
        let want = buffer.len().min(usize::try_from(range.end.0 - at).unwrap_or(usize::MAX));
        let got = opened.read_at(at, &mut buffer[..want])?;
        if got == 0 {
            break;
        }
        take(&buffer[..got])?;
        at += got as u64;
    }
    Ok(ByteRange::between(range.start.0, at))
}

fn read_stream(
    opened: &Opened,
    skip: u64,
    most: u64,
    buffer: &mut [u8],
    stop: &AtomicBool,
    take: &mut impl FnMut(&[u8]) -> Result<(), SumError>,
) -> Result<ByteRange, SumError> {
    let last = skip.saturating_add(most);
    let mut at: u64 = 0;
    while at < last {
        let target = if at < skip { skip } else { last };
        let want = buffer.len().min(usize::try_from(target - at).unwrap_or(usize::MAX));
        let got = opened.read_stream(at, &mut buffer[..want], stop)?;
        if got == 0 {
            break;
        }
        if at >= skip {
            take(&buffer[..got])?;
        }
        at += got as u64;
    }
    Ok(ByteRange::between(skip.min(at), at))
}

/// All digests of a recipe in progress, with input in order.
#[derive(Debug)]
pub(super) struct RunningDigests {
    form: Form,
    runners: Vec<Runner>,
}

/// One digest in progress.
#[derive(Debug)]
enum Runner {
    Plain(Hasher),
    Tree(Box<tree::TreeHasher>),
    Subtrees(Box<Subtrees>),
    Objects(Box<StreamSums>),
}

impl RunningDigests {
    /// Creates empty digests; leaves go to the store, if there is one.
    pub(super) fn new(recipe: &Recipe, leaves: Option<&Arc<LeafStore>>) -> RunningDigests {
        let first = recipe.algorithms.first();
        let runner = |algorithm: &Algorithm| match (recipe.form, *algorithm) {
            (Form::Objects { size, .. }, algorithm) if Some(&algorithm) == first => {
                Runner::Objects(Box::new(StreamSums::new(size, leaves)))
            }
            (_, algorithm) => Runner::of(algorithm, recipe.form),
        };
        RunningDigests { form: recipe.form, runners: recipe.algorithms.iter().map(runner).collect() }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        for runner in &mut self.runners {
            match runner {
                Runner::Plain(hasher) => hasher.update(bytes),
                Runner::Tree(hasher) => hasher.update(bytes),
                Runner::Subtrees(subtrees) => subtrees.update(bytes),
                Runner::Objects(sums) => sums.update(bytes),
            }
        }
    }

    pub(super) fn finish(self, range: ByteRange, partial: bool) -> Sums {
        let (mut subtrees, mut objects, mut leaf_sums) = (Vec::new(), None, None);
        let mut digests = Vec::with_capacity(self.runners.len());
        for runner in self.runners {
            digests.push(match runner {
                Runner::Plain(hasher) => hasher.finish(),
                Runner::Tree(hasher) => hasher.finish(),
                Runner::Subtrees(runner) => {
                    let (root, roots) = runner.finish();
                    subtrees.push(roots);
                    root
                }
                Runner::Objects(sums) => {
                    let (root, sums, leaves) = sums.finish();
                    objects = (!sums.is_empty()).then_some(sums);
                    leaf_sums = leaves.map(Arc::new);
                    root
                }
            });
        }
        let leaves = leaves_of(self.form, range);
        Sums { range, partial, digests, leaves, subtrees, objects, leaf_sums, facts: None }
    }
}

impl Runner {
    /// Creates a runner that keeps no objects.
    fn of(algorithm: Algorithm, form: Form) -> Runner {
        match form {
            Form::Plain | Form::Objects { .. } => Runner::Plain(Hasher::new(algorithm)),
            Form::Tree { leaf, subtree: None } => {
                Runner::Tree(Box::new(tree::TreeHasher::new(algorithm, leaf)))
            }
            Form::Tree { leaf, subtree: Some(size) } => {
                Runner::Subtrees(Box::new(Subtrees::new(algorithm, leaf, size)))
            }
        }
    }
}

/// Returns the number of leaves in the tree of a range; 1 for a plain digest.
pub(super) fn leaves_of(form: Form, range: ByteRange) -> u64 {
    match form {
        Form::Plain | Form::Objects { .. } => 1,
        Form::Tree { leaf, .. } => tree::TreeShape::new(ByteLen(range.len()), leaf).leaf_count().max(1),
    }
}

/// Tree that keeps the roots of its subtrees.
#[derive(Debug)]
struct Subtrees {
    algorithm: Algorithm,
    leaf: ByteLen,
    size: u64,
    room: u64,
    current: tree::TreeHasher,
    roots: Vec<Digest>,
}

impl Subtrees {
    fn new(algorithm: Algorithm, leaf: ByteLen, size: ByteLen) -> Subtrees {
        let current = tree::TreeHasher::new(algorithm, leaf);
        Subtrees { algorithm, leaf, size: size.0, room: size.0, current, roots: Vec::new() }
    }

    fn update(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let now = rest.len().min(usize::try_from(self.room).unwrap_or(usize::MAX));
            let (head, tail) = rest.split_at(now);
            self.current.update(head);
            self.room -= now as u64;
            if self.room == 0 {
                self.close();
            }
            rest = tail;
        }
    }

    fn close(&mut self) {
        let next = tree::TreeHasher::new(self.algorithm, self.leaf);
        self.roots.push(std::mem::replace(&mut self.current, next).finish());
        self.room = self.size;
    }

    /// Returns the root of the tree and those of the subtrees; an empty file has one subtree, of no
    /// bytes.
    fn finish(mut self) -> (Digest, Vec<Digest>) {
        if self.room < self.size || self.roots.is_empty() {
            self.close();
        }
        (tree::root_of(self.algorithm, &self.roots), self.roots)
    }
}
