//! ROOT arguments: a wrong one, none, and the first component of all names. Also the state of
//! directories after a repair.

use super::{bytes, fixture, run};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// In earlier versions haul created the directories of the waybill in a wrong root, and left them
/// there.
#[test]
fn a_wrong_root_is_refused_before_anything_is_created() {
    let home = fixture();
    let dir = home.path();
    fs::create_dir(dir.join("wrong")).unwrap();
    for more in [&[][..], &["--json"], &["-n"]] {
        let (status, out, err) = run(dir, &[&["repair", "w", "wrong", "--from", "a"], more].concat());
        assert_eq!((status, &*out), (Some(2), ""), "{more:?}: {err}");
        let told = "haul repair: no name of the waybill exists in 'wrong'; names are relative to ROOT; nothing was repaired";
        assert!(err.starts_with(told), "{more:?}: {err}");
        assert_eq!(fs::read_dir(dir.join("wrong")).unwrap().count(), 0, "{more:?}");
    }
}

/// In earlier versions a missing ROOT was an error or the current directory. For names `d/...` the
/// root `d` was a directory without any of them.
#[test]
fn the_root_defaults_to_the_recorded_root_or_the_common_component() {
    for root in [None, Some("."), Some("data"), Some("./data/"), Some("link")] {
        let home = fixture();
        let dir = home.path();
        std::os::unix::fs::symlink("data", dir.join("link")).unwrap();
        let words = |words: &[&'static str]| [words, root.as_slice()].concat();
        assert_eq!(run(dir, &words(&["verify", "w"])).0, Some(0), "{root:?}");
        fs::remove_file(dir.join("data/small")).unwrap();
        let (status, out, err) = run(dir, &[words(&["repair", "w"]), vec!["--from", "a"]].concat());
        assert_eq!(
            (status, &*out),
            (Some(0), "'data/small': made: bytes 0-100 from 'a'\n"),
            "{root:?}: {err}"
        );
        assert_eq!(fs::read(dir.join("data/small")).unwrap(), bytes(100, 101), "{root:?}");
    }
}

/// In earlier versions a copy of ROOT under another name was no replica, although it was perfect,
/// nor was the source of a copy with a waybill.
#[test]
fn a_replica_replaces_the_first_component_if_it_has_none_of_the_names() {
    let home = fixture();
    let dir = home.path();
    assert_eq!(run(dir, &["cp", "-a", "data", "backup"]).0, Some(0));
    for root in ["data", "."] {
        fs::remove_file(dir.join("data/small")).unwrap();
        crate::waybill::rot(&dir.join("data/big"), |bytes| bytes[70_000] ^= 1);
        let (status, out, err) = run(dir, &["repair", "w", root, "--from", "backup"]);
        let told = "'data/big': repaired: bytes 65536-131072 from 'backup'\n'data/small': made: bytes 0-100 from 'backup'\n";
        assert_eq!((status, &*out), (Some(0), told), "{root}: {err}");
    }
    assert_eq!(run(dir, &["cp", "-a", "--waybill=w2", "data", "dst"]).0, Some(0));
    crate::waybill::rot(&dir.join("dst/sub/x y"), |bytes| bytes[9] ^= 1);
    let (status, out, err) = run(dir, &["repair", "w2", "dst", "--from", "data"]);
    assert_eq!((status, &*out), (Some(0), "'dst/sub/x y': repaired: bytes 0-5000 from 'data'\n"), "{err}");
    assert_eq!(run(dir, &["verify", "w2", "dst"]).0, Some(0));
    // A replica with one of the names is taken as it is, and the message says what it lacks.
    fs::create_dir_all(dir.join("other/data")).unwrap();
    fs::write(dir.join("other/data/empty"), "").unwrap();
    fs::copy(dir.join("data/small"), dir.join("other/small")).unwrap();
    fs::remove_file(dir.join("data/small")).unwrap();
    let (status, out, _) = run(dir, &["repair", "w", "--from", "other"]);
    let told = "'data/small': not repaired: no replica has the correct bytes 0-100; 'other' has no file of this name\n";
    assert_eq!((status, &*out), (Some(1), told));
}

/// The recorded root is used in any working directory if it is absolute. If a name exists beneath
/// ROOT, haul uses ROOT.
#[test]
fn an_absolute_root_is_used_in_any_working_directory() {
    let home = fixture();
    let dir = home.path();
    let (data, waybill) = (dir.join("data"), dir.join("absolute"));
    let (data, waybill) = (data.to_str().unwrap(), waybill.to_str().unwrap());
    assert_eq!(run(dir, &["sum", "-r", "--waybill", waybill, data]).0, Some(0));
    let (status, _, err) = run(Path::new("/"), &["verify", waybill]);
    assert_eq!(status, Some(0), "{err}");
    fs::create_dir_all(dir.join("data/data")).unwrap();
    fs::copy(dir.join("data/small"), dir.join("data/data/small")).unwrap();
    let (status, out, _) = run(dir, &["verify", "w", "data"]);
    assert_eq!(status, Some(1));
    assert!(out.contains("'data/big': missing"), "{out}");
}

/// In earlier versions a directory in which a file was created or renamed kept the time of the
/// repair.
#[test]
fn directories_keep_the_times_of_the_waybill() {
    for more in [&[][..], &["--in-place"]] {
        let home = fixture();
        let dir = home.path();
        // The waybill of a copy contains directories.
        fs::create_dir(dir.join("copy")).unwrap();
        assert_eq!(run(dir, &["cp", "-a", "--waybill", "w2", "data", "copy"]).0, Some(0));
        let time = |path: &str| {
            let facts = fs::metadata(dir.join("copy").join(path)).unwrap();
            (facts.mtime(), facts.mtime_nsec())
        };
        let before = [time("data"), time("data/sub")];
        fs::remove_file(dir.join("copy/data/small")).unwrap();
        crate::waybill::rot(&dir.join("copy/data/sub/x y"), |bytes| bytes[9] ^= 1);
        let (status, out, err) = run(dir, &[&["repair", "w2", "copy", "--from", "a"], more].concat());
        assert_eq!(status, Some(0), "{out}{err}");
        assert_eq!([time("data"), time("data/sub")], before, "{more:?}");
        assert_eq!(run(dir, &["verify", "w2", "copy"]).0, Some(0));
    }
}

/// In earlier versions a file was created behind a link in place of a directory, and the link got
/// the time of the directory.
#[test]
fn a_link_in_place_of_a_directory_keeps_its_time() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    fs::create_dir_all(dir.join("src/d")).unwrap();
    fs::create_dir(dir.join("src/e")).unwrap();
    fs::write(dir.join("src/d/f"), bytes(5000, 1)).unwrap();
    let old = fs::File::open(dir.join("src/d")).unwrap();
    old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(run(dir, &["cp", "-a", "--waybill", "w", "src", "data"]).0, Some(0));
    fs::create_dir(dir.join("a")).unwrap();
    assert_eq!(run(dir, &["cp", "-a", "src", "a/data"]).0, Some(0));
    fs::remove_dir_all(dir.join("data/d")).unwrap();
    symlink("e", dir.join("data/d")).unwrap();
    let time = || fs::symlink_metadata(dir.join("data/d")).unwrap().modified().unwrap();
    let before = time();
    let (status, out, err) = run(dir, &["repair", "w", "--from", "a"]);
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(out.contains("'data/d/f': made"), "{out}");
    assert_eq!(time(), before);
}

