//! Upload: the browser is the source of a session.
//!
//! ```text
//!  page --offer--> [Source] --Work--> items --Read--> page --read_done--> item --frames--> output
//!                     ^  ^                                                  |
//!                     |  +-------------------- ObjectSent ------------------+
//!                     +-- FILE_ID, BLOCK_SYNC, BLOCK_REJECT, FILE_DONE <-- input
//! ```
//!
//! The items are in the order of the lane. Reads of several items are in progress concurrently, as
//! long as the pool has buffers; blocks leave in order.

mod item;

use crate::event::{Event, NUMBER_MAX, moment, shown};
use crate::frames::Part;
use crate::link::{EVENTS_MAX, JobSettings, Link, damaged};
use crate::output::BLOCK_BYTES;
use haul_digest::{Blake3File, Digest, DigestKey};
use haul_model::{ByteRange, ObjectIndex};
use haul_proto::limits::RETRIES_MAX;
use haul_proto::source::{Command, Event as SourceEvent, Settings, Work};
use haul_proto::{
    CONTROL, End, FileKind, FileNumber, Message, NewFile, Reason, Role, Source, Summary, Timing, Why,
    check_received,
};
use item::{Answer, Item};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Number of buffers of [`BLOCK_BYTES`]: four objects of the default size are read concurrently.
pub const BUFFERS: usize = 16;

/// Maximum number of items in progress: enough small files that their reads overlap.
const ITEMS_MAX: usize = 64;

/// Permission bits of files, because browsers know none. The receiver applies its umask.
const MODE: u32 = 0o666;

/// Source of a session, without threads: bytes go in, bytes and requests to the page come out.
#[derive(Debug)]
pub struct Upload {
    link: Link,
    settings: JobSettings,
    machine: Option<Source>,
    key: DigestKey,
    items: VecDeque<Item>,
    reads: BTreeMap<u32, Read>,
    next_request: u32,
    digests: BTreeMap<FileNumber, (u16, Blake3File)>,
    last_sent: Duration,
}

/// A read that the page carries out.
#[derive(Debug)]
struct Read {
    buffer: Vec<u8>,
    range: ByteRange,
    /// `None` while the page reads.
    answer: Option<Result<(), Reason>>,
    /// True if its item is gone. The buffer returns to the pool when the page answers.
    is_orphan: bool,
}

impl Upload {
    /// Starts a session that sends files to the directory `settings.paths[0]`.
    ///
    /// # Errors
    /// Returns a message if the path exceeds the limits of a job.
    pub fn new(settings: JobSettings, now: Duration) -> Result<Upload, String> {
        let link = Link::connect(Role::Source, &settings, BUFFERS, now)?;
        Ok(Upload {
            link,
            settings,
            machine: None,
            key: DigestKey::derive(b""),
            items: VecDeque::new(),
            reads: BTreeMap::new(),
            next_request: 0,
            digests: BTreeMap::new(),
            last_sent: now,
        })
    }

    /// Processes bytes of the lane. Returns the number of bytes taken. If it is less than the
    /// length, the page takes the events and passes in the rest.
    pub fn input(&mut self, bytes: &[u8], now: Duration) -> usize {
        self.link.now = now;
        let mut rest = bytes;
        while self.link.waiting_events() < EVENTS_MAX {
            if self.link.is_over() {
                rest = &[];
                break;
            }
            match self.link.reader.next(&mut rest) {
                Ok(None) => break,
                // Only the machine decides about a NEW_BLOCK from a sink: it ends the session.
                Ok(Some(Part::Payload(_))) => {}
                Ok(Some(Part::Message(message))) => self.receive(message),
                Err(flaw) => self.break_off(damaged(&flaw)),
            }
        }
        self.pump();
        bytes.len() - rest.len()
    }

    fn receive(&mut self, message: Message) {
        if self.machine.is_some() {
            return self.handle(SourceEvent::Message(CONTROL, message));
        }
        match self.link.answered(message) {
            Err(text) => self.break_off(text),
            Ok((accept, window)) => {
                self.key = DigestKey::derive(&accept.token);
                self.machine = Some(Source::new(Settings {
                    options: accept.options,
                    window,
                    timing: Timing::default(),
                    retries: RETRIES_MAX,
                    awaits_answers: accept.resumes,
                }));
                self.handle(SourceEvent::LaneUp(CONTROL));
            }
        }
    }

    /// Returns the number of files that can be offered now.
    pub fn capacity(&self) -> usize {
        self.machine.as_ref().map_or(0, Source::capacity)
    }

