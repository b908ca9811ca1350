//! A binary tree that is built from leaves in any order.
//!
//! Leaf `i` and leaf `i ^ 1` are the children of node `i / 2` one level up, and so on. Complete
//! pairs are joined immediately, so one node is kept for each maximal complete subtree. These are
//! about log2(n) while leaves arrive in order, and as many for each gap otherwise.
//!
//! ```text
//!  leaves 0 1 2 . 4 5 . .          kept: (0 1) at level 1, 2 at level 0, (4 5) at level 1
//! ```

use std::collections::BTreeMap;

/// The complete subtrees so far.
#[derive(Clone, Debug)]
pub(crate) struct Forest<N> {
    /// Subtrees by their first leaf.
    nodes: BTreeMap<u64, Subtree<N>>,
}

#[derive(Clone, Copy, Debug)]
struct Subtree<N> {
    /// The subtree has 2^level leaves.
    level: u32,
    node: N,
}

impl<N> Subtree<N> {
    /// Returns the exclusive end of its leaves.
    fn end(&self, first: u64) -> u64 {
        first.saturating_add(1 << self.level)
    }
}

/// Error for a leaf that was already added.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Duplicate;

/// Reason why the leaves do not form one tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hole {
    /// No leaf in this range, end exclusive.
    Missing { start: u64, end: u64 },
    /// There is at least one leaf past the expected count; `count` is the end of the last one.
    Beyond { count: u64 },
}

impl<N: Copy> Forest<N> {
    pub(crate) fn new() -> Forest<N> {
        Forest { nodes: BTreeMap::new() }
    }

    /// Adds a leaf and joins every subtree that it completes; `join` creates a parent from a left
    /// and a right child.
    pub(crate) fn insert(
        &mut self,
        leaf: u64,
        node: N,
        mut join: impl FnMut(N, N) -> N,
    ) -> Result<(), Duplicate> {
        if let Some((&first, before)) = self.nodes.range(..=leaf).next_back()
            && (leaf - first) >> before.level == 0
        {
            return Err(Duplicate);
        }
        let mut first = leaf;
        let mut tree = Subtree { level: 0, node };
        while let Some(sibling) = self.take_sibling(first, tree.level) {
            let on_the_right = first >> tree.level & 1 == 1;
            let (left, right) = if on_the_right { (sibling, tree.node) } else { (tree.node, sibling) };
            first &= !(1 << tree.level);
            tree = Subtree { level: tree.level + 1, node: join(left, right) };
        }
        self.nodes.insert(first, tree);
        Ok(())
    }

    /// Removes the other child of the same parent, if it is complete.
    fn take_sibling(&mut self, first: u64, level: u32) -> Option<N> {
        let sibling = first ^ (1 << level);
        let there = self.nodes.get(&sibling).is_some_and(|tree| tree.level == level);
        if !there {
            return None;
        }
        self.nodes.remove(&sibling).map(|tree| tree.node)
    }

    /// Returns the number of subtrees that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the root over exactly `count` leaves, or `None` if `count` is 0.
    ///
    /// In each node, the left subtree has as many leaves as the largest power of two below the
    /// number of leaves of the node.
    pub(crate) fn top(self, count: u64, mut join: impl FnMut(N, N) -> N) -> Result<Option<N>, Hole> {
        let mut at = 0;
        for (&first, tree) in &self.nodes {
            if first > at {
                break;
            }
            at = tree.end(first);
        }
        if at < count {
            let next = self.nodes.range(at..).next().map_or(count, |(&first, _)| first.min(count));
            return Err(Hole::Missing { start: at, end: next });
        }
        if let Some((&first, tree)) = self.nodes.last_key_value()
            && tree.end(first) > count
        {
            return Err(Hole::Beyond { count: tree.end(first) });
        }
        // The complete subtrees of a complete tree shrink from left to right. The last two are
        // always the children of one node.
        let from_right = self.nodes.into_values().rev().map(|tree| tree.node);
        Ok(from_right.reduce(|right, left| join(left, right)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Joins spans of leaves, so that a wrong order or a lost leaf is detected.
    fn span(left: (u64, u64), right: (u64, u64)) -> (u64, u64) {
        assert_eq!(left.1, right.0, "only neighbours are joined");
        let size = |(start, end)| end - start;
        assert!(u64::is_power_of_two(size(left)) && size(left) >= size(right), "the left child is complete");
        (left.0, right.1)
    }

    proptest! {
        #[test]
        fn insertion_order_does_not_change_the_root(order in (1usize..200).prop_flat_map(|count| {
            Just((0..count as u64).collect::<Vec<_>>()).prop_shuffle()
        })) {
            let mut forest = Forest::new();
            for &leaf in &order {
                prop_assert_eq!(forest.insert(leaf, (leaf, leaf + 1), span), Ok(()));
                prop_assert_eq!(forest.insert(leaf, (leaf, leaf + 1), span), Err(Duplicate));
            }
            prop_assert_eq!(forest.kept() as u32, (order.len() as u64).count_ones());
            let count = order.len() as u64;
            prop_assert_eq!(forest.top(count, span), Ok(Some((0, count))));
        }
    }

    #[test]
    fn leaves_in_order_keep_at_most_14_nodes() {
        let mut forest = Forest::new();
        for leaf in 0..10_000 {
            forest.insert(leaf, (leaf, leaf + 1), span).unwrap();
            assert!(forest.kept() <= 14);
        }
    }

    #[test]
    fn missing_and_surplus_leaves_are_reported() {
        let with = |leaves: &[u64]| {
            let mut forest = Forest::new();
            for &leaf in leaves {
                forest.insert(leaf, (leaf, leaf + 1), span).unwrap();
            }
            forest
        };
        assert_eq!(with(&[]).top(0, span), Ok(None));
        assert_eq!(with(&[]).top(3, span), Err(Hole::Missing { start: 0, end: 3 }));
        assert_eq!(with(&[0, 1, 4]).top(5, span), Err(Hole::Missing { start: 2, end: 4 }));
        assert_eq!(with(&[0, 1, 7]).top(5, span), Err(Hole::Missing { start: 2, end: 5 }));
        assert_eq!(with(&[0, 1, 2]).top(2, span), Err(Hole::Beyond { count: 3 }));
        assert_eq!(with(&[0, 1, 2, 3]).top(3, span), Err(Hole::Beyond { count: 4 }));
        assert_eq!(with(&[0, 9]).top(1, span), Err(Hole::Beyond { count: 10 }));
    }
}
