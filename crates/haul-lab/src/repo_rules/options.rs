//! Rules for the tables in `docs/options`. Every option of a tool has a row with its effect, the
//! tests that check it, and the difference to the well-known tool. The tests exist.
//!
//! A row has the columns of its table's head: the option in all its spellings, its effect in one
//! line, and its tests as `folder/file.rs::name`. If there is a tool to compare with, the last
//! column gives the difference with its reason, or `none`. Options and tests are in backticks.

use super::text;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the errors of a document, given by its path from the root of the repository. `options`
/// are the options of its tool, each with its dashes.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn breaches(document: &str, options: impl IntoIterator<Item = String>) -> io::Result<Vec<String>> {
    breaches_in(document, &[], options)
}

/// Does the same as [`breaches`] for a document about several tools. Only sections whose headings
/// begin with one of `sections` are checked.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn breaches_in(
    document: &str,
    sections: &[&str],
    options: impl IntoIterator<Item = String>,
) -> io::Result<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join(document))?;
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let sources: Vec<PathBuf> = text::files(&root)?.into_iter().filter(is_rust).collect();
    let is_there = |test: &str| {
        let Some((file, name)) = test.split_once("::") else { return false };
        let mut files = sources.iter().filter(|path| path.ends_with(file));
        files.any(|path| fs::read_to_string(root.join(path)).is_ok_and(|source| has_test(&source, name)))
    };
    Ok(check(rows(&text, sections), &options.into_iter().collect(), is_there))
}

/// Returns the options of another tool, each with its dashes, that have no row in these sections.
///
/// # Errors
/// Returns an error if the document cannot be read.
pub fn without_row(
    document: &str,
    sections: &[&str],
    options: impl IntoIterator<Item = String>,
) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document))?;
    let rows = rows(&text, sections);
    let typed = rows.iter().flat_map(|row| quoted(row.columns[0]));
    let named: BTreeSet<&str> = typed.filter_map(|option| option.split(['=', '[', ' ']).next()).collect();
    Ok(options.into_iter().filter(|option| !named.contains(&**option)).collect())
}

/// A row of a table.
struct Row<'a> {
    number: usize,
    /// Number of columns in the table's head.
    width: usize,
    columns: Vec<&'a str>,
}

fn check(rows: Vec<Row<'_>>, options: &BTreeSet<String>, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut named = BTreeSet::new();
    for Row { number: line, width, columns } in rows {
        let (&[typed, does, tests, ref difference @ ..], true) = (&columns[..], columns.len() == width)
        else {
            found.push(format!("line {line} has {} columns instead of {width}", columns.len()));
            continue;
        };
        for option in quoted(typed) {
            // The value of the option is not part of its name.
            let name = option.split(['=', '[', ' ']).next().unwrap_or(option);
            if !options.contains(name) {
                found.push(format!("line {line}: {name} is not an option of this tool"));
            }
            named.insert(name.to_owned());
        }
        if does.is_empty() || difference.contains(&"") {
            found.push(format!("line {line} has an empty column"));
        }
        let mut tests = quoted(tests).peekable();
        if tests.peek().is_none() {
            found.push(format!("line {line} names no test"));
        }
        found.extend(tests.filter(|test| !is_there(test)).map(|test| format!("line {line}: no test {test}")));
    }
    found.extend(options.difference(&named).map(|option| format!("{option} has no row")));
    found
}

/// Returns the rows that begin with an option, of all sections or of those whose headings begin
/// with one of `sections`.
fn rows<'a>(text: &'a str, sections: &[&str]) -> Vec<Row<'a>> {
    let (mut found, mut width, mut is_meant) = (Vec::new(), 0, sections.is_empty());
    let mut above = "";
    for (index, line) in text.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("## ") {
            is_meant = sections.is_empty() || sections.iter().any(|section| heading.starts_with(section));
        }
        if line.starts_with("|-") {
            width = columns(above).len();
        }
        if is_meant && line.starts_with("| `-") {
            found.push(Row { number: index + 1, width, columns: columns(line) });
        }
        above = line;
    }
    found
}

