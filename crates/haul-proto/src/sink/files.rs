//! Start and end of files at the sink.

use super::comparing::Comparison;
use super::file::{File, Stage};
use super::{Command, Phase, Sink, Unfinished, Verdict, Violation};
use crate::limits::ENTRY_CHARGE;
use crate::{
    Answer, BlockReject, Close, FileClose, FileId, FileKind, FileNumber, JobOptions, Keep, LaneId, Message,
    NewFile, Outcome, Reason, Runs, Verify, Why, Window, check_accepted, check_received,
};
use haul_model::{Level, ObjectIndex};
use std::sync::Arc;

impl Sink {
    pub(super) fn new_file(
        &mut self,
        lane: LaneId,
        facts: NewFile,
        out: &mut Vec<Command>,
    ) -> Result<(), Violation> {
        let number = facts.number;
        if number.0 == u64::MAX {
            return Err("a file's number out of range");
        }
        self.announced = self.announced.max(number.0 + 1);
        // A message can arrive late on a lane that the source has closed and this side has not. The
        // source has then announced the file again on another lane, and the file may have ended.
        let is_late = self.phase != Phase::Running;
        if is_late || self.files.contains_key(&number) {
            if facts.again && !is_late {
                self.announced_again(lane, number);
            }
            return Ok(());
        }
        // Search the results only for a number that has ended.
        if self.ended.contains(number.0) {
            let end = self.ends.iter().find(|(ended, _)| *ended == number);
            match end.map(|(_, outcome)| outcome.clone()) {
                Some(outcome) if facts.again => {
                    let done = crate::FileDone { number, outcome };
                    self.post(lane, Message::FileDone(Box::new(done)));
                    return Ok(());
                }
                None if facts.again => {}
                _ => return Ok(()),
            }
        }
        let Window { files, facts: facts_most, .. } = self.settings.window;
        if self.files.len() >= 2 * files as usize || self.facts >= facts_most.saturating_mul(2) {
            return Err("more files than the window holds");
        }
        let JobOptions { object, settle, .. } = self.settings.options;
        let mut file = File::new(&facts, lane, object, settle);
        if file.done.end() > file.geometry.count() {
            return Err("holes past the end of a file");
        }
        self.facts += file.facts_len;
        if self.quota.is_some()
            && let Some(state) = self.lanes.get_mut(&lane)
        {
            file.new_names = new_names(&state.last_path, &facts.path);
            state.last_path.clone_from(&facts.path);
        }
        self.files.insert(number, file);
        self.open(facts, out);
        Ok(())
    }

    /// Passes a new file to the engine, if its names are valid.
    fn open(&mut self, facts: NewFile, out: &mut Vec<Command>) {
        let has_sums = self.settings.options.keep.has(Keep::STORED_SUMS);
        let check = if has_sums { check_accepted } else { check_received };
        let first = match &facts.kind {
            FileKind::HardLink { first } => Some(check(first)).transpose(),
            _ => Ok(None),
        };
        match check(&facts.path).and_then(|path| Ok((path, first?))) {
            Err(fault) => {
                let reason = Reason::new(Why::Name, &fault.to_string());
                self.finish(facts.number, Outcome::Failed(reason.clone()));
                out.push(Command::Refused { path: facts.path, reason });
            }
            Ok((path, first)) => {
                let facts = Arc::new(facts);
                if facts.is_regular() {
                    out.push(Command::Open { facts, path });
                } else if self.charge_entry(facts.number) {
                    out.push(Command::Make { facts, path, first });
                } else {
                    self.finish(facts.number, Outcome::Failed(Why::Quota.into()));
                    out.push(Command::Refused { path: facts.path.clone(), reason: Why::Quota.into() });
                }
            }
        }
    }

    /// Charges a file once for its name and metadata. Returns false if they exceed the quota.
    pub(super) fn charge_entry(&mut self, number: FileNumber) -> bool {
        let Some(quota) = self.quota else { return true };
        let Some(file) = self.files.get_mut(&number) else { return true };
        if file.entry_charge > 0 {
            return true;
        }
        let charge = ENTRY_CHARGE.saturating_mul(file.new_names).saturating_add(file.facts_len);
        if self.charged.saturating_add(charge) > quota {
            return false;
        }
        file.entry_charge = charge;
        self.charged += charge;
        true
    }

