//! Admission of one unauthenticated connection, up to its lane or its refusal.

use super::admission::{Admission, AdmissionSlot};
use super::registry::{Admitted, LaneSlot, Refusal, SessionRegistry};
use super::{AdmissionLimit, ListenSettings, ListenerEvent};
use crate::Encryption;
use crate::hello::{BadHello, GreetingError, HELLO_BYTES, Hello, Verdict, encode_answer, exchange_nonces};
use crate::lane::{Kind, LaneError, SocketWire, StreamLane, WaitTimeout};
use crate::secret::Binding;
use crate::socket::accepted_facts;
use crate::tls;
use crate::udp;
use haul_udp::Rate;
use rustls::{ServerConfig, ServerConnection};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Limits in time and bytes for reading from a refused peer, so that the peer receives the refusal.
/// Closing a socket with unread bytes resets the connection, which can discard the last bytes sent.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 << 10;

/// State that is needed to accept any connection.
pub(super) struct Acceptor {
    pub(super) registry: Arc<SessionRegistry>,
    pub(super) admission: Arc<Admission>,
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) settings: ListenSettings,
    pub(super) on_event: Box<dyn Fn(&ListenerEvent) + Send + Sync>,
}

/// Reason for not admitting a connection.
#[derive(Debug, thiserror::Error)]
enum Rejection {
    #[error("{0}")]
    Lane(#[from] LaneError),
    #[error("{0}")]
    Greeting(#[from] GreetingError),
    #[error("invalid hello: {0}")]
    Hello(BadHello),
    #[error("ended in favour of another network, because all slots are in use")]
    Shed,
    #[error("TLS without the protocol of haul")]
    NotHaul,
    #[error("{0}")]
    Refused(Verdict),
}

impl Acceptor {
    /// Handles one unauthenticated connection: it becomes a lane of a session, or an event with the
    /// reason.
    pub(super) fn receive(&self, stream: TcpStream, peer: SocketAddr, slot: AdmissionSlot) {
        let deadline = Instant::now() + self.settings.limits.handshake;
        let event = match self.admit(stream, peer, &slot, deadline) {
            Ok(()) => return,
            Err(_) if slot.was_shed() => ListenerEvent::Failed { peer, why: Rejection::Shed.to_string() },
            Err(Rejection::Refused(verdict)) => ListenerEvent::Refused { peer, verdict },
            Err(why) => ListenerEvent::Failed { peer, why: why.to_string() },
        };
        // Any number of peers can cause failures.
        let Some(count) = self.admission.count_failure(Instant::now()) else { return };
        if count > 0 {
            self.report(&ListenerEvent::LeftOut { count });
        }
        self.report(&event);
    }

    pub(super) fn report(&self, event: &ListenerEvent) {
        (self.on_event)(event);
    }

    /// Counts a connection that is closed without a handshake.
    pub(super) fn limit_reached(&self, peer: SocketAddr, why: AdmissionLimit, now: Instant) {
        if let Some(count) = self.admission.count_refused(now) {
            self.report(&ListenerEvent::LimitReached { peer: peer.ip(), count, why });
        }
    }

    fn admit(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        slot: &AdmissionSlot,
        deadline: Instant,
    ) -> Result<(), Rejection> {
        let (mut lane, binding) = self.begin(stream, peer, deadline)?;
        let mut bytes = [0; HELLO_BYTES];
        lane.read_exact(&mut bytes)?;
        let hello = match Hello::decode(&bytes) {
            Ok(hello) => hello,
            Err(BadHello::Version(_)) => return Err(refuse(lane, Verdict::OtherVersion, &bytes)),
            Err(error) => return Err(Rejection::Hello(error)),
        };
        let encryption = if self.tls.is_some() { Encryption::Tls } else { Encryption::Plain };
        if hello.encryption != encryption {
            return Err(refuse(lane, Verdict::OtherEncryption, &bytes));
        }
        match self.registry.check_hello(&hello, &bytes, &binding, peer.ip(), SystemTime::now()) {
            Ok(_) if !slot.leave() => Err(Rejection::Shed),
            Ok(admitted) => self.welcome(lane, &hello, &bytes, &binding, peer, admitted),
            Err(Refusal { verdict, secret: Some(secret) }) => {
                let lanes_max = self.registry.lanes_max();
                let answer = encode_answer(verdict, lanes_max, &bytes, Some((&secret, &binding)));
                lane.write_all(&answer)?;
                linger(lane);
                Err(Rejection::Refused(verdict))
            }
            Err(Refusal { verdict, secret: None }) => {
                self.admission.failed(peer.ip(), Instant::now());
                let left = deadline.saturating_duration_since(Instant::now());
                // The connection keeps its slot during the delay, which slows guessing even over
                // many connections.
                thread::sleep(self.settings.limits.wrong_delay.min(left / 2));
                Err(refuse(lane, verdict, &bytes))
            }
        }
    }

    /// Establishes the connection up to the hello. Returns the lane and the binding of its proof.
    fn begin(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        deadline: Instant,
    ) -> Result<(StreamLane, Binding), Rejection> {
        let facts = accepted_facts(stream.as_fd(), &self.settings.socket);
        let wire = SocketWire::of_connection(stream.into(), self.settings.socket.sctp.is_some());
        let Some(config) = &self.tls else {
            let mut lane = StreamLane::unauthenticated(Box::new(wire), None, peer, facts, deadline);
            return match exchange_nonces(&mut lane, false) {
                Ok(binding) => Ok((lane, binding)),
                Err(error @ GreetingError::NotPlain) => {
                    refuse(lane, Verdict::OtherEncryption, &[0; HELLO_BYTES]);
                    Err(error.into())
                }
                Err(error) => Err(error.into()),
            };
        };
        let connection = ServerConnection::new(config.clone()).map_err(LaneError::Tls)?;
        let (channel, inlet) = tls::handshake(connection.into(), &wire, WaitTimeout::until(deadline))?;
        if !channel.is_haul() {
            return Err(Rejection::NotHaul);
        }
        let binding = channel.binding()?;
        Ok((
            StreamLane::unauthenticated(Box::new(wire), Some((channel, inlet)), peer, facts, deadline),
            binding,
        ))
    }

    fn welcome(
        &self,
        mut lane: StreamLane,
        hello: &Hello,
        bytes: &[u8; HELLO_BYTES],
        binding: &Binding,
        peer: SocketAddr,
        admitted: Admitted,
    ) -> Result<(), Rejection> {
        let Admitted { mut slot, secret, role } = admitted;
        let welcome =
            encode_answer(Verdict::Welcome, self.registry.lanes_max(), bytes, Some((&secret, binding)));
        let (key, session) = (slot.key(), slot.session());
        let lane = match self.agree_on_udp(&mut lane, hello, &welcome, &mut slot)? {
            Some(agreed) => {
                lane.tune_for_path(&self.settings.socket);
                let shared = udp::QuicShared { tls: self.tls.clone(), pacer: self.settings.pacer.clone() };
                agreed.start(lane.authenticated(None, None, None), shared)?
            }
            None => {
                lane.tune_for_path(&self.settings.socket);
                lane
            }
        };
        // A lane over QUIC that holds a rate paces its datagrams itself.
        let is_held = self.settings.udp.as_ref().is_some_and(|udp| matches!(udp.rate, Rate::Fixed(_)));
        let pacer = self.settings.pacer.clone().filter(|_| lane.kind() != Kind::Quic || !is_held);
        let lane = lane.authenticated(self.settings.stall, pacer, Some(Box::new(slot)));
        if self.registry.deliver(key, hello.lane, lane, role, peer) {
            self.report(&ListenerEvent::Arrived { session, ticket: hello.ticket, peer });
        }
        Ok(())
    }

    /// Sends `welcome` and, if the client requests UDP, the answer to that. Returns `None` if the
    /// lane stays on TCP.
    fn agree_on_udp(
        &self,
        lane: &mut StreamLane,
        hello: &Hello,
        welcome: &[u8],
        slot: &mut LaneSlot,
    ) -> Result<Option<udp::Agreed<'_>>, Rejection> {
        if !hello.udp {
            lane.write_all(welcome)?;
            return Ok(None);
        }
        let mut request = [0; udp::UPGRADE_BYTES];
        lane.read_exact(&mut request)?;
        let reserve = |wanted, max| slot.reserve_buffer(wanted, max);
        let agreed = udp::decide(lane, self.settings.udp.as_ref(), udp::Request::decode(&request), reserve);
        let answer = match &agreed {
            Ok(agreed) => agreed.encode(),
            Err(refusal) => refusal.encode(),
        };
        lane.write_all_vectored(&[welcome, &answer])?;
        Ok(agreed.ok())
    }
}

/// Sends the reason for the refusal to an unauthenticated peer.
fn refuse(mut lane: StreamLane, verdict: Verdict, hello: &[u8; HELLO_BYTES]) -> Rejection {
    // The peer may have disconnected already; it is refused anyway.
    if lane.write_all(&encode_answer(verdict, 0, hello, None)).is_ok() {
        linger(lane);
    }
    Rejection::Refused(verdict)
}

/// Closes a lane so that its last bytes arrive.
fn linger(lane: StreamLane) {
    let (mut reader, mut writer) = lane.split();
    let deadline = Instant::now() + LINGER;
    reader.set_deadline(deadline);
    writer.set_deadline(deadline);
    if writer.finish().is_err() {
        return;
    }
    let mut heard = 0;
    let mut buffer = [0; 4096];
    while heard < LINGER_BYTES {
        match reader.read_some(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(read) => heard += read,
        }
    }
}
