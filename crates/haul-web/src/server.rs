//! The server: its socket, its runtime, its connections and their limits.

use crate::access::Access;
use crate::answer::Reply;
use crate::certificate::{CertificateError, CertificateSource, CertificateStore};
use crate::checks::Hosts;
use crate::copying::CopyBetween;
use crate::event::{Events, WebEvent};
use crate::files::{RootThreads, WebRoot};
use crate::limits::{
    CONNECTION_WINDOW_BYTES, CONNECTIONS_MAX, CONNECTIONS_PER_PEER_MAX, COPIES_MAX, DOWNLOADS_MAX,
    HEADER_BYTES_MAX, PEER_LISTINGS_MAX, STRANGER_REQUESTS_MAX, STREAM_WINDOW_BYTES, STREAMS_MAX,
    VERIFICATIONS_MAX, WebLimits,
};
use crate::metrics::{Metric, Metrics};
use crate::peers::Peers;
use crate::places::{Place, Places};
use crate::routes;
use crate::verification::Verify;
use crate::webtransport;
use haul_net::{AdmissionSlot, Gateway, tls};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use quinn::{Endpoint, VarInt};
use rustix::net::sockopt;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdTcpListener, UdpSocket};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Header of each response: the congestion control of TCP by which the server sends on the
/// connection. A browser chooses its lanes by that.
const CONGESTION: HeaderName = HeaderName::from_static("x-haul-tcp");

/// Threads that serve requests: one encrypts while another waits for a lock.
const THREADS: usize = 2;

/// Threads that read files for downloads.
const READERS: usize = 8;

/// Delay before the next accept after a failure, such as a lack of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Attempts to find a port that is free for TCP and UDP.
const PORT_ATTEMPTS: usize = 8;

/// Interval of looks for idle sessions, lanes and connections.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Interval and timeout of pings on a connection by HTTP/2, which detect a peer that is gone.
const PING: Duration = Duration::from_secs(20);

/// Time for the last datagrams to clients over UDP.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for an idle connection to end by itself before it is dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Function that returns the jobs of a user as a JSON array, or a message.
pub type ListJobs = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Settings of a web server.
pub struct WebSettings {
    /// Directories that every browser that signs in may use.
    pub roots: Vec<WebRoot>,
    /// Receiver of the lanes.
    pub gateway: Gateway,
    /// Certificate of the server.
    pub certificate: CertificateSource,
    /// Host names and addresses of the server, written as in a URL. The first one is in the link.
    pub hosts: Vec<String>,
    /// Limits.
    pub limits: WebLimits,
    /// Returns the counters of the sessions that the gateway serves and of the storage, for
    /// `GET /metrics`; may block.
    pub metrics: Box<dyn Fn() -> Vec<Metric> + Send + Sync>,
    /// Returns the jobs of the user who runs the server as a JSON array, for `GET /jobs`; may
    /// block. `None` hides them: they contain command lines and paths outside the roots.
    pub jobs: Option<ListJobs>,
    /// Verifies directories, for `POST /verify`.
    pub verify: Verify,
    /// Copies between directories, for `POST /copy`.
    pub copy: CopyBetween,
    /// Connects to other servers, for listings and for copies between two servers. `None` refuses
    /// them: browsers could reach addresses that only this host reaches.
    pub peers: Option<Peers>,
    /// Receives events; several threads call it.
    pub on_event: Box<dyn Fn(&WebEvent) + Send + Sync>,
}

/// Reason for a failure to start.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}; use --web=ADDRESS:PORT with another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Reason for the failure.
        source: io::Error,
    },
    /// There is no usable certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The TLS library refused its settings.
    #[error("cannot use TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A thread or the runtime could not be started.
    #[error("cannot start the web server: {0}")]
    Start(#[from] io::Error),
    /// The random number generator failed.
    #[error("cannot create a code or a token: {0}")]
    Code(String),
}

/// Bound sockets, which do not accept yet.
#[derive(Debug)]
pub struct WebListener {
    socket: StdTcpListener,
    address: SocketAddr,
    /// Socket for WebTransport at the same address and port.
    udp: io::Result<UdpSocket>,
}

