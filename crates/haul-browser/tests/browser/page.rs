//! The page: carries out the requests of the client on files in memory, in random order.

use crate::client::Client;
use crate::dice::Dice;
use haul_browser::{Event, KeptFile, milliseconds};
use haul_digest::Digest;
use haul_proto::{Outcome, Summary};
use std::collections::{BTreeMap, VecDeque};

/// Time of all files, in milliseconds.
pub(crate) const MTIME: f64 = 1_763_721_805_123.0;

/// A received file, or the part of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    pub(crate) bytes: Vec<u8>,
    /// State that the page logs.
    pub(crate) kept: KeptFile,
    pub(crate) digest: String,
}

pub(crate) struct Page {
    pub(crate) client: Client,
    /// Files to send, in order, and how many of them were offered.
    sources: Vec<(Vec<u8>, Vec<u8>)>,
    offered: usize,
    has_ended_walk: bool,
    numbers: BTreeMap<u64, usize>,
    /// Digests of objects that were sent, by the name of the file and the index.
    pub(crate) hashed: BTreeMap<(String, u64), Digest>,
    /// Names of files that arrive.
    names: BTreeMap<u64, String>,
    pub(crate) stored: BTreeMap<String, Stored>,
    pub(crate) directories: Vec<String>,
    /// Answers that the page gives later, in random order.
    later: Vec<Event>,
    input: Vec<u8>,
    /// Bytes of the server that the client has not taken.
    pub(crate) inbox: VecDeque<u8>,
    dice: Dice,
    pub(crate) outcomes: BTreeMap<String, (Outcome, Option<String>)>,
    pub(crate) failures: Vec<String>,
    pub(crate) ended: Option<(Option<String>, Summary)>,
    pub(crate) read_bytes: u64,
    pub(crate) resumes: bool,
    /// Names of which reads, or writes, fail.
    pub(crate) unreadable: Vec<String>,
    pub(crate) unwritable: Vec<String>,
    /// True if a file changes before its last check.
    pub(crate) changes: bool,
}

impl Page {
    pub(crate) fn new(client: Client, seed: u64) -> Page {
        Page {
            client,
            sources: Vec::new(),
            offered: 0,
            has_ended_walk: false,
            numbers: BTreeMap::new(),
            hashed: BTreeMap::new(),
            names: BTreeMap::new(),
            stored: BTreeMap::new(),
            directories: Vec::new(),
            later: Vec::new(),
            input: Vec::new(),
            inbox: VecDeque::new(),
            dice: Dice::new(seed),
            outcomes: BTreeMap::new(),
            failures: Vec::new(),
            ended: None,
            read_bytes: 0,
            resumes: false,
            unreadable: Vec::new(),
            unwritable: Vec::new(),
            changes: false,
        }
    }

    pub(crate) fn sending(mut self, sources: &[(&str, Vec<u8>)]) -> Page {
        self.sources =
            sources.iter().map(|(name, bytes)| (name.as_bytes().to_vec(), bytes.clone())).collect();
        self
    }

    /// Does one thing at random: takes events, answers a request, passes in input, or offers a
    /// file. Returns false if there is nothing to do.
    pub(crate) fn step(&mut self) -> bool {
        if let Some(event) = self.client.events.pop_front() {
            self.take(event);
            return true;
        }
        let may_offer = self.client.capacity() > 0 && !self.has_ended_walk;
        let doings = [(may_offer, 0), (!self.later.is_empty(), 1), (!self.inbox.is_empty(), 2)];
        let doings: Vec<u8> = doings.iter().filter(|doing| doing.0).map(|doing| doing.1).collect();
        let Some(&doing) = doings.get(self.dice.below(doings.len() as u64) as usize) else { return false };
        match doing {
            0 => self.offer(),
            1 => {
                let at = self.dice.below(self.later.len() as u64) as usize;
                let event = self.later.swap_remove(at);
                self.answer(event);
            }
            _ => {
                let len = (self.dice.below(300_000) as usize + 1).min(self.inbox.len());
                self.input = self.inbox.iter().take(len).copied().collect();
                let input = std::mem::take(&mut self.input);
                let taken = self.client.input(&input);
                self.input = input;
                self.inbox.drain(..taken);
                return taken > 0 || !self.client.events.is_empty() || !self.later.is_empty();
            }
        }
        true
    }