    /// Handles a file that is announced again because the source lost the lane of its answers.
    /// Sends the current state again.
    fn announced_again(&mut self, lane: LaneId, number: FileNumber) {
        let flight_level = self.flight_level();
        let settles_above = self.settles_above();
        let Some(file) = self.files.get_mut(&number) else { return };
        self.syncs.remove(&(file.home, number));
        if let Some(lost) = self.lanes.get_mut(&file.home) {
            // Queue only one of these long messages for each file.
            lost.outbox.retain(|message| !matches!(message, Message::FileId(id) if id.number == number));
        }
        file.home = lane;
        file.whole = false;
        let (done, settled) = (file.done.clone(), file.settled.clone());
        if !done.is_empty() {
            file.queue_reports(flight_level, &done);
        }
        if !settled.is_empty() && file.settles_objects(settles_above) {
            file.queue_reports(file.reported_level(), &settled);
        }
        self.syncs.insert((lane, number));
        if file.stage != Stage::Open {
            return;
        }
        // Request the objects that were requested again on the lost lane.
        let is_missing = |index: &u64| !file.done.contains(*index) && !file.writing.contains_key(index);
        let missing: Vec<u64> = file.retries.keys().copied().filter(is_missing).collect();
        let attempt = file.attempt;
        self.send_file_id(number);
        for index in missing {
            let (object, reason) = (Some(ObjectIndex(index)), Why::LanesLost.into());
            self.post(lane, Message::BlockReject(BlockReject { number, attempt, object, reason }));
        }
    }

    pub(super) fn opened(
        &mut self,
        number: FileNumber,
        verdict: Verdict,
        rereads: bool,
        out: &mut Vec<Command>,
    ) {
        let is_hybrid = self.settings.options.verify == Verify::Hybrid;
        let in_order = self.hashes_in_order();
        let Some(file) = self.files.get_mut(&number).filter(|file| file.stage == Stage::Opening) else {
            // The file ended while the engine was opening it.
            out.push(Command::Abandon { file: number });
            return;
        };
        let count = file.geometry.count();
        let verdict = match verdict {
            // The source does not wait for an answer.
            Verdict::UnlessDigest if file.whole || file.whole_compared.cannot_be_same() => {
                Verdict::Take { have: Runs::default() }
            }
            // Objects that are the same would not be hashed in order.
            Verdict::Differing { have, .. } if file.whole || in_order => Verdict::Take { have },
            verdict => verdict,
        };
        match verdict {
            Verdict::Same => return self.finish(number, Outcome::Same),
            Verdict::Refused(reason) => return self.finish(number, Outcome::Failed(reason)),
            _ if self.settings.options.dry_run => {
                out.push(Command::Abandon { file: number });
                return self.finish(number, Outcome::DryRun);
            }
            Verdict::Take { ref have } | Verdict::Differing { ref have, .. } if have.end() <= count => {
                file.done.unite(have);
                file.settled.unite(have);
                if !have.is_empty() {
                    file.report_max = Level::Durable;
                }
            }
            Verdict::Take { .. } | Verdict::Differing { .. } | Verdict::UnlessDigest => {}
        }
        file.may_transfer = file.bytes_missing();
        // For a compared file, the arrival of its bytes shows if it is replaced.
        let is_replaced =
            matches!(&verdict, Verdict::Take { have } if have.is_empty() || file.may_transfer > 0);
        if is_replaced && !self.charge_entry(number) {
            return self.fail(number, Why::Quota.into(), out);
        }
        let Some(file) = self.files.get_mut(&number) else { return };
        // For a compared file, the arrival of its objects shows which bytes it transfers.
        let charge = if matches!(verdict, Verdict::Take { .. }) { file.may_transfer } else { 0 };
        if self.quota.is_some_and(|quota| self.charged.saturating_add(charge) > quota) {
            // Nothing was created.
            self.charged = self.charged.saturating_sub(std::mem::take(&mut file.entry_charge));
            return self.fail(number, Why::Quota.into(), out);
        }
        file.charged = charge;
        self.charged = self.charged.saturating_add(charge);
        if rereads && is_hybrid {
            file.settle = Level::Reread;
        }
        if let Verdict::Differing { samples, .. } = &verdict {
            file.samples = samples.clone();
        }
        file.stage = Stage::Open;
        file.verdict = Some(verdict);
        if !file.whole {
            self.send_file_id(number);
        }
        self.advance(number, out);
    }

    pub(super) fn send_file_id(&mut self, number: FileNumber) {
        let Some(file) = self.files.get_mut(&number) else { return };
        let answer = match &file.verdict {
            // Sent once: after the loss of a lane the remaining objects are sent in full.
            Some(Verdict::Differing { have, end, .. }) => {
                let (mut have, end) = (have.clone(), (*end).min(file.geometry.count()));
                have.truncate(crate::limits::RUNS_MAX);
                let mut skipped = have.clone();
                skipped.unite(&file.holes);
                file.verdict = None;
                file.comparison = Some(Comparison::new(skipped, end));
                Answer::Differing { have, end }
            }
            // The source waits for the result of the comparison.
            Some(Verdict::UnlessDigest) if file.whole_compared.is_stated() => return,
            Some(Verdict::UnlessDigest) => {
                file.whole_compared.is_asked = true;
                Answer::UnlessDigest
            }
            _ => {
                file.comparison = None;
                let mut have = file.done.clone();
                have.truncate(crate::limits::RUNS_MAX);
                Answer::Take { have }
            }
        };
        let (lane, attempt) = (file.home, file.attempt);
        self.post(lane, Message::FileId(Box::new(FileId { number, attempt, answer })));
    }

