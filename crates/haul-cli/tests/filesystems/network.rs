//! Properties of NFS, emulated by a FUSE file system, because the kernel of a test machine may lack
//! an NFS client. Handles become stale, and removed names remain until the file is closed. Lost
//! data may be reported only at close, and times are coarse. Server-side copies return 0, there are
//! no attributes, and root cannot change owners.

use super::fixture::{ToolOrigin, Twins, assert_alike, cp};
use crate::faults::fixture::{
    FaultFixture, HAUL, HOLD, Running, assert_same_tree, assert_unfinished, haul, noise, tree_with_victim,
};
use haul_lab::faults::Op;
use haul_lab::snapshot::{Facets, Snapshot};
use haul_lab::wait_until;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// All properties together, as on one mount.
const NFS: &str = "* xattr .. errno ENOTSUP\n* copy .. short 0\n* stat .. coarse 1000\n* remove .. silly\n\
                   * allocate .. errno ENOTSUP\n* seek .. errno ENOSYS\n";

/// Sets this time for each name beneath a path.
fn set_times(path: &Path, seconds: i64, nanoseconds: i64) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            set_times(&entry.unwrap().path(), seconds, nanoseconds);
        }
    }
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn trees_round_trip_over_nfs() {
    let Some(fixture) = FaultFixture::new(NFS) else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 9 << 20);
    fs::hard_link(source.join("a"), source.join("dir/second")).unwrap();
    std::os::unix::fs::symlink("a", source.join("link")).unwrap();
    set_times(&source, 1_000_000_000, 0);
    let steps = [
        (source.clone(), "view/there"),
        (fixture.path("view/there"), "view/again"),
        (fixture.path("view/again"), "back"),
    ];
    for (number, (from, to)) in steps.iter().enumerate() {
        let options = if number == 1 { ["cp", "-aT", "--verify"] } else { ["cp", "-aT", "--threads=2"] };
        haul(options.map(Path::new).into_iter().chain([&**from, &*fixture.path(to)])).is_fine();
    }
    fixture.rules("* stat .. coarse 1000");
    assert_same_tree(&source, &fixture.path("back"));
}

/// The server stores whole seconds. A copy of a source with nanoseconds is complete, and `-u` must
/// skip it.
#[test]
fn update_accepts_times_truncated_by_the_server() {
    for (ms, name) in [(1000, "NFS version 2"), (2000, "vfat"), (10, "exFAT")] {
        let Some(fixture) = FaultFixture::new(&format!("* stat .. coarse {ms}")) else { return };
        let source = fixture.path("source");
        tree_with_victim(&source, 5000);
        set_times(&source, 1_000_000_001, 987_654_321);
        let args = ["-auvT".as_ref(), source.as_os_str(), "z".as_ref()];
        let twins = Twins::run(&fixture.path("view"), "z", &args);
        for (maker, folder) in [ToolOrigin::Gnu, ToolOrigin::Ours].into_iter().zip(&twins.folders) {
            let again = cp(maker, folder, args);
            assert_eq!((again.status, &*again.err, &*again.out), (Some(0), "", ""), "{name} {maker:?}");
        }
        // A source that is newer by more than one step is copied.
        set_times(&source.join("b"), 1_000_000_100, 5);
        for (maker, folder) in [ToolOrigin::Gnu, ToolOrigin::Ours].into_iter().zip(&twins.folders) {
            let third = cp(maker, folder, args);
            assert_eq!(third.out.lines().count(), 1, "{name} {maker:?}: {third:?}");
            assert!(third.out.contains("/b'"), "{name} {maker:?}: {third:?}");
        }
        twins.remove();
    }
}

#[test]
fn data_loss_reported_at_close_fails_the_copy() {
    for rule in
        ["*victim flush .. errno ENOSPC", "*victim flush .. errno EIO", "*victim flush .. errno EDQUOT"]
    {
        let Some(fixture) = FaultFixture::new(&format!("{NFS}{rule}")) else { return };
        let source = fixture.path("source");
        tree_with_victim(&source, 5 << 20);
        set_times(&source, 1_000_000_000, 0);
        let args = ["-aT".as_ref(), source.as_os_str(), "z".as_ref()];
        let twins = Twins::run(&fixture.path("view"), "z", &args);
        assert_eq!(twins.runs[0], twins.runs[1], "{rule}");
        assert!(twins.runs[1].err.contains("failed to close"), "{:?}", twins.runs[1]);
        // GNU's copy has the time of its source at this point; the copy of haul is marked as
        // incomplete.
        assert_unfinished(&twins.folders[1].join("z/victim"));
        fixture.rules("* stat .. coarse 1000");
        let again =
            cp(ToolOrigin::Ours, &twins.folders[1], ["-auT".as_ref(), source.as_os_str(), "z".as_ref()]);
        assert_eq!((again.status, &*again.err), (Some(0), ""), "{rule}");
        assert_same_tree(&source, &twins.folders[1].join("z"));
        twins.remove();
    }
}

