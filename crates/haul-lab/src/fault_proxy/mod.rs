//! Fault proxy: forwards connections between clients and a server, and injects faults at given
//! bytes.

mod fault;

pub use fault::{Direction, FaultError, FaultKind, InjectedFault, Scope, flips};

use parking_lot::{Mutex, MutexGuard};
use rustix::net::sockopt::set_socket_linger;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Maximum number of bytes forwarded at once.
const BLOCK_BYTES: usize = 64 << 10;

/// Maximum number of recorded bytes towards the server, enough for the beginning of any session.
const RECORDED_BYTES_MAX: usize = 1 << 20;

/// A running proxy, which runs until its process ends.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Faults that have not occurred yet.
    faults: Mutex<Vec<InjectedFault>>,
    /// Number of bytes of all connections so far, per direction.
    passed: [AtomicU64; 2],
    injected: AtomicU64,
    bytes_to_server: Mutex<Vec<u8>>,
}

/// One direction of one connection.
struct Stream {
    connection: usize,
    direction: Direction,
    from: TcpStream,
    to: TcpStream,
    /// True after the connection was reset: neither direction forwards any more bytes.
    is_reset: Arc<AtomicBool>,
}

impl FaultProxy {
    /// Starts a proxy for `server` at a free port of this host.
    ///
    /// # Errors
    /// Returns the error of binding the port.
    pub fn to(server: SocketAddr, faults: Vec<InjectedFault>) -> io::Result<FaultProxy> {
        FaultProxy::between(TcpListener::bind("127.0.0.1:0")?, server, faults)
    }

    /// Forwards connections from `listener` to `server` with the faults of `faults`. If the server
    /// cannot be reached, closes the client's connection at once.
    ///
    /// # Errors
    /// Returns an error if the address of `listener` cannot be read.
    pub fn between(
        listener: TcpListener,
        server: SocketAddr,
        faults: Vec<InjectedFault>,
    ) -> io::Result<FaultProxy> {
        let shared = Arc::new(Shared {
            faults: Mutex::new(faults),
            passed: [const { AtomicU64::new(0) }; 2],
            injected: AtomicU64::new(0),
            bytes_to_server: Mutex::default(),
        });
        let line = FaultProxy { address: listener.local_addr()?, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for (connection, client) in listener.incoming().map_while(Result::ok).enumerate() {
                // The client detects a failure at its own end.
                let _ = TcpStream::connect(server).and_then(|server| shared.join(connection, client, server));
            }
        });
        Ok(line)
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Injects a fault at the byte that is `ahead` bytes from now in one direction, on any
    /// connection.
    pub fn inject_ahead(&self, direction: Direction, ahead: u64, kind: FaultKind) {
        let at = self.shared.passed[direction.index()].load(Ordering::SeqCst) + ahead;
        self.shared.faults().push(InjectedFault { scope: Scope::All, direction, at, kind });
    }

    /// Returns the number of faults that occurred.
    pub fn injected(&self) -> u64 {
        self.shared.injected.load(Ordering::SeqCst)
    }

    /// Returns the bytes that clients have sent so far, at most the first mebibyte.
    pub fn bytes_to_server(&self) -> Vec<u8> {
        self.shared.bytes_to_server.lock().clone()
    }
}

impl Shared {
    fn join(self: &Arc<Self>, connection: usize, client: TcpStream, server: TcpStream) -> io::Result<()> {
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        let is_reset = Arc::new(AtomicBool::new(false));
        let (client_too, server_too) = (client.try_clone()?, server.try_clone()?);
        let there = Stream {
            connection,
            direction: Direction::ToServer,
            from: client,
            to: server,
            is_reset: is_reset.clone(),
        };
        let back =
            Stream { connection, direction: Direction::ToClient, from: server_too, to: client_too, is_reset };
        for stream in [there, back] {
            let shared = Arc::clone(self);
            thread::spawn(move || shared.pass(stream));
        }
        Ok(())
    }

    fn pass(&self, mut stream: Stream) {
        let mut block = vec![0; BLOCK_BYTES];
        let mut own = 0;
        while let Ok(read @ 1..) = stream.from.read(&mut block) {
            let block = &mut block[..read];
            if stream.direction == Direction::ToServer {
                self.record(block);
            }
            let all = self.passed[stream.direction.index()].fetch_add(read as u64, Ordering::SeqCst);
            for (at, kind) in self.due(&stream, own, all, read as u64) {
                match kind {
                    FaultKind::Flip => block[at] ^= 0x10,
                    FaultKind::Stall(time) => thread::sleep(time),
                    FaultKind::Reset => stream.tear(),
                    FaultKind::Cut | FaultKind::End => {
                        // The bytes before the fault still arrive, if possible.
                        let _ = stream.to.write_all(&block[..at]);
                        return stream.end(kind);
                    }
                }
            }
            if stream.is_reset.load(Ordering::SeqCst) {
                return;
            }
            if stream.to.write_all(block).is_err() {
                return stream.end(FaultKind::Cut);
            }
            own += read as u64;
        }
        if !stream.is_reset.load(Ordering::SeqCst) {
            stream.end(FaultKind::End);
        }
    }

