//! Description of a sandbox after a run, in comparable lines.

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

/// Maximum depth of examined directories: a deeper tree is a copy of a copy.
const DEPTH_MAX: usize = 40;

/// Times from here on (September 2020) were set by the run itself, and differ from run to run.
const LATELY: i64 = 1_600_000_000;

/// Inodes that existed in the sandbox before, by device and number, with the first path of each.
/// They are held open, so that no new file gets the number of a removed one.
#[derive(Debug, Default)]
pub(super) struct Known {
    paths: HashMap<(u64, u64), Vec<u8>>,
    held: Vec<OwnedFd>,
}

/// Optional properties of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facets {
    /// True if allocated space is compared: the command defines the location of holes.
    pub(super) room: bool,
}

/// Parts of a sandbox: their names in the description, and their locations.
pub(super) type Places<'a> = [(&'a str, &'a Path)];

/// Records a sandbox before the run.
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

/// Describes the sandbox after the run: one line for each entry, sorted by path.
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
                    // The effect of reads on the time of older files depends on the kernel.
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

/// Receives the path of an entry in the description, its location and its metadata.
type Visit<'a> = dyn FnMut(&[u8], &Path, &Metadata) -> io::Result<()> + 'a;

/// Visits `place` and everything beneath, sorted by name, without following links.
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

/// Adds extended attributes, including access lists, sorted by name.
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
