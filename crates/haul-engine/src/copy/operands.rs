//! The operands of the command: which goes where, and which may go at the same time.

mod parents;

pub(crate) use parents::{MadeParent, protect_parents};

use super::backup::{self, last_component};
use super::directory::Directory;
use super::entry::{self, DirectorySettle, Entry, Operand, OperandNames, OperandSettle};
use super::error::{CopyError, Refusal};
use super::file::Part;
use super::job::{Job, Walk};
use super::pipeline::Lane;
use super::settings::{BatchItem, CopySettings, Existing, Operands};
use super::settle;
use haul_model::{ByteLen, ByteOffset};
use haul_sys::dir::open_place_at;
use haul_sys::{CWD, FileKind, Follow, Stat, stat};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The operands not yet taken.
#[derive(Debug)]
pub(crate) struct OperandWalk {
    target: Arc<Directory>,
    next: usize,
    /// Each waits for the one before it.
    in_order: bool,
    /// Two of them may become the same sink.
    sinks_collide: bool,
    sink_is_missing: bool,
}

/// Looks at the target; `None` where it can't take the operands, which was told then.
pub(crate) fn begin(job: &Job<'_>) -> Option<OperandWalk> {
    let settings = job.settings;
    let sinks_collide = sinks_collide(settings);
    let target = match &settings.operands {
        Operands::IntoDirectory { directory, .. } => match open_place_at(CWD, &**directory, Follow::Yes) {
            Ok(fd) => Directory::target(Some(fd), directory.clone()),
            Err(source) => {
                let path = directory.clone();
                job.fail(&CopyError::Failed { doing: "target directory", path, source });
                return None;
            }
        },
        Operands::Onto { .. } | Operands::Batch(_) => Directory::target(None, OsString::new()),
    };
    let sink_is_missing = match &settings.operands {
        Operands::Onto { sink, .. } => is_missing(stat::stat_at(CWD, &**sink, Follow::Yes)),
        _ => false,
    };
    let into_itself = target_is_in_a_source(settings, &target);
    if into_itself || asks(settings) {
        job.memory.one_worker.store(true, Ordering::Relaxed);
    }
    let in_order = sinks_collide || asks(settings) || into_itself;
    let walk = OperandWalk { target, next: 0, in_order, sinks_collide, sink_is_missing };
    job.memory.expect(count(settings));
    (count(settings) > 0).then_some(walk)
}

/// How many workers the job can have. Questions are asked one at a time, in order; and where copies become
/// sources in their turn, none is to be read while it is written.
pub(crate) fn workers(job: &Job<'_>) -> usize {
    if job.memory.one_worker.load(Ordering::Relaxed) { 1 } else { job.settings.moving.workers }
}

/// Takes the next operand, and leaves those after it to others; or, where order matters, to itself for when
/// this one is through.
pub(crate) fn take(job: &Job<'_>, lane: &mut Lane, mut walk: OperandWalk) {
    let index = walk.next;
    walk.next += 1;
    let is_last = walk.next >= count(job.settings);
    let target = Arc::clone(&walk.target);
    let (sinks_collide, sink_is_missing) = (walk.sinks_collide, walk.sink_is_missing);
    let taken = place(job.settings, index);
    let looked_at = look(job, &taken);
    let waiting = if is_last {
        None
    } else if walk.in_order {
        Some(walk)
    } else {
        job.pool.offer_walk(Walk::Operands(walk));
        None
    };
    let operand = Operand { source: looked_at, sink_is_missing, sinks_collide, ..Operand::default() };
    let names = Arc::new(OperandNames {
        index,
        is_only_one: count(job.settings) == 1,
        source: taken.source.clone(),
        sink: target.sink_path_of(&taken.sink),
    });
    target.expect(1);
    let above =
        if taken.with_parents { parents::make(job, &target, &taken) } else { Ok(parents::Made::default()) };
    let (above, failed) = match above {
        Ok(made) => (made, false),
        Err((made, error)) => {
            job.fail(&error);
            (made, true)
        }
    };
    let next = Mutex::new(waiting);
    let settle = DirectorySettle::Operand(OperandSettle { names, parents: above.directories, next });
    let parent = Directory::operand(&target, settle);
    if failed || was_named_before(job, &taken, looked_at.as_ref()) {
        entry::met(job);
        return settle::leave(job, &parent);
    }
    let operand = Operand { sink_is_new: above.last_is_new, ..operand };
    copy(job, lane, parent, &taken, operand);
}

/// One operand with its two names.
#[derive(Debug)]
struct Placed<'a> {
    source: OsString,
    /// Beneath the target.
    sink: OsString,
    with_parents: bool,
    into_directory: bool,
    item: Option<&'a BatchItem>,
}

fn copy(job: &Job<'_>, lane: &mut Lane, parent: Arc<Directory>, taken: &Placed<'_>, operand: Operand) {
    let entry = |operand, part| Entry {
        parent: Arc::clone(&parent),
        source_name: taken.source.clone(),
        sink_name: taken.sink.clone(),
        kind_hint: None,
        operand: Some(operand),
        part,
    };
    let ranges = taken.item.map_or(&[][..], |item| &item.ranges);
    if ranges.is_empty() {
        return entry::copy(job, lane, entry(operand, None));
    }
    // Every part but the first finds the sink as the rules for existing ones left it.
    parent.expect(ranges.len() - 1);
    job.memory.expect(ranges.len() - 1);
    let existed = stat::stat_at(CWD, &*taken.sink, Follow::Yes).is_ok();
    let is_kept = existed && job.settings.rules.existing == Existing::Keep;
    for (number, &(start, end)) in ranges.iter().enumerate() {
        let part: Part =
            (ByteOffset(start), Some(ByteLen(end.saturating_sub(start))), Some(ByteOffset(start)));
        let later_part = number > 0 && !is_kept;
        entry::copy(job, lane, entry(Operand { later_part, ..operand }, Some(part)));
    }
}

