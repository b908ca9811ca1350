//! Storage of small records by number, with lists through them.
//!
//! Inserting, removing and moving a record take constant time. A record is in at most one list.

/// Number of no record.
pub(crate) const NONE: u32 = u32::MAX;

/// Records that keep their number until they are removed.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<Slot<T>>,
    /// First free slot; the free slots are linked by `next`.
    free: u32,
    /// Number of records.
    used: usize,
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    /// Number of records that were in this slot before.
    generation: u32,
    prev: u32,
    next: u32,
}

/// First and last record of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { first: NONE, last: NONE };

    pub(crate) fn is_empty(self) -> bool {
        self.first == NONE
    }

    pub(crate) fn first(self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}

impl<T> Arena<T> {
    pub(crate) const fn new() -> Arena<T> {
        Arena { slots: Vec::new(), free: NONE, used: 0 }
    }

    /// Adds a record, which is in no list.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.used += 1;
        if self.free == NONE {
            let id = self.slots.len() as u32;
            assert!(id != NONE, "the records fit into 32 bits");
            self.slots.push(Slot { value: Some(value), generation: 0, prev: NONE, next: NONE });
            return id;
        }
        let id = self.free;
        let slot = &mut self.slots[id as usize];
        self.free = slot.next;
        slot.next = NONE;
        slot.value = Some(value);
        id
    }

    /// Removes a record that is in no list.
    pub(crate) fn remove(&mut self, id: u32) -> T {
        let slot = &mut self.slots[id as usize];
        let value = slot.value.take().unwrap_or_else(|| unreachable!("record {id} is removed once"));
        slot.generation = slot.generation.wrapping_add(1);
        self.used -= 1;
        (slot.prev, slot.next) = (NONE, self.free);
        self.free = id;
        value
    }

    /// Returns the generation of a slot. It tells a record from earlier ones of the same number.
    pub(crate) fn generation(&self, id: u32) -> u32 {
        self.slots[id as usize].generation
    }

    /// Gives a record the generation of a new one.
    pub(crate) fn renew(&mut self, id: u32) -> u32 {
        let generation = &mut self.slots[id as usize].generation;
        *generation = generation.wrapping_add(1);
        *generation
    }

    /// Returns true if the slot holds a record of this generation.
    pub(crate) fn holds(&self, id: u32, generation: u32) -> bool {
        let slot = self.slots.get(id as usize);
        slot.is_some_and(|slot| slot.value.is_some() && slot.generation == generation)
    }

    /// Returns true if there is no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the numbers and records.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbered = self.slots.iter().enumerate();
        numbered.filter_map(|(id, slot)| slot.value.as_ref().map(|value| (id as u32, value)))
    }

    /// Returns the largest number of records so far.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn push_back(&mut self, list: &mut List, id: u32) {
        let slot = &mut self.slots[id as usize];
        (slot.prev, slot.next) = (list.last, NONE);
        match list.last {
            NONE => list.first = id,
            last => self.slots[last as usize].next = id,
        }
        list.last = id;
    }

    /// Removes a record from the list that contains it.
    pub(crate) fn unlink(&mut self, list: &mut List, id: u32) {
        let Slot { prev, next, .. } = self.slots[id as usize];
        match prev {
            NONE => list.first = next,
            prev => self.slots[prev as usize].next = next,
        }
        match next {
            NONE => list.last = prev,
            next => self.slots[next as usize].prev = prev,
        }
        let slot = &mut self.slots[id as usize];
        (slot.prev, slot.next) = (NONE, NONE);
    }

    /// Returns the record after `id` in its list.
    pub(crate) fn after(&self, id: u32) -> Option<u32> {
        let next = self.slots[id as usize].next;
        (next != NONE).then_some(next)
    }
}

impl<T> std::ops::Index<u32> for Arena<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        self.slots[id as usize].value.as_ref().unwrap_or_else(|| unreachable!("record {id} exists"))
    }
}

impl<T> std::ops::IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        self.slots[id as usize].value.as_mut().unwrap_or_else(|| unreachable!("record {id} exists"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares a list with a vector.
        #[test]
        fn list_matches_a_vector(steps in proptest::collection::vec((0u8..3, any::<u16>()), 0..100)) {
            let (mut arena, mut list, mut twin) = (Arena::new(), List::EMPTY, Vec::new());
            for (what, number) in steps {
                if what > 0 {
                    let id = arena.insert(number);
                    arena.push_back(&mut list, id);
                    twin.push((id, number));
                } else if !twin.is_empty() {
                    let (id, number) = twin.remove(number as usize % twin.len());
                    let generation = arena.generation(id);
                    arena.unlink(&mut list, id);
                    prop_assert_eq!(arena.remove(id), number);
                    prop_assert!(!arena.holds(id, generation));
                }
                let listed = std::iter::successors(list.first(), |id| arena.after(*id));
                prop_assert!(listed.map(|id| (id, arena[id])).eq(twin.iter().copied()));
                prop_assert_eq!(arena.iter().count(), twin.len());
            }
        }
    }
}
