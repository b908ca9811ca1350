//! Run history of a job: start times by which later runs recognize the files that the job finished.

use super::{LogError, SyncPolicy, folder};
use haul_digest::{Algorithm, digest};
use haul_model::Moment;
use haul_storage::{Durability, Replacement, Writers, replace_path};
use haul_sys::process;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Name of the file in the directory of a job.
const NAME: &str = "begun";

/// Read limit for the file, in bytes; well above the size of a valid file.
const BYTES_MAX: u64 = 64 << 10;

/// Maximum number of recorded runs: the first run and the most recent ones.
const RUNS_MAX: usize = 64;

/// Seconds by which the recorded time bound runs ahead of the last heartbeat.
///
/// A larger value writes the file less often. A smaller value makes the next run compare fewer
/// files after a reboot.
const AHEAD: i64 = 600;

/// Run history of an unfinished job.
///
/// Each run records its start time, taken from the clock of the sink's file system. A file at the
/// sink may belong to the job if its birth or change time is not before the start of the first run.
///
/// ```text
///  BOOT SECONDS NANOSECONDS SYNC AHEAD      a line for each run
///  blake3=HEX                               of the lines above
/// ```
///
/// AHEAD is an exclusive upper bound, in seconds, for the times of files that the run creates. The
/// clock may step back across a reboot, so time ranges of different boots can overlap. A time below
/// the highest AHEAD of another boot identifies no boot.
///
/// If all runs sync, the start of a run is not synced: without the start, finished files are only
/// compared or sent again. If any run does not sync, the start is synced before the run logs
/// anything. Only the start then shows that a power failure may have destroyed logged objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunHistory {
    runs: Vec<Run>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    /// Boot of the machine ([`process::boot_id`]), or `-` if it is unknown.
    boot: String,
    at: Moment,
    sync: SyncPolicy,
    /// Exclusive upper bound, in seconds since the epoch, for the times of files that this run
    /// created.
    ahead: i64,
}

