//! Applies the repository rules to this repository. The tests in `src/repo_rules` show that each
//! rule can fail.

use haul_lab::repo_rules::{allocations, layers, licences, order, prose, purity, shape, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that may contain `unsafe`: system calls and SIMD.
const UNSAFE_CRATES: [&str; 2] = ["haul-sys", "haul-digest"];

/// Functions that JavaScript calls. The attribute that exports their names is `unsafe`, because two
/// symbols of one name would collide. All other code there is safe.
const EXPORTS: [&str; 2] =
    ["crates/haul-browser/src/exports.rs", "crates/haul-browser/src/exports/waybill.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

fn cargo_metadata(args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(args)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// Returns the metadata with the dependencies that this machine builds; other dependencies may not
/// be downloaded.
fn cargo_metadata_with_dependencies() -> Value {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let said = String::from_utf8(output.stdout).expect("rustc writes text");
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    cargo_metadata(&["--filter-platform", host])
}

/// Returns the name and folder of each crate in the workspace.
fn crates() -> Vec<(String, PathBuf)> {
    let metadata = cargo_metadata(&["--no-deps"]);
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    let found: Vec<_> = packages
        .iter()
        .map(|package| {
            let text = |key: &str| package[key].as_str().expect("a text").to_owned();
            (text("name"), Path::new(&text("manifest_path")).with_file_name(""))
        })
        .collect();
    assert!(found.len() >= 2, "the workspace has crates: {found:?}");
    found
}

/// Returns every text file of the repository.
fn texts() -> Vec<(PathBuf, String)> {
    let files = text::files(&root()).expect("the repository can be listed");
    let read = |path: PathBuf| fs::read_to_string(root().join(&path)).ok().map(|text| (path, text));
    let texts: Vec<_> = files.into_iter().filter_map(read).collect();
    assert!(texts.iter().any(|(path, _)| path == Path::new("Cargo.toml")), "the list is the repository's");
    texts
}

#[track_caller]
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn crates_depend_downwards_and_have_a_description() {
    assert_none("violations of the layers", &layers::breaches(&cargo_metadata(&["--no-deps"])));
}

#[test]
fn pure_crates_use_no_clock_files_or_sockets() {
    let mut found = Vec::new();
    for (name, folder) in crates() {
        if !layers::layer_of(&name).is_some_and(|layer| layer.is_pure) {
            continue;
        }
        for (path, source) in purity::sources(&folder).expect("sources can be read") {
            found.extend(purity::impure_uses(&source).into_iter().map(|u| format!("{}:{u}", path.display())));
        }
    }
    assert_none("impure uses in pure crates", &found);
}

#[test]
fn pure_crates_are_built_from_pure_packages() {
    let metadata = cargo_metadata_with_dependencies();
    for (name, layer) in layers::LAYERS {
        if layer.is_pure {
            let found = purity::impure_packages(&metadata, name).expect("cargo resolves the workspace");
            assert_none("impure packages", &found);
        }
    }
}

/// The list of allocations whose size is computed, with their limits.
const ALLOCATIONS: &str = "crates/haul-lab/allocations.tsv";

#[test]
fn computed_allocations_of_decoders_have_a_named_limit() {
    let list = fs::read_to_string(root().join(ALLOCATIONS)).expect("the list is there");
    let found = allocations::all(&root()).expect("sources can be read");
    let is_source = |path: &Path| path.starts_with("crates") && path.extension().is_some_and(|e| e == "rs");
    let constants = texts()
        .into_iter()
        .filter(|(path, _)| is_source(path))
        .flat_map(|(_, source)| allocations::constants(&source).collect::<Vec<_>>())
        .collect();
    assert_none(ALLOCATIONS, &allocations::check(&list, &found, &constants));
}

#[test]
fn unsafe_occurs_only_in_its_two_crates() {
    let mut found = Vec::new();
    for (path, source) in texts() {
        let is_rust = path.extension().is_some_and(|e| e == "rs");
        let may = UNSAFE_CRATES.iter().any(|name| path.starts_with(Path::new("crates").join(name)));
        if is_rust && !may {
            let is_exports = EXPORTS.iter().any(|exports| path == Path::new(exports));
            let lines =
                if is_exports { purity::unsafe_code_lines(&source) } else { purity::unsafe_lines(&source) };
            found.extend(lines.iter().map(|line| format!("{}:{line}", path.display())));
        }
    }
    assert_none("unsafe code outside the allowed places", &found);
}

#[test]
fn files_are_short_or_have_a_reason() {
    let texts = texts();
    let check = |(path, text): &(PathBuf, String)| text::length_breach(path, text, &text::LONG_FILES);
    let mut found: Vec<String> = texts.iter().filter_map(check).collect();
    let is_there = |name: &str| texts.iter().any(|(path, _)| path == Path::new(name));
    let missing_functions = text::LONG_FILES.iter().filter(|(name, _)| !is_there(name));
    found.extend(
        missing_functions.map(|(name, _)| format!("{name} is on the list, but not in the repository")),
    );
    assert_none("long files", &found);
}

#[test]
fn counts_of_the_code_are_at_their_ceilings() {
    let table = fs::read_to_string(root().join(shape::TABLE)).expect("the table is there");
    let sources = shape::sources(&root()).expect("sources can be read");
    for (package, lines) in shape::lines(&sources) {
        println!("{lines:>6} lines with code in {package}");
    }
    assert_none(shape::TABLE, &shape::breaches(&table, &shape::counts(&sources)));
}

#[test]
fn functions_in_start_order_exist() {
    let list = fs::read_to_string(root().join("crates/haul-cli/start-order")).expect("the order is there");
    assert!(list.lines().any(|line| line.starts_with("haul::")), "it names functions of the binary");
    assert_none("missing functions in the link order", &order::missing_functions(&list, &texts()));
}

#[test]
fn prose_stays_within_the_phrase_limits() {
    let texts = texts();
    let texts = texts.iter().map(|(path, text)| (path.as_path(), text.as_str()));
    assert_none("phrases and lines", &prose::breaches(texts, &prose::LIMITS));
}

#[test]
fn no_text_names_registries_or_this_machine() {
    let found: Vec<String> =
        texts().iter().flat_map(|(path, text)| text::forbidden_names(path, text)).collect();
    assert_none("names that belong to one machine", &found);
}

#[test]
fn every_licence_is_allowed() {
    let deny = fs::read_to_string(root().join("deny.toml")).expect("deny.toml is there");
    let allowed = licences::allowed(&deny).expect("deny.toml lists licences");
    assert!(!allowed.iter().any(|licence| licence.contains("GPL")), "no copyleft: {allowed:?}");
    assert_none("licences", &licences::refused(&cargo_metadata_with_dependencies(), &allowed));
}
