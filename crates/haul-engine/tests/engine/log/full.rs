//! Tests of state directories on full file systems.

use super::{files, open, settings, styles, subject};
use haul_engine::log::{LogWriter, Settings, SyncPolicy};
use haul_lab::faults::{FaultFs, Rules};
use haul_lab::mounts::Mounted;
use haul_lab::needs::{Need, met_or_skip};
use haul_log::objects::{FileKey, Mechanism, Style};
use haul_model::ObjectIndex;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Fills the file system with one file and returns its path.
fn fill(small: &Mounted) -> PathBuf {
    let filler = small.path().join("filler");
    let mut file = File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    filler
}

/// Notes objects and leaves their commit to the test. A commit by the timer would find the disk
/// full too early.
fn learn(log_writer: &LogWriter, key: FileKey, objects: impl IntoIterator<Item = u64>) {
    log_writer.durable_together(key, objects.into_iter().map(ObjectIndex));
}

/// Fills the disk after a log has one object, runs `meanwhile` while commits fail, and then checks
/// that the log continues.
#[track_caller]
fn without_room(style: Style, meanwhile: impl FnOnce(&LogWriter, &Path)) {
    let settings = Settings { style, ..settings(SyncPolicy::Group) };
    let small = Mounted::tmpfs(1).unwrap();
    let (log_writer, _) = open(&small.path(), settings);
    let (a, _) = log_writer.file(&subject(1, 60)).unwrap();
    learn(&log_writer, a, [1]);
    log_writer.commit().unwrap();
    let filler = fill(&small);
    // Many pages of objects do not fit, whatever the encoding.
    let (b, _) = log_writer.file(&subject(2, 90_000)).unwrap();
    learn(&log_writer, b, (0..4000).map(|n| n * 22));
    meanwhile(&log_writer, &small.path());
    // Truncate first: a child of another test may have the file open until exec and would keep its
    // space.
    fs::write(&filler, "").unwrap();
    fs::remove_file(&filler).unwrap();
    log_writer.commit().unwrap();
    drop(log_writer);
    let (log_writer, found) = open(&small.path(), settings);
    assert_eq!((found.objects, found.flaws.len()), (4001, 0), "{style:?}: {:?}", found.flaws);
    drop(log_writer);
    small.close().unwrap();
}

#[test]
fn full_state_directory_is_reported_and_the_log_continues_later() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for style in styles() {
        without_room(style, |log_writer, _| {
            let error = log_writer.commit().unwrap_err();
            assert!(error.to_string().contains("free space"), "{style:?}: {error}");
        });
    }
}

/// Regression: each commit that failed with ENOSPC left a file behind, once per second.
#[test]
fn failed_commits_leave_no_files_in_a_full_directory() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for style in styles() {
        without_room(style, |log_writer, state| {
            let before = files(state);
            for _ in 0..10 {
                log_writer.commit().unwrap_err();
                assert_eq!(files(state), before, "{style:?}");
            }
        });
    }
}

/// Regression: if an index could not be written (ENOSPC), the log that it was to name was already
/// written and synced. This log stayed behind, once per second.
#[test]
fn failed_index_write_leaves_no_orphaned_logs() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [store, mount] = ["store", "view"].map(|name| dir.path().join(name));
    for place in [&store, &mount] {
        fs::create_dir(place).unwrap();
    }
    let faults = FaultFs::mount(&store, &mount, Rules::default()).unwrap();
    for (number, style) in styles().enumerate() {
        let view = mount.join(number.to_string());
        let (log_writer, _) = open(&view, Settings { style, ..settings(SyncPolicy::Group) });
        let (key, _) = log_writer.file(&subject(1, 6000)).unwrap();
        learn(&log_writer, key, [1]);
        log_writer.commit().unwrap();
        let before = files(&view);
        // The first commit fails to extend the index. The later ones fail to replace it.
        let full = ["*/log/*.index write .. errno ENOSPC", "*/log/*.new write .. errno ENOSPC"].join("\n");
        faults.set_rules(full.parse().unwrap());
        let (other, _) = log_writer.file(&subject(2, 6000)).unwrap();
        learn(&log_writer, other, [7]);
        learn(&log_writer, key, [2, 5999]);
        for _ in 0..10 {
            let has_index = style.mechanism != Mechanism::File;
            assert_eq!(log_writer.commit().is_err(), has_index, "{style:?}");
            assert!(!has_index || files(&view) == before, "{style:?}: {:?}", files(&view));
        }
        faults.set_rules(Rules::default());
        log_writer.commit().unwrap();
        drop(log_writer);
        let (log_writer, found) = open(&view, Settings { style, ..settings(SyncPolicy::Group) });
        assert_eq!((found.objects, found.flaws.len()), (4, 0), "{style:?}: {:?}", found.flaws);
        drop(log_writer);
    }
    faults.close();
}
