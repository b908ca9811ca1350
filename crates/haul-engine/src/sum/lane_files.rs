//! Hashing of several files in the lanes of one worker, for one serial digest.
//!
//! Each file occupies a lane of the register and a block of the buffer. A round reads the next
//! block of every file, hashes all blocks in one pass, and assigns the lanes of finished files to
//! waiting files.

use super::job::{Entry, Job};
use super::lanes::{LaneHands, Lanes};
use super::order::{Orders, Outcome, SumError, Sums};
use super::source::{Opened, SourceRange};
use haul_digest::Algorithm;
use haul_digest::lanes::LaneAlgorithm;
use haul_model::ByteRange;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// A file that is this many times longer than the average of the others is hashed by itself. It is
/// faster alone than in a lane, and the job waits for it at its end.
const LONG_FACTOR: u64 = 4;

/// Minimum size of a long file, in bytes.
const LONG_BYTES: u64 = 64 << 20;

/// Maximum size, in bytes, of a file outside the lanes that is hashed immediately instead of being
/// offered to other workers.
const SMALL_BYTES: u64 = 256 << 10;

/// File in a lane.
struct LaneFile<T> {
    entry: Entry<T>,
    opened: Opened,
    range: ByteRange,
    at: u64,
}

/// Open file that waits for a lane.
struct Candidate<T> {
    entry: Entry<T>,
    opened: Opened,
    range: ByteRange,
}

impl<T> LaneFile<T> {
    fn left(&self) -> u64 {
        self.range.end.0 - self.at
    }
}

