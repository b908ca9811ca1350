//! Moves across file systems: operands are collected, copied together, synced together, and then
//! removed.
//!
//! No part of an operand is removed before all of the operand has arrived and is durable. If a copy
//! fails, the complete operand stays at its source, as with any mv. An operand that depends on the
//! move of an earlier one is handled after that move; others do not wait.

use super::compare::CopyRequirements;
use super::error::MoveError;
use super::job::{Job, Operand};
use super::removal::{CopiedOperand, Removal};
use super::settings::{MoveExisting, MoveSettings};
use crate::cp::{
    self, Batch, BatchItem, CopyRules, CopySettings, Dereference, LinkTable, Operands, Place, Preserve, Print,
};
use crate::location::Location;
use crate::paths::{split, without_slashes};
use haul_engine::copy::{Moving, Verify};
use haul_storage::{FileKind, Follow, Stat, Timespec};
use haul_sys::dir::open_dir_at;
use haul_sys::{cache, open};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of collected operands. Until the late removal, they take space at both ends.
const GATHERED_MAX: usize = 4096;

/// Device number and inode number.
type Identity = (u64, u64);

/// The operands to move across file systems.
pub(super) struct CrossDeviceMove<'a> {
    settings: &'a MoveSettings,
    /// Common target directory.
    place: Option<Place>,
    /// Sinks of earlier operands, in case a later operand is another name of the same file.
    link_table: Arc<LinkTable>,
    waiting: Vec<Waiting>,
    /// Names of the waiting operands, folded like the file system compares them.
    names: HashSet<OsString>,
    /// True if the target file system may treat names that differ in case as one name.
    may_fold: bool,
    /// Waiting files and directories.
    identities: HashSet<Identity>,
    has_directory: bool,
    /// Directories above the waiting operands.
    above: HashSet<Identity>,
    /// Paths whose directories are in `above`.
    known_above: HashSet<OsString>,
}

/// An operand to be copied.
struct Waiting {
    copied: CopiedOperand,
    backup: Option<OsString>,
    is_remembered: bool,
}

