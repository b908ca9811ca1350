//! The update rule: one decision for every kind of entry whose name exists at the sink.

use haul_proto::{NewFile, Update};
use haul_sys::{FileKind, Stat};

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

/// Decides by `rule` about the entry `facts`, which is not a directory, if the entry `existing`
/// exists under its name.
///
/// Times and names mean the same for all kinds. Sizes and digests are compared between regular
/// files only. If the bytes of a file must arrive `in_order`, it is compared as a whole.
pub(super) fn decide(rule: Update, in_order: bool, facts: &NewFile, existing: &Stat) -> Decision {
    let ours = (existing.mtime.sec, existing.mtime.nsec);
    let theirs = (facts.mtime.sec, facts.mtime.nsec);
    let are_files = facts.is_regular() && existing.kind == FileKind::Regular;
    let is_as_long = are_files && existing.size == facts.size();
    match rule {
        Update::Missing => Decision::Keep,
        Update::Newer if ours >= theirs => Decision::Keep,
        Update::SizeTime if is_as_long && ours == theirs => Decision::Keep,
        Update::Digest if is_as_long => Decision::CompareWhole,
        Update::Object if is_as_long && in_order => Decision::CompareWhole,
        Update::Object if are_files && !in_order => Decision::CompareObjects,
        _ => Decision::Replace,
    }
}
