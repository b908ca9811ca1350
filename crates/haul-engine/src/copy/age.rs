//! Comparison of the ages of two files whose file systems store times with different precision.

use haul_storage::{Stat, Times, Timespec};

const SECOND: i64 = 1_000_000_000;

/// Time granularities of file systems, in nanoseconds, coarsest first. vfat has 2 s; old Unix and
/// NFS version 2 servers have 1 s; exFAT has 10 ms. NFS servers and archives have 1 µs; NTFS and
/// SMB have 100 ns.
const STEPS: [i64; 5] = [2 * SECOND, SECOND, 10_000_000, 1_000, 100];

/// Returns true if the sink has its source's time, as far as its file system can store it.
pub fn is_same_time(sink: &Stat, source: &Stat) -> bool {
    has_time(sink, source.mtime)
}

/// Returns true if the sink has this modification time, as far as its file system can store it.
pub fn has_time(sink: &Stat, time: Timespec) -> bool {
    sink.mtime == time || sink.mtime == cut_off(time, step_of(sink))
}

/// Returns true if the sink is as new as the source or newer. With `keeps_times`, a sink whose file
/// system truncated the source's time counts as new: it has the complete precision that the file
/// system can store.
pub fn is_as_new(sink: &Stat, source: &Stat, keeps_times: bool) -> bool {
    is_not_before(sink, source.mtime, keeps_times)
}

/// Same as [`is_as_new`], for a source with this modification time.
pub fn is_not_before(sink: &Stat, time: Timespec, keeps_times: bool) -> bool {
    sink.mtime >= time || (keeps_times && sink.mtime >= cut_off(time, step_of(sink)))
}

/// Returns the apparent time granularity of the file system: the coarsest that all times of a file
/// are multiples of. The change time comes from the kernel's clock, so a file on an exact file
/// system seldom looks coarse.
fn step_of(stat: &Stat) -> i64 {
    let times = [stat.atime, stat.mtime, stat.ctime];
    let fits = |step: &i64| times.iter().all(|&time| cut_off(time, *step) == time);
    STEPS.into_iter().find(fits).unwrap_or(1)
}

/// Returns the last multiple of `step` at or before a time. A step above one second must be a whole
/// number of seconds.
fn cut_off(time: Timespec, step: i64) -> Timespec {
    if step >= SECOND {
        return Timespec { sec: time.sec - time.sec.rem_euclid(step / SECOND), nsec: 0 };
    }
    let nsec = i64::from(time.nsec);
    Timespec { nsec: u32::try_from(nsec - nsec % step).unwrap_or(0), ..time }
}

/// Returns the times of an incomplete sink: modified in 1970, or before its source if the source is
/// even older.
pub fn unfinished(source: &Stat) -> Times {
    let before = source.mtime.sec.saturating_sub(1);
    Times { atime: None, mtime: Some(Timespec { sec: before.min(0), nsec: 0 }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::{Follow, local};
    use std::path::Path;

    fn at(mtime: (i64, u32), ctime: (i64, u32)) -> Stat {
        let found = local::open(Path::new("/"), Follow::Yes).unwrap().stat().unwrap();
        let time = |(sec, nsec)| Timespec { sec, nsec };
        Stat { atime: time(mtime), mtime: time(mtime), ctime: time(ctime), ..found }
    }

    #[test]
    fn truncated_time_counts_as_preserved() {
        let source = at((1_001, 123_456_789), (5_000, 1));
        // Times that such a file system stores for the source, and for an older source.
        for (kept, older, changed) in [
            ((1_000, 0), (998, 0), (9_998, 0)),
            ((1_001, 0), (1_000, 0), (9_999, 0)),
            ((1_001, 120_000_000), (1_001, 110_000_000), (9_999, 990_000_000)),
            ((1_001, 123_456_000), (1_001, 123_455_000), (9_999, 999_999_000)),
            ((1_001, 123_456_700), (1_001, 123_456_600), (9_999, 999_999_900)),
        ] {
            assert!(is_as_new(&at(kept, changed), &source, true), "{kept:?}");
            assert!(!is_as_new(&at(kept, changed), &source, false), "{kept:?} where times are not kept");
            assert!(!is_as_new(&at(older, changed), &source, true), "{older:?}");
        }
    }

    #[test]
    fn exact_file_system_compares_nanoseconds() {
        let source = at((1_001, 123_456_789), (5_000, 1));
        for (mtime, is_new) in
            [((1_001, 0), false), ((1_001, 123_456_788), false), ((1_001, 123_456_789), true)]
        {
            assert_eq!(is_as_new(&at(mtime, (9_999, 123_456_781)), &source, true), is_new, "{mtime:?}");
        }
    }

    #[test]
    fn times_before_1970_are_rounded_down() {
        assert_eq!(cut_off(Timespec { sec: -3, nsec: 5 }, 2 * SECOND), Timespec { sec: -4, nsec: 0 });
        assert_eq!(cut_off(Timespec { sec: -3, nsec: 150 }, 100), Timespec { sec: -3, nsec: 100 });
    }
}
