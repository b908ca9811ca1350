//! Which files of the source go: patterns in the order they were typed, and operands from a list.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_engine::transfer::{Filter, Rule};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;

/// What picks files at the source.
#[derive(Args, Clone, Debug)]
pub(crate) struct PickArgs {
    /// Leave out names that fit PATTERN, written as in gitignore; of several --exclude and --include the last that fits decides.
    #[arg(long, value_name = "PATTERN", help_heading = "What is sent")]
    exclude: Vec<String>,
    /// Take names that fit PATTERN, whatever an earlier --exclude says.
    #[arg(long, value_name = "PATTERN", help_heading = "What is sent")]
    include: Vec<String>,
    /// Further operands from FILE, one a line, written as they would be typed; - is standard input.
    #[arg(long, value_name = "FILE", help_heading = "What is sent")]
    files_from: Option<OsString>,
    /// The names in --files-from are ended by NUL, not by line ends.
    #[arg(short = '0', long, requires = "files_from", help_heading = "What is sent")]
    from0: bool,
}

impl PickArgs {
    /// The filter of this side's files. The error is a message.
    pub(crate) fn filter(&self, matches: &ArgMatches) -> Result<Filter, String> {
        Filter::new(&self.rules(matches)).map_err(|error| error.to_string())
    }

    /// The patterns in their order, which only `matches` still knows.
    pub(crate) fn rules(&self, matches: &ArgMatches) -> Vec<Rule> {
        let mut rules: Vec<(usize, Rule)> = Vec::new();
        let typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if typed("exclude") {
            let places = matches.indices_of("exclude").into_iter().flatten();
            rules.extend(places.zip(self.exclude.iter().cloned().map(Rule::Exclude)));
        }
        if typed("include") {
            let places = matches.indices_of("include").into_iter().flatten();
            rules.extend(places.zip(self.include.iter().cloned().map(Rule::Include)));
        }
        rules.sort_by_key(|(place, _)| *place);
        rules.into_iter().map(|(_, rule)| rule).collect()
    }

    /// Whether the list comes by standard input.
    pub(crate) fn reads_stdin(&self) -> bool {
        self.files_from.as_deref() == Some(OsStr::new("-"))
    }

    /// The operands in `--files-from`. The error is a message.
    pub(crate) fn listed(&self) -> Result<Vec<OsString>, String> {
        let Some(list) = &self.files_from else { return Ok(Vec::new()) };
        let failed =
            |error: std::io::Error| format!("--files-from: cannot read {}: {}", quote(list), reason(&error));
        let mut text = Vec::new();
        if self.reads_stdin() {
            std::io::stdin().read_to_end(&mut text).map_err(failed)?;
        } else {
            text = std::fs::read(list).map_err(failed)?;
        }
        if !self.from0 && text.contains(&0) {
            return Err(format!(
                "--files-from: a NUL byte stands in {}; for names that NUL ends say -0",
                quote(list)
            ));
        }
        let separator = if self.from0 { 0 } else { b'\n' };
        let names: Vec<OsString> = names(&text, separator);
        if names.is_empty() {
            Err(format!("--files-from: no name stands in {}", quote(list)))
        } else {
            Ok(names)
        }
    }
}

fn names(text: &[u8], separator: u8) -> Vec<OsString> {
    let lines = text.split(|&byte| byte == separator).filter(|line| !line.is_empty());
    lines.map(|line| OsString::from_vec(line.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_list_end_by_lines_or_nul() {
        assert_eq!(names(b"a\n b \n\nc", b'\n'), ["a", " b ", "c"]);
        assert_eq!(names(b"a\nb\0c\0", 0), ["a\nb", "c"]);
        assert!(names(b"\n", b'\n').is_empty());
    }
}
