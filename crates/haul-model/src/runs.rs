//! Sets of objects, stored as runs.

/// A set of numbers, stored as runs that do not touch. Its size therefore depends on the number of
/// gaps and not on the number of elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// First number and one past the last number of each run, ascending.
    runs: Vec<(u64, u64)>,
}

impl Runs {
    /// Creates the set of all numbers from `start` up to but not including `end`. The set is empty
    /// if both are equal.
    ///
    /// # Panics
    /// Panics if `end` is less than `start`, which is a caller error.
    pub fn of(start: u64, end: u64) -> Runs {
        assert!(start <= end, "a run ends at or after its start");
        Runs { runs: if start == end { Vec::new() } else { vec![(start, end)] } }
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the number of runs, which determines the memory of the set.
    pub fn pieces(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of elements.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns one past the highest element, or 0 if the set is empty.
    pub fn end(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.1)
    }

    /// Returns the runs in ascending order, each as its first number and one past its last number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().copied()
    }

    /// Returns every element in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|(start, end)| *start..*end)
    }

    /// Returns true if the set contains the number.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 <= number);
        self.runs.get(at).is_some_and(|run| run.0 <= number)
    }

    /// Adds a number. Returns true if it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        // Find the first run that ends at the number or after it. The number can join only this run
        // and the next.
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

    /// Removes a number. Returns true if the set contained it.
    pub fn remove(&mut self, number: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 <= number);
        let Some(&(start, end)) = self.runs.get(at).filter(|run| run.0 <= number) else {
            return false;
        };
        let pieces = [(start, number), (number + 1, end)];
        self.runs.splice(at..=at, pieces.into_iter().filter(|(start, end)| start < end));
        true
    }

    /// Adds all elements of `other`.
    pub fn unite(&mut self, other: &Runs) {
        *self = self.iter().chain(other.iter()).collect();
    }

    /// Removes all elements of `other`.
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

    /// Returns the lowest number that is not in the set and not below `from`.
    pub fn first_gap(&self, from: u64) -> u64 {
        let at = self.runs.partition_point(|run| run.1 <= from);
        match self.runs.get(at) {
            Some(&(start, end)) if start <= from => end,
            _ => from,
        }
    }

    /// Keeps only the first `most` runs.
    pub fn truncate(&mut self, most: usize) {
        self.runs.truncate(most);
    }

    /// Appends a run. Returns false and adds nothing if the run is empty, touches the last run, or
    /// starts before its end.
    pub fn push(&mut self, start: u64, end: u64) -> bool {
        let is_behind = self.runs.last().is_none_or(|last| last.1 < start);
        let is_run = start < end && is_behind;
        if is_run {
            self.runs.push((start, end));
        }
        is_run
    }
}

impl FromIterator<(u64, u64)> for Runs {
    /// Accepts runs in any order, each as the first number and one past the last. They can touch,
    /// overlap and be empty.
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
        fn runs_in_any_order_are_merged(parts in proptest::collection::vec((0u64..60, 0u64..8), 0..20)) {
            let runs: Runs = parts.iter().map(|(start, len)| (*start, start + len)).collect();
            let twin: BTreeSet<u64> = parts.iter().flat_map(|(start, len)| *start..start + len).collect();
            prop_assert!(runs.numbers().eq(twin.iter().copied()));
            prop_assert!(runs.runs.windows(2).all(|two| two[0].1 < two[1].0), "{:?}", runs);
        }

        /// Compares the runs with a plain set of numbers.
        #[test]
        fn runs_match_a_plain_set(steps in proptest::collection::vec((0u8..6, 0u64..40, 0u64..8), 0..120)) {
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