#[test]
fn a_stale_handle_fails_only_its_file() {
    let mut wrong = Vec::new();
    for (name, rule) in [
        ("opening", "tree/victim open .. errno ESTALE"),
        ("reading", "tree/victim read 100000.. errno ESTALE"),
        ("looking", "tree/victim stat .. errno ESTALE"),
    ] {
        let Some(fixture) = FaultFixture::new("") else { return };
        fixture.tree(1 << 20);
        fixture.rules(&format!("{NFS}{rule}"));
        let view = fixture.path("view/tree");
        let twins = Twins::run(&fixture.path(""), "z", &["-rT".as_ref(), view.as_os_str(), "z".as_ref()]);
        if twins.runs[0] != twins.runs[1] {
            wrong.push((name.to_owned(), format!("{:#?}", twins.runs)));
        }
        assert_eq!(twins.runs[1].status, Some(1));
        for other in ["a", "b", "z", "dir/c", "dir/d"] {
            let [a, b] = [fixture.path("store/tree"), twins.folders[1].join("z")]
                .map(|root| Snapshot::take(&root.join(other)).unwrap());
            a.assert_same(&b, Facets::CONTENT);
        }
        twins.remove();
    }
    assert_alike(&wrong);
}

/// For the read-back a copy is opened again. A handle that is stale by then verifies nothing, and
/// haul reports that.
#[test]
fn a_copy_that_cannot_be_reopened_is_not_verified() {
    let Some(fixture) = FaultFixture::new(&format!("{NFS}*sink/victim open .. errno ESTALE")) else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 1 << 20);
    let ended =
        haul([Path::new("cp"), "-aT".as_ref(), "--verify".as_ref(), &source, &fixture.path("view/sink")]);
    ended.failed_with(&["cannot read back", "sink/victim", "Stale file handle"]);
    assert_eq!(ended.complaints(), 1, "{}", ended.stderr);
    assert_unfinished(&fixture.path("store/sink/victim"));
}

/// An open file that is replaced loses its name and remains. The new file is complete, and the
/// server removes the old one after its last close.
#[test]
fn an_open_sink_is_replaced_and_removed_after_its_last_close() {
    let Some(fixture) = FaultFixture::new(NFS) else { return };
    let (source, sink) = (fixture.path("source"), fixture.path("view/sink"));
    fs::write(&source, noise(300_000)).unwrap();
    fs::write(&sink, b"what was there").unwrap();
    let held = File::open(&sink).unwrap();
    haul([Path::new("cp"), "--remove-destination".as_ref(), &source, &sink]).is_fine();
    assert!(fs::read(&sink).unwrap() == noise(300_000));
    let others = || fs::read_dir(fixture.path("store")).unwrap().count() - 1;
    assert_eq!(others(), 1, "the old one has another name");
    assert_eq!(std::io::read_to_string(&held).unwrap(), "what was there");
    drop(held);
    // The server receives a close with a delay.
    wait_until("the end of the old file", || others() == 0);
}

/// An interrupted copy is removed while it is still open.
#[test]
fn an_interrupted_copy_leaves_no_name_behind() {
    let Some(fixture) = FaultFixture::new(&format!("{NFS}*sink write 1048576.. delay {HOLD} times 1")) else {
        return;
    };
    let (source, sink) = (fixture.path("source"), fixture.path("view/sink"));
    fs::write(&source, noise(2 << 20)).unwrap();
    let mut command = Command::new(HAUL);
    let running = Running::new(command.args(["cp", "--threads=1"]).args([&source, &sink]));
    fixture.held();
    running.deliver(Signal::TERM);
    fixture.release();
    assert_eq!(running.end().code, Some(143));
    wait_until("an empty folder", || fs::read_dir(fixture.path("store")).unwrap().count() == 0);
}

