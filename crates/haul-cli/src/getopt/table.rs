//! The table of a tool's options.

/// One option.
#[derive(Debug)]
pub(crate) struct Opt {
    /// The long name where there is one, else the letter.
    pub(crate) name: &'static str,
    /// What the rest of the program calls it: its name, or that of the option it is an older name of.
    pub(crate) means: &'static str,
    /// Letters it may be typed as.
    pub(crate) shorts: &'static str,
    /// Whether `--name` is a way to type it.
    pub(crate) long: bool,
    pub(crate) value: Value,
    /// Whether GNU's tool (coreutils 9.1) has it: its abbreviations keep their meaning beside the options added here
    /// and by later releases.
    pub(crate) gnu: bool,
    /// Help leaves out those that have no words.
    pub(crate) help: &'static str,
}

/// Whether an option takes a value, and what help calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    No,
    Optional(&'static str),
    Required(&'static str),
}

use Value::{No, Optional, Required};

/// An option of GNU's tool with a long name.
pub(crate) const fn gnu(name: &'static str, shorts: &'static str, value: Value, help: &'static str) -> Opt {
    Opt { name, means: name, shorts, long: true, value, gnu: true, help }
}

/// An option of GNU's tool that is a letter and takes no value.
pub(crate) const fn letter(name: &'static str, help: &'static str) -> Opt {
    Opt { name, means: name, shorts: name, long: false, value: No, gnu: true, help }
}

/// An older long name of an option without value. Help leaves it out.
pub(crate) const fn older(name: &'static str, means: &'static str) -> Opt {
    Opt { name, means, shorts: "", long: true, value: No, gnu: true, help: "" }
}

/// An option that GNU's tool lacks.
pub(crate) const fn own(name: &'static str, value: Value, help: &'static str) -> Opt {
    Opt { name, means: name, shorts: "", long: true, value, gnu: false, help }
}

/// An option of GNU's releases after 9.1.
pub(crate) const fn later(name: &'static str, value: Value, help: &'static str) -> Opt {
    own(name, value, help)
}

/// Columns before the explanation.
const HELP_COLUMN: usize = 34;

/// What `--help` prints of a table.
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

/// What must be true of every tool's table.
#[cfg(test)]
pub(crate) mod rules {
    use super::Opt;
    use std::collections::HashSet;

    /// No two options are typed alike, and help names all but old names.
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
