//! Scheduler statistics of a thread.

use crate::sandbox;
use rustix::process::Pid;
use rustix::thread::gettid;
use std::fs;
use std::time::Duration;

/// A thread of this process. After the thread has ended, another thread may get its ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(Pid);

impl Thread {
    /// Returns the calling thread.
    pub fn current() -> Self {
        Self(gettid())
    }

    /// Returns the statistics since the start of the thread.
    ///
    /// Returns `None` if the kernel does not count them, or if the thread has ended.
    pub fn sched_times(self) -> Option<SchedTimes> {
        let path = format!("/proc/self/task/{}/schedstat", self.0.as_raw_nonzero());
        sched_times_in(&sandbox::outside(move || fs::read_to_string(path)).ok()?.ok()?)
    }
}

/// Scheduler statistics of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedTimes {
    /// Time on a CPU.
    pub cpu: Duration,
    /// Run delay: time in which the thread was runnable and waited for a CPU. Linux 6.18 sometimes
    /// counts a sleep here: the sleep of a thread that it moves to another CPU just before.
    pub run_delay: Duration,
}

/// Parses three numbers: nanoseconds on a CPU, nanoseconds of waiting for one, and time slices.
/// Zero time slices mean that the kernel does not count: with the statistics disabled it reports `0
/// 0 0`.
fn sched_times_in(schedstat: &str) -> Option<SchedTimes> {
    let numbers: Option<Vec<u64>> = schedstat.split_whitespace().map(|number| number.parse().ok()).collect();
    match numbers?[..] {
        [cpu, waited, turns] if turns > 0 => {
            Some(SchedTimes { cpu: Duration::from_nanos(cpu), run_delay: Duration::from_nanos(waited) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sched_times_are_the_first_two_fields() {
        let times = |cpu, run_delay| {
            Some(SchedTimes { cpu: Duration::from_nanos(cpu), run_delay: Duration::from_nanos(run_delay) })
        };
        assert_eq!(sched_times_in("46449604 25088095 185\n"), times(46_449_604, 25_088_095));
        assert_eq!(sched_times_in("0 0 1\n"), times(0, 0));
        for none in ["", "46449604\n", "1 - 3\n", "0 0 0\n"] {
            assert_eq!(sched_times_in(none), None);
        }
    }

    #[test]
    fn sched_times_of_another_live_thread_are_readable() {
        let here = Thread::current();
        let there = std::thread::spawn(move || (Thread::current(), here.sched_times())).join().unwrap();
        assert_ne!(there.0, here);
        assert_eq!(there.1.is_some(), here.sched_times().is_some());
    }
}
