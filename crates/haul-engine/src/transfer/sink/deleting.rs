//! Deletion: list the directories of the sink, ask the source about each name, and remove those
//! that the source does not have.
//!
//! The source judges every name separately, because it knows the filters of the job. A directory is
//! entered only after its name was judged, and never removed together with its contents: it is
//! removed after them, and only if it is empty then.
//!
//! A name that the source lacks may be another spelling of one that it has, for example on a file
//! system that ignores case. Before names of a directory are removed, the names of the source in it
//! are looked up here. An entry that one of them finds stays.

use super::SinkContext;
use crate::copy::quote;
use crate::transfer::reason::reason;
use crate::transfer::report::Failure;
use haul_model::RelPath;
use haul_proto::sink::Event;
use haul_proto::{Fate, Keep, Reason, Why, is_own_name, limits};
use haul_storage::{Dir, FileKind, Follow, Listing, Missing, Name, Remove, Times};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Maximum number of names of a directory that are listed together.
const NAMES_AT_ONCE: usize = 256;
const _: () = assert!(NAMES_AT_ONCE <= limits::NAMES_PER_LIST);

/// Number of names of a directory from which on they are removed before further names are listed.
const GROUP_MAX: usize = 16_384;

/// Maximum number of hard links of an entry that are compared with it by their exact spelling.
const SPELLINGS_MAX: usize = 16;

/// A task of the worker that deletes.
#[derive(Debug)]
pub(super) enum Sweeping {
    /// Start to list the sink.
    Begin,
    /// The source answered a list.
    Judged { batch: u32, fates: Vec<Fate> },
    /// The source answered with names that it has.
    Named { batch: u32, names: Vec<Box<[u8]>>, certain: bool, last: bool },
}

/// A question to the source, with the number of its directory.
enum Question {
    /// Fates of these names; true for a directory.
    Fates(u64, Vec<(Name, bool)>),
    /// Names of the source in the directory.
    Names(u64),
}

/// A directory that is listed, or whose subdirectories are.
struct Directory {
    /// Path by which the source knows it.
    path: Vec<u8>,
    parent: Option<u64>,
    /// True if the source lacks the directory.
    is_gone: bool,
    /// Names that were not read yet.
    listing: Option<OpenListing>,
    /// True if names are read now, and false if those that were read are removed first.
    is_listing: bool,
    /// Number of lists without an answer.
    pending: u32,
    /// Names that the source lacks.
    gone: Vec<Candidate>,
    /// Devices, inodes and indices of `gone`, in ascending order, while names of the source are
    /// looked up.
    identities: Vec<((u64, u64), usize)>,
    /// Names of the source that are hard links of the name with this index in `gone`, or other
    /// spellings of it.
    spellings: HashMap<usize, Vec<Name>>,
    /// Number of names that the source has sent.
    named: u64,
    /// Number of subdirectories that are not finished.
    unfinished: u64,
    /// True if all names are judged and removed, except subdirectories.
    is_settled: bool,
}

/// A directory that is read.
struct OpenListing {
    dir: Arc<dyn Dir>,
    names: Box<dyn Listing>,
}

/// A name that the source lacks.
struct Candidate {
    name: Name,
    is_directory: bool,
    stays: bool,
}

/// The deletion of a job.
struct Sweep<'a, 'c> {
    context: &'a SinkContext<'c>,
    directories: HashMap<u64, Directory>,
    next_directory: u64,
    questions: HashMap<u32, Question>,
    next_question: u32,
    /// Directories that are read, the last first.
    listing: Vec<u64>,
    /// Directories in which names of the source are needed.
    naming: Vec<u64>,
    /// Subdirectories to enter: the parent, the name, and true if the source lacks it.
    waiting: Vec<(u64, Name, bool)>,
    /// Number of names that may still be deleted.
    left: u64,
}

impl SinkContext<'_> {
    /// Deletes when the state machine requests it, until the session ends.
    pub(super) fn run_sweeping(&self) {
        let Some(Sweeping::Begin) = self.tasks.sweeping.next() else { return };
        let mut sweep = Sweep::new(self);
        loop {
            if sweep.advance() {
                return self.handle(Event::Swept);
            }
            match self.tasks.sweeping.next() {
                Some(Sweeping::Judged { batch, fates }) => sweep.judged(batch, fates),
                Some(Sweeping::Named { batch, names, certain, last }) => {
                    sweep.named(batch, &names, certain, last);
                }
                Some(Sweeping::Begin) | None => return,
            }
        }
    }
}

