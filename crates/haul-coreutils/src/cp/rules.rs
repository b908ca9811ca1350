//! Settings of a copy, resolved from the command line: no field contains the text of an option.

use super::place::Place;
use crate::location::Location;
use haul_engine::copy::{JobLog, Moving};
use haul_sys::selinux::Policy;
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::Arc;

/// Settings of one copy job.
#[derive(Clone, Debug)]
pub struct CopySettings {
    /// Sources and sinks.
    pub operands: Operands,
    /// Directory of any storage that sources are relative to; `None` for the working directory, as
    /// for all tools.
    pub source: Option<Place>,
    /// Directory that the sinks of [`Operands::Onto`] and [`Operands::Batch`] are relative to;
    /// `None` for the working directory.
    pub place: Option<Place>,
    /// Rules of cp.
    pub rules: CopyRules,
    /// Settings for copying the bytes.
    pub moving: Moving,
    /// Log of the job, if the job is resumable.
    pub log: Option<Arc<JobLog>>,
    /// Output about each file.
    pub print: Print,
}

impl CopySettings {
    /// Returns the location of a source.
    pub(crate) fn source_at<'a>(&'a self, source: &'a OsStr) -> Location<'a> {
        self.source.as_ref().map_or_else(|| Location::here(source), |place| place.at(source))
    }
}

/// Sources and their sinks.
#[derive(Clone, Debug)]
pub enum Operands {
    /// Each source goes into this directory under its last component (or its complete path with
    /// `parents`).
    IntoDirectory {
        /// The sources.
        sources: Vec<OsString>,
        /// The directory, as typed.
        directory: OsString,
        /// `--parents`: the complete path of the source is recreated beneath the directory.
        parents: bool,
    },
    /// One source is copied to exactly this name.
    Onto {
        /// The source.
        source: OsString,
        /// The name of the sink.
        sink: OsString,
    },
    /// mcp's `--read-stdin`: pairs of names with the ranges to copy.
    Batch(Batch),
}

/// A list of copies that is read during the job. Clones share the list: each line is returned only
/// once.
#[derive(Clone)]
pub struct Batch(Arc<Mutex<dyn BatchSource>>);

/// Reason why one line of a batch cannot be executed.
pub type BatchFailure = Box<dyn std::error::Error + Send + Sync>;

/// Source of the lines of a batch.
pub trait BatchSource: Send {
    /// Returns the next line, or its error; `None` at the end of the list. If the call must wait
    /// for a line, it polls `stopping` meanwhile. If `stopping` returns true, the list ends.
    fn next(&mut self, stopping: &dyn Fn() -> bool) -> Option<Result<BatchItem, BatchFailure>>;
}

impl Batch {
    /// Creates the list that `source` supplies.
    pub fn new(source: impl BatchSource + 'static) -> Batch {
        Batch(Arc::new(Mutex::new(source)))
    }

    pub(crate) fn next(&self, stopping: &dyn Fn() -> bool) -> Option<Result<BatchItem, BatchFailure>> {
        self.0.lock().next(stopping)
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batch(..)")
    }
}

impl BatchSource for std::vec::IntoIter<BatchItem> {
    fn next(&mut self, _: &dyn Fn() -> bool) -> Option<Result<BatchItem, BatchFailure>> {
        Iterator::next(self).map(Ok)
    }
}

/// One line of mcp's `--read-stdin`.
#[derive(Clone, Debug)]
pub struct BatchItem {
    /// The source.
    pub source: OsString,
    /// The name of the sink.
    pub sink: OsString,
    /// Byte ranges as (start, end), end exclusive; empty for the complete file.
    pub ranges: Vec<(u64, u64)>,
    /// Backup name of the existing sink. If the copy fails, the sink gets its name back.
    pub backup: Option<OsString>,
}

/// Rules of cp: which entries are copied, and which of their properties.
#[derive(Clone, Debug)]
pub struct CopyRules {
    /// `-r`: directories are copied with their contents.
    pub recursive: bool,
    /// Symbolic links that are followed.
    pub dereference: Dereference,
    /// Metadata of each file that is preserved.
    pub preserve: Preserve,
    /// Security contexts of the copies.
    pub contexts: Contexts,
    /// Handling of an existing sink.
    pub existing: Existing,
    /// `-f`: a sink that cannot be opened is removed and created again.
    pub force: bool,
    /// `--remove-destination`: every existing sink is removed before the write.
    pub remove_destination: bool,
    /// `-u`: a sink that is as new as its source is left unchanged.
    pub update: bool,
    /// `-v`: each copied entry is printed.
    pub verbose: bool,
    /// `--debug`: the copy method of each file is printed after its `verbose` line; skipped files
    /// are printed too.
    pub debug: bool,
    /// `-x`: directories on other file systems are created, but not entered.
    pub one_file_system: bool,
    /// Copies, hard links or symbolic links.
    pub make: Make,
    /// Naming of backups of existing sinks; `None` for no backups.
    pub backup: Option<Backup>,
    /// `--attributes-only`: no data is copied.
    pub attributes_only: bool,
    /// `--keep-directory-symlink`: a link at the sink that leads to a directory is used like that
    /// directory.
    pub keep_directory_symlink: bool,
    /// A dangling link at the sink is followed, and the file is created at its target (POSIX).
    pub open_dangling: bool,
    /// `--copy-contents`: with `-r`, special files are read instead of created.
    pub copy_contents: bool,
    /// `--skip-chmod` (mcp): files keep the permissions that they had during the write.
    pub skip_chmod: bool,
    /// Permissions of every new file, whatever its source has. The caller sets the final ones
    /// later, through `Outcome::new_file`.
    pub new_mode: Option<u32>,
    /// True if the copy is part of mv across file systems. Messages then have mv's wording, and
    /// metadata that cannot be preserved is only a warning.
    pub moves: bool,
}

