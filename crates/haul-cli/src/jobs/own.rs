//! The job of this process, where it is one that is listed only once it has run for a while.

use super::keeping::StateArgs;
use crate::console::say;
use haul_engine::log::Listing;
use haul_engine::sum::Counters;
use haul_engine::verify::StateFile;
use haul_log::record::{Progress, Status};
use std::sync::Arc;

/// This process's job.
#[derive(Debug)]
pub(crate) struct OwnJob {
    /// Whose messages they are.
    name: &'static str,
    /// `None` where no place for jobs is known: then it is not listed.
    listing: Option<Arc<Listing>>,
}

impl OwnJob {
    /// The job of the command as it was typed, which is about to begin.
    pub(crate) fn open(name: &'static str, kind: &'static str, place: &StateArgs) -> OwnJob {
        let words = std::env::args_os().skip(1).collect();
        let open = |state: std::path::PathBuf| Arc::new(Listing::open(&state, kind, words));
        OwnJob { name, listing: place.resolve().ok().map(open) }
    }

    /// A job that is never listed.
    pub(crate) fn never(name: &'static str) -> OwnJob {
        OwnJob { name, listing: None }
    }

    /// Where it keeps how far it came.
    pub(crate) fn state_file(&self) -> Option<StateFile> {
        self.listing.clone().map(StateFile::OfJob)
    }

    /// Where it is listed.
    pub(crate) fn listing(&self) -> Option<&Arc<Listing>> {
        self.listing.as_ref()
    }

    /// Whether it is listed, or was when it ended.
    pub(crate) fn is_kept(&self) -> bool {
        self.listing.as_ref().is_some_and(|listing| listing.was_listed())
    }

    /// Returns true if it would have been listed had it run for longer: a later run of the command starts from the beginning.
    pub(crate) fn is_short(&self) -> bool {
        self.listing.as_ref().is_some_and(|listing| listing.is_short())
    }

    /// Runs the job, and writes down meanwhile how far it came; `tick` is called each time.
    pub(crate) fn during<T>(
        &self,
        counters: &Counters,
        tick: impl Fn() + Sync,
        job: impl FnOnce() -> T,
    ) -> T {
        match &self.listing {
            Some(listing) => listing.during(|| progress(counters), tick, job),
            None => job(),
        }
    }

    /// The job ended, with this exit status; or it was stopped before it came to its end.
    pub(crate) fn end(&self, exit: u8, was_stopped: bool, counters: &Counters) {
        let Some(listing) = &self.listing else { return };
        if let Some(why) = listing.take_trouble() {
            say(self.name, &format_args!("this run is not listed and can't be gone on with: {why}"));
        }
        let status = match (was_stopped, exit) {
            (true, _) => Status::Stopped,
            (false, 0) => Status::Finished,
            (false, _) => Status::Failed,
        };
        if let Err(error) = listing.end(status, exit, progress(counters)) {
            say(self.name, &error);
        }
    }
}

fn progress(counters: &Counters) -> Progress {
    let ((files_done, bytes_done), (files_found, bytes_found)) = (counters.through(), counters.known());
    Progress { files_done, files_found, bytes_done, bytes_found }
}
