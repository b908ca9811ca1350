//! Snapshots of directory trees, for comparison.

use rustix::fs::{SeekFrom, XattrFlags, lgetxattr, llistxattr, seek};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Entries of a tree by their path relative to the root; the root itself has the empty path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    entries: BTreeMap<PathBuf, Entry>,
}

/// Properties of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Kind and contents.
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits.
    pub mode: u32,
    /// UID and GID of the owner.
    pub owner: (u32, u32),
    /// Modification time: seconds and nanoseconds since 1970.
    pub mtime: (i64, i64),
    /// For a file with several names inside the tree: the first of these names in byte order.
    pub same_as: Option<PathBuf>,
    /// Extended attributes.
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
}

/// Kind and contents of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// Length in bytes.
        len: u64,
        /// Hash of all bytes, with holes read as zeros. Comparable only inside one build of this
        /// crate.
        digest: u64,
        /// Bytes allocated on the device.
        allocated: u64,
        /// Data ranges as reported by the file system: start and end.
        data: Vec<(u64, u64)>,
    },
    /// A directory.
    Dir,
    /// A symbolic link with its target.
    Link(PathBuf),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device with its number.
    Device {
        /// True for a block device, false for a character device.
        block: bool,
        /// Major and minor number as the system packs them.
        rdev: u64,
    },
}

/// Properties by which two snapshots are compared. Paths, kinds, lengths, bytes, link targets and
/// device numbers always count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facets {
    /// Permission bits (not of symbolic links).
    pub mode: bool,
    /// Owner and group.
    pub owner: bool,
    /// Modification times of all but directories.
    pub mtime: bool,
    /// Modification times of directories.
    pub dir_mtime: bool,
    /// Hard links: names that refer to one file.
    pub links: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Positions of the holes.
    pub holes: bool,
}

impl Facets {
    /// Only the properties that always count.
    pub const CONTENT: Self = Self {
        mode: false,
        owner: false,
        mtime: false,
        dir_mtime: false,
        links: false,
        xattrs: false,
        holes: false,
    };
    /// All properties except holes; these are the properties that `cp -a` keeps.
    pub const ARCHIVE: Self = Self {
        mode: true,
        owner: true,
        mtime: true,
        dir_mtime: true,
        links: true,
        xattrs: true,
        holes: false,
    };
    /// All properties.
    pub const ALL: Self = Self { holes: true, ..Self::ARCHIVE };
}

/// One difference between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path relative to the root.
    pub path: PathBuf,
    /// The property, with both values.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.path, self.what)
    }
}

/// Error of reading a tree.
#[derive(Debug, Error)]
#[error("cannot {what} {path:?}: {source}")]
pub struct SnapshotError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl SnapshotError {
    /// Returns true if the tree is deeper than a path can express.
    pub fn is_too_deep(&self) -> bool {
        self.source.kind() == io::ErrorKind::InvalidFilename
    }
}

impl Snapshot {
    /// Reads the tree below `root` with all its bytes. Symbolic links are not followed; `root` may
    /// be a file.
    ///
    /// # Errors
    /// Returns [`SnapshotError`] with the path that could not be read, also if the tree changes
    /// meanwhile.
    pub fn take(root: &Path) -> Result<Self, SnapshotError> {
        let mut walk = Walk::default();
        let mut open = vec![PathBuf::new()];
        while let Some(relative) = open.pop() {
            let path = if relative.as_os_str().is_empty() { root.to_owned() } else { root.join(&relative) };
            let fail = |what| {
                let path = path.clone();
                move |source| SnapshotError { what, path, source }
            };
            if walk.visit(&path, &relative)? {
                for child in fs::read_dir(&path).map_err(fail("list"))? {
                    open.push(relative.join(child.map_err(fail("list"))?.file_name()));
                }
            }
        }
        Ok(Self { entries: walk.finish() })
    }

    /// Returns the entry at `path`, relative to the root.
    pub fn get(&self, path: impl AsRef<Path>) -> Option<&Entry> {
        self.entries.get(path.as_ref())
    }

