//! What was typed, not yet what it means.

use clap::{ArgAction, Parser};
use std::ffi::OsString;

/// Check files against lists of checksums of any form: of md5sum and its relatives, BSD tags, b3sum, xxhsum, cksum,
/// sum, XRootD, EOS, hashdeep, rclone, mutil, SFV, BagIt and haul's JSON. Says what each list was taken for.
/// With no LIST, or when LIST is -, read standard input.
#[derive(Debug, Default, Parser)]
#[command(name = "haul check", no_binary_name = true, args_override_self = true, infer_long_args = true)]
#[command(disable_version_flag = true)]
pub(super) struct Args {
    /// Lists, manifests of bags, or the directories of bags.
    #[arg(value_name = "LIST")]
    pub(super) lists: Vec<OsString>,
    /// Check only these kinds, one or several separated by commas; digests without a tag are of these kinds.
    #[arg(short, long, value_name = "NAMES", action = ArgAction::Append)]
    pub(super) algorithm: Vec<String>,
    /// Look for the files in DIR (the working directory, or the bag).
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(super) directory: Option<OsString>,
    /// Don't print OK for each file that is, nor what a list was taken for if all went well.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Print nothing; the exit status tells.
    #[arg(long)]
    pub(super) status: bool,
    /// Fail for lines that are no checksums.
    #[arg(long)]
    pub(super) strict: bool,
    /// Name lines that are no checksums.
    #[arg(short, long)]
    pub(super) warn: bool,
    /// Pass over files that are missing.
    #[arg(long)]
    pub(super) ignore_missing: bool,
    /// Lines of the lists end with NUL, and nothing in names is escaped.
    #[arg(short, long)]
    pub(super) zero: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub(super) json: bool,
    /// The leaves of the trees that lines of mutil are about (tries 4M and 1G).
    #[arg(long, value_name = "SIZE")]
    pub(super) tree: Option<String>,
    /// The parts of which such a line has one digest each (a leaf).
    #[arg(long, value_name = "SIZE")]
    pub(super) split_size: Option<String>,
    /// How many workers.
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<String>,
    /// Show a progress bar on a terminal.
    #[arg(long)]
    pub(super) progress: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/check.md", documented::typed_by::<Args>());
    }
}
