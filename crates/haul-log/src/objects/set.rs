//! Sets of object numbers.

use haul_model::ObjectIndex;
use std::collections::BTreeMap;

/// Set of objects of a file, stored as runs of consecutive numbers. A file that is nearly complete
/// takes little memory, regardless of the number of its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSet {
    /// First number of a run, and its exclusive end. Runs neither touch nor overlap.
    runs: BTreeMap<u64, u64>,
    count: u64,
}

impl ObjectSet {
    /// Adds an object. Returns true if the set did not contain it. Numbers must be below
    /// `u64::MAX`.
    pub fn insert(&mut self, object: ObjectIndex) -> bool {
        let ObjectIndex(number) = object;
        if self.contains(object) {
            return false;
        }
        let mut end = number.saturating_add(1);
        if let Some(later) = self.runs.remove(&end) {
            end = later;
        }
        match self.runs.range_mut(..number).next_back() {
            Some((_, before)) if *before == number => *before = end,
            _ => {
                self.runs.insert(number, end);
            }
        }
        self.count += 1;
        true
    }

    /// Returns true if the set contains the object.
    pub fn contains(&self, object: ObjectIndex) -> bool {
        self.runs.range(..=object.0).next_back().is_some_and(|(_, &end)| object.0 < end)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns all objects in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = ObjectIndex> {
        self.runs.iter().flat_map(|(&start, &end)| (start..end).map(ObjectIndex))
    }

    /// Returns the objects with numbers from `from` to before `to`, in ascending order.
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = ObjectIndex> {
        let first = self.runs.range(..=from).next_back().map_or(from, |(&start, _)| start);
        let runs = self.runs.range(first..to.max(first));
        runs.flat_map(move |(&start, &end)| (start.max(from)..end.min(to)).map(ObjectIndex))
    }

    /// Adds all objects of another set.
    pub fn extend(&mut self, other: &ObjectSet) {
        other.iter().for_each(|object| {
            self.insert(object);
        });
    }
}

impl FromIterator<ObjectIndex> for ObjectSet {
    fn from_iter<I: IntoIterator<Item = ObjectIndex>>(objects: I) -> ObjectSet {
        let mut set = ObjectSet::default();
        objects.into_iter().for_each(|object| {
            set.insert(object);
        });
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn object_set_matches_a_plain_set(
            numbers in prop::collection::vec(0_u64..60, 0..80), from in 0_u64..70, len in 0_u64..70,
        ) {
            let (mut set, mut twin) = (ObjectSet::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(set.insert(ObjectIndex(number)), twin.insert(number));
                prop_assert_eq!(set.len(), twin.len() as u64);
            }
            prop_assert!(set.iter().map(|object| object.0).eq(twin.iter().copied()));
            let part: Vec<u64> = set.between(from, from + len).map(|object| object.0).collect();
            prop_assert_eq!(part, twin.range(from..from + len).copied().collect::<Vec<_>>());
            prop_assert!((0..80).all(|n| set.contains(ObjectIndex(n)) == twin.contains(&n)));
            let touching = set.runs.iter().zip(set.runs.keys().skip(1)).any(|((_, end), next)| end >= next);
            prop_assert!(!touching, "runs that touch are one");
        }
    }
}
