//! Resolution of the options of `haul sum`.

use super::args::Args;
use super::check::{CheckJob, ListTool, OutputOptions};
use super::combine::CombineJob;
use super::format::{Format, Shape};
use super::keyed::KeyedJob;
use super::line::LineRules;
use super::list::ListKind;
use super::personality::{Family, Personality};
use super::store::StoreRequest;
use super::waybill::WaybillRequest;
use haul_digest::Algorithm;
use haul_engine::sum::{Form, Recipe, Settings};
use haul_model::{ByteLen, ByteOffset, LeafSize, ObjectSize, limits, parse_size};
use std::ffi::OsString;
use std::sync::Arc;

/// Resolved job of the command.
pub(crate) enum SumJob {
    /// Print digests.
    Print(PrintJob),
    /// Check lists.
    Check(CheckJob),
    /// Combine the values of blocks.
    Combine(CombineJob),
    /// Print BLAKE3 digests that are keyed or of another length.
    Keyed(KeyedJob),
}

impl SumJob {
    /// Returns true if standard input is read, for names, lists or bytes.
    pub(crate) fn reads_stdin(&self) -> bool {
        let dash = |paths: &[OsString]| paths.iter().any(|path| path == "-");
        match self {
            SumJob::Print(PrintJob { files: Files::Given(paths), .. }) => dash(paths),
            SumJob::Print(PrintJob { files: Files::Listed(lists, _), .. }) => dash(lists),
            SumJob::Check(job) => dash(&job.lists),
            SumJob::Combine(job) => job.parts.is_empty(),
            // Files are read one after the other, without polling the stop flag.
            SumJob::Keyed(_) => true,
        }
    }
}

/// Job that prints digests of files.
pub(crate) struct PrintJob {
    pub(crate) settings: Settings,
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) files: Files,
    pub(crate) offset: ByteOffset,
    pub(crate) length: Option<ByteLen>,
    pub(crate) recurse: bool,
    pub(crate) format: Format,
    /// True if standard input was named, and not read by default.
    pub(crate) named: bool,
    pub(crate) progress: bool,
    /// Waybill to write.
    pub(crate) waybill: Option<WaybillRequest>,
    /// Store of digests with the files.
    pub(crate) store: Option<StoreRequest>,
}

/// Source of the names of files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// The command line.
    Given(Vec<OsString>),
    /// Lists.
    Listed(Vec<OsString>, ListKind),
}

const DEFAULT_LEAF: u64 = limits::OBJECT_BYTES_DEFAULT;

/// Default leaf size of msum's trees, in bytes.
const MSUM_LEAF: u64 = 1 << 30;

/// Resolves the arguments. The error is a message in the tool's wording.
pub(crate) fn resolve(tool: Personality, args: Args) -> Result<SumJob, String> {
    complain_of_contradictions(tool, &args)?;
    let algorithms = algorithms(tool, &args)?;
    if args.combine {
        return Ok(SumJob::Combine(combine_job(tool, &args, &algorithms)?));
    }
    let settings = settings_of(&args)?;
    let form = form(tool, &args)?;
    if args.check {
        return Ok(SumJob::Check(check_job(tool, args, algorithms, form, settings)?));
    }
    let format = format(tool, &args, algorithms.len())?;
    let (offset, length) = range(&args)?;
    let named = !args.files.is_empty();
    let files = match (args.files_from, args.read_stdin) {
        (Some(_), true) => return Err("cannot combine --files-from with --read-stdin".to_owned()),
        (Some(_), _) | (_, true) if named => {
            return Err("cannot combine file operands with a list of files".to_owned());
        }
        (Some(list), _) => Files::Listed(vec![list], ListKind::Names(if args.null { 0 } else { b'\n' })),
        (None, true) => Files::Listed(vec!["-".into()], ListKind::Ranges),
        _ if named => Files::Given(args.files),
        _ => Files::Given(vec!["-".into()]),
    };
    let one_file = matches!(&files, Files::Given(paths) if paths.len() == 1) && !args.recursive;
    if args.raw && (!one_file || algorithms.len() > 1) {
        return Err("the --raw option is not supported with multiple files".to_owned());
    }
    let named = named || !matches!(files, Files::Given(_));
    let asked = algorithms.clone();
    let mut recipe = Recipe { algorithms, form };
    let is_part = offset.0 > 0 || length.is_some();
    if args.store.as_deref() == Some("waybill") && args.waybill.is_none() {
        return Err("--store=waybill needs --waybill FILE".to_owned());
    }
    let leaf = args.leaf.as_deref().map(|text| leaf(text, settings.object)).transpose()?;
    if leaf.is_some() && args.waybill.is_none() {
        return Err("--leaf needs --waybill FILE, which stores the leaf digests".to_owned());
    }
    if args.accept_changes && args.waybill.is_none() && args.store.is_none() {
        return Err(
            "--accept-changes needs --waybill FILE or --store FORM, whose digests it replaces".to_owned()
        );
    }
    let mut waybill = args
        .waybill
        .map(|path| WaybillRequest::resolve(path, leaf, &files, is_part, settings.object, &mut recipe))
        .transpose()?;
    if let Some(request) = &mut waybill {
        request.accepts_changes = args.accept_changes;
    }
    let store = args.store.filter(|form| form != "waybill");
    let mut store = store
        .map(|form| StoreRequest::resolve(&form, &files, is_part, settings.object, &asked, &mut recipe))
        .transpose()?;
    if let Some(request) = &mut store {
        request.accepts_changes = args.accept_changes;
    }
    let recipe = Arc::new(recipe);
    let (recurse, progress) = (args.recursive, args.progress);
    let shown = PrintJob {
        settings,
        recipe,
        files,
        offset,
        length,
        recurse,
        format,
        named,
        progress,
        waybill,
        store,
    };
    Ok(SumJob::Print(shown))
}