impl RunHistory {
    /// Reads the run history in the job directory `home`.
    ///
    /// If the file is damaged, or missing although `has_run` is true, returns a history with one
    /// unknown run, which may have done anything.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the file cannot be read.
    pub fn read(home: &Path, has_run: bool) -> Result<RunHistory, LogError> {
        let path = home.join(NAME);
        let file = match folder::options().open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(if has_run { RunHistory::lost() } else { RunHistory::default() });
            }
            opened => opened.map_err(LogError::io("read run history", &path))?,
        };
        let mut text = Vec::new();
        let got = file.take(BYTES_MAX).read_to_end(&mut text);
        got.map_err(LogError::io("read run history", &path))?;
        Ok(String::from_utf8(text)
            .ok()
            .and_then(|text| RunHistory::decode(&text))
            .unwrap_or_else(RunHistory::lost))
    }

    fn lost() -> RunHistory {
        let at = Moment { sec: i64::MAX, nsec: 0 };
        RunHistory { runs: vec![Run { boot: LOST.to_owned(), at, sync: SyncPolicy::None, ahead: i64::MAX }] }
    }

    /// Records that the job runs again, starting at `at`.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the file cannot be written.
    pub fn run(&mut self, home: &Path, at: Moment, sync: SyncPolicy) -> Result<(), LogError> {
        if self.runs.len() >= RUNS_MAX {
            self.fold();
        }
        // Half of AHEAD: the first heartbeat of the run extends the bound and syncs it.
        let ahead = at.sec.saturating_add(AHEAD / 2);
        self.runs.push(Run { boot: this_boot(), at, sync, ahead });
        self.write(home, self.runs.iter().any(|run| !run.sync.syncs()))
    }

    /// Extends the time bound of the current run so that it covers `now`.
    ///
    /// Call this before the job creates a file with timestamp `now`. The new bound is written and
    /// synced only when the recorded bound is at most `AHEAD / 2` seconds ahead of `now`.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the file cannot be written. The bound stays unchanged, and the
    /// next call tries again.
    pub fn heartbeat(&mut self, home: &Path, now: Moment) -> Result<(), LogError> {
        let is_far = |run: &Run| run.ahead > now.sec.saturating_add(AHEAD / 2);
        let Some(run) = self.runs.last_mut().filter(|run| !is_far(run)) else { return Ok(()) };
        let before = std::mem::replace(&mut run.ahead, now.sec.saturating_add(AHEAD));
        let written = self.write(home, true);
        if let (Err(_), Some(run)) = (&written, self.runs.last_mut()) {
            run.ahead = before;
        }
        written
    }

    /// Merges the second run into the first, so that one more run fits.
    ///
    /// The merged run has the later time bound and the weaker sync policy of the two. If the first
    /// run belongs to the current boot, the second one does too.
    fn fold(&mut self) {
        let second = self.runs.remove(1);
        let first = &mut self.runs[0];
        first.ahead = first.ahead.max(second.ahead);
        if !second.sync.syncs() {
            first.sync = second.sync;
        }
    }

    fn write(&self, home: &Path, outlasts: bool) -> Result<(), LogError> {
        folder::make(home)?;
        let path = home.join(NAME);
        let durability = if outlasts { Durability::DataAndName } else { Durability::None };
        let written = replace_path(&path, Replacement::private(Writers::One, durability), |out| {
            out.write_all(self.encode().as_bytes())
        });
        written.map_err(LogError::io("write run history", &path))
    }

    /// Deletes the run history of a finished job.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the file cannot be removed.
    pub fn remove(home: &Path) -> Result<(), LogError> {
        let path = home.join(NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(LogError::io("remove", &path)),
        }
    }

    /// Returns true if the history was lost and no run has been recorded since.
    pub fn is_lost(&self) -> bool {
        self.runs.last().is_some_and(|run| run.boot == LOST)
    }

    /// Returns true if the history contains a run.
    pub fn is_some(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Returns true if a file with this birth or change time may belong to the job. If a run is
    /// unknown, any time may.
    pub fn covers(&self, at: Moment) -> bool {
        let is_unknown = self.runs.iter().any(|run| run.boot == LOST);
        is_unknown || self.runs.first().is_some_and(|run| run.at <= at)
    }

    /// Returns true if this time is later than the start of the last run. The clock went back, or
    /// another clock set the time; the time then does not identify the run.
    pub fn is_future(&self, at: Moment) -> bool {
        self.runs.last().is_some_and(|run| run.at < at)
    }

    /// Returns true if a file with this birth or change time was written during the current boot.
    /// Such a file is present even if it was never synced.
    pub fn covers_this_boot(&self, at: Moment) -> bool {
        let boot = this_boot();
        let first = self.runs.iter().find(|run| run.boot == boot && boot != UNKNOWN);
        first.is_some_and(|run| run.at <= at) && self.past() <= at.sec
    }

    /// Exclusive upper bound, in seconds, for the times of files that earlier runs created during
    /// other boots; `i64::MIN` if there is no such run. The last run does not count.
    pub fn past(&self) -> i64 {
        let boot = this_boot();
        let earlier = self.runs.split_last().map_or(&[][..], |(_, earlier)| earlier);
        let others = earlier.iter().filter(|run| run.boot != boot || boot == UNKNOWN);
        others.map(|run| run.ahead).max().unwrap_or(i64::MIN)
    }

    /// Returns true if all runs of the job sync the files that they finish.
    pub fn syncs(&self) -> bool {
        self.runs.iter().all(|run| run.sync.syncs())
    }

    /// Returns true if a power failure may have destroyed logged objects: a run during another boot
    /// synced nothing.
    pub fn may_have_lost(&self) -> bool {
        let boot = this_boot();
        self.runs.iter().any(|run| run.sync == SyncPolicy::None && (run.boot != boot || boot == UNKNOWN))
    }

    fn encode(&self) -> String {
        let line =
            |run: &Run| format!("{} {} {} {} {}\n", run.boot, run.at.sec, run.at.nsec, run.sync, run.ahead);
        let lines: String = self.runs.iter().map(line).collect();
        let sum = digest(Algorithm::Blake3, lines.as_bytes());
        format!("{lines}{SUM}{sum}\n")
    }

    fn decode(text: &str) -> Option<RunHistory> {
        let (lines, sum) = text.rfind(SUM).map(|at| text.split_at(at))?;
        if sum != format!("{SUM}{}\n", digest(Algorithm::Blake3, lines.as_bytes())) {
            return None;
        }
        let runs = lines.lines().map(|line| {
            let mut words = line.split(' ');
            let boot = words.next()?.to_owned();
            let at = Moment { sec: words.next()?.parse().ok()?, nsec: words.next()?.parse().ok()? };
            let sync = words.next()?.parse().ok()?;
            let ahead = words.next()?.parse().ok()?;
            (words.next().is_none() && at.nsec < 1_000_000_000).then_some(Run { boot, at, sync, ahead })
        });
        Some(RunHistory { runs: runs.collect::<Option<_>>()? })
    }
}

/// Boot of a machine that provides no boot ID.
const UNKNOWN: &str = "-";

/// Boot of a run about which nothing is known.
const LOST: &str = "?";

/// Prefix of the last line.
const SUM: &str = "blake3=";

fn this_boot() -> String {
    let boot = process::boot_id();
    if boot.is_empty() || boot.contains(char::is_whitespace) { UNKNOWN.to_owned() } else { boot }
}

