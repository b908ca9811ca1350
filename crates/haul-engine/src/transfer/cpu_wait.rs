//! Time that the workers of a side waited for a CPU.

use haul_sys::process::{SchedTimes, Thread};
use parking_lot::{Mutex, MutexGuard};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Run delays of the workers that move data. The kernel counts them all the time, so only the start
/// and the end of each worker, and its pauses, have a cost.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuWaitTime(Arc<Mutex<CpuWaitState>>);

#[derive(Debug, Default)]
struct CpuWaitState {
    running: Vec<Worker>,
    /// Total of the workers that have ended.
    ended: Duration,
}

/// A worker that runs.
#[derive(Clone, Copy, Debug)]
struct Worker {
    thread: Thread,
    begin: Instant,
    /// Statistics from before it started.
    before: SchedTimes,
    /// Time in which it had nothing to do, without the present pause.
    paused: Duration,
    /// Begin of the present pause.
    pause: Option<Instant>,
}

thread_local! {
    /// The worker that this thread runs, and where its times are.
    static COUNTED: RefCell<Option<(CpuWaitTime, Thread)>> = const { RefCell::new(None) };
}

/// Time in which the calling worker has nothing to do.
#[derive(Debug)]
pub(super) struct Pause {
    times: CpuWaitTime,
    thread: Thread,
    begin: Instant,
}

impl Pause {
    /// Starts a pause of the calling worker. Returns `None` if its times are not counted.
    pub(super) fn begin() -> Option<Pause> {
        let (times, thread) = COUNTED.with_borrow(Clone::clone)?;
        let begin = Instant::now();
        times.change(thread, |worker| worker.pause = Some(begin));
        Some(Pause { times, thread, begin })
    }

    /// Ends the pause. From `woken` on, the worker waited for a CPU.
    pub(super) fn end(self, woken: Option<Instant>) {
        let end = woken.unwrap_or_else(Instant::now);
        self.times.change(self.thread, |worker| {
            worker.pause = None;
            worker.paused += end.saturating_duration_since(self.begin);
        });
    }
}

/// Runs `wait`, in which the calling worker has nothing to do. The time that it waits for a CPU
/// after it was woken does not count.
pub(super) fn pause<T>(wait: impl FnOnce() -> T) -> T {
    let pause = Pause::begin();
    let done = wait();
    if let Some(pause) = pause {
        pause.end(None);
    }
    done
}

impl CpuWaitTime {
    /// Counts the run delay of the calling thread while it runs `work`.
    pub(super) fn count<T>(&self, work: impl FnOnce() -> T) -> T {
        let thread = Thread::current();
        let Some(before) = thread.sched_times() else { return work() };
        let worker = Worker { thread, begin: Instant::now(), before, paused: Duration::ZERO, pause: None };
        self.state().running.push(worker);
        COUNTED.set(Some((self.clone(), thread)));
        let done = work();
        COUNTED.set(None);
        let mut state = self.state();
        if let Some(at) = state.running.iter().position(|worker| worker.thread == thread) {
            let worker = state.running.swap_remove(at);
            state.ended += worker.waited();
        }
        done
    }

    /// Returns the total of all workers so far.
    pub(super) fn total(&self) -> Duration {
        let state = self.state();
        state.ended + state.running.iter().map(Worker::waited).sum::<Duration>()
    }

    fn change(&self, thread: Thread, change: impl FnOnce(&mut Worker)) {
        self.state().running.iter_mut().find(|worker| worker.thread == thread).map(change);
    }

    fn state(&self) -> MutexGuard<'_, CpuWaitState> {
        self.0.lock()
    }
}

impl Worker {
    /// Returns the time that the worker waited for a CPU so far.
    fn waited(&self) -> Duration {
        let Some(now) = self.thread.sched_times() else { return Duration::ZERO };
        let paused = self.paused + self.pause.map_or(Duration::ZERO, |begin| begin.elapsed());
        waited(self.before, now, self.begin.elapsed(), paused)
    }
}

/// Returns the time that a thread waited for a CPU between two statistics, `elapsed` apart. It
/// cannot be longer than the time in which the thread neither ran nor paused, whatever the kernel
/// counts. The kernel may still count a sleep in a call of the storage or the network.
fn waited(before: SchedTimes, now: SchedTimes, elapsed: Duration, paused: Duration) -> Duration {
    let ran = now.cpu.saturating_sub(before.cpu);
    let counted = now.run_delay.saturating_sub(before.run_delay);
    counted.min(elapsed.saturating_sub(ran).saturating_sub(paused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_lab::needs::shown_or_skip;
    use std::hint::spin_loop;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Regression: Linux counted the sleep of an idle worker as its run delay, and the summary of a
    /// transfer at a limited rate named the CPU as the bottleneck.
    #[test]
    fn pauses_are_no_cpu_wait() {
        let ms = Duration::from_millis;
        let before = SchedTimes { cpu: ms(3), run_delay: ms(5) };
        let after = |cpu: u64, run_delay: u64| SchedTimes { cpu: ms(3 + cpu), run_delay: ms(5 + run_delay) };
        assert_eq!(waited(before, after(40, 30), ms(100), ms(0)), ms(30));
        assert_eq!(waited(before, after(40, 90), ms(100), ms(0)), ms(60));
        assert_eq!(waited(before, after(1, 1000), ms(1100), ms(1090)), ms(9));
        assert_eq!(waited(before, after(1, 1000), ms(1100), ms(1200)), ms(0));
    }

    #[test]
    fn pauses_are_counted_for_the_worker_that_pauses() {
        if !shown_or_skip(Thread::current().sched_times().is_some(), "run delays") {
            return;
        }
        let cpu_wait = CpuWaitTime::default();
        let time = Duration::from_millis(20);
        cpu_wait.count(|| {
            pause(|| std::thread::sleep(time));
            let state = cpu_wait.state();
            let worker = state.running[0];
            assert!(worker.paused >= time && worker.pause.is_none(), "{worker:?}");
        });
        assert!(COUNTED.with_borrow(Option::is_none));
    }

    /// With more busy threads than CPUs, some of them wait at any time.
    #[test]
    fn cpu_wait_time_is_counted_during_and_after_the_work() {
        if !shown_or_skip(Thread::current().sched_times().is_some(), "run delays") {
            return;
        }
        let cpu_wait = CpuWaitTime::default();
        let is_enough = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..=haul_sys::process::cpu_count() {
                scope.spawn(|| {
                    cpu_wait.count(|| {
                        while !is_enough.load(Ordering::Relaxed) {
                            spin_loop();
                        }
                    });
                });
            }
            while cpu_wait.total().is_zero() {
                std::thread::yield_now();
            }
            is_enough.store(true, Ordering::Relaxed);
        });
        let total = cpu_wait.total();
        assert!(!total.is_zero());
        assert!(cpu_wait.state().running.is_empty());
        // A thread that is not counted adds nothing.
        std::thread::yield_now();
        assert_eq!(cpu_wait.total(), total);
    }
}
