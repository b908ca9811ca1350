//! WebTransport: connections over UDP (QUIC), each with one lane of a browser.
//!
//! A request of WebTransport has no header of the page. The browser asks for a lane over HTTPS
//! first, and its request here has the token of that lane. Of HTTP/3 the module `http3` has the
//! part that one session with one stream needs, so that a connection holds no more than this file
//! shows.

mod http3;
mod huffman;
mod request;

use crate::access::{LaneError, Session};
use crate::certificate::CertificateStore;
use crate::checks;
use crate::event::WebEvent;
use crate::lanes::StreamLane;
use crate::limits::{HANDSHAKE_WINDOW_BYTES, HANDSHAKES_UNPROVEN_MAX, LANE_WINDOW_BYTES, WebLimits};
use crate::server::{Entrance, Shared};
use haul_net::{AdmissionSlot, quinn_controllers, tls};
use http3::{ProtocolError, Status};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{
    Connection, Endpoint, EndpointConfig, IdleTimeout, Incoming, RecvStream, SendStream, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use request::Request;
use rustix::net::sockopt;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The only version of QUIC in use: 1 (RFC 9000).
const VERSION: u32 = 1;

/// Streams of a browser that are open at the same time: the request and the lane; its control
/// stream, two of QPACK, and one that it opens to no purpose (RFC 9114 section 6.2.3).
const BOTH_WAYS_MAX: u32 = 2;
const ONE_WAY_MAX: u32 = 4;

/// Interval of datagrams that keep the connection of an idle lane alive.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Bytes of datagrams that are kept; no one reads them.
const DATAGRAM_BYTES: usize = 8 << 10;

/// Size in bytes to request for each buffer of the socket. It holds 30 ms at 1 Gbit/s, for which
/// another process can keep the server from running.
const SOCKET_BYTES: usize = 4 << 20;

/// Handshakes whose first datagrams wait to be accepted, and bytes that these keep.
const INCOMING_MAX: usize = 64;
const INCOMING_BYTES: u64 = 16 << 10;

/// Time for a browser to close its connection after the end of its lane, or after a refusal.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the endpoint at `socket`. Each handshake uses the certificate of that time. Must be
/// called within the runtime.
///
/// # Errors
/// Returns the error of the TLS library or of the socket.
pub(crate) fn endpoint(
    socket: UdpSocket,
    certificate: Arc<CertificateStore>,
    limits: &WebLimits,
) -> io::Result<Endpoint> {
    let mut tls = (*tls::https_config(certificate).map_err(io::Error::other)?).clone();
    tls.alpn_protocols = vec![http3::PROTOCOL.to_vec()];
    let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config
        .transport_config(Arc::new(transport(limits)))
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_BYTES)
        .incoming_buffer_size_total(INCOMING_MAX as u64 * INCOMING_BYTES);
    enlarge_buffers(&socket);
    let mut endpoint = EndpointConfig::default();
    endpoint.supported_versions(vec![VERSION]);
    Endpoint::new(endpoint, Some(config), socket, Arc::new(TokioRuntime))
}

/// Requests larger buffers. Without the right to exceed the limit of the system, they have this
/// limit. A smaller buffer loses more datagrams.
fn enlarge_buffers(socket: &UdpSocket) {
    let _ = sockopt::set_socket_send_buffer_size_force(socket, SOCKET_BYTES)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, SOCKET_BYTES));
    let _ = sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, SOCKET_BYTES));
}

fn transport(limits: &WebLimits) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(BOTH_WAYS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(ONE_WAY_MAX))
        .datagram_receive_buffer_size(Some(DATAGRAM_BYTES))
        .max_idle_timeout(IdleTimeout::try_from(limits.lane_idle).ok())
        .keep_alive_interval(Some(KEEP_ALIVE.min(limits.lane_idle / 3)))
        .stream_receive_window(VarInt::from_u32(LANE_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(HANDSHAKE_WINDOW_BYTES))
        .send_window(u64::from(LANE_WINDOW_BYTES))
        // As for lanes over QUIC of a ticket: it keeps its rate on a path that loses datagrams.
        .congestion_controller_factory(quinn_controllers())
        .allow_spin(false);
    transport
}

