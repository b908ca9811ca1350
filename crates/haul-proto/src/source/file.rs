//! One file under way, as the source knows it.

use crate::{Close, FileNumber, LaneId, NewFile, Reason, Runs};
use haul_digest::Digest;
use haul_model::{ByteLen, Geometry, Object, ObjectIndex, ObjectSize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How far a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A hard link whose first name is still on its way.
    Linked,
    /// Not announced, or announced on a lane that was lost.
    Fresh,
    /// Announced; FILE_ID is awaited. The lane is the file's home.
    Asked,
    /// Its digest is to be compared with the sink's.
    Comparing(Digest),
    /// A worker of that lane compares.
    ComparedBy(LaneId, Digest),
    /// Its objects may go.
    Sending,
}

/// How far its FILE_CLOSE is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// Something is still to be sent.
    Open,
    /// The whole file is read again and hashed.
    Checking,
    /// A worker of that lane takes the last look.
    Taken(LaneId),
    /// It may be sent.
    Ready(Close),
    /// It was sent by that lane.
    Sent(Close),
}

/// An object that was given to a worker and is not settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) lane: LaneId,
    /// Whether the worker is through with it.
    pub(super) sent: bool,
}

/// A file under way.
#[derive(Debug)]
pub(super) struct File {
    pub(super) facts: Arc<NewFile>,
    pub(super) geometry: Geometry,
    pub(super) stage: Stage,
    /// The lane of its latest NEW_FILE, while that stands: answers come there.
    pub(super) home: Option<LaneId>,
    pub(super) attempt: u16,
    /// Every object below was given out in this try, or is there.
    pub(super) cursor: u64,
    /// Objects to be given out again.
    pub(super) again: Runs,
    pub(super) flight: BTreeMap<u64, Flight>,
    /// Objects that the sink has, or that are holes.
    pub(super) settled: Runs,
    /// Number of times that each object was requested again. An arrival does not reset it: the object may still read back wrong.
    pub(super) tries: BTreeMap<u64, u8>,
    /// Whether the sink tells digests of its copy, and those from the object `theirs_first` on that were not used yet.
    pub(super) differing: bool,
    pub(super) theirs_first: u64,
    pub(super) theirs: VecDeque<Option<Digest>>,
    pub(super) closing: Closing,
    /// The digest of the second read.
    pub(super) root: Option<Digest>,
    pub(super) failure: Option<Reason>,
    /// Hard links that wait for it.
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
            tries: BTreeMap::new(),
            differing: false,
            theirs_first: 0,
            theirs: VecDeque::new(),
            closing: Closing::Open,
            root: None,
            failure: None,
            links: Vec::new(),
        }
    }

    /// The first object that was never given out in this try.
    pub(super) fn next_new(&self) -> Option<Object> {
        if self.failure.is_some() || self.stage != Stage::Sending {
            return None;
        }
        let index = self.settled.first_gap(self.cursor);
        self.geometry.object(ObjectIndex(index))
    }

    /// Whether the sink's digest of the object is known, where it matters.
    pub(super) fn may_send(&self, index: u64) -> bool {
        !self.differing || index < self.theirs_first + self.theirs.len() as u64
    }

    /// Takes the sink's digest of the object; those of objects before it are passed over.
    pub(super) fn take_theirs(&mut self, index: u64) -> Option<Digest> {
        while self.theirs_first < index && self.theirs.pop_front().is_some() {
            self.theirs_first += 1;
        }
        let taken = if self.theirs_first == index { self.theirs.pop_front() } else { None };
        self.theirs_first += u64::from(taken.is_some());
        taken.flatten()
    }

    /// An object to be given out again.
    pub(super) fn next_again(&self) -> Option<Object> {
        let may = self.failure.is_none() && self.stage == Stage::Sending;
        self.again
            .iter()
            .next()
            .filter(|_| may)
            .and_then(|(index, _)| self.geometry.object(ObjectIndex(index)))
    }

    /// Whether workers are through with every object: its last look may be taken.
    pub(super) fn is_all_sent(&self) -> bool {
        let is_all_given =
            self.again.is_empty() && self.settled.first_gap(self.cursor) >= self.geometry.count();
        let is_given = self.failure.is_some() || is_all_given;
        self.stage == Stage::Sending && is_given && self.flight.values().all(|flight| flight.sent)
    }

    /// Whether anything of it is still to be given out.
    pub(super) fn has_new(&self) -> bool {
        self.next_new().is_some()
    }

    /// Bytes of the objects under way.
    pub(super) fn flying(&self) -> u64 {
        self.flight.keys().map(|index| self.len_of(*index)).sum()
    }

    pub(super) fn len_of(&self, index: u64) -> u64 {
        self.geometry.object(ObjectIndex(index)).map_or(0, |object| object.range.len())
    }

    /// Bytes of a set of its objects.
    pub(super) fn bytes_of(&self, objects: &Runs) -> u64 {
        let size = self.geometry.object_size().bytes();
        let at = |index: u64| index.saturating_mul(size).min(self.geometry.len());
        objects.iter().map(|(start, end)| at(end) - at(start)).sum()
    }

    /// The object is settled, or has failed for good: it flies no more. Gives the bytes that flew.
    pub(super) fn land(&mut self, index: u64) -> u64 {
        if self.flight.remove(&index).is_some() { self.len_of(index) } else { 0 }
    }

    /// The sink says which objects it has, and is right: what was given out before, does not fly, and is not there, goes
    /// again.
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

    /// From the first object again. Gives the bytes that flew.
    pub(super) fn restart(&mut self, attempt: u16) -> u64 {
        let flew = self.flying();
        self.attempt = attempt;
        self.cursor = 0;
        self.again = Runs::default();
        self.flight.clear();
        self.settled = holes_of(&self.facts);
        self.closing = Closing::Open;
        self.root = None;
        self.differing = false;
        self.theirs.clear();
        flew
    }

    /// A lane was lost: what it carried of this file goes again. Gives the bytes that flew.
    pub(super) fn lose(&mut self, lane: LaneId) -> u64 {
        let lost: Vec<u64> =
            self.flight.iter().filter(|(_, f)| f.lane == lane).map(|(index, _)| *index).collect();
        let mut flew = 0;
        for index in lost {
            flew += self.land(index);
            self.again.insert(index);
        }
        match self.stage {
            Stage::ComparedBy(by, digest) if by == lane => self.stage = Stage::Comparing(digest),
            _ => {}
        }
        if self.closing == Closing::Taken(lane) {
            self.closing = Closing::Open;
        }
        flew
    }

    /// Its home is lost: it is announced again, and closed again if it was.
    pub(super) fn lose_home(&mut self) {
        self.home = None;
        self.stage = Stage::Fresh;
        self.differing = false;
        self.theirs.clear();
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
