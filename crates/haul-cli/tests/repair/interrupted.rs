//! Repairs that fail or are interrupted at each of their steps, by a file system with faults.

use super::in_place::journals;
use super::{fixture, haul, rot, run, with_state};
use crate::faults::fixture::{HOLD, deliver, pasted};
use haul_lab::faults::{Action, FaultFs, Fired};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::wait_until;
use rustix::process::{Pid, Signal};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use tempfile::TempDir;

/// The usual test directory, with `data` in the directory `store`, which `view` shows with faults.
struct FaultyFixture {
    faults: FaultFs,
    home: TempDir,
    /// Contents of `data/big` according to the waybill.
    right: Vec<u8>,
    /// Number of times that an in-place repair syncs `data/big`.
    fsyncs: usize,
}

impl FaultyFixture {
    fn new() -> Option<FaultyFixture> {
        if !met_or_skip(&[Need::Fuse]) {
            return None;
        }
        let home = fixture();
        let dir = home.path();
        with_state(dir);
        for name in ["view", "store"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        fs::rename(dir.join("data"), dir.join("store/data")).unwrap();
        let right = fs::read(dir.join("store/data/big")).unwrap();
        let faults = FaultFs::mount(&dir.join("store"), &dir.join("view"), "".parse().unwrap()).unwrap();
        let mut fixture = FaultyFixture { faults, home, right, fsyncs: 0 };
        fixture.hurt();
        fixture.faults.set_rules("*big fsync .. delay 0".parse().unwrap());
        assert_eq!(fixture.repair(&["--in-place"]).0, Some(0));
        fixture.fsyncs = fixture.faults.fired().len();
        fixture.is_whole("without faults");
        Some(fixture)
    }

    fn dir(&self) -> &Path {
        self.home.path()
    }

    fn big(&self) -> PathBuf {
        self.dir().join("store/data/big")
    }

    /// Damages the file and returns its contents.
    fn hurt(&self) -> Vec<u8> {
        rot(&self.big(), |bytes| {
            bytes[..200_000].fill(7);
            bytes[500_000] ^= 1;
        });
        fs::read(self.big()).unwrap()
    }

    fn repair(&self, more: &[&str]) -> (Option<i32>, String, String) {
        run(self.dir(), &[&["repair", "w", "view", "--from", "a"], more].concat())
    }

    /// Starts a repair and waits until a rule holds it.
    fn held(&self, rule: &str, more: &[&str]) -> Child {
        let seen = self.faults.fired().len();
        self.faults.set_rules(rule.parse().unwrap());
        let child = haul(self.dir(), &[&["repair", "w", "view", "--from", "a"], more].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let is_hold = |fired: &Fired| matches!(fired.action, Action::Delay(_));
        wait_until(rule, || self.faults.fired()[seen..].iter().any(is_hold));
        child
    }

    /// Asserts that the file matches the waybill, and that no journal remains.
    #[track_caller]
    fn is_whole(&self, what: &str) {
        self.faults.set_rules("".parse().unwrap());
        assert!(fs::read(self.big()).unwrap() == self.right, "{what}");
        assert!(journals(&self.dir().join("store/data")).is_empty(), "{what}");
        let verified = run(self.dir(), &["verify", "-q", "w", "view"]);
        assert_eq!((verified.0, &*verified.1), (Some(0), ""), "{what}");
    }
}

/// Kills a held repair, and releases the storage operation that holds it.
fn kill(fixture: &FaultyFixture, mut held: Child) {
    held.kill().unwrap();
    fixture.faults.release();
    held.wait().unwrap();
}

/// The steps of an in-place repair, as the file system sees them. Writes before the journal has its
/// name change nothing. After that the file may be partly repaired.
const STEPS: [&str; 13] = [
    "*big utimens",
    "*haul-journal* create",
    "*haul-journal* write",
    "*haul-journal* fsync",
    "*haul-journal* rename",
    "*big allocate",
    "*big write",
    "*big write .. after 1",
    "*big write .. after 4",
    "*big fsync .. last 2",
    "*big utimens .. after 1",
    "*big fsync .. last 1",
    "*haul-journal* remove",
];

impl FaultyFixture {
    /// Returns the rule that applies `action` at a step. `last N` is the operation with N-1 more of
    /// its kind after it.
    fn rule(&self, step: &str, action: &str) -> String {
        let (operation, which) = step.split_once(" .. ").unwrap_or((step, "after 0"));
        let after = match which.strip_prefix("last ") {
            None => which.to_owned(),
            Some(number) => format!("after {}", self.fsyncs - number.parse::<usize>().unwrap()),
        };
        format!("{operation} .. {action} times 1 {after}")
    }
}

#[test]
fn in_place_repair_killed_at_any_step_is_completed_or_undone() {
    let Some(fixture) = FaultyFixture::new() else { return };
    let mut half = 0;
    for step in STEPS {
        let before = fixture.hurt();
        kill(&fixture, fixture.held(&fixture.rule(step, &format!("delay {HOLD}")), &["--in-place"]));
        fixture.faults.set_rules("".parse().unwrap());
        let after = fs::read(fixture.big()).unwrap();
        if after != before && after != fixture.right {
            half += 1;
            assert_eq!(journals(&fixture.dir().join("store/data")).len(), 1, "{step}");
            let verified = run(fixture.dir(), &["verify", "--json", "w", "view"]);
            assert!(verified.1.contains("\"half_repaired\":true"), "{step}: {verified:?}");
            let dry = fixture.repair(&["--dry-run"]);
            assert!(
                dry.0 == Some(1) && dry.1.contains("an in-place repair was interrupted"),
                "{step}: {dry:?}"
            );
            assert!(fs::read(fixture.big()).unwrap() == after, "{step}: a dry run does nothing");
        }
        let ended = fixture.repair(&[]);
        assert_eq!(ended.0, Some(0), "{step}: {ended:?}");
        fixture.is_whole(step);
    }
    assert!(half > 0, "some step leaves a half repaired file");
}

#[test]
fn repair_killed_at_any_step_leaves_the_file_old_or_repaired() {
    let Some(fixture) = FaultyFixture::new() else { return };
    for step in [
        "*haul-repair* create",
        "*haul-repair* truncate",
        "*haul-repair* write",
        "*haul-repair* write .. after 2",
        "*haul-repair* fsync",
        "*haul-repair* utimens",
        "*haul-repair* fsync .. after 1",
        "*haul-repair* rename",
    ] {
        let before = fixture.hurt();
        kill(&fixture, fixture.held(&fixture.rule(step, &format!("delay {HOLD}")), &[]));
        fixture.faults.set_rules("".parse().unwrap());
        let after = fs::read(fixture.big()).unwrap();
        assert!(after == before || after == fixture.right, "{step}");
        // The next repair of damage removes the temporary files.
        fixture.hurt();
        let ended = fixture.repair(&[]);
        assert_eq!(ended.0, Some(0), "{step}: {ended:?}");
        fixture.is_whole(step);
    }
}

#[test]
fn sigint_leaves_the_file_unchanged_and_the_next_run_completes() {
    let Some(fixture) = FaultyFixture::new() else { return };
    for (step, more) in [
        ("*haul-repair* write .. after 1", &[][..]),
        ("*haul-journal* write", &["--in-place"]),
        ("*big write .. after 1", &["--in-place"]),
    ] {
        let before = fixture.hurt();
        let child = fixture.held(&fixture.rule(step, &format!("delay {HOLD}")), more);
        deliver(Pid::from_child(&child), Signal::INT);
        fixture.faults.release();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{step}: {said}");
        let (_, advice) =
            said.split_once("interrupted: the remaining files were not repaired; to resume: ").expect(&said);
        assert!(fs::read(fixture.big()).unwrap() == before, "{step}");
        assert!(journals(&fixture.dir().join("store/data")).is_empty(), "{step}");
        let verified = run(fixture.dir(), &["verify", "-q", "w", "view"]);
        assert!(
            verified.1.starts_with("'data/big': rotted: "),
            "{step}: its time is as it was: {verified:?}"
        );
        pasted(fixture.dir(), advice);
        fixture.is_whole(step);
    }
}

#[test]
fn a_failed_step_leaves_the_file_unchanged_and_is_reported() {
    let Some(fixture) = FaultyFixture::new() else { return };
    for (step, errno, words) in [
        ("*big utimens", "EPERM", "cannot restore the times of the file: Operation not permitted"),
        (
            "*haul-journal* create",
            "EACCES",
            "cannot write the journal of the replaced bytes: Permission denied",
        ),
        (
            "*haul-journal* write",
            "ENOSPC",
            "cannot write the journal of the replaced bytes: No space left on device",
        ),
        ("*haul-journal* fsync", "EIO", "cannot write the journal of the replaced bytes: Input/output error"),
        (
            "*haul-journal* rename",
            "EROFS",
            "cannot write the journal of the replaced bytes: Read-only file system",
        ),
        ("*big allocate", "ENOSPC", "cannot write to the file: No space left on device"),
        ("*big write", "EDQUOT", "cannot write to the file: Disk quota exceeded"),
        ("*big write .. after 3", "EIO", "cannot write to the file: Input/output error"),
        ("*big fsync .. last 2", "EIO", "cannot write to the file: Input/output error"),
        (
            "*big utimens .. after 1",
            "EPERM",
            "cannot set mode and times of the file: Operation not permitted",
        ),
    ] {
        let before = fixture.hurt();
        fixture.faults.set_rules(fixture.rule(step, &format!("errno {errno}")).parse().unwrap());
        let ended = fixture.repair(&["--in-place"]);
        let line = format!("'data/big': not repaired: {words}\n");
        assert_eq!((ended.0, &*ended.1), (Some(1), &*line), "{step}: {ended:?}");
        assert!(fs::read(fixture.big()).unwrap() == before, "{step}");
        assert!(journals(&fixture.dir().join("store/data")).is_empty(), "{step}");
        fixture.faults.set_rules("".parse().unwrap());
        assert_eq!(fixture.repair(&["--in-place"]).0, Some(0), "{step}");
        fixture.is_whole(step);
    }
}

#[test]
fn unreadable_bytes_are_not_overwritten_in_place() {
    let Some(fixture) = FaultyFixture::new() else { return };
    fixture.hurt();
    fixture.faults.set_rules("data/big read 131072..135168 errno EIO".parse().unwrap());
    let ended = fixture.repair(&["--in-place"]);
    let line = "'data/big': not repaired: cannot read the bytes to replace: Input/output error\n";
    assert_eq!((ended.0, &*ended.1), (Some(1), line));
    // Without `--in-place`, a replica provides the data that cannot be read.
    assert_eq!(fixture.repair(&[]).0, Some(0));
    fixture.is_whole("beside");
}

#[test]
fn a_bad_write_is_undone_and_the_journal_stays_if_undoing_fails() {
    let Some(fixture) = FaultyFixture::new() else { return };
    let before = fixture.hurt();
    fixture.faults.set_rules("data/big write .. flip 131080.2 times 1".parse().unwrap());
    let ended = fixture.repair(&["--in-place"]);
    assert_eq!(ended.0, Some(1));
    assert!(ended.1.contains("not repaired: read-back of the repaired file differs"), "{ended:?}");
    assert!(fs::read(fixture.big()).unwrap() == before);
    fixture.faults.set_rules("data/big write .. flip 131080.2".parse().unwrap());
    let ended = fixture.repair(&["--in-place"]);
    assert_eq!(ended.0, Some(1));
    assert!(
        ended.1.starts_with("'data/big': partly repaired: read-back of the repaired file differs"),
        "{ended:?}"
    );
    assert!(
        ended.1.contains(
            "cannot restore the previous bytes: read-back of the restored bytes 131072-196608 differs"
        ),
        "{ended:?}"
    );
    assert_eq!(journals(&fixture.dir().join("store/data")).len(), 1);
    fixture.faults.set_rules("".parse().unwrap());
    let ended = fixture.repair(&[]);
    assert!(ended.0 == Some(1) && ended.1.contains("the file was modified since"), "{ended:?}");
    // The old byte, as if a user had restored it.
    fs::File::options().write(true).open(fixture.big()).unwrap().write_all_at(&[7], 131_080).unwrap();
    let ended = fixture.repair(&[]);
    assert!(ended.1.starts_with("'data/big': interrupted repair undone\n"), "{ended:?}");
    fixture.is_whole("after all");
}

#[test]
fn foreign_writes_to_a_partly_repaired_file_are_kept() {
    let Some(fixture) = FaultyFixture::new() else { return };
    fixture.hurt();
    kill(
        &fixture,
        fixture.held(&fixture.rule("*big write .. after 1", &format!("delay {HOLD}")), &["--in-place"]),
    );
    fixture.faults.set_rules("".parse().unwrap());
    fs::File::options().write(true).open(fixture.big()).unwrap().write_all_at(b"mine", 500_000).unwrap();
    let before = fs::read(fixture.big()).unwrap();
    for _ in 0..2 {
        let ended = fixture.repair(&[]);
        assert_eq!(ended.0, Some(1));
        assert!(ended.1.contains("the file was modified since"), "{ended:?}");
        assert!(fs::read(fixture.big()).unwrap() == before);
    }
    // The journal does not describe another file with the same name.
    let store = fixture.dir().join("store/data");
    fs::write(store.join("new"), &fixture.right).unwrap();
    fs::rename(store.join("new"), fixture.big()).unwrap();
    let ended = fixture.repair(&[]);
    assert!(ended.0 == Some(0) && ended.2.contains("the journal belongs to another file"), "{ended:?}");
    let [journal] = &journals(&store)[..] else { panic!("one journal") };
    assert!(journal.ends_with(".untrusted"), "{journal}");
    fs::remove_file(store.join(journal)).unwrap();
    fixture.is_whole("by another file");
}

#[test]
fn a_damaged_journal_is_not_replayed() {
    let Some(fixture) = FaultyFixture::new() else { return };
    fixture.hurt();
    kill(
        &fixture,
        fixture.held(&fixture.rule("*big write .. after 1", &format!("delay {HOLD}")), &["--in-place"]),
    );
    fixture.faults.set_rules("".parse().unwrap());
    let before = fs::read(fixture.big()).unwrap();
    let store = fixture.dir().join("store/data");
    let [journal] = &journals(&store)[..] else { panic!("one journal") };
    let journal = store.join(journal);
    let whole = fs::read(&journal).unwrap();
    for change in [
        |bytes: &mut Vec<u8>| bytes[50] ^= 1,
        |bytes: &mut Vec<u8>| bytes.truncate(100_000),
        |bytes: &mut Vec<u8>| bytes[100_000] ^= 0x80,
        |bytes: &mut Vec<u8>| bytes.push(0),
        Vec::clear,
    ] {
        let mut hurt = whole.clone();
        change(&mut hurt);
        fs::write(&journal, &hurt).unwrap();
        let ended = fixture.repair(&[]);
        // The file has another time than in the waybill, and only the journal states why.
        assert_eq!(ended.0, Some(1));
        assert!(ended.1.contains("use --modified to repair the file anyway"), "{ended:?}");
        let reason = "'data/big': ignored the journal of an interrupted in-place repair: damaged at byte ";
        assert!(ended.2.contains(reason), "{ended:?}");
        assert!(fs::read(fixture.big()).unwrap() == before);
        let [aside] = &journals(&store)[..] else { panic!("one journal") };
        assert!(ended.2.contains(aside) && fs::read(store.join(aside)).unwrap() == hurt, "{ended:?}");
        fs::remove_file(store.join(aside)).unwrap();
    }
    fs::write(&journal, whole).unwrap();
    assert_eq!(fixture.repair(&[]).0, Some(0));
    fixture.is_whole("by the whole journal");
}

/// Regression test: the bytes of an object were read to its end, whatever signal came. An object
/// may have a terabyte.
#[test]
fn a_stop_ends_the_survey_within_an_object() {
    const LEN: usize = 32 << 20;
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    for name in ["data", "store", "view"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    let bytes: Vec<u8> = (0..LEN).map(|at| (at >> 10) as u8).collect();
    for name in ["data/f", "store/f"] {
        fs::write(dir.join(name), &bytes).unwrap();
    }
    assert_eq!(run(dir, &["sum", "-r", "--object-size=64M", "--waybill=w", "data"]).0, Some(0));
    rot(&dir.join("data/f"), |bytes| bytes[0] ^= 1);
    // The second rule shows that bytes far behind the place of the stop are read.
    let rules = format!("f read {}.. delay {HOLD} times 1\nf read {}.. delay 0", 8 << 20, 24 << 20);
    let faults = FaultFs::mount(&dir.join("store"), &dir.join("view"), rules.parse().unwrap()).unwrap();
    let mut repair = haul(dir, &["repair", "w", "data", "--from", "view"]);
    let child = repair.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a held read of the replica", || !faults.fired().is_empty());
    deliver(Pid::from_child(&child), Signal::INT);
    faults.release();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(faults.fired().len(), 1, "{ended:?}");
    assert!(!ended.status.success() && fs::read(dir.join("data/f")).unwrap() != bytes, "{ended:?}");
}
