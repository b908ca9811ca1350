//! Which finished files are durable, told by the change times they have: a range for each file system.
//!
//! Files are finished one after the other, and each gets its change time from the clock of its file system as it is finished. When a
//! sync of that file system has returned, all that had been finished before it began is durable. So one moment says it of any number of
//! files: those with an earlier change time. It is the greatest change time that was seen before the sync began; a file with exactly that
//! one may have come a moment later, and does not count.
//!
//! Each run has ranges of its own: between what one run made durable and what the next one finished first lie files that the first run
//! finished and of which nothing is known. In one life of the machine they are there nonetheless, and the next sync makes them durable. In the next life
//! they may not be, and if the clock went back meanwhile their times are still to come: so the ranges of a run begin behind all times that
//! other lives may have reached.

use haul_log::record::{KEPT_MAX, Kept, nanoseconds};
use haul_model::Moment;
use haul_sys::dir::open_dir_at;
use haul_sys::{Follow, Stat, filesystem};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Clocks are told apart from workers that come in late by so much: nanoseconds.
const LATE_MAX: i128 = 100_000_000;

/// Nanoseconds.
const SECOND: i128 = 1_000_000_000;

/// Whether the change time of a finished file is one of its own. Some file systems (FAT) show the modification time in its place, which is the
/// source's and says nothing of when the file was finished.
pub(super) fn tells_changes(sink: &Stat) -> bool {
    sink.ctime != sink.mtime
}

/// What is known of each file system's finished files.
#[derive(Debug, Default)]
pub(super) struct KeptRanges {
    /// What earlier runs knew, the first of them first.
    earlier: Vec<Kept>,
    systems: Vec<System>,
    /// Some file could not be made durable: no more of them are said to be.
    is_frozen: bool,
    /// Devices, and whether a sync of the whole file system makes its files durable.
    wholes: Vec<(u64, bool)>,
    /// Times before this one may be those of files that the job finished in another life of the machine.
    past: i128,
}

#[derive(Debug)]
struct System {
    kept: Kept,
    /// The greatest change time of a file that this run finished.
    latest: Option<i128>,
    /// Files were finished since the last sync.
    is_dirty: bool,
    /// Something on it, to sync it by.
    handle: Option<Arc<OwnedFd>>,
}

/// A file system whose finished files are to be made durable.
#[derive(Clone, Debug)]
pub(super) struct Due {
    dev: u64,
    until: i128,
    pub(super) handle: Arc<OwnedFd>,
    /// A sync of all of it does for each file what a sync of that does.
    pub(super) is_whole: bool,
}

impl Due {
    /// Whether a sync of it has made durable what was written to a file on this device before.
    pub(super) fn covers(&self, dev: u64) -> bool {
        self.is_whole && self.dev == dev
    }
}

impl KeptRanges {
    /// What earlier runs knew; those in other lives of the machine finished nothing that has the second `past` or a later one.
    pub(super) fn of(earlier: Vec<Kept>, past: i64) -> KeptRanges {
        let past = nanoseconds(Moment { sec: past, nsec: 0 });
        KeptRanges { earlier, past, ..KeptRanges::default() }
    }

    /// Whether a sync of the file system that a file is on makes the file durable. Asked once for each.
    pub(super) fn syncs_as_a_whole(&mut self, dev: u64, file: impl AsFd) -> bool {
        if let Some((_, is_whole)) = self.wholes.iter().find(|(known, _)| *known == dev) {
            return *is_whole;
        }
        let is_whole = filesystem::syncs_as_a_whole(file);
        self.wholes.push((dev, is_whole));
        is_whole
    }

    /// Records that a file was finished; `place` is its directory, perhaps as a descriptor that only names it (O_PATH).
    ///
    /// Returns true if the clock of the file system went back, so that times do
    /// not tell any more what was before what; what is kept was made empty, and is to be written down before anything else.
    pub(super) fn finished(&mut self, sink: &Stat, (place, file): (impl AsFd, impl AsFd)) -> bool {
        if !tells_changes(sink) {
            return false;
        }
        let changed = nanoseconds(Moment { sec: sink.ctime.sec, nsec: sink.ctime.nsec });
        let begins = changed.max(self.past);
        let at = match self.systems.iter().position(|system| system.kept.dev == sink.dev) {
            Some(at) => at,
            None if self.systems.len() < KEPT_MAX => {
                let kept = Kept { dev: sink.dev, from: begins, until: begins };
                self.systems.push(System { kept, latest: None, is_dirty: false, handle: None });
                self.systems.len() - 1
            }
            None => return false,
        };
        let system = &mut self.systems[at];
        if system.handle.is_none() {
            system.handle = syncable(place, file).ok().map(Arc::new);
        }
        system.is_dirty = true;
        let known = self.earlier.len();
        self.earlier.retain(|kept| kept.dev != sink.dev || kept.until <= changed);
        if system.latest.is_some_and(|latest| changed < latest - LATE_MAX) {
            system.kept = Kept { from: begins, until: begins, ..system.kept };
            system.latest = Some(changed);
            return true;
        }
        system.latest = system.latest.max(Some(changed));
        self.earlier.len() < known
    }

