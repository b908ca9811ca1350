//! Session monitor: the state machine of one side behind one mutex, with targeted wake-ups.
//!
//! Waking a thread costs two system calls and a context switch, which is more than the rest of the
//! work for a small file. Each waiting thread therefore registers its condition ([`WaitKey`]), and:
//! - [`Monitor::update`] changes the machine and wakes only threads whose condition now holds;
//! - for work that any lane can take, one thread is woken; after taking its share, it wakes the
//!   next one if work is left;
//! - [`Monitor::update_quietly`] changes the machine and wakes no thread. Its caller must call
//!   [`Monitor::notify`] before it blocks.

use super::cpu_wait;
use haul_proto::source::Availability;
use haul_proto::{FileNumber, LaneId, Sink, Source};
use std::panic;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Minimum time to park. Prevents a busy loop when the deadline has already passed.
const PARK_MIN: Duration = Duration::from_millis(1);

/// Condition that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitKey {
    /// Something to write on a lane.
    Lane(LaneId),
    /// The source's walk: capacity for this number of files.
    Capacity(usize),
    /// The source's walk: the end of files that were offered.
    Ends,
    /// Data to be read again.
    Checks,
    /// The sink's comparisons: a digest of the source for the file.
    Digests(FileNumber),
    /// The end of the session and of its workers.
    Close,
}

/// A state machine that reports which conditions hold.
pub(super) trait Machine {
    /// Returns true if the session is over.
    fn is_over(&self) -> bool;

    /// Reports if the condition `key` holds. With [`Availability::Shared`] one of its threads is
    /// enough.
    fn readiness(&mut self, key: WaitKey) -> Availability;
}

impl Machine for Source {
    fn is_over(&self) -> bool {
        Source::is_over(self)
    }

    fn readiness(&mut self, key: WaitKey) -> Availability {
        let is_met = match key {
            WaitKey::Lane(lane) => return self.has_next(lane),
            WaitKey::Close => false,
            _ if Source::is_over(self) => true,
            WaitKey::Capacity(files) => self.capacity() >= files,
            WaitKey::Ends => self.open_files() == 0,
            WaitKey::Checks => self.has_check(),
            WaitKey::Digests(_) => false,
        };
        if is_met { Availability::Own } else { Availability::Nothing }
    }
}

impl Machine for Sink {
    fn is_over(&self) -> bool {
        Sink::is_over(self)
    }

    fn readiness(&mut self, key: WaitKey) -> Availability {
        let is_met = match key {
            WaitKey::Lane(lane) => self.has_next(lane),
            WaitKey::Close => false,
            _ if Sink::is_over(self) => true,
            WaitKey::Digests(file) => self.has_stated(file) || !self.compares(file),
            WaitKey::Capacity(_) | WaitKey::Ends | WaitKey::Checks => false,
        };
        if is_met { Availability::Own } else { Availability::Nothing }
    }
}

/// A machine, its clock, and the threads that wait for it.
#[derive(Debug)]
pub(super) struct Monitor<M> {
    state: Mutex<MonitorState<M>>,
    begin: Instant,
}

#[derive(Debug)]
struct MonitorState<M> {
    machine: M,
    waiters: Vec<Waiter>,
    /// Set while the machine has changed and no thread was woken for the change yet.
    has_pending_wake_ups: bool,
}

/// A waiting thread.
#[derive(Debug)]
struct Waiter {
    key: WaitKey,
    thread: Thread,
    /// Time at which the thread was woken, if it has not run since.
    unparked: Option<Instant>,
}

impl Waiter {
    /// Records that the thread is woken, and returns it.
    fn unpark(&mut self) -> Thread {
        self.unparked = Some(Instant::now());
        self.thread.clone()
    }
}

/// Result of a question to the machine.
#[derive(Debug)]
pub(super) enum Reply<T> {
    /// The answer.
    Ready(T),
    /// No answer yet: wait for this condition, or until this time.
    Wait(WaitKey, Duration),
}

impl<M: Machine> Monitor<M> {
    /// Creates the monitor of a machine whose time starts now.
    pub(super) fn new(machine: M) -> Monitor<M> {
        Monitor {
            state: Mutex::new(MonitorState { machine, waiters: Vec::new(), has_pending_wake_ups: false }),
            begin: Instant::now(),
        }
    }