/// Returns the cells between a row's bars. An escaped bar (`\|`) does not separate cells.
fn columns(line: &str) -> Vec<&str> {
    let line = line.trim().trim_start_matches('|');
    let line = line.strip_suffix('|').unwrap_or(line);
    let mut columns = Vec::new();
    let mut start = 0;
    for (at, _) in line.match_indices('|').filter(|&(at, _)| !line[..at].ends_with('\\')) {
        columns.push(line[start..at].trim());
        start = at + 1;
    }
    columns.push(line[start..].trim());
    columns
}

/// Returns the strings in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns true if a source contains a test of this name.
fn has_test(source: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_head = |line: &str| line.strip_prefix("pub ").unwrap_or(line).starts_with(&head);
    lines.iter().enumerate().filter(|(_, line)| is_head(line)).any(|(at, _)| {
        let above = lines[..at].iter().rev();
        let mut above = above.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        above.any(|line| line.starts_with("#[test]"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "| option | does | tests | difference |\n|---|---|---|---|\n";

    fn checked(text: &str, options: &[&str]) -> Vec<String> {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        check(rows(text, &[]), &options, |test| test == "cp/table.rs::links")
    }

    #[test]
    fn valid_table_has_no_violation() {
        let text = format!(
            "{HEAD}| `-l`, `--link` | links | `cp/table.rs::links` | none |\n\
             | `--sparse=WHEN`, `--sparse[=X]`, `--sparse WHEN` | a \\| b | see `cp/table.rs::links` | none |\n"
        );
        assert_eq!(checked(&text, &["-l", "--link", "--sparse"]), [""; 0]);
        let own = "| option | does | tests |\n|---|---|---|\n| `-l` | links | `cp/table.rs::links` |\n";
        assert_eq!(checked(own, &["-l"]), [""; 0], "a tool of our own differs from none");
    }

    #[test]
    fn each_rule_violation_is_reported() {
        assert_eq!(checked("", &["-l"]), ["-l has no row"]);
        let row = |row: &str| checked(&format!("{HEAD}{row}"), &["-l"]);
        assert_eq!(
            row("| `-l` | links | `cp/table.rs::links` |"),
            ["line 3 has 3 columns instead of 4", "-l has no row"]
        );
        assert_eq!(
            row("| `-l` | links | `cp/table.rs::gone` | none |"),
            ["line 3: no test cp/table.rs::gone"]
        );
        assert_eq!(row("| `-l` | links | | none |"), ["line 3 names no test"]);
        assert_eq!(row("| `-l` | links | `cp/table.rs::links` | |"), ["line 3 has an empty column"]);
        assert_eq!(
            row("| `-l` `-k` | links | `cp/table.rs::links` | none |"),
            ["line 3: -k is not an option of this tool"]
        );
    }

    #[test]
    fn rows_are_limited_to_the_sections_of_a_tool() {
        let section =
            |name: &str, option: &str| format!("## {name}\n\n{HEAD}| `{option}` | x | `t` | none |\n");
        let text = [section("sum", "-r"), section("cksum, old and new", "-a")].concat();
        let typed = |sections: &[&str]| -> Vec<String> {
            rows(&text, sections).iter().map(|row| row.columns[0].to_owned()).collect()
        };
        assert_eq!(typed(&[]), ["`-r`", "`-a`"]);
        assert_eq!(typed(&["cksum"]), ["`-a`"]);
        assert_eq!(typed(&["b3sum"]), [""; 0]);
    }

    #[test]
    fn options_are_searched_only_in_the_given_sections() {
        let asked = || ["--reflink", "-a", "--no-such"].map(str::to_owned);
        let missing = |sections: &[&str]| without_row("docs/options/cp.md", sections, asked()).unwrap();
        assert_eq!(missing(&[]), ["--no-such"]);
        assert_eq!(missing(&["mcp's"]), asked());
    }

    #[test]
    fn only_test_functions_are_found() {
        let source = "#[test]\n/// Why.\n#[ignore]\nfn one() {}\n\nfn two() {}\n\n    #[test]\n    fn three(x in 0..3) {}";
        assert_eq!(
            ["one", "two", "three", "four"].map(|name| has_test(source, name)),
            [true, false, true, false]
        );
    }
}
