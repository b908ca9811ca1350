//! Rules: pure crates use no clock, files or sockets, and only some crates contain `unsafe`.

use super::source::{Token, std_paths, test_modules, tokens, tokens_outside_tests};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Parts of the standard library that pure crates must not use.
const IMPURE: [&str; 13] = [
    "std::env",
    "std::fs",
    "std::io::Stdin",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::*",
];

/// Packages that use the operating system, an executor or threads. `libc` counts only as a direct
/// dependency, because compiled C code needs it too.
const IMPURE_PACKAGES: [&str; 23] = [
    "async-std",
    "chrono",
    "crossbeam-channel",
    "getrandom",
    "io-uring",
    "libloading",
    "memmap2",
    "mio",
    "nix",
    "num_cpus",
    "polling",
    "quinn",
    "quinn-udp",
    "rayon",
    "rayon-core",
    "rustix",
    "rustls",
    "signal-hook",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
    "walkdir",
];

/// Returns the source files of the crate in `folder` below `src`, except those of tests.
///
/// # Errors
/// Returns an error if a file or directory cannot be read.
pub fn sources(folder: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.join("src")];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.insert(path.clone(), fs::read_to_string(&path)?);
            }
        }
    }
    let tests: BTreeSet<PathBuf> =
        found.iter().flat_map(|(path, text)| files_of_test_modules(path, text)).collect();
    found.retain(|path, _| {
        !tests.iter().any(|test| path == test || path.starts_with(test.with_extension("")))
    });
    Ok(found.into_iter().collect())
}

/// Returns the paths at which the bodies of a file's test modules can be.
fn files_of_test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap_or_default();
    let is_root = ["lib", "main", "mod"].iter().any(|name| stem == *name);
    let dir = if is_root { path.with_file_name("") } else { path.with_extension("") };
    let names = test_modules(text).into_iter();
    names.flat_map(|name| [dir.join(&name).with_extension("rs"), dir.join(name).join("mod.rs")]).collect()
}

/// Returns the uses of clock, files, sockets, threads and environment in a source file, outside its
/// tests.
pub fn impure_uses(source: &str) -> Vec<String> {
    let paths = std_paths(&tokens_outside_tests(source));
    let is_impure = |path: &str| {
        IMPURE
            .iter()
            .any(|&part| path == part || path.strip_prefix(part).is_some_and(|rest| rest.starts_with("::")))
    };
    paths
        .into_iter()
        .filter(|(path, _)| is_impure(path))
        .map(|(path, line)| format!("{line}: {path}"))
        .collect()
}

/// Returns the lines of a source file that contain `unsafe`, including tests.
pub fn unsafe_lines(source: &str) -> Vec<usize> {
    tokens(source).into_iter().filter(|Token { text, .. }| text == "unsafe").map(|t| t.line).collect()
}

/// Does the same as [`unsafe_lines`], but permits attributes such as `#[unsafe(no_mangle)]`, which
/// export a name and contain no code.
pub fn unsafe_code_lines(source: &str) -> Vec<usize> {
    let tokens = tokens(source);
    let is_attribute = |at: usize| {
        let before = tokens[..at].iter().rev().take(2).map(|token| token.text.as_str());
        let after = tokens.get(at + 1).map(|token| token.text.as_str());
        before.eq(["[", "#"]) && after == Some("(")
    };
    let found = tokens.iter().enumerate().filter(|(at, token)| token.text == "unsafe" && !is_attribute(*at));
    found.map(|(_, token)| token.line).collect()
}

/// Returns the packages in the build of `root` that use the operating system, and `libc` if `root`
/// itself depends on it. `metadata` is the output of `cargo metadata` with dependencies.
///
/// # Errors
/// Returns a message that names what `metadata` lacks.
pub fn impure_packages(metadata: &Value, root: &str) -> Result<Vec<String>, String> {
    let packages = metadata["packages"].as_array().ok_or("no packages")?;
    let nodes = metadata["resolve"]["nodes"].as_array().ok_or("no resolved dependencies")?;
    let names: BTreeMap<&str, &str> =
        packages.iter().filter_map(|p| Some((p["id"].as_str()?, p["name"].as_str()?))).collect();
    let deps: BTreeMap<&str, Vec<&str>> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, built_in(node)))).collect();
    let start = *names.iter().find(|(_, name)| **name == root).ok_or(format!("no package {root}"))?.0;

    let mut found = Vec::new();
    let mut seen = BTreeSet::from([start]);
    let mut open = vec![(start, root.to_owned())];
    while let Some((id, way)) = open.pop() {
        for &dep in deps.get(id).into_iter().flatten() {
            let name = names.get(dep).copied().unwrap_or(dep);
            let way = format!("{way} > {name}");
            if IMPURE_PACKAGES.contains(&name) || (name == "libc" && id == start) {
                found.push(way.clone());
            }
            if seen.insert(dep) {
                open.push((dep, way));
            }
        }
    }
    Ok(found)
}

