//! What was typed, not yet what it means.

use super::personality::Personality;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;

/// Print or check checksums of files. With no FILE, or when FILE is -, read standard input.
#[derive(Debug, Default, Parser)]
#[command(args_override_self = true, infer_long_args = true, disable_version_flag = true)]
pub(crate) struct Args {
    /// Files, or directories with -r.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<OsString>,
    /// Which digests: one or several, separated by commas; all come from one read of the file.
    #[arg(short, long, value_name = "LIST", visible_alias = "hash-type", action = ArgAction::Append)]
    pub(crate) algorithm: Vec<String>,
    /// Read checksums from the FILEs and check them.
    #[arg(short, long)]
    pub(crate) check: bool,
    /// Digests of hash trees over leaves of SIZE bytes (4M).
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "4M")]
    pub(crate) tree: Option<String>,
    /// Hash the files in directories, in the order of their names.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Take the names of files from LIST, one a line; - is the standard input.
    #[arg(long, value_name = "LIST")]
    pub(crate) files_from: Option<OsString>,
    /// Names in the list end with NUL instead of a line break.
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Print `ALGORITHM (FILE) = DIGEST`; the default for several algorithms.
    #[arg(long)]
    pub(crate) tag: bool,
    /// Print `DIGEST  FILE`; the default for one algorithm.
    #[arg(long)]
    pub(crate) untagged: bool,
    /// Mark lines with `*`; reading is binary anyway.
    #[arg(short, long, overrides_with = "text")]
    pub(crate) binary: bool,
    /// Don't mark lines; the default.
    #[arg(short, long, overrides_with = "binary")]
    pub(crate) text: bool,
    /// End lines with NUL and escape nothing in names.
    #[arg(short, long)]
    pub(crate) zero: bool,
    /// Digests in base64 instead of hexadecimal.
    #[arg(long)]
    pub(crate) base64: bool,
    /// The bytes of one file's digest and nothing else.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Write a waybill: digests, and BLAKE3 of each object, to verify the files by later.
    #[arg(long, value_name = "FILE")]
    pub(crate) waybill: Option<OsString>,
    /// Keep digests of leaves of SIZE (1K unless given; a power of two up to the object's) in the waybill as well, for
    /// `haul verify --locate`.
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "1K")]
    pub(crate) leaf: Option<String>,
    /// Keep the digests, and BLAKE3 of each object, with the files: in extended attributes (xattr), in files of the same
    /// names in .haul (tree), in attributes as XRootD or EOS keep theirs (xrootd, eos), or with --waybill (waybill). `haul
    /// verify DIR` finds them.
    #[arg(long, value_name = "FORM")]
    pub(crate) store: Option<String>,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Digests without names.
    #[arg(long)]
    pub(crate) no_names: bool,
    /// How many workers.
    #[arg(long, value_name = "N", visible_alias = "num-threads")]
    pub(crate) threads: Option<String>,
    /// Bytes of one read; a plain number counts MiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffer_size: Option<String>,
    /// Pieces in which workers share a file.
    #[arg(long, value_name = "SIZE")]
    pub(crate) object_size: Option<String>,
    /// Read past the page cache.
    #[arg(long)]
    pub(crate) direct_read: bool,
    /// Tell the kernel to drop what was read from the page cache.
    #[arg(long)]
    pub(crate) fadvise_read: bool,
    /// Accepted for msum's sake: reading and hashing go side by side anyway.
    #[arg(long, hide = true)]
    pub(crate) double_buffer: bool,
    /// Accepted for b3sum's sake: nothing is mapped.
    #[arg(long, hide = true)]
    pub(crate) no_mmap: bool,
    /// Hash files larger than SIZE as trees over parts of SIZE; a plain number counts MiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) split_size: Option<String>,
    /// Leaves of those trees; a plain number counts KiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) hash_leaf_size: Option<String>,
    /// Print the digests of the parts; with -c say which parts of a file are corrupt.
    #[arg(long)]
    pub(crate) check_tree: bool,
    /// First byte to hash.
    #[arg(long, value_name = "POS")]
    pub(crate) offset: Option<String>,
    /// Most bytes to hash.
    #[arg(short, long, value_name = "LEN")]
    pub(crate) length: Option<String>,
    /// Take lines `FILE RANGES` from the standard input: names URI-escaped, ranges `START-END,...`.
    #[arg(long)]
    pub(crate) read_stdin: bool,
    /// Join the values of neighbouring blocks, given as `VALUE:LENGTH` or as lines `VALUE LENGTH`.
    #[arg(long)]
    pub(crate) combine: bool,
    /// With -c, don't print OK for each file that is.
    #[arg(short, long, overrides_with_all = ["status", "warn"])]
    pub(crate) quiet: bool,
    /// With -c, print nothing; the exit status tells.
    #[arg(long, overrides_with_all = ["quiet", "warn"])]
    pub(crate) status: bool,
    /// With -c, fail for lines that are no checksums.
    #[arg(long)]
    pub(crate) strict: bool,
    /// With -c, name lines that are no checksums.
    #[arg(short, long, overrides_with_all = ["quiet", "status"])]
    pub(crate) warn: bool,
    /// With -c, pass over files that are missing.
    #[arg(long)]
    pub(crate) ignore_missing: bool,
    /// Show a progress bar on a terminal.
    #[arg(long)]
    pub(crate) progress: bool,
    /// Print the version.
    #[arg(long)]
    pub(crate) version: bool,
}

/// Why there are no arguments to go on with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A question was answered: print this and succeed.
    Answer(String),
    /// A mistake, in the words of the tool, with a hint at its help.
    Mistake(String),
    /// A mistake without that hint; each line is signed by the tool.
    Failure(String),
    /// The hint alone.
    Usage,
    /// Words on the standard error that no tool's name stands before, and whether they are an answer.
    Words {
        /// With its line ends.
        text: String,
        /// Whether the command succeeded.
        well: bool,
    },
}

/// What `--version` says.
pub(super) fn version(tool: Personality) -> String {
    format!("{} (Surehaul) {}\n", tool.name, env!("CARGO_PKG_VERSION"))
}

impl Args {
    /// Reads the arguments as the tool would.
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

/// An error of the argument parser in getopt's words.
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
    Stop::Mistake(text)
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
