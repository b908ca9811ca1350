//! Connection to the peer: lanes outside ssh, one lane inside ssh, or lanes to a server with a
//! ticket.

use super::args::ConnectionSettings;
use super::transport::held;
use haul_engine::transfer::{BoxError, DEFAULT_LANES_MIN, Dial};
use haul_net::{
    DialError, DialSettings, Dialer, Encryption, Lane, Pacer, SocketSettings, StreamLane, Ticket, UdpSettings,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// Timeout per address for the first lane, if ssh can carry the data instead.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Polling interval of the stop flag while the first lane opens.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Stall timeout of a lane: time without any data.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens the lanes of one session.
pub(crate) enum Connector {
    /// Lanes to a listener.
    Outside {
        /// Dialer that has the ticket.
        dialer: Box<Dialer>,
        /// The first lane, if it is open already.
        first: PendingLane,
    },
    /// One lane inside ssh.
    Inside(PendingLane),
}

/// An open lane until it is taken.
type PendingLane = Mutex<Option<Box<StreamLane>>>;

/// Error of opening a lane.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    /// Dialing failed.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// More lanes than one inside ssh.
    #[error("only one connection is possible through ssh")]
    OneLane,
    /// The lane number is out of range.
    #[error("lane number {0} is out of range")]
    Number(u32),
}

/// Creates a dialer for `ticket` that sends at `rate` over `lanes` lanes. If `has_other_way`, the
/// timeout per address is short.
///
/// # Errors
/// Returns [`DialError`] if one side was asked to encrypt and the other not to.
pub(crate) fn dialer(
    ticket: Ticket,
    link: &ConnectionSettings,
    rate: Option<u64>,
    lanes: Option<u32>,
    has_other_way: bool,
) -> Result<Dialer, DialError> {
    let defaults = DialSettings::default();
    let settings = DialSettings {
        encryption: if link.plain { Encryption::Plain } else { Encryption::Tls },
        // The kernel smooths the bursts that the pacer of all lanes permits.
        socket: SocketSettings { pace: rate, ..link.socket() },
        connect: if has_other_way { CONNECT_TIMEOUT } else { defaults.connect },
        stall: Some(STALL_TIMEOUT),
        pacer: rate.map(|rate| Arc::new(Pacer::new(rate))),
        udp: link.udp.clone().map(|udp| UdpSettings { rate: held(rate, lanes.unwrap_or(1)), ..udp }),
        // The minimum number of lanes, so that each lane can have its share.
        lane_rate: rate.map(|rate| rate / u64::from(lanes.unwrap_or(DEFAULT_LANES_MIN).max(1))),
        ..defaults
    };
    Dialer::new(ticket, settings)
}

/// Opens the first lane of `dialer`. Setting `stop` cancels name resolution, `connect` and the
/// handshake.
///
/// # Errors
/// Returns [`DialError`] if the lane cannot be opened.
pub(crate) fn first_lane(dialer: &Dialer, stop: &AtomicBool) -> Result<StreamLane, DialError> {
    let (stands, awaited) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while awaited.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
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

impl Connector {
    /// Returns the connector for lanes outside ssh or to a server; the first lane may be open
    /// already.
    pub(crate) fn outside(dialer: Dialer, first: Option<StreamLane>) -> Connector {
        Connector::Outside { dialer: Box::new(dialer), first: Mutex::new(first.map(Box::new)) }
    }

    /// Returns the connector for the lane inside ssh.
    pub(crate) fn inside(lane: StreamLane) -> Connector {
        Connector::Inside(Mutex::new(Some(Box::new(lane))))
    }

    /// Opens lane `number`, from any thread. Inside ssh only the first lane exists. Setting `stop`
    /// cancels the wait for the first lane.
    ///
    /// # Errors
    /// Returns [`ConnectError`] if the lane cannot be opened.
    pub(crate) fn lane(&self, number: u32, stop: &AtomicBool) -> Result<StreamLane, ConnectError> {
        match self {
            Connector::Outside { dialer, first } => {
                if number == 0 {
                    return taken(first).map_or_else(|| Ok(first_lane(dialer, stop)?), Ok);
                }
                let index = u16::try_from(number).map_err(|_| ConnectError::Number(number))?;
                Ok(dialer.lane(index)?)
            }
            Connector::Inside(lane) => taken(lane).ok_or(ConnectError::OneLane),
        }
    }

    /// Cancels lanes that are being opened.
    pub(crate) fn give_up(&self) {
        if let Connector::Outside { dialer, .. } = self {
            dialer.give_up();
        }
    }

    /// Returns the possible number of lanes, of `wanted`.
    pub(crate) fn lanes(&self, wanted: Option<u32>) -> Option<u32> {
        match self {
            Connector::Outside { .. } => wanted,
            Connector::Inside(_) => Some(1),
        }
    }
}

/// Opens the lanes to a host until `stop` is set.
pub(crate) struct StoppableDialer<'a> {
    pub(crate) way: &'a Connector,
    pub(crate) stop: &'a AtomicBool,
}

impl Dial for StoppableDialer<'_> {
    fn lane(&self, number: u32) -> Result<Box<dyn Lane>, BoxError> {
        Ok(self.way.lane(number, self.stop)?.into())
    }

    fn give_up(&self) {
        self.way.give_up();
    }
}

fn taken(ready: &PendingLane) -> Option<StreamLane> {
    ready.lock().take().map(|lane| *lane)
}
