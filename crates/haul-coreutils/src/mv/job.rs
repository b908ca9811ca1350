//! The moves of one command, operand by operand: renamed immediately, or collected for the copy
//! across file systems.

use super::across::CrossDeviceMove;
use super::error::MoveError;
use super::relabel::relabel;
use super::settings::{MoveExisting, MoveObserver, MoveOperands, MoveRules, MoveSettings};
use crate::cp::Place;
use crate::location::Location;
use crate::paths::{last_component, without_slashes};
use haul_engine::copy::{Refusal, Tally, quote};
use haul_storage::{FileKind, Follow, Replace, Stat};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Result of a move.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of names that failed or had to stay. If it is not 0, the exit status is a failure.
    pub failures: u64,
    /// True if the job was stopped before everything was done. An operand that was not moved
    /// completely is complete at its source.
    pub interrupted: bool,
    /// Sinks that a stop interrupted.
    pub cut_off: Vec<OsString>,
    /// True if the options contradict each other: nothing was moved.
    pub is_refused: bool,
}

/// State shared by the operands of one command.
pub(super) struct Job<'a> {
    pub(super) settings: &'a MoveSettings,
    pub(super) rules: &'a MoveRules,
    pub(super) report: &'a dyn MoveObserver,
    pub(super) stop: &'a AtomicBool,
    pub(super) tally: &'a Tally,
    /// Sinks created by operands of this command, by inode and name.
    pub(super) created: HashMap<(u64, u64), HashSet<OsString>>,
    /// Directories that were not moved, by inode, with the names of their sinks.
    pub(super) stayed: HashMap<(u64, u64), OsString>,
    pub(super) outcome: Outcome,
}

/// One source and its sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand<'a> {
    /// The source, as typed.
    pub(super) source: &'a OsStr,
    /// Path of the sink for messages.
    pub(super) sink: &'a OsStr,
    /// Directory that `name` is relative to; `None` for the working directory.
    pub(super) place: Option<&'a Place>,
    /// Name of the sink in that directory.
    pub(super) name: &'a OsStr,
    /// True if later operands may meet the sink of this one.
    pub(super) is_remembered: bool,
}

impl Operand<'_> {
    /// Returns the location of the source.
    pub(super) fn source_at(&self) -> Location<'_> {
        Location::here(self.source)
    }

    /// Returns the location of the sink.
    pub(super) fn sink_at(&self) -> Location<'_> {
        self.place.map_or_else(|| Location::here(self.name), |place| place.at(self.name))
    }

    /// Returns the path of another name in the directory of the sink, for messages.
    pub(super) fn path_of(&self, name: &OsStr) -> OsString {
        self.place.map_or_else(|| name.to_owned(), |place| place.path_of(name))
    }
}

/// Result of a rename.
#[derive(Debug)]
enum Renamed {
    Done,
    /// The sink exists.
    Meets,
    Failed(io::Error),
}

/// Moves according to `settings`. Reports every error to `report`. The caller can read `tally`
/// meanwhile. If `stop` becomes true, the job ends soon, and every file is complete at its source
/// or at its sink.
pub fn move_all(
    settings: &MoveSettings,
    report: &dyn MoveObserver,
    tally: &Tally,
    stop: &AtomicBool,
) -> Outcome {
    let mut job = Job {
        settings,
        rules: &settings.rules,
        report,
        stop,
        tally,
        created: HashMap::new(),
        stayed: HashMap::new(),
        outcome: Outcome::default(),
    };
    job.run();
    job.outcome.interrupted = stop.load(Ordering::Relaxed);
    job.outcome
}

