//! Power loss at the sink of a transfer. The loss occurs at a flush of the block device, which
//! holds the files and their log. Data that was not flushed is missing or torn.

use super::claims::{Claim, claims};
use super::resumed::{Direction, KilledSide, ResumeScenario, files_beneath, identity_on, is_temporary};
use super::stopped::wait_until;
use super::{assert_alike, assert_no_strays};
use crate::resume::{boot_id, edit_run_history};
use haul_lab::mounts::{Mounted, RecordedDisk, Recording};
use haul_lab::needs::met_or_skip;
use haul_lab::random::Random;
use haul_lab::snapshot::{Facets, Snapshot};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Number of power losses for each style.
const POINTS: u64 = 8;

/// Size of the disk in MiB.
const DISK_MIB: u64 = 32;

/// Options for sync and for the log, and additional options of the recorded run.
const STYLES: [(&[&str], &[&str]); 7] = [
    (&["--sync=object", "--log-mechanism=universal", "--log-encoding=bit8"], &[]),
    (&["--sync=object", "--log-mechanism=file", "--log-encoding=enc"], &[]),
    (&["--sync=object", "--log-mechanism=transaction:2", "--log-encoding=char"], &[]),
    // The rate gives the run enough time for several groups.
    (&["--sync=group"], &["--rate=2M"]),
    (&["--sync=object", "--verify=reread"], &[]),
    (&["--verify=reread", "--inplace"], &[]),
    (&["--sync=none"], &["--rate=3M"]),
];

/// A job whose sink and log are on the same disk, so that both have the state of one moment. The
/// host of the peer keeps running.
struct SharedDiskJob {
    scenario: ResumeScenario,
    /// Device number at the time when the log was written.
    device: u64,
}

impl SharedDiskJob {
    fn new(direction: Direction, options: &[&str]) -> SharedDiskJob {
        let state = ["--state-dir=in/state/haul"];
        let own: &[&str] = if direction == Direction::Fetch { &state } else { &[] };
        let scenario = ResumeScenario::new(direction, &[options, own].concat());
        if direction == Direction::Send {
            // The host that ssh reaches has its state on the same disk.
            let ssh = scenario.fixture.path("fake-ssh");
            let script = fs::read_to_string(&ssh).unwrap();
            let there = "shift\nexport XDG_STATE_HOME=\"${0%/*}/there/in/state\"\n";
            fs::write(ssh, script.replace("shift\n", there)).unwrap();
        }
        let ground = SharedDiskJob { scenario, device: 0 };
        fs::create_dir(ground.place()).unwrap();
        ground
    }

    /// Returns the mount point, which is the same for all disks: the log is bound to the path.
    fn place(&self) -> PathBuf {
        self.scenario.sink().parent().unwrap().to_owned()
    }

    /// Runs `work` with an empty disk and returns the recorded writes of the disk.
    fn recorded(&mut self, work: impl FnOnce(&SharedDiskJob, &RecordedDisk)) -> Recording {
        let disk = RecordedDisk::new(DISK_MIB).unwrap();
        self.device = fs::metadata(disk.path()).unwrap().dev();
        let seen = Mounted::bind_at(&disk.path(), &self.place()).unwrap();
        work(self, &disk);
        self.scenario.wait_for_remote_exit();
        seen.close().unwrap();
        disk.close().unwrap()
    }

    /// Runs `work` with the disk in its state after the power loss, as if on another boot.
    fn after_the_loss(&self, found: Mounted, work: impl FnOnce(&SharedDiskJob)) {
        let seen = Mounted::bind_at(&found.path(), &self.place()).unwrap();
        self.jobs().iter().for_each(|job| set_other_boot(job));
        work(self);
        self.scenario.wait_for_remote_exit();
        seen.close().unwrap();
        found.close().unwrap();
    }