/// Reports the contradictions that the coreutils refuse, in their wording.
fn complain_of_contradictions(tool: Personality, args: &Args) -> Result<(), String> {
    let given = |on: bool, text: &str| if on { Err(text.to_owned()) } else { Ok(()) };
    given(args.tag && args.text, "--tag does not support --text mode")?;
    if args.check {
        let is_msum = tool.family == Family::Msum;
        given(args.zero && is_msum, "the --zero option is not supported when verifying checksums")?;
        given(args.tag, "the --tag option is meaningless when verifying checksums")?;
        let mode = "the --binary and --text options are meaningless when verifying checksums";
        given(args.binary || args.text, mode)?;
        given(args.read_stdin, "the --read-stdin option is meaningless when verifying checksums")?;
        given(args.store.is_some(), "cannot combine --store with --check; see 'haul verify'")?;
        given(args.leaf.is_some(), "cannot combine --leaf with --check; see 'haul verify --locate'")?;
        given(args.waybill.is_some(), "cannot combine --waybill with --check; see 'haul verify'")?;
        return given(
            args.files_from.is_some(),
            "the --files-from option is meaningless when verifying checksums",
        );
    }
    let only = |name| format!("the --{name} option is meaningful only when verifying checksums");
    given(args.ignore_missing, &only("ignore-missing"))?;
    given(args.status, &only("status"))?;
    given(args.warn, &only("warn"))?;
    given(args.quiet, &only("quiet"))?;
    given(args.strict, &only("strict"))
}

fn algorithms(tool: Personality, args: &Args) -> Result<Vec<Algorithm>, String> {
    let mut algorithms = Vec::new();
    for name in args.algorithm.iter().flat_map(|list| list.split(',')) {
        let algorithm = Algorithm::parse(name.trim()).map_err(|error| error.to_string())?;
        if !algorithms.contains(&algorithm) {
            algorithms.push(algorithm);
        }
    }
    if algorithms.is_empty() {
        algorithms.push(tool.algorithm);
    }
    Ok(algorithms)
}

fn size(text: &str, unit: u64) -> Result<u64, String> {
    parse_size(text, unit).map_err(|error| error.to_string())
}

fn leaf(text: &str, object: ObjectSize) -> Result<LeafSize, String> {
    let bytes = size(text, 1).map_err(|error| format!("--leaf: {error}"))?;
    LeafSize::new(bytes, object).map_err(|error| format!("--leaf: {error}"))
}

pub(super) fn settings_of(args: &Args) -> Result<Settings, String> {
    let mut settings =
        match &args.threads {
            Some(text) => {
                let wanted = text.parse().ok().filter(|wanted| (1..=limits::WORKERS_MAX).contains(wanted));
                let most = limits::WORKERS_MAX;
                Settings::for_workers(wanted.ok_or_else(|| {
                    format!("invalid number of threads '{text}': valid values are 1 to {most}")
                })?)
            }
            None if is_one_small_file(args) => Settings::for_workers(1),
            None => Settings::new(),
        };
    if let Some(text) = &args.buffer_size {
        let bytes = size(text, 1 << 20)?.clamp(4096, limits::BLOCK_BYTES_MAX as u64);
        settings.block_bytes = (bytes as usize).next_multiple_of(4096);
    }
    if let Some(text) = &args.object_size {
        settings.object = ObjectSize::new(size(text, 1)?).map_err(|error| error.to_string())?;
    }
    if args.direct_read && args.fadvise_read {
        return Err("cannot combine --direct-read with --fadvise-read".to_owned());
    }
    settings.direct = args.direct_read;
    settings.drop_behind = args.fadvise_read;
    Ok(settings)
}

/// Maximum size of a file that is hashed in less time than a thread needs to start, in bytes.
const SMALL_BYTES_MAX: u64 = 1 << 20;

/// Returns true if the job is one small file, for which a second thread would be too late.
fn is_one_small_file(args: &Args) -> bool {
    let [file] = &args.files[..] else { return false };
    let found = std::fs::metadata(file);
    !args.check && found.is_ok_and(|found| found.is_file() && found.len() <= SMALL_BYTES_MAX)
}

