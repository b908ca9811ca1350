//! Options of `mv` in one table.

use crate::getopt::Value::{No, Required};
use crate::getopt::{Opt, gnu, help_lines, later, own, shared};

/// All options, in the order in which mv lists the candidates of an abbreviation.
pub(super) const OPTIONS: &[Opt] = &[
    shared::BACKUP,
    shared::B,
    gnu("context", "Z", No, "give what is moved the SELinux type that the policy has for its new path"),
    gnu("force", "f", No, "do not ask before overwriting"),
    gnu("interactive", "i", No, "ask before overwriting"),
    gnu("no-clobber", "n", No, "leave existing files alone; of -f, -i and -n the last one holds"),
    shared::NO_TARGET_DIRECTORY,
    shared::STRIP_TRAILING_SLASHES,
    shared::SUFFIX,
    gnu("target-directory", "t", Required("DIRECTORY"), "move all SOURCEs into DIRECTORY"),
    shared::UPDATE,
    shared::VERBOSE,
    later("debug", No, "same as -v: how a file is moved is said in any case"),
    later("exchange", No, "let SOURCE and DEST change places"),
    later("no-copy", No, "move nothing that can't be renamed"),
    own(
        "threads",
        Required("N"),
        "copy with N worker threads where a rename can't be (default: one a processor)",
    ),
    shared::SPLIT_SIZE,
    shared::BUFFER_SIZE,
    own("print-stats", No, "print size, time and rate of each copied file"),
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
         Rename SOURCE to DEST, or move SOURCEs into DIRECTORY. Across file systems every SOURCE is copied by every\n\
         core, the copy is compared and made durable, and only then SOURCE is removed.\n\n{}\n\
         Sizes take the suffixes K, M, G, T (powers of 1024) and KB, MB, ... (powers of 1000).\n\
         Exit status: 0 if all was moved, 1 if anything failed, 128 + N if signal N interrupted it.\n",
        help_lines(OPTIONS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;
    use crate::getopt::rules;

    #[test]
    fn options_are_apart_and_told_by_help() {
        rules::hold(OPTIONS, &help("mv"));
    }

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/mv.md", documented::typed_of(OPTIONS));
    }
}