    /// Returns all entries in the byte order of their paths.
    pub fn entries(&self) -> impl Iterator<Item = (&Path, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_path(), entry))
    }

    /// Returns the first `limit` differences in the order of paths; none if the trees are equal in
    /// these facets.
    pub fn diff(&self, other: &Self, facets: Facets, limit: usize) -> Vec<Difference> {
        let mut found = Vec::new();
        let mut paths: Vec<&PathBuf> = self.entries.keys().chain(other.entries.keys()).collect();
        paths.sort_unstable();
        paths.dedup();
        for path in paths {
            let mut note = |what: String| found.push(Difference { path: path.clone(), what });
            match (self.entries.get(path), other.entries.get(path)) {
                (Some(a), Some(b)) => a.diff(b, facets, &mut note),
                (Some(a), None) => note(format!("missing on the right: {:?}", a.kind)),
                (None, b) => note(format!("missing on the left: {:?}", b.map(|b| &b.kind))),
            }
            if found.len() >= limit {
                found.truncate(limit);
                break;
            }
        }
        found
    }

    /// Asserts that the trees are equal in these facets.
    ///
    /// # Panics
    /// Panics with the first differences if they are not.
    #[track_caller]
    pub fn assert_same(&self, other: &Self, facets: Facets) {
        let found = self.diff(other, facets, 10);
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "the trees differ:\n  {}", lines.join("\n  "));
    }
}

impl Entry {
    /// Returns each difference to `other` in these facets, with both values.
    pub fn differences(&self, other: &Self, facets: Facets) -> Vec<String> {
        let mut found = Vec::new();
        self.diff(other, facets, &mut |what| found.push(what));
        found
    }

    fn diff(&self, other: &Self, facets: Facets, note: &mut impl FnMut(String)) {
        let mut compare = |counts: bool, what: &str, a: &dyn fmt::Debug, b: &dyn fmt::Debug, same: bool| {
            if counts && !same {
                note(format!("{what} {a:?} against {b:?}"));
            }
        };
        let (a, b) = (self, other);
        compare(true, "kind", &a.kind, &b.kind, a.kind.same_content(&b.kind));
        let is_link = matches!(a.kind, Kind::Link(_));
        let is_dir = a.kind == Kind::Dir;
        compare(facets.mode && !is_link, "mode", &Octal(a.mode), &Octal(b.mode), a.mode == b.mode);
        compare(facets.owner, "owner", &a.owner, &b.owner, a.owner == b.owner);
        let time_counts = if is_dir { facets.dir_mtime } else { facets.mtime };
        compare(time_counts, "mtime", &a.mtime, &b.mtime, a.mtime == b.mtime);
        compare(facets.links, "same file as", &a.same_as, &b.same_as, a.same_as == b.same_as);
        compare(facets.xattrs, "xattrs", &a.xattrs, &b.xattrs, a.xattrs == b.xattrs);
        if let (true, Kind::File { data: x, .. }, Kind::File { data: y, .. }) =
            (facets.holes, &a.kind, &b.kind)
        {
            compare(true, "data at", x, y, x == y);
        }
    }
}

impl Kind {
    fn same_content(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { len: a, digest: x, .. }, Self::File { len: b, digest: y, .. }) => (a, x) == (b, y),
            _ => self == other,
        }
    }
}

struct Octal(u32);

impl fmt::Debug for Octal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:05o}", self.0)
    }
}

/// Entries so far, and the paths of each file with several names.
#[derive(Default)]
struct Walk {
    entries: BTreeMap<PathBuf, Entry>,
    names: HashMap<(u64, u64), Vec<PathBuf>>,
}

impl Walk {
    /// Records one entry. Returns true if the entry is a directory to descend into.
    fn visit(&mut self, path: &Path, relative: &Path) -> Result<bool, SnapshotError> {
        let fail = |what| move |source| SnapshotError { what, path: path.to_owned(), source };
        let meta = fs::symlink_metadata(path).map_err(fail("check"))?;
        let kind = kind_of(path, &meta).map_err(fail("read"))?;
        let is_dir = kind == Kind::Dir;
        if !is_dir && meta.nlink() > 1 {
            self.names.entry((meta.dev(), meta.ino())).or_default().push(relative.to_owned());
        }
        let entry = Entry {
            kind,
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            same_as: None,
            xattrs: xattrs_of(path).map_err(|e| fail("read the attributes of")(e.into()))?,
        };
        self.entries.insert(relative.to_owned(), entry);
        Ok(is_dir)
    }

