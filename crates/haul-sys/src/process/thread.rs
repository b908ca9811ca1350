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

    /// Returns the run delay: the time since the start of the thread in which it was runnable and
    /// waited for a CPU.
    ///
    /// Returns `None` if the kernel does not count it, or if the thread has ended.
    pub fn run_delay(self) -> Option<Duration> {
        let path = format!("/proc/self/task/{}/schedstat", self.0.as_raw_nonzero());
        run_delay_in(&sandbox::outside(move || fs::read_to_string(path)).ok()?.ok()?)
    }
}

/// Parses three numbers: nanoseconds on a CPU, nanoseconds of waiting for one, and time slices.
/// Zero time slices mean that the kernel does not count: with the statistics disabled it reports `0
/// 0 0`.
fn run_delay_in(schedstat: &str) -> Option<Duration> {
    let numbers: Option<Vec<u64>> = schedstat.split_whitespace().map(|number| number.parse().ok()).collect();
    match numbers?[..] {
        [_, waited, turns] if turns > 0 => Some(Duration::from_nanos(waited)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_delay_is_the_second_field() {
        assert_eq!(run_delay_in("46449604 25088095 185\n"), Some(Duration::from_nanos(25_088_095)));
        assert_eq!(run_delay_in("0 0 1\n"), Some(Duration::ZERO));
        for none in ["", "46449604\n", "1 - 3\n", "0 0 0\n"] {
            assert_eq!(run_delay_in(none), None);
        }
    }

    #[test]
    fn run_delay_of_another_live_thread_is_readable() {
        let here = Thread::current();
        let there = std::thread::spawn(move || (Thread::current(), here.run_delay())).join().unwrap();
        assert_ne!(there.0, here);
        assert_eq!(there.1.is_some(), here.run_delay().is_some());
    }
}