impl Job<'_> {
    fn run(&mut self) {
        match &self.settings.operands {
            MoveOperands::Onto { .. } if self.rules.contradicts => self.outcome.is_refused = true,
            MoveOperands::Onto { source, sink } => self.onto(source, sink, None),
            MoveOperands::IntoDirectory { sources, directory } => match Place::open(directory) {
                Ok(_) if self.rules.contradicts => self.outcome.is_refused = true,
                Ok(place) => self.gather(sources, &place),
                Err(source) => {
                    self.fail(&MoveError::Target { path: directory.clone(), is_given: true, source });
                }
            },
            MoveOperands::Among { sources, last, name } => self.among(sources, last, name),
        }
    }

    /// Moves into the last name if it is a directory. For two names, a successful rename of one to
    /// the other takes precedence.
    fn among(&mut self, sources: &[OsString], last: &OsStr, name: &OsStr) {
        let mut tried = None;
        if let [source] = sources
            && !self.rules.exchange
        {
            match rename_new(&Location::here(source), &Location::here(last)) {
                Renamed::Done if self.rules.contradicts => {
                    self.outcome.is_refused = true;
                    return;
                }
                Renamed::Done => {
                    self.renamed(source, name, None);
                    return self.relabel(&Location::here(last), name);
                }
                Renamed::Meets => tried = Some(Renamed::Meets),
                failed @ Renamed::Failed(_) => tried = Some(failed),
            }
        }
        match Place::open(last) {
            Err(source) if sources.len() > 1 => {
                self.fail(&MoveError::Target { path: last.to_owned(), is_given: false, source });
            }
            _ if self.rules.contradicts => self.outcome.is_refused = true,
            Ok(place) => self.gather(sources, &place),
            Err(_) => sources.iter().for_each(|source| self.onto(source, name, tried.take())),
        }
    }

    fn onto(&mut self, source: &OsStr, sink: &OsStr, tried: Option<Renamed>) {
        let mut crossing = CrossDeviceMove::new(self.settings);
        let operand = Operand { source, sink, place: None, name: sink, is_remembered: false };
        self.take(&mut crossing, operand, tried);
        crossing.finish(self);
    }

    fn gather(&mut self, sources: &[OsString], place: &Place) {
        let mut crossing = CrossDeviceMove::new(self.settings);
        for (index, source) in sources.iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let name = last_component(source);
            let sink = place.path_of(name);
            let is_remembered = index + 1 < sources.len();
            let operand = Operand { source, sink: &sink, place: Some(place), name, is_remembered };
            self.take(&mut crossing, operand, None);
        }
        crossing.finish(self);
    }

    fn take(&mut self, crossing: &mut CrossDeviceMove<'_>, operand: Operand<'_>, tried: Option<Renamed>) {
        if let Err(error) = self.move_one(crossing, operand, tried) {
            self.fail(&error);
        }
    }

    /// Moves one operand by a rename, or adds it to the operands that must be copied.
    fn move_one(
        &mut self,
        crossing: &mut CrossDeviceMove<'_>,
        operand: Operand<'_>,
        tried: Option<Renamed>,
    ) -> Result<(), MoveError> {
        if crossing.is_touched_by(&operand) {
            crossing.finish(self);
        }
        if self.rules.exchange {
            return self.exchange(operand);
        }
        let renamed = tried.unwrap_or_else(|| rename_new(&operand.source_at(), &operand.sink_at()));
        if let Renamed::Done = renamed {
            self.renamed_operand(&operand, None);
            return Ok(());
        }
        if matches!((&renamed, self.rules.existing), (Renamed::Meets, MoveExisting::Keep)) {
            return Ok(());
        }
        let source =
            operand.source_at().stat(Follow::No).map_err(|source| cannot("stat", operand.source, source))?;
        let standing = look_at_sink(&operand, &renamed)?;
        let mut backup = None;
        if let Some(standing) = standing {
            if !self.may_replace(&operand, &source, &standing)? {
                return Ok(());
            }
            backup = self.move_aside(&operand, &source)?;
        }
        if self.was_tried_before(&operand, &source) {
            return Ok(());
        }
        if let Some(earlier) = self.stayed.get(&source.identity()) {
            let (sink, earlier) = (operand.sink.to_owned(), operand.path_of(earlier));
            self.put_back(&operand, backup.as_deref());
            return Err(MoveError::LinkToDirectory { sink, earlier });
        }
        let way_is_clear = standing.is_none() || backup.is_some();
        self.carry_out(crossing, &operand, &source, way_is_clear, renamed, backup)
    }

    fn carry_out(
        &mut self,
        crossing: &mut CrossDeviceMove<'_>,
        operand: &Operand<'_>,
        source: &Stat,
        way_is_clear: bool,
        tried: Renamed,
        backup: Option<OsString>,
    ) -> Result<(), MoveError> {
        let error = match tried {
            Renamed::Failed(error) if backup.is_none() => error,
            // The backup may have renamed a link, and paths through that link no longer resolve.
            _ => match operand.source_at().rename(&operand.sink_at(), Replace::Yes) {
                Ok(()) => {
                    let backup = backup.map(|backup| operand.path_of(&backup));
                    self.renamed_operand(operand, backup.as_deref());
                    return Ok(());
                }
                Err(error) => error,
            },
        };
        let (path, sink) = (operand.source.to_owned(), operand.sink.to_owned());
        let failed = if error.kind() == io::ErrorKind::InvalidInput {
            self.stayed.insert(source.identity(), operand.name.to_owned());
            MoveError::IntoItself { path, sink }
        } else if !is_across(&error) || self.rules.no_copy {
            MoveError::Rename { path, sink, source: error }
        } else {
            return self.cross(crossing, operand, source, way_is_clear, backup);
        };
        Err(failed)
    }

    /// Adds an operand that must be copied. An existing sink is removed first, because a rename
    /// would have replaced it.
    fn cross(
        &mut self,
        crossing: &mut CrossDeviceMove<'_>,
        operand: &Operand<'_>,
        source: &Stat,
        way_is_clear: bool,
        backup: Option<OsString>,
    ) -> Result<(), MoveError> {
        let (place, name) = match operand.place {
            Some(place) => (place.clone(), operand.name),
            None => Place::above(operand.name).map_err(|source| cannot("access", operand.sink, source))?,
        };
        let held = Operand { place: Some(&place), name, ..*operand };
        // A trailing slash after the name of a link hides the link from stat, but not from mv's
        // next step.
        let may_be_hidden = name.as_bytes().ends_with(b"/");
        // As with mv, even a missing name is removed: a read-only file system then reports that.
        if !way_is_clear
            || (may_be_hidden && backup.is_none())
            || place.dir().device().capabilities.is_read_only
        {
            self.clear(&held, source.kind == FileKind::Directory)?;
        }
        let backup = backup.map(|backup| last_component(&backup).to_owned());
        crossing.add(&held, &place, source, backup);
        Ok(())
    }

    /// Returns true, with a warning, if this directory was an earlier operand that was not moved.
    /// It is not tried again.
    fn was_tried_before(&self, operand: &Operand<'_>, source: &Stat) -> bool {
        let is_same = |name: &OsString| last_component(name) == last_component(operand.name);
        let was_tried = self.stayed.get(&source.identity()).is_some_and(is_same);
        if was_tried {
            self.report.warned(&Refusal::DirectoryTwice(operand.source.to_owned()).into());
        }
        was_tried
    }

    /// Gives a renamed sink its name back.
    fn put_back(&mut self, operand: &Operand<'_>, backup: Option<&OsStr>) {
        let Some(backup) = backup else { return };
        let sink = operand.sink_at();
        match sink.beside(backup).rename(&sink, Replace::Yes) {
            Ok(()) if self.rules.verbose => {
                let (backup, sink) = (operand.path_of(backup), quote(operand.sink));
                let line = format!("{} -> {sink} (unbackup)", quote(&backup));
                self.report.made(OsStr::new(&line));
            }
            Ok(()) => {}
            Err(source) => self.fail(&cannot("un-backup", operand.sink, source)),
        }
    }

    fn exchange(&mut self, operand: Operand<'_>) -> Result<(), MoveError> {
        operand.source_at().exchange(&operand.sink_at()).map_err(|source| MoveError::Exchange {
            path: operand.source.to_owned(),
            sink: operand.sink.to_owned(),
            source,
        })?;
        if self.rules.verbose {
            let line = format!("exchanged {} <-> {}", quote(operand.source), quote(operand.sink));
            self.report.made(OsStr::new(&line));
        }
        self.relabel(&operand.sink_at(), operand.sink);
        Ok(())
    }

    fn renamed_operand(&mut self, operand: &Operand<'_>, backup: Option<&OsStr>) {
        if operand.is_remembered
            && let Ok(standing) = operand.sink_at().stat(Follow::No)
        {
            self.created.entry(standing.identity()).or_default().insert(operand.name.to_owned());
        }
        self.renamed(operand.source, operand.sink, backup);
        self.relabel(&operand.sink_at(), operand.sink);
    }

    /// Sets the security context of a renamed sink (`-Z`).
    fn relabel(&self, sink: &Location<'_>, path: &OsStr) {
        if let Some(warning) = relabel(&self.rules.contexts, sink, path) {
            self.report.warned(&warning);
        }
    }

    fn renamed(&self, source: &OsStr, sink: &OsStr, backup: Option<&OsStr>) {
        if self.rules.verbose {
            let backup = backup.map(|backup| format!(" (backup: {})", quote(backup))).unwrap_or_default();
            let line = format!("renamed {} -> {}{backup}", quote(source), quote(sink));
            self.report.made(OsStr::new(&line));
        }
    }

    pub(super) fn fail(&mut self, error: &MoveError) {
        self.outcome.failures += 1;
        self.report.not_moved(error);
    }
}

