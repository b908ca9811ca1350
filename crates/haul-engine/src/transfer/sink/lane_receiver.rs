//! Worker of a lane at the sink: reads messages, writes and hashes the data, and executes the
//! commands of the machine.

use super::SinkContext;
use super::incoming::IncomingFile;
use crate::pipeline::BLOCK_BYTES;
use crate::transfer::packing::Unpacker;
use crate::transfer::reason::reason;
use haul_digest::{Digest, ObjectDigest, Recipe};
use haul_model::{ByteRange, Object};
use haul_net::{FrameError, FrameReader};
use haul_proto::limits::ZERO_BYTES_MAX;
use haul_proto::sink::{Command, Event};
use haul_proto::{BlockDigest, Encoding, FileNumber, LaneId, Message, Reason, Stated, Verify, Why};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The worker of one lane.
pub(super) struct LaneReceiver<'a> {
    context: &'a SinkContext<'a>,
    lane: LaneId,
    frames: Box<dyn FrameReader>,
    unpacker: Unpacker,
    block: Vec<u8>,
    current: Option<CurrentObject<'a>>,
    /// Time of the first change of the machine for which no thread was woken yet.
    unnotified_since: Option<Instant>,
}

/// The object being received.
struct CurrentObject<'a> {
    number: FileNumber,
    attempt: u16,
    object: Object,
    hash: ObjectDigest,
    file: Option<Arc<IncomingFile>>,
    unverified: UnverifiedBytes<'a>,
}

/// Bytes of an object that count as unverified until this is dropped.
struct UnverifiedBytes<'a> {
    total: &'a AtomicU64,
    bytes: u64,
}

