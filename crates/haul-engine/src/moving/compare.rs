//! Whether a source may be removed: it is what it was when it was copied, and the copy has all that it has.
//!
//! The bytes were compared as they were written. What is compared here costs two looks a name: the copy got its
//! source's modification time as the last of its properties, so that a source written since shows another one; and a
//! change of the inode since the job began shows in the change time, which nobody can set back.

use haul_sys::open::read_link_at;
use haul_sys::{FileKind, Stat, Timespec, process};
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;

/// The coarsest unit in which a file system keeps modification times: vfat's, in seconds.
const COARSEST_SECONDS: i64 = 2;

/// No file system that rounds times down keeps a finer unit than this, in nanoseconds (NTFS).
const FINEST_ROUNDED: u32 = 100;

/// What is asked of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demands {
    /// When the copying began, by the clock of this machine.
    pub(super) since: Timespec,
    /// Properties that could not be kept were told already: the copy need not have them.
    pub(super) is_loose: bool,
    /// The copies failed in part, so that a time which is only nearly the same is none of a finished copy.
    pub(super) is_exact: bool,
}

/// What keeps a source from being removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It was changed after it was copied.
    Changed,
    /// Its copy lacks this.
    Differs(&'static str),
}

/// One name, as a look at it found it.
pub(super) struct Side<'a> {
    pub(super) stat: Stat,
    pub(super) dir: BorrowedFd<'a>,
    pub(super) name: &'a OsStr,
}

/// What speaks against removing `source`, whose copy is `sink`.
pub(super) fn doubt(source: &Side<'_>, sink: &Side<'_>, demands: Demands) -> Option<Doubt> {
    let (from, to) = (&source.stat, &sink.stat);
    if from.kind != to.kind {
        return Some(Doubt::Differs("kind"));
    }
    // The other names of a file, which became links to its copy, change its inode as they are removed.
    let is_alone = to.nlink == 1;
    if from.kind != FileKind::Directory && is_alone && from.ctime >= demands.since {
        return Some(Doubt::Changed);
    }
    match from.kind {
        FileKind::Regular if from.size != to.size => return Some(Doubt::Differs("length")),
        FileKind::Symlink if target(source) != target(sink) => return Some(Doubt::Differs("target")),
        FileKind::CharDevice | FileKind::BlockDevice if from.rdev != to.rdev => {
            return Some(Doubt::Differs("device number"));
        }
        _ => {}
    }
    if demands.is_loose || from.kind == FileKind::Directory {
        return None;
    }
    let same_time =
        if demands.is_exact { from.mtime == to.mtime } else { is_same_time(from.mtime, to.mtime) };
    if !same_time {
        return Some(Doubt::Differs("modification time"));
    }
    // Nobody but root can give files away, or set the bits that go with an owner.
    let is_root = process::effective_user() == 0;
    let bits = if is_root { 0o7777 } else { 0o777 };
    if from.kind != FileKind::Symlink && from.mode & bits != to.mode & bits {
        return Some(Doubt::Differs("permissions"));
    }
    if is_root && (from.uid, from.gid) != (to.uid, to.gid) {
        return Some(Doubt::Differs("owner"));
    }
    None
}

/// Whether a file system that rounds times down would keep `source` as `sink`.
fn is_same_time(source: Timespec, sink: Timespec) -> bool {
    let nanos = |time: Timespec| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    let lost = nanos(source) - nanos(sink);
    let is_rounded = sink.nsec.is_multiple_of(FINEST_ROUNDED);
    lost == 0 || (is_rounded && lost > 0 && lost < i128::from(COARSEST_SECONDS) * 1_000_000_000)
}

fn target(side: &Side<'_>) -> Option<std::ffi::OsString> {
    read_link_at(side.dir, side.name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::{CWD, Follow, stat};

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
    fn each_difference_keeps_the_source() {
        let found = stat::stat_at(CWD, "Cargo.toml", Follow::No).unwrap();
        let side = |stat| Side { stat, dir: CWD, name: OsStr::new("Cargo.toml") };
        let later = Timespec { sec: found.ctime.sec + 1, nsec: 0 };
        let demands = Demands { since: later, is_loose: false, is_exact: false };
        let doubt_of = |from: Stat, to: Stat| doubt(&side(from), &side(to), demands);
        assert_eq!(doubt_of(found, found), None);
        let changed = Stat { ctime: later, ..found };
        assert_eq!(doubt_of(changed, found), Some(Doubt::Changed));
        assert_eq!(doubt_of(changed, Stat { nlink: 2, ..found }), None, "its other name went before it");
        for (what, sink) in [
            ("kind", Stat { kind: FileKind::Fifo, ..found }),
            ("length", Stat { size: found.size + 1, ..found }),
            ("modification time", Stat { mtime: later, ..found }),
            ("permissions", Stat { mode: found.mode ^ 0o100, ..found }),
        ] {
            assert_eq!(doubt_of(found, sink), Some(Doubt::Differs(what)));
        }
        let loose = Demands { is_loose: true, ..demands };
        let sink = Stat { mtime: later, mode: 0, ..found };
        assert_eq!(doubt(&side(found), &side(sink), loose), None, "that was told");
    }
}
