//! Metadata that a copy preserves: owner, attributes, permissions, and finally the times.
//!
//! The order matters. A change of owner clears set-id bits and capabilities, so attributes and mode
//! follow it. A sink with its source's modification time counts as finished, so the times are set
//! after everything else.

use super::copied_file::CopiedFile;
use super::directory::{Directory, DirectoryFacts};
use super::job::Job;
use super::rules::{CopyRules, Make};
use super::tree_entry::Entry;
use crate::location::EntryName;
use haul_engine::copy::{CopyError, CopySink, FileJob, Tally, unfinished};
use haul_engine::is_attribute_copied;
use haul_storage::attributes::{
    AclError, XattrFailure, XattrSide, copy_attributes, copy_permissions, drop_access_list,
};
use haul_storage::{FileKind, Inode, Stat, Times, Timespec};
use haul_sys::metadata::is_unstored;
use haul_sys::{process, selinux};
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Set-user-ID, set-group-ID and sticky bits: set only together with the owner they were meant for.
const SPECIAL_BITS: u32 = 0o7000;

/// Sets the metadata to be preserved on a file. Failures other than those of the times are reported
/// here, and the copy still counts as complete.
///
/// # Errors
/// Returns an error if the times could not be set.
pub(crate) fn settle_file(copied: &CopiedFile<'_>, file: &FileJob<'_>) -> Result<(), CopyError> {
    let job = copied.job;
    let rules = &job.settings.rules;
    if copied.more_follows {
        // A stop may come between two parts, and no later run may take the file for finished.
        set_part_time(file, unfinished(&file.source_stat));
        return Ok(());
    }
    if copied.ends_parts() && !rules.preserve.timestamps {
        set_part_time(file, now());
    }
    if copied.differing == 0 && !keeps_anything(rules) {
        return Ok(());
    }
    let writer = MetadataWriter {
        job,
        source: (file.source.inode(), &file.source_stat),
        source_path: &|| file.source_path(),
        sink: (file.sink.inode(), &|| file.sink_path()),
        before: copied.before.as_ref(),
        kind: FileKind::Regular,
    };
    let mode = if rules.skip_chmod || copied.differing & !process::umask() == 0 {
        None
    } else {
        Some(file.source_stat.mode & 0o777 & !process::umask())
    };
    writer.keep(mode)
}

/// Sets the times of a regular sink. Errors are ignored: without permission, the sink keeps the
/// time of its last write.
fn set_part_time(file: &FileJob<'_>, times: Times) {
    if let CopySink::File(sink) = &file.sink {
        let _ = sink.set_times(times);
    }
}

fn now() -> Times {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let sec = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Times { atime: None, mtime: Some(Timespec { sec, nsec: since.subsec_nanos() }) }
}

