//! A bad line: a proxy that does one ill to each of some connections, at a byte of its choice.

use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ill {
    /// Both ends see it end, as if the other had closed it.
    Cut,
    /// Both ends see it reset.
    Reset,
    /// Nothing passes for so long.
    Stall(Duration),
    /// A bit of this byte is another.
    Flip,
}

/// What befalls the connection of this number, counted from 0 as they come, before this byte towards the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) connection: usize,
    pub(super) at: u64,
    pub(super) ill: Ill,
}

/// Passes on what comes to `listener`, as `fates` say. Ends with the test's process.
pub(super) fn stand_between(listener: TcpListener, server: SocketAddr, fates: Vec<Fate>) {
    let fates = Arc::new(fates);
    thread::spawn(move || {
        for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
            let Ok(server) = TcpStream::connect(server) else { continue };
            let fate = fates.iter().copied().find(|fate| fate.connection == number);
            let [back_from, back_to] = [server.try_clone().unwrap(), client.try_clone().unwrap()];
            let is_torn = Arc::new(AtomicBool::new(false));
            let is_torn_too = Arc::clone(&is_torn);
            thread::spawn(move || pass(back_from, back_to, None, &is_torn_too));
            thread::spawn(move || pass(client, server, fate, &is_torn));
        }
    });
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut fate: Option<Fate>, is_torn: &AtomicBool) {
    let mut buffer = [0; 8192];
    let mut passed = 0;
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let block = &mut buffer[..read];
        if let Some(Fate { at, ill, .. }) = fate
            && at < passed + read as u64
        {
            fate = None;
            match ill {
                Ill::Flip => block[(at - passed) as usize] ^= 0x10,
                Ill::Stall(time) => thread::sleep(time),
                Ill::Cut => break,
                Ill::Reset => {
                    // The resets go out when the other way's thread, woken so, has let go as well.
                    is_torn.store(true, Ordering::SeqCst);
                    for end in [&from, &to] {
                        set_socket_linger(end, Some(Duration::ZERO)).unwrap();
                        let _ = end.shutdown(Shutdown::Read);
                    }
                }
            }
        }
        if is_torn.load(Ordering::SeqCst) || to.write_all(block).is_err() {
            break;
        }
        passed += read as u64;
    }
    if !is_torn.load(Ordering::SeqCst) {
        for end in [&from, &to] {
            // Whoever is gone already needs no telling.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}
