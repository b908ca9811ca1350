//! Tests of state directories on full file systems.

use super::{files, open, settings, styles, subject};
use haul_engine::log::{Keeper, Settings, SyncPolicy};
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
fn learn(keeper: &Keeper, key: FileKey, objects: impl IntoIterator<Item = u64>) {
    keeper.durable_together(key, objects.into_iter().map(ObjectIndex));
}

/// Fills the disk after a log has one object, runs `meanwhile` while commits fail, and then checks
/// that the log continues.
#[track_caller]
fn without_room(style: Style, meanwhile: impl FnOnce(&Keeper, &Path)) {
    let settings = Settings { style, ..settings(SyncPolicy::Group) };
    let small = Mounted::tmpfs(1).unwrap();
    let (keeper, _) = open(&small.path(), settings);
    let (a, _) = keeper.file(&subject(1, 60)).unwrap();
    learn(&keeper, a, [1]);
    keeper.commit().unwrap();
    let filler = fill(&small);
    // Many pages of objects do not fit, whatever the encoding.
    let (b, _) = keeper.file(&subject(2, 90_000)).unwrap();
    learn(&keeper, b, (0..4000).map(|n| n * 22));
    meanwhile(&keeper, &small.path());
    // Truncate first: a child of another test may have the file open until exec and would keep its
    // space.
    fs::write(&filler, "").unwrap();
    fs::remove_file(&filler).unwrap();
    keeper.commit().unwrap();
    drop(keeper);
    let (keeper, found) = open(&small.path(), settings);
    assert_eq!((found.objects, found.flaws.len()), (4001, 0), "{style:?}: {:?}", found.flaws);
    drop(keeper);
    small.close().unwrap();
}

#[test]
fn a_full_state_directory_is_told_and_the_log_goes_on_when_there_is_room() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for style in styles() {
        without_room(style, |keeper, _| {
            let error = keeper.commit().unwrap_err();
            assert!(error.to_string().contains("free space"), "{style:?}: {error}");
        });
    }
}

/// Regression: each commit that failed with ENOSPC left a file behind, once per second.
#[test]
fn a_state_directory_that_stays_full_is_not_filled_with_files() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for style in styles() {
        without_room(style, |keeper, state| {
            let before = files(state);
            for _ in 0..10 {
                keeper.commit().unwrap_err();
                assert_eq!(files(state), before, "{style:?}");
            }
        });
    }
}

/// Regression: if an index could not be written (ENOSPC), the log that it was to name was already
/// written and synced. This log stayed behind, once per second.
#[test]
fn logs_that_no_index_names_do_not_stay_where_it_finds_no_room() {
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
        let (keeper, _) = open(&view, Settings { style, ..settings(SyncPolicy::Group) });
        let (key, _) = keeper.file(&subject(1, 6000)).unwrap();
        learn(&keeper, key, [1]);
        keeper.commit().unwrap();
        let before = files(&view);
        // The first commit fails to extend the index. The later ones fail to replace it.
        let full = ["*/log/*.index write .. errno ENOSPC", "*/log/*.new write .. errno ENOSPC"].join("\n");
        faults.set_rules(full.parse().unwrap());
        let (other, _) = keeper.file(&subject(2, 6000)).unwrap();
        learn(&keeper, other, [7]);
        learn(&keeper, key, [2, 5999]);
        for _ in 0..10 {
            let has_index = style.mechanism != Mechanism::File;
            assert_eq!(keeper.commit().is_err(), has_index, "{style:?}");
            assert!(!has_index || files(&view) == before, "{style:?}: {:?}", files(&view));
        }
        faults.set_rules(Rules::default());
        keeper.commit().unwrap();
        drop(keeper);
        let (keeper, found) = open(&view, Settings { style, ..settings(SyncPolicy::Group) });
        assert_eq!((found.objects, found.flaws.len()), (4, 0), "{style:?}: {:?}", found.flaws);
        drop(keeper);
    }
    faults.close();
}