    /// Changes the machine and wakes the threads whose conditions hold.
    pub(super) fn update<T>(&self, act: impl FnOnce(&mut M, Duration) -> T) -> T {
        let mut state = self.lock();
        let done = act(&mut state.machine, self.begin.elapsed());
        unlock_and_wake(state, MonitorState::all_threads_to_wake);
        done
    }

    /// Changes the machine and wakes no thread. The caller must call [`Monitor::notify`] before it
    /// waits for anything.
    pub(super) fn update_quietly<T>(&self, act: impl FnOnce(&mut M, Duration) -> T) -> T {
        let mut state = self.lock();
        state.has_pending_wake_ups = true;
        act(&mut state.machine, self.begin.elapsed())
    }

    /// Wakes the threads whose conditions hold.
    pub(super) fn notify(&self) {
        unlock_and_wake(self.lock(), MonitorState::all_threads_to_wake);
    }

    /// Wakes the threads that wait for `key`, after a change outside the machine. A thread that
    /// asked before the change is registered by now, and one that asks later sees the change.
    pub(super) fn notify_key(&self, key: WaitKey) {
        self.notify_matching(|other| other == key);
    }

    /// Wakes all waiting threads: the session has failed.
    pub(super) fn notify_all(&self) {
        self.notify_matching(|_| true);
    }

    /// Wakes the threads whose condition satisfies `predicate`. Does not use the machine.
    fn notify_matching(&self, predicate: impl Fn(WaitKey) -> bool) {
        let state = self.state.lock().unwrap_or_else(|broken| broken.into_inner());
        unlock_and_wake(state, |state| {
            let meant = state.waiters.iter_mut().filter(|one| one.unparked.is_none() && predicate(one.key));
            meant.map(Waiter::unpark).collect()
        });
    }

    /// Asks the machine until there is an answer. Meanwhile waits for the condition that the
    /// question names, and is woken when the machine reports that it holds. A question may take
    /// work that other threads can take too, but must not change anything else that affects them.
    /// If such work is left, the next thread is woken.
    pub(super) fn ask<T>(&self, mut question: impl FnMut(&mut M, Duration) -> Reply<T>) -> T {
        let mut pause: Option<cpu_wait::Pause> = None;
        loop {
            let mut state = self.lock();
            let unparked = state.remove_waiter();
            if let Some(pause) = pause.take() {
                pause.end(unparked);
            }
            let now = self.begin.elapsed();
            let asked = question(&mut state.machine, now);
            let waits = match &asked {
                Reply::Wait(key, until) => Some((*key, until.saturating_sub(now).max(PARK_MIN))),
                Reply::Ready(_) => None,
            };
            unlock_and_wake(state, |state| {
                let next = state.threads_to_wake(|_, readiness| readiness == Availability::Shared);
                if let Some((key, _)) = waits {
                    state.waiters.push(Waiter { key, thread: thread::current(), unparked: None });
                }
                next
            });
            match (asked, waits) {
                (Reply::Ready(answer), _) => return answer,
                (_, Some((_, time))) => {
                    pause = cpu_wait::Pause::begin();
                    thread::park_timeout(time);
                }
                (_, None) => {}
            }
        }
    }

    /// Locks the machine. If a call of the machine panicked before, the calling thread unwinds too,
    /// without a message.
    fn lock(&self) -> MutexGuard<'_, MonitorState<M>> {
        self.state.lock().unwrap_or_else(|_| panic::resume_unwind(Box::new("the state machine panicked")))
    }
}

/// Wakes threads after releasing the lock, because they would only wait for it.
fn unlock_and_wake<M>(
    mut state: MutexGuard<'_, MonitorState<M>>,
    select: impl FnOnce(&mut MonitorState<M>) -> Vec<Thread>,
) {
    let woken = select(&mut state);
    drop(state);
    woken.iter().for_each(Thread::unpark);
}

impl<M: Machine> MonitorState<M> {
    /// Returns the threads to wake: those for whose condition and machine report `predicate`
    /// returns true.
    fn threads_to_wake(&mut self, predicate: impl Fn(WaitKey, Availability) -> bool) -> Vec<Thread> {
        let mut has_unparked_worker = self.has_unparked_worker();
        let MonitorState { machine, waiters, .. } = self;
        let mut woken = Vec::new();
        // Wake the most recently parked thread first: its caches are warmest.
        for one in waiters.iter_mut().rev().filter(|one| one.unparked.is_none()) {
            let readiness = machine.readiness(one.key);
            if !predicate(one.key, readiness) || (readiness == Availability::Shared && has_unparked_worker) {
                continue;
            }
            has_unparked_worker |= readiness == Availability::Shared;
            woken.push(one.unpark());
        }
        woken
    }

