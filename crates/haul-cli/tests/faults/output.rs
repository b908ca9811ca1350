//! Output of the command: correct counts, and no control characters that steer a terminal.

use super::fixture::haul;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

#[test]
fn summary_counts_only_copied_files() {
    let home = tempfile::tempdir().unwrap();
    let [tree, sink] = ["tree", "sink"].map(|name| home.path().join(name));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&sink).unwrap();
    for name in ["copied", "newer there", "in the way"] {
        fs::write(tree.join(name), "12345").unwrap();
    }
    fs::write(sink.join("newer there"), "1").unwrap();
    // Newer than the directory at the sink: the file has to be copied, and cannot be.
    let later = SystemTime::now() + Duration::from_secs(3600);
    fs::File::options().write(true).open(tree.join("in the way")).unwrap().set_modified(later).unwrap();
    fs::create_dir(sink.join("in the way")).unwrap();
    let options = ["cp", "-rT", "--update", "--json"].map(Path::new);
    let ended = haul(options.into_iter().chain([&*tree, &*sink]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let last: serde_json::Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    let numbers = ["files", "files_met", "bytes", "failures"].map(|name| last[name].as_u64());
    assert_eq!(numbers, [1, 3, 5, 1].map(Some), "{last}");
}

#[test]
fn control_characters_in_arguments_are_escaped() {
    for word in
        ["--hash-type=\u{1b}[2J", "--buffer-size=\u{1b}[2J", "--\u{1b}[2J", "-\u{1b}", "--sparse=\u{1b}[2J"]
    {
        for command in ["cp", "sum"] {
            let ended = haul([command, word, "a", "b"]);
            assert_eq!(ended.code, Some(1), "{ended:?}");
            assert!(!ended.stderr.contains('\u{1b}'), "{ended:?}");
        }
    }
    assert!(haul(["cp", "--hash-type=\u{1b}[2J", "a", "b"]).stderr.contains(r"\x1b[2J"));
}
