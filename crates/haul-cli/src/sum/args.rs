//! Options of `haul sum` and msum, as typed.

use super::personality::Personality;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;

/// Print or check checksums of files. With no FILE, or when FILE is -, read standard input.
#[derive(Debug, Default, Parser)]
#[command(args_override_self = true, infer_long_args = true, disable_version_flag = true)]
pub(crate) struct Args {
    /// Hash these files, or directories with -r.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<OsString>,
    /// Compute the digests of the algorithms in LIST, separated by commas, from one read of each
    /// file.
    #[arg(short, long, value_name = "LIST", visible_alias = "hash-type", action = ArgAction::Append)]
    pub(crate) algorithm: Vec<String>,
    /// Read checksums from the FILEs and check them.
    #[arg(short, long)]
    pub(crate) check: bool,
    /// Print digests of hash trees over leaves of SIZE bytes [default: 4M].
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "4M")]
    pub(crate) tree: Option<String>,
    /// Hash the files in directories, in the order of their names.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Read the names of files from LIST, one per line; - is standard input.
    #[arg(long, value_name = "LIST")]
    pub(crate) files_from: Option<OsString>,
    /// End names in LIST with NUL instead of newline.
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Print `ALGORITHM (FILE) = DIGEST`; the default for several algorithms.
    #[arg(long)]
    pub(crate) tag: bool,
    /// Print `DIGEST  FILE`; the default for one algorithm.
    #[arg(long)]
    pub(crate) untagged: bool,
    /// Mark lines with `*`; files are always read as binary.
    #[arg(short, long, overrides_with = "text")]
    pub(crate) binary: bool,
    /// Do not mark lines; the default.
    #[arg(short, long, overrides_with = "binary")]
    pub(crate) text: bool,
    /// End lines with NUL and do not escape names.
    #[arg(short, long)]
    pub(crate) zero: bool,
    /// Print digests in base64 instead of hexadecimal.
    #[arg(long)]
    pub(crate) base64: bool,
    /// Print only the bytes of one file's digest.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Write a waybill: digests, and BLAKE3 of each object, for a later 'haul verify'.
    #[arg(long, value_name = "FILE")]
    pub(crate) waybill: Option<OsString>,
    /// Accept files whose bytes changed although their size and time are those of an earlier
    /// section of the waybill, or of digests that an earlier --store left with them; without this
    /// option they are reported as rotted, and keep their digests.
    #[arg(long)]
    pub(crate) accept_changes: bool,
    /// Also keep digests of leaves of SIZE in the waybill, for `haul verify --locate` (a power of
    /// two, at most the object size) [default: 1K].
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "1K")]
    pub(crate) leaf: Option<String>,
    /// Store the digests, and BLAKE3 of each object, with the files: in extended attributes
    /// (xattr), in files of the same names in .haul (tree), in attributes of XRootD or EOS (xrootd,
    /// eos), or with --waybill (waybill). `haul verify DIR` finds them.
    #[arg(long, value_name = "FORM")]
    pub(crate) store: Option<String>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print digests without names.
    #[arg(long)]
    pub(crate) no_names: bool,
    /// Hash with N workers.
    #[arg(long, value_name = "N", visible_alias = "num-threads")]
    pub(crate) threads: Option<String>,
    /// Set the size of one read; a plain number counts MiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffer_size: Option<String>,
    /// Split files among workers in pieces of SIZE.
    #[arg(long, value_name = "SIZE")]
    pub(crate) object_size: Option<String>,
    /// Read without the page cache.
    #[arg(long)]
    pub(crate) direct_read: bool,
    /// Drop the read data from the page cache.
    #[arg(long)]
    pub(crate) fadvise_read: bool,
    /// Accepted for compatibility with msum: reading and hashing always run in parallel.
    #[arg(long, hide = true)]
    pub(crate) double_buffer: bool,
    /// Accepted for compatibility with b3sum: files are never mapped.
    #[arg(long, hide = true)]
    pub(crate) no_mmap: bool,
    /// Hash files larger than SIZE as trees over parts of SIZE; a plain number counts MiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) split_size: Option<String>,
    /// Set the leaf size of the trees of --split-size; a plain number counts KiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) hash_leaf_size: Option<String>,
    /// Print the digests of the parts; with -c report the corrupt parts of a file.
    #[arg(long)]
    pub(crate) check_tree: bool,
    /// Start at byte POS.
    #[arg(long, value_name = "POS")]
    pub(crate) offset: Option<String>,
    /// Hash at most LEN bytes.
    #[arg(short, long, value_name = "LEN")]
    pub(crate) length: Option<String>,
    /// Read lines `FILE RANGES` from standard input: URI-escaped names, ranges `START-END,...`.
    #[arg(long)]
    pub(crate) read_stdin: bool,
    /// Combine the values of adjacent blocks, given as `VALUE:LENGTH` or as lines `VALUE LENGTH`.
    #[arg(long)]
    pub(crate) combine: bool,
    /// With -c, do not print OK for each matching file.
    #[arg(short, long, overrides_with_all = ["status", "warn"])]
    pub(crate) quiet: bool,
    /// With -c, print nothing; only the exit status shows the result.
    #[arg(long, overrides_with_all = ["quiet", "warn"])]
    pub(crate) status: bool,
    /// With -c, fail for lines that are not checksums.
    #[arg(long)]
    pub(crate) strict: bool,
    /// With -c, print lines that are not checksums.
    #[arg(short, long, overrides_with_all = ["quiet", "status"])]
    pub(crate) warn: bool,
    /// With -c, skip missing files.
    #[arg(long)]
    pub(crate) ignore_missing: bool,
    /// Show a progress bar on a terminal.
    #[arg(long)]
    pub(crate) progress: bool,
    /// Print the version.
    #[arg(long)]
    pub(crate) version: bool,
}

