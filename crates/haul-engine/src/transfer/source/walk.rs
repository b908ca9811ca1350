//! Offers the entries that the walk finds to the state machine: files when there is capacity, and a
//! directory when all entries in it have arrived.

use super::SourceContext;
use super::details::{Details, has_several_names, sends};
use super::facts::FileInfoBuilder;
use super::offered_file::{HELD_BYTES_MAX, HeldBytes, OfferedFile};
use super::tree::{Earlier, Item, Tree, WalkStep};
use crate::copy::quote;
use crate::transfer::monitor::{Reply, WaitKey};
use crate::transfer::reason::reason;
use crate::transfer::report::Failure;
use haul_log::objects::Identity;
use haul_proto::source::Event;
use haul_proto::{FileNumber, Keep, NewFile, Reason, Why};
use haul_storage::FileKind;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Maximum time that an idle walk waits for the machine to change.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Maximum time between two checks for the release of held bytes.
const HELD_WAIT: Duration = Duration::from_millis(50);

/// Number of files that are offered together. The workers of the lanes are woken once for all of
/// them.
const OFFER_BATCH: usize = 64;

/// Maximum time that a file waits for others before it is offered. On a slow file system few files
/// are offered together.
const OFFER_DELAY_MAX: Duration = Duration::from_millis(2);

/// Limit on metadata waiting to be offered, in bytes: much less than the window holds.
const OFFER_METADATA_BYTES: u64 = 256 << 10;

/// Directories that were entered and are not announced yet.
#[derive(Debug, Default)]
pub(super) struct Directories {
    by_number: HashMap<u64, Directory>,
    next: u64,
    /// Directories in which everything has ended.
    ready: Vec<u64>,
}

#[derive(Debug)]
struct Directory {
    facts: NewFile,
    item: Item,
    parent: Option<u64>,
    /// Number of entries in the directory that have not ended. The walk itself counts as one.
    unfinished: u64,
}

impl Directories {
    fn enter(&mut self, facts: NewFile, item: Item, parent: Option<u64>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.add_entry(parent);
        self.by_number.insert(number, Directory { facts, item, parent, unfinished: 1 });
        number
    }

    fn add_entry(&mut self, number: Option<u64>) {
        if let Some(directory) = number.and_then(|number| self.by_number.get_mut(&number)) {
            directory.unfinished += 1;
        }
    }

    /// Records that one entry of a directory ended. Returns true if the directory itself ended with
    /// it.
    pub(super) fn entry_ended(&mut self, number: Option<u64>) -> bool {
        let Some(number) = number else { return false };
        let Some(directory) = self.by_number.get_mut(&number) else { return false };
        directory.unfinished -= 1;
        let has_ended = directory.unfinished == 0;
        if has_ended {
            self.ready.push(number);
        }
        has_ended
    }

    /// Takes the directories that have ended.
    fn take_ready(&mut self) -> Vec<Directory> {
        let Directories { by_number, ready, .. } = self;
        ready.drain(..).filter_map(|number| by_number.remove(&number)).collect()
    }
}

/// Next step of the walk after it has offered all entries.
enum NextStep {
    /// Offer directories that have ended.
    Offer,
    /// Everything has ended.
    End,
    /// The session is over.
    Over,
}

/// An entry to be offered.
struct PendingEntry {
    facts: NewFile,
    offered_file: OfferedFile,
    /// File of which the entry is an additional name.
    first: Option<FileNumber>,
    /// The [left](haul_proto::source::Source::is_left) file of which the entry is an additional
    /// name, if the entry is sent as a file instead.
    replaces: Option<FileNumber>,
}

/// A walk that offers the entries it finds.
pub(super) struct Walker<'a> {
    context: &'a SourceContext<'a>,
    tree: Tree,
    is_walked: bool,
    /// Entries that were found and are not offered yet.
    waiting: VecDeque<PendingEntry>,
    file_info: FileInfoBuilder,
    /// Numbers of the directories being walked, from the operand down.
    path: Vec<u64>,
    /// Files with several names, by device and inode.
    linked: HashMap<(u64, u64), Linked>,
    /// True once a directory with stored digests was left out, which is reported once.
    has_left_out_sums: bool,
    /// Number of bytes that are held in memory, for all files that are offered or wait for it.
    held: Arc<AtomicUsize>,
}

/// A file with several names that was offered under one of them.
struct Linked {
    number: FileNumber,
    path: Vec<u8>,
    /// Number of names that were not found yet.
    names_left: u64,
}

