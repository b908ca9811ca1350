//! Time that the workers of a side waited for a CPU.

use haul_sys::process::Thread;
use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;

/// Run delays of the workers that move data. The kernel counts them all the time, so only the start
/// and the end of each worker have a cost.
#[derive(Debug, Default)]
pub(super) struct CpuWaitTime(Mutex<CpuWaitState>);

#[derive(Debug, Default)]
struct CpuWaitState {
    /// Running workers, each with its run delay from before it started.
    running: Vec<(Thread, Duration)>,
    /// Total of the workers that have ended.
    ended: Duration,
}

impl CpuWaitTime {
    /// Counts the run delay of the calling thread while it runs `work`.
    pub(super) fn count<T>(&self, work: impl FnOnce() -> T) -> T {
        let thread = Thread::current();
        let Some(before) = thread.run_delay() else { return work() };
        self.state().running.push((thread, before));
        let done = work();
        let mut state = self.state();
        state.running.retain(|(worker, _)| *worker != thread);
        state.ended += since(thread, before);
        done
    }

    /// Returns the total of all workers so far.
    pub(super) fn total(&self) -> Duration {
        let state = self.state();
        state.ended + state.running.iter().map(|(worker, before)| since(*worker, *before)).sum::<Duration>()
    }

    fn state(&self) -> MutexGuard<'_, CpuWaitState> {
        self.0.lock()
    }
}

fn since(thread: Thread, before: Duration) -> Duration {
    thread.run_delay().map_or(Duration::ZERO, |now| now.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_lab::needs::shown_or_skip;
    use std::hint::spin_loop;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// With more busy threads than CPUs, some of them wait at any time.
    #[test]
    fn cpu_wait_time_is_counted_during_and_after_the_work() {
        if !shown_or_skip(Thread::current().run_delay().is_some(), "run delays") {
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
