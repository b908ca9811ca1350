//! End of a session at the sink: deletion of the names that the source lacks, and BYE.
//!
//! The sink lists its directories; the source answers which names it lacks at that moment. Neither
//! side keeps a list of the files of the job.

use super::{Command, Phase, Sink, Violation};
use crate::limits::{LISTS_AHEAD, NAMES_PER_LIST};
use crate::{Bye, CONTROL, Delete, FileNumber, List, Message, WalkEnd};
use std::collections::BTreeMap;

/// Names of a directory that the sink asked the source about.
type ListedNames = (Box<[u8]>, Vec<Box<[u8]>>);

/// Progress of the deletion.
#[derive(Debug, Default)]
pub(super) struct Sweeping {
    next_batch: u32,
    /// LISTs that wait for their DELETE.
    pending_lists: BTreeMap<u32, ListedNames>,
    /// Number of removals in progress.
    removing: u32,
    /// True if everything was listed.
    is_listed: bool,
    /// True if the job requests deletion and the source had errors.
    pub(super) is_withheld: bool,
}

impl Sink {
    /// Returns true if the engine may pass on another [`super::Event::Listed`] now.
    pub fn may_list(&self) -> bool {
        self.phase == Phase::Sweeping
            && self.sweep.pending_lists.len() + (self.sweep.removing as usize) < LISTS_AHEAD
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
        self.sweep.is_withheld = asks && !may;
        if may {
            out.push(Command::Sweep);
        } else {
            self.sweep.is_listed = true;
            self.end_if_done();
        }
        Ok(())
    }

    pub(super) fn listed(&mut self, directory: Box<[u8]>, names: Vec<Box<[u8]>>) {
        if self.phase != Phase::Sweeping {
            return;
        }
        assert!(
            self.may_list() && names.len() <= NAMES_PER_LIST,
            "the engine sends at most the allowed names"
        );
        let batch = self.sweep.next_batch;
        self.sweep.next_batch += 1;
        self.sweep.pending_lists.insert(batch, (directory.clone(), names.clone()));
        self.post(CONTROL, Message::List(Box::new(List { batch, directory, names })));
    }

    pub(super) fn delete(&mut self, delete: Delete, out: &mut Vec<Command>) -> Result<(), Violation> {
        let Some((directory, names)) = self.sweep.pending_lists.remove(&delete.batch) else {
            return Err("a DELETE that was not requested");
        };
        if names.len() != delete.gone.len() {
            return Err("a DELETE of names that were not requested");
        }
        let gone = names.into_iter().zip(delete.gone).filter(|(_, gone)| *gone);
        let names: Vec<Box<[u8]>> = gone.map(|(name, _)| name).collect();
        if !names.is_empty() {
            self.sweep.removing += 1;
            out.push(Command::Remove { batch: delete.batch, directory, names });
        }
        self.end_if_done();
        Ok(())
    }

    pub(super) fn removed(&mut self, _batch: u32, deleted: u64, failed: u64) {
        self.sweep.removing = self.sweep.removing.saturating_sub(1);
        self.summary.deleted += deleted;
        self.summary.undeleted += failed;
        self.end_if_done();
    }

    pub(super) fn swept(&mut self) {
        self.sweep.is_listed = true;
        self.end_if_done();
    }

    fn end_if_done(&mut self) {
        let is_done = self.sweep.is_listed && self.sweep.pending_lists.is_empty() && self.sweep.removing == 0;
        if self.phase == Phase::Sweeping && is_done {
            self.phase = Phase::Leaving;
            self.post(
                CONTROL,
                Message::Bye(Box::new(Bye { reason: None, summary: self.summary, times: None })),
            );
        }
    }
}
