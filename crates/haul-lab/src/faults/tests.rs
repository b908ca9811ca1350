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
struct Fixture {
    faults: FaultFs,
    home: TempDir,
}

impl Fixture {
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
fn tree_is_copied_unchanged_without_rules() {
    let Some(fixture) = Fixture::new("") else { return };
    let trees = tempfile::tempdir().unwrap();
    let tree = RandomTree { xattrs: true, ..RandomTree::default() };
    tree.build(&trees.path().join("t"), 21).unwrap();
    let status =
        Command::new("cp").arg("-a").arg(trees.path().join("t")).arg(fixture.view("t")).status().unwrap();
    assert!(status.success());
    let [original, viewed, stored] = [trees.path().join("t"), fixture.view("t"), fixture.source("t")]
        .map(|path| Snapshot::take(&path).unwrap());
    original.assert_same(&viewed, Facets::ARCHIVE);
    viewed.assert_same(&stored, Facets::ALL);
    assert_eq!(fixture.faults.fired(), []);

    let removed = Command::new("rm").arg("-rf").arg(fixture.view("t")).status().unwrap();
    assert!(removed.success() && !fixture.source("t").exists());
    for dir in original.entries().filter(|(_, e)| e.kind == crate::snapshot::Kind::Dir) {
        fs::set_permissions(trees.path().join("t").join(dir.0), PermissionsExt::from_mode(0o700)).unwrap();
    }
    fixture.faults.close();
}

#[test]
fn reads_fail_at_the_chosen_bytes_only() {
    let Some(fixture) = Fixture::new("bad read 4096..8192 errno EIO") else { return };
    for name in ["bad", "good"] {
        fs::write(fixture.source(name), vec![7; 16_384]).unwrap();
    }
    let [bad, good] = ["bad", "good"].map(|name| File::open(fixture.view(name)).unwrap());
    let mut block = [0; 4096];
    for (file, at, expected) in
        [(&bad, 0, None), (&bad, 4096, Some(5)), (&bad, 8192, None), (&good, 4096, None)]
    {
        let got = file.read_at(&mut block, at).err().and_then(|e| e.raw_os_error());
        assert_eq!(got, expected, "at {at}");
    }
    let fired = fixture.faults.fired();
    assert_eq!(
        fired,
        [Fired { op: Op::Read, path: "bad".into(), from: 4096, action: Action::Errno(Errno::IO) }]
    );
}

#[test]
fn write_flip_reaches_the_device_and_read_flip_does_not() {
    let Some(fixture) = Fixture::new("w write .. flip 70000.3\nr read .. flip 5") else { return };
    let bytes = vec![0xa5; 100_000];
    fs::write(fixture.view("w"), &bytes).unwrap();
    let mut expected = bytes.clone();
    expected[70_000] ^= 8;
    assert!(fs::read(fixture.source("w")).unwrap() == expected);

    fs::write(fixture.source("r"), &bytes).unwrap();
    let seen = fs::read(fixture.view("r")).unwrap();
    assert_eq!(seen[5], 0xa4);
    assert!(fs::read(fixture.source("r")).unwrap() == bytes, "the source is whole");
}

#[test]
fn writes_are_dropped_shortened_or_refused() {
    let Some(fixture) =
        Fixture::new("lost write .. drop\ncut write .. short 10\nfull write 5000.. errno ENOSPC")
    else {
        return;
    };
    fs::write(fixture.view("lost"), b"gone").unwrap();
    assert_eq!(fs::read(fixture.source("lost")).unwrap(), b"");

    let cut = File::create(fixture.view("cut")).unwrap();
    assert_eq!(cut.write_at(&[1; 100], 0).unwrap(), 10);

    let full = File::create(fixture.view("full")).unwrap();
    full.write_all_at(&[1; 5000], 0).unwrap();
    assert_eq!(full.write_at(&[1; 100], 5000).unwrap_err().raw_os_error(), Some(28));
    assert_eq!(fs::metadata(fixture.source("full")).unwrap().len(), 5000);
}

#[test]
fn sync_open_setattr_and_list_can_fail() {
    let rules =
        "f fsync .. errno EIO\nlocked open .. errno EACCES\nf setattr .. errno EPERM\nd list .. errno EIO";
    let Some(fixture) = Fixture::new(rules) else { return };
    let file = File::create(fixture.view("f")).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    let denied = fs::set_permissions(fixture.view("f"), PermissionsExt::from_mode(0o600)).unwrap_err();
    assert_eq!(denied.raw_os_error(), Some(1));
    fs::write(fixture.source("locked"), b"").unwrap();
    assert_eq!(File::open(fixture.view("locked")).unwrap_err().raw_os_error(), Some(13));
    fs::create_dir(fixture.view("d")).unwrap();
    assert_eq!(fs::read_dir(fixture.view("d")).unwrap_err().raw_os_error(), Some(5));
}

#[test]
fn rules_can_change_while_mounted() {
    let Some(fixture) = Fixture::new("* read .. errno EIO times 1") else { return };
    fs::write(fixture.source("f"), b"x").unwrap();
    assert!(fs::read(fixture.view("f")).is_err());
    assert_eq!(fs::read(fixture.view("f")).unwrap(), b"x");
    fixture.faults.set_rules("* open .. errno ESTALE".parse().unwrap());
    assert_eq!(fs::read(fixture.view("f")).unwrap_err().raw_os_error(), Some(116));
    fixture.faults.set_rules(Rules::default());
    assert_eq!(fs::read(fixture.view("f")).unwrap(), b"x");
}

#[test]
fn rules_file_is_reread_when_it_changes() {
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
    let Some(fixture) = Fixture::new("") else { return };
    fs::create_dir(fixture.view("d")).unwrap();
    fs::write(fixture.view("d/f"), b"kept").unwrap();
    fs::rename(fixture.view("d"), fixture.view("e")).unwrap();
    assert_eq!(fs::read(fixture.view("e/f")).unwrap(), b"kept");
    let held = File::open(fixture.view("e/f")).unwrap();
    fs::hard_link(fixture.view("e/f"), fixture.view("g")).unwrap();
    assert_eq!(fs::metadata(fixture.view("g")).unwrap().ino(), held.metadata().unwrap().ino());
    fs::remove_file(fixture.view("e/f")).unwrap();
    fs::remove_file(fixture.view("g")).unwrap();
    assert_eq!(held.metadata().unwrap().len(), 4);
    let mut bytes = [0; 4];
    held.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"kept");
}

