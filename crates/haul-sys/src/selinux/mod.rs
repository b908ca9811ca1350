//! SELinux as far as a copying program meets it: whether the kernel labels files by it, what its [`Policy`] has for a
//! file, and the label itself, a [`Context`].
//!
//! What a policy says is libselinux's to find out: its list of paths is a format of that library, with expressions of a
//! library of its own. It is loaded when it is first needed ([`Library`]), so that nothing of it is needed to build this, nor to
//! start where the kernel has no SELinux.

mod context;
mod library;

pub use context::Context;
pub use library::Library;

use crate::dir::CWD;
use crate::metadata::Place;
use crate::open::proc_path;
use crate::stat::FileKind;
use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The attribute that holds a file's security context.
pub const CONTEXT: &CStr = c"security.selinux";

/// What only a kernel that enforces or permits by SELinux shows, once its file system is mounted where all
/// distributions mount it.
const MARK: &str = "/sys/fs/selinux/enforce";

/// Whom to ask about contexts, and whom to tell which new files get. The system's own is the [`Library`].
pub trait Policy: fmt::Debug + Send + Sync {
    /// Makes the policy's list of paths ready, which [`Policy::of_path`] looks into.
    ///
    /// # Errors
    /// It can't be read.
    fn read_paths(&self) -> io::Result<()>;

    /// What the list of paths has for an absolute path.
    ///
    /// # Errors
    /// `ENOENT` where it has nothing for it, or what stands in the way of looking.
    fn of_path(&self, path: &Path, kind: FileKind) -> io::Result<Context>;

    /// What this process's new files of this kind get by themselves in a directory that has the context `directory`.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a context that its policy does not know, ...
    fn of_new(&self, directory: &Context, kind: FileKind) -> io::Result<Context>;

    /// The context that a user means by `typed`, who may write ranges by the names that this system gives them.
    ///
    /// # Errors
    /// It can't be told.
    fn meant_by(&self, typed: &OsStr) -> io::Result<Context>;

    /// Gives all files that this thread makes from now on, and the threads it starts, this context; `None` for those that
    /// they get by themselves.
    ///
    /// # Errors
    /// What the kernel says of the context: `EINVAL` where its policy knows no such one, `EACCES` where it forbids it.
    fn label_new_files(&self, context: Option<&Context>) -> io::Result<()>;
}

/// The policy of the running kernel; `None` where that does not label files by SELinux, or not for this process: in a
/// container libselinux says so.
pub fn policy() -> Option<Arc<dyn Policy>> {
    // One look at a path is all that a start pays where there is no SELinux.
    if !Path::new(MARK).exists() {
        return None;
    }
    let library = Library::load().ok()?;
    library.is_enabled().then(|| Arc::new(library) as Arc<dyn Policy>)
}

/// What a new file gets by the list of paths: all that the kernel would give it there, but the type that the list has.
///
/// # Errors
/// `ENODATA` where the list has nothing for it, or the directory no context; what the policy says.
pub fn of_new_at(
    policy: &dyn Policy,
    dir: BorrowedFd<'_>,
    name: &OsStr,
    kind: FileKind,
) -> io::Result<Context> {
    let listed = of_path_at(policy, dir, name, kind)?;
    let above = CString::new(split(name).0.as_bytes())?;
    let by_itself = policy.of_new(&Context::of(Place::Name(dir, &above))?, kind)?;
    by_itself.with_type_of(&listed)
}

/// What a standing file gets by the list of paths: the context `standing`, which it has, with the type that the list has.
///
/// # Errors
/// As [`of_new_at`].
pub fn of_standing_at(
    policy: &dyn Policy,
    dir: BorrowedFd<'_>,
    name: &OsStr,
    (kind, standing): (FileKind, &Context),
) -> io::Result<Context> {
    standing.with_type_of(&of_path_at(policy, dir, name, kind)?)
}

/// What the list of paths has for a name in an open directory.
///
/// # Errors
/// `ENODATA` where it has nothing for it; what the policy says.
pub fn of_path_at(
    policy: &dyn Policy,
    dir: BorrowedFd<'_>,
    name: &OsStr,
    kind: FileKind,
) -> io::Result<Context> {
    policy.of_path(&path_of(dir, name)?, kind).map_err(|error| match error.kind() {
        // The file is there: it is its context that is not.
        io::ErrorKind::NotFound => io::Error::from_raw_os_error(libc::ENODATA),
        _ => error,
    })
}

/// Whether an error only says that there are no contexts here: the file system keeps none, or the policy has none for this.
pub fn is_absence(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODATA | libc::EOPNOTSUPP))
}

/// The absolute path of a name in an open directory, free of links down to the last component.
fn path_of(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<PathBuf> {
    let place =
        if dir.as_raw_fd() == CWD.as_raw_fd() { PathBuf::from(".") } else { PathBuf::from(proc_path(dir)) };
    match split(name) {
        (_, last) if matches!(last.as_bytes(), b"" | b"." | b"..") => fs::canonicalize(place.join(name)),
        (above, last) => Ok(fs::canonicalize(place.join(above))?.join(last)),
    }
}

/// The directory that a name lies in, relative to where the name is, and its last component without the slashes behind it.
fn split(name: &OsStr) -> (&OsStr, &OsStr) {
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let above: &[u8] = if start == 0 { b"." } else { &bytes[..start] };
    (OsStr::from_bytes(above), OsStr::from_bytes(&bytes[start..end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_are_looked_up_without_the_links_above_them() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("a", root.join("l")).unwrap();
        let dir = fs::File::open(&root).unwrap();
        for (name, expected) in [
            ("new", "new"),
            ("l/new", "a/new"),
            ("l/b//", "a/b"),
            ("l//b/../new", "a/new"),
            ("l", "l"),
            ("l/.", "a"),
            ("a/b/..", "a"),
        ] {
            assert_eq!(path_of(dir.as_fd(), OsStr::new(name)).unwrap(), root.join(expected), "{name}");
        }
        assert_eq!(path_of(dir.as_fd(), OsStr::new(".")).unwrap(), root);
        assert_eq!(path_of(dir.as_fd(), OsStr::new("/new")).unwrap(), Path::new("/new"));
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(path_of(CWD, OsStr::new("new")).unwrap(), here.join("new"));
        assert!(path_of(dir.as_fd(), OsStr::new("none/new")).is_err());
    }
}
