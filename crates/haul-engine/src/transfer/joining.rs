//! Further lanes on the side that answers. Each says its JOIN to a thread of its own: who is slow to say it, or never does, holds up
//! neither the session nor the lanes that come after.

use super::Joined;
use haul_net::{Lane, LaneControl};
use haul_proto::{CONTROL, Message, SESSION_TOKEN_BYTES};
use std::collections::HashMap;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a lane has for its JOIN in all, whatever comes of it meanwhile.
const JOIN_WITHIN: Duration = Duration::from_secs(30);

/// What the lanes of a session show.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) token: [u8; SESSION_TOKEN_BYTES],
    /// Lanes at most, the first one counted. No more than that are listened to at once, either.
    pub(super) lanes: u32,
}

/// Does the work of a session, which asks for further lanes and gets those of `more` that have joined. Those that have not
/// when the work is done are given up.
pub(super) fn beside<T>(
    more: &mut dyn FnMut() -> Option<Lane>,
    terms: Terms,
    work: impl FnOnce(&mut dyn FnMut() -> Option<Joined>) -> T,
) -> T {
    let (give, take) = channel();
    // Lanes that have not said it yet, by their turn.
    let silent: Mutex<HashMap<u64, LaneControl>> = Mutex::default();
    let silent = &silent;
    let mut turn = 0_u64;
    thread::scope(|scope| {
        let done = work(&mut || {
            while let Some(lane) = more() {
                turn += 1;
                let number = turn;
                {
                    let mut silent = silent.lock().unwrap_or_else(PoisonError::into_inner);
                    if silent.len() >= terms.lanes as usize {
                        // It is dropped: so many lanes the session can't have.
                        continue;
                    }
                    silent.insert(number, lane.control());
                }
                let give = give.clone();
                let hear = move || {
                    let joined = join(lane, &terms);
                    silent.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                    if let Some(joined) = joined {
                        // Where the work is over by now, the lane ends here.
                        let _ = give.send(joined);
                    }
                };
                if thread::Builder::new().spawn_scoped(scope, hear).is_err() {
                    // The lane went with its thread; the session does with those that it has.
                    silent.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                }
            }
            take.try_recv().ok()
        });
        silent.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(LaneControl::abort);
        done
    })
}

/// A further lane, if its first message is a JOIN of this session; another one is dropped.
fn join(lane: Lane, terms: &Terms) -> Option<Joined> {
    let mut joined = Joined::new(CONTROL, lane);
    joined.frames.until(Instant::now() + JOIN_WITHIN);
    let message = joined.frames.next().ok()??;
    joined.frames.within(None);
    let Message::Join(join) = message else { return None };
    let is_ours = aws_lc_rs::constant_time::verify_slices_are_equal(&join.token, &terms.token).is_ok();
    joined.id = join.lane;
    (is_ours && join.lane != CONTROL && join.lane.0 < terms.lanes).then_some(joined)
}
