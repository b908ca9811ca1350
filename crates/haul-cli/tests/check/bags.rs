//! Bags, RFC 8493.

use super::{check, good, write};
use haul_digest::{Algorithm, digest};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Creates a bag according to the RFC with these payload files. The test writes the bag itself, so
/// that names can be arbitrary.
fn bag(root: &Path, version: &str, algorithms: &[(&str, Algorithm)], files: &[(&str, &str)]) {
    fs::create_dir_all(root.join("data/sub")).unwrap();
    write(root, "bagit.txt", format!("BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n"));
    let bytes: usize = files.iter().map(|(_, contents)| contents.len()).sum();
    write(root, "bag-info.txt", format!("Payload-Oxum: {bytes}.{}\n", files.len()));
    for (name, contents) in files {
        write(root, name, contents);
    }
    for (word, algorithm) in algorithms {
        let line = |(name, contents): &(&str, &str)| {
            let name = if version == "1.0" { name.replace('%', "%25") } else { (*name).to_owned() };
            let name = name.replace('\n', "%0A").replace('\r', "%0d");
            format!("{}  {name}\n", digest(*algorithm, contents.as_bytes()))
        };
        write(root, &format!("manifest-{word}.txt"), files.iter().map(line).collect::<String>());
    }
    for (word, algorithm) in algorithms {
        let mut lines = String::new();
        for name in ["bagit.txt", "bag-info.txt", &format!("manifest-{word}.txt")] {
            lines.push_str(&format!("{} {name}\n", digest(*algorithm, &fs::read(root.join(name)).unwrap())));
        }
        write(root, &format!("tagmanifest-{word}.txt"), lines);
    }
}

const FILES: [(&str, &str); 5] = [
    ("data/digits", "123456789"),
    ("data/a b", "x"),
    ("data/new\nline", "y"),
    ("data/cr\rx", "z"),
    ("data/sub/100%25", "percent"),
];

const BOTH: [(&str, Algorithm); 2] = [("sha256", Algorithm::Sha256), ("sha512", Algorithm::Sha512)];

#[test]
fn a_complete_bag_passes() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bag");
    for version in ["1.0", "0.97"] {
        bag(&root, version, &BOTH, &FILES);
        let taken = good(dir.path(), &["bag"]);
        let expected = format!("BagIt {version}, payload of 5 files, 19 bytes");
        assert!(taken.ends_with(&expected), "{taken}");
        assert_eq!(taken.matches("a BagIt manifest: sha256").count(), 2, "{taken}");
        // From inside the bag, and by one manifest.
        good(&root, &["."]);
        good(&root, &["manifest-sha256.txt"]);
        good(dir.path(), &["bag/manifest-sha512.txt"]);
        good(dir.path(), &["bag/tagmanifest-sha256.txt"]);
        good(dir.path(), &["-C", "bag", "bag/manifest-sha256.txt"]);
    }
}

#[test]
fn unlisted_files_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bag");
    bag(&root, "1.0", &BOTH, &FILES);
    write(&root, "data/sub/extra", "");
    let (status, out, err) = check(dir.path(), &["--quiet", "bag"]);
    assert_eq!((status, out.as_str()), (Some(1), "data/sub/extra: NOT LISTED IN THE MANIFEST\n"));
    assert!(err.contains("the payload is 19.6 (bytes.files), but bag-info.txt says 19.5"), "{err}");
    assert!(err.contains("WARNING: 2 faults in the bag"), "{err}");
    // Since 1.0 each manifest must list each file; before, one manifest was enough.
    bag(&root, "1.0", &BOTH[..1], &FILES);
    write(&root, "bag-info.txt", "");
    fs::remove_file(root.join("tagmanifest-sha256.txt")).unwrap();
    fs::remove_file(root.join("tagmanifest-sha512.txt")).unwrap();
    let line = format!("{}  data/sub/extra\n", digest(Algorithm::Sha512, b""));
    let longer = fs::read_to_string(root.join("manifest-sha512.txt")).unwrap() + &line;
    write(&root, "manifest-sha512.txt", longer);
    let (status, out, _) = check(dir.path(), &["--quiet", "bag"]);
    assert_eq!((status, out.as_str()), (Some(1), "data/sub/extra: NOT LISTED IN EVERY MANIFEST\n"));
    write(&root, "bagit.txt", "BagIt-Version: 0.97\n");
    let percent = fs::read_to_string(root.join("manifest-sha256.txt")).unwrap().replace("%2525", "%25");
    write(&root, "manifest-sha256.txt", percent);
    let percent = fs::read_to_string(root.join("manifest-sha512.txt")).unwrap().replace("%2525", "%25");
    write(&root, "manifest-sha512.txt", percent);
    assert_eq!(check(dir.path(), &["--quiet", "bag"]).0, Some(0));
}

