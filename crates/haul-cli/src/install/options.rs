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
        "leave a destination unchanged if it already has the right contents, owner and permissions",
    ),
    gnu(
        "context",
        "",
        Optional("CTX"),
        "give new files and directories the SELinux context CTX; without CTX like -Z",
    ),
    letter("Z", "give new files and directories the SELinux type that the policy sets for their path"),
    gnu("directory", "d", No, "create each operand as a directory, with its missing parents"),
    letter("D", "first create the missing parents of DEST, or DIRECTORY with its missing parents"),
    gnu("group", "g", Required("GROUP"), "set the group of installed files to GROUP"),
    gnu(
        "mode",
        "m",
        Required("MODE"),
        "set the permissions of installed files, in chmod's syntax (default rwxr-xr-x)",
    ),
    shared::NO_TARGET_DIRECTORY,
    gnu("owner", "o", Required("OWNER"), "set the owner of installed files to OWNER"),
    gnu("preserve-timestamps", "p", No, "keep the times of each SOURCE"),
    gnu("preserve-context", "", No, "keep the SELinux context of each SOURCE"),
    gnu("strip", "s", No, "strip symbol tables"),
    gnu("strip-program", "", Required("PROGRAM"), "strip with PROGRAM (default strip)"),
    shared::SUFFIX,
    gnu("target-directory", "t", Required("DIRECTORY"), "install all SOURCEs into DIRECTORY"),
    shared::VERBOSE,
    later("debug", No, "same as -v"),
    own("threads", Required("N"), "copy large files with N worker threads (default: one per processor)"),
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
         Copy SOURCE to DEST, or SOURCEs into DIRECTORY, and set owner and permissions; or create each DIRECTORY.\n\n{}\n\
         Exit status: 0 if everything was installed, 1 if anything failed, 128 + N if signal N interrupted it.\n",
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
        rules::hold(OPTIONS, &help("install"));
    }

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/install.md", documented::typed_of(OPTIONS));
    }
}
