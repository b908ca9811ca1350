//! Sinks of the batch lines in progress. A line whose sink another line is writing waits for that
//! line, so that the later line of a list determines the result.

use super::directory::Identity;
use super::operand_walk::OperandWalk;
use crate::location::Location;
use crate::paths::split;
use haul_storage::Follow;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The sinks of the lines in progress, and the walk that waits for one of them.
#[derive(Debug, Default)]
pub(crate) struct SinksUnderWay(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    taken: HashSet<SinkKey>,
    /// Keys by the index of the line in the list.
    of_line: HashMap<usize, [Option<SinkKey>; 2]>,
    /// The waiting walk. There is at most one walk of the list.
    waiting: Option<OperandWalk>,
}

/// Key that is equal for two ways to write the same sink.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SinkKey {
    /// A name in a directory.
    Name(Identity, OsString),
    /// An existing file, whatever names lead to it.
    File(Identity),
}

impl SinksUnderWay {
    /// Starts a line with this sink. If another line is writing the sink, stores `walk` until a
    /// line ends, and returns false.
    pub(crate) fn begin(
        &self,
        index: usize,
        sink: &Location<'_>,
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

    /// Records the end of a line. Returns the waiting walk, which must be tried again.
    pub(crate) fn end(&self, index: usize) -> Option<OperandWalk> {
        let mut lines = self.lines();
        let keys = lines.of_line.remove(&index)?;
        for key in keys.iter().flatten() {
            lines.taken.remove(key);
        }
        lines.waiting.take()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        // Each call leaves the lines consistent, whatever error the worker meets later.
        self.0.lock()
    }
}

/// Returns the keys of a sink. A sink whose directory cannot be stat'ed has no key by name: its
/// copy will fail.
fn keys(sink: &Location<'_>) -> [Option<SinkKey>; 2] {
    let (place, name) = split(sink.name().as_bytes());
    let look = |at: &Location<'_>| at.stat(Follow::Yes).ok().map(|found| found.identity());
    let place = look(&sink.beside(OsStr::from_bytes(place)));
    [
        place.map(|place| SinkKey::Name(place, OsStr::from_bytes(name).to_owned())),
        look(sink).map(SinkKey::File),
    ]
}