#[test]
fn missing_and_damaged_files_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bag");
    bag(&root, "1.0", &BOTH[..1], &FILES);
    fs::remove_file(root.join("data/a b")).unwrap();
    write(&root, "data/digits", "123456780");
    write(&root, "bag-info.txt", "Payload-Oxum: 19.5\nContact-Name: new\n");
    let (status, out, _) = check(dir.path(), &["--quiet", "bag"]);
    assert_eq!(status, Some(1));
    let mut said: Vec<&str> = out.lines().collect();
    said.sort_unstable();
    assert_eq!(said, ["bag-info.txt: FAILED", "data/a b: FAILED open or read", "data/digits: FAILED"]);
}

#[test]
fn a_directory_that_is_not_a_bag_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (status, _, err) = check(dir.path(), &["."]);
    assert_eq!(status, Some(1));
    assert_eq!(err, "haul check: .: Is a directory, but not a bag: it has no bagit.txt\n");
    write(dir.path(), "bagit.txt", "BagIt-Version: 1.0\n");
    let (status, _, err) = check(dir.path(), &["."]);
    assert_eq!((status, err.as_str()), (Some(1), "haul check: .: the bag has no manifest-ALGORITHM.txt\n"));
}

#[test]
fn paths_out_of_the_bag_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bag");
    bag(&root, "1.0", &BOTH[..1], &FILES);
    write(dir.path(), "secret", "x");
    let line = format!("{}  data/../../secret\n", digest(Algorithm::Sha256, b"x"));
    let longer = fs::read_to_string(root.join("manifest-sha256.txt")).unwrap() + &line;
    write(&root, "manifest-sha256.txt", longer);
    let (status, out, err) = check(&root, &["--quiet", "manifest-sha256.txt"]);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(err.contains("6: improperly formatted checksum line: the path leads out of the bag"), "{err}");
}

#[test]
fn manifests_of_unsupported_algorithms_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bag");
    bag(&root, "1.0", &[("whirlpool", Algorithm::Sha512)], &FILES[..1]);
    let (status, out, err) = check(dir.path(), &["bag"]);
    assert_eq!(status, Some(1));
    assert!(out.contains("data/digits: NOT CHECKED, whirlpool is not supported"), "{out}");
    assert!(!err.contains("NOT LISTED"), "{err}");
}

/// The output of bagit.py 1.9 for these files.
#[test]
fn a_bag_written_by_bagit_py_passes() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir(root.join("data")).unwrap();
    for (name, contents) in
        [("data/ lead", "t"), ("data/a b", "x"), ("data/new\nline", "z"), ("data/per%cent", "p")]
    {
        write(root, name, contents);
    }
    write(root, "bagit.txt", "BagIt-Version: 0.97\nTag-File-Character-Encoding: UTF-8\n");
    write(
        root,
        "bag-info.txt",
        "Bag-Software-Agent: bagit.py v1.9.0 <https://github.com/LibraryOfCongress/bagit-python>\n\
         Bagging-Date: 2026-11-21\nPayload-Oxum: 4.4\n",
    );
    write(
        root,
        "manifest-md5.txt",
        "e358efa489f58062f10dd7316b65649e  data/ lead\n9dd4e461268c8034f5c8564e155c67a6  data/a b\n\
         fbade9e36a3f36d3d676c1b808451dd7  data/new%0Aline\n83878c91171338902e0fe0fb97a8c47a  data/per%cent\n",
    );
    assert_eq!(good(root, &["."]), "a BagIt manifest: md5|BagIt 0.97, payload of 4 files, 4 bytes");
}

/// Creates a bag without manifests of tag files, whose first manifest gets a further line.
fn with_line(root: &Path, line: &str) {
    bag(root, "1.0", &BOTH, &FILES);
    for (word, _) in BOTH {
        fs::remove_file(root.join(format!("tagmanifest-{word}.txt"))).unwrap();
    }
    let longer = fs::read_to_string(root.join("manifest-sha256.txt")).unwrap() + line;
    write(root, "manifest-sha256.txt", longer);
}

