//! Sources that change while they are copied. Storage with a delay holds the copy at a known place
//! while the test changes the source.

use super::fixture::{
    FaultFixture, HOLD, OPTION_SETS, assert_same_file, assert_same_tree, assert_unfinished, haul, noise,
    others_are_whole, start, write_old,
};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Modification of a file.
type Change = fn(&Path);

/// Copies a tree, changes `victim` after its first bytes were read, and asserts the result.
fn changed_in_the_middle(change: Change, ways: &[&[&str]]) {
    let Some(fixture) = FaultFixture::new("") else { return };
    let [store, view] = ["store/tree", "view/tree"].map(|name| fixture.path(name));
    for (number, way) in ways.iter().enumerate() {
        fixture.tree(6 * MIB + 5);
        let sink = fixture.path(&format!("sink{number}"));
        fixture.rules(&format!("*victim read .. delay {HOLD} times 1"));
        let before = fixture.fired().len();
        let running = start(["cp", "-aT"].iter().chain(*way).map(Path::new).chain([&*view, &*sink]));
        haul_lab::wait_until("the held read", || fixture.fired().len() > before);
        change(&store.join("victim"));
        fixture.release();
        let ended = running.end();
        ended.failed_with(&["tree/victim", "the source changed during the copy"]);
        assert_eq!(ended.complaints(), 1, "{ended:?}");
        others_are_whole(&store, &sink);
        assert_unfinished(&sink.join("victim"));

        fixture.rules("");
        haul([Path::new("cp"), "-aT".as_ref(), "--update".as_ref(), &view, &sink]).is_fine();
        assert_same_tree(&store, &sink);
    }
}

#[test]
fn a_file_that_grows_is_reported_and_copied_by_update() {
    changed_in_the_middle(
        |victim| File::options().append(true).open(victim).unwrap().write_all(&[1; 100]).unwrap(),
        &[&[], &["--print-hash", "--hash-type=md5"]],
    );
}

#[test]
fn a_file_that_shrinks_is_reported_and_copied_by_update() {
    changed_in_the_middle(
        |victim| File::options().write(true).open(victim).unwrap().set_len(3 * MIB).unwrap(),
        &OPTION_SETS[1..4],
    );
}

#[test]
fn a_file_that_is_emptied_is_reported_and_copied_by_update() {
    changed_in_the_middle(
        |victim| File::options().write(true).open(victim).unwrap().set_len(0).unwrap(),
        &[&["--double-buffer"], &["--direct-read"]],
    );
}

#[test]
fn a_file_rewritten_in_place_is_reported_and_copied_by_update() {
    changed_in_the_middle(
        |victim| File::options().write(true).open(victim).unwrap().write_all_at(b"new", 0).unwrap(),
        &[&[], &["--verify"], &["--verify=reread"], &["--sparse=always"]],
    );
}

#[test]
fn a_file_replaced_during_the_copy_is_copied_as_opened() {
    let Some(fixture) = FaultFixture::new(&format!("*victim read .. delay {HOLD} times 1")) else { return };
    let [store, view, sink] = ["store/tree", "view/tree", "sink"].map(|name| fixture.path(name));
    fixture.tree(6 * MIB);
    let running = start([Path::new("cp"), "-aT".as_ref(), &view, &sink]);
    fixture.held();
    fs::write(store.join("new"), noise(5 * MIB)).unwrap();
    fs::rename(store.join("new"), store.join("victim")).unwrap();
    fixture.release();
    running.end().is_fine();
    // The copy is not a mixture of the two.
    assert!(fs::read(sink.join("victim")).unwrap() == noise(6 * MIB));
    haul([Path::new("cp"), "-aT".as_ref(), "--update".as_ref(), &view, &sink]).is_fine();
    assert!(fs::read(sink.join("victim")).unwrap() == noise(5 * MIB));
}

#[test]
fn a_file_unlinked_during_the_copy_is_copied_as_opened() {
    let Some(fixture) = FaultFixture::new(&format!("*victim read .. delay {HOLD} times 1")) else { return };
    let [store, view, sink] = ["store/tree", "view/tree", "sink"].map(|name| fixture.path(name));
    fixture.tree(6 * MIB);
    // Not `-a`: the storage of this test looks up attributes by name.
    let running = start([Path::new("cp"), "-rT".as_ref(), "--preserve=timestamps".as_ref(), &view, &sink]);
    fixture.held();
    fs::remove_file(store.join("victim")).unwrap();
    fixture.release();
    running.end().is_fine();
    assert!(fs::read(sink.join("victim")).unwrap() == noise(6 * MIB));
    others_are_whole(&store, &sink);
}

#[test]
fn a_partial_copy_of_a_file_that_shrinks_fails() {
    let Some(fixture) = FaultFixture::new(&format!("victim read .. delay {HOLD} times 1")) else { return };
    let [victim, view, sink] = ["store/victim", "view/victim", "sink"].map(|name| fixture.path(name));
    write_old(&victim, &noise(6 * MIB));
    write_old(&sink, &noise(7 * MIB));
    let options = ["cp", "-p", "--offset=1M", "--length=4M"].map(Path::new);
    let running = start(options.into_iter().chain([&*view, &*sink]));
    fixture.held();
    File::options().write(true).open(&victim).unwrap().set_len(2 * MIB).unwrap();
    fixture.release();
    running.end().failed_with(&["view/victim", "changed"]);
    assert_unfinished(&sink);
    assert!(
        fs::read(&sink).unwrap()[5 << 20..] == noise(7 * MIB)[5 << 20..],
        "bytes outside the range are unchanged"
    );
}

#[test]
fn a_file_changed_before_it_is_opened_is_copied() {
    let Some(fixture) = FaultFixture::new(&format!("*victim open .. delay {HOLD} times 1")) else { return };
    let [victim, view, sink] = ["store/victim", "view/victim", "sink"].map(|name| fixture.path(name));
    write_old(&victim, &noise(MIB));
    let running = start([Path::new("cp"), "-p".as_ref(), &view, &sink]);
    fixture.held();
    File::options().append(true).open(&victim).unwrap().write_all(b"more").unwrap();
    fixture.release();
    running.end().is_fine();
    assert_same_file(&victim, &sink);
}

/// Files of sysfs end like this. In earlier versions a copy with a serial digest waited
/// indefinitely for the missing bytes.
#[test]
fn a_file_shorter_than_its_reported_length_is_copied_to_its_end() {
    let Some(fixture) = FaultFixture::new("*victim read 1048576.. short 0") else { return };
    fs::create_dir(fixture.path("store/tree")).unwrap();
    fs::write(fixture.path("store/tree/victim"), noise(6 * MIB)).unwrap();
    for (number, way) in [&["--threads=1"][..], &["--threads=1", "--sparse=always"]].iter().enumerate() {
        let words = ["cp", "--print-hash", "--hash-type=md5", "--split-size=1M"];
        let (view, sink) = (fixture.path("view/tree/victim"), fixture.path(&format!("short{number}")));
        haul(words.iter().chain(*way).map(Path::new).chain([&*view, &*sink])).is_fine();
        assert!(fs::read(sink).unwrap() == noise(6 * MIB)[..1 << 20], "{way:?}");
    }
}
