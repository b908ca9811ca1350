//! Hashing of one source by one worker, from the first byte to the last.

use super::counters::Counters;
use super::order::{SumError, Sums};
use super::settings::{Form, PARTS_MAX, Recipe};
use super::source::{Opened, SourceRange};
use crate::waybill::{LeafGatherer, LeafStore};
use haul_digest::{FileDigest, Missing, StreamDigest, tree};
use haul_model::{ByteLen, ByteRange, ObjectSize};
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
    Ok(Sums { facts: opened.facts(), ..running_digests.finish(range, partial)? })
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
    stream: StreamDigest,
    /// Leaves of the objects, if they are kept.
    leaves: Option<LeafGatherer>,
}

impl RunningDigests {
    /// Creates empty digests; leaves go to the store, if there is one.
    pub(super) fn new(recipe: &Recipe, leaves: Option<&Arc<LeafStore>>) -> RunningDigests {
        let (size, leaves) = match recipe.form {
            Form::Objects { size, .. } => (size, leaves),
            Form::Plain | Form::Tree { .. } => (ObjectSize::DEFAULT, None),
        };
        let stream = FileDigest::stream(&recipe.digests(leaves.map(|store| store.leaf())), size);
        RunningDigests { form: recipe.form, stream, leaves: leaves.map(LeafGatherer::new) }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.stream.update(bytes);
        if let Some(leaves) = &mut self.leaves {
            leaves.take(self.stream.take_leaves());
        }
    }

    pub(super) fn finish(self, range: ByteRange, partial: bool) -> Result<Sums, SumError> {
        let (columns, last_leaves) = self.stream.finish().map_err(no_digest)?;
        let mut sums = Sums::new(range, partial, leaves_of(self.form, range));
        sums.set_digests(columns);
        sums.leaf_sums = self.leaves.map(|mut leaves| {
            leaves.take(last_leaves);
            Arc::new(leaves.finish(sums.objects.is_none()))
        });
        Ok(sums)
    }
}

/// Returns the reason why a file has no digest.
pub(super) fn no_digest(missing: Missing) -> SumError {
    match missing {
        Missing::Subtrees => SumError::TooManyParts { count: PARTS_MAX + 1, most: PARTS_MAX },
        Missing::Bytes(_) | Missing::Order(_) => SumError::Assembly(missing.to_string()),
    }
}

/// Returns the number of leaves in the tree of a range; 1 for a plain digest.
pub(super) fn leaves_of(form: Form, range: ByteRange) -> u64 {
    match form {
        Form::Plain | Form::Objects { .. } => 1,
        Form::Tree { leaf, .. } => tree::TreeShape::new(ByteLen(range.len()), leaf).leaf_count().max(1),
    }
}
