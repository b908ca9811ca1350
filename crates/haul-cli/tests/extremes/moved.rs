//! Directories that are moved while an entry beneath them is copied. A file at the bottom is held
//! while the test moves directories far above it, which the copy has already closed.

use super::chain::start_with_files;
use crate::faults::fixture::{FaultFixture, HAUL, HOLD, RunResult, Running, noise, write_old};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::snapshot::{Facets, Snapshot};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// Number of levels: many more than ten, which a process with [`FILES`] descriptors keeps open.
const LEVELS: usize = 60;

const FILES: u32 = 64;

/// Returns the path of a level below `root`.
fn level(root: &Path, level: usize) -> PathBuf {
    (0..level).fold(root.to_owned(), |path, _| path.join("d"))
}

/// Creates a chain with a file in each directory; the last file is `slow`. Each directory has a
/// mode and a time of its own.
fn build(root: &Path) {
    fs::create_dir_all(level(root, LEVELS)).unwrap();
    for number in (0..=LEVELS).rev() {
        let dir = level(root, number);
        write_old(&dir.join(if number == LEVELS { "slow" } else { "file" }), &noise(number as u64));
        fs::set_permissions(&dir, Permissions::from_mode(0o700 + number as u32)).unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + number as u64);
        File::open(&dir).unwrap().set_modified(time).unwrap();
    }
}

fn start(options: &[&str], source: &Path, sink: &Path) -> Running {
    let words = ["cp", "--threads=1"].iter().chain(options).map(Path::new);
    start_with_files(FILES, words.chain([source, sink]))
}

/// Does the same as [`start`] with write access to the test directory only. A copy that followed a
/// wrong `..` would otherwise mark the directories of the machine, up to `/`.
fn start_fenced(fixture: &FaultFixture, options: &[&str], source: &Path, sink: &Path) -> Running {
    let fence = r#"mount --rbind "$1" "$1" && mount -o remount,bind,ro / || exit 99; shift
        ulimit -n "$1"; shift; exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", fence, "sh"]).arg(fixture.path("")).arg(FILES.to_string());
    Running::new(command.arg(HAUL).args(["cp", "--threads=1"]).args(options).args([source, sink]))
}

#[track_caller]
fn assert_whole(source: &Path, sink: &Path) {
    let [a, b] = [source, sink].map(|root| Snapshot::take(root).unwrap());
    a.assert_same(&b, Facets::ARCHIVE);
}

#[test]
fn a_sink_renamed_during_the_copy_is_filled_at_its_new_path() {
    let Some(fixture) = FaultFixture::new(&format!("*slow open .. delay {HOLD} times 1")) else { return };
    build(&fixture.path("store/source"));
    fs::create_dir_all(fixture.path("place/sink")).unwrap();
    let running = start(&["-aT"], &fixture.path("view/source"), &fixture.path("place/sink"));
    fixture.held();
    fs::rename(fixture.path("place"), fixture.path("elsewhere")).unwrap();
    fs::rename(fixture.path("elsewhere/sink"), fixture.path("elsewhere/moved")).unwrap();
    fixture.release();
    running.end().is_fine();
    assert!(!fixture.path("place").exists());
    assert_whole(&fixture.path("store/source"), &fixture.path("elsewhere/moved"));
}

#[test]
fn a_source_renamed_during_the_copy_is_copied_completely() {
    let Some(fixture) = FaultFixture::new(&format!("*slow create .. delay {HOLD} times 1")) else { return };
    build(&fixture.path("place/source"));
    let running = start(&["-aT"], &fixture.path("place/source"), &fixture.path("view/sink"));
    fixture.held();
    fs::rename(fixture.path("place"), fixture.path("elsewhere")).unwrap();
    fixture.release();
    running.end().is_fine();
    assert_whole(&fixture.path("elsewhere/source"), &fixture.path("store/sink"));
}

fn fenced_fixture() -> Option<FaultFixture> {
    met_or_skip(&[Need::Mount])
        .then(|| FaultFixture::new(&format!("*slow open .. delay {HOLD} times 1")))
        .flatten()
}

/// `..` of a moved directory leads to its new parent: no names are created there, and no metadata
/// is set.
#[test]
fn a_directory_moved_out_of_the_sink_redirects_nothing() {
    let Some(fixture) = fenced_fixture() else { return };
    build(&fixture.path("store/source"));
    fs::create_dir_all(fixture.path("outside")).unwrap();
    fs::set_permissions(fixture.path("outside"), Permissions::from_mode(0o711)).unwrap();
    let sink = fixture.path("sink");
    let running = start_fenced(&fixture, &["-a"], &fixture.path("view/source"), &sink);
    fixture.held();
    // Level 31 leaves level 30, which was closed when level 41 was opened.
    fs::rename(level(&sink, 31), fixture.path("outside/d")).unwrap();
    fixture.release();
    let ended = running.end();
    ended.is_fine();
    let outside = fs::metadata(fixture.path("outside")).unwrap();
    assert_eq!(outside.mode() & 0o777, 0o711, "{ended:?}");
    assert!(outside.mtime() > 1_500_000_000, "{ended:?}");
    assert_eq!(fs::read_dir(fixture.path("outside")).unwrap().count(), 1, "{ended:?}");
    // The moved part is complete at its new location, and the rest at the old one.
    assert_whole(&level(&fixture.path("store/source"), 31), &fixture.path("outside/d"));
    for number in 0..=30 {
        assert_marked(&level(&sink, number), number, &ended);
    }
}

/// The name on the way back names another directory by then.
#[test]
fn a_directory_that_replaces_a_closed_one_is_not_modified() {
    let Some(fixture) = fenced_fixture() else { return };
    build(&fixture.path("store/source"));
    fs::create_dir_all(fixture.path("outside")).unwrap();
    let sink = fixture.path("sink");
    let running = start_fenced(&fixture, &["-a"], &fixture.path("view/source"), &sink);
    fixture.held();
    fs::rename(level(&sink, 31), fixture.path("outside/d")).unwrap();
    // Level 20 is now another directory, and so are all levels below it.
    fs::rename(level(&sink, 20), fixture.path("was")).unwrap();
    fs::create_dir_all(level(&level(&sink, 20), 10)).unwrap();
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("replaced while being copied"), "{ended:?}");
    for number in 0..=10 {
        let found = fs::metadata(level(&level(&sink, 20), number)).unwrap();
        assert!(found.mtime() > 1_500_000_000, "level {number} of the other was marked: {ended:?}");
        assert!(!level(&level(&sink, 20), number).join("file").exists());
    }
    // The levels above are unchanged.
    for number in 0..20 {
        assert_marked(&level(&sink, number), number, &ended);
    }
}

#[track_caller]
fn assert_marked(dir: &Path, number: usize, ended: &RunResult) {
    let found = fs::metadata(dir).unwrap();
    assert_eq!(found.mode() & 0o777, 0o700 + number as u32, "level {number}: {ended:?}");
    assert_eq!(found.mtime(), 1_000_000_000 + number as i64, "level {number}: {ended:?}");
}
