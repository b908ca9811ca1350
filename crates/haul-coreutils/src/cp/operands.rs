//! The operands of the command: the sink of each operand, and the operands that may be copied
//! concurrently.

mod parts;

use super::backup;
use super::directory::{Directory, Identity, OperandNames, OperandSettle};
use super::entry;
use super::job::Job;
use super::links::Memory;
use super::operand_walk::{LaterParts, OperandWalk, Rows};
use super::parents;
use super::place::Place;
use super::ranges::Ranges;
use super::rules::{Batch, BatchItem, CopySettings, Dereference, Existing, Operands};
use super::tree_entry::{Entry, Operand};
use super::tree_worker::{Counted, TreeWorker, Walk, WorkPool};
use crate::location::EntryName;
use crate::paths::{last_component, split};
use haul_engine::copy::{CopyContext, CopyError, Refusal};
use haul_engine::workers_within;
use haul_storage::{FileKind, Follow, Stat};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Job<'_> {
    /// Opens the target. Returns `None` if the target cannot hold the operands; the error was
    /// reported then.
    pub(crate) fn begin_operands(&self) -> Option<OperandWalk> {
        let settings = self.settings;
        let sinks_collide = sinks_collide(settings);
        let target = match &settings.operands {
            Operands::IntoDirectory { directory, .. } => match Place::open(directory) {
                Ok(place) => Directory::target(settings.source.as_ref(), Some(&place)),
                Err(source) => {
                    let path = directory.clone();
                    self.fail(&CopyError::Failed { doing: "target directory", path, source });
                    return None;
                }
            },
            Operands::Onto { .. } | Operands::Batch(_) => {
                Directory::target(settings.source.as_ref(), settings.place.as_ref())
            }
        };
        let sink_is_missing = match &settings.operands {
            Operands::Onto { sink, .. } => is_missing(target.sink_at(sink).stat(Follow::Yes)),
            _ => false,
        };
        let into_itself = target_is_in_a_source(settings, &target);
        self.memory.into_itself.store(into_itself, Ordering::Relaxed);
        if into_itself || asks(settings) {
            self.memory.one_worker.store(true, Ordering::Relaxed);
        }
        let in_order = sinks_collide
            || asks(settings)
            || into_itself
            || moves_sinks_aside(settings)
            || updates_a_file_twice(settings);
        let rows = Rows { target, next: 0, read: None, in_order, sinks_collide, sink_is_missing };
        // The end of a batch counts like an entry.
        self.tally().expect(count(settings).unwrap_or(1));
        (count(settings) != Some(0)).then_some(OperandWalk::Rows(rows))
    }

    /// Returns true if this file was already an operand. Directories have a separate rule.
    fn was_named_before(&self, taken: &Placed, looked_at: Option<&Stat>) -> bool {
        let Some(source) = looked_at else { return false };
        if source.kind == FileKind::Directory || !taken.into_directory || count(self.settings) == Some(1) {
            return false;
        }
        let named = self.settings.source_at(&taken.source);
        let same = |earlier: &OsStr| entry::is_one_name(&self.settings.source_at(earlier), &named);
        let named = self.memory.source_was_named(source.identity(), &taken.source, same);
        let warns = named && self.settings.rules.backup.is_none();
        if warns {
            self.report().warned(&Refusal::FileTwice(taken.source.clone()).into());
        }
        warns
    }

    /// Returns the next operand. Returns `None` if there is none, or if it must wait; a copy of
    /// `rows` then waits with it.
    fn place_next(&self, rows: &mut Rows) -> Option<Placed> {
        let settings = self.settings;
        let into_directory = matches!(settings.operands, Operands::IntoDirectory { .. });
        let placed =
            |source, sink, with_parents| Placed { source, sink, with_parents, into_directory, item: None };
        match &settings.operands {
            Operands::Onto { source, sink } => {
                Some(placed(source.clone(), onto(settings, &rows.target, source, sink), false))
            }
            Operands::IntoDirectory { sources, parents, .. } => {
                let source = sources[rows.next].clone();
                let sink = if *parents { whole_path(&source) } else { name_in_directory(&source).to_owned() };
                Some(placed(source, sink, *parents))
            }
            Operands::Batch(lines) => {
                let item = match rows.read.take() {
                    Some(item) => *item,
                    None => read_line(&self.context, lines)?,
                };
                let sink = rows.target.sink_at(&item.sink);
                self.memory.lines.begin(rows.next, &sink, || rows.waiting(&item)).then(|| {
                    let placed = placed(item.source.clone(), item.sink.clone(), false);
                    Placed { item: Some(item), ..placed }
                })
            }
        }
    }
}