/// Looks at an operand in the order of the command, where what is remembered of it depends on that order.
fn look(job: &Job<'_>, taken: &Placed<'_>) -> Option<Stat> {
    let follow = match job.settings.rules.dereference {
        super::settings::Dereference::Never => Follow::No,
        _ => Follow::Yes,
    };
    stat::stat_at(CWD, &*taken.source, follow).ok()
}

/// Whether this file was an operand before; a directory has a rule of its own.
fn was_named_before(job: &Job<'_>, taken: &Placed<'_>, looked_at: Option<&Stat>) -> bool {
    let Some(source) = looked_at else { return false };
    if source.kind == FileKind::Directory || !taken.into_directory || count(job.settings) < 2 {
        return false;
    }
    let same = |earlier: &OsStr| entry::is_one_name((CWD, earlier), (CWD, &taken.source));
    let named = job.memory.source_was_named(source.identity(), &taken.source, same);
    let warns = named && job.settings.rules.backup.is_none();
    if warns {
        job.report.warned(&Refusal::FileTwice(taken.source.clone()).into());
    }
    warns
}

fn count(settings: &CopySettings) -> usize {
    match &settings.operands {
        Operands::IntoDirectory { sources, .. } => sources.len(),
        Operands::Onto { .. } => 1,
        Operands::Batch(items) => items.len(),
    }
}

fn asks(settings: &CopySettings) -> bool {
    settings.rules.existing == Existing::Ask
}

/// Whether what one operand becomes may be what another becomes, or its backup.
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
        Operands::Batch(items) => {
            let mut seen = HashSet::new();
            !items.iter().all(|item| seen.insert(&item.sink))
        }
    }
}

/// Whether the copy goes into what is copied: each operand then finds what those before it left, as with cp.
fn target_is_in_a_source(settings: &CopySettings, target: &Directory) -> bool {
    let (sources, place) = match &settings.operands {
        Operands::IntoDirectory { sources, .. } => (&sources[..], &b"."[..]),
        Operands::Onto { source, sink } => (std::slice::from_ref(source), backup::split(sink.as_bytes()).0),
        Operands::Batch(_) => return false,
    };
    if !settings.rules.recursive {
        return false;
    }
    let mut above = HashSet::new();
    let mut path = OsStr::from_bytes(place).to_owned();
    while let Ok(place) = stat::stat_at(target.sink(), &*path, Follow::Yes) {
        // The root is its own parent.
        if !above.insert(place.identity()) {
            break;
        }
        path.push("/..");
    }
    let mut looks = sources.iter().filter_map(|source| stat::stat_at(CWD, &**source, Follow::Yes).ok());
    looks.any(|source| source.kind == FileKind::Directory && above.contains(&source.identity()))
}

fn place(settings: &CopySettings, index: usize) -> Placed<'_> {
    match &settings.operands {
        Operands::Onto { source, sink } => Placed {
            source: source.clone(),
            sink: onto(settings, source, sink),
            with_parents: false,
            into_directory: false,
            item: None,
        },
        Operands::IntoDirectory { sources, parents, .. } => {
            let source = sources[index].clone();
            let sink = if *parents { whole_path(&source) } else { name_in_directory(&source).to_owned() };
            Placed { source, sink, with_parents: *parents, into_directory: true, item: None }
        }
        Operands::Batch(items) => {
            let item = &items[index];
            let (source, sink) = (item.source.clone(), item.sink.clone());
            Placed { source, sink, with_parents: false, into_directory: false, item: Some(item) }
        }
    }
}

/// `cp --force --backup x x` makes a backup of `x` and leaves `x` as it is.
fn onto(settings: &CopySettings, source: &OsStr, sink: &OsStr) -> OsString {
    match &settings.rules.backup {
        Some(rule) if settings.rules.force && source == sink && is_regular(sink) => {
            backup::next_name(CWD, sink, rule).unwrap_or_else(|_| sink.to_owned())
        }
        _ => sink.to_owned(),
    }
}

fn is_regular(name: &OsStr) -> bool {
    stat::stat_at(CWD, name, Follow::Yes).is_ok_and(|stat| stat.kind == FileKind::Regular)
}

/// The last component of a source; `..` is copied as what it holds, into the directory itself.
fn name_in_directory(source: &OsStr) -> &OsStr {
    let last = last_component(source);
    if last == ".." || last == "/" { OsStr::new(if last == ".." { "." } else { "" }) } else { last }
}

/// `--parents`: all of a source's path, without slashes before and behind it.
fn whole_path(source: &OsStr) -> OsString {
    let bytes = source.as_bytes();
    let start = bytes.iter().take_while(|&&byte| byte == b'/').count();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(start, |at| at + 1);
    OsStr::from_bytes(&bytes[start..end.max(start)]).to_owned()
}

fn is_missing(looked: io::Result<Stat>) -> bool {
    looked.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
