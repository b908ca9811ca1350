//! The list of traps names tests that are there.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the tests of a line lie, by the word before them.
const FOLDERS: [(&str, &str); 3] = [
    ("cli: ", "haul-cli/tests"),
    ("engine: ", "haul-engine/tests/engine"),
    ("sys: ", "haul-sys/tests/system"),
];

/// The tests that one cell of the table names: a file and a function, the file left out where it is the one before.
fn named(cell: &str) -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut folder, mut file) = (PathBuf::new(), PathBuf::new());
    let mut tests = Vec::new();
    // Text, code, text, code, ...
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
            // A whole file of tests.
            file = folder.join(name).with_extension("rs");
            tests.push((file.clone(), "#[test]".to_owned()));
            continue;
        }
        tests.push((file.clone(), format!("fn {name}(")));
    }
    tests
}

#[test]
fn every_trap_has_a_test_that_is_there() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/traps.md");
    let text = fs::read_to_string(list).unwrap();
    let rows: Vec<&str> =
        text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| trap")).collect();
    assert!(rows.len() >= 35, "{} rows", rows.len());
    for row in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let tests = named(cell);
        assert!(!tests.is_empty(), "no test: {row}");
        for (file, wanted) in tests {
            let source = fs::read_to_string(&file)
                .unwrap_or_else(|error| panic!("{}: {error}: {row}", file.display()));
            assert!(source.contains(&wanted), "{} has no {wanted}: {row}", file.display());
        }
    }
}
