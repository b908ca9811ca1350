//! Check whether a source may be removed: it is unchanged since the copy, and the copy has all its
//! data and metadata.
//!
//! The bytes were compared when they were written. The check here costs two stat calls per name.
//! The copy got its source's modification time as its last property, so a source written later has
//! another one. A change of the inode since the start of the job is visible in the change time,
//! which no process can set back. The change time also reveals that a directory was replaced by
//! another. The contents of that directory were not copied, and their change times do not show the
//! replacement.

use crate::location::Location;
use haul_storage::{FileKind, Stat, Timespec};
use haul_sys::process;

/// Coarsest granularity of modification times in any file system: that of vfat, in seconds.
const COARSEST_SECONDS: i64 = 2;

/// Finest granularity, in nanoseconds, of any file system that rounds times down (NTFS).
const FINEST_ROUNDED: u32 = 100;

/// One day in seconds. vfat stores local times, so its first and last time vary within a day.
const DAY: i64 = 86_400;

/// First second that a file system can store, and its tolerance: 32 bits (ext2, ext3, ext4 with
/// small inodes, old XFS); 1980 (vfat, exFAT).
const FIRST_SECONDS: [(i64, i64); 2] = [(i32::MIN as i64, 0), (315_532_800, DAY)];

/// Last second: 2038 (32 bits), 2107 (vfat, exFAT), 2446 (ext4), 2486 (XFS).
const LAST_SECONDS: [(i64, i64); 4] =
    [(i32::MAX as i64, 0), (4_354_819_199, DAY), (15_032_385_535, 0), (16_299_260_424, 0)];

/// Latest possible modification time of a failed copy: it is marked with 1970, or with the second
/// before its source's time.
const LAST_OF_FAILED: i64 = 0;

/// Requirements for a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyRequirements {
    /// Start of the copying, by the clock of this machine.
    pub(super) since: Timespec,
    /// True if metadata that could not be preserved was already reported. The copy need not have
    /// it.
    pub(super) is_loose: bool,
    /// True if some of the copies failed. A time that is only nearly equal then does not indicate a
    /// finished copy.
    pub(super) is_exact: bool,
}

/// Reason against removing a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepReason {
    /// The source was changed after the copy.
    Changed,
    /// The copy differs in this property.
    Differs(&'static str),
}

/// One name with its stat result.
pub(super) struct Side<'a> {
    pub(super) stat: Stat,
    pub(super) at: Location<'a>,
}

/// Returns the reason against removing `source`, whose copy is `sink`.
pub(super) fn keep_reason(
    source: &Side<'_>,
    sink: &Side<'_>,
    requirements: CopyRequirements,
) -> Option<KeepReason> {
    let (from, to) = (&source.stat, &sink.stat);
    if from.kind != to.kind {
        return Some(KeepReason::Differs("kind"));
    }
    // Removing the other names of a file, which became links to its copy, changes the inode.
    let is_alone = to.nlink == 1;
    if from.kind != FileKind::Directory && is_alone && from.ctime >= requirements.since {
        return Some(KeepReason::Changed);
    }
    // A name that is added to or removed from a directory sets both of its times to the same value.
    if from.kind == FileKind::Directory && from.ctime >= requirements.since && from.ctime != from.mtime {
        return Some(KeepReason::Changed);
    }
    match from.kind {
        FileKind::Regular if from.size != to.size => return Some(KeepReason::Differs("length")),
        FileKind::Symlink if target(source) != target(sink) => return Some(KeepReason::Differs("target")),
        FileKind::CharDevice | FileKind::BlockDevice if from.rdev != to.rdev => {
            return Some(KeepReason::Differs("device number"));
        }
        _ => {}
    }
    if requirements.is_loose || from.kind == FileKind::Directory {
        return None;
    }
    if !has_time_of(from.mtime, to.mtime, requirements.is_exact) {
        return Some(KeepReason::Differs("modification time"));
    }
    // Only root can change owners, or set the bits that belong to an owner.
    let is_root = process::effective_user() == 0;
    let bits = if is_root { 0o7777 } else { 0o777 };
    let lacks = match () {
        () if from.kind != FileKind::Symlink && from.mode & bits != to.mode & bits => "permissions",
        () if is_root && (from.uid, from.gid) != (to.uid, to.gid) => "owner",
        () => return None,
    };
    // Setting them did not fail, or `is_loose` would be set: vfat reports success and keeps its own
    // values.
    sink.at.keeps_as_given().then_some(KeepReason::Differs(lacks))
}

/// Returns true if `sink` is the form in which its file system stores the time `source`. If
/// `is_exact`, some copies failed, and a failed copy has a time of 1970 at the latest. A time that
/// can mean both does not indicate a finished copy.
fn has_time_of(source: Timespec, sink: Timespec, is_exact: bool) -> bool {
    match is_exact {
        true if source.sec < LAST_OF_FAILED + COARSEST_SECONDS => source == sink,
        true => is_same_time(source, sink),
        false => is_same_time(source, sink) || is_nearest_time(source, sink),
    }
}

