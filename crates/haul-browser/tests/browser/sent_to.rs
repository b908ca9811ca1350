//! A server that receives: `haul_proto::Sink` with storage in memory.

use crate::wire::{frame, take};
use haul_digest::{Algorithm, Digest, DigestKey, PartHasher, PartPlace};
use haul_model::{Level, Object};
use haul_proto::sink::{Command, Event, Outgoing, Settings, Verdict};
use haul_proto::{
    CONTROL, Connect, Encoding, End, Features, FileNumber, Message, NewFile, Outcome, PeerText, Runs, Sink,
    Timing, Window,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Data that one session leaves to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) directories: Vec<String>,
    /// Parts of files, with the objects that are durable.
    pub(crate) parts: BTreeMap<String, (Vec<u8>, Runs)>,
}

struct Open {
    facts: Arc<NewFile>,
    path: String,
    bytes: Vec<u8>,
    log: Runs,
}

pub(crate) struct Receiver {
    pub(crate) store: Store,
    machine: Option<Sink>,
    key: DigestKey,
    inbox: Vec<u8>,
    pub(crate) outbox: Vec<u8>,
    open: BTreeMap<FileNumber, Open>,
    hash: Option<(FileNumber, Object, PartHasher)>,
    later: VecDeque<Event>,
    pub(crate) connect: Option<Connect>,
    pub(crate) end: Option<End>,
    /// Index of the payload of which one bit is flipped.
    pub(crate) flip: Option<usize>,
    payloads: usize,
    /// Verdict about a file of which an earlier session left a part.
    pub(crate) compares: bool,
    /// True if every file waits for the digest of the complete file.
    pub(crate) compares_whole: bool,
}

const TOKEN: [u8; 32] = [7; 32];