/// Returns the number of workers of the job, at most `most`. Questions are asked one at a time, in
/// order. If copies become sources later, no file may be read while it is written. Both cases need
/// a single worker.
pub(crate) fn workers(memory: &Memory, most: usize) -> usize {
    if memory.one_worker.load(Ordering::Relaxed) { 1 } else { most }
}

/// Returns true if the job consists of one file of one object.
fn is_one_small_file(settings: &CopySettings) -> bool {
    let source = match &settings.operands {
        Operands::Onto { source, .. } => source,
        Operands::IntoDirectory { sources, .. } if sources.len() == 1 => &sources[0],
        _ => return false,
    };
    settings
        .source_at(source)
        .stat(Follow::Yes)
        .is_ok_and(|found| found.kind == FileKind::Regular && found.size <= settings.moving.object.bytes())
}

/// Returns the requested number of workers, limited so that their open files need at most half of
/// the process's descriptors. A single small file gets one worker: it is copied sooner than threads
/// start, or than their possible number is known.
pub(crate) fn most_workers(settings: &CopySettings, open_files: u64) -> usize {
    if is_one_small_file(settings) {
        return 1;
    }
    workers_within(settings.moving.workers.count(), open_files)
}

/// Takes the next operand or part.
pub(crate) fn take<'j>(job: &'j Job<'j>, worker: &mut TreeWorker<'_, 'j>, walk: OperandWalk) {
    match walk {
        OperandWalk::Rows(rows) => take_row(job, worker, rows),
        OperandWalk::Parts(parts) => parts::take(job, worker, *parts),
    }
}

/// Takes the next operand and offers the later ones to other workers. If the order matters, the
/// later ones wait until this operand has finished. Behind a directory they wait until it is
/// recorded as named, because a later operand may contain it.
fn take_row<'j>(job: &'j Job<'j>, worker: &mut TreeWorker<'_, 'j>, mut rows: Rows) {
    let Some(taken) = job.place_next(&mut rows) else { return };
    let index = rows.next;
    rows.next += 1;
    let is_last = count(job.settings).is_some_and(|count| rows.next >= count);
    let target = rows.target.clone();
    let (in_order, sinks_collide, sink_is_missing) =
        (rows.in_order, rows.sinks_collide, rows.sink_is_missing);
    let looked_at = look(job.settings, &taken);
    if job.settings.rules.recursive && is_into_itself(&target, &taken, looked_at.as_ref()) {
        job.memory.into_itself.store(true, Ordering::Relaxed);
    }
    let mut later = (!is_last).then_some(OperandWalk::Rows(rows));
    let waiting = if in_order { later.take() } else { None };
    if looked_at.is_none_or(|source| source.kind != FileKind::Directory) {
        offer(worker.pool(), later.take());
    }
    let operand = Operand { source: looked_at, sink_is_missing, sinks_collide, ..Operand::default() };
    copy_operand(job, worker, TakenRow { placed: taken, operand, index, target, waiting }, later);
}

/// An operand whose turn has come.
struct TakenRow {
    placed: Placed,
    operand: Operand,
    /// Index in the command, from 0.
    index: usize,
    target: Arc<Directory>,
    /// Work after the operand has finished.
    waiting: Option<OperandWalk>,
}