/// Reason to stop before the command runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Answer to a question such as `--help`: print it and succeed.
    Answer(String),
    /// Usage error in the tool's wording, with a hint at its help.
    UsageError(String),
    /// Usage error without that hint; the tool's name precedes each line.
    Failure(String),
    /// The hint alone.
    Usage,
    /// Usage error with its line ends, without the tool's name.
    Words(String),
}

/// Returns the output of `--version`.
pub(super) fn version(tool: Personality) -> String {
    format!("{} (Surehaul) {}\n", tool.name, env!("CARGO_PKG_VERSION"))
}

impl Args {
    /// Parses the arguments as the tool does.
    pub(crate) fn read(tool: Personality, args: &[OsString]) -> Result<Args, Stop> {
        let mut command = Args::command().name(tool.name).no_binary_name(true);
        let matches = command.try_get_matches_from_mut(args);
        let read = matches.and_then(|matches| Args::from_arg_matches(&matches));
        let read = read.map_err(|error| explain(&error, args, &command))?;
        if read.version {
            return Err(Stop::Answer(version(tool)));
        }
        Ok(read)
    }
}

/// Translates an error of the argument parser to getopt's wording.
fn explain(error: &clap::Error, args: &[OsString], command: &clap::Command) -> Stop {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let invalid = context(ContextKind::InvalidArg);
    let option = invalid.split([' ', '=', '[']).next().unwrap_or_default().to_owned();
    let text = match error.kind() {
        ErrorKind::DisplayHelp => return Stop::Answer(error.render().to_string()),
        ErrorKind::UnknownArgument => unknown(&option, args, command),
        ErrorKind::TooManyValues => format!("option '{option}' doesn't allow an argument"),
        ErrorKind::InvalidValue if context(ContextKind::InvalidValue).is_empty() => {
            let typed = args.last().map(|arg| arg.to_string_lossy().into_owned()).unwrap_or_default();
            match typed.chars().last() {
                Some(letter) if !typed.starts_with("--") => {
                    format!("option requires an argument -- '{letter}'")
                }
                _ => format!("option '{option}' requires an argument"),
            }
        }
        _ => error.to_string().trim_start_matches("error: ").lines().next().unwrap_or_default().to_owned(),
    };
    Stop::UsageError(text)
}

fn unknown(option: &str, args: &[OsString], command: &clap::Command) -> String {
    let Some(long) = option.strip_prefix("--") else {
        return format!("invalid option -- '{}'", option.trim_start_matches('-'));
    };
    let longs = command.get_arguments().filter_map(|arg| arg.get_long());
    let alike: Vec<String> =
        longs.filter(|name| name.starts_with(long)).map(|name| format!("'--{name}'")).collect();
    if alike.len() > 1 {
        return format!("option '{option}' is ambiguous; possibilities: {}", alike.join(" "));
    }
    let typed = args.iter().map(|arg| arg.to_string_lossy());
    let whole = typed.filter(|arg| arg.starts_with(option)).map(|arg| arg.into_owned()).next();
    format!("unrecognized option '{}'", whole.as_deref().unwrap_or(option))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_sections("docs/options/sums.md", &["haul sum"], documented::typed_by::<Args>());
    }
}
