//! Random trees for property tests: every kind of entry, every kind of name, from one seed.

use crate::dataset::BuildError;
use crate::random::Random;
use crate::snapshot::set_xattr;
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, mkfifoat, utimensat};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Parameters of [`RandomTree::build`]. The defaults give trees that any user can create on any
/// Linux file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RandomTree {
    /// Number of entries without the root, at least 0.
    pub entries: usize,
    /// Maximum file length in bytes without holes. Holes add up to eight times as much.
    pub file_bytes_max: u64,
    /// Critical lengths for the code under test (an object, a block). Half of the files get one of
    /// these lengths, one byte less or one byte more.
    pub edges: Vec<u64>,
    /// Maximum number of directories above a file.
    pub depth_max: usize,
    /// Named pipes.
    pub fifos: bool,
    /// Symbolic links: to entries of the tree, dangling, to themselves.
    pub links: bool,
    /// Hard links.
    pub hard_links: bool,
    /// Files with holes.
    pub holes: bool,
    /// Names with any bytes except NUL and `/`; if false, only letters and digits.
    pub odd_names: bool,
    /// Permission bits; if false, the umask decides.
    pub modes: bool,
    /// Modes that keep the owner from reading a file or entering a directory, and set-id bits. For
    /// root.
    pub hard_modes: bool,
    /// Modification times from 1905 to 2200, with nanoseconds.
    pub times: bool,
    /// Extended attributes of the `user` namespace.
    pub xattrs: bool,
}

impl Default for RandomTree {
    fn default() -> Self {
        Self {
            entries: 40,
            file_bytes_max: 64 * 1024,
            edges: vec![0, 1, 4096, 65_536],
            depth_max: 6,
            fifos: true,
            links: true,
            hard_links: true,
            holes: true,
            odd_names: true,
            modes: true,
            hard_modes: false,
            times: true,
            xattrs: false,
        }
    }
}

/// Entries created so far, as paths relative to the root.
struct Growing<'a> {
    tree: &'a RandomTree,
    root: &'a Path,
    random: Random,
    dirs: Vec<(PathBuf, usize)>,
    files: Vec<PathBuf>,
    all: Vec<PathBuf>,
}

impl RandomTree {
    /// Builds the tree of `seed` in `root`, an empty directory, which is created if it is missing.
    ///
    /// # Errors
    /// Returns [`BuildError`] with the step and the path that failed.
    pub fn build(&self, root: &Path, seed: u64) -> Result<(), BuildError> {
        fs::create_dir_all(root).map_err(BuildError::at("create the directory", root))?;
        let random = Random::from_seed(seed);
        let dirs = vec![(PathBuf::new(), 0)];
        let mut growing = Growing { tree: self, root, random, dirs, files: Vec::new(), all: Vec::new() };
        for number in 0..self.entries {
            growing.add(number)?;
        }
        growing.settle()
    }
}

/// Creates a file in `root` for each byte that a name can contain: 254 files. The name of each is
/// an `n` and that byte; its contents are its name.
///
/// # Errors
/// Returns [`BuildError`] with the file that failed.
pub fn every_byte_in_names(root: &Path) -> Result<(), BuildError> {
    fs::create_dir_all(root).map_err(BuildError::at("create the directory", root))?;
    for byte in (1..=u8::MAX).filter(|&byte| byte != b'/') {
        let path = root.join(OsString::from_vec(vec![b'n', byte]));
        fs::write(&path, [b'n', byte]).map_err(BuildError::at("write", &path))?;
    }
    Ok(())
}

