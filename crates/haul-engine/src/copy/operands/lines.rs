//! Where the lines of a batch go that are under way: a line whose sink another line is writing waits for that one, so
//! that the later line of a list has the last word.

use super::OperandWalk;
use crate::copy::backup;
use crate::copy::links::Identity;
use haul_sys::{Follow, stat};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which sinks have a line under way, and the walk that waits for one of them.
#[derive(Debug, Default)]
pub(crate) struct SinksUnderWay(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    taken: HashSet<SinkKey>,
    /// By the line's place in the list.
    of_line: HashMap<usize, [Option<SinkKey>; 2]>,
    /// There is one walk of the list at most.
    waiting: Option<OperandWalk>,
}

/// What two ways to write one sink have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SinkKey {
    /// A name in a directory.
    Name(Identity, OsString),
    /// A file that stands there, whatever names lead to it.
    File(Identity),
}

impl SinksUnderWay {
    /// Begins a line that goes to `sink`. Where another line is writing that, `walk` is kept until one ends: false.
    pub(super) fn begin(
        &self,
        index: usize,
        sink: (BorrowedFd<'_>, &OsStr),
        walk: impl FnOnce() -> OperandWalk,
    ) -> bool {
        let keys = keys(sink);
        let mut lines = self.lines();
        if keys.iter().flatten().any(|key| lines.taken.contains(key)) {
            lines.waiting = Some(walk());
            return false;
        }
        lines.taken.extend(keys.iter().flatten().cloned());
        lines.of_line.insert(index, keys);
        true
    }

    /// A line is through. Returns the walk that waited, to be tried again.
    pub(super) fn end(&self, index: usize) -> Option<OperandWalk> {
        let mut lines = self.lines();
        let keys = lines.of_line.remove(&index)?;
        for key in keys.iter().flatten() {
            lines.taken.remove(key);
        }
        lines.waiting.take()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        // Each call leaves the lines whole, whatever the worker ran into later.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sink whose directory can't be looked at has no name to share: it will fail.
fn keys((dir, sink): (BorrowedFd<'_>, &OsStr)) -> [Option<SinkKey>; 2] {
    let (place, name) = backup::split(sink.as_bytes());
    let look = |path: &OsStr| stat::stat_at(dir, path, Follow::Yes).ok().map(|found| found.identity());
    [
        look(OsStr::from_bytes(place)).map(|place| SinkKey::Name(place, OsStr::from_bytes(name).to_owned())),
        look(sink).map(SinkKey::File),
    ]
}