    /// Removes and returns the faults of a direction's next bytes in order, each with its offset
    /// among these bytes.
    fn due(&self, stream: &Stream, own: u64, all: u64, len: u64) -> Vec<(usize, FaultKind)> {
        let mut due = Vec::new();
        self.faults().retain(|fault| {
            let begin = match fault.scope {
                Scope::Connection(number) if number == stream.connection => Some(own),
                Scope::Connection(_) => None,
                Scope::All => Some(all),
            };
            let begin = begin.filter(|_| fault.direction == stream.direction);
            let within = begin.and_then(|begin| fault.at.checked_sub(begin)).filter(|at| *at < len);
            due.extend(within.map(|at| (at as usize, fault.kind)));
            within.is_none()
        });
        due.sort_by_key(|(at, _)| *at);
        self.injected.fetch_add(due.len() as u64, Ordering::SeqCst);
        due
    }

    fn record(&self, block: &[u8]) {
        let mut bytes_to_server = self.bytes_to_server.lock();
        let room = RECORDED_BYTES_MAX - bytes_to_server.len();
        bytes_to_server.extend_from_slice(&block[..block.len().min(room)]);
    }

    fn faults(&self) -> MutexGuard<'_, Vec<InjectedFault>> {
        self.faults.lock()
    }
}

impl Stream {
    /// Ends this direction or both. Errors are ignored, because a peer that has closed needs no
    /// notice.
    fn end(&self, kind: FaultKind) {
        if kind == FaultKind::End {
            let _ = self.to.shutdown(Shutdown::Write);
            return;
        }
        for end in [&self.from, &self.to] {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Makes both ends see a reset. It is sent after the thread of the other direction, which this
    /// wakes, has closed its sockets too.
    fn tear(&self) {
        self.is_reset.store(true, Ordering::SeqCst);
        for end in [&self.from, &self.to] {
            let _ = set_socket_linger(end, Some(Duration::ZERO));
            let _ = end.shutdown(Shutdown::Read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that come back from an echo server through a proxy.
    fn echoed(bytes: &[u8], faults: Vec<InjectedFault>) -> (Vec<u8>, FaultProxy) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let line = FaultProxy::to(listener.local_addr().expect("an address"), faults).expect("a line");
        let server = thread::spawn(move || {
            let mut got = Vec::new();
            if let Ok((mut stream, _)) = listener.accept() {
                // A reset shows as missing bytes.
                let _ = stream.read_to_end(&mut got);
                let _ = stream.write_all(&got);
            }
        });
        let mut client = TcpStream::connect(line.address()).expect("connects");
        let _ = client.write_all(bytes);
        let _ = client.shutdown(Shutdown::Write);
        let mut back = Vec::new();
        let _ = client.read_to_end(&mut back);
        server.join().expect("no panic");
        (back, line)
    }

    fn fault(scope: Scope, direction: Direction, at: u64, kind: FaultKind) -> Vec<InjectedFault> {
        vec![InjectedFault { scope, direction, at, kind }]
    }

    #[test]
    fn connection_without_faults_is_unchanged() {
        let bytes = vec![7; 200_000];
        let (back, line) = echoed(&bytes, Vec::new());
        assert_eq!((back, line.injected()), (bytes.clone(), 0));
        assert_eq!(line.bytes_to_server(), bytes);
    }

    #[test]
    fn only_the_chosen_byte_is_flipped() {
        for scope in [Scope::All, Scope::Connection(0)] {
            for direction in [Direction::ToServer, Direction::ToClient] {
                let (back, line) = echoed(&[7; 100_000], fault(scope, direction, 70_000, FaultKind::Flip));
                let bent: Vec<usize> = (0..back.len()).filter(|at| back[*at] != 7).collect();
                assert_eq!((bent, back.len(), line.injected()), (vec![70_000], 100_000, 1));
            }
        }
        let (back, line) =
            echoed(&[7; 1000], fault(Scope::Connection(1), Direction::ToServer, 70, FaultKind::Flip));
        assert_eq!((back, line.injected()), (vec![7; 1000], 0));
    }

    #[test]
    fn ended_or_cut_stream_arrives_up_to_the_fault() {
        let (back, _) = echoed(&[7; 100_000], fault(Scope::All, Direction::ToServer, 66_000, FaultKind::End));
        assert_eq!(back, vec![7; 66_000]);
        for kind in [FaultKind::Cut, FaultKind::Reset] {
            let (back, line) = echoed(&[7; 100_000], fault(Scope::All, Direction::ToClient, 66_000, kind));
            assert!(back.len() <= 66_000, "{kind:?}: {}", back.len());
            assert_eq!(line.injected(), 1);
        }
    }
}
