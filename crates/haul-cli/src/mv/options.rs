//! Options of `mv` in one table.

use crate::getopt::Value::{No, Required};
use crate::getopt::{Opt, gnu, help_lines, later, own, shared};

/// All options, in the order in which mv lists the candidates of an abbreviation.
pub(super) const OPTIONS: &[Opt] = &[
    shared::BACKUP,
    shared::B,
    gnu("context", "Z", No, "give moved files the SELinux type that the policy sets for their new path"),
    gnu("force", "f", No, "do not ask before overwriting"),
    gnu("interactive", "i", No, "ask before overwriting"),
    gnu("no-clobber", "n", No, "leave existing files alone; the last of -f, -i and -n takes effect"),
    shared::NO_TARGET_DIRECTORY,
    shared::STRIP_TRAILING_SLASHES,
    shared::SUFFIX,
    gnu("target-directory", "t", Required("DIRECTORY"), "move all SOURCEs into DIRECTORY"),
    shared::UPDATE,
    shared::VERBOSE,
    later("debug", No, "same as -v, which also prints how each file is moved"),
    later("exchange", No, "exchange SOURCE and DEST"),
    later("no-copy", No, "do not copy files that cannot be renamed"),
    own(
        "threads",
        Required("N"),
        "copy with N worker threads if a rename is not possible (default: one per processor)",
    ),
    shared::SPLIT_SIZE,
    shared::BUFFER_SIZE,
    own("print-stats", No, "print size, time and rate of each copied file, and the total"),
    shared::PROGRESS,
    shared::JSON,
    shared::HELP,
    shared::VERSION,
];

/// Returns the output of `--help`.
pub(super) fn help(tool: &str) -> String {
    format!(
        "Usage: {tool} [OPTION]... [-T] SOURCE DEST\n\
         \x20 or:  {tool} [OPTION]... SOURCE... DIRECTORY\n\
         \x20 or:  {tool} [OPTION]... -t DIRECTORY SOURCE...\n\
         Rename SOURCE to DEST, or move SOURCEs into DIRECTORY. Across file systems, copy every SOURCE using all\n\
         cores, compare and sync the copy, and only then remove SOURCE.\n\n{}\n\
         Sizes take the suffixes K, M, G, T (powers of 1024) and KB, MB, ... (powers of 1000).\n\
         Exit status: 0 if everything was moved, 1 if anything failed, 128 + N if signal N interrupted it.\n",
        help_lines(OPTIONS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;
    use crate::getopt::rules;

    #[test]
    fn options_are_distinct_and_listed_in_help() {
        rules::hold(OPTIONS, &help("mv"));
    }

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/mv.md", documented::typed_of(OPTIONS));
    }
}
