//! Results in, in any order; results out, in the order they were asked for.

use std::collections::VecDeque;

/// A queue of results that keeps those which came before their turn.
#[derive(Debug)]
pub(crate) struct Window<R> {
    /// The number of the result at the front of `waiting`.
    next: u64,
    waiting: VecDeque<Option<R>>,
}

impl<R> Window<R> {
    pub(crate) fn new() -> Window<R> {
        Window { next: 0, waiting: VecDeque::new() }
    }

    /// Takes the result with this number, each exactly once.
    pub(crate) fn put(&mut self, number: u64, result: R) {
        assert!(number >= self.next, "result {number} was already handed on");
        let place = (number - self.next) as usize;
        if self.waiting.len() <= place {
            self.waiting.resize_with(place + 1, || None);
        }
        assert!(self.waiting[place].is_none(), "result {number} came twice");
        self.waiting[place] = Some(result);
    }

    /// The next result in order, if it is there.
    pub(crate) fn pop(&mut self) -> Option<R> {
        let ready = self.waiting.front_mut()?.take()?;
        self.waiting.pop_front();
        self.next += 1;
        Some(ready)
    }

    /// How many results have been handed on: the number of the one that comes next.
    pub(crate) fn handed_on(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn results_leave_in_order(keys in proptest::collection::vec(any::<u32>(), 0..60)) {
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
            prop_assert_eq!(window.handed_on(), keys.len() as u64);
        }
    }
}