    /// The file systems with files that were finished since the last time this was asked.
    pub(super) fn take_due(&mut self) -> Vec<Due> {
        let due = |system: &mut System| {
            let (until, handle) = (system.latest?, Arc::clone(system.handle.as_ref()?));
            let dev = system.kept.dev;
            let is_whole = !self.wholes.contains(&(dev, false));
            std::mem::take(&mut system.is_dirty).then_some(Due { dev, until, handle, is_whole })
        };
        self.systems.iter_mut().filter_map(due).collect()
    }

    /// Some file could not be made durable, and times don't tell which.
    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// What was due is durable.
    pub(super) fn synced(&mut self, due: &Due) {
        if self.is_frozen {
            return;
        }
        for system in self.systems.iter_mut().filter(|system| system.kept.dev == due.dev) {
            // After a clock that went back meanwhile the old moment means nothing.
            if system.latest.is_some_and(|latest| latest >= due.until) {
                system.kept.until = system.kept.until.max(due.until);
            }
        }
    }

    /// What is to be tried again with the next group.
    pub(super) fn not_synced(&mut self, due: &Due) {
        self.systems
            .iter_mut()
            .filter(|system| system.kept.dev == due.dev)
            .for_each(|system| system.is_dirty = true);
    }

    /// The greatest change time of a file that this run finished, on whatever file system.
    pub(super) fn latest(&self) -> Option<Moment> {
        let latest = self.systems.iter().filter_map(|system| system.latest).max()?;
        let (sec, nsec) = (latest.div_euclid(SECOND), latest.rem_euclid(SECOND));
        Some(Moment { sec: i64::try_from(sec).ok()?, nsec: u32::try_from(nsec).ok()? })
    }

    /// What is known to be durable.
    pub(super) fn known(&self) -> Vec<Kept> {
        let own = self.systems.iter().map(|system| system.kept).filter(|kept| kept.from < kept.until);
        // Where there is no room for all, files that were finished long ago are compared again.
        own.chain(self.earlier.iter().rev().copied()).take(KEPT_MAX).collect()
    }
}

