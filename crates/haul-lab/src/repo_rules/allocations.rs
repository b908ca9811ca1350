//! Rule: in the crates that decode messages and files, each allocation whose size is computed has a
//! line in a list, with the limit of the size.
//!
//! Memory that a message or a file states must have a named limit. The rule cannot see where a
//! number comes from, so it lists every call whose size is not a constant.

use super::purity;
use super::source::{Token, tokens_outside_tests};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Functions whose first argument is a size.
const SIZED: [&str; 8] = [
    "with_capacity",
    "reserve",
    "reserve_exact",
    "try_reserve",
    "resize",
    "resize_with",
    "repeat",
    "repeat_n",
];

/// Functions that read up to the end of their input.
const UNSIZED: [&str; 2] = ["read_to_end", "read_to_string"];

/// Folders with the code that decodes what a peer or a file says.
pub const FOLDERS: [&str; 12] = [
    "crates/haul-proto/src",
    "crates/haul-log/src",
    "crates/haul-net/src",
    "crates/haul-udp/src",
    "crates/haul-web/src",
    "crates/haul-digest/src/list",
    "crates/haul-engine/src/transfer",
    "crates/haul-engine/src/waybill",
    "crates/haul-engine/src/log",
    "crates/haul-engine/src/stored",
    "crates/haul-engine/src/signature",
    "crates/haul-engine/src/repair/inplace",
];

/// An allocation whose size is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The call up to the end of its size, such as `resize(len`.
    pub text: String,
    /// Line number, starting at 1.
    pub line: usize,
}

/// Returns the sites of the files in [`FOLDERS`], tests excluded, by the paths of the files.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn all(root: &Path) -> io::Result<BTreeMap<PathBuf, Vec<Site>>> {
    let mut found = BTreeMap::new();
    let crates: BTreeSet<PathBuf> =
        FOLDERS.iter().map(|folder| Path::new(folder).iter().take(2).collect()).collect();
    for name in crates {
        for (path, source) in purity::sources(&root.join(name))? {
            let path = path.strip_prefix(root).map(Path::to_owned).unwrap_or(path);
            if FOLDERS.iter().any(|folder| path.starts_with(folder)) {
                found.insert(path, sites(&source));
            }
        }
    }
    Ok(found)
}

/// Returns the allocations of a source file whose size is computed, except those in its tests.
pub fn sites(source: &str) -> Vec<Site> {
    let tokens = tokens_outside_tests(source);
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let name = token.text.as_str();
        let is_called = text(at + 1) == "(" && at > 0 && matches!(text(at - 1), "." | "::");
        let size = match name {
            "vec" if text(at + 1) == "!" && text(at + 2) == "[" => {
                // `vec![value; size]`; other lists state their length.
                let parts = split(&tokens[at + 3..], ";");
                parts.get(1).copied()
            }
            _ if is_called && SIZED.contains(&name) => split(&tokens[at + 2..], ",").first().copied(),
            _ if is_called && UNSIZED.contains(&name) => {
                found.push(Site { text: name.to_owned(), line: token.line });
                None
            }
            _ => None,
        };
        if let Some(size) = size.filter(|size| !size.iter().all(is_constant)) {
            let words: String = size.iter().map(|token| token.text.as_str()).collect();
            found.push(Site { text: format!("{name}({words}"), line: token.line });
        }
    }
    found
}

/// Splits the tokens up to the closing bracket of the bracket before them.
fn split<'a>(tokens: &'a [Token], separator: &str) -> Vec<&'a [Token]> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => {
                parts.push(&tokens[start..at]);
                return parts;
            }
            ")" | "]" | "}" => depth -= 1,
            text if text == separator && depth == 0 => {
                parts.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts
}