    /// Returns true if a woken worker of a lane has not asked yet. It takes some of the shared
    /// work, and wakes the next worker if work is left.
    fn has_unparked_worker(&self) -> bool {
        self.waiters.iter().any(|other| other.unparked.is_some() && matches!(other.key, WaitKey::Lane(_)))
    }

    /// Returns the threads to wake after the machine changed.
    fn all_threads_to_wake(&mut self) -> Vec<Thread> {
        self.has_pending_wake_ups = false;
        self.threads_to_wake(|_, readiness| readiness != Availability::Nothing)
    }

    /// Removes the calling thread from the waiting threads. Returns the time at which it was woken.
    ///
    /// # Panics
    /// Panics in a debug build if the condition of the thread held, no thread woke it, and only its
    /// timeout did.
    fn remove_waiter(&mut self) -> Option<Instant> {
        if self.waiters.is_empty() {
            return None;
        }
        let own = thread::current().id();
        let at = self.waiters.iter().position(|one| one.thread.id() == own)?;
        // The others stay in the order in which they were parked.
        let Waiter { key, unparked, .. } = self.waiters.remove(at);
        // The end of files is reported by `notify_key` as well, after the machine knows it.
        if cfg!(debug_assertions) && !self.has_pending_wake_ups && key != WaitKey::Ends {
            let readiness = self.machine.readiness(key);
            let is_forgotten = readiness == Availability::Own
                || (readiness == Availability::Shared && !self.has_unparked_worker());
            assert!(
                unparked.is_some() || !is_forgotten,
                "the wake-up of a thread that waits for {key:?} was lost"
            );
        }
        unparked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Longer than any test takes: a thread that waits this long was not woken.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Goods that any lane can take, and goods for one lane only.
    #[derive(Debug, Default)]
    struct Shop {
        shared: u32,
        own: [u32; 4],
        is_over: bool,
    }

    impl Shop {
        fn take(&mut self, lane: u32) -> Option<u32> {
            let shelf =
                if self.own[lane as usize] > 0 { &mut self.own[lane as usize] } else { &mut self.shared };
            // Take some of the goods, but not all.
            let taken = (*shelf).min(3);
            *shelf -= taken;
            (taken > 0).then_some(taken)
        }
    }

    impl Machine for Shop {
        fn is_over(&self) -> bool {
            self.is_over
        }

        fn readiness(&mut self, key: WaitKey) -> Availability {
            match key {
                WaitKey::Lane(lane) if self.is_over || self.own[lane.0 as usize] > 0 => Availability::Own,
                WaitKey::Lane(_) if self.shared > 0 => Availability::Shared,
                _ => Availability::Nothing,
            }
        }
    }

    /// Takes goods until the shop closes. Counts them and the number of questions.
    fn buy(monitor: &Monitor<Shop>, lane: u32, got: &AtomicU32, asked: &AtomicU32) {
        loop {
            let mut until = None;
            let taken = monitor.ask(|shop, now| {
                asked.fetch_add(1, Ordering::SeqCst);
                let until = *until.get_or_insert(now + PATIENCE);
                match shop.take(lane) {
                    Some(taken) => {
                        assert!(now < until, "no thread woke lane {lane} for its work");
                        Reply::Ready(Some(taken))
                    }
                    None if shop.is_over => Reply::Ready(None),
                    None => Reply::Wait(WaitKey::Lane(LaneId(lane)), until),
                }
            });
            let Some(taken) = taken else { return };
            got.fetch_add(taken, Ordering::SeqCst);
        }
    }

    fn until(what: impl Fn() -> bool) {
        while !what() {
            thread::yield_now();
        }
    }

    /// Returns the number of waiting threads that no other thread has woken.
    fn waiters(monitor: &Monitor<Shop>) -> usize {
        monitor.lock().waiters.iter().filter(|one| one.unparked.is_none()).count()
    }

    /// Closes the shop at the end of a test, also of one that fails: its lanes would wait forever.
    struct Closing<'a>(&'a Monitor<Shop>);

