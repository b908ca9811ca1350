//! Security contexts on kernels that label files by SELinux.
//!
//! The kernel receives the context before a file is created, so that the file never exists with
//! another one. Existing files, and new files that got another context all the same, are labelled
//! before any data is written.

use super::directory::Directory;
use super::job::Job;
use super::rules::{Contexts, CopySettings};
use super::tree_entry::Entry;
use crate::location::Location;
use haul_engine::copy::CopyError;
use haul_storage::{FileKind, Follow};
use haul_sys::metadata::Place;
use haul_sys::selinux::{self, Context, Policy};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A sink to be labelled, and the source that it is a copy of.
pub(crate) struct Labelling<'a, 'j> {
    job: &'a Job<'j>,
    source_path: &'a dyn Fn() -> OsString,
    sink: &'a Location<'a>,
    sink_path: &'a dyn Fn() -> OsString,
    /// File type of the sink.
    kind: FileKind,
    is_new: bool,
}

/// Context that a sink should have.
#[derive(Debug)]
pub(crate) enum Label {
    /// Any context: the one that the sink gets or has.
    Any,
    This(Context),
    /// Current context of the sink, with the type that the policy's list of paths specifies.
    Listed,
}

/// Creates `kind` at the sink of an entry by calling `make`, with the context that the rules
/// specify.
///
/// # Errors
/// Returns the error of `make`, or an error if a context that must be preserved could not be set.
pub(crate) fn labelled<T>(
    job: &Job<'_>,
    entry: &Entry,
    sink_name: &OsStr,
    kind: FileKind,
    is_new: bool,
    make: impl FnOnce() -> Result<T, CopyError>,
) -> Result<T, CopyError> {
    if !job.settings.rules.contexts.are_set() {
        return make();
    }
    let parent = &entry.parent;
    // A link is never copied as a directory. If the source of a directory is a link, the link leads
    // to it.
    let follow = if kind == FileKind::Directory { Follow::Yes } else { Follow::No };
    let labelling = Labelling {
        job,
        source_path: &|| entry.source_path(),
        sink: &parent.sink_at(sink_name),
        sink_path: &|| parent.sink_path_of(sink_name),
        kind,
        is_new,
    };
    labelling.make(&parent.source_at(&*reached(&entry.source_name, follow)), make)
}

impl<'a, 'j> Labelling<'a, 'j> {
    /// Returns the labelling of a regular file that `job` is about to open, or `None` if contexts
    /// are not set.
    pub(crate) fn of_file(
        job: &'a Job<'j>,
        paths: (&'a dyn Fn() -> OsString, &'a dyn Fn() -> OsString),
        sink: &'a Location<'a>,
        is_new: bool,
    ) -> Option<Labelling<'a, 'j>> {
        let (source_path, sink_path) = paths;
        let kind = FileKind::Regular;
        let is_wanted = job.settings.rules.contexts.are_set();
        is_wanted.then_some(Labelling { job, source_path, sink, sink_path, kind, is_new })
    }

    /// Creates the sink by calling `make`, with the context of the source or of the policy.
    ///
    /// # Errors
    /// See [`labelled`].
    fn make<T>(
        &self,
        source: &Location<'_>,
        make: impl FnOnce() -> Result<T, CopyError>,
    ) -> Result<T, CopyError> {
        let unreached = |path: &dyn Fn() -> OsString, source| {
            let doing = "failed to get security context of";
            CopyError::Failed { doing, path: path(), source }
        };
        let label =
            source.with_place(|error| unreached(self.source_path, error), |source| self.announce(source))?;
        let made = make()?;
        self.sink.with_place(|error| unreached(self.sink_path, error), |sink| self.check(&label, sink))?;
        Ok(made)
    }

    /// Sets the context that the kernel gives to the next file of this thread.
    ///
    /// # Errors
    /// Returns an error if the context of the source cannot be preserved but must be.
    pub(crate) fn announce(&self, source: Place<'_>) -> Result<Label, CopyError> {
        match &self.job.settings.rules.contexts {
            Contexts::Kernels | Contexts::Said => Ok(Label::Any),
            Contexts::Sources { policy, .. } => self.announce_sources(&**policy, source),
            Contexts::Listed(_) if !self.is_new => Ok(Label::Listed),
            Contexts::Listed(policy) => Ok(self.announce_listed(&**policy)),
        }
    }

