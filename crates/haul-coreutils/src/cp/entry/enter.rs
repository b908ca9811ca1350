//! Opening of both ends of a directory.

use crate::cp::descriptors::{Opened, SourceEnd, open_sink, open_source};
use crate::cp::directory::{DirectoryFacts, NewDirectory};
use crate::cp::job::Job;
use haul_engine::copy::CopyError;
use haul_sys::dir::DirReader;
use std::io;
use std::os::fd::OwnedFd;

/// A directory and the reader of its source.
pub(crate) type Reading = (Opened, DirReader<SourceEnd>);

impl Job<'_> {
    /// Opens a directory at both ends. If that fails, or if the directory is not to be entered,
    /// settles it immediately.
    pub(crate) fn enter(&self, new: NewDirectory) -> Option<Reading> {
        let parent = match self.descriptors.open(&new.parent) {
            Ok(parent) => parent,
            Err(error) => {
                self.fail(&error);
                self.tally().handled();
                self.leave(&new.parent);
                return None;
            }
        };
        if !new.is_entered {
            return self.leave_unread(&parent, &new);
        }
        let mut facts = new.facts;
        let ends = open_source(&parent, &new.source_name, &facts)
            .and_then(|source| Ok((source, open_new_sink(&parent, &mut facts)?)));
        match ends {
            Ok(ends) => {
                let directory = self.descriptors.enter(new.parent, ends, new.source_name, facts);
                let reader = DirReader::new(directory.source_end());
                Some((directory, reader))
            }
            Err(error) => {
                self.fail(&error);
                if matches!(error, CopyError::Refused(_)) {
                    // An object at the sink that was refused is not changed by this job.
                    self.tally().handled();
                    self.leave(&parent);
                    return None;
                }
                self.leave_unread(&parent, &NewDirectory { facts, ..new })
            }
        }
    }

    fn leave_unread(&self, parent: &Opened, new: &NewDirectory) -> Option<Reading> {
        self.tally().handled();
        self.settle_unread(parent, &new.source_name, &new.facts);
        self.leave(parent);
        None
    }
}

/// Like [`open_sink`], for the first time. Sets `set_by_name` if this user may create names in the
/// sink but not read it.
fn open_new_sink(above: &Opened, facts: &mut DirectoryFacts) -> Result<OwnedFd, CopyError> {
    match open_sink(above, facts) {
        Err(CopyError::Cannot { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            facts.set_by_name = true;
            open_sink(above, facts)
        }
        opened => opened,
    }
}
