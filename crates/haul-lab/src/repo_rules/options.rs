//! Rules for the tables in `docs/options` and for the list of their tests. Every option of a
//! command has a row with its effect and the difference to the well-known tool, and a test that
//! exists.
//!
//! A row has the columns of its table's head: the option in all its spellings in backticks, and its
//! effect in one line. If there is a tool to compare with, the last column gives the difference
//! with its reason, or `none`.
//!
//! [`TESTS`] names the tests of each option. A line has three columns, separated by tabs: the
//! command (the name of the document, or a heading in a document about several tools), options, and
//! tests. A test is `FILE::NAME`; FILE alone means all of its tests. FILE is relative to
//! `crates/`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// List of the tests of each option, relative to the root of the repository.
pub const TESTS: &str = "crates/haul-cli/tests/options.tsv";

/// Returns the errors of a document and of the lines of [`TESTS`] about it. The document is given
/// by its path from the root of the repository. `options` are the options of its tool, each with
/// its dashes.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn breaches(document: &str, options: impl IntoIterator<Item = String>) -> io::Result<Vec<String>> {
    breaches_in(document, &[], options)
}

/// Does the same as [`breaches`] for a document about several tools. Only sections whose headings
/// begin with one of `sections` are checked; these are the commands in [`TESTS`].
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn breaches_in(
    document: &str,
    sections: &[&str],
    options: impl IntoIterator<Item = String>,
) -> io::Result<Vec<String>> {
    let path = root().join(document);
    let text = fs::read_to_string(&path)?;
    let list = fs::read_to_string(root().join(TESTS))?;
    let stem = [path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()];
    let commands = if sections.is_empty() { &stem[..] } else { sections };
    let mut lines = parse_list(&list);
    lines.retain(|line| commands.contains(&line.command));
    let options: BTreeSet<String> = options.into_iter().collect();
    let mut found = check(rows(&text, sections), &options);
    found.extend(check_tests(&lines, &options, is_test));
    Ok(found)
}

/// Returns the errors of a list of tests, given by its path from the root of the repository: lines
/// without three columns, and tests that do not exist.
///
/// # Errors
/// Returns an error if the list cannot be read.
pub fn breaches_of_list(list: &str) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(root().join(list))?;
    Ok(check_list(&text, is_test))
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns true if a test exists. A test without a name is a file that contains tests.
fn is_test(test: &str) -> bool {
    let (file, name) = test.split_once("::").unwrap_or((test, ""));
    let source = fs::read_to_string(root().join("crates").join(file));
    source.is_ok_and(
        |source| {
            if name.is_empty() { source.contains("#[test]") } else { has_test(&source, name) }
        },
    )
}

/// A line of a list of tests.
struct Line<'a> {
    number: usize,
    command: &'a str,
    /// Options or a case, and the tests. `None` if the line does not have three columns.
    columns: Option<(&'a str, &'a str)>,
}

/// Returns the lines of a list of tests, without comments.
fn parse_list(list: &str) -> Vec<Line<'_>> {
    let lines = list.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    let parsed = lines.map(|(index, line)| {
        let mut cells = line.split('\t');
        let command = cells.next().unwrap_or_default();
        let columns = match (cells.next(), cells.next(), cells.next()) {
            (Some(subject), Some(tests), None) => Some((subject, tests)),
            _ => None,
        };
        Line { number: index + 1, command, columns }
    });
    parsed.collect()
}

/// Returns the errors of a list: lines of another form, lines without tests, and tests that do not
/// exist.
fn check_list(list: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for Line { number, command, columns } in parse_list(list) {
        let Some((subject, tests)) = columns.filter(|columns| !columns.0.is_empty() && !command.is_empty())
        else {
            found.push(format!("line {number} does not have three columns"));
            continue;
        };
        let mut tests = tests.split_whitespace().peekable();
        if tests.peek().is_none() {
            found.push(format!("line {number}: {subject} has no test"));
        }
        found.extend(
            tests.filter(|test| !is_there(test)).map(|test| format!("line {number}: no test {test}")),
        );
    }
    found
}

