//! Measures one lane over the loopback interface beside the bare parts it is made of, in turn, one
//! thread a side:
//! `cargo run --release -p haul-net --example lane [MIB [ROUNDS]]`.

use haul_net::{
    DialSettings, Dialer, Encryption, Grant, Identity, ListenSettings, Listener, Role, StreamLane, Ticket,
    TicketTable, Uses,
};
use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::error::Error;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

/// What is written at once, and what is read at once.
const WRITE_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 256 << 10;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let bytes = args.next().transpose()?.unwrap_or(1024) << 20;
    let rounds = args.next().transpose()?.unwrap_or(3);
    println!("{:24} {:>8}  CPU s/GiB: sender receiver", "one thread a side", "Gbit/s");
    for _ in 0..rounds {
        show("bare TCP", bytes, bare_tcp(bytes)?);
        show("lane without encryption", bytes, lane(bytes, Encryption::Plain)?);
        show("bare rustls", bytes, bare_rustls(bytes)?);
        show("lane with TLS", bytes, lane(bytes, Encryption::Tls)?);
    }
    Ok(())
}

/// Wall time, and the processor time of each side.
type PartTime = (Duration, Duration, Duration);

fn show(name: &str, bytes: usize, (wall, sender, receiver): PartTime) {
    let gib = bytes as f64 / f64::from(1 << 30);
    let rate = bytes as f64 * 8.0 / wall.as_secs_f64() / 1e9;
    let (sender, receiver) = (sender.as_secs_f64() / gib, receiver.as_secs_f64() / gib);
    println!("{name:24} {rate:8.2}             {sender:.3}    {receiver:.3}");
}

fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Runs both sides and takes their times.
fn both(
    send: impl FnOnce() -> Result<(), Failure> + Send,
    receive: impl FnOnce() -> Result<(), Failure> + Send,
) -> Result<PartTime, Failure> {
    let timed = |work: Box<dyn FnOnce() -> Result<(), Failure> + Send + '_>| {
        let before = processor_time();
        work()?;
        Ok::<_, Failure>(processor_time() - before)
    };
    let begin = Instant::now();
    let (sent, received) = thread::scope(|scope| {
        let sender = scope.spawn(|| timed(Box::new(send)));
        let receiver = scope.spawn(|| timed(Box::new(receive)));
        (sender.join(), receiver.join())
    });
    let wall = begin.elapsed();
    let panicked = |_| "a side panicked";
    Ok((wall, sent.map_err(panicked)??, received.map_err(panicked)??))
}

fn tcp_pair() -> Result<(TcpStream, TcpStream), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

fn send_all(sink: &mut impl Write, mut bytes: usize) -> Result<(), Failure> {
    let block = vec![7; WRITE_BYTES];
    while bytes > 0 {
        let piece = bytes.min(block.len());
        sink.write_all(&block[..piece])?;
        bytes -= piece;
    }
    Ok(sink.flush()?)
}

fn receive_all(source: &mut impl Read, mut bytes: usize) -> Result<(), Failure> {
    let mut block = vec![0; READ_BYTES];
    while bytes > 0 {
        bytes -= match source.read(&mut block)? {
            0 => return Err("it ended early".into()),
            read => read,
        };
    }
    Ok(())
}

fn bare_tcp(bytes: usize) -> Result<PartTime, Failure> {
    let (mut near, mut far) = tcp_pair()?;
    both(|| send_all(&mut near, bytes), || receive_all(&mut far, bytes))
}

/// Encrypted bytes are read through a buffer, as rustls asks for at most a record at a time.
struct Buffered(BufReader<TcpStream>);

impl Read for Buffered {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Buffered {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn write_vectored(&mut self, slices: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
        self.0.get_mut().write_vectored(slices)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// rustls by its own means, with the cipher that the lane takes.
fn bare_rustls(bytes: usize) -> Result<PartTime, Failure> {
    let identity = Identity::generate()?;
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites = vec![rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let provider = Arc::new(provider);
    let certificate = identity.certificate_der().to_vec();
    let key = PrivatePkcs8KeyDer::from(identity.key_der().to_vec());
    let server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone().into()], key.into())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.into())?;
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (near, far) = tcp_pair()?;
    let connection = ClientConnection::new(Arc::new(client), ServerName::try_from("haul.invalid")?)?;
    let buffered = |stream| Buffered(BufReader::with_capacity(READ_BYTES, stream));
    let mut near = StreamOwned::new(connection, buffered(near));
    let mut far = StreamOwned::new(ServerConnection::new(Arc::new(server))?, buffered(far));
    thread::scope(|scope| {
        let near = scope.spawn(|| near.conn.complete_io(&mut near.sock));
        far.conn.complete_io(&mut far.sock)?;
        near.join().map_err(|_| "the client panicked")??;
        Ok::<_, Failure>(())
    })?;
    both(|| send_all(&mut near, bytes), || receive_all(&mut far, bytes))
}

fn lane(bytes: usize, encryption: Encryption) -> Result<PartTime, Failure> {
    let identity = match encryption {
        Encryption::Tls => Some(Identity::generate()?),
        Encryption::Plain => None,
    };
    let tickets = Arc::new(TicketTable::default());
    let address = ["127.0.0.1:0".parse()?];
    let settings = ListenSettings::default();
    let listener = Listener::start(&address, identity.as_ref(), tickets.clone(), settings, |_| ())?;
    let grant = Grant { role: Role::Both, uses: Uses::Once, expires: None };
    let fingerprint = identity.as_ref().map(Identity::fingerprint);
    let ticket = Ticket::issue(grant, vec![listener.local_addresses()[0].into()], fingerprint)?;
    tickets.insert(ticket.clone());
    let dialer = Dialer::new(ticket, DialSettings { encryption, ..DialSettings::default() })?;
    let mut near = dialer.lane(0)?;
    let session = listener.next_session().ok_or("no session")?;
    let (_, far) = session.next_lane(Duration::from_secs(10)).ok_or("no lane")?;
    both(|| send_by_lane(&mut near, bytes), || receive_by_lane(far, bytes))
}

fn send_by_lane(lane: &mut StreamLane, mut bytes: usize) -> Result<(), Failure> {
    let block = vec![7; WRITE_BYTES];
    while bytes > 0 {
        let piece = bytes.min(block.len());
        lane.write_all(&block[..piece])?;
        bytes -= piece;
    }
    Ok(())
}

fn receive_by_lane(lane: StreamLane, mut bytes: usize) -> Result<(), Failure> {
    let (mut reader, _writer) = lane.split();
    let mut block = vec![0; READ_BYTES];
    while bytes > 0 {
        bytes -= match reader.read_some(&mut block)? {
            0 => return Err("it ended early".into()),
            read => read,
        };
    }
    Ok(())
}
