//! A loss of power at the sink of a transfer: at the flushes of a real file system's device, which holds the files and the log of them, with what was
//! not flushed missing or torn.

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

/// Points at which power is lost, for each style.
const POINTS: u64 = 8;

/// Room of the disk, in MiB.
const DISK_MIB: u64 = 32;

/// How objects become durable, and how the log is kept; and what is said beside that of the run that is recorded.
const STYLES: [(&[&str], &[&str]); 7] = [
    (&["--sync=object", "--log-mechanism=universal", "--log-encoding=bit8"], &[]),
    (&["--sync=object", "--log-mechanism=file", "--log-encoding=enc"], &[]),
    (&["--sync=object", "--log-mechanism=transaction:2", "--log-encoding=char"], &[]),
    // Long enough for some groups.
    (&["--sync=group"], &["--rate=2M"]),
    (&["--sync=object", "--verify=reread"], &[]),
    (&["--verify=reread", "--inplace"], &[]),
    (&["--sync=none"], &["--rate=3M"]),
];

/// A job whose sink has a disk of its own, with the log on it, so that both are of one moment. The other side's host lives on.
struct Ground {
    play: Play,
    /// What the device's number was when the log was written.
    device: u64,
}

impl Ground {
    fn new(way: Way, options: &[&str]) -> Ground {
        let state = ["--state-dir=in/state/haul"];
        let own: &[&str] = if way == Way::Fetch { &state } else { &[] };
        let play = Play::new(way, &[options, own].concat());
        if way == Way::Send {
            // The host that ssh leads to has its state on its own disk.
            let ssh = play.bed.path("fake-ssh");
            let script = fs::read_to_string(&ssh).unwrap();
            let there = "shift\nexport XDG_STATE_HOME=\"${0%/*}/there/in/state\"\n";
            fs::write(ssh, script.replace("shift\n", there)).unwrap();
        }
        let ground = Ground { play, device: 0 };
        fs::create_dir(ground.place()).unwrap();
        ground
    }

    /// Where the disk is seen, whichever it is: the log is bound to the path.
    fn place(&self) -> PathBuf {
        self.play.sink().parent().unwrap().to_owned()
    }

    /// Runs `work` with an empty disk, and gives what reached it.
    fn recorded(&mut self, work: impl FnOnce(&Ground, &RecordedDisk)) -> Recording {
        let disk = RecordedDisk::new(DISK_MIB).unwrap();
        self.device = fs::metadata(disk.path()).unwrap().dev();
        let seen = Mounted::bind_at(&disk.path(), &self.place()).unwrap();
        work(self, &disk);
        self.play.far_side_is_gone();
        seen.close().unwrap();
        disk.close().unwrap()
    }

    /// Runs `work` with the disk as a loss of power left it. The machine lives another life then.
    fn after_the_loss(&self, found: Mounted, work: impl FnOnce(&Ground)) {
        let seen = Mounted::bind_at(&found.path(), &self.place()).unwrap();
        self.jobs().iter().for_each(|job| in_another_life(job));
        work(self);
        self.play.far_side_is_gone();
        seen.close().unwrap();
        found.close().unwrap();
    }

    /// Folders of the sink's jobs.
    fn jobs(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.place().join("state/haul/jobs")).into_iter().flatten().flatten();
        found.map(|job| job.path()).collect()
    }

    fn claims(&self) -> Vec<Claim> {
        let known_by = |path: &Path| identity_on(path, Some(self.device));
        self.jobs().iter().flat_map(|job| claims(&self.play, job, known_by)).collect()
    }

    /// How many objects are logged that are there; panics where one is not what the source has.
    #[track_caller]
    fn claims_hold(&self, what: &str) -> u64 {
        let claims = self.claims();
        for Claim { place, holds } in &claims {
            assert_ne!(*holds, Some(false), "{what}: {place}");
        }
        claims.iter().filter(|claim| claim.holds.is_some()).count() as u64
    }

    /// How many files have their names; panics where one that has its source's size and time as well has not its bytes.
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

    /// The same command again brings it to its end; gives how many bytes of earlier runs it took.
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

/// What was written down of a job was so in another life of the machine: the loss of power ended that. All of this runs in one, so that its number is
/// taken out of where it stands.
fn in_another_life(job: &Path) {
    edit_begun(job, |lines| lines.replace(&this_life(), "00000000-0000-4000-8000-000000000000"));
}

/// What all points of a way came to.
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
            // The last one is behind all flushes: there all that the job did is durable.
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
                // Such a file was durable before it got its name.
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
    // Names are looked at in one style only; those behind its last flush alone are more.
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

/// The log may reach the disk before the objects do. What tells that nothing was synced did not: it had no bytes after the loss of power, and the log was
/// believed.
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
            // Even where the user wishes that the log be taken at its word.
            ground.goes_on(&["--verify-resume=none"], "never synced");
        });
    }
    assert!(lost > 0, "all that was logged was there");
}

/// Files were told to be durable, and read back, before the names were that they had got.
#[test]
fn files_that_are_told_to_be_durable_have_their_names_after_a_loss_of_power() {
    if !met_or_skip(&RecordedDisk::NEEDS) {
        return;
    }
    for way in [Way::Send, Way::Fetch] {
        // What is kept of the job lies elsewhere: its syncs do nothing for this disk.
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

/// The times of such a file are set before the last of it is durable, so that both may be right and its bytes not.
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

/// A clock may go back when the machine is started anew, and then come to its old times again: a run of the new life that began before them tells nothing
/// of what has them.
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
