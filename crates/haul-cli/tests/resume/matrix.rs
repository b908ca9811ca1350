//! Copies that are killed at system calls drawn from seeds, for each log style.

use super::{Fixture, OBJECT, write};
use crate::faults::fixture::HOLD;
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::{Random, soak_seed};
use haul_lab::{traced, wait_until};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread;

const MECHANISMS: [&str; 3] = ["file", "transaction:2", "universal"];
const ENCODINGS: [&str; 6] = ["char", "int", "enc", "binary", "bit8", "bit64"];

/// Kills for each log style in a soak run. The crash simulation of `haul-log` covers the points
/// within a log; all other runs kill one copy for each style.
const SOAK_POINTS: u64 = 12;

/// Number of styles that run concurrently. Their copies mostly wait for the disk.
const AT_ONCE: usize = 4;

/// System calls at which a copy is killed: those that change the state that a later run finds.
const CALLS: [&str; 3] = ["pwrite64", "fdatasync", "fsync"];

/// Results of the points.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Number of killed copies.
    cut_off: u64,
    /// Number of killed copies that had made objects durable.
    claimed_some: u64,
    /// Number of points whose last copy resumed from existing data.
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
fn a_copy_killed_at_any_point_resumes_with_every_log_style() {
    if !met_or_skip(&[traced::NEED]) {
        return;
    }
    let (seed, points) = soak_seed().map_or((0, 1), |seed| (seed, SOAK_POINTS));
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
                    styles.for_each(|(number, style)| {
                        let seed = seed.wrapping_mul(100).wrapping_add(number as u64);
                        counts += killed_in_style(seed, points, *style);
                    });
                    counts
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| all += thread.join().unwrap());
    });
    let points = points * styles.len() as u64;
    assert!(
        all.cut_off >= points && all.went_on > points * 2 / 3 && all.claimed_some > points / 3,
        "seed {seed}: {all:?} of {points}: the points are not where they should be"
    );
}

/// Kills a copy with this log style at `points` points, and finishes it from each of them.
fn killed_in_style(seed: u64, points: u64, (mechanism, encoding): (&str, &str)) -> Counts {
    let fixture = Fixture::new(seed);
    let [mechanism, encoding] =
        [format!("--log-mechanism={mechanism}"), format!("--log-encoding={encoding}")];
    let mut counts = Counts::default();
    for point in 0..points {
        let mut random = Random::for_part(seed, point);
        // Calls are counted for each thread; two threads share the calls that one thread makes.
        let threads = 1 + random.below(2);
        let threads_option = format!("--threads={threads}");
        // Each object is logged by itself, so that each point has objects in the log.
        let style = [&*mechanism, &*encoding, &*threads_option, "--sync=object"];
        let what = format!("seed {seed}, point {point}, {style:?}");
        let mut claimed = 0;
        // The copy is interrupted once, or in soak runs perhaps twice in a row.
        for cut in 0..=random.below(2.min(points)) {
            // A copy of at least 36 objects writes and syncs each object and its log.
            let (call, when) = match random.index(CALLS.len()) {
                2 => ("fsync", (8 + random.below(8)) / threads),
                index => (CALLS[index], (30 + random.below(40)) / threads),
            };
            let what = format!("{what}, cut {cut} at {call} {when}");
            let mut copy = traced::signalled(&fixture.cp(&style), call, "KILL", &when.to_string());
            let status =
                copy.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            // The second interrupted run may have fewer calls to make.
            assert!(cut > 0 || status.signal() == Some(9), "{what}: {status}");
            if status.signal() != Some(9) {
                assert!(status.success(), "{what}: {status}");
                claimed = 0;
                break;
            }
            counts.cut_off += 1;
            claimed = fixture.claimed(&what);
            counts.claimed_some += u64::from(claimed > 0);
        }
        let ended = fixture.ends(&style);
        ended.is_fine(&what);
        fixture.is_whole(&what);
        assert!(ended.moved() <= ended.count("bytes") - claimed, "{what}: {claimed} were there: {ended:?}");
        counts.went_on += u64::from(ended.count("bytes_kept") > 0);
        assert!(fixture.facts().is_empty(), "{what}: the log goes with the job");
        fs::remove_dir_all(fixture.path("sink")).unwrap();
        fs::remove_dir_all(fixture.path("state")).unwrap();
    }
    counts
}

#[test]
fn data_made_durable_by_a_group_commit_is_not_copied_again() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let fixture = Fixture::empty();
    ["store", "source"].iter().for_each(|name| fs::create_dir(fixture.path(name)).unwrap());
    for number in 0..3 {
        write(&fixture.path(&format!("store/large{number}")), 20 * OBJECT, number);
    }
    // The copy is held in the middle of a file until a group is in the log.
    let total = 3 * 20 * OBJECT;
    let hold = format!("large2 read {}.. delay {HOLD} times 1", 10 * OBJECT);
    let faults =
        FaultFs::mount(&fixture.path("store"), &fixture.path("source"), hold.parse().unwrap()).unwrap();
    let how = ["--threads=1"];
    let mut child = fixture.cp(&how).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a group in the log", || fixture.facts_or_none().is_some_and(|facts| !facts.is_empty()));
    child.kill().unwrap();
    faults.set_rules("".parse().unwrap());
    faults.release();
    child.wait().unwrap();
    let claimed = fixture.claimed("a group");
    assert!(claimed > 0);
    let ended = fixture.ends(&how);
    ended.is_fine("a group");
    assert!(ended.moved() <= total - claimed && ended.count("bytes") == total, "{claimed}: {ended:?}");
    fixture.is_whole("a group");
    faults.close();
}