/// Earlier versions skipped such lines with status 0.
#[test]
fn damaged_lines_and_paths_out_of_the_bag_fail() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bag");
    let sha256 = digest(Algorithm::Sha256, b"123456789").to_string();
    with_line(&root, "");
    good(dir.path(), &["bag"]);
    for line in [
        format!("{}  data/gone\n", &sha256[1..]),
        format!("x{}  data/gone\n", &sha256[1..]),
        format!("{sha256}\n"),
        format!("{}  data/gone\n", digest(Algorithm::Md5, b"")),
        "data/gone\n".to_owned(),
        format!("{sha256}  ../gone\n"),
        format!("{sha256}  /etc/gone\n"),
        format!("{sha256}  ~/gone\n"),
        format!("{sha256}  ~root/gone\n"),
    ] {
        with_line(&root, &line);
        let (status, out, err) = check(dir.path(), &["--quiet", "bag"]);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{line}");
        assert!(err.contains("manifest-sha256.txt: 6: improperly formatted checksum line: "), "{err}");
    }
}

/// Earlier versions read such files: a bag that is not complete without its surroundings passed.
#[test]
fn files_reached_through_links_out_of_the_bag_fail() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("bag");
    let aside = home.path().join("aside");
    let why = "a symbolic link leads out of the bag";
    let fresh = || {
        let _ = fs::remove_dir_all(&root);
        let _ = fs::remove_dir_all(&aside);
        bag(&root, "1.0", &BOTH[..1], &FILES);
        fs::create_dir(&aside).unwrap();
    };
    // A link within the bag is a file of the bag.
    fresh();
    fs::rename(root.join("data/digits"), root.join("elsewhere")).unwrap();
    symlink("../elsewhere", root.join("data/digits")).unwrap();
    good(home.path(), &["bag"]);
    for absolute in [true, false] {
        let lead_out = |name: &str| {
            let last = Path::new(name).file_name().unwrap();
            fs::rename(root.join(name), aside.join(last)).unwrap();
            let up = "../".repeat(name.matches('/').count() + 1);
            let target = if absolute { aside.join(last) } else { Path::new(&up).join("aside").join(last) };
            symlink(target, root.join(name)).unwrap();
            assert!(root.join(name).exists());
        };
        for name in ["data/digits", "data/sub", "data", "bag-info.txt"] {
            fresh();
            lead_out(name);
            let (status, out, err) = check(home.path(), &["--quiet", "bag"]);
            let failed = match name {
                "data/sub" => "data/sub/100%25",
                "data" => "data/digits",
                _ => name,
            };
            assert_eq!(status, Some(1), "{name}: {err}");
            assert!(out.contains(&format!("{failed}: FAILED open or read\n")), "{name}: {out}");
            assert!(err.contains(&format!("haul check: {failed}: {why}\n")), "{name}: {err}");
            for manifest in ["manifest-sha256.txt", "tagmanifest-sha256.txt"] {
                let lists = name == "bag-info.txt" || !manifest.starts_with("tag");
                let status = check(&root, &["--quiet", manifest]).0;
                assert_eq!(status, Some(i32::from(lists)), "{name}, {manifest}");
            }
        }
        for name in ["bagit.txt", "manifest-sha256.txt", "tagmanifest-sha256.txt", "fetch.txt"] {
            fresh();
            write(&root, "fetch.txt", "https://example.org/a 9 data/digits\n");
            lead_out(name);
            let (status, _, err) = check(home.path(), &["--quiet", "bag"]);
            assert_eq!(status, Some(1), "{name}: {err}");
            assert!(err.contains(&format!("haul check: bag: {name}: {why}\n")), "{name}: {err}");
            let status = check(&root, &["--quiet", "manifest-sha256.txt"]).0;
            let counts = name != "tagmanifest-sha256.txt";
            assert_eq!(status, Some(i32::from(counts)), "{name}");
        }
    }
    // The payload is empty, and its directory is elsewhere.
    fresh();
    bag(&root, "1.0", &BOTH[..1], &[]);
    fs::remove_dir_all(root.join("data")).unwrap();
    symlink("../aside", root.join("data")).unwrap();
    let (status, out, _) = check(home.path(), &["--quiet", "bag"]);
    assert_eq!((status, out), (Some(1), "data: A SYMBOLIC LINK LEADS OUT OF THE BAG\n".to_owned()));
}

