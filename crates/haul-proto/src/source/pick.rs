//! Selection of the next work for the worker of a lane.
//!
//! The order is: queued messages; objects to send again, which occupy the window; closing of files;
//! new files; digests for comparisons of the sink; objects of open files, in turn.

use super::file::{Closing, Flight, Stage};
use super::{Availability, Check, Phase, Source, Work};
use crate::{FileClose, FileNumber, LaneId, Message, Verify, Window};
use haul_model::Object;
use std::time::Duration;

/// Work that is available to the worker of a lane.
enum Found {
    /// Sends an object again.
    Again(FileNumber, Object),
    /// Closes a file.
    Close(FileNumber),
    /// Starts the file that has waited longest.
    Fresh(FileNumber),
    /// Hashes objects of a file, or the complete file.
    Compare(FileNumber, Option<Vec<Object>>),
    /// Sends an object for the first time, of the file at index `turn` of the active files.
    New { turn: usize, number: FileNumber, object: Object },
}

impl Source {
    /// Returns the next work for the worker of this lane. An unknown or removed lane gets
    /// [`Work::Done`].
    pub fn next(&mut self, lane: LaneId, now: Duration) -> Work {
        let Some(state) = self.lanes.get_mut(&lane) else { return Work::Done };
        if let Some(message) = state.outbox.pop_front() {
            state.sent = now;
            return Work::Send(message);
        }
        if self.phase == Phase::Over {
            return Work::Done;
        }
        if let Some(work) = self.find(lane).and_then(|found| self.take(found, lane)) {
            self.sent_on(lane, now);
            return work;
        }
        let due = self.lanes.get(&lane).map_or(now, |state| state.sent + self.settings.timing.keep_alive);
        if due <= now {
            self.sent_on(lane, now);
            return Work::Send(Message::KeepAlive);
        }
        Work::Wait { until: due }
    }

    /// Returns the kind of work that [`Source::next`] has for this lane now, apart from a
    /// KEEPALIVE. The kind also says if another lane can take the work. The engine uses it to
    /// select the threads to wake.
    pub fn has_next(&mut self, lane: LaneId) -> Availability {
        match self.lanes.get(&lane) {
            Some(state) if state.outbox.is_empty() && self.phase != Phase::Over => {}
            _ => return Availability::Own,
        }
        if self.find(lane).is_some() { Availability::Shared } else { Availability::Nothing }
    }

    /// Returns the number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the limit on the work in flight.
    pub fn window(&self) -> Window {
        self.settings.window
    }

    /// Returns true if the active files have enough objects to send to give each lane `objects` of
    /// them. A worker that takes several objects at a time then leaves enough for the others.
    pub fn has_for_each_lane(&self, objects: u64) -> bool {
        let wanted = objects.saturating_mul(self.lanes.len() as u64);
        let waiting = self.queues.active.iter().filter_map(|number| self.files.get(number));
        waiting.fold(0_u64, |sum, file| sum.saturating_add(file.geometry.count().saturating_sub(file.cursor)))
            >= wanted
    }

    /// Returns the next second read for a background worker, in the modes that hash after sending.
    pub fn next_check(&mut self) -> Option<Check> {
        while let Some(check) = self.queues.checks.pop_front() {
            let file = self.files.get(&check.facts.number);
            if file.is_some_and(|file| file.attempt == check.attempt && file.failure.is_none()) {
                return Some(check);
            }
        }
        None
    }

    /// Returns true if there may be something to read again.
    pub fn has_check(&self) -> bool {
        !self.queues.checks.is_empty()
    }

