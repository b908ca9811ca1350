//! A browser that opens lanes over WebTransport, by an implementation of its own.

use haul_engine::transfer::{BoxError, Dial};
use haul_lab::browser::Browser;
use haul_net::{Lane, StreamLane};
use serde_json::Value;
use std::future::Future;
use std::io::{self, Read as _, Write as _, pipe};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use wtransport::config::{DnsLookupFuture, DnsResolver};
use wtransport::endpoint::ConnectOptions;
use wtransport::endpoint::endpoint_side::Client;
use wtransport::error::ConnectingError;
use wtransport::tls::Sha256Digest;
use wtransport::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, VarInt};

/// Maximum size of one write to a lane.
const BLOCK_BYTES: usize = 1 << 20;

/// Time after which a read of a lane fails, so that a test never hangs.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Resolves every name to the server.
#[derive(Debug)]
struct OneHost(SocketAddr);

impl DnsResolver for OneHost {
    fn resolve(&self, _: &str) -> Pin<Box<dyn DnsLookupFuture>> {
        let address = self.0;
        Box::pin(async move { Ok(Some(address)) })
    }
}

/// A browser with WebTransport.
pub(crate) struct WebTransport {
    pub(crate) browser: Arc<Browser>,
    pub(crate) runtime: Runtime,
    endpoint: Endpoint<Client>,
}

/// A lane: its connection and both directions of its stream.
pub(crate) struct Stream {
    pub(crate) connection: Connection,
    pub(crate) to_server: SendStream,
    pub(crate) from_server: RecvStream,
}

impl WebTransport {
    /// Returns a browser that accepts the certificate whose hash the server states.
    pub(crate) fn new(browser: Arc<Browser>) -> WebTransport {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let _inside = runtime.enter();
        let hash = browser.get("/session").json()["certificate"].as_str().expect("a hash").to_owned();
        let mut digest = [0; 32];
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hash[2 * at..2 * at + 2], 16).expect("hexadecimal");
        }
        let mut config = ClientConfig::builder()
            .with_bind_address(([127, 0, 0, 1], 0).into())
            .with_server_certificate_hashes([Sha256Digest::new(digest)])
            .build();
        config.set_dns_resolver(OneHost(browser.host().parse().expect("an address")));
        let endpoint = Endpoint::client(config).expect("a socket");
        drop(_inside);
        WebTransport { browser, runtime, endpoint }
    }

    /// Requests a lane. The result is the path with its token.
    pub(crate) fn path(&self) -> String {
        self.request("{\"kind\":\"webtransport\"}").expect("a lane")
    }

    fn request(&self, request: &str) -> io::Result<String> {
        let headers = [("content-type", "application/json")];
        let answer = self.browser.try_send("POST", "/lane", &headers, request.as_bytes())?;
        if answer.status != 201 {
            return Err(io::Error::other(format!("the lane is refused: {answer:?}")));
        }
        Ok(answer.json()["path"].as_str().expect("a path").to_owned())
    }

    /// Opens the session at `path`, as a page of this server does.
    pub(crate) fn connect(&self, path: &str) -> Result<Connection, ConnectingError> {
        let host = self.browser.host();
        self.connect_from(&host, path, Some(&format!("https://{host}")))
    }

    /// Opens a session with this host and Origin.
    pub(crate) fn connect_from(
        &self,
        host: &str,
        path: &str,
        origin: Option<&str>,
    ) -> Result<Connection, ConnectingError> {
        let mut options = ConnectOptions::builder(format!("https://{host}{path}"));
        if let Some(origin) = origin {
            options = options.add_header("origin", origin);
        }
        self.runtime.block_on(self.endpoint.connect(options.build()))
    }

    /// Opens a lane of its own session of the wire.
    pub(crate) fn stream(&self) -> Stream {
        self.open(&self.path()).expect("a lane")
    }

    /// Opens the session at `path` and its stream.
    pub(crate) fn open(&self, path: &str) -> io::Result<Stream> {
        let connection = self.connect(path).map_err(io::Error::other)?;
        let opened =
            async { connection.open_bi().await.map_err(io::Error::other)?.await.map_err(io::Error::other) };
        let (to_server, from_server) = self.runtime.block_on(opened)?;
        Ok(Stream { connection, to_server, from_server })
    }

    /// Waits for `future`, which must be ready within a minute.
    #[track_caller]
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(READ_TIMEOUT, future).await }).expect("in time")
    }

    /// Opens a lane that threads pump. With `reset_after`, its stream is reset after that number of
    /// bytes.
    fn lane(self: &Arc<Self>, request: &str, reset_after: Option<usize>) -> io::Result<StreamLane> {
        let Stream { connection, mut to_server, mut from_server } = self.open(&self.request(request)?)?;
        let (mut from_client, to_lane) = pipe()?;
        let (from_lane, mut to_client) = pipe()?;
        let client = Arc::clone(self);
        let upload = thread::spawn(move || -> io::Result<()> {
            let (mut block, mut sent) = (vec![0; BLOCK_BYTES], 0);
            loop {
                let read = from_client.read(&mut block)?;
                sent += read;
                if reset_after.is_some_and(|max| sent > max) {
                    to_server.reset(VarInt::from_u32(1)).map_err(io::Error::other)?;
                    return Ok(());
                }
                if read == 0 {
                    return client.runtime.block_on(to_server.finish()).map_err(io::Error::other);
                }
                client.runtime.block_on(to_server.write_all(&block[..read])).map_err(io::Error::other)?;
            }
        });
        let client = Arc::clone(self);
        thread::spawn(move || {
            let mut block = vec![0; BLOCK_BYTES];
            // The client finds an error as the end of the pipe.
            while let Ok(Some(read)) = client.runtime.block_on(from_server.read(&mut block)) {
                if to_client.write_all(&block[..read]).is_err() {
                    break;
                }
            }
            drop(to_client);
            let _ = upload.join();
            connection.close(VarInt::from_u32(0), b"");
        });
        StreamLane::over_pipes(from_lane.into(), to_lane.into(), Some(READ_TIMEOUT))
    }
}

/// Opens the lanes of one transfer over WebTransport, and every second one over HTTP if
/// `is_mixed`.
pub(crate) struct StreamDial {
    client: Arc<WebTransport>,
    transfer: &'static str,
    is_mixed: bool,
    reset_after: Option<usize>,
    opened: AtomicU32,
}

impl StreamDial {
    pub(crate) fn new(client: &Arc<WebTransport>, transfer: &'static str) -> StreamDial {
        let (client, opened) = (Arc::clone(client), AtomicU32::new(0));
        StreamDial { client, transfer, is_mixed: false, reset_after: None, opened }
    }

    pub(crate) fn mixed(self) -> StreamDial {
        StreamDial { is_mixed: true, ..self }
    }

    pub(crate) fn reset_after(self, bytes: usize) -> StreamDial {
        StreamDial { reset_after: Some(bytes), ..self }
    }

    /// Returns the number of lanes that were opened.
    pub(crate) fn opened(&self) -> u32 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Dial for StreamDial {
    fn lane(&self, _: u32) -> Result<Box<dyn Lane>, BoxError> {
        let request: Value = serde_json::json!({ "transfer": self.transfer });
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        if self.is_mixed && number % 2 == 1 {
            return Ok(self.client.browser.lane(&request.to_string(), None)?.into());
        }
        let request = serde_json::json!({ "transfer": self.transfer, "kind": "webtransport" });
        Ok(self.client.lane(&request.to_string(), self.reset_after)?.into())
    }
}
