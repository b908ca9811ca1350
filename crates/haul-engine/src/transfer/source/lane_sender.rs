//! Worker of a lane at the source: sends whole small files, and objects, each followed by its
//! digest.

use super::SourceContext;
use super::ahead::ReadAhead;
use super::facts::moment;
use super::offered_file::{HoleSearch, OfferedFile, OpenFile};
use crate::pipeline::BLOCK_BYTES;
use crate::pipeline::{BlockFault, read_blocks};
use crate::transfer::file_hasher::FileHasher;
use crate::transfer::monitor::{Reply, WaitKey};
use crate::transfer::packing::Packer;
use crate::transfer::reason::reason;
use haul_digest::{Digest, Hasher, ObjectDigest};
use haul_model::{ByteRange, Object, is_zero};
use haul_net::{FrameWriter, LaneError};
use haul_proto::limits::ZERO_BYTES_MAX;
use haul_proto::source::{Event, Work};
use haul_proto::{
    BlockDigest, Close, Encoding, FileClose, FileNumber, LaneId, Message, NewBlock, NewFile, Reason, Stated,
    Why,
};
use haul_storage::Stat;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Amount of work that a worker takes at a time, weighed by [`weight_of`]. Enough small files for
/// one write to the lane, and as many again while that write is in progress.
const BATCH_WEIGHT: u64 = 128 << 10;

/// Minimum weight of a piece of work: at most 64 of the smallest are taken together.
const WEIGHT_MIN: u64 = BATCH_WEIGHT / 64;

/// Interval of keep-alive messages while the worker of a lane hashes data that it does not send.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The worker of one lane.
pub(super) struct LaneSender<'a> {
    context: &'a SourceContext<'a>,
    lane: LaneId,
    outbox: Box<dyn FrameWriter>,
    packer: Packer,
    file_hasher: FileHasher<'a>,
    block: Vec<u8>,
    /// Events to pass to the machine before the next request for work.
    pending_events: Vec<Event>,
}

/// Object and attempt that blocks belong to.
struct Target {
    number: FileNumber,
    attempt: u16,
    object: Object,
}

impl Target {
    /// Returns the message that announces a block.
    fn block(&self, range: ByteRange, encoding: Encoding, payload: u64) -> Message {
        let payload = u32::try_from(payload).expect("a stretch is no longer than a payload may be");
        let Target { number, attempt, object } = *self;
        Message::NewBlock(NewBlock { number, attempt, object: object.index, range, encoding, payload })
    }
}

/// Result of sending an object.
enum SendResult {
    /// The object was sent completely.
    Whole,
    /// The object could not be read to its end.
    Abandoned(Reason),
}

