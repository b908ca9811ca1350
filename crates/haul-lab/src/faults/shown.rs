//! What the kernel is shown of names and attributes: as they are, or as a file system with other habits would show them.

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
    /// What `ino` is now. A file that has lost its name is still there for who holds it open.
    pub(super) fn look(&mut self, ino: u64) -> Result<FileAttr, Errno> {
        let path = self.nodes.path(ino)?.to_owned();
        let found = self.nodes.look(&path);
        let is_it = found.is_ok_and(|attr| attr.ino == ino);
        let attr =
            if is_it { found } else { self.held(ino).map(|meta| attr(ino, &meta)).ok_or(Errno::NOENT) };
        self.shown(&path, attr?)
    }

    /// What `path` is now, which the kernel is about to be told.
    pub(super) fn look_up(&mut self, path: &Path) -> Result<FileAttr, Errno> {
        let attr = self.nodes.look(path)?;
        self.shown(path, attr)
    }

    /// The path of `name` in the directory `parent`, from the root. Where the rules trim names it has no dots at its end. Where
    /// they fold names and nothing is spelled so, it is that of the entry which differs from it in nothing but case, if there
    /// is one.
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

    /// Meets the rules for looking: the error, or the attributes with times as coarse as they ask, and as old.
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

    /// What a file was when it was first looked at. Who has it open sees it as it is; so does who meets another file under
    /// the number of one that is gone.
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

/// The name without the dots at its end; none is left of one that has nothing else.
fn without_dots(name: &OsStr) -> Result<&OsStr, Errno> {
    let bytes = name.as_bytes();
    let len = bytes.iter().rposition(|byte| *byte != b'.').map_or(0, |last| last + 1);
    if len == 0 { Err(Errno::NOENT) } else { Ok(OsStr::from_bytes(&bytes[..len])) }
}

/// The multiple of `ms` milliseconds at or before a time. Times before 1970 stay, as no such file system has any.
fn coarse(time: SystemTime, ms: u64) -> SystemTime {
    let Ok(since) = time.duration_since(UNIX_EPOCH) else { return time };
    let step = u128::from(ms) * 1_000_000;
    let nanoseconds = since.as_nanos() / step * step;
    UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}
