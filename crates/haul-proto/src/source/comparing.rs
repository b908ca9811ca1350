//! Digests of the source's bytes, from which the sink decides what it needs.

use super::file::{File, Stage};
use super::react::Violation;
use super::{Command, Source};
use crate::limits::DIGESTS_PER_MESSAGE;
use crate::{Compared, FileNumber, LaneId, Message, ObjectDigests, Reason, Runs};
use haul_digest::KeyedDigest;
use haul_model::{Object, ObjectIndex};
use std::collections::VecDeque;

/// Maximum number of objects that a worker hashes at a time.
const OBJECTS_AT_ONCE: usize = 64;
const _: () = assert!(OBJECTS_AT_ONCE <= DIGESTS_PER_MESSAGE);

/// Maximum number of bytes that a worker hashes at a time, unless one object is larger. Its lane
/// sends nothing else meanwhile.
const BYTES_AT_ONCE: u64 = 64 << 20;

/// Comparison of the objects of a file by the sink.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Objects that are not compared.
    skipped: Runs,
    /// Index from which on objects are not compared.
    end: u64,
    /// Worker that hashes objects of the file. One at a time keeps the digests in order.
    by: Option<LaneId>,
    /// One past the last object whose digest was sent.
    told: u64,
    /// Objects whose digests were sent and not answered.
    unanswered: VecDeque<u64>,
    /// One past the last object that the sink has compared.
    compared: u64,
}

impl Comparison {
    /// Creates the comparison of all objects below `end` that are not `skipped`.
    pub(super) fn new(skipped: Runs, end: u64) -> Comparison {
        Comparison { skipped, end, by: None, told: 0, unanswered: VecDeque::new(), compared: 0 }
    }

    /// Returns true if the sink has decided about this object.
    pub(super) fn is_decided(&self, index: u64) -> bool {
        index < self.compared || index >= self.end
    }

    /// Handles the loss of a lane: its worker's digests are not sent.
    pub(super) fn lose(&mut self, lane: LaneId) {
        self.by.take_if(|by| *by == lane);
    }

    /// Removes the objects that COMPARED answers. Returns those that are the same.
    fn answered(&mut self, end: u64, wanted: &Runs) -> Result<Runs, Violation> {
        if end <= self.compared || end > self.told {
            return Err("a comparison without a request");
        }
        let answered = self.unanswered.partition_point(|index| *index < end);
        let mut same: Runs = self.unanswered.drain(..answered).map(|index| (index, index + 1)).collect();
        let mut stray = wanted.clone();
        stray.subtract(&same);
        if !stray.is_empty() {
            return Err("objects that were not compared");
        }
        same.subtract(wanted);
        self.compared = end;
        Ok(same)
    }
}

impl File {
    /// Returns the next objects to hash for the sink; none if it compares no more objects now.
    fn next_compared(&self) -> Vec<Object> {
        let may = self.failure.is_none() && self.stage == Stage::Sending;
        let Some(comparison) = self.comparison.as_ref().filter(|one| may && one.by.is_none()) else {
            return Vec::new();
        };
        let capacity = DIGESTS_PER_MESSAGE - comparison.unanswered.len();
        if capacity < OBJECTS_AT_ONCE {
            return Vec::new();
        }
        let (mut objects, mut bytes, mut next) = (Vec::new(), 0, comparison.told);
        while objects.len() < OBJECTS_AT_ONCE && bytes < BYTES_AT_ONCE {
            let index = comparison.skipped.first_gap(next);
            let object = self.geometry.object(ObjectIndex(index)).filter(|_| index < comparison.end);
            let Some(object) = object else { break };
            bytes += object.range.len();
            next = index + 1;
            objects.push(object);
        }
        objects
    }

    /// Returns what a worker is to hash for the sink next: objects, or `None` for the complete
    /// file.
    pub(super) fn next_hashed(&self) -> Option<Option<Vec<Object>>> {
        if self.stage == Stage::Comparing {
            return Some(None);
        }
        let objects = self.next_compared();
        (!objects.is_empty()).then_some(Some(objects))
    }

    /// Assigns that work to the worker of a lane.
    pub(super) fn hashed_by(&mut self, lane: LaneId) {
        match &mut self.comparison {
            _ if self.stage == Stage::Comparing => self.stage = Stage::ComparedBy(lane),
            Some(comparison) => comparison.by = Some(lane),
            None => {}
        }
    }
}

impl Source {
    /// Handles [`super::Event::Compared`]: sends the digests on the home lane of the file.
    pub(super) fn hashed(
        &mut self,
        lane: LaneId,
        number: FileNumber,
        attempt: u16,
        digests: Result<Vec<KeyedDigest>, Reason>,
    ) {
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == attempt) else { return };
        let is_whole = file.stage == Stage::ComparedBy(lane);
        let objects = file.comparison.as_mut().filter(|comparison| comparison.by == Some(lane));
        if !is_whole && objects.is_none() {
            return;
        }
        let digests = match digests {
            Ok(digests) => digests,
            Err(reason) => {
                if is_whole {
                    file.stage = Stage::Sending;
                }
                return self.fail(number, reason);
            }
        };
        let first = match objects {
            Some(comparison) if !is_whole => {
                comparison.by = None;
                let first = comparison.skipped.first_gap(comparison.told);
                for _ in &digests {
                    let index = comparison.skipped.first_gap(comparison.told);
                    comparison.unanswered.push_back(index);
                    comparison.told = index + 1;
                }
                Some(ObjectIndex(first))
            }
            _ => {
                file.stage = Stage::Announced;
                file.has_told = true;
                None
            }
        };
        if let Some(home) = file.home {
            let told = ObjectDigests { number, attempt, first, digests };
            self.post(home, Message::ObjectDigests(Box::new(told)));
        }
        self.requeue(number);
    }

    /// Handles COMPARED.
    pub(super) fn compared(&mut self, compared: Compared, out: &mut Vec<Command>) -> Result<(), Violation> {
        let Compared { number, attempt, end, wanted } = compared;
        self.is_known(number)?;
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == attempt) else {
            return Ok(());
        };
        let comparison = file.comparison.as_mut().ok_or("a comparison without a request")?;
        let same = comparison.answered(end, &wanted)?;
        file.settled.unite(&same);
        if !same.is_empty() {
            out.push(Command::Same { file: number, objects: same });
        }
        self.queues.ready.push_back(number);
        self.requeue(number);
        Ok(())
    }
}
