//! Durable finished files, identified by their change times: one range for each file system.
//!
//! Files are finished one after the other. Each gets its change time from the clock of its file
//! system when it is finished. When a sync of that file system has returned, every file finished
//! before the start of the sync is durable. One moment therefore covers any number of files: all
//! files with an earlier change time. This moment is the greatest change time seen before the sync
//! started. A file with exactly this time may have been finished a moment later, and does not
//! count, unless the run has finished all of its files. A later run that finishes a file at this
//! same time ends the range before it.
//!
//! Each run has its own ranges. After its last sync, a run may have finished files whose state is
//! unknown to the next run. Within one boot these files exist nonetheless, and the next sync makes
//! them durable. After a reboot they may be lost. If the clock stepped back meanwhile, their times
//! are still in the future. The ranges of a run therefore start after all times that other boots
//! may have reached.

use haul_log::record::{KEPT_MAX, SyncedRange, nanoseconds};
use haul_model::Moment;
use haul_storage::{Inode, Stat};
use std::io;
use std::sync::Arc;

/// Tolerance for workers that report late, in nanoseconds. Only a larger step back counts as a
/// clock change.
const LATE_MAX: i128 = 100_000_000;

/// One second, in nanoseconds.
const SECOND: i128 = 1_000_000_000;

/// Returns true if a finished file has its own change time. Some file systems (FAT) report the
/// modification time instead, which is the source's and is unrelated to the time of completion.
pub(super) fn has_own_change_time(sink: &Stat) -> bool {
    sink.ctime != sink.mtime
}

/// Knowledge about the finished files of each file system.
#[derive(Debug, Default)]
pub(super) struct KeptRanges {
    /// Ranges of earlier runs, oldest first.
    earlier: Vec<SyncedRange>,
    systems: Vec<System>,
    /// True if a sync failed. No more files are recorded as durable then.
    is_frozen: bool,
    /// Upper bound of times in earlier boots: an earlier time may belong to a file that the job
    /// finished in another boot.
    past: i128,
}

#[derive(Debug)]
struct System {
    kept: SyncedRange,
    /// Greatest change time of a file that this run finished.
    latest: Option<i128>,
    /// True if files were finished since the last sync.
    is_dirty: bool,
    /// A directory or a file on the file system, for syncing it.
    handle: Arc<dyn Inode>,
}

/// A file system whose finished files must be synced.
#[derive(Clone, Debug)]
pub(super) struct DueSync {
    dev: u64,
    /// Greatest change time of a finished file; `None` if no finished file has its own.
    until: Option<i128>,
    pub(super) handle: Arc<dyn Inode>,
}

impl System {
    fn take_due(&mut self) -> Option<DueSync> {
        let (dev, until, handle) = (self.kept.dev, self.latest, Arc::clone(&self.handle));
        std::mem::take(&mut self.is_dirty).then_some(DueSync { dev, until, handle })
    }
}

impl DueSync {
    /// Returns true if this sync also covers earlier writes to a file on this device.
    pub(super) fn covers(&self, dev: u64) -> bool {
        self.is_whole() && self.dev == dev
    }

    /// Returns true if a sync of the complete file system has the effect of a sync of each file.
    pub(super) fn is_whole(&self) -> bool {
        self.handle.device().capabilities.syncs_as_a_whole
    }
}

impl KeptRanges {
    /// Creates ranges from those of earlier runs. In other boots, the job finished no file with a
    /// time at or after the second `past`.
    pub(super) fn of(earlier: Vec<SyncedRange>, past: i64) -> KeptRanges {
        let past = nanoseconds(Moment { sec: past, nsec: 0 });
        KeptRanges { earlier, past, ..KeptRanges::default() }
    }