/// Copies an operand, or records it as a directory and offers the walk through it. `later` is the
/// work after the operand is recorded: before its own walk, because a worker takes what was offered
/// last.
fn copy_operand<'j>(
    job: &'j Job<'j>,
    worker: &mut TreeWorker<'_, 'j>,
    row: TakenRow,
    later: Option<OperandWalk>,
) {
    let TakenRow { placed: taken, operand, index, target, waiting } = row;
    let names = Arc::new(OperandNames {
        index,
        is_only_one: count(job.settings) == Some(1),
        source: taken.source.clone(),
        sink: target.sink_path_of(&taken.sink),
    });
    target.expect(1);
    let above = if taken.with_parents {
        parents::make(job, &target, &taken.source, &taken.sink)
    } else {
        Ok(parents::Made::default())
    };
    let (above, failed) = match above {
        Ok(made) => (made, false),
        Err((made, error)) => {
            job.fail(&error);
            (made, true)
        }
    };
    let ranges = taken.has_several_ranges().then(Arc::<Ranges>::default);
    let next = later_parts(&taken, ranges.as_ref(), &names, &target, waiting);
    let settle = OperandSettle { names, parents: above.directories, next: Mutex::new(next) };
    let parent = Directory::operand(&target, settle);
    if failed || job.was_named_before(&taken, operand.source.as_ref()) {
        job.tally().handled();
        job.leave(&parent);
        return offer(worker.pool(), later);
    }
    let operand = Operand { sink_is_new: above.last_is_new, ..operand };
    let part = taken.item.as_ref().and_then(|item| parts::part(item, 0));
    let backup = taken.item.and_then(|item| item.backup);
    let (source_name, sink_name) = (EntryName::from(taken.source), EntryName::from(taken.sink));
    let operand = Some(operand);
    let (kind_hint, counted) = (None, Counted::Later);
    let entry = Entry { parent, source_name, sink_name, kind_hint, operand, part, ranges, backup, counted };
    let pool = worker.pool();
    entry::copy_then(job, worker, entry, || offer(pool, later));
}

fn offer(pool: &WorkPool<'_>, walk: Option<OperandWalk>) {
    if let Some(walk) = walk {
        pool.offer_walk(Walk::Operands(walk));
    }
}

/// Returns the work after the first range of a line: the other ranges, and then the waiting lines.
fn later_parts(
    taken: &Placed,
    ranges: Option<&Arc<Ranges>>,
    names: &Arc<OperandNames>,
    target: &Arc<Directory>,
    after: Option<OperandWalk>,
) -> Option<OperandWalk> {
    let (Some(ranges), Some(item)) = (ranges, &taken.item) else { return after };
    Some(OperandWalk::Parts(Box::new(LaterParts {
        item: item.clone(),
        next: 1,
        ranges: Arc::clone(ranges),
        names: Arc::clone(names),
        target: target.clone(),
        after: after.map(Box::new),
    })))
}

/// One operand with its two names.
#[derive(Debug)]
struct Placed {
    source: OsString,
    /// Name relative to the target.
    sink: OsString,
    with_parents: bool,
    into_directory: bool,
    item: Option<BatchItem>,
}

impl Placed {
    fn has_several_ranges(&self) -> bool {
        self.item.as_ref().is_some_and(|item| item.ranges.len() > 1)
    }
}

/// Stats an operand in the order of the command, because the recorded state depends on that order.
fn look(settings: &CopySettings, taken: &Placed) -> Option<Stat> {
    let follow = match settings.rules.dereference {
        Dereference::Never => Follow::No,
        _ => Follow::Yes,
    };
    settings.source_at(&taken.source).stat(follow).ok()
}

/// Returns the number of operands, or `None` for a batch, which is read line by line.
fn count(settings: &CopySettings) -> Option<usize> {
    match &settings.operands {
        Operands::IntoDirectory { sources, .. } => Some(sources.len()),
        Operands::Onto { .. } => Some(1),
        Operands::Batch(_) => None,
    }
}

fn asks(settings: &CopySettings) -> bool {
    settings.rules.existing == Existing::Ask
}

/// Returns true if a line of a batch may rename or remove the sink that another line writes.
fn moves_sinks_aside(settings: &CopySettings) -> bool {
    let rules = &settings.rules;
    matches!(settings.operands, Operands::Batch(_)) && (rules.backup.is_some() || rules.remove_destination)
}

/// Returns true if `-u` has a file twice among its operands. The first sink that `-u` leaves
/// unchanged then becomes the sink of the others too.
fn updates_a_file_twice(settings: &CopySettings) -> bool {
    let Operands::IntoDirectory { sources, .. } = &settings.operands else { return false };
    if !settings.rules.update || sources.len() == 1 {
        return false;
    }
    let mut seen = HashSet::new();
    let mut looks = sources.iter().filter_map(|source| settings.source_at(source).stat(Follow::Yes).ok());
    looks.any(|source| !seen.insert(source.identity()))
}

/// Returns true if the sink of one operand may be the sink of another, or its backup.
fn sinks_collide(settings: &CopySettings) -> bool {
    match &settings.operands {
        Operands::Onto { .. } => false,
        Operands::IntoDirectory { sources, parents, .. } => {
            let mut seen = HashSet::new();
            sources.len() > 1
                && (*parents
                    || settings.rules.backup.is_some()
                    || !sources.iter().all(|source| seen.insert(name_in_directory(source))))
        }
        // Lines with the same sink wait for each other.
        Operands::Batch(_) => false,
    }
}

