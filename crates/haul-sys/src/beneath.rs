//! Path resolution beneath a directory: no `..`, absolute path or symbolic link leads out of it.

use crate::dir::open_place_at;
use crate::stat::Follow;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Maximum length, in bytes, of the path passed to one call: less than `PATH_MAX`.
const PATH_BYTES_AT_ONCE: usize = 4000;

/// Maximum number of attempts for a lookup that fails with `EAGAIN` because of a concurrent rename.
const ATTEMPTS: usize = 32;

/// Opens the directory `path` beneath `root` with O_PATH, at any depth, to resolve names in it.
///
/// With [`Follow::Yes`], symbolic links in `path` are followed as long as they stay beneath `root`
/// (openat2(2), RESOLVE_BENEATH). Kernels before 5.6 follow none. With [`Follow::No`], no component
/// of `path` may be a symbolic link.
///
/// # Errors
///
/// Returns the errors of openat2(2): `EXDEV` if a link leads out of `root`, `ELOOP` if a link is
/// not followed, `ENOENT` and `ENOTDIR`. Also returns `EXDEV` if `path` is absolute or has a
/// component `..`.
pub fn open_place_beneath(root: impl AsFd, path: &OsStr, links: Follow) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_beneath(root.as_fd(), path, links, flags)
}

/// Opens the file `path` beneath `root` to read its bytes, as
/// [`open_source_at`](crate::open::open_source_at) does. Symbolic links are followed as
/// [`open_place_beneath`] follows them.
///
/// # Errors
///
/// Same as [`open_place_beneath`].
pub fn open_source_beneath(root: impl AsFd, path: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = match open_beneath(root.as_fd(), path, Follow::Yes, flags | OFlags::NONBLOCK) {
        // Another process holds a lease on the file. Only a blocking open breaks the lease.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return open_beneath(root.as_fd(), path, Follow::Yes, flags);
        }
        opened => opened?,
    };
    // Only the open needs the flag.
    retry_on_intr(|| rustix::fs::fcntl_setfl(&fd, OFlags::empty()))?;
    Ok(fd)
}

fn open_beneath(root: BorrowedFd<'_>, path: &OsStr, links: Follow, flags: OFlags) -> io::Result<OwnedFd> {
    let above = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut place: Option<OwnedFd> = None;
    let mut piece: Vec<u8> = Vec::new();
    for component in Path::new(path).components() {
        let name = match component {
            Component::Normal(name) => name.as_bytes(),
            Component::CurDir => continue,
            _ => return Err(Errno::XDEV.into()),
        };
        if piece.len() + name.len() >= PATH_BYTES_AT_ONCE {
            place = Some(step(place.as_ref().map_or(root, AsFd::as_fd), &piece, links, above)?);
            piece.clear();
        }
        if !piece.is_empty() {
            piece.push(b'/');
        }
        piece.extend_from_slice(name);
    }
    if piece.is_empty() {
        piece.push(b'.');
    } else if path.as_bytes().ends_with(b"/") {
        // Only a directory has such a name.
        piece.push(b'/');
    }
    step(place.as_ref().map_or(root, AsFd::as_fd), &piece, links, flags)
}

/// Resolves the part of the path that fits into one call.
fn step(place: BorrowedFd<'_>, piece: &[u8], links: Follow, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH
        | match links {
            Follow::Yes => ResolveFlags::NO_MAGICLINKS,
            Follow::No => ResolveFlags::NO_SYMLINKS,
        };
    let path = OsStr::from_bytes(piece);
    for _ in 0..ATTEMPTS {
        match retry_on_intr(|| rustix::fs::openat2(place, path, flags, Mode::empty(), resolve)) {
            Ok(found) => return Ok(found),
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS) => return step_by_step(place, path, flags),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::AGAIN.into())
}

/// Resolves the path on kernels without openat2: name by name, and follows no link.
fn step_by_step(place: BorrowedFd<'_>, path: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    let path = Path::new(path);
    let mut above = open_place_at(place, ".", Follow::No)?;
    for name in path.parent().into_iter().flatten() {
        above = open_place_at(&above, name, Follow::No)?;
    }
    let last = path.file_name().unwrap_or(OsStr::new("."));
    let flags = flags | OFlags::NOFOLLOW;
    Ok(retry_on_intr(|| rustix::fs::openat(&above, last, flags, Mode::empty()))?)
}