/// Returns the form: plain or tree. In msum's terms, a split is the unit of `--check-tree`'s
/// values, a leaf is hashed as a whole, and a split is a leaf times a power of two.
fn form(tool: Personality, args: &Args) -> Result<Form, String> {
    let tree = args.tree.as_deref().map(|text| size(text, 1)).transpose()?;
    let split = args.split_size.as_deref().map(|text| size(text, 1 << 20)).transpose()?;
    let split = split.filter(|&bytes| bytes > 0);
    let leaf = args.hash_leaf_size.as_deref().map(|text| size(text, 1 << 10)).transpose()?;
    if tree.is_some() && (split.is_some() || leaf.is_some()) {
        return Err("cannot combine --tree with --split-size or --hash-leaf-size".to_owned());
    }
    if tree == Some(0) || leaf == Some(0) {
        return Err("invalid leaf size 0: a leaf has at least one byte".to_owned());
    }
    let msum = tool.family == Family::Msum;
    if tree.is_none() && split.is_none() && (msum || leaf.is_none()) && !args.check {
        return match args.check_tree && !msum {
            true => Ok(tree_form(DEFAULT_LEAF, None, true)),
            false => Ok(Form::Plain),
        };
    }
    let default_leaf = if msum { MSUM_LEAF } else { DEFAULT_LEAF };
    let split = split.map(|bytes| bytes.checked_next_power_of_two().unwrap_or(bytes));
    let leaf = tree.or(leaf).unwrap_or_else(|| split.unwrap_or(default_leaf).min(MSUM_LEAF));
    if let Some(split) = split
        && (split < leaf || !(split / leaf).is_power_of_two() || split % leaf != 0)
    {
        return Err("invalid split size: it must be the leaf size times a power of two".to_owned());
    }
    Ok(tree_form(leaf, split, args.check_tree))
}

fn tree_form(leaf: u64, split: Option<u64>, keep_subtrees: bool) -> Form {
    let subtree = keep_subtrees.then(|| ByteLen(split.unwrap_or(leaf)));
    Form::Tree { leaf: ByteLen(leaf), subtree }
}

fn range(args: &Args) -> Result<(ByteOffset, Option<ByteLen>), String> {
    let offset = args.offset.as_deref().map(|text| size(text, 1)).transpose()?.unwrap_or(0);
    let length = args.length.as_deref().map(|text| size(text, 1)).transpose()?;
    Ok((ByteOffset(offset), length.map(ByteLen)))
}

fn format(tool: Personality, args: &Args, algorithms: usize) -> Result<Format, String> {
    let asked: Vec<&str> =
        [(args.tag, "--tag"), (args.json, "--json"), (args.raw, "--raw"), (args.no_names, "--no-names")]
            .into_iter()
            .filter_map(|(on, name)| on.then_some(name))
            .collect();
    if let [first, second, ..] = asked[..] {
        return Err(format!("cannot combine {first} with {second}"));
    }
    let shape = match () {
        () if args.json => Shape::Json,
        () if args.raw => Shape::Raw,
        () if args.no_names => Shape::NoNames,
        () if args.tag || (algorithms > 1 && !args.untagged) => Shape::Tagged,
        () => Shape::Untagged { binary: args.binary },
    };
    Ok(Format { shape, zero: args.zero, base64: args.base64, family: tool.family })
}

fn check_job(
    tool: Personality,
    args: Args,
    algorithms: Vec<Algorithm>,
    form: Form,
    settings: Settings,
) -> Result<CheckJob, String> {
    let asked = !args.algorithm.is_empty();
    let tagged = asked.then(|| algorithms.clone());
    // haul's own lists are BLAKE3; without -a, a list may be of any tool.
    let guess = !asked && tool.family == Family::Haul;
    let others = Algorithm::ALL.iter().filter(|other| guess && other.is_cryptographic());
    let untagged: Vec<Algorithm> = algorithms.into_iter().chain(others.copied()).collect();
    let (mutil, any) = (tool.reads_mutil_lines(), tool.family == Family::Haul);
    let reading = ListTool::Field(LineRules { untagged, guess, tagged, mutil, zero: args.zero, any });
    let output_options = OutputOptions {
        quiet: args.quiet,
        status: args.status,
        strict: args.strict,
        warn: args.warn,
        ignore_missing: args.ignore_missing,
        json: args.json,
    };
    let lists = if args.files.is_empty() { vec!["-".into()] } else { args.files };
    let (leaf, subtree) = match form {
        Form::Tree { leaf, subtree } => (leaf, subtree.unwrap_or(leaf)),
        Form::Plain | Form::Objects { .. } => (ByteLen(DEFAULT_LEAF), ByteLen(DEFAULT_LEAF)),
    };
    Ok(CheckJob { settings, reading, output_options, lists, leaf, subtree, progress: args.progress })
}

fn combine_job(tool: Personality, args: &Args, algorithms: &[Algorithm]) -> Result<CombineJob, String> {
    let [algorithm] = algorithms[..] else {
        return Err("--combine accepts one algorithm at a time; choose one with -a".to_owned());
    };
    if args.algorithm.is_empty() && tool.family == Family::Haul {
        return Err("--combine needs -a with the algorithm of the values".to_owned());
    }
    if args.check {
        return Err("cannot combine --combine with --check".to_owned());
    }
    Ok(CombineJob { algorithm, parts: args.files.clone(), json: args.json })
}
