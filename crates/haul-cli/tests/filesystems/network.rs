//! Properties of NFS, emulated by a FUSE file system, because the kernel of a test machine may lack
//! an NFS client. Handles become stale, and removed names remain until the file is closed. Lost
//! data may be reported only at close, and times are coarse. Server-side copies return 0, there are
//! no attributes, and root cannot change owners.

use super::bed::{Maker, Twins, assert_alike, cp};
use crate::faults::bed::{
    FaultBed, HAUL, HOLD, Running, assert_same_tree, assert_unfinished, haul, noise, tree_with_victim,
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
fn trees_go_there_and_back() {
    let Some(bed) = FaultBed::new(NFS) else { return };
    let source = bed.path("source");
    tree_with_victim(&source, 9 << 20);
    fs::hard_link(source.join("a"), source.join("dir/second")).unwrap();
    std::os::unix::fs::symlink("a", source.join("link")).unwrap();
    set_times(&source, 1_000_000_000, 0);
    let steps = [
        (source.clone(), "view/there"),
        (bed.path("view/there"), "view/again"),
        (bed.path("view/again"), "back"),
    ];
    for (number, (from, to)) in steps.iter().enumerate() {
        let options = if number == 1 { ["cp", "-aT", "--verify"] } else { ["cp", "-aT", "--threads=2"] };
        haul(options.map(Path::new).into_iter().chain([&**from, &*bed.path(to)])).is_fine();
    }
    bed.rules("* stat .. coarse 1000");
    assert_same_tree(&source, &bed.path("back"));
}

/// The server stores whole seconds. A copy of a source with nanoseconds is complete, and `-u` must
/// skip it.
#[test]
fn update_knows_that_a_server_cuts_times_off() {
    for (ms, name) in [(1000, "NFS version 2"), (2000, "vfat"), (10, "exFAT")] {
        let Some(bed) = FaultBed::new(&format!("* stat .. coarse {ms}")) else { return };
        let source = bed.path("source");
        tree_with_victim(&source, 5000);
        set_times(&source, 1_000_000_001, 987_654_321);
        let args = ["-auvT".as_ref(), source.as_os_str(), "z".as_ref()];
        let twins = Twins::run(&bed.path("view"), "z", &args);
        for (maker, folder) in [Maker::Gnu, Maker::Ours].into_iter().zip(&twins.folders) {
            let again = cp(maker, folder, args);
            assert_eq!((again.status, &*again.err, &*again.out), (Some(0), "", ""), "{name} {maker:?}");
        }
        // A source that is newer by more than one step is copied.
        set_times(&source.join("b"), 1_000_000_100, 5);
        for (maker, folder) in [Maker::Gnu, Maker::Ours].into_iter().zip(&twins.folders) {
            let third = cp(maker, folder, args);
            assert_eq!(third.out.lines().count(), 1, "{name} {maker:?}: {third:?}");
            assert!(third.out.contains("/b'"), "{name} {maker:?}: {third:?}");
        }
        twins.remove();
    }
}

#[test]
fn bytes_that_the_server_loses_are_told_when_the_file_is_closed() {
    for rule in
        ["*victim flush .. errno ENOSPC", "*victim flush .. errno EIO", "*victim flush .. errno EDQUOT"]
    {
        let Some(bed) = FaultBed::new(&format!("{NFS}{rule}")) else { return };
        let source = bed.path("source");
        tree_with_victim(&source, 5 << 20);
        set_times(&source, 1_000_000_000, 0);
        let args = ["-aT".as_ref(), source.as_os_str(), "z".as_ref()];
        let twins = Twins::run(&bed.path("view"), "z", &args);
        assert_eq!(twins.runs[0], twins.runs[1], "{rule}");
        assert!(twins.runs[1].err.contains("failed to close"), "{:?}", twins.runs[1]);
        // GNU's copy has the time of its source at this point; the copy of haul is marked as
        // incomplete.
        assert_unfinished(&twins.folders[1].join("z/victim"));
        bed.rules("* stat .. coarse 1000");
        let again = cp(Maker::Ours, &twins.folders[1], ["-auT".as_ref(), source.as_os_str(), "z".as_ref()]);
        assert_eq!((again.status, &*again.err), (Some(0), ""), "{rule}");
        assert_same_tree(&source, &twins.folders[1].join("z"));
        twins.remove();
    }
}

#[test]
fn a_handle_that_goes_stale_fails_one_file_and_no_other() {
    let mut wrong = Vec::new();
    for (name, rule) in [
        ("opening", "tree/victim open .. errno ESTALE"),
        ("reading", "tree/victim read 100000.. errno ESTALE"),
        ("looking", "tree/victim stat .. errno ESTALE"),
    ] {
        let Some(bed) = FaultBed::new("") else { return };
        bed.tree(1 << 20);
        bed.rules(&format!("{NFS}{rule}"));
        let view = bed.path("view/tree");
        let twins = Twins::run(&bed.path(""), "z", &["-rT".as_ref(), view.as_os_str(), "z".as_ref()]);
        if twins.runs[0] != twins.runs[1] {
            wrong.push((name.to_owned(), format!("{:#?}", twins.runs)));
        }
        assert_eq!(twins.runs[1].status, Some(1));
        for other in ["a", "b", "z", "dir/c", "dir/d"] {
            let [a, b] = [bed.path("store/tree"), twins.folders[1].join("z")]
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
fn a_copy_that_cannot_be_opened_again_is_not_called_verified() {
    let Some(bed) = FaultBed::new(&format!("{NFS}*sink/victim open .. errno ESTALE")) else { return };
    let source = bed.path("source");
    tree_with_victim(&source, 1 << 20);
    let ended = haul([Path::new("cp"), "-aT".as_ref(), "--verify".as_ref(), &source, &bed.path("view/sink")]);
    ended.failed_with(&["cannot read back", "sink/victim", "Stale file handle"]);
    assert_eq!(ended.complaints(), 1, "{}", ended.stderr);
    assert_unfinished(&bed.path("store/sink/victim"));
}

/// An open file that is replaced loses its name and remains. The new file is complete, and the
/// server removes the old one after its last close.
#[test]
fn a_sink_that_is_open_elsewhere_is_replaced_and_goes_when_it_is_closed() {
    let Some(bed) = FaultBed::new(NFS) else { return };
    let (source, sink) = (bed.path("source"), bed.path("view/sink"));
    fs::write(&source, noise(300_000)).unwrap();
    fs::write(&sink, b"what was there").unwrap();
    let held = File::open(&sink).unwrap();
    haul([Path::new("cp"), "--remove-destination".as_ref(), &source, &sink]).is_fine();
    assert!(fs::read(&sink).unwrap() == noise(300_000));
    let others = || fs::read_dir(bed.path("store")).unwrap().count() - 1;
    assert_eq!(others(), 1, "the old one has another name");
    assert_eq!(std::io::read_to_string(&held).unwrap(), "what was there");
    drop(held);
    // The server receives a close with a delay.
    wait_until("the end of the old file", || others() == 0);
}

/// An interrupted copy is removed while it is still open.
#[test]
fn a_copy_that_is_cut_off_leaves_no_name_behind() {
    let Some(bed) = FaultBed::new(&format!("{NFS}*sink write 1048576.. delay {HOLD} times 1")) else {
        return;
    };
    let (source, sink) = (bed.path("source"), bed.path("view/sink"));
    fs::write(&source, noise(2 << 20)).unwrap();
    let mut command = Command::new(HAUL);
    let running = Running::new(command.args(["cp", "--threads=1"]).args([&source, &sink]));
    bed.held();
    running.hears(Signal::TERM);
    bed.let_go();
    assert_eq!(running.end().code, Some(143));
    wait_until("an empty folder", || fs::read_dir(bed.path("store")).unwrap().count() == 0);
}

/// Servers that copy by themselves and return 0 for a file with data.
#[test]
fn a_server_that_copies_nothing_is_not_believed() {
    let Some(bed) = FaultBed::new("") else { return };
    fs::write(bed.path("store/source"), noise(9 << 20)).unwrap();
    bed.rules("* copy .. short 0");
    haul([Path::new("cp"), &bed.path("view/source"), &bed.path("view/sink")]).is_fine();
    assert!(bed.fired().iter().any(|fired| fired.op == Op::Copy), "the server was asked");
    assert!(fs::read(bed.path("store/sink")).unwrap() == noise(9 << 20));
}

/// Changes by another client become visible when a file is opened, and not before. The copy has the
/// contents, length and times of the opened file.
#[test]
fn attributes_that_lag_cut_nothing_off() {
    for (before, after) in [(10, 100_000), (100_000, 10), (1, 5 << 20), (5 << 20, 70_000), (9, 0)] {
        for words in [&["cp", "-aT"][..], &["cp", "-aT", "--verify"], &["mv", "-T"]] {
            let Some(bed) = FaultBed::new("* stat .. lag") else { return };
            bed.tree(before);
            let (source, victim) = (bed.path("view/tree"), bed.path("store/tree/victim"));
            assert_eq!(fs::metadata(source.join("victim")).unwrap().len(), before);
            fs::write(&victim, noise(after)).unwrap();
            set_times(&victim, 1_300_000_000, 5);
            assert_eq!(fs::metadata(source.join("victim")).unwrap().len(), before, "it lags");
            let like = bed.path("like");
            assert!(
                Command::new("/usr/bin/cp")
                    .arg("-aT")
                    .args([&bed.path("store/tree"), &like])
                    .status()
                    .unwrap()
                    .success()
            );

            let sink = bed.path("sink");
            haul(words.iter().map(Path::new).chain([&*source, &*sink])).is_fine();
            assert_same_tree(&like, &sink);
            assert_eq!(source.exists(), words[0] == "cp");
        }
    }
}

/// Another client has written the sink: the copy replaces it completely.
#[test]
fn a_sink_whose_attributes_lag_is_overwritten_whole() {
    for (before, after) in [(10, 100_000), (5 << 20, 10), (1, 9 << 20)] {
        let Some(bed) = FaultBed::new("* stat .. lag") else { return };
        let (source, sink) = (bed.path("source"), bed.path("view/sink"));
        fs::write(&source, noise(70_000)).unwrap();
        fs::write(bed.path("store/sink"), noise(before)).unwrap();
        assert_eq!(fs::metadata(&sink).unwrap().len(), before);
        fs::write(bed.path("store/sink"), noise(after)).unwrap();
        haul([Path::new("cp"), "-p".as_ref(), "--verify".as_ref(), &source, &sink]).is_fine();
        assert_same_tree(&source, &bed.path("store/sink"));
    }
}

/// A server may report lost data only at sync or close. In this case a move removes nothing of the
/// operand.
#[test]
fn a_move_there_waits_for_what_the_server_says_last() {
    for (rule, words) in [
        ("*victim flush .. errno EDQUOT", "Disk quota exceeded"),
        ("*victim fsync .. errno EDQUOT", "Disk quota exceeded"),
        ("*victim fsync .. errno ESTALE", "Stale file handle"),
        ("*victim flush .. errno EIO", "Input/output error"),
    ] {
        let Some(bed) = FaultBed::new("") else { return };
        let (source, like) = (bed.path("source"), bed.path("like"));
        tree_with_victim(&source, 5 << 20);
        set_times(&source, 1_000_000_000, 0);
        tree_with_victim(&like, 5 << 20);
        set_times(&like, 1_000_000_000, 0);
        bed.rules(&format!("{NFS}{rule}"));
        let ended = haul([Path::new("mv"), "-T".as_ref(), &source, &bed.path("view/sink")]);
        ended.failed_with(&["sink/victim", words]);
        assert_same_tree(&like, &source);
        assert_unfinished(&bed.path("store/sink/victim"));
    }
}
