//! The options of `mv`, as one table.

use crate::getopt::Value::{No, Optional, Required};
use crate::getopt::{Opt, gnu, help_lines, later, letter, own};

/// All options; mv's in the order in which it lists the possibilities of an abbreviation.
pub(super) const OPTIONS: &[Opt] = &[
    gnu(
        "backup",
        "",
        Optional("CONTROL"),
        "back up each existing destination; CONTROL: none, simple, existing, numbered",
    ),
    letter("b", "like --backup without CONTROL"),
    gnu("context", "Z", No, "accepted for SELinux; without effect here"),
    gnu("force", "f", No, "do not ask before overwriting"),
    gnu("interactive", "i", No, "ask before overwriting"),
    gnu("no-clobber", "n", No, "leave existing files alone; of -f, -i and -n the last one holds"),
    gnu("no-target-directory", "T", No, "treat DEST as a file"),
    gnu("strip-trailing-slashes", "", No, "remove slashes behind each SOURCE"),
    gnu("suffix", "S", Required("SUFFIX"), "the suffix of backups"),
    gnu("target-directory", "t", Required("DIRECTORY"), "move all SOURCEs into DIRECTORY"),
    gnu(
        "update",
        "u",
        Optional("WHICH"),
        "which existing files are replaced: older (default), all, none, none-fail",
    ),
    gnu("verbose", "v", No, "say what is done"),
    later("debug", No, "same as -v: how a file is moved is said in any case"),
    later("exchange", No, "let SOURCE and DEST change places"),
    later("no-copy", No, "move nothing that can't be renamed"),
    own(
        "threads",
        Required("N"),
        "copy with N worker threads where a rename can't be (default: one a processor)",
    ),
    own(
        "split-size",
        Required("MIB"),
        "split files over workers in pieces of this size, a power of two (default 4)",
    ),
    own("buffer-size", Required("MIB"), "read and write this much at a time"),
    own("print-stats", No, "print size, time and rate of each copied file"),
    own("progress", No, "draw a progress bar if standard error is a terminal"),
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
    use std::collections::HashSet;

    #[test]
    fn no_two_options_are_typed_alike() {
        let (mut letters, mut names) = (HashSet::new(), HashSet::new());
        for option in OPTIONS {
            assert!(option.shorts.chars().all(|short| letters.insert(short)), "{}", option.name);
            assert!(names.insert(option.name), "{}", option.name);
            assert!(help("mv").contains(option.help), "{}", option.name);
        }
    }
}
