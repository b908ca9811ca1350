//! Output of `haul sum --waybill`, and its refusals.

use super::{good, run, tree};
use haul_log::waybill::{Kind, Reader, Record};
use std::fs;
use std::path::Path;

fn records(path: &Path) -> Vec<Record> {
    Reader::new(&std::fs::read(path).unwrap()[..]).collect::<Result<_, _>>().unwrap()
}

fn paths(path: &Path) -> Vec<String> {
    let path_of =
        |record| if let Record::Entry(entry) = record { Some(entry.path.to_string()) } else { None };
    records(path).into_iter().filter_map(path_of).collect()
}

#[test]
fn a_waybill_does_not_change_the_output_of_sum() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for algorithms in ["blake3", "md5", "sha256,blake3", "crc32c,adler32"] {
        let plain = good(dir.path(), &["sum", "-r", "-a", algorithms, "data"]);
        let beside = good(dir.path(), &["sum", "-r", "-a", algorithms, "--waybill", "w", "data"]);
        assert_eq!(beside, plain);
    }
    // Four jobs wrote four sections. The last one describes each file, with the digests of all.
    let sections = records(&dir.path().join("w")).iter().filter(|r| matches!(r, Record::Section(_))).count();
    assert_eq!(sections, 4);
    let content = records(&dir.path().join("w")).into_iter().rev().find_map(|record| match record {
        Record::Entry(entry) if entry.path.as_bytes() == b"data/big" => Some(entry.kind),
        _ => None,
    });
    let Some(Kind::File(content)) = content else { panic!("data/big is a file") };
    let names: Vec<&str> = content.digests.iter().map(|digest| digest.algorithm().name()).collect();
    assert_eq!((content.size, names), (700_000, vec!["blake3", "crc32c", "adler32", "sha256", "md5"]));
    assert_eq!((content.way, content.level), (None, None));
}

#[test]
fn waybill_paths_are_relative_to_the_operands() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let base = dir.path().to_str().unwrap();
    let below = |args: &[&str], waybill: &str| {
        good(dir.path(), &[&["sum", "--waybill", waybill, "-r"], args].concat());
        paths(&dir.path().join(waybill))
    };
    assert_eq!(below(&["./data//small"], "a"), ["data/small"]);
    assert_eq!(below(&[&format!("{base}/data/sub dir")], "b"), ["back\\slash%20100%25", "line%0Abreak"]);
    let two = [format!("{base}/data/small"), format!("{base}/data/sub dir")];
    let expected = ["small", "sub%20dir/back\\slash%20100%25", "sub%20dir/line%0Abreak"];
    assert_eq!(below(&[&two[0], &two[1]], "c"), expected);
    // The waybill among the files is neither printed nor recorded.
    std::fs::create_dir(dir.path().join("in")).unwrap();
    assert_eq!(below(&["in"], "in/w"), Vec::<String>::new());
}

/// In earlier versions a link had an entry as a file, and `haul verify` found another kind of file
/// there.
#[test]
fn a_file_read_through_a_link_verifies() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for (target, name) in
        [("data/small", "l"), ("l", "ll"), ("data", "d"), ("/proc/version", "out"), ("/proc", "far")]
    {
        std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
    }
    let lines = good(dir.path(), &["sum", "--waybill", "w", "l", "ll", "d/big", "data/empty"]);
    let shown: Vec<&str> = lines.lines().map(|line| line.split("  ").nth(1).unwrap()).collect();
    assert_eq!(shown, ["l", "ll", "d/big", "data/empty"]);
    assert_eq!(paths(&dir.path().join("w")), ["l", "data/small", "ll", "data/small", "d/big", "data/empty"]);
    good(dir.path(), &["verify", "-q", "w"]);
    good(dir.path(), &["sum", "-r", "--waybill", "w2", "d"]);
    good(dir.path(), &["verify", "-q", "w2"]);
    for (name, file) in [("out", "out"), ("far/version", "far/version")] {
        let ran = run(dir.path(), &["sum", "--waybill", "w3", "data/small", name]);
        let said = format!(
            "haul sum: {file}: not added to the waybill: invalid path: a symbolic link in it leads out"
        );
        assert!(ran.status == Some(1) && ran.err.starts_with(&said), "{ran:?}");
        good(dir.path(), &["verify", "-q", "w3"]);
    }
}

