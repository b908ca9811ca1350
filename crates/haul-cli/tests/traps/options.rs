//! Options in the help of the installed tools: each has a row in haul's tables. The lists of tests
//! name existing tests.

use haul_lab::needs::{Need, met_or_skip};
use haul_lab::repo_rules::options;
use std::process::Command;

const SUMS: &str = "docs/options/sums.md";

/// A tool, its document, and the relevant sections.
const TOOLS: [(&str, &str, &[&str]); 13] = [
    ("cp", "docs/options/cp.md", &["GNU cp's"]),
    ("mv", "docs/options/mv.md", &[]),
    ("install", "docs/options/install.md", &[]),
    ("md5sum", SUMS, &["All tools", "md5sum"]),
    ("sha1sum", SUMS, &["All tools", "md5sum"]),
    ("sha224sum", SUMS, &["All tools", "md5sum"]),
    ("sha256sum", SUMS, &["All tools", "md5sum"]),
    ("sha384sum", SUMS, &["All tools", "md5sum"]),
    ("sha512sum", SUMS, &["All tools", "md5sum"]),
    ("b2sum", SUMS, &["All tools", "md5sum"]),
    ("cksum", SUMS, &["All tools", "cksum"]),
    ("sum", SUMS, &["All tools", "sum"]),
    ("b3sum", SUMS, &["b3sum"]),
];

/// Returns the options at the start of the lines of a help: `  -a, --algorithm=TYPE  what it does`.
fn told(help: &str) -> Vec<String> {
    let mut options = Vec::new();
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        for word in line.split(", ") {
            // A value, a placeholder for a number, or the words after the option.
            let end = word.find(['=', '[', ' ', '#', '<']).unwrap_or(word.len());
            if word.starts_with('-') && end > 1 {
                options.push(word[..end].to_owned());
            }
            if word[end..].contains("  ") {
                break;
            }
        }
    }
    options
}

#[test]
fn every_option_in_the_help_of_a_tool_has_a_row() {
    let mut missing = Vec::new();
    for (tool, document, sections) in TOOLS {
        if !met_or_skip(&[Need::Program(tool)]) {
            continue;
        }
        let output = Command::new(tool).arg("--help").env("LC_ALL", "C").output().unwrap();
        let help = [output.stdout, output.stderr].concat();
        let options = told(&String::from_utf8_lossy(&help));
        assert!(options.len() >= 2, "{tool} tells of {options:?}");
        for option in options::without_row(document, sections, options).unwrap() {
            missing.push(format!("{tool} {option}"));
        }
    }
    assert_eq!(missing, [""; 0]);
}

#[test]
fn listed_tests_of_options_and_cases_exist() {
    for list in [options::TESTS, "crates/haul-cli/tests/cases.tsv"] {
        assert_eq!(options::breaches_of_list(list).unwrap(), [""; 0], "{list}");
    }
}

#[test]
fn options_are_parsed_from_help_output() {
    let help = "Usage: x\n  -a, --archive   same as -dR, --preserve=all\n      --backup[=CONTROL]  a\n  -H#  b\n  \
                -l, --length <LEN>  c\n\nThe -x is not one.\n";
    assert_eq!(told(help), ["-a", "--archive", "--backup", "-H", "-l", "--length"]);
}
