//! Security contexts, where the kernel labels files by SELinux: the kernel is told of the context before a file is made, so
//! that it never stands there with another; what stands already, and what got another one all the same, is labelled before
//! anything is written into it.

use super::descriptors::Opened;
use super::entry::Entry;
use super::error::CopyError;
use super::job::Job;
use super::settings::{Contexts, CopySettings};
use haul_sys::metadata::Place;
use haul_sys::selinux::{self, Context, Policy};
use haul_sys::{CWD, FileKind, Follow};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

/// A sink that is to be labelled, and what it is the copy of.
pub(crate) struct Labelling<'a, 'j> {
    job: &'a Job<'j>,
    source_path: &'a dyn Fn() -> OsString,
    sink: (BorrowedFd<'a>, &'a OsStr),
    sink_path: &'a dyn Fn() -> OsString,
    /// What is made.
    kind: FileKind,
    is_new: bool,
}

/// The context that a sink is to have.
#[derive(Debug)]
pub(crate) enum Label {
    /// Whichever it gets or has.
    Any,
    This(Context),
    /// What it has, with the type that the policy's list of paths has for it.
    Listed,
}

/// Makes `kind` at the sink of an entry by `make`, with the context that the rules have for it.
///
/// # Errors
/// What `make` reports; what of the context must be kept and could not.
pub(crate) fn labelled<T>(
    job: &Job<'_>,
    entry: &Entry,
    sink_name: &OsStr,
    (kind, is_new): (FileKind, bool),
    make: impl FnOnce() -> Result<T, CopyError>,
) -> Result<T, CopyError> {
    if !job.settings.rules.contexts.are_set() {
        return make();
    }
    let parent = &entry.parent;
    let labelling = Labelling {
        job,
        source_path: &|| entry.source_path(),
        sink: (parent.sink(), sink_name),
        sink_path: &|| parent.sink_path_of(sink_name),
        kind,
        is_new,
    };
    // No link is copied as a directory: one that stands at the source is what leads to it.
    let follow = if kind == FileKind::Directory { Follow::Yes } else { Follow::No };
    let (from, to) = (reached(&entry.source_name, follow), reached(sink_name, Follow::No));
    let label = labelling.announce(Place::Name(parent.source(), &from))?;
    let made = make()?;
    labelling.check(&label, Place::Name(parent.sink(), &to))?;
    Ok(made)
}

impl<'a, 'j> Labelling<'a, 'j> {
    /// Of a regular file, which `job` is about to open.
    pub(crate) fn of_file(
        job: &'a Job<'j>,
        paths: (&'a dyn Fn() -> OsString, &'a dyn Fn() -> OsString),
        sink: (BorrowedFd<'a>, &'a OsStr),
        is_new: bool,
    ) -> Option<Labelling<'a, 'j>> {
        let (source_path, sink_path) = paths;
        let kind = FileKind::Regular;
        let is_wanted = job.settings.rules.contexts.are_set();
        is_wanted.then_some(Labelling { job, source_path, sink, sink_path, kind, is_new })
    }

    /// Tells the kernel which context this thread's next file is to get.
    ///
    /// # Errors
    /// The source's can't be kept, and must be.
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
        // What an earlier file got is not this one's.
        let _ = policy.label_new_files(None);
        self.tell(error, is_absence)?;
        Ok(Label::Any)
    }

    fn announce_listed(&self, policy: &dyn Policy) -> Label {
        let (dir, name) = self.sink;
        let announced = selinux::of_new_at(policy, dir, name, self.kind)
            .and_then(|context| policy.label_new_files(Some(&context)).map(|()| context));
        match announced {
            Ok(context) => Label::This(context),
            Err(source) => {
                let _ = policy.label_new_files(None);
                if !selinux::is_absence(&source) {
                    let doing = "failed to set default file creation context for";
                    let path = (self.sink_path)();
                    self.job.report.warned(&CopyError::Failed { doing, path, source });
                }
                Label::Any
            }
        }
    }

    /// Labels what stands at the sink now, if it has another context.
    ///
    /// # Errors
    /// The source's can't be kept, and must be.
    pub(crate) fn check(&self, label: &Label, sink: Place<'_>) -> Result<(), CopyError> {
        match self.set(label, sink) {
            Ok(()) => Ok(()),
            // A new file has none where its file system keeps none: that is no more a failure than with cp.
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
                let ((dir, name), standing) = (self.sink, Context::of(sink)?);
                selinux::of_standing_at(&**policy, dir, name, (self.kind, &standing))?
            }
            _ => return Ok(()),
        };
        match Context::of(sink) {
            Ok(has) if has == wanted => Ok(()),
            _ => wanted.set(sink),
        }
    }

    /// Only `--preserve=context` makes a failure of one; `-a` does what it can in silence.
    fn tell(&self, error: CopyError, is_absence: bool) -> Result<(), CopyError> {
        let rules = &self.job.settings.rules;
        let is_expected = rules.preserve.reduce_diagnostics || is_absence;
        if matches!(rules.contexts, Contexts::Sources { is_required: true, .. }) {
            return Err(error);
        }
        if rules.attributes_only || !is_expected {
            self.job.report.warned(&error);
        }
        Ok(())
    }
}

/// Makes a directory above an operand by `make`, or labels the one that stands there, as [`labelled`].
///
/// # Errors
/// As [`labelled`].
pub(crate) fn labelled_above<T>(
    job: &Job<'_>,
    source: &OsStr,
    (target, sink): (&Opened, &OsStr),
    is_new: bool,
    make: impl FnOnce() -> Result<T, CopyError>,
) -> Result<T, CopyError> {
    if !job.settings.rules.contexts.are_set() {
        return make();
    }
    let labelling = Labelling {
        job,
        source_path: &|| source.to_owned(),
        sink: (target.sink(), sink),
        sink_path: &|| target.sink_path_of(sink),
        kind: FileKind::Directory,
        is_new,
    };
    let (from, to) = (reached(source, Follow::Yes), reached(sink, Follow::No));
    let label = labelling.announce(Place::Name(CWD, &from))?;
    let made = make()?;
    labelling.check(&label, Place::Name(target.sink(), &to))?;
    Ok(made)
}

/// This thread's next files are no copies.
pub(crate) fn done(settings: &CopySettings) {
    if let Contexts::Sources { policy, .. } | Contexts::Listed(policy) = &settings.rules.contexts {
        // What can't be taken back was never said.
        let _ = policy.label_new_files(None);
    }
}

/// A name for calls that follow no link in its last component: a directory's own name behind the link that leads to it.
fn reached(name: &OsStr, follow: Follow) -> CString {
    let mut bytes = name.as_bytes().to_vec();
    if follow == Follow::Yes {
        bytes.extend_from_slice(b"/.");
    }
    // Names come from the kernel or the command line, which end them at the first NUL.
    CString::new(bytes).unwrap_or_default()
}