impl<'a> LaneSender<'a> {
    pub(super) fn new(
        context: &'a SourceContext<'a>,
        lane: LaneId,
        outbox: Box<dyn FrameWriter>,
    ) -> LaneSender<'a> {
        let packer = Packer::new(context.options.compression);
        let block = vec![0; BLOCK_BYTES];
        LaneSender {
            context,
            lane,
            outbox,
            packer,
            file_hasher: context.file_hasher(),
            block,
            pending_events: Vec::new(),
        }
    }

    /// Executes the work that the machine assigns, until none is left.
    ///
    /// # Errors
    /// Returns the error of the lane.
    pub(super) fn run(mut self) -> Result<(), LaneError> {
        let mut ahead = ReadAhead::new(self.context);
        loop {
            if !self.pending_events.is_empty() {
                self.context.handle_all(self.pending_events.drain(..));
            }
            let (works, is_rest) = self.next(&ahead);
            ahead.read(self.context, &works);
            for work in works {
                match work {
                    Work::Send(mut message) => {
                        self.context.session.prepare_send(&mut message);
                        self.outbox.push(&message)?;
                    }
                    Work::Whole { facts, object } => self.whole(&facts, object)?,
                    Work::Object { facts, attempt, object, again } => {
                        let buffered = ahead.buffered(facts.number, object).filter(|_| !again);
                        self.object(&facts, attempt, object, again, buffered)?;
                    }
                    Work::Compare { facts, attempt, objects } => self.compare(&facts, attempt, objects)?,
                    Work::Close { facts, attempt, root } => self.close(&facts, attempt, root)?,
                    Work::Wait { .. } => {}
                    Work::Done => return self.outbox.finish(),
                }
            }
            // Flush the outbox before this worker waits.
            if is_rest && self.pending_events.is_empty() {
                self.outbox.flush()?;
            }
        }
    }

    /// Takes the next work of this lane: several small pieces, one large piece, or several objects
    /// that are hashed in parallel. Waits only if the outbox is empty. Returns true if no more work
    /// is available now.
    fn next(&self, ahead: &ReadAhead) -> (Vec<Work>, bool) {
        let (lane, is_idle) = (self.lane, self.outbox.is_empty());
        let mut works = Vec::new();
        let mut weight = 0;
        let is_rest = self.context.session.monitor.ask(|machine, now| {
            while weight < BATCH_WEIGHT || ahead.wants_more(&works, machine) {
                match machine.next(lane, now) {
                    Work::Wait { until } if is_idle && works.is_empty() => {
                        return Reply::Wait(WaitKey::Lane(lane), until);
                    }
                    Work::Wait { .. } => return Reply::Ready(true),
                    work => {
                        weight += weight_of(&work);
                        works.push(work);
                    }
                }
            }
            Reply::Ready(false)
        });
        (works, is_rest)
    }

    fn whole(&mut self, facts: &Arc<NewFile>, object: Option<Object>) -> Result<(), LaneError> {
        let (context, number) = (self.context, facts.number);
        if !facts.is_regular() {
            if context.session.receipt.is_some()
                && let Some(offered_file) = context.offered_file(number)
            {
                offered_file.set_sent_kind(facts, |size| context.hash_plan.root(size));
            }
            self.outbox.push(&Message::NewFile(Box::new(NewFile::clone(facts))))?;
            let close = Close::Read { size: 0, mtime: facts.mtime, root: None };
            self.pending_events.push(Event::WholeSent { lane: self.lane, file: number, close });
            return Ok(());
        }
        let (offered_file, file) = match context.open(facts) {
            Ok(opened) => opened,
            Err(reason) => {
                context.handle(Event::WholeFailed { lane: self.lane, file: number, reason });
                return Ok(());
            }
        };
        self.outbox.push(&Message::NewFile(Box::new(NewFile::clone(facts))))?;
        let went = match object {
            Some(object) => self.send_object(&offered_file, &file, facts, 0, object, None)?,
            None => SendResult::Whole,
        };
        let close = match went {
            SendResult::Whole => self.final_check(&offered_file, &file)?,
            SendResult::Abandoned(reason) => Close::Failed(reason),
        };
        offered_file.close();
        let message = FileClose { number, attempt: 0, close: close.clone() };
        let has_failed = matches!(close, Close::Failed(_));
        self.pending_events.push(Event::WholeSent { lane: self.lane, file: number, close });
        if has_failed {
            // Report the failure before the sink can report it too.
            context.handle_all(self.pending_events.drain(..));
        }
        self.outbox.push(&Message::FileClose(Box::new(message)))
    }

    fn object(
        &mut self,
        facts: &Arc<NewFile>,
        attempt: u16,
        object: Object,
        again: bool,
        buffered: Option<(&[u8], Digest)>,
    ) -> Result<(), LaneError> {
        let (context, lane, number) = (self.context, self.lane, facts.number);
        let failed = |reason| {
            context.handle(Event::ObjectFailed { lane, file: number, attempt, object: object.index, reason });
        };
        let (offered_file, file) = match context.open(facts) {
            Ok(opened) => opened,
            Err(reason) => {
                failed(reason);
                return Ok(());
            }
        };
        let storage = &context.session.spent.storage;
        if again && let Err(reason) = storage.time(|| file.is_unchanged(&offered_file.version())) {
            failed(reason);
            return Ok(());
        }
        offered_file.read_ahead(&file, object);
        match self.send_object(&offered_file, &file, facts, attempt, object, buffered)? {
            SendResult::Whole => {
                self.pending_events.push(Event::ObjectSent {
                    lane,
                    file: number,
                    attempt,
                    object: object.index,
                });
            }
            SendResult::Abandoned(reason) => failed(reason),
        }
        Ok(())
    }

    /// Sends the blocks of an object and its BLOCK_DIGEST. If its bytes and their digest are
    /// `buffered`, nothing is read.
    fn send_object(
        &mut self,
        offered_file: &OfferedFile,
        file: &OpenFile,
        facts: &NewFile,
        attempt: u16,
        object: Object,
        buffered: Option<(&[u8], Digest)>,
    ) -> Result<SendResult, LaneError> {
        let hash_plan = &self.context.hash_plan;
        let mut hash = {
            let mut root = offered_file.root.lock();
            root.set_attempt(attempt);
            root.begin(attempt, object)
        };
        if let Some((_, digest)) = buffered {
            hash = hash_plan.with_known(hash, digest);
        }
        let search = *offered_file.holes.get_or_init(|| match &offered_file.item.facts {
            facts if !facts.is_sparse() => HoleSearch::No,
            facts => match file {
                OpenFile::Stored(file) if hash_plan.may_skip_holes(&**file, facts) => HoleSearch::Seek,
                _ => HoleSearch::Read,
            },
        });
        let target = Target { number: facts.number, attempt, object };
        let mut failed = None;
        let mut rest = object.range;
        while rest.start < rest.end && failed.is_none() {
            if self.context.session.over.load(Ordering::Relaxed) {
                failed = Some((Why::Stopped.into(), rest.start.0));
                break;
            }
            let storage = &self.context.session.spent.storage;
            let (piece, is_hole) = storage.time(|| next_piece(file, rest, search != HoleSearch::No));
            if is_hole && search == HoleSearch::Seek {
                self.context.session.spent.hashing.time(|| hash.zeros(piece.len()));
                self.outbox.push(&target.block(piece, Encoding::Hole, 0))?;
            } else {
                let bytes = buffered.map(|(bytes, _)| bytes);
                failed = self.data(&target, file, piece, is_hole, bytes, |block| hash.update(block))?;
            }
            rest.start = piece.end;
        }
        let stated = self.stated(offered_file, attempt, object, hash, failed.is_some());
        // If no block of an object was sent, the sink does not know the object and needs no end.
        if failed.as_ref().is_none_or(|(_, sent_to)| *sent_to > object.range.start.0) {
            let end = BlockDigest { number: facts.number, attempt, object: object.index, stated };
            self.outbox.push(&Message::BlockDigest(Box::new(end)))?;
        }
        Ok(failed.map_or(SendResult::Whole, |(reason, _)| SendResult::Abandoned(reason)))
    }

    /// Sends the bytes of a range, from `buffered` or from the file. Passes each block to `hash`
    /// first. If `skips_zeros` is true, sends blocks of zeros as holes.
    ///
    /// If the file cannot be read, returns the reason and the end of the bytes announced so far.
    /// Zeros replace announced bytes that could not be read. The sink discards them, because the
    /// object is abandoned.
    fn data(
        &mut self,
        target: &Target,
        file: &OpenFile,
        range: ByteRange,
        skips_zeros: bool,
        buffered: Option<&[u8]>,
        mut hash: impl FnMut(&[u8]),
    ) -> Result<Option<(Reason, u64)>, LaneError> {
        let context = self.context;
        let session = &context.session;
        let mut own = std::mem::take(&mut self.block);
        // End of the unpacked bytes announced so far, and of the bytes sent so far.
        let (mut promised, mut sent) = (range.start.0, range.start.0);
        let mut begin = Instant::now();
        let mut each = |at: u64, block: &[u8]| {
            let is_read = Instant::now();
            if buffered.is_none() {
                session.spent.storage.add(is_read - begin);
            }
            hash(block);
            session.spent.hashing.add(is_read.elapsed());
            sent = at + block.len() as u64;
            if skips_zeros && is_zero(block) {
                self.outbox.push(&target.block(ByteRange::between(at, sent), Encoding::Hole, 0))?;
                promised = sent;
            } else {
                // Zeros may follow, so a block is announced alone.
                let ahead = if skips_zeros { 0 } else { self.packer.announce_limit() };
                let may_promise = range.end.0.min(at + ahead.max(block.len() as u64));
                promised = self.block(target, at, block, promised, may_promise, begin.elapsed())?;
            }
            begin = Instant::now();
            Ok(())
        };
        let fault = match buffered {
            Some(bytes) => {
                let mut parts = range.steps(BLOCK_BYTES as u64);
                let from = target.object.range.start.0;
                parts.try_for_each(|part| {
                    each(part.start.0, &bytes[(part.start.0 - from) as usize..][..part.len() as usize])
                })?;
                None
            }
            None => match read_blocks(file, range, &mut own, &session.over, each) {
                Ok(()) => None,
                Err(BlockFault::Receiver(error)) => return Err(error),
                Err(BlockFault::Stopped) => Some(Why::Stopped.into()),
                // A file that ends too soon has changed.
                Err(BlockFault::Ended(..)) => Some(Why::Changed.into()),
                Err(BlockFault::Read(at, error)) => {
                    Some(reason(&format!("cannot read at byte {at}"), &error))
                }
            },
        };
        if fault.is_some() {
            own.fill(0);
            for part in ByteRange::between(sent, promised).steps(BLOCK_BYTES as u64) {
                self.outbox.payload(&own[..part.len() as usize])?;
            }
        }
        self.block = own;
        Ok(fault.map(|reason| (reason, promised)))
    }

    /// Sends a block that starts at offset `at` of the file. Sends it packed if packing is on and
    /// makes it smaller. Otherwise sends it as is, announced together with the data that follows up
    /// to `may_promise`. Returns the end of the announced bytes. `own` is the time spent on the
    /// block so far.
    fn block(
        &mut self,
        target: &Target,
        at: u64,
        block: &[u8],
        promised: u64,
        may_promise: u64,
        own: Duration,
    ) -> Result<u64, LaneError> {
        let len = block.len();
        let range = ByteRange::between(at, at + len as u64);
        let lane_before = self.outbox.waited();
        let is_promised = at < promised;
        let packed = if is_promised { None } else { self.packer.pack(block) };
        let (went, promised) = match packed {
            Some(packed) => {
                self.outbox.push(&target.block(range, Encoding::Zstd, packed.len() as u64))?;
                self.outbox.payload(packed)?;
                (packed.len(), range.end.0)
            }
            None => {
                let promised = if is_promised { promised } else { may_promise };
                if !is_promised {
                    let all = ByteRange::between(at, promised);
                    self.outbox.push(&target.block(all, Encoding::Raw, all.len()))?;
                }
                self.outbox.payload(block)?;
                (len, promised)
            }
        };
        let spent = &self.context.session.spent;
        spent.packing.add(self.packer.sent(len, went, own, self.outbox.waited() - lane_before));
        if went < len {
            spent.packed(len, went);
        }
        Ok(promised)
    }

    fn stated(
        &self,
        offered_file: &OfferedFile,
        attempt: u16,
        object: Object,
        hash: ObjectDigest,
        is_abandoned: bool,
    ) -> Stated {
        if is_abandoned {
            return Stated::Abandoned;
        }
        let begin = Instant::now();
        let sums = hash.finish();
        let digest = self.context.hash_plan.object_digest(&sums);
        offered_file.root.lock().add(attempt, object, sums);
        self.context.session.spent.hashing.add(begin.elapsed());
        match digest {
            Some(digest) => Stated::Digest(digest),
            None if self.context.sends_digests_later => Stated::Later,
            None => Stated::Nothing,
        }
    }

    /// Hashes objects, or the whole file, for the comparison of the sink. Keep-alive messages are
    /// sent meanwhile.
    fn compare(
        &mut self,
        facts: &Arc<NewFile>,
        attempt: u16,
        objects: Option<Vec<Object>>,
    ) -> Result<(), LaneError> {
        if compared_bytes(facts, objects.as_deref()) >= BATCH_WEIGHT {
            self.outbox.flush()?;
        }
        let LaneSender { context, outbox, file_hasher, .. } = self;
        let (mut last_keep_alive, mut alive) = (Instant::now(), Ok(()));
        let mut tick = || {
            if alive.is_ok() && last_keep_alive.elapsed() >= KEEP_ALIVE_INTERVAL {
                last_keep_alive = Instant::now();
                alive = outbox.push(&Message::KeepAlive).and_then(|()| outbox.flush());
            }
        };
        let digests = context.open(facts).and_then(|(offered_file, file)| match objects {
            None => {
                let mut waybill = context.hash_plan.whole_for_waybill();
                let digest = file_hasher.keyed(&file, ByteRange::between(0, facts.size()), |bytes| {
                    waybill.iter_mut().for_each(|hasher| hasher.update(bytes));
                    tick();
                })?;
                *offered_file.same.lock() = waybill.map(Hasher::finish);
                // Thousands of files may wait for the sink.
                offered_file.close();
                Ok(vec![digest])
            }
            Some(objects) => {
                let hash = |object: Object| {
                    let digest = file_hasher.keyed(&file, object.range, |_| tick())?;
                    offered_file.root.lock().tell(object.index, &digest);
                    Ok(digest)
                };
                objects.into_iter().map(hash).collect()
            }
        });
        self.pending_events.push(Event::Compared { lane: self.lane, file: facts.number, attempt, digests });
        alive
    }

    fn close(&mut self, facts: &Arc<NewFile>, attempt: u16, root: Option<Digest>) -> Result<(), LaneError> {
        let (context, number) = (self.context, facts.number);
        let close = match context.open(facts) {
            Ok((offered_file, file)) => match (self.final_check(&offered_file, &file)?, root) {
                (Close::Read { size, mtime, .. }, Some(root)) => {
                    Close::Read { size, mtime, root: Some(root) }
                }
                (close, _) => close,
            },
            Err(reason) => Close::Failed(reason),
        };
        self.pending_events.push(Event::Closed { lane: self.lane, file: number, attempt, close });
        Ok(())
    }

    /// Checks the file for the last time, after all data that counts for its digests was hashed.
    /// With holes, or if the file is read again, this can take long. Keep-alive messages are sent
    /// meanwhile.
    fn final_check(&mut self, offered_file: &OfferedFile, file: &OpenFile) -> Result<Close, LaneError> {
        let mut last_keep_alive = Instant::now();
        let mut alive = || {
            if last_keep_alive.elapsed() < KEEP_ALIVE_INTERVAL {
                return Ok(());
            }
            last_keep_alive = Instant::now();
            self.outbox.push(&Message::KeepAlive)?;
            self.outbox.flush()
        };
        let completed = self.context.complete(offered_file, file, &mut self.file_hasher, &mut alive)?;
        let now = match completed {
            Ok(()) => self.context.unchanged(offered_file, file, &mut self.file_hasher, alive)?,
            Err(reason) => Err(reason),
        };
        Ok(match now {
            Ok(()) => {
                let Stat { size, mtime, .. } = offered_file.item.facts;
                with_root(Close::Read { size, mtime: moment(mtime), root: None }, offered_file)
            }
            Err(reason) => Close::Failed(reason),
        })
    }
}

