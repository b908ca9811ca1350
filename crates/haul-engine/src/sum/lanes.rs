//! Buffers of a worker, and the lanes in which it hashes several messages of one serial digest at a
//! time.

use super::order::SumError;
use super::settings::{Form, Recipe, Settings};
use crate::pipeline::{Block, Reads};
use haul_digest::lanes::{LaneAlgorithm, Streams};
use haul_digest::tree::TreeShape;
use haul_digest::{Algorithm, Digest};
use haul_model::ByteOffset;
use std::ops::Range;

/// Maximum size of the lane buffers of all workers together, in bytes.
const LANE_BUFFERS_MAX: usize = 32 << 20;

/// Gap between the parts of a lane buffer, in bytes. Parts that start at the same offset within a
/// page would compete for the same few sets of the first-level cache.
const LANE_GAP_BYTES: usize = 64;

/// Maximum number of lanes.
const WIDTH_MAX: usize = 32;

/// Maximum number of leaf digests that one piece of a file may return: 4 MiB of them.
const LEAVES_AT_ONCE_MAX: u64 = 1 << 16;

/// Private memory of one worker. It is allocated on first use.
pub(super) struct LaneHands {
    block_bytes: usize,
    lane_block: usize,
    lane_gap: usize,
    block: Option<Block>,
    lanes: Option<Lanes>,
}

/// Lanes of one algorithm, each with its part of a buffer.
pub(super) struct Lanes {
    algorithm: Algorithm,
    streams: Streams,
    buffer: Block,
    block: usize,
    /// Distance between the buffer parts of two adjacent lanes, in bytes.
    stride: usize,
}

impl LaneHands {
    pub(super) fn new(settings: &Settings) -> LaneHands {
        let share = LANE_BUFFERS_MAX / settings.workers.max(1) / WIDTH_MAX / 4096 * 4096;
        let lane_block = share.clamp(4096, Reads::InLanes.bytes_max());
        // Reads past the page cache need page-aligned buffers.
        let lane_gap = if settings.direct { 0 } else { LANE_GAP_BYTES };
        LaneHands { block_bytes: settings.block_bytes, lane_block, lane_gap, block: None, lanes: None }
    }

    /// Returns the buffer for one read.
    pub(super) fn block(&mut self) -> Result<&mut [u8], SumError> {
        let block = match self.block.take() {
            Some(block) => block,
            None => Block::new(self.block_bytes).map_err(SumError::Open)?,
        };
        Ok(self.block.insert(block))
    }

    /// Returns true if files of this recipe can be hashed in lanes.
    pub(super) fn may_take(&self, recipe: &Recipe) -> bool {
        recipe.form == Form::Plain && only_lane_algorithm(recipe).is_some()
    }

    /// Returns the lanes of an algorithm that supports them.
    pub(super) fn lanes(&mut self, algorithm: Algorithm) -> Result<&mut Lanes, SumError> {
        let lanes = match self.lanes.take().filter(|lanes| lanes.algorithm == algorithm) {
            Some(lanes) => lanes,
            None => Lanes::new(algorithm, self.lane_block, self.lane_gap)?,
        };
        Ok(self.lanes.insert(lanes))
    }

    /// Returns the number of leaves that a worker should hash in parallel lanes, or `None` if
    /// sequential hashing is faster.
    pub(super) fn leaves_in_lanes(
        &mut self,
        recipe: &Recipe,
        shape: TreeShape,
        workers: usize,
    ) -> Option<usize> {
        let algorithm = only_lane_algorithm(recipe)?;
        let lanes = self.lanes(algorithm).ok()?;
        let (width, streams_min) = (lanes.width() as u64, lanes.streams.algorithm().streams_min());
        let mut most = width;
        if let Form::Tree { leaf, subtree: Some(size) } = recipe.form
            && size != leaf
        {
            let leaves = size.0 / leaf.0;
            most = if leaves > LEAVES_AT_ONCE_MAX { 1 } else { width.min(leaves) };
        }
        let share = shape.leaf_count().div_ceil(workers.max(1) as u64).clamp(1, most);
        let lanes = if share.is_power_of_two() { share } else { share.next_power_of_two() / 2 };
        let lanes = usize::try_from(lanes).ok()?;
        (lanes >= streams_min).then_some(lanes)
    }

