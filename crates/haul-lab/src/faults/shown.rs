//! Names and attributes as reported to the kernel: unchanged, or as a file system with other
//! properties would report them.

use super::nodes::{attr, errno_of, generation};
use super::pass::Pass;
use super::rules::{Action, Op};
use fuser::{FileAttr, FileType};
use icu_normalizer::DecomposingNormalizerBorrowed;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

impl Pass {
    /// Returns the attributes of `ino`. A file that has lost its name still exists while it is
    /// open.
    pub(super) fn look(&mut self, ino: u64) -> Result<FileAttr, Errno> {
        let path = self.nodes.path(ino)?.to_owned();
        let found = self.nodes.look(&path);
        let is_it = found.is_ok_and(|attr| attr.ino == ino);
        let attr =
            if is_it { found } else { self.held(ino).map(|meta| attr(ino, &meta)).ok_or(Errno::NOENT) };
        self.shown(&path, attr?)
    }

    /// Returns the attributes of `path` to report to the kernel.
    pub(super) fn look_up(&mut self, path: &Path) -> Result<FileAttr, Errno> {
        let attr = self.nodes.look(path)?;
        self.shown(path, attr)
    }

    /// Returns the path of `name` in the directory `parent`, relative to the root.
    ///
    /// If the rules trim names, trailing dots are removed. If they decompose names, the name is
    /// decomposed. If they fold or decompose names and no entry has this spelling, returns the path
    /// of an entry that differs only in case or in form, if there is one.
    pub(super) fn child(&self, parent: u64, name: &OsStr) -> Result<PathBuf, Errno> {
        let directory = self.nodes.path(parent)?;
        let mut name = name.to_owned();
        let (mut folds, mut decomposes) = (false, false);
        for action in self.actions(Op::Name, &directory.join(&name), 0, 0)? {
            match action {
                Action::Fold => folds = true,
                Action::Decompose => {
                    decomposes = true;
                    name = decomposed(&name);
                }
                Action::Trim => name = without_dots(&name)?.to_owned(),
                _ => {}
            }
        }
        let path = directory.join(&name);
        if !(folds || decomposes) || fs::symlink_metadata(self.nodes.real(&path)).is_ok() {
            return Ok(path);
        }
        let list = fs::read_dir(self.nodes.real(directory)).map_err(|e| errno_of(&e))?;
        let names = list.filter_map(|entry| Some(entry.ok()?.file_name()));
        let like = names.into_iter().find(|stored| {
            let other = if decomposes { decomposed(stored) } else { stored.clone() };
            if folds { other.eq_ignore_ascii_case(&name) } else { other == name }
        });
        Ok(like.map_or(path, |like| directory.join(like)))
    }

    /// Applies the rules for reading attributes. Returns the error, or the attributes with coarse
    /// times, a length of 0 or lagging values.
    fn shown(&mut self, path: &Path, mut attr: FileAttr) -> Result<FileAttr, Errno> {
        for action in self.actions(Op::Stat, path, 0, 0)? {
            match action {
                Action::Coarse(ms) => {
                    for time in [&mut attr.atime, &mut attr.mtime, &mut attr.ctime] {
                        *time = coarse(*time, ms);
                    }
                }
                Action::Lag => attr = self.first_seen(attr),
                Action::Empty if attr.kind == FileType::RegularFile => (attr.size, attr.blocks) = (0, 0),
                Action::Renumber => *self.renumbered.entry(attr.ino).or_default() += 1,
                _ => {}
            }
        }
        Ok(attr)
    }

    /// Returns the inode number to show to programs. The kernel itself identifies files by the real
    /// number, in answers to lookups.
    pub(super) fn number(&self, ino: u64) -> u64 {
        ino.wrapping_add(self.renumbered.get(&ino).copied().unwrap_or(0) << 40)
    }

    /// Returns the attributes of a file as they were first read. An open file shows its current
    /// attributes. So does a new file that reuses the inode number of a removed one.
    fn first_seen(&mut self, now: FileAttr) -> FileAttr {
        if self.held(now.ino).is_some() {
            return now;
        }
        let seen = *self.lagging.entry(now.ino).or_insert(now);
        if (seen.kind, generation(&seen)) == (now.kind, generation(&now)) {
            return seen;
        }
        self.lagging.insert(now.ino, now);
        now
    }
}

/// Removes the trailing dots of a name; ENOENT if the name consists only of dots.
fn without_dots(name: &OsStr) -> Result<&OsStr, Errno> {
    let bytes = name.as_bytes();
    let len = bytes.iter().rposition(|byte| *byte != b'.').map_or(0, |last| last + 1);
    if len == 0 { Err(Errno::NOENT) } else { Ok(OsStr::from_bytes(&bytes[..len])) }
}

/// Returns a name in Unicode's decomposed form. A name that is not UTF-8 stays unchanged.
fn decomposed(name: &OsStr) -> OsString {
    name.to_str().map_or_else(
        || name.to_owned(),
        |text| DecomposingNormalizerBorrowed::new_nfd().normalize(text).into_owned().into(),
    )
}

/// Rounds a time down to a multiple of `ms` milliseconds. Times before 1970 stay unchanged, because
/// no file system with coarse times has them.
fn coarse(time: SystemTime, ms: u64) -> SystemTime {
    let Ok(since) = time.duration_since(UNIX_EPOCH) else { return time };
    let step = u128::from(ms) * 1_000_000;
    let nanoseconds = since.as_nanos() / step * step;
    UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}
