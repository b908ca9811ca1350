//! A client of the web server: requests by HTTP/1.1, and lanes over them.
//!
//! It takes the place of a browser: it keeps the token, and sends it and Origin unless a test
//! changes them. It accepts any certificate, as a user does who confirms a warning.

use haul_net::StreamLane;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Maximum size of one upload of a lane.
const UPLOAD_BYTES: usize = 1 << 20;

/// Time after which a read fails, so that a test never hangs.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Connection to the server.
pub type Connection = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// A browser that uses one server.
#[derive(Debug)]
pub struct Browser {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    /// Certificate of the server (DER), once a connection has been made.
    certificate: Arc<Mutex<Vec<u8>>>,
    token: Mutex<Option<String>>,
    idle: Mutex<Vec<Connection>>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Names in small letters, and values.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the first value of a header; `name` is in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the JSON value of the body.
    ///
    /// # Panics
    /// Panics if the body is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Browser {
    /// Returns a browser that has not signed in, for the server at `address`.
    ///
    /// # Panics
    /// Panics if TLS cannot be set up.
    pub fn new(address: SocketAddr) -> Browser {
        let certificate = Arc::<Mutex<Vec<u8>>>::default();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3 is there")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(certificate.clone())))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (token, idle) = Default::default();
        Browser { address, tls: Arc::new(tls), certificate, token, idle }
    }

    /// Returns a browser for the link that a server printed, which has signed in with its code.
    ///
    /// # Panics
    /// Panics if the link has another form or its code is refused.
    #[track_caller]
    pub fn signed_in(link: &str) -> Browser {
        let (address, code) = parse_link(link);
        let browser = Browser::new(address);
        let answer = browser.sign_in(code);
        assert_eq!(answer.status, 200, "{answer:?}");
        browser
    }

    /// Signs in with a code. Keeps the token of the session if the code is accepted.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    pub fn sign_in(&self, code: &str) -> Response {
        let answer = self.send("POST", "/session", &[], format!("{{\"code\":{code:?}}}").as_bytes());
        if answer.status == 200 {
            *lock(&self.token) = answer.json()["token"].as_str().map(str::to_owned);
        }
        answer
    }

    /// Returns the host with the port, as in a URL.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns the certificate of the server (DER); empty before the first connection.
    pub fn certificate(&self) -> Vec<u8> {
        lock(&self.certificate).clone()
    }

    /// Sends a request with the headers of a browser.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    pub fn send(&self, method: &str, path: &str, more: &[(&str, &str)], body: &[u8]) -> Response {
        self.try_send(method, path, more, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Sends a request with a JSON body.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    pub fn post(&self, path: &str, body: &str) -> Response {
        self.send("POST", path, &[("content-type", "application/json")], body.as_bytes())
    }

    /// Sends a request without a body.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
    }

    /// Same as [`send`](Self::send), for a server that may be gone. A header in `more` replaces the
    /// one of the browser; an empty value removes it.
    ///
    /// # Errors
    /// Returns the error of the connection.
    pub fn try_send(
        &self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let text = self.head(method, path, more, body.len());
        let idle = lock(&self.idle).pop();
        let reused = idle.map(|mut connection| {
            exchange(&mut connection, method, &text, body).map(|answer| (connection, answer))
        });
        let (connection, answer) = match reused {
            Some(Ok(done)) => done,
            // The server may have closed an idle connection, so a new one decides.
            Some(Err(_)) | None => {
                let mut connection = self.connect()?;
                let answer = exchange(&mut connection, method, &text, body)?;
                (connection, answer)
            }
        };
        if answer.header("connection") != Some("close") {
            lock(&self.idle).push(connection);
        }
        Ok(answer)
    }

    /// Returns the lines of a request before its body.
    pub fn head(&self, method: &str, path: &str, more: &[(&str, &str)], len: usize) -> String {
        let host = self.host();
        let mut headers =
            vec![("host".to_owned(), host.clone()), ("content-length".to_owned(), len.to_string())];
        headers.extend(lock(&self.token).clone().map(|token| ("x-haul-token".to_owned(), token)));
        if method != "GET" {
            headers.push(("origin".to_owned(), format!("https://{host}")));
        }
        for (name, value) in more {
            headers.retain(|(known, _)| known != name);
            if !value.is_empty() {
                headers.push(((*name).to_owned(), (*value).to_owned()));
            }
        }
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("{method} {path} HTTP/1.1\r\n{lines}\r\n")
    }

    /// Returns the TLS settings for a connection with this protocol of ALPN.
    pub fn tls(&self, protocol: &[u8]) -> ClientConfig {
        let mut tls = (*self.tls).clone();
        tls.alpn_protocols = vec![protocol.to_vec()];
        tls
    }

    /// Returns the token of the session.
    ///
    /// # Panics
    /// Panics if the browser has not signed in.
    #[track_caller]
    pub fn token(&self) -> String {
        lock(&self.token).clone().expect("signed in")
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Returns the error of the connection.
    pub fn connect(&self) -> io::Result<Connection> {
        self.connect_over(TcpStream::connect(self.address)?)
    }

    /// Same as [`connect`](Self::connect), over a connection that the caller has opened.
    ///
    /// # Errors
    /// Returns the error of the connection.
    pub fn connect_over(&self, stream: TcpStream) -> io::Result<Connection> {
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let connection = ClientConnection::new(self.tls.clone(), name).map_err(io::Error::other)?;
        Ok(BufReader::new(StreamOwned::new(connection, stream)))
    }

    /// Opens a lane with this JSON request, and pumps it in two threads. The result is the client's
    /// end. With `cut_after`, the lane is aborted after that number of uploads.
    ///
    /// # Errors
    /// Returns the answer of the server, or the error of the connection.
    pub fn lane(self: &Arc<Self>, request: &str, cut_after: Option<u64>) -> io::Result<StreamLane> {
        let answer =
            self.try_send("POST", "/lane", &[("content-type", "application/json")], request.as_bytes())?;
        if answer.status != 201 {
            return Err(io::Error::other(format!("the lane is refused: {answer:?}")));
        }
        let id = answer.json()["lane"].as_str().unwrap_or_default().to_owned();
        let (from_client, to_server) = pipe()?;
        let (from_server, to_client) = pipe()?;
        let (browser, lane) = (self.clone(), id.clone());
        thread::spawn(move || {
            if browser.upload(&lane, from_client, cut_after).is_err() {
                // The lane may be gone already.
                let _ = browser.try_send("DELETE", &format!("/lane/{lane}"), &[], b"");
            }
        });
        let browser = self.clone();
        thread::spawn(move || {
            // An error ends the lane: the client finds the end of the pipe.
            let _ = browser.download(&id, to_client);
            let _ = browser.try_send("DELETE", &format!("/lane/{id}"), &[], b"");
        });
        StreamLane::over_pipes(from_server.into(), to_server.into(), Some(READ_TIMEOUT))
    }

    fn upload(&self, lane: &str, mut from: PipeReader, cut_after: Option<u64>) -> io::Result<()> {
        let mut buffer = vec![0; UPLOAD_BYTES];
        for number in 0_u64.. {
            if cut_after.is_some_and(|uploads| number >= uploads) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let read = from.read(&mut buffer)?;
            let ends: &[_] = if read == 0 { &[("x-haul-end", "1")] } else { &[] };
            let path = format!("/lane/{lane}/{number}");
            let mut answer = self.try_send("PUT", &path, ends, &buffer[..read])?;
            while answer.status == 503 {
                answer = self.try_send("PUT", &path, ends, &buffer[..read])?;
            }
            if answer.status != 204 {
                return Err(io::Error::other(format!("upload {number} is refused: {answer:?}")));
            }
            if read == 0 {
                break;
            }
        }
        Ok(())
    }

    fn download(&self, lane: &str, mut to: PipeWriter) -> io::Result<()> {
        let mut number = 0_u64;
        loop {
            let answer = self.try_send("GET", &format!("/lane/{lane}/{number}"), &[], b"")?;
            match answer.status {
                200 => {
                    to.write_all(&answer.body)?;
                    number += 1;
                    if answer.header("x-haul-end").is_some() {
                        return Ok(());
                    }
                }
                204 => {}
                _ => return Err(io::Error::other(format!("piece {number} is refused: {answer:?}"))),
            }
        }
    }
}

