//! Directories that are moved while an entry beneath them is copied. A file at the bottom is held
//! while the test moves directories far above it, which the copy has already closed.

use super::chain::start_with_files;
use crate::faults::bed::{Ended, FaultBed, HAUL, HOLD, Running, noise, write_old};
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
fn start_fenced(bed: &FaultBed, options: &[&str], source: &Path, sink: &Path) -> Running {
    let fence = r#"mount --rbind "$1" "$1" && mount -o remount,bind,ro / || exit 99; shift
        ulimit -n "$1"; shift; exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", fence, "sh"]).arg(bed.path("")).arg(FILES.to_string());
    Running::new(command.arg(HAUL).args(["cp", "--threads=1"]).args(options).args([source, sink]))
}

#[track_caller]
fn assert_whole(source: &Path, sink: &Path) {
    let [a, b] = [source, sink].map(|root| Snapshot::take(root).unwrap());
    a.assert_same(&b, Facets::ARCHIVE);
}

#[test]
fn the_sink_moved_away_meanwhile_is_filled_where_it_is_now() {
    let Some(bed) = FaultBed::new(&format!("*slow open .. delay {HOLD} times 1")) else { return };
    build(&bed.path("store/source"));
    fs::create_dir_all(bed.path("place/sink")).unwrap();
    let running = start(&["-aT"], &bed.path("view/source"), &bed.path("place/sink"));
    bed.held();
    fs::rename(bed.path("place"), bed.path("elsewhere")).unwrap();
    fs::rename(bed.path("elsewhere/sink"), bed.path("elsewhere/moved")).unwrap();
    bed.let_go();
    running.end().is_fine();
    assert!(!bed.path("place").exists());
    assert_whole(&bed.path("store/source"), &bed.path("elsewhere/moved"));
}

#[test]
fn the_source_moved_away_meanwhile_is_copied_whole() {
    let Some(bed) = FaultBed::new(&format!("*slow create .. delay {HOLD} times 1")) else { return };
    build(&bed.path("place/source"));
    let running = start(&["-aT"], &bed.path("place/source"), &bed.path("view/sink"));
    bed.held();
    fs::rename(bed.path("place"), bed.path("elsewhere")).unwrap();
    bed.let_go();
    running.end().is_fine();
    assert_whole(&bed.path("elsewhere/source"), &bed.path("store/sink"));
}

fn fenced_bed() -> Option<FaultBed> {
    met_or_skip(&[Need::Mount])
        .then(|| FaultBed::new(&format!("*slow open .. delay {HOLD} times 1")))
        .flatten()
}

/// `..` of a moved directory leads to its new parent: no names are created there, and no metadata
/// is set.
#[test]
fn a_directory_moved_out_of_the_sink_does_not_lead_the_copy_out_of_it() {
    let Some(bed) = fenced_bed() else { return };
    build(&bed.path("store/source"));
    fs::create_dir_all(bed.path("outside")).unwrap();
    fs::set_permissions(bed.path("outside"), Permissions::from_mode(0o711)).unwrap();
    let sink = bed.path("sink");
    let running = start_fenced(&bed, &["-a"], &bed.path("view/source"), &sink);
    bed.held();
    // Level 31 leaves level 30, which was closed when level 41 was opened.
    fs::rename(level(&sink, 31), bed.path("outside/d")).unwrap();
    bed.let_go();
    let ended = running.end();
    ended.is_fine();
    let outside = fs::metadata(bed.path("outside")).unwrap();
    assert_eq!(outside.mode() & 0o777, 0o711, "{ended:?}");
    assert!(outside.mtime() > 1_500_000_000, "{ended:?}");
    assert_eq!(fs::read_dir(bed.path("outside")).unwrap().count(), 1, "{ended:?}");
    // The moved part is complete at its new location, and the rest at the old one.
    assert_whole(&level(&bed.path("store/source"), 31), &bed.path("outside/d"));
    for number in 0..=30 {
        assert_marked(&level(&sink, number), number, &ended);
    }
}

/// The name on the way back names another directory by then.
#[test]
fn a_directory_put_in_the_place_of_a_closed_one_gets_nothing() {
    let Some(bed) = fenced_bed() else { return };
    build(&bed.path("store/source"));
    fs::create_dir_all(bed.path("outside")).unwrap();
    let sink = bed.path("sink");
    let running = start_fenced(&bed, &["-a"], &bed.path("view/source"), &sink);
    bed.held();
    fs::rename(level(&sink, 31), bed.path("outside/d")).unwrap();
    // Level 20 is now another directory, and so are all levels below it.
    fs::rename(level(&sink, 20), bed.path("was")).unwrap();
    fs::create_dir_all(level(&level(&sink, 20), 10)).unwrap();
    bed.let_go();
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
fn assert_marked(dir: &Path, number: usize, ended: &Ended) {
    let found = fs::metadata(dir).unwrap();
    assert_eq!(found.mode() & 0o777, 0o700 + number as u32, "level {number}: {ended:?}");
    assert_eq!(found.mtime(), 1_000_000_000 + number as i64, "level {number}: {ended:?}");
}
