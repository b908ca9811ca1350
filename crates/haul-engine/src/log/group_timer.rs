//! Group commit: sync policies, and size and age of the open group.

use crate::settle::Due;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Maximum age of a group before it is committed. Bounds what an interrupted job must send again.
pub(crate) const GROUP_TIME: Duration = Duration::from_secs(1);

/// Maximum size of a group before it is committed, in bytes of objects.
pub(crate) const GROUP_BYTES: u64 = 256 << 20;

/// Time of syncs (`--sync`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Sync after each object: a power failure costs the objects in progress. Slow on disks.
    Object,
    /// Sync once for all objects of a second or of 256 MiB: a power failure costs the last group.
    #[default]
    Group,
    /// Never sync: a killed process costs the last group. A power failure may cost everything and
    /// may leave logged objects that do not exist, so the next run verifies everything.
    None,
}

impl SyncPolicy {
    const NAMES: [(&'static str, SyncPolicy); 3] =
        [("object", SyncPolicy::Object), ("group", SyncPolicy::Group), ("none", SyncPolicy::None)];

    /// Returns true if this policy syncs at all.
    pub(crate) fn syncs(self) -> bool {
        self != SyncPolicy::None
    }
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SyncPolicy::NAMES.into_iter().find(|(_, policy)| policy == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for SyncPolicy {
    type Err = String;

    fn from_str(word: &str) -> Result<SyncPolicy, String> {
        let found = SyncPolicy::NAMES.into_iter().find(|(name, _)| *name == word);
        found
            .map(|(_, policy)| policy)
            .ok_or_else(|| format!("{word:?} is invalid; valid values are object, group, none"))
    }
}

/// Size and age of the open group.
#[derive(Debug, Default)]
pub(crate) struct GroupTimer {
    /// Time of the first addition.
    since: Option<Instant>,
    bytes: u64,
}

impl GroupTimer {
    /// Adds `bytes` bytes, which can be 0, to the group.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.since.get_or_insert_with(Instant::now);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns when the group is to be committed.
    pub(crate) fn due(&self) -> Due {
        match self.since {
            None => Due::Never,
            Some(_) if self.is_full() => Due::Now,
            Some(since) => Due::At(since + GROUP_TIME),
        }
    }

    /// Returns true if the group has reached its maximum size.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= GROUP_BYTES
    }

    /// Returns true if the group has reached twice its maximum size.
    pub(crate) fn is_twice_full(&self) -> bool {
        self.bytes >= 2 * GROUP_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_due_by_bytes_or_time() {
        let mut group = GroupTimer::default();
        assert_eq!(group.due(), Due::Never);
        let begun = Instant::now();
        group.add(0);
        let Due::At(due) = group.due() else { panic!("{group:?}") };
        assert!(due >= begun + GROUP_TIME && !group.due().is_by(begun) && group.due().is_by(due));
        group.add(GROUP_BYTES - 1);
        assert!(!group.is_full() && group.due() == Due::At(due));
        group.add(1);
        assert!(group.is_full() && group.due() == Due::Now);
    }

    #[test]
    fn policies_are_parsed_as_they_are_shown() {
        assert!(
            SyncPolicy::NAMES
                .into_iter()
                .all(|(name, policy)| name.parse() == Ok(policy) && policy.to_string() == name)
        );
        assert!("all".parse::<SyncPolicy>().is_err_and(|said| said.contains("object, group, none")));
    }
}
