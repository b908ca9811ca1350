//! Missing names without contents of their own: directories, symbolic links and hard links.

use super::places::{NameAt, may_be_made, name_at_with_parents};
use super::repair_target::RepairTarget;
use super::{Done, LeftReason, Repair};
use crate::transfer::created;
use crate::verify::Change;
use haul_log::waybill::{Kind, Moment, RelPath};
use haul_sys::dir::open_place_at;
use haul_sys::metadata::{self, Times};
use haul_sys::open::{link_at, mkdir_at, symlink_at};
use haul_sys::stat::stat_at;
use haul_sys::{FileKind, Follow, Timespec};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

impl Repair<'_> {
    /// Creates an entry that the waybill describes completely.
    pub(super) fn make_name(&mut self, repair_target: &RepairTarget) -> Result<Done, LeftReason> {
        let entry = &repair_target.entry;
        if matches!(entry.kind, Kind::Special(_)) {
            return Err(LeftReason::Special);
        }
        if self.settings.dry_run {
            return self.would_make(repair_target);
        }
        let was_made = self.made.contains(entry.path.as_bytes());
        let name_at = name_at_with_parents(self.root, &entry.path, &mut self.made)?;
        let (place, name) = (&name_at.place, name_at.name.as_c_str());
        let Moment { sec, nsec } = entry.mtime;
        let times = Times { atime: None, mtime: Some(Timespec { sec, nsec }) };
        match &entry.kind {
            Kind::Directory => {
                if !was_made {
                    mkdir_at(place, name, 0o700).map_err(LeftReason::io("create the directory"))?;
                }
                // Another process could have replaced the name.
                let held = match was_made {
                    true => open_place_at(place, name, Follow::No),
                    false => created::open_created_directory(place, name),
                };
                let held = held.map_err(LeftReason::io("open"))?;
                metadata::set_mode_fd(&held, entry.mode).map_err(LeftReason::io("set the mode"))?;
                metadata::set_times_fd(&held, times).map_err(LeftReason::io("set the times"))?;
            }
            Kind::Link { target } => {
                symlink_at(OsStr::from_bytes(target), place, name)
                    .map_err(LeftReason::io("create the link"))?;
                let held = created::hold_link(place, name, target).map_err(LeftReason::io("open"))?;
                metadata::set_times_fd(&held, times).map_err(LeftReason::io("set the times"))?;
            }
            Kind::Same { first } => {
                let first = self.first_name(first)?;
                match link_at(&first.place, first.name.as_c_str(), place, name, Follow::No) {
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
            && !self.made.contains(first.as_bytes())
        {
            self.first_name(first)?;
        }
        Ok(Done::Made)
    }

    /// Returns the place and name of the file that further names are made for.
    fn first_name(&self, first: &RelPath) -> Result<NameAt, LeftReason> {
        let name_at = NameAt::of(self.root, first).map_err(LeftReason::place)?;
        let facts = stat_at(&name_at.place, name_at.name.as_c_str(), Follow::No);
        let facts = facts.map_err(LeftReason::io("check the target of the hard link"))?;
        if facts.kind == FileKind::Regular { Ok(name_at) } else { Err(LeftReason::Modified(Change::NotSame)) }
    }
}
