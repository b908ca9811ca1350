//! One file under way, as the sink knows it.

use super::Verdict;
use crate::limits::RUNS_HELD_MAX;
use crate::{Close, FileKind, LaneId, NewFile, Runs};
use haul_digest::Digest;
use haul_model::{ByteLen, Geometry, Level, Object, ObjectIndex, ObjectSize};
use std::collections::BTreeMap;

/// How far a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The engine decides about it.
    Opening,
    /// Its objects come.
    Open,
    /// The engine finishes it.
    Finishing,
}

/// An object that a lane is bringing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// Whether another lane brought it too and was not listened to: it is asked for again if this one fails.
    pub(super) again: bool,
}

/// Two digests of the same bytes that come at times of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    pub(super) stated: Option<Digest>,
    pub(super) found: Option<Digest>,
}

impl Pair {
    /// Whether they agree, when both are there.
    pub(super) fn agree(&self) -> Option<bool> {
        Some(self.stated? == self.found?)
    }
}

/// A file under way.
#[derive(Debug)]
pub(super) struct File {
    pub(super) geometry: Geometry,
    holes: Runs,
    pub(super) is_regular: bool,
    pub(super) facts_len: u64,
    pub(super) stage: Stage,
    /// Where the source waits for answers.
    pub(super) home: LaneId,
    /// Whether the source sends it without waiting for FILE_ID.
    pub(super) whole: bool,
    pub(super) attempt: u16,
    /// Objects that arrived and were found right, as far as the job compares objects.
    pub(super) done: Runs,
    /// The level that it must reach: the job's, or one above it that the engine chose for this file.
    pub(super) settle: Level,
    /// Objects that reached it.
    pub(super) settled: Runs,
    pub(super) writing: BTreeMap<u64, Writing>,
    /// Digests of objects that are compared after their arrival, or that wait to be settled.
    pub(super) pairs: BTreeMap<u64, Pair>,
    /// The same of the whole file.
    pub(super) whole_pair: Pair,
    /// Whether the second read of the whole file was asked for.
    pub(super) is_rehashing: bool,
    /// Number of times that each object was requested again. An arrival does not reset it: the object may still read back wrong.
    pub(super) tries: BTreeMap<u64, u8>,
    pub(super) close: Option<Close>,
    /// What the source is to be told.
    pub(super) syncs: BTreeMap<Level, Runs>,
    /// Digests of the own copy that were told.
    pub(super) digests_told: u64,
    pub(super) verdict: Option<Verdict>,
    /// Objects that must be the same, or the file begins anew.
    pub(super) samples: Runs,
    /// Bytes of the objects that were neither there nor holes when it was opened.
    pub(super) may_bring: u64,
    /// Bytes that it is charged of the quota.
    pub(super) charged: u64,
    /// Bytes of its objects that travelled, at most what it is charged. What is sent again counts once.
    pub(super) brought: u64,
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
            stage: Stage::Opening,
            home,
            whole: facts.whole,
            attempt: 0,
            done: holes.clone(),
            settle,
            settled: holes.clone(),
            holes,
            writing: BTreeMap::new(),
            pairs: BTreeMap::new(),
            whole_pair: Pair::default(),
            is_rehashing: false,
            tries: BTreeMap::new(),
            close: None,
            syncs: BTreeMap::new(),
            digests_told: 0,
            verdict: None,
            samples: Runs::default(),
            may_bring: 0,
            charged: 0,
            brought: 0,
        }
    }

    /// Returns true if no object is done but the holes.
    pub(super) fn has_brought_nothing(&self) -> bool {
        self.done == self.holes
    }

    /// Bytes of the objects that are neither there nor holes.
    pub(super) fn bytes_missing(&self) -> u64 {
        let (size, len) = (self.geometry.object_size().bytes(), self.geometry.len());
        let at = |index: u64| index.saturating_mul(size).min(len);
        self.done.iter().fold(len, |missing, (first, past)| missing - (at(past) - at(first)))
    }

    pub(super) fn object(&self, index: ObjectIndex) -> Option<Object> {
        self.geometry.object(index)
    }

    /// Whether objects are brought to the file's level one by one, above `flight`, the level that they have when they have
    /// arrived. A file of one object is brought there as a whole, unless that takes a second read: then it is an object's.
    pub(super) fn settles_objects(&self, flight: Level) -> bool {
        self.settle > flight && (self.geometry.count() > 1 || self.settle == Level::Reread)
    }

    /// Whether it has more than one object.
    pub(super) fn has_several(&self) -> bool {
        self.geometry.count() > 1
    }

    /// Whether every object is in the set.
    pub(super) fn covers(&self, objects: &Runs) -> bool {
        objects.first_gap(0) >= self.geometry.count()
    }

    /// Whether its objects lie so scattered that no honest source sent them so.
    pub(super) fn is_scattered(&self) -> bool {
        self.done.pieces() > RUNS_HELD_MAX
    }

    pub(super) fn tell(&mut self, level: Level, objects: &Runs) {
        self.syncs.entry(level).or_default().unite(objects);
    }

    /// From the first byte again.
    pub(super) fn restart(&mut self) {
        self.attempt += 1;
        self.done = self.holes.clone();
        self.settled = self.holes.clone();
        self.writing.clear();
        self.pairs.clear();
        self.whole_pair = Pair::default();
        self.is_rehashing = false;
        self.close = None;
        self.syncs.clear();
        self.samples = Runs::default();
        self.stage = Stage::Open;
    }
}
