//! Reactions of the sink to events.

use super::{Command, Event, Lane, Phase, Sink, Violation};
use crate::limits::RUNS_HELD_MAX;
use crate::{Bye, CONTROL, End, LaneId, Message, Reason, Why};
use std::collections::VecDeque;
use std::time::Duration;

impl Sink {
    /// Processes an event at the moment `now`, and appends commands for the engine to `out`.
    pub fn handle(&mut self, event: Event, now: Duration, out: &mut Vec<Command>) {
        let changed = event.changed_file();
        match event {
            Event::LaneUp(lane) => {
                let state = Lane {
                    last_received: now,
                    sent: now,
                    outbox: VecDeque::new(),
                    last_path: Box::default(),
                    receiving: None,
                };
                self.lanes.insert(lane, state);
            }
            Event::LaneLost(lane) => self.lose(lane, Why::LanesLost.into(), out),
            Event::Message(lane, message) => self.receive(lane, message, now, out),
            Event::ObjectEnd { lane, end, found } => {
                if let Some(state) = self.lanes.get_mut(&lane) {
                    state.last_received = now;
                    let result = self.object_end(lane, &end, found, out);
                    self.end_on_violation(result, out);
                }
            }
            Event::Progress(lane) => {
                if let Some(state) = self.lanes.get_mut(&lane) {
                    state.last_received = now;
                }
            }
            Event::WriteFailed { file, reason } => self.fail(file, reason, out),
            Event::Opened { file, verdict, rereads } => self.opened(file, verdict, rereads, out),
            Event::OwnDigest { file, digest } => self.own_digest(file, digest, out),
            Event::Compared { file, attempt, object, same } => {
                self.compared(file, attempt, object, same, out);
            }
            Event::Settled { file, attempt, level, objects } => {
                self.settled(file, attempt, level, &objects, out);
            }
            Event::SettleFailed { file, attempt, object, reason } => {
                self.settle_failed(file, attempt, object, reason, out);
            }
            Event::Rehashed { file, attempt, object, digest } => {
                self.rehashed(file, attempt, object, digest, out);
            }
            Event::Finished { file, result } => self.finished(file, result, out),
            Event::Listed { directory, names } => self.listed(directory, names),
            Event::NamesWanted { directory, from } => self.names_wanted(directory, from),
            Event::Removed { deleted, failed, over_limit } => self.removed(deleted, failed, over_limit),
            Event::Swept => self.swept(),
            Event::Stop(reason) => self.end_early(reason, true, out),
            Event::Tick => self.tick(now, out),
        }
        if let Some(number) = changed {
            self.bound_entries(number, out);
        }
        self.bound_outboxes(out);
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

    /// Drops the object that a lost lane was receiving; the source sends it again on another lane.
    /// If the first lane is lost, the session ends, unless its work is done.
    fn lose(&mut self, lane: LaneId, reason: Reason, out: &mut Vec<Command>) {
        let Some(lost) = self.lanes.remove(&lane) else { return };
        if let Some(receiving) = lost.receiving {
            self.object_lost(&receiving, out);
        }
        if lane != CONTROL || self.phase == Phase::Over {
            return;
        }
        if self.phase == Phase::Leaving {
            self.leave(out);
        } else {
            self.end_early(reason, false, out);
        }
    }

    fn receive(&mut self, lane: LaneId, message: Message, now: Duration, out: &mut Vec<Command>) {
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        state.last_received = now;
        if self.phase == Phase::Over {
            // The worker must still skip payload that the source sent before it knew that the
            // session is over.
            if message.payload_len() > 0 {
                out.push(Command::Discard { payload: message.payload_len() });
            }
            return;
        }
        let result = match message {
            Message::KeepAlive => Ok(()),
            Message::NewFile(facts) => self.new_file(lane, *facts, out),
            Message::NewBlock(block) => self.new_block(lane, &block, out),
            Message::ObjectDigests(digests) => self.object_digests(lane, *digests, out),
            Message::FileClose(close) => self.file_close(*close, out),
            Message::WalkEnd(end) => self.walk_end(end, out),
            Message::Delete(delete) => self.delete(*delete, out),
            Message::Named(named) => self.named(*named, out),
            Message::Unread(unread) => {
                out.push(Command::Unread(*unread));
                Ok(())
            }
            Message::Bye(bye) => self.bye(*bye, out),
            _ => Err("a message that only a sink sends, or at the wrong time"),
        };
        self.end_on_violation(result, out);
    }

    fn end_on_violation(&mut self, result: Result<(), Violation>, out: &mut Vec<Command>) {
        if let Err(violation) = result {
            self.end_early(Reason::new(Why::Protocol, violation), true, out);
        }
    }

    fn bye(&mut self, bye: Bye, out: &mut Vec<Command>) -> Result<(), Violation> {
        match (bye.reason, self.phase) {
            (Some(reason), _) => self.end_early(reason, false, out),
            (None, Phase::Leaving) => self.leave(out),
            (None, _) => return Err("BYE before the end"),
        }
        Ok(())
    }

    /// Ends the session successfully: every file was answered and reported.
    fn leave(&mut self, out: &mut Vec<Command>) {
        self.over();
        let withheld = self.sweep.withheld;
        out.push(Command::Ended(End::Finished { summary: self.summary, withheld }));
    }

    /// Ends the session if a source sends requests without reading the answers, so that they do not
    /// fill memory.
    fn bound_outboxes(&mut self, out: &mut Vec<Command>) {
        let most = 4 * self.settings.window.files as usize + RUNS_HELD_MAX;
        if self.lanes.values().map(|lane| lane.outbox.len()).sum::<usize>() > most {
            self.end_early(Reason::new(Why::Protocol, "the peer ignores messages"), false, out);
        }
    }
}