    /// Returns the job directories of the sink.
    fn jobs(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.place().join("state/haul/jobs")).into_iter().flatten().flatten();
        found.map(|job| job.path()).collect()
    }

    fn claims(&self) -> Vec<Claim> {
        let known_by = |path: &Path| identity_on(path, Some(self.device));
        self.jobs().iter().flat_map(|job| claims(&self.scenario, job, known_by)).collect()
    }

    /// Returns the number of logged objects whose file exists. Panics if such an object differs
    /// from the source.
    #[track_caller]
    fn claims_hold(&self, what: &str) -> u64 {
        let claims = self.claims();
        for Claim { place, holds } in &claims {
            assert_ne!(*holds, Some(false), "{what}: {place}");
        }
        claims.iter().filter(|claim| claim.holds.is_some()).count() as u64
    }

    /// Returns the number of files with final name, size and time of their source. Panics if the
    /// contents of such a file differ.
    #[track_caller]
    fn names_hold(&self, what: &str) -> u64 {
        let named = files_beneath(&self.scenario.sink()).into_iter().filter(|path| !is_temporary(path));
        let mut held = 0;
        for path in named {
            let source = self.scenario.source().join(path.strip_prefix(self.scenario.sink()).unwrap());
            let facts = |path: &Path| {
                let found = fs::metadata(path).unwrap();
                (found.len(), found.mtime(), found.mtime_nsec())
            };
            if facts(&path) == facts(&source) {
                assert!(fs::read(&path).unwrap() == fs::read(&source).unwrap(), "{what}: {}", path.display());
                held += 1;
            }
        }
        held
    }

    /// Asserts that a rerun of the same command completes the job. Returns the number of bytes that
    /// the rerun took from earlier runs.
    #[track_caller]
    fn resume_run(&self, more: &[&str], what: &str) -> u64 {
        let (summary, told) = self.scenario.finish(more);
        self.scenario.wait_for_remote_exit();
        assert_alike(&self.scenario.source(), &self.scenario.sink());
        let [a, b] =
            [self.scenario.source(), self.scenario.sink()].map(|tree| Snapshot::take(&tree).unwrap());
        let differences = a.diff(&b, Facets::ARCHIVE, 3);
        assert!(differences.is_empty(), "{what}: {differences:?}: {told}");
        assert_no_strays(&self.place());
        let left = self.jobs().into_iter().filter(|job| job.join("log").exists());
        assert_eq!(left.count(), 0, "{what}: the job is over, and leaves nothing");
        summary["bytes_of_earlier_runs"].as_u64().unwrap()
    }
}

/// Replaces the boot ID in the run history of a job. A power loss ends the boot, but all runs of a
/// test share one boot.
fn set_other_boot(job: &Path) {
    edit_run_history(job, |lines| lines.replace(&boot_id(), "00000000-0000-4000-8000-000000000000"));
}

/// Totals over all points of one direction.
#[derive(Debug, Default)]
struct Sums {
    objects: u64,
    names: u64,
    spared: u64,
}

fn power_is_lost(direction: Direction) {
    if !met_or_skip(&RecordedDisk::NEEDS) {
        return;
    }
    let mut sums = Sums::default();
    for (seed, (style, first)) in (1..).zip(STYLES) {
        let mut ground = SharedDiskJob::new(direction, style);
        let recording = ground.recorded(|ground, _| {
            ground.resume_run(first, "the first run");
        });
        let mut random = Random::from_seed(seed);
        for point in 0..=POINTS {
            // The last point is after all flushes, where all results of the job are durable.
            let is_last = point == POINTS;
            let flushes = if is_last { recording.flushes() } else { 1 + random.index(recording.flushes()) };
            let what = format!(
                "{direction:?}, {style:?} after {flushes} of {} flushes, point {point}",
                recording.flushes()
            );
            let found = recording.lost_power(flushes, seed * 100 + point).unwrap();
            ground.after_the_loss(found, |ground| {
                if !style.contains(&"--sync=none") {
                    sums.objects += ground.claims_hold(&what);
                }
                // Such a file was durable before it got its final name.
                if style.contains(&"--verify=reread") && !style.contains(&"--inplace") {
                    sums.names += ground.names_hold(&what);
                }
                if is_last {
                    let all = files_beneath(&ground.scenario.source()).len() as u64;
                    assert_eq!(ground.names_hold(&what), all, "{what}: not all of a job that was over");
                }
                sums.spared += ground.resume_run(&[], &what);
            });
        }
    }
    // Names are checked in one style only; the last point of this style alone has more than 20.
    assert!(
        sums.objects > 50 && sums.names > 20 && sums.spared > 20 << 20,
        "{sums:?}: too little was claimed to mean something"
    );
}

#[test]
fn logged_objects_of_a_send_survive_a_power_loss() {
    power_is_lost(Direction::Send);
}

#[test]
fn logged_objects_of_a_fetch_survive_a_power_loss() {
    power_is_lost(Direction::Fetch);
}

