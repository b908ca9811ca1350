//! `-Z`: renamed files get the types that SELinux's policy specifies for their new location. A
//! rename does not change labels.

use crate::cp::Contexts;
use crate::location::Location;
use haul_engine::copy::CopyError;
use haul_engine::{Descent, Step, WalkEntry};
use haul_storage::{FileKind, Follow, local};
use haul_sys::dir::open_dir_at;
use haul_sys::metadata::Place;
use haul_sys::selinux::{self, Context, Policy};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Labels a name and everything beneath it, if the rules require that. Returns the warning to print
/// if an error occurred, which does not fail the move.
pub(super) fn relabel(contexts: &Contexts, renamed: &Location<'_>, path: &OsStr) -> Option<CopyError> {
    let Contexts::Listed(policy) = contexts else { return None };
    let failed = all(&**policy, renamed).err();
    let doing = "failed to set the security context of";
    failed.map(|source| CopyError::Failed { doing, path: path.to_owned(), source })
}

/// Labels as many objects as possible. Objects without a context, and those that the policy does
/// not list, stay unchanged.
///
/// # Errors
/// Returns the last error if there were several.
fn all(policy: &dyn Policy, renamed: &Location<'_>) -> io::Result<()> {
    // A trailing slash after the moved name would follow a link.
    let renamed = renamed.beside(crate::paths::without_slashes(renamed.name()));
    let (dir, name) = (renamed.base()?, renamed.name());
    let kind = renamed.stat(Follow::No)?.kind;
    let mut outcome = Ok(());
    let mut note = |done: io::Result<()>| {
        if done.as_ref().is_err_and(|error| !selinux::is_absence(error)) {
            outcome = done;
        }
    };
    note(renamed.with_place(|error| error, |place| one(policy, dir.as_fd(), name, place, kind)));
    let mut descent = Descent::default();
    if kind == FileKind::Directory {
        let opened = open_dir_at(&dir, name, Follow::No).and_then(local::directory_of);
        note(opened.and_then(|dir| descent.begin(dir, name)));
    }
    while !descent.is_over() {
        note(match descent.step() {
            Step::Entry(WalkEntry { dir, name, kind, .. }) => local::descriptor_of(&*dir).and_then(|dir| {
                one(policy, dir.as_fd(), name.as_os_str(), Place::name(&dir, name.as_c_str()), kind)
            }),
            Step::Entered(dir, ..) => local::descriptor_of(&*dir).and_then(|dir| {
                one(policy, dir.as_fd(), OsStr::new("."), Place::file(&dir), FileKind::Directory)
            }),
            Step::Left(_) | Step::Nothing => Ok(()),
            Step::Failed(_, error) => Err(error),
        });
    }
    outcome
}

fn one(
    policy: &dyn Policy,
    dir: BorrowedFd<'_>,
    name: &OsStr,
    place: Place<'_>,
    kind: FileKind,
) -> io::Result<()> {
    let standing = Context::of(place)?;
    let wanted = selinux::of_existing_at(policy, dir, name, kind, &standing)?;
    if wanted == standing { Ok(()) } else { wanted.set(place) }
}
