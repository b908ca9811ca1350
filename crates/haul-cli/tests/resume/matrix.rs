//! Copies that are killed at points drawn from seeds, in every way to keep the log.

use super::{Bed, PATIENCE, files_beneath, kill};
use haul_lab::random::Random;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

const MECHANISMS: [&str; 3] = ["file", "transaction:2", "universal"];
const ENCODINGS: [&str; 6] = ["char", "int", "enc", "binary", "bit8", "bit64"];

/// Points for each way to keep the log: 216 of all.
const POINTS: u64 = 12;

/// Ways that are tried at once: their copies mostly wait for the disk.
const AT_ONCE: usize = 4;

/// What the points came to.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Copies that were killed before their end.
    cut_off: u64,
    /// Of these, such as had something that was durable.
    claimed_some: u64,
    /// Points whose last copy found something to go on with.
    went_on: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.cut_off += other.cut_off;
        self.claimed_some += other.claimed_some;
        self.went_on += other.went_on;
    }
}

#[test]
fn killed_anywhere_a_copy_goes_on_in_every_style() {
    let styles: Vec<(&str, &str)> = MECHANISMS
        .iter()
        .flat_map(|mechanism| ENCODINGS.iter().map(|encoding| (*mechanism, *encoding)))
        .collect();
    let mut all = Counts::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|first| {
                let styles = styles.iter().enumerate().skip(first).step_by(AT_ONCE);
                scope.spawn(move || {
                    let mut counts = Counts::default();
                    styles.for_each(|(number, style)| counts += killed_in_style(number as u64, *style));
                    counts
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| all += thread.join().unwrap());
    });
    let points = POINTS * styles.len() as u64;
    assert!(
        points > 200
            && all.cut_off > points * 2 / 3
            && all.went_on > points / 2
            && all.claimed_some > points / 2,
        "{all:?} of {points}: the points are not where they should be"
    );
}

/// Kills a copy whose log is kept in this way at all its points, and brings it to its end from each of them.
fn killed_in_style(number: u64, (mechanism, encoding): (&str, &str)) -> Counts {
    let bed = Bed::new(number);
    let [mechanism, encoding] =
        [format!("--log-mechanism={mechanism}"), format!("--log-encoding={encoding}")];
    // Every object is logged by itself, so that there is something to find at each point.
    let style = [&*mechanism, &*encoding, "--sync=object"];
    let total = bytes_beneath(&bed.path("source"));
    let mut counts = Counts::default();
    for point in 0..POINTS {
        let what = format!("{style:?}, point {point}");
        let mut random = Random::for_part(number, point);
        let mut claimed = 0;
        // Cut off once, or several times in a row.
        for _ in 0..=random.below(2) {
            let bytes = total * (5 + random.below(85)) / 100;
            let was_over = killed_at(&bed, &style, bytes, Duration::from_millis(random.below(5)));
            counts.cut_off += u64::from(!was_over);
            if was_over || !bed.jobs().exists() || bed.facts_or_none().is_none() {
                claimed = 0;
                break;
            }
            claimed = bed.claimed(&what);
            counts.claimed_some += u64::from(claimed > 0);
        }
        let ended = bed.ends(&style);
        ended.is_fine(&what);
        bed.is_whole(&what);
        assert!(ended.moved() <= ended.count("bytes") - claimed, "{what}: {claimed} were there: {ended:?}");
        counts.went_on += u64::from(ended.count("bytes_kept") > 0);
        assert!(bed.facts().is_empty(), "{what}: the log goes with the job");
        fs::remove_dir_all(bed.path("sink")).unwrap();
        fs::remove_dir_all(bed.path("state")).unwrap();
    }
    counts
}

/// Begins the copy, and kills it once so many bytes are at the sink, and `then` has passed; whether it was over before.
fn killed_at(bed: &Bed, style: &[&str], bytes: u64, then: Duration) -> bool {
    let mut child = bed.cp(style).spawn().unwrap();
    let begun = Instant::now();
    while bytes_beneath(&bed.path("sink")) < bytes && child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "{bytes} bytes did not come");
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(then);
    let was_over = child.try_wait().unwrap().is_some();
    kill(&mut child);
    was_over
}

/// Bytes of all files, whole or not, each with all its names counted once; some may come and go.
fn bytes_beneath(dir: &Path) -> u64 {
    let found = files_beneath(dir);
    let found = found.iter().filter_map(|path| path.symlink_metadata().ok());
    found.map(|file| (file.ino(), file.len())).collect::<BTreeMap<_, _>>().values().sum()
}

#[test]
fn what_a_group_of_a_second_made_durable_is_not_copied_again() {
    let bed = Bed::empty();
    fs::create_dir(bed.path("source")).unwrap();
    for number in 0..3 {
        super::write(&bed.path(&format!("source/large{number}")), 48 << 20, number);
    }
    for number in 0..200 {
        super::write(&bed.path(&format!("source/small{number}")), 9000, 10 + number);
    }
    let total = 3 * (48 << 20) + 200 * 9000;
    // Direct writes are slow enough to be cut off, whatever the machine.
    let slow = ["--direct-write", "--threads=1"];
    let mut child = bed.cp(&slow).spawn().unwrap();
    let begun = Instant::now();
    while bed.facts_or_none().is_none_or(|facts| facts.is_empty()) {
        if child.try_wait().unwrap().is_some() {
            // A machine that copies all of it within a group has nothing to go on with.
            return bed.is_whole("within a group");
        }
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(5));
    }
    kill(&mut child);
    let claimed = bed.claimed("a group");
    assert!(claimed > 0);
    let ended = bed.ends(&slow);
    ended.is_fine("a group");
    assert!(ended.moved() <= total - claimed && ended.count("bytes") == total, "{claimed}: {ended:?}");
    bed.is_whole("a group");
}
