//! A server that sends: `haul_proto::Source` with files in memory.

use crate::page::MTIME;
use crate::wire::{frame, take};
use haul_browser::moment;
use haul_digest::{Algorithm, PartHasher, PartPlace};
use haul_model::{ByteRange, Object};
use haul_proto::source::{Command, Event, Settings, Work};
use haul_proto::{
    BlockDigest, CONTROL, Close, Connect, Encoding, End, Features, FileClose, FileKind, Message, NewBlock,
    NewFile, OperandList, PeerText, Runs, Source, Stated, Timing, Window,
};
use std::time::Duration;

pub(crate) struct Sender {
    files: Vec<(String, Vec<u8>)>,
    offered: usize,
    machine: Option<Source>,
    inbox: Vec<u8>,
    pub(crate) outbox: Vec<u8>,
    pub(crate) connect: Option<Connect>,
    pub(crate) end: Option<End>,
    /// Index of the payload of which one bit is flipped.
    pub(crate) flip: Option<usize>,
    payloads: usize,
    pub(crate) sent_bytes: u64,
    /// Length of the blocks.
    pub(crate) block: u64,
    /// True if blocks of zeros are sent as holes.
    pub(crate) has_holes: bool,
    pub(crate) paths: Vec<Box<[u8]>>,
    operands: OperandList,
}

impl Sender {
    pub(crate) fn new(files: &[(&str, Vec<u8>)]) -> Sender {
        Sender {
            files: files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect(),
            offered: 0,
            machine: None,
            inbox: Vec::new(),
            outbox: Vec::new(),
            connect: None,
            end: None,
            flip: None,
            payloads: 0,
            sent_bytes: 0,
            block: 100_000,
            has_holes: false,
            paths: Vec::new(),
            operands: OperandList::default(),
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        while let Some((message, payload)) = take(&mut self.inbox) {
            assert!(payload.is_empty(), "a sink sends no payload");
            match message {
                Message::Connect(connect) => self.accept(*connect),
                Message::Operands(operands) => {
                    if self.operands.take(*operands).expect("within the limits") {
                        self.paths.push(Box::default());
                    }
                }
                message => self.handle(Event::Message(CONTROL, message)),
            }
        }
        self.walk();
        while self.work() {
            self.walk();
        }
    }

    /// Returns the number of blocks sent.
    pub(crate) fn payloads(&self) -> usize {
        self.payloads
    }

    fn accept(&mut self, connect: Connect) {
        let window = Window { files: 16, ..Window::default() };
        let accept = connect.answer(Features::ALL, window, 1, [9; 32], PeerText::default()).unwrap();
        self.outbox.extend(frame(&Message::Accept(Box::new(accept.clone()))));
        self.machine = Some(Source::new(Settings {
            options: accept.options,
            window: window.least(connect.window),
            timing: Timing::default(),
            retries: 5,
            awaits_answers: connect.resumes,
        }));
        self.connect = Some(connect);
        self.handle(Event::LaneUp(CONTROL));
    }

    /// Offers files while the window has space.
    fn walk(&mut self) {
        let Some(machine) = &mut self.machine else { return };
        while machine.capacity() > 0 && self.offered < self.files.len() {
            let (name, bytes) = &self.files[self.offered];
            let kind = match name.ends_with('/') {
                true => FileKind::Directory,
                false => FileKind::File { size: bytes.len() as u64, holes: Runs::default() },
            };
            let facts =
                NewFile { mtime: moment(MTIME), ..NewFile::new(name.trim_end_matches('/').as_bytes(), kind) };
            machine.offer(facts, None).unwrap();
            self.offered += 1;
        }
        if self.offered == self.files.len() {
            self.offered += 1;
            self.handle(Event::WalkEnded);
        }
    }

    fn handle(&mut self, event: Event) {
        let mut commands = Vec::new();
        self.machine.as_mut().expect("a session").handle(event, Duration::ZERO, &mut commands);
        for command in commands {
            if let Command::Ended(end) = command {
                self.end = Some(end);
            }
        }
    }

    fn work(&mut self) -> bool {
        let Some(machine) = &mut self.machine else { return false };
        let (lane, sent) = (CONTROL, Duration::ZERO);
        match machine.next(CONTROL, sent) {
            Work::Send(message) => self.outbox.extend(frame(&message)),
            Work::Whole { facts, object } => {
                self.outbox.extend(frame(&Message::NewFile(Box::new((*facts).clone()))));
                if let Some(object) = object {
                    self.object(&facts, 0, object);
                }
                let close = Close::Read { size: facts.size(), mtime: facts.mtime, root: None };
                if facts.is_regular() {
                    let message = FileClose { number: facts.number, attempt: 0, close: close.clone() };
                    self.outbox.extend(frame(&Message::FileClose(Box::new(message))));
                }
                self.handle(Event::WholeSent { lane, file: facts.number, close });
            }
            Work::Object { facts, attempt, object, .. } => {
                self.object(&facts, attempt, object);
                self.handle(Event::ObjectSent { lane, file: facts.number, attempt, object: object.index });
            }
            Work::Close { facts, attempt, .. } => {
                let close = Close::Read { size: facts.size(), mtime: facts.mtime, root: None };
                self.handle(Event::Closed { lane, file: facts.number, attempt, close });
            }
            Work::Compare { .. } => unreachable!("a browser asks for no comparison"),
            Work::Wait { .. } | Work::Done => return false,
        }
        true
    }

    fn object(&mut self, facts: &NewFile, attempt: u16, object: Object) {
        let name = std::str::from_utf8(&facts.path).unwrap();
        let bytes = &self.files.iter().find(|file| file.0 == name).expect("an offered file").1;
        let whole = object.range.len() == facts.size();
        let mut hasher = PartHasher::new(Algorithm::Blake3, PartPlace { offset: object.range.start, whole });
        let mut at = object.range.start.0;
        while at < object.range.end.0 {
            let range = ByteRange::between(at, object.range.end.0.min(at + self.block));
            let mut payload = bytes[at as usize..range.end.0 as usize].to_vec();
            hasher.update(&payload);
            let is_hole = self.has_holes && payload.iter().all(|byte| *byte == 0);
            if is_hole {
                payload.clear();
            } else if self.flip == Some(self.payloads) {
                payload[0] ^= 32;
            }
            self.payloads += 1;
            self.sent_bytes += payload.len() as u64;
            let encoding = if is_hole { Encoding::Hole } else { Encoding::Raw };
            self.outbox.extend(frame(&Message::NewBlock(NewBlock {
                number: facts.number,
                attempt,
                object: object.index,
                range,
                encoding,
                payload: payload.len() as u32,
            })));
            self.outbox.extend(payload);
            at = range.end.0;
        }
        let stated = Stated::Digest(hasher.finish().digest());
        let end = BlockDigest { number: facts.number, attempt, object: object.index, stated };
        self.outbox.extend(frame(&Message::BlockDigest(Box::new(end))));
    }
}