impl<'a> Walker<'a> {
    pub(super) fn new(context: &'a SourceContext<'a>, tree: Tree) -> Walker<'a> {
        let (waiting, file_info) = (VecDeque::new(), FileInfoBuilder::default());
        Walker {
            context,
            tree,
            is_walked: false,
            waiting,
            file_info,
            path: Vec::new(),
            linked: HashMap::new(),
            has_left_out_sums: false,
            held: Arc::default(),
        }
    }

    /// Walks to the end, or until the session is over.
    pub(super) fn run(mut self) {
        while !self.is_over() {
            let ended = self.context.directories().take_ready();
            for Directory { facts, item, parent, .. } in ended {
                self.queue(facts, (item, None), parent, None);
            }
            self.gather();
            self.offer();
            if self.is_walked {
                match self.next_step() {
                    NextStep::Offer => {}
                    NextStep::End => {
                        self.context.walked(self.tree.take_sent_nothing());
                        return self.context.handle(Event::WalkEnded);
                    }
                    NextStep::Over => return,
                }
            }
        }
    }

    /// Waits, after the walk, until a directory or everything has ended.
    fn next_step(&self) -> NextStep {
        let context = self.context;
        context.session.monitor.ask(|machine, now| {
            let directories = context.directories();
            if machine.is_over() || context.session.is_stopping() {
                Reply::Ready(NextStep::Over)
            } else if !directories.ready.is_empty() {
                Reply::Ready(NextStep::Offer)
            } else if directories.by_number.is_empty() && machine.open_files() == 0 {
                Reply::Ready(NextStep::End)
            } else {
                Reply::Wait(WaitKey::Ends, now + IDLE_WAIT_MAX)
            }
        })
    }

    /// Walks until enough entries wait to be offered, or one has waited long enough.
    fn gather(&mut self) {
        let begin = Instant::now();
        let mut facts = 0;
        while !self.is_walked
            && self.waiting.len() < OFFER_BATCH
            && facts < OFFER_METADATA_BYTES
            && begin.elapsed() < OFFER_DELAY_MAX
        {
            let before = self.waiting.len();
            let storage = &self.context.session.spent.storage;
            match storage.time(|| self.tree.next()) {
                Some(step) => self.handle_step(step),
                None => {
                    self.is_walked = true;
                    self.context.session.tally.walked.store(true, Ordering::Relaxed);
                }
            }
            facts += self.waiting.iter().skip(before).map(|one| one.facts.facts_len()).sum::<u64>();
        }
    }

    fn handle_step(&mut self, step: WalkStep) {
        let parent = self.path.last().copied();
        match step {
            WalkStep::Item(item, details) => self.item(item, details, parent),
            WalkStep::Enter(mut item, mut details) => {
                match self.tree.earlier(&item.path, |kind| self.sends(kind)) {
                    // The directories merge. Their metadata is that of the first one, and is set
                    // again after the contents of each.
                    Some(Earlier::Directory(first)) => (item, details) = (*first, None),
                    Some(Earlier::Other) => {
                        self.tree.skip();
                        return self.refuse(item, "cannot overwrite non-directory");
                    }
                    None => {}
                }
                match self.facts(&item, details) {
                    Ok(facts) => {
                        self.tree.sends(&item.path);
                        let number = self.context.directories().enter(facts, item, parent);
                        self.path.push(number);
                        self.context.session.tally.found(0);
                    }
                    Err(error) => {
                        // The contents are sent anyway, and the directory without its attributes.
                        self.walk_failed(
                            item.shown.as_encoded_bytes().to_vec(),
                            reason("cannot read", &error),
                        );
                        let number = self.context.directories().enter(empty_directory(&item), item, parent);
                        self.path.push(number);
                    }
                }
            }
            WalkStep::Leave => {
                let number = self.path.pop();
                // This thread checks for ended directories before it waits.
                let _ = self.context.directories().entry_ended(number);
            }
            WalkStep::StoredSums(path) => {
                if !std::mem::replace(&mut self.has_left_out_sums, true) {
                    self.context.session.report.note(&format!(
                        "{}: digests stored with files are left out; the receiver accepts them only with --stored-sums",
                        quote(&path)
                    ));
                }
            }
            WalkStep::Failed(path, error) => {
                self.walk_failed(path.into_encoded_bytes(), reason("cannot read", &error));
            }
            WalkStep::Repeated(path) => self
                .context
                .session
                .report
                .note(&format!("warning: source {} specified more than once", quote(&path))),
        }
    }

    fn item(&mut self, mut item: Item, details: Option<io::Result<Details>>, parent: Option<u64>) {
        if !self.sends(item.facts.kind)
            || self.context.session.receipt.is_some_and(|receipt| receipt.is(item.facts.identity()))
        {
            return;
        }
        match self.tree.earlier(&item.path, |kind| self.sends(kind)) {
            Some(Earlier::Directory(_)) => return self.refuse(item, "cannot overwrite directory"),
            Some(Earlier::Other) => return self.refuse(item, "will not overwrite just-created"),
            None => {}
        }
        let first = self.first_name(&item);
        let details = match &first {
            Some((_, path)) => Some(Ok(Details::link_to(path))),
            None => details,
        };
        self.wait_for_held();
        match self.file_facts(&mut item, details) {
            Ok((facts, held)) => {
                self.tree.sends(&item.path);
                self.context.directories().add_entry(parent);
                let is_first = first.is_none() && has_several_names(&item.facts);
                let linked =
                    is_first.then(|| (item.facts.identity(), item.path.clone(), item.facts.nlink - 1));
                self.queue(facts, (item, held), parent, first.map(|(number, _)| number));
                // Additional names refer to its number.
                if let Some((identity, path, names_left)) = linked
                    && let Some(number) = self.offer()
                {
                    self.linked.insert(identity, Linked { number, path, names_left });
                }
            }
            Err(reason) => self.walk_failed(item.shown.into_encoded_bytes(), reason),
        }
    }

    /// Returns the metadata of an entry that is not a directory, and its bytes if they are held.
    /// Reads details that are not given.
    fn file_facts(
        &mut self,
        item: &mut Item,
        details: Option<io::Result<Details>>,
    ) -> Result<(NewFile, Option<HeldBytes>), Reason> {
        let held = if details.is_none() { self.hold(item)? } else { None };
        let mut facts = self.facts(item, details).map_err(|error| reason("cannot read", &error))?;
        if let Some(version) = facts.version.as_mut()
            && let Some(held) = &held
        {
            // Times say nothing about contents that are computed.
            *version = Identity::of(&held.bytes).0;
        }
        Ok((facts, held))
    }

    /// Reads a file that reports no certain length, and sets the length in its metadata. NEW_FILE
    /// states the length, and the contents may be different at each read.
    fn hold(&self, item: &mut Item) -> Result<Option<HeldBytes>, Reason> {
        let facts = &item.facts;
        if facts.kind != FileKind::Regular {
            return Ok(None);
        }
        if item.place.device().capabilities.lengths.is_certain(facts.size) {
            return Ok(None);
        }
        let read = item.source().and_then(|file| file.read_all(HELD_BYTES_MAX));
        let bytes = read.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                let text = "its file system does not report its length, and it has more than 16 MiB";
                Reason::new(Why::TooLarge, text)
            }
            _ => reason("cannot read", &error),
        })?;
        // An empty file is sent like any other.
        if bytes.is_empty() && facts.size == 0 {
            return Ok(None);
        }
        item.facts.size = bytes.len() as u64;
        item.facts.blocks = item.facts.size.div_ceil(512);
        Ok(Some(HeldBytes::new(bytes, &self.held)))
    }

    /// Waits until few bytes are held, or until the session is over.
    fn wait_for_held(&mut self) {
        while self.held.load(Ordering::Relaxed) > HELD_BYTES_MAX && !self.is_over() {
            // Bytes are held until their files have ended.
            self.offer();
            self.context.session.monitor.ask(|machine, now| match machine.is_over() {
                false if self.held.load(Ordering::Relaxed) > HELD_BYTES_MAX => {
                    Reply::Wait(WaitKey::Ends, now + HELD_WAIT)
                }
                _ => Reply::Ready(()),
            });
        }
    }

    /// Returns true if entries of this kind are sent.
    fn sends(&self, kind: FileKind) -> bool {
        sends(self.context.options.keep, kind)
    }

    /// Reports an entry with the path of one that an earlier operand sends.
    fn refuse(&self, item: Item, refusal: &str) {
        let text = format!("{refusal} {}, which another operand sends", quote(OsStr::from_bytes(&item.path)));
        self.walk_failed(item.shown.into_encoded_bytes(), Reason::new(Why::InTheWay, &text));
    }

    /// Returns the metadata of an entry. Reads details that are not given.
    fn facts(&mut self, item: &Item, details: Option<io::Result<Details>>) -> io::Result<NewFile> {
        let SourceContext { session, options, hash_plan, .. } = self.context;
        let read = || session.spent.storage.time(|| Details::of(item.entry(), options, hash_plan));
        let details = details.unwrap_or_else(read)?;
        Ok(self.file_info.facts(item, options, details))
    }

    /// Returns the number and path under which the file was offered, if the item is an additional
    /// name of it.
    fn first_name(&mut self, item: &Item) -> Option<(FileNumber, Vec<u8>)> {
        if !has_several_names(&item.facts) || !self.context.options.keep.has(Keep::HARD_LINKS) {
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

    /// Queues an entry to be offered.
    fn queue(
        &mut self,
        facts: NewFile,
        item: (Item, Option<HeldBytes>),
        parent: Option<u64>,
        first: Option<FileNumber>,
    ) {
        let (item, held) = item;
        let offered_file = self.offered_file(&facts, item, held, parent);
        self.waiting.push_back(PendingEntry { facts, offered_file, first, replaces: None });
    }

    fn offered_file(
        &self,
        facts: &NewFile,
        item: Item,
        held: Option<HeldBytes>,
        parent: Option<u64>,
    ) -> OfferedFile {
        let kind = self.context.session.receipt.map(|_| facts.kind.clone());
        OfferedFile::new(item, held, kind, parent, self.context.hash_plan.root(facts.size()))
    }

    /// Offers all queued entries as capacity permits. Returns the number of the last one if the
    /// machine accepted it.
    fn offer(&mut self) -> Option<FileNumber> {
        let context = self.context;
        let mut last = None;
        while !self.waiting.is_empty() {
            if !self.has_room() {
                self.waiting.clear();
                return None;
            }
            let (mut refused, mut alone) = (Vec::new(), None);
            context.session.monitor.update(|machine, _| {
                // Insert the file before any worker can request it.
                let mut all = context.files.lock();
                while machine.capacity() > 0
                    && let Some(PendingEntry { mut facts, offered_file, mut first, replaces }) =
                        self.waiting.pop_front()
                {
                    if let Some(left) = first.filter(|first| machine.is_left(*first)) {
                        match machine.successor(left) {
                            Ok((number, path)) => {
                                first = Some(number);
                                facts.kind = haul_proto::FileKind::HardLink { first: path.into() };
                            }
                            Err(left) => {
                                alone = Some((offered_file, left));
                                break;
                            }
                        }
                    }
                    let size = facts.size();
                    let path = replaces.map(|left| (left, facts.path.clone()));
                    let offered = machine.offer(facts, first);
                    last = offered.as_ref().ok().copied();
                    match offered {
                        Ok(number) => {
                            path.iter().for_each(|(left, path)| machine.succeed(*left, number, path));
                            if offered_file.item.facts.kind != FileKind::Directory {
                                offered_file.found.store(size, Ordering::Relaxed);
                                context.session.tally.found(size);
                            }
                            all.insert(number, Arc::new(offered_file));
                        }
                        Err(flaw) => refused.push((offered_file, flaw)),
                    }
                }
            });
            if let Some((offered_file, left)) = alone {
                self.separate(offered_file, left);
            }
            for (offered_file, flaw) in refused {
                context.session.report.failed(&Failure {
                    path: offered_file.item.shown.into_encoded_bytes(),
                    here: true,
                    reason: Reason::new(Why::TooLarge, &flaw.to_string()),
                });
                // This thread checks for ended directories before it waits.
                let _ = context.directories().entry_ended(offered_file.parent);
            }
        }
        last
    }

    /// Offers an additional name of the file `left` as a separate file, before all queued entries.
    /// The file `left` failed, or the update rule left it at the sink.
    fn separate(&mut self, offered_file: OfferedFile, left: FileNumber) {
        let OfferedFile { mut item, parent, .. } = offered_file;
        match self.file_facts(&mut item, None) {
            Ok((facts, held)) => {
                let offered_file = self.offered_file(&facts, item, held, parent);
                self.waiting.push_front(PendingEntry {
                    facts,
                    offered_file,
                    first: None,
                    replaces: Some(left),
                });
            }
            Err(reason) => {
                self.walk_failed(item.shown.into_encoded_bytes(), reason);
                // This thread checks for ended directories before it waits.
                let _ = self.context.directories().entry_ended(parent);
            }
        }
    }

    /// Waits until there is capacity for queued entries. Returns false if the session is over.
    fn has_room(&self) -> bool {
        let context = self.context;
        context.session.monitor.ask(|machine, now| {
            // Do not wake up for each free slot.
            let wanted = self.waiting.len().min(machine.capacity_max().div_ceil(4)).max(1);
            if machine.is_over() || context.session.is_stopping() {
                Reply::Ready(false)
            } else if machine.capacity() >= wanted {
                Reply::Ready(true)
            } else {
                Reply::Wait(WaitKey::Capacity(wanted), now + IDLE_WAIT_MAX)
            }
        })
    }

    fn is_over(&self) -> bool {
        self.context.session.is_stopping() || self.context.session.is_ended()
    }

    fn walk_failed(&self, path: Vec<u8>, reason: Reason) {
        self.context.session.report.failed(&Failure {
            path: path.clone(),
            here: true,
            reason: reason.clone(),
        });
        self.context.handle(Event::Unread { path: path.into(), reason });
    }
}

/// Returns the message for a directory whose attributes cannot be read: mode, times and owner.
fn empty_directory(item: &Item) -> NewFile {
    NewFile {
        mode: item.facts.mode,
        mtime: super::facts::moment(item.facts.mtime),
        atime: super::facts::moment(item.facts.atime),
        uid: item.facts.uid,
        gid: item.facts.gid,
        ..NewFile::new(item.path.as_slice(), haul_proto::FileKind::Directory)
    }
}