/// Returns the errors of the lines about one tool: an option that the tool does not have, a test
/// that does not exist, and each option without a named test.
fn check_tests(
    lines: &[Line<'_>],
    options: &BTreeSet<String>,
    is_there: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut tested = BTreeSet::new();
    for &Line { number, columns, .. } in lines {
        let Some((typed, tests)) = columns else {
            found.push(format!("{TESTS} line {number} does not have three columns"));
            continue;
        };
        let has_name = tests.split_whitespace().any(|test| test.contains("::"));
        for option in typed.split_whitespace() {
            if !options.contains(option) {
                found.push(format!("{TESTS} line {number}: {option} is not an option of this tool"));
            }
            if has_name {
                tested.insert(option.to_owned());
            }
        }
        let missing = tests.split_whitespace().filter(|test| !is_there(test));
        found.extend(missing.map(|test| format!("{TESTS} line {number}: no test {test}")));
    }
    found.extend(options.difference(&tested).map(|option| format!("{option} has no test in {TESTS}")));
    found
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
    let text = fs::read_to_string(root().join(document))?;
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

/// Returns the errors of the rows about one tool: an option that the tool does not have, an empty
/// column, and each option without a row.
fn check(rows: Vec<Row<'_>>, options: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut named = BTreeSet::new();
    for Row { number: line, width, columns } in rows {
        let (&[typed, does, ref difference @ ..], true) = (&columns[..], columns.len() == width) else {
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

    const HEAD: &str = "| option | does | difference |\n|---|---|---|\n";

    fn set(options: &[&str]) -> BTreeSet<String> {
        options.iter().map(|option| (*option).to_owned()).collect()
    }

    fn checked(text: &str, options: &[&str]) -> Vec<String> {
        check(rows(text, &[]), &set(options))
    }

    /// Checks lines about tests that exist if they are in `a.rs`.
    fn checked_tests(list: &str, options: &[&str]) -> Vec<String> {
        let found = check_tests(&parse_list(list), &set(options), |test| test.starts_with("a.rs"));
        found.into_iter().map(|line| line.replace(TESTS, "LIST")).collect()
    }

    #[test]
    fn valid_table_has_no_violation() {
        let text = format!(
            "{HEAD}| `-l`, `--link` | links | none |\n\
             | `--sparse=WHEN`, `--sparse[=X]`, `--sparse WHEN` | a \\| b | none |\n"
        );
        assert_eq!(checked(&text, &["-l", "--link", "--sparse"]), [""; 0]);
        let own = "| option | does |\n|---|---|\n| `-l` | links |\n";
        assert_eq!(checked(own, &["-l"]), [""; 0], "no tool to compare with");
    }

    #[test]
    fn each_rule_violation_is_reported() {
        assert_eq!(checked("", &["-l"]), ["-l has no row"]);
        let row = |row: &str| checked(&format!("{HEAD}{row}"), &["-l"]);
        assert_eq!(row("| `-l` | links |"), ["line 3 has 2 columns instead of 3", "-l has no row"]);
        assert_eq!(row("| `-l` | links | |"), ["line 3 has an empty column"]);
        assert_eq!(row("| `-l` `-k` | links | none |"), ["line 3: -k is not an option of this tool"]);
    }

    #[test]
    fn option_without_a_named_test_is_reported() {
        let list = "# comment\ncp\t-l --link\ta.rs::links a.rs\n";
        assert_eq!(checked_tests(list, &["-l", "--link"]), [""; 0]);
        assert_eq!(checked_tests(list, &["-l", "--link", "-k"]), ["-k has no test in LIST"]);
        assert_eq!(checked_tests("cp\t-l\ta.rs\n", &["-l"]), ["-l has no test in LIST"]);
        assert_eq!(checked_tests("cp\t-l\ta.rs::x b.rs::x\n", &["-l"]), ["LIST line 1: no test b.rs::x"]);
        let unknown = checked_tests("cp\t-l -k\ta.rs::x\n", &["-l"]);
        assert_eq!(unknown, ["LIST line 1: -k is not an option of this tool"]);
        let short = checked_tests("cp\t-l\n", &["-l"]);
        assert_eq!(short, ["LIST line 1 does not have three columns", "-l has no test in LIST"]);
    }

    #[test]
    fn malformed_lines_and_missing_tests_of_a_list_are_reported() {
        let checked = |list: &str| check_list(list, |test| test == "a.rs::x");
        assert_eq!(checked("#\ncp\ta case\ta.rs::x\n"), [""; 0]);
        assert_eq!(checked("cp\ta case\ta.rs::x b.rs\n"), ["line 1: no test b.rs"]);
        assert_eq!(checked("cp\ta case\t\n"), ["line 1: a case has no test"]);
        assert_eq!(checked("cp\ta case\n"), ["line 1 does not have three columns"]);
        assert_eq!(checked("cp\t\ta.rs::x\n"), ["line 1 does not have three columns"]);
    }

    #[test]
    fn rows_are_limited_to_the_sections_of_a_tool() {
        let section = |name: &str, option: &str| format!("## {name}\n\n{HEAD}| `{option}` | x | none |\n");
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
