//! Connections that are being made: whoever wants no more of them ends all their waits at once.

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Those of one dialer.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    given_up: bool,
    /// Counts all there were.
    last: u64,
    under_way: HashMap<u64, OwnedFd>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    all: &'a Attempts,
    number: u64,
}

impl Attempts {
    /// One more, over `socket`, which has begun to connect.
    ///
    /// # Errors
    /// `ECANCELED` once they are given up; what dup(2) reports.
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

    /// Ends the waits of all that are under way, whether for the connection or for what the other end says; no other begins.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        state.given_up = true;
        for socket in state.under_way.values() {
            // One that failed meanwhile needs no end.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }

    /// Whether they are given up.
    pub(super) fn are_given_up(&self) -> bool {
        self.state().given_up
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.all.state().under_way.remove(&self.number);
    }
}
