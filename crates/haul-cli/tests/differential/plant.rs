//! Initial contents of a sandbox: single entries, as in the source of a case.

use haul_sys::CWD;
use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, mknodat, utimensat};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

/// Placeholder for the path of the sandbox at the start of absolute names.
pub(super) const BOX: &[u8] = b"{box}";

/// Default time of entries: in 2001, with nanoseconds.
pub(super) const USUAL_TIME: (i64, i64) = (981_173_106, 123_456_789);

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plant {
    /// Path relative to the sandbox. The parent is an earlier entry.
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    /// `None` is 0644, for directories 0755.
    pub(super) mode: Option<u32>,
    /// `None` is the user who runs the command.
    pub(super) owner: Option<(u32, u32)>,
    /// Seconds since 1970 and nanoseconds.
    pub(super) time: (i64, i64),
    pub(super) xattrs: Vec<(String, Vec<u8>)>,
}

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File(Content),
    Dir,
    /// A symbolic link with its target.
    Link(Vec<u8>),
    /// Another name of an earlier file.
    Hard(Vec<u8>),
    Fifo,
    Socket,
    /// A character device: null.
    Null,
    /// A block device without a driver.
    Block,
}

/// Contents of a file: one repeated letter, with zeros in place of holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) len: u64,
    pub(super) letter: u8,
    pub(super) gaps: Gaps,
}

/// Zeros in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gaps {
    None,
    /// The complete file is one hole.
    All,
    /// The middle third is a hole.
    Hole,
    /// The middle third is written zeros.
    Zeros,
    /// The file ends with a hole.
    Tail,
}

impl Plant {
    fn new(path: impl AsRef<[u8]>, kind: Kind) -> Plant {
        let path = path.as_ref().to_owned();
        Plant { path, kind, mode: None, owner: None, time: USUAL_TIME, xattrs: Vec::new() }
    }

    pub(super) fn mode(self, mode: u32) -> Plant {
        Plant { mode: Some(mode), ..self }
    }

    pub(super) fn owner(self, user: u32, group: u32) -> Plant {
        Plant { owner: Some((user, group)), ..self }
    }

    /// Sets the time, in seconds since 1970 and nanoseconds.
    pub(super) fn time(self, seconds: i64, nanoseconds: i64) -> Plant {
        Plant { time: (seconds, nanoseconds), ..self }
    }

