//! Placement of a file over storage targets: arithmetic from an object to its target.
//!
//! ```text
//!  offset 0     stripe  2 stripe 3 stripe
//!         |  A   |  B   |  C   |  A   |  B   | ...     targets: A, B, C
//!         |o0 o1 |o2 o3 |o4 o5 |o6 o7 |o8 o9 |         objects of half a stripe
//! ```
//!
//! An object that is longer than a stripe counts for the target of its first byte.

use haul_model::{ByteLen, ByteOffset, Geometry, ObjectIndex};
use std::sync::Arc;

/// Storage target: a device, or a server of a parallel file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub(crate) u32);

/// Targets of a file, in the order of its stripes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    stripe: ByteLen,
    targets: Arc<[TargetId]>,
}

impl Layout {
    /// Returns the layout of a file that is on one target.
    pub fn one(target: TargetId) -> Layout {
        Layout { stripe: ByteLen(u64::MAX), targets: Arc::new([target]) }
    }

    /// Returns the layout of a file whose stripes of `stripe` bytes are on `targets` in turn.
    ///
    /// # Panics
    /// Panics if the stripe is empty or if there is no target.
    pub fn striped(stripe: ByteLen, targets: &[TargetId]) -> Layout {
        assert!(stripe.0 > 0 && !targets.is_empty(), "a layout has stripes and targets");
        Layout { stripe, targets: targets.into() }
    }

    /// Returns the target of a byte.
    pub fn target_at(&self, at: ByteOffset) -> TargetId {
        match &*self.targets {
            [target] => *target,
            targets => targets[((at.0 / self.stripe.0) % targets.len() as u64) as usize],
        }
    }

    /// Returns the targets in the order of the stripes. A target can occur several times.
    pub fn targets(&self) -> &[TargetId] {
        &self.targets
    }

    /// Returns the number of consecutive objects that are certainly on one target; 0 if all are.
    fn run(&self, object: u64) -> u64 {
        match self.targets.len() {
            1 => 0,
            _ if self.stripe.0.is_multiple_of(object) => self.stripe.0 / object,
            _ => 1,
        }
    }

    /// Returns the number of units of `unit` bytes after which the targets repeat, or `None` if the
    /// number is too large to be useful.
    fn period(&self, unit: u64) -> Option<u64> {
        if self.targets.len() == 1 {
            return Some(1);
        }
        let cycle = self.stripe.0.checked_mul(self.targets.len() as u64)?;
        Some(cycle / gcd(cycle, unit))
    }
}

/// Maximum number of classes of one file. Lustre has at most 2,000 targets in a file.
const CLASSES_MAX: u64 = 4096;

/// Classes of the objects of a file, so that few queues hold all objects. A class contains each
/// `classes`-th run of `run` objects. If the layouts repeat after at most [`CLASSES_MAX`] runs, all
/// objects of a class have the same two targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classes {
    run: u64,
    classes: u64,
}

impl Classes {
    /// All objects in one class, in their order.
    pub(crate) const ONE: Classes = Classes { run: 1, classes: 1 };

    /// Returns the classes for two layouts of one file.
    pub(crate) fn of(geometry: Geometry, from: &Layout, to: &Layout) -> Classes {
        let object = geometry.object_size().bytes();
        let run = gcd(from.run(object), to.run(object));
        if run == 0 {
            return Classes::ONE;
        }
        let unit = run.saturating_mul(object);
        let (Some(first), Some(second)) = (from.period(unit), to.period(unit)) else { return Classes::ONE };
        let both = (first / gcd(first, second)).saturating_mul(second);
        let fit = [both, first.max(second), 1].into_iter().find(|classes| *classes <= CLASSES_MAX);
        Classes { run, classes: fit.unwrap_or(1) }
    }

    /// Returns the number of classes that have an object, of a file with `count` objects.
    pub(crate) fn used(self, count: u64) -> u64 {
        count.div_ceil(self.run).min(self.classes)
    }

    /// Returns the class of an object.
    #[cfg(test)]
    pub(crate) fn class_of(self, index: u64) -> u64 {
        (index / self.run) % self.classes
    }

    /// Returns the first object of a class that is not below `from`.
    pub(crate) fn first_from(self, class: u64, from: u64) -> u64 {
        let unit = from / self.run;
        match (class + self.classes - unit % self.classes) % self.classes {
            0 => from,
            units => (unit + units) * self.run,
        }
    }
}

/// Returns the two targets of an object.
pub(crate) fn targets_of(geometry: Geometry, from: &Layout, to: &Layout, index: u64) -> (TargetId, TargetId) {
    let object = geometry.object(ObjectIndex(index));
    let at = object.unwrap_or_else(|| unreachable!("object {index} exists")).range.start;
    (from.target_at(at), to.target_at(at))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::ObjectSize;
    use haul_model::limits::OBJECT_BYTES_MIN;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn layout(stripe: u64, targets: u32) -> Layout {
        match targets {
            1 => Layout::one(TargetId(0)),
            _ => Layout::striped(ByteLen(stripe), &(0..targets).map(TargetId).collect::<Vec<_>>()),
        }
    }

    fn geometry(count: u64) -> Geometry {
        Geometry::new(ByteLen(count * OBJECT_BYTES_MIN), ObjectSize::new(OBJECT_BYTES_MIN).unwrap())
    }

    #[test]
    fn stripes_are_on_the_targets_in_turn() {
        let striped = Layout::striped(ByteLen(10), &[TargetId(7), TargetId(3)]);
        let found: Vec<u32> = [0, 9, 10, 19, 20].map(|at| striped.target_at(ByteOffset(at)).0).into();
        assert_eq!(found, [7, 7, 3, 3, 7]);
        assert_eq!(Layout::one(TargetId(5)).target_at(ByteOffset(u64::MAX)), TargetId(5));
    }

    #[test]
    fn long_stripes_need_no_more_classes_than_targets() {
        let classes = Classes::of(geometry(1 << 40), &layout(OBJECT_BYTES_MIN << 20, 4), &layout(1, 1));
        assert_eq!(classes, Classes { run: 1 << 20, classes: 4 });
        let huge = Classes::of(geometry(1 << 40), &layout(u64::MAX, 2000), &layout(1, 1));
        assert_eq!(huge.classes, 1);
    }

    proptest! {
        /// Each object is in one class, and a class has one pair of targets.
        #[test]
        fn classes_divide_the_objects(
            stripes in (1u64..9, 1u64..9), halves in any::<(bool, bool)>(), targets in (1u32..7, 1u32..7), count in 1u64..300,
        ) {
            let bytes = |units: u64, half| (units * OBJECT_BYTES_MIN) >> u32::from(half);
            let (from, to) = (layout(bytes(stripes.0, halves.0), targets.0), layout(bytes(stripes.1, halves.1), targets.1));
            let geometry = geometry(count);
            let classes = Classes::of(geometry, &from, &to);
            let mut seen = BTreeSet::new();
            for class in 0..classes.used(count) {
                let mut pairs = BTreeSet::new();
                let mut index = classes.first_from(class, 0);
                while index < count {
                    prop_assert_eq!(classes.class_of(index), class);
                    prop_assert!(seen.insert(index));
                    pairs.insert(targets_of(geometry, &from, &to, index));
                    index = classes.first_from(class, index + 1);
                }
                prop_assert_eq!(pairs.len(), 1);
            }
            prop_assert_eq!(seen.len() as u64, count);
        }
    }
}