/// Returns true if the copy goes into its own source. As with cp, each operand then finds the
/// results of those before it.
fn target_is_in_a_source(settings: &CopySettings, target: &Directory) -> bool {
    let place = |path: &OsStr| OsStr::from_bytes(split(path.as_bytes()).0).to_owned();
    let (sources, places): (_, Vec<OsString>) = match &settings.operands {
        Operands::IntoDirectory { sources, parents: true, .. } => {
            (&sources[..], sources.iter().map(|source| place(&whole_path(source))).collect())
        }
        Operands::IntoDirectory { sources, .. } => (&sources[..], vec![OsString::from(".")]),
        Operands::Onto { source, sink } => (std::slice::from_ref(source), vec![place(sink)]),
        // Each line is checked when its turn comes.
        Operands::Batch(_) => return false,
    };
    if !settings.rules.recursive {
        return false;
    }
    let above: HashSet<Identity> = places.iter().flat_map(|place| above(target, place)).collect();
    let mut looks = sources.iter().filter_map(|source| settings.source_at(source).stat(Follow::Yes).ok());
    looks.any(|source| source.kind == FileKind::Directory && above.contains(&source.identity()))
}

/// Returns true if a line of a batch is copied into its own source.
fn is_into_itself(target: &Directory, taken: &Placed, looked_at: Option<&Stat>) -> bool {
    let directory = looked_at.filter(|source| source.kind == FileKind::Directory && taken.item.is_some());
    let (place, _) = split(taken.sink.as_bytes());
    directory.is_some_and(|source| above(target, OsStr::from_bytes(place)).contains(&source.identity()))
}

/// Returns a directory and all directories above it. For a directory that does not exist yet,
/// returns the existing ones.
fn above(target: &Directory, place: &OsStr) -> HashSet<Identity> {
    let mut above = HashSet::new();
    let mut standing = place.as_bytes();
    while is_missing(target.sink_at(OsStr::from_bytes(standing)).stat(Follow::Yes)) {
        standing = match split(standing).0 {
            // `.` and the root are their own parents here.
            above if above != standing => above,
            _ => break,
        };
    }
    let mut path = OsStr::from_bytes(standing).to_owned();
    while let Ok(place) = target.sink_at(&path).stat(Follow::Yes) {
        // The root is its own parent.
        if !above.insert(place.identity()) {
            break;
        }
        path.push("/..");
    }
    above
}

/// Returns the next valid line of a batch, or `None` at the end of the list.
fn read_line(context: &CopyContext<'_>, lines: &Batch) -> Option<BatchItem> {
    while !context.is_stopping() {
        match lines.next(&|| context.is_stopping()) {
            Some(Ok(item)) => {
                context.observer.tally.expect(1);
                return Some(item);
            }
            Some(Err(error)) => context.observer.fail(&CopyError::BatchLine(error)),
            None => break,
        }
    }
    context.observer.tally.handled();
    None
}

/// Returns the sink of the operand. `cp --force --backup x x` copies `x` to its backup name and
/// leaves `x` unchanged.
fn onto(settings: &CopySettings, target: &Directory, source: &OsStr, sink: &OsStr) -> OsString {
    match &settings.rules.backup {
        Some(rule) if settings.rules.force && source == sink && is_regular(target, sink) => {
            backup::next_name(&target.sink_at(sink), rule).unwrap_or_else(|_| sink.to_owned())
        }
        _ => sink.to_owned(),
    }
}

fn is_regular(target: &Directory, name: &OsStr) -> bool {
    target.sink_at(name).stat(Follow::Yes).is_ok_and(|stat| stat.kind == FileKind::Regular)
}

/// Returns the last component of a source. The contents of `..` and of the root are copied into the
/// directory itself.
fn name_in_directory(source: &OsStr) -> &OsStr {
    let last = last_component(source);
    if last == ".." || last == "/" { OsStr::new(if last == ".." { "." } else { "" }) } else { last }
}

/// Returns the complete path of a source for `--parents`, without leading and trailing slashes.
fn whole_path(source: &OsStr) -> OsString {
    let bytes = source.as_bytes();
    let start = bytes.iter().take_while(|&&byte| byte == b'/').count();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(start, |at| at + 1);
    OsStr::from_bytes(&bytes[start..end.max(start)]).to_owned()
}

fn is_missing(looked: io::Result<Stat>) -> bool {
    looked.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