impl Job<'_> {
    /// Sets the metadata to be preserved on a directory, after everything beneath it has finished.
    pub(crate) fn settle_directory(&self, directory: &Directory, facts: &DirectoryFacts) {
        if !keeps_of_directory(&self.settings.rules, facts) {
            return;
        }
        if let Err(error) = self.keep_open_directory(directory, facts) {
            self.fail(&error);
        }
    }

    /// Reports a directory that can no longer be reached, if metadata would be set on it.
    pub(crate) fn unsettled(&self, error: &CopyError, facts: &DirectoryFacts) {
        if keeps_of_directory(&self.settings.rules, facts) {
            self.fail(error);
        }
    }

    fn keep_open_directory(&self, directory: &Directory, facts: &DirectoryFacts) -> Result<(), CopyError> {
        let (source_path, sink_path) = (|| directory.source_path(), || directory.sink_path());
        let source = directory.source.inode(&self.opened).map_err(unreached(&source_path))?;
        let sink = directory.sink.inode(&self.opened).map_err(unreached(&sink_path))?;
        self.keep_directory((&*source, &*sink), (&source_path, &sink_path), facts)?;
        if let Some(sink) = directory.sink.dir().filter(|_| self.context.moving.sync_each) {
            self.sync_directory(sink, sink_path);
        }
        Ok(())
    }

    /// Like [`Job::settle_directory`], for a directory that could not be opened or did not have to
    /// be.
    pub(crate) fn settle_unread(&self, parent: &Directory, source_name: &EntryName, facts: &DirectoryFacts) {
        if !keeps_of_directory(&self.settings.rules, facts) {
            return;
        }
        let paths: (PathOf<'_>, PathOf<'_>) =
            (&|| parent.source_path_of(source_name), &|| parent.sink_path_of(&facts.sink_name));
        let sink = match self.open_sink(parent, facts) {
            Ok(sink) => Ok(sink as Arc<dyn Inode>),
            // A sink that cannot be opened is accessed by name only.
            Err(CopyError::Cannot { .. }) => {
                parent.sink_at(&facts.sink_name).named(&self.opened).map_err(unreached(paths.1))
            }
            Err(error) => Err(error),
        };
        let kept = sink.and_then(|sink| {
            let source = parent.source_at(source_name).named(&self.opened).map_err(unreached(paths.0))?;
            self.keep_directory((&*source, &*sink), paths, facts)
        });
        if let Err(error) = kept {
            self.fail(&error);
        }
    }

    /// Sets the metadata to be preserved on a link, a pipe or a device. It was just created, so its
    /// owner is unknown.
    pub(crate) fn settle_name(&self, entry: &Entry, source: &Stat, sink_is_link: bool) {
        if !keeps_anything(&self.settings.rules) {
            return;
        }
        let withheld = if self.settings.rules.preserve.ownership { source.mode & 0o077 } else { 0 };
        let mode = (withheld & !process::umask() != 0).then(|| source.mode & 0o777 & !process::umask());
        let (source_path, sink_path) = (|| entry.source_path(), || entry.sink_path());
        let sink = entry.parent.sink_at(&entry.sink_name);
        let kept = || {
            let from = entry.source().named(&self.opened).map_err(unreached(&source_path))?;
            let to = sink.named(&self.opened).map_err(unreached(&sink_path))?;
            let writer = MetadataWriter {
                job: self,
                source: (&*from, source),
                source_path: &source_path,
                sink: (&*to, &sink_path),
                before: None,
                kind: if sink_is_link { FileKind::Symlink } else { source.kind },
            };
            writer.keep(mode)
        };
        if let Err(error) = kept() {
            self.fail(&error);
        }
    }

    /// Reports an owner that could not be preserved. Reports nothing if this user may not change
    /// owners, because no user expects it then. Returns true if the entry failed.
    pub(crate) fn owner_failed(&self, path: OsString, source: io::Error) -> bool {
        let missed = owner_is_missed(&source);
        if missed {
            self.not_kept(&CopyError::owner_failed(path, source));
        }
        missed && !self.settings.rules.moves
    }

    fn keep_directory(
        &self,
        ends: (&dyn Inode, &dyn Inode),
        paths: (PathOf<'_>, PathOf<'_>),
        facts: &DirectoryFacts,
    ) -> Result<(), CopyError> {
        let writer = MetadataWriter {
            job: self,
            source: (ends.0, &facts.source),
            source_path: paths.0,
            sink: (ends.1, paths.1),
            before: Some(&facts.sink).filter(|_| !facts.is_new),
            kind: FileKind::Directory,
        };
        writer.keep(new_mode_of_directory(facts))
    }
}

fn owner_is_missed(error: &io::Error) -> bool {
    let expected = matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput);
    !expected || process::effective_user() == 0
}

/// Returns true if any metadata is set on a directory at its end.
fn keeps_of_directory(rules: &CopyRules, facts: &DirectoryFacts) -> bool {
    keeps_anything(rules) || new_mode_of_directory(facts).is_some()
}

/// Returns the mode to set on a directory whose source's mode is not preserved, if its present mode
/// differs. This concerns a new directory, or one that was closed to its user.
fn new_mode_of_directory(facts: &DirectoryFacts) -> Option<u32> {
    let made = facts.sink.mode;
    let missing = facts.omitted & !process::umask();
    let differs = facts.is_new && (made & 0o700 != 0o700 || missing & !made != 0);
    match facts.was_closed {
        true => Some(made),
        false => differs.then_some(made | missing),
    }
}

fn keeps_anything(rules: &CopyRules) -> bool {
    let keep = &rules.preserve;
    let permissions = keep.mode || keep.explicit_no_mode || rules.new_mode.is_some();
    permissions || keep.ownership || keep.timestamps || keep.xattr
}

/// Returns a function that makes an error of a directory that cannot be opened again.
fn unreached(path: PathOf<'_>) -> impl FnOnce(io::Error) -> CopyError {
    move |source| CopyError::Cannot { action: "access", path: path(), source }
}

/// Function that builds a path for a message.
type PathOf<'a> = &'a dyn Fn() -> OsString;

/// Metadata of one entry, to be copied from its source to its sink.
struct MetadataWriter<'a, 'j> {
    job: &'a Job<'j>,
    source: (&'a dyn Inode, &'a Stat),
    source_path: PathOf<'a>,
    sink: (&'a dyn Inode, PathOf<'a>),
    /// State of an existing sink before the write; `None` for a new sink.
    before: Option<&'a Stat>,
    kind: FileKind,
}

