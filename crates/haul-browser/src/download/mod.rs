//! Download: the browser is the sink of a session.
//!
//! ```text
//!  input --frames--> [Sink] --Write--> page --written--> Settle --Sync--> page --synced--+
//!                      | ^                                                               |
//!                      | +---------------------------------------------------------------+
//!                      +--- FILE_ID, BLOCK_SYNC, BLOCK_REJECT, FILE_DONE --> output
//!                      +--- Verified, Finish --> page
//! ```
//!
//! The page writes bytes before their object is verified, because memory holds no object. An object
//! counts only after [`Event::Verified`], and a file only after [`Event::Finish`].

mod expected;
mod file;

use crate::event::{Event, NUMBER_MAX, level_of, shown};
use crate::frames::Part;
use crate::link::{EVENTS_MAX, JobSettings, Link, damaged};
use expected::Expected;
pub use file::KeptFile;
use file::{Current, Incoming};
use haul_model::RelPath;
use haul_proto::limits::RETRIES_MAX;
use haul_proto::sink::{Command, Event as SinkEvent, Outgoing, Settings, Unfinished, Verdict};
use haul_proto::{
    BlockDigest, CONTROL, Close, Encoding, End, Features, FileKind, FileNumber, Message, NewFile, Outcome,
    Reason, Role, Runs, Sink, Stated, Summary, Timing, Why,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Number of bytes from which on no input is accepted until the page has written some.
const UNWRITTEN_MAX: u64 = 16 << 20;

/// Number of writes, or of objects that wait for a sync, from which on no input is accepted.
const UNSETTLED_MAX: usize = 4096;

/// Number of bytes of output from which on the machine makes no more messages. A server that does
/// not read is found by the limits of the machine.
const OUTPUT_MAX: u64 = 256 << 10;

/// Sink of a session, without threads: bytes go in, bytes and requests to the page come out.
#[derive(Debug)]
pub struct Download {
    link: Link,
    machine: Option<Sink>,
    settings: JobSettings,
    expected: Expected,
    kept: BTreeMap<Vec<u8>, KeptFile>,
    files: BTreeMap<FileNumber, Incoming>,
    /// Paths of `files`. Two files never have the same path at a time.
    paths: BTreeSet<Vec<u8>>,
    current: Option<Current>,
    /// Offset in the file of the next payload byte that is written; `None` if it is discarded.
    write_at: Option<u64>,
    writes: BTreeMap<u32, Write>,
    unwritten: u64,
    next_request: u32,
}

/// A write that the page carries out.
#[derive(Debug)]
struct Write {
    file: FileNumber,
    object: u64,
    len: u64,
}

impl Download {
    /// Starts a session that fetches `settings.paths`. `kept` are the files, and parts of files,
    /// that the page has.
    ///
    /// # Errors
    /// Returns a message if the paths exceed the limits of a job.
    pub fn new(
        settings: JobSettings,
        kept: impl IntoIterator<Item = (Vec<u8>, KeptFile)>,
        now: Duration,
    ) -> Result<Download, String> {
        let kept: BTreeMap<_, _> = kept.into_iter().collect();
        let settings = JobSettings { resumes: settings.resumes || !kept.is_empty(), ..settings };
        Ok(Download {
            link: Link::connect(Role::Sink, &settings, 0, now)?,
            machine: None,
            expected: Expected::of(&settings.paths),
            settings,
            kept,
            files: BTreeMap::new(),
            paths: BTreeSet::new(),
            current: None,
            write_at: None,
            writes: BTreeMap::new(),
            unwritten: 0,
            next_request: 0,
        })
    }

    /// Processes bytes of the lane. Returns the number of bytes taken. If it is less than the
    /// length, the page takes the events, carries out some of them, and passes in the rest.
    /// [`Event::Write`] refers to these bytes until the next call.
    pub fn input(&mut self, bytes: &[u8], now: Duration) -> usize {
        self.link.now = now;
        let mut rest = bytes;
        // The page may still write the bytes of the last input.
        if self.link.waiting_events() > 0 {
            return 0;
        }
        // One input adds few of them: each takes at least one event.
        let unsettled: usize = self.files.values().map(Incoming::unsettled).sum();
        while unsettled < UNSETTLED_MAX && !self.is_stalled() {
            if self.link.is_over() {
                rest = &[];
                break;
            }
            match self.link.reader.next(&mut rest) {
                Ok(None) => break,
                Ok(Some(Part::Payload(payload))) => {
                    self.payload(bytes.len() - rest.len() - payload.len(), payload);
                }
                Ok(Some(Part::Message(message))) => self.receive(message),
                Err(flaw) => self.break_off(damaged(&flaw)),
            }
        }
        self.pump();
        bytes.len() - rest.len()
    }

    fn is_stalled(&self) -> bool {
        self.link.waiting_events() >= EVENTS_MAX
            || self.unwritten >= UNWRITTEN_MAX
            || self.writes.len() >= UNSETTLED_MAX
    }

    fn receive(&mut self, message: Message) {
        if self.machine.is_none() {
            return self.start(message);
        }
        self.write_at = None;
        match message {
            Message::BlockDigest(end) => {
                let found = self.object_ended(&end);
                self.handle(SinkEvent::ObjectEnd { lane: CONTROL, end: *end, found });
            }
            message => self.handle(SinkEvent::Message(CONTROL, message)),
        }
    }

    fn start(&mut self, message: Message) {
        match self.link.answered(message) {
            Err(text) => self.break_off(text),
            Ok((accept, window)) => {
                self.machine = Some(Sink::new(Settings {
                    options: accept.options,
                    window,
                    timing: Timing::default(),
                    retries: RETRIES_MAX,
                    short_blocks: accept.features.has(Features::SHORT_BLOCKS),
                }));
                self.handle(SinkEvent::LaneUp(CONTROL));
            }
        }
    }

    /// Handles payload at position `at` of the input.
    fn payload(&mut self, at: usize, payload: &[u8]) {
        let (Some(offset), Some(current)) = (self.write_at, &mut self.current) else { return };
        current.hasher.update(payload);
        let (file, object) = (current.file, current.object.index.0);
        self.write_at = Some(offset + payload.len() as u64);
        if let Some(request) = self.begin_write(file, object, payload.len() as u64) {
            self.link.report(Event::Write { request, file: file.0, offset, at, len: payload.len() });
        }
    }

    fn begin_write(&mut self, number: FileNumber, object: u64, len: u64) -> Option<u32> {
        self.files.get_mut(&number)?.begin_write(object);
        self.next_request = self.next_request.wrapping_add(1);
        self.writes.insert(self.next_request, Write { file: number, object, len });
        self.unwritten += len;
        Some(self.next_request)
    }

    /// Returns the digest of the received object, if it is the object that ends.
    fn object_ended(&mut self, end: &BlockDigest) -> Option<haul_digest::Digest> {
        let current = self.current.take().filter(|current| current.is_ended_by(end))?;
        let found = current.hasher.finish();
        if end.stated == Stated::Digest(found)
            && let Some(file) = self.files.get_mut(&current.file)
        {
            file.verified(current.object.index, found);
        }
        Some(found)
    }

    /// Reports that a write or zeros are written, or the reason why not.
    pub fn written(&mut self, request: u32, result: Result<(), &str>, now: Duration) {
        self.link.now = now;
        let Some(write) = self.writes.remove(&request) else { return };
        self.unwritten -= write.len;
        let file = write.file;
        if let Some(incoming) = self.files.get_mut(&file) {
            incoming.end_write(write.object);
            match result {
                Ok(()) => self.continue_file(file),
                Err(text) => {
                    let reason = Reason::new(Why::Io, text);
                    self.handle(SinkEvent::WriteFailed { file, reason });
                }
            }
        }
        // A slow disk is no reason to regard the lane as silent.
        self.handle(SinkEvent::Progress(CONTROL));
        self.pump();
    }

    /// Requests the sync or the end of a file whose writes are done.
    fn continue_file(&mut self, number: FileNumber) {
        let Some(file) = self.files.get_mut(&number) else { return };
        if file.begin_sync() {
            self.link.report(Event::Sync { file: number.0 });
        }
        if let Some((facts, digest)) = file.begin_finish() {
            let (size, mtime) = (facts.size(), facts.mtime);
            self.link.report(Event::Finish { file: number.0, size, mtime, digest });
        }
    }

    /// Reports that everything written of a file before [`Event::Sync`] has this level (1 received
    /// to 4 re-read), or the reason why not.
    pub fn synced(&mut self, file: u64, result: Result<u32, &str>, now: Duration) {
        self.link.now = now;
        let file = FileNumber(file);
        let Some((attempt, objects)) = self.files.get_mut(&file).and_then(Incoming::end_sync) else { return };
        match result {
            Ok(level) => {
                let level = level_of(level);
                self.handle(SinkEvent::Settled { file, attempt, level, objects });
            }
            Err(text) => {
                self.handle(SinkEvent::WriteFailed { file, reason: Reason::new(Why::Io, text) });
            }
        }
        self.continue_file(file);
        self.pump();
    }

    /// Reports that a directory exists, or that a file has its final name and reached this level.
    /// Otherwise reports the reason.
    pub fn finished(&mut self, file: u64, result: Result<u32, &str>, now: Duration) {
        self.link.now = now;
        let number = FileNumber(file);
        let settle = self.files.get(&number).map_or(self.settings.settle, |file| file.settle());
        let result = match result {
            Ok(level) => Ok(Outcome::Done(level_of(level).min(settle))),
            Err(text) => Err(Unfinished::Failed(Reason::new(Why::Io, text))),
        };
        if result.is_ok() {
            self.forget(number);
        }
        self.handle(SinkEvent::Finished { file: number, result });
        self.pump();
    }

    /// Reports the time: at least once a second.
    pub fn tick(&mut self, now: Duration) {
        self.link.now = now;
        if self.link.is_unanswered() {
            self.break_off("cannot start the job: the server does not answer; connect again".into());
        }
        self.handle(SinkEvent::Tick);
        self.pump();
    }

    /// Reports that the lane is lost. The session ends, unless its work is done; another one
    /// resumes the job.
    pub fn lane_lost(&mut self, now: Duration) {
        self.link.now = now;
        // After the last file the machine waits only for the BYE of the server.
        self.handle(SinkEvent::LaneLost(CONTROL));
        self.break_off("connection lost; connect again to resume".into());
    }

    /// Stops the job at the request of the user. The server learns it.
    pub fn stop(&mut self, now: Duration) {
        self.link.now = now;
        if self.machine.is_none() {
            return self.break_off("stopped".into());
        }
        self.handle(SinkEvent::Stop(Why::Stopped.into()));
        self.pump();
    }

    /// Returns the next bytes to send.
    pub fn output(&mut self) -> Option<&[u8]> {
        self.link.output.front()
    }

    /// Removes the bytes that [`Download::output`] returned.
    pub fn output_sent(&mut self, now: Duration) {
        self.link.now = now;
        self.link.output.pop();
        self.pump();
    }

    /// Returns the next event for the page.
    pub fn next_event(&mut self) -> Option<Event> {
        self.link.next_event()
    }

    /// Ends the session without a BYE.
    fn break_off(&mut self, text: String) {
        let summary = self.machine.as_ref().map_or(Summary::default(), Sink::summary);
        self.link.end(Some(text), summary);
        self.handle(SinkEvent::LaneLost(CONTROL));
    }

    fn handle(&mut self, event: SinkEvent) {
        let Some(machine) = &mut self.machine else { return };
        let mut commands = Vec::new();
        machine.handle(event, self.link.now, &mut commands);
        for command in commands {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Unread(unread) => {
                let text = format!("the server cannot read {}: {}", shown(&unread.path), unread.reason);
                self.link.report(Event::Failed { file: None, text });
            }
            Command::Open { facts, path } => self.open(&facts, &path),
            Command::Make { facts, path, .. } => self.make(&facts, &path),
            Command::Write { file, attempt, object, range, encoding, .. } => {
                let size = self.files.get(&file).map_or(0, |file| file.facts().size());
                let current = self.current.take().filter(|current| {
                    range.start != object.range.start && current.is_of(file, attempt, object)
                });
                let mut current = current.unwrap_or_else(|| Current::new(file, attempt, object, size));
                match encoding {
                    Encoding::Raw => self.write_at = Some(range.start.0),
                    Encoding::Zeros | Encoding::Hole => {
                        current.hasher.update_zeros(range.len());
                        if let Some(request) = self.begin_write(file, object.index.0, 0) {
                            let (offset, len) = (range.start.0, range.len());
                            self.link.report(Event::Zeros { request, file: file.0, offset, len });
                        }
                    }
                    Encoding::Zstd => {
                        let reason = Reason::new(Why::Protocol, "compressed data without a request");
                        return self.handle(SinkEvent::Stop(reason));
                    }
                }
                self.current = Some(current);
            }
            Command::Discard { .. } => (self.current, self.write_at) = (None, None),
            Command::ObjectVerified { file, object, .. } => {
                let digest = self.files.get_mut(&file).and_then(|file| file.take_digest(object.index));
                if let Some(digest) = digest {
                    self.link.report(Event::Verified { file: file.0, object: object.index.0, digest });
                }
            }
            Command::Settle { file, attempt, object, .. } => {
                if let Some(incoming) = self.files.get_mut(&file) {
                    incoming.settle_object(attempt, object.index);
                    self.continue_file(file);
                }
            }
            Command::Restart { file, attempt } => {
                if let Some(incoming) = self.files.get_mut(&file) {
                    incoming.restart(attempt, self.settings.object);
                    self.link.report(Event::Restart { file: file.0 });
                }
            }
            Command::Finish { file, close, settle } => self.finish(file, close, settle),
            Command::Refused { path, reason } => {
                let text = format!("cannot receive {}: {reason}", shown(&path));
                self.link.report(Event::Failed { file: None, text });
            }
            Command::Failed { file, reason, by_source } => {
                let name = self.files.get(&file).map_or(String::new(), |file| shown(&file.facts().path));
                let action = if by_source { "the server cannot send" } else { "cannot receive" };
                self.link
                    .report(Event::Failed { file: Some(file.0), text: format!("{action} {name}: {reason}") });
            }
            Command::Abandon { file } => {
                if self.forget(file) {
                    self.link.report(Event::Abandon { file: file.0 });
                }
            }
            // The job neither verifies by a second read nor deletes, so the machine sends none.
            Command::Rehash { .. } | Command::Sweep | Command::Judged { .. } | Command::Named { .. } => {
                self.handle(SinkEvent::Stop(Why::Internal.into()));
            }
            Command::DropLane { .. } => {
                let summary = self.machine.as_ref().map_or(Summary::default(), Sink::summary);
                self.link.end(Some("the server is silent; connect again to resume".into()), summary);
            }
            Command::Ended(End::Finished { summary, .. }) => self.link.end(None, summary),
            Command::Ended(End::Broken { reason, summary }) => {
                self.link.end(Some(reason.to_string()), summary);
            }
        }
    }

    /// Decides about a file that the server announces.
    fn open(&mut self, facts: &Arc<NewFile>, path: &RelPath) {
        let file = facts.number;
        let opened = |verdict| SinkEvent::Opened { file, verdict, rereads: false };
        let name = match self.admit(facts, path) {
            Ok(name) => name,
            Err(reason) => {
                let text = format!("cannot receive {}: {reason}", shown(path.as_bytes()));
                self.link.report(Event::Failed { file: None, text });
                return self.handle(opened(Verdict::Refused(reason)));
            }
        };
        let kept = self.kept.get(path.as_bytes()).filter(|kept| kept.is_version_of(facts));
        if kept.is_some_and(|kept| kept.is_complete) {
            self.link.report(Event::Same { file: file.0, path: name });
            return self.handle(opened(Verdict::Same));
        }
        let incoming = Incoming::new(facts.clone(), self.settings.object, self.settings.settle, kept);
        let have = incoming.have().clone();
        self.link.report(Event::Open {
            file: file.0,
            path: name,
            size: facts.size(),
            mtime: facts.mtime,
            version: facts.version.unwrap_or_default(),
            have: have.count(),
        });
        self.paths.insert(path.as_bytes().to_vec());
        self.files.insert(file, incoming);
        self.handle(opened(Verdict::Take { have }));
    }

    /// Checks an entry against the request and the limits of a browser. Returns its path.
    fn admit(&self, facts: &NewFile, path: &RelPath) -> Result<String, Reason> {
        if !self.expected.has(path.as_bytes()) {
            return Err(Reason::new(Why::Denied, "it was not requested"));
        }
        let name = std::str::from_utf8(path.as_bytes())
            .map_err(|_| Reason::new(Why::Name, "it is not UTF-8, which a browser needs; use haul fetch"))?;
        if self.paths.contains(path.as_bytes()) {
            return Err(Reason::new(Why::InTheWay, "the server sends two files of this name"));
        }
        match &facts.kind {
            FileKind::File { size, .. } if *size > NUMBER_MAX => Err(Why::TooLarge.into()),
            // The job does not keep holes.
            FileKind::File { holes, .. } if !holes.is_empty() => Err(Why::Protocol.into()),
            FileKind::File { .. } | FileKind::Directory => Ok(name.to_owned()),
            _ => Err(Reason::new(Why::Unsupported, "a browser creates only files and folders")),
        }
    }

    fn make(&mut self, facts: &Arc<NewFile>, path: &RelPath) {
        let file = facts.number;
        match self.admit(facts, path) {
            Ok(path) => self.link.report(Event::Directory { file: file.0, path }),
            Err(reason) => {
                let text = format!("cannot receive {}: {reason}", shown(path.as_bytes()));
                self.link.report(Event::Failed { file: None, text });
                // Each entry has one message: the machine would report the file again.
                let mut commands = Vec::new();
                let result = Err(Unfinished::Failed(reason));
                if let Some(machine) = &mut self.machine {
                    machine.handle(SinkEvent::Finished { file, result }, self.link.now, &mut commands);
                }
                let is_report =
                    |command: &Command| matches!(command, Command::Failed { .. } | Command::Abandon { .. });
                commands.into_iter().filter(|command| !is_report(command)).for_each(|c| self.obey(c));
            }
        }
    }

    fn finish(&mut self, number: FileNumber, close: Option<Close>, settle: haul_model::Level) {
        let Some(file) = self.files.get_mut(&number) else { return };
        let stated = match close {
            Some(Close::Read { root, .. }) => root,
            _ => None,
        };
        let found = file.digest();
        if let (Some(stated), Some(found)) = (stated, found)
            && stated != found
        {
            let result = Err(Unfinished::Differs);
            return self.handle(SinkEvent::Finished { file: number, result });
        }
        file.finish(settle);
        self.continue_file(number);
    }

    /// Removes a file. Returns false if it was not open.
    fn forget(&mut self, number: FileNumber) -> bool {
        let Some(file) = self.files.remove(&number) else { return false };
        self.paths.remove(&file.facts().path[..]);
        if self.current.as_ref().is_some_and(|current| current.file == number) {
            (self.current, self.write_at) = (None, None);
        }
        true
    }

    fn pump(&mut self) {
        while self.link.output.waiting() < OUTPUT_MAX {
            let Some(machine) = &mut self.machine else { return };
            match machine.next(CONTROL, self.link.now) {
                Outgoing::Send(message) => self.link.output.push(&message),
                Outgoing::Wait { .. } | Outgoing::Done => return,
            }
        }
    }
}

/// Returns the runs of these objects, as far as they are in a file of `count` objects.
fn runs(objects: impl Iterator<Item = u64>, count: u64) -> Runs {
    objects.filter(|index| *index < count).map(|index| (index, index + 1)).collect()
}