/// A descriptor that syncfs(2) takes: the directory opened again, because one that only names it (O_PATH) is none; the file itself where
/// this user may not read the directory.
fn syncable(place: impl AsFd, file: impl AsFd) -> io::Result<OwnedFd> {
    open_dir_at(place, c".", Follow::No).or_else(|_| file.as_fd().try_clone_to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_log::record::JobRecord;
    use haul_sys::{CWD, Timespec, stat};

    fn sink(dev: u64, sec: i64, nsec: u32) -> Stat {
        let some = stat::stat_at(CWD, ".", Follow::No).unwrap();
        Stat { dev, ctime: Timespec { sec, nsec }, ..some }
    }

    fn at(sec: i64) -> Moment {
        Moment { sec, nsec: 0 }
    }

    fn holds(ranges: &KeptRanges, dev: u64, sec: i64, nsec: u32) -> bool {
        JobRecord { kept: ranges.known(), ..JobRecord::default() }.keeps(dev, Moment { sec, nsec })
    }

    fn sync(ranges: &mut KeptRanges) {
        for due in ranges.take_due() {
            ranges.synced(&due);
        }
    }

    #[test]
    fn what_was_finished_before_a_sync_began_counts_when_it_has_returned() {
        let place = std::fs::File::open(".").unwrap();
        let mut ranges = KeptRanges::default();
        assert!(
            !ranges.finished(&sink(1, 10, 0), (&place, &place))
                && !ranges.finished(&sink(1, 10, 5), (&place, &place))
        );
        assert!(!holds(&ranges, 1, 10, 0), "nothing was synced");
        let due = ranges.take_due();
        assert!(!ranges.finished(&sink(1, 10, 9), (&place, &place)));
        ranges.synced(&due[0]);
        assert!(holds(&ranges, 1, 10, 0) && holds(&ranges, 1, 10, 4));
        assert!(!holds(&ranges, 1, 10, 5), "another file may have got the same time after the sync began");
        assert!(!holds(&ranges, 1, 9, 0) && !holds(&ranges, 2, 10, 0));
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 10, 8) && !holds(&ranges, 1, 10, 9));
        assert!(ranges.take_due().is_empty());
    }

    #[test]
    fn a_sync_that_failed_is_tried_again_and_an_earlier_run_is_gone_on_with() {
        let place = std::fs::File::open(".").unwrap();
        let earlier = Kept { dev: 1, from: 5_000_000_000, until: 8_000_000_000 };
        let mut ranges = KeptRanges::of(vec![earlier], i64::MIN);
        assert!(holds(&ranges, 1, 5, 0) && !holds(&ranges, 1, 8, 0));
        assert!(!ranges.finished(&sink(1, 9, 0), (&place, &place)));
        let due = ranges.take_due();
        ranges.not_synced(&due[0]);
        sync(&mut ranges);
        assert!(!holds(&ranges, 1, 9, 0) && !ranges.finished(&sink(1, 9, 1), (&place, &place)));
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 5, 0) && holds(&ranges, 1, 9, 0));
        assert!(!holds(&ranges, 1, 8, 500), "the earlier run may have finished this after its last sync");
        // The clock went back between the runs.
        assert!(KeptRanges::of(vec![earlier], i64::MIN).finished(&sink(1, 7, 0), (&place, &place)));
    }

    #[test]
    fn a_file_system_without_change_times_says_nothing() {
        let place = std::fs::File::open(".").unwrap();
        let mut ranges = KeptRanges::default();
        for sec in [10, 20] {
            let sink = sink(1, sec, 0);
            assert!(!ranges.finished(&Stat { mtime: sink.ctime, ..sink }, (&place, &place)));
        }
        sync(&mut ranges);
        assert!(ranges.known().is_empty());
    }

    #[test]
    fn nothing_more_counts_after_a_file_that_could_not_be_made_durable() {
        let place = std::fs::File::open(".").unwrap();
        let mut ranges = KeptRanges::default();
        assert!(
            !ranges.finished(&sink(1, 10, 0), (&place, &place))
                && !ranges.finished(&sink(1, 20, 0), (&place, &place))
        );
        sync(&mut ranges);
        assert!(!ranges.finished(&sink(1, 30, 0), (&place, &place)));
        ranges.freeze();
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 19, 0) && !holds(&ranges, 1, 21, 0));
    }

    #[test]
    fn the_oldest_ranges_are_given_up_where_there_is_no_room() {
        let earlier = (0..70).map(|n| Kept { dev: 1, from: n * 10, until: n * 10 + 5 }).collect();
        let known = KeptRanges::of(earlier, i64::MIN).known();
        assert_eq!((known.len(), known[0].from, known.last().unwrap().from), (KEPT_MAX, 690, 60));
    }

    #[test]
    fn where_a_clock_went_back_nothing_from_before_counts() {
        let place = std::fs::File::open(".").unwrap();
        let mut ranges = KeptRanges::default();
        assert!(
            !ranges.finished(&sink(1, 100, 0), (&place, &place))
                && !ranges.finished(&sink(1, 120, 0), (&place, &place))
        );
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 110, 0));
        // A worker that comes late is none.
        assert!(!ranges.finished(&sink(1, 119, 950_000_000), (&place, &place)));
        let due = ranges.take_due();
        assert!(ranges.finished(&sink(1, 105, 0), (&place, &place)));
        assert!(!holds(&ranges, 1, 110, 0), "this could be a file that was finished a moment ago");
        ranges.synced(&due[0]);
        assert!(!holds(&ranges, 1, 110, 0), "the sync was about other times");
        assert!(!ranges.finished(&sink(1, 106, 0), (&place, &place)));
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 105, 0) && !holds(&ranges, 1, 106, 0));
    }

    /// What an earlier run finished last, and a loss of power took, was believed when the clock that went back had come to its times again.
    #[test]
    fn nothing_counts_that_another_life_of_the_machine_may_have_finished() {
        let place = std::fs::File::open(".").unwrap();
        let earlier = Kept { dev: 1, from: nanoseconds(at(100)), until: nanoseconds(at(120)) };
        for first in [95, 121, 140] {
            // The life before may have come to 150, and said so.
            let mut ranges = KeptRanges::of(vec![earlier], 150);
            let went_back = ranges.finished(&sink(1, first, 0), (&place, &place));
            assert_eq!((went_back, holds(&ranges, 1, 110, 0)), (first < 120, first > 120), "{first}");
            for sec in first..170 {
                assert!(!ranges.finished(&sink(1, sec, 0), (&place, &place)));
                sync(&mut ranges);
            }
            for lost in 120..150 {
                assert!(!holds(&ranges, 1, lost, 500), "{first}: {lost} may be of the life before");
            }
            assert!(holds(&ranges, 1, 150, 0) && holds(&ranges, 1, 168, 999) && !holds(&ranges, 1, 169, 0));
        }
    }

    #[test]
    fn a_clock_that_goes_back_within_a_run_brings_no_times_of_another_life_back() {
        let place = std::fs::File::open(".").unwrap();
        let mut ranges = KeptRanges::of(Vec::new(), 150);
        assert!(
            !ranges.finished(&sink(1, 160, 0), (&place, &place))
                && !ranges.finished(&sink(1, 170, 0), (&place, &place))
        );
        assert_eq!(ranges.latest(), Some(at(170)));
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 165, 0));
        assert!(ranges.finished(&sink(1, 100, 0), (&place, &place)));
        assert!(!ranges.finished(&sink(1, 155, 0), (&place, &place)));
        sync(&mut ranges);
        assert!(!holds(&ranges, 1, 120, 0) && holds(&ranges, 1, 152, 0) && !holds(&ranges, 1, 165, 0));
    }
}