impl MetadataWriter<'_, '_> {
    /// Sets all metadata that the rules preserve. `mode` is the mode of a new sink whose source's
    /// permissions are not preserved, if the present mode differs.
    fn keep(&self, mode: Option<u32>) -> Result<(), CopyError> {
        let keep = &self.job.settings.rules.preserve;
        let mut has_owner = true;
        // As with cp, an existing directory whose times cannot be set gets only that error. No data
        // depends on these times.
        let is_standing = self.kind == FileKind::Directory && self.before.is_some();
        if is_standing {
            self.keep_or_tell_times()?;
        }
        // A link created by `-s` belongs to its creator, so there is no owner to preserve.
        let is_own_link =
            self.job.settings.rules.make == Make::SymbolicLink && self.kind == FileKind::Symlink;
        if keep.ownership && !is_own_link && self.owner_differs() {
            match self.set_owner() {
                Ok(kept) => has_owner = kept,
                // As with cp, links are left unchanged, and all other types only get their times.
                Err(AlreadyReported) if self.kind == FileKind::Symlink || is_standing => return Ok(()),
                Err(AlreadyReported) => return self.keep_times(),
            }
        }
        if keep.xattr {
            self.copy_attributes();
        }
        if self.kind != FileKind::Symlink {
            self.set_permissions(has_owner, mode);
        }
        if is_standing { Ok(()) } else { self.keep_or_tell_times() }
    }

    fn keep_or_tell_times(&self) -> Result<(), CopyError> {
        match self.keep_times() {
            Err(error) if self.job.settings.rules.moves => {
                self.not_kept(&error);
                Ok(())
            }
            kept => kept,
        }
    }

    fn keep_times(&self) -> Result<(), CopyError> {
        if !self.job.settings.rules.preserve.timestamps {
            return Ok(());
        }
        self.sink.0.set_times(Times::of(self.source.1)).map_err(|source| {
            let path = (self.sink.1)();
            CopyError::Failed { doing: "preserving times for", path, source }
        })
    }

    /// Returns true if the owner must be set. A new sink may have inherited its owner from its
    /// directory, so its owner is set without a check.
    fn owner_differs(&self) -> bool {
        let source = self.source.1;
        self.before.is_none_or(|before| (before.uid, before.gid) != (source.uid, source.gid))
    }

