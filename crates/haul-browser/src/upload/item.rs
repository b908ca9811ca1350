//! Work of the lane in progress: an object, a small file, a comparison, or the end of a file.

use super::Upload;
use haul_digest::{Blake3Object, KeyedDigest, KeyedHasher};
use haul_model::{ByteRange, Moment, Object};
use haul_proto::source::{Event as SourceEvent, Work};
use haul_proto::{
    BlockDigest, CONTROL, Close, Encoding, FileClose, Message, NewBlock, NewFile, Reason, Stated, Why,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// Answer of the page to [`crate::Event::Check`].
#[derive(Debug)]
pub(super) enum Answer {
    /// The item needs no check.
    NotNeeded,
    /// To be requested when everything is read.
    Needed,
    /// Requested under this number.
    Asked(u32),
    /// Size and time of the file.
    Done(Result<(u64, Moment), Reason>),
}

/// Work of the machine in progress.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) facts: Arc<NewFile>,
    attempt: u16,
    task: Task,
    /// Ranges whose reads were not requested.
    pub(super) unread: VecDeque<ByteRange>,
    /// Requests of the blocks that were not sent or hashed, in order.
    pub(super) blocks: VecDeque<u32>,
    pub(super) check: Answer,
}

#[derive(Debug)]
enum Task {
    Whole { object: Option<Sending>, is_announced: bool },
    Object(Sending),
    Compare { objects: Option<VecDeque<Object>>, hasher: KeyedHasher, digests: Vec<KeyedDigest> },
    Close { root: Option<haul_digest::Digest> },
}

/// An object that is being sent.
#[derive(Debug)]
struct Sending {
    object: Object,
    hasher: Blake3Object,
    /// Offset up to which blocks were sent.
    at: u64,
}

/// Progress of an object.
enum Step {
    /// A block was sent.
    Sent,
    /// The next block is not read yet.
    Waiting,
    /// The object and its BLOCK_DIGEST were sent.
    Whole,
    /// The object cannot be read. If blocks of it were sent, it was abandoned.
    Failed(Reason),
}

impl Item {
    /// Creates the item of a work that reads a file, or of the end of a file.
    pub(super) fn of(work: Work) -> Option<Item> {
        let sending = |facts: &NewFile, object: Object| Sending {
            object,
            hasher: Blake3Object::new(object, facts.size()),
            at: object.range.start.0,
        };
        let (facts, attempt, task, unread, check) = match work {
            Work::Whole { facts, object } => {
                let check = if facts.is_regular() { Answer::Needed } else { Answer::NotNeeded };
                let unread = object.iter().map(|object| object.range).collect();
                let object = object.map(|object| sending(&facts, object));
                (facts, 0, Task::Whole { object, is_announced: false }, unread, check)
            }
            // A file that changed since the first attempt shows it at its end.
            Work::Object { facts, attempt, object, again: _ } => {
                let task = Task::Object(sending(&facts, object));
                (facts, attempt, task, VecDeque::from([object.range]), Answer::NotNeeded)
            }
            Work::Compare { facts, attempt, objects } => {
                let whole = ByteRange::between(0, facts.size());
                let unread = match &objects {
                    Some(objects) => objects.iter().map(|object| object.range).collect(),
                    None if whole.is_empty() => VecDeque::new(),
                    None => VecDeque::from([whole]),
                };
                // The key of the session replaces this hasher before the first byte.
                let hasher = haul_digest::DigestKey::derive(b"").hasher();
                let objects = objects.map(VecDeque::from);
                let task = Task::Compare { objects, hasher, digests: Vec::new() };
                (facts, attempt, task, unread, Answer::NotNeeded)
            }
            Work::Close { facts, attempt, root } => {
                (facts, attempt, Task::Close { root }, VecDeque::new(), Answer::Needed)
            }
            Work::Send(_) | Work::Wait { .. } | Work::Done => return None,
        };
        Some(Item { facts, attempt, task, unread, blocks: VecDeque::new(), check })
    }

    /// Returns the next range to read, of at most `most` bytes.
    pub(super) fn next_range(&self, most: u64) -> Option<ByteRange> {
        let range = self.unread.front()?;
        Some(ByteRange::between(range.start.0, range.end.0.min(range.start.0 + most)))
    }