/// Accepts connections until the endpoint is closed.
pub(crate) async fn accept(shared: Arc<Shared>, endpoint: Endpoint) {
    // Each connection without a lane has a clone.
    let handshakes = Arc::new(());
    while let Some(incoming) = endpoint.accept().await {
        if Arc::strong_count(&handshakes) > HANDSHAKES_UNPROVEN_MAX && incoming.may_retry() {
            // Fails only for a proven address.
            let _ = incoming.retry();
            continue;
        }
        let Some(Entrance { slot, made_way }) = shared.enter(incoming.remote_address().ip()) else {
            incoming.refuse();
            continue;
        };
        let (shared, handshake) = (shared.clone(), Handshake { slot, _count: Arc::clone(&handshakes) });
        tokio::spawn(async move {
            tokio::select! {
                () = connection(shared, incoming, handshake) => {}
                () = Entrance::made_way(made_way) => {}
            }
        });
    }
}

/// Slot of a connection that has no lane yet.
struct Handshake {
    slot: AdmissionSlot,
    _count: Arc<()>,
}

/// Serves one connection.
async fn connection(shared: Arc<Shared>, incoming: Incoming, handshake: Handshake) {
    let limit = shared.limits.request;
    // A failed handshake is the client's affair, for example another certificate hash.
    let Ok(connecting) = incoming.accept() else { return };
    let Ok(Ok(connection)) = timeout(limit, connecting).await else { return };
    let streams = timeout(limit, Streams::open(&connection)).await;
    let (code, _streams) = match streams {
        Ok(Ok(mut streams)) => (serve(&shared, &connection, &mut streams, handshake).await, Some(streams)),
        Ok(Err(_)) | Err(_) => (http3::GENERAL_PROTOCOL_ERROR, None),
    };
    // Before the streams are dropped, which would end them in order.
    connection.close(VarInt::from_u32(code), b"");
}

/// Streams of a connection that the server uses. The control stream of the browser and those for
/// QPACK stay unread: its settings change nothing for the server.
struct Streams {
    _control: SendStream,
    request: Request,
    to_browser: SendStream,
    from_browser: RecvStream,
    lane: Option<(SendStream, RecvStream)>,
}

impl Streams {
    /// Waits for the request of the browser.
    async fn open(connection: &Connection) -> Result<Streams, ProtocolError> {
        let mut control = connection.open_uni().await.map_err(io::Error::from)?;
        control.write_all(http3::CONTROL).await.map_err(io::Error::from)?;
        let (to_browser, mut from_browser) = connection.accept_bi().await.map_err(io::Error::from)?;
        let request = http3::read_request(&mut from_browser).await?;
        Ok(Streams { _control: control, request, to_browser, from_browser, lane: None })
    }

    /// Waits for the stream of the lane.
    async fn open_lane(&mut self, connection: &Connection) -> Result<(), ProtocolError> {
        // The ID of a session is that of the stream with its request.
        let session = u64::from(VarInt::from(self.from_browser.id()));
        let lane = self.lane.insert(connection.accept_bi().await.map_err(io::Error::from)?);
        http3::read_stream_start(&mut lane.1, session).await
    }
}

/// Answers the request, and carries the bytes of its lane. Returns the code for the close.
async fn serve(shared: &Shared, connection: &Connection, streams: &mut Streams, handshake: Handshake) -> u32 {
    let admitted = match Admitted::new(shared, &streams.request) {
        Ok(admitted) => admitted,
        Err((status, why)) => {
            let event = WebEvent::Refused { peer: connection.remote_address(), why };
            shared.events.report_limited(&event, Instant::now());
            // The browser closes once it has the answer. A hostile one takes no answer.
            let ended = async {
                answer(&mut streams.to_browser, status).await;
                connection.closed().await
            };
            let _ = timeout(CLOSE_TIMEOUT, ended).await;
            return http3::NO_ERROR;
        }
    };
    // The lanes of a session are limited. Without the slot, the connection is about to end.
    handshake.slot.leave();
    drop(handshake);
    let open = async {
        streams.to_browser.write_all(Status::Ok.frame()).await.map_err(io::Error::from)?;
        connection.set_receive_window(VarInt::from_u32(LANE_WINDOW_BYTES + HANDSHAKE_WINDOW_BYTES));
        streams.open_lane(connection).await
    };
    let opened = tokio::select! {
        opened = timeout(shared.limits.request, open) => opened,
        () = admitted.lane.aborted() => return http3::GENERAL_PROTOCOL_ERROR,
    };
    let (Ok(Ok(())), Some((to_browser, from_browser))) = (opened, &mut streams.lane) else {
        return http3::GENERAL_PROTOCOL_ERROR;
    };
    let Admitted { session, lane } = &admitted;
    let stopped = to_browser.stopped();
    let taken =
        async { matches!(stopped.await, Ok(None)).then_some(()).ok_or(io::ErrorKind::BrokenPipe.into()) };
    let carried = tokio::select! {
        biased;
        carried = lane.carry(session, to_browser, from_browser, taken, shared.limits.lane_idle) => carried,
        () = end_of(&mut streams.from_browser) => return http3::NO_ERROR,
        _ = connection.closed() => return http3::NO_ERROR,
    };
    if carried.is_err() {
        return http3::GENERAL_PROTOCOL_ERROR;
    }
    // The browser has all bytes, and reads them before it closes the session.
    tokio::select! {
        _ = timeout(CLOSE_TIMEOUT, end_of(&mut streams.from_browser)) => {}
        () = lane.aborted() => {}
        _ = connection.closed() => {}
    }
    http3::NO_ERROR
}