    pub(super) fn file_close(&mut self, close: FileClose, out: &mut Vec<Command>) -> Result<(), Violation> {
        let number = close.number;
        if number.0 >= self.announced {
            return Err("the end of a file that was never announced");
        }
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == close.attempt) else {
            return Ok(());
        };
        if !file.is_regular {
            return Err("the end of a file that has no bytes");
        }
        match &close.close {
            Close::Failed(reason) => {
                self.fail_from(true, number, reason.clone(), out);
                return Ok(());
            }
            Close::Read { size, .. } if *size != file.geometry.len() => {
                let reason = Reason::new(Why::Changed, "its size differs from the announced one");
                self.fail(number, reason, out);
                return Ok(());
            }
            Close::Read { .. } if file.verdict == Some(Verdict::UnlessDigest) => {
                return Err("the end of a file before it was compared");
            }
            Close::Read { root, .. } => {
                file.whole_pair.stated = *root;
                file.close = Some(close.close);
            }
        }
        self.advance(number, out);
        Ok(())
    }

    /// Continues with a file once all of it has arrived.
    pub(super) fn advance(&mut self, number: FileNumber, out: &mut Vec<Command>) {
        let (rehashes, settles_above) = (self.rehashes_files(), self.settles_above());
        let Some(file) = self.files.get_mut(&number).filter(|file| file.stage == Stage::Open) else { return };
        let settle = file.reported_level();
        if !file.covers(&file.done) || (file.settles_objects(settles_above) && !file.covers(&file.settled)) {
            return;
        }
        // Rehash a file without data (empty, or one hole) only after FILE_CLOSE shows that the file
        // is not the same. The rehash creates the file.
        if rehashes && !file.is_rehashing && (file.close.is_some() || !file.has_no_transfer()) {
            file.is_rehashing = true;
            out.push(Command::Rehash { file: number, attempt: file.attempt, object: None });
        }
        let Some(close) = file.close.clone() else { return };
        if rehashes {
            match file.whole_pair.agree() {
                Some(true) => {}
                Some(false) => return self.restart(number, Why::Differs.into(), out),
                None if file.whole_pair.stated.is_some() => return,
                None => {
                    let reason = Reason::new(Why::Protocol, "the sender sent no digest of the whole file");
                    return self.fail(number, reason, out);
                }
            }
        }
        file.stage = Stage::Finishing;
        out.push(Command::Finish { file: number, close: Some(close), settle });
    }

    /// Requests the complete file again.
    pub(super) fn restart(&mut self, number: FileNumber, reason: Reason, out: &mut Vec<Command>) {
        let retries = self.settings.retries;
        let Some(file) = self.files.get_mut(&number) else { return };
        let (attempt, lane) = (file.attempt, file.home);
        file.restart();
        if attempt >= u16::from(retries) {
            return self.fail(number, Why::Differs.into(), out);
        }
        self.summary.again += 1;
        self.post(lane, Message::BlockReject(BlockReject { number, attempt, object: None, reason }));
        out.push(Command::Restart { file: number, attempt: attempt + 1 });
    }

    pub(super) fn finished(
        &mut self,
        number: FileNumber,
        result: Result<Outcome, Unfinished>,
        out: &mut Vec<Command>,
    ) {
        let Some(file) = self.files.get(&number) else { return };
        let may = file.stage == Stage::Finishing || !file.is_regular;
        match result {
            // The peer made the file start again while the engine finished it.
            _ if !may => self.fail(number, Why::Protocol.into(), out),
            Ok(outcome) => self.finish(number, outcome),
            Err(Unfinished::Failed(reason)) => self.fail(number, reason, out),
            Err(Unfinished::Differs) => self.restart(number, Why::Differs.into(), out),
        }
    }

    pub(super) fn settled(
        &mut self,
        number: FileNumber,
        attempt: u16,
        level: Level,
        objects: &Runs,
        out: &mut Vec<Command>,
    ) {
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == attempt) else { return };
        // The engine could not reach a higher level, so the file gets this one.
        file.settle = file.settle.min(level);
        let settle = file.settle;
        for index in objects.numbers() {
            // Skip an object that was requested again meanwhile: its bytes are not those that were
            // settled.
            if file.done.contains(index) {
                file.queue_report(level, index);
                if level >= settle {
                    file.settled.insert(index);
                    file.pairs.remove(&index);
                    if let Some(object) = file.object(ObjectIndex(index)).filter(|_| file.has_several()) {
                        out.push(Command::ObjectVerified { file: number, attempt, object });
                    }
                }
            }
        }
        let lane = file.home;
        self.syncs.insert((lane, number));
        self.advance(number, out);
    }
}

/// Returns the number of names in `path` that are not directories above `last`, the path before it:
/// the maximum number of entries that are created for it. A walk visits a directory once.
fn new_names(last: &[u8], path: &[u8]) -> u64 {
    let (mut last, path) = (last.split(|byte| *byte == b'/'), path.split(|byte| *byte == b'/'));
    let mut is_shared = true;
    let new = path.filter(|part| {
        is_shared &= last.next() == Some(*part);
        !is_shared
    });
    (new.count() as u64).max(1)
}
