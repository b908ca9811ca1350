//! Answers to the questions of a sink that deletes: the fate of a name that it has, and the names
//! of the source.

use super::SourceContext;
use super::tree::NamePosition;
use haul_model::RelPath;
use haul_proto::limits::{LISTS_AHEAD, NAMES_PER_LIST};
use haul_proto::{Fate, Named};
use haul_storage::FileKind;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};

/// Both kinds that a name can have for the filter.
const KINDS: [FileKind; 2] = [FileKind::Regular, FileKind::Directory];

/// Directories of which some names were sent: the number of names, and the position behind them.
type Positions = HashMap<Box<[u8]>, (u64, NamePosition)>;

/// State of the answers.
#[derive(Default)]
pub(super) struct Fates {
    /// Paths at the sink of the directories among the operands beneath which nothing was sent.
    sent_nothing: Mutex<HashSet<Vec<u8>>>,
    /// Other positions are found again from the start of the directory.
    positions: Mutex<Positions>,
}

impl SourceContext<'_> {
    /// Records the end of the walk, and the operands beneath which it found nothing.
    pub(super) fn walked(&self, sent_nothing: HashSet<Vec<u8>>) {
        if !self.options.delete_all {
            *self.fates.sent_nothing.lock() = sent_nothing;
        }
    }

    /// Returns the fate of a name that the sink has in a directory.
    pub(super) fn fate(&self, directory: &[u8], name: &[u8]) -> Fate {
        let Ok(path) = RelPath::new(&join(directory, name)) else { return Fate::Excluded };
        let path = path.as_bytes();
        let Some(from) = self.roots.unfiltered_len(path) else { return Fate::Excluded };
        if self.filter.leaves_out_beneath(path, from, &KINDS) {
            return Fate::Excluded;
        }
        if !self.roots.are_without(path) {
            return Fate::Stays;
        }
        let sent_nothing = self.fates.sent_nothing.lock();
        let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        if sent_nothing.contains(&b""[..]) || sent_nothing.contains(first) {
            Fate::Guarded
        } else {
            Fate::Gone
        }
    }

    /// Returns the names of the source in a directory behind the first `from`, without those that
    /// the job excludes.
    pub(super) fn names_from(&self, batch: u32, directory: &[u8], from: u64) -> Named {
        let uncertain = Named { batch, certain: false, last: true, names: Vec::new() };
        let is_root = directory.is_empty();
        if !is_root && RelPath::new(directory).is_err() {
            return uncertain;
        }
        let is_excluded = |path: &[u8], kinds: &[FileKind]| {
            self.roots
                .unfiltered_len(path)
                .is_none_or(|from| self.filter.leaves_out_beneath(path, from, kinds))
        };
        if !is_root && is_excluded(directory, &KINDS[1..]) {
            return uncertain;
        }
        let held = self.positions().remove(directory).filter(|(named, _)| *named == from);
        let (mut named, mut position) = held.unwrap_or_else(|| (0, self.roots.before_names(directory)));
        let is_wanted = |name: &[u8]| !is_excluded(&join(directory, name), &KINDS);
        loop {
            let max = usize::try_from(from - named).unwrap_or(usize::MAX).min(NAMES_PER_LIST);
            let max = if max == 0 { NAMES_PER_LIST } else { max };
            let Ok(names) = self.roots.names(directory, &mut position, max, is_wanted) else {
                return uncertain;
            };
            let last = names.len() < max;
            let is_behind = named == from;
            named += names.len() as u64;
            if last || is_behind {
                let mut positions = self.positions();
                if !last && positions.len() < LISTS_AHEAD {
                    positions.insert(directory.into(), (named, position));
                }
                let names = if is_behind { names } else { Vec::new() };
                return Named { batch, certain: true, last, names };
            }
        }
    }

    fn positions(&self) -> MutexGuard<'_, Positions> {
        self.fates.positions.lock()
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}
