//! Counts of files and bytes in the summary of a command and in the record of the job, compared
//! with the tree.

use super::ends::{DIRECTIONS, Direction, transfer};
use super::{Fixture, assert_ended};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Creates the source tree: empty files, files of one and of several objects, a sparse file, two
/// names of one file, a symbolic link and an empty directory.
fn tree(fixture: &Fixture) {
    for (name, len) in [("empty", 0), ("small", 1000), ("d/large", 700_000), ("d/first", 200_000)] {
        fixture.file(&format!("data/{name}"), len);
    }
    fs::hard_link(fixture.path("data/d/first"), fixture.path("data/second")).unwrap();
    let sparse = File::create(fixture.path("data/sparse")).unwrap();
    sparse.write_all_at(b"data", 2 * MIB).unwrap();
    sparse.set_len(5 * MIB).unwrap();
    symlink("small", fixture.path("data/link")).unwrap();
    fs::create_dir(fixture.path("data/none")).unwrap();
}

/// Returns the total size in bytes of the regular files beneath a directory. Counts each name if
/// `each_name` is true, otherwise each inode once.
fn bytes(folder: &Path, each_name: bool) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let (mut total, mut seen, mut folders) = (0, Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let facts = fs::symlink_metadata(entry.path()).unwrap();
            match facts.file_type() {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() && (each_name || !seen.contains(&facts.ino())) => {
                    seen.push(facts.ino());
                    total += facts.len();
                }
                _ => {}
            }
        }
    }
    total
}

fn last(out: &str) -> Value {
    serde_json::from_str(out.lines().last().unwrap()).unwrap()
}

#[test]
fn copied_and_skipped_bytes_add_up_to_the_total() {
    let fixture = Fixture::new();
    tree(&fixture);
    let total = bytes(&fixture.path("data"), true);
    let first = bytes(&fixture.path("data"), false);
    // The first run copies all files, and two runs skip existing files. Hard links and attributes
    // move no bytes.
    for (options, moved) in [
        (&["-a"][..], first),
        (&["-a", "--update"], 0),
        (&["-a", "--no-clobber"], 0),
        (&["-al"], 0),
        (&["--attributes-only", "-a"], 0),
    ] {
        let target = if options[0] == "-a" { "copy" } else { options[0].trim_start_matches('-') };
        let ran = fixture.run(&[&["cp", "--json", "-T"], options, &["data", target]].concat());
        assert_ended(&ran, 0);
        let summary = last(&ran.out);
        let count = |name: &str| summary[name].as_u64().unwrap();
        assert_eq!(
            (count("bytes"), count("bytes_skipped")),
            (moved, total - moved),
            "{options:?}: {summary}"
        );
        assert_eq!(count("bytes_met"), total, "{options:?}: {summary}");
    }
}

#[test]
fn summary_and_job_record_account_for_each_byte() {
    for direction in DIRECTIONS {
        let fixture = Fixture::new();
        tree(&fixture);
        let total = bytes(&fixture.path("data"), false);
        let into = fixture.path("into");
        // A first transfer, then the same tree compared by time, by digest and by object.
        let runs: [(&[&str], u64, u64); 4] = [
            (&["--object-size=64K"], total, 0),
            (&["--object-size=64K", "--update"], 0, 0),
            (&["--object-size=64K", "-c"], 0, 0),
            (&["--object-size=64K", "--update=object"], 0, 0),
        ];
        for (options, arrived, earlier) in runs {
            let ended =
                transfer(&fixture, direction, &[&["--json"], options].concat(), &fixture.path("data"), &into);
            assert_ended(&ended, 0);
            let summary = last(&ended.out);
            let what = format!("{direction:?} {options:?}: {summary}");
            if options.len() == 1 || options[1] == "--update" || options[1] == "-c" {
                assert_eq!(summary["bytes"], arrived, "{what}");
            }
            assert_eq!(summary["bytes_of_earlier_runs"], earlier, "{what}");
            assert_eq!(summary["failed"], 0, "{what}");
            // Each job in the record has done all the files and bytes that it found.
            let listed = fixture.run(&["jobs", "--json"]);
            assert_ended(&listed, 0);
            let kind = if matches!(direction, Direction::Send) { "send" } else { "fetch" };
            let jobs = listed.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            for job in jobs.filter(|job| job["kind"] == kind) {
                assert_eq!(
                    (&job["bytes_done"], &job["status"]),
                    (&job["bytes_found"], &"finished".into()),
                    "{what}: {job}"
                );
                assert_eq!(job["files_done"], job["files_found"], "{what}: {job}");
                assert_eq!(job["bytes_found"], total, "{what}: {job}");
            }
        }
    }
}
