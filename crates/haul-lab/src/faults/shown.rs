//! Names and attributes as reported to the kernel: unchanged, or as a file system with other
//! properties would report them.

use super::faultfs::{hold, lock};
use super::nodes::{attr, errno_of, generation};
use super::pass::Pass;
use super::rules::{Action, Op};
use fuser::FileAttr;
use rustix::io::Errno;
use std::ffi::OsStr;
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
    /// If the rules trim names, trailing dots are removed. If the rules fold names and no entry has
    /// this spelling, returns the path of an entry that differs only in case, if there is one.
    pub(super) fn child(&self, parent: u64, mut name: &OsStr) -> Result<PathBuf, Errno> {
        let directory = self.nodes.path(parent)?;
        let mut path = directory.join(name);
        let actions = lock(&self.control).meet(Op::Name, &path, 0, 0);
        let mut folds = false;
        for action in actions {
            match action {
                Action::Errno(errno) => return Err(errno),
                Action::Delay(ms) => hold(&self.control, ms),
                Action::Fold => folds = true,
                Action::Trim => {
                    name = without_dots(name)?;
                    path = directory.join(name);
                }
                Action::Short(_) | Action::Flip { .. } | Action::Drop | Action::Silly => {}
                Action::Coarse(_) | Action::Lag => {}
            }
        }
        if !folds || fs::symlink_metadata(self.nodes.real(&path)).is_ok() {
            return Ok(path);
        }
        let list = fs::read_dir(self.nodes.real(directory)).map_err(|e| errno_of(&e))?;
        let names = list.filter_map(|entry| Some(entry.ok()?.file_name()));
        let like = names.into_iter().find(|other| other.eq_ignore_ascii_case(name));
        Ok(like.map_or(path, |like| directory.join(like)))
    }

    /// Applies the rules for reading attributes. Returns the error, or the attributes with coarse
    /// times or lagging values.
    fn shown(&mut self, path: &Path, mut attr: FileAttr) -> Result<FileAttr, Errno> {
        let actions = lock(&self.control).meet(Op::Stat, path, 0, 0);
        for action in actions {
            match action {
                Action::Errno(errno) => return Err(errno),
                Action::Delay(ms) => hold(&self.control, ms),
                Action::Coarse(ms) => {
                    for time in [&mut attr.atime, &mut attr.mtime, &mut attr.ctime] {
                        *time = coarse(*time, ms);
                    }
                }
                Action::Lag => attr = self.first_seen(attr),
                Action::Short(_) | Action::Flip { .. } | Action::Drop | Action::Silly => {}
                Action::Fold | Action::Trim => {}
            }
        }
        Ok(attr)
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

/// Rounds a time down to a multiple of `ms` milliseconds. Times before 1970 stay unchanged, because
/// no file system with coarse times has them.
fn coarse(time: SystemTime, ms: u64) -> SystemTime {
    let Ok(since) = time.duration_since(UNIX_EPOCH) else { return time };
    let step = u128::from(ms) * 1_000_000;
    let nanoseconds = since.as_nanos() / step * step;
    UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}