    /// Sets the owner. Returns true if the sink now has the owner of its source.
    fn set_owner(&self) -> Result<bool, AlreadyReported> {
        let source = self.source.1;
        if let Some(before) = self.before
            && self.job.settings.rules.preserve.mode
            && self.kind != FileKind::Symlink
        {
            self.close_to_others(before)?;
        }
        let error = match self.sink.0.set_owner(Some(source.uid), Some(source.gid)) {
            Ok(()) => return Ok(true),
            // A file system without owners rejects even the owner that it reports. As with cp, this
            // does not matter for a regular file.
            Err(_) if self.has_owner_already() => return Ok(true),
            Err(error) => error,
        };
        let is_refused =
            matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput);
        if is_refused && self.kind != FileKind::Symlink {
            // This user may be allowed to set the group alone. As with GNU cp, a link keeps the
            // owner that created it.
            let _ = self.sink.0.set_owner(None, Some(source.gid));
        }
        if !owner_is_missed(&error) {
            return Ok(false);
        }
        let path = (self.sink.1)();
        self.not_kept(&match self.kind {
            FileKind::Symlink => CopyError::LinkOwnerFailed { path, source: error },
            _ => CopyError::owner_failed(path, error),
        });
        if self.job.settings.rules.moves { Ok(false) } else { Err(AlreadyReported) }
    }

    fn has_owner_already(&self) -> bool {
        let has = |found: Stat| (found.uid, found.gid) == (self.source.1.uid, self.source.1.gid);
        self.kind == FileKind::Regular && self.sink.0.stat().is_ok_and(has)
    }

    /// Removes permissions, so that the new owner never gets access that was granted on the old
    /// owner's file.
    fn close_to_others(&self, before: &Stat) -> Result<(), AlreadyReported> {
        let Err(source) = self.sink.0.set_mode(before.mode & self.source.1.mode & 0o700) else {
            return Ok(());
        };
        let expected = matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput);
        if !expected || process::effective_user() == 0 {
            let path = (self.sink.1)();
            self.not_kept(&CopyError::Failed { doing: "clearing permissions for", path, source });
        } else if !self.job.settings.rules.moves {
            // This user cannot be expected to do it. As with cp, only the exit status reports the
            // failure.
            Tally::add(&self.job.tally().failures, 1);
        }
        Err(AlreadyReported)
    }

    fn set_permissions(&self, has_owner: bool, mode: Option<u32>) {
        let rules = &self.job.settings.rules;
        let keep = &rules.preserve;
        if rules.skip_chmod && self.kind == FileKind::Regular {
            return;
        }
        if keep.mode {
            let kept = if has_owner { self.source.1.mode } else { self.source.1.mode & !SPECIAL_BITS };
            if let Err(error) = copy_permissions(self.source.0, self.sink.0, self.kind, kept) {
                self.report_acl(error);
            }
            return;
        }
        let reset = match self.before {
            Some(_) => None,
            None => match rules.new_mode {
                // The umask and the default ACL of the directory must not add to the permissions
                // that are set later.
                Some(mode) => Some(drop_access_list(self.sink.0).and_then(|()| self.sink.0.set_mode(mode))),
                None => keep.explicit_no_mode.then(|| self.set_default_permissions()),
            },
        };
        let path = || (self.sink.1)();
        match (reset, mode) {
            (Some(Err(source)), _) => {
                let doing = "setting permissions for";
                self.not_kept(&CopyError::PermissionsFailed { doing, path: path(), source });
            }
            (None, Some(mode)) => {
                if let Err(source) = self.sink.0.set_mode(mode) {
                    let doing = "preserving permissions for";
                    self.not_kept(&CopyError::Failed { doing, path: path(), source });
                }
            }
            (Some(Ok(())), _) | (None, None) => {}
        }
    }

    /// Sets the permissions of `--no-preserve=mode`: those of any new file of this type, whatever
    /// the default ACL of the directory says. Special bits are not permissions: a directory keeps
    /// those that it inherited.
    fn set_default_permissions(&self) -> io::Result<()> {
        let all = if matches!(self.kind, FileKind::Directory | FileKind::Socket) { 0o777 } else { 0o666 };
        let standing = self.sink.0.stat()?;
        drop_access_list(self.sink.0)?;
        self.sink.0.set_mode((all & !process::umask()) | (standing.mode & SPECIAL_BITS))
    }

    fn report_acl(&self, error: AclError) {
        self.not_kept(&CopyError::permissions_failed(error, self.source_path, self.sink.1));
    }

    /// Copies extended attributes. Only `--preserve=xattr` makes an error a failure; `-a` ignores
    /// it silently.
    fn copy_attributes(&self) {
        let keep = &self.job.settings.rules.preserve;
        let rules = &self.job.settings.rules;
        let tells_all = keep.require_xattr || rules.attributes_only;
        // With explicit context options, the attributes do not include the context of the source.
        let on_lustre = || [self.source.0, self.sink.0].iter().any(|end| end.device().capabilities.is_lustre);
        let wanted = |name: &CStr| {
            is_attribute_copied(name, on_lustre)
                && (rules.contexts.are_attributes() || name != selinux::CONTEXT)
        };
        if !tells_all && keep.reduce_diagnostics {
            let _ = copy_attributes(self.source.0, self.sink.0, wanted);
            return;
        }
        let failures = match copy_attributes(self.source.0, self.sink.0, wanted) {
            Ok(failures) => failures,
            Err(source) => {
                let path = (self.source_path)();
                self.tell(
                    &CopyError::Failed { doing: "listing attributes of", path, source },
                    keep.require_xattr,
                );
                return;
            }
        };
        let (unsupported, others): (Vec<XattrFailure>, Vec<XattrFailure>) =
            failures.into_iter().partition(|failure| failure.source.kind() == io::ErrorKind::Unsupported);
        for XattrFailure { name, side, source } in others {
            let name = OsStr::from_bytes(name.as_bytes()).to_owned();
            let error = match side {
                XattrSide::Destination => CopyError::XattrFailed { name, path: (self.sink.1)(), source },
                XattrSide::Source => CopyError::XattrUnread { name, path: (self.source_path)(), source },
            };
            self.tell(&error, keep.require_xattr);
        }
        // For a file system without attributes, each file gets only one message, however many
        // attributes it has.
        if let Some(first) = unsupported.into_iter().next().filter(|_| tells_all) {
            let (doing, path) = ("setting attributes for", (self.sink.1)());
            self.tell(&CopyError::Failed { doing, path, source: first.source }, keep.require_xattr);
        }
    }

    fn tell(&self, error: &CopyError, is_failure: bool) {
        if self.source_must_stay(error) {
            self.job.is_not_stored(error, self.source.1.identity());
        } else if is_failure {
            self.job.fail(error);
        } else {
            self.job.report().warned(error);
        }
    }

    fn not_kept(&self, error: &CopyError) {
        if self.source_must_stay(error) {
            self.job.is_not_stored(error, self.source.1.identity());
        } else {
            self.job.not_kept(error);
        }
    }

    /// Returns true if a move would destroy the only copy of what the sink could not store.
    fn source_must_stay(&self, error: &CopyError) -> bool {
        self.job.settings.rules.moves && error.io().is_some_and(is_unstored)
    }
}

/// An error that was already reported; the remaining metadata is left unchanged.
struct AlreadyReported;
