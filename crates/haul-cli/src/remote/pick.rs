//! Selection of the source's files: patterns in the order of the command line, and operands from a
//! list.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_engine::transfer::{Filter, Rule};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;

/// Options that select files at the source.
#[derive(Args, Clone, Debug)]
pub(crate) struct PickArgs {
    /// Skip names that match PATTERN, in gitignore syntax. If several --exclude and --include
    /// patterns match, the last one decides.
    #[arg(long, value_name = "PATTERN", help_heading = "File selection")]
    exclude: Vec<String>,
    /// Include names that match PATTERN, even if an earlier --exclude matches them.
    #[arg(long, value_name = "PATTERN", help_heading = "File selection")]
    include: Vec<String>,
    /// Read additional operands from FILE, one per line, unquoted; - is standard input.
    #[arg(long, value_name = "FILE", help_heading = "File selection")]
    files_from: Option<OsString>,
    /// End names in --files-from with NUL instead of newline.
    #[arg(short = '0', long, requires = "files_from", help_heading = "File selection")]
    from0: bool,
}

impl PickArgs {
    /// Returns the filter for files of this side. The error is a message.
    pub(crate) fn filter(&self, matches: &ArgMatches) -> Result<Filter, String> {
        Filter::new(&self.rules(matches)).map_err(|error| error.to_string())
    }

    /// Returns the patterns in the order of the command line, which only `matches` knows.
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

    /// Returns true if the list comes from standard input.
    pub(crate) fn reads_stdin(&self) -> bool {
        self.files_from.as_deref() == Some(OsStr::new("-"))
    }

    /// Returns the operands in `--files-from`. The error is a message.
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
                "--files-from: {} contains a NUL byte; use -0 for names that end in NUL",
                quote(list)
            ));
        }
        let separator = if self.from0 { 0 } else { b'\n' };
        let names: Vec<OsString> = names(&text, separator);
        if names.is_empty() {
            Err(format!("--files-from: {} contains no names", quote(list)))
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
    fn names_in_a_list_end_with_newline_or_nul() {
        assert_eq!(names(b"a\n b \n\nc", b'\n'), ["a", " b ", "c"]);
        assert_eq!(names(b"a\nb\0c\0", 0), ["a\nb", "c"]);
        assert!(names(b"\n", b'\n').is_empty());
    }
}