    fn sent_on(&mut self, lane: LaneId, now: Duration) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.sent = now;
        }
    }

    /// Finds the next work for the worker of this lane. Takes nothing, but removes outdated entries
    /// from the queues.
    fn find(&mut self, lane: LaneId) -> Option<Found> {
        self.find_again(lane)
            .or_else(|| self.find_close(lane))
            .or_else(|| self.find_fresh())
            .or_else(|| self.find_compare())
            .or_else(|| self.find_object(lane))
    }

    fn find_again(&mut self, lane: LaneId) -> Option<Found> {
        let waiting: Vec<FileNumber> = self.queues.again.iter().copied().collect();
        for number in waiting {
            let next = self.files.get(&number).and_then(|file| file.next_again());
            let Some(object) = next else {
                self.queues.again.remove(&number);
                continue;
            };
            if self.may_carry(number, lane) && self.has_window(object) {
                return Some(Found::Again(number, object));
            }
        }
        None
    }

    fn find_close(&mut self, lane: LaneId) -> Option<Found> {
        let waiting: Vec<FileNumber> = self.queues.close.iter().copied().collect();
        for number in waiting {
            let file = self.files.get(&number).filter(|file| file.is_all_sent());
            match file.map(|file| (&file.closing, file.home)) {
                Some((Closing::Open, _)) => return Some(Found::Close(number)),
                Some((Closing::Ready(_), home)) if home == Some(lane) => return Some(Found::Close(number)),
                Some((Closing::Ready(_), _)) => {}
                _ => {
                    self.queues.close.remove(&number);
                }
            }
        }
        None
    }

    fn find_fresh(&mut self) -> Option<Found> {
        loop {
            let number = *self.queues.fresh.front()?;
            let Some(file) = self.files.get(&number).filter(|file| file.stage == Stage::Fresh) else {
                self.queues.fresh.pop_front();
                continue;
            };
            let object = if file.facts.whole { file.geometry.objects().next() } else { None };
            let has_window = object.is_none_or(|object| self.has_window(object));
            return (has_window && self.may_begin(number)).then_some(Found::Fresh(number));
        }
    }

    fn find_compare(&mut self) -> Option<Found> {
        while let Some(&number) = self.queues.compare.first() {
            if let Some(objects) = self.files.get(&number).and_then(|file| file.next_hashed()) {
                return Some(Found::Compare(number, objects));
            }
            self.queues.compare.pop_first();
        }
        None
    }

    /// Returns the next object of an open file. At most as many files are active as there are
    /// lanes. Lanes therefore spread over files while there are several, and over the objects of
    /// the last one.
    fn find_object(&mut self, lane: LaneId) -> Option<Found> {
        let files = &self.files;
        self.queues.active.retain(|number| files.get(number).is_some_and(|file| file.has_new()));
        while self.queues.active.len() < self.lanes.len() {
            let Some(number) = self.queues.ready.pop_front() else { break };
            if self.files.get(&number).is_some_and(|file| file.has_new())
                && !self.queues.active.contains(&number)
            {
                self.queues.active.push_back(number);
            }
        }
        self.queues.active.iter().enumerate().find_map(|(turn, &number)| {
            let next = self.files.get(&number)?.next_new();
            let may_send = |object: &Object| {
                let file = self.files.get(&number);
                file.is_some_and(|file| file.may_send(object.index.0))
                    && self.may_carry(number, lane)
                    && self.has_window(*object)
            };
            next.filter(may_send).map(|object| Found::New { turn, number, object })
        })
    }

    fn take(&mut self, found: Found, lane: LaneId) -> Option<Work> {
        match found {
            Found::Again(number, object) => Some(self.give(number, lane, object, true)),
            Found::Close(number) => self.take_close(number, lane),
            Found::Fresh(number) => self.take_fresh(number, lane),
            Found::Compare(number, objects) => {
                self.queues.compare.remove(&number);
                let file = self.files.get_mut(&number)?;
                file.hashed_by(lane);
                Some(Work::Compare { facts: file.facts.clone(), attempt: file.attempt, objects })
            }
            Found::New { turn, number, object } => {
                // Files behind this one have priority at the next call.
                self.queues.active.rotate_left(turn + 1);
                Some(self.give(number, lane, object, false))
            }
        }
    }

    fn take_close(&mut self, number: FileNumber, lane: LaneId) -> Option<Work> {
        self.queues.close.remove(&number);
        let file = self.files.get_mut(&number)?;
        if let Closing::Ready(close) = &file.closing {
            let close = close.clone();
            file.closing = Closing::Sent(close.clone());
            let message = FileClose { number, attempt: file.attempt, close };
            return Some(Work::Send(Message::FileClose(Box::new(message))));
        }
        file.closing = Closing::Taken(lane);
        Some(Work::Close { facts: file.facts.clone(), attempt: file.attempt, root: file.root })
    }

    fn take_fresh(&mut self, number: FileNumber, lane: LaneId) -> Option<Work> {
        self.queues.fresh.pop_front();
        let file = self.files.get_mut(&number)?;
        file.home = Some(lane);
        let facts = file.facts.clone();
        if !facts.whole {
            file.stage = Stage::Announced;
            return Some(Work::Send(Message::NewFile(Box::new((*facts).clone()))));
        }
        file.stage = Stage::Sending;
        file.closing = Closing::Taken(lane);
        let object = file.geometry.objects().next();
        if let Some(object) = object {
            file.cursor = 1;
            file.flight.insert(0, Flight { lane, sent: false });
            self.bytes_in_flight += object.range.len();
        }
        Some(Work::Whole { facts, object })
    }

    /// Gives an object to the worker of a lane.
    fn give(&mut self, number: FileNumber, lane: LaneId, object: Object, again: bool) -> Work {
        let Some(file) = self.files.get_mut(&number) else { unreachable!("the caller looked it up") };
        let index = object.index.0;
        self.bytes_in_flight += object.range.len();
        file.flight.insert(index, Flight { lane, sent: false });
        if again {
            file.again.remove(index);
        } else {
            file.cursor = index + 1;
        }
        Work::Object { facts: file.facts.clone(), attempt: file.attempt, object, again }
    }

    /// Returns true if the object fits into the window. One object always fits, regardless of its
    /// size.
    fn has_window(&self, object: Object) -> bool {
        self.bytes_in_flight == 0 || self.bytes_in_flight + object.range.len() <= self.settings.window.bytes
    }

    /// Returns true if an object of the file may be sent on this lane now.
    fn may_carry(&self, number: FileNumber, lane: LaneId) -> bool {
        let Some(file) = self.files.get(&number) else { return false };
        let is_idle = file.flight.values().all(|flight| flight.sent);
        let in_order = !self.settings.options.in_order || (file.home == Some(lane) && is_idle);
        // One block is sent while one is hashed.
        let flights = || self.files.values().flat_map(|file| file.flight.values());
        let in_turn = self.settings.options.verify != Verify::BlockPipeline
            || (flights().count() < 2 && flights().all(|flight| flight.sent));
        in_order && in_turn
    }

    /// Returns true if a new file may start while others are in progress. The competing methods of
    /// FIVER delay it.
    fn may_begin(&self, number: FileNumber) -> bool {
        if self.files.get(&number).is_some_and(|file| file.facts.again) {
            // The file started before its lane was lost.
            return true;
        }
        let others = || {
            let under_way = self.files.iter().filter(move |(other, _)| **other != number);
            let regular = under_way.filter(|(_, file)| file.facts.is_regular());
            regular.map(|(_, file)| file).filter(|file| !matches!(file.stage, Stage::Fresh | Stage::Linked))
        };
        match self.settings.options.verify {
            Verify::Sequential => others().next().is_none(),
            Verify::FilePipeline => others().count() < 2 && others().all(|file| file.is_all_sent()),
            Verify::BlockPipeline => others().all(|file| file.is_all_sent()),
            _ => true,
        }
    }
}
