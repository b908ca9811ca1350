//! What the worker of a lane does next.
//!
//! In this order: what was answered to be sent; objects that go again, which hold the window; the ends of files; new
//! files; objects of open files, those in turn.

use super::file::{Closing, Flight, Stage};
use super::{Check, Phase, Source, Work};
use crate::{FileClose, FileNumber, LaneId, Message, Verify};
use haul_model::Object;
use std::time::Duration;

impl Source {
    /// What the worker of this lane does next. A lane that is not known, or not any more, gets [`Work::Done`].
    pub fn next(&mut self, lane: LaneId, now: Duration) -> Work {
        let Some(state) = self.lanes.get_mut(&lane) else { return Work::Done };
        if let Some(message) = state.outbox.pop_front() {
            state.sent = now;
            return Work::Send(message);
        }
        if self.phase == Phase::Over {
            return Work::Done;
        }
        if let Some(work) = self.pick(lane) {
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

    /// What a worker beside the lanes reads again, in the modes that hash after sending.
    pub fn next_check(&mut self) -> Option<Check> {
        while let Some(check) = self.queues.checks.pop_front() {
            let file = self.files.get(&check.facts.number);
            if file.is_some_and(|file| file.attempt == check.attempt && file.failure.is_none()) {
                return Some(check);
            }
        }
        None
    }

    fn sent_on(&mut self, lane: LaneId, now: Duration) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.sent = now;
        }
    }

    fn pick(&mut self, lane: LaneId) -> Option<Work> {
        self.pick_again(lane)
            .or_else(|| self.pick_close(lane))
            .or_else(|| self.pick_fresh(lane))
            .or_else(|| self.pick_compare(lane))
            .or_else(|| self.pick_object(lane))
    }

    fn pick_again(&mut self, lane: LaneId) -> Option<Work> {
        let waiting: Vec<FileNumber> = self.queues.again.iter().copied().collect();
        for number in waiting {
            let next = self.files.get(&number).and_then(|file| file.next_again());
            let Some(object) = next else {
                self.queues.again.remove(&number);
                continue;
            };
            if self.may_carry(number, lane) && self.has_window(object) {
                return Some(self.give(number, lane, object, true));
            }
        }
        None
    }

    fn pick_close(&mut self, lane: LaneId) -> Option<Work> {
        let waiting: Vec<FileNumber> = self.queues.close.iter().copied().collect();
        for number in waiting {
            let file = self.files.get_mut(&number).filter(|file| file.is_all_sent());
            let Some(file) = file else {
                self.queues.close.remove(&number);
                continue;
            };
            match &file.closing {
                Closing::Open => {
                    self.queues.close.remove(&number);
                    file.closing = Closing::Taken(lane);
                    let facts = file.facts.clone();
                    return Some(Work::Close { facts, attempt: file.attempt, root: file.root });
                }
                Closing::Ready(close) if file.home == Some(lane) => {
                    self.queues.close.remove(&number);
                    let close = close.clone();
                    file.closing = Closing::Sent(close.clone());
                    let message = FileClose { number, attempt: file.attempt, close };
                    return Some(Work::Send(Message::FileClose(Box::new(message))));
                }
                Closing::Ready(_) => {}
                _ => {
                    self.queues.close.remove(&number);
                }
            }
        }
        None
    }

    fn pick_fresh(&mut self, lane: LaneId) -> Option<Work> {
        loop {
            let number = *self.queues.fresh.front()?;
            let Some(file) = self.files.get(&number).filter(|file| file.stage == Stage::Fresh) else {
                self.queues.fresh.pop_front();
                continue;
            };
            let whole = file.facts.whole;
            let object = if whole { file.geometry.objects().next() } else { None };
            let has_window = object.is_none_or(|object| self.has_window(object));
            if !has_window || !self.may_begin(number) {
                return None;
            }
            self.queues.fresh.pop_front();
            let file = self.files.get_mut(&number)?;
            file.home = Some(lane);
            let facts = file.facts.clone();
            if !whole {
                file.stage = Stage::Asked;
                return Some(Work::Send(Message::NewFile(Box::new((*facts).clone()))));
            }
            file.stage = Stage::Sending;
            file.closing = Closing::Taken(lane);
            if let Some(object) = object {
                file.cursor = 1;
                file.flight.insert(0, Flight { lane, sent: false });
                self.flying += object.range.len();
            }
            return Some(Work::Whole { facts, object });
        }
    }

    fn pick_compare(&mut self, lane: LaneId) -> Option<Work> {
        while let Some(number) = self.queues.compare.pop_front() {
            let Some(file) = self.files.get_mut(&number) else { continue };
            if let Stage::Comparing(theirs) = file.stage {
                file.stage = Stage::ComparedBy(lane, theirs);
                return Some(Work::Compare { facts: file.facts.clone(), theirs });
            }
        }
        None
    }

    /// The next object of an open file. As many files are open as there are lanes, so that lanes spread over files
    /// while there are several, and over the objects of one when it is the last.
    fn pick_object(&mut self, lane: LaneId) -> Option<Work> {
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
        for _ in 0..self.queues.active.len() {
            self.queues.active.rotate_left(1);
            let number = *self.queues.active.back()?;
            let file = self.files.get(&number)?;
            let Some(object) = file.next_new().filter(|object| file.may_send(object.index.0)) else {
                continue;
            };
            if self.may_carry(number, lane) && self.has_window(object) {
                return Some(self.give(number, lane, object, false));
            }
        }
        None
    }

    /// Gives an object to the worker of a lane.
    fn give(&mut self, number: FileNumber, lane: LaneId, object: Object, again: bool) -> Work {
        let Some(file) = self.files.get_mut(&number) else { unreachable!("the caller looked it up") };
        let index = object.index.0;
        self.flying += object.range.len();
        file.flight.insert(index, Flight { lane, sent: false });
        let theirs = if again {
            file.again.remove(index);
            None
        } else {
            file.cursor = index + 1;
            file.take_theirs(index)
        };
        Work::Object { facts: file.facts.clone(), attempt: file.attempt, object, theirs, again }
    }

    /// Whether the window has room for the object. One always goes, however large.
    fn has_window(&self, object: Object) -> bool {
        self.flying == 0 || self.flying + object.range.len() <= self.settings.window.bytes
    }

    /// Whether an object of the file may go on this lane now.
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

    /// Whether a new file may begin beside those under way: the rivals of FIVER hold it back.
    fn may_begin(&self, number: FileNumber) -> bool {
        if self.files.get(&number).is_some_and(|file| file.facts.again) {
            // It began before its lane was lost.
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
