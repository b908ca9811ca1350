use super::*;
use crate::needs::{Need, met_or_skip};
use crate::random_tree::RandomTree;
use crate::snapshot::{Facets, Snapshot};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A source directory and its view with faults. The view is dropped before the directories.
struct Bed {
    faults: FaultFs,
    home: TempDir,
}

impl Bed {
    /// Returns `None` if this machine cannot mount FUSE file systems.
    fn new(rules: &str) -> Option<Self> {
        if !met_or_skip(&[Need::Fuse]) {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        for name in ["source", "view"] {
            fs::create_dir(home.path().join(name)).unwrap();
        }
        let [source, view] = ["source", "view"].map(|name| home.path().join(name));
        let faults = FaultFs::mount(&source, &view, rules.parse().unwrap()).unwrap();
        Some(Self { faults, home })
    }

    fn source(&self, name: &str) -> PathBuf {
        self.home.path().join("source").join(name)
    }

    fn view(&self, name: &str) -> PathBuf {
        self.home.path().join("view").join(name)
    }
}

#[test]
fn without_rules_a_copied_tree_is_the_tree() {
    let Some(bed) = Bed::new("") else { return };
    let trees = tempfile::tempdir().unwrap();
    let tree = RandomTree { xattrs: true, ..RandomTree::default() };
    tree.build(&trees.path().join("t"), 21).unwrap();
    let status =
        Command::new("cp").arg("-a").arg(trees.path().join("t")).arg(bed.view("t")).status().unwrap();
    assert!(status.success());
    let [original, viewed, stored] =
        [trees.path().join("t"), bed.view("t"), bed.source("t")].map(|path| Snapshot::take(&path).unwrap());
    original.assert_same(&viewed, Facets::ARCHIVE);
    viewed.assert_same(&stored, Facets::ALL);
    assert_eq!(bed.faults.fired(), []);

    let removed = Command::new("rm").arg("-rf").arg(bed.view("t")).status().unwrap();
    assert!(removed.success() && !bed.source("t").exists());
    for dir in original.entries().filter(|(_, e)| e.kind == crate::snapshot::Kind::Dir) {
        fs::set_permissions(trees.path().join("t").join(dir.0), PermissionsExt::from_mode(0o700)).unwrap();
    }
    bed.faults.close();
}

#[test]
fn reads_fail_at_the_chosen_bytes_only() {
    let Some(bed) = Bed::new("bad read 4096..8192 errno EIO") else { return };
    for name in ["bad", "good"] {
        fs::write(bed.source(name), vec![7; 16_384]).unwrap();
    }
    let [bad, good] = ["bad", "good"].map(|name| File::open(bed.view(name)).unwrap());
    let mut block = [0; 4096];
    for (file, at, expected) in
        [(&bad, 0, None), (&bad, 4096, Some(5)), (&bad, 8192, None), (&good, 4096, None)]
    {
        let got = file.read_at(&mut block, at).err().and_then(|e| e.raw_os_error());
        assert_eq!(got, expected, "at {at}");
    }
    let fired = bed.faults.fired();
    assert_eq!(
        fired,
        [Fired { op: Op::Read, path: "bad".into(), from: 4096, action: Action::Errno(Errno::IO) }]
    );
}

#[test]
fn a_bit_is_flipped_on_its_way_and_stays_so_on_the_device() {
    let Some(bed) = Bed::new("w write .. flip 70000.3\nr read .. flip 5") else { return };
    let bytes = vec![0xa5; 100_000];
    fs::write(bed.view("w"), &bytes).unwrap();
    let mut expected = bytes.clone();
    expected[70_000] ^= 8;
    assert!(fs::read(bed.source("w")).unwrap() == expected);

    fs::write(bed.source("r"), &bytes).unwrap();
    let seen = fs::read(bed.view("r")).unwrap();
    assert_eq!(seen[5], 0xa4);
    assert!(fs::read(bed.source("r")).unwrap() == bytes, "the source is whole");
}

#[test]
fn writes_are_dropped_cut_short_and_refused() {
    let Some(bed) = Bed::new("lost write .. drop\ncut write .. short 10\nfull write 5000.. errno ENOSPC")
    else {
        return;
    };
    fs::write(bed.view("lost"), b"gone").unwrap();
    assert_eq!(fs::read(bed.source("lost")).unwrap(), b"");

    let cut = File::create(bed.view("cut")).unwrap();
    assert_eq!(cut.write_at(&[1; 100], 0).unwrap(), 10);

    let full = File::create(bed.view("full")).unwrap();
    full.write_all_at(&[1; 5000], 0).unwrap();
    assert_eq!(full.write_at(&[1; 100], 5000).unwrap_err().raw_os_error(), Some(28));
    assert_eq!(fs::metadata(bed.source("full")).unwrap().len(), 5000);
}

#[test]
fn syncs_opens_and_properties_can_fail() {
    let rules =
        "f fsync .. errno EIO\nlocked open .. errno EACCES\nf setattr .. errno EPERM\nd list .. errno EIO";
    let Some(bed) = Bed::new(rules) else { return };
    let file = File::create(bed.view("f")).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    let denied = fs::set_permissions(bed.view("f"), PermissionsExt::from_mode(0o600)).unwrap_err();
    assert_eq!(denied.raw_os_error(), Some(1));
    fs::write(bed.source("locked"), b"").unwrap();
    assert_eq!(File::open(bed.view("locked")).unwrap_err().raw_os_error(), Some(13));
    fs::create_dir(bed.view("d")).unwrap();
    assert_eq!(fs::read_dir(bed.view("d")).unwrap_err().raw_os_error(), Some(5));
}

#[test]
fn rules_can_change_while_it_is_mounted() {
    let Some(bed) = Bed::new("* read .. errno EIO times 1") else { return };
    fs::write(bed.source("f"), b"x").unwrap();
    assert!(fs::read(bed.view("f")).is_err());
    assert_eq!(fs::read(bed.view("f")).unwrap(), b"x");
    bed.faults.set_rules("* open .. errno ESTALE".parse().unwrap());
    assert_eq!(fs::read(bed.view("f")).unwrap_err().raw_os_error(), Some(116));
    bed.faults.set_rules(Rules::default());
    assert_eq!(fs::read(bed.view("f")).unwrap(), b"x");
}

#[test]
fn a_file_of_rules_is_read_again_when_it_changes() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let [source, view, rules] = ["source", "view", "rules"].map(|name| home.path().join(name));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&view).unwrap();
    fs::write(source.join("f"), b"x").unwrap();
    assert!(matches!(FaultFs::mount_with_file(&source, &view, &rules), Err(FaultFsError::Read { .. })));
    fs::write(&rules, "nonsense").unwrap();
    assert!(matches!(FaultFs::mount_with_file(&source, &view, &rules), Err(FaultFsError::Rules(_))));

    fs::write(&rules, "").unwrap();
    let faults = FaultFs::mount_with_file(&source, &view, &rules).unwrap();
    assert_eq!(fs::read(view.join("f")).unwrap(), b"x");
    fs::write(&rules, "f open .. errno EIO").unwrap();
    assert_eq!(fs::read(view.join("f")).unwrap_err().raw_os_error(), Some(5));
    fs::write(&rules, "no rule").unwrap();
    assert!(fs::read(view.join("f")).is_err(), "the rules stay as they were");
    faults.close();
    assert!(!view.join("f").exists());
}