#[test]
fn holes_appends_and_direct_io_pass_through() {
    let Some(fixture) = Fixture::new("") else { return };
    let file = File::create(fixture.view("sparse")).unwrap();
    file.write_all_at(b"end", 1 << 20).unwrap();
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    let below = File::open(fixture.source("sparse")).unwrap();
    assert_eq!(data, rustix::fs::seek(&below, rustix::fs::SeekFrom::Data(0)).unwrap());

    for line in ["one ", "two"] {
        let mut log = File::options().append(true).create(true).open(fixture.view("log")).unwrap();
        std::io::Write::write_all(&mut log, line.as_bytes()).unwrap();
    }
    assert_eq!(fs::read(fixture.source("log")).unwrap(), b"one two");
    let direct = openat(CWD, fixture.view("log"), OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap();
    let mut bytes = [0; 512];
    assert_eq!(File::from(direct).read_at(&mut bytes, 0).unwrap(), 7);
}

#[test]
fn delay_ends_when_released() {
    const LONG: Duration = Duration::from_secs(100);
    let Some(fixture) = Fixture::new(&format!("f open .. delay {} times 1", LONG.as_millis())) else {
        return;
    };
    fs::write(fixture.source("f"), b"bytes").unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        let held = scope.spawn(|| fs::read(fixture.view("f")).unwrap());
        while fixture.faults.fired().is_empty() {
            thread::sleep(Duration::from_millis(2));
        }
        assert!(!held.is_finished());
        fixture.faults.release();
        assert_eq!(held.join().unwrap(), b"bytes");
    });
    assert!(begun.elapsed() < LONG);
}

