//! Lists written by the tools themselves.

use super::{check, folder, good, write};
use haul_digest::Algorithm;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the output of an installed tool. If it is missing, prints a message and returns `None`;
/// with `HAUL_REQUIRE_ALL=1` the test fails.
fn by_tool(dir: &Path, line: &str) -> Option<Vec<u8>> {
    let mut words = line.split(' ').map(|word| if word == "a_b" { "a b" } else { word });
    let tool = words.next().unwrap();
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|place| place.join(tool).is_file()));
    if !found {
        let required = std::env::var_os("HAUL_REQUIRE_ALL").is_some_and(|value| value == "1");
        assert!(!required, "{tool} is not installed");
        println!("skipped: needs {tool}");
        return None;
    }
    let output = Command::new(tool).args(words).current_dir(dir).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

/// Asserts that a list of this tool is good and has this detected format.
#[track_caller]
fn assert_detected_as(line: &str, taken: &str) {
    let dir = folder();
    let Some(list) = by_tool(dir.path(), line) else { return };
    let lines = tempfile::tempdir().unwrap();
    let path = lines.path().join("list");
    fs::write(&path, list).unwrap();
    let path = path.to_str().unwrap();
    assert_eq!(good(dir.path(), &["--strict", path]), taken, "{line}");
}

const PLAIN: &str = "plain lines as md5sum, b3sum and rclone write them";
const ONE_BLANK: &str = "one-blank lines as XRootD writes them";

#[test]
fn coreutils_lists_are_recognized() {
    for (tool, name) in [
        ("md5sum", "md5"),
        ("sha1sum", "sha1"),
        ("sha224sum", "sha224"),
        ("sha256sum", "sha256"),
        ("sha384sum", "sha384"),
        ("sha512sum", "sha512"),
        ("b2sum", "blake2b"),
    ] {
        assert_detected_as(&format!("{tool} digits a_b empty"), &format!("{PLAIN}: {name}"));
        assert_detected_as(&format!("{tool} -b digits a_b empty"), &format!("{PLAIN}: {name}"));
        assert_detected_as(&format!("{tool} --tag digits a_b empty"), &format!("BSD tags: {name}"));
    }
    assert_detected_as("cksum digits a_b empty", "cksum's lines: cksum");
    assert_detected_as("cksum -a sha256 --untagged digits a_b", &format!("{PLAIN}: sha256"));
}

/// The 16-bit sums are checked if the registry has them, and named otherwise.
#[test]
fn sum_lists_are_recognized_or_reported() {
    for (tool, name) in [("sum digits a_b empty", "bsd"), ("sum -s digits a_b empty", "sysv")] {
        if Algorithm::parse(name).is_ok() {
            assert_detected_as(tool, &format!("sum's lines: {name}"));
        } else if name == "bsd" {
            let dir = folder();
            let Some(list) = by_tool(dir.path(), tool) else { return };
            write(dir.path(), "list", list);
            let (status, out, _) = check(dir.path(), &["list"]);
            assert_eq!((status, out.lines().count()), (Some(1), 3));
            assert!(out.lines().all(|line| line.ends_with(": NOT CHECKED, sum is not supported")), "{out}");
        }
    }
}

#[test]
fn b3sum_and_xxhsum_lists_are_recognized() {
    assert_detected_as("b3sum digits a_b empty", &format!("{PLAIN}: blake3"));
    assert_detected_as("xxhsum -H0 digits a_b", &format!("{PLAIN}: xxh32"));
    assert_detected_as("xxhsum -H1 digits a_b", &format!("{PLAIN}: xxh64"));
    assert_detected_as("xxhsum -H2 digits a_b", &format!("{PLAIN}: xxh3-128"));
    for (kind, name) in [(0, "xxh32"), (1, "xxh64"), (2, "xxh3-128")] {
        assert_detected_as(&format!("xxhsum -H{kind} --tag digits a_b"), &format!("BSD tags: {name}"));
        let line = format!("xxhsum -H{kind} --tag --little-endian digits a_b");
        assert_detected_as(&line, &format!("xxhsum's own lines: {name}"));
    }
}

#[test]
fn xxhsum_lists_are_read_by_sum() {
    let dir = folder();
    for (kind, name) in [(0, "xxh32"), (1, "xxh64"), (2, "xxh3-128")] {
        for (form, options) in [("", &["-a", name][..]), (" --tag", &[]), (" --tag --little-endian", &[])] {
            let Some(list) = by_tool(dir.path(), &format!("xxhsum -H{kind}{form} digits a_b")) else {
                return;
            };
            write(dir.path(), "list", list);
            let mut sum = Command::new(env!("CARGO_BIN_EXE_haul"));
            sum.args(["sum", "-c", "--strict"]).args(options).arg("list").current_dir(dir.path());
            let output = sum.output().unwrap();
            let out = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(
                (output.status.code(), out.as_str()),
                (Some(0), "digits: OK\na b: OK\n"),
                "{name}{form}"
            );
        }
    }
}

