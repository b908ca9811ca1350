//! Events of the web server, for a log.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Minimum time between two events that clients can cause without signing in.
const INTERVAL: Duration = Duration::from_secs(1);

/// An event of the server. Its text contains no secret and no character that a client chose.
#[derive(Debug)]
pub enum WebEvent {
    /// A browser signed in.
    SignedIn {
        /// Number of its session.
        session: u64,
        /// Source address.
        peer: SocketAddr,
    },
    /// A session ended: the browser signed out, or it sent no request for too long.
    SignedOut {
        /// Number of the session.
        session: u64,
    },
    /// A session changed the tree.
    Changed {
        /// Number of the session.
        session: u64,
        /// Name of the root.
        root: String,
        /// Change that was made.
        what: &'static str,
    },
    /// A download of a file, or of a range of it, ended.
    Downloaded {
        /// Number of the session.
        session: u64,
        /// Name of the root.
        root: String,
        /// Number of bytes that were requested.
        length: u64,
        /// Number of these bytes that were not sent.
        left: u64,
    },
    /// A client sent a wrong code.
    WrongCode {
        /// Source address.
        peer: SocketAddr,
    },
    /// A request was refused: another host or origin, or a missing token.
    Refused {
        /// Source address.
        peer: SocketAddr,
        /// Reason for the refusal.
        why: &'static str,
    },
    /// A connection was closed because there are too many.
    TooManyConnections {
        /// Source address.
        peer: IpAddr,
    },
    /// A connection could not be accepted.
    AcceptFailed {
        /// Reason for the failure.
        why: String,
    },
    /// There is no WebTransport: browsers use HTTPS only.
    NoWebTransport {
        /// Reason for the failure.
        why: String,
    },
    /// Further events of the kinds above.
    LeftOut {
        /// Number of events.
        count: u64,
    },
    /// Another certificate is used for new connections.
    Renewed {
        /// SHA-256 of the new certificate.
        sha256: String,
    },
    /// A certificate could not be renewed or kept.
    CertificateFailed {
        /// Reason for the failure.
        why: String,
    },
}

impl WebEvent {
    /// Returns the reason if the event is a refusal.
    fn refusal(&self) -> Option<&'static str> {
        match self {
            Self::WrongCode { .. } => Some("wrong code"),
            Self::Refused { why, .. } => Some(why),
            Self::TooManyConnections { .. } => Some("too many connections"),
            _ => None,
        }
    }
}

impl fmt::Display for WebEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SignedIn { session, peer } => write!(f, "web session {session}: signed in from {peer}"),
            Self::SignedOut { session } => write!(f, "web session {session}: ended"),
            Self::Changed { session, root, what } => write!(f, "web session {session}: {what} in {root}"),
            Self::Downloaded { session, root, length, left: 0 } => {
                write!(f, "web session {session}: ended a download of {length} bytes from {root}")
            }
            Self::Downloaded { session, root, length, left } => {
                let sent = length - left;
                write!(f, "web session {session}: lost a download from {root} after {sent} of {length} bytes")
            }
            Self::WrongCode { peer } => write!(f, "web: wrong code from {peer}"),
            Self::Refused { peer, why } => write!(f, "web: refused a request from {peer}: {why}"),
            Self::TooManyConnections { peer } => {
                write!(f, "web: closed a connection from {peer}: too many connections")
            }
            Self::AcceptFailed { why } => write!(f, "web: cannot accept a connection: {why}"),
            Self::NoWebTransport { why } => {
                write!(f, "web: cannot use WebTransport: {why}; browsers use HTTPS only")
            }
            Self::LeftOut { count } => write!(f, "web: {count} more wrong codes or refused requests"),
            Self::Renewed { sha256 } => write!(f, "web: renewed the certificate; its SHA-256 is {sha256}"),
            Self::CertificateFailed { why } => write!(f, "web: {why}"),
        }
    }
}

/// Function that receives events.
pub(crate) type OnEvent = Box<dyn Fn(&WebEvent) + Send + Sync>;

/// Passes events on. Those that any client can cause are limited.
pub(crate) struct Events {
    on_event: OnEvent,
    /// Time of the last limited event, and number of events left out since then.
    limited: Mutex<(Option<Instant>, u64)>,
    /// Number of refused requests for each reason.
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

impl Events {
    pub(crate) fn new(on_event: OnEvent) -> Events {
        Events { on_event, limited: Mutex::default(), refused: Mutex::default() }
    }

    /// Passes on an event of a session or of the server.
    pub(crate) fn report(&self, event: &WebEvent) {
        (self.on_event)(event);
    }

    /// Passes on an event that any client can cause, or counts it.
    pub(crate) fn report_limited(&self, event: &WebEvent, now: Instant) {
        if let Some(reason) = event.refusal() {
            *self.refused.lock().entry(reason).or_default() += 1;
        }
        let count = {
            let mut limited = self.limited.lock();
            if limited.0.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
                limited.1 += 1;
                return;
            }
            limited.0 = Some(now);
            std::mem::take(&mut limited.1)
        };
        if count > 0 {
            self.report(&WebEvent::LeftOut { count });
        }
        self.report(event);
    }

    /// Returns the number of refused requests and connections for each reason.
    pub(crate) fn refused(&self) -> Vec<(&'static str, u64)> {
        let refused = self.refused.lock();
        refused.iter().map(|(reason, count)| (*reason, *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn events_of_strangers_are_limited_and_counted() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        let events = Events::new(Box::new(move |event| log.lock().push(event.to_string())));
        let (now, event) = (Instant::now(), WebEvent::TooManyConnections { peer: [127, 0, 0, 1].into() });
        (0..1000).for_each(|_| events.report_limited(&event, now));
        assert_eq!(heard.lock().len(), 1);
        events.report_limited(&event, now + INTERVAL);
        let heard = heard.lock();
        assert_eq!(heard.len(), 3);
        assert!(heard[1].contains("999 more"), "{heard:?}");
        assert_eq!(events.refused(), [("too many connections", 1001)]);
    }
}