/// The log may reach the disk before the objects do. In earlier versions the note that nothing was
/// synced was empty after the power loss, and haul trusted the log.
#[test]
fn unsynced_logged_objects_are_compared_after_a_power_loss() {
    if !met_or_skip(&RecordedDisk::NEEDS) {
        return;
    }
    let mut lost = 0;
    for (seed, direction) in [(1, Direction::Send), (2, Direction::Fetch)] {
        let mut ground = SharedDiskJob::new(direction, &["--sync=none"]);
        let mut flushes = 0;
        let recording = ground.recorded(|ground, disk| {
            let child = ground.scenario.start(&["--rate=1M"]);
            wait_until("a log", || ground.claims().iter().any(|claim| claim.holds.is_some()));
            ground.scenario.kill(child, KilledSide::Both);
            for log in ground.jobs().iter().flat_map(|job| files_beneath(&job.join("log"))) {
                File::open(log).unwrap().sync_all().unwrap();
            }
            flushes = disk.flushes();
        });
        ground.after_the_loss(recording.lost_power(flushes, seed).unwrap(), |ground| {
            lost += ground.claims().iter().filter(|claim| claim.holds != Some(true)).count();
            // This holds even if the user requests that haul trust the log.
            ground.resume_run(&["--verify-resume=none"], "never synced");
        });
    }
    assert!(lost > 0, "all that was logged was there");
}

/// Earlier versions reported files as durable and re-read before their final names were durable.
#[test]
fn files_reported_as_durable_keep_their_names_after_a_power_loss() {
    if !met_or_skip(&RecordedDisk::NEEDS) {
        return;
    }
    for direction in [Direction::Send, Direction::Fetch] {
        // The state of the job is on another disk, so that its syncs do not flush this disk.
        let mut ground =
            SharedDiskJob { scenario: ResumeScenario::new(direction, &["--verify=reread"]), device: 0 };
        fs::create_dir(ground.place()).unwrap();
        let link = ground.scenario.source().join("again");
        fs::remove_file(link).unwrap();
        let mut flushes = 0;
        let recording = ground.recorded(|ground, disk| {
            ground.scenario.finish(&[]);
            flushes = disk.flushes();
        });
        let all = files_beneath(&ground.scenario.source()).len() as u64;
        for seed in 0..4 {
            let what = format!("{direction:?}, {seed}");
            ground.after_the_loss(recording.lost_power(flushes, seed).unwrap(), |ground| {
                assert_eq!(ground.names_hold(&what), all, "{what}");
            });
        }
    }
}

/// The times of such a file are set before its last bytes are durable. Size and times can be right
/// although the bytes are wrong.
#[test]
fn inplace_files_are_compared_after_a_power_loss() {
    for direction in [Direction::Send, Direction::Fetch] {
        let ground = SharedDiskJob::new(direction, &["--verify=reread", "--inplace"]);
        let child = ground.scenario.start(&["--rate=1M"]);
        let (source, sink) = (ground.scenario.source().join("a"), ground.scenario.sink().join("a"));
        let modified = |path: &Path| fs::metadata(path).ok().and_then(|found| found.modified().ok());
        wait_until("a file", || modified(&sink).is_some() && modified(&sink) == modified(&source));
        ground.scenario.kill(child, KilledSide::Both);
        let mut bytes = fs::read(&sink).unwrap();
        assert!(bytes == fs::read(&source).unwrap());
        let end = bytes.len();
        bytes[end - 5000..].fill(0);
        fs::write(&sink, bytes).unwrap();
        File::options().write(true).open(&sink).unwrap().set_modified(modified(&source).unwrap()).unwrap();
        ground.jobs().iter().for_each(|job| set_other_boot(job));
        ground.resume_run(&[], "in place");
    }
}

/// A clock may step back across a reboot and then reach the old times again. A run of the new boot
/// that started before these times says nothing about files that have them.
#[test]
fn files_of_another_boot_are_compared_whatever_the_clock() {
    for direction in [Direction::Send, Direction::Fetch] {
        let ground = SharedDiskJob::new(direction, &[]);
        let child = ground.scenario.start(&["--rate=1M"]);
        let (source, sink) = (ground.scenario.source().join("a"), ground.scenario.sink().join("a"));
        wait_until("a file", || sink.exists());
        ground.scenario.kill(child, KilledSide::Both);
        let modified = fs::metadata(&source).unwrap().modified().unwrap();
        let mut bytes = fs::read(&sink).unwrap();
        assert!(bytes == fs::read(&source).unwrap());
        let end = bytes.len();
        bytes[end - 5000..].fill(0);
        fs::write(&sink, bytes).unwrap();
        File::options().write(true).open(&sink).unwrap().set_modified(modified).unwrap();
        for job in ground.jobs() {
            set_other_boot(&job);
            edit_run_history(&job, |lines| format!("{lines}{} 1000 0 group 1060\n", boot_id()));
        }
        ground.resume_run(&["--verify-resume=none"], "another life");
    }
}
