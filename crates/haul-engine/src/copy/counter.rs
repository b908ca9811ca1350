//! Counters that many workers add to for every small file, without passing one cache line around.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Parts of a counter. More workers than this share parts, which costs time and nothing else.
const PARTS: usize = 16;

/// A number that only grows. Each worker adds to a part of its own; the number is the sum of the parts.
#[derive(Debug, Default)]
pub struct Counter {
    parts: [CachePadded<AtomicU64>; PARTS],
}

impl Counter {
    /// Adds to the number.
    pub(crate) fn add(&self, amount: u64) {
        self.parts[part_of_this_thread()].fetch_add(amount, Ordering::Release);
    }

    /// The number: no less than it was when this was called, no more than it is when this returns.
    pub fn get(&self) -> u64 {
        self.parts.iter().map(|part| part.load(Ordering::Acquire)).sum()
    }
}

/// Threads get the parts in turn.
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
    fn what_more_threads_than_parts_add_is_all_there() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..PARTS + 5 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(3)));
            }
        });
        assert_eq!(counter.get(), 3000 * (PARTS as u64 + 5));
    }
}