impl UnverifiedBytes<'_> {
    fn add(&mut self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for UnverifiedBytes<'_> {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<'a> LaneReceiver<'a> {
    pub(super) fn new(
        context: &'a SinkContext<'a>,
        lane: LaneId,
        frames: Box<dyn FrameReader>,
    ) -> LaneReceiver<'a> {
        let (unpacker, block) = (Unpacker::default(), vec![0; BLOCK_BYTES]);
        LaneReceiver { context, lane, frames, unpacker, block, current: None, unnotified_since: None }
    }

    /// Processes messages until the end of the lane.
    ///
    /// # Errors
    /// Returns the error of the lane.
    pub(super) fn run(&mut self) -> Result<(), FrameError> {
        loop {
            if self.is_notify_due() || !self.frames.has_next() {
                self.notify_waiters();
            }
            self.wait_for_storage();
            let Some(message) = self.frames.next()? else { return Ok(()) };
            let event = match message {
                Message::BlockDigest(end) => {
                    let found = self.object_ended(&end);
                    Event::ObjectEnd { lane: self.lane, end: *end, found }
                }
                message => {
                    self.context.session.record_received(&message);
                    Event::Message(self.lane, message)
                }
            };
            self.handle(event)?;
        }
    }

    /// Passes an event to the machine and executes its commands.
    fn handle(&mut self, event: Event) -> Result<(), FrameError> {
        for command in self.dispatch(event) {
            let event = match command {
                Command::Write { file, attempt, object, range, encoding, payload } => {
                    self.write(file, attempt, object, range, encoding, payload)?
                }
                Command::Discard { payload } => {
                    self.current = None;
                    self.notify_waiters();
                    self.frames.skip(u64::from(payload))?;
                    None
                }
                other => self.context.execute(other),
            };
            if let Some(event) = event {
                self.handle(event)?;
            }
        }
        Ok(())
    }

    /// Passes an event to the machine. Other threads are woken by [`LaneReceiver::notify_waiters`],
    /// at the latest when this worker waits for the lane.
    fn dispatch(&mut self, event: Event) -> Vec<Command> {
        self.unnotified_since.get_or_insert_with(Instant::now);
        let mut commands = Vec::new();
        self.context.session.monitor.update_quietly(|machine, now| machine.handle(event, now, &mut commands));
        commands
    }

    /// Waits while two groups wait for the log, or while too many objects wait to be settled.
    /// Reports progress of the lane meanwhile.
    fn wait_for_storage(&mut self) {
        let context = self.context;
        let log = context.log.as_ref().filter(|log| log.is_full());
        let settling = Some(&context.tasks.settling).filter(|settling| settling.is_full());
        if log.is_none() && settling.is_none() {
            return;
        }
        self.notify_waiters();
        let begin = Instant::now();
        // The threads that make space end with the session.
        let is_over = || context.session.over.load(Ordering::Relaxed);
        let has_room = || {
            log.is_none_or(|log| log.wait_for_capacity(REPORT_EVERY))
                && settling.is_none_or(|settling| settling.wait_for_capacity(REPORT_EVERY))
        };
        while !is_over() && !has_room() {
            context.handle(Event::Progress(self.lane));
        }
        context.session.spent.storage.add(begin.elapsed());
    }

    /// Wakes the threads that wait for the changes of the machine.
    fn notify_waiters(&mut self) {
        if self.unnotified_since.take().is_some() {
            self.context.session.monitor.notify();
        }
    }

    fn is_notify_due(&self) -> bool {
        self.unnotified_since.is_some_and(|since| since.elapsed() > NOTIFY_DELAY_MAX)
    }

    fn write(
        &mut self,
        number: FileNumber,
        attempt: u16,
        object: Object,
        range: ByteRange,
        encoding: Encoding,
        payload: u32,
    ) -> Result<Option<Event>, FrameError> {
        let is_same = |known: &CurrentObject<'_>| {
            known.number == number && known.attempt == attempt && known.object.index == object.index
        };
        if range.start == object.range.start || !self.current.as_ref().is_some_and(is_same) {
            let file = self.context.incoming(number);
            // Without a file, the bytes are not kept.
            let hash = match &file {
                Some(file) => file.begin(attempt, object),
                None => Recipe::default().object(object, false),
            };
            let unverified = UnverifiedBytes { total: &self.context.session.tally.unverified, bytes: 0 };
            self.current = Some(CurrentObject { number, attempt, object, hash, file, unverified });
        }
        if let Some(current) = &mut self.current {
            current.unverified.add(range.len());
        }
        let written = match encoding {
            Encoding::Raw => self.raw(range)?,
            Encoding::Zeros | Encoding::Hole => self.zeros(range),
            Encoding::Zstd => self.packed(range, payload as usize)?,
        };
        Ok(written.err().map(|reason| {
            if let Some(CurrentObject { file: Some(file), .. }) = &self.current {
                file.record_failure(&reason);
            }
            self.current = None;
            Event::WriteFailed { file: number, reason }
        }))
    }

    /// Receives payload that is not packed. Reads it from the lane even if it cannot be written.
    fn raw(&mut self, range: ByteRange) -> Result<Result<(), Reason>, FrameError> {
        let context = self.context;
        if usize::try_from(range.len()).map_or(true, |len| !self.frames.has_payload(len)) {
            self.notify_waiters();
        }
        let Some(CurrentObject { hash, file, attempt, .. }) = &mut self.current else {
            self.frames.skip(range.len())?;
            return Ok(Ok(()));
        };
        let begin = Instant::now();
        let mut partial_file = match file {
            Some(file) => file.partial_file_for(&context.destination.dirs, *attempt, &context.session.over),
            None => Err(Why::Stopped.into()),
        };
        context.session.spent.storage.add(begin.elapsed());
        let mut at = range.start.0;
        while at < range.end.0 {
            let len = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(BLOCK_BYTES);
            let block = &mut self.block[..len];
            self.frames.payload(block)?;
            let begin = Instant::now();
            hash.update(block);
            let hashed = Instant::now();
            context.session.spent.hashing.add(hashed - begin);
            if let Ok(open) = &partial_file {
                if let Err(error) = open.file.write_at(at, block) {
                    partial_file = Err(reason(&format!("cannot write at byte {at}"), &error));
                }
                context.session.spent.storage.add(hashed.elapsed());
            }
            at += len as u64;
        }
        Ok(partial_file.map(drop))
    }

    /// Receives packed payload. A frame that cannot be unpacked to exactly this range was damaged
    /// or forged. Zeros replace it, so that the digest differs and the object is requested again.
    /// If the job compares nothing, the file fails.
    fn packed(&mut self, range: ByteRange, payload: usize) -> Result<Result<(), Reason>, FrameError> {
        let context = self.context;
        if !self.frames.has_payload(payload) {
            self.notify_waiters();
        }
        self.frames.payload(self.unpacker.room(payload))?;
        let Some(CurrentObject { hash, file: Some(file), attempt, .. }) = &mut self.current else {
            return Ok(Ok(()));
        };
        let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
        if self.block.len() < len {
            self.block.resize(len, 0);
        }
        let block = &mut self.block[..len];
        let begin = Instant::now();
        let unpacked = self.unpacker.unpack(block);
        context.session.spent.packing.add(begin.elapsed());
        match unpacked {
            Ok(()) => {}
            Err(error) if context.options.verify == Verify::None => {
                return Ok(Err(Reason::new(Why::Differs, &error.to_string())));
            }
            Err(_) => return Ok(self.zeros(range)),
        }
        context.session.spent.packed(len, payload);
        let begin = Instant::now();
        hash.update(block);
        let hashed = Instant::now();
        context.session.spent.hashing.add(hashed - begin);
        let written = file
            .partial_file_for(&context.destination.dirs, *attempt, &context.session.over)
            .and_then(|partial_file| {
                let at = range.start.0;
                partial_file
                    .file
                    .write_at(at, block)
                    .map_err(|error| reason(&format!("cannot write at byte {at}"), &error))
            });
        context.session.spent.storage.add(hashed.elapsed());
        Ok(written)
    }

    /// Receives a range of zeros, which need not be written in a new file. A frame without payload
    /// can announce a terabyte, so the work is done in steps, and ends with the session.
    fn zeros(&mut self, range: ByteRange) -> Result<(), Reason> {
        let context = self.context;
        let Some(CurrentObject { hash, file: Some(file), attempt, .. }) = &mut self.current else {
            return Ok(());
        };
        let storage = &context.session.spent.storage;
        let partial_file = storage.time(|| {
            let partial_file =
                file.partial_file_for(&context.destination.dirs, *attempt, &context.session.over)?;
            // A hole at the end does not extend the file, which must be long enough to be read
            // back.
            let grown = partial_file.grow_to(file.facts.size());
            grown.map(|()| partial_file).map_err(|error| reason("cannot punch a hole", &error))
        })?;
        // This is no progress of the lane: a peer that has left must become silent.
        for step in range.steps(ZERO_BYTES_MAX) {
            if context.session.over.load(Ordering::Relaxed) {
                return Err(Why::Stopped.into());
            }
            context.session.spent.hashing.time(|| hash.zeros(step.len()));
            storage
                .time(|| partial_file.file.clear(step, &context.session.over))
                .map_err(|error| reason("cannot punch a hole", &error))?;
        }
        Ok(())
    }

    /// Returns the digest of the received object, if it is the object that ends.
    fn object_ended(&mut self, end: &BlockDigest) -> Option<Digest> {
        let is_it = |known: &CurrentObject<'_>| {
            known.number == end.number && known.attempt == end.attempt && known.object.index == end.object
        };
        let current = self.current.take().filter(is_it)?;
        let begin = Instant::now();
        let file = current.file?;
        let sums = current.hash.finish();
        let digest = self.context.hash_plan.object_digest(&sums);
        if end.stated != Stated::Abandoned {
            let mut root = file.root.lock();
            root.add(current.attempt, current.object, sums);
        }
        self.context.session.spent.hashing.add(begin.elapsed());
        digest
    }
}

/// Interval at which a lane that receives a long object reports progress.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Maximum delay before other threads are woken while a worker has more messages to process.
const NOTIFY_DELAY_MAX: Duration = Duration::from_millis(5);
