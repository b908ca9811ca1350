//! The logs of what clients send, by which it goes on when it was cut off: where they are, and what keeps them few.

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

/// The folder of the state directory that servers have for themselves: their clients' jobs are not this user's.
const FOLDER: &str = "serve";

/// Time between two looks for jobs that are too old, where they may be older than that.
const LOOK_EVERY_MOST: Duration = Duration::from_secs(3600);
const LOOK_EVERY_LEAST: Duration = Duration::from_secs(1);

/// The room for them; none where nothing can be gone on with. Without a place for them all is served all the same, unless that place was named:
/// then the error is a message.
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
            say(NAME, &format_args!("{why}; what is sent here and cut off begins anew"));
            Ok(None)
        }
    }
}

/// Whether what is sent to a share can be gone on with: not where a second session never comes.
pub(super) fn may_go_on(share: &Share) -> bool {
    share.role.may_write() && share.uses == Uses::Lasting
}

/// A state directory that no client reads or writes. The error is a message.
fn place(meant: &Meant) -> Result<PathBuf, String> {
    let state = state_of(meant.logs.state.clone()).map_err(|error| error.to_string())?;
    // What is not there yet will be made beneath what is.
    let whole = state.ancestors().find_map(|above| above.canonicalize().ok()).unwrap_or_default();
    let is_in =
        |share: &&Share| Path::new(&share.root).canonicalize().is_ok_and(|root| whole.starts_with(root));
    match meant.shares.iter().find(is_in) {
        Some(share) => Err(format!(
            "the state directory {} lies in {}, which is open to clients; name one outside by --state-dir",
            quote(state.as_os_str()),
            share.name
        )),
        None => Ok(state),
    }
}

/// How often it is looked for jobs that are older than `age`.
pub(super) fn look_every(age: Duration) -> Duration {
    age.clamp(LOOK_EVERY_LEAST, LOOK_EVERY_MOST)
}

/// Forgets the jobs that nobody went on with for too long.
pub(super) fn clear(room: &Room, quiet: bool) {
    match room.expired().and_then(|jobs| forget_all(room, &jobs)) {
        Ok(jobs) if jobs > 0 && !quiet => {
            say(NAME, &format_args!("jobs that nobody went on with are forgotten: {jobs}"));
        }
        Ok(_) => {}
        Err(error) => say(NAME, &error),
    }
}

/// Forgets the jobs of guests who do not come again.
pub(super) fn part(room: &Room, guest: &[u8]) {
    if let Err(error) = forget_all(room, &room.jobs_of(guest)) {
        say(NAME, &error);
    }
}

/// How many of them are gone: not those that somebody is at.
fn forget_all(room: &Room, jobs: &[Identity]) -> Result<usize, LogError> {
    let mut gone = 0;
    for job in jobs {
        gone += usize::from(forget(room, *job)?);
    }
    room.recount().map(|()| gone)
}
