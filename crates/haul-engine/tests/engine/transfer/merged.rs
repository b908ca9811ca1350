//! Several operands with one name at the sink: directories merge, and nothing else is overwritten.

use super::pair::{Pair, Told, Transfer};
use super::small_objects;
use haul_proto::{JobOptions, Keep};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

fn write_all(root: &Path, names: &[&str]) {
    for name in names {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
}

fn transferred(pair: &Pair, names: &[&str], options: &JobOptions, is_fetch: bool) -> Told {
    pair.transfer(&Transfer { names, options, lanes: 2, is_fetch, exclude: None, cut: None })
}

fn read(pair: &Pair, name: &str) -> String {
    fs::read_to_string(pair.sink().join(name)).unwrap()
}

/// Regression: the last one of several sources of a name was left, and all counted as transferred.
#[test]
fn the_first_source_of_a_name_stays() {
    for is_fetch in [false, true] {
        let cases: [(&[&str], &[&str], &str, u64); 6] = [
            (&["a/x", "b/x"], &["a/x", "b/x"], "x", 1),
            (&["a/x", "b/x", "b/y"], &["a/", "b/"], "x", 2),
            (&["a/d/x", "b/d/x", "b/d/y"], &["a/d", "b/d"], "d/x", 2),
            (&["a/d/x", "b/x", "b/y"], &["a/", "b/x", "b/y"], "d/x", 3),
            (&["a/x", "b/x", "b/y"], &["a/x", "b/"], "x", 2),
            (&["a/d/x", "b/d/x", "b/d/y"], &["a/", "b/d"], "d/x", 2),
        ];
        for (files, operands, name, done) in cases {
            let pair = Pair::new();
            write_all(&pair.source(), files);
            let reported = transferred(&pair, operands, &small_objects(), is_fetch);
            let refused = u64::from(done < 3);
            assert_eq!(reported.summary().unread, refused, "{operands:?} {is_fetch}: {reported}");
            assert_eq!(read(&pair, name), files[0], "{operands:?} {is_fetch}");
            if refused > 0 {
                assert!(reported.to_string().contains("will not overwrite just-created"), "{reported}");
            }
            assert_eq!(names_beneath(&pair.sink()) as u64, done, "{operands:?} {is_fetch}: {reported}");
        }
    }
}

fn names_beneath(dir: &Path) -> usize {
    let count = |entry: fs::DirEntry| {
        if entry.file_type().unwrap().is_dir() { names_beneath(&entry.path()) } else { 1 }
    };
    fs::read_dir(dir).unwrap().map(|entry| count(entry.unwrap())).sum()
}

#[test]
fn entries_of_every_kind_are_refused_the_second_time() {
    for is_fetch in [false, true] {
        let pair = Pair::new();
        write_all(&pair.source(), &["a/file", "a/dir/x", "a/f or d", "b/d or f/x", "b/dir/y"]);
        write_all(&pair.source(), &["b/f or d/x", "a/d or f"]);
        fs::write(pair.source().join("b/file"), "other").unwrap();
        for (dir, target) in [("a", "one"), ("b", "two")] {
            symlink(target, pair.source().join(dir).join("link")).unwrap();
        }
        // A link in place of a file, and a file in place of a directory.
        symlink("x", pair.source().join("b/f")).unwrap();
        write_all(&pair.source(), &["a/f"]);
        let reported = transferred(&pair, &["a/", "b/"], &small_objects(), is_fetch);
        assert_eq!(reported.summary().unread, 5, "{reported}");
        for name in ["file", "f or d", "d or f", "f"] {
            assert_eq!(read(&pair, name), format!("a/{name}"), "{reported}");
        }
        assert_eq!(fs::read_link(pair.sink().join("link")).unwrap(), Path::new("one"));
        assert_eq!((read(&pair, "dir/x"), read(&pair, "dir/y")), ("a/dir/x".into(), "b/dir/y".into()));
        // Links that are not sent keep no name.
        let pair = Pair::new();
        fs::create_dir_all(pair.source().join("a")).unwrap();
        symlink("nowhere", pair.source().join("a/x")).unwrap();
        write_all(&pair.source(), &["b/x"]);
        let options = JobOptions { keep: Keep::MODE, ..small_objects() };
        transferred(&pair, &["a/", "b/"], &options, is_fetch).is_fine();
        assert_eq!(read(&pair, "x"), "b/x");
    }
}

#[test]
fn merged_directories_have_the_metadata_of_the_first() {
    for is_fetch in [false, true] {
        let pair = Pair::new();
        write_all(&pair.source(), &["a/d/x", "b/d/y", "c/d/z"]);
        for (dir, mode, at) in [("a/d", 0o711, 1_000_000), ("b/d", 0o755, 2_000_000), ("c/d", 0o700, 3)] {
            let path = pair.source().join(dir);
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at);
            fs::File::open(&path).unwrap().set_modified(at).unwrap();
        }
        transferred(&pair, &["a/d", "b/d", "c/d"], &small_objects(), is_fetch).is_fine();
        let found = fs::metadata(pair.sink().join("d")).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o711);
        assert_eq!(found.modified().unwrap(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
        assert_eq!(names_beneath(&pair.sink()), 3);
    }
}

/// The same source named twice is sent once; a hard link of it elsewhere is another source.
#[test]
fn a_repeated_source_is_sent_once() {
    for is_fetch in [false, true] {
        let pair = Pair::new();
        write_all(&pair.source(), &["a/x", "a/d/y"]);
        fs::create_dir(pair.source().join("b")).unwrap();
        fs::hard_link(pair.source().join("a/x"), pair.source().join("b/x")).unwrap();
        let repeated = ["a/x", "a/d", "a/./x", "a/d", "a/x"];
        let reported = transferred(&pair, &repeated, &small_objects(), is_fetch);
        reported.is_fine();
        // The directory itself counts, too.
        assert_eq!(reported.summary().done, 3, "{reported}");
        let reported = transferred(&pair, &["a/x", "b/x"], &small_objects(), is_fetch);
        assert_eq!(reported.summary().unread, 1, "{reported}");
    }
}
