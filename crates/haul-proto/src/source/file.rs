//! State of one file in progress at the source.

use super::comparing::Comparison;
use crate::{Close, FileNumber, LaneId, NewFile, Reason, Runs};
use haul_digest::Digest;
use haul_model::{ByteLen, Geometry, Object, ObjectIndex, ObjectSize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Progress of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A hard link that waits for the arrival of its first name.
    Linked,
    /// Not announced, or announced on a lane that was lost.
    Fresh,
    /// Announced, or hashed for the sink, and waiting for FILE_ID. The lane is the home of the
    /// file.
    Announced,
    /// Waiting to be hashed, so that the sink can compare it.
    Comparing,
    /// Being hashed by the worker of that lane.
    ComparedBy(LaneId),
    /// Its objects may be sent.
    Sending,
}

/// Progress of the FILE_CLOSE of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// Something is still to be sent.
    Open,
    /// The complete file is read again and hashed.
    Checking,
    /// A worker of that lane does the final check of the file.
    Taken(LaneId),
    /// The FILE_CLOSE can be sent.
    Ready(Close),
    /// The FILE_CLOSE was sent on the home lane.
    Sent(Close),
}

/// An object that was given to a worker and is not settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) lane: LaneId,
    /// True if the worker has finished the object.
    pub(super) sent: bool,
}

/// A file in progress.
#[derive(Debug)]
pub(super) struct File {
    pub(super) facts: Arc<NewFile>,
    pub(super) geometry: Geometry,
    pub(super) stage: Stage,
    /// Lane of the latest NEW_FILE, while that lane is open. Answers arrive on this lane.
    pub(super) home: Option<LaneId>,
    pub(super) attempt: u16,
    /// Every object below this index was given out in this attempt, or is at the sink.
    pub(super) cursor: u64,
    /// Objects to be given out again.
    pub(super) again: Runs,
    pub(super) flight: BTreeMap<u64, Flight>,
    /// Objects that the sink has, or that are holes.
    pub(super) settled: Runs,
    /// Number of times that each object was requested again. An arrival does not reset it: the
    /// object may still read back wrong.
    pub(super) retries: BTreeMap<u64, u8>,
    /// Comparison of its objects by the sink, once the sink has requested it.
    pub(super) comparison: Option<Comparison>,
    /// True if the digest of the complete file was sent since the last announcement.
    pub(super) has_told: bool,
    pub(super) closing: Closing,
    /// Digest of the second read.
    pub(super) root: Option<Digest>,
    pub(super) failure: Option<Reason>,
    /// Hard links that wait for this file.
    pub(super) links: Vec<FileNumber>,
}

impl File {
    pub(super) fn new(facts: NewFile, object: ObjectSize) -> File {
        let settled = holes_of(&facts);
        File {
            geometry: Geometry::new(ByteLen(facts.size()), object),
            facts: Arc::new(facts),
            stage: Stage::Fresh,
            home: None,
            attempt: 0,
            cursor: 0,
            again: Runs::default(),
            flight: BTreeMap::new(),
            settled,
            retries: BTreeMap::new(),
            comparison: None,
            has_told: false,
            closing: Closing::Open,
            root: None,
            failure: None,
            links: Vec::new(),
        }
    }

    /// Returns the first object that was never given out in this attempt.
    pub(super) fn next_new(&self) -> Option<Object> {
        if self.failure.is_some() || self.stage != Stage::Sending {
            return None;
        }
        let index = self.settled.first_gap(self.cursor);
        self.geometry.object(ObjectIndex(index))
    }

    /// Returns true if the sink has decided that it needs the object.
    pub(super) fn may_send(&self, index: u64) -> bool {
        self.comparison.as_ref().is_none_or(|comparison| comparison.is_decided(index))
    }

    /// Returns an object to be given out again.
    pub(super) fn next_again(&self) -> Option<Object> {
        let may = self.failure.is_none() && self.stage == Stage::Sending;
        self.again
            .iter()
            .next()
            .filter(|_| may)
            .and_then(|(index, _)| self.geometry.object(ObjectIndex(index)))
    }

