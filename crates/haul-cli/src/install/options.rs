//! Options of `install` in one table.

use crate::getopt::Value::{No, Optional, Required};
use crate::getopt::{Opt, gnu, help_lines, later, letter, own, shared};

/// All options, in the order in which install lists the candidates of an abbreviation.
pub(super) const OPTIONS: &[Opt] = &[
    shared::BACKUP,
    shared::B,
    letter("c", "accepted and ignored"),
    gnu(
        "compare",
        "C",
        No,
        "leave a destination alone that has the contents, owner and permissions asked for",
    ),
    gnu("context", "", Optional("CTX"), "give all that is made the SELinux context CTX; without CTX as -Z"),
    letter("Z", "give all that is made the SELinux type that the policy has for its path"),
    gnu("directory", "d", No, "make each operand as a directory, with all above it"),
    letter("D", "make all directories above DEST, or all of DIRECTORY, first"),
    gnu("group", "g", Required("GROUP"), "the group of what is installed"),
    gnu(
        "mode",
        "m",
        Required("MODE"),
        "the permissions of what is installed, as chmod takes them (default rwxr-xr-x)",
    ),
    shared::NO_TARGET_DIRECTORY,
    gnu("owner", "o", Required("OWNER"), "the owner of what is installed"),
    gnu("preserve-timestamps", "p", No, "keep the times of each SOURCE"),
    gnu("preserve-context", "", No, "keep the SELinux context of each SOURCE"),
    gnu("strip", "s", No, "strip symbol tables"),
    gnu("strip-program", "", Required("PROGRAM"), "what strips them (default strip)"),
    shared::SUFFIX,
    gnu("target-directory", "t", Required("DIRECTORY"), "install all SOURCEs into DIRECTORY"),
    shared::VERBOSE,
    later("debug", No, "same as -v"),
    own("threads", Required("N"), "copy large files by N worker threads (default: one a processor)"),
    own("verify", No, "read each piece of the copy back and compare it"),
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
         \x20 or:  {tool} [OPTION]... -d DIRECTORY...\n\
         Copy SOURCE to DEST, or SOURCEs into DIRECTORY, with owner and permissions set; or make DIRECTORYs.\n\n{}\n\
         Exit status: 0 if all was installed, 1 if anything failed, 128 + N if signal N interrupted it.\n",
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
        rules::hold(OPTIONS, &help("install"));
    }

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/install.md", documented::typed_of(OPTIONS));
    }
}