impl Growing<'_> {
    fn add(&mut self, number: usize) -> Result<(), BuildError> {
        let parent = self.random.index(self.dirs.len());
        let (parent, depth) = self.dirs[parent].clone();
        let name = if self.tree.odd_names { self.odd_name(number) } else { format!("e{number}").into() };
        let relative = parent.join(name);
        let path = self.root.join(&relative);
        let fail = |what| BuildError::at(what, &path);
        match self.random.below(100) {
            0..20 if depth < self.tree.depth_max => {
                fs::create_dir(&path).map_err(fail("create the directory"))?;
                self.dirs.push((relative.clone(), depth + 1));
            }
            20..32 if self.tree.links => {
                let target = self.link_target(&relative, depth);
                symlink(target, &path).map_err(fail("create the link"))?;
            }
            32..38 if self.tree.fifos => {
                mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)
                    .map_err(|e| fail("create the fifo")(e.into()))?;
            }
            38..46 if self.tree.hard_links && !self.files.is_empty() => {
                let first = self.random.index(self.files.len());
                fs::hard_link(self.root.join(&self.files[first]), &path).map_err(fail("link"))?;
            }
            _ => {
                self.write_file(&path).map_err(fail("write"))?;
                self.files.push(relative.clone());
            }
        }
        self.all.push(relative);
        Ok(())
    }

    /// Returns a name that breaks tools. It contains `number` and is therefore unique.
    fn odd_name(&mut self, number: usize) -> OsString {
        let number = format!("{number}").into_bytes();
        let mut name = match self.random.below(8) {
            0 => vec![b'-'],
            1 => vec![b'.'],
            2 => b" \n\\\t'\"$*?[".to_vec(),
            3 => "naïve 文件 \u{202e}".into(),
            4 => vec![b'x'; 250 - number.len()],
            5 => b"\x1b[31m\x07".to_vec(),
            _ => (0..=self.random.below(20)).map(|_| self.name_byte()).collect(),
        };
        name.push(b'~');
        name.extend(number);
        OsString::from_vec(name)
    }

    fn name_byte(&mut self) -> u8 {
        match u8::try_from(self.random.below(256)).unwrap_or(b'n') {
            0 | b'/' => b'n',
            byte => byte,
        }
    }

    fn link_target(&mut self, relative: &Path, depth: usize) -> PathBuf {
        let up: PathBuf = (0..depth).map(|_| "..").collect();
        match self.random.below(4) {
            0 => "nowhere/at all".into(),
            1 => relative.file_name().unwrap_or_default().into(),
            _ if self.all.is_empty() => ".".into(),
            _ => up.join(&self.all[self.random.index(self.all.len())]),
        }
    }

    fn write_file(&mut self, path: &Path) -> io::Result<()> {
        let len = self.file_len();
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        self.random.fill(&mut bytes);
        let file = File::create_new(path)?;
        if !(self.tree.holes && self.random.chance(30)) {
            return file.write_all_at(&bytes, 0);
        }
        // Pieces of the data with holes before, between and after them.
        let mut at = 0;
        for piece in bytes.chunks(bytes.len() / 3 + 1) {
            at += self.random.below(2 * self.tree.file_bytes_max.max(1));
            file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        file.set_len(at + self.random.below(2) * self.tree.file_bytes_max)
    }

    fn file_len(&mut self) -> u64 {
        let edges = &self.tree.edges;
        if edges.is_empty() || self.random.chance(50) {
            return self.random.below(self.tree.file_bytes_max + 1);
        }
        let edge = edges[self.random.index(edges.len())];
        (edge + self.random.below(3)).saturating_sub(1).min(self.tree.file_bytes_max)
    }

    /// Sets attributes, modes and times, children before their parents, because modes can close a
    /// directory and later changes inside would update its time.
    fn settle(&mut self) -> Result<(), BuildError> {
        let mut all = std::mem::take(&mut self.all);
        all.push(PathBuf::new());
        all.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        for relative in &all {
            let path = self.root.join(relative);
            self.settle_one(&path).map_err(BuildError::at("set the properties of", &path))?;
        }
        Ok(())
    }

    fn settle_one(&mut self, path: &Path) -> io::Result<()> {
        let kind = fs::symlink_metadata(path)?.file_type();
        if self.tree.xattrs && self.random.chance(30) && (kind.is_file() || kind.is_dir()) {
            let mut value = vec![0; self.random.index(100)];
            self.random.fill(&mut value);
            set_xattr(path, &format!("user.haul{}", self.random.below(3)), &value)?;
        }
        if self.tree.modes && !kind.is_symlink() {
            let mode = self.mode(kind.is_dir());
            fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
        }
        if self.tree.times {
            let time = Timespec { tv_sec: self.seconds(), tv_nsec: i64::from(self.nanoseconds()) };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn mode(&mut self, is_dir: bool) -> u32 {
        let bits = u32::try_from(self.random.below(0o10000)).unwrap_or(0);
        if self.tree.hard_modes {
            return bits;
        }
        // A directory may lack `w`; copying such a directory is a known trap.
        (bits & 0o777) | if is_dir { 0o500 } else { 0o400 }
    }

    fn seconds(&mut self) -> i64 {
        // From 1905 (ext4 begins in 1901) to 2200; most times are in this century.
        if self.random.chance(80) {
            return 1_000_000_000 + i64::try_from(self.random.below(700_000_000)).unwrap_or(0);
        }
        i64::try_from(self.random.below(9_300_000_000)).unwrap_or(0) - 2_050_000_000
    }

    fn nanoseconds(&mut self) -> u32 {
        u32::try_from(self.random.below(1_000_000_000)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Facets, Kind, Snapshot};

    /// Builds a tree, takes its snapshot and makes the directories removable again.
    fn snapshot(tree: &RandomTree, seed: u64) -> Snapshot {
        let dir = tempfile::tempdir().unwrap();
        tree.build(dir.path(), seed).unwrap();
        let snap = Snapshot::take(dir.path()).unwrap();
        let dirs = snap.entries().filter(|(_, entry)| entry.kind == Kind::Dir);
        for (path, _) in dirs {
            fs::set_permissions(dir.path().join(path), PermissionsExt::from_mode(0o700)).unwrap();
        }
        snap
    }

    #[test]
    fn same_seed_gives_the_same_tree() {
        let tree = RandomTree::default();
        // The owners depend on the user and the holes on the file system; everything else depends
        // on the seed.
        let [a, b] = [8, 8].map(|seed| snapshot(&tree, seed));
        a.assert_same(&b, Facets::ARCHIVE);
        assert!(!a.diff(&snapshot(&tree, 9), Facets::CONTENT, 1).is_empty());
    }

    #[test]
    fn every_kind_of_entry_occurs() {
        let snap = snapshot(&RandomTree { entries: 300, ..RandomTree::default() }, 1);
        let count = |test: fn(&Kind) -> bool| snap.entries().filter(|(_, e)| test(&e.kind)).count();
        assert_eq!(snap.entries().count(), 301);
        assert!(count(|k| matches!(k, Kind::File { .. })) > 50);
        assert!(count(|k| matches!(k, Kind::Dir)) > 20);
        assert!(count(|k| matches!(k, Kind::Link(_))) > 10);
        assert!(count(|k| matches!(k, Kind::Fifo)) > 3);
        assert!(count(|k| matches!(k, Kind::File { len: 0, .. })) > 0);
        let longest = 64 * 1024;
        assert!(
            count(|k| matches!(k, Kind::File { len, .. } if *len > 64 * 1024)) > 0,
            "holes lie past {longest}"
        );
        assert!(snap.entries().any(|(_, e)| e.same_as.is_some()));
        assert!(snap.entries().any(|(path, _)| path.to_str().is_none()), "names that are no UTF-8");
        assert!(snap.entries().any(|(path, _)| path.file_name().is_some_and(|name| name.len() > 250)));
        assert!(snap.entries().any(|(_, e)| e.mtime.0 < 0), "times before 1970");
    }

    #[test]
    fn disabled_kinds_do_not_occur() {
        let plain = RandomTree {
            entries: 200,
            fifos: false,
            links: false,
            hard_links: false,
            holes: false,
            odd_names: false,
            ..RandomTree::default()
        };
        let snap = snapshot(&plain, 2);
        for (path, entry) in snap.entries() {
            assert!(path.to_str().is_some_and(|p| p.chars().all(|c| c.is_ascii_alphanumeric() || c == '/')));
            assert!(matches!(entry.kind, Kind::Dir | Kind::File { .. }), "{path:?} {entry:?}");
            assert_eq!(entry.same_as, None);
        }
    }

    #[test]
    fn lengths_include_edges_and_respect_the_maximum() {
        let tree = RandomTree {
            entries: 200,
            file_bytes_max: 8192,
            holes: false,
            edges: vec![4096],
            ..RandomTree::default()
        };
        let snap = snapshot(&tree, 3);
        let lens: Vec<u64> = snap
            .entries()
            .filter_map(|(_, e)| if let Kind::File { len, .. } = e.kind { Some(len) } else { None })
            .collect();
        assert!(lens.iter().all(|&len| len <= 8192));
        for edge in [4095, 4096, 4097] {
            assert!(lens.contains(&edge), "no file of {edge} bytes");
        }
    }

    #[test]
    fn xattrs_are_set_if_enabled() {
        let tree = RandomTree { xattrs: true, entries: 60, ..RandomTree::default() };
        let snap = snapshot(&tree, 5);
        assert!(
            snap.entries()
                .any(|(_, e)| e.xattrs.keys().any(|k| k.to_string_lossy().starts_with("user.haul")))
        );
    }

    #[test]
    fn every_byte_occurs_in_a_name() {
        let dir = tempfile::tempdir().unwrap();
        every_byte_in_names(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 254);
        assert_eq!(fs::read(dir.path().join("n\n")).unwrap(), b"n\n");
    }
}