    impl Drop for Closing<'_> {
        fn drop(&mut self) {
            self.0.update(|shop, _| shop.is_over = true);
        }
    }

    #[test]
    fn waiting_threads_receive_all_queued_work() {
        let (monitor, got, asked) = (Monitor::new(Shop::default()), AtomicU32::new(0), AtomicU32::new(0));
        let mut brought = 0;
        thread::scope(|scope| {
            let _closing = Closing(&monitor);
            for lane in 0..4 {
                let (monitor, got, asked) = (&monitor, &got, &asked);
                scope.spawn(move || buy(monitor, lane, got, asked));
            }
            for round in 0..5000_u32 {
                let goods = 1 + round % 7;
                brought += goods;
                let bring = |shop: &mut Shop, _| match round % 3 {
                    0 => shop.own[round as usize % 4] += goods,
                    _ => shop.shared += goods,
                };
                if round % 5 == 0 {
                    monitor.update_quietly(bring);
                    monitor.notify();
                } else {
                    monitor.update(bring);
                }
                if round % 50 == 0 {
                    until(|| got.load(Ordering::SeqCst) == brought);
                }
            }
            until(|| got.load(Ordering::SeqCst) == brought);
        });
        assert_eq!(waiters(&monitor), 0);
    }

    /// Timeouts once hid lost wake-ups, which only made transfers slow.
    #[cfg(debug_assertions)]
    #[test]
    fn lost_wake_up_panics() {
        let monitor = Monitor::new(Shop::default());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                monitor.ask(|shop, now| match shop.take(0) {
                    Some(taken) => Reply::Ready(taken),
                    None => Reply::Wait(WaitKey::Lane(LaneId(0)), now + PARK_MIN),
                })
            });
            until(|| waiters(&monitor) == 1);
            // Change the machine without `update`, which wakes threads, and without
            // `update_quietly`, whose caller does.
            monitor.lock().machine.own[0] = 1;
            assert!(waiting.join().is_err());
        });
    }

    #[test]
    fn panicked_machine_is_not_reused_and_waiters_end() {
        let monitor = Monitor::new(Shop::default());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                monitor.ask(|shop, now| match shop.take(0) {
                    Some(taken) => Reply::Ready(taken),
                    None => Reply::Wait(WaitKey::Lane(LaneId(0)), now + PATIENCE),
                })
            });
            until(|| waiters(&monitor) == 1);
            let broken = || monitor.update(|_, _| -> u32 { panic!("half way") });
            assert!(panic::catch_unwind(panic::AssertUnwindSafe(broken)).is_err());
            monitor.notify_all();
            assert!(waiting.join().is_err(), "it waits no more, and gets nothing");
            let again = || monitor.update(|shop, _| shop.shared);
            assert!(panic::catch_unwind(panic::AssertUnwindSafe(again)).is_err());
        });
    }

    #[test]
    fn one_thread_is_woken_per_change_and_none_for_quiet_updates() {
        let (monitor, got, asked) = (Monitor::new(Shop::default()), AtomicU32::new(0), AtomicU32::new(0));
        let is_idle = |answers| got.load(Ordering::SeqCst) == answers && waiters(&monitor) == 4;
        thread::scope(|scope| {
            let _closing = Closing(&monitor);
            for lane in 0..4 {
                let (monitor, got, asked) = (&monitor, &got, &asked);
                scope.spawn(move || buy(monitor, lane, got, asked));
            }
            until(|| is_idle(0));
            let before = asked.load(Ordering::SeqCst);
            monitor.update_quietly(|shop, _| shop.shared = 2);
            assert!(monitor.lock().waiters.iter().all(|one| one.unparked.is_none()));
            monitor.notify();
            until(|| is_idle(2));
            // The thread woke up, took goods, and asked again.
            assert_eq!(asked.load(Ordering::SeqCst) - before, 2);
            // Two shares: the thread that takes the first wakes another thread, or asks again
            // itself.
            monitor.update(|shop, _| shop.shared = 6);
            until(|| is_idle(8));
            assert!(asked.load(Ordering::SeqCst) - before <= 6);
            let before = asked.load(Ordering::SeqCst);
            monitor.notify_key(WaitKey::Lane(LaneId(2)));
            until(|| asked.load(Ordering::SeqCst) > before && is_idle(8));
            assert_eq!(asked.load(Ordering::SeqCst) - before, 1, "only who is reminded asks again");
        });
    }
}
