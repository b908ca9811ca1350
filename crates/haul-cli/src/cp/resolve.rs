//! Resolution of a command line: from options in their order to [`CopySettings`].

#[cfg(test)]
mod tests;

use super::batch;
use super::resume::{self, ResumableJob};
use super::waybill::{WaybillArgs, WaybillRequest};
use crate::getopt::backup::{BackupArgs, BackupEnvironment};
use crate::getopt::choice::{self, Choice, ChoiceError};
use crate::getopt::context::{self, ContextArgs, ContextError};
use crate::getopt::destination::{Destination, OperandError, split_last};
use crate::getopt::sizes::{self, SizeOptionError, Sizes};
use crate::getopt::update::ReplaceRule;
use crate::getopt::{ArgsError, ParsedArgs};
use haul_coreutils::cp::{
    Batch, CopyRules, CopySettings, Dereference, Existing, Make, Operands, Preserve, Print, is_here,
};
use haul_digest::{Algorithm, UnknownAlgorithm};
use haul_engine::copy::{Moving, Reflink, SparseRule, Verify, Workers, cause, quote};
use haul_model::{ByteOffset, LeafSizeError, limits};
use haul_sys::selinux::Policy;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use thiserror::Error;

/// A job and its output options.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) settings: CopySettings,
    /// `--progress`.
    pub(super) progress: bool,
    /// `--json`.
    pub(super) json: bool,
    /// `--waybill`.
    pub(super) waybill: Option<WaybillRequest>,
    /// `--resume`.
    pub(super) resume: Option<ResumableJob>,
}

/// Request of a command line.
#[derive(Debug)]
pub(super) enum Invocation {
    Copy(Box<Resolved>),
    Help,
    Version,
}