/// A running server. Dropping it ends its sessions and lanes, and its threads.
pub struct WebServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// State that all requests use.
pub(crate) struct Shared {
    pub(crate) access: Access,
    pub(crate) certificate: Arc<CertificateStore>,
    pub(crate) events: Events,
    pub(crate) gateway: Gateway,
    pub(crate) hosts: Hosts,
    pub(crate) limits: WebLimits,
    pub(crate) metrics: Metrics,
    pub(crate) jobs: Option<ListJobs>,
    pub(crate) verify: Verify,
    pub(crate) copy: CopyBetween,
    pub(crate) peers: Option<Peers>,
    pub(crate) roots: Vec<RootThreads>,
    link_host: String,
    /// Places for the connections of browsers that have signed in.
    connections: Arc<Places>,
    /// True if browsers can use WebTransport.
    pub(crate) has_web_transport: bool,
    /// One permit for each download of a file.
    pub(crate) downloads: Arc<Semaphore>,
    /// One permit for each verification.
    pub(crate) verifications: Arc<Semaphore>,
    /// One permit for each copy between directories, and the number of copies so far.
    pub(crate) copies: Arc<Semaphore>,
    pub(crate) copies_started: AtomicU64,
    /// One permit for each listing of another server.
    pub(crate) peer_listings: Arc<Semaphore>,
}

/// Slot of a connection without a session.
pub(crate) struct Entrance {
    pub(crate) slot: AdmissionSlot,
    pub(crate) made_way: oneshot::Receiver<()>,
}