#[test]
fn objects_have_the_requested_size() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &["sum", "--object-size", "64K", "--waybill", "w", "data/big", "data/one-object"]);
    let objects: Vec<u64> = records(&dir.path().join("w"))
        .iter()
        .filter_map(|record| if let Record::Object(object) = record { Some(object.index.0) } else { None })
        .collect();
    assert_eq!(objects, (0..11).collect::<Vec<u64>>(), "of the big file, and none of the file that is one");
}

#[test]
fn sum_options_without_a_waybill_are_refused_before_reading() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    std::fs::write(dir.path().join("precious"), "not a waybill\n").unwrap();
    for (args, reason) in [
        (&["--waybill", "w", "-"][..], "with standard input"),
        (&["--waybill", "w", "--tree", "data/small"], "hash trees"),
        (&["--waybill", "w", "--length", "5", "data/small"], "--offset or --length"),
        (&["--waybill", "w", "--check", "list"], "haul verify"),
        (&["--waybill", "w", "data/small", "/etc/hostname"], "all by absolute paths"),
        (&["--waybill", "precious", "data/small"], "name a file that does not exist yet"),
        (&["--waybill", "no/such/dir/w", "data/small"], "No such file or directory"),
        (&["--waybill", "-", "data/small"], "for a file named - use ./-"),
    ] {
        let ran = run(dir.path(), &[&["sum"], args].concat());
        assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""), "{args:?}");
        assert!(ran.err.contains(reason), "{args:?}: {}", ran.err);
        assert!(!dir.path().join("w").exists() && !dir.path().join("-").exists());
    }
    assert_eq!(std::fs::read(dir.path().join("precious")).unwrap(), b"not a waybill\n");
    // A path that leads out of the root is not in the receipt; the others are.
    let ran = run(&dir.path().join("data"), &["sum", "--waybill", "../w2", "--files-from", "../list"]);
    assert_eq!(ran.status, Some(1), "there is no list: {ran:?}");
    std::fs::write(dir.path().join("list"), "small\n../data/big\n").unwrap();
    let ran = run(&dir.path().join("data"), &["sum", "--waybill", "../w3", "--files-from", "../list"]);
    assert_eq!(ran.status, Some(1));
    assert!(ran.err.contains("invalid path: it contains '..'"), "{}", ran.err);
    assert_eq!(paths(&dir.path().join("w3")), ["small"]);
}

/// In earlier versions the waybill listed two files, and the bytes of the first one were lost.
#[test]
fn two_sources_for_hard_linked_sinks_are_refused_if_verified() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    for (number, option) in ["--waybill=w", "--verify", "--verify=reread"].into_iter().enumerate() {
        let (source, sink) = (format!("s{number}"), format!("d{number}"));
        [&source, &sink].iter().for_each(|name| fs::create_dir(dir.join(name)).unwrap());
        for name in ["x", "y"] {
            fs::write(dir.join(&source).join(name), format!("bytes of {name}")).unwrap();
        }
        fs::write(dir.join(&sink).join("x"), "old bytes").unwrap();
        fs::hard_link(dir.join(&sink).join("x"), dir.join(&sink).join("y")).unwrap();
        let sources = ["x", "y"].map(|name| format!("{source}/{name}"));
        let ran = run(dir, &["cp", "--threads=1", option, &sources[0], &sources[1], &sink]);
        let reported =
            format!("cannot copy '{source}/y' to '{sink}/y': the destination is the same file as '{sink}/x'");
        assert!(ran.status == Some(1) && ran.err.contains(&reported), "{option}: {ran:?}");
        assert_eq!(fs::read(dir.join(&sink).join("x")).unwrap(), b"bytes of x", "{option}");
        if option == "--waybill=w" {
            good(dir, &["verify", "-q", "w", &sink]);
        }
    }
    // Without a verification the result is that of cp.
    fs::write(dir.join("d0/x"), "old bytes").unwrap();
    good(dir, &["cp", "--threads=1", "s0/x", "s0/y", "d0"]);
    assert_eq!(fs::read(dir.join("d0/x")).unwrap(), b"bytes of y");
}
