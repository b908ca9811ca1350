//! Security contexts, if the kernel labels files with SELinux.

use super::run::Sink;
use haul_engine::copy::{cause, quote, quote_if_needed, quote_word};
use haul_sys::metadata::Place;
use haul_sys::open::mkdir_at;
use haul_sys::selinux::{self, Context, Policy};
use haul_sys::{CWD, FileKind};
use std::ffi::{CString, OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use thiserror::Error;

/// Warning about a file that could not be labelled.
#[derive(Debug, Error)]
pub(super) enum LabelError {
    #[error("warning: {}: context lookup failed: {}", quote_if_needed(path), cause(source))]
    Lookup { path: OsString, source: io::Error },
    #[error(
        "warning: {}: failed to change context to {}: {}",
        quote_if_needed(path),
        quote_word(context.as_os_str()),
        cause(source)
    )]
    Change { path: OsString, context: Context, source: io::Error },
    #[error("failed to set default creation context for {}: {}", quote(path), cause(source))]
    Announce { path: OsString, source: io::Error },
    #[error("failed to restore context for {}: {}", quote(path), cause(source))]
    Restore { path: OsString, source: io::Error },
}

/// `Yes` for a directory that `-d` names, which is checked again in any case; `No` for a parent of
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedByUser {
    Yes,
    No,
}

/// Creation of directories: receivers of reports, and the policy for contexts.
pub(super) struct DirectoryCreator<'a> {
    /// Receives the path of each created directory.
    pub(super) tell: &'a dyn Fn(&OsStr),
    pub(super) warn: &'a dyn Fn(&dyn Display),
    /// `-Z`.
    pub(super) policy: Option<&'a dyn Policy>,
}

impl DirectoryCreator<'_> {
    /// Creates a directory and reports it.
    ///
    /// # Errors
    /// Returns the error of mkdirat(2).
    pub(super) fn make(
        &self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        path: &OsStr,
        mode: u32,
        asked: NamedByUser,
    ) -> io::Result<()> {
        let mut label = self.policy.map(|policy| announce(policy, dir, name));
        if asked == NamedByUser::No
            && let Some(Err(source)) = label.take_if(|label| label.is_err())
            && !selinux::is_absence(&source)
        {
            (self.warn)(&LabelError::Announce { path: path.to_owned(), source });
        }
        mkdir_at(dir, name, mode)?;
        (self.tell)(path);
        if let Some(label) = label {
            let set = label.and_then(|label| {
                with_place(dir, name, |place| {
                    if Context::of(place).is_ok_and(|has| has == label) { Ok(()) } else { label.set(place) }
                })
            });
            self.restored(set, path);
        }
        Ok(())
    }

    /// `-d -Z` for an existing directory.
    pub(super) fn relabel(&self, dir: BorrowedFd<'_>, name: &OsStr, path: &OsStr) {
        let Some(policy) = self.policy else { return };
        let set = with_place(dir, name, |place| {
            let standing = Context::of(place)?;
            let wanted = selinux::of_existing_at(policy, dir, name, FileKind::Directory, &standing)?;
            if wanted == standing { Ok(()) } else { wanted.set(place) }
        });
        self.restored(set, path);
    }

    fn restored(&self, set: io::Result<()>, path: &OsStr) {
        if let Err(source) = set
            && !selinux::is_absence(&source)
        {
            (self.warn)(&LabelError::Restore { path: path.to_owned(), source });
        }
    }
}

/// Sets the context of the next new directory in the kernel.
fn announce(policy: &dyn Policy, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Context> {
    let announced = selinux::of_new_at(policy, dir, name, FileKind::Directory)
        .and_then(|context| policy.label_new_files(Some(&context)).map(|()| context));
    if announced.is_err() {
        // Clears the context that was set for the parent directory.
        let _ = policy.label_new_files(None);
    }
    announced
}

/// Sets an installed file's complete context as the policy gives it for the path, because the
/// installer of a program labels it.
///
/// # Errors
/// Returns [`LabelError`] if there is a context that cannot be found or set.
pub(super) fn settle(policy: &dyn Policy, sink: &Sink<'_>, file: &OwnedFd) -> Result<(), LabelError> {
    let context = match selinux::of_path_at(policy, sink.dir(), sink.name, FileKind::Regular) {
        Ok(context) => context,
        Err(source) if selinux::is_absence(&source) => return Ok(()),
        Err(source) => return Err(LabelError::Lookup { path: sink.path(), source }),
    };
    match context.set(Place::file(file)) {
        Err(source) if source.kind() != io::ErrorKind::Unsupported => {
            Err(LabelError::Change { path: sink.path(), context, source })
        }
        _ => Ok(()),
    }
}

/// `-C --preserve-context`: returns true if both files have the same context.
pub(super) fn are_alike(source: &OsStr, sink: &Sink<'_>) -> bool {
    let from = with_place(CWD, source, Context::of);
    let to = with_place(sink.dir(), sink.name, Context::of);
    matches!((from, to), (Ok(from), Ok(to)) if from == to)
}

fn with_place<T>(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    act: impl FnOnce(Place<'_>) -> io::Result<T>,
) -> io::Result<T> {
    let name = CString::new(name.as_bytes())?;
    act(Place::Name(dir, &name))
}
