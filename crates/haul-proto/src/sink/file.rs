//! State of one file in progress at the sink.

use super::Verdict;
use super::comparing::{Comparison, WholePair};
use crate::limits::RUNS_HELD_MAX;
use crate::{Close, FileKind, LaneId, NewFile, Runs};
use haul_digest::Digest;
use haul_model::{ByteLen, Geometry, Level, Object, ObjectIndex, ObjectSize};
use std::collections::BTreeMap;

/// Progress of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The engine decides about the file.
    Opening,
    /// The objects of the file arrive.
    Open,
    /// The engine finishes the file.
    Finishing,
}

/// An object that a lane is receiving.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// True if another lane brought the object too and was ignored. The object is requested again
    /// if this lane fails.
    pub(super) again: bool,
}

/// Two digests of the same bytes that arrive independently.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    pub(super) stated: Option<Digest>,
    pub(super) found: Option<Digest>,
}

impl Pair {
    /// Returns true if both digests are equal, and `None` if one is missing.
    pub(super) fn agree(&self) -> Option<bool> {
        Some(self.stated? == self.found?)
    }
}

/// A file in progress.
#[derive(Debug)]
pub(super) struct File {
    pub(super) geometry: Geometry,
    pub(super) holes: Runs,
    pub(super) is_regular: bool,
    pub(super) facts_len: u64,
    /// Number of its entries in the count of the machine.
    pub(super) counted_entries: usize,
    pub(super) stage: Stage,
    /// Lane on which the source expects answers.
    pub(super) home: LaneId,
    /// True if the source sends the file without waiting for FILE_ID.
    pub(super) whole: bool,
    pub(super) attempt: u16,
    /// Objects that arrived and match, as far as the job compares objects.
    pub(super) done: Runs,
    /// Level that the file must reach: that of the job, or a higher one that the engine chose for
    /// this file.
    pub(super) settle: Level,
    /// Highest level that may be reported of the file. Objects of an earlier run are durable, but
    /// that run may have read them back from the page cache only.
    pub(super) report_max: Level,
    /// Objects that reached the level.
    pub(super) settled: Runs,
    pub(super) writing: BTreeMap<u64, Writing>,
    /// Digests of objects that are compared after their arrival, or that wait to be settled.
    pub(super) pairs: BTreeMap<u64, Pair>,
    /// The same for the complete file.
    pub(super) whole_pair: Pair,
    /// True if the second read of the complete file was requested.
    pub(super) is_rehashing: bool,
    /// Number of times that each object was requested again. An arrival does not reset it: the
    /// object may still read back wrong.
    pub(super) retries: BTreeMap<u64, u8>,
    pub(super) close: Option<Close>,
    /// Objects to report to the source, by level.
    pub(super) syncs: BTreeMap<Level, Runs>,
    /// Comparison of its objects with digests of the source.
    pub(super) comparison: Option<Comparison>,
    /// Comparison of the complete file, while the verdict is [`Verdict::UnlessDigest`].
    pub(super) whole_compared: WholePair,
    pub(super) verdict: Option<Verdict>,
    /// Objects that must be equal; otherwise the file starts again from the beginning.
    pub(super) samples: Runs,
    /// Size in bytes of the objects that were neither present nor holes when the file was opened.
    pub(super) may_transfer: u64,
    /// Number of names that the entry can create: its own, and directories above it.
    pub(super) new_names: u64,
    /// Bytes that its name and metadata are charged against the quota.
    pub(super) entry_charge: u64,
    /// Bytes that the file is charged against the quota for its data.
    pub(super) charged: u64,
    /// Bytes of its objects that were transferred, at most `charged` and `may_transfer`. Repeated
    /// transfers add nothing beyond that limit.
    pub(super) transferred: u64,
}