/// Opens the directory beneath which all other names are resolved. Links that lead to the directory
/// are followed.
///
/// # Errors
///
/// Returns the errors of openat(2).
pub fn open_root(path: &OsStr) -> io::Result<OwnedFd> {
    open_place_at(CWD, path, Follow::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn ino(fd: &OwnedFd) -> u64 {
        crate::stat::stat_fd(fd).unwrap().ino
    }

    #[test]
    fn only_symlinks_that_stay_beneath_the_root_are_followed() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(outside.path().join("secret")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink("a", dir.path().join("inside")).unwrap();
        symlink(outside.path(), dir.path().join("absolute")).unwrap();
        symlink("../..", dir.path().join("a/upward")).unwrap();
        let root = open_root(dir.path().as_os_str()).unwrap();
        let open = |path: &str| open_place_beneath(&root, OsStr::new(path), Follow::Yes);
        let expected = std::fs::metadata(dir.path().join("a/b")).unwrap().ino();
        assert_eq!(ino(&open("a/b").unwrap()), expected);
        assert_eq!(ino(&open("./a/./b").unwrap()), expected);
        assert_eq!(ino(&open("inside/b").unwrap()), expected);
        assert_eq!(ino(&open("").unwrap()), std::fs::metadata(dir.path()).unwrap().ino());
        for path in ["absolute/secret", "absolute", "a/upward", "a/upward/..", "..", "a/../..", "/", "/etc"] {
            assert_eq!(open(path).unwrap_err().raw_os_error(), Some(18), "{path}"); // EXDEV
        }
        assert_eq!(open("none").unwrap_err().kind(), io::ErrorKind::NotFound);
        let open = |path: &str| open_place_beneath(&root, OsStr::new(path), Follow::No);
        assert_eq!(ino(&open("a/b").unwrap()), expected);
        for path in ["inside/b", "absolute", "a/upward"] {
            assert_eq!(open(path).unwrap_err().raw_os_error(), Some(40), "{path}"); // ELOOP
        }
        // Without openat2, no link is followed.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &str| step_by_step(root.as_fd(), OsStr::new(path), flags);
        assert_eq!(ino(&open("a/b").unwrap()), expected);
        for path in ["inside/b", "absolute", "a/upward"] {
            assert!(open(path).is_err(), "{path}");
        }
    }

    #[test]
    fn files_are_opened_through_links_that_stay_beneath_the_root() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("file"), "bytes").unwrap();
        symlink("../file", dir.path().join("a/inside")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("absolute")).unwrap();
        symlink("../../secret", dir.path().join("a/upward")).unwrap();
        symlink(outside.path(), dir.path().join("b")).unwrap();
        let root = open_root(dir.path().as_os_str()).unwrap();
        let open = |path: &str| open_source_beneath(&root, OsStr::new(path));
        for path in ["file", "./file", "a/inside"] {
            let file = std::fs::File::from(open(path).unwrap());
            assert_eq!(std::io::read_to_string(file).unwrap(), "bytes", "{path}");
        }
        for path in ["absolute", "a/upward", "b/secret", "a/../file"] {
            assert_eq!(open(path).unwrap_err().raw_os_error(), Some(18), "{path}"); // EXDEV
        }
        assert_eq!(open("none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(open("file/").unwrap_err().kind(), io::ErrorKind::NotADirectory);
        // Without openat2, no link is followed.
        let open = |path: &str| step_by_step(root.as_fd(), OsStr::new(path), OFlags::RDONLY);
        assert_eq!(
            ino(&open("file").unwrap()),
            ino(&open_source_beneath(&root, OsStr::new("file")).unwrap())
        );
        assert!(open("a/inside").is_err() && open("b/secret").is_err());
    }

    #[test]
    fn directories_deeper_than_path_max_are_reached() {
        let dir = tempfile::tempdir().unwrap();
        let root = open_root(dir.path().as_os_str()).unwrap();
        let name = "d".repeat(200);
        let mut place = open_place_beneath(&root, OsStr::new(""), Follow::No).unwrap();
        for _ in 0..50 {
            crate::open::mkdir_at(&place, name.as_str(), 0o700).unwrap();
            place = open_place_at(&place, name.as_str(), Follow::No).unwrap();
        }
        let deep = vec![name.as_str(); 50].join("/");
        assert_eq!(ino(&open_place_beneath(&root, OsStr::new(&deep), Follow::No).unwrap()), ino(&place));
    }
}
