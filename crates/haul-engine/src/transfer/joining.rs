//! Additional lanes on the side that answers. A separate thread receives the JOIN of each lane, so
//! a slow or silent peer delays neither the session nor later lanes.

use super::Joined;
use haul_net::{Kind, Lane, LaneControl};
use haul_proto::{CONTROL, Message, SESSION_TOKEN_BYTES};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time for a lane to send its JOIN, regardless of received data.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Conditions for a lane to join the session.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) token: [u8; SESSION_TOKEN_BYTES],
    /// Maximum number of lanes, including the first. Also the maximum number of lanes that may wait
    /// for their JOIN.
    pub(super) lanes: u32,
    /// True if lanes over UDP may join: the session has descriptors for their sockets.
    pub(super) has_udp: bool,
}

/// Runs the work of a session, which requests additional lanes and gets those of `more` that have
/// joined. Lanes that have not joined when the work is done are aborted.
pub(super) fn beside<T>(
    more: &mut dyn FnMut() -> Option<Box<dyn Lane>>,
    terms: Terms,
    work: impl FnOnce(&mut dyn FnMut() -> Option<Joined>) -> T,
) -> T {
    let (give, take) = channel();
    // Lanes that have not sent their JOIN, by a running number.
    let silent: Mutex<HashMap<u64, Arc<dyn LaneControl>>> = Mutex::default();
    let silent = &silent;
    let mut turn = 0_u64;
    thread::scope(|scope| {
        let done = work(&mut || {
            while let Some(lane) = more() {
                turn += 1;
                let number = turn;
                {
                    let mut silent = silent.lock();
                    if silent.len() >= terms.lanes as usize {
                        // Drop the lane: the session cannot use any more.
                        continue;
                    }
                    silent.insert(number, lane.control());
                }
                let give = give.clone();
                let hear = move || {
                    let joined = join(lane, &terms);
                    silent.lock().remove(&number);
                    if let Some(joined) = joined {
                        // Ignore an error: if the work is done, the lane ends here.
                        let _ = give.send(joined);
                    }
                };
                if thread::Builder::new().spawn_scoped(scope, hear).is_err() {
                    // The lane was dropped with its thread. The session uses the lanes that it has.
                    silent.lock().remove(&number);
                }
            }
            take.try_recv().ok()
        });
        silent.lock().values().for_each(|lane| lane.abort());
        done
    })
}

/// Returns the lane if its first message is a JOIN of this session. Otherwise drops it.
fn join(lane: Box<dyn Lane>, terms: &Terms) -> Option<Joined> {
    let mut joined = Joined::new(CONTROL, lane);
    if matches!(joined.control.kind(), Kind::Udp | Kind::Quic) && !terms.has_udp {
        return None;
    }
    joined.frames.set_deadline(Instant::now() + JOIN_TIMEOUT);
    let message = joined.frames.next().ok()??;
    joined.frames.set_stall(None);
    let Message::Join(join) = message else { return None };
    let is_ours = aws_lc_rs::constant_time::verify_slices_are_equal(&join.token, &terms.token).is_ok();
    joined.id = join.lane;
    (is_ours && join.lane != CONTROL && join.lane.0 < terms.lanes).then_some(joined)
}
