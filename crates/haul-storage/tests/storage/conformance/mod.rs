//! Conformance suite: the behaviour that `haul_storage::storage` documents, as cases that every
//! storage passes.
//!
//! A case starts with an empty directory. It names the [`Feature`]s that the storage must have for
//! it; without them it is skipped.

mod directories;
mod durability;
mod failures;
mod listing;
mod metadata;
mod names;
mod sinks;
mod sources;
mod temporary;
mod tools;

use haul_storage::Dir;
use haul_storage::memory::Call;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Property that some file systems lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Symbolic links.
    Links,
    /// Several names of one inode.
    HardLinks,
    /// Pipes and sockets.
    Specials,
    /// Nodes of devices may be created.
    Devices,
    /// All bits of modes are stored.
    Modes,
    /// This user may set any owner, and owners are stored.
    Owners,
    /// Attributes in the class `user`.
    Attributes,
    /// Access control lists.
    AccessLists,
    /// Times are stored in nanoseconds.
    Nanoseconds,
    /// Times before 1970 and after 2106.
    FarTimes,
    /// Inode numbers stay the same while a file is not open.
    StableInodes,
    /// A removed file or directory stays usable while it is open.
    OpenAfterRemove,
    /// Holes are stored and reported in blocks of 4,096 bytes.
    Holes,
    /// Files share blocks of 4,096 bytes.
    Sharing,
    /// Two names are exchanged at once.
    Exchange,
    /// A rename that replaces nothing.
    NoReplace,
    /// Names are any bytes, and `a` differs from `A`.
    AnyNames,
    /// Names of `a` and `A` are the same, and the first spelling is kept.
    FoldsCase,
    /// Locks of files.
    Locks,
    /// Trees deeper than the longest path of a system call.
    Deep,
    /// Free space is known.
    Space,
    /// Files of 2^62 bytes are refused.
    FileLimit,
    /// [`Subject::faults`] is there.
    Faults,
    /// [`Subject::elsewhere`] is there.
    Elsewhere,
}

/// A storage under test, with an empty directory.
pub(crate) trait Subject {
    /// Opens the directory.
    fn root(&self) -> Arc<dyn Dir>;

    /// Returns the features that the storage lacks.
    fn lacks(&self) -> Vec<Feature>;

    /// Returns the faults that cases inject.
    fn faults(&self) -> Option<&dyn Faults> {
        None
    }

    /// Opens an empty directory of the same kind of storage on another device.
    fn elsewhere(&self) -> Option<Arc<dyn Dir>> {
        None
    }
}

/// Faults of a storage under test.
pub(crate) trait Faults {
    /// Lets the `nth` call of this kind from now on (1: the next one) fail with `errno`.
    fn fail(&self, call: Call, nth: u64, errno: i32);

    /// Writes all dirty pages to the device, which does not make them durable.
    fn write_back(&self);

    /// Limits the space to this number of bytes.
    fn set_capacity(&self, bytes: u64);

    /// Returns the storage that a power cut leaves. The seed chooses what survives of all that is
    /// not durable. This storage does not change.
    fn after_power_cut(&self, seed: u64) -> Box<dyn Subject>;
}

/// A case.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// Name of its function: subject, condition and result.
    pub(crate) name: &'static str,
    /// Features that it needs.
    pub(crate) needs: &'static [Feature],
    /// Panics if the storage does not conform.
    pub(crate) run: fn(&dyn Subject),
}

/// Makes a [`Case`] of a function and the features that it needs.
macro_rules! cases {
    ($($name:ident $(: $($need:ident),+)?;)+) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            name: stringify!($name),
            needs: &[$($(super::Feature::$need),+)?],
            run: $name,
        }),+];
    };
}
use cases;

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    [
        names::CASES,
        listing::CASES,
        directories::CASES,
        metadata::CASES,
        sources::CASES,
        sinks::CASES,
        temporary::CASES,
        durability::CASES,
        failures::CASES,
    ]
    .concat()
}

/// Runs the cases on new subjects, each on its own. Prints the result of each, and returns the
/// names of those that failed and of those that were skipped.
pub(crate) fn run(
    cases: &[Case],
    subject: &dyn Fn() -> Box<dyn Subject>,
) -> (Vec<&'static str>, Vec<&'static str>) {
    let (mut failed, mut skipped) = (Vec::new(), Vec::new());
    for case in cases {
        let subject = subject();
        let lacks = subject.lacks();
        if case.needs.iter().any(|need| lacks.contains(need)) {
            println!("{}: skipped", case.name);
            skipped.push(case.name);
        } else if catch_unwind(AssertUnwindSafe(|| (case.run)(&*subject))).is_ok() {
            println!("{}: ok", case.name);
        } else {
            println!("{}: FAILED", case.name);
            failed.push(case.name);
        }
    }
    (failed, skipped)
}
