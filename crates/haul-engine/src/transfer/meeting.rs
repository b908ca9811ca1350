//! Session monitor: the state machine of one side behind one mutex, with targeted wake-ups.
//!
//! Waking a thread costs two system calls and a context switch, which is more than the rest of the
//! work for a small file. Each waiting thread therefore registers its condition ([`Seat`]), and:
//! - [`Meeting::with`] changes the machine and wakes only threads whose condition now holds;
//! - for work that any lane can take, one thread is woken; after taking its share, it wakes the
//!   next one if work is left;
//! - [`Meeting::quietly`] changes the machine and wakes no thread. Its caller must call
//!   [`Meeting::wake`] before it blocks.

use haul_proto::source::Next;
use haul_proto::{FileNumber, LaneId, Sink, Source};
use std::panic;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Minimum time to park. Prevents a busy loop when the deadline has already passed.
const WAIT_LEAST: Duration = Duration::from_millis(1);

/// Condition that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// Something to write on a lane.
    Lane(LaneId),
    /// The source's walk: capacity for this number of files.
    Room(usize),
    /// The source's walk: the end of files that were offered.
    Ends,
    /// Data to be read again.
    Checks,
    /// The sink's comparisons: a request for digests of the file.
    Digests(FileNumber),
    /// The sink's listing of directories: permission to send another list.
    Lists,
    /// The end of the session and of its workers.
    Close,
}

/// A state machine that reports which conditions hold.
pub(super) trait Machine {
    /// Returns true if the session is over.
    fn is_over(&self) -> bool;

    /// Reports if the condition `seat` holds. With [`Next::Shared`] one of its threads is enough.
    fn concerns(&mut self, seat: Seat) -> Next;
}

impl Machine for Source {
    fn is_over(&self) -> bool {
        Source::is_over(self)
    }

    fn concerns(&mut self, seat: Seat) -> Next {
        let is_met = match seat {
            Seat::Lane(lane) => return self.has_next(lane),
            Seat::Close => false,
            _ if Source::is_over(self) => true,
            Seat::Room(files) => self.room() >= files,
            Seat::Ends => self.open_files() == 0,
            Seat::Checks => self.has_check(),
            Seat::Digests(_) | Seat::Lists => false,
        };
        if is_met { Next::Own } else { Next::Nothing }
    }
}

impl Machine for Sink {
    fn is_over(&self) -> bool {
        Sink::is_over(self)
    }

    fn concerns(&mut self, seat: Seat) -> Next {
        let is_met = match seat {
            Seat::Lane(lane) => self.has_next(lane),
            Seat::Close => false,
            _ if Sink::is_over(self) => true,
            Seat::Digests(file) => self.digests_wanted(file) > 0 || !self.is_open(file),
            Seat::Lists => self.may_list(),
            Seat::Room(_) | Seat::Ends | Seat::Checks => false,
        };
        if is_met { Next::Own } else { Next::Nothing }
    }
}

/// A machine, its clock, and the threads that wait for it.
#[derive(Debug)]
pub(super) struct Meeting<M> {
    room: Mutex<Room<M>>,
    begin: Instant,
}

#[derive(Debug)]
struct Room<M> {
    machine: M,
    seated: Vec<Seated>,
    /// Set while the machine has changed and no thread was woken for the change yet.
    is_quiet: bool,
}

/// A waiting thread.
#[derive(Debug)]
struct Seated {
    seat: Seat,
    thread: Thread,
    /// True if the thread was woken and has not run yet.
    is_coming: bool,
}

/// Result of a question to the machine.
#[derive(Debug)]
pub(super) enum Asked<T> {
    /// The answer.
    Answer(T),
    /// No answer yet: wait for this condition, or until this time.
    Wait(Seat, Duration),
}

