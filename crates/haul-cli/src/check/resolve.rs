//! Resolution of the options of `haul check`.

use super::args::Args;
use haul_digest::{Algorithm, list};
use haul_engine::sum::Settings;
use haul_model::{ByteLen, limits, parse_size};
use std::ffi::OsString;
use std::path::PathBuf;
use thiserror::Error;

/// A completely resolved check.
pub(super) struct Job {
    pub(super) settings: Settings,
    /// Lists, bags, `-`. Never empty.
    pub(super) lists: Vec<OsString>,
    /// Accepted algorithms; `None` for all.
    pub(super) forced: Option<Vec<Algorithm>>,
    /// Directory that names in lists are relative to. `None` for the working directory and, for a
    /// bag, its own directory.
    pub(super) directory: Option<PathBuf>,
    pub(super) zero: bool,
    pub(super) output_options: OutputOptions,
    pub(super) trees: Trees,
    pub(super) progress: bool,
}

/// Output options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OutputOptions {
    pub(super) quiet: bool,
    pub(super) status: bool,
    pub(super) strict: bool,
    pub(super) warn: bool,
    pub(super) ignore_missing: bool,
    pub(super) json: bool,
}

/// Possible shapes of the trees in mutil's lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trees {
    /// Leaf sizes to try, the most likely first. Never empty.
    pub(super) leaves: Vec<ByteLen>,
    /// Size of the part of each digest in a line with several; a leaf if `None`.
    pub(super) part: Option<ByteLen>,
}

/// Usage error.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum UsageError {
    #[error("{0}")]
    Algorithm(#[from] haul_digest::UnknownAlgorithm),
    #[error("{0}")]
    Size(String),
    #[error("invalid leaf size 0: a leaf has at least one byte")]
    EmptyLeaf,
    #[error("invalid split size: it must be the leaf size of --tree times a power of two")]
    Split,
    #[error("invalid number of threads '{0}': valid values are 1 to {most}", most = limits::WORKERS_MAX)]
    Threads(String),
    #[error("cannot combine --json with --status")]
    SilentJson,
}

/// Usual leaf sizes of mutil's lines: those of `haul sum --tree` and of msum.
const LEAVES: [ByteLen; 2] = [ByteLen(limits::OBJECT_BYTES_DEFAULT), ByteLen(1 << 30)];

/// Resolves the arguments.
pub(super) fn resolve(args: Args) -> Result<Job, UsageError> {
    if args.json && args.status {
        return Err(UsageError::SilentJson);
    }
    let output_options = OutputOptions {
        quiet: args.quiet,
        status: args.status,
        strict: args.strict,
        warn: args.warn,
        ignore_missing: args.ignore_missing,
        json: args.json,
    };
    Ok(Job {
        settings: settings(args.threads.as_deref())?,
        lists: if args.lists.is_empty() { vec!["-".into()] } else { args.lists },
        forced: forced(&args.algorithm)?,
        directory: args.directory.map(PathBuf::from),
        zero: args.zero,
        output_options,
        trees: trees(args.tree.as_deref(), args.split_size.as_deref())?,
        progress: args.progress,
    })
}

fn forced(names: &[String]) -> Result<Option<Vec<Algorithm>>, UsageError> {
    let mut all = Vec::new();
    for name in names.iter().flat_map(|names| names.split(',')) {
        let name = name.trim();
        match list::forced(name) {
            Some(algorithms) => all.extend(algorithms),
            None => {
                return Err(UsageError::Algorithm(haul_digest::UnknownAlgorithm { name: name.to_owned() }));
            }
        }
    }
    Ok((!all.is_empty()).then_some(all))
}

fn settings(threads: Option<&str>) -> Result<Settings, UsageError> {
    let mut settings = Settings::new();
    if let Some(text) = threads {
        let wanted = text.parse().ok().filter(|wanted| (1..=limits::WORKERS_MAX).contains(wanted));
        settings.workers = wanted.ok_or_else(|| UsageError::Threads(text.to_owned()))?;
        settings.block_bytes = Settings::block_bytes_for(settings.workers);
    }
    Ok(settings)
}

fn trees(leaf: Option<&str>, part: Option<&str>) -> Result<Trees, UsageError> {
    let size =
        |text: &str| parse_size(text, 1).map(ByteLen).map_err(|error| UsageError::Size(error.to_string()));
    let (leaf, part) = (leaf.map(size).transpose()?, part.map(size).transpose()?);
    if leaf == Some(ByteLen(0)) {
        return Err(UsageError::EmptyLeaf);
    }
    let leaves = leaf.map_or(LEAVES.to_vec(), |leaf| vec![leaf]);
    if let Some(part) = part {
        let fits = |leaf: &ByteLen| part.0.is_multiple_of(leaf.0) && (part.0 / leaf.0).is_power_of_two();
        if !leaves.iter().any(fits) {
            return Err(UsageError::Split);
        }
        let leaves = leaves.into_iter().filter(fits).collect();
        return Ok(Trees { leaves, part: Some(part) });
    }
    Ok(Trees { leaves, part })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_selects_two_algorithms_and_other_names_one() {
        let read = |name: &str| forced(&[name.to_owned()]);
        assert_eq!(read("crc32"), Ok(Some(vec![Algorithm::Crc32, Algorithm::Cksum])));
        assert_eq!(read("zcrc32,md5"), Ok(Some(vec![Algorithm::Crc32, Algorithm::Md5])));
        assert_eq!(forced(&[]), Ok(None));
        assert!(matches!(read("md7"), Err(UsageError::Algorithm(_))));
    }

    #[test]
    fn tree_leaf_and_part_sizes_are_validated() {
        assert_eq!(trees(None, None).unwrap().leaves, LEAVES);
        assert_eq!(trees(Some("100"), Some("400")).unwrap().part, Some(ByteLen(400)));
        assert_eq!(trees(Some("0"), None), Err(UsageError::EmptyLeaf));
        assert_eq!(trees(Some("100"), Some("300")), Err(UsageError::Split));
        assert_eq!(trees(None, Some("8M")).unwrap().leaves, [ByteLen(4 << 20)]);
        assert!(matches!(trees(Some("x"), None), Err(UsageError::Size(_))));
    }
}
