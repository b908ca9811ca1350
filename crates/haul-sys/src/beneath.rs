//! Path resolution beneath a directory: no `..`, absolute path or symbolic link leads out of it.

use crate::dir::open_place_at;
use crate::stat::Follow;
use rustix::fd::{AsFd, OwnedFd};
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
    let mut place = open_place_at(&root, ".", Follow::No)?;
    let mut piece: Vec<u8> = Vec::new();
    for component in Path::new(path).components() {
        let name = match component {
            Component::Normal(name) => name.as_bytes(),
            Component::CurDir => continue,
            _ => return Err(Errno::XDEV.into()),
        };
        if piece.len() + name.len() >= PATH_BYTES_AT_ONCE {
            place = step(&place, &piece, links)?;
            piece.clear();
        }
        if !piece.is_empty() {
            piece.push(b'/');
        }
        piece.extend_from_slice(name);
    }
    if piece.is_empty() { Ok(place) } else { step(&place, &piece, links) }
}

/// Resolves the part of the path that fits into one call.
fn step(place: &OwnedFd, piece: &[u8], links: Follow) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
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
            Err(Errno::NOSYS) => return step_by_step(place, path),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::AGAIN.into())
}

/// Resolves the path on kernels without openat2: name by name, and follows no link.
fn step_by_step(place: &OwnedFd, path: &OsStr) -> io::Result<OwnedFd> {
    let mut place = open_place_at(place, ".", Follow::No)?;
    for name in Path::new(path) {
        place = open_place_at(&place, name, Follow::No)?;
    }
    Ok(place)
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
        assert_eq!(ino(&step_by_step(&root, OsStr::new("a/b")).unwrap()), expected);
        for path in ["inside/b", "absolute", "a/upward"] {
            assert!(step_by_step(&root, OsStr::new(path)).is_err(), "{path}");
        }
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
