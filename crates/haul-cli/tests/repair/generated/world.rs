//! Claims of a waybill about a tree, and the tree itself: both read without the code under test.

use crate::waybill::twin;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Offset of the first byte, and of the byte behind the last.
pub(super) type Range = (u64, u64);

/// One entry of the waybill.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) path: PathBuf,
    pub(super) what: EntryContent,
}

/// Kind and contents of an entry by the waybill.
#[derive(Debug)]
pub(super) enum EntryContent {
    File(Content),
    /// A further name of the file with this path.
    Same(PathBuf),
    Dir,
    Link(PathBuf),
    Fifo,
}

/// The right bytes of a file and how the waybill cuts them.
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    object: Option<u64>,
    leaf: Option<u64>,
    /// Nanoseconds since 1970.
    pub(super) mtime: i128,
    pub(super) mode: u32,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, object {:?}, leaf {:?}", self.bytes.len(), self.object, self.leaf)
    }
}

/// The entries of a waybill that names a tree `data`, in its order, with the bytes of the
/// `pristine` tree.
pub(super) fn claims(waybill: &Path, pristine: &Path) -> Vec<Claim> {
    let sections = twin::read(&fs::read(waybill).unwrap()).unwrap();
    let path = |entry: &twin::Entry, key| PathBuf::from(OsString::from_vec(entry.fields.bytes(key)));
    let claim = |entry: &twin::Entry| {
        let number = |key| entry.fields.get(key).map(|text| text.parse().unwrap());
        let what = match &*entry.tag {
            "file" => {
                let bytes = fs::read(in_tree(pristine, &path(entry, "path"))).unwrap();
                let mode = u32::from_str_radix(entry.fields.text("mode"), 8).unwrap();
                let [object, leaf] = [number("object"), number("leaf")];
                EntryContent::File(Content { bytes, object, leaf, mtime: entry.mtime(), mode })
            }
            "same" => EntryContent::Same(path(entry, "first")),
            "dir" => EntryContent::Dir,
            "link" => EntryContent::Link(path(entry, "target")),
            "fifo" => EntryContent::Fifo,
            tag => panic!("no tree of the test holds a {tag}"),
        };
        Claim { path: path(entry, "path"), what }
    };
    let mut claims: Vec<Claim> = sections.iter().flat_map(|section| &section.entries).map(claim).collect();
    // The last section that names a path counts.
    let last: BTreeMap<PathBuf, usize> =
        claims.iter().enumerate().map(|(number, claim)| (claim.path.clone(), number)).collect();
    let mut number = 0..;
    claims.retain(|claim| number.next() == last.get(&claim.path).copied());
    claims
}

/// Returns the path of an entry `data/...` in a tree with another name.
pub(super) fn in_tree(tree: &Path, path: &Path) -> PathBuf {
    let rest = path.strip_prefix("data").unwrap();
    // A slash at the end would ask for a directory.
    if rest.as_os_str().is_empty() { tree.to_owned() } else { tree.join(rest) }
}

impl Content {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The smallest ranges that the waybill has a digest of.
    pub(super) fn pieces(&self) -> Vec<Range> {
        self.cut(self.leaf.or(self.object))
    }

    fn cut(&self, by: Option<u64>) -> Vec<Range> {
        match by {
            Some(by) if self.size() > by => {
                (0..self.size().div_ceil(by)).map(|at| (at * by, ((at + 1) * by).min(self.size()))).collect()
            }
            _ => vec![(0, self.size())],
        }
    }

    /// Returns true if `now` has the right bytes in a range.
    pub(super) fn is_right(&self, now: &[u8], (start, end): Range) -> bool {
        let range = start as usize..end as usize;
        now.get(range.clone()).is_some_and(|now| *now == self.bytes[range])
    }

    /// The objects that differ, or the leaves.
    fn damage(&self, now: &[u8], finely: bool) -> Vec<Range> {
        let cut = if finely { self.pieces() } else { self.cut(self.object) };
        joined(cut.into_iter().filter(|&piece| !self.is_right(now, piece)))
    }
}

/// Neighbours as one range.
pub(super) fn joined(ranges: impl IntoIterator<Item = Range>) -> Vec<Range> {
    let mut all: Vec<Range> = Vec::new();
    for (start, end) in ranges.into_iter().filter(|(start, end)| start < end) {
        match all.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => all.push((start, end)),
        }
    }
    all
}

/// Result of a look-up beneath a root.
pub(super) enum Found {
    Missing,
    /// A link on the way leads out of the root.
    LeadsOut,
    /// An existing file with its path without links.
    There(Metadata, PathBuf),
}