impl<M: Machine> Meeting<M> {
    /// Creates the monitor of a machine whose time starts now.
    pub(super) fn new(machine: M) -> Meeting<M> {
        Meeting {
            room: Mutex::new(Room { machine, seated: Vec::new(), is_quiet: false }),
            begin: Instant::now(),
        }
    }

    /// Changes the machine and wakes the threads whose conditions hold.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut M, Duration) -> T) -> T {
        let mut room = self.enter();
        let done = act(&mut room.machine, self.begin.elapsed());
        leave(room, Room::all_concerned);
        done
    }

    /// Changes the machine and wakes no thread. The caller must call [`Meeting::wake`] before it
    /// waits for anything.
    pub(super) fn quietly<T>(&self, act: impl FnOnce(&mut M, Duration) -> T) -> T {
        let mut room = self.enter();
        room.is_quiet = true;
        act(&mut room.machine, self.begin.elapsed())
    }

    /// Wakes the threads whose conditions hold.
    pub(super) fn wake(&self) {
        leave(self.enter(), Room::all_concerned);
    }

    /// Wakes the threads that wait for `seat`, after a change outside the machine. A thread that
    /// asked before the change is registered by now, and one that asks later sees the change.
    pub(super) fn remind(&self, seat: Seat) {
        self.call(|other| other == seat);
    }

    /// Wakes all waiting threads: the session has failed.
    pub(super) fn remind_all(&self) {
        self.call(|_| true);
    }

    /// Wakes the threads whose condition satisfies `is_meant`. Does not use the machine.
    fn call(&self, is_meant: impl Fn(Seat) -> bool) {
        let room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        leave(room, |room| {
            let meant = room.seated.iter_mut().filter(|one| !one.is_coming && is_meant(one.seat));
            meant.map(|one| (one.is_coming = true, one.thread.clone()).1).collect()
        });
    }

    /// Asks the machine until there is an answer. Meanwhile waits for the condition that the
    /// question names, and is woken when the machine reports that it holds. A question may take
    /// work that other threads can take too, but must not change anything else that affects them.
    /// If such work is left, the next thread is woken.
    pub(super) fn ask<T>(&self, mut question: impl FnMut(&mut M, Duration) -> Asked<T>) -> T {
        loop {
            let mut room = self.enter();
            room.stand_up();
            let now = self.begin.elapsed();
            let asked = question(&mut room.machine, now);
            let waits = match &asked {
                Asked::Wait(seat, until) => Some((*seat, until.saturating_sub(now).max(WAIT_LEAST))),
                Asked::Answer(_) => None,
            };
            leave(room, |room| {
                let next = room.concerned(|_, concern| concern == Next::Shared);
                if let Some((seat, _)) = waits {
                    room.seated.push(Seated { seat, thread: thread::current(), is_coming: false });
                }
                next
            });
            match (asked, waits) {
                (Asked::Answer(answer), _) => return answer,
                (_, Some((_, time))) => thread::park_timeout(time),
                (_, None) => {}
            }
        }
    }

    /// Locks the machine. If a call of the machine panicked before, the calling thread unwinds too,
    /// without a message.
    fn enter(&self) -> MutexGuard<'_, Room<M>> {
        self.room.lock().unwrap_or_else(|_| panic::resume_unwind(Box::new("the state machine panicked")))
    }
}

/// Wakes threads after releasing the lock, because they would only wait for it.
fn leave<M>(mut room: MutexGuard<'_, Room<M>>, whom: impl FnOnce(&mut Room<M>) -> Vec<Thread>) {
    let woken = whom(&mut room);
    drop(room);
    woken.iter().for_each(Thread::unpark);
}