impl<'a, 'c> Sweep<'a, 'c> {
    fn new(context: &'a SinkContext<'c>) -> Sweep<'a, 'c> {
        let mut sweep = Sweep {
            context,
            directories: HashMap::new(),
            next_directory: 0,
            questions: HashMap::new(),
            next_question: 0,
            listing: Vec::new(),
            naming: Vec::new(),
            waiting: Vec::new(),
            left: context.options.max_delete,
        };
        sweep.enter(None, Vec::new(), false);
        sweep
    }

    /// Asks the source as many questions as may wait for an answer. Returns true if nothing is left
    /// to do.
    fn advance(&mut self) -> bool {
        while self.questions.len() < limits::LISTS_AHEAD {
            if self.context.session.is_ended() {
                return false;
            }
            if let Some(id) = self.naming.pop() {
                let directory = &self.directories[&id];
                let event =
                    Event::NamesWanted { directory: directory.path.as_slice().into(), from: directory.named };
                self.ask(Question::Names(id), event);
            } else if let Some(&id) = self.listing.last() {
                self.list(id);
            } else if let Some((parent, name, is_gone)) = self.waiting.pop() {
                let path = join(&self.directories[&parent].path, name.as_bytes());
                self.enter(Some(parent), path, is_gone);
            } else {
                return self.questions.is_empty();
            }
        }
        false
    }

    fn ask(&mut self, question: Question, event: Event) {
        self.questions.insert(self.next_question, question);
        self.next_question += 1;
        self.context.handle(event);
    }

    /// Starts to list a directory. A directory that cannot be read counts as empty.
    fn enter(&mut self, parent: Option<u64>, path: Vec<u8>, is_gone: bool) {
        if is_gone
            && !self.context.options.dry_run
            && let Ok(path) = RelPath::new(&path)
        {
            self.context.sweep_leftovers(&path);
        }
        let listing = self.dir(&path).and_then(|dir| Ok(OpenListing { names: dir.list()?, dir })).ok();
        let id = self.next_directory;
        self.next_directory += 1;
        let is_listing = listing.is_some();
        let directory = Directory {
            path,
            parent,
            is_gone,
            listing,
            is_listing,
            pending: 0,
            gone: Vec::new(),
            identities: Vec::new(),
            spellings: HashMap::new(),
            named: 0,
            unfinished: 0,
            is_settled: false,
        };
        self.directories.insert(id, directory);
        if is_listing { self.listing.push(id) } else { self.settle(id) }
    }

    fn dir(&self, path: &[u8]) -> io::Result<Arc<dyn Dir>> {
        self.context.destination.dirs.open(path)
    }

