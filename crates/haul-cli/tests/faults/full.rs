//! File systems that are full or read-only.

use super::fixture::{
    RunResult, assert_same_tree, assert_unfinished, haul, noise, others_are_whole, tree_with_victim,
    write_old,
};
use haul_lab::mounts::{Access, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn small() -> Option<SmallFs> {
    met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]).then(|| SmallFs::new(48).unwrap())
}

fn copy_tree(options: &[&str], from: &Path, to: &Path) -> RunResult {
    haul(["cp", "-aT"].iter().chain(options).map(Path::new).chain([from, to]))
}

/// Creates sixteen files of 1 MiB plus 0 to 15 bytes: `f0` to `f15`.
fn mebibytes() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for number in 0..16 {
        write_old(&home.path().join(format!("f{number}")), &noise(MIB + number));
    }
    home
}

#[test]
fn a_full_disk_reports_each_missing_file_and_update_completes() {
    let Some(small) = small() else { return };
    let source = mebibytes();
    small.leave(8 * MIB).unwrap();
    for options in [
        &[][..],
        &["--threads=1", "--print-hash"],
        &["--verify", "--split-size=256K", "--threads=4"],
        &["--verify=reread"],
    ] {
        let sink = small.path().join("sink");
        let ended = copy_tree(options, source.path(), &sink);
        ended.failed_with(&["sink/f", "No space left on device"]);
        let mut whole = 0;
        for number in 0..16 {
            let name = format!("f{number}");
            let path = sink.join(&name);
            if ended.stderr.contains(&format!("/{name}'")) {
                assert!(
                    !path.exists() || fs::metadata(&path).unwrap().len() == 0 || is_marked(&path),
                    "{name}"
                );
            } else {
                super::fixture::assert_same_file(&source.path().join(&name), &path);
                whole += 1;
            }
        }
        assert!((1..16).contains(&whole), "{whole} of 16 files are whole: {options:?}");

        small.free_space().unwrap();
        copy_tree(&["--update"], source.path(), &sink).is_fine();
        assert_same_tree(source.path(), &sink);
        fs::remove_dir_all(&sink).unwrap();
        small.sync().unwrap();
        small.leave(8 * MIB).unwrap();
    }
    small.close().unwrap();
}

fn is_marked(path: &Path) -> bool {
    assert_unfinished(path);
    true
}

#[test]
fn a_file_too_large_for_the_disk_does_not_fail_small_files() {
    let Some(small) = small() else { return };
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("source");
    tree_with_victim(&source, 9 * MIB);
    small.leave(8 * MIB).unwrap();
    // The operands are in order, so that the small files of the second run are copied when the disk
    // is full.
    for (number, operands) in [["small", "large"], ["large", "small"]].iter().enumerate() {
        let sink = small.path().join(format!("sink{number}"));
        fs::create_dir(&sink).unwrap();
        for name in operands {
            let names: &[&str] = if *name == "small" { &["a", "dir", "z"] } else { &["victim"] };
            let sources = names.iter().map(|name| source.join(name));
            let args = ["cp", "-at"].iter().map(|word| word.into()).chain([sink.clone()]).chain(sources);
            let ended = haul(args);
            if *name == "large" {
                ended.failed_with(&["error writing", "/victim", "No space left on device"]);
                assert_unfinished(&sink.join("victim"));
                fs::remove_file(sink.join("victim")).unwrap();
                small.sync().unwrap();
            } else {
                ended.is_fine();
            }
        }
        super::fixture::assert_same_file(&source.join("a"), &sink.join("a"));
        super::fixture::assert_same_file(&source.join("dir/d"), &sink.join("dir/d"));
    }
    small.close().unwrap();
}

#[test]
fn a_read_only_disk_fails_each_file_and_is_unchanged() {
    let Some(small) = small() else { return };
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("source");
    tree_with_victim(&source, MIB);
    let sink = small.path().join("sink");
    tree_with_victim(&sink, MIB);
    fs::write(sink.join("a"), b"old").unwrap();
    fs::remove_file(sink.join("dir/d")).unwrap();
    small.set_access(Access::ReadOnly).unwrap();
    for options in [&[][..], &["-f"], &["--remove-destination"], &["--backup=numbered"]] {
        let ended = copy_tree(options, &source, &sink);
        for name in ["a", "b", "z", "victim", "dir/d"] {
            ended.failed_with(&[&format!("sink/{name}'"), "Read-only file system"]);
        }
        assert_eq!(fs::read(sink.join("a")).unwrap(), b"old");
        assert!(!sink.join("dir/d").exists());
    }
    small.set_access(Access::ReadWrite).unwrap();
    copy_tree(&[], &source, &sink).is_fine();
    others_are_whole(&source, &sink);
    small.close().unwrap();
}