    /// Returns true if workers have finished every object, so that the final check can start.
    pub(super) fn is_all_sent(&self) -> bool {
        let is_all_given =
            self.again.is_empty() && self.settled.first_gap(self.cursor) >= self.geometry.count();
        let is_given = self.failure.is_some() || is_all_given;
        self.stage == Stage::Sending && is_given && self.flight.values().all(|flight| flight.sent)
    }

    /// Returns true if an object of the file is still to be given out.
    pub(super) fn has_new(&self) -> bool {
        self.next_new().is_some()
    }

    /// Returns the number of bytes of the objects in flight.
    pub(super) fn bytes_in_flight(&self) -> u64 {
        self.flight.keys().map(|index| self.len_of(*index)).sum()
    }

    pub(super) fn len_of(&self, index: u64) -> u64 {
        self.geometry.object(ObjectIndex(index)).map_or(0, |object| object.range.len())
    }

    /// Returns the number of bytes of a set of objects of the file.
    pub(super) fn bytes_of(&self, objects: &Runs) -> u64 {
        let size = self.geometry.object_size().bytes();
        let at = |index: u64| index.saturating_mul(size).min(self.geometry.len());
        objects.iter().map(|(start, end)| at(end) - at(start)).sum()
    }

    /// Removes an object that is settled, or that has failed permanently, from those in flight.
    /// Returns its bytes in flight.
    pub(super) fn remove_in_flight(&mut self, index: u64) -> u64 {
        if self.flight.remove(&index).is_some() { self.len_of(index) } else { 0 }
    }

    /// Applies the sink's list of the objects that it has, which is authoritative. An object that
    /// was given out, is not in flight and is missing at the sink is sent again.
    pub(super) fn have(&mut self, have: &Runs) {
        self.settled = holes_of(&self.facts);
        self.settled.unite(have);
        let mut missing = Runs::of(0, self.cursor);
        missing.subtract(&self.settled);
        for index in self.flight.keys() {
            missing.remove(*index);
        }
        self.again = missing;
    }

    /// Starts again from the first object. Returns the bytes that were in flight.
    pub(super) fn restart(&mut self, attempt: u16) -> u64 {
        let bytes_landed = self.bytes_in_flight();
        self.attempt = attempt;
        self.cursor = 0;
        self.again = Runs::default();
        self.flight.clear();
        self.settled = holes_of(&self.facts);
        self.closing = Closing::Open;
        self.root = None;
        self.comparison = None;
        bytes_landed
    }

    /// Handles the loss of a lane: its objects of this file are sent again. Returns the bytes that
    /// were in flight.
    pub(super) fn lose(&mut self, lane: LaneId) -> u64 {
        let lost: Vec<u64> =
            self.flight.iter().filter(|(_, f)| f.lane == lane).map(|(index, _)| *index).collect();
        let mut bytes_landed = 0;
        for index in lost {
            bytes_landed += self.remove_in_flight(index);
            self.again.insert(index);
        }
        match self.stage {
            Stage::ComparedBy(by) if by == lane => self.stage = Stage::Comparing,
            _ => {}
        }
        if let Some(comparison) = &mut self.comparison {
            comparison.lose(lane);
        }
        if self.closing == Closing::Taken(lane) {
            self.closing = Closing::Open;
        }
        bytes_landed
    }

    /// Handles the loss of the home lane: the file is announced again, and closed again if it was
    /// closed.
    pub(super) fn lose_home(&mut self) {
        self.home = None;
        self.stage = Stage::Fresh;
        self.comparison = None;
        self.has_told = false;
        if let Closing::Sent(close) = &self.closing {
            self.closing = Closing::Ready(close.clone());
        }
        let mut facts = NewFile::clone(&self.facts);
        facts.again = true;
        facts.whole = false;
        self.facts = Arc::new(facts);
    }
}

pub(super) fn holes_of(facts: &NewFile) -> Runs {
    match &facts.kind {
        crate::FileKind::File { holes, .. } => holes.clone(),
        _ => Runs::default(),
    }
}
