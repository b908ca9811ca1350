//! Sets of objects as runs.

/// A set of numbers kept as runs that don't touch, so that its size follows the gaps in it and not its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// First and one past the last, ascending.
    runs: Vec<(u64, u64)>,
}

impl Runs {
    /// All numbers from `start` up to but not including `end`; none where they are equal.
    ///
    /// # Panics
    /// If `end` lies before `start`: a mistake of the caller.
    pub fn of(start: u64, end: u64) -> Runs {
        assert!(start <= end, "a run ends at or after its start");
        Runs { runs: if start == end { Vec::new() } else { vec![(start, end)] } }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many runs it falls into: a measure of its memory.
    pub fn pieces(&self) -> usize {
        self.runs.len()
    }

    /// How many numbers it has.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|(start, end)| end - start).sum()
    }

    /// One past its highest number; 0 if it is empty.
    pub fn end(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.1)
    }

    /// The runs in order: first, and one past the last.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().copied()
    }

    /// Every number in order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|(start, end)| *start..*end)
    }

    /// Whether the number is in it.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 <= number);
        self.runs.get(at).is_some_and(|run| run.0 <= number)
    }

    /// Adds a number; whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        // The first run that ends at the number or after it: the only ones it can join are this and the next.
        let at = self.runs.partition_point(|run| run.1 < number);
        let touches_left = self.runs.get(at).is_some_and(|run| run.1 == number);
        let next = at + usize::from(touches_left);
        if self.runs.get(next).is_some_and(|run| run.0 <= number) {
            return false;
        }
        let touches_right = self.runs.get(next).is_some_and(|run| run.0 == number + 1);
        match (touches_left, touches_right) {
            (true, true) => {
                self.runs[at].1 = self.runs[next].1;
                self.runs.remove(next);
            }
            (true, false) => self.runs[at].1 += 1,
            (false, true) => self.runs[next].0 = number,
            (false, false) => self.runs.insert(at, (number, number + 1)),
        }
        true
    }

    /// Takes a number out; whether it was in.
    pub fn remove(&mut self, number: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 <= number);
        let Some(&(start, end)) = self.runs.get(at).filter(|run| run.0 <= number) else {
            return false;
        };
        let pieces = [(start, number), (number + 1, end)];
        self.runs.splice(at..=at, pieces.into_iter().filter(|(start, end)| start < end));
        true
    }

    /// Adds all of `other`.
    pub fn unite(&mut self, other: &Runs) {
        *self = self.iter().chain(other.iter()).collect();
    }

    /// Takes all of `other` out.
    pub fn subtract(&mut self, other: &Runs) {
        let mut left = Runs::default();
        for (start, end) in self.iter() {
            let mut at = start;
            let from = other.runs.partition_point(|run| run.1 <= start);
            for &(hole, hole_end) in other.runs[from..].iter().take_while(|run| run.0 < end) {
                left.push(at, hole);
                at = hole_end;
            }
            left.push(at, end);
        }
        *self = left;
    }

    /// The lowest number from `from` on that is not in it.
    pub fn first_gap(&self, from: u64) -> u64 {
        let at = self.runs.partition_point(|run| run.1 <= from);
        match self.runs.get(at) {
            Some(&(start, end)) if start <= from => end,
            _ => from,
        }
    }

    /// Leaves only the first `most` runs.
    pub fn truncate(&mut self, most: usize) {
        self.runs.truncate(most);
    }

    /// Adds a run behind all others; false, and nothing is added, if it is empty, touches the last, or lies before it.
    pub(crate) fn push(&mut self, start: u64, end: u64) -> bool {
        let is_behind = self.runs.last().is_none_or(|last| last.1 < start);
        let is_run = start < end && is_behind;
        if is_run {
            self.runs.push((start, end));
        }
        is_run
    }
}

impl FromIterator<(u64, u64)> for Runs {
    /// Runs in any order, each the first number and one past the last; they may touch and overlap, and be empty.
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(runs: I) -> Runs {
        let mut all: Vec<(u64, u64)> = runs.into_iter().filter(|(start, end)| start < end).collect();
        all.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (start, end) in all {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        Runs { runs: joined }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_in_any_order_are_joined(parts in proptest::collection::vec((0u64..60, 0u64..8), 0..20)) {
            let runs: Runs = parts.iter().map(|(start, len)| (*start, start + len)).collect();
            let twin: BTreeSet<u64> = parts.iter().flat_map(|(start, len)| *start..start + len).collect();
            prop_assert!(runs.numbers().eq(twin.iter().copied()));
            prop_assert!(runs.runs.windows(2).all(|two| two[0].1 < two[1].0), "{:?}", runs);
        }

        /// Against a plain set of numbers.
        #[test]
        fn runs_are_a_set(steps in proptest::collection::vec((0u8..6, 0u64..40, 0u64..8), 0..120)) {
            let mut runs = Runs::default();
            let mut twin = BTreeSet::new();
            for (what, number, more) in steps {
                match what {
                    3 => {
                        let other = Runs { runs: vec![(number, number + 1), (number + 3, number + 4 + more)] };
                        runs.subtract(&other);
                        twin.retain(|n| !other.contains(*n));
                    }
                    0 => prop_assert_eq!(runs.remove(number), twin.remove(&number)),
                    1 => {
                        runs.unite(&Runs::of(number, number + more));
                        twin.extend(number..number + more);
                    }
                    _ => prop_assert_eq!(runs.insert(number), twin.insert(number)),
                }
                prop_assert!(runs.numbers().eq(twin.iter().copied()));
                prop_assert_eq!(runs.count(), twin.len() as u64);
                prop_assert_eq!(runs.contains(number), twin.contains(&number));
                prop_assert_eq!(runs.end(), twin.last().map_or(0, |last| last + 1));
                let gap = (number..).find(|n| !twin.contains(n));
                prop_assert_eq!(Some(runs.first_gap(number)), gap);
                prop_assert!(runs.runs.windows(2).all(|pair| pair[0].1 < pair[1].0));
                prop_assert!(runs.runs.iter().all(|(start, end)| start < end));
            }
        }
    }
}
