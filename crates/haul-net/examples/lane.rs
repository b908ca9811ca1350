//! Measures one lane over the loopback interface beside the bare parts it is made of, in turn, one
//! thread a side:
//! `cargo run --release -p haul-net --example lane [MIB [ROUNDS]]`.

use haul_net::{
    Congestion, DialSettings, Dialer, Encryption, Grant, Identity, ListenSettings, Listener, Role,
    StreamLane, Ticket, TicketTable, UdpSettings, Uses, quinn_controllers,
};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{
    AckFrequencyConfig, AsyncUdpSocket, EndpointConfig, MtuDiscoveryConfig, Runtime as _, TokioRuntime,
    TransportConfig, UdpPoller, VarInt,
};
use rustix::net::sockopt;
use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::error::Error;
use std::io::{self, BufReader, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

/// What is written at once, and what is read at once.
const WRITE_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 256 << 10;

/// Buffer of each UDP socket of quinn, as a lane over QUIC requests it.
const SOCKET_BYTES: usize = 4 << 20;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let bytes = args.next().transpose()?.unwrap_or(1024) << 20;
    let rounds = args.next().transpose()?.unwrap_or(3);
    println!("{:24} {:>8}  CPU s/GiB: sender receiver", "one thread a side", "Gbit/s");
    for _ in 0..rounds {
        show("bare TCP", bytes, bare_tcp(bytes)?);
        show("lane without encryption", bytes, lane(bytes, Encryption::Plain, None)?);
        show("bare rustls", bytes, bare_rustls(bytes)?);
        show("lane with TLS", bytes, lane(bytes, Encryption::Tls, None)?);
        for congestion in Congestion::ALL {
            let name = congestion.name();
            show(&format!("bare quinn, {name}"), bytes, bare_quinn(bytes, congestion)?);
            show(&format!("lane over QUIC, {name}"), bytes, lane(bytes, Encryption::Tls, Some(congestion))?);
        }
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

/// TLS by the means of rustls, with the cipher that the lane takes and this protocol.
fn tls_by_rustls(protocol: &[u8]) -> Result<(rustls::ClientConfig, rustls::ServerConfig), Failure> {
    let identity = Identity::generate()?;
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites = vec![rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    let provider = Arc::new(provider);
    let mut server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate()], identity.key())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity.certificate())?;
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![protocol.to_vec()];
    server.alpn_protocols = vec![protocol.to_vec()];
    Ok((client, server))
}

/// rustls by its own means, with the cipher that the lane takes.
fn bare_rustls(bytes: usize) -> Result<PartTime, Failure> {
    let (client, server) = tls_by_rustls(b"bare")?;
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

/// The settings of a lane over QUIC.
fn transport(congestion: Congestion) -> Arc<TransportConfig> {
    let (mut ack_frequency, mut discovery) = (AckFrequencyConfig::default(), MtuDiscoveryConfig::default());
    ack_frequency.ack_eliciting_threshold(VarInt::from_u32(20));
    discovery.upper_bound(8972);
    let mut transport = TransportConfig::default();
    transport
        .initial_rtt(Duration::from_millis(20))
        .stream_receive_window(VarInt::from_u32(4 << 20))
        .receive_window(VarInt::MAX)
        .send_window(4 << 20)
        .ack_frequency_config(Some(ack_frequency))
        .mtu_discovery_config(Some(discovery));
    match congestion {
        Congestion::Bbr => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
        Congestion::Cubic => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
        Congestion::Haul => transport.congestion_controller_factory(quinn_controllers()),
    };
    Arc::new(transport)
}

/// A socket that segments no more than Linux does. By itself, quinn passes ten datagrams at once,
/// which are too many of the largest.
#[derive(Debug)]
struct Capped(Arc<dyn AsyncUdpSocket>);

impl AsyncUdpSocket for Capped {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.0.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.try_send(transmit)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(context, into, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments().min(65_000 / 8972)
    }

    fn max_receive_segments(&self) -> usize {
        self.0.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}

/// quinn by its own means: a runtime in one thread a side, which drives the socket too.
fn bare_quinn(bytes: usize, congestion: Congestion) -> Result<PartTime, Failure> {
    let (client, server) = tls_by_rustls(b"bare")?;
    let mut accepts = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server)?));
    accepts.transport_config(transport(congestion));
    let mut connects = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(client)?));
    connects.transport_config(transport(congestion));
    let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    for socket in [&near, &far] {
        sockopt::set_socket_recv_buffer_size(socket, SOCKET_BYTES)?;
        sockopt::set_socket_send_buffer_size(socket, SOCKET_BYTES)?;
    }
    let to = far.local_addr()?;
    let endpoint = |accepts, socket| {
        let mut config = EndpointConfig::default();
        config.max_udp_payload_size(9000).expect("it exceeds the minimum");
        let socket = Arc::new(Capped(TokioRuntime.wrap_udp_socket(socket)?));
        quinn::Endpoint::new_with_abstract_socket(config, accepts, socket, Arc::new(TokioRuntime))
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let send = || {
        runtime()?.block_on(async {
            let endpoint = endpoint(None, near)?;
            let connection = endpoint.connect_with(connects, to, "haul.invalid")?.await?;
            let (mut sink, _) = connection.open_bi().await?;
            let (block, mut left) = (vec![7; WRITE_BYTES], bytes);
            while left > 0 {
                let piece = left.min(block.len());
                sink.write_all(&block[..piece]).await?;
                left -= piece;
            }
            sink.finish()?;
            sink.stopped().await?;
            connection.close(VarInt::from_u32(0), b"");
            // The other end waits for the close, which a task of the runtime sends.
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(())
        })
    };
    let receive = || {
        runtime()?.block_on(async {
            let endpoint = endpoint(Some(accepts), far)?;
            let connection = endpoint.accept().await.ok_or("no connection")?.await?;
            let (_sink, mut source) = connection.accept_bi().await?;
            let (mut block, mut left) = (vec![0; READ_BYTES], bytes);
            while left > 0 {
                left -= source.read(&mut block).await?.ok_or("it ended early")?;
            }
            connection.closed().await;
            Ok(())
        })
    };
    both(send, receive)
}

fn lane(bytes: usize, encryption: Encryption, quic: Option<Congestion>) -> Result<PartTime, Failure> {
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
    let udp = quic.map(|quic| UdpSettings { quic: Some(quic), ..UdpSettings::default() });
    let dialer = Dialer::new(ticket, DialSettings { encryption, udp, ..DialSettings::default() })?;
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
