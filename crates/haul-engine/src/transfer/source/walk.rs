//! Offering what the walk meets: files as there is room, a directory when all in it has arrived.

use super::Side;
use super::facts::Clerk;
use super::held::Held;
use super::tree::{Item, Met, Tree};
use crate::transfer::meeting::Asked;
use crate::transfer::reason::reason;
use crate::transfer::report::Failure;
use haul_proto::source::Event;
use haul_proto::{FileNumber, Keep, NewFile, Reason, Why};
use haul_sys::FileKind;
use std::collections::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a walk that has nothing to do waits for the machine to change, at most.
const PATIENCE: Duration = Duration::from_secs(1);

/// Directories that were entered and are not announced yet.
#[derive(Debug, Default)]
pub(super) struct Directories {
    by_number: HashMap<u64, Directory>,
    next: u64,
    /// Those whose end has come.
    ready: Vec<u64>,
}

#[derive(Debug)]
struct Directory {
    facts: NewFile,
    item: Item,
    above: Option<u64>,
    /// What lies in it and has not ended; the walk itself is one of them.
    under_way: u64,
}

impl Directories {
    fn enter(&mut self, facts: NewFile, item: Item, above: Option<u64>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.add_to(above);
        self.by_number.insert(number, Directory { facts, item, above, under_way: 1 });
        number
    }

    fn add_to(&mut self, number: Option<u64>) {
        if let Some(directory) = number.and_then(|number| self.by_number.get_mut(&number)) {
            directory.under_way += 1;
        }
    }

    /// One thing in a directory ended.
    pub(super) fn one_ended(&mut self, number: Option<u64>) {
        let Some(number) = number else { return };
        if let Some(directory) = self.by_number.get_mut(&number) {
            directory.under_way -= 1;
            if directory.under_way == 0 {
                self.ready.push(number);
            }
        }
    }
}

/// What the walk does next.
enum Turn {
    /// Offer this directory.
    Directory(Box<Directory>),
    /// Take a step.
    Step,
    /// All has ended.
    End,
    /// The session is over.
    Over,
}

/// A walk that offers what it meets.
pub(super) struct Offering<'a> {
    side: &'a Side<'a>,
    tree: Tree,
    is_walked: bool,
    clerk: Clerk,
    /// The directories from the operand down.
    path: Vec<u64>,
    /// Files with several names, by device and inode.
    linked: HashMap<(u64, u64), Linked>,
}

/// A file with several names that was offered under one of them.
struct Linked {
    identity: (u64, u64),
    number: FileNumber,
    path: Vec<u8>,
    /// Names that were not met yet.
    names_left: u64,
}

