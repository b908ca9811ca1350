//! An inode number identifies a file only together with its device.

use crate::faults::fixture::HAUL;
use haul_lab::needs::{Need, met_or_skip};
use std::process::Command;
use tempfile::TempDir;

/// Creates two identical file systems in memory at `t/one` and `t/two`. Each has a file with two
/// names, and the files have the same inode number. `$cp` is the tool `tool`; the script fails with
/// 99 if the numbers differ.
fn twins(tool: &str, cp: &str, script: &str) -> Option<(Option<i32>, String)> {
    if !met_or_skip(&[Need::Mount, Need::Program("unshare")]) {
        return None;
    }
    let home: TempDir = tempfile::tempdir().unwrap();
    let setup = "mkdir -p t/one t/two
        for name in one two; do
            mount -t tmpfs -o size=1m tmpfs t/$name; printf $name > t/$name/f; ln t/$name/f t/$name/g
        done
        test $(stat -c %i t/one/f) = $(stat -c %i t/two/f) || exit 99
        test $(stat -c %d t/one/f) != $(stat -c %d t/two/f) || exit 99";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{setup}\n{script}")]).current_dir(home.path());
    let output = command.env("cp", cp).env("haul", HAUL).env("LC_ALL", "C").output().unwrap();
    let text = [&*output.stdout, &output.stderr].map(String::from_utf8_lossy).concat();
    let begins = [format!("/usr/bin/{tool}: "), format!("haul {tool}: ")];
    let plain = begins.iter().fold(text, |text, begin| text.replace(begin, &format!("{tool}: ")));
    Some((output.status.code(), plain))
}

#[track_caller]
fn as_gnu(script: &str) -> Option<(Option<i32>, String)> {
    tool_as_gnu("cp", script)
}

#[track_caller]
fn tool_as_gnu(tool: &str, script: &str) -> Option<(Option<i32>, String)> {
    let gnu = twins(tool, &format!("/usr/bin/{tool}"), script)?;
    let ours = twins(tool, &format!("{HAUL} {tool}"), script)?;
    assert_eq!(ours, gnu, "{script}");
    Some(ours)
}

#[test]
fn equal_inode_numbers_on_two_devices_are_no_hard_links() {
    let script = "$cp -a t z; echo $?; cat z/one/f z/one/g z/two/f z/two/g; stat -c %h z/*/*; test z/one/f -ef z/two/f";
    let Some(said) = as_gnu(script) else { return };
    assert_eq!(said, (Some(1), "0\noneonetwotwo2\n2\n2\n2\n".to_owned()));
}

#[test]
fn equal_inode_numbers_on_two_devices_are_not_the_same_file() {
    let script = "$cp t/one/f t/two/f; echo $?; cat t/two/g; $cp -l t/one/f t/two/new; echo $?; $cp t/one/f t/one/g; echo $?";
    let Some((_, text)) = as_gnu(script) else { return };
    assert!(text.starts_with("0\none1\n1\n"), "{text}");
    assert!(text.contains("'t/one/f' and 't/one/g' are the same file"), "{text}");
}

#[test]
fn moved_equal_inode_numbers_on_two_devices_are_no_hard_links() {
    let script = "mkdir z t/one/d t/two/e; $cp t/one/[fg] t/one/d; $cp t/two/[fg] t/two/e; $cp t/one/d t/two/e z; echo $?
        cat z/d/f z/d/g z/e/f z/e/g; stat -c %h z/*/*; ls -A t/one t/two; test z/d/f -ef z/e/f";
    let Some(said) = tool_as_gnu("mv", script) else { return };
    assert_eq!(said, (Some(1), "0\noneonetwotwo2\n2\n2\n2\nt/one:\n\nt/two:\n".to_owned()));
}

#[test]
fn equal_inode_numbers_on_two_devices_replace_each_other() {
    let script = "$cp t/one/f t/one/g; echo $?; $cp t/one/f t/two/f; echo $?; cat t/two/f t/two/g";
    // For mv, two names of one file are the same file; install creates a new file in place of the
    // second name.
    for (tool, first) in [("mv", "1\n0\nonetwo"), ("install", "0\n0\nonetwo")] {
        let Some((status, text)) = tool_as_gnu(tool, script) else { return };
        assert_eq!(text.contains("'t/one/f' and 't/one/g' are the same file"), tool == "mv", "{text}");
        assert!(status == Some(0) && text.starts_with(first), "{tool}: {text}");
    }
}

#[test]
fn a_directory_with_equal_inode_number_is_not_copied_into_itself() {
    // The roots of both file systems have the same number.
    let script = "test $(stat -c %i t/one) = $(stat -c %i t/two) || exit 99; $cp -r t/one t/two/in; echo $?; ls t/two/in";
    let Some(said) = as_gnu(script) else { return };
    assert_eq!(said, (Some(0), "0\nf\ng\n".to_owned()));
}

#[test]
fn files_with_equal_inode_numbers_are_hashed_separately() {
    let script = "exec $haul sum -a md5 -r t";
    let Some((status, text)) = twins("", "", script) else { return };
    let digests: std::collections::BTreeSet<&str> = text.lines().map(|line| &line[..32]).collect();
    assert_eq!((status, text.lines().count(), digests.len()), (Some(0), 4, 2), "{text}");
}
