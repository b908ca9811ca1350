//! The way across file systems: operands gather, are copied together, made durable together, and then removed.
//!
//! Nothing of an operand is removed before all of it has arrived and is durable: where a copy fails, the whole operand
//! stays at its source, as with any mv. Operands wait for each other no longer than their meaning allows: one that an
//! earlier one's move touches is taken when that is through.

use super::compare::Demands;
use super::error::MoveError;
use super::job::{Job, Operand};
use super::removal::{Copied, Removal};
use super::settings::{MoveExisting, MoveSettings};
use crate::copy::{
    self, Batch, BatchItem, Claims, CopyRules, CopySettings, Dereference, Moving, Operands, Place, Preserve,
    Print, Verify, split, without_slashes,
};
use haul_sys::dir::open_dir_at;
use haul_sys::{CWD, FileKind, Follow, Stat, Timespec, cache, closing, filesystem, open, stat};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// Operands that gather at most: what is removed late takes room at both ends for as long.
const GATHERED_MAX: usize = 4096;

/// Device and inode.
type Identity = (u64, u64);

/// Operands on their way across.
pub(super) struct Crossing<'a> {
    settings: &'a MoveSettings,
    /// What all of them go into.
    place: Option<Place>,
    /// What earlier operands became, where a later one may be another name of the same file.
    claims: Arc<Claims>,
    waiting: Vec<Waiting>,
    /// Names that those which wait will have, in the case in which the file system compares them.
    names: HashSet<OsString>,
    /// Two names that differ in case may be one where all go.
    may_fold: bool,
    /// Files and directories that wait.
    identities: HashSet<Identity>,
    has_directory: bool,
    /// Directories that lie above those which wait.
    above: HashSet<Identity>,
    /// Paths whose directories are among those.
    known_above: HashSet<OsString>,
}

/// An operand that is to be copied.
struct Waiting {
    copied: Copied,
    backup: Option<OsString>,
    is_remembered: bool,
}

impl<'a> Crossing<'a> {
    pub(super) fn new(settings: &'a MoveSettings) -> Crossing<'a> {
        Crossing {
            settings,
            place: None,
            claims: Arc::default(),
            waiting: Vec::new(),
            names: HashSet::new(),
            may_fold: false,
            identities: HashSet::new(),
            has_directory: false,
            above: HashSet::new(),
            known_above: HashSet::new(),
        }
    }

    /// Whether what becomes of this operand depends on those that wait.
    pub(super) fn is_touched_by(&self, operand: &Operand<'_>) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let rules = &self.settings.rules;
        let is_full = self.waiting.len() >= GATHERED_MAX;
        let in_turn = rules.existing == MoveExisting::Ask || rules.backup.is_some() || is_full;
        in_turn || self.names.contains(&self.compared(operand.name)) || self.holds(operand.source)
    }

    /// A name as it is compared with those of others that wait.
    fn compared(&self, name: &OsStr) -> OsString {
        match name.to_str() {
            _ if !self.may_fold => name.to_owned(),
            Some(text) => text.to_lowercase().into(),
            None => name.to_ascii_lowercase(),
        }
    }

    /// Whether a source waits already, by itself or as part of a directory, or is a directory with a part that waits.
    /// Other names of a file are no such part.
    fn holds(&self, source: &OsStr) -> bool {
        let Ok(found) = stat::stat_at(CWD, source, Follow::No) else { return true };
        let is_another_name = found.kind != FileKind::Directory && found.nlink > 1;
        if !is_another_name && self.identities.contains(&found.identity()) {
            return true;
        }
        self.above.contains(&found.identity())
            || (self.has_directory && above(place_of(source)).any(|place| self.identities.contains(&place)))
    }

    /// One more operand, which goes into `into`, and whose old sink is called `backup` there.
    pub(super) fn add(
        &mut self,
        operand: &Operand<'_>,
        into: &Place,
        source: &Stat,
        backup: Option<OsString>,
    ) {
        if self.place.is_none() {
            self.may_fold = !filesystem::keeps_as_given(into);
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
            copied: Copied {
                source: operand.source.to_owned(),
                name: operand.name.to_owned(),
                identity: source.identity(),
            },
            backup,
            is_remembered: operand.is_remembered,
        });
    }

