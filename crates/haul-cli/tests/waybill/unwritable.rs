//! Waybills that cannot be written, or not completely: the job reports that and fails, its other
//! work is done, and no command accepts the incomplete waybill.

use super::pattern;
use crate::faults::fixture::{FaultFixture, HOLD, RunResult, haul, start, tree_with_victim};
use haul_lab::mounts::SmallFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::snapshot::{Facets, Snapshot};
use rustix::process::Signal;
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Runs `haul` with these words and paths.
fn job(words: &[&str], paths: &[&Path]) -> RunResult {
    haul(words.iter().map(Path::new).chain(paths.iter().copied()))
}

/// Asserts that no command accepts an incomplete waybill as complete.
#[track_caller]
fn is_not_whole(waybill: &Path, root: &Path) {
    for words in [&["waybill", "check"][..], &["verify", "-q"]] {
        let mut paths = vec![waybill];
        paths.extend((words[0] == "verify").then_some(root));
        let ended = job(words, &paths);
        assert_eq!(ended.code, Some(2), "{words:?}: {ended:?}");
        assert!(!ended.stdout.contains("whole"), "{ended:?}");
    }
}

#[test]
fn waybill_write_errors_fail_the_job_and_keep_its_output() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 3 * MIB);
    let plain = job(&["sum", "-r"], &[&source]);
    for (number, (rule, words)) in [
        ("w* write .. errno ENOSPC", "cannot write the waybill '"),
        ("w* write .. errno EDQUOT", "Disk quota exceeded"),
        ("w* write .. errno EIO", "Input/output error"),
        ("w* fsync .. errno EIO", "cannot sync the waybill '"),
        ("w* create .. errno ENOSPC", "cannot open the waybill '"),
    ]
    .into_iter()
    .enumerate()
    {
        let begins = !rule.contains("create");
        let bill = |kind: &str| fixture.path(&format!("view/w-{kind}-{number}"));
        fixture.rules(rule);
        let (summed, copied, sink) = (bill("sum"), bill("cp"), fixture.path(&format!("sink{number}")));
        let ended = job(&["sum", "-r", "--waybill"], &[&summed, &source]);
        ended.failed_with(&[words]);
        assert_eq!(ended.complaints(), 1, "{rule}: {ended:?}");
        assert_eq!(ended.stdout, if begins { &*plain.stdout } else { "" }, "{rule}");
        let ended = job(&["cp", "-rT", "--waybill"], &[&copied, &source, &sink]);
        ended.failed_with(&[words]);
        assert_eq!(ended.complaints(), 1, "{rule}: {ended:?}");
        assert_eq!(sink.exists(), begins, "{rule}: a copy without a waybill does not start");
        fixture.rules("");
        if begins {
            let [from, to] = [&source, &sink].map(|root| Snapshot::take(root).unwrap());
            from.assert_same(&to, Facets::CONTENT);
        }
        if rule.contains("write") {
            is_not_whole(&summed, fixture.path("source").parent().unwrap());
            is_not_whole(&copied, sink.parent().unwrap());
        }
    }
}

#[test]
fn a_full_disk_leaves_no_waybill_that_looks_complete() {
    if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    let (small, home) = (SmallFs::new(16).unwrap(), tempfile::tempdir().unwrap());
    let data = home.path().join("data");
    fs::create_dir(&data).unwrap();
    for number in 0..1000 {
        fs::write(data.join(format!("f{number}")), pattern(9, number)).unwrap();
    }
    // The leaves of this file are kept next to the waybill, and take more space than all entries.
    fs::write(data.join("long"), pattern(2 << 20, 3)).unwrap();
    for (number, more) in [&[][..], &["--leaf"]].into_iter().enumerate() {
        let at = |name: &str| small.path().join(format!("{name}{number}"));
        small.leave(64 << 10).unwrap();
        let summed = job(&[&["sum", "-r"][..], more, &["--waybill"]].concat(), &[&at("summed"), &data]);
        let copied = job(
            &[&["cp", "-rT"][..], more, &["--waybill"]].concat(),
            &[&at("copied"), &data, &home.path().join(format!("copy{number}"))],
        );
        for (ended, name) in [(&summed, "summed"), (&copied, "copied")] {
            assert_eq!(ended.code, Some(1), "{name} {more:?}: {ended:?}");
            let reported = [&*format!("{name}{number}"), "waybill", "No space left on device"];
            ended.failed_with(&reported);
        }
        fs::remove_file(small.path().join("ballast")).unwrap();
        is_not_whole(&at("summed"), home.path());
        is_not_whole(&at("copied"), home.path());
        // With free space, the same waybill is written under a new name.
        job(&[&["sum", "-r"][..], more, &["--waybill"]].concat(), &[&at("retried"), &data]);
        job(&["verify", "-q"], &[&at("retried"), &data]).is_fine();
        for name in ["summed", "copied", "retried"] {
            fs::remove_file(at(name)).unwrap();
        }
    }
    small.close().unwrap();
}