    fn announce_sources(&self, policy: &dyn Policy, source: Place<'_>) -> Result<Label, CopyError> {
        let (error, is_absence) = match Context::of(source) {
            Ok(context) => match policy.label_new_files(Some(&context)) {
                Ok(()) => return Ok(Label::This(context)),
                Err(source) => {
                    let is_absence = selinux::is_absence(&source);
                    let context = context.as_os_str().to_owned();
                    (CopyError::ContextRefused { context, source }, is_absence)
                }
            },
            Err(source) => {
                let is_absence = selinux::is_absence(&source);
                let (doing, path) = ("failed to get security context of", (self.source_path)());
                (CopyError::Failed { doing, path, source }, is_absence)
            }
        };
        // The context of an earlier file must not apply to this file.
        let _ = policy.label_new_files(None);
        self.tell(error, is_absence)?;
        Ok(Label::Any)
    }

    fn announce_listed(&self, policy: &dyn Policy) -> Label {
        let listed = || {
            let dir = self.sink.base()?;
            let context = selinux::of_new_at(policy, dir.as_fd(), self.sink.name(), self.kind)?;
            policy.label_new_files(Some(&context))?;
            Ok(context)
        };
        match listed() {
            Ok(context) => Label::This(context),
            Err(source) => {
                let _ = policy.label_new_files(None);
                if !selinux::is_absence(&source) {
                    let doing = "failed to set default file creation context for";
                    let path = (self.sink_path)();
                    self.job.report().warned(&CopyError::Failed { doing, path, source });
                }
                Label::Any
            }
        }
    }

    /// Labels the file that is at the sink now, if it has another context.
    ///
    /// # Errors
    /// Returns an error if the context of the source cannot be preserved but must be.
    pub(crate) fn check(&self, label: &Label, sink: Place<'_>) -> Result<(), CopyError> {
        match self.set(label, sink) {
            Ok(()) => Ok(()),
            // A file system without contexts leaves a new file unlabelled. As in cp, this is not a
            // failure.
            Err(error) if self.is_new && selinux::is_absence(&error) => Ok(()),
            Err(source) => {
                let is_absence = selinux::is_absence(&source);
                let (doing, path) = ("failed to set the security context of", (self.sink_path)());
                self.tell(CopyError::Failed { doing, path, source }, is_absence)
            }
        }
    }

    fn set(&self, label: &Label, sink: Place<'_>) -> io::Result<()> {
        let wanted = match (label, &self.job.settings.rules.contexts) {
            (Label::This(context), _) => context.clone(),
            (Label::Listed, Contexts::Listed(policy)) => {
                let (dir, standing) = (self.sink.base()?, Context::of(sink)?);
                selinux::of_existing_at(&**policy, dir.as_fd(), self.sink.name(), self.kind, &standing)?
            }
            _ => return Ok(()),
        };
        match Context::of(sink) {
            Ok(has) if has == wanted => Ok(()),
            _ => wanted.set(sink),
        }
    }

    /// Reports a context error. Only `--preserve=context` makes it a failure; `-a` ignores it
    /// silently.
    fn tell(&self, error: CopyError, is_absence: bool) -> Result<(), CopyError> {
        let rules = &self.job.settings.rules;
        let is_expected = rules.preserve.reduce_diagnostics || is_absence;
        if matches!(rules.contexts, Contexts::Sources { is_required: true, .. }) {
            return Err(error);
        }
        if rules.attributes_only || !is_expected {
            self.job.report().warned(&error);
        }
        Ok(())
    }
}

/// Creates a directory above an operand by calling `make`, or labels the existing one, like
/// [`labelled`].
///
/// # Errors
/// See [`labelled`].
pub(crate) fn labelled_above<T>(
    job: &Job<'_>,
    source: &OsStr,
    target: &Directory,
    sink: &OsStr,
    is_new: bool,
    make: impl FnOnce() -> Result<T, CopyError>,
) -> Result<T, CopyError> {
    if !job.settings.rules.contexts.are_set() {
        return make();
    }
    let labelling = Labelling {
        job,
        source_path: &|| source.to_owned(),
        sink: &target.sink_at(sink),
        sink_path: &|| target.sink_path_of(sink),
        kind: FileKind::Directory,
        is_new,
    };
    labelling.make(&target.source_at(&*reached(source, Follow::Yes)), make)
}

/// Clears the context for the next files of this thread, which are not copies.
pub(crate) fn done(settings: &CopySettings) {
    if let Contexts::Sources { policy, .. } | Contexts::Listed(policy) = &settings.rules.contexts {
        // If the reset fails, no context was set before.
        let _ = policy.label_new_files(None);
    }
}

/// Returns a name for calls that do not follow a link in the last component. With `Follow::Yes` it
/// names the directory behind the link.
fn reached(name: &OsStr, follow: Follow) -> Cow<'_, OsStr> {
    match follow {
        Follow::No => Cow::Borrowed(name),
        Follow::Yes => Cow::Owned(OsString::from_vec([name.as_bytes(), b"/."].concat())),
    }
}
