//! A proxy that passes bytes on until it is told to do worse.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

/// Stands between clients and a server, and does one thing at one byte of one way.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    rules: Arc<Rules>,
}

struct Rules {
    server: SocketAddr,
    /// A bit of this byte to the client is flipped; counted from the connection's beginning.
    flip: AtomicU64,
    /// The connection ends, as if the sender had closed it, before this byte to the client.
    cut: AtomicU64,
    /// Everything a client sent.
    heard: Mutex<Vec<u8>>,
    /// Bytes passed to the client.
    passed: AtomicU64,
}

impl Proxy {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let never = || AtomicU64::new(u64::MAX);
        let heard = Mutex::default();
        let rules = Arc::new(Rules { server, flip: never(), cut: never(), heard, passed: AtomicU64::new(0) });
        let shared = rules.clone();
        // Ends with the test's process; each of its threads ends with its connection.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(shared.server) else { return };
                for way in [Way::ToServer, Way::ToClient] {
                    let (client, server) =
                        (client.try_clone().expect("a copy"), server.try_clone().expect("a copy"));
                    let rules = shared.clone();
                    thread::spawn(move || match way {
                        Way::ToServer => rules.pass(client, server, way),
                        Way::ToClient => rules.pass(server, client, way),
                    });
                }
            }
        });
        Self { address, rules }
    }

    /// Flips a bit `ahead` bytes from now on the way to the client.
    pub(crate) fn flip_ahead(&self, ahead: u64) {
        let at = self.rules.passed.load(Ordering::SeqCst) + ahead;
        self.rules.flip.store(at, Ordering::SeqCst);
    }

    /// Ends the way to the client `ahead` bytes from now.
    pub(crate) fn cut_ahead(&self, ahead: u64) {
        let at = self.rules.passed.load(Ordering::SeqCst) + ahead;
        self.rules.cut.store(at, Ordering::SeqCst);
    }

    /// What clients sent so far.
    pub(crate) fn heard(&self) -> Vec<u8> {
        self.rules.heard.lock().expect("no panic").clone()
    }
}

impl Rules {
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, way: Way) {
        let mut buffer = [0; 5000];
        while let Ok(mut read @ 1..) = from.read(&mut buffer) {
            if way == Way::ToServer {
                self.heard.lock().expect("no panic").extend_from_slice(&buffer[..read]);
            } else {
                let begin = self.passed.load(Ordering::SeqCst);
                let within = |at: u64| at.checked_sub(begin).filter(|at| *at < read as u64);
                if let Some(at) = within(self.flip.load(Ordering::SeqCst)) {
                    buffer[at as usize] ^= 0x10;
                }
                let cut = within(self.cut.load(Ordering::SeqCst));
                read = cut.map_or(read, |at| at as usize);
                self.passed.fetch_add(read as u64, Ordering::SeqCst);
                if cut.is_some() {
                    let _ = to.write_all(&buffer[..read]);
                    break;
                }
            }
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}