    pub(super) fn xattr(mut self, name: &str, value: impl AsRef<[u8]>) -> Plant {
        self.xattrs.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the length of a file.
    pub(super) fn bytes(mut self, len: u64) -> Plant {
        if let Kind::File(content) = &mut self.kind {
            content.len = len;
        }
        self
    }

    /// Sets the location of zeros in a file.
    pub(super) fn gaps(mut self, gaps: Gaps) -> Plant {
        if let Kind::File(content) = &mut self.kind {
            content.gaps = gaps;
        }
        self
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }
}

/// Returns a file of five bytes, all `letter`.
pub(super) fn file(path: impl AsRef<[u8]>, letter: u8) -> Plant {
    Plant::new(path, Kind::File(Content { len: 5, letter, gaps: Gaps::None }))
}

pub(super) fn dir(path: impl AsRef<[u8]>) -> Plant {
    Plant::new(path, Kind::Dir)
}

/// Returns a symbolic link.
pub(super) fn link(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Plant {
    Plant::new(path, Kind::Link(target.as_ref().to_owned()))
}

/// Returns another name for `first`.
pub(super) fn hard(path: impl AsRef<[u8]>, first: impl AsRef<[u8]>) -> Plant {
    Plant::new(path, Kind::Hard(first.as_ref().to_owned()))
}

pub(super) fn fifo(path: impl AsRef<[u8]>) -> Plant {
    Plant::new(path, Kind::Fifo)
}

pub(super) fn socket(path: impl AsRef<[u8]>) -> Plant {
    Plant::new(path, Kind::Socket)
}

pub(super) fn null(path: impl AsRef<[u8]>) -> Plant {
    Plant::new(path, Kind::Null)
}

pub(super) fn block(path: impl AsRef<[u8]>) -> Plant {
    Plant::new(path, Kind::Block)
}

/// Creates all entries in `root`; `owner` runs the command there. Modes and times of a directory
/// are set after its contents are created.
pub(super) fn grow(plants: &[Plant], root: &Path, owner: (u32, u32)) -> io::Result<()> {
    for plant in plants {
        make(plant, root).map_err(|error| told(plant, &error))?;
    }
    for plant in plants.iter().rev() {
        settle(plant, root, owner).map_err(|error| told(plant, &error))?;
    }
    Ok(())
}

fn told(plant: &Plant, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{plant:?}: {error}"))
}

/// Returns a path of the sandbox as a path of this machine.
pub(super) fn place(root: &Path, path: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(path))
}

/// Returns a word with the path of the sandbox in place of [`BOX`].
pub(super) fn resolved(word: &[u8], root: &Path) -> Vec<u8> {
    match word.windows(BOX.len()).position(|part| part == BOX) {
        Some(at) => [&word[..at], root.as_os_str().as_bytes(), &word[at + BOX.len()..]].concat(),
        None => word.to_owned(),
    }
}

fn make(plant: &Plant, root: &Path) -> io::Result<()> {
    let path = place(root, &plant.path);
    let node = |kind, device| Ok(mknodat(CWD, &path, kind, Mode::RUSR | Mode::WUSR, device)?);
    match &plant.kind {
        Kind::File(content) => content.write(&path),
        Kind::Dir => fs::create_dir(&path),
        Kind::Link(target) => symlink(OsStr::from_bytes(&resolved(target, root)), &path),
        Kind::Hard(first) => fs::hard_link(place(root, first), &path),
        Kind::Fifo => node(FileType::Fifo, 0),
        Kind::Socket => node(FileType::Socket, 0),
        Kind::Null => node(FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        // A major number for local use: no write reaches a disk.
        Kind::Block => node(FileType::BlockDevice, rustix::fs::makedev(60, 7)),
    }
}

impl Content {
    fn write(self, path: &Path) -> io::Result<()> {
        let file = File::create_new(path)?;
        let third = self.len / 3;
        let piece = |from: u64, to: u64, letter: u8| {
            let count = usize::try_from(to - from).unwrap_or(usize::MAX);
            file.write_all_at(&vec![letter; count], from)
        };
        match self.gaps {
            Gaps::None => piece(0, self.len, self.letter)?,
            Gaps::All => {}
            Gaps::Tail => piece(0, third, self.letter)?,
            Gaps::Hole | Gaps::Zeros => {
                piece(0, third, self.letter)?;
                piece(2 * third, self.len, self.letter)?;
                if self.gaps == Gaps::Zeros {
                    piece(third, 2 * third, 0)?;
                }
            }
        }
        file.set_len(self.len)
    }
}

fn settle(plant: &Plant, root: &Path, owner: (u32, u32)) -> io::Result<()> {
    if matches!(plant.kind, Kind::Hard(_)) {
        return Ok(());
    }
    let path = place(root, &plant.path);
    let (user, group) = plant.owner.unwrap_or(owner);
    lchown(&path, Some(user), Some(group))?;
    if !matches!(plant.kind, Kind::Link(_)) {
        let usual = if plant.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, Permissions::from_mode(plant.mode.unwrap_or(usual)))?;
        for (name, value) in &plant.xattrs {
            // If the file system stores no attributes, it stores none in either sandbox.
            let _ = lsetxattr(&path, name.as_str(), value, XattrFlags::empty());
        }
    }
    let time = Timespec { tv_sec: plant.time.0, tv_nsec: plant.time.1 };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Returns an ACL in the kernel's format (acl(5), version 2): the entries of a mode, one additional
/// user, and the mask.
pub(super) fn access_list(mode: u32, user: u32, bits: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let class = |shift: u32| u16::try_from(mode >> shift & 7).unwrap_or(0);
    let entries = [
        (0x01, class(6), NOBODY),
        (0x02, bits, user),
        (0x04, class(3), NOBODY),
        (0x10, class(3) | bits, NOBODY),
        (0x20, class(0), NOBODY),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(bits.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}