/// In earlier versions the dry run reported these names as made.
#[test]
fn a_dry_run_reports_the_same_failures_as_the_repair() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    for name in ["src/d/e", "src/out", "src/dangling"] {
        fs::create_dir_all(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("f"), bytes(5000, 1)).unwrap();
    }
    fs::write(dir.join("src/first"), bytes(100, 2)).unwrap();
    fs::hard_link(dir.join("src/first"), dir.join("src/second")).unwrap();
    assert_eq!(run(dir, &["cp", "-a", "--waybill", "w", "src", "data"]).0, Some(0));
    fs::create_dir(dir.join("a")).unwrap();
    assert_eq!(run(dir, &["cp", "-a", "src", "a/data"]).0, Some(0));
    fs::remove_dir_all(dir.join("data/d")).unwrap();
    fs::write(dir.join("data/d"), "no directory").unwrap();
    for (name, target) in [("out", "../src/out"), ("dangling", "nowhere")] {
        fs::remove_dir_all(dir.join("data").join(name)).unwrap();
        symlink(target, dir.join("data").join(name)).unwrap();
    }
    for name in ["first", "second"] {
        fs::remove_file(dir.join("data").join(name)).unwrap();
    }
    fs::create_dir(dir.join("data/first")).unwrap();
    let args = ["repair", "w", "--from", "a"];
    let dry = run(dir, &[&args[..], &["--dry-run"]].concat());
    let real = run(dir, &args);
    assert_eq!((dry.0, &dry.1), (Some(1), &real.1));
    assert!(!real.1.contains("made"), "{real:?}");
    assert!(
        real.1.contains("'data/d/e/f': not repaired: cannot resolve the path: Not a directory"),
        "{real:?}"
    );
}
