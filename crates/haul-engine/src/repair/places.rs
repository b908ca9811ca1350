//! Where the paths of a waybill lead: beneath the root and beneath the replicas, and never out of them.

use super::Why;
use haul_log::waybill::RelPath;
use haul_sys::beneath::{open_place_beneath, open_root};
use haul_sys::open::{mkdir_at, open_entry_at, unlink_at};
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{FileKind, Follow, Stat, cache, dir, metadata};
use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// A directory that files may be taken from.
#[derive(Debug)]
pub(super) struct Replica {
    root: OwnedFd,
    /// It holds what another host sent: the bytes are proven, and nothing else of it is believed.
    pub(super) is_fetched: bool,
}

/// A name in an open directory.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) place: OwnedFd,
    pub(super) name: CString,
}

impl Replica {
    pub(super) fn open(name: &OsStr) -> io::Result<Replica> {
        Ok(Replica { root: open_root(name)?, is_fetched: false })
    }

    /// What another host sent into this directory.
    pub(super) fn fetched(root: OwnedFd) -> Replica {
        Replica { root, is_fetched: true }
    }

    /// The regular file under a path; `None` where there is none, or only by a link that leads out.
    ///
    /// # Errors
    /// It can't be opened.
    pub(super) fn file(&self, path: &RelPath) -> io::Result<Option<(OwnedFd, Stat)>> {
        match Spot::of(&self.root, path).and_then(|spot| spot.open()) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_no_file(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the file under a path, which was fetched and is needed no more: its room is for the next.
    pub(super) fn forget(&self, path: &RelPath) {
        if self.is_fetched {
            // What stays is removed with all the rest.
            let _ = Spot::of(&self.root, path).and_then(|spot| unlink_at(&spot.place, spot.name.as_c_str()));
        }
    }

    /// The mode of the directory under a path; `None` where it is none, or nobody's here.
    fn dir_mode(&self, path: &[u8]) -> Option<u32> {
        if self.is_fetched {
            return None;
        }
        let path = RelPath::new(path).ok()?;
        let spot = Spot::of(&self.root, &path).ok()?;
        let facts = stat_at(&spot.place, spot.name.as_c_str(), Follow::No).ok()?;
        (facts.kind == FileKind::Directory).then_some(facts.mode)
    }
}

impl Spot {
    /// Where a path leads beneath `root`.
    pub(super) fn of(root: &OwnedFd, path: &RelPath) -> io::Result<Spot> {
        let (dir, name) = split(path.as_bytes());
        let place = open_place_beneath(root, OsStr::from_bytes(dir), Follow::Yes)?;
        Ok(Spot { place, name: CString::new(name)? })
    }

    /// Opens what is a regular file; no link is followed, and no pipe waited for.
    pub(super) fn open(&self) -> io::Result<(OwnedFd, Stat)> {
        let fd = open_entry_at(&self.place, self.name.as_c_str())?;
        let facts = stat_fd(&fd)?;
        if facts.kind == FileKind::Regular {
            Ok((fd, facts))
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "Not a regular file"))
        }
    }

    /// Makes the directory's names durable.
    pub(super) fn sync(&self) -> Result<(), Why> {
        self.sync_names().map_err(Why::io("make the new name durable"))
    }

    /// As [`Spot::sync`], where that is not yet a reason.
    pub(super) fn sync_names(&self) -> io::Result<()> {
        dir::open_dir_at(&self.place, c".", Follow::No).and_then(cache::sync_all)
    }
}

/// Whether nothing stands there, or what is no regular file, or the way leads out.
fn is_no_file(error: &io::Error) -> bool {
    // A socket, and a link that is not followed: the standard library has no names for these.
    const ENXIO: i32 = 6;
    const ELOOP: i32 = 40;
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::CrossesDevices => true,
        // What the kernel did not say is that it is no regular file.
        _ => error.raw_os_error().is_none_or(|number| [ENXIO, ELOOP].contains(&number)),
    }
}

/// Whether a file is the one that `then` was, and nobody wrote to it or moved what belongs to it since.
pub(super) fn is_unchanged(now: &Stat, then: &Stat) -> bool {
    now.is_still(then)
        && (now.size, now.mtime, now.ctime, now.nlink) == (then.size, then.mtime, then.ctime, then.nlink)
}

/// As [`Spot::of`], and makes the directories on the way that are missing, with the modes they have in a replica (0700
/// where none has them). Those that are made are added to `made`.
pub(super) fn spot_made(
    root: &OwnedFd,
    path: &RelPath,
    replicas: &[Option<Replica>],
    made: &mut HashSet<Vec<u8>>,
) -> Result<Spot, Why> {
    match Spot::of(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other.map_err(Why::place),
    }
    let bytes = path.as_bytes();
    for end in (0..bytes.len()).filter(|&at| bytes[at] == b'/') {
        let dir = RelPath::new(&bytes[..end]).map_err(|fault| Why::place(io::Error::other(fault)))?;
        let spot = Spot::of(root, &dir).map_err(Why::place)?;
        match mkdir_at(&spot.place, spot.name.as_c_str(), 0o700) {
            Ok(()) => {
                let mode = replicas.iter().flatten().find_map(|replica| replica.dir_mode(dir.as_bytes()));
                let mode = mode.unwrap_or(0o700) & 0o777 | 0o700;
                let set = metadata::set_mode_at(&spot.place, spot.name.as_c_str(), mode);
                set.map_err(Why::io("set the mode of a directory"))?;
                spot.sync()?;
                made.insert(dir.as_bytes().to_vec());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Why::io("make a directory")(error)),
        }
    }
    Spot::of(root, path).map_err(Why::place)
}

/// Returns an error if [`spot_made`] does, as far as can be seen without making anything.
///
/// # Errors
/// [`Why::Place`].
pub(super) fn may_be_made(root: &OwnedFd, path: &RelPath) -> Result<(), Why> {
    let bytes = path.as_bytes();
    for end in (0..bytes.len()).filter(|&at| bytes[at] == b'/') {
        let dir = RelPath::new(&bytes[..end]).map_err(|fault| Why::place(io::Error::other(fault)))?;
        let spot = Spot::of(root, &dir).map_err(Why::place)?;
        match stat_at(&spot.place, spot.name.as_c_str(), Follow::No) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ => {}
        }
    }
    Spot::of(root, path).map(drop).map_err(Why::place)
}

/// A path's directory and its name there.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_a_replica_has_not_as_a_file_is_no_file_and_no_failure() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("replica");
        fs::create_dir_all(dir.join("directory")).unwrap();
        fs::write(home.path().join("outside"), "secret").unwrap();
        fs::write(dir.join("file"), "bytes").unwrap();
        symlink("file", dir.join("link")).unwrap();
        symlink("..", dir.join("out")).unwrap();
        symlink("round", dir.join("round")).unwrap();
        let _socket = UnixListener::bind(dir.join("socket")).unwrap();
        let replica = Replica::open(dir.as_os_str()).unwrap();
        let file = |path: &str| replica.file(&RelPath::new(path.as_bytes()).unwrap());
        assert_eq!(file("file").unwrap().unwrap().1.size, 5);
        for path in ["none", "none/f", "directory", "file/f", "link", "out/outside", "round/f", "socket"] {
            assert!(file(path).unwrap().is_none(), "{path}");
        }
    }
}