#[test]
fn files_keep_their_bytes_through_rename_and_removal() {
    let Some(bed) = Bed::new("") else { return };
    fs::create_dir(bed.view("d")).unwrap();
    fs::write(bed.view("d/f"), b"kept").unwrap();
    fs::rename(bed.view("d"), bed.view("e")).unwrap();
    assert_eq!(fs::read(bed.view("e/f")).unwrap(), b"kept");
    let held = File::open(bed.view("e/f")).unwrap();
    fs::hard_link(bed.view("e/f"), bed.view("g")).unwrap();
    assert_eq!(fs::metadata(bed.view("g")).unwrap().ino(), held.metadata().unwrap().ino());
    fs::remove_file(bed.view("e/f")).unwrap();
    fs::remove_file(bed.view("g")).unwrap();
    assert_eq!(held.metadata().unwrap().len(), 4);
    let mut bytes = [0; 4];
    held.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"kept");
}

#[test]
fn holes_appending_and_direct_io_pass_through() {
    let Some(bed) = Bed::new("") else { return };
    let file = File::create(bed.view("sparse")).unwrap();
    file.write_all_at(b"end", 1 << 20).unwrap();
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    let below = File::open(bed.source("sparse")).unwrap();
    assert_eq!(data, rustix::fs::seek(&below, rustix::fs::SeekFrom::Data(0)).unwrap());

    for line in ["one ", "two"] {
        let mut log = File::options().append(true).create(true).open(bed.view("log")).unwrap();
        std::io::Write::write_all(&mut log, line.as_bytes()).unwrap();
    }
    assert_eq!(fs::read(bed.source("log")).unwrap(), b"one two");
    let direct = openat(CWD, bed.view("log"), OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap();
    let mut bytes = [0; 512];
    assert_eq!(File::from(direct).read_at(&mut bytes, 0).unwrap(), 7);
}

#[test]
fn a_delay_ends_when_it_is_let_go() {
    const LONG: Duration = Duration::from_secs(100);
    let Some(bed) = Bed::new(&format!("f open .. delay {} times 1", LONG.as_millis())) else { return };
    fs::write(bed.source("f"), b"bytes").unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        let held = scope.spawn(|| fs::read(bed.view("f")).unwrap());
        while bed.faults.fired().is_empty() {
            thread::sleep(Duration::from_millis(2));
        }
        assert!(!held.is_finished());
        bed.faults.let_go();
        assert_eq!(held.join().unwrap(), b"bytes");
    });
    assert!(begun.elapsed() < LONG);
}