pub(super) fn look(root: &Path, path: &Path) -> Found {
    const ELOOP: i32 = 40;
    let gone = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Found::Missing,
        _ if error.raw_os_error() == Some(ELOOP) => Found::LeadsOut,
        _ => panic!("{}: {error}", path.display()),
    };
    let root = fs::canonicalize(root).unwrap();
    let parent = match fs::canonicalize(root.join(path.parent().unwrap())) {
        Ok(parent) => parent,
        Err(error) => return gone(&error),
    };
    if !parent.starts_with(&root) {
        return Found::LeadsOut;
    }
    let place = parent.join(path.file_name().unwrap());
    match fs::symlink_metadata(&place) {
        Ok(facts) => Found::There(facts, place),
        Err(error) => gone(&error),
    }
}

/// The bytes of the regular file under a path; `None` where there is none.
pub(super) fn bytes_at(root: &Path, path: &Path) -> Option<Vec<u8>> {
    match look(root, path) {
        Found::There(facts, place) if facts.is_file() => Some(fs::read(place).unwrap()),
        _ => None,
    }
}

/// Expected verdict of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Intact,
    Missing,
    /// Other bytes under the same size and time.
    Rotted(Vec<Range>),
    /// Other bytes and another time.
    Bytes(Vec<Range>),
    Size,
    /// Another kind, another target, no further name any more, or behind a link out of the root.
    Other,
}

impl Verdict {
    pub(super) fn of(claim: &Claim, root: &Path, finely: bool) -> Verdict {
        let (facts, place) = match look(root, &claim.path) {
            Found::Missing => return Verdict::Missing,
            Found::LeadsOut => return Verdict::Other,
            Found::There(facts, place) => (facts, place),
        };
        let is_as_said = match &claim.what {
            EntryContent::File(content) if facts.is_file() => {
                if facts.len() != content.size() {
                    return Verdict::Size;
                }
                let damage = content.damage(&fs::read(place).unwrap(), finely);
                return match (damage.is_empty(), mtime(&facts) == content.mtime) {
                    (true, _) => Verdict::Intact,
                    (false, true) => Verdict::Rotted(damage),
                    (false, false) => Verdict::Bytes(damage),
                };
            }
            EntryContent::File(_) => false,
            EntryContent::Same(first) => {
                matches!(look(root, first), Found::There(other, _) if identity(&other) == identity(&facts))
            }
            EntryContent::Dir => facts.is_dir(),
            EntryContent::Link(target) => facts.is_symlink() && fs::read_link(place).unwrap() == *target,
            EntryContent::Fifo => std::os::unix::fs::FileTypeExt::is_fifo(&facts.file_type()),
        };
        if is_as_said { Verdict::Intact } else { Verdict::Other }
    }

    /// The word of `haul verify --json`.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Verdict::Intact => "intact",
            Verdict::Missing => "missing",
            Verdict::Rotted(_) => "rotted",
            Verdict::Bytes(_) | Verdict::Size | Verdict::Other => "modified",
        }
    }

    pub(super) fn damage(&self) -> &[Range] {
        match self {
            Verdict::Rotted(damage) | Verdict::Bytes(damage) => damage,
            _ => &[],
        }
    }
}

/// Device and inode.
pub(super) fn identity(facts: &Metadata) -> (u64, u64) {
    (facts.dev(), facts.ino())
}

/// Nanoseconds since 1970.
pub(super) fn mtime(facts: &Metadata) -> i128 {
    i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec())
}

/// State of one name, with the change time of its inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) identity: (u64, u64),
    pub(super) mode: u32,
    pub(super) is_dir: bool,
    changed: (i64, i64),
    bytes: u64,
}

/// All names beneath a directory, by their paths from there.
pub(super) fn nodes(root: &Path) -> BTreeMap<PathBuf, Node> {
    let mut all = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            let place = root.join(&path);
            let facts = fs::symlink_metadata(&place).unwrap();
            let mut hasher = DefaultHasher::new();
            if facts.is_file() {
                hasher.write(&fs::read(&place).unwrap());
            } else if facts.is_symlink() {
                hasher.write(fs::read_link(&place).unwrap().as_os_str().as_bytes());
            }
            let node = Node {
                identity: identity(&facts),
                mode: facts.mode(),
                is_dir: facts.is_dir(),
                changed: (facts.ctime(), facts.ctime_nsec()),
                bytes: hasher.finish(),
            };
            if facts.is_dir() {
                open.push(path.clone());
            }
            all.insert(path, node);
        }
    }
    all
}
