//! Transfers of a source that is modified in place meanwhile, with its modification time set back.
//! Only the change time shows the modification, but a new mode updates it as well.

use super::ends::{DIRECTIONS, transfer};
use super::{Fixture, assert_ended};
use crate::faults::fixture::HOLD;
use haul_lab::faults::{FaultFs, Rules};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::wait_until;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::thread;

const LEN: usize = 1 << 20;

/// Writes to the start of a file, which haul has read, and to its end, which haul has not read.
/// Then sets the modification time back.
fn tear(file: &Path) {
    let modified = fs::metadata(file).unwrap().modified().unwrap();
    let open = File::options().write(true).open(file).unwrap();
    open.write_all_at(b"new", 0).unwrap();
    open.write_all_at(b"new", LEN as u64 - 3).unwrap();
    open.set_modified(modified).unwrap();
}

fn restrict(file: &Path) {
    fs::set_permissions(file, Permissions::from_mode(0o640)).unwrap();
}

/// The complete contents of the original file arrive, and the sender reports that its path now
/// names another file.
#[test]
fn a_replaced_source_is_reported_by_the_sender() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.file("data/f", LEN);
    fixture.file("new", 1000);
    fs::create_dir(fixture.path("view")).unwrap();
    let before = fs::read(fixture.path("data/f")).unwrap();
    let rules = format!("f read 524288.. delay {HOLD} times 1");
    let view = FaultFs::mount(&fixture.path("data"), &fixture.path("view"), rules.parse().unwrap()).unwrap();
    let options = ["--object-size=64K", "--streams=1"];
    let (source, into) = (fixture.path("view/f"), fixture.path("into"));
    fs::create_dir(&into).unwrap();
    let ended = thread::scope(|scope| {
        let running = scope.spawn(|| transfer(&fixture, DIRECTIONS[0], &options, &source, &into));
        wait_until("the held read", || !view.fired().is_empty());
        fs::rename(fixture.path("new"), fixture.path("data/f")).unwrap();
        view.release();
        running.join().unwrap()
    });
    assert_ended(&ended, 0);
    assert!(ended.err.contains("f' was replaced or removed since it was sent"), "{ended:?}");
    assert!(fs::read(into.join("f")).unwrap() == before);
    view.close();
}

#[test]
fn a_source_written_during_transfer_arrives_consistent_or_fails() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let forms: [&[&str]; 4] = [
        &[],
        &["--verify=stream", "-a", "md5"],
        &["--verify=stream", "-a", "md5", "--granularity=file"],
        &["--verify=stream", "-a", "crc32", "--granularity=file"],
    ];
    for (direction, form) in DIRECTIONS.into_iter().flat_map(|direction| forms.map(|form| (direction, form)))
    {
        for (change, is_torn) in [(tear as fn(&Path), true), (restrict, false)] {
            let fixture = Fixture::new();
            fixture.file("data/f", LEN);
            fs::create_dir(fixture.path("view")).unwrap();
            let rules = format!("f read 524288.. delay {HOLD} times 1");
            let view =
                FaultFs::mount(&fixture.path("data"), &fixture.path("view"), rules.parse().unwrap()).unwrap();
            let options = [&["--object-size=64K", "--streams=1"], form].concat();
            let (source, into) = (fixture.path("view/f"), fixture.path("into"));
            fs::create_dir(&into).unwrap();
            let ended = thread::scope(|scope| {
                let running = scope.spawn(|| transfer(&fixture, direction, &options, &source, &into));
                wait_until("the held read", || !view.fired().is_empty());
                change(&fixture.path("data/f"));
                view.release();
                running.join().unwrap()
            });
            view.set_rules(Rules::default());
            let what = format!("{direction:?} {form:?}, torn: {is_torn}: {ended:?}");
            if is_torn {
                assert_ended(&ended, 1);
                assert!(ended.err.contains("f: changed while it was read"), "{what}");
                assert!(!into.join("f").exists(), "{what}");
                assert_ended(&transfer(&fixture, direction, &options, &source, &into), 0);
            } else {
                assert_ended(&ended, 0);
            }
            assert!(fs::read(into.join("f")).unwrap() == fs::read(fixture.path("data/f")).unwrap(), "{what}");
            view.close();
        }
    }
}
