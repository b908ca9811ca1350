//! Counters that many workers increment for every small file, without contention for one cache
//! line.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of parts of a counter. If there are more workers, some share a part, which only costs
/// time.
const PARTS: usize = 16;

/// A counter that only grows. Each worker adds to its own part; the value is the sum of the parts.
#[derive(Debug, Default)]
pub struct Counter {
    parts: [CachePadded<AtomicU64>; PARTS],
}

impl Counter {
    /// Adds `amount` to the counter.
    pub(crate) fn add(&self, amount: u64) {
        self.parts[part_of_this_thread()].fetch_add(amount, Ordering::Release);
    }

    /// Returns the value: at least the value at the call, at most the value at the return.
    pub fn get(&self) -> u64 {
        self.parts.iter().map(|part| part.load(Ordering::Acquire)).sum()
    }
}

/// Returns the part of the calling thread. Threads get the parts in turn.
fn part_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PART: usize = NEXT.fetch_add(1, Ordering::Relaxed) % PARTS;
    }
    PART.with(|part| *part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_loses_no_adds_with_more_threads_than_parts() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..PARTS + 5 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(3)));
            }
        });
        assert_eq!(counter.get(), 3000 * (PARTS as u64 + 5));
    }
}
