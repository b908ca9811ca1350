//! Reordering of results: they are added in any order and removed in the order of the requests.

use std::collections::VecDeque;

/// Queue of results that keeps early results until they are next.
#[derive(Debug)]
pub(crate) struct Window<R> {
    /// Number of the result at the front of `waiting`.
    next: u64,
    waiting: VecDeque<Option<R>>,
}

impl<R> Window<R> {
    pub(crate) fn new() -> Window<R> {
        Window { next: 0, waiting: VecDeque::new() }
    }

    /// Adds the result with this number, each number exactly once.
    pub(crate) fn put(&mut self, number: u64, result: R) {
        assert!(number >= self.next, "result {number} was already handed on");
        let place = (number - self.next) as usize;
        if self.waiting.len() <= place {
            self.waiting.resize_with(place + 1, || None);
        }
        assert!(self.waiting[place].is_none(), "result {number} came twice");
        self.waiting[place] = Some(result);
    }

    /// Removes the next result in order, if it is available.
    pub(crate) fn pop(&mut self) -> Option<R> {
        let ready = self.waiting.front_mut()?.take()?;
        self.waiting.pop_front();
        self.next += 1;
        Some(ready)
    }

    /// Returns the number of removed results, which is also the number of the next one.
    pub(crate) fn passed_on(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn results_are_returned_in_order(keys in proptest::collection::vec(any::<u32>(), 0..60)) {
            let mut arrival: Vec<usize> = (0..keys.len()).collect();
            arrival.sort_by_key(|&number| keys[number]);
            let (mut window, mut out) = (Window::new(), Vec::new());
            for number in arrival {
                window.put(number as u64, number);
                while let Some(result) = window.pop() {
                    out.push(result);
                }
            }
            prop_assert_eq!(out, (0..keys.len()).collect::<Vec<_>>());
            prop_assert_eq!(window.passed_on(), keys.len() as u64);
        }
    }
}
