//! `mv` across file systems, ended at any moment: every file is whole at its source or at its sink.

use crate::faults::bed::{Running, noise};
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::Random;
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Moments at which a move is ended.
const MOMENTS: u32 = 24;

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

fn mv(source: &Path, sink: &Path) -> Running {
    Running::new(Command::new(crate::faults::bed::HAUL).arg("mv").args([source, sink]))
}

/// Moves trees from `from` to `to` and ends each move at another moment of it.
fn end_at_many_moments(from: &Path, to: &Path, signal: Signal) {
    let (source, sink) = (from.join("tree"), to.join("tree"));
    make_tree(&source);
    let begun = Instant::now();
    mv(&source, &sink).end().is_fine();
    let whole = begun.elapsed();
    assert_eq!(each_is_whole(&source, &sink, "undisturbed"), FILES);
    let mut random = Random::from_seed(u64::from(MOMENTS));
    let mut partly = 0;
    for moment in 0..MOMENTS {
        let _ = fs::remove_dir_all(&source);
        let _ = fs::remove_dir_all(&sink);
        make_tree(&source);
        let running = mv(&source, &sink);
        let part = whole * moment / MOMENTS + Duration::from_micros(random.below(500));
        thread::sleep(part);
        running.signal(signal);
        let ended = running.end();
        let moved = each_is_whole(&source, &sink, &format!("{signal:?} after {part:?}: {ended:?}"));
        if ended.code == Some(0) {
            assert_eq!(moved, FILES, "{ended:?}");
        } else {
            partly += 1;
        }
    }
    assert!(partly > 0, "every move was through before it was ended");
}

#[test]
fn killed_on_the_way_into_memory() {
    if met_or_skip(&[Need::Mount]) {
        let (home, memory) = (tempfile::tempdir().unwrap(), Mounted::tmpfs(64).unwrap());
        end_at_many_moments(home.path(), &memory.path(), Signal::KILL);
        memory.close().unwrap();
    }
}

#[test]
fn killed_on_the_way_to_another_ext4() {
    if met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        let (home, small) = (tempfile::tempdir().unwrap(), SmallFs::new(64).unwrap());
        end_at_many_moments(home.path(), &small.path(), Signal::KILL);
        small.close().unwrap();
    }
}

#[test]
fn interrupted_on_the_way() {
    if met_or_skip(&[Need::Mount]) {
        let (home, memory) = (tempfile::tempdir().unwrap(), Mounted::tmpfs(64).unwrap());
        end_at_many_moments(home.path(), &memory.path(), Signal::INT);
        memory.close().unwrap();
    }
}

/// What is gone at the source lies on the device, whenever the process and the machine end: a file system that is synced as a whole is not
/// asked file by file, as the one is that tells in what order it was.
#[test]
fn what_is_gone_at_the_source_outlasts_a_loss_of_power() {
    if !met_or_skip(&Format::Ext4.needs()) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("tree");
    let (mut random, mut whole, mut killed) = (Random::from_seed(9), Duration::ZERO, 0);
    // The first is not killed. Names go at the end of a move, and so most kills come there.
    for round in 0..40 {
        let small = SmallFs::new(64).unwrap();
        small.sync().unwrap();
        let _ = fs::remove_dir_all(&source);
        make_tree(&source);
        let begun = Instant::now();
        let running = mv(&source, &small.path());
        if round > 0 {
            thread::sleep(whole * (killed + 11) / 20 + Duration::from_micros(random.below(2000)));
            running.signal(Signal::KILL);
        }
        let ended = running.end();
        // The first one says how long a move takes; one that was through before it was to be killed, that it takes less by now.
        if ended.code == Some(0) {
            whole = if round == 0 { begun.elapsed() } else { whole * 3 / 4 };
        }
        assert!(round > 0 || ended.code == Some(0), "{ended:?}");
        let after = small.after_power_loss().unwrap();
        let what = format!("round {round}, {killed} were killed: {ended:?}");
        let moved = each_is_whole(&source, &after.path().join("tree"), &what);
        assert!(ended.code != Some(0) || moved == FILES, "{what}");
        killed += u32::from(ended.code.is_none());
        after.close().unwrap();
        small.close().unwrap();
        if killed == 9 {
            return;
        }
    }
    assert!(killed > 0, "every move was through before it was killed");
}
