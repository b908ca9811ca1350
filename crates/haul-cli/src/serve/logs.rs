//! Logs of received data, for the resume of interrupted jobs: location and limits.

use super::NAME;
use super::resolved::{ResolvedArgs, Share};
use crate::console::say;
use crate::jobs::log_args::state_of;
use haul_engine::copy::quote;
use haul_engine::log::{LogError, LogStore, state_dir};
use haul_engine::transfer::forget;
use haul_log::objects::Identity;
use haul_net::Uses;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Directory of servers within the state directory. It keeps the jobs of clients apart from the
/// jobs of this user.
const FOLDER: &str = "serve";

/// Limits of the polling interval for expired jobs.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(3600);
const POLL_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Opens the log store; `None` if no job is resumable. Without a usable state directory the server
/// runs without logs. The exception is a directory that the user named: then the error is a
/// message.
pub(super) fn open(resolved: &ResolvedArgs) -> Result<Option<Arc<LogStore>>, String> {
    if resolved.logs.limits.jobs == 0 || !resolved.shares.iter().any(is_resumable) {
        return Ok(None);
    }
    let opened = place(resolved).and_then(|state| {
        let log_store = LogStore::open(state.join(FOLDER), resolved.logs.limits, forget);
        log_store.map_err(|error| error.to_string())
    });
    match opened {
        Ok(log_store) => Ok(Some(Arc::new(log_store))),
        Err(why) if resolved.logs.state.is_some() => Err(why),
        Err(why) => {
            say(NAME, &format_args!("{why}; interrupted uploads will restart from the beginning"));
            Ok(None)
        }
    }
}

/// Returns true if jobs of a share are resumable. A ticket for one session allows no second one.
pub(super) fn is_resumable(share: &Share) -> bool {
    share.role.may_write() && share.uses == Uses::Lasting
}

/// Returns a state directory that no client reads or writes. The error is a message.
pub(super) fn place(resolved: &ResolvedArgs) -> Result<PathBuf, String> {
    let of_user = || match &resolved.user {
        // The variable HOME is still that of root.
        Some(user) => state_dir(None, std::env::var_os("XDG_STATE_HOME").as_deref(), Some(user.home())),
        None => state_of(None),
    };
    let asked = resolved.logs.state.clone();
    let state =
        asked.map_or_else(of_user, |asked| state_of(Some(asked))).map_err(|error| error.to_string())?;
    // A missing directory will be created below an existing one.
    let whole = state.ancestors().find_map(|above| above.canonicalize().ok()).unwrap_or_default();
    let is_in =
        |share: &&Share| Path::new(&share.root).canonicalize().is_ok_and(|root| whole.starts_with(root));
    match resolved.shares.iter().find(is_in) {
        Some(share) => Err(format!(
            "cannot keep logs in {}: it is inside {}, which is open to clients; use --state-dir with a directory outside",
            quote(state.as_os_str()),
            share.name
        )),
        None => Ok(state),
    }
}

/// Returns the polling interval for jobs older than `age`.
pub(super) fn look_every(age: Duration) -> Duration {
    age.clamp(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX)
}

/// Deletes jobs that were idle for too long.
pub(super) fn clear(log_store: &LogStore, quiet: bool) {
    match log_store.expired().and_then(|jobs| forget_all(log_store, &jobs)) {
        Ok(jobs) if jobs > 0 && !quiet => {
            say(NAME, &format_args!("deleted expired jobs: {jobs}"));
        }
        Ok(_) => {}
        Err(error) => say(NAME, &error),
    }
}

/// Deletes the jobs of a client that cannot return.
pub(super) fn part(log_store: &LogStore, client: &[u8]) {
    if let Err(error) = forget_all(log_store, &log_store.jobs_of(client)) {
        say(NAME, &error);
    }
}

/// Deletes jobs except those with an active session. Returns the number of deleted jobs.
fn forget_all(log_store: &LogStore, jobs: &[Identity]) -> Result<usize, LogError> {
    let mut gone = 0;
    for job in jobs {
        gone += usize::from(forget(log_store.state(), *job)?);
    }
    log_store.recount().map(|()| gone)
}
