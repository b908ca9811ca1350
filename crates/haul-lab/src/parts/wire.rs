//! One connection over the loopback interface that uses only the system and rustls. Each end has
//! one thread. The sender writes pieces of 64 KiB; the receiver reads through a buffer of 256 KiB.

use super::{PartError, PartTime, timed};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

const WRITE_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 256 << 10;

/// Name in the certificate, which belongs to no host.
const NAME: &str = "part.invalid";

/// Encryption of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// No encryption.
    Plain,
    /// TLS 1.3 with AES-128-GCM.
    Tls,
}

/// Measures the time to send `bytes` bytes through one connection, without the handshake.
pub(super) fn measure(bytes: u64, encryption: Encryption) -> Result<PartTime, PartError> {
    let (near, far) = pair()?;
    let ((), took) = match encryption {
        Encryption::Plain => timed(|| both(near, far, bytes))?,
        Encryption::Tls => {
            let (near, far) = encrypt(near, far)?;
            timed(|| both(near, far, bytes))?
        }
    };
    Ok(took)
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

fn both(near: impl Write + Send, far: impl Read + Send, bytes: u64) -> Result<(), PartError> {
    let (sent, received) = thread::scope(|scope| {
        let sender = scope.spawn(|| send(near, bytes));
        let receiver = scope.spawn(|| receive(far, bytes));
        (sender.join(), receiver.join())
    });
    for ended in [sent, received] {
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    Ok(())
}

fn send(mut sink: impl Write, bytes: u64) -> io::Result<()> {
    let block = vec![7; WRITE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let piece = usize::try_from(left).unwrap_or(WRITE_BYTES).min(WRITE_BYTES);
        sink.write_all(&block[..piece])?;
        left -= piece as u64;
    }
    sink.flush()
}

fn receive(mut source: impl Read, bytes: u64) -> io::Result<()> {
    let mut block = vec![0; READ_BYTES];
    let mut left = bytes;
    while left > 0 {
        match source.read(&mut block)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left = left.saturating_sub(read as u64),
        }
    }
    Ok(())
}

/// Buffered reader: rustls requests one record at a time, and one read call fetches many records.
struct Buffered(BufReader<TcpStream>);

impl Read for Buffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Buffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.get_mut().write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Near = StreamOwned<ClientConnection, Buffered>;
type Far = StreamOwned<ServerConnection, Buffered>;

fn encrypt(near: TcpStream, far: TcpStream) -> Result<(Near, Far), PartError> {
    let (client, server) = configs()?;
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    let buffered = |stream| Buffered(BufReader::with_capacity(READ_BYTES, stream));
    let mut near = StreamOwned::new(ClientConnection::new(Arc::new(client), name)?, buffered(near));
    let mut far = StreamOwned::new(ServerConnection::new(Arc::new(server))?, buffered(far));
    thread::scope(|scope| {
        let client = scope.spawn(|| near.conn.complete_io(&mut near.sock));
        far.conn.complete_io(&mut far.sock)?;
        client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok((near, far))
}

fn configs() -> Result<(ClientConfig, ServerConfig), PartError> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let provider = Arc::new(provider);
    let versions = [&rustls::version::TLS13];
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())?;
    // The sender reads nothing. If unread tickets were in its socket on close, the kernel would
    // send a reset instead of the end.
    server.send_tls13_tickets = 0;
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((client, server))
}
