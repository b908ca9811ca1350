//! Replacement of a small file: an error at each step, and a power failure after each flush.

use haul_lab::faults::{FaultFs, Recorded, Rules};
use haul_lab::mounts::RecordedDisk;
use haul_lab::needs::{Need, met_or_skip};
use haul_storage::{Durability, Replacement, Writers, replace_path};
use std::fs;
use std::path::Path;

/// Replaces the file at `path` by several writes.
fn replace(path: &Path, writers: Writers, durability: Durability, byte: u8) -> std::io::Result<()> {
    replace_path(path, Replacement::private(writers, durability), |out| {
        (0..3).try_for_each(|_| out.write_all(&[byte; 5000]))
    })
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn an_error_at_any_step_is_reported_and_keeps_the_old_file() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [store, view] = ["store", "view"].map(|name| dir.path().join(name));
    for place in [&store, &view] {
        fs::create_dir(place).unwrap();
    }
    fs::create_dir(store.join("d")).unwrap();
    let faults = FaultFs::mount(&store, &view, Rules::default()).unwrap();
    let path = view.join("d/f");
    for (writers, temporary) in [(Writers::One, "d/f.new"), (Writers::Many, "d/.haul-*")] {
        for (fault, errno) in [
            (format!("{temporary} create .. errno ENOSPC"), "No space left"),
            (format!("{temporary} write 6000.. errno EIO"), "Input/output error"),
            (format!("{temporary} write 10000.. errno EDQUOT"), "uota exceeded"),
            (format!("{temporary} fsync .. errno EIO"), "Input/output error"),
            (format!("{temporary} flush .. errno EDQUOT"), "uota exceeded"),
            (format!("{temporary} rename .. errno EACCES"), "Permission denied"),
            // The bytes are there when their sync fails; the first error counts.
            (
                format!("{temporary} fsync .. errno EIO\n{temporary} flush .. errno ENOSPC"),
                "Input/output error",
            ),
        ] {
            fs::write(store.join("d/f"), "old").unwrap();
            faults.set_rules(fault.parse().unwrap());
            let error = replace(&path, writers, Durability::DataAndName, 1).unwrap_err().to_string();
            assert!(error.contains(errno), "{fault}: {error}");
            assert_eq!(fs::read(store.join("d/f")).unwrap(), b"old", "{fault}");
            assert_eq!(names(&store.join("d")), ["f"], "{fault}");
        }
        // The new file has its name when the sync of the directory fails.
        faults.set_rules("d fsync .. errno EIO".parse().unwrap());
        let error = replace(&path, writers, Durability::DataAndName, 1).unwrap_err();
        assert!(error.to_string().contains("Input/output error"), "{error}");
        assert_eq!(fs::read(store.join("d/f")).unwrap(), [1; 15_000]);
        // A temporary file that cannot be removed does not hide the first error.
        faults.set_rules(
            format!("{temporary} rename .. errno EACCES\n* remove .. errno EROFS").parse().unwrap(),
        );
        let error = replace(&path, writers, Durability::None, 2).unwrap_err();
        assert!(error.to_string().contains("Permission denied"), "{error}");
        assert_eq!(fs::read(store.join("d/f")).unwrap(), [1; 15_000]);
        faults.set_rules(Rules::default());
        names(&store.join("d")).iter().filter(|name| *name != "f").for_each(|name| {
            fs::remove_file(store.join("d").join(name)).unwrap();
        });
    }
    faults.close();
}

#[test]
fn all_bytes_are_synced_before_the_rename() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [store, view] = ["store", "view"].map(|name| dir.path().join(name));
    for place in [&store, &view] {
        fs::create_dir(place).unwrap();
    }
    let faults = FaultFs::mount(&store, &view, Rules::default()).unwrap();
    let synced = |durability| {
        faults.begin_record();
        replace(&view.join("f"), Writers::One, durability, 3).unwrap();
        let events = faults.end_record();
        let path = |event: &Recorded| match event {
            Recorded::Sync { path } => Some(path.to_str().unwrap().to_owned()),
            Recorded::Write { .. } | Recorded::Zero { .. } => None,
        };
        assert!(events.iter().take(3).all(|event| path(event).is_none()), "all bytes first: {events:?}");
        events.iter().filter_map(path).collect::<Vec<_>>()
    };
    assert_eq!(synced(Durability::None), Vec::<String>::new());
    assert_eq!(synced(Durability::Data), ["f.new"]);
    assert_eq!(synced(Durability::DataAndName), ["f.new"]);
    faults.close();
}

/// A disk that loses power after any flush: an ext4 whose journal commits whenever it does.
#[test]
fn after_a_power_failure_the_file_is_the_old_or_the_new_one() {
    if !met_or_skip(&RecordedDisk::NEEDS) {
        return;
    }
    let disk = RecordedDisk::new(16).unwrap();
    let path = disk.path().join("f");
    let mut flushes = Vec::new();
    for byte in 1..=4 {
        replace(&path, Writers::One, Durability::DataAndName, byte).unwrap();
        flushes.push(disk.flushes());
        replace(&path, Writers::Many, Durability::Data, byte + 100).unwrap();
    }
    let recording = disk.close().unwrap();
    for after in flushes[0]..=recording.flushes() {
        let found = recording.lost_power(after, after as u64).unwrap();
        let bytes = fs::read(found.path().join("f")).unwrap();
        assert_eq!(bytes, vec![bytes[0]; 15_000], "complete after {after} flushes");
        let durable = flushes.iter().filter(|flushes| **flushes <= after).count() as u8;
        assert!(bytes[0] % 100 >= durable, "{} is older than {durable}, after {after} flushes", bytes[0]);
        found.close().unwrap();
    }
}