impl<'a> Offering<'a> {
    pub(super) fn new(side: &'a Side<'a>, tree: Tree) -> Offering<'a> {
        let clerk = Clerk::default();
        Offering { side, tree, is_walked: false, clerk, path: Vec::new(), linked: HashMap::new() }
    }

    /// Walks to the end, or until the session is over.
    pub(super) fn run(mut self) {
        loop {
            match self.turn() {
                Turn::Directory(directory) => {
                    let Directory { facts, item, above, .. } = *directory;
                    self.offer(facts, item, above, None);
                }
                Turn::Step => match self.tree.next() {
                    Some(met) => self.met(met),
                    None => {
                        self.is_walked = true;
                        self.side.session.tally.walked.store(true, Ordering::Relaxed);
                    }
                },
                Turn::End => return self.side.handle(Event::WalkEnded),
                Turn::Over => return,
            }
        }
    }

    fn turn(&self) -> Turn {
        let (side, is_walked) = (self.side, self.is_walked);
        side.session.meeting.ask(|machine, now| {
            if machine.is_over() || side.session.is_stopping() {
                return Asked::Answer(Turn::Over);
            }
            if machine.room() == 0 {
                return Asked::Wait(now + PATIENCE);
            }
            let mut directories = side.directories();
            if let Some(number) = directories.ready.pop() {
                let directory = directories.by_number.remove(&number).expect("a directory ends once");
                return Asked::Answer(Turn::Directory(Box::new(directory)));
            }
            match is_walked {
                false => Asked::Answer(Turn::Step),
                true if directories.by_number.is_empty() && machine.open_files() == 0 => {
                    Asked::Answer(Turn::End)
                }
                true => Asked::Wait(now + PATIENCE),
            }
        })
    }

    fn met(&mut self, met: Met) {
        let within = self.path.last().copied();
        match met {
            Met::Item(item) => self.item(item, within),
            Met::Enter(item) => {
                let facts = self.clerk.facts(&item, &self.side.options, None);
                match facts {
                    Ok(facts) => {
                        let number = self.side.directories().enter(facts, item, within);
                        self.path.push(number);
                        self.side.session.tally.found(0);
                    }
                    Err(error) => {
                        // Its contents go all the same; it gets the mode that missing directories get.
                        self.walk_failed(
                            item.shown.as_encoded_bytes().to_vec(),
                            reason("cannot read", &error),
                        );
                        let number = self.side.directories().enter(empty_directory(&item), item, within);
                        self.path.push(number);
                    }
                }
            }
            Met::Leave => {
                let number = self.path.pop();
                self.side.directories().one_ended(number);
            }
            Met::Failed(path, error) => {
                self.walk_failed(path.into_encoded_bytes(), reason("cannot read", &error));
            }
        }
    }

    fn item(&mut self, item: Item, within: Option<u64>) {
        let keep = self.side.options.keep;
        let is_left = match item.facts.kind {
            FileKind::Symlink => !keep.has(Keep::LINKS),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                !keep.has(Keep::SPECIALS)
            }
            _ => false,
        };
        if is_left || self.side.session.receipt.is_some_and(|receipt| receipt.is(item.facts.identity())) {
            return;
        }
        let first = self.first_name(&item);
        let path = first.as_ref().map(|(_, path)| path.as_slice());
        match self.clerk.facts(&item, &self.side.options, path) {
            Ok(facts) => {
                self.side.directories().add_to(within);
                if let Some(linked) = self.offer(facts, item, within, first.map(|(number, _)| number)) {
                    self.linked.insert(linked.identity, linked);
                }
            }
            Err(error) => {
                self.walk_failed(item.shown.into_encoded_bytes(), reason("cannot read", &error));
            }
        }
    }

    /// The name under which a file was offered that this is a further name of.
    fn first_name(&mut self, item: &Item) -> Option<(FileNumber, Vec<u8>)> {
        let is_one_of_several = item.facts.nlink > 1 && item.facts.kind != FileKind::Directory;
        if !is_one_of_several || !self.side.options.keep.has(Keep::HARD_LINKS) {
            return None;
        }
        let identity = item.facts.identity();
        let linked = self.linked.get_mut(&identity)?;
        let first = (linked.number, linked.path.clone());
        linked.names_left -= 1;
        if linked.names_left == 0 {
            self.linked.remove(&identity);
        }
        Some(first)
    }

    /// Offers what there is room for. Returns what is to be remembered of a file with several names.
    fn offer(
        &mut self,
        facts: NewFile,
        item: Item,
        within: Option<u64>,
        first: Option<FileNumber>,
    ) -> Option<Linked> {
        let side = self.side;
        let (size, shown) = (facts.size(), item.shown.clone());
        let remembered = (first.is_none() && item.facts.nlink > 1 && item.facts.kind != FileKind::Directory)
            .then(|| (item.facts.identity(), item.path.clone(), item.facts.nlink));
        let is_directory = item.facts.kind == FileKind::Directory;
        let kind = side.session.receipt.map(|_| facts.kind.clone());
        let held = Held::new(item, kind, within, side.recipe.root(size));
        // The file is held before any worker can hear of it.
        let offered = side.session.meeting.with(|machine, _| {
            let mut all = side.files.lock().unwrap_or_else(PoisonError::into_inner);
            let offered = machine.offer(facts, first);
            if let Ok(number) = &offered {
                all.insert(*number, std::sync::Arc::new(held));
            }
            offered
        });
        match offered {
            Ok(number) => {
                if !is_directory {
                    side.session.tally.found(size);
                }
                remembered.map(|(identity, path, names)| Linked {
                    identity,
                    number,
                    path,
                    names_left: names - 1,
                })
            }
            Err(flaw) => {
                side.session.report.failed(&Failure {
                    path: shown.into_encoded_bytes(),
                    here: true,
                    reason: Reason::new(Why::TooLarge, &flaw.to_string()),
                });
                side.directories().one_ended(within);
                None
            }
        }
    }

    fn walk_failed(&self, path: Vec<u8>, reason: Reason) {
        self.side.session.report.failed(&Failure { path: path.clone(), here: true, reason: reason.clone() });
        self.side.handle(Event::Unread { path: path.into(), reason });
    }
}

/// A directory of which nothing is known but its mode and times.
fn empty_directory(item: &Item) -> NewFile {
    NewFile {
        number: FileNumber::default(),
        whole: false,
        again: false,
        path: item.path.as_slice().into(),
        kind: haul_proto::FileKind::Directory,
        mode: item.facts.mode,
        mtime: super::facts::moment(item.facts.mtime),
        atime: super::facts::moment(item.facts.atime),
        uid: item.facts.uid,
        gid: item.facts.gid,
        user: Box::default(),
        group: Box::default(),
        xattrs: Vec::new(),
        version: None,
    }
}
