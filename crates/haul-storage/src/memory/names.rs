//! Changes of names that are not durable yet.

use super::faults::Choices;
use crate::name::Name;
use std::collections::HashSet;

/// Number of an inode.
pub(super) type Ino = u64;

/// Name in a directory, with the inode that it leads to afterwards.
pub(super) type NameSlot = (Ino, Name, Option<Ino>);

/// Change of one name or two that happens as a whole or not at all.
#[derive(Clone, Debug)]
struct NameChange {
    slots: Vec<NameSlot>,
    /// Inodes that gain or lose a name.
    inodes: Vec<Ino>,
    /// True if a directory is moved or removed: all earlier changes happen before it, so that none
    /// loses a directory or a file.
    is_ordered: bool,
}

/// Changes of names since they were last durable, in order. A power cut keeps any of them whose
/// names and inodes no earlier lost change has.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingNames(Vec<NameChange>);

/// Changes that others depend on: all that have the name of an entry or an inode in common with one
/// of them, and all if one of them is ordered.
#[derive(Default)]
struct Related<'a> {
    names: HashSet<(Ino, &'a Name)>,
    inodes: HashSet<Ino>,
    is_empty: bool,
    has_ordered: bool,
}

impl<'a> Related<'a> {
    fn new() -> Related<'a> {
        Related { is_empty: true, ..Related::default() }
    }

    fn add(&mut self, change: &'a NameChange) {
        self.names.extend(change.slots.iter().map(|(dir, name, _)| (*dir, name)));
        self.inodes.extend(&change.inodes);
        self.is_empty = false;
        self.has_ordered |= change.is_ordered;
    }

    fn contains(&self, change: &NameChange) -> bool {
        self.has_ordered
            || (change.is_ordered && !self.is_empty)
            || change.slots.iter().any(|(dir, name, _)| self.names.contains(&(*dir, name)))
            || change.inodes.iter().any(|ino| self.inodes.contains(ino))
    }
}

impl PendingNames {
    /// Adds a change.
    pub(super) fn push(&mut self, slots: Vec<NameSlot>, inodes: Vec<Ino>, is_ordered: bool) {
        self.0.push(NameChange { slots, inodes, is_ordered });
    }

    /// Takes the changes of names in a directory, and those that must happen before them.
    pub(super) fn take_of(&mut self, dir: Ino) -> Vec<NameSlot> {
        let mut related = Related::new();
        let mut taken: Vec<bool> = Vec::new();
        for change in self.0.iter().rev() {
            let is_taken = change.slots.iter().any(|slot| slot.0 == dir) || related.contains(change);
            if is_taken {
                related.add(change);
            }
            taken.push(is_taken);
        }
        let mut slots = Vec::new();
        let mut taken = taken.into_iter().rev();
        self.0.retain(|change| {
            let is_taken = taken.next().unwrap_or(false);
            if is_taken {
                slots.extend(change.slots.iter().cloned());
            }
            !is_taken
        });
        slots
    }

    /// Takes all changes.
    pub(super) fn take_all(&mut self) -> Vec<NameSlot> {
        std::mem::take(&mut self.0).into_iter().flat_map(|change| change.slots).collect()
    }

    /// Returns the changes that survive a power cut.
    pub(super) fn survivors(&self, choices: &mut Choices) -> Vec<NameSlot> {
        let mut lost = Related::new();
        let mut slots = Vec::new();
        for change in &self.0 {
            if lost.contains(change) || choices.either() {
                lost.add(change);
            } else {
                slots.extend(change.slots.iter().cloned());
            }
        }
        slots
    }

    /// Returns the inodes that the changes concern.
    pub(super) fn inodes(&self) -> HashSet<Ino> {
        self.0.iter().flat_map(|change| change.inodes.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(dir: Ino, name: &str, ino: Option<Ino>) -> NameSlot {
        (dir, Name::new(name).expect("a name"), ino)
    }

    /// Returns the sets of names that power cuts keep.
    fn outcomes(pending: &PendingNames) -> HashSet<String> {
        let text = |slots: Vec<NameSlot>| {
            let one = |slot: &NameSlot| format!("{}{}", slot.1, if slot.2.is_some() { "+" } else { "-" });
            slots.iter().map(one).collect::<Vec<_>>().join(" ")
        };
        (0..200).map(|seed| text(pending.survivors(&mut Choices(seed)))).collect()
    }

    #[test]
    fn a_power_cut_loses_unrelated_changes_in_any_order_and_related_ones_from_the_last() {
        let mut pending = PendingNames::default();
        pending.push(vec![slot(1, "a", Some(5))], vec![5], false);
        pending.push(vec![slot(1, "b", Some(6))], vec![6], false);
        pending.push(vec![slot(1, "a", None), slot(2, "c", Some(5))], vec![5], false);
        let expected = ["", "a+", "b+", "a+ b+", "a+ a- c+", "a+ b+ a- c+"];
        assert_eq!(outcomes(&pending), expected.map(String::from).into());
        // A directory that is moved takes all earlier changes with it.
        pending.push(vec![slot(1, "d", None)], vec![9], true);
        let with_move = outcomes(&pending);
        assert!(with_move.contains("a+ b+ a- c+ d-") && !with_move.contains("a+ d-"), "{with_move:?}");
    }

    #[test]
    fn a_sync_takes_the_changes_of_a_directory_and_those_before_them() {
        let mut pending = PendingNames::default();
        pending.push(vec![slot(1, "a", Some(5))], vec![5], false);
        pending.push(vec![slot(1, "b", Some(6))], vec![6], false);
        pending.push(vec![slot(1, "a", None), slot(2, "c", Some(5))], vec![5], false);
        let taken: Vec<String> = pending.take_of(2).iter().map(|slot| slot.1.to_string()).collect();
        assert_eq!(taken, ["a", "a", "c"]);
        assert_eq!(pending.inodes(), HashSet::from([6]));
        assert_eq!(pending.take_all().len(), 1);
    }
}