    /// Copies all that waits, makes it durable, and removes the sources of what arrived.
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
        let medium = Medium::of(&place);
        let since = now();
        let outcome = self.copy(job, &place, &waiting, medium.sync_each);
        job.outcome.failures += outcome.failures;
        job.outcome.cut_off.extend(outcome.cut_off);
        for one in waiting.iter().filter(|one| one.is_remembered) {
            if let Ok(standing) = stat::stat_at(&place, &*one.copied.name, Follow::No) {
                if standing.kind == FileKind::Directory {
                    job.stayed.insert(one.copied.identity, one.copied.name.clone());
                }
                job.created.entry(standing.identity()).or_default().insert(one.copied.name.clone());
            }
        }
        // A directory whose names are not durable looks like any other: nothing of what it may hold is removed.
        if job.stop.load(Ordering::Relaxed) || outcome.is_unsynced {
            return;
        }
        let is_exact = outcome.failures > 0;
        let demands = Demands { since, is_loose: outcome.is_loose, is_exact };
        let removal = Removal {
            report: job.report,
            stop: job.stop,
            place: &place,
            demands,
            verbose: job.rules.verbose,
            workers: self.settings.moving.workers.count(),
        };
        let mut copied: Vec<Copied> = waiting.into_iter().map(|one| one.copied).collect();
        // What failed was told, but not which operand it belongs to: those stay whole.
        copied.retain(|operand| !is_exact || removal.could_remove(operand));
        if copied.is_empty() {
            return;
        }
        match medium.make_durable(&place, &copied) {
            Ok(()) => job.outcome.failures += removal.remove(copied),
            Err(source) => {
                let sink = place.path_of(&copied[0].name);
                let path = OsStr::from_bytes(split(sink.as_bytes()).0).to_owned();
                job.fail(&MoveError::NotDurable { path, source });
            }
        }
    }

    fn copy(&self, job: &Job<'_>, place: &Place, waiting: &[Waiting], sync_each: bool) -> copy::Outcome {
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
            moving: Moving { verify: Verify::ReadBack, sync_each, ..self.settings.moving.clone() },
            print: Print::default(),
        };
        copy::copy_after(&self.claims, &settings, job.report, job.tally, job.stop)
    }
}

/// The directory that a name stands in.
fn place_of(path: &OsStr) -> &OsStr {
    OsStr::from_bytes(split(path.as_bytes()).0)
}

/// A directory and all above it. The root is its own parent.
fn above(place: &OsStr) -> impl Iterator<Item = Identity> {
    let mut path = place.to_owned();
    let mut last = None;
    std::iter::from_fn(move || {
        let found = stat::stat_at(CWD, &*path, Follow::Yes).ok()?.identity();
        path.push("/..");
        (last.replace(found) != Some(found)).then_some(found)
    })
}

/// What the copies are written to, and how it is asked to keep them.
struct Medium {
    /// The directory that the copies stand in, opened before anything is written: what the file system loses from then on
    /// is told to this descriptor. `None` where this user may not read the directory.
    directory: Option<OwnedFd>,
    /// Its file system can't be made durable as a whole, or does not say what came of it: each file is.
    sync_each: bool,
}

impl Medium {
    fn of(place: &Place) -> Medium {
        let sync_each = closing::may_fail(place);
        Medium { directory: open_dir_at(place, c".", Follow::No).ok(), sync_each }
    }

    /// Makes the copies durable: one call for the whole file system, whatever the number of files; or, where each file
    /// was made so already, for their names.
    fn make_durable(&self, place: &Place, copied: &[Copied]) -> io::Result<()> {
        match &self.directory {
            Some(directory) if self.sync_each => cache::sync_all(directory),
            Some(directory) => cache::sync_filesystem(directory),
            None if self.sync_each => cache::sync_all(open_one(place, copied)?),
            // Any file of it stands for the file system: one of the copies, or one that is made for nothing else.
            None => {
                let one = open_one(place, copied).or_else(|_| open::create_nameless_at(place))?;
                cache::sync_filesystem(one)
            }
        }
    }
}

/// Any of the copies that this user may read.
fn open_one(place: &Place, copied: &[Copied]) -> io::Result<OwnedFd> {
    let open = |one: &Copied| {
        let name = without_slashes(&one.name);
        let directory = open_dir_at(place, name, Follow::No);
        directory.or_else(|_| open::open_source_at(place, name, Follow::No, false)).ok()
    };
    copied.iter().find_map(open).ok_or(io::ErrorKind::PermissionDenied.into())
}

/// The time by the clock that file systems take their stamps from.
fn now() -> Timespec {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timespec { sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nsec: since.subsec_nanos() }
}
