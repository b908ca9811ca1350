//! Missing names without contents of their own: directories, symbolic links and hard links.

use super::places::{NameAt, may_be_made, name_at_with_parents};
use super::repair_target::RepairTarget;
use super::{Done, LeftReason, Repair};
use crate::verify::Change;
use haul_log::waybill::{Kind, Moment, RelPath};
use haul_storage::{FileKind, Follow, Inode, Missing, Node, Times, Timespec};
use std::io;
use std::sync::Arc;

impl Repair<'_> {
    /// Creates an entry that the waybill describes completely.
    pub(super) fn make_name(&self, repair_target: &RepairTarget) -> Result<Done, LeftReason> {
        let entry = &repair_target.entry;
        if matches!(entry.kind, Kind::Special(_)) {
            return Err(LeftReason::Special);
        }
        if self.settings.dry_run {
            return self.would_make(repair_target);
        }
        let was_made = self.progress.lock().made.contains(entry.path.as_bytes());
        let name_at = name_at_with_parents(self.root, &entry.path, &mut self.progress.lock().made)?;
        let (dir, name) = (&*name_at.dir, &name_at.name);
        let Moment { sec, nsec } = entry.mtime;
        let times = Times { atime: None, mtime: Some(Timespec { sec, nsec }) };
        match &entry.kind {
            Kind::Directory => {
                let node = Node::Directory { mode: 0o700 };
                if !was_made {
                    dir.make(name, &node).map_err(LeftReason::io("create the directory"))?;
                }
                // Another process could have replaced the name.
                let held = match was_made {
                    true => dir.dir(name, Follow::No, Missing::Fail).map(|held| held as Arc<dyn Inode>),
                    false => dir.hold_made(name, &node),
                };
                let held = held.map_err(LeftReason::io("open"))?;
                held.set_mode(entry.mode).map_err(LeftReason::io("set the mode"))?;
                held.set_times(times).map_err(LeftReason::io("set the times"))?;
            }
            Kind::Link { target } => {
                let node = Node::Link { target };
                dir.make(name, &node).map_err(LeftReason::io("create the link"))?;
                let held = dir.hold_made(name, &node).map_err(LeftReason::io("open"))?;
                held.set_times(times).map_err(LeftReason::io("set the times"))?;
            }
            Kind::Same { first } => {
                let first = self.first_name(first)?;
                match first.dir.link(&first.name, Follow::No, dir, name) {
                    // The first name was missing, and this name is now a file of its own.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        return Err(LeftReason::Modified(Change::NotSame));
                    }
                    other => other.map_err(LeftReason::io("create the hard link"))?,
                }
            }
            Kind::File(_) | Kind::Special(_) => return Err(LeftReason::Special),
        }
        name_at.sync()?;
        Ok(Done::Made)
    }

    /// Returns what [`Repair::make_name`] would, as far as can be seen without making anything.
    fn would_make(&self, repair_target: &RepairTarget) -> Result<Done, LeftReason> {
        may_be_made(self.root, &repair_target.entry.path)?;
        if let Kind::Same { first } = &repair_target.entry.kind
            && !self.progress.lock().made.contains(first.as_bytes())
        {
            self.first_name(first)?;
        }
        Ok(Done::Made)
    }

    /// Returns the place and name of the file that further names are made for.
    fn first_name(&self, first: &RelPath) -> Result<NameAt, LeftReason> {
        let name_at = NameAt::of(self.root, first).map_err(LeftReason::place)?;
        let facts = name_at.stat().map_err(LeftReason::io("check the target of the hard link"))?;
        if facts.kind == FileKind::Regular { Ok(name_at) } else { Err(LeftReason::Modified(Change::NotSame)) }
    }
}
