//! Opening of both ends of a directory.

use crate::cp::directory::{Directory, DirectoryFacts, NewDirectory};
use crate::cp::job::Job;
use crate::location::Location;
use haul_engine::copy::{CopyError, Refusal};
use haul_storage::{Dir, Follow, Listing, Stat};
use std::ffi::OsString;
use std::sync::Arc;

/// A directory and the list of its source.
pub(crate) type Reading = (Arc<Directory>, Box<dyn Listing>);

impl Job<'_> {
    /// Opens a directory at both ends. If that fails, or if the directory is not to be entered,
    /// settles it immediately.
    pub(crate) fn enter(&self, new: NewDirectory) -> Option<Reading> {
        let _held = match new.parent.reach() {
            Ok(held) => held,
            Err(error) => {
                self.fail(&error);
                self.tally().handled();
                self.leave(&new.parent);
                return None;
            }
        };
        if !new.is_entered {
            return self.leave_unread(&new);
        }
        match self.open_ends(&new) {
            Ok(OpenEnds { source, listing, sink }) => Some((Directory::copied(new, source, sink), listing)),
            Err(error) => {
                self.fail(&error);
                if matches!(error, CopyError::Refused(_)) {
                    // An object at the sink that was refused is not changed by this job.
                    self.tally().handled();
                    self.leave(&new.parent);
                    return None;
                }
                self.leave_unread(&new)
            }
        }
    }

    /// Opens both ends, and starts to list the source.
    fn open_ends(&self, new: &NewDirectory) -> Result<OpenEnds, CopyError> {
        let path = || new.parent.source_path_of(&new.source_name);
        let found = Found { stat: &new.facts.source, follow: new.facts.follow, path: &path };
        let source = self.open_found(&new.parent.source_at(&new.source_name), &found)?;
        let unlisted = |source| CopyError::Cannot { action: "access", path: path(), source };
        let listing = source.list().map_err(unlisted)?;
        let sink = self.open_sink(&new.parent, &new.facts)?;
        Ok(OpenEnds { source, listing, sink })
    }

    /// Opens the sink of a directory, if it is still the directory that was created or found.
    ///
    /// # Errors
    /// Returns an error if the sink cannot be opened or was replaced. The caller must not write
    /// there.
    pub(crate) fn open_sink(
        &self,
        parent: &Directory,
        facts: &DirectoryFacts,
    ) -> Result<Arc<dyn Dir>, CopyError> {
        let path = || parent.sink_path_of(&facts.sink_name);
        let found = Found { stat: &facts.sink, follow: facts.follows_sink, path: &path };
        self.open_found(&parent.sink_at(&facts.sink_name), &found)
    }

    fn open_found(&self, location: &Location<'_>, found: &Found<'_>) -> Result<Arc<dyn Dir>, CopyError> {
        let failed = |source| CopyError::Cannot { action: "access", path: (found.path)(), source };
        let dir = location.dir(found.follow, &self.opened).map_err(failed)?;
        match dir.is_same(found.stat).map_err(failed)? {
            true => Ok(dir),
            false => Err(Refusal::Replaced((found.path)()).into()),
        }
    }

    fn leave_unread(&self, new: &NewDirectory) -> Option<Reading> {
        self.tally().handled();
        self.settle_unread(&new.parent, &new.source_name, &new.facts);
        self.leave(&new.parent);
        None
    }
}

/// Both ends of a directory.
struct OpenEnds {
    source: Arc<dyn Dir>,
    /// List of the source.
    listing: Box<dyn Listing>,
    sink: Arc<dyn Dir>,
}

/// A directory as it was found.
struct Found<'a> {
    stat: &'a Stat,
    follow: Follow,
    /// Returns the path for messages.
    path: &'a dyn Fn() -> OsString,
}
