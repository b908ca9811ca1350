//! Where the threads of one side of a session meet: its state machine behind one lock.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A machine, its clock, and who waits for it.
#[derive(Debug)]
pub(super) struct Meeting<M> {
    machine: Mutex<M>,
    wake: Condvar,
    begin: Instant,
}

impl<M> Meeting<M> {
    /// A machine whose time begins now.
    pub(super) fn new(machine: M) -> Meeting<M> {
        Meeting { machine: Mutex::new(machine), wake: Condvar::new(), begin: Instant::now() }
    }

    /// Does something with the machine, and wakes who waits.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut M, Duration) -> T) -> T {
        let done = act(&mut self.lock(), self.begin.elapsed());
        self.wake.notify_all();
        done
    }

    /// Asks the machine until there is an answer; in between waits for it to change, or for the moment that the question
    /// names. Asking wakes nobody.
    pub(super) fn ask<T>(&self, mut question: impl FnMut(&mut M, Duration) -> Asked<T>) -> T {
        let mut machine = self.lock();
        loop {
            let now = self.begin.elapsed();
            match question(&mut machine, now) {
                Asked::Answer(answer) => return answer,
                Asked::Wait(until) => {
                    let time = until.saturating_sub(now).max(WAIT_LEAST);
                    let waited = self.wake.wait_timeout(machine, time);
                    machine = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
                }
            }
        }
    }

    /// Wakes who waits: something beside the machine changed.
    pub(super) fn wake(&self) {
        // Behind the lock, so that nobody who has just asked misses it.
        drop(self.lock());
        self.wake.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, M> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A moment that has passed already is not asked for in a busy loop.
const WAIT_LEAST: Duration = Duration::from_millis(1);

/// What a question came to.
#[derive(Debug)]
pub(super) enum Asked<T> {
    /// This.
    Answer(T),
    /// Nothing before the machine changes, or this moment comes.
    Wait(Duration),
}