    /// Opens a file system for its syncs, unless it is open. Must be called before the first write
    /// to it: of the write-back that failed before the open, a sync reports only what no other
    /// process has seen. Returns false if too many file systems are open.
    ///
    /// # Errors
    /// Returns the error of `open`, or an error if it opened another file system.
    pub(super) fn begins(
        &mut self,
        dev: u64,
        open: impl FnOnce() -> io::Result<Arc<dyn Inode>>,
    ) -> io::Result<bool> {
        if self.systems.iter().any(|system| system.kept.dev == dev) {
            return Ok(true);
        }
        if self.systems.len() >= KEPT_MAX {
            return Ok(false);
        }
        let handle = open()?;
        if handle.device().id != dev {
            return Err(io::Error::other("a sync of its directory would not sync it"));
        }
        let kept = SyncedRange { dev, from: self.past, until: self.past };
        self.systems.push(System { kept, latest: None, is_dirty: false, handle });
        Ok(true)
    }

    /// Returns true if the sync of the file system at the end of a group makes the file durable.
    pub(super) fn syncs_as_a_whole(&self, dev: u64) -> bool {
        let system = self.systems.iter().find(|system| system.kept.dev == dev);
        system.is_some_and(|system| system.handle.device().capabilities.syncs_as_a_whole)
    }

    /// Records that a file was finished on an open file system.
    ///
    /// Returns true if the clock of the file system stepped back, so that times no longer indicate
    /// an order. The ranges were then cleared, and the caller must record them before anything
    /// else.
    pub(super) fn finished(&mut self, sink: &Stat) -> bool {
        let Some(system) = self.systems.iter_mut().find(|system| system.kept.dev == sink.dev) else {
            return false;
        };
        system.is_dirty = true;
        if !has_own_change_time(sink) {
            return false;
        }
        let changed = nanoseconds(Moment { sec: sink.ctime.sec, nsec: sink.ctime.nsec });
        let begins = changed.max(self.past);
        let known = self.earlier.len();
        let mut is_less = exclude_last(&mut system.kept, changed);
        for kept in self.earlier.iter_mut().filter(|kept| kept.dev == sink.dev) {
            is_less |= exclude_last(kept, changed);
        }
        self.earlier.retain(|kept| kept.from < kept.until && (kept.dev != sink.dev || kept.until <= changed));
        let went_back = system.latest.is_some_and(|latest| changed < latest - LATE_MAX);
        if went_back || system.latest.is_none() {
            system.kept = SyncedRange { from: begins, until: begins, ..system.kept };
        }
        if went_back {
            system.latest = Some(changed);
            return true;
        }
        system.latest = system.latest.max(Some(changed));
        is_less || self.earlier.len() < known
    }

    /// Records that the run has finished all of its files: no other file gets the greatest change
    /// time of one that was synced. Without this, the last file would be compared in each later
    /// run.
    ///
    /// Returns true if the ranges grew.
    pub(super) fn ended(&mut self) -> bool {
        let mut has_grown = false;
        for system in self.systems.iter_mut().filter(|system| !system.is_dirty && !self.is_frozen) {
            if system.latest == Some(system.kept.until) {
                system.kept.until += 1;
                has_grown = true;
            }
        }
        has_grown
    }

    /// Returns a file system if files on it were finished since the last call.
    pub(super) fn take_due(&mut self, dev: u64) -> Option<DueSync> {
        self.systems.iter_mut().find(|system| system.kept.dev == dev)?.take_due()
    }

    /// Returns all file systems with files that were finished since the last call.
    pub(super) fn take_all_due(&mut self) -> Vec<DueSync> {
        self.systems.iter_mut().filter_map(System::take_due).collect()
    }

    /// Stops recording durable files: a file or a file system could not be synced, and times do
    /// not identify what is lost.
    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// Returns true after [`KeptRanges::freeze`].
    pub(super) fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Records that the due files are durable.
    pub(super) fn synced(&mut self, due: &DueSync) {
        let Some(until) = due.until.filter(|_| !self.is_frozen) else { return };
        for system in self.systems.iter_mut().filter(|system| system.kept.dev == due.dev) {
            // If the clock stepped back meanwhile, the old moment is meaningless.
            if system.latest.is_some_and(|latest| latest >= until) {
                system.kept.until = system.kept.until.max(until);
            }
        }
    }

