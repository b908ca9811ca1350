//! Exported lists: the tools that read them accept them.

use super::{good, run, tree};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Passes a list to an installed tool that checks it. Returns `None` if the tool is missing.
fn checked(tool: &str, dir: &Path, list: &str) -> Option<(bool, String)> {
    let child = Command::new(tool)
        .args(["-c", "-"])
        .current_dir(dir)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            assert!(std::env::var_os("HAUL_REQUIRE_ALL").is_none_or(|value| value != "1"), "{tool}: {error}");
            println!("skipped: needs {tool}");
            return None;
        }
    };
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

#[test]
fn exported_lists_are_accepted_by_other_tools() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &["sum", "-r", "-a", "md5,sha256,blake3", "--waybill", "w", "data"]);
    for (tool, algorithm) in [("md5sum", "md5"), ("sha256sum", "sha256"), ("b3sum", "blake3")] {
        let list = good(dir.path(), &["waybill", "export", "-a", algorithm, "w"]);
        assert_eq!(list.lines().count(), 6);
        if let Some((well, said)) = checked(tool, dir.path(), &list) {
            assert!(
                well && said.lines().filter(|line| line.ends_with(": OK")).count() == 6,
                "{tool}: {said}"
            );
        }
    }
    let tagged = good(dir.path(), &["waybill", "export", "--format", "tagged", "-a", "sha256", "w"]);
    if let Some((well, said)) = checked("sha256sum", dir.path(), &tagged) {
        assert!(well, "{said}");
    }
    // An export equals the output of `haul sum`.
    let printed = good(dir.path(), &["sum", "-r", "-a", "blake3", "data"]);
    assert_eq!(good(dir.path(), &["waybill", "export", "w"]), printed);
}

#[test]
fn the_last_entry_of_each_file_is_exported() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "one").unwrap();
    fs::write(dir.path().join("g"), "same").unwrap();
    good(dir.path(), &["sum", "--waybill", "w", "f", "g"]);
    fs::write(dir.path().join("f"), "two").unwrap();
    let expected = good(dir.path(), &["sum", "--waybill", "w", "f"]);
    let list = good(dir.path(), &["waybill", "export", "w"]);
    assert_eq!(list.lines().filter(|line| line.ends_with("  f")).collect::<Vec<_>>(), [expected.trim_end()]);
    assert_eq!(list.lines().count(), 2);
}

#[test]
fn manifests_and_json_contain_every_name() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(&dir.path().join("data"), &["sum", "-r", "-a", "sha256", "--waybill", "../w", "."]);
    let manifest = good(dir.path(), &["waybill", "export", "--format", "bagit", "-a", "sha256", "w"]);
    let names: Vec<&str> = manifest.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    let expected = [
        "data/big",
        "data/empty",
        "data/one-object",
        "data/small",
        "data/sub dir/back\\slash 100%25",
        "data/sub dir/line%0Abreak",
    ];
    assert_eq!(names, expected);
    let json = good(dir.path(), &["waybill", "export", "--format", "json", "w"]);
    let values: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(values.len(), 6);
    assert_eq!(
        (&values[0]["path"], &values[0]["size"], &values[0]["kind"]),
        (&"big".into(), &700_000.into(), &"file".into())
    );
    assert!(values[0]["digests"]["blake3"].is_string() && values[0]["digests"]["sha256"].is_string());
    // A digest that was not requested when the receipt was written cannot be exported. No file is
    // omitted silently.
    let ran = run(dir.path(), &["waybill", "export", "-a", "md5", "w"]);
    assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("cannot export 6 files: the waybill has no md5 digest"), "{}", ran.err);
}

#[test]
fn a_waybill_is_shown_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &["sum", "-r", "--waybill", "w", "data"]);
    let shown = good(dir.path(), &["waybill", "show", "w"]);
    assert!(shown.contains("haul sum -r --waybill w data (root .)"), "{shown}");
    assert!(
        shown.contains("'data/sub dir/line'$'\\n''break'")
            && shown.ends_with("end: 6 entries, 6 files of 747.7 KiB\n"),
        "{shown}"
    );
    assert_eq!(good(dir.path(), &["waybill", "check", "w"]), "whole: 6 entries, 6 files of 747.7 KiB\n");
    let usage = run(dir.path(), &["waybill"]);
    assert_eq!(usage.status, Some(2));
}

/// Earlier versions omitted further names, and a bag with such a manifest was incomplete.
#[test]
fn hard_links_have_lines_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for name in ["data/sub", "bag/data"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    fs::write(dir.join("data/one"), "one").unwrap();
    fs::write(dir.join("data/other"), "other").unwrap();
    for name in ["data/sub/two", "data/sub/three"] {
        fs::hard_link(dir.join("data/one"), dir.join(name)).unwrap();
    }
    let cp = ["cp", "-a", "--waybill", "../w", "--waybill-digests=sha256", ".", "../bag/data"];
    good(&dir.join("data"), &cp);
    let sorted = |list: &str| {
        let mut lines: Vec<String> = list.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for format in ["lines", "tagged"] {
        let list = good(dir, &["waybill", "export", "--format", format, "-a", "sha256", "w"]);
        let tag: &[&str] = if format == "tagged" { &["--tag"] } else { &[] };
        let args = [&["sum", "-a", "sha256"], tag, &["one", "other", "sub/three", "sub/two"]].concat();
        assert_eq!(sorted(&list), sorted(&good(&dir.join("data"), &args)));
    }
    let manifest = good(dir, &["waybill", "export", "--format", "bagit", "-a", "sha256", "w"]);
    fs::write(dir.join("bag/manifest-sha256.txt"), &manifest).unwrap();
    fs::write(dir.join("bag/bagit.txt"), "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n").unwrap();
    let ran = run(dir, &["check", "bag"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let ran = run(dir, &["waybill", "export", "-a", "md5", "w"]);
    assert!(
        ran.status == Some(2) && ran.err.contains("cannot export 4 files: the waybill has no md5 digest"),
        "{ran:?}"
    );
}

/// A tree becomes a bag by a declaration and the manifest that its waybill exports.
#[test]
fn an_exported_manifest_makes_a_valid_bag() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let bag = dir.path().join("bag");
    fs::create_dir(&bag).unwrap();
    good(&dir.path().join("data"), &["sum", "-r", "-a", "sha256", "--waybill", "../w", "."]);
    fs::rename(dir.path().join("data"), bag.join("data")).unwrap();
    let manifest = good(dir.path(), &["waybill", "export", "--format", "bagit", "-a", "sha256", "w"]);
    fs::write(bag.join("manifest-sha256.txt"), &manifest).unwrap();
    fs::write(bag.join("bagit.txt"), "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n").unwrap();
    let ran = run(dir.path(), &["check", "bag"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    // Without names that contain a line end or a percent sign, the manifest is an ordinary checksum
    // list.
    let plain: String =
        manifest.lines().filter(|line| !line.contains('%')).map(|line| format!("{line}\n")).collect();
    assert_eq!(plain.lines().count(), 4);
    if let Some((well, said)) = checked("sha256sum", &bag, &plain) {
        assert!(well, "{said}");
    }
    fs::write(bag.join("data/small"), "something else").unwrap();
    assert_eq!(run(dir.path(), &["check", "bag"]).status, Some(1));
}