/// Regression: the unmount was refused while a file was open, and `close` waited forever.
#[test]
fn closing_waits_for_who_still_has_a_file_open() {
    let Some(Bed { faults, home }) = Bed::new("") else { return };
    let view = home.path().join("view");
    fs::write(view.join("f"), b"bytes").unwrap();
    let held = File::open(view.join("f")).unwrap();
    thread::scope(|scope| {
        let closing = scope.spawn(|| faults.close());
        while view.join("f").exists() {
            thread::sleep(Duration::from_millis(2));
        }
        assert!(!closing.is_finished());
        assert_eq!(std::io::read_to_string(&held).unwrap(), "bytes");
        drop(held);
    });
}

#[test]
fn names_are_found_in_either_case_where_they_are_folded() {
    let Some(bed) = Bed::new("* name .. fold") else { return };
    fs::create_dir(bed.view("Dir")).unwrap();
    fs::write(bed.view("dir/File"), b"one").unwrap();
    assert_eq!(fs::read(bed.view("DIR/fILE")).unwrap(), b"one");
    let again = File::options().write(true).create_new(true).open(bed.view("DIR/FILE"));
    assert_eq!(again.unwrap_err().raw_os_error(), Some(17));
    fs::write(bed.view("dir/file"), b"other").unwrap();
    fs::rename(bed.view("dir/FILE"), bed.view("DIR/name")).unwrap();
    let names: Vec<_> = fs::read_dir(bed.source("Dir")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["name"]);
    assert_eq!(fs::read(bed.source("Dir/name")).unwrap(), b"other");
    assert_eq!(bed.faults.fired(), [], "that is what it is like");
}

#[test]
fn names_lose_the_dots_at_their_end_where_they_are_trimmed() {
    let Some(bed) = Bed::new("* name .. fold\n* name .. trim") else { return };
    fs::create_dir(bed.view("d..")).unwrap();
    fs::write(bed.view("d/a.b."), b"one").unwrap();
    assert_eq!(fs::read(bed.view("D./A.b...")).unwrap(), b"one");
    fs::rename(bed.view("d/a.b"), bed.view("d/c.")).unwrap();
    assert_eq!(fs::read(bed.source("d/c")).unwrap(), b"one");
    assert_eq!(fs::write(bed.view("..."), b"").unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn attributes_that_lag_are_shown_anew_when_a_file_is_opened() {
    let Some(bed) = Bed::new("* stat .. lag") else { return };
    fs::write(bed.source("f"), b"one").unwrap();
    let len = |name| fs::metadata(bed.view(name)).unwrap().len();
    assert_eq!(len("f"), 3);
    fs::write(bed.source("f"), b"three").unwrap();
    assert_eq!(len("f"), 3, "another process wrote the file");
    assert_eq!(fs::read(bed.view("f")).unwrap(), b"three");
    assert_eq!(len("f"), 5, "the file was opened since");
    fs::write(bed.view("f"), b"changed").unwrap();
    assert_eq!(len("f"), 7, "the file was written here");
    fs::remove_file(bed.view("f")).unwrap();
    fs::create_dir(bed.source("f")).unwrap();
    assert!(fs::metadata(bed.view("f")).unwrap().is_dir(), "another one, whatever its number");
}

#[test]
fn properties_are_dropped_one_by_one() {
    let Some(bed) = Bed::new("* chmod .. drop\nt utimens .. drop") else { return };
    for name in ["m", "t"] {
        fs::write(bed.source(name), b"").unwrap();
        fs::set_permissions(bed.source(name), PermissionsExt::from_mode(0o755)).unwrap();
        fs::set_permissions(bed.view(name), PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(fs::metadata(bed.view(name)).unwrap().mode() & 0o7777, 0o755);
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        File::options().write(true).open(bed.view(name)).unwrap().set_modified(old).unwrap();
        assert_eq!(fs::metadata(bed.view(name)).unwrap().mtime() == 1_000_000_000, name == "m");
    }
}
