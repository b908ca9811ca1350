//! Thread that carries the datagrams of an association.

use super::UdpError;
use super::carrier::Carrier;
use super::fallback::{Bounds, Control, Departure, Fallback};
use super::socket::{Received, Socket};
use crate::lane::Operation;
use haul_udp::{Association, Failure, State, Time};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Batches of datagrams that are sent before the received ones are processed.
const SENDS_MAX: usize = 8;

/// Maximum time for which the end of the TCP connection may precede the last datagrams.
const GRACE: Duration = Duration::from_secs(1);

/// An association, and the thread and the waiting threads that share it.
#[derive(Debug)]
pub(super) struct Link<C> {
    inner: Mutex<Inner<C>>,
    readable: Condvar,
    writable: Condvar,
    /// Becomes readable when the driver has something to do before its time.
    wake: OwnedFd,
    /// Start of the association's time.
    clock: Instant,
    /// Time without a first datagram after which a lane that cannot fall back fails.
    blocked: Time,
    /// Bounds after which the lane falls back, if it may.
    pub(super) bounds: Option<Bounds>,
    /// Round trip of the TCP connection.
    pub(super) round_trip: Time,
}

/// Transport that carries the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The association.
    Datagrams,
    /// None: this end has left the association, and waits for the peer.
    Leaving,
    /// TCP in the incoming direction. The driver sends again what the peer does not have.
    Repeating,
    /// TCP.
    Tcp,
}

#[derive(Debug)]
pub(super) struct Inner<C> {
    pub(super) association: C,
    pub(super) stage: Stage,
    /// Messages of both ends that leave UDP.
    pub(super) departure: Option<Departure>,
    pub(super) peer_departure: Option<Departure>,
    /// Time since which this end waits for acknowledgements.
    pub(super) waits_since: Option<Time>,
    /// True if the losses were judged.
    pub(super) is_judged: bool,
    /// Set once the peer's TCP connection has ended.
    pub(super) peer_left: Option<Time>,
    /// Reason for the early end, if the association itself does not know it.
    pub(super) error: Option<UdpError>,
    pub(super) is_aborted: bool,
    /// True if the driver has ended.
    is_stopped: bool,
    /// Time until which the driver sleeps; `None` while it works.
    sleeps_until: Option<Time>,
    readers: usize,
    writers: usize,
}

impl<C: Carrier> Inner<C> {
    /// Returns the number of threads that wait for this operation.
    fn waiting(&mut self, doing: Operation) -> &mut usize {
        if doing == Operation::Reading { &mut self.readers } else { &mut self.writers }
    }

    /// Returns the reason why the lane ended early.
    pub(super) fn error(&self) -> Option<UdpError> {
        match (self.error, self.association.state()) {
            (Some(error), _) => Some(error),
            // This end closed it, for a reason that the caller knows.
            (None, State::Failed(Failure::Aborted(_) | Failure::Left)) => None,
            (None, State::Failed(failure)) => Some(failure.into()),
            _ => None,
        }
    }

    pub(super) fn is_readable(&mut self) -> bool {
        self.association.is_readable() || self.stage >= Stage::Repeating || self.is_over()
    }

    pub(super) fn is_writable(&mut self) -> bool {
        self.association.is_writable() || self.stage == Stage::Tcp || self.is_over()
    }

    /// Returns true if no more bytes move.
    pub(super) fn is_over(&self) -> bool {
        let has_ended = match self.stage {
            Stage::Datagrams => self.is_stopped || self.association.state() != State::Open,
            Stage::Leaving | Stage::Repeating => self.is_stopped,
            Stage::Tcp => false,
        };
        self.is_aborted || self.error.is_some() || has_ended
    }

    /// Returns true if nothing is left to do for an end without users: it ended early, or the peer
    /// has all bytes. TCP itself delivers the rest.
    pub(super) fn is_done(&mut self) -> bool {
        let is_done = match self.stage {
            Stage::Datagrams => self.association.is_flushed(),
            Stage::Leaving | Stage::Repeating => false,
            Stage::Tcp => true,
        };
        self.is_over() || is_done
    }
}