impl File {
    pub(super) fn new(facts: &NewFile, home: LaneId, object: ObjectSize, settle: Level) -> File {
        let holes = match &facts.kind {
            FileKind::File { holes, .. } => holes.clone(),
            _ => Runs::default(),
        };
        File {
            geometry: Geometry::new(ByteLen(facts.size()), object),
            is_regular: facts.is_regular(),
            facts_len: facts.facts_len(),
            counted_entries: 0,
            stage: Stage::Opening,
            home,
            whole: facts.whole,
            attempt: 0,
            done: holes.clone(),
            settle,
            report_max: Level::Reread,
            settled: holes.clone(),
            holes,
            writing: BTreeMap::new(),
            pairs: BTreeMap::new(),
            whole_pair: Pair::default(),
            is_rehashing: false,
            retries: BTreeMap::new(),
            close: None,
            syncs: BTreeMap::new(),
            comparison: None,
            whole_compared: WholePair::default(),
            verdict: None,
            samples: Runs::default(),
            may_transfer: 0,
            new_names: 1,
            entry_charge: 0,
            charged: 0,
            transferred: 0,
        }
    }

    /// Returns the number of entries in its sets, without the announced holes.
    pub(super) fn entries(&self) -> usize {
        let reported: usize = self.syncs.values().map(Runs::pieces).sum();
        let runs = self.done.pieces() + self.settled.pieces() + self.samples.pieces() + reported;
        let compared = self.comparison.as_ref().map_or(0, Comparison::entries);
        let objects = self.writing.len() + self.pairs.len() + self.retries.len() + compared;
        runs.saturating_sub(2 * self.holes.pieces()) + objects
    }

    /// Returns true if there is something to report to the source.
    pub(super) fn has_report(&self) -> bool {
        !self.syncs.is_empty() || self.comparison.as_ref().is_some_and(Comparison::has_report)
    }

    /// Returns true if no object is done except for the holes.
    pub(super) fn has_no_transfer(&self) -> bool {
        self.done == self.holes
    }

    /// Returns the number of bytes of the objects that are neither present nor holes.
    pub(super) fn bytes_missing(&self) -> u64 {
        let (size, len) = (self.geometry.object_size().bytes(), self.geometry.len());
        let at = |index: u64| index.saturating_mul(size).min(len);
        self.done.iter().fold(len, |missing, (first, past)| missing - (at(past) - at(first)))
    }

    pub(super) fn object(&self, index: ObjectIndex) -> Option<Object> {
        self.geometry.object(index)
    }

    /// Returns true if objects are settled one by one to the level of the file, above `flight`, the
    /// level at their arrival. A file of one object is settled as a whole, unless that needs a
    /// second read: then the object is settled.
    pub(super) fn settles_objects(&self, flight: Level) -> bool {
        self.settle > flight && (self.geometry.count() > 1 || self.settle == Level::Reread)
    }

    /// Returns true if the file has more than one object.
    pub(super) fn has_several(&self) -> bool {
        self.geometry.count() > 1
    }

    /// Returns true if every object is in the set.
    pub(super) fn covers(&self, objects: &Runs) -> bool {
        objects.first_gap(0) >= self.geometry.count()
    }

    /// Returns true if the objects are so scattered that no correct source sent them.
    pub(super) fn is_scattered(&self) -> bool {
        self.done.pieces() > RUNS_HELD_MAX
    }

    /// Returns the level to report of the file.
    pub(super) fn reported_level(&self) -> Level {
        self.settle.min(self.report_max)
    }

    pub(super) fn queue_reports(&mut self, level: Level, objects: &Runs) {
        self.syncs.entry(level).or_default().unite(objects);
    }

    pub(super) fn queue_report(&mut self, level: Level, index: u64) {
        self.syncs.entry(level).or_default().insert(index);
    }

    /// Starts again from the first byte.
    pub(super) fn restart(&mut self) {
        self.attempt += 1;
        self.done = self.holes.clone();
        self.settled = self.holes.clone();
        self.report_max = Level::Reread;
        self.writing.clear();
        self.pairs.clear();
        self.whole_pair = Pair::default();
        self.is_rehashing = false;
        self.close = None;
        self.syncs.clear();
        self.samples = Runs::default();
        self.comparison = None;
        self.stage = Stage::Open;
    }
}