/// A lane to which a browser has connected; it is aborted on drop.
struct Admitted {
    session: Arc<Session>,
    lane: Arc<StreamLane>,
}

impl Admitted {
    /// Checks the request, and uses its token. The error has the reason for the log.
    fn new(shared: &Shared, request: &Request) -> Result<Admitted, (Status, &'static str)> {
        if !request.is_web_transport() {
            return Err((Status::NotFound, "a request over UDP that is not WebTransport"));
        }
        let authority = request.authority().to_ascii_lowercase();
        let host = shared.hosts.find(&authority).ok_or((Status::Misdirected, "another host name"))?;
        if !checks::is_own(request.origin().as_bytes(), host) {
            return Err((Status::Forbidden, "another or no Origin"));
        }
        let (id, token) = request.lane().ok_or((Status::NotFound, "WebTransport without a lane"))?;
        match shared.access.connect_lane(id, token, Instant::now()) {
            Ok((session, lane)) => Ok(Admitted { session, lane }),
            Err(LaneError::Unknown) => Err((Status::NotFound, "WebTransport for an unknown lane")),
            Err(LaneError::Token) => Err((Status::Forbidden, "a wrong, used or expired token of a lane")),
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.session.lanes.end(&self.lane);
    }
}

/// Sends the answer to a request that is refused.
async fn answer(stream: &mut SendStream, status: Status) {
    // The connection may have ended.
    if stream.write_all(status.frame()).await.is_ok() {
        let _ = stream.finish();
    }
}

/// Waits until the browser closes the session: it ends the stream of its request, with or without
/// a capsule before the end.
async fn end_of(stream: &mut RecvStream) {
    while let Ok(Some(_)) = stream.read_chunk(HANDSHAKE_WINDOW_BYTES as usize, true).await {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::{CertificateSource, CertificateStore};
    use haul_lab::browser::{Browser, sha256};
    use quinn::crypto::rustls::QuicClientConfig;
    use std::time::SystemTime;
    use tokio::runtime::Builder;

    #[test]
    fn a_renewed_certificate_is_used_for_the_next_handshake() {
        let names = vec!["127.0.0.1".to_owned()];
        let source = CertificateSource::SelfSigned { file: None, names };
        let now = SystemTime::now();
        let store = Arc::new(CertificateStore::open(source, now).expect("a certificate").0);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            let address = socket.local_addr().expect("an address");
            let server = endpoint(socket, store.clone(), &WebLimits::default()).expect("an endpoint");
            let accepting = server.clone();
            tokio::spawn(async move {
                while let Some(incoming) = accepting.accept().await {
                    incoming.await.expect("a handshake").closed().await;
                }
            });
            let client = Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("an endpoint");
            let browser = Browser::new(address);
            let tls = QuicClientConfig::try_from(browser.tls(http3::PROTOCOL)).expect("TLS 1.3");
            let config = quinn::ClientConfig::new(Arc::new(tls));
            let hash = async || {
                let connecting = client.connect_with(config.clone(), address, "localhost");
                let connection = connecting.expect("configured").await.expect("connected");
                connection.close(VarInt::from_u32(0), b"");
                sha256(&browser.certificate())
            };
            let first = hash().await;
            assert_eq!(first, store.sha256());
            let late = now + Duration::from_secs(12 * 24 * 3600);
            assert!(store.renew(late).expect("renewed").0);
            assert_eq!(hash().await, store.sha256());
            assert_ne!(store.sha256(), first);
        });
    }
}
