//! Sets of object numbers.

use haul_model::ObjectIndex;
use std::collections::BTreeMap;

/// Which objects of a file: runs of numbers that follow each other, so that a file that is nearly done takes little
/// memory however many objects it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSet {
    /// First number of a run, and one past its last. Runs neither touch nor overlap.
    runs: BTreeMap<u64, u64>,
    count: u64,
}

impl ObjectSet {
    /// Takes an object in; whether it was not there before. Numbers end below `u64::MAX`.
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

    /// Whether an object is in it.
    pub fn contains(&self, object: ObjectIndex) -> bool {
        self.runs.range(..=object.0).next_back().is_some_and(|(_, &end)| object.0 < end)
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// All of them, rising.
    pub fn iter(&self) -> impl Iterator<Item = ObjectIndex> {
        self.runs.iter().flat_map(|(&start, &end)| (start..end).map(ObjectIndex))
    }

    /// Those from one number to before another, rising.
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = ObjectIndex> {
        let first = self.runs.range(..=from).next_back().map_or(from, |(&start, _)| start);
        let runs = self.runs.range(first..to.max(first));
        runs.flat_map(move |(&start, &end)| (start.max(from)..end.min(to)).map(ObjectIndex))
    }

    /// Takes in all of another set.
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
        fn runs_hold_what_a_plain_set_holds(
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