/// Returns the approximate cost of a piece of work, as a number of bytes read and sent. Work that
/// may take long weighs [`BATCH_WEIGHT`].
fn weight_of(work: &Work) -> u64 {
    let bytes = match work {
        Work::Whole { object, .. } => object.map_or(0, |object| object.range.len()),
        Work::Object { object, .. } => object.range.len(),
        Work::Compare { facts, objects, .. } => compared_bytes(facts, objects.as_deref()),
        Work::Close { .. } | Work::Done => BATCH_WEIGHT,
        Work::Send(_) | Work::Wait { .. } => 0,
    };
    bytes.max(WEIGHT_MIN)
}

/// Returns the number of bytes of these objects, or of the complete file.
fn compared_bytes(facts: &NewFile, objects: Option<&[Object]>) -> u64 {
    objects.map_or(facts.size(), |objects| objects.iter().map(|object| object.range.len()).sum())
}

/// Returns the first piece of `rest`: data, or a hole (`true`) of at most [`ZERO_BYTES_MAX`] bytes.
/// Searches for holes only if the file has any.
fn next_piece(file: &OpenFile, rest: ByteRange, has_holes: bool) -> (ByteRange, bool) {
    let data = match file {
        OpenFile::Stored(file) if has_holes => file.next_data(rest),
        _ => Ok(Some(rest)),
    };
    let hole = |end: u64| (ByteRange::between(rest.start.0, end.min(rest.start.0 + ZERO_BYTES_MAX)), true);
    let data = match data {
        Ok(None) => return hole(rest.end.0),
        Ok(Some(data)) if data.start > rest.start => return hole(data.start.0),
        Ok(Some(data)) => data,
        // The read reports the error.
        Err(_) => rest,
    };
    (ByteRange::between(rest.start.0, data.end.0.min(rest.end.0)), false)
}

/// Adds the digest of the whole file, if it was computed while sending.
fn with_root(close: Close, offered_file: &OfferedFile) -> Close {
    match close {
        Close::Read { size, mtime, root: None } => {
            let root = offered_file.root.lock();
            Close::Read { size, mtime, root: root.finish(size) }
        }
        other => other,
    }
}

impl SourceContext<'_> {
    /// Opens an announced file.
    ///
    /// # Errors
    /// Same as [`OfferedFile::open`]. Returns [`Why::Stopped`] if the machine has dropped the file
    /// meanwhile; events about it are then ignored.
    pub(super) fn open(&self, facts: &NewFile) -> Result<(Arc<OfferedFile>, OpenFile), Reason> {
        let offered_file = self.offered_file(facts.number).ok_or(Reason::from(Why::Stopped))?;
        let more = offered_file.set_sent_kind(facts, |size| self.hash_plan.root(size));
        self.session.tally.grew(more);
        let file = self.session.spent.storage.time(|| offered_file.open())?;
        Ok((offered_file, file))
    }
}
