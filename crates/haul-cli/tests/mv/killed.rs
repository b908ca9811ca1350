//! `mv` across file systems, ended at any system call: every file is whole at its source or at its sink.

use crate::faults::bed::{Ended, HAUL, Running, noise};
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::{Random, soak_seed};
use haul_lab::{attempt, attempt::Inconclusive, traced};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Files of the tree, some of them of several objects.
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

/// Panics unless each file is whole at one of the two roots. Gives how many are only at the sink.
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

/// System calls of a move, and how often it makes each at least: of writing a file, of ending one, and of removing one.
const CALLS: [(&str, u64); 3] = [("pwrite64", 64), ("utimensat", 68), ("unlinkat", 68)];

/// A system call of a move: the `when`th of its name that one of its threads makes.
#[derive(Clone, Copy, Debug)]
struct Point {
    call: &'static str,
    when: u64,
    threads: u64,
}

/// Points of a move for each of these calls, and the seed that they are drawn from; more of them in a soak run.
fn points(calls: &[(&'static str, u64)]) -> (u64, Vec<Point>) {
    let (seed, rounds) = soak_seed().map_or((24, 1), |seed| (seed, 6));
    let mut random = Random::from_seed(seed);
    let mut points = Vec::new();
    for _ in 0..rounds {
        for &(call, count) in calls {
            // Threads count for themselves; one of them makes its share or more.
            let point = |threads| Point { call, when: 1 + random.below(count / threads), threads };
            points.extend([1, 2].map(point));
        }
    }
    (seed, points)
}

/// Moves a tree, and sends the move a signal at a point.
fn signalled(source: &Path, sink: &Path, signal: &str, Point { call, when, threads }: Point) -> Ended {
    let mut command = Command::new(HAUL);
    command.arg("mv").arg(format!("--threads={threads}")).args([source, sink]);
    Running::new(&mut traced::signalled(&command, call, signal, &when.to_string())).end()
}

/// Moves trees from `from` to `to` and ends each move at another point.
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
fn killed_on_the_way_into_memory() {
    if met_or_skip(&[Need::Mount, traced::NEED]) {
        let (home, memory) = (tempfile::tempdir().unwrap(), Mounted::tmpfs(64).unwrap());
        end_at_many_points(home.path(), &memory.path(), "KILL");
        memory.close().unwrap();
    }
}

#[test]
fn killed_on_the_way_to_another_ext4() {
    if met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4"), traced::NEED]) {
        let (home, small) = (tempfile::tempdir().unwrap(), SmallFs::new(64).unwrap());
        end_at_many_points(home.path(), &small.path(), "KILL");
        small.close().unwrap();
    }
}

#[test]
fn interrupted_on_the_way() {
    if met_or_skip(&[Need::Mount, traced::NEED]) {
        let (home, memory) = (tempfile::tempdir().unwrap(), Mounted::tmpfs(64).unwrap());
        end_at_many_points(home.path(), &memory.path(), "INT");
        memory.close().unwrap();
    }
}

/// What is gone at the source lies on the device, whenever the process and the machine end: a file system that is synced as a whole is not
/// asked file by file, as the one is that tells in what order it was.
#[test]
fn what_is_gone_at_the_source_outlasts_a_loss_of_power() {
    if !met_or_skip(&Format::Ext4.needs()) || !met_or_skip(&[traced::NEED]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("tree");
    // Names go at the end of a move, and so most kills come there.
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
        // The kill prevents the removal at which it comes.
        let removed = if point.call == "unlinkat" { point.when - 1 } else { 0 };
        assert!(
            moved >= removed.saturating_sub(8),
            "{what}: {moved} files and at most 8 directories were removed"
        );
        after.close().unwrap();
        small.close().unwrap();
    }
}