impl Entrance {
    /// Waits until the connection must make way for another one.
    pub(crate) async fn made_way(made_way: oneshot::Receiver<()>) {
        // The other end is gone once the connection has a session.
        if made_way.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Shared {
    /// Returns a slot for a connection from `peer`, unless there are too many.
    pub(crate) fn enter(&self, peer: IpAddr) -> Option<Entrance> {
        let (end, made_way) = oneshot::channel();
        let make_way = move || {
            // The connection may have ended.
            let _ = end.send(());
        };
        let reserved = self.gateway.reserve(peer, self.access.has_session_of(peer), make_way);
        reserved.map(|slot| Entrance { slot, made_way }).map_err(|_| self.too_many(peer)).ok()
    }

    fn too_many(&self, peer: IpAddr) {
        self.events.report_limited(&WebEvent::TooManyConnections { peer }, Instant::now());
    }
}

impl WebListener {
    /// Binds `address` for TCP and UDP; port 0 selects a free port. Without UDP, there is no
    /// WebTransport.
    ///
    /// # Errors
    /// Returns [`WebError::Listen`] if the address cannot be used for TCP.
    pub fn bind(address: SocketAddr) -> Result<WebListener, WebError> {
        let mut bound = bind(address)?;
        // Another program may use the free port of TCP for UDP.
        for _ in 1..PORT_ATTEMPTS {
            if address.port() != 0 || bound.udp.is_ok() {
                break;
            }
            bound = bind(address)?;
        }
        Ok(bound)
    }

    /// Returns the address, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl WebServer {
    /// Starts to serve. Also returns the reason if a new certificate could not be kept.
    ///
    /// # Errors
    /// Returns a [`WebError`] if the certificate is unusable, or a thread cannot be started.
    pub fn start(
        listener: WebListener,
        settings: WebSettings,
    ) -> Result<(WebServer, Option<String>), WebError> {
        let (certificate, note) = CertificateStore::open(settings.certificate, SystemTime::now())?;
        let certificate = Arc::new(certificate);
        let tls = TlsAcceptor::from(tls::https_config(certificate.clone())?);
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(READERS)
            .thread_name("haul-web")
            .enable_all()
            .build()?;
        let inside = runtime.enter();
        let events = Events::new(settings.on_event);
        let endpoint = listener
            .udp
            .map_err(|error| format!("UDP port {}: {error}", listener.address.port()))
            .and_then(|udp| {
                webtransport::endpoint(udp, certificate.clone(), &settings.limits)
                    .map_err(|error| error.to_string())
            })
            .map_err(|why| events.report(&WebEvent::NoWebTransport { why }))
            .ok();
        let roots = settings.roots.into_iter().map(RootThreads::new).collect();
        let port = listener.address.port();
        let link_host = settings.hosts.first().cloned().unwrap_or_default();
        let shared = Arc::new(Shared {
            access: Access::new(settings.limits),
            certificate,
            events,
            gateway: settings.gateway,
            hosts: Hosts::new(&settings.hosts, port),
            limits: settings.limits,
            metrics: Metrics::new(settings.metrics).map_err(|error| WebError::Code(error.to_string()))?,
            jobs: settings.jobs,
            verify: settings.verify,
            copy: settings.copy,
            peers: settings.peers,
            roots,
            link_host: if port == 443 { link_host } else { format!("{link_host}:{port}") },
            connections: Places::new(CONNECTIONS_MAX, CONNECTIONS_PER_PEER_MAX),
            has_web_transport: endpoint.is_some(),
            downloads: Arc::new(Semaphore::new(DOWNLOADS_MAX)),
            verifications: Arc::new(Semaphore::new(VERIFICATIONS_MAX)),
            copies: Arc::new(Semaphore::new(COPIES_MAX)),
            copies_started: AtomicU64::new(0),
            peer_listings: Arc::new(Semaphore::new(PEER_LISTINGS_MAX)),
        });
        let (stop, stopped) = watch::channel(false);
        let socket = TcpListener::from_std(listener.socket)?;
        drop(inside);
        let inside = shared.clone();
        let thread = thread::Builder::new().name("haul-web".into()).spawn(move || {
            runtime.block_on(run(inside, socket, tls, endpoint, stopped));
            runtime.shutdown_timeout(CLOSE_TIMEOUT);
        })?;
        Ok((WebServer { address: listener.address, shared, stop, thread: Some(thread) }, note))
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a link with a new one-time code. The code is in the fragment, which a browser does
    /// not send before the page reads it.
    ///
    /// # Errors
    /// Returns [`WebError::Code`] if the random number generator fails.
    pub fn link(&self) -> Result<String, WebError> {
        let code = self.shared.access.issue_code(Instant::now());
        let code = code.map_err(|error| WebError::Code(error.to_string()))?;
        Ok(format!("https://{}/#{code}", self.shared.link_host))
    }

    /// Returns the bearer token for `GET /metrics`.
    pub fn metrics_token(&self) -> &str {
        self.shared.metrics.token()
    }

    /// Returns the SHA-256 of the certificate as hexadecimal digits.
    pub fn certificate(&self) -> String {
        self.shared.certificate.sha256()
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // Fails if the server has ended already.
        let _ = self.stop.send(true);
        self.shared.access.end_all();
        if let Some(thread) = self.thread.take() {
            // The panic of the thread was printed; there is nothing to undo here.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for WebServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebServer").field("address", &self.address).finish_non_exhaustive()
    }
}

fn bind(address: SocketAddr) -> Result<WebListener, WebError> {
    let failed = |source| WebError::Listen { address, source };
    let socket = StdTcpListener::bind(address).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    Ok(WebListener { socket, address, udp: UdpSocket::bind(address) })
}

/// Serves until `stopped` changes.
async fn run(
    shared: Arc<Shared>,
    socket: TcpListener,
    tls: TlsAcceptor,
    endpoint: Option<Endpoint>,
    stopped: watch::Receiver<bool>,
) {
    tokio::spawn(look_around(shared.clone()));
    // A task of its own: a directory that hangs can delay the files of the certificate.
    tokio::spawn(renew(shared.clone()));
    if let Some(endpoint) = &endpoint {
        tokio::spawn(webtransport::accept(shared.clone(), endpoint.clone()));
    }
    accept(&shared, socket, tls, stopped).await;
    if let Some(endpoint) = endpoint {
        endpoint.close(VarInt::from_u32(0), b"");
        // Browsers learn at once that the server ends.
        let _ = timeout(GOODBYE_TIMEOUT, endpoint.wait_idle()).await;
    }
}

/// Accepts connections over TCP until `stopped` changes.
async fn accept(
    shared: &Arc<Shared>,
    socket: TcpListener,
    tls: TlsAcceptor,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            _ = stopped.changed() => return,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Some(Entrance { slot, made_way }) = shared.enter(peer.ip()) {
                    let (shared, tls) = (shared.clone(), tls.clone());
                    tokio::spawn(async move {
                        tokio::select! {
                            () = connection(shared, tls, stream, peer, slot) => {}
                            () = Entrance::made_way(made_way) => {}
                        }
                    });
                }
            }
            Err(error) => {
                let event = WebEvent::AcceptFailed { why: error.to_string() };
                shared.events.report_limited(&event, Instant::now());
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Ends idle sessions and lanes.
async fn look_around(shared: Arc<Shared>) {
    let mut looks = interval(LOOK_EVERY.min(shared.limits.lane_idle / 4).max(Duration::from_millis(10)));
    loop {
        looks.tick().await;
        for session in shared.access.end_idle(Instant::now()) {
            shared.events.report(&WebEvent::SignedOut { session });
        }
    }
}

/// Renews the certificate. Reports each reason for a failure once.
async fn renew(shared: Arc<Shared>) {
    let mut told = None;
    loop {
        sleep(shared.limits.certificate_check).await;
        let inside = shared.clone();
        let renewed = tokio::task::spawn_blocking(move || inside.certificate.renew(SystemTime::now())).await;
        let failed = match renewed {
            Ok(Ok((is_new, note))) => {
                if is_new {
                    shared.events.report(&WebEvent::Renewed { sha256: shared.certificate.sha256() });
                }
                note
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if failed != told {
            failed.iter().for_each(|why| {
                shared.events.report(&WebEvent::CertificateFailed { why: why.clone() });
            });
            told = failed;
        }
    }
}

/// Requests in progress on a connection, and the end of the last one.
struct Activity {
    begin: Instant,
    in_progress: AtomicUsize,
    last: Mutex<Instant>,
    peer: IpAddr,
    slot: AdmissionSlot,
    /// Place of the connection once a request had the token of a session.
    place: Mutex<Option<Place>>,
    is_signed_in: AtomicBool,
    /// One permit for each request that is handled before that.
    strangers: Arc<Semaphore>,
}

/// Counts a request as in progress until its response is sent.
pub(crate) struct RequestGuard(Arc<Activity>);

impl RequestGuard {
    fn new(activity: &Arc<Activity>) -> RequestGuard {
        activity.in_progress.fetch_add(1, Ordering::AcqRel);
        RequestGuard(activity.clone())
    }

    /// Records that the connection belongs to a browser that has signed in. Returns false if there
    /// are too many such connections.
    pub(crate) fn signed_in(&self, shared: &Shared) -> bool {
        let activity = &self.0;
        let mut place = activity.place.lock();
        if place.is_none() {
            let Some(taken) = shared.connections.take(activity.peer) else {
                shared.too_many(activity.peer);
                return false;
            };
            // Without the slot, the connection is about to end.
            activity.slot.leave();
            *place = Some(taken);
            activity.is_signed_in.store(true, Ordering::Release);
        }
        true
    }

    /// Waits for the turn of a request that needs no session. Its response holds the result.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        if self.0.is_signed_in.load(Ordering::Acquire) {
            return None;
        }
        Arc::clone(&self.0.strangers).acquire_owned().await.ok()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        *self.0.last.lock() = Instant::now();
        self.0.in_progress.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Activity {
    fn new(peer: IpAddr, slot: AdmissionSlot) -> Arc<Activity> {
        Arc::new(Activity {
            begin: Instant::now(),
            in_progress: AtomicUsize::new(0),
            last: Mutex::new(Instant::now()),
            peer,
            slot,
            place: Mutex::default(),
            is_signed_in: AtomicBool::new(false),
            strangers: Arc::new(Semaphore::new(STRANGER_REQUESTS_MAX)),
        })
    }

    /// Returns true if the connection is idle, or has existed for too long without a session.
    fn is_over(&self, limits: &WebLimits) -> bool {
        let last = *self.last.lock();
        let is_signed_in = self.is_signed_in.load(Ordering::Acquire);
        if !is_signed_in && self.begin.elapsed() >= limits.stranger_max {
            return true;
        }
        let time = if is_signed_in { limits.connection_idle } else { limits.stranger_idle };
        self.in_progress.load(Ordering::Acquire) == 0 && last.elapsed() >= time
    }
}

/// Serves one connection.
async fn connection(
    shared: Arc<Shared>,
    tls: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
    slot: AdmissionSlot,
) {
    // Without this option small responses wait for acknowledgements. An error only costs time.
    let _ = stream.set_nodelay(true);
    let congestion = sockopt::tcp_congestion(&stream).ok();
    let congestion = congestion.and_then(|name| HeaderValue::try_from(name).ok());
    // A failed handshake is the client's affair, for example a browser that does not trust the
    // certificate yet.
    let Ok(Ok(stream)) = timeout(shared.limits.request, tls.accept(stream)).await else { return };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let activity = Activity::new(peer.ip(), slot);
    let inside = (shared.clone(), activity.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, guard) = (inside.0.clone(), RequestGuard::new(&inside.1));
        let congestion = congestion.clone();
        async move {
            let mut reply = routes::handle(&shared, peer, request, &guard).await;
            reply.headers_mut().extend(congestion.map(|name| (CONGESTION, name)));
            Ok::<Reply, Infallible>(reply.map(|answer| answer.guarded(guard)))
        }
    });
    let io = TokioIo::new(stream);
    let limits = shared.limits;
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX))
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        let served = builder.serve_connection(io, service);
        serve(served, |served| served.graceful_shutdown(), &activity, &limits).await;
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.request)
            .max_buf_size(HEADER_BYTES_MAX.max(64 << 10));
        let served = builder.serve_connection(io, service);
        serve(served, |served| served.graceful_shutdown(), &activity, &limits).await;
    }
}

/// Runs a connection until it ends, or its time is over.
async fn serve<F: Future>(served: F, end: impl FnOnce(Pin<&mut F>), activity: &Activity, limits: &WebLimits) {
    let mut served = pin!(served);
    loop {
        // An error ends only this connection, and its requests know it.
        if timeout(limits.stranger_idle / 2, served.as_mut()).await.is_ok() {
            return;
        }
        if activity.is_over(limits) {
            break;
        }
    }
    end(served.as_mut());
    // Dropped if it does not end by itself.
    let _ = timeout(CLOSE_TIMEOUT, served).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_net::{Grant, Listener, Role, Uses};

    /// Returns the activity of a new connection, and the listener whose slot it has.
    fn activity() -> (Arc<Activity>, Listener) {
        let grant = Grant { role: Role::Both, uses: Uses::Lasting, expires: None };
        let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let (listener, _) = Listener::with_ticket(&[address], grant).expect("it listens");
        let slot = listener.gateway().reserve(address.ip(), false, || {}).expect("a slot");
        (Activity::new(address.ip(), slot), listener)
    }

    /// Regression: a client without a code had 128 responses in progress.
    #[test]
    fn a_connection_without_a_session_handles_few_requests_at_a_time() {
        let (activity, _listener) = activity();
        let request = RequestGuard::new(&activity);
        let waits = async || {
            tokio::select! {
                biased;
                _ = request.turn() => false,
                () = std::future::ready(()) => true,
            }
        };
        runtime::Builder::new_current_thread().build().expect("a runtime").block_on(async {
            let mut turns = Vec::new();
            for _ in 0..STRANGER_REQUESTS_MAX {
                turns.push(request.turn().await.expect("a turn"));
            }
            assert!(waits().await);
            turns.pop();
            assert!(!waits().await);
            turns.push(request.turn().await.expect("a turn"));
            activity.is_signed_in.store(true, Ordering::Release);
            assert!(!waits().await, "a request with a session does not wait");
        });
    }

    /// Regression: clients without a code kept their connections with requests whose responses they
    /// did not read, and others found none free.
    #[test]
    fn connections_without_a_session_end_despite_requests() {
        let limits = WebLimits { stranger_max: Duration::ZERO, ..WebLimits::default() };
        let (activity, _listener) = activity();
        let _request = RequestGuard::new(&activity);
        assert!(activity.is_over(&limits));
        activity.is_signed_in.store(true, Ordering::Release);
        assert!(!activity.is_over(&limits));
    }
}
