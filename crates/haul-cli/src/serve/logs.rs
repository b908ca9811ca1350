//! Logs of received data, for the resume of interrupted jobs: location and limits.

use super::NAME;
use super::meant::{Meant, Share};
use crate::console::say;
use crate::jobs::keeping::state_of;
use haul_engine::copy::quote;
use haul_engine::log::{LogError, Room};
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
const LOOK_EVERY_MOST: Duration = Duration::from_secs(3600);
const LOOK_EVERY_LEAST: Duration = Duration::from_secs(1);

/// Opens the log store; `None` if no job is resumable. Without a usable state directory the server
/// runs without logs. The exception is a directory that the user named: then the error is a
/// message.
pub(super) fn open(meant: &Meant) -> Result<Option<Arc<Room>>, String> {
    if meant.logs.limits.jobs == 0 || !meant.shares.iter().any(may_go_on) {
        return Ok(None);
    }
    let opened = place(meant).and_then(|state| {
        let room = Room::open(state.join(FOLDER), meant.logs.limits, forget);
        room.map_err(|error| error.to_string())
    });
    match opened {
        Ok(room) => Ok(Some(Arc::new(room))),
        Err(why) if meant.logs.state.is_some() => Err(why),
        Err(why) => {
            say(NAME, &format_args!("{why}; interrupted uploads will restart from the beginning"));
            Ok(None)
        }
    }
}

/// Returns true if jobs of a share are resumable. A ticket for one session allows no second one.
pub(super) fn may_go_on(share: &Share) -> bool {
    share.role.may_write() && share.uses == Uses::Lasting
}

/// Returns a state directory that no client reads or writes. The error is a message.
fn place(meant: &Meant) -> Result<PathBuf, String> {
    let state = state_of(meant.logs.state.clone()).map_err(|error| error.to_string())?;
    // A missing directory will be created below an existing one.
    let whole = state.ancestors().find_map(|above| above.canonicalize().ok()).unwrap_or_default();
    let is_in =
        |share: &&Share| Path::new(&share.root).canonicalize().is_ok_and(|root| whole.starts_with(root));
    match meant.shares.iter().find(is_in) {
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
    age.clamp(LOOK_EVERY_LEAST, LOOK_EVERY_MOST)
}

/// Deletes jobs that were idle for too long.
pub(super) fn clear(room: &Room, quiet: bool) {
    match room.expired().and_then(|jobs| forget_all(room, &jobs)) {
        Ok(jobs) if jobs > 0 && !quiet => {
            say(NAME, &format_args!("deleted expired jobs: {jobs}"));
        }
        Ok(_) => {}
        Err(error) => say(NAME, &error),
    }
}

/// Deletes the jobs of a client that cannot return.
pub(super) fn part(room: &Room, guest: &[u8]) {
    if let Err(error) = forget_all(room, &room.jobs_of(guest)) {
        say(NAME, &error);
    }
}

/// Deletes jobs except those with an active session. Returns the number of deleted jobs.
fn forget_all(room: &Room, jobs: &[Identity]) -> Result<usize, LogError> {
    let mut gone = 0;
    for job in jobs {
        gone += usize::from(forget(room, *job)?);
    }
    room.recount().map(|()| gone)
}
