//! Sandboxes of sessions: the paths that a session opens by name.
//!
//! Outside its sandbox a session looks up users, opens its waybill, evicts the log of another job
//! and reads figures from /proc.

use super::{Dial, FetchJob, Logs, Offer, Outcome, RunContext, TransferError, hello};
use crate::log;
use haul_proto::Keep;
use haul_sys::sandbox::Sandbox;
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

impl Offer {
    /// Returns the sandbox of a session with this offer. Creates the directory of the logs.
    ///
    /// Without [`Offer::may_write`] the root can only be read.
    pub fn sandbox(&self) -> Sandbox {
        let own = Sandbox::new()
            .specials(self.policy.specials)
            // A source reads the attributes that only an administrator sees.
            .system_xattrs(self.may_read || self.policy.system_xattrs || self.keep.has(Keep::SETUID));
        if !self.may_write {
            return own.readable(&self.root);
        }
        let own = own.writable(&self.root);
        match &self.logs {
            Logs::None => own,
            Logs::Own { state, .. } => with_state(own, state),
            Logs::Guest { log_store, .. } => with_state(own, log_store.state()),
        }
    }
}

impl FetchJob {
    /// Returns the sandbox of a fetch, which may read everything. The destination directory must
    /// exist, except in a dry run. Creates the state directory.
    pub fn sandbox(&self) -> Sandbox {
        let own = Sandbox::new().reads_all().specials(self.policy.specials);
        let own = if self.options.dry_run { own } else { own.writable(&self.into) };
        match &self.resume {
            Some(resume) => with_state(own, &resume.state),
            None => own,
        }
    }
}

/// Adds a state directory, which is created if it is missing.
fn with_state(sandbox: Sandbox, state: &Path) -> Sandbox {
    // If this fails, the session reports that it has no log.
    let _ = log::create_directory(state);
    if state.is_dir() { sandbox.writable(state) } else { sandbox }
}

/// Fetches files in the sandbox of the job: a hostile peer cannot make this side write outside the
/// destination. Runs the fetch on a thread of its own, so that the calling thread keeps its rights.
///
/// # Errors
/// Same as [`fetch`], and an error if the kernel refuses the sandbox. A kernel without Landlock
/// causes no error.
pub fn fetch_confined(
    dial: &dyn Dial,
    job: &FetchJob,
    run_context: &RunContext<'_>,
) -> Result<Outcome, TransferError> {
    let failed =
        |doing| move |source| TransferError::Local { doing, path: job.into.as_bytes().to_vec(), source };
    if !job.options.dry_run {
        hello::create_if_missing(job).map_err(failed("create"))?;
    }
    let confined = || {
        job.sandbox().enter().map_err(failed("confine the fetch to"))?;
        hello::fetch(dial, job, run_context)
    };
    thread::scope(|scope| {
        let started = thread::Builder::new().name("haul-session".into()).spawn_scoped(scope, confined);
        let ended = started.map_err(failed("start a thread for"))?.join();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    })
}
