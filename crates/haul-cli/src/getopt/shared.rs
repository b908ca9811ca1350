//! Table rows of the options that cp, mv and install share.

use super::table::Value::{No, Optional, Required};
use super::table::{Opt, gnu, letter, own};

pub(crate) const BACKUP: Opt = gnu(
    "backup",
    "",
    Optional("CONTROL"),
    "back up each existing destination; CONTROL: none, simple, existing, numbered",
);
pub(crate) const B: Opt = letter("b", "like --backup without CONTROL");
pub(crate) const SUFFIX: Opt =
    gnu("suffix", "S", Required("SUFFIX"), "append SUFFIX to the names of backups");
pub(crate) const NO_TARGET_DIRECTORY: Opt = gnu("no-target-directory", "T", No, "treat DEST as a file");
pub(crate) const STRIP_TRAILING_SLASHES: Opt =
    gnu("strip-trailing-slashes", "", No, "remove trailing slashes from each SOURCE");
pub(crate) const UPDATE: Opt = gnu(
    "update",
    "u",
    Optional("WHICH"),
    "set which existing files to replace: older (default), all, none, none-fail",
);
pub(crate) const VERBOSE: Opt = gnu("verbose", "v", No, "print each action");
pub(crate) const SPLIT_SIZE: Opt = own(
    "split-size",
    Required("MIB"),
    "split files among workers in pieces of MIB MiB, a power of two (default 4)",
);
pub(crate) const BUFFER_SIZE: Opt = own("buffer-size", Required("MIB"), "read and write MIB MiB at a time");
pub(crate) const PROGRESS: Opt = own("progress", No, "draw a progress bar if standard error is a terminal");
pub(crate) const JSON: Opt = own("json", No, "print one JSON event per line on standard output");
pub(crate) const HELP: Opt = gnu("help", "", No, "print this help and exit");
pub(crate) const VERSION: Opt = gnu("version", "", No, "print the version and exit");
