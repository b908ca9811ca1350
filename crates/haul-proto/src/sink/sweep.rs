//! The end of a session at the sink: deleting what the source does not have, and BYE.
//!
//! The sink lists its directories; the source says which names it does not have at that moment. Neither side keeps a
//! list of the files of the job.

use super::{Breach, Command, Phase, Sink};
use crate::limits::{LISTS_AHEAD, NAMES_PER_LIST};
use crate::{Bye, CONTROL, Delete, FileNumber, List, Message, WalkEnd};
use std::collections::BTreeMap;

/// Names of a directory that the source was asked about.
type Asked = (Box<[u8]>, Vec<Box<[u8]>>);

/// How far deleting is.
#[derive(Debug, Default)]
pub(super) struct Sweeping {
    next_batch: u32,
    /// LISTs that wait for their DELETE.
    asked: BTreeMap<u32, Asked>,
    /// Removals under way.
    removing: u32,
    /// Whether everything was listed.
    is_listed: bool,
    /// Whether the job asked for deleting and the source had errors.
    pub(super) is_withheld: bool,
}

impl Sink {
    /// Whether the engine may hand over another [`super::Event::Listed`] now.
    pub fn may_list(&self) -> bool {
        self.phase == Phase::Sweeping && self.sweep.asked.len() + (self.sweep.removing as usize) < LISTS_AHEAD
    }

    pub(super) fn walk_end(&mut self, end: WalkEnd, out: &mut Vec<Command>) -> Result<(), Breach> {
        if self.phase != Phase::Running {
            return Err("the walk's end came twice");
        }
        self.phase = Phase::Sweeping;
        // The source has heard of every end. A file that is open still came late by a lane that the source had given up.
        let late: Vec<FileNumber> = self.files.keys().copied().collect();
        out.extend(late.into_iter().map(|file| Command::Abandon { file }));
        self.files.clear();
        self.facts = 0;
        self.syncs.clear();
        self.summary.unread = end.unread;
        let asks = self.settings.options.delete;
        // The sink looks itself at what the source says of its errors.
        let may = asks && end.delete && end.errors == 0;
        self.sweep.is_withheld = asks && !may;
        if may {
            out.push(Command::Sweep);
        } else {
            self.sweep.is_listed = true;
            self.look_for_the_end();
        }
        Ok(())
    }

    pub(super) fn listed(&mut self, directory: Box<[u8]>, names: Vec<Box<[u8]>>) {
        if self.phase != Phase::Sweeping {
            return;
        }
        assert!(self.may_list() && names.len() <= NAMES_PER_LIST, "the engine lists what may be listed");
        let batch = self.sweep.next_batch;
        self.sweep.next_batch += 1;
        self.sweep.asked.insert(batch, (directory.clone(), names.clone()));
        self.post(CONTROL, Message::List(Box::new(List { batch, directory, names })));
    }

    pub(super) fn delete(&mut self, delete: Delete, out: &mut Vec<Command>) -> Result<(), Breach> {
        let Some((directory, names)) = self.sweep.asked.remove(&delete.batch) else {
            return Err("a DELETE that was not asked for");
        };
        if names.len() != delete.gone.len() {
            return Err("a DELETE of other names than were asked for");
        }
        let gone = names.into_iter().zip(delete.gone).filter(|(_, gone)| *gone);
        let names: Vec<Box<[u8]>> = gone.map(|(name, _)| name).collect();
        if !names.is_empty() {
            self.sweep.removing += 1;
            out.push(Command::Remove { batch: delete.batch, directory, names });
        }
        self.look_for_the_end();
        Ok(())
    }

    pub(super) fn removed(&mut self, _batch: u32, deleted: u64, failed: u64) {
        self.sweep.removing = self.sweep.removing.saturating_sub(1);
        self.summary.deleted += deleted;
        self.summary.undeleted += failed;
        self.look_for_the_end();
    }

    pub(super) fn swept(&mut self) {
        self.sweep.is_listed = true;
        self.look_for_the_end();
    }

    fn look_for_the_end(&mut self) {
        let is_done = self.sweep.is_listed && self.sweep.asked.is_empty() && self.sweep.removing == 0;
        if self.phase == Phase::Sweeping && is_done {
            self.phase = Phase::Leaving;
            self.post(
                CONTROL,
                Message::Bye(Box::new(Bye { reason: None, summary: self.summary, times: None })),
            );
        }
    }
}
