//! Connection attempts and name lookups in progress. Cancelling them ends all their waits
//! immediately.

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Attempts of one dialer.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    given_up: bool,
    /// Number of all attempts so far.
    last: u64,
    under_way: HashMap<u64, OwnedFd>,
    /// Threads that wait for a name lookup.
    looking_up: HashMap<u64, Sender<Found>>,
}

/// Addresses of a name.
type Found = io::Result<Vec<SocketAddr>>;

/// One attempt, registered until it is dropped.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    all: &'a Attempts,
    number: u64,
}

impl Attempts {
    /// Registers an attempt over `socket`, which has started to connect.
    ///
    /// # Errors
    /// Returns `ECANCELED` once the attempts are cancelled, and the error of dup(2) if it fails.
    pub(super) fn begin(&self, socket: BorrowedFd<'_>) -> io::Result<Attempt<'_>> {
        let socket = socket.try_clone_to_owned()?;
        let mut state = self.state();
        if state.given_up {
            return Err(Errno::CANCELED.into());
        }
        state.last += 1;
        let number = state.last;
        state.under_way.insert(number, socket);
        Ok(Attempt { all: self, number })
    }

    /// Calls `look`, which asks the system, in a thread of its own, and waits at most `within` for
    /// the result.
    ///
    /// A system lookup cannot be cancelled: the thread that runs it is abandoned after the timeout.
    ///
    /// # Errors
    /// Returns the error of `look`, `TimedOut` after `within`, and `ECANCELED` once the attempts
    /// are cancelled.
    pub(super) fn look_up(&self, within: Duration, look: impl FnOnce() -> Found + Send + 'static) -> Found {
        let (give, take) = channel();
        let number = {
            let mut state = self.state();
            if state.given_up {
                return Err(Errno::CANCELED.into());
            }
            state.last += 1;
            let number = state.last;
            state.looking_up.insert(number, give.clone());
            number
        };
        // The send fails if the waiting thread has given up; the result is then not needed.
        let asking = thread::Builder::new().name("lookup".to_owned()).spawn(move || drop(give.send(look())));
        let found =
            asking.and_then(|_| take.recv_timeout(within).unwrap_or_else(|_| Err(unanswered(within))));
        self.state().looking_up.remove(&number);
        found
    }

    /// Ends the waits of all attempts in progress, for the connection or for data of the peer.
    /// Later attempts fail.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        state.given_up = true;
        for socket in state.under_way.values() {
            // An error is harmless: the connection has failed already.
            let _ = shutdown(socket, Shutdown::Both);
        }
        for waits in state.looking_up.values() {
            // An error is harmless: the waiting thread has its result already.
            let _ = waits.send(Err(Errno::CANCELED.into()));
        }
    }

    /// Returns true if the attempts are cancelled.
    pub(super) fn are_given_up(&self) -> bool {
        self.state().given_up
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.all.state().under_way.remove(&self.number);
    }
}

fn unanswered(within: Duration) -> io::Error {
    let text = format!("name lookup timed out after {} seconds", within.as_secs_f32());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unanswered_name_lookup_times_out() {
        let all = Attempts::default();
        let (never, silence) = channel::<()>();
        let error = all.look_up(Duration::from_millis(20), move || {
            let _ = silence.recv();
            Ok(Vec::new())
        });
        let error = error.expect_err("no answer");
        assert_eq!(error.to_string(), "name lookup timed out after 0.02 seconds");
        assert!(all.state().looking_up.is_empty());
        drop(never);
        let address = SocketAddr::from(([10, 0, 0, 7], 1));
        let found = all.look_up(Duration::from_secs(60), move || Ok(vec![address]));
        assert_eq!(found.expect("an answer"), [address]);
    }

    #[test]
    fn giving_up_cancels_the_name_lookup() {
        let all = Attempts::default();
        let (never, silence) = channel::<()>();
        let (asked, is_asked) = channel();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                all.look_up(Duration::from_secs(600), move || {
                    asked.send(()).expect("the test waits for it");
                    let _ = silence.recv();
                    Ok(Vec::new())
                })
            });
            is_asked.recv().expect("it is asked");
            all.give_up();
            let error = waiting.join().expect("no panic").expect_err("given up");
            assert_eq!(error.raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
        });
        assert!(all.look_up(Duration::from_secs(600), || unreachable!("no lookup runs")).is_err());
        drop(never);
    }
}
