//! Fault proxy: forwards connections between clients and a server, and injects faults at given
//! bytes.

mod fate;

pub use fate::{Fate, FateError, Ill, Over, Way, flips};

use rustix::net::sockopt::set_socket_linger;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Maximum number of bytes forwarded at once.
const BLOCK_BYTES: usize = 64 << 10;

/// Maximum number of recorded bytes towards the server, enough for the beginning of any session.
const HEARD_BYTES_MAX: usize = 1 << 20;

/// A running proxy, which runs until its process ends.
#[derive(Debug)]
pub struct Line {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Faults that have not occurred yet.
    fates: Mutex<Vec<Fate>>,
    /// Number of bytes of all connections so far, per direction.
    passed: [AtomicU64; 2],
    befallen: AtomicU64,
    heard: Mutex<Vec<u8>>,
}

/// One direction of one connection.
struct Strand {
    connection: usize,
    way: Way,
    from: TcpStream,
    to: TcpStream,
    /// True after the connection was reset: neither direction forwards any more bytes.
    is_torn: Arc<AtomicBool>,
}

impl Line {
    /// Starts a proxy for `server` at a free port of this host.
    ///
    /// # Errors
    /// Returns the error of binding the port.
    pub fn to(server: SocketAddr, fates: Vec<Fate>) -> io::Result<Line> {
        Line::between(TcpListener::bind("127.0.0.1:0")?, server, fates)
    }