/// Usage error.
#[derive(Debug, Error)]
pub(super) enum UsageError {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    #[error(transparent)]
    Size(#[from] SizeOptionError),
    #[error(transparent)]
    Algorithm(#[from] UnknownAlgorithm),
    #[error(transparent)]
    Operands(#[from] OperandError),
    #[error("cannot make both hard and symbolic links")]
    BothLinks,
    #[error("options --backup and --no-clobber are mutually exclusive")]
    BackupAndKeep,
    #[error("--backup is mutually exclusive with -n or --update=none-fail")]
    BackupAndNone,
    #[error("--reflink can be used only with --sparse=auto")]
    ReflinkAndSparse,
    #[error("with --parents, the destination must be a directory")]
    ParentsNeedDirectory,
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error("cannot combine --attributes-only with {0}, which needs the data")]
    NoData(&'static str),
    #[error(
        "cannot combine --waybill with --offset, --length, --dst-offset or --read-stdin: a waybill lists complete files"
    )]
    PartAndWaybill,
    #[error("cannot combine --waybill with --link, which copies no data; use 'haul sum --waybill'")]
    LinksAndWaybill,
    #[error("--waybill-digests needs --waybill")]
    DigestsAlone,
    #[error("--leaf needs --waybill, which stores the leaf digests")]
    LeavesAlone,
    #[error("--leaf: {0}")]
    Leaf(#[from] LeafSizeError),
    #[error(
        "cannot combine --read-stdin with --interactive (-i): standard input holds the list, not answers"
    )]
    AskAndBatch,
    #[error("{option}: {why}")]
    LogOption { option: &'static str, why: String },
    #[error("{0} needs --resume: it applies only to the log of a resumable job")]
    NeedsResume(&'static str),
    #[error(
        "cannot combine --resume with {0}: a resumable job copies complete files and identifies its copies by their metadata"
    )]
    NotWithResume(&'static str),
    #[error("standard input: {}", cause(.0))]
    StandardInput(io::Error),
    #[error("target {}: {}", quote(path), cause(source))]
    Target { path: OsString, source: io::Error },
}

impl UsageError {
    /// Returns true if a hint at `--help` follows the message.
    pub(super) fn has_hint(&self) -> bool {
        use UsageError::{Context, Operands, StandardInput, Target};
        match self {
            Operands(error) => error.has_hint(),
            Context(_) | StandardInput(_) | Target { .. } => false,
            _ => true,
        }
    }
}

/// Values of the user's environment.
#[derive(Debug, Default)]
pub(super) struct Environment {
    /// `VERSION_CONTROL` and `SIMPLE_BACKUP_SUFFIX`.
    pub(super) backup: BackupEnvironment,
    /// `POSIXLY_CORRECT` is set: a copy through a dangling link at the sink creates the target
    /// file.
    pub(super) posix: bool,
    /// SELinux policy, if the kernel labels files.
    pub(super) policy: Option<Arc<dyn Policy>>,
}

/// Options read so far.
#[derive(Debug, Default)]
struct ParsedOptions {
    resume: resume::ResumeArgs,
    /// `--no-preserve` removed metadata that a resumable job needs.
    no_preserve: bool,
    rules: CopyRules,
    sparse: SparseRule,
    reflink: Reflink,
    dereference: Option<Dereference>,
    /// `-Z`, `--context`, `--preserve=context`.
    context: ContextArgs,
    /// `-n` or `-i`, the last one typed.
    clobber: Option<Existing>,
    /// `--update`.
    which: Option<ReplaceRule>,
    backup: BackupArgs,
    hard_link: bool,
    symbolic_link: bool,
    parents: bool,
    destination: Destination,
    sizes: Sizes,
    algorithm: Option<Algorithm>,
    check_tree: bool,
    print: Print,
    flags: Flags,
    read_stdin: bool,
    waybill: Option<OsString>,
    waybill_digests: Vec<Algorithm>,
    /// `--leaf`, in bytes.
    leaf: Option<u64>,
    progress: bool,
    json: bool,
}

/// Switches of mcp.
#[derive(Debug, Default)]
struct Flags {
    direct_read: bool,
    direct_write: bool,
    fadvise_read: bool,
    fadvise_write: bool,
    double_buffer: bool,
    verify: Option<Verify>,
}

/// Resolves the command line. The last operand is inspected: an existing directory receives the
/// others. Warnings go to `warn`, even if a usage error follows.
///
/// # Errors
/// Returns [`UsageError`]: the first error, in the order in which cp finds them.
pub(super) fn resolve(
    typed: ParsedArgs,
    environment: &Environment,
    warn: &mut dyn FnMut(&str),
) -> Result<Invocation, UsageError> {
    let typed_context = ContextArgs::with(environment.policy.clone());
    let mut reading = ParsedOptions {
        context: typed_context,
        resume: resume::ResumeArgs::of(&typed),
        ..ParsedOptions::default()
    };
    for option in &typed.options {
        match (option.name, option.value.as_deref()) {
            ("help", _) => return Ok(Invocation::Help),
            ("version", _) => return Ok(Invocation::Version),
            ("context" | "Z", value) => reading.context.option(value, context::IGNORED, warn),
            (name, value) => reading.option(name, value)?,
        }
    }
    if let Some(mistake) = typed.mistake {
        return Err(mistake.into());
    }
    reading.finish(typed.operands, environment).map(|resolved| Invocation::Copy(Box::new(resolved)))
}

impl ParsedOptions {
    fn option(&mut self, name: &str, value: Option<&OsStr>) -> Result<(), UsageError> {
        let is_taken = self.backup.option(name, value) || self.destination.option(name, value)?;
        if is_taken || self.resume.option(name, value)? {
            return Ok(());
        }
        let rules = &mut self.rules;
        match name {
            "archive" => self.archive(),
            "attributes-only" => rules.attributes_only = true,
            "copy-contents" => rules.copy_contents = true,
            "d" => {
                rules.preserve.links = true;
                self.dereference = Some(Dereference::Never);
            }
            "debug" => {
                rules.debug = true;
                rules.verbose = true;
            }
            "dereference" => self.dereference = Some(Dereference::Always),
            "force" => rules.force = true,
            "H" => self.dereference = Some(Dereference::Operands),
            "interactive" => self.clobber = Some(Existing::Ask),
            "keep-directory-symlink" => rules.keep_directory_symlink = true,
            "link" => self.hard_link = true,
            "no-clobber" => self.clobber = Some(Existing::Keep),
            "no-dereference" => self.dereference = Some(Dereference::Never),
            "p" => keep_basics(&mut rules.preserve),
            "no-preserve" => self.preserve("--no-preserve", value.unwrap_or_default(), false)?,
            "one-file-system" => rules.one_file_system = true,
            "parents" => self.parents = true,
            "preserve" => match value {
                None => keep_basics(&mut rules.preserve),
                Some(list) => self.preserve("--preserve", list, true)?,
            },
            "recursive" => rules.recursive = true,
            "remove-destination" => rules.remove_destination = true,
            "sparse" => self.sparse = choice::choose("--sparse", value.unwrap_or_default(), &SPARSE)?,
            "reflink" => {
                self.reflink = value
                    .map_or(Ok(Reflink::Always), |value| choice::choose("--reflink", value, &REFLINK))?;
            }
            "symbolic-link" => self.symbolic_link = true,
            "update" => self.which = Some(ReplaceRule::typed(value)?),
            "verbose" => rules.verbose = true,
            _ => return self.own_option(name, value),
        }
        Ok(())
    }