    /// Records that the range of [`Item::next_range`] is being read.
    pub(super) fn requested(&mut self, request: u32, range: ByteRange) {
        self.blocks.push_back(request);
        if let Some(front) = self.unread.front_mut() {
            front.start = range.end;
            if front.is_empty() {
                self.unread.pop_front();
            }
        }
    }

    pub(super) fn wants_check(&self) -> bool {
        matches!(self.check, Answer::Needed) && self.unread.is_empty()
    }

    pub(super) fn awaits(&self, request: u32) -> bool {
        matches!(self.check, Answer::Asked(asked) if asked == request)
    }

    /// Returns the contents of FILE_CLOSE once the check is answered.
    fn close(&self, root: Option<haul_digest::Digest>) -> Option<Close> {
        let Answer::Done(found) = &self.check else { return None };
        Some(match found {
            Err(reason) => Close::Failed(reason.clone()),
            Ok((size, mtime)) if (*size, *mtime) == (self.facts.size(), self.facts.mtime) => {
                Close::Read { size: *size, mtime: *mtime, root }
            }
            Ok(_) => Close::Failed(Reason::new(Why::Changed, "its size or its time differs")),
        })
    }
}

impl Upload {
    /// Continues the first item. Returns false if it waits for the page, or if there is none.
    pub(super) fn advance(&mut self) -> bool {
        let Some(mut item) = self.items.pop_front() else { return false };
        match self.advance_item(&mut item) {
            Progress::Ended(event) => {
                self.drop_reads(&item);
                self.handle(event);
                true
            }
            Progress::Some => {
                self.items.push_front(item);
                true
            }
            Progress::None => {
                self.items.push_front(item);
                false
            }
        }
    }

    fn advance_item(&mut self, item: &mut Item) -> Progress {
        let (lane, file, attempt) = (CONTROL, item.facts.number, item.attempt);
        match &mut item.task {
            Task::Whole { is_announced: false, .. } => self.announce(item),
            Task::Whole { object: Some(sending), .. } => {
                let close = match self.step(&item.facts, attempt, sending, &mut item.blocks) {
                    Step::Waiting => return Progress::None,
                    Step::Sent => return Progress::Some,
                    Step::Whole => {
                        item.task = Task::Whole { object: None, is_announced: true };
                        return Progress::Some;
                    }
                    Step::Failed(reason) => Close::Failed(reason),
                };
                self.close_whole(item, close)
            }
            Task::Whole { object: None, .. } => match item.close(None) {
                Some(close) => self.close_whole(item, close),
                None => Progress::None,
            },
            Task::Object(sending) => {
                let object = sending.object.index;
                match self.step(&item.facts, attempt, sending, &mut item.blocks) {
                    Step::Waiting => Progress::None,
                    Step::Sent => Progress::Some,
                    Step::Whole => Progress::Ended(SourceEvent::ObjectSent { lane, file, attempt, object }),
                    Step::Failed(reason) => {
                        Progress::Ended(SourceEvent::ObjectFailed { lane, file, attempt, object, reason })
                    }
                }
            }
            Task::Compare { .. } => self.compare(item),
            &mut Task::Close { root } => match item.close(root) {
                Some(close) => Progress::Ended(SourceEvent::Closed { lane, file, attempt, close }),
                None => Progress::None,
            },
        }
    }

    /// Announces a small file once its first block is read, so that a file that cannot be read is
    /// never announced.
    fn announce(&mut self, item: &mut Item) -> Progress {
        let (lane, file) = (CONTROL, item.facts.number);
        match item.blocks.front().and_then(|block| self.reads.get(block)).map(|read| &read.answer) {
            None if !item.unread.is_empty() => return Progress::None,
            Some(None) => return Progress::None,
            Some(Some(Err(reason))) => {
                return Progress::Ended(SourceEvent::WholeFailed { lane, file, reason: reason.clone() });
            }
            None | Some(Some(Ok(()))) => {}
        }
        self.link.output.push(&Message::NewFile(Box::new(NewFile::clone(&item.facts))));
        if !item.facts.is_regular() {
            let close = Close::Read { size: 0, mtime: item.facts.mtime, root: None };
            return Progress::Ended(SourceEvent::WholeSent { lane, file, close });
        }
        if let Task::Whole { is_announced, .. } = &mut item.task {
            *is_announced = true;
        }
        Progress::Some
    }

