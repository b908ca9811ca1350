//! `mv` across file systems, interrupted at any system call: each file is complete at its source or
//! at its sink.

use crate::faults::fixture::{HAUL, RunResult, Running, noise};
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::{Random, soak_seed};
use haul_lab::{attempt, attempt::Inconclusive, traced};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Number of files in the tree, some of them of several objects.
const FILES: u64 = 60;

fn len(number: u64) -> u64 {
    if number.is_multiple_of(20) { 3 << 20 } else { number * 977 }
}

fn make_tree(root: &Path) {
    for number in 0..FILES {
        let dir = root.join(format!("d{}", number % 7));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{number}")), noise(len(number))).unwrap();
    }
}

/// Panics unless each file is complete at one of the two roots. Returns the number of files that
/// exist only at the sink.
#[track_caller]
fn each_is_whole(source: &Path, sink: &Path, what: &str) -> u64 {
    let mut moved = 0;
    for number in 0..FILES {
        let name = format!("d{}/f{number}", number % 7);
        let is_whole =
            |root: &Path| fs::read(root.join(&name)).is_ok_and(|bytes| bytes == noise(len(number)));
        if !is_whole(source) {
            assert!(!source.join(&name).exists(), "{what}: {name} was damaged at its source");
            assert!(is_whole(sink), "{what}: {name} is whole nowhere");
            moved += 1;
        }
    }
    moved
}

/// System calls of a move, with their minimum number: to write a file, to finish a file, and to
/// remove a file.
const CALLS: [(&str, u64); 3] = [("pwrite64", 64), ("utimensat", 68), ("unlinkat", 68)];

/// A system call of a move: the `when`th call of its name by one of its threads.
#[derive(Clone, Copy, Debug)]
struct Point {
    call: &'static str,
    when: u64,
    threads: u64,
}

/// Returns the seed and the points of a move for each of these calls; a soak run has more of them.
fn points(calls: &[(&'static str, u64)]) -> (u64, Vec<Point>) {
    let (seed, rounds) = soak_seed().map_or((24, 1), |seed| (seed, 6));
    let mut random = Random::from_seed(seed);
    let mut points = Vec::new();
    for _ in 0..rounds {
        for &(call, count) in calls {
            // Calls are counted for each thread; one of the threads makes its share or more.
            let point = |threads| Point { call, when: 1 + random.below(count / threads), threads };
            points.extend([1, 2].map(point));
        }
    }
    (seed, points)
}

/// Moves a tree, and sends a signal to the move at a point.
fn signalled(source: &Path, sink: &Path, signal: &str, Point { call, when, threads }: Point) -> RunResult {
    let mut command = Command::new(HAUL);
    command.arg("mv").arg(format!("--threads={threads}")).args([source, sink]);
    Running::new(&mut traced::signalled(&command, call, signal, &when.to_string())).end()
}

/// Moves trees from `from` to `to`, and interrupts each move at another point.
fn end_at_many_points(from: &Path, to: &Path, signal: &str) {
    let (source, sink) = (from.join("tree"), to.join("tree"));
    let (seed, points) = points(&CALLS);
    for point in points {
        attempt(|| {
            let _ = fs::remove_dir_all(&source);
            let _ = fs::remove_dir_all(&sink);
            make_tree(&source);
            let ended = signalled(&source, &sink, signal, point);
            let what = format!("seed {seed}, {signal} at {point:?}: {ended:?}");
            let moved = each_is_whole(&source, &sink, &what);
            match signal {
                "KILL" => assert_eq!(ended.signal, Some(9), "{what}"),
                _ if ended.code == Some(0) => {
                    assert_eq!(moved, FILES, "{what}");
                    return Err(Inconclusive::new(format!(
                        "the move ended before it was stopped at {point:?}"
                    )));
                }
                _ => assert_eq!(ended.code, Some(130), "{what}"),
            }
            Ok(())
        });
    }
}

#[test]
fn a_move_to_tmpfs_killed_at_any_point_loses_nothing() {
    if met_or_skip(&[Need::Mount, traced::NEED]) {
        let (home, memory) = (tempfile::tempdir().unwrap(), Mounted::tmpfs(64).unwrap());
        end_at_many_points(home.path(), &memory.path(), "KILL");
        memory.close().unwrap();
    }
}

#[test]
fn a_move_to_another_ext4_killed_at_any_point_loses_nothing() {
    if met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4"), traced::NEED]) {
        let (home, small) = (tempfile::tempdir().unwrap(), SmallFs::new(64).unwrap());
        end_at_many_points(home.path(), &small.path(), "KILL");
        small.close().unwrap();
    }
}

#[test]
fn a_move_interrupted_at_any_point_loses_nothing() {
    if met_or_skip(&[Need::Mount, traced::NEED]) {
        let (home, memory) = (tempfile::tempdir().unwrap(), Mounted::tmpfs(64).unwrap());
        end_at_many_points(home.path(), &memory.path(), "INT");
        memory.close().unwrap();
    }
}

/// Data of a removed source is on the device whenever the process or the machine stops. This file
/// system is synced as a whole, and not file by file like the one that reports the order.
#[test]
fn data_of_removed_sources_survives_a_power_loss() {
    if !met_or_skip(&Format::Ext4.needs()) || !met_or_skip(&[traced::NEED]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("tree");
    // Names are removed at the end of a move, so that most kills occur there.
    let (seed, points) = points(&[("utimensat", 68), ("unlinkat", 4), ("unlinkat", 68)]);
    for point in points {
        let small = SmallFs::new(64).unwrap();
        small.sync().unwrap();
        let _ = fs::remove_dir_all(&source);
        make_tree(&source);
        let ended = signalled(&source, &small.path(), "KILL", point);
        let after = small.after_power_loss().unwrap();
        let what = format!("seed {seed}, {point:?}: {ended:?}");
        assert_eq!(ended.signal, Some(9), "{what}");
        let moved = each_is_whole(&source, &after.path().join("tree"), &what);
        // The kill prevents the removal at which it occurs.
        let removed = if point.call == "unlinkat" { point.when - 1 } else { 0 };
        assert!(
            moved >= removed.saturating_sub(8),
            "{what}: {moved} files and at most 8 directories were removed"
        );
        after.close().unwrap();
        small.close().unwrap();
    }
}
