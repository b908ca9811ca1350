//! Reactions of the source to events.

use super::comparing::Comparison;
use super::file::{Closing, Stage, holes_of};
use super::{Check, Command, Event, Lane, Phase, Source};
use crate::limits::LISTS_AHEAD;
use crate::{
    Answer, BlockDigest, BlockReject, BlockSync, Bye, CONTROL, Close, Delete, End, Fate, FileId, FileNumber,
    LaneId, List, Message, Names, NewFile, Outcome, Reason, Runs, Stated, Why, Withheld,
};
use haul_digest::Digest;
use haul_model::{Object, ObjectIndex};
use std::collections::VecDeque;
use std::time::Duration;

/// Description of a protocol violation by the sink.
pub(super) type Violation = &'static str;

impl Source {
    /// Processes an event at the moment `now`, and appends commands for the engine to `out`.
    pub fn handle(&mut self, event: Event, now: Duration, out: &mut Vec<Command>) {
        match event {
            Event::LaneUp(lane) => {
                let state = Lane { last_received: now, sent: now, outbox: VecDeque::new() };
                self.lanes.insert(lane, state);
            }
            Event::LaneLost(lane) => self.lose(lane, Why::LanesLost.into(), out),
            Event::Progress(lane) => {
                if let Some(state) = self.lanes.get_mut(&lane) {
                    state.last_received = now;
                }
            }
            Event::Message(lane, message) => self.receive(lane, message, now, out),
            Event::WholeSent { lane, file, close } => self.whole_sent(lane, file, close),
            Event::WholeFailed { lane, file, reason } => {
                if self.files.get(&file).is_some_and(|f| f.closing == Closing::Taken(lane)) {
                    self.fail_unannounced(file, reason, out);
                }
            }
            Event::ObjectSent { lane, file, attempt, object } => {
                self.object_sent(lane, file, attempt, object);
            }
            Event::ObjectFailed { lane, file, attempt, object, reason } => {
                if self.remove_in_flight(lane, file, attempt, object) {
                    self.fail(file, reason);
                }
            }
            Event::Compared { lane, file, attempt, digests } => self.hashed(lane, file, attempt, digests),
            Event::Closed { lane, file, attempt, close } => self.closed(lane, file, attempt, close),
            Event::Checked { check, digest } => self.checked(&check, digest),
            Event::MissingFound { batch, fates } => {
                self.lists_in_check = self.lists_in_check.saturating_sub(1);
                self.walk.is_guarded |= fates.contains(&Fate::Guarded);
                self.post(CONTROL, Message::Delete(Box::new(Delete { batch, fates })));
            }
            Event::NamesFound(named) => {
                self.lists_in_check = self.lists_in_check.saturating_sub(1);
                self.post(CONTROL, Message::Named(Box::new(named)));
            }
            Event::Unread { path, reason } => self.unread(path, reason),
            Event::WalkEnded => self.walk.is_ended = true,
            Event::Stop(reason) => self.end_early(reason, true, out),
            Event::Tick => self.tick(now, out),
        }
        self.end_if_short(out);
        self.end_if_done();
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Command>) {
        let silence = self.settings.timing.silence;
        let is_silent = |lane: &Lane| now.saturating_sub(lane.last_received) >= silence;
        let silent: Vec<LaneId> =
            self.lanes.iter().filter(|(_, l)| is_silent(l)).map(|(id, _)| *id).collect();
        for lane in silent {
            out.push(Command::DropLane { lane });
            self.lose(lane, Why::Silent.into(), out);
        }
    }

    /// Sends the work of a lost lane on another lane. The session ends if the first lane is lost.
    fn lose(&mut self, lane: LaneId, reason: Reason, out: &mut Vec<Command>) {
        if self.lanes.remove(&lane).is_none() || self.phase == Phase::Over {
            return;
        }
        if lane == CONTROL {
            self.end_early(reason, false, out);
            return;
        }
        let numbers: Vec<FileNumber> = self.files.keys().copied().collect();
        for number in numbers {
            let Some(file) = self.files.get_mut(&number) else { continue };
            self.bytes_in_flight -= file.lose(lane);
            if file.home == Some(lane) {
                file.lose_home();
                self.queues.fresh.push_front(number);
            }
            self.requeue(number);
        }
    }

