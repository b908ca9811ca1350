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
    let range = opened.each_block(buffer, stop, |bytes| {
        taken += bytes.len() as u64;
        check_parts(recipe.form, taken)?;
        running_digests.update(bytes);
        counters.done_bytes(bytes.len() as u64);
        if stop.load(Ordering::Relaxed) { Err(SumError::Stopped) } else { Ok(()) }
    })?;
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
