//! Sets of ranges of positions.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of disjoint ranges that do not touch each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    /// End of each range by its start.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the lowest range.
    pub(crate) fn first(&self) -> Option<Range<u64>> {
        self.ends.first_key_value().map(|(start, end)| *start..*end)
    }

    /// Removes the lowest range.
    pub(crate) fn pop_first(&mut self) {
        self.ends.pop_first();
    }

    /// Adds a range.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        // The usual case: data that follows the highest range.
        if let Some(mut last) = self.ends.last_entry()
            && *last.key() <= start
            && start <= *last.get()
        {
            let known = last.get_mut();
            *known = end.max(*known);
            return;
        }
        while let Some((&low, &high)) = self.ends.range(..=end).next_back() {
            if high < start {
                break;
            }
            start = start.min(low);
            end = end.max(high);
            self.ends.remove(&low);
        }
        self.ends.insert(start, end);
    }

    /// Removes all positions of a range.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        while let Some((&low, &high)) = self.ends.range(..range.end).next_back() {
            if high <= range.start || range.is_empty() {
                break;
            }
            self.ends.remove(&low);
            if high > range.end {
                self.ends.insert(range.end, high);
            }
            if low < range.start {
                self.ends.insert(low, range.start);
            }
        }
    }

    /// Calls `gap` for each part of `range` that the set does not contain.
    pub(crate) fn gaps(&self, range: Range<u64>, mut gap: impl FnMut(Range<u64>)) {
        let mut at = range.start;
        if let Some((_, &high)) = self.ends.range(..=at).next_back() {
            at = at.max(high);
        }
        for (&low, &high) in self.ends.range(at..) {
            if low >= range.end {
                break;
            }
            if at < low {
                gap(at..low);
            }
            at = high;
        }
        if at < range.end {
            gap(at..range.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_match_a_set_of_positions(
            steps in proptest::collection::vec((any::<bool>(), 0_u64..64, 0_u64..20), 0..40),
            asked in (0_u64..64, 0_u64..30),
        ) {
            let (mut ranges, mut twin) = (Ranges::default(), BTreeSet::new());
            for (is_insert, start, len) in steps {
                if is_insert {
                    ranges.insert(start..start + len);
                    twin.extend(start..start + len);
                } else {
                    ranges.remove(start..start + len);
                    (start..start + len).for_each(|at| { twin.remove(&at); });
                }
                let runs = twin.iter().filter(|at| **at == 0 || !twin.contains(&(**at - 1))).count();
                prop_assert_eq!(ranges.len(), runs);
                let all: BTreeSet<u64> = ranges.ends.iter().flat_map(|(low, high)| *low..*high).collect();
                prop_assert_eq!(&all, &twin);
            }
            let mut missing = Vec::new();
            ranges.gaps(asked.0..asked.0 + asked.1, |gap| missing.extend(gap));
            let expected: Vec<u64> = (asked.0..asked.0 + asked.1).filter(|at| !twin.contains(at)).collect();
            prop_assert_eq!(missing, expected);
        }
    }
}
