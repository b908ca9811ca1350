//! Entries of a waybill from file-system metadata.

use super::LeafSums;
use haul_digest::{Algorithm, Digest, ObjectTable};
use haul_log::waybill::{Content, CopyMethod, Entry, Kind, Moment, Objects, PathError, RelPath, Special};
use haul_model::Level;
use haul_storage::{FileKind, Inode, Stat, open_parent};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Results about the contents of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts<'a> {
    /// Size, in bytes.
    pub size: u64,
    /// Digests of the whole file.
    pub digests: &'a [Digest],
    /// Digests of its objects, if it has more than one.
    pub objects: Option<&'a ObjectTable>,
    /// Digests of its leaves, if they are kept.
    pub leaves: Option<&'a LeafSums>,
    /// Way in which the bytes were copied; `None` if they were hashed in place.
    pub way: Option<CopyMethod>,
    /// Verification level of the whole file.
    pub level: Option<Level>,
}

/// Returns the entry of a regular file.
pub fn file_entry(path: RelPath, stat: &Stat, file: &FileFacts<'_>) -> Entry {
    // A file of one leaf has no other digest than its own.
    let leaves = file.leaves.map(|leaves| leaves.store()).filter(|store| file.size > store.leaf().bytes());
    let size = file.objects.map(ObjectTable::size).or(leaves.map(|store| store.object()));
    let objects = size.map(|size| Objects {
        size,
        algorithms: vec![Algorithm::Blake3],
        leaf: leaves.map(|store| store.leaf()),
    });
    let content = Content {
        size: file.size,
        digests: file.digests.to_vec(),
        way: file.way,
        level: file.level,
        objects,
    };
    Entry { path, kind: Kind::File(content), mode: stat.mode & 0o7777, mtime: moment(stat) }
}

/// Returns the entry of any other file type; `target` is the target of a symbolic link. Returns
/// `None` for regular files and for types without an entry kind.
pub fn name_entry(path: RelPath, stat: &Stat, target: Option<OsString>) -> Option<Entry> {
    let kind = match stat.kind {
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Link { target: target?.as_bytes().to_vec() },
        FileKind::Fifo => Kind::Special(Special::Fifo),
        FileKind::Socket => Kind::Special(Special::Socket),
        FileKind::CharDevice => Kind::Special(Special::CharDevice(stat.rdev)),
        FileKind::BlockDevice => Kind::Special(Special::BlockDevice(stat.rdev)),
        FileKind::Regular | FileKind::Unknown => return None,
    };
    Some(Entry { path, kind, mode: stat.mode & 0o7777, mtime: moment(stat) })
}

/// Entries for a name through which a file was read or written.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Entry of the symbolic link, if the name is one.
    pub link: Option<Entry>,
    /// Path of the file.
    pub file: RelPath,
}

/// Returns the modification time of a file.
pub fn moment(stat: &Stat) -> Moment {
    Moment { sec: stat.mtime.sec, nsec: stat.mtime.nsec }
}

/// Directory that the paths of a waybill are relative to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(OsString);

impl Root {
    /// Creates a root from a directory as typed; an empty name means the working directory.
    pub fn new(typed: OsString) -> Root {
        Root(if typed.is_empty() { ".".into() } else { typed })
    }