/// Returns the stat result of the sink, if it exists.
fn look_at_sink(operand: &Operand<'_>, tried: &Renamed) -> Result<Option<Stat>, MoveError> {
    let sink = operand.sink_at();
    match sink.stat(Follow::No) {
        Ok(standing) => Ok(Some(standing)),
        // A trailing slash after the name of a dangling link makes stat follow it; a rename meets
        // the link itself.
        Err(error) if error.kind() == io::ErrorKind::NotFound && matches!(tried, Renamed::Meets) => {
            Ok(sink.beside(without_slashes(operand.name)).stat(Follow::No).ok())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot("stat", operand.sink, error)),
    }
}

/// Renames to a name that does not exist yet.
fn rename_new(source: &Location<'_>, sink: &Location<'_>) -> Renamed {
    match source.rename(sink, Replace::No) {
        Ok(()) => Renamed::Done,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Renamed::Meets,
        // Either the file system does not support `RENAME_NOREPLACE`, or the directory would go
        // into itself. Only the older call distinguishes the two cases.
        Err(error) if is_unable(&error) => match sink.stat(Follow::No) {
            Ok(_) => Renamed::Meets,
            Err(_) => match source.rename(sink, Replace::Yes) {
                Ok(()) => Renamed::Done,
                Err(error) => Renamed::Failed(error),
            },
        },
        Err(error) => Renamed::Failed(error),
    }
}

fn is_unable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

fn is_across(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::CrossesDevices
}

pub(super) fn cannot(action: &'static str, path: &OsStr, source: io::Error) -> MoveError {
    MoveError::Cannot { action, path: path.to_owned(), source }
}
