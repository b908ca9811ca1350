//! Table of a tool's options.

/// One option.
#[derive(Debug)]
pub(crate) struct Opt {
    /// The long name if there is one, else the letter.
    pub(crate) name: &'static str,
    /// Name that the rest of the program uses: the option's own name, or the newer name of the same
    /// option.
    pub(crate) means: &'static str,
    /// Letters of the option.
    pub(crate) shorts: &'static str,
    /// True if `--name` is a spelling of the option.
    pub(crate) long: bool,
    pub(crate) value: Value,
    /// True if GNU's tool (coreutils 9.1) has the option. Its abbreviations keep their meaning
    /// despite the options that haul and later releases added.
    pub(crate) gnu: bool,
    /// Description; help leaves out options without one.
    pub(crate) help: &'static str,
}

/// Value of an option, and its name in help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    No,
    Optional(&'static str),
    Required(&'static str),
}

use Value::{No, Optional, Required};

/// Returns an option of GNU's tool with a long name.
pub(crate) const fn gnu(name: &'static str, shorts: &'static str, value: Value, help: &'static str) -> Opt {
    Opt { name, means: name, shorts, long: true, value, gnu: true, help }
}

/// Returns an option of GNU's tool that is one letter without a value.
pub(crate) const fn letter(name: &'static str, help: &'static str) -> Opt {
    Opt { name, means: name, shorts: name, long: false, value: No, gnu: true, help }
}

/// Returns an older long name of an option without a value. Help leaves it out.
pub(crate) const fn older(name: &'static str, means: &'static str) -> Opt {
    Opt { name, means, shorts: "", long: true, value: No, gnu: true, help: "" }
}

/// Returns an option that GNU's tool lacks.
pub(crate) const fn own(name: &'static str, value: Value, help: &'static str) -> Opt {
    Opt { name, means: name, shorts: "", long: true, value, gnu: false, help }
}

/// Returns an option of GNU's releases after 9.1.
pub(crate) const fn later(name: &'static str, value: Value, help: &'static str) -> Opt {
    own(name, value, help)
}

/// Column of the descriptions.
const HELP_COLUMN: usize = 34;

/// Returns the lines of a table for `--help`.
pub(crate) fn help_lines(table: &[Opt]) -> String {
    table.iter().filter(|option| !option.help.is_empty()).map(help_line).collect()
}

fn help_line(option: &Opt) -> String {
    let mut left: Vec<String> = option.shorts.chars().map(|short| format!("-{short}")).collect();
    if option.long {
        left.push(format!("--{}", option.name));
    }
    let value = match option.value {
        No => String::new(),
        Optional(value) => format!("[={value}]"),
        Required(value) => format!("={value}"),
    };
    let indent = if option.shorts.is_empty() { "      " } else { "  " };
    let left = format!("{indent}{}{value}", left.join(", "));
    if left.len() + 2 > HELP_COLUMN {
        format!("{left}\n{:HELP_COLUMN$}{}\n", "", option.help)
    } else {
        format!("{left:HELP_COLUMN$}{}\n", option.help)
    }
}

/// Rules for every tool's table.
#[cfg(test)]
pub(crate) mod rules {
    use super::Opt;
    use std::collections::HashSet;

    /// Asserts that no two options have the same spelling, and that help names all options but the
    /// older names.
    #[track_caller]
    pub(crate) fn hold(table: &'static [Opt], help: &str) {
        let (mut letters, mut names) = (HashSet::new(), HashSet::new());
        for option in table {
            assert!(option.shorts.chars().all(|short| letters.insert(short)), "{}", option.name);
            assert!(names.insert(option.name), "{}", option.name);
            assert!(option.long || !option.shorts.is_empty(), "{}", option.name);
            assert!(help.contains(option.help), "{}", option.name);
            let is_old = option.name != option.means;
            assert!(
                !option.long || is_old != help.contains(&format!("--{}", option.name)),
                "{}",
                option.name
            );
        }
    }
}