/// Symbolic links in the source that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dereference {
    /// `-P`: none.
    Never,
    /// `-H`: those named on the command line.
    Operands,
    /// `-L`: all.
    Always,
}

/// Metadata that the copy preserves, and the handling of failures to do so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits and ACLs.
    pub mode: bool,
    /// `--no-preserve=mode` was given: new files get the default permissions, not those of the
    /// source.
    pub explicit_no_mode: bool,
    /// User and group.
    pub ownership: bool,
    /// Access and modification times, to the nanosecond.
    pub timestamps: bool,
    /// Hard links between copied files.
    pub links: bool,
    /// Extended attributes.
    pub xattr: bool,
    /// Failures to preserve extended attributes are errors (`--preserve=xattr`, unlike `-a`).
    pub require_xattr: bool,
    /// `-a`: failures to preserve metadata that the file system cannot store are not reported.
    pub reduce_diagnostics: bool,
}

/// Security contexts of the copies, if the kernel labels files by SELinux.
#[derive(Clone, Debug, Default)]
pub enum Contexts {
    /// The contexts that the kernel assigns. Without SELinux, the context of a source is an
    /// attribute like others.
    #[default]
    Kernels,
    /// `--context=CTX`: new files get the context that is set in the kernel for all of this
    /// process, and only for it.
    Said,
    /// `-a`, `--preserve=context`, `mv`: the contexts of the sources.
    Sources {
        /// Interface to the kernel.
        policy: Arc<dyn Policy>,
        /// True if an error fails the file.
        is_required: bool,
    },
    /// `-Z`: the types that the policy's list of paths specifies for the sinks.
    Listed(Arc<dyn Policy>),
}

impl Contexts {
    /// Returns true if each copy is labelled individually.
    pub(crate) fn are_set(&self) -> bool {
        matches!(self, Contexts::Sources { .. } | Contexts::Listed(_))
    }

    /// Returns true if the context of a source is copied like any other attribute.
    pub(crate) fn are_attributes(&self) -> bool {
        matches!(self, Contexts::Kernels)
    }
}

/// Handling of an existing sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The sink is overwritten.
    Overwrite,
    /// `-n`, `--update=none`: the sink is left unchanged.
    Keep,
    /// `--update=none-fail`: the sink is left unchanged, and the exit status is a failure.
    Refuse,
    /// `-i`: the user is asked.
    Ask,
}

/// Kind of object that is created at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// A copy of the data.
    Copy,
    /// `-l`: a hard link to the source.
    HardLink,
    /// `-s`: a symbolic link to the source.
    SymbolicLink,
}

/// Naming of the backup of an existing sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The naming rule.
    pub method: BackupMethod,
    /// Suffix of the simple rule; the default is `~`.
    pub suffix: OsString,
}

/// The naming rules of `--backup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupMethod {
    /// `name~`.
    Simple,
    /// `name.~1~`, `name.~2~`, ...
    Numbered,
    /// Numbered if numbered backups exist, simple otherwise.
    Existing,
}

/// Output about each file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Print {
    /// Print the digest on standard output.
    pub hash: bool,
    /// Print bytes, seconds and rate on standard error.
    pub stats: bool,
    /// Print the name of the source instead of the sink in both.
    pub source_name: bool,
}

impl Default for CopyRules {
    /// Returns the rules of `cp` without options.
    fn default() -> CopyRules {
        CopyRules {
            recursive: false,
            dereference: Dereference::Always,
            preserve: Preserve::default(),
            contexts: Contexts::Kernels,
            existing: Existing::Overwrite,
            force: false,
            remove_destination: false,
            update: false,
            verbose: false,
            debug: false,
            one_file_system: false,
            make: Make::Copy,
            backup: None,
            attributes_only: false,
            keep_directory_symlink: false,
            open_dangling: false,
            copy_contents: false,
            skip_chmod: false,
            new_mode: None,
            moves: false,
        }
    }
}
