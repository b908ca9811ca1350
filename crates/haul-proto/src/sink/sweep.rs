//! End of a session at the sink: deletion of the names that the source lacks, and BYE.
//!
//! The sink lists its directories; the source answers which names it lacks at that moment. Before
//! the sink deletes names in a directory, it asks which names the source has there. Neither side
//! keeps a list of the files of the job.

use super::{Command, Phase, Sink, Violation};
use crate::limits::{LISTS_AHEAD, NAMES_PER_LIST};
use crate::{Bye, CONTROL, Delete, Fate, FileNumber, List, Message, Named, Names, WalkEnd, Withheld};
use std::collections::BTreeMap;

/// A question to the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// LIST with this number of names.
    Fates(usize),
    /// NAMES.
    Names,
}

/// Progress of the deletion.
#[derive(Debug, Default)]
pub(super) struct Sweeping {
    next_batch: u32,
    /// LISTs and NAMES that wait for their answers.
    asked: BTreeMap<u32, Asked>,
    /// True if the engine has finished.
    is_done: bool,
    /// Reason for deletions that are not made.
    pub(super) withheld: Option<Withheld>,
}

impl Sink {
    /// Returns true if the engine may ask another question now, by [`super::Event::Listed`] or
    /// [`super::Event::NamesWanted`].
    pub fn may_ask(&self) -> bool {
        self.phase == Phase::Sweeping && self.sweep.asked.len() < LISTS_AHEAD
    }

    pub(super) fn walk_end(&mut self, end: WalkEnd, out: &mut Vec<Command>) -> Result<(), Violation> {
        if self.phase != Phase::Running {
            return Err("the walk's end came twice");
        }
        self.phase = Phase::Sweeping;
        // The source has received the result of every file. A file that is still open arrived late,
        // on a lane that the source had closed.
        let late: Vec<FileNumber> = self.files.keys().copied().collect();
        out.extend(late.into_iter().map(|file| Command::Abandon { file }));
        self.clear_files();
        self.summary.unread = end.unread;
        let asks = self.settings.options.delete;
        // The sink checks the errors that the source reports itself, too.
        let may = asks && end.delete && end.errors == 0;
        self.sweep.withheld = (asks && !may).then_some(Withheld::SourceErrors);
        if may {
            out.push(Command::Sweep);
        } else {
            self.sweep.is_done = true;
            self.end_if_done();
        }
        Ok(())
    }

    pub(super) fn listed(&mut self, directory: Box<[u8]>, names: Vec<Box<[u8]>>) {
        assert!(names.len() <= NAMES_PER_LIST, "the engine sends at most the allowed names");
        if let Some(batch) = self.ask(Asked::Fates(names.len())) {
            self.post(CONTROL, Message::List(Box::new(List { batch, directory, names })));
        }
    }

    pub(super) fn names_wanted(&mut self, directory: Box<[u8]>, from: u64) {
        if let Some(batch) = self.ask(Asked::Names) {
            self.post(CONTROL, Message::Names(Box::new(Names { batch, directory, from })));
        }
    }

    /// Returns the number of a question, or `None` after the end of the session.
    fn ask(&mut self, question: Asked) -> Option<u32> {
        if self.phase != Phase::Sweeping {
            return None;
        }
        assert!(self.may_ask(), "the engine asks at most the allowed questions");
        let batch = self.sweep.next_batch;
        self.sweep.next_batch += 1;
        self.sweep.asked.insert(batch, question);
        Some(batch)
    }

    pub(super) fn delete(&mut self, delete: Delete, out: &mut Vec<Command>) -> Result<(), Violation> {
        let Delete { batch, fates } = delete;
        if self.sweep.asked.remove(&batch) != Some(Asked::Fates(fates.len())) {
            return Err("a DELETE of names that were not requested");
        }
        if fates.contains(&Fate::Guarded) {
            self.sweep.withheld = Some(Withheld::NothingSent);
        }
        out.push(Command::Judged { batch, fates });
        self.end_if_done();
        Ok(())
    }

    pub(super) fn named(&mut self, named: Named, out: &mut Vec<Command>) -> Result<(), Violation> {
        let Named { batch, certain, last, names } = named;
        if self.sweep.asked.remove(&batch) != Some(Asked::Names) {
            return Err("a NAMED that was not requested");
        }
        out.push(Command::Named { batch, names, certain, last });
        self.end_if_done();
        Ok(())
    }

    pub(super) fn removed(&mut self, deleted: u64, failed: u64, over_limit: u64) {
        self.summary.deleted += deleted;
        self.summary.undeleted += failed;
        self.summary.over_limit += over_limit;
    }

    pub(super) fn swept(&mut self) {
        self.sweep.is_done = true;
        self.end_if_done();
    }

    fn end_if_done(&mut self) {
        if self.phase == Phase::Sweeping && self.sweep.is_done && self.sweep.asked.is_empty() {
            self.phase = Phase::Leaving;
            self.post(
                CONTROL,
                Message::Bye(Box::new(Bye { reason: None, summary: self.summary, times: None })),
            );
        }
    }
}
