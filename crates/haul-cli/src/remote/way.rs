//! The way to the other side: lanes beside ssh, one lane inside it, or lanes to a server whose ticket we hold.

use super::args::Link;
use haul_engine::transfer::LANES_UNASKED_MIN;
use haul_net::{DialError, DialSettings, Dialer, Encryption, Lane, Pacer, Ticket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// How long one address is tried for the first lane, where ssh is left as another way.
const REACH_WITHIN: Duration = Duration::from_secs(3);

/// Time between two looks whether a first lane is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// How long a lane may carry nothing before it is given up.
pub(crate) const STALL: Duration = Duration::from_secs(60);

/// Opens the lanes of one session.
pub(crate) enum Way {
    /// To a listener.
    Outside {
        /// It knows the ticket.
        dialer: Box<Dialer>,
        /// The first lane, where it stands already.
        first: Ready,
    },
    /// Inside ssh.
    Inside(Ready),
}

/// A lane that stands, until it is given away.
type Ready = Mutex<Option<Box<Lane>>>;

/// Why a lane can't be had.
#[derive(Debug, Error)]
pub(crate) enum WayError {
    /// Dialing failed.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// More lanes than ssh carries.
    #[error("inside ssh there is one lane only")]
    OneLane,
    /// More lanes than have numbers.
    #[error("a session has no lane {0}")]
    Number(u32),
}

/// A dialer for the holder of `ticket`, who sends at `rate` over so many lanes. Each address is tried for a short time only where
/// `has_other_way`.
///
/// # Errors
/// [`DialError`]: one side was asked to encrypt and the other not to.
pub(crate) fn dialer(
    ticket: Ticket,
    link: &Link,
    (rate, lanes): (Option<u64>, Option<u32>),
    has_other_way: bool,
) -> Result<Dialer, DialError> {
    let defaults = DialSettings::default();
    let settings = DialSettings {
        encryption: if link.plain { Encryption::Plain } else { Encryption::Tls },
        socket: link.socket(),
        connect: if has_other_way { REACH_WITHIN } else { defaults.connect },
        stall: Some(STALL),
        pacer: rate.map(|rate| Arc::new(Pacer::new(rate))),
        // As many as there are at least, so that each may have its part.
        lane_rate: rate.map(|rate| rate / u64::from(lanes.unwrap_or(LANES_UNASKED_MIN).max(1))),
        ..defaults
    };
    Dialer::new(ticket, settings)
}

/// The first lane of `dialer`, which is not waited for once `stop` is true: no name, no connection, and no word of the other side.
///
/// # Errors
/// [`DialError`].
pub(crate) fn first_lane(dialer: &Dialer, stop: &AtomicBool) -> Result<Lane, DialError> {
    let (stands, awaited) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while awaited.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if stop.load(Ordering::Relaxed) {
                    return dialer.give_up();
                }
            }
        });
        let lane = dialer.lane(0);
        drop(stands);
        lane
    })
}

impl Way {
    /// Beside ssh, or to a server; the first lane may stand already.
    pub(crate) fn outside(dialer: Dialer, first: Option<Lane>) -> Way {
        Way::Outside { dialer: Box::new(dialer), first: Mutex::new(first.map(Box::new)) }
    }

    /// Inside ssh.
    pub(crate) fn inside(lane: Lane) -> Way {
        Way::Inside(Mutex::new(Some(Box::new(lane))))
    }

    /// Lane `number`, from any thread; inside ssh only the first is to be had, which is not waited for once `stop` is true.
    ///
    /// # Errors
    /// [`WayError`].
    pub(crate) fn lane(&self, number: u32, stop: &AtomicBool) -> Result<Lane, WayError> {
        match self {
            Way::Outside { dialer, first } => {
                if number == 0 {
                    return taken(first).map_or_else(|| Ok(first_lane(dialer, stop)?), Ok);
                }
                let index = u16::try_from(number).map_err(|_| WayError::Number(number))?;
                Ok(dialer.lane(index)?)
            }
            Way::Inside(lane) => taken(lane).ok_or(WayError::OneLane),
        }
    }

    /// Lanes that are being opened are not wanted any more.
    pub(crate) fn give_up(&self) {
        if let Way::Outside { dialer, .. } = self {
            dialer.give_up();
        }
    }

    /// How many of `wanted` lanes there can be.
    pub(crate) fn lanes(&self, wanted: Option<u32>) -> Option<u32> {
        match self {
            Way::Outside { .. } => wanted,
            Way::Inside(_) => Some(1),
        }
    }
}

fn taken(ready: &Ready) -> Option<Lane> {
    ready.lock().unwrap_or_else(PoisonError::into_inner).take().map(|lane| *lane)
}