impl<M: Machine> Room<M> {
    /// Returns the threads to wake: those for whose condition and machine report `is_meant` returns
    /// true.
    fn concerned(&mut self, is_meant: impl Fn(Seat, Next) -> bool) -> Vec<Thread> {
        let mut is_one_coming = self.is_one_coming();
        let Room { machine, seated, .. } = self;
        let mut woken = Vec::new();
        // Wake the most recently parked thread first: its caches are warmest.
        for one in seated.iter_mut().rev().filter(|one| !one.is_coming) {
            let concern = machine.concerns(one.seat);
            if !is_meant(one.seat, concern) || (concern == Next::Shared && is_one_coming) {
                continue;
            }
            is_one_coming |= concern == Next::Shared;
            one.is_coming = true;
            woken.push(one.thread.clone());
        }
        woken
    }

    /// Returns true if a woken worker of a lane has not asked yet. It takes some of the shared
    /// work, and wakes the next worker if work is left.
    fn is_one_coming(&self) -> bool {
        self.seated.iter().any(|other| other.is_coming && matches!(other.seat, Seat::Lane(_)))
    }

    /// Returns the threads to wake after the machine changed.
    fn all_concerned(&mut self) -> Vec<Thread> {
        self.is_quiet = false;
        self.concerned(|_, concern| concern != Next::Nothing)
    }

    /// Removes the calling thread from the waiting threads.
    ///
    /// # Panics
    /// Panics in a debug build if the condition of the thread held, no thread woke it, and only its
    /// timeout did.
    fn stand_up(&mut self) {
        if self.seated.is_empty() {
            return;
        }
        let own = thread::current().id();
        let (left, rest) =
            std::mem::take(&mut self.seated).into_iter().partition(|one| one.thread.id() == own);
        self.seated = rest;
        if cfg!(debug_assertions) && !self.is_quiet {
            let left: Vec<Seated> = left;
            let is_one_coming = self.is_one_coming();
            // The end of files is reported by `remind` as well, after the machine knows it.
            for Seated { seat, is_coming, .. } in left.into_iter().filter(|one| one.seat != Seat::Ends) {
                let concern = self.machine.concerns(seat);
                let is_forgotten = concern == Next::Own || (concern == Next::Shared && !is_one_coming);
                assert!(
                    is_coming || !is_forgotten,
                    "the wake-up of a thread that waits for {seat:?} was lost"
                );
            }
        }
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

        fn concerns(&mut self, seat: Seat) -> Next {
            match seat {
                Seat::Lane(lane) if self.is_over || self.own[lane.0 as usize] > 0 => Next::Own,
                Seat::Lane(_) if self.shared > 0 => Next::Shared,
                _ => Next::Nothing,
            }
        }
    }

