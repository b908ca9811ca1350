//! Creation of links, named pipes and devices, and the first step of a directory.

use super::regular;
use super::same::named_in;
use super::task::{EntryOutcome, Sink, Task};
use crate::cp::contexts;
use crate::cp::directory::{DirectoryFacts, NewDirectory};
use crate::cp::links::{Earlier, FirstSink, KnownDirectory, Linked, NamedIn};
use crate::cp::receipt_entries;
use crate::cp::rules::{Dereference, Make};
use crate::location::Location;
use crate::paths::split;
use haul_engine::copy::{CopyError, Refusal, quote};
use haul_storage::{FileKind, Follow, Replace, Stat};
use haul_sys::process;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of attempts to find a free temporary name for the replacement of a link.
const ATTEMPTS: usize = 100;

impl<'j> Task<'_, 'j> {
    /// Creates the entry at its sink. No existing file is in the way any more.
    pub(super) fn make(
        &self,
        sink: &Sink,
        first: Option<FirstSink<'_>>,
    ) -> Result<EntryOutcome<'j>, CopyError> {
        let kind = self.source.kind;
        if kind == FileKind::Directory {
            return self.make_directory(sink);
        }
        let fate = match self.rules.make {
            Make::SymbolicLink => self
                .labelled(FileKind::Symlink, sink.is_new, || self.make_symbolic_link())
                .map(|()| EntryOutcome::Through),
            Make::HardLink => self.make_hard_link().map(|()| EntryOutcome::Through),
            Make::Copy if self.reads_as_regular(kind) => {
                regular::open(self, sink, first.is_some()).map(|file| EntryOutcome::Move(Box::new(file)))
            }
            Make::Copy => {
                self.labelled(kind, sink.is_new, || self.make_special(sink)).map(|()| EntryOutcome::Through)
            }
        }?;
        if let Some(first) = first {
            first.made(self.linkable(), matches!(fate, EntryOutcome::Through));
        }
        if self.sinks_collide()
            && let Ok(standing) = self.sink_at().stat(Follow::No)
        {
            self.job.memory.add_sink(&self.entry.sink_name, standing.identity());
        }
        if matches!(fate, EntryOutcome::Through) && self.rules.make != Make::HardLink {
            let dest_is_link = kind == FileKind::Symlink || self.rules.make == Make::SymbolicLink;
            self.job.settle_name(self.entry, &self.source, dest_is_link);
            receipt_entries::name(&self.job.context, self.entry);
        }
        Ok(fate)
    }

    /// Creates a name with the security context that the rules specify.
    fn labelled<T>(
        &self,
        kind: FileKind,
        is_new: bool,
        make: impl FnOnce() -> Result<T, CopyError>,
    ) -> Result<T, CopyError> {
        contexts::labelled(self.job, self.entry, self.sink_name(), kind, is_new, make)
    }

    /// Returns true if the bytes of a file of this type are copied. For special files, that is only
    /// without `-r` or with `--copy-contents`.
    pub(super) fn reads_as_regular(&self, kind: FileKind) -> bool {
        match kind {
            FileKind::Regular => true,
            FileKind::Directory | FileKind::Symlink => false,
            _ => !self.rules.recursive || self.rules.copy_contents,
        }
    }

    /// Creates a symbolic link (`-s`).
    fn make_symbolic_link(&self) -> Result<(), CopyError> {
        let target = self.source_path();
        if !target.as_bytes().starts_with(b"/") && !self.sink_is_in_working_directory() {
            return Err(Refusal::RelativeLink(self.sink_path()).into());
        }
        self.force_symlink(&target, self.rules.force).map_err(|source| CopyError::LinkFailed {
            kind: "symbolic",
            path: self.sink_path(),
            target,
            source,
        })
    }

    /// Returns true if the sink is in the working directory. Only there does a relative link have
    /// the meaning that it has on the command line.
    fn sink_is_in_working_directory(&self) -> bool {
        let (place, _) = split(self.sink_name().as_bytes());
        let here = Location::here(OsStr::new(".")).stat(Follow::Yes);
        let there = self.sink_at().beside(OsStr::from_bytes(place)).stat(Follow::Yes);
        match (here, there) {
            (Ok(here), Ok(there)) => here.identity() == there.identity(),
            // An error here occurs again later, with a better message.
            _ => true,
        }
    }

    /// Creates a hard link (`-l`).
    fn make_hard_link(&self) -> Result<(), CopyError> {
        let replace = self.rules.force || self.rules.existing == crate::cp::rules::Existing::Ask;
        let linked = self.force_hard_link(&self.entry.source(), replace);
        linked.map(drop).map_err(|source| CopyError::LinkFailed {
            kind: "hard",
            path: self.sink_path(),
            target: self.source_path(),
            source,
        })
    }

    /// Makes this name a link to `earlier`, the sink to which another name of the same file was
    /// copied. Returns false if that sink did not become complete; then no file exists under this
    /// name any more. `standing` is the file under this name, if one may remain.
    pub(super) fn link_to_earlier(
        &self,
        earlier: &Earlier,
        standing: Option<&Stat>,
    ) -> Result<bool, CopyError> {
        let (place, name) = &earlier.sink;
        let failed = |source| {
            let (path, target) = (self.sink_path(), earlier.path());
            CopyError::LinkFailed { kind: "hard", path, target, source }
        };
        let linked = place.reach().and_then(|_held| {
            let earlier = place.sink_at(name);
            let is_linked = standing.is_some_and(|standing| self.is_linked(standing, &earlier));
            let replaced = is_linked || self.force_hard_link(&earlier, true).map_err(failed)?;
            Ok((is_linked, replaced))
        });
        let (is_linked, replaced) = match linked {
            Ok(linked) => linked,
            Err(_) if earlier.is_void() => return Ok(false),
            Err(error) => return Err(error),
        };
        if replaced {
            self.report_removed();
        }
        let sink = self.sink_at();
        if let Some(log) = self.job.context.log.filter(|_| !is_linked) {
            let found = || sink.stat(Follow::No);
            let device = || self.job.open_device(&sink, found()?.dev);
            log.linked(&self.job.context.observer, &self.source, found, device, || self.sink_path());
        }
        match earlier.linked(&self.entry.parent, self.sink_name()) {
            Linked::Whole => {
                let stat = || sink.stat(Follow::No);
                receipt_entries::same(&self.job.context, &self.entry.sink_path(), &earlier.path(), stat);
                Ok(true)
            }
            // The waybill entry is written when the first sink is settled.
            Linked::UnderWay => Ok(true),
            Linked::Void => sink.unlink().map_err(self.cannot("remove")).map(|()| false),
        }
    }

    /// Returns true if the file under this name has the other name too. Another link would change
    /// nothing but its change time, and a later run of a resumable job would no longer know it as
    /// finished.
    fn is_linked(&self, standing: &Stat, other: &Location<'_>) -> bool {
        let is_it = |name: &Location<'_>| {
            name.stat(Follow::No).is_ok_and(|found| found.identity() == standing.identity())
        };
        // This name itself may be a symbolic link to the file.
        standing.nlink > 1 && is_it(&self.sink_at()) && is_it(other)
    }

    /// Creates a hard link, atomically replacing an existing file if `replace` is set. Returns true
    /// if a file was replaced.
    fn force_hard_link(&self, source: &Location<'_>, replace: bool) -> io::Result<bool> {
        self.force(replace, |name| source.link(self.follows(), name))
    }

    fn force_symlink(&self, target: &OsStr, replace: bool) -> io::Result<()> {
        self.force(replace, |name| name.make_link(target)).map(drop)
    }

    /// Creates a name by calling `make`. If the name is taken and `replace` is set, creates a
    /// temporary name and renames it.
    fn force(&self, replace: bool, make: impl Fn(&Location<'_>) -> io::Result<()>) -> io::Result<bool> {
        let sink = self.sink_at();
        let taken = match make(&sink) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && replace => error,
            other => return other.map(|()| false),
        };
        for _ in 0..ATTEMPTS {
            let beside = temp_name(sink.name());
            let beside = sink.beside(&beside);
            match make(&beside) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            }
            let renamed = beside.rename(&sink, Replace::Yes);
            // A rename between two names of one file has no effect and leaves both names.
            let _ = beside.unlink();
            return renamed.map(|()| true);
        }
        Err(taken)
    }

    /// Creates pipes, devices, sockets and symbolic links.
    fn make_special(&self, sink: &Sink) -> Result<(), CopyError> {
        let source = &self.source;
        let action = match source.kind {
            FileKind::Symlink => return self.copy_link(sink),
            FileKind::Fifo => "create fifo",
            FileKind::BlockDevice | FileKind::CharDevice | FileKind::Socket => "create special file",
            _ => return Err(Refusal::UnknownKind(self.source_path()).into()),
        };
        let mode = source.mode & !self.omitted_permissions();
        self.sink_at().make_special(source.kind, mode, source.rdev).map_err(self.cannot(action))
    }

    /// Copies a symbolic link as a link.
    fn copy_link(&self, sink: &Sink) -> Result<(), CopyError> {
        let target = self.entry.source().read_link().map_err(|source| {
            let action = "read symbolic link";
            CopyError::Cannot { action, path: self.source_path(), source }
        })?;
        let Err(error) = self.force_symlink(&target, self.rules.force) else { return Ok(()) };
        let stands_already =
            self.rules.update && !sink.is_new && self.sink_at().read_link().is_ok_and(|at| at == target);
        if stands_already { Ok(()) } else { Err(self.cannot("create symbolic link")(error)) }
    }

    /// Returns the permissions that a sink lacks until its owner is set.
    pub(super) fn omitted_permissions(&self) -> u32 {
        let withheld = if self.rules.preserve.ownership {
            0o077
        } else if self.source.kind == FileKind::Directory {
            0o022
        } else {
            0
        };
        self.source.mode & withheld
    }

    /// Returns true, with a warning, if this directory was already copied. Returns an error if
    /// copying it again is not allowed.
    pub(super) fn is_known_directory(&self) -> Result<bool, CopyError> {
        let Some(names) = self.entry.parent.names() else { return Ok(false) };
        let into_itself =
            || Refusal::IntoItself { source_path: names.source.clone(), sink: names.sink.clone() };
        if self.job.memory.has_made(self.source.identity()) {
            return Err(into_itself().into());
        }
        let known = if self.entry.operand.is_some() {
            let place = named_in(&self.sink_at());
            let directory = KnownDirectory { operand: names.index, sink: self.sink_path(), place };
            self.job.memory.name_directory(self.source.identity(), directory)
        } else {
            self.job.memory.known_directory(self.source.identity(), names.index)
        };
        let Some(known) = known else { return Ok(false) };
        let is_known = |named: Option<NamedIn>| named.is_some() && named == known.place;
        if is_known(named_in(&self.entry.source())) {
            return Err(into_itself().into());
        }
        if is_known(named_in(&self.sink_at())) {
            self.job.report().warned(&Refusal::DirectoryTwice(names.source.clone()).into());
            return Ok(true);
        }
        if self.dereference != Dereference::Never {
            return Ok(false);
        }
        Err(Refusal::LinkToDirectory { sink: self.sink_path(), earlier: known.sink }.into())
    }

    /// Creates a directory that this user can fill, whatever its final mode.
    fn make_directory(&self, sink: &Sink) -> Result<EntryOutcome<'j>, CopyError> {
        let parent = &self.entry.parent;
        // Without followed links, only a mount leads from a directory to itself.
        let may_be_above = self.dereference == Dereference::Always || self.source.may_be_mount_root;
        if may_be_above && parent.is_within(self.source.identity()) {
            return Err(Refusal::Cyclic(self.source_path()).into());
        }
        let mut was_closed = false;
        let standing = self.labelled(FileKind::Directory, sink.is_new, || match sink.before {
            Some(before) if !sink.is_new => self.reopened(&before).map(|closed| {
                was_closed = closed;
                before
            }),
            _ => self.make_fillable(),
        })?;
        let other_device = parent.settle.source_dev().is_some_and(|dev| dev != self.source.dev);
        let names = parent.names().map(Arc::clone).unwrap_or_default();
        Ok(EntryOutcome::Enter(Box::new(NewDirectory {
            parent: Arc::clone(parent),
            source_name: self.entry.source_name.clone(),
            is_entered: !(self.rules.one_file_system && other_device),
            facts: DirectoryFacts {
                names,
                source: self.source,
                follow: self.follows(),
                sink: standing,
                sink_name: self.owned_sink_name(),
                is_new: sink.is_new,
                was_closed,
                omitted: self.omitted_permissions(),
                follows_sink: self.follows_sink(sink),
            },
        })))
    }

    /// Gives this user all permissions on an existing directory. An earlier run of a resumable job
    /// may have created it with its source's restricted permissions. Returns true if permissions
    /// were missing.
    fn reopened(&self, before: &Stat) -> Result<bool, CopyError> {
        let user = self.job.user;
        let is_ours = self.job.context.log.is_some() && user != 0 && before.uid == user;
        if !is_ours || [before, &self.source].iter().any(|end| end.mode & 0o700 == 0o700) {
            return Ok(false);
        }
        self.set_sink_mode(before.mode | 0o700)?;
        Ok(true)
    }

    fn set_sink_mode(&self, mode: u32) -> Result<(), CopyError> {
        self.sink_at().set_mode(mode).map_err(|source| {
            let doing = "setting permissions for";
            CopyError::Failed { doing, path: self.sink_path(), source }
        })
    }

    /// Returns `Follow::Yes` if the sink of a directory may be opened through a link.
    fn follows_sink(&self, sink: &Sink) -> Follow {
        if self.rules.keep_directory_symlink && !sink.is_new { Follow::Yes } else { Follow::No }
    }

    /// Creates the directory and returns its state before its owner got all permissions.
    fn make_fillable(&self) -> Result<Stat, CopyError> {
        let parent = &self.entry.parent;
        let mode = self.source.mode & !self.omitted_permissions();
        let sink = self.sink_at();
        sink.make_directory(mode).map_err(self.cannot("create directory"))?;
        let made = sink.stat(Follow::No).map_err(self.cannot("stat"))?;
        if made.mode & 0o700 != 0o700 {
            self.set_sink_mode(made.mode | 0o700)?;
        }
        // Recorded only if the new directory may be found as a source: by the walk, through a link,
        // or as a later operand.
        let by_walk = !parent.sink_is_new && self.job.memory.into_itself.load(Ordering::Relaxed);
        if by_walk || self.dereference == Dereference::Always || self.entry.operand.is_some() {
            self.job.memory.made_directory(made.identity());
        }
        if self.rules.verbose && self.rules.moves {
            let line = format!("created directory {}", quote(&self.sink_path()));
            self.job.report().made(OsStr::new(&line));
        } else if self.rules.verbose {
            self.report_made(None);
        }
        Ok(made)
    }
}

/// Returns a unique temporary name in the same directory.
fn temp_name(name: &OsStr) -> OsString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (place, _) = split(name.as_bytes());
    let mut beside = OsStr::from_bytes(place).to_owned();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    beside.push(format!("/.haul-{}-{count}", process_number()));
    beside
}

/// Returns a number that distinguishes the temporary names of this process from those of others.
fn process_number() -> u64 {
    u64::from(std::process::id()) << 32 | u64::from(process::effective_user())
}