    /// Offers a file of `size` bytes, or a directory, and returns its number. `mtime` is in
    /// milliseconds since 1970. A directory is offered after everything in it is done.
    ///
    /// # Errors
    /// Returns a message if the name cannot be sent; it counts as an error of the job. Also if
    /// [`Upload::capacity`] is 0, and then nothing counts.
    pub fn offer(
        &mut self,
        path: &[u8],
        size: Option<u64>,
        mtime: f64,
        now: Duration,
    ) -> Result<u64, String> {
        self.link.now = now;
        let Some(machine) = self.machine.as_mut().filter(|machine| machine.capacity() > 0) else {
            return Err(format!("cannot send {} now: the window is full", shown(path)));
        };
        let fault = match check_received(path) {
            Err(fault) => Some(Reason::new(Why::Name, &fault.to_string())),
            Ok(_) if size.is_some_and(|size| size > NUMBER_MAX) => Some(Why::TooLarge.into()),
            Ok(_) => None,
        };
        if let Some(reason) = fault {
            let text = format!("cannot send {}: {reason}", shown(path));
            self.handle(SourceEvent::Unread { path: path.into(), reason });
            self.pump();
            return Err(text);
        }
        let kind = match size {
            Some(size) => FileKind::File { size, holes: Default::default() },
            None => FileKind::Directory,
        };
        let facts =
            NewFile { mode: MODE, mtime: moment(mtime), atime: moment(mtime), ..NewFile::new(path, kind) };
        let number =
            machine.offer(facts, None).map_err(|flaw| format!("cannot send {}: {flaw}", shown(path)))?;
        if size == Some(0) {
            // No object will add it.
            self.digests.insert(number, (0, Blake3File::new(0, self.settings.object)));
        }
        self.pump();
        Ok(number.0)
    }

    /// Ends the walk: nothing more is offered.
    pub fn walk_ended(&mut self, now: Duration) {
        self.link.now = now;
        self.handle(SourceEvent::WalkEnded);
        self.pump();
    }

    /// Reports an entry that the page cannot list or read.
    pub fn unread(&mut self, path: &[u8], text: &str, now: Duration) {
        self.link.now = now;
        self.handle(SourceEvent::Unread { path: path.into(), reason: Reason::new(Why::Io, text) });
        self.pump();
    }

    /// Returns the buffer of a read; the first `len` bytes of [`Event::Read`] are its place.
    /// Returns `None` if there is no such request.
    pub fn read_buffer(&mut self, request: u32) -> Option<&mut [u8]> {
        let read = self.reads.get_mut(&request).filter(|read| read.answer.is_none())?;
        Some(&mut read.buffer[..read.range.len() as usize])
    }

    /// Reports that the buffer of a read has all its bytes, or the reason why not. Returns false if
    /// there is no such request.
    pub fn read_done(&mut self, request: u32, result: Result<(), &str>, now: Duration) -> bool {
        self.link.now = now;
        let Some(read) = self.reads.get_mut(&request).filter(|read| read.answer.is_none()) else {
            return false;
        };
        read.answer = Some(result.map_err(|text| Reason::new(Why::Io, text)));
        if read.is_orphan {
            self.release(request);
        }
        self.pump();
        true
    }

    /// Answers [`Event::Check`] with size and time of the file as they are now.
    pub fn checked(&mut self, request: u32, found: Result<(u64, f64), &str>, now: Duration) {
        self.link.now = now;
        if let Some(item) = self.items.iter_mut().find(|item| item.awaits(request)) {
            let found = found.map(|(size, mtime)| (size, moment(mtime)));
            item.check = Answer::Done(found.map_err(|text| Reason::new(Why::Io, text)));
        }
        self.pump();
    }

    /// Reports the time: at least once a second.
    pub fn tick(&mut self, now: Duration) {
        self.link.now = now;
        if self.link.is_unanswered() {
            self.break_off("cannot start the job: the server does not answer; connect again".into());
        }
        self.handle(SourceEvent::Tick);
        let keep_alive = Timing::default().keep_alive;
        let is_idle = self.link.output.waiting() == 0;
        if is_idle && self.machine.is_some() && now.saturating_sub(self.last_sent) >= keep_alive {
            // The reads of the items can take long, while the machine gives no work.
            self.link.output.push(&Message::KeepAlive);
            self.last_sent = now;
        }
        self.pump();
    }

    /// Reports that the lane is lost. The session ends; another one resumes the job.
    pub fn lane_lost(&mut self, now: Duration) {
        self.link.now = now;
        self.break_off("connection lost; connect again to resume".into());
    }

    /// Stops the job at the request of the user. The server learns it.
    pub fn stop(&mut self, now: Duration) {
        self.link.now = now;
        if self.machine.is_none() {
            return self.break_off("stopped".into());
        }
        self.handle(SourceEvent::Stop(Why::Stopped.into()));
        self.pump();
    }

    /// Returns the next bytes to send.
    pub fn output(&mut self) -> Option<&[u8]> {
        self.link.output.front()
    }

    /// Removes the bytes that [`Upload::output`] returned.
    pub fn output_sent(&mut self, now: Duration) {
        (self.link.now, self.last_sent) = (now, now);
        self.link.output.pop();
        self.pump();
    }

    /// Returns the next event for the page.
    pub fn next_event(&mut self) -> Option<Event> {
        self.link.next_event()
    }