#[test]
fn xrootd_lists_are_recognized() {
    assert_detected_as("xrdadler32 digits", &format!("{ONE_BLANK}: adler32"));
    assert_detected_as("xrdcrc32c a_b", &format!("{ONE_BLANK}: crc32c"));
    // xrdcp names the copy by its complete path, and drops leading zeros.
    for (kind, name) in [
        ("adler32", "adler32"),
        ("crc32", "cksum"),
        ("zcrc32", "crc32"),
        ("crc32c", "crc32c"),
        ("md5", "md5"),
    ] {
        let dir = folder();
        let line = format!("xrdcp --nopbar --cksum {kind}:print digits copy");
        let tool = by_tool(dir.path(), "xrdcp --version").map(|_| {
            let output =
                Command::new("xrdcp").args(line.split(' ').skip(1)).current_dir(dir.path()).output().unwrap();
            assert!(output.status.success(), "{line}");
            [output.stdout, output.stderr].concat()
        });
        let Some(list) = tool else { return };
        write(dir.path(), "list", list);
        assert_eq!(good(dir.path(), &["list"]), format!("xrdcp's lines: {name}"));
    }
}

#[test]
fn hashdeep_and_md5deep_lists_are_recognized() {
    assert_detected_as("hashdeep -l digits a_b empty", "hashdeep columns: md5, sha256");
    assert_detected_as(
        "hashdeep -c md5,sha1,tiger,sha256,whirlpool -l digits a_b",
        "hashdeep columns: md5, sha1, sha256",
    );
    assert_detected_as("md5deep -l digits a_b", &format!("{PLAIN}: md5"));
    assert_detected_as("md5deep -z -l digits a_b", "md5deep's lines with sizes: md5");
    assert_detected_as("sha256deep -l digits a_b", &format!("{PLAIN}: sha256"));
    // All columns are unknown to haul.
    let dir = folder();
    let Some(list) = by_tool(dir.path(), "hashdeep -c tiger -l digits") else { return };
    write(dir.path(), "list", list);
    let (status, out, _) = check(dir.path(), &["list"]);
    assert_eq!((status, out.as_str()), (Some(1), "digits: NOT CHECKED, tiger is not supported\n"));
}

#[test]
fn rhash_lists_are_recognized() {
    assert_detected_as("rhash --sfv digits a_b empty", "SFV: crc32");
    assert_detected_as("rhash --bsd -C -M --sha256 digits a_b", "BSD tags: crc32, md5, sha256");
    assert_detected_as("rhash --sha3-256 digits a_b", &format!("{PLAIN}: sha3-256"));
    assert_detected_as("rhash --crc32c --simple digits a_b", &format!("{PLAIN}: crc32c"));
}

/// Names that need escapes, in lists of tools that write them, whatever the name of the list.
#[test]
fn escaped_and_nul_terminated_lists_are_checked() {
    let dir = folder();
    let dir = dir.path();
    let odd = ["new\nline", "back\\slash", "cr\rx", " lead", "*star", "#hash", "(p) = x"];
    for name in odd {
        write(dir, name, name);
    }
    for (tool, with) in [
        ("sha256sum", ""),
        ("sha256sum", "--tag"),
        ("b2sum", "-b"),
        ("sha256sum", "-z"),
        ("sha256sum", "-z --tag"),
    ] {
        let mut command = Command::new(tool);
        command.args(with.split(' ').filter(|word| !word.is_empty())).arg("--").args(odd).current_dir(dir);
        let lists = tempfile::tempdir().unwrap();
        let path = lists.path().join("list");
        fs::write(&path, command.output().unwrap().stdout).unwrap();
        let mut args = vec!["--strict", path.to_str().unwrap()];
        args.extend(with.contains("-z").then_some("-z"));
        let (status, out, err) = check(dir, &args);
        assert_eq!((status, out.lines().count()), (Some(0), odd.len()), "{tool} {with}: {out}{err}");
        assert!(out.starts_with("\\new\\nline: OK\nback\\slash: OK\n"), "{out}");
    }
}

#[test]
fn haul_lists_are_recognized() {
    let dir = folder();
    let haul = |args: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_haul")).args(args).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{args:?}");
        output.stdout
    };
    write(dir.path(), "large", (0..9_000_000u32).map(|n| (n ^ n >> 8) as u8).collect::<Vec<_>>());
    for (args, taken) in [
        (&["sum", "digits", "a b"][..], format!("{PLAIN}: blake3")),
        (&["sum", "-a", "md5,crc64xz,sha1", "digits", "large"], "BSD tags: crc64xz, md5, sha1".into()),
        (
            &["sum", "-a", "md5", "--base64", "digits"],
            "base64 lines as rclone and cksum write them: md5".into(),
        ),
        (&["sum", "--json", "-a", "md5,blake3", "digits", "large"], "haul's JSON: blake3, md5".into()),
        (&["sum", "--json", "--tree=1M", "-a", "sha1", "large"], "haul's JSON: sha1".into()),
        (&["sum", "--tree", "-a", "md5", "large"], "mutil's lines: md5".into()),
        (&["sum", "--tree=1M", "--check-tree", "-a", "md5", "large"], "mutil's lines: md5".into()),
        (&["sum", "-a", "md5", "--offset=3", "--length=6000000", "large"], "mutil's lines: md5".into()),
        (&["msum", "large"], format!("{PLAIN}: md5")),
        (&["msum", "--split-size=4", "large"], "mutil's lines: md5".into()),
    ] {
        write(dir.path(), "list", haul(args));
        let mut words = vec!["--strict", "list"];
        words.extend(args.contains(&"--tree=1M").then_some("--tree=1M"));
        assert_eq!(good(dir.path(), &words), taken, "{args:?}");
    }
}
