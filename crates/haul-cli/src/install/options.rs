//! The options of `install`, as one table.

use crate::getopt::Value::{No, Optional, Required};
use crate::getopt::{Opt, gnu, help_lines, later, letter, own};

/// All options; install's in the order in which it lists the possibilities of an abbreviation.
pub(super) const OPTIONS: &[Opt] = &[
    gnu(
        "backup",
        "",
        Optional("CONTROL"),
        "back up each existing destination; CONTROL: none, simple, existing, numbered",
    ),
    letter("b", "like --backup without CONTROL"),
    letter("c", "accepted and ignored"),
    gnu(
        "compare",
        "C",
        No,
        "leave a destination alone that has the contents, owner and permissions asked for",
    ),
    gnu("context", "", Optional("CTX"), "accepted for SELinux; without effect here"),
    letter("Z", "accepted for SELinux; without effect here"),
    gnu("directory", "d", No, "make each operand as a directory, with all above it"),
    letter("D", "make all directories above DEST, or all of DIRECTORY, first"),
    gnu("group", "g", Required("GROUP"), "the group of what is installed"),
    gnu(
        "mode",
        "m",
        Required("MODE"),
        "the permissions of what is installed, as chmod takes them (default rwxr-xr-x)",
    ),
    gnu("no-target-directory", "T", No, "treat DEST as a file"),
    gnu("owner", "o", Required("OWNER"), "the owner of what is installed"),
    gnu("preserve-timestamps", "p", No, "keep the times of each SOURCE"),
    gnu("preserve-context", "", No, "accepted for SELinux; without effect here"),
    gnu("strip", "s", No, "strip symbol tables"),
    gnu("strip-program", "", Required("PROGRAM"), "what strips them (default strip)"),
    gnu("suffix", "S", Required("SUFFIX"), "the suffix of backups"),
    gnu("target-directory", "t", Required("DIRECTORY"), "install all SOURCEs into DIRECTORY"),
    gnu("verbose", "v", No, "say what is done"),
    later("debug", No, "same as -v"),
    own("threads", Required("N"), "copy large files by N worker threads (default: one a processor)"),
    own("verify", No, "read each piece of the copy back and compare it"),
    own("json", No, "print one JSON event a line on standard output"),
    gnu("help", "", No, "print this and exit"),
    gnu("version", "", No, "print the version and exit"),
];

/// What `--help` prints.
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
    use std::collections::HashSet;

    #[test]
    fn no_two_options_are_typed_alike() {
        let (mut letters, mut names) = (HashSet::new(), HashSet::new());
        for option in OPTIONS {
            assert!(option.shorts.chars().all(|short| letters.insert(short)), "{}", option.name);
            assert!(names.insert(option.name), "{}", option.name);
            assert!(help("install").contains(option.help), "{}", option.name);
        }
    }
}