#[test]
fn paused_read_delays_no_other_operation() {
    let Some(fixture) = Fixture::new("f read .. pause 100000 times 1") else { return };
    fs::write(fixture.source("f"), b"bytes").unwrap();
    fs::write(fixture.source("g"), b"other").unwrap();
    thread::scope(|scope| {
        let held = scope.spawn(|| fs::read(fixture.view("f")).unwrap());
        while fixture.faults.fired().is_empty() {
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(fs::read(fixture.view("g")).unwrap(), b"other");
        assert!(!held.is_finished());
        fixture.faults.release();
        assert_eq!(held.join().unwrap(), b"bytes");
    });
}

/// Regression: the unmount was refused while a file was open, and `close` waited forever.
#[test]
fn close_waits_for_open_files() {
    let Some(Fixture { faults, home }) = Fixture::new("") else { return };
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
fn fold_rule_finds_names_in_any_case() {
    let Some(fixture) = Fixture::new("* name .. fold") else { return };
    fs::create_dir(fixture.view("Dir")).unwrap();
    fs::write(fixture.view("dir/File"), b"one").unwrap();
    assert_eq!(fs::read(fixture.view("DIR/fILE")).unwrap(), b"one");
    let again = File::options().write(true).create_new(true).open(fixture.view("DIR/FILE"));
    assert_eq!(again.unwrap_err().raw_os_error(), Some(17));
    fs::write(fixture.view("dir/file"), b"other").unwrap();
    fs::rename(fixture.view("dir/FILE"), fixture.view("DIR/name")).unwrap();
    let names: Vec<_> =
        fs::read_dir(fixture.source("Dir")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["name"]);
    assert_eq!(fs::read(fixture.source("Dir/name")).unwrap(), b"other");
    assert_eq!(fixture.faults.fired(), [], "that is what it is like");
}

#[test]
fn trim_rule_removes_trailing_dots() {
    let Some(fixture) = Fixture::new("* name .. fold\n* name .. trim") else { return };
    fs::create_dir(fixture.view("d..")).unwrap();
    fs::write(fixture.view("d/a.b."), b"one").unwrap();
    assert_eq!(fs::read(fixture.view("D./A.b...")).unwrap(), b"one");
    fs::rename(fixture.view("d/a.b"), fixture.view("d/c.")).unwrap();
    assert_eq!(fs::read(fixture.source("d/c")).unwrap(), b"one");
    assert_eq!(fs::write(fixture.view("..."), b"").unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn decompose_rule_stores_names_decomposed() {
    let Some(fixture) = Fixture::new("* name .. decompose\n* name .. fold") else { return };
    let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
    fs::create_dir(fixture.view("\u{c4}")).unwrap();
    fs::write(fixture.view(&format!("\u{c4}/{composed}")), b"one").unwrap();
    for dir in ["\u{c4}", "A\u{308}", "a\u{308}"] {
        for name in [composed, decomposed, "CAFE\u{301}"] {
            assert_eq!(fs::read(fixture.view(&format!("{dir}/{name}"))).unwrap(), b"one", "{dir}/{name}");
        }
        let names: Vec<_> =
            fs::read_dir(fixture.view(dir)).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [decomposed]);
    }
    let again =
        File::options().write(true).create_new(true).open(fixture.view(&format!("\u{c4}/{decomposed}")));
    assert_eq!(again.unwrap_err().raw_os_error(), Some(17));
    fs::write(fixture.source("\u{e9}"), b"stored composed").unwrap();
    assert_eq!(fs::read(fixture.view("e\u{301}")).unwrap(), b"stored composed");
    fs::rename(fixture.view("e\u{301}"), fixture.view("\u{f1}")).unwrap();
    assert_eq!(fs::read(fixture.source("n\u{303}")).unwrap(), b"stored composed");
}

#[test]
fn empty_rule_hides_the_length_and_not_the_data() {
    let Some(fixture) = Fixture::new("f stat .. empty") else { return };
    let bytes = vec![5; 300_000];
    for name in ["f", "g"] {
        fs::write(fixture.view(name), &bytes).unwrap();
        fs::set_permissions(fixture.view(name), PermissionsExt::from_mode(0o640)).unwrap();
        let meta = fs::metadata(fixture.view(name)).unwrap();
        assert_eq!((meta.len() == 0, meta.blocks() == 0), (name == "f", name == "f"));
        assert_eq!(meta.mode() & 0o7777, 0o640);
        assert!(fs::read(fixture.view(name)).unwrap() == bytes, "{name}");
        let direct = openat(CWD, fixture.view(name), OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap();
        let mut tail = [0; 4096];
        assert_eq!(File::from(direct).read_at(&mut tail, 299_008).unwrap(), 992, "{name}");
    }
}

#[test]
fn hole_rule_hides_the_data_of_a_file() {
    let Some(fixture) = Fixture::new("f seek .. hole") else { return };
    for name in ["f", "g"] {
        fs::write(fixture.view(name), vec![5; 100_000]).unwrap();
        let file = File::open(fixture.view(name)).unwrap();
        let [data, hole] = [rustix::fs::SeekFrom::Data(0), rustix::fs::SeekFrom::Hole(0)]
            .map(|to| rustix::fs::seek(&file, to));
        let expected = if name == "f" { (Err(Errno::NXIO), Ok(0)) } else { (Ok(0), Ok(100_000)) };
        assert_eq!((data, hole), expected);
        assert!(file.metadata().unwrap().blocks() >= 100_000 / 512, "the space is shown");
    }
}

/// Two names of a file show the same number at any one time only if listing renumbers.
#[test]
fn renumber_rule_changes_the_numbers_shown() {
    let Some(fixture) = Fixture::new("d list .. renumber") else { return };
    fs::create_dir(fixture.view("d")).unwrap();
    fs::write(fixture.view("d/f"), b"bytes").unwrap();
    fs::hard_link(fixture.view("d/f"), fixture.view("g")).unwrap();
    let number = |name| fs::metadata(fixture.view(name)).unwrap().ino();
    let first = number("d/f");
    let held = File::open(fixture.view("d/f")).unwrap();
    assert_eq!([number("d/f"), number("g"), held.metadata().unwrap().ino()], [first; 3]);
    let listed = fs::read_dir(fixture.view("d")).unwrap().next().unwrap().unwrap();
    let second = std::os::unix::fs::DirEntryExt::ino(&listed);
    assert_ne!(second, first);
    assert_eq!([number("d/f"), number("g"), held.metadata().unwrap().ino()], [second; 3]);
    assert_eq!(fs::read(fixture.view("g")).unwrap(), b"bytes");

    fixture.faults.set_rules("* stat .. renumber".parse().unwrap());
    let [one, two, other] = [number("d/f"), number("d/f"), held.metadata().unwrap().ino()];
    assert!(one != two && two != other && one != other);
    fs::remove_file(fixture.view("d/f")).unwrap();
    assert_eq!(fs::read(fixture.view("g")).unwrap(), b"bytes");
}

#[test]
fn extending_and_setting_attributes_fail_independently() {
    let rules = "* extend .. errno EPERM\n* setxattr 1000.. errno ENOSPC";
    let Some(fixture) = Fixture::new(rules) else { return };
    let file = File::create(fixture.view("f")).unwrap();
    file.write_all_at(&[1; 100], 0).unwrap();
    for (len, expected) in [(101, Some(1)), (100, None), (7, None), (8, Some(1)), (0, None)] {
        assert_eq!(file.set_len(len).err().and_then(|e| e.raw_os_error()), expected, "{len}");
    }
    file.write_all_at(b"end", 50).unwrap();
    assert_eq!(fs::metadata(fixture.source("f")).unwrap().len(), 53, "a write extends");

    let flags = rustix::fs::XattrFlags::empty();
    let set = |len| rustix::fs::setxattr(fixture.view("f"), "user.name", &vec![7; len], flags);
    assert_eq!((set(1000), set(1001), set(0)), (Ok(()), Err(Errno::NOSPC), Ok(())));
    assert_eq!(set(1000), Ok(()));
    let mut value = [0; 2000];
    assert_eq!(rustix::fs::getxattr(fixture.view("f"), "user.name", &mut value[..]), Ok(1000));
    assert_eq!(rustix::fs::removexattr(fixture.view("f"), "user.name"), Ok(()));
}

#[test]
fn lagging_attributes_refresh_on_open() {
    let Some(fixture) = Fixture::new("* stat .. lag") else { return };
    fs::write(fixture.source("f"), b"one").unwrap();
    let len = |name| fs::metadata(fixture.view(name)).unwrap().len();
    assert_eq!(len("f"), 3);
    fs::write(fixture.source("f"), b"three").unwrap();
    assert_eq!(len("f"), 3, "another process wrote the file");
    assert_eq!(fs::read(fixture.view("f")).unwrap(), b"three");
    assert_eq!(len("f"), 5, "the file was opened since");
    fs::write(fixture.view("f"), b"changed").unwrap();
    assert_eq!(len("f"), 7, "the file was written here");
    fs::remove_file(fixture.view("f")).unwrap();
    fs::create_dir(fixture.source("f")).unwrap();
    assert!(fs::metadata(fixture.view("f")).unwrap().is_dir(), "another one, whatever its number");
}

#[test]
fn chmod_and_utimens_are_dropped_independently() {
    let Some(fixture) = Fixture::new("* chmod .. drop\nt utimens .. drop") else { return };
    for name in ["m", "t"] {
        fs::write(fixture.source(name), b"").unwrap();
        fs::set_permissions(fixture.source(name), PermissionsExt::from_mode(0o755)).unwrap();
        fs::set_permissions(fixture.view(name), PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(fs::metadata(fixture.view(name)).unwrap().mode() & 0o7777, 0o755);
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        File::options().write(true).open(fixture.view(name)).unwrap().set_modified(old).unwrap();
        assert_eq!(fs::metadata(fixture.view(name)).unwrap().mtime() == 1_000_000_000, name == "m");
    }
}