/// Returns the dependencies that become part of the crate, without those of its tests and its build
/// script.
fn built_in(node: &Value) -> Vec<&str> {
    let is_normal =
        |dep: &&Value| dep["dep_kinds"].as_array().is_some_and(|k| k.iter().any(|k| k["kind"].is_null()));
    let deps = node["deps"].as_array().into_iter().flatten();
    deps.filter(is_normal).filter_map(|dep| dep["pkg"].as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn impure_uses_are_found_with_their_lines() {
        let bad =
            "use std::{io, fs::File};\nfn f() { std::thread::sleep(d); }\nlet t = std::time::Instant::now();";
        assert_eq!(
            impure_uses(bad),
            ["1: std::fs::File", "2: std::thread::sleep", "3: std::time::Instant::now"]
        );
    }

    #[test]
    fn pure_code_and_tests_pass() {
        let good =
            "use std::time::Duration;\n// std::fs\nuse std::environs;\n#[cfg(test)] mod t { use std::fs; }";
        assert_eq!(impure_uses(good), Vec::<String>::new());
    }

    #[test]
    fn unsafe_is_found_and_not_in_words_or_comments() {
        assert_eq!(unsafe_lines("// unsafe\n#![deny(unsafe_code)]\nfn f() { unsafe { g() } }"), [3]);
    }

    #[test]
    fn exported_names_are_no_unsafe_code() {
        let source = "#[unsafe(no_mangle)]\npub extern \"C\" fn f() {\n unsafe { g() } }\nunsafe fn h() {}";
        assert_eq!(unsafe_code_lines(source), [3, 4]);
    }

    #[test]
    fn test_module_files_are_not_sources() {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path().join("src");
        fs::create_dir_all(src.join("a/tests")).unwrap();
        fs::write(src.join("lib.rs"), "mod a;").unwrap();
        fs::write(src.join("a.rs"), "#[cfg(test)] mod tests;").unwrap();
        fs::write(src.join("a/tests.rs"), "mod deep;").unwrap();
        fs::write(src.join("a/tests/deep.rs"), "").unwrap();
        fs::write(src.join("a/testsuite.rs"), "").unwrap();
        let found: Vec<PathBuf> = sources(dir.path()).unwrap().into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, ["a/testsuite.rs", "a.rs", "lib.rs"].map(|name| src.join(name)));
    }

    fn metadata(links: &[(&str, &str, Value)]) -> Value {
        let names: BTreeSet<&str> = links.iter().flat_map(|(a, b, _)| [*a, *b]).collect();
        let packages: Vec<Value> = names.iter().map(|name| json!({"id": name, "name": name})).collect();
        let nodes: Vec<Value> = names
            .iter()
            .map(|name| {
                let deps = links.iter().filter(|(from, _, _)| from == name);
                let deps: Vec<Value> =
                    deps.map(|(_, to, kind)| json!({"pkg": to, "dep_kinds": [{"kind": kind}]})).collect();
                json!({"id": name, "deps": deps})
            })
            .collect();
        json!({"packages": packages, "resolve": {"nodes": nodes}})
    }

    #[test]
    fn impure_packages_are_found_transitively() {
        let data = metadata(&[
            ("haul-plan", "innocent", Value::Null),
            ("innocent", "rustix", Value::Null),
            ("haul-plan", "libc", Value::Null),
        ]);
        let mut found = impure_packages(&data, "haul-plan").unwrap();
        found.sort();
        assert_eq!(found, ["haul-plan > innocent > rustix", "haul-plan > libc"]);
    }

    #[test]
    fn tests_and_build_scripts_may_use_anything() {
        let data = metadata(&[
            ("haul-plan", "tempfile", json!("dev")),
            ("haul-plan", "getrandom", json!("build")),
            ("haul-plan", "compiled", Value::Null),
            ("compiled", "libc", Value::Null),
        ]);
        assert_eq!(impure_packages(&data, "haul-plan"), Ok(vec![]));
        assert!(impure_packages(&data, "unknown").is_err());
    }
}