/// Returns true for the parts of constant expressions: numbers, names of constants, operators.
fn is_constant(token: &Token) -> bool {
    let text = token.text.as_str();
    let is_word = text.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let is_type = matches!(text, "as" | "usize" | "u64" | "super" | "self" | "size_of") && text != "self";
    !is_word
        || is_type
        || text.starts_with(|c: char| c.is_ascii_digit())
        || text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Returns the differences of a list from the sites: sites without a line, lines without a site,
/// and lines without a limit. A line has a path, a call and the limit of its size, separated by
/// tabs. A limit names a constant of `constants`, or begins with `ours: ` and says why neither a
/// peer nor a file decides the size.
pub fn check(list: &str, found: &BTreeMap<PathBuf, Vec<Site>>, constants: &BTreeSet<String>) -> Vec<String> {
    let mut listed = BTreeSet::new();
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(list.lines()).filter(|(_, line)| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [path, call, limit] = columns[..] else {
            wrong.push(format!("line {number} does not have three columns"));
            continue;
        };
        let mut words = limit.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        if !limit.starts_with("ours: ") && !words.any(|word| constants.contains(word)) {
            wrong.push(format!("line {number} names no constant as the limit: {limit}"));
        }
        let is_there = found.get(Path::new(path)).is_some_and(|sites| sites.iter().any(|it| it.text == call));
        if !is_there {
            wrong.push(format!("line {number}: {path} has no {call}"));
        }
        listed.insert((Path::new(path), call));
    }
    for (path, sites) in found {
        let unlisted = sites.iter().filter(|site| !listed.contains(&(path.as_path(), site.text.as_str())));
        wrong.extend(unlisted.map(|site| {
            format!("{}:{}: no line for {}; add it with its limit", path.display(), site.line, site.text)
        }));
    }
    wrong
}

/// Returns the names of the constants that a source file defines.
pub fn constants(source: &str) -> impl Iterator<Item = String> {
    let tokens = tokens_outside_tests(source);
    let named = move |at: usize| {
        let (word, name) = (&tokens.get(at)?.text, &tokens.get(at + 1)?.text);
        Some((word == "const").then(|| name.clone()))
    };
    (0..).map_while(named).flatten().filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        sites(source).into_iter().map(|site| site.text).collect()
    }

    #[test]
    fn computed_sizes_are_found_and_constants_are_not() {
        let source = "fn f(n: usize) {
            let a = vec![0; n]; let b = vec![0; 4 * BLOCK]; let c = vec![1, n]; let d = vec![[0; 32]; n + 1];
            let e = Vec::with_capacity(n); let g = BufReader::with_capacity(1 << 18, file(n));
            a.resize(self.len.max(n), 0); b.resize(super::SIZE as usize, 0); a.resize_with(place + 1, || None);
            file.take(MAX).read_to_end(&mut a); reserve(n); text.repeat(n); // vec![0; n]
        }
        #[cfg(test)]
        mod tests { fn g(n: usize) { vec![0; n]; } }";
        let expected = [
            "vec(n",
            "vec(n+1",
            "with_capacity(n",
            "resize(self.len.max(n)",
            "resize_with(place+1",
            "read_to_end",
            "repeat(n",
        ];
        assert_eq!(texts(source), expected);
    }

    #[test]
    fn unlisted_sites_stale_lines_and_lines_without_a_limit_are_reported() {
        let path = PathBuf::from("crates/haul-log/src/a.rs");
        let found = BTreeMap::from([(path, sites("fn f(n: usize) { vec![0; n]; v.resize(n, 0); }"))]);
        let known: BTreeSet<String> = constants("const LINE_MAX: usize = 3; const fn half() {}").collect();
        assert_eq!(known, BTreeSet::from(["LINE_MAX".to_owned()]));
        let check = |list: &str| check(list, &found, &known);
        let rest = "crates/haul-log/src/a.rs\tresize(n\tours: a test\n";
        assert_eq!(check(&format!("# comment\n{rest}crates/haul-log/src/a.rs\tvec(n\tLINE_MAX\n")), [""; 0]);
        assert_eq!(
            check(rest),
            ["crates/haul-log/src/a.rs:1: no line for vec(n; add it with its limit"],
            "a new site"
        );
        let wrong = check(&format!(
            "{rest}crates/haul-log/src/a.rs\tvec(n\tsmall\ncrates/b.rs\tvec(n\tLINE_MAX\nx\n"
        ));
        assert_eq!(
            wrong,
            [
                "line 2 names no constant as the limit: small",
                "line 3: crates/b.rs has no vec(n",
                "line 4 does not have three columns"
            ]
        );
    }
}