/// Checks for any bytes that they are a run history, or refused, and that an accepted history is
/// the same after it is written and read again.
pub(crate) fn any(bytes: &[u8]) {
    for text in crate::sealed::sealed(bytes) {
        let Some(mut run_history) = RunHistory::decode(&text) else { continue };
        assert_eq!(RunHistory::decode(&run_history.encode()).as_ref(), Some(&run_history));
        let at = Moment { sec: 100, nsec: 0 };
        let covered = run_history.covers(at) || run_history.is_future(at) || run_history.covers_this_boot(at);
        assert!(run_history.is_some() || !covered && run_history.past() == i64::MIN);
        if run_history.runs.len() >= RUNS_MAX {
            run_history.fold();
            assert!(run_history.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: i64) -> Moment {
        Moment { sec, nsec: 7 }
    }

    /// Creates a run that started at `sec` during the boot `boot` and was interrupted within the
    /// minute.
    fn run(boot: &str, sec: i64, sync: SyncPolicy) -> Run {
        Run { boot: boot.to_owned(), at: at(sec), sync, ahead: sec + 60 }
    }

    #[test]
    fn recorded_runs_are_read_back_until_removed() {
        let home = tempfile::tempdir().unwrap();
        let mut run_history = RunHistory::read(home.path(), false).unwrap();
        assert!(!run_history.is_some() && !run_history.covers(at(i64::MAX)));
        for second in 0..100 {
            run_history.run(home.path(), at(second), SyncPolicy::Group).unwrap();
        }
        assert_eq!(RunHistory::read(home.path(), true).unwrap(), run_history);
        assert!(run_history.covers(at(0)) && !run_history.covers(at(-1)), "the first run stays known");
        assert!(run_history.covers_this_boot(at(50)) && !run_history.may_have_lost());
        RunHistory::remove(home.path()).unwrap();
        assert!(!RunHistory::read(home.path(), false).unwrap().is_some());
    }

    #[test]
    fn runs_of_another_boot_are_distinguished() {
        let text = sealed("another-life 10 7 none 15\n");
        let mut run_history = RunHistory::decode(&text).unwrap();
        assert!(
            run_history.covers(at(10))
                && !run_history.covers_this_boot(at(10))
                && run_history.may_have_lost()
        );
        run_history.runs.push(run(&this_boot(), 20, SyncPolicy::None));
        assert!(run_history.covers_this_boot(at(20)) && !run_history.covers_this_boot(at(19)));
        run_history.runs.remove(0);
        assert!(!run_history.may_have_lost());
    }

    /// Regression test: 64 later runs displaced the line of a run without syncs, and its logged
    /// objects were trusted after a power failure.
    #[test]
    fn possible_loss_of_an_unsynced_run_is_known_after_many_runs() {
        for others in [RUNS_MAX - 1, RUNS_MAX, 3 * RUNS_MAX] {
            let home = tempfile::tempdir().unwrap();
            let before = vec![
                run("first-life", 10, SyncPolicy::Group),
                run("second-life", 500, SyncPolicy::None),
                run("third-life", 200, SyncPolicy::Group),
            ];
            let mut run_history = RunHistory { runs: before };
            for second in 0..others {
                run_history.run(home.path(), at(300 + second as i64), SyncPolicy::Group).unwrap();
            }
            let run_history = RunHistory::read(home.path(), true).unwrap();
            assert!(run_history.runs.len() <= RUNS_MAX && run_history.may_have_lost(), "{others}");
            assert!(run_history.covers(at(10)) && !run_history.covers(at(9)), "{others}");
            let past = run_history.past();
            assert!(past >= 560, "{others}: {past}: the second life may have come to 560");
            assert!(
                !run_history.covers_this_boot(at(past - 1)) && run_history.covers_this_boot(at(past)),
                "{others}"
            );
        }
        // Nothing is lost within one boot.
        let home = tempfile::tempdir().unwrap();
        let mut run_history = RunHistory::default();
        for second in 0..2 * RUNS_MAX {
            run_history.run(home.path(), at(second as i64), SyncPolicy::None).unwrap();
        }
        assert!(
            !run_history.may_have_lost()
                && run_history.past() == i64::MIN
                && run_history.covers_this_boot(at(0))
        );
    }

    /// A clock may be wrong until it is set, and then repeat times that it had before.
    #[test]
    fn times_of_both_boots_count_as_lost_after_a_clock_step() {
        let mut run_history = RunHistory { runs: vec![run("another-life", 1000, SyncPolicy::Group)] };
        run_history.runs.push(run(&this_boot(), 700, SyncPolicy::Group));
        run_history.runs.push(run(&this_boot(), 1200, SyncPolicy::Group));
        // The first of the two later runs may have followed a power failure.
        for (sec, is_there) in [(699, false), (700, false), (1010, false), (1059, false), (1060, true)] {
            assert_eq!(run_history.covers_this_boot(at(sec)), is_there, "{sec}");
        }
        assert!(!run_history.covers(at(999)), "what is older than the first run is sent again");
    }

    #[test]
    fn times_after_the_start_of_a_run_are_detected() {
        let mut run_history = RunHistory { runs: vec![run(&this_boot(), 1000, SyncPolicy::Group)] };
        assert!(run_history.is_future(at(1001)) && !run_history.is_future(at(1000)));
        run_history.runs.push(run(&this_boot(), 900, SyncPolicy::Group));
        assert!(run_history.is_future(at(950)), "the clock went back between two runs");
    }

    #[test]
    fn extending_a_run_advances_its_recorded_time_bound() {
        let home = tempfile::tempdir().unwrap();
        let mut run_history = RunHistory::default();
        run_history.run(home.path(), at(1000), SyncPolicy::Group).unwrap();
        let mut written = Vec::new();
        for now in (1000..3000).chain([2500, 9000]) {
            let before = fs::read(home.path().join(NAME)).unwrap();
            run_history.heartbeat(home.path(), at(now)).unwrap();
            let read = RunHistory::read(home.path(), true).unwrap();
            assert_eq!(read, run_history);
            assert!(read.runs[0].ahead > now + AHEAD / 2, "{now}: {read:?}");
            if fs::read(home.path().join(NAME)).unwrap() != before {
                written.push(now);
            }
        }
        assert_eq!(written, [1000, 1300, 1600, 1900, 2200, 2500, 2800, 9000]);
        // If the write fails, the recorded bound stays valid.
        fs::remove_dir_all(home.path()).unwrap();
        fs::write(home.path(), "a file").unwrap();
        let before = run_history.clone();
        assert!(run_history.heartbeat(home.path(), at(9500)).is_err() && run_history == before);
        fs::remove_file(home.path()).unwrap();
        run_history.heartbeat(home.path(), at(9500)).unwrap();
        assert!(run_history != before && RunHistory::read(home.path(), true).unwrap() == run_history);
    }

    #[test]
    fn truncated_or_damaged_run_history_is_refused() {
        let text = sealed("life 10 7 group 70\nlife 12 7 none 72\n");
        assert!(RunHistory::decode(&text).is_some());
        for damaged in [
            "life x 7 group 70\n",
            "life 1 7\n",
            "life 1 7 group\n",
            "life 1 7 group x\n",
            "life 1 7 group 70 1\n",
            "life 1 1000000000 group 70\n",
            "life 1 7 group 70\n\n",
        ] {
            assert_eq!(RunHistory::decode(&sealed(damaged)), None, "{damaged:?}");
        }
        for cut in 0..text.len() {
            assert_eq!(RunHistory::decode(&text[..cut]), None, "{cut}");
        }
        for (at, bit) in (0..text.len()).flat_map(|at| (0..7).map(move |bit| (at, bit))) {
            let mut bent = text.clone().into_bytes();
            bent[at] ^= 1 << bit;
            assert_eq!(RunHistory::decode(std::str::from_utf8(&bent).unwrap()), None, "bit {bit} of {at}");
        }
    }

    /// Regression test: a damaged file was treated as a job that had not started. Logged objects
    /// then counted as durable, and files of those runs were sent again where a comparison is
    /// enough.
    #[test]
    fn lost_run_history_trusts_no_object_and_compares_all_files() {
        let spoilt: [(&str, Option<&[u8]>, bool); 4] = [
            ("gone", None, true),
            ("empty", Some(b""), false),
            ("cut", Some(b"life 10 7 group 70\n"), false),
            ("no text", Some(b"\xff"), true),
        ];
        for (what, bytes, has_run) in spoilt {
            let home = tempfile::tempdir().unwrap();
            if let Some(bytes) = bytes {
                fs::write(home.path().join(NAME), bytes).unwrap();
            }
            let mut run_history = RunHistory::read(home.path(), has_run).unwrap();
            assert!(run_history.is_some() && run_history.is_lost(), "{what}");
            assert!(run_history.may_have_lost() && run_history.covers(at(i64::MIN)), "{what}");
            run_history.run(home.path(), at(100), SyncPolicy::Group).unwrap();
            run_history.heartbeat(home.path(), at(100)).unwrap();
            run_history.run(home.path(), at(200), SyncPolicy::Group).unwrap();
            let run_history = RunHistory::read(home.path(), true).unwrap();
            assert!(
                run_history.may_have_lost()
                    && !run_history.covers_this_boot(at(150))
                    && !run_history.is_lost(),
                "{what}"
            );
            assert!(run_history.covers(at(99)), "{what}: the unknown runs may have created the file");
        }
    }

    fn sealed(lines: &str) -> String {
        format!("{lines}{SUM}{}\n", digest(Algorithm::Blake3, lines.as_bytes()))
    }
}