    /// Handles options that cp lacks.
    fn own_option(&mut self, name: &str, value: Option<&OsStr>) -> Result<(), UsageError> {
        match name {
            "direct-read" => self.flags.direct_read = true,
            "direct-write" => self.flags.direct_write = true,
            "fadvise-read" => self.flags.fadvise_read = true,
            "fadvise-write" => self.flags.fadvise_write = true,
            "double-buffer" => self.flags.double_buffer = true,
            "print-hash" => self.print.hash = true,
            "hash-type" => {
                let name = value.unwrap_or_default().to_string_lossy();
                self.algorithm = Some(Algorithm::parse(&name)?);
            }
            "check-tree" => self.check_tree = true,
            "print-stats" => self.print.stats = true,
            "print-src" => self.print.source_name = true,
            "read-stdin" => self.read_stdin = true,
            "skip-chmod" => self.rules.skip_chmod = true,
            "verify" => {
                let way =
                    value.map_or(Ok(Verify::ReadBack), |value| choice::choose("--verify", value, &VERIFY))?;
                self.flags.verify = Some(way);
            }
            "waybill" => self.waybill = value.map(OsStr::to_owned),
            "leaf" => {
                let size = value.map(|value| sizes::parse("leaf", value, 1)).transpose()?;
                self.leaf = Some(size.unwrap_or(limits::LEAF_BYTES_MIN));
            }
            "waybill-digests" => {
                for name in value.unwrap_or_default().to_string_lossy().split(',') {
                    self.waybill_digests.push(Algorithm::parse(name.trim())?);
                }
            }
            "progress" => self.progress = true,
            "json" => self.json = true,
            _ => self.sizes.set(name, value.unwrap_or_default())?,
        }
        Ok(())
    }

    /// Applies `-a`.
    fn archive(&mut self) {
        let keep = &mut self.rules.preserve;
        keep_basics(keep);
        keep.links = true;
        keep.xattr = true;
        self.context.keep_by_default();
        keep.reduce_diagnostics = true;
        self.rules.recursive = true;
        self.dereference = Some(Dereference::Never);
    }

    /// Applies `--preserve=LIST` and `--no-preserve=LIST`.
    fn preserve(&mut self, option: &'static str, list: &OsStr, on: bool) -> Result<(), UsageError> {
        for word in list.as_bytes().split(|&byte| byte == b',') {
            let keep = &mut self.rules.preserve;
            match choice::choose(option, OsStr::from_bytes(word), &PRESERVED_ATTRIBUTES)? {
                PreservedAttribute::Mode => {
                    keep.mode = on;
                    keep.explicit_no_mode = !on;
                    self.no_preserve |= !on;
                }
                PreservedAttribute::Timestamps => {
                    keep.timestamps = on;
                    self.no_preserve |= !on;
                }
                PreservedAttribute::Ownership => keep.ownership = on,
                PreservedAttribute::Links => keep.links = on,
                PreservedAttribute::Context if on => self.context.require(),
                PreservedAttribute::Context => self.context.leave(),
                PreservedAttribute::Xattr => {
                    keep.xattr = on;
                    keep.require_xattr = on;
                }
                PreservedAttribute::All => {
                    keep.mode = on;
                    keep.explicit_no_mode = !on;
                    keep.timestamps = on;
                    keep.ownership = on;
                    keep.links = on;
                    keep.xattr = on;
                    self.no_preserve |= !on;
                    if on { self.context.keep_by_default() } else { self.context.leave_by_default() }
                }
            }
        }
        Ok(())
    }

