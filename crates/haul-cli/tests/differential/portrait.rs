//! What became of a sandbox, in lines that two runs can be compared by.

use rustix::fs::{Mode, OFlags, lgetxattr, llistxattr, openat};
use std::collections::HashMap;
use std::fmt::Write;
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Directories deeper than this are not looked into: what goes so deep is a copy of a copy of a copy.
const DEPTH_MAX: usize = 40;

/// Times from here on (September 2020) were set by the run itself, and differ from run to run.
const LATELY: i64 = 1_600_000_000;

/// The inodes that stood in the sandbox before, by device and number, with the first path of each. They are held open,
/// so that no new file gets the number of one that was removed.
#[derive(Debug, Default)]
pub(super) struct Known {
    paths: HashMap<(u64, u64), Vec<u8>>,
    held: Vec<OwnedFd>,
}

/// Which things count beyond those that always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facets {
    /// How much room files take: the command says where holes are to be.
    pub(super) room: bool,
}

/// The places that make up a sandbox: how each is called in the portrait, and where it lies.
pub(super) type Places<'a> = [(&'a str, &'a Path)];

/// Looks at a sandbox before the run.
pub(super) fn know(places: &Places<'_>) -> io::Result<Known> {
    let mut known = Known::default();
    for (name, root) in places {
        walk(name.as_bytes(), root, 0, &mut |path, place, meta| {
            known.paths.entry((meta.dev(), meta.ino())).or_insert_with(|| path.to_owned());
            known.held.push(openat(
                haul_sys::CWD,
                place,
                OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )?);
            Ok(())
        })?;
    }
    Ok(known)
}

/// Looks at it after the run: a line an entry, in the order of paths.
pub(super) fn paint(places: &Places<'_>, known: &Known, facets: Facets) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut first_names: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    for (name, root) in places {
        walk(name.as_bytes(), root, 0, &mut |path, place, meta| {
            let mut line = path.escape_ascii().to_string();
            let identity = (meta.dev(), meta.ino());
            describe(&mut line, place, meta, facets)?;
            let before = known.paths.get(&identity);
            if let Some(before) = before.filter(|before| *before != path) {
                let _ = write!(line, ", was {}", before.escape_ascii());
            } else if before.is_none() {
                line.push_str(", new");
                if meta.is_file() {
                    // What reading does to the time of older files is the kernel's business.
                    let _ = write!(line, ", read {}", moment(meta.atime(), meta.atime_nsec()));
                }
            }
            let first = first_names.entry(identity).or_insert_with(|| path.to_owned());
            if first != path {
                let _ = write!(line, ", same as {}", first.escape_ascii());
            }
            lines.push(line);
            Ok(())
        })?;
    }
    Ok(lines)
}

/// Takes an entry's path in the portrait, its place and its metadata.
type Visit<'a> = dyn FnMut(&[u8], &Path, &Metadata) -> io::Result<()> + 'a;

/// Visits everything beneath `place` in the order of names, and `place` itself, links not followed.
fn walk(path: &[u8], place: &Path, depth: usize, visit: &mut Visit<'_>) -> io::Result<()> {
    let meta = fs::symlink_metadata(place)?;
    visit(path, place, &meta)?;
    if !meta.is_dir() || depth > DEPTH_MAX {
        return Ok(());
    }
    let mut names: Vec<_> =
        fs::read_dir(place)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    names.sort_unstable();
    for name in names {
        let below =
            if path.is_empty() { name.as_bytes().to_owned() } else { [path, name.as_bytes()].join(&b'/') };
        walk(&below, &place.join(&name), depth + 1, visit)?;
    }
    Ok(())
}

fn describe(line: &mut String, place: &Path, meta: &Metadata, facets: Facets) -> io::Result<()> {
    let kind = meta.file_type();
    if kind.is_file() {
        let _ = write!(line, ": file of {} bytes {:x}", meta.len(), digest(place)?);
        if facets.room {
            let _ = write!(line, " in {} blocks", meta.blocks());
        }
    } else if kind.is_symlink() {
        let target = fs::read_link(place)?;
        let _ = write!(line, ": link to {}", target.as_os_str().as_bytes().escape_ascii());
    } else if kind.is_dir() {
        line.push_str(": directory");
    } else if kind.is_fifo() {
        line.push_str(": pipe");
    } else if kind.is_socket() {
        line.push_str(": socket");
    } else {
        let class = if kind.is_block_device() { "block" } else { "character" };
        let _ = write!(line, ": {class} device {:x}", meta.rdev());
    }
    if !kind.is_symlink() {
        let _ = write!(line, ", mode {:04o}", meta.mode() & 0o7777);
    }
    let _ = write!(line, ", owner {}:{}", meta.uid(), meta.gid());
    let _ = write!(line, ", changed {}", moment(meta.mtime(), meta.mtime_nsec()));
    attributes(line, place)
}

fn moment(seconds: i64, nanoseconds: i64) -> String {
    if seconds >= LATELY { "now".to_owned() } else { format!("{seconds}.{nanoseconds:09}") }
}

fn digest(place: &Path) -> io::Result<u64> {
    let mut bytes = Vec::new();
    File::open(place)?.read_to_end(&mut bytes)?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(hasher.finish())
}

/// Extended attributes, access lists among them, in the order of names.
fn attributes(line: &mut String, place: &Path) -> io::Result<()> {
    let mut list = [0; 4096];
    let used = match llistxattr(place, &mut list[..]) {
        Ok(used) => used,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut names: Vec<&[u8]> =
        list[..used].split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    for name in names {
        let mut value = [0; 4096];
        let len = lgetxattr(place, name, &mut value[..])?;
        let _ = write!(line, ", {}={}", name.escape_ascii(), value[..len].escape_ascii());
    }
    Ok(())
}
