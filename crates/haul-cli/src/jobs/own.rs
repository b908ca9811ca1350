//! The job of this process, for commands whose jobs are listed only after they have run for a
//! while.

use super::log_args::StateArgs;
use crate::console::say;
use haul_engine::log::DeferredRecord;
use haul_engine::sum::Counters;
use haul_engine::verify::StateFile;
use haul_log::record::{Progress, Status};
use std::sync::Arc;

/// The job of this process.
#[derive(Debug)]
pub(crate) struct OwnJob {
    /// Name that signs the messages.
    name: &'static str,
    /// `None` if no state directory is known; the job is then not listed.
    deferred_record: Option<Arc<DeferredRecord>>,
}

impl OwnJob {
    /// Returns the job of the command line of this process, before it starts.
    pub(crate) fn open(name: &'static str, kind: &'static str, place: &StateArgs) -> OwnJob {
        let words = std::env::args_os().skip(1).collect();
        let open = |state: std::path::PathBuf| Arc::new(DeferredRecord::open(&state, kind, words));
        OwnJob { name, deferred_record: place.resolve().ok().map(open) }
    }

    /// Returns a job that is never listed.
    pub(crate) fn never(name: &'static str) -> OwnJob {
        OwnJob { name, deferred_record: None }
    }

    /// Returns the location of the saved progress.
    pub(crate) fn state_file(&self) -> Option<StateFile> {
        self.deferred_record.clone().map(StateFile::OfJob)
    }

    /// Returns the deferred record of the job.
    pub(crate) fn deferred_record(&self) -> Option<&Arc<DeferredRecord>> {
        self.deferred_record.as_ref()
    }

    /// Returns true if the job is listed, or was when it ended.
    pub(crate) fn is_kept(&self) -> bool {
        self.deferred_record.as_ref().is_some_and(|deferred_record| deferred_record.was_registered())
    }

    /// Returns true if only the short run time kept the job off the list. A later run of the
    /// command then starts from the beginning.
    pub(crate) fn is_short(&self) -> bool {
        self.deferred_record.as_ref().is_some_and(|deferred_record| deferred_record.is_short())
    }

    /// Runs the job and records its progress meanwhile; calls `tick` each time.
    pub(crate) fn during<T>(
        &self,
        counters: &Counters,
        tick: impl Fn() + Sync,
        job: impl FnOnce() -> T,
    ) -> T {
        match &self.deferred_record {
            Some(deferred_record) => deferred_record.during(|| progress(counters), tick, job),
            None => job(),
        }
    }

    /// Records that the job ended with this exit status, or that it was stopped before it finished.
    pub(crate) fn end(&self, exit: u8, was_stopped: bool, counters: &Counters) {
        let Some(deferred_record) = &self.deferred_record else { return };
        if let Some(why) = deferred_record.take_error() {
            say(self.name, &format_args!("this run is not listed and cannot be resumed: {why}"));
        }
        let status = match (was_stopped, exit) {
            (true, _) => Status::Stopped,
            (false, 0) => Status::Finished,
            (false, _) => Status::Failed,
        };
        if let Err(error) = deferred_record.end(status, exit, progress(counters)) {
            say(self.name, &error);
        }
    }
}

fn progress(counters: &Counters) -> Progress {
    let ((files_done, bytes_done), (files_found, bytes_found)) = (counters.through(), counters.known());
    Progress { files_done, files_found, bytes_done, bytes_found, is_counting: !counters.has_totals() }
}
