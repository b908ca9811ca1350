//! Options of `haul check`, as typed.

use clap::{ArgAction, Parser};
use std::ffi::OsString;

/// Check files against lists of checksums in any format: md5sum and its relatives, BSD tags, b3sum,
/// xxhsum, cksum, sum, XRootD, EOS, hashdeep, rclone, mutil, SFV, BagIt and haul's JSON. Report the
/// detected format of each list. With no LIST, or when LIST is -, read standard input.
#[derive(Debug, Default, Parser)]
#[command(name = "haul check", no_binary_name = true, args_override_self = true, infer_long_args = true)]
#[command(disable_version_flag = true)]
pub(super) struct Args {
    /// Check these lists, manifests of bags, or directories of bags.
    #[arg(value_name = "LIST")]
    pub(super) lists: Vec<OsString>,
    /// Check only digests of the algorithms NAMES, separated by commas. Digests without a tag count
    /// as digests of these algorithms.
    #[arg(short, long, value_name = "NAMES", action = ArgAction::Append)]
    pub(super) algorithm: Vec<String>,
    /// Find the files in DIR [default: the working directory, or the bag].
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(super) directory: Option<OsString>,
    /// Do not print OK for each matching file, nor the detected format of a list without failures.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Print nothing; only the exit status shows the result.
    #[arg(long)]
    pub(super) status: bool,
    /// Fail for lines that are not checksums.
    #[arg(long)]
    pub(super) strict: bool,
    /// Print lines that are not checksums.
    #[arg(short, long)]
    pub(super) warn: bool,
    /// Skip missing files.
    #[arg(long)]
    pub(super) ignore_missing: bool,
    /// End lines of the lists with NUL; names are not escaped.
    #[arg(short, long)]
    pub(super) zero: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(super) json: bool,
    /// Set the leaf size of the trees in lines of mutil [default: tries 4M and 1G].
    #[arg(long, value_name = "SIZE")]
    pub(super) tree: Option<String>,
    /// Set the part size in lines of mutil, which have one digest per part [default: a leaf].
    #[arg(long, value_name = "SIZE")]
    pub(super) split_size: Option<String>,
    /// Check with N workers.
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