impl Receiver {
    pub(crate) fn new(store: Store) -> Receiver {
        Receiver {
            store,
            machine: None,
            key: DigestKey::derive(&TOKEN),
            inbox: Vec::new(),
            outbox: Vec::new(),
            open: BTreeMap::new(),
            hash: None,
            later: VecDeque::new(),
            connect: None,
            end: None,
            flip: None,
            payloads: 0,
            compares: false,
            compares_whole: false,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        while let Some((message, mut payload)) = take(&mut self.inbox) {
            if !payload.is_empty() {
                if self.flip == Some(self.payloads) {
                    payload[0] ^= 4;
                }
                self.payloads += 1;
            }
            self.receive(message, &payload);
        }
        loop {
            while let Some(event) = self.later.pop_front() {
                self.handle(event, &[]);
            }
            self.compare();
            let Some(machine) = &mut self.machine else { return };
            match machine.next(CONTROL, Duration::ZERO) {
                Outgoing::Send(message) => self.outbox.extend(frame(&message)),
                _ if self.later.is_empty() => return,
                _ => {}
            }
        }
    }

    fn receive(&mut self, message: Message, payload: &[u8]) {
        let event = match message {
            Message::Connect(connect) => {
                let window = Window { files: 64, ..Window::default() };
                let mut accept =
                    connect.answer(Features::ALL, window, 1, TOKEN, PeerText::default()).unwrap();
                accept.resumes = !self.store.parts.is_empty() || self.compares_whole;
                self.outbox.extend(frame(&Message::Accept(Box::new(accept.clone()))));
                self.machine = Some(Sink::new(Settings {
                    options: accept.options,
                    window: window.least(connect.window),
                    timing: Timing::default(),
                    retries: 5,
                    short_blocks: accept.features.has(Features::SHORT_BLOCKS),
                }));
                self.connect = Some(*connect);
                Event::LaneUp(CONTROL)
            }
            Message::BlockDigest(end) => {
                let hash = self
                    .hash
                    .take()
                    .filter(|(file, object, _)| (*file, object.index) == (end.number, end.object));
                let found = hash.map(|(_, _, hasher)| hasher.finish().digest());
                Event::ObjectEnd { lane: CONTROL, end: *end, found }
            }
            message => Event::Message(CONTROL, message),
        };
        self.handle(event, payload);
    }

    fn handle(&mut self, event: Event, payload: &[u8]) {
        let mut commands = Vec::new();
        self.machine.as_mut().expect("a session").handle(event, Duration::ZERO, &mut commands);
        for command in commands {
            self.obey(command, payload);
        }
    }

    fn obey(&mut self, command: Command, payload: &[u8]) {
        match command {
            Command::Open { facts, path } => {
                assert_eq!(facts.mode, 0o666, "without these bits only root could read the file");
                let path = String::from_utf8(path.as_bytes().to_vec()).unwrap();
                let file = facts.number;
                let (bytes, log) = self.store.parts.get(&path).cloned().unwrap_or_default();
                let verdict = self.verdict(file, &path, &log);
                self.open.insert(file, Open { facts, path, bytes, log });
                self.handle(Event::Opened { file, verdict, rereads: false }, &[]);
            }
            Command::Make { facts, path, .. } => {
                self.store.directories.push(String::from_utf8(path.as_bytes().to_vec()).unwrap());
                let result = Ok(Outcome::Done(Level::Received));
                self.later.push_back(Event::Finished { file: facts.number, result });
            }
            Command::Write { file, object, range, encoding, .. } => {
                let open = self.open.get_mut(&file).expect("an open file");
                assert_eq!(encoding, Encoding::Raw);
                if range.start == object.range.start {
                    let whole = object.range.len() == open.facts.size();
                    let place = PartPlace { offset: object.range.start, whole };
                    self.hash = Some((file, object, PartHasher::new(Algorithm::Blake3, place)));
                }
                self.hash.as_mut().expect("an object").2.update(payload);
                let end = range.end.0 as usize;
                if open.bytes.len() < end {
                    open.bytes.resize(end, 0);
                }
                open.bytes[range.start.0 as usize..end].copy_from_slice(payload);
            }
            Command::ObjectVerified { file, object, .. } => {
                self.open.get_mut(&file).expect("an open file").log.insert(object.index.0);
            }
            Command::Settle { file, attempt, object, to, .. } => {
                let objects = Runs::of(object.index.0, object.index.0 + 1);
                self.later.push_back(Event::Settled { file, attempt, level: to, objects });
            }
            Command::Finish { file, close: None, .. } => {
                self.open.remove(&file);
                self.later.push_back(Event::Finished { file, result: Ok(Outcome::Same) });
            }
            Command::Finish { file, settle, .. } => {
                let open = self.open.remove(&file).expect("an open file");
                self.store.files.insert(open.path, open.bytes);
                self.later.push_back(Event::Finished { file, result: Ok(Outcome::Done(settle)) });
            }
            Command::Abandon { file } => {
                if let Some(open) = self.open.remove(&file) {
                    self.store.parts.insert(open.path, (open.bytes, open.log));
                }
            }
            Command::Restart { file, .. } => {
                let open = self.open.get_mut(&file).expect("an open file");
                open.log = Runs::default();
            }
            Command::Ended(end) => self.end = Some(end),
            Command::Discard { .. }
            | Command::Unread(_)
            | Command::Failed { .. }
            | Command::Refused { .. } => {}
            other => unreachable!("{other:?}"),
        }
    }

    fn verdict(&mut self, file: FileNumber, path: &str, log: &Runs) -> Verdict {
        if self.compares_whole
            && let Some(bytes) = self.store.files.get(path)
        {
            let digest = Some(self.key.digest(bytes));
            self.later.push_back(Event::OwnDigest { file, digest });
            return Verdict::UnlessDigest;
        }
        match self.compares {
            true => Verdict::Differing { have: Runs::default(), end: log.end(), samples: Runs::default() },
            false => Verdict::Take { have: log.clone() },
        }
    }

    /// Compares objects with the digests of the client.
    fn compare(&mut self) {
        for (&file, open) in &self.open {
            while let Some((attempt, object, stated)) =
                self.machine.as_mut().and_then(|machine| machine.next_stated(file))
            {
                let bytes = open.bytes.get(object.range.start.0 as usize..object.range.end.0 as usize);
                let bytes = bytes.filter(|bytes| self.key.digest(bytes) == stated);
                let place = PartPlace { offset: object.range.start, whole: false };
                let same: Option<Option<Digest>> = bytes.map(|bytes| {
                    let mut hasher = PartHasher::new(Algorithm::Blake3, place);
                    hasher.update(bytes);
                    Some(hasher.finish().digest())
                });
                self.later.push_back(Event::Compared { file, attempt, object: object.index, same });
            }
        }
    }

    /// Ends the session as if the lane were lost. Returns what remains.
    pub(crate) fn cut(mut self) -> Store {
        if self.machine.is_some() {
            self.handle(Event::LaneLost(CONTROL), &[]);
        }
        self.store
    }
}
