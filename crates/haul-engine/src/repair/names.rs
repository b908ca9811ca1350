//! Missing names without contents of their own: directories, symbolic links and hard links.

use super::claim::Claim;
use super::places::{Spot, may_be_made, spot_made};
use super::{Done, Repair, Why};
use crate::verify::Change;
use haul_log::waybill::{Kind, Moment, RelPath};
use haul_sys::metadata::{self, Times};
use haul_sys::open::{link_at, mkdir_at, symlink_at};
use haul_sys::stat::stat_at;
use haul_sys::{FileKind, Follow, Timespec};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

impl Repair<'_> {
    /// Creates an entry that the waybill describes completely.
    pub(super) fn make_name(&mut self, claim: &Claim) -> Result<Done, Why> {
        let entry = &claim.entry;
        if matches!(entry.kind, Kind::Special(_)) {
            return Err(Why::Special);
        }
        if self.settings.dry_run {
            return self.would_make(claim);
        }
        let was_made = self.made.contains(entry.path.as_bytes());
        let spot = spot_made(self.root, &entry.path, &self.replicas, &mut self.made)?;
        let (place, name) = (&spot.place, spot.name.as_c_str());
        let Moment { sec, nsec } = entry.mtime;
        let times = Times { atime: None, mtime: Some(Timespec { sec, nsec }) };
        match &entry.kind {
            Kind::Directory => {
                if !was_made {
                    mkdir_at(place, name, 0o700).map_err(Why::io("create the directory"))?;
                }
                metadata::set_mode_at(place, name, entry.mode).map_err(Why::io("set the mode"))?;
                metadata::set_times_at(place, name, times).map_err(Why::io("set the times"))?;
            }
            Kind::Link { target } => {
                symlink_at(OsStr::from_bytes(target), place, name).map_err(Why::io("create the link"))?;
                metadata::set_times_at(place, name, times).map_err(Why::io("set the times"))?;
            }
            Kind::Same { first } => {
                let first = self.first_name(first)?;
                match link_at(&first.place, first.name.as_c_str(), place, name, Follow::No) {
                    // The first name was missing, and this name is now a file of its own.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        return Err(Why::Modified(Change::NotSame));
                    }
                    other => other.map_err(Why::io("create the hard link"))?,
                }
            }
            Kind::File(_) | Kind::Special(_) => return Err(Why::Special),
        }
        spot.sync()?;
        Ok(Done::Made)
    }

    /// Returns what [`Repair::make_name`] would, as far as can be seen without making anything.
    fn would_make(&self, claim: &Claim) -> Result<Done, Why> {
        may_be_made(self.root, &claim.entry.path)?;
        if let Kind::Same { first } = &claim.entry.kind
            && !self.made.contains(first.as_bytes())
        {
            self.first_name(first)?;
        }
        Ok(Done::Made)
    }

    /// Returns the place and name of the file that further names are made for.
    fn first_name(&self, first: &RelPath) -> Result<Spot, Why> {
        let spot = Spot::of(self.root, first).map_err(Why::place)?;
        let facts = stat_at(&spot.place, spot.name.as_c_str(), Follow::No);
        let facts = facts.map_err(Why::io("check the target of the hard link"))?;
        if facts.kind == FileKind::Regular { Ok(spot) } else { Err(Why::Modified(Change::NotSame)) }
    }
}