    /// Returns the digests of some leaves of a tree, hashed in lanes. `read` fills a buffer from an
    /// offset in the cut.
    pub(super) fn hash_leaves(
        &mut self,
        algorithm: Algorithm,
        shape: TreeShape,
        leaves: Range<u64>,
        mut read: impl FnMut(ByteOffset, &mut [u8]) -> Result<(), SumError>,
    ) -> Result<Vec<Digest>, SumError> {
        let lanes = self.lanes(algorithm)?;
        let mut digests = Vec::with_capacity((leaves.end - leaves.start) as usize);
        let mut first = leaves.start;
        while first < leaves.end {
            let last = leaves.end.min(first + lanes.width() as u64);
            lanes.hash_group(shape, first..last, &mut read, &mut digests)?;
            first = last;
        }
        Ok(digests)
    }
}

impl Lanes {
    fn new(algorithm: Algorithm, block: usize, gap: usize) -> Result<Lanes, SumError> {
        let Some(lanes) = LaneAlgorithm::of(algorithm) else { panic!("{algorithm} has no lanes") };
        let streams = Streams::new(lanes);
        let stride = block + gap;
        let buffer = Block::new(streams.width() * stride).map_err(SumError::Open)?;
        Ok(Lanes { algorithm, streams, buffer, block, stride })
    }

    /// Returns the number of lanes.
    pub(super) fn width(&self) -> usize {
        self.streams.width()
    }

    /// Returns the number of bytes that each lane takes at a time.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    /// Returns the part of the buffer that belongs to a lane.
    pub(super) fn block_of(&mut self, lane: usize) -> &mut [u8] {
        &mut self.buffer[lane * self.stride..][..self.block]
    }

    /// Hashes, for each given lane, the given number of bytes in its part of the buffer.
    pub(super) fn update(&mut self, filled: &[(usize, usize)]) {
        let part = |&(lane, len): &(usize, usize)| (lane, &self.buffer[lane * self.stride..][..len]);
        let mut inputs: [(usize, &[u8]); WIDTH_MAX] = [(0, &[]); WIDTH_MAX];
        for (input, filled) in inputs.iter_mut().zip(filled) {
            *input = part(filled);
        }
        self.streams.update(&inputs[..filled.len()]);
    }

    /// Returns the digests of some lanes, and resets these lanes.
    pub(super) fn finish(&mut self, lanes: &[usize]) -> Vec<Digest> {
        let digests = self.streams.finish_many(lanes);
        digests.iter().map(|digest| self.streams.algorithm().digest(digest)).collect()
    }

    /// Discards the input of a lane.
    pub(super) fn reset(&mut self, lane: usize) {
        self.streams.reset(lane);
    }

    /// Hashes at most as many leaves as there are lanes.
    fn hash_group(
        &mut self,
        shape: TreeShape,
        leaves: Range<u64>,
        read: &mut impl FnMut(ByteOffset, &mut [u8]) -> Result<(), SumError>,
        digests: &mut Vec<Digest>,
    ) -> Result<(), SumError> {
        let ranges: Vec<_> = leaves.filter_map(|leaf| shape.range_of(leaf)).collect();
        let (Some(head), Some(tail)) = (ranges.first(), ranges.last()) else { return Ok(()) };
        let lanes: Vec<usize> = (0..ranges.len()).collect();
        if shape.leaf_size().0 <= self.block as u64 {
            // Small leaves are adjacent in the buffer: one read fetches all of them.
            let start = head.start;
            read(start, &mut self.buffer[..(tail.end.0 - start.0) as usize])?;
            let place = |at: u64| (at - start.0) as usize;
            let bytes = ranges.iter().map(|leaf| &self.buffer[place(leaf.start.0)..place(leaf.end.0)]);
            let inputs: Vec<(usize, &[u8])> = bytes.enumerate().collect();
            self.streams.update(&inputs);
        } else {
            let mut done = 0;
            while done < head.len() {
                let mut filled = Vec::with_capacity(ranges.len());
                for (lane, range) in ranges.iter().enumerate() {
                    let len = range.len().saturating_sub(done).min(self.block as u64) as usize;
                    if len > 0 {
                        let part = &mut self.buffer[lane * self.stride..][..len];
                        if let Err(error) = read(ByteOffset(range.start.0 + done), part) {
                            lanes.iter().for_each(|&lane| self.reset(lane));
                            return Err(error);
                        }
                        filled.push((lane, len));
                    }
                }
                self.update(&filled);
                done += self.block as u64;
            }
        }
        digests.extend(self.finish(&lanes));
        Ok(())
    }
}

/// Returns the algorithm of a recipe with only one, if that one supports lanes.
fn only_lane_algorithm(recipe: &Recipe) -> Option<Algorithm> {
    match recipe.algorithms[..] {
        [algorithm] => LaneAlgorithm::of(algorithm).map(|_| algorithm),
        _ => None,
    }
}
