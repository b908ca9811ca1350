//! Power loss at the sink of a transfer. The loss occurs at a flush of the block device, which
//! holds the files and their log. Data that was not flushed is missing or torn.

use super::claims::{Claim, claims};
use super::resumed::{Play, Victim, Way, files_beneath, identity_on, is_temporary};
use super::stopped::wait_until;
use super::{assert_alike, assert_no_strays};
use crate::resume::{edit_begun, this_life};
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
struct Ground {
    play: Play,
    /// Device number at the time when the log was written.
    device: u64,
}

impl Ground {
    fn new(way: Way, options: &[&str]) -> Ground {
        let state = ["--state-dir=in/state/haul"];
        let own: &[&str] = if way == Way::Fetch { &state } else { &[] };
        let play = Play::new(way, &[options, own].concat());
        if way == Way::Send {
            // The host that ssh reaches has its state on the same disk.
            let ssh = play.bed.path("fake-ssh");
            let script = fs::read_to_string(&ssh).unwrap();
            let there = "shift\nexport XDG_STATE_HOME=\"${0%/*}/there/in/state\"\n";
            fs::write(ssh, script.replace("shift\n", there)).unwrap();
        }
        let ground = Ground { play, device: 0 };
        fs::create_dir(ground.place()).unwrap();
        ground
    }

    /// Returns the mount point, which is the same for all disks: the log is bound to the path.
    fn place(&self) -> PathBuf {
        self.play.sink().parent().unwrap().to_owned()
    }

    /// Runs `work` with an empty disk and returns the recorded writes of the disk.
    fn recorded(&mut self, work: impl FnOnce(&Ground, &RecordedDisk)) -> Recording {
        let disk = RecordedDisk::new(DISK_MIB).unwrap();
        self.device = fs::metadata(disk.path()).unwrap().dev();
        let seen = Mounted::bind_at(&disk.path(), &self.place()).unwrap();
        work(self, &disk);
        self.play.far_side_is_gone();
        seen.close().unwrap();
        disk.close().unwrap()
    }

