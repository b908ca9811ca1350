//! Bare paths of a browser: HTTPS and WebTransport without sessions, digests or files, as the
//! reference of `bench/page.mjs`.
//!
//! `bare [http1]` prints `PORT HASH` when it serves. A `PUT` discards its body, `GET /N` returns N
//! bytes. A stream of WebTransport starts with `U` and is discarded up to its end, or with `D` and
//! a number of bytes to send, as 8 bytes in little-endian order.

use aws_lc_rs::digest;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::HeaderValue;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use wtransport::endpoint::IncomingSession;
use wtransport::tls::{Certificate, CertificateChain, PrivateKey};
use wtransport::{Endpoint, Identity, ServerConfig};

type Failure = Box<dyn Error + Send + Sync>;

/// Bytes of a block that is sent or received at once.
const BLOCK: usize = 1 << 20;

/// Validity of the certificate: a browser accepts at most 14 days by its hash.
const VALIDITY: Duration = Duration::from_secs(10 * 24 * 3600);

fn main() -> Result<(), Failure> {
    let is_http1 = std::env::args().nth(1).is_some_and(|argument| argument == "http1");
    // As many threads as the web server of haul has.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(is_http1))
}

async fn serve(is_http1: bool) -> Result<(), Failure> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let now = rcgen::date_time_ymd(1970, 1, 1) + SystemTime::UNIX_EPOCH.elapsed()?;
    (params.not_before, params.not_after) = (now - VALIDITY / 10, now + VALIDITY);
    let certificate = params.self_signed(&key)?;
    let der = certificate.der().to_vec();
    let hash = digest::digest(&digest::SHA256, &der);

    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(der.clone())], private)?;
    tls.alpn_protocols = vec![if is_http1 { b"http/1.1".to_vec() } else { b"h2".to_vec() }];
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let chain = CertificateChain::single(Certificate::from_der(der)?);
    let identity = Identity::new(chain, PrivateKey::from_der_pkcs8(key.serialize_der()));
    let config = ServerConfig::builder().with_bind_address(address).with_identity(identity).build();
    tokio::spawn(streams(Endpoint::server(config)?));
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{} {hash}", address.port());

    let acceptor = TlsAcceptor::from(Arc::new(tls));
    loop {
        let (socket, _): (_, SocketAddr) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(socket) = acceptor.accept(socket).await else { return };
            let socket = TokioIo::new(socket);
            // A browser closes connections at any time.
            let _ = if is_http1 {
                http1::Builder::new().serve_connection(socket, service_fn(answer)).await
            } else {
                let mut http = http2::Builder::new(TokioExecutor::new());
                // As in `src/limits.rs`.
                http.initial_stream_window_size(512 << 10).initial_connection_window_size(64 << 20);
                http.serve_connection(socket, service_fn(answer)).await
            };
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Blocks>, Infallible> {
    if request.method() == Method::PUT {
        let mut body = request.into_body();
        while let Some(Ok(_)) = body.frame().await {}
        return Ok(Response::new(Blocks::default()));
    }
    let left = request.uri().path()[1..].parse().unwrap_or(0);
    let block = Bytes::from(vec![b'h'; BLOCK.min(left)]);
    let mut response = Response::new(Blocks { block, left });
    response.headers_mut().insert("Content-Type", HeaderValue::from_static("text/html"));
    Ok(response)
}

/// A body that repeats a block.
#[derive(Default)]
struct Blocks {
    block: Bytes,
    left: usize,
}

impl Body for Blocks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.block.slice(..self.left.min(self.block.len()));
        self.left -= part.len();
        Poll::Ready((!part.is_empty()).then(|| Ok(Frame::data(part))))
    }
}

async fn streams(endpoint: Endpoint<wtransport::endpoint::endpoint_side::Server>) {
    loop {
        tokio::spawn(session(endpoint.accept().await));
    }
}

async fn session(incoming: IncomingSession) -> Result<(), Failure> {
    let connection = incoming.await?.accept().await?;
    let (mut to, mut from) = connection.accept_bi().await?;
    let mut kind = [0];
    from.read_exact(&mut kind).await?;
    let mut block = vec![b'h'; BLOCK];
    if &kind == b"U" {
        while from.read(&mut block).await?.is_some() {}
        to.write_all(b"!").await?;
    } else {
        let mut left = from.read_u64_le().await?;
        while left > 0 {
            let part = block.len().min(usize::try_from(left)?);
            to.write_all(&block[..part]).await?;
            left -= part as u64;
        }
        to.flush().await?;
    }
    to.finish().await?;
    connection.closed().await;
    Ok(())
}