    fn offer(&mut self) {
        let Some((name, bytes)) = self.sources.get(self.offered) else {
            self.has_ended_walk = true;
            return self.client.walk_ended();
        };
        let is_directory = name.ends_with(b"/");
        let path = name.strip_suffix(b"/").unwrap_or(name);
        let size = (!is_directory).then_some(bytes.len() as u64);
        match self.client.offer(path, size, MTIME) {
            Ok(number) => {
                self.numbers.insert(number, self.offered);
            }
            Err(text) => self.failures.push(text),
        }
        self.offered += 1;
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Started { resumes } => self.resumes = resumes,
            Event::Ended { broken, summary } => {
                assert!(self.ended.replace((broken, summary)).is_none(), "a session ends once");
            }
            Event::Synced { .. } | Event::Present { .. } | Event::Same { .. } | Event::Abandon { .. } => {}
            Event::Hashed { file, object, digest } => {
                let name = self.source_name(file);
                self.hashed.insert((name, object), digest);
            }
            Event::FileDone { file, outcome, digest, .. } => {
                let name = self.source_name(file);
                let digest = digest.map(|digest| haul_browser::hex(digest.as_bytes()));
                self.outcomes.insert(name, (outcome, digest));
            }
            Event::Open { file, path, size, mtime, version, have } => {
                let stored = self.stored.entry(path.clone()).or_default();
                if have == 0 {
                    *stored = Stored::default();
                }
                stored.kept.size = size;
                stored.kept.mtime = milliseconds(mtime);
                stored.kept.version = version;
                self.names.insert(file, path);
            }
            // The bytes of a write are in the last input, so that it is carried out now.
            Event::Write { request, file, offset, at, len } => {
                let bytes = self.input[at..at + len].to_vec();
                self.put(file, offset, &bytes);
                self.later.push(Event::Write { request, file, offset, at, len });
            }
            Event::Verified { file, object, digest } => {
                let digest = digest.as_bytes().try_into().unwrap();
                self.file(file).kept.objects.push((object, digest));
            }
            Event::Restart { file } if self.numbers.contains_key(&file) => {
                let name = self.source_name(file);
                self.hashed.retain(|(of, _), _| *of != name);
            }
            Event::Restart { file } => self.file(file).kept.objects.clear(),
            Event::Failed { text, .. } => self.failures.push(text),
            request => self.later.push(request),
        }
    }

    fn source_name(&self, file: u64) -> String {
        String::from_utf8(self.sources[self.numbers[&file]].0.clone()).unwrap()
    }

    fn answer(&mut self, event: Event) {
        match event {
            Event::Read { request, file, offset, len } => {
                let (name, bytes) = &self.sources[self.numbers[&file]];
                self.read_bytes += len as u64;
                if self.unreadable.iter().any(|unreadable| unreadable.as_bytes() == &name[..]) {
                    return self.client.read_done(request, Err("the disk is broken"));
                }
                let bytes = bytes[offset as usize..offset as usize + len].to_vec();
                self.client.read_done(request, Ok(&bytes));
            }
            Event::Check { request, file } => {
                let mtime = if self.changes { MTIME + 1.0 } else { MTIME };
                let size = self.sources[self.numbers[&file]].1.len() as u64;
                self.client.checked(request, size, mtime);
            }
            Event::Write { request, file, .. } => {
                let name = &self.names[&file];
                let is_full = self.unwritable.contains(name);
                self.client.written(request, if is_full { Err("the disk is full") } else { Ok(()) });
            }
            Event::Zeros { request, file, offset, len } => {
                self.put(file, offset, &vec![0; len as usize]);
                self.client.written(request, Ok(()));
            }
            Event::Sync { file } => self.client.synced(file, 3),
            Event::Directory { file, path } => {
                self.directories.push(path);
                self.client.finished(file, Ok(1));
            }
            Event::Finish { file, size, digest, .. } => {
                let stored = self.file(file);
                stored.bytes.resize(size as usize, 0);
                stored.kept.is_complete = true;
                stored.digest = digest.map_or(String::new(), |digest| haul_browser::hex(digest.as_bytes()));
                self.client.finished(file, Ok(3));
            }
            event => unreachable!("{event:?} is no request"),
        }
    }

    fn file(&mut self, file: u64) -> &mut Stored {
        self.stored.get_mut(&self.names[&file]).expect("an open file")
    }

    fn put(&mut self, file: u64, offset: u64, bytes: &[u8]) {
        let stored = self.file(file);
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if stored.bytes.len() < end {
            stored.bytes.resize(end, 0);
        }
        stored.bytes[start..end].copy_from_slice(bytes);
    }

    /// Returns the state of all files, for a later session.
    pub(crate) fn kept(&self) -> Vec<(Vec<u8>, KeptFile)> {
        let logged = self
            .stored
            .iter()
            .filter(|(_, stored)| stored.kept.is_complete || !stored.kept.objects.is_empty());
        logged.map(|(path, stored)| (path.as_bytes().to_vec(), stored.kept.clone())).collect()
    }
}