    fn finish(mut self, operands: Vec<OsString>, environment: &Environment) -> Result<Resolved, UsageError> {
        if self.hard_link && self.symbolic_link {
            return Err(UsageError::BothLinks);
        }
        self.existing()?;
        if self.reflink == Reflink::Always && self.sparse != SparseRule::Auto {
            return Err(UsageError::ReflinkAndSparse);
        }
        self.rules.backup = self.backup.rule(&environment.backup)?;
        let follows_none = self.rules.recursive && !self.hard_link;
        let default = if follows_none { Dereference::Never } else { Dereference::Always };
        self.rules.dereference = self.dereference.unwrap_or(default);
        self.rules.open_dangling = environment.posix;
        self.rules.contexts = std::mem::take(&mut self.context).rule()?;
        self.rules.make = match (self.hard_link, self.symbolic_link) {
            (true, _) => Make::HardLink,
            (_, true) => Make::SymbolicLink,
            _ => Make::Copy,
        };
        let first = operands.first().cloned();
        let mut operands = if self.read_stdin { self.batch(&operands)? } else { self.operands(operands)? };
        let mut moving = self.moving()?;
        if self.resume.is_resume() {
            self.fits_resume(&moving)?;
            self.rules.preserve.mode = true;
            self.rules.preserve.timestamps = true;
        }
        // The one before the target, if none is named by an option.
        let first = first.filter(|_| self.destination.directory().is_none());
        let resume = self.resume.resolve(&mut operands, first, &mut moving)?;
        let asked = WaybillArgs { path: self.waybill, digests: self.waybill_digests, leaf: self.leaf };
        let waybill = WaybillRequest::resolve(asked, &self.rules, &operands, &moving)?;
        let settings = CopySettings {
            operands,
            source: None,
            place: None,
            rules: self.rules,
            moving,
            log: None,
            print: self.print,
        };
        Ok(Resolved { settings, progress: self.progress, json: self.json, waybill, resume })
    }

    /// Checks that all other options are compatible with `--resume`.
    fn fits_resume(&self, moving: &Moving) -> Result<(), UsageError> {
        let rules = &self.rules;
        let is_part =
            moving.offset != ByteOffset(0) || moving.length.is_some() || moving.sink_offset.is_some();
        let refused = [
            (self.read_stdin, "--read-stdin"),
            (is_part, "--offset, --length or --dst-offset"),
            (rules.attributes_only, "--attributes-only"),
            (rules.make != Make::Copy, "--link or --symbolic-link"),
            (rules.backup.is_some(), "--backup"),
            (rules.remove_destination, "--remove-destination"),
            (rules.existing != Existing::Overwrite, "--interactive, --no-clobber or --update=none"),
            (rules.update, "--update"),
            (rules.copy_contents, "--copy-contents"),
            (rules.skip_chmod, "--skip-chmod"),
            (self.no_preserve, "--no-preserve of mode or timestamps"),
            (self.print.hash, "--print-hash"),
            (self.waybill.is_some(), "--waybill"),
            (matches!(moving.verify, Verify::Stream | Verify::Hybrid), "--verify=stream or --verify=hybrid"),
        ];
        match refused.into_iter().find(|(is_asked, _)| *is_asked) {
            Some((_, option)) => Err(UsageError::NotWithResume(option)),
            None => Ok(()),
        }
    }

    /// Combines `-i`, `-n` and `--update`. `-n` overrides the others; with `-i`, cp asks about
    /// files that `--update` would replace.
    fn existing(&mut self) -> Result<(), UsageError> {
        let rules = &mut self.rules;
        // Files that `-n` skips are not recorded as targets of hard links.
        rules.update = self.which == Some(ReplaceRule::Older) && self.clobber != Some(Existing::Keep);
        let otherwise = self.clobber.unwrap_or(Existing::Overwrite);
        rules.existing = match self.which {
            Some(ReplaceRule::None) if otherwise != Existing::Keep => Existing::Keep,
            Some(ReplaceRule::NoneFail) if otherwise != Existing::Keep => Existing::Refuse,
            _ => otherwise,
        };
        match (self.backup.is_asked_for(), self.clobber, rules.existing) {
            (true, Some(Existing::Keep), _) => Err(UsageError::BackupAndKeep),
            (true, _, Existing::Keep | Existing::Refuse) => Err(UsageError::BackupAndNone),
            _ => Ok(()),
        }
    }

