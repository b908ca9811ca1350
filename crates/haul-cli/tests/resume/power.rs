//! Power loss at the flushes of the block device of a real file system. Data that was not flushed
//! is missing or torn.

use super::{Fixture, OBJECT, RunResult, set_other_boot};
use haul_lab::mounts::RecordedDisk;
use haul_lab::needs::met_or_skip;
use haul_lab::random::Random;
use haul_lab::snapshot::{Facets, Snapshot};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// Number of power losses for each style.
const POINTS: usize = 12;

/// Runs a job whose sink and state are on one disk, so that both have the state of one moment.
fn copy(fixture: &Fixture, more: &[&str]) -> RunResult {
    let words = ["cp", "-aT", "--resume", "--split-size=64K", "--json", "--state-dir=disk/haul"];
    RunResult::of(fixture.haul(&[&words[..], more, &["source", "disk/sink"]].concat()).output().unwrap())
}

/// Makes a disk available in the test directory, as `disk`.
fn insert(fixture: &Fixture, disk: &Path) {
    let link = fixture.path("disk");
    if link.is_symlink() {
        fs::remove_file(&link).unwrap();
    }
    symlink(disk, link).unwrap();
}

#[test]
fn logged_objects_survive_a_power_loss() {
    if !met_or_skip(&RecordedDisk::NEEDS) {
        return;
    }
    let (mut objects, mut files) = (0, 0);
    for (seed, style) in [
        (1, &["--sync=object", "--log-mechanism=universal", "--log-encoding=bit8"][..]),
        (2, &["--sync=object", "--log-mechanism=file", "--log-encoding=enc"]),
        (3, &["--sync=object", "--log-mechanism=transaction:2", "--log-encoding=char"]),
        (4, &["--sync=group"]),
        // Nothing that is logged is trusted after a reboot.
        (5, &["--sync=none"]),
    ] {
        let fixture = Fixture::new(40 + seed);
        let disk = RecordedDisk::new(64).unwrap();
        insert(&fixture, &disk.path());
        let device = fs::metadata(disk.path()).unwrap().dev();
        copy(&fixture, style).is_fine(&format!("{style:?}"));
        let recording = disk.close().unwrap();
        let mut random = Random::from_seed(seed);
        for point in 0..POINTS {
            let flushes = 1 + random.index(recording.flushes());
            let what = format!("{style:?} after {flushes} of {} flushes, point {point}", recording.flushes());
            let found = recording.lost_power(flushes, seed * 100 + point as u64).unwrap();
            insert(&fixture, &found.path());
            if *style != ["--sync=none"] {
                let (wrong_free, kept) = claims_hold(&fixture, device, &what);
                objects += wrong_free;
                files += kept;
            }
            jobs(&fixture).iter().for_each(|job| set_other_boot(job));
            copy(&fixture, style).is_fine(&what);
            let [a, b] = ["source", "disk/sink"].map(|name| Snapshot::take(&fixture.path(name)).unwrap());
            let differences = a.diff(&b, Facets::ARCHIVE, 3);
            assert!(differences.is_empty(), "{what}: {differences:?}");
            found.close().unwrap();
        }
    }
    assert!(
        objects > 50 && files > 50,
        "{objects} objects and {files} files were claimed: too few to mean something"
    );
}

/// Returns the job directories on the disk.
fn jobs(fixture: &Fixture) -> Vec<PathBuf> {
    let found = fs::read_dir(fixture.path("disk/haul/jobs")).into_iter().flatten();
    found.map(|job| job.unwrap().path()).collect()
}

/// Returns the number of claimed objects and files. `device` is the device number at the time when
/// they were logged. Panics if one of them differs from the source.
#[track_caller]
fn claims_hold(fixture: &Fixture, device: u64, what: &str) -> (usize, usize) {
    let (mut objects, mut files) = (0, 0);
    for job in jobs(fixture) {
        let sink = (&*fixture.path("disk/sink"), Some(device));
        for (name, object, bytes) in super::logged_objects(&job, &fixture.path("source"), sink) {
            let source = fs::read(fixture.path("source").join(&name)).unwrap();
            let from = (object * OBJECT) as usize;
            let end = (from + OBJECT as usize).min(source.len());
            assert!(source[from..end] == bytes[..], "{what}: object {object} of {name}");
            objects += 1;
        }
        files +=
            super::finished_files(&job, &fixture.path("source"), &fixture.path("disk/sink"), what).0.len();
    }
    (objects, files)
}