/// Returns true if a file system with a limited range of times would store `source` as `sink`: the
/// kernel uses its first or last time.
fn is_nearest_time(source: Timespec, sink: Timespec) -> bool {
    let is_at = |(bound, slack): (i64, i64)| (sink.sec - bound).abs() <= slack;
    let is_before = |(bound, slack): (i64, i64)| source.sec < bound + slack;
    let is_after = |(bound, slack): (i64, i64)| source.sec > bound - slack;
    FIRST_SECONDS.into_iter().any(|first| is_before(first) && is_at(first))
        || LAST_SECONDS.into_iter().any(|last| is_after(last) && is_at(last))
}

/// Returns true if a file system that rounds times down would store `source` as `sink`.
fn is_same_time(source: Timespec, sink: Timespec) -> bool {
    let nanos = |time: Timespec| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    let lost = nanos(source) - nanos(sink);
    let is_rounded = sink.nsec.is_multiple_of(FINEST_ROUNDED);
    lost == 0 || (is_rounded && lost > 0 && lost < i128::from(COARSEST_SECONDS) * 1_000_000_000)
}

fn target(side: &Side<'_>) -> Option<std::ffi::OsString> {
    side.at.read_link().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cp::Place;
    use haul_storage::Follow;
    use std::ffi::OsStr;

    fn time(sec: i64, nsec: u32) -> Timespec {
        Timespec { sec, nsec }
    }

    #[test]
    fn times_may_be_rounded_down_but_not_up() {
        assert!(is_same_time(time(7, 123_456_789), time(7, 123_456_789)));
        assert!(is_same_time(time(7, 123_456_789), time(7, 0)));
        assert!(is_same_time(time(7, 5), time(6, 0)), "vfat keeps even seconds");
        assert!(!is_same_time(time(8, 0), time(6, 0)));
        assert!(!is_same_time(time(7, 0), time(8, 0)));
        assert!(!is_same_time(time(7, 500), time(7, 77)), "that was not rounded");
    }

    #[test]
    fn times_out_of_range_match_the_clamped_times() {
        let (nix, future) = (time(1, 0), time(20_000_000_000, 5));
        for (source, sink) in [
            (nix, time(315_532_800, 0)),
            (nix, time(315_532_800 - 3600, 0)),
            (future, time(4_354_819_198, 0)),
            (future, time(i64::from(i32::MAX), 0)),
            (time(-3_000_000_000, 0), time(i64::from(i32::MIN), 0)),
        ] {
            assert!(has_time_of(source, sink, false), "{source:?} {sink:?}");
            assert!(!has_time_of(source, sink, true), "1980 may be 1970, the mark of a copy that failed");
            assert!(!has_time_of(time(1_000_000_000, 0), sink, false), "{sink:?}");
        }
        assert!(!has_time_of(nix, time(1_000_000_000, 0), false));
    }

    #[test]
    fn failure_mark_time_matches_no_source_time() {
        assert!(has_time_of(time(1_000_000_001, 7), time(1_000_000_000, 0), true), "that was rounded down");
        assert!(has_time_of(time(1, 7), time(1, 7), true));
        assert!(!has_time_of(time(1, 7), time(0, 0), true), "that may be the mark");
        assert!(!has_time_of(time(-5, 0), time(-6, 0), true));
    }

    #[test]
    fn each_difference_keeps_the_source() {
        let at = Location::here(OsStr::new("Cargo.toml"));
        let found = at.stat(Follow::No).unwrap();
        let here = Place::open(OsStr::new(".")).unwrap();
        let side = |stat| Side { stat, at: here.at(at.name()) };
        let later = Timespec { sec: found.ctime.sec + 1, nsec: 0 };
        let requirements = CopyRequirements { since: later, is_loose: false, is_exact: false };
        let doubt_of = |from: Stat, to: Stat| keep_reason(&side(from), &side(to), requirements);
        assert_eq!(doubt_of(found, found), None);
        let changed = Stat { ctime: later, ..found };
        assert_eq!(doubt_of(changed, found), Some(KeepReason::Changed));
        assert_eq!(doubt_of(changed, Stat { nlink: 2, ..found }), None, "its other name went before it");
        let directory = Stat { kind: FileKind::Directory, ..found };
        assert_eq!(doubt_of(directory, directory), None);
        let moved_here = Stat { ctime: later, ..directory };
        assert_eq!(doubt_of(moved_here, directory), Some(KeepReason::Changed));
        assert_eq!(doubt_of(Stat { mtime: later, ..moved_here }, directory), None, "a name came or went");
        for (what, sink) in [
            ("kind", Stat { kind: FileKind::Fifo, ..found }),
            ("length", Stat { size: found.size + 1, ..found }),
            ("modification time", Stat { mtime: later, ..found }),
            ("permissions", Stat { mode: found.mode ^ 0o100, ..found }),
        ] {
            assert_eq!(doubt_of(found, sink), Some(KeepReason::Differs(what)));
        }
        // Owners and modes that a file system without them reports are no reason against removal.
        let proc = Place::open(OsStr::new("/proc/self")).unwrap();
        let elsewhere = |stat| Side { stat, at: proc.at(at.name()) };
        let bare = Stat { mode: found.mode ^ 0o100, ..found };
        assert_eq!(keep_reason(&side(found), &elsewhere(bare), requirements), None);
        let loose = CopyRequirements { is_loose: true, ..requirements };
        let sink = Stat { mtime: later, mode: 0, ..found };
        assert_eq!(keep_reason(&side(found), &side(sink), loose), None, "the loss was reported");
    }
}