impl<O: Orders, S: FnMut(O::Ticket, Outcome) + Send> Job<'_, O, S> {
    /// Hashes the first file of the batch together with others of the same digest, until no lane is
    /// occupied. Other entries stay in the batch.
    pub(super) fn side_by_side(&self, batch: &mut VecDeque<Entry<O::Ticket>>, hands: &mut LaneHands) {
        let Some(algorithm) = batch.front().map(|entry| entry.task.recipe.algorithms[0]) else { return };
        let width = match hands.lanes(algorithm) {
            Ok(lanes) => lanes.width().min(self.files_at_once),
            Err(error) => {
                if let Some(entry) = batch.pop_front() {
                    self.finish(entry, Err(error));
                }
                return;
            }
        };
        let mut lane_files: Vec<Option<LaneFile<O::Ticket>>> = (0..width).map(|_| None).collect();
        loop {
            self.fill_lanes(algorithm, &mut lane_files, batch, hands);
            if lane_files.iter().all(Option::is_none) {
                return;
            }
            match hands.lanes(algorithm) {
                Ok(lanes) => self.round(lanes, &mut lane_files),
                Err(_) => unreachable!("the lanes were made above and are kept"),
            }
        }
    }

    /// Assigns free lanes to waiting files, as long as that is faster.
    fn fill_lanes(
        &self,
        algorithm: Algorithm,
        lane_files: &mut [Option<LaneFile<O::Ticket>>],
        batch: &mut VecDeque<Entry<O::Ticket>>,
        hands: &mut LaneHands,
    ) {
        let free = lane_files.iter().filter(|lane_file| lane_file.is_none()).count();
        let mut waiting = Vec::new();
        let mut more = true;
        while waiting.len() < free && more && !self.stop.load(Ordering::Relaxed) {
            if batch.is_empty() {
                more = self.pull_ready(free - waiting.len(), batch) && !batch.is_empty();
            }
            let mut others = VecDeque::new();
            while waiting.len() < free
                && let Some(entry) = batch.pop_front()
            {
                if entry.alone
                    || !hands.may_take(&entry.task.recipe)
                    || entry.task.recipe.algorithms[0] != algorithm
                {
                    others.push_back(entry);
                } else if let Some(candidate) = self.open_candidate(entry, hands) {
                    waiting.push(candidate);
                }
            }
            self.give_back(others);
        }
        let more = more || !batch.is_empty();
        self.remove_long_files(algorithm, lane_files, &mut waiting, more, hands);
        let empty = lane_files.iter_mut().filter(|lane_file| lane_file.is_none());
        for (lane_file, Candidate { entry, opened, range }) in empty.zip(waiting) {
            *lane_file = Some(LaneFile { entry, opened, range, at: range.start.0 });
        }
    }

    /// Opens a file for a lane. A source that is not a range of a file is hashed immediately, or
    /// returned to the queue.
    fn open_candidate(
        &self,
        mut entry: Entry<O::Ticket>,
        hands: &mut LaneHands,
    ) -> Option<Candidate<O::Ticket>> {
        let opened = match Opened::open(&entry.task, self.settings, self.stop) {
            Ok(opened) => opened,
            Err(error) => {
                self.finish(entry, Err(error));
                return None;
            }
        };
        self.counters.found_bytes(opened.len());
        match opened.reach() {
            SourceRange::Range(range) => return Some(Candidate { entry, opened, range }),
            SourceRange::Spent => self.hash_alone(entry, opened, hands),
            SourceRange::Stream { .. } if opened.is_regular() => self.hash_alone(entry, opened, hands),
            SourceRange::Stream { .. } => {
                // A pipe may block its reader; the files in the other lanes must not wait for it.
                entry.alone = true;
                self.give_back_open(entry, opened);
            }
        }
        None
    }

    /// Removes the files from `waiting` that are faster by themselves. Most lanes would be idle
    /// most of the time in two cases: too few files of equal length, or one much longer file.
    fn remove_long_files(
        &self,
        algorithm: Algorithm,
        lane_files: &[Option<LaneFile<O::Ticket>>],
        waiting: &mut Vec<Candidate<O::Ticket>>,
        more: bool,
        hands: &mut LaneHands,
    ) {
        waiting.sort_by_key(|candidate| candidate.range.len());
        let mut total: u64 = lane_files.iter().flatten().map(LaneFile::left).sum();
        total += waiting.iter().map(|candidate| candidate.range.len()).sum::<u64>();
        let seated = lane_files.iter().flatten().count();
        // If every file can have its own worker, that is faster.
        let pays = LaneAlgorithm::of(algorithm).map_or(1, LaneAlgorithm::streams_min);
        let pays = pays.max(self.settings.workers.min(lane_files.len())) as u64;
        while let Some(longest) = waiting.last().map(|candidate| candidate.range.len()) {
            let others = (seated + waiting.len() - 1) as u64;
            let long = longest > LONG_BYTES && longest > (total - longest) / others.max(1) * LONG_FACTOR;
            let lonely = !more && total < longest.saturating_mul(pays);
            if !(long || lonely) {
                return;
            }
            total -= longest;
            if let Some(Candidate { mut entry, opened, range }) = waiting.pop() {
                if range.len() <= SMALL_BYTES {
                    self.hash_alone(entry, opened, hands);
                } else {
                    entry.alone = true;
                    self.give_back_open(entry, opened);
                }
            }
        }
    }

    /// Processes one block of every file in a lane.
    fn round(&self, lanes: &mut Lanes, lane_files: &mut [Option<LaneFile<O::Ticket>>]) {
        let stopped = self.stop.load(Ordering::Relaxed);
        let mut filled = Vec::with_capacity(lane_files.len());
        let mut ended = Vec::new();
        for (lane, place) in lane_files.iter_mut().enumerate() {
            let Some(lane_file) = place else { continue };
            let want = lane_file.left().min(lanes.block() as u64) as usize;
            let read = match stopped {
                true => Err(SumError::Stopped),
                false => lane_file.opened.read(lane_file.at, &mut lanes.block_of(lane)[..want]),
            };
            match read {
                Ok(got) => {
                    lane_file.at += got as u64;
                    filled.push((lane, got));
                    self.counters.done_bytes(got as u64);
                    if got < want {
                        // The file ends before its reported size; the final check decides whether
                        // it changed.
                        lane_file.range = ByteRange::between(lane_file.range.start.0, lane_file.at);
                    }
                    if lane_file.left() == 0 {
                        ended.push(lane);
                    }
                }
                Err(error) => {
                    lanes.reset(lane);
                    if let Some(lane_file) = place.take() {
                        self.finish(lane_file.entry, Err(error));
                    }
                }
            }
        }
        lanes.update(&filled);
        for (&lane, digest) in ended.iter().zip(lanes.finish(&ended)) {
            if let Some(LaneFile { entry, opened, range, .. }) = lane_files[lane].take() {
                let wanted = opened.reach() != SourceRange::Range(ByteRange::between(0, opened.size()));
                let result = opened.check_unchanged().map(|()| Sums {
                    range,
                    partial: wanted,
                    digests: vec![digest],
                    leaves: 1,
                    subtrees: Vec::new(),
                    objects: None,
                    leaf_sums: None,
                    facts: opened.facts(),
                });
                self.finish(entry, result);
            }
        }
    }
}