#[test]
fn sigint_closes_the_waybill_with_the_copied_files() {
    let Some(fixture) = FaultFixture::new(&format!("sink/victim write .. delay {HOLD} times 1")) else {
        return;
    };
    fixture.tree(8 * MIB);
    let (source, sink, waybill) = (fixture.path("store/tree"), fixture.path("view/sink"), fixture.path("w"));
    let words = ["cp", "-aT", "--threads=1", "--waybill"].map(Path::new);
    let running = start(words.into_iter().chain([&*waybill, &*source, &*sink]));
    fixture.held();
    running.deliver(Signal::INT);
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    fixture.rules("");
    assert_eq!(job(&["waybill", "check"], &[&waybill]).is_fine().code, Some(0));
    let listed = job(&["waybill", "export"], &[&waybill]);
    assert!(!listed.is_fine().stdout.contains("victim"), "{listed:?}");
    // The victim may be the first file of its directory.
    let is_empty = listed.stdout.is_empty();
    let verified = job(&["verify", "-q"], &[&waybill, &fixture.path("view")]);
    assert_eq!(verified.code, Some(if is_empty { 2 } else { 0 }), "{verified:?}");
    // The copy resumes and continues its waybill.
    job(&["cp", "-auT", "--waybill"], &[&waybill, &source, &sink]).is_fine();
    let listed = job(&["waybill", "export"], &[&waybill]);
    assert_eq!(listed.is_fine().stdout.lines().count(), 6, "{listed:?}");
    job(&["verify", "-q"], &[&waybill, &fixture.path("view")]).is_fine();
}

#[test]
fn the_waybill_of_a_killed_copy_is_incomplete_and_not_appended_to() {
    // Holds the copy when the number of arrived files is high enough that the first lines of their
    // entries have been written.
    let Some(fixture) = FaultFixture::new(&format!("sink/f* write .. delay {HOLD} after 150 times 1")) else {
        return;
    };
    let (source, sink, waybill) = (fixture.path("source"), fixture.path("view/sink"), fixture.path("w"));
    fs::create_dir(&source).unwrap();
    for number in 0..200 {
        fs::write(source.join(format!("f{number}")), pattern(10, number)).unwrap();
    }
    let words = ["cp", "-aT", "--threads=1", "--waybill"].map(Path::new);
    let running = start(words.into_iter().chain([&*waybill, &*source, &*sink]));
    fixture.held();
    running.signal(Signal::KILL);
    fixture.release();
    assert_eq!(running.end().code, None);
    fixture.rules("");
    is_not_whole(&waybill, &fixture.path("view"));
    let left = fs::read(&waybill).unwrap();
    let ended = job(&["cp", "-auT", "--waybill"], &[&waybill, &source, &sink]);
    ended.failed_with(&[
        "cannot append to the waybill",
        "not a waybill, or truncated",
        "name a file that does not exist yet",
    ]);
    assert_eq!(fs::read(&waybill).unwrap(), left);
    job(&["cp", "-aT", "--waybill"], &[&fixture.path("w2"), &source, &sink]).is_fine();
    job(&["verify", "-q"], &[&fixture.path("w2"), &fixture.path("view")]).is_fine();
}