#[test]
fn paths_out_of_the_bag_in_fetch_txt_fail() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bag");
    with_line(&root, "");
    write(&root, "fetch.txt", "https://example.org/a 9 data/digits\r\n\nfile:///b - data/a b\n");
    good(dir.path(), &["bag"]);
    for (line, why) in [
        ("https://example.org/x 9 ../x", "the path leads out of the bag"),
        ("https://example.org/x 9 /x", "the path leads out of the bag"),
        ("https://example.org/x 9 ~/x", "the path leads out of the bag"),
        ("https://example.org/x 9 ~user/x", "the path leads out of the bag"),
        ("https://example.org/x nine data/x", "not of the form URL LENGTH PATH"),
        ("https://example.org/x", "not of the form URL LENGTH PATH"),
    ] {
        write(&root, "fetch.txt", format!("https://example.org/a 9 data/digits\n{line}\n"));
        let (status, out, err) = check(dir.path(), &["--quiet", "bag"]);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{line}");
        assert!(err.contains(&format!("haul check: bag: fetch.txt: 2: {why}\n")), "{err}");
    }
}

#[test]
fn a_declaration_with_a_byte_order_mark_fails() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bag");
    with_line(&root, "");
    write(&root, "bagit.txt", "\u{feff}BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n");
    for words in [&["--quiet", "bag"][..], &["--quiet", "bag/manifest-sha256.txt"]] {
        let (status, out, err) = check(dir.path(), words);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{words:?}");
        assert!(err.contains("bagit.txt starts with a byte order mark\n"), "{err}");
    }
}

#[test]
fn tag_files_are_read_in_the_declared_encoding() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bag");
    let files = [("data/digits", "123456789"), ("data/na\u{ef}ve \u{1f600}", "x")];
    for (label, big, has_mark) in [
        ("UTF-16", false, true),
        ("UTF-16", true, true),
        ("UTF-16LE", false, false),
        ("UTF-16BE", true, false),
        ("utf-16", true, false),
    ] {
        bag(&root, "1.0", &BOTH[..1], &files);
        fs::remove_file(root.join("tagmanifest-sha256.txt")).unwrap();
        write(&root, "fetch.txt", "https://example.org/a 9 data/digits\n");
        let declaration = format!("BagIt-Version: 1.0\nTag-File-Character-Encoding: {label}\n");
        write(&root, "bagit.txt", declaration);
        let encode = |text: &str| -> Vec<u8> {
            let mark = if has_mark { "\u{feff}" } else { "" };
            let units = format!("{mark}{text}");
            let units = units.encode_utf16();
            units.flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
        };
        for name in ["manifest-sha256.txt", "bag-info.txt", "fetch.txt"] {
            let text = fs::read_to_string(root.join(name)).unwrap();
            write(&root, name, encode(&text));
        }
        let taken = good(dir.path(), &["bag"]);
        assert!(taken.ends_with("BagIt 1.0, payload of 2 files, 10 bytes"), "{taken}");
        // The totals and the paths in the other files are read as well.
        write(&root, "bag-info.txt", encode("Payload-Oxum: 11.2\n"));
        write(&root, "fetch.txt", encode("https://example.org/a 9 ../digits\n"));
        let (status, _, err) = check(dir.path(), &["--quiet", "bag"]);
        assert_eq!(status, Some(1), "{label}");
        assert!(err.contains("the payload is 10.2 (bytes.files), but bag-info.txt says 11.2"), "{err}");
        assert!(err.contains("fetch.txt: 1: the path leads out of the bag"), "{err}");
    }
    write(&root, "bagit.txt", "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-99\n");
    let (status, _, err) = check(dir.path(), &["bag"]);
    let expected = "haul check: bag: bagit.txt: unknown character encoding 'UTF-99'\n";
    assert_eq!((status, err.as_str()), (Some(1), expected));
    // Half a character at the end of a manifest.
    write(&root, "bagit.txt", "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-16LE\n");
    write(&root, "manifest-sha256.txt", b"a\0b");
    let (status, _, err) = check(dir.path(), &["bag"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("manifest-sha256.txt: not text in UTF-16LE\n"), "{err}");
}

/// Earlier versions waited for the writer of the pipe without a limit.
#[test]
fn named_pipes_in_a_bag_are_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bag");
    for (name, said) in [
        ("bagit.txt", "bagit.txt: not a regular file"),
        ("manifest-sha256.txt", "manifest-sha256.txt: not a regular file"),
        ("fetch.txt", "fetch.txt: not a regular file"),
        ("data/digits", "data/digits: not a regular file"),
    ] {
        let _ = fs::remove_dir_all(&root);
        with_line(&root, "");
        let _ = fs::remove_file(root.join(name));
        assert!(std::process::Command::new("mkfifo").arg(root.join(name)).status().unwrap().success());
        let (status, _, err) = check(dir.path(), &["--quiet", "bag"]);
        assert_eq!(status, Some(1), "{name}");
        assert!(err.contains(said), "{name}: {err}");
    }
}