    fn close_whole(&mut self, item: &Item, close: Close) -> Progress {
        let (lane, file) = (CONTROL, item.facts.number);
        let message = FileClose { number: file, attempt: 0, close: close.clone() };
        self.link.output.push(&Message::FileClose(Box::new(message)));
        Progress::Ended(SourceEvent::WholeSent { lane, file, close })
    }

    /// Sends the next block of an object, or its BLOCK_DIGEST.
    fn step(
        &mut self,
        facts: &NewFile,
        attempt: u16,
        sending: &mut Sending,
        blocks: &mut VecDeque<u32>,
    ) -> Step {
        let Sending { object, hasher, at } = sending;
        let number = facts.number;
        let end = |stated| {
            let end = BlockDigest { number, attempt, object: object.index, stated };
            Message::BlockDigest(Box::new(end))
        };
        if *at == object.range.end.0 {
            let digest = hasher.clone().finish();
            self.link.output.push(&end(Stated::Digest(digest)));
            let index = object.index;
            self.hashed(facts, attempt, index, digest);
            return Step::Whole;
        }
        let Some(request) = blocks.front().copied() else { return Step::Waiting };
        match self.reads.get(&request).map(|read| &read.answer) {
            None | Some(None) => return Step::Waiting,
            Some(Some(Err(reason))) => {
                let reason = reason.clone();
                if *at > object.range.start.0 {
                    self.link.output.push(&end(Stated::Abandoned));
                }
                return Step::Failed(reason);
            }
            Some(Some(Ok(()))) => {}
        }
        blocks.pop_front();
        let Some(read) = self.reads.remove(&request) else { return Step::Waiting };
        let len = read.range.len() as usize;
        hasher.update(&read.buffer[..len]);
        self.link.output.push(&Message::NewBlock(NewBlock {
            number,
            attempt,
            object: object.index,
            range: read.range,
            encoding: Encoding::Raw,
            payload: len as u32,
        }));
        self.link.output.push_block(read.buffer, len);
        *at = read.range.end.0;
        Step::Sent
    }

    /// Hashes the next block for a comparison of the server.
    fn compare(&mut self, item: &mut Item) -> Progress {
        let (lane, file, attempt) = (CONTROL, item.facts.number, item.attempt);
        let Task::Compare { objects, hasher, digests } = &mut item.task else { return Progress::None };
        let ended = |digests| Progress::Ended(SourceEvent::Compared { lane, file, attempt, digests });
        let Some(request) = item.blocks.front().copied() else {
            if !item.unread.is_empty() {
                return Progress::None;
            }
            if objects.is_none() && digests.is_empty() {
                // The digest of the complete file, which can be empty.
                let whole = if item.facts.size() == 0 { self.key.hasher() } else { hasher.clone() };
                digests.push(whole.finish());
            }
            return ended(Ok(std::mem::take(digests)));
        };
        let Some(read) = self.reads.get(&request) else { return Progress::None };
        match &read.answer {
            None => return Progress::None,
            Some(Err(reason)) => return ended(Err(reason.clone())),
            Some(Ok(())) => {}
        }
        let range = read.range;
        let first = objects.as_ref().and_then(|objects| objects.front().copied());
        if range.start.0 == first.map_or(0, |object| object.range.start.0) {
            *hasher = self.key.hasher();
        }
        hasher.update(&read.buffer[..range.len() as usize]);
        if first.is_some_and(|object| object.range.end == range.end) {
            digests.push(hasher.finish());
            if let Some(objects) = objects {
                objects.pop_front();
            }
        }
        item.blocks.pop_front();
        self.release(request);
        Progress::Some
    }
}

/// Progress of an item.
enum Progress {
    /// The item waits for the page.
    None,
    /// Something was sent or hashed.
    Some,
    /// The item has ended. The machine receives this event.
    Ended(SourceEvent),
}