    /// Takes goods until the shop closes. Counts them and the number of questions.
    fn buy(meeting: &Meeting<Shop>, lane: u32, got: &AtomicU32, asked: &AtomicU32) {
        loop {
            let mut until = None;
            let taken = meeting.ask(|shop, now| {
                asked.fetch_add(1, Ordering::SeqCst);
                let until = *until.get_or_insert(now + PATIENCE);
                match shop.take(lane) {
                    Some(taken) => {
                        assert!(now < until, "no thread woke lane {lane} for its work");
                        Asked::Answer(Some(taken))
                    }
                    None if shop.is_over => Asked::Answer(None),
                    None => Asked::Wait(Seat::Lane(LaneId(lane)), until),
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
    fn seated(meeting: &Meeting<Shop>) -> usize {
        meeting.enter().seated.iter().filter(|one| !one.is_coming).count()
    }

    /// Closes the shop at the end of a test, also of one that fails: its lanes would wait forever.
    struct Closing<'a>(&'a Meeting<Shop>);

    impl Drop for Closing<'_> {
        fn drop(&mut self) {
            self.0.with(|shop, _| shop.is_over = true);
        }
    }

    #[test]
    fn nothing_is_left_lying_while_somebody_waits_for_it() {
        let (meeting, got, asked) = (Meeting::new(Shop::default()), AtomicU32::new(0), AtomicU32::new(0));
        let mut brought = 0;
        thread::scope(|scope| {
            let _closing = Closing(&meeting);
            for lane in 0..4 {
                let (meeting, got, asked) = (&meeting, &got, &asked);
                scope.spawn(move || buy(meeting, lane, got, asked));
            }
            for round in 0..5000_u32 {
                let goods = 1 + round % 7;
                brought += goods;
                let bring = |shop: &mut Shop, _| match round % 3 {
                    0 => shop.own[round as usize % 4] += goods,
                    _ => shop.shared += goods,
                };
                if round % 5 == 0 {
                    meeting.quietly(bring);
                    meeting.wake();
                } else {
                    meeting.with(bring);
                }
                if round % 50 == 0 {
                    until(|| got.load(Ordering::SeqCst) == brought);
                }
            }
            until(|| got.load(Ordering::SeqCst) == brought);
        });
        assert_eq!(seated(&meeting), 0);
    }

    /// Timeouts once hid lost wake-ups, which only made transfers slow.
    #[cfg(debug_assertions)]
    #[test]
    fn a_wake_up_that_is_lost_is_a_panic() {
        let meeting = Meeting::new(Shop::default());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                meeting.ask(|shop, now| match shop.take(0) {
                    Some(taken) => Asked::Answer(taken),
                    None => Asked::Wait(Seat::Lane(LaneId(0)), now + WAIT_LEAST),
                })
            });
            until(|| seated(&meeting) == 1);
            // Change the machine without `with`, which wakes threads, and without `quietly`, whose
            // caller does.
            meeting.enter().machine.own[0] = 1;
            assert!(waiting.join().is_err());
        });
    }

    #[test]
    fn a_machine_that_panicked_is_not_used_again_and_nobody_waits_for_it() {
        let meeting = Meeting::new(Shop::default());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                meeting.ask(|shop, now| match shop.take(0) {
                    Some(taken) => Asked::Answer(taken),
                    None => Asked::Wait(Seat::Lane(LaneId(0)), now + PATIENCE),
                })
            });
            until(|| seated(&meeting) == 1);
            let broken = || meeting.with(|_, _| -> u32 { panic!("half way") });
            assert!(panic::catch_unwind(panic::AssertUnwindSafe(broken)).is_err());
            meeting.remind_all();
            assert!(waiting.join().is_err(), "it waits no more, and gets nothing");
            let again = || meeting.with(|shop, _| shop.shared);
            assert!(panic::catch_unwind(panic::AssertUnwindSafe(again)).is_err());
        });
    }

    #[test]
    fn one_is_woken_for_what_one_can_take_and_nobody_for_what_is_told_quietly() {
        let (meeting, got, asked) = (Meeting::new(Shop::default()), AtomicU32::new(0), AtomicU32::new(0));
        let is_idle = |answers| got.load(Ordering::SeqCst) == answers && seated(&meeting) == 4;
        thread::scope(|scope| {
            let _closing = Closing(&meeting);
            for lane in 0..4 {
                let (meeting, got, asked) = (&meeting, &got, &asked);
                scope.spawn(move || buy(meeting, lane, got, asked));
            }
            until(|| is_idle(0));
            let before = asked.load(Ordering::SeqCst);
            meeting.quietly(|shop, _| shop.shared = 2);
            assert!(meeting.enter().seated.iter().all(|one| !one.is_coming));
            meeting.wake();
            until(|| is_idle(2));
            // The thread woke up, took goods, and asked again.
            assert_eq!(asked.load(Ordering::SeqCst) - before, 2);
            // Two shares: the thread that takes the first wakes another thread, or asks again
            // itself.
            meeting.with(|shop, _| shop.shared = 6);
            until(|| is_idle(8));
            assert!(asked.load(Ordering::SeqCst) - before <= 6);
            let before = asked.load(Ordering::SeqCst);
            meeting.remind(Seat::Lane(LaneId(2)));
            until(|| asked.load(Ordering::SeqCst) > before && is_idle(8));
            assert_eq!(asked.load(Ordering::SeqCst) - before, 1, "only who is reminded asks again");
        });
    }
}
