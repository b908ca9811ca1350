//! Rules for all text files: maximum length of source files, and forbidden names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum number of lines of a source file without a reason.
pub const LINES_MAX: usize = 1000;

/// Files that may be longer, each with its reason.
pub const LONG_FILES: [(&str, &str); 0] = [];

/// Forbidden names: hosts of package registries, which mirrors and closed networks replace, and
/// paths of the development machine. Each is split in two, so that this file does not break its own
/// rule.
const FORBIDDEN: [(&str, &str); 9] = [
    ("crates", ".io"),
    ("deb.debian", ".org"),
    ("archive.ubuntu", ".com"),
    ("pypi", ".org"),
    ("registry.npmjs", ".org"),
    ("proxy.golang", ".org"),
    ("/wo", "rk/"),
    ("/ho", "me/"),
    ("/ro", "ot/"),
];

/// Files exempt from the rule: Cargo writes the lock file, which names its registry.
const MADE_BY_TOOLS: [&str; 1] = ["Cargo.lock"];

/// Returns the repository's files: those that git tracks or would track or, without git, all except
/// build output.
///
/// # Errors
/// Returns an error if a directory cannot be read.
pub fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    match listed {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let names = String::from_utf8_lossy(&output.stdout).into_owned();
            let paths = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
            Ok(paths.filter(|path| root.join(path).is_file()).collect())
        }
        _ => walk(root),
    }
}

fn walk(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(root.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            let is_built = ["target", ".git", "bench-out"].iter().any(|name| entry.file_name() == *name);
            if entry.file_type()?.is_dir() {
                if !is_built {
                    open.push(path);
                }
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns true if a file is source code.
fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|e| ["rs", "py", "sh"].iter().any(|known| e == *known))
}

/// Checks the length of a file against the list of exceptions. Returns a message if the file is too
/// long without a reason, or is listed although it is short enough.
pub fn length_breach(path: &Path, text: &str, reasoned: &[(&str, &str)]) -> Option<String> {
    let lines = text.lines().count();
    let reason = reasoned.iter().find(|(name, _)| path == Path::new(name)).map(|(_, reason)| *reason);
    let shown = path.display();
    match (is_source(path) && lines > LINES_MAX, reason) {
        (true, None) => Some(format!("{shown} has {lines} lines; the limit without a reason is {LINES_MAX}")),
        (true, Some(reason)) if reason.trim().is_empty() => Some(format!("{shown} is long without a reason")),
        (false, Some(_)) => Some(format!("{shown} has only {lines} lines; remove it from the list")),
        _ => None,
    }
}

/// Returns the lines of a text that contain a forbidden name.
pub fn forbidden_names(path: &Path, text: &str) -> Vec<String> {
    if MADE_BY_TOOLS.iter().any(|name| path == Path::new(name)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (head, tail) in FORBIDDEN {
            let word = format!("{head}{tail}");
            if line.match_indices(&word).any(|(at, _)| begins_there(line, at)) {
                found.push(format!("{}:{}: {word}", path.display(), index + 1));
            }
        }
    }
    found
}

/// Returns true if a path or host name begins at `at`. A path inside another one (`target/...`) and
/// a part of a longer word do not count.
fn begins_there(line: &str, at: usize) -> bool {
    let before = line[..at].chars().next_back();
    before.is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '}' | ')' | '.')))
        || line[..at].ends_with("static.")
        || line[..at].ends_with("index.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_need_a_reason() {
        let long = "x\n".repeat(LINES_MAX + 1);
        let file = Path::new("a/b.rs");
        assert!(length_breach(file, &long, &[]).is_some_and(|said| said.contains("1001 lines")));
        assert!(length_breach(file, &long, &[("a/b.rs", " ")]).is_some());
        assert_eq!(length_breach(file, &long, &[("a/b.rs", "a table")]), None);
        assert!(length_breach(file, "x", &[("a/b.rs", "a table")]).is_some());
        assert_eq!(length_breach(file, "x", &[]), None);
        assert_eq!(length_breach(Path::new("Cargo.lock"), &long, &[]), None);
    }

    #[test]
    fn hosts_and_machine_paths_are_found() {
        for (head, tail) in FORBIDDEN {
            let word = format!("{head}{tail}");
            for line in [word.clone(), format!("see {word}x"), format!("\"{word}\"")] {
                assert_eq!(forbidden_names(Path::new("f"), &line), [format!("f:1: {word}")]);
            }
        }
        let index = format!("\nhttps://index.{}{}/", FORBIDDEN[0].0, FORBIDDEN[0].1);
        assert_eq!(forbidden_names(Path::new("f"), &index).len(), 1);
    }

    #[test]
    fn similar_words_pass() {
        let (head, tail) = FORBIDDEN[6];
        let inside = format!("target{head}{tail}x and frame{head} and {{dir}}{head}{tail}");
        assert_eq!(forbidden_names(Path::new("f"), &inside), Vec::<String>::new());
        let lock = format!("{}{}", FORBIDDEN[0].0, FORBIDDEN[0].1);
        assert_eq!(forbidden_names(Path::new("Cargo.lock"), &lock), Vec::<String>::new());
    }

    #[test]
    fn directory_without_git_is_walked() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["target/x", "src/a.rs", "b"] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        assert_eq!(walk(dir.path()).unwrap(), ["b", "src/a.rs"].map(PathBuf::from));
    }
}