    /// Lists further names of the last directory in `listing`: only requested names that the filter
    /// includes, because the source must not learn or judge any other, and none of haul's own.
    fn list(&mut self, id: u64) {
        let directory = self.directories.get_mut(&id).expect("it is listed");
        let Some(OpenListing { dir, names: listing }) = &mut directory.listing else { return };
        let mut entries = Vec::new();
        let more = listing.next(NAMES_AT_ONCE, &mut entries).unwrap_or(false);
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.name.as_bytes();
            let is_here = self.context.destination.expected.may_have(&join(&directory.path, name));
            if is_own_name(name) || !is_here {
                continue;
            }
            let stat = || dir.stat_at(&entry.name, Follow::No).ok().map(|found| found.kind);
            let is_directory = entry.kind.or_else(stat) == Some(FileKind::Directory);
            names.push((entry.name, is_directory));
        }
        if !more {
            directory.listing = None;
        }
        directory.is_listing = more && directory.gone.len() < GROUP_MAX;
        if !directory.is_listing {
            self.listing.pop();
        }
        if names.is_empty() {
            return self.go_on(id);
        }
        directory.pending += 1;
        let told = names.iter().map(|(name, _): &(Name, bool)| name.as_bytes().into()).collect();
        let event = Event::Listed { directory: directory.path.as_slice().into(), names: told };
        self.ask(Question::Fates(id, names), event);
    }

    fn judged(&mut self, batch: u32, fates: Vec<Fate>) {
        let Some(Question::Fates(id, names)) = self.questions.remove(&batch) else { return };
        let directory = self.directories.get_mut(&id).expect("it waits for the answer");
        directory.pending -= 1;
        for ((name, is_directory), fate) in names.into_iter().zip(fates) {
            match fate {
                Fate::Gone => directory.gone.push(Candidate { name, is_directory, stays: false }),
                Fate::Stays if is_directory => {
                    directory.unfinished += 1;
                    self.waiting.push((id, name, false));
                }
                Fate::Stays | Fate::Excluded | Fate::Guarded => {}
            }
        }
        self.go_on(id);
    }

    /// Continues after some names of a directory were judged.
    fn go_on(&mut self, id: u64) {
        let directory = &self.directories[&id];
        if directory.is_listing || directory.pending > 0 {
            return;
        }
        if directory.is_gone || directory.gone.is_empty() {
            self.settle(id);
        } else {
            self.identify(id);
            self.naming.push(id);
        }
    }

    /// Determines the identities of the names that the source lacks. A name whose identity cannot
    /// be determined stays.
    fn identify(&mut self, id: u64) {
        let dir = self.dir(&self.directories[&id].path);
        let directory = self.directories.get_mut(&id).expect("the caller has it");
        directory.named = 0;
        let mut failures = Vec::new();
        for (index, candidate) in directory.gone.iter_mut().enumerate() {
            let identity = || {
                let dir = dir.as_ref().map_err(|error| io::Error::from(error.kind()))?;
                Ok(dir.stat_at(&candidate.name, Follow::No)?.identity())
            };
            let found: io::Result<[(u64, u64); 2]> = identity().and_then(|first| Ok([first, identity()?]));
            match found {
                Ok([first, second]) if first == second => directory.identities.push((first, index)),
                Ok(_) => {
                    let text = "its inode number changes, so that it may be another name of a sent file";
                    failures.push((candidate.name.clone(), Reason::new(Why::Unsupported, text)));
                    candidate.stays = true;
                }
                Err(error) => {
                    if error.kind() != io::ErrorKind::NotFound {
                        failures.push((candidate.name.clone(), reason("cannot delete", &error)));
                    }
                    candidate.stays = true;
                }
            }
        }
        directory.identities.sort_unstable();
        self.fail(id, failures);
    }

    /// Reports names of a directory that cannot be deleted.
    fn fail(&self, id: u64, failures: Vec<(Name, Reason)>) {
        let failed = failures.len() as u64;
        for (name, reason) in failures {
            let path = join(&self.directories[&id].path, name.as_bytes());
            self.context.session.report.failed(&Failure { path, here: true, reason });
        }
        if failed > 0 {
            self.context.handle(Event::Removed { deleted: 0, failed, over_limit: 0 });
        }
    }

    /// Looks up names of the source: the entries that they find stay.
    fn named(&mut self, batch: u32, names: &[Box<[u8]>], certain: bool, last: bool) {
        let Some(Question::Names(id)) = self.questions.remove(&batch) else { return };
        let dir = self.dir(&self.directories[&id].path);
        let directory = self.directories.get_mut(&id).expect("it waits for the answer");
        let (true, Ok(dir)) = (certain, dir) else {
            let unread = || Reason::new(Why::Io, "the sender cannot read its directory");
            let doubtful = directory.gone.iter_mut().filter(|candidate| !candidate.stays);
            let failures = doubtful
                .map(|candidate| {
                    candidate.stays = true;
                    (candidate.name.clone(), unread())
                })
                .collect();
            self.fail(id, failures);
            return self.settle(id);
        };
        directory.named += names.len() as u64;
        for name in names {
            let Some(name) = Name::new(&**name) else { continue };
            let Ok(facts) = dir.stat_at(&name, Follow::No) else { continue };
            let identity = facts.identity();
            let first = directory.identities.partition_point(|(known, _)| *known < identity);
            let found = directory.identities[first..].iter().take_while(|(known, _)| *known == identity);
            for &(_, index) in found {
                let candidate = &mut directory.gone[index];
                if facts.kind != FileKind::Directory && facts.nlink > 1 && candidate.name != name {
                    let spellings = directory.spellings.entry(index).or_default();
                    spellings.push(name.clone());
                    candidate.stays |= spellings.len() > SPELLINGS_MAX;
                    spellings.truncate(SPELLINGS_MAX);
                } else if !candidate.stays {
                    candidate.stays = true;
                    // A directory that differs in case is another one: its name was refused.
                    if candidate.is_directory && dir.check_spelling(&name).is_ok() {
                        directory.unfinished += 1;
                        self.waiting.push((id, name.clone(), false));
                    }
                }
            }
        }
        if !last {
            return self.naming.push(id);
        }
        if !directory.spellings.is_empty() {
            directory.keep_other_spellings(&*dir);
        }
        self.settle(id);
    }

    /// Removes the names of a directory that the source lacks, and then lists further ones.
    fn settle(&mut self, id: u64) {
        let directory = self.directories.get_mut(&id).expect("the caller has it");
        let gone = std::mem::take(&mut directory.gone);
        directory.identities.clear();
        directory.spellings.clear();
        let mut files = Vec::new();
        for Candidate { name, is_directory, .. } in gone.into_iter().filter(|candidate| !candidate.stays) {
            if is_directory {
                directory.unfinished += 1;
                self.waiting.push((id, name, true));
            } else {
                files.push(name);
            }
        }
        directory.is_listing = directory.listing.is_some();
        directory.is_settled = !directory.is_listing;
        let path = directory.path.clone();
        if directory.is_listing {
            self.listing.push(id);
        }
        self.remove(&path, &files);
        self.close(id);
    }

    /// Ends a directory if everything in it has ended, and then the directories above it in the
    /// same way.
    fn close(&mut self, mut id: u64) {
        while self.directories.get(&id).is_some_and(|dir| dir.is_settled && dir.unfinished == 0) {
            let Some(Directory { path, parent: Some(parent), is_gone, .. }) = self.directories.remove(&id)
            else {
                return;
            };
            let above = self.directories.get_mut(&parent).expect("it ends after its subdirectories");
            above.unfinished -= 1;
            if is_gone {
                let within = above.path.clone();
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
                self.remove(&within, Name::new(name).as_slice());
            }
            id = parent;
        }
    }

    /// Removes names from a directory.
    fn remove(&mut self, directory: &[u8], names: &[Name]) {
        if names.is_empty() {
            return;
        }
        let context = self.context;
        let dir = self.dir(directory);
        // The times of the directory came from the source and must not become those of the
        // deletion.
        let keeps_times =
            context.options.keep.has(Keep::TIMES) && !context.options.dry_run && !directory.is_empty();
        let before = dir.as_ref().ok().filter(|_| keeps_times).and_then(|dir| dir.stat().ok());
        let (mut deleted, mut failed, mut over_limit) = (0, 0, 0);
        for name in names {
            if deleted == self.left {
                over_limit += 1;
                continue;
            }
            if context.session.is_ended() {
                break;
            }
            let path = join(directory, name.as_bytes());
            let removed = RelPath::new(&path).map_err(io::Error::other).and_then(|_| {
                let dir = dir.as_ref().map_err(|error| io::Error::from(error.kind()))?;
                context.destination.dirs.forget(&path);
                if context.options.dry_run { Ok(true) } else { remove_one(&**dir, name) }
            });
            match removed {
                Ok(true) => {
                    deleted += 1;
                    context.session.report.deleted(&path);
                }
                Ok(false) => context.session.report.note(&format!(
                    "{}: directory not deleted: it contains files that this job does not delete",
                    quote(OsStr::from_bytes(&path))
                )),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    failed += 1;
                    let reason = reason("cannot delete", &error);
                    context.session.report.failed(&Failure { path, here: true, reason });
                }
            }
        }
        if let (Ok(dir), Some(before)) = (&dir, before) {
            // Ignore an error: this user can write to the directory, so the call rarely fails.
            let _ = dir.set_times(Times { atime: Some(before.atime), mtime: Some(before.mtime) });
        }
        self.left -= deleted;
        context.handle(Event::Removed { deleted, failed, over_limit });
    }
}

