//! A worker's buffers, and the lanes in which it hashes several messages of one serial digest at once.

use super::buffer::PageBuffer;
use super::order::SumError;
use super::settings::{Form, LANE_BLOCK_BYTES, Recipe, Settings};
use haul_digest::lanes::{LaneAlgorithm, Streams};
use haul_digest::tree::TreeShape;
use haul_digest::{Algorithm, Digest};
use haul_model::ByteOffset;
use std::ops::Range;

/// Bytes that the lane buffers of all workers may take together.
const LANE_BUFFERS_MAX: usize = 32 << 20;

/// Bytes between the parts of a lane buffer. Parts that begin alike modulo a page would contend for the same few
/// places of the first-level cache.
const LANE_GAP_BYTES: usize = 64;

/// The most lanes there are.
const WIDTH_MAX: usize = 32;

/// Leaf digests that one piece of a file may bring back: 4 MiB of them.
const LEAVES_AT_ONCE_MAX: u64 = 1 << 16;

/// What one worker has for itself. Memory is taken when it is first needed.
pub(super) struct LaneHands {
    block_bytes: usize,
    lane_block: usize,
    lane_gap: usize,
    block: Option<PageBuffer>,
    lanes: Option<Lanes>,
}

/// The lanes of one algorithm, each with its part of a buffer.
pub(super) struct Lanes {
    algorithm: Algorithm,
    streams: Streams,
    buffer: PageBuffer,
    block: usize,
    /// Bytes from one lane's part of the buffer to the next lane's.
    stride: usize,
}

impl LaneHands {
    pub(super) fn new(settings: &Settings) -> LaneHands {
        let share = LANE_BUFFERS_MAX / settings.workers.max(1) / WIDTH_MAX / 4096 * 4096;
        let lane_block = share.clamp(4096, LANE_BLOCK_BYTES);
        // Reads past the page cache need buffers on whole pages.
        let lane_gap = if settings.direct { 0 } else { LANE_GAP_BYTES };
        LaneHands { block_bytes: settings.block_bytes, lane_block, lane_gap, block: None, lanes: None }
    }

    /// The buffer for one read.
    pub(super) fn block(&mut self) -> Result<&mut [u8], SumError> {
        let block = match self.block.take() {
            Some(block) => block,
            None => PageBuffer::new(self.block_bytes).map_err(SumError::Open)?,
        };
        Ok(self.block.insert(block))
    }

    /// Whether files of this recipe may be hashed side by side.
    pub(super) fn may_take(&self, recipe: &Recipe) -> bool {
        recipe.form == Form::Plain && only_lane_algorithm(recipe).is_some()
    }

    /// The lanes for an algorithm that has them.
    pub(super) fn lanes(&mut self, algorithm: Algorithm) -> Result<&mut Lanes, SumError> {
        let lanes = match self.lanes.take().filter(|lanes| lanes.algorithm == algorithm) {
            Some(lanes) => lanes,
            None => Lanes::new(algorithm, self.lane_block, self.lane_gap)?,
        };
        Ok(self.lanes.insert(lanes))
    }

    /// How many leaves a worker should hash side by side, or `None` where one after the other is faster.
    pub(super) fn leaves_in_lanes(
        &mut self,
        recipe: &Recipe,
        shape: TreeShape,
        workers: usize,
    ) -> Option<usize> {
        let algorithm = only_lane_algorithm(recipe)?;
        let lanes = self.lanes(algorithm).ok()?;
        let (width, pays_from) = (lanes.width() as u64, lanes.streams.algorithm().pays_from());
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
        (lanes >= pays_from).then_some(lanes)
    }

    /// The digests of some leaves of a tree, hashed side by side. `read` fills a buffer from a place of the cut.
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
        let buffer = PageBuffer::new(streams.width() * stride).map_err(SumError::Open)?;
        Ok(Lanes { algorithm, streams, buffer, block, stride })
    }

    /// How many messages go side by side.
    pub(super) fn width(&self) -> usize {
        self.streams.width()
    }

    /// Bytes each lane takes at a time.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    /// The part of the buffer that belongs to one lane.
    pub(super) fn block_of(&mut self, lane: usize) -> &mut [u8] {
        &mut self.buffer[lane * self.stride..][..self.block]
    }

    /// Takes in, for each lane named, as many bytes as its part of the buffer was filled with.
    pub(super) fn update(&mut self, filled: &[(usize, usize)]) {
        let part = |&(lane, len): &(usize, usize)| (lane, &self.buffer[lane * self.stride..][..len]);
        let mut inputs: [(usize, &[u8]); WIDTH_MAX] = [(0, &[]); WIDTH_MAX];
        for (input, filled) in inputs.iter_mut().zip(filled) {
            *input = part(filled);
        }
        self.streams.update(&inputs[..filled.len()]);
    }

    /// The digests of some lanes, which are fresh afterwards.
    pub(super) fn finish(&mut self, lanes: &[usize]) -> Vec<Digest> {
        let digests = self.streams.finish_many(lanes);
        digests.iter().map(|digest| self.streams.algorithm().digest(digest)).collect()
    }

    /// Drops what a lane has taken in.
    pub(super) fn reset(&mut self, lane: usize) {
        self.streams.reset(lane);
    }

    /// At most as many leaves as there are lanes.
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
            // Small leaves lie side by side in the buffer already: one read brings all of them.
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

/// The algorithm of a recipe that has just one, if that one has lanes.
fn only_lane_algorithm(recipe: &Recipe) -> Option<Algorithm> {
    match recipe.algorithms[..] {
        [algorithm] => LaneAlgorithm::of(algorithm).map(|_| algorithm),
        _ => None,
    }
}
