//! The lists of traps and of file systems name existing tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories of the tests in a line, by the word before them.
const FOLDERS: [(&str, &str); 5] = [
    ("cli: ", "haul-cli/tests"),
    ("coreutils: ", "haul-coreutils/tests/coreutils"),
    ("engine: ", "haul-engine/tests/engine"),
    ("sys: ", "haul-sys/tests/system"),
    ("digest: ", "haul-digest/tests/digests"),
];

/// Returns the tests that a cell of the table names: file and function. The file may be omitted if
/// it is the previous one.
fn named(cell: &str) -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut folder, mut file) = (PathBuf::new(), PathBuf::new());
    let mut tests = Vec::new();
    // Text and code alternate.
    for (index, piece) in cell.split('`').enumerate() {
        if index % 2 == 0 {
            if let Some((_, found)) = FOLDERS.iter().find(|(word, _)| piece.ends_with(word)) {
                folder = crates.join(found);
            }
            continue;
        }
        let (place, name) = piece.rsplit_once("::").unwrap_or(("", piece));
        if let Some(module) = place.strip_suffix("::tests") {
            file = crates.join("haul-sys/src").join(module).with_extension("rs");
        } else if !place.is_empty() {
            file = folder.join(place).with_extension("rs");
        } else if name.contains('/') {
            // A complete file of tests.
            file = folder.join(name).with_extension("rs");
            tests.push((file.clone(), "#[test]".to_owned()));
            continue;
        }
        tests.push((file.clone(), format!("fn {name}(")));
    }
    tests
}

/// Asserts that the tests in the last cell of each row of a document exist.
fn names_tests_that_are_there(document: &str, rows_at_least: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let is_head = |at: usize| lines.get(at + 1).is_some_and(|below| below.starts_with("|---"));
    let rows = lines.iter().enumerate().filter(|&(at, line)| line.starts_with("| ") && !is_head(at));
    let mut count = 0;
    for (_, row) in rows {
        count += 1;
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let tests = named(cell);
        assert!(!tests.is_empty(), "no test: {row}");
        for (file, wanted) in tests {
            let source = fs::read_to_string(&file)
                .unwrap_or_else(|error| panic!("{}: {error}: {row}", file.display()));
            assert!(source.contains(&wanted), "{} has no {wanted}: {row}", file.display());
        }
    }
    assert!(count >= rows_at_least, "{count} rows");
}

#[test]
fn every_trap_names_existing_tests() {
    names_tests_that_are_there("traps.md", 55);
}

#[test]
fn every_file_system_row_names_existing_tests() {
    names_tests_that_are_there("file-systems.md", 25);
}