/// Servers that copy by themselves and return 0 for a file with data.
#[test]
fn a_server_side_copy_of_zero_bytes_falls_back_to_read_and_write() {
    let Some(fixture) = FaultFixture::new("") else { return };
    fs::write(fixture.path("store/source"), noise(9 << 20)).unwrap();
    fixture.rules("* copy .. short 0");
    haul([Path::new("cp"), &fixture.path("view/source"), &fixture.path("view/sink")]).is_fine();
    assert!(fixture.fired().iter().any(|fired| fired.op == Op::Copy), "the server was asked");
    assert!(fs::read(fixture.path("store/sink")).unwrap() == noise(9 << 20));
}

/// Changes by another client become visible when a file is opened, and not before. The copy has the
/// contents, length and times of the opened file.
#[test]
fn stale_attributes_do_not_truncate_the_copy() {
    for (before, after) in [(10, 100_000), (100_000, 10), (1, 5 << 20), (5 << 20, 70_000), (9, 0)] {
        for words in [&["cp", "-aT"][..], &["cp", "-aT", "--verify"], &["mv", "-T"]] {
            let Some(fixture) = FaultFixture::new("* stat .. lag") else { return };
            fixture.tree(before);
            let (source, victim) = (fixture.path("view/tree"), fixture.path("store/tree/victim"));
            assert_eq!(fs::metadata(source.join("victim")).unwrap().len(), before);
            fs::write(&victim, noise(after)).unwrap();
            set_times(&victim, 1_300_000_000, 5);
            assert_eq!(fs::metadata(source.join("victim")).unwrap().len(), before, "it lags");
            let like = fixture.path("like");
            assert!(
                Command::new("/usr/bin/cp")
                    .arg("-aT")
                    .args([&fixture.path("store/tree"), &like])
                    .status()
                    .unwrap()
                    .success()
            );

            let sink = fixture.path("sink");
            haul(words.iter().map(Path::new).chain([&*source, &*sink])).is_fine();
            assert_same_tree(&like, &sink);
            assert_eq!(source.exists(), words[0] == "cp");
        }
    }
}

/// Another client has written the sink: the copy replaces it completely.
#[test]
fn a_sink_with_stale_attributes_is_completely_overwritten() {
    for (before, after) in [(10, 100_000), (5 << 20, 10), (1, 9 << 20)] {
        let Some(fixture) = FaultFixture::new("* stat .. lag") else { return };
        let (source, sink) = (fixture.path("source"), fixture.path("view/sink"));
        fs::write(&source, noise(70_000)).unwrap();
        fs::write(fixture.path("store/sink"), noise(before)).unwrap();
        assert_eq!(fs::metadata(&sink).unwrap().len(), before);
        fs::write(fixture.path("store/sink"), noise(after)).unwrap();
        haul([Path::new("cp"), "-p".as_ref(), "--verify".as_ref(), &source, &sink]).is_fine();
        assert_same_tree(&source, &fixture.path("store/sink"));
    }
}

/// A server may report lost data only at sync or close. In this case a move removes nothing of the
/// operand.
#[test]
fn a_move_removes_nothing_if_the_server_fails_at_sync_or_close() {
    for (rule, words) in [
        ("*victim flush .. errno EDQUOT", "Disk quota exceeded"),
        ("*victim fsync .. errno EDQUOT", "Disk quota exceeded"),
        ("*victim fsync .. errno ESTALE", "Stale file handle"),
        ("*victim flush .. errno EIO", "Input/output error"),
    ] {
        let Some(fixture) = FaultFixture::new("") else { return };
        let (source, like) = (fixture.path("source"), fixture.path("like"));
        tree_with_victim(&source, 5 << 20);
        set_times(&source, 1_000_000_000, 0);
        tree_with_victim(&like, 5 << 20);
        set_times(&like, 1_000_000_000, 0);
        fixture.rules(&format!("{NFS}{rule}"));
        let ended = haul([Path::new("mv"), "-T".as_ref(), &source, &fixture.path("view/sink")]);
        ended.failed_with(&["sink/victim", words]);
        assert_same_tree(&like, &source);
        assert_unfinished(&fixture.path("store/sink/victim"));
    }
}