impl Directory {
    /// Lets the names stay of which a name of the source is another spelling: one that the
    /// directory itself does not contain.
    fn keep_other_spellings(&mut self, dir: &dyn Dir) {
        let mut unseen: HashMap<Name, Vec<usize>> = HashMap::new();
        for (index, names) in self.spellings.drain() {
            names.into_iter().for_each(|name| unseen.entry(name).or_default().push(index));
        }
        // An unreadable directory keeps all of them.
        if let Ok(mut listing) = dir.list() {
            let mut entries = Vec::new();
            while listing.next(NAMES_AT_ONCE, &mut entries).unwrap_or(false) || !entries.is_empty() {
                for entry in entries.drain(..) {
                    unseen.remove(&entry.name);
                }
            }
        }
        for index in unseen.into_values().flatten() {
            self.gone[index].stays = true;
        }
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Removes a name, but a directory only if it is empty. Returns true if it removed the name.
fn remove_one(dir: &dyn Dir, name: &Name) -> io::Result<bool> {
    match dir.remove(name, Remove::File) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
        other => return other.map(|()| true),
    }
    match dir.remove(name, Remove::Directory) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            // An unreadable directory was not listed. Report that as an error.
            dir.dir(name, Follow::No, Missing::Fail)?.list().map(|_| false)
        }
        other => other.map(|()| true),
    }
}