    /// Forwards connections from `listener` to `server` with the faults of `fates`. If the server
    /// cannot be reached, closes the client's connection at once.
    ///
    /// # Errors
    /// Returns an error if the address of `listener` cannot be read.
    pub fn between(listener: TcpListener, server: SocketAddr, fates: Vec<Fate>) -> io::Result<Line> {
        let shared = Arc::new(Shared {
            fates: Mutex::new(fates),
            passed: [const { AtomicU64::new(0) }; 2],
            befallen: AtomicU64::new(0),
            heard: Mutex::default(),
        });
        let line = Line { address: listener.local_addr()?, shared: Arc::clone(&shared) };
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
    pub fn befall_ahead(&self, way: Way, ahead: u64, ill: Ill) {
        let at = self.shared.passed[way.index()].load(Ordering::SeqCst) + ahead;
        self.shared.fates().push(Fate { over: Over::All, way, at, ill });
    }

    /// Returns the number of faults that occurred.
    pub fn befallen(&self) -> u64 {
        self.shared.befallen.load(Ordering::SeqCst)
    }

    /// Returns the bytes that clients have sent so far, at most the first mebibyte.
    pub fn heard(&self) -> Vec<u8> {
        self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    fn join(self: &Arc<Self>, connection: usize, client: TcpStream, server: TcpStream) -> io::Result<()> {
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        let is_torn = Arc::new(AtomicBool::new(false));
        let (client_too, server_too) = (client.try_clone()?, server.try_clone()?);
        let there =
            Strand { connection, way: Way::ToServer, from: client, to: server, is_torn: is_torn.clone() };
        let back = Strand { connection, way: Way::ToClient, from: server_too, to: client_too, is_torn };
        for strand in [there, back] {
            let shared = Arc::clone(self);
            thread::spawn(move || shared.pass(strand));
        }
        Ok(())
    }

    fn pass(&self, mut strand: Strand) {
        let mut block = vec![0; BLOCK_BYTES];
        let mut own = 0;
        while let Ok(read @ 1..) = strand.from.read(&mut block) {
            let block = &mut block[..read];
            if strand.way == Way::ToServer {
                self.hear(block);
            }
            let all = self.passed[strand.way.index()].fetch_add(read as u64, Ordering::SeqCst);
            for (at, ill) in self.due(&strand, own, all, read as u64) {
                match ill {
                    Ill::Flip => block[at] ^= 0x10,
                    Ill::Stall(time) => thread::sleep(time),
                    Ill::Reset => strand.tear(),
                    Ill::Cut | Ill::End => {
                        // The bytes before the fault still arrive, if possible.
                        let _ = strand.to.write_all(&block[..at]);
                        return strand.end(ill);
                    }
                }
            }
            if strand.is_torn.load(Ordering::SeqCst) {
                return;
            }
            if strand.to.write_all(block).is_err() {
                return strand.end(Ill::Cut);
            }
            own += read as u64;
        }
        if !strand.is_torn.load(Ordering::SeqCst) {
            strand.end(Ill::End);
        }
    }

    /// Removes and returns the faults of a direction's next bytes in order, each with its offset
    /// among these bytes.
    fn due(&self, strand: &Strand, own: u64, all: u64, len: u64) -> Vec<(usize, Ill)> {
        let mut due = Vec::new();
        self.fates().retain(|fate| {
            let begin = match fate.over {
                Over::Connection(number) if number == strand.connection => Some(own),
                Over::Connection(_) => None,
                Over::All => Some(all),
            };
            let begin = begin.filter(|_| fate.way == strand.way);
            let within = begin.and_then(|begin| fate.at.checked_sub(begin)).filter(|at| *at < len);
            due.extend(within.map(|at| (at as usize, fate.ill)));
            within.is_none()
        });
        due.sort_by_key(|(at, _)| *at);
        self.befallen.fetch_add(due.len() as u64, Ordering::SeqCst);
        due
    }

    fn hear(&self, block: &[u8]) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let room = HEARD_BYTES_MAX - heard.len();
        heard.extend_from_slice(&block[..block.len().min(room)]);
    }

    fn fates(&self) -> MutexGuard<'_, Vec<Fate>> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Strand {
    /// Ends this direction or both. Errors are ignored, because a peer that has closed needs no
    /// notice.
    fn end(&self, ill: Ill) {
        if ill == Ill::End {
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
        self.is_torn.store(true, Ordering::SeqCst);
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
    fn echoed(bytes: &[u8], fates: Vec<Fate>) -> (Vec<u8>, Line) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let line = Line::to(listener.local_addr().expect("an address"), fates).expect("a line");
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

    fn fate(over: Over, way: Way, at: u64, ill: Ill) -> Vec<Fate> {
        vec![Fate { over, way, at, ill }]
    }

    #[test]
    fn a_line_without_fates_changes_nothing() {
        let bytes = vec![7; 200_000];
        let (back, line) = echoed(&bytes, Vec::new());
        assert_eq!((back, line.befallen()), (bytes.clone(), 0));
        assert_eq!(line.heard(), bytes);
    }

    #[test]
    fn the_byte_that_was_chosen_is_bent_and_no_other() {
        for over in [Over::All, Over::Connection(0)] {
            for way in [Way::ToServer, Way::ToClient] {
                let (back, line) = echoed(&[7; 100_000], fate(over, way, 70_000, Ill::Flip));
                let bent: Vec<usize> = (0..back.len()).filter(|at| back[*at] != 7).collect();
                assert_eq!((bent, back.len(), line.befallen()), (vec![70_000], 100_000, 1));
            }
        }
        let (back, line) = echoed(&[7; 1000], fate(Over::Connection(1), Way::ToServer, 70, Ill::Flip));
        assert_eq!((back, line.befallen()), (vec![7; 1000], 0));
    }

    #[test]
    fn what_is_ended_or_cut_arrives_up_to_there() {
        let (back, _) = echoed(&[7; 100_000], fate(Over::All, Way::ToServer, 66_000, Ill::End));
        assert_eq!(back, vec![7; 66_000]);
        for ill in [Ill::Cut, Ill::Reset] {
            let (back, line) = echoed(&[7; 100_000], fate(Over::All, Way::ToClient, 66_000, ill));
            assert!(back.len() <= 66_000, "{ill:?}: {}", back.len());
            assert_eq!(line.befallen(), 1);
        }
    }
}
