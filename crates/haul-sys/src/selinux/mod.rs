//! SELinux support for copying: detection of SELinux, the contexts that its [`Policy`] assigns to
//! files, and the label itself, a [`Context`].
//!
//! Only libselinux can evaluate a policy: its list of paths has a format of that library, with
//! regular expressions of yet another library. The library is loaded when it is first needed
//! ([`Library`]). Therefore it is needed neither to build this crate nor to start on a kernel
//! without SELinux.

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

/// Attribute that holds the security context of a file.
pub const CONTEXT: &CStr = c"security.selinux";

/// File that exists only if the kernel runs SELinux, enforcing or permissive. Its file system must
/// be mounted at the place that all distributions use.
const MARK: &str = "/sys/fs/selinux/enforce";

/// Source of contexts, and setter of the context of new files. The policy of the system is the
/// [`Library`].
pub trait Policy: fmt::Debug + Send + Sync {
    /// Reads the policy's list of paths, which [`Policy::of_path`] uses.
    ///
    /// # Errors
    ///
    /// Returns an error if the list cannot be read.
    fn read_paths(&self) -> io::Result<()>;

    /// Returns the context that the list of paths assigns to an absolute path.
    ///
    /// # Errors
    ///
    /// Returns `ENOENT` if the list has no context for the path, and any error that prevents the
    /// lookup.
    fn of_path(&self, path: &Path, kind: FileKind) -> io::Result<Context>;

    /// Returns the default context of new files of this kind that this process creates in a
    /// directory with the context `directory`.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel: `EINVAL` for a context that its policy does not know, ...
    fn of_new(&self, directory: &Context, kind: FileKind) -> io::Result<Context>;

    /// Returns the context that a user specifies as `typed`. The text may contain ranges by the
    /// names that this system gives them.
    ///
    /// # Errors
    ///
    /// Returns an error if the text cannot be translated.
    fn parse_context(&self, typed: &OsStr) -> io::Result<Context>;

    /// Sets the context of all files that this thread, and threads started by it, create from now
    /// on. `None` restores the default.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel: `EINVAL` if its policy does not know the context, `EACCES`
    /// if its policy forbids the context.
    fn label_new_files(&self, context: Option<&Context>) -> io::Result<()>;
}

/// Returns the policy of the running kernel. Returns `None` if the kernel does not label files by
/// SELinux, or not for this process; in a container libselinux reports that.
pub fn policy() -> Option<Arc<dyn Policy>> {
    // Without SELinux, a start costs only this lookup of one path.
    if !Path::new(MARK).exists() {
        return None;
    }
    let library = Library::load().ok()?;
    library.is_enabled().then(|| Arc::new(library) as Arc<dyn Policy>)
}

/// Returns the context of a new file according to the list of paths: the default context of the
/// kernel with the type from the list.
///
/// # Errors
///
/// Returns `ENODATA` if the list has no context for the name or the directory has none, and the
/// errors of the policy.
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

/// Returns the context of an existing file according to the list of paths: its current context
/// `standing` with the type from the list.
///
/// # Errors
///
/// Same as [`of_new_at`].
pub fn of_existing_at(
    policy: &dyn Policy,
    dir: BorrowedFd<'_>,
    name: &OsStr,
    kind: FileKind,
    standing: &Context,
) -> io::Result<Context> {
    standing.with_type_of(&of_path_at(policy, dir, name, kind)?)
}

/// Returns the context that the list of paths assigns to a name in an open directory.
///
/// # Errors
///
/// Returns `ENODATA` if the list has no context for the name, and the errors of the policy.
pub fn of_path_at(
    policy: &dyn Policy,
    dir: BorrowedFd<'_>,
    name: &OsStr,
    kind: FileKind,
) -> io::Result<Context> {
    policy.of_path(&path_of(dir, name)?, kind).map_err(|error| match error.kind() {
        // The file exists; only its context does not.
        io::ErrorKind::NotFound => io::Error::from_raw_os_error(libc::ENODATA),
        _ => error,
    })
}

/// Returns true if an error only means that there are no contexts. Then the file system does not
/// support them, or the policy has none for this file.
pub fn is_absence(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODATA | libc::EOPNOTSUPP))
}

/// Returns the absolute path of a name in an open directory, without symbolic links except in the
/// last component.
fn path_of(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<PathBuf> {
    let place =
        if dir.as_raw_fd() == CWD.as_raw_fd() { PathBuf::from(".") } else { PathBuf::from(proc_path(dir)) };
    match split(name) {
        (_, last) if matches!(last.as_bytes(), b"" | b"." | b"..") => fs::canonicalize(place.join(name)),
        (above, last) => Ok(fs::canonicalize(place.join(above))?.join(last)),
    }
}

/// Returns the parent directory of a name, relative to the same directory, and its last component
/// without trailing slashes.
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
    fn path_lookup_resolves_parent_symlinks() {
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