    /// Runs `work` with the disk in its state after the power loss, as if on another boot.
    fn after_the_loss(&self, found: Mounted, work: impl FnOnce(&Ground)) {
        let seen = Mounted::bind_at(&found.path(), &self.place()).unwrap();
        self.jobs().iter().for_each(|job| in_another_life(job));
        work(self);
        self.play.far_side_is_gone();
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
        self.jobs().iter().flat_map(|job| claims(&self.play, job, known_by)).collect()
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
        let named = files_beneath(&self.play.sink()).into_iter().filter(|path| !is_temporary(path));
        let mut held = 0;
        for path in named {
            let source = self.play.source().join(path.strip_prefix(self.play.sink()).unwrap());
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
    fn goes_on(&self, more: &[&str], what: &str) -> u64 {
        let (summary, told) = self.play.finish(more);
        self.play.far_side_is_gone();
        assert_alike(&self.play.source(), &self.play.sink());
        let [a, b] = [self.play.source(), self.play.sink()].map(|tree| Snapshot::take(&tree).unwrap());
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
fn in_another_life(job: &Path) {
    edit_begun(job, |lines| lines.replace(&this_life(), "00000000-0000-4000-8000-000000000000"));
}

/// Totals over all points of one direction.
#[derive(Debug, Default)]
struct Sums {
    objects: u64,
    names: u64,
    spared: u64,
}

fn power_is_lost(way: Way) {
    if !met_or_skip(&RecordedDisk::NEEDS) {
        return;
    }
    let mut sums = Sums::default();
    for (seed, (style, first)) in (1..).zip(STYLES) {
        let mut ground = Ground::new(way, style);
        let recording = ground.recorded(|ground, _| {
            ground.goes_on(first, "the first run");
        });
        let mut random = Random::from_seed(seed);
        for point in 0..=POINTS {
            // The last point is after all flushes, where all results of the job are durable.
            let is_last = point == POINTS;
            let flushes = if is_last { recording.flushes() } else { 1 + random.index(recording.flushes()) };
            let what = format!(
                "{way:?}, {style:?} after {flushes} of {} flushes, point {point}",
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
                    let all = files_beneath(&ground.play.source()).len() as u64;
                    assert_eq!(ground.names_hold(&what), all, "{what}: not all of a job that was over");
                }
                sums.spared += ground.goes_on(&[], &what);
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
fn no_logged_object_of_a_sending_is_wrong_after_a_loss_of_power() {
    power_is_lost(Way::Send);
}

#[test]
fn no_logged_object_of_a_fetching_is_wrong_after_a_loss_of_power() {
    power_is_lost(Way::Fetch);
}

/// The log may reach the disk before the objects do. In earlier versions the note that nothing was
/// synced was empty after the power loss, and haul trusted the log.
#[test]
fn what_was_logged_and_never_synced_is_compared_after_a_loss_of_power() {
    if !met_or_skip(&RecordedDisk::NEEDS) {
        return;
    }
    let mut lost = 0;
    for (seed, way) in [(1, Way::Send), (2, Way::Fetch)] {
        let mut ground = Ground::new(way, &["--sync=none"]);
        let mut flushes = 0;
        let recording = ground.recorded(|ground, disk| {
            let child = ground.play.start(&["--rate=1M"]);
            wait_until("a log", || ground.claims().iter().any(|claim| claim.holds.is_some()));
            ground.play.kill(child, Victim::Both);
            for log in ground.jobs().iter().flat_map(|job| files_beneath(&job.join("log"))) {
                File::open(log).unwrap().sync_all().unwrap();
            }
            flushes = disk.flushes();
        });
        ground.after_the_loss(recording.lost_power(flushes, seed).unwrap(), |ground| {
            lost += ground.claims().iter().filter(|claim| claim.holds != Some(true)).count();
            // This holds even if the user requests that haul trust the log.
            ground.goes_on(&["--verify-resume=none"], "never synced");
        });
    }
    assert!(lost > 0, "all that was logged was there");
}

/// Earlier versions reported files as durable and re-read before their final names were durable.
#[test]
fn files_that_are_told_to_be_durable_have_their_names_after_a_loss_of_power() {
    if !met_or_skip(&RecordedDisk::NEEDS) {
        return;
    }
    for way in [Way::Send, Way::Fetch] {
        // The state of the job is on another disk, so that its syncs do not flush this disk.
        let mut ground = Ground { play: Play::new(way, &["--verify=reread"]), device: 0 };
        fs::create_dir(ground.place()).unwrap();
        let link = ground.play.source().join("again");
        fs::remove_file(link).unwrap();
        let mut flushes = 0;
        let recording = ground.recorded(|ground, disk| {
            ground.play.finish(&[]);
            flushes = disk.flushes();
        });
        let all = files_beneath(&ground.play.source()).len() as u64;
        for seed in 0..4 {
            let what = format!("{way:?}, {seed}");
            ground.after_the_loss(recording.lost_power(flushes, seed).unwrap(), |ground| {
                assert_eq!(ground.names_hold(&what), all, "{what}");
            });
        }
    }
}

/// The times of such a file are set before its last bytes are durable. Size and times can be right
/// although the bytes are wrong.
#[test]
fn a_file_written_in_place_is_looked_into_after_a_loss_of_power() {
    for way in [Way::Send, Way::Fetch] {
        let ground = Ground::new(way, &["--verify=reread", "--inplace"]);
        let child = ground.play.start(&["--rate=1M"]);
        let (source, sink) = (ground.play.source().join("a"), ground.play.sink().join("a"));
        let modified = |path: &Path| fs::metadata(path).ok().and_then(|found| found.modified().ok());
        wait_until("a file", || modified(&sink).is_some() && modified(&sink) == modified(&source));
        ground.play.kill(child, Victim::Both);
        let mut bytes = fs::read(&sink).unwrap();
        assert!(bytes == fs::read(&source).unwrap());
        let end = bytes.len();
        bytes[end - 5000..].fill(0);
        fs::write(&sink, bytes).unwrap();
        File::options().write(true).open(&sink).unwrap().set_modified(modified(&source).unwrap()).unwrap();
        ground.jobs().iter().for_each(|job| in_another_life(job));
        ground.goes_on(&[], "in place");
    }
}

/// A clock may step back across a reboot and then reach the old times again. A run of the new boot
/// that started before these times says nothing about files that have them.
#[test]
fn a_file_of_another_life_is_looked_into_whatever_the_clock_said_since() {
    for way in [Way::Send, Way::Fetch] {
        let ground = Ground::new(way, &[]);
        let child = ground.play.start(&["--rate=1M"]);
        let (source, sink) = (ground.play.source().join("a"), ground.play.sink().join("a"));
        wait_until("a file", || sink.exists());
        ground.play.kill(child, Victim::Both);
        let modified = fs::metadata(&source).unwrap().modified().unwrap();
        let mut bytes = fs::read(&sink).unwrap();
        assert!(bytes == fs::read(&source).unwrap());
        let end = bytes.len();
        bytes[end - 5000..].fill(0);
        fs::write(&sink, bytes).unwrap();
        File::options().write(true).open(&sink).unwrap().set_modified(modified).unwrap();
        for job in ground.jobs() {
            in_another_life(&job);
            edit_begun(&job, |lines| format!("{lines}{} 1000 0 group 1060\n", this_life()));
        }
        ground.goes_on(&["--verify-resume=none"], "another life");
    }
}