/// Returns the address and the code of a link.
///
/// # Panics
/// Panics if the link has another form.
#[track_caller]
pub fn parse_link(link: &str) -> (SocketAddr, &str) {
    let parts = link.trim().strip_prefix("https://").and_then(|rest| rest.split_once("/#"));
    let (address, code) = parts.unwrap_or_else(|| panic!("'{link}' is not a link"));
    (address.parse().unwrap_or_else(|error| panic!("{link}: {error}")), code)
}

/// Sends a request and reads its response.
fn exchange(connection: &mut Connection, method: &str, head: &str, body: &[u8]) -> io::Result<Response> {
    let sent =
        connection.get_mut().write_all(head.as_bytes()).and_then(|()| connection.get_mut().write_all(body));
    let sent = sent.and_then(|()| connection.get_mut().flush());
    // A server that refuses a body may answer before it has received the whole body.
    read_response(connection, method).or_else(|error| sent.and(Err(error)))
}

/// Reads a response.
///
/// # Errors
/// Returns the error of the connection, or `InvalidData` if the bytes are not a response.
pub fn read_response(connection: &mut impl BufRead, method: &str) -> io::Result<Response> {
    let bad = |text: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not a response: {text:?}"));
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| bad(&line))?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        connection.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| bad(line))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut answer = Response { status, headers, body: Vec::new() };
    if method == "HEAD" || status == 304 {
        return Ok(answer);
    }
    if answer.header("transfer-encoding") == Some("chunked") {
        // RFC 9112 section 7.1: a line with the length, the bytes and the end of a line; the last
        // chunk is empty.
        loop {
            let mut line = String::new();
            connection.read_line(&mut line)?;
            let len = usize::from_str_radix(line.trim_end(), 16).map_err(|_| bad(&line))?;
            let at = answer.body.len();
            answer.body.resize(at + len + 2, 0);
            connection.read_exact(&mut answer.body[at..])?;
            answer.body.truncate(at + len);
            if len == 0 {
                return Ok(answer);
            }
        }
    }
    let len = answer.header("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    answer.body.resize(len, 0);
    connection.read_exact(&mut answer.body)?;
    Ok(answer)
}

/// Returns the SHA-256 of `bytes` as hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    haul_digest::digest(haul_digest::Algorithm::Sha256, bytes).to_string()
}

fn lock<T>(mutex: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.lock()
}

/// Accepts any certificate, and keeps it.
#[derive(Debug)]
struct Anyone(Arc<Mutex<Vec<u8>>>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *lock(&self.0) = certificate.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PSS_SHA256,
        ]
    }
}