    fn whole_sent(&mut self, lane: LaneId, number: FileNumber, close: Close) {
        let Some(file) = self.files.get_mut(&number).filter(|file| file.closing == Closing::Taken(lane))
        else {
            return;
        };
        if let Close::Failed(reason) = &close {
            file.failure = Some(reason.clone());
        }
        file.closing = Closing::Sent(close);
        if let Some(flight) = file.flight.get_mut(&0) {
            flight.sent = true;
        }
    }

    fn object_sent(&mut self, lane: LaneId, number: FileNumber, attempt: u16, object: ObjectIndex) {
        let by_object_twice = self.settings.options.verify == crate::Verify::BlockPipeline;
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == attempt) else { return };
        let Some(flight) = file.flight.get_mut(&object.0).filter(|flight| flight.lane == lane) else {
            // The BLOCK_SYNC of the sink arrived before the report of the worker.
            self.requeue(number);
            return;
        };
        flight.sent = true;
        if by_object_twice {
            let object = file.geometry.object(object);
            self.queues.checks.push_back(Check { facts: file.facts.clone(), attempt, object });
        }
        self.requeue(number);
    }

    /// Removes an object from those in flight. Returns true if this worker was sending it.
    fn remove_in_flight(
        &mut self,
        lane: LaneId,
        number: FileNumber,
        attempt: u16,
        object: ObjectIndex,
    ) -> bool {
        let file = self.files.get_mut(&number).filter(|file| file.attempt == attempt);
        let Some(file) = file.filter(|f| f.flight.get(&object.0).is_some_and(|flight| flight.lane == lane))
        else {
            return false;
        };
        self.bytes_in_flight -= file.remove_in_flight(object.0);
        true
    }

    fn closed(&mut self, lane: LaneId, number: FileNumber, attempt: u16, close: Close) {
        let file = self.files.get_mut(&number).filter(|file| file.attempt == attempt);
        let Some(file) = file.filter(|file| file.closing == Closing::Taken(lane)) else { return };
        file.closing = Closing::Open;
        if let Close::Failed(reason) = close {
            return self.fail(number, reason);
        }
        file.closing = Closing::Ready(close);
        self.requeue(number);
    }

    fn checked(&mut self, check: &Check, digest: Result<Digest, Reason>) {
        let number = check.facts.number;
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == check.attempt) else {
            return;
        };
        let digest = match digest {
            Ok(digest) => digest,
            Err(reason) => {
                file.closing = Closing::Open;
                return self.fail(number, reason);
            }
        };
        match check.object {
            None if file.closing == Closing::Checking => {
                file.root = Some(digest);
                file.closing = Closing::Open;
                self.requeue(number);
            }
            None => {}
            Some(Object { index, .. }) => {
                let Some(lane) =
                    file.flight.get(&index.0).filter(|flight| flight.sent).map(|flight| flight.lane)
                else {
                    return;
                };
                let stated = Stated::Digest(digest);
                let end = BlockDigest { number, attempt: check.attempt, object: index, stated };
                self.post(lane, Message::BlockDigest(Box::new(end)));
            }
        }
    }

    fn receive(&mut self, lane: LaneId, message: Message, now: Duration, out: &mut Vec<Command>) {
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        state.last_received = now;
        if self.phase == Phase::Over {
            return;
        }
        let result = match message {
            Message::KeepAlive => Ok(()),
            Message::FileId(id) => self.file_id(*id, out),
            Message::BlockSync(sync) => self.block_sync(*sync, out),
            Message::BlockReject(reject) => self.block_reject(reject),
            Message::Compared(compared) => self.compared(*compared, out),
            Message::FileDone(done) => self.file_done(done.number, done.outcome, out),
            Message::List(list) => self.list(*list, out),
            Message::Names(names) => self.names(*names, out),
            Message::Bye(bye) => self.bye(*bye, out),
            _ => Err("a message that only a source sends"),
        };
        if let Err(violation) = result {
            self.end_early(Reason::new(Why::Protocol, violation), true, out);
        }
    }

    pub(super) fn is_known(&self, number: FileNumber) -> Result<(), Violation> {
        if number.0 < self.next_number { Ok(()) } else { Err("a file that was never announced") }
    }

    fn file_id(&mut self, id: FileId, out: &mut Vec<Command>) -> Result<(), Violation> {
        self.is_known(id.number)?;
        let number = id.number;
        let waits = |stage| matches!(stage, Stage::Announced | Stage::Comparing | Stage::ComparedBy(_));
        let Some(file) = self.files.get_mut(&number).filter(|file| waits(file.stage)) else {
            return Ok(());
        };
        if id.attempt < file.attempt {
            return Err("an earlier attempt of a file");
        }
        if id.attempt > file.attempt {
            self.bytes_in_flight -= file.restart(id.attempt);
        }
        if !matches!(id.answer, Answer::Take { .. }) && (file.stage != Stage::Announced || file.has_told) {
            return Err("a comparison after another one");
        }
        let (have, end) = match id.answer {
            Answer::Take { have } => (have, 0),
            Answer::Differing { have, end } => (have, end),
            Answer::UnlessDigest => {
                file.stage = Stage::Comparing;
                self.requeue(number);
                return Ok(());
            }
        };
        if have.end().max(end) > file.geometry.count() {
            return Err("objects past the end of a file");
        }
        file.stage = Stage::Sending;
        file.have(&have);
        file.comparison = (end > 0).then(|| Comparison::new(file.settled.clone(), end));
        self.queues.ready.push_back(number);
        out.extend(already_present(number, &file.facts, have));
        self.requeue(number);
        Ok(())
    }

    fn block_sync(&mut self, sync: BlockSync, out: &mut Vec<Command>) -> Result<(), Violation> {
        self.is_known(sync.number)?;
        let flight_level = self.flight_level();
        let number = sync.number;
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == sync.attempt) else {
            return Ok(());
        };
        if sync.objects.end() > file.cursor.max(file.settled.end()) {
            return Err("objects that were never sent");
        }
        if sync.level >= flight_level {
            let landed: Vec<u64> =
                file.flight.keys().copied().filter(|i| sync.objects.contains(*i)).collect();
            for index in landed {
                self.bytes_in_flight -= file.remove_in_flight(index);
            }
            file.again.subtract(&sync.objects);
            file.settled.unite(&sync.objects);
        }
        out.push(Command::Synced { file: number, level: sync.level, objects: sync.objects });
        self.requeue(number);
        Ok(())
    }

    fn block_reject(&mut self, reject: BlockReject) -> Result<(), Violation> {
        self.is_known(reject.number)?;
        let retries_max = self.settings.retries;
        let number = reject.number;
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == reject.attempt) else {
            return Ok(());
        };
        self.summary.again += 1;
        let Some(ObjectIndex(index)) = reject.object else {
            if file.attempt >= u16::from(retries_max) {
                self.fail(number, Reason { why: Why::Differs, text: reject.reason.text });
                return Ok(());
            }
            let attempt = file.attempt + 1;
            self.bytes_in_flight -= file.restart(attempt);
            if file.stage == Stage::Sending {
                self.queues.ready.push_back(number);
            }
            self.requeue(number);
            return Ok(());
        };
        if index >= file.geometry.count() {
            return Err("an object past the end of a file");
        }
        if index >= file.cursor && !file.settled.contains(index) {
            // The object was the same, read back wrong, and was rejected on a lost lane. It is sent
            // like any object that the sink lacks.
            return Ok(());
        }
        let retries = file.retries.entry(index).or_insert(0);
        *retries += 1;
        let is_hopeless = *retries > retries_max;
        self.bytes_in_flight -= file.remove_in_flight(index);
        file.settled.remove(index);
        if is_hopeless {
            self.fail(number, Reason { why: Why::Differs, text: reject.reason.text });
        } else if file.failure.is_none() {
            if index < file.cursor {
                file.again.insert(index);
            } else {
                self.queues.ready.push_back(number);
            }
            self.requeue(number);
        }
        Ok(())
    }

    fn file_done(
        &mut self,
        number: FileNumber,
        outcome: Outcome,
        out: &mut Vec<Command>,
    ) -> Result<(), Violation> {
        self.is_known(number)?;
        let Some(file) = self.files.get(&number) else { return Ok(()) };
        let is_told = !matches!(file.stage, Stage::Fresh | Stage::Linked);
        if !is_told && !matches!(outcome, Outcome::Failed(_)) && !file.facts.again {
            return Err("the end of a file that was not announced");
        }
        let is_closed = match (&outcome, &file.closing) {
            (Outcome::Done(_), Closing::Sent(Close::Read { .. }) | Closing::Taken(_)) => true,
            (Outcome::Done(_), _) => !file.facts.is_regular() || file.facts.again,
            _ => true,
        };
        if !is_closed {
            return Err("the end of a file that was not sent");
        }
        match (&file.failure, outcome) {
            // The sink repeats the reason that it received; the source has the original.
            (Some(reason), Outcome::Failed(_)) => {
                let reason = reason.clone();
                self.finish(number, Outcome::Failed(reason), true, out);
            }
            (None, Outcome::Failed(reason)) if reason.why.is_shortage() => {
                self.run_short(number, reason, out);
            }
            (_, outcome) => self.finish(number, outcome, false, out),
        }
        Ok(())
    }

    fn list(&mut self, list: List, out: &mut Vec<Command>) -> Result<(), Violation> {
        self.asked()?;
        out.push(Command::FindMissing { batch: list.batch, directory: list.directory, names: list.names });
        Ok(())
    }

    fn names(&mut self, names: Names, out: &mut Vec<Command>) -> Result<(), Violation> {
        self.asked()?;
        out.push(Command::FindNames { batch: names.batch, directory: names.directory, from: names.from });
        Ok(())
    }

    /// Counts a LIST or NAMES.
    fn asked(&mut self) -> Result<(), Violation> {
        let may = self.phase == Phase::Ending && self.settings.options.delete && self.walk.errors == 0;
        if !may {
            return Err("a LIST or NAMES without permission to delete");
        }
        if self.lists_in_check as usize >= LISTS_AHEAD {
            return Err("more LISTs and NAMES than allowed");
        }
        self.lists_in_check += 1;
        Ok(())
    }

    fn bye(&mut self, bye: Bye, out: &mut Vec<Command>) -> Result<(), Violation> {
        if let Some(reason) = bye.reason {
            self.end_early(reason, false, out);
            return Ok(());
        }
        if self.phase != Phase::Ending {
            return Err("BYE before the end");
        }
        self.summary.deleted = bye.summary.deleted;
        self.summary.undeleted = bye.summary.undeleted;
        self.summary.over_limit = bye.summary.over_limit;
        let withheld = if self.settings.options.delete && self.walk.errors > 0 {
            Some(Withheld::SourceErrors)
        } else {
            self.walk.is_guarded.then_some(Withheld::NothingSent)
        };
        self.over();
        self.post(CONTROL, Message::Bye(Box::new(Bye { reason: None, summary: self.summary, times: None })));
        out.push(Command::Ended(End::Finished { summary: self.summary, withheld }));
        Ok(())
    }
}

/// Returns the objects that an earlier run transferred: those that the sink has, without the holes.
fn already_present(file: FileNumber, facts: &NewFile, mut objects: Runs) -> Option<Command> {
    objects.subtract(&holes_of(facts));
    (!objects.is_empty()).then_some(Command::AlreadyPresent { file, objects })
}
