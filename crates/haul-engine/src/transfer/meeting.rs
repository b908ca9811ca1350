//! Where the threads of one side of a session meet: its state machine behind one lock, and a seat for each who waits.
//!
//! To wake a thread costs two system calls and a change of threads, more than all else that a small file takes. So who waits
//! says what for, and
//! - whoever changes the machine wakes those whom that concerns, and who really wait ([`Meeting::with`]);
//! - of those who wait for what any of them may take, one is woken; when it has taken its share, it wakes the next;
//! - a worker that has more at hand goes on without waking anyone ([`Meeting::quietly`]), and wakes whom all of it concerns
//!   before it waits itself ([`Meeting::wake`]).

use haul_proto::source::Next;
use haul_proto::{FileNumber, LaneId, Sink, Source};
use std::panic;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A moment that has passed already is not asked for in a busy loop.
const WAIT_LEAST: Duration = Duration::from_millis(1);

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// Something to write on a lane.
    Lane(LaneId),
    /// The source's walk: room for so many files.
    Room(usize),
    /// The source's walk: that files which were found come to their end.
    Ends,
    /// Something to be read again.
    Checks,
    /// The sink's comparisons: that digests of the file are wanted.
    Digests(FileNumber),
    /// The sink's list of its directories: that names may be listed.
    Lists,
    /// The session's end, and that of its workers.
    Close,
}

/// A state machine that knows whom it concerns.
pub(super) trait Machine {
    /// Whether the session is over.
    fn is_over(&self) -> bool;

    /// Whether who waits there would find what it waits for. Of those with [`Next::Shared`] one is enough.
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

/// A machine, its clock, and who waits for it.
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

/// A thread that waits.
#[derive(Debug)]
struct Seated {
    seat: Seat,
    thread: Thread,
    /// Whether it was woken and did not come yet.
    is_coming: bool,
}

/// What a question came to.
#[derive(Debug)]
pub(super) enum Asked<T> {
    /// This.
    Answer(T),
    /// Nothing before what the seat stands for, or this moment.
    Wait(Seat, Duration),
}

impl<M: Machine> Meeting<M> {
    /// A machine whose time begins now.
    pub(super) fn new(machine: M) -> Meeting<M> {
        Meeting {
            room: Mutex::new(Room { machine, seated: Vec::new(), is_quiet: false }),
            begin: Instant::now(),
        }
    }

    /// Does something with the machine, and wakes those whom it concerns.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut M, Duration) -> T) -> T {
        let mut room = self.enter();
        let done = act(&mut room.machine, self.begin.elapsed());
        leave(room, Room::all_concerned);
        done
    }

    /// Does something with the machine and wakes nobody yet: the caller does by [`Meeting::wake`] before it waits for anything.
    pub(super) fn quietly<T>(&self, act: impl FnOnce(&mut M, Duration) -> T) -> T {
        let mut room = self.enter();
        room.is_quiet = true;
        act(&mut room.machine, self.begin.elapsed())
    }

    /// Wakes those whom the machine's state concerns.
    pub(super) fn wake(&self) {
        leave(self.enter(), Room::all_concerned);
    }

    /// Wakes who waits there: something beside the machine changed. Whoever asked before has sat down by now, and whoever
    /// asks later sees it.
    pub(super) fn remind(&self, seat: Seat) {
        self.call(|other| other == seat);
    }

    /// Wakes all waiting threads: the session has failed.
    pub(super) fn remind_all(&self) {
        self.call(|_| true);
    }

    /// Wakes the threads that wait for one of these seats. Does not use the machine.
    fn call(&self, is_meant: impl Fn(Seat) -> bool) {
        let room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        leave(room, |room| {
            let meant = room.seated.iter_mut().filter(|one| !one.is_coming && is_meant(one.seat));
            meant.map(|one| (one.is_coming = true, one.thread.clone()).1).collect()
        });
    }

    /// Asks the machine until there is an answer. In between waits for what the question names: the thread that asks is woken
    /// when the machine says that it concerns the seat. To ask changes nothing that concerns anybody else, but to take what
    /// others may take as well; if there is more of that, the next one is woken.
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

    /// Locks the machine. If a call of the machine panicked before, the calling thread unwinds as well, without a message.
    fn enter(&self) -> MutexGuard<'_, Room<M>> {
        self.room.lock().unwrap_or_else(|_| panic::resume_unwind(Box::new("the state machine panicked")))
    }
}

/// Wakes, without the lock: who is woken would only wait for it.
fn leave<M>(mut room: MutexGuard<'_, Room<M>>, whom: impl FnOnce(&mut Room<M>) -> Vec<Thread>) {
    let woken = whom(&mut room);
    drop(room);
    woken.iter().for_each(Thread::unpark);
}

impl<M: Machine> Room<M> {
    /// The threads to wake: those that `is_meant` means, by what their seats stand for and what the machine says of those.
    fn concerned(&mut self, is_meant: impl Fn(Seat, Next) -> bool) -> Vec<Thread> {
        let mut is_one_coming = self.is_one_coming();
        let Room { machine, seated, .. } = self;
        let mut woken = Vec::new();
        // Who sat down last has most of what it needs in the caches.
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

    /// Returns true if a woken worker of a lane has not asked yet. It takes some of the shared work, and wakes the next worker
    /// if work is left.
    fn is_one_coming(&self) -> bool {
        self.seated.iter().any(|other| other.is_coming && matches!(other.seat, Seat::Lane(_)))
    }

    /// The threads to wake after the machine changed.
    fn all_concerned(&mut self) -> Vec<Thread> {
        self.is_quiet = false;
        self.concerned(|_, concern| concern != Next::Nothing)
    }

    /// The thread that asks waits no more.
    ///
    /// # Panics
    /// In a debug build, if the condition of the thread held, no thread woke it, and only its timeout did.
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

    /// Longer than any test takes: who waits so long was forgotten.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Goods that any lane may take, and some for one alone.
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
            // Some at once, and not all.
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

    /// Takes until the shop closes; counts what it got and how often it asked.
    fn buy(meeting: &Meeting<Shop>, lane: u32, got: &AtomicU32, asked: &AtomicU32) {
        loop {
            let mut until = None;
            let taken = meeting.ask(|shop, now| {
                asked.fetch_add(1, Ordering::SeqCst);
                let until = *until.get_or_insert(now + PATIENCE);
                match shop.take(lane) {
                    Some(taken) => {
                        assert!(now < until, "nobody woke lane {lane} for what it could take");
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

    /// Threads that wait and that no other thread has woken.
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

    /// Timeouts hid lost wake-ups as slowness.
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
            // Neither by `with`, which wakes, nor by `quietly`, after which its caller does.
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
            // It came, took, and asked again.
            assert_eq!(asked.load(Ordering::SeqCst) - before, 2);
            // Two shares: the one that takes the first wakes another, or comes again itself.
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