    /// Returns the number of bytes that the server has verified.
    pub fn settled_bytes(&self) -> u64 {
        self.machine.as_ref().map_or(0, Source::settled_bytes)
    }

    /// Ends the session without a BYE.
    fn break_off(&mut self, text: String) {
        let summary = self.machine.as_ref().map_or(Summary::default(), Source::summary);
        self.link.end(Some(text), summary);
        self.handle(SourceEvent::LaneLost(CONTROL));
        self.clear();
    }

    fn handle(&mut self, event: SourceEvent) {
        let Some(machine) = &mut self.machine else { return };
        let mut commands = Vec::new();
        machine.handle(event, self.link.now, &mut commands);
        for command in commands {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        let event = match command {
            Command::Synced { file, level, objects } => {
                Event::Synced { file: file.0, level, objects: objects.count() }
            }
            Command::AlreadyPresent { file, objects } | Command::Same { file, objects } => {
                Event::Present { file: file.0, objects: objects.count() }
            }
            Command::FileDone { file, outcome, here } => {
                let digest = self.digests.remove(&file).and_then(|(_, digest)| digest.finish().ok());
                Event::FileDone { file: file.0, outcome, here, digest }
            }
            // The machine refuses LIST and NAMES, because the job does not delete.
            Command::FindMissing { .. } | Command::FindNames { .. } => return,
            Command::DropLane { .. } => {
                return self.link.end(
                    Some("the server is silent; connect again to resume".into()),
                    self.machine.as_ref().map_or(Summary::default(), Source::summary),
                );
            }
            Command::Ended(end) => {
                self.clear();
                return match end {
                    End::Finished { summary, .. } => self.link.end(None, summary),
                    End::Broken { reason, summary } => self.link.end(Some(reason.to_string()), summary),
                };
            }
        };
        self.link.report(event);
    }

    /// Drops all items. Buffers that the page fills return to the pool when it answers.
    fn clear(&mut self) {
        while let Some(item) = self.items.pop_front() {
            self.drop_reads(&item);
        }
        self.digests.clear();
    }

    fn drop_reads(&mut self, item: &Item) {
        for request in &item.blocks {
            match self.reads.get_mut(request) {
                Some(read) if read.answer.is_none() => read.is_orphan = true,
                Some(_) => self.release(*request),
                None => {}
            }
        }
    }

    /// Returns the buffer of a read to the pool.
    fn release(&mut self, request: u32) {
        if let Some(read) = self.reads.remove(&request) {
            self.link.output.give_back(read.buffer);
        }
    }

    /// Carries out everything that needs no answer of the page.
    fn pump(&mut self) {
        while self.advance() || self.take_work() {}
        self.request();
    }

    /// Takes the next work of the machine. Returns false if there is none, or if the reads of the
    /// items have not all been requested.
    fn take_work(&mut self) -> bool {
        let is_full = self.items.len() >= ITEMS_MAX || !self.link.output.has_buffer();
        let is_behind = self.items.iter().any(|item| !item.unread.is_empty());
        let Some(machine) = &mut self.machine else { return false };
        if !machine.is_over() && (is_full || is_behind) {
            return false;
        }
        let now = self.link.now;
        match machine.next(CONTROL, now) {
            Work::Send(message) => {
                self.link.output.push(&message);
                true
            }
            Work::Wait { .. } | Work::Done => false,
            work => {
                self.items.extend(Item::of(work));
                self.request();
                true
            }
        }
    }

    /// Requests the reads and checks of the items, in order.
    fn request(&mut self) {
        for item in &mut self.items {
            while let Some(range) = item.next_range(BLOCK_BYTES as u64) {
                let Some(buffer) = self.link.output.take_buffer() else { return };
                let request = next(&mut self.next_request);
                self.reads.insert(request, Read { buffer, range, answer: None, is_orphan: false });
                item.requested(request, range);
                let (file, offset, len) = (item.facts.number.0, range.start.0, range.len() as usize);
                self.link.report(Event::Read { request, file, offset, len });
            }
            let is_read =
                item.blocks.iter().all(|block| self.reads.get(block).is_some_and(|r| r.answer.is_some()));
            if is_read && item.wants_check() {
                let request = next(&mut self.next_request);
                item.check = Answer::Asked(request);
                self.link.report(Event::Check { request, file: item.facts.number.0 });
            }
        }
    }

    /// Notes the digest of an object that was sent.
    fn hashed(&mut self, facts: &NewFile, attempt: u16, object: ObjectIndex, digest: Digest) {
        let file = facts.number;
        let new = || (attempt, Blake3File::new(facts.size(), self.settings.object));
        let known = self.digests.entry(file).or_insert_with(new);
        if known.0 != attempt {
            *known = new();
            self.link.report(Event::Restart { file: file.0 });
        }
        known.1.add(object, &digest);
        if known.1.objects() > 1 {
            self.link.report(Event::Hashed { file: file.0, object: object.0, digest });
        }
    }
}

fn next(counter: &mut u32) -> u32 {
    *counter = counter.wrapping_add(1);
    *counter
}