    fn finish(mut self) -> BTreeMap<PathBuf, Entry> {
        for paths in self.names.into_values().filter(|paths| paths.len() > 1) {
            let first = paths.iter().min().cloned();
            for path in &paths {
                if let Some(entry) = self.entries.get_mut(path) {
                    entry.same_as.clone_from(&first);
                }
            }
        }
        self.entries
    }
}

fn kind_of(path: &Path, meta: &Metadata) -> io::Result<Kind> {
    let kind = meta.file_type();
    Ok(if kind.is_file() {
        let file = File::open(path)?;
        let data = data_ranges(&file, meta.len())?;
        Kind::File {
            len: meta.len(),
            digest: digest_of(&file, path, meta.len())?,
            allocated: meta.blocks() * 512,
            data,
        }
    } else if kind.is_dir() {
        Kind::Dir
    } else if kind.is_symlink() {
        Kind::Link(fs::read_link(path)?)
    } else if kind.is_fifo() {
        Kind::Fifo
    } else if kind.is_socket() {
        Kind::Socket
    } else {
        Kind::Device { block: kind.is_block_device(), rdev: meta.rdev() }
    })
}

/// Hashes the bytes of a file with SipHash from the standard library, so that the code under test
/// does not check itself.
fn digest_of(mut file: &File, path: &Path, len: u64) -> io::Result<u64> {
    io::Seek::seek(&mut file, io::SeekFrom::Start(0))?;
    let mut hasher = DefaultHasher::new();
    let mut block = vec![0; 128 * 1024];
    let mut total = 0;
    loop {
        let count = file.read(&mut block)?;
        if count == 0 {
            break;
        }
        hasher.write(&block[..count]);
        total += count as u64;
    }
    if total == len {
        return Ok(hasher.finish());
    }
    Err(io::Error::other(format!("{} has {len} bytes but {total} were read", path.display())))
}