impl<C: Carrier> Link<C> {
    pub(super) fn new(
        association: C,
        clock: Instant,
        blocked: Duration,
        bounds: Option<Bounds>,
        round_trip: Duration,
    ) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let inner = Inner {
            association,
            stage: Stage::Datagrams,
            departure: None,
            peer_departure: None,
            waits_since: None,
            is_judged: false,
            peer_left: None,
            error: None,
            is_aborted: false,
            is_stopped: false,
            sleeps_until: None,
            readers: 0,
            writers: 0,
        };
        Ok(Self {
            inner: Mutex::new(inner),
            readable: Condvar::new(),
            writable: Condvar::new(),
            wake,
            clock,
            blocked: nanos(blocked),
            bounds,
            round_trip: nanos(round_trip),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner<C>> {
        self.inner.lock().unwrap_or_else(|poisoned| after_panic(poisoned.into_inner()))
    }

    pub(super) fn now(&self) -> Time {
        nanos(self.clock.elapsed())
    }

    /// Releases the association after a change, and wakes the driver if it must act now.
    pub(super) fn release(&self, mut inner: MutexGuard<'_, Inner<C>>) {
        let due = inner.association.next_time();
        let wakes = inner.sleeps_until.is_some_and(|until| due.is_some_and(|due| due < until));
        if wakes {
            inner.sleeps_until = None;
        }
        drop(inner);
        if wakes {
            self.wake_driver();
        }
    }

    /// Wakes the driver and all threads that wait.
    pub(super) fn wake_all(&self) {
        self.wake_driver();
        self.readable.notify_all();
        self.writable.notify_all();
    }

    fn wake_driver(&self) {
        // Fails only if 2^64 - 1 wake-ups are pending already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits until `is_ready` holds, at most until `end`. Returns `None` at that time.
    pub(super) fn wait<'l>(
        &'l self,
        mut inner: MutexGuard<'l, Inner<C>>,
        doing: Operation,
        end: Option<Instant>,
        is_ready: fn(&mut Inner<C>) -> bool,
    ) -> Option<MutexGuard<'l, Inner<C>>> {
        let changed = if doing == Operation::Reading { &self.readable } else { &self.writable };
        while !is_ready(&mut inner) {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            *inner.waiting(doing) += 1;
            inner = match left {
                Some(left) => {
                    let waited = changed.wait_timeout(inner, left);
                    waited.map_or_else(|poisoned| after_panic(poisoned.into_inner().0), |(inner, _)| inner)
                }
                None => changed.wait(inner).unwrap_or_else(|poisoned| after_panic(poisoned.into_inner())),
            };
            *inner.waiting(doing) -= 1;
        }
        Some(inner)
    }

    /// Carries datagrams until the association needs none any more. `control` is the TCP connection
    /// to the peer's process, at the address `peer`. Other hosts have no datagrams for this lane.
    pub(super) fn drive(&self, socket: Socket, control: &Control, peer: IpAddr) {
        let _stopped = Stopped(self);
        if self.bounds.is_some() {
            // The peer's message may have arrived together with earlier ones.
            self.read_control(control);
        }
        self.carry(&socket, control, peer);
        drop(socket);
        self.continue_over(control);
    }

    fn carry(&self, socket: &Socket, control: &Control, peer: IpAddr) {
        let (mut out, mut received) = (Vec::with_capacity(64 << 10), Received::new());
        loop {
            // Before anything is judged: after a pause of this process, much may be queued.
            let has_received = self.receive_queued(socket, &mut received, peer);
            let Some(due) = self.send_due(socket, &mut out) else { return };
            if !has_received && due > self.now() {
                self.sleep(socket, control, due);
            }
        }
    }

    /// Sends what is due, or part of it. Returns the time of the next datagram, or `None` if there
    /// is none any more.
    fn send_due(&self, socket: &Socket, out: &mut Vec<u8>) -> Option<Time> {
        for _ in 0..SENDS_MAX {
            let mut inner = self.lock();
            let now = self.now();
            let transmit = inner.association.transmit(now, out);
            self.check(&mut inner, now);
            if inner.stage != Stage::Datagrams {
                return None;
            }
            let Some(transmit) = transmit else {
                let due = inner.association.next_time();
                self.notify(inner);
                return due;
            };
            self.notify(inner);
            match socket.send(transmit.to, out, transmit.segment) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The datagrams are lost here instead of in a queue of the path. Wait until the
                    // kernel has room for the next ones.
                    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
                    let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
                }
                // Datagrams that the kernel refuses are lost, as are those that a router refuses.
                _ => {}
            }
        }
        Some(0)
    }

    /// Leaves UDP if it does not carry the lane, and fails the association if the lane may not fall
    /// back, or if the peer has left.
    fn check(&self, inner: &mut Inner<C>, now: Time) {
        self.judge(inner, now);
        if inner.association.state() != State::Open {
            return;
        }
        if !inner.association.has_heard() && now >= self.blocked {
            inner.error.get_or_insert(UdpError::Blocked);
        } else if inner.peer_left.is_some_and(|left| now >= left + nanos(GRACE)) {
            if !inner.association.association().is_some_and(Association::is_complete) {
                inner.error.get_or_insert(UdpError::Disconnected);
            }
        } else {
            return;
        }
        inner.association.close(now, super::wire::CODE_ABORTED);
    }

    /// Takes the queued datagrams. Returns true if there were any.
    fn receive_queued(&self, socket: &Socket, received: &mut Received, peer: IpAddr) -> bool {
        if socket.receive(received).is_err() {
            // No datagram, or an error that the kernel reports for an earlier one.
            return false;
        }
        let mut inner = self.lock();
        let now = self.now();
        received.each(|from, datagram| {
            if from.ip() == peer {
                inner.association.receive(now, from, datagram);
            }
        });
        // Before any thread sees a failure that the lane survives.
        self.check(&mut inner, now);
        self.notify(inner);
        true
    }

    /// Releases the association and wakes the threads that can read or write now.
    pub(super) fn notify(&self, mut inner: MutexGuard<'_, Inner<C>>) {
        let wakes_readers = inner.readers > 0 && inner.is_readable();
        let wakes_writers = inner.writers > 0 && (inner.is_writable() || inner.is_done());
        drop(inner);
        if wakes_readers {
            self.readable.notify_all();
        }
        if wakes_writers {
            self.writable.notify_all();
        }
    }

    /// Sleeps until `due`, until a datagram arrives, or until a thread wakes the driver.
    fn sleep(&self, socket: &Socket, control: &Control, due: Time) {
        let (now, due, watches) = {
            let mut inner = self.lock();
            let now = self.now();
            // A thread may have changed the association since.
            let due = inner.association.next_time().map_or(due, |next| next.min(due));
            if due <= now || inner.stage != Stage::Datagrams {
                return;
            }
            let blocked = (!inner.association.has_heard()).then_some(self.blocked);
            let left = inner.peer_left.map(|left| left + nanos(GRACE));
            let judgement = self.next_judgement(&inner, now);
            let due = [blocked, left, judgement].into_iter().flatten().fold(due, Time::min);
            inner.sleeps_until = Some(due);
            (now, due, left.is_none())
        };
        let timeout = Timespec::try_from(Duration::from_nanos(due.saturating_sub(now))).ok();
        let connection = control.state.wire().as_socket();
        let readable = if self.bounds.is_some() { PollFlags::IN } else { PollFlags::empty() };
        let events = PollFlags::RDHUP | readable;
        let mut fds = [
            PollFd::new(socket, PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
            PollFd::from_borrowed_fd(connection.unwrap_or(self.wake.as_fd()), events),
        ];
        let watched = if connection.is_some() && watches { 3 } else { 2 };
        let polled = poll(&mut fds[..watched], timeout.as_ref());
        debug_assert!(matches!(polled, Ok(_) | Err(Errno::INTR)), "{polled:?}");
        if fds[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        let is_changed = watched == 3 && !fds[2].revents().is_empty();
        let mut inner = self.lock();
        inner.sleeps_until = None;
        if is_changed && self.bounds.is_some() {
            drop(inner);
            self.read_control(control);
        } else if is_changed {
            inner.peer_left = Some(self.now());
        }
    }

    /// Returns the reason why the lane has left UDP.
    pub(super) fn fallback(&self) -> Option<Fallback> {
        self.lock().departure.map(|departure| departure.why)
    }
}

/// Ends an association that a thread left in the middle of a change.
fn after_panic<C>(mut inner: MutexGuard<'_, Inner<C>>) -> MutexGuard<'_, Inner<C>> {
    inner.error = Some(UdpError::Panicked);
    inner
}

/// Reports the end of the driver, also after a panic: no thread waits for it any more.
struct Stopped<'l, C: Carrier>(&'l Link<C>);

impl<C: Carrier> Drop for Stopped<'_, C> {
    fn drop(&mut self) {
        self.0.lock().is_stopped = true;
        self.0.wake_all();
    }
}

pub(super) fn nanos(time: Duration) -> Time {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