    fn batch(&self, operands: &[OsString]) -> Result<Operands, UsageError> {
        if let Some(extra) = operands.first() {
            return Err(OperandError::ExtraOperand(extra.clone()).into());
        }
        if self.clobber == Some(Existing::Ask) {
            return Err(UsageError::AskAndBatch);
        }
        let lines = batch::standard_input().map_err(UsageError::StandardInput)?;
        Ok(Operands::Batch(Batch::new(lines)))
    }

    /// Determines the target operand.
    fn operands(&self, mut operands: Vec<OsString>) -> Result<Operands, UsageError> {
        let to = &self.destination;
        to.check(&operands, true)?;
        let directory = match to.directory() {
            Some(directory) => Some(directory.to_owned()),
            None if to.is_file() => None,
            None => target_among(&mut operands)?,
        };
        if let Some(directory) = directory {
            let sources = operands.into_iter().map(|source| to.stripped(source)).collect();
            return Ok(Operands::IntoDirectory { sources, directory, parents: self.parents });
        }
        if self.parents {
            return Err(UsageError::ParentsNeedDirectory);
        }
        let (sources, sink) = split_last(operands)?;
        let (_, source) = split_last(sources)?;
        Ok(Operands::Onto { source, sink })
    }

    fn moving(&self) -> Result<Moving, UsageError> {
        let mut moving = Moving::with(Workers::granted());
        self.sizes.apply(&mut moving);
        moving.direct_read = self.flags.direct_read;
        moving.direct_write = self.flags.direct_write;
        moving.fadvise_read = self.flags.fadvise_read;
        moving.fadvise_write = self.flags.fadvise_write;
        moving.double_buffer = self.flags.double_buffer.then_some(true);
        moving.verify = self.flags.verify.unwrap_or(Verify::No);
        moving.sparse = self.sparse;
        moving.reflink = self.reflink;
        if self.print.hash {
            let algorithm = self.algorithm.unwrap_or(Algorithm::Md5);
            moving.digest = Some((algorithm, self.sizes.hash_form(algorithm, self.check_tree)));
        }
        if self.rules.attributes_only {
            let verifies = moving.verify != Verify::No;
            for (wanted, option) in [(self.print.hash, "--print-hash"), (verifies, "--verify")] {
                if wanted {
                    return Err(UsageError::NoData(option));
                }
            }
        }
        Ok(moving)
    }
}

/// Applies `-p`.
fn keep_basics(keep: &mut Preserve) {
    keep.mode = true;
    keep.ownership = true;
    keep.timestamps = true;
}

/// Removes the last operand if it is a directory. With three or more operands it must be one.
fn target_among(operands: &mut Vec<OsString>) -> Result<Option<OsString>, UsageError> {
    let Some(last) = operands.last() else { return Ok(None) };
    let found = std::fs::metadata(last);
    let source = match found {
        Ok(found) if found.is_dir() => return Ok(operands.pop()),
        Ok(_) => io::Error::from_raw_os_error(20), // ENOTDIR
        // The operand is a directory that this user may not search.
        Err(_) if is_here(last) => return Ok(operands.pop()),
        Err(error) => error,
    };
    if operands.len() > 2 {
        return Err(UsageError::Target { path: last.clone(), source });
    }
    Ok(None)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreservedAttribute {
    Mode,
    Timestamps,
    Ownership,
    Links,
    Context,
    Xattr,
    All,
}

const PRESERVED_ATTRIBUTES: [Choice<PreservedAttribute>; 7] = [
    (&["mode"], PreservedAttribute::Mode),
    (&["timestamps"], PreservedAttribute::Timestamps),
    (&["ownership"], PreservedAttribute::Ownership),
    (&["links"], PreservedAttribute::Links),
    (&["context"], PreservedAttribute::Context),
    (&["xattr"], PreservedAttribute::Xattr),
    (&["all"], PreservedAttribute::All),
];

const SPARSE: [Choice<SparseRule>; 3] =
    [(&["never"], SparseRule::Never), (&["auto"], SparseRule::Auto), (&["always"], SparseRule::Always)];

const REFLINK: [Choice<Reflink>; 3] =
    [(&["auto"], Reflink::Auto), (&["always"], Reflink::Always), (&["never"], Reflink::Never)];

const VERIFY: [Choice<Verify>; 5] = [
    (&["none"], Verify::No),
    (&["stream"], Verify::Stream),
    (&["cached"], Verify::ReadBack),
    (&["reread"], Verify::Reread),
    (&["hybrid"], Verify::Hybrid),
];