impl<'a> CrossDeviceMove<'a> {
    pub(super) fn new(settings: &'a MoveSettings) -> CrossDeviceMove<'a> {
        CrossDeviceMove {
            settings,
            place: None,
            link_table: Arc::default(),
            waiting: Vec::new(),
            names: HashSet::new(),
            may_fold: false,
            identities: HashSet::new(),
            has_directory: false,
            above: HashSet::new(),
            known_above: HashSet::new(),
        }
    }

    /// Returns true if the waiting operands must be moved before this one: its outcome depends on
    /// them, or [`GATHERED_MAX`] operands wait.
    pub(super) fn is_touched_by(&self, operand: &Operand<'_>) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let rules = &self.settings.rules;
        let is_full = self.waiting.len() >= GATHERED_MAX;
        let in_turn = rules.existing == MoveExisting::Ask || rules.backup.is_some() || is_full;
        in_turn || self.names.contains(&self.compared(operand.name)) || self.holds(operand.source)
    }

    /// Returns a name in the form in which waiting names are compared.
    fn compared(&self, name: &OsStr) -> OsString {
        match name.to_str() {
            _ if !self.may_fold => name.to_owned(),
            Some(text) => text.to_lowercase().into(),
            None => name.to_ascii_lowercase(),
        }
    }

    /// Returns true if a source is already waiting, itself or as part of a directory, or is a
    /// directory with a waiting part. Other names of a file do not count as such a part.
    fn holds(&self, source: &OsStr) -> bool {
        let Ok(found) = Location::here(source).stat(Follow::No) else { return true };
        let is_another_name = found.kind != FileKind::Directory && found.nlink > 1;
        if !is_another_name && self.identities.contains(&found.identity()) {
            return true;
        }
        self.above.contains(&found.identity())
            || (self.has_directory && above(place_of(source)).any(|place| self.identities.contains(&place)))
    }

    /// Adds an operand that goes into `into` and whose old sink has the name `backup` there.
    pub(super) fn add(
        &mut self,
        operand: &Operand<'_>,
        into: &Place,
        source: &Stat,
        backup: Option<OsString>,
    ) {
        if self.place.is_none() {
            self.may_fold = !into.dir().device().capabilities.keeps_as_given;
            self.place = Some(into.clone());
        }
        self.names.insert(self.compared(operand.name));
        self.identities.insert(source.identity());
        self.has_directory |= source.kind == FileKind::Directory;
        let place = place_of(operand.source);
        if !self.known_above.contains(place) {
            self.above.extend(above(place));
            self.known_above.insert(place.to_owned());
        }
        self.waiting.push(Waiting {
            copied: CopiedOperand {
                source: operand.source.to_owned(),
                name: operand.name.to_owned(),
                identity: source.identity(),
            },
            backup,
            is_remembered: operand.is_remembered,
        });
    }

    /// Copies all waiting operands, syncs them, and removes the sources of those that arrived.
    pub(super) fn finish(&mut self, job: &mut Job<'_>) {
        let waiting = std::mem::take(&mut self.waiting);
        self.names.clear();
        self.identities.clear();
        self.has_directory = false;
        self.above.clear();
        self.known_above.clear();
        if waiting.is_empty() || job.stop.load(Ordering::Relaxed) {
            return;
        }
        let Some(place) = self.place.take() else { return };
        let target = MoveTarget::of(&place);
        let since = now();
        let outcome = self.copy(job, &place, &waiting, target.sync_each);
        job.outcome.failures += outcome.failures;
        job.outcome.cut_off.extend(outcome.cut_off);
        let is_exact = outcome.failures > 0;
        let requirements = CopyRequirements { since, is_loose: outcome.is_loose, is_exact };
        let removal = Removal {
            report: job.report,
            stop: job.stop,
            place: &place,
            requirements,
            unstored: &outcome.unstored,
            verbose: job.rules.verbose,
            workers: self.settings.moving.workers.count(),
        };
        // Failures were reported without their operand, so only operands whose copy is complete are
        // removed.
        let is_complete = |operand: &CopiedOperand| !is_exact || removal.could_remove(operand);
        let mut copied = Vec::new();
        for Waiting { copied: operand, is_remembered, .. } in waiting {
            let is_complete = is_complete(&operand);
            if is_remembered && let Ok(standing) = place.at(&operand.name).stat(Follow::No) {
                if standing.kind == FileKind::Directory {
                    job.stayed.insert(operand.identity, operand.name.clone());
                }
                // As in mv, a later operand may replace what did not become complete.
                if is_complete {
                    job.created.entry(standing.identity()).or_default().insert(operand.name.clone());
                }
            }
            copied.extend(is_complete.then_some(operand));
        }
        // A directory whose names are not durable looks like any other, so no source that may be in
        // it is removed.
        if job.stop.load(Ordering::Relaxed) || outcome.is_unsynced {
            return;
        }
        if copied.is_empty() {
            return;
        }
        match target.make_durable(&place, &copied) {
            Ok(()) => job.outcome.failures += removal.remove(copied),
            Err(source) => {
                let sink = place.path_of(&copied[0].name);
                let path = OsStr::from_bytes(split(sink.as_bytes()).0).to_owned();
                job.fail(&MoveError::NotDurable { path, source });
            }
        }
    }

    fn copy(&self, job: &Job<'_>, place: &Place, waiting: &[Waiting], sync_each: bool) -> cp::Outcome {
        let items: Vec<BatchItem> = waiting
            .iter()
            .map(|one| BatchItem {
                source: one.copied.source.clone(),
                sink: one.copied.name.clone(),
                ranges: Vec::new(),
                backup: one.backup.clone(),
            })
            .collect();
        let preserve = Preserve {
            mode: true,
            ownership: true,
            timestamps: true,
            links: true,
            xattr: true,
            ..Preserve::default()
        };
        let settings = CopySettings {
            operands: Operands::Batch(Batch::new(items.into_iter())),
            source: None,
            place: Some(place.clone()),
            rules: CopyRules {
                recursive: true,
                dereference: Dereference::Never,
                preserve,
                contexts: job.rules.contexts.clone(),
                verbose: job.rules.verbose,
                moves: true,
                ..CopyRules::default()
            },
            moving: Moving {
                verify: Verify::ReadBack,
                removes_source: true,
                sync_each,
                ..self.settings.moving.clone()
            },
            log: None,
            print: Print::default(),
        };
        cp::copy_after(&self.link_table, &settings, job.report, job.tally, job.stop)
    }
}

/// Returns the directory that contains a name.
fn place_of(path: &OsStr) -> &OsStr {
    OsStr::from_bytes(split(path.as_bytes()).0)
}

/// Returns a directory and all directories above it. The root is its own parent.
fn above(place: &OsStr) -> impl Iterator<Item = Identity> {
    let mut path = place.to_owned();
    let mut last = None;
    std::iter::from_fn(move || {
        let found = Location::here(&path).stat(Follow::Yes).ok()?.identity();
        path.push("/..");
        (last.replace(found) != Some(found)).then_some(found)
    })
}

/// Target of the copies, and the way to sync it.
struct MoveTarget {
    /// The directory that contains the copies, opened before any write: the kernel reports later
    /// write errors of the file system to this descriptor. `None` if this user may not read the
    /// directory.
    directory: Option<OwnedFd>,
    /// A file on the file system that replaces the directory for this purpose.
    nameless: Option<OwnedFd>,
    /// True if the file system cannot be synced as a whole, or does not report the result. Each
    /// file is then synced.
    sync_each: bool,
}

impl MoveTarget {
    fn of(place: &Place) -> MoveTarget {
        let sync_each = place.dir().device().capabilities.close_may_fail;
        let directory = open_dir_at(place, c".", Follow::No).ok();
        let nameless = || open::create_nameless_at(place).ok();
        let nameless = if directory.is_none() && !sync_each { nameless() } else { None };
        MoveTarget { directory, nameless, sync_each }
    }

    /// Syncs the copies by one call for the complete file system, whatever the number of files. If
    /// each file was already synced, syncs only the names.
    fn make_durable(&self, place: &Place, copied: &[CopiedOperand]) -> io::Result<()> {
        match &self.directory {
            Some(directory) if self.sync_each => cache::sync_all(directory),
            Some(directory) => cache::sync_filesystem(directory),
            None if self.sync_each => cache::sync_all(open_one(place, copied)?),
            // Any file represents its file system: one created only for this call, or one of the
            // copies.
            None => match &self.nameless {
                Some(nameless) => cache::sync_filesystem(nameless),
                None => cache::sync_filesystem(open_one(place, copied)?),
            },
        }
    }
}

/// Opens any of the copies that this user may read.
fn open_one(place: &Place, copied: &[CopiedOperand]) -> io::Result<OwnedFd> {
    let open = |one: &CopiedOperand| {
        let name = without_slashes(&one.name);
        let directory = open_dir_at(place, name, Follow::No);
        directory.or_else(|_| open::open_source_at(place, name, Follow::No, false)).ok()
    };
    copied.iter().find_map(open).ok_or(io::ErrorKind::PermissionDenied.into())
}

/// Returns the time of the clock that file systems take their timestamps from.
fn now() -> Timespec {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timespec { sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nsec: since.subsec_nanos() }
}