    /// Returns the greatest change time of a file that this run finished, on any file system.
    pub(super) fn latest(&self) -> Option<Moment> {
        let latest = self.systems.iter().filter_map(|system| system.latest).max()?;
        let (sec, nsec) = (latest.div_euclid(SECOND), latest.rem_euclid(SECOND));
        Some(Moment { sec: i64::try_from(sec).ok()?, nsec: u32::try_from(nsec).ok()? })
    }

    /// Returns the ranges known to be durable.
    pub(super) fn known(&self) -> Vec<SyncedRange> {
        let own = self.systems.iter().map(|system| system.kept).filter(|kept| kept.from < kept.until);
        // If there are too many ranges, files that were finished long ago are compared again.
        own.chain(self.earlier.iter().rev().copied()).take(KEPT_MAX).collect()
    }
}

/// Excludes the last time of a range, if a file that was not synced has this time. Returns true if
/// it did.
fn exclude_last(kept: &mut SyncedRange, changed: i128) -> bool {
    let is_last = kept.from < kept.until && kept.until == changed + 1;
    kept.until -= i128::from(is_last);
    is_last
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_log::record::JobRecord;
    use haul_storage::memory::MemoryStorage;
    use haul_storage::{Follow, Timespec};

    fn sink(dev: u64, sec: i64, nsec: u32) -> Stat {
        let some = MemoryStorage::new(1).root().stat().unwrap();
        Stat { dev, ctime: Timespec { sec, nsec }, ..some }
    }

    fn open(dev: u64) -> io::Result<Arc<dyn Inode>> {
        Ok(MemoryStorage::new(dev).root())
    }

    fn finish(ranges: &mut KeptRanges, sink: &Stat) -> bool {
        assert!(ranges.begins(sink.dev, || open(sink.dev)).unwrap());
        ranges.finished(sink)
    }

    fn at(sec: i64) -> Moment {
        Moment { sec, nsec: 0 }
    }

    fn holds(ranges: &KeptRanges, dev: u64, sec: i64, nsec: u32) -> bool {
        JobRecord { kept: ranges.known(), ..JobRecord::default() }.keeps(dev, Moment { sec, nsec })
    }

    fn sync(ranges: &mut KeptRanges) {
        for due in ranges.take_all_due() {
            ranges.synced(&due);
        }
    }

    #[test]
    fn files_finished_before_a_sync_count_after_it_returns() {
        let mut ranges = KeptRanges::default();
        assert!(!finish(&mut ranges, &sink(1, 10, 0)) && !finish(&mut ranges, &sink(1, 10, 5)));
        assert!(!holds(&ranges, 1, 10, 0), "nothing was synced");
        let due = ranges.take_all_due();
        assert!(!finish(&mut ranges, &sink(1, 10, 9)));
        ranges.synced(&due[0]);
        assert!(holds(&ranges, 1, 10, 0) && holds(&ranges, 1, 10, 4));
        assert!(!holds(&ranges, 1, 10, 5), "another file may have got the same time after the sync began");
        assert!(!holds(&ranges, 1, 9, 0) && !holds(&ranges, 2, 10, 0));
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 10, 8) && !holds(&ranges, 1, 10, 9));
        assert!(ranges.take_all_due().is_empty());
    }

    /// Regression test: every later run read and compared the file that was finished last.
    #[test]
    fn last_file_counts_when_the_run_has_ended() {
        let mut ranges = KeptRanges::default();
        assert!(!finish(&mut ranges, &sink(1, 10, 9)));
        assert!(!ranges.ended(), "nothing was synced");
        sync(&mut ranges);
        assert!(!holds(&ranges, 1, 10, 9) && ranges.ended());
        assert!(holds(&ranges, 1, 10, 9) && !holds(&ranges, 1, 10, 10) && !ranges.ended());
        // A later job of the same command, and a later run: both may finish a file at this time.
        let earlier = ranges.known();
        for mut next in [ranges, KeptRanges::of(earlier.clone(), i64::MIN)] {
            assert!(finish(&mut next, &sink(1, 10, 9)), "the range must be recorded at once");
            assert!(!holds(&next, 1, 10, 9), "the second file is not synced");
            sync(&mut next);
            assert!(next.ended() && holds(&next, 1, 10, 9));
        }
        let mut next = KeptRanges::of(earlier, i64::MIN);
        assert!(!finish(&mut next, &sink(1, 10, 10)) && holds(&next, 1, 10, 9));
    }

    #[test]
    fn last_file_does_not_count_after_a_failed_sync() {
        let mut ranges = KeptRanges::default();
        assert!(!finish(&mut ranges, &sink(1, 10, 0)));
        sync(&mut ranges);
        assert!(!finish(&mut ranges, &sink(1, 20, 0)));
        // The group takes the file system, and its sync fails.
        assert_eq!(ranges.take_all_due().len(), 1);
        ranges.freeze();
        assert!(!ranges.ended() && !holds(&ranges, 1, 20, 0));
        sync(&mut ranges);
        assert!(!ranges.ended() && !holds(&ranges, 1, 20, 0));
    }

    #[test]
    fn earlier_ranges_stay_valid_until_the_clock_steps_back() {
        let earlier = SyncedRange { dev: 1, from: 5_000_000_000, until: 8_000_000_000 };
        let mut ranges = KeptRanges::of(vec![earlier], i64::MIN);
        assert!(holds(&ranges, 1, 5, 0) && !holds(&ranges, 1, 8, 0));
        assert!(!finish(&mut ranges, &sink(1, 9, 0)));
        sync(&mut ranges);
        assert!(!holds(&ranges, 1, 9, 0) && !finish(&mut ranges, &sink(1, 9, 1)));
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 5, 0) && holds(&ranges, 1, 9, 0));
        assert!(!holds(&ranges, 1, 8, 500), "the earlier run may have finished this after its last sync");
        // The clock stepped back between the runs.
        assert!(finish(&mut KeptRanges::of(vec![earlier], i64::MIN), &sink(1, 7, 0)));
    }

    #[test]
    fn file_system_without_change_times_yields_no_ranges() {
        let mut ranges = KeptRanges::default();
        for sec in [10, 20] {
            let sink = sink(1, sec, 0);
            assert!(!finish(&mut ranges, &Stat { mtime: sink.ctime, ..sink }));
            // Earlier versions did not sync such a file system at all.
            let due = ranges.take_all_due();
            assert_eq!(due.iter().map(|due| (due.dev, due.until)).collect::<Vec<_>>(), [(1, None)]);
            ranges.synced(&due[0]);
        }
        assert!(!ranges.ended());
        assert!(ranges.known().is_empty());
    }

    #[test]
    fn files_on_a_file_system_that_is_not_open_are_synced_alone() {
        let mut ranges = KeptRanges::default();
        assert!(!ranges.syncs_as_a_whole(1) && !ranges.finished(&sink(1, 10, 0)));
        let is_open = |ranges: &mut KeptRanges, dev| ranges.begins(dev, || open(dev)).unwrap();
        assert!((0..KEPT_MAX as u64).all(|dev| is_open(&mut ranges, dev)));
        assert!(!is_open(&mut ranges, 99) && is_open(&mut ranges, 1));
        assert!(!ranges.syncs_as_a_whole(99) && ranges.syncs_as_a_whole(1));
        let in_memory = haul_storage::local::open("/dev/shm".as_ref(), Follow::Yes).unwrap();
        let dev = in_memory.device().id;
        ranges = KeptRanges::default();
        assert!(ranges.begins(1, || Ok(Arc::clone(&in_memory) as _)).is_err(), "another file system");
        assert!(ranges.begins(dev, || Ok(in_memory)).unwrap() && !ranges.syncs_as_a_whole(dev));
        let failed = KeptRanges::default().begins(1, || Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn no_later_file_counts_after_freeze() {
        let mut ranges = KeptRanges::default();
        assert!(!finish(&mut ranges, &sink(1, 10, 0)) && !finish(&mut ranges, &sink(1, 20, 0)));
        sync(&mut ranges);
        assert!(!finish(&mut ranges, &sink(1, 30, 0)));
        ranges.freeze();
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 19, 0) && !holds(&ranges, 1, 21, 0));
    }

    #[test]
    fn oldest_ranges_are_dropped_above_the_maximum() {
        let earlier = (0..70).map(|n| SyncedRange { dev: 1, from: n * 10, until: n * 10 + 5 }).collect();
        let known = KeptRanges::of(earlier, i64::MIN).known();
        assert_eq!((known.len(), known[0].from, known.last().unwrap().from), (KEPT_MAX, 690, 60));
    }

    #[test]
    fn ranges_before_a_backward_clock_step_do_not_count() {
        let mut ranges = KeptRanges::default();
        assert!(!finish(&mut ranges, &sink(1, 100, 0)) && !finish(&mut ranges, &sink(1, 120, 0)));
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 110, 0));
        // A late worker does not count as a clock change.
        assert!(!finish(&mut ranges, &sink(1, 119, 950_000_000)));
        let due = ranges.take_all_due();
        assert!(finish(&mut ranges, &sink(1, 105, 0)));
        assert!(!holds(&ranges, 1, 110, 0), "this could be a file that was finished a moment ago");
        ranges.synced(&due[0]);
        assert!(!holds(&ranges, 1, 110, 0), "the sync was about other times");
        assert!(!finish(&mut ranges, &sink(1, 106, 0)));
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 105, 0) && !holds(&ranges, 1, 106, 0));
    }

    /// Regression test: files that an earlier run finished last were lost in a power failure. They
    /// were still trusted when the clock, which had stepped back, reached their times again.
    #[test]
    fn times_an_earlier_boot_may_have_reached_do_not_count() {
        let earlier = SyncedRange { dev: 1, from: nanoseconds(at(100)), until: nanoseconds(at(120)) };
        for first in [95, 121, 140] {
            // The previous boot may have reached 150, and recorded that.
            let mut ranges = KeptRanges::of(vec![earlier], 150);
            let went_back = finish(&mut ranges, &sink(1, first, 0));
            assert_eq!((went_back, holds(&ranges, 1, 110, 0)), (first < 120, first > 120), "{first}");
            for sec in first..170 {
                assert!(!finish(&mut ranges, &sink(1, sec, 0)));
                sync(&mut ranges);
            }
            for lost in 120..150 {
                assert!(!holds(&ranges, 1, lost, 500), "{first}: {lost} may be of the life before");
            }
            assert!(holds(&ranges, 1, 150, 0) && holds(&ranges, 1, 168, 999) && !holds(&ranges, 1, 169, 0));
        }
    }

    #[test]
    fn backward_clock_step_does_not_restore_times_of_another_boot() {
        let mut ranges = KeptRanges::of(Vec::new(), 150);
        assert!(!finish(&mut ranges, &sink(1, 160, 0)) && !finish(&mut ranges, &sink(1, 170, 0)));
        assert_eq!(ranges.latest(), Some(at(170)));
        sync(&mut ranges);
        assert!(holds(&ranges, 1, 165, 0));
        assert!(finish(&mut ranges, &sink(1, 100, 0)));
        assert!(!finish(&mut ranges, &sink(1, 155, 0)));
        sync(&mut ranges);
        assert!(!holds(&ranges, 1, 120, 0) && holds(&ranges, 1, 152, 0) && !holds(&ranges, 1, 165, 0));
    }
}