/// Returns the data ranges of a file. A file system without holes reports the whole file.
fn data_ranges(file: &File, len: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < len {
        let from = match seek(file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        at = seek(file, SeekFrom::Hole(from))?;
        ranges.push((from, at));
    }
    Ok(ranges)
}

/// Attributes in which XFS shows its own form of access control lists, in addition to the form of
/// all file systems.
const LISTS_OF_XFS: [&[u8]; 2] = [b"trusted.SGI_ACL_FILE", b"trusted.SGI_ACL_DEFAULT"];

/// Returns the extended attributes by name; none if the file system does not support them.
fn xattrs_of(path: &Path) -> Result<BTreeMap<OsString, Vec<u8>>, Errno> {
    let mut list = vec![0; 64 * 1024];
    let used = match llistxattr(path, &mut list[..]) {
        Ok(used) => used,
        Err(Errno::NOTSUP | Errno::NOSYS) => 0,
        Err(error) => return Err(error),
    };
    let names =
        list[..used].split(|&byte| byte == 0).filter(|name| !name.is_empty() && !LISTS_OF_XFS.contains(name));
    names
        .map(|name| {
            let mut value = vec![0; 64 * 1024];
            let len = lgetxattr(path, name, &mut value[..])?;
            value.truncate(len);
            Ok((OsString::from_vec(name.to_vec()), value))
        })
        .collect()
}

/// Sets an extended attribute on a file or directory, without following a symbolic link.
pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

    /// Creates a tree with one entry of each kind that an ordinary user can create.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a"), b"one").unwrap();
        fs::hard_link(at("a"), at("b")).unwrap();
        fs::create_dir(at("d")).unwrap();
        symlink("../a", at("d/link")).unwrap();
        File::create(at("sparse")).unwrap().write_at(b"end", 1 << 20).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RUSR).unwrap();
        dir
    }

    #[test]
    fn entries_match_the_created_tree() {
        let dir = tree();
        let snap = Snapshot::take(dir.path()).unwrap();
        let paths: Vec<&str> = snap.entries().map(|(p, _)| p.to_str().unwrap()).collect();
        assert_eq!(paths, ["", "a", "b", "d", "d/link", "fifo", "sparse"]);
        assert_eq!(snap.get("a").unwrap().same_as.as_deref(), Some(Path::new("a")));
        assert_eq!(snap.get("b").unwrap().same_as.as_deref(), Some(Path::new("a")));
        assert_eq!(snap.get("d/link").unwrap().kind, Kind::Link("../a".into()));
        assert_eq!(snap.get("fifo").unwrap().kind, Kind::Fifo);
        let Kind::File { len, allocated, data, .. } = &snap.get("sparse").unwrap().kind else { panic!() };
        assert_eq!(*len, (1 << 20) + 3);
        assert!(*allocated < *len || data == &[(0, *len)], "{allocated} {data:?}");
    }

    #[test]
    fn a_tree_equals_itself() {
        let dir = tree();
        let snap = Snapshot::take(dir.path()).unwrap();
        snap.assert_same(&Snapshot::take(dir.path()).unwrap(), Facets::ALL);
    }

    /// Applies a change to a new tree and returns the differences.
    fn said_after(change: impl FnOnce(&Path), facets: Facets) -> Vec<String> {
        let dir = tree();
        let before = Snapshot::take(dir.path()).unwrap();
        change(dir.path());
        let after = Snapshot::take(dir.path()).unwrap();
        let quiet = Facets { dir_mtime: false, ..facets };
        before.diff(&after, quiet, 99).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_facet_is_compared_only_if_selected() {
        type Change = fn(&Path);
        let cases: [(Change, Facets, &str); 5] = [
            (
                |d| fs::set_permissions(d.join("sparse"), PermissionsExt::from_mode(0o400)).unwrap(),
                Facets { mode: true, ..Facets::CONTENT },
                "mode",
            ),
            (
                |d| {
                    let time = std::time::SystemTime::UNIX_EPOCH;
                    File::options().write(true).open(d.join("sparse")).unwrap().set_modified(time).unwrap();
                },
                Facets { mtime: true, ..Facets::CONTENT },
                "mtime",
            ),
            (
                |d| {
                    fs::remove_file(d.join("b")).unwrap();
                    fs::copy(d.join("a"), d.join("b")).unwrap();
                },
                Facets { links: true, ..Facets::CONTENT },
                "same file as",
            ),
            (
                |d| set_xattr(&d.join("a"), "user.k", b"v").unwrap(),
                Facets { xattrs: true, ..Facets::CONTENT },
                "xattrs",
            ),
            (
                |d| {
                    let file = File::options().write(true).open(d.join("sparse")).unwrap();
                    file.write_at(&[0; 4096], 0).unwrap();
                },
                Facets { holes: true, ..Facets::CONTENT },
                "data at",
            ),
        ];
        for (change, facets, word) in cases {
            assert_eq!(said_after(change, Facets::CONTENT), Vec::<String>::new(), "{word} must not count");
            let said = said_after(change, facets);
            assert!(!said.is_empty() && said.iter().all(|line| line.contains(word)), "{word}: {said:?}");
        }
    }

    #[test]
    fn content_differences_are_always_reported() {
        let flip = said_after(|d| fs::write(d.join("a"), b"onE").unwrap(), Facets::CONTENT);
        assert_eq!(flip.len(), 2, "both names of the file: {flip:?}");
        let gone = said_after(|d| fs::remove_file(d.join("fifo")).unwrap(), Facets::CONTENT);
        assert!(gone[0].contains("missing on the right"), "{gone:?}");
        let new = said_after(|d| fs::write(d.join("new"), b"").unwrap(), Facets::CONTENT);
        assert!(new[0].contains("missing on the left"), "{new:?}");
    }

    #[test]
    fn difference_list_stops_at_its_limit() {
        let dir = tree();
        let empty = tempfile::tempdir().unwrap();
        let [a, b] = [&dir, &empty].map(|d| Snapshot::take(d.path()).unwrap());
        assert_eq!(a.diff(&b, Facets::CONTENT, 2).len(), 2);
        assert_eq!(a.diff(&b, Facets::CONTENT, 99).len(), 6);
    }
}
