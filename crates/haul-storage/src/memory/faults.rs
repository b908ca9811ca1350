//! Faults of a memory storage: calls that fail, and the random choices of a power cut.

use super::errno::error;
use std::collections::HashMap;
use std::io;

/// Defines [`Call`] and the list of its kinds.
macro_rules! calls {
    ($($(#[$text:meta])* $name:ident,)*) => {
        /// Kind of call to a storage.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Call {
            $($(#[$text])* $name,)*
        }

        impl Call {
            /// All kinds of calls.
            pub const ALL: [Call; [$(Call::$name),*].len()] = [$(Call::$name),*];
        }
    };
}

calls! {
    /// Start of a list, and each further batch of it.
    List,
    /// Metadata of an entry or of an open inode.
    Stat,
    /// Holding an entry.
    Hold,
    /// Opening a directory. Creating it is [`Call::Make`].
    OpenDir,
    /// Opening a file for reading, also to read it back.
    OpenSource,
    /// Opening or creating a file for writing.
    OpenSink,
    /// Creating an entry that is not a regular file.
    Make,
    /// Creating a hard link.
    Link,
    /// Renaming or exchanging entries; committing a temporary file.
    Rename,
    /// Removing an entry; abandoning a temporary file.
    Remove,
    /// Syncing the names of a directory.
    SyncNames,
    /// Syncing a device. [`Call::WriteBack`] and [`Call::Flush`] of each file follow.
    SyncDevice,
    /// Free space.
    Space,
    /// Reading bytes.
    Read,
    /// Searching for data.
    NextData,
    /// Writing bytes. Half of the bytes of a call that fails are written.
    Write,
    /// Making a range read as zeros. Half of the range of a call that fails is cleared.
    Clear,
    /// Setting a length.
    SetLen,
    /// Reserving space.
    Reserve,
    /// Moving bytes without memory.
    Offload,
    /// Writing dirty pages of one file to the device. Half of the pages of a call that fails are
    /// lost: they are clean, but the device does not have them.
    WriteBack,
    /// Making bytes or metadata of one file durable that were written to the device.
    Flush,
    /// Locking a file.
    Lock,
    /// Reading a symbolic link.
    ReadLink,
    /// Listing or reading an attribute.
    Attribute,
    /// Setting or removing an attribute.
    SetAttribute,
    /// Setting the owner.
    SetOwner,
    /// Setting the mode.
    SetMode,
    /// Setting the times.
    SetTimes,
}

/// Calls so far, and those that are to fail.
#[derive(Debug, Default)]
pub(super) struct Faults {
    counts: HashMap<Call, u64>,
    /// Kind, number of the call of this kind, and `errno`.
    planned: Vec<(Call, u64, i32)>,
}

impl Faults {
    /// Lets the call of this kind that follows `nth - 1` others from now on fail.
    pub(super) fn plan(&mut self, call: Call, nth: u64, errno: i32) {
        let at = self.count(call) + nth;
        self.planned.push((call, at, errno));
    }

    /// Returns the number of calls of this kind so far, those included that failed.
    pub(super) fn count(&self, call: Call) -> u64 {
        self.counts.get(&call).copied().unwrap_or(0)
    }

    /// Counts a call, and fails if that is planned.
    pub(super) fn check(&mut self, call: Call) -> io::Result<()> {
        let count = self.counts.entry(call).or_default();
        *count += 1;
        let is_this = |planned: &(Call, u64, i32)| (planned.0, planned.1) == (call, *count);
        match self.planned.iter().position(is_this) {
            Some(at) => Err(error(self.planned.swap_remove(at).2)),
            None => Ok(()),
        }
    }
}

/// Sequence of choices that a seed determines (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Choices(pub(super) u64);

impl Choices {
    /// Returns a number below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % count.max(1) as u64) as usize
    }

    /// Returns true or false.
    pub(super) fn either(&mut self) -> bool {
        self.below(2) == 1
    }
}
