//! The update rule: one decision for every kind of entry whose name exists at the sink.

use crate::copy::{has_time, is_not_before};
use haul_model::Moment;
use haul_proto::{JobOptions, Keep, NewFile, Update};
use haul_storage::{FileKind, Stat, Timespec};

/// The decision about an incoming entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The incoming entry replaces the existing entry.
    Replace,
    /// The existing entry stays.
    Keep,
    /// Compare the digests of the whole files.
    CompareWhole,
    /// Compare the digests of each object, and transfer only objects that differ.
    CompareObjects,
}

/// Decides by the update rule of the job about the entry `facts`, which is not a directory, if the
/// entry `existing` exists under its name.
///
/// Times and names mean the same for all kinds; a time counts as kept if the file system stores no
/// more of it. Sizes and digests are compared between regular files only. If the bytes of a file
/// must arrive in order, it is compared as a whole.
pub(super) fn decide(options: &JobOptions, facts: &NewFile, existing: &Stat) -> Decision {
    let JobOptions { update: rule, in_order, keep, .. } = *options;
    let theirs = timespec(facts.mtime);
    let are_files = facts.is_regular() && existing.kind == FileKind::Regular;
    let is_as_long = are_files && existing.size == facts.size();
    match rule {
        Update::Missing => Decision::Keep,
        Update::Newer if is_not_before(existing, theirs, keep.has(Keep::TIMES)) => Decision::Keep,
        Update::SizeTime if is_as_long && has_time(existing, theirs) => Decision::Keep,
        Update::Digest if is_as_long => Decision::CompareWhole,
        Update::Object if is_as_long && in_order => Decision::CompareWhole,
        Update::Object if are_files && !in_order => Decision::CompareObjects,
        _ => Decision::Replace,
    }
}

/// Converts a time of the source.
pub(super) fn timespec(time: Moment) -> Timespec {
    Timespec { sec: time.sec, nsec: time.nsec }
}