    /// Returns the root for operands as typed: the working directory if all operands are below it,
    /// else the deepest common directory. Returns `None` if only some operands are absolute, or if
    /// there are none.
    pub fn of_operands(operands: &[OsString]) -> Option<Root> {
        let parts = |typed: &'_ OsString| -> Vec<Vec<u8>> {
            let parts = typed.as_bytes().split(|&byte| byte == b'/');
            parts.filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec).collect()
        };
        let (first, rest) = operands.split_first()?;
        let is_absolute = |typed: &OsString| typed.as_bytes().starts_with(b"/");
        if rest.iter().any(|typed| is_absolute(typed) != is_absolute(first)) {
            return None;
        }
        let climbs = operands.iter().any(|typed| parts(typed).contains(&b"..".to_vec()));
        if !is_absolute(first) && !climbs {
            return Some(Root::new(OsString::new()));
        }
        let mut common = parts(first);
        for typed in rest {
            let same = parts(typed).iter().zip(&common).take_while(|(a, b)| a == b).count();
            common.truncate(same);
        }
        // A single file is not a directory: its name belongs to the path.
        let joined = OsStr::from_bytes(&common.join(&b'/')).to_owned();
        let mut typed = OsString::from(if is_absolute(first) { "/" } else { "" });
        typed.push(&joined);
        if !std::fs::metadata(Root::new(typed.clone()).as_os_str()).is_ok_and(|facts| facts.is_dir()) {
            let bytes = typed.as_bytes();
            let end = bytes.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at.max(1));
            typed = OsStr::from_bytes(&bytes[..end]).to_owned();
        }
        Some(Root::new(typed))
    }

    /// Returns the directory as typed.
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }

    /// Returns a typed or found path relative to this root.
    ///
    /// # Errors
    /// Returns a [`PathError`] if the path is not below the root, or is not valid in a waybill.
    pub fn path_of(&self, found: &OsStr) -> Result<RelPath, PathError> {
        let is_part = |part: &&[u8]| !matches!(*part, b"" | b".");
        let absolute = self.0.as_bytes().starts_with(b"/");
        if absolute != found.as_bytes().starts_with(b"/") {
            return Err(if absolute { PathError::Climbs } else { PathError::Absolute });
        }
        let mut rest = found.as_bytes().split(|&byte| byte == b'/').filter(is_part);
        for part in self.0.as_bytes().split(|&byte| byte == b'/').filter(is_part) {
            if rest.next() != Some(part) {
                return Err(PathError::Climbs);
            }
        }
        RelPath::new(&rest.collect::<Vec<_>>().join(&b'/'))
    }

    /// Same as [`path_of`](Root::path_of), for a regular file that was opened through this name,
    /// including links. A link has an entry of its own in addition to the file that it refers to,
    /// because no reader of a waybill follows links.
    ///
    /// # Errors
    /// Same as `path_of`, and [`PathError::LeadsOut`] if the file is outside the root.
    pub fn named(&self, found: &OsStr) -> Result<Named, PathError> {
        let path = self.path_of(found)?;
        let real = |path: &OsStr| std::fs::canonicalize(path).ok();
        // A file that no longer exists is missing for `haul verify` as well.
        let (Some(root), Some(file)) = (real(&self.0), real(found)) else {
            return Ok(Named { link: None, file: path });
        };
        let beneath = file.strip_prefix(&root).map_err(|_| PathError::LeadsOut)?;
        if !std::fs::symlink_metadata(found).is_ok_and(|found| found.is_symlink()) {
            return Ok(Named { link: None, file: path });
        }
        let link = open_parent(Path::new(found)).and_then(|(dir, name)| dir.hold(&name));
        let link_entry = |link: &dyn Inode| {
            let target = OsString::from_vec(link.read_link().ok()?);
            name_entry(path, &link.stat().ok()?, Some(target))
        };
        let entry = link.ok().and_then(|link| link_entry(&*link));
        Ok(Named { link: entry, file: RelPath::new(beneath.as_os_str().as_bytes())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_of(operands: &[&str]) -> Option<String> {
        let operands: Vec<OsString> = operands.iter().map(OsString::from).collect();
        Root::of_operands(&operands).map(|root| root.as_os_str().to_str().unwrap().to_owned())
    }

    #[test]
    fn root_is_the_common_directory_of_all_operands() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().to_str().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/f"), "").unwrap();
        let at = |path: &str| format!("{base}/{path}");
        assert_eq!(root_of(&["x", "./y/z"]).as_deref(), Some("."));
        assert_eq!(root_of(&[&at("a")]), Some(at("a")));
        assert_eq!(root_of(&[&at("a/f")]), Some(at("a")));
        assert_eq!(root_of(&[&at("a/f"), &at("a/b/")]), Some(at("a")));
        assert_eq!(root_of(&[&at("a/b"), "x"]), None);
        assert_eq!(root_of(&[]), None);
        assert_eq!(root_of(&["/etc", "/usr"]).as_deref(), Some("/"));
        assert_eq!(root_of(&["../x-that-is-not-there"]).as_deref(), Some(".."));
    }

    #[test]
    fn symlink_gets_its_own_entry_and_its_target_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("root/a")).unwrap();
        for name in ["root/a/f", "outside"] {
            std::fs::write(at(name), "").unwrap();
        }
        for (target, name) in [("a/f", "l"), ("l", "ll"), ("../outside", "out"), ("..", "up"), ("a", "d")] {
            std::os::unix::fs::symlink(target, at("root").join(name)).unwrap();
        }
        let named = |name: &str| {
            let named = Root::new(at("root").into()).named(at("root").join(name).as_os_str())?;
            Ok((named.link.map(|link| link.path.to_string()), named.file.to_string()))
        };
        let own = |file: &str| Ok((None, file.to_owned()));
        assert_eq!(named("a/f"), own("a/f"));
        assert_eq!(named("d/f"), own("d/f"));
        assert_eq!(named("l"), Ok((Some("l".to_owned()), "a/f".to_owned())));
        assert_eq!(named("ll"), Ok((Some("ll".to_owned()), "a/f".to_owned())));
        assert_eq!(named("out"), Err(PathError::LeadsOut));
        assert_eq!(named("up/outside"), Err(PathError::LeadsOut));
        assert_eq!(named("gone"), own("gone"));
    }

    #[test]
    fn paths_are_relative_to_the_root() {
        let path = |root: &str, found: &str| {
            Root::new(root.into()).path_of(OsStr::new(found)).map(|path| path.to_string())
        };
        assert_eq!(path("", "./a//b"), Ok("a/b".to_owned()));
        assert_eq!(path("/archive/", "/archive/run42/x"), Ok("run42/x".to_owned()));
        assert_eq!(path("../up", "../up/x"), Ok("x".to_owned()));
        assert_eq!(path("/archive", "/archives/x"), Err(PathError::Climbs));
        assert_eq!(path("/archive", "x"), Err(PathError::Climbs));
        assert_eq!(path("d", "d/../x"), Err(PathError::Climbs));
        assert_eq!(path("d", "/d/x"), Err(PathError::Absolute));
        assert_eq!(path("d", "d"), Err(PathError::Empty));
    }
}
