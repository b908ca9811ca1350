//! Worker of a lane at the sink: reads messages, writes and hashes the data, and executes the
//! commands of the machine.

use super::Side;
use super::incoming::Incoming;
use crate::transfer::frames::{FrameError, Frames};
use crate::transfer::hashing::ObjectHash;
use crate::transfer::packing::Unpacker;
use crate::transfer::reason::reason;
use haul_digest::Digest;
use haul_model::{ByteRange, Object};
use haul_proto::sink::{Command, Event};
use haul_proto::{BlockDigest, Encoding, FileNumber, LaneId, Message, Reason, Verify, Why};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Number of bytes that are read from the lane, hashed and written at a time. They stay in the
/// second-level cache meanwhile.
const BLOCK_BYTES: usize = 256 << 10;

/// The worker of one lane.
pub(super) struct Taker<'a> {
    side: &'a Side<'a>,
    lane: LaneId,
    frames: Frames,
    unpacker: Unpacker,
    block: Vec<u8>,
    under_way: Option<UnderWay>,
    /// Time of the first change of the machine for which no thread was woken yet.
    untold: Option<Instant>,
}

/// The object being received.
struct UnderWay {
    number: FileNumber,
    attempt: u16,
    object: Object,
    hash: ObjectHash,
    file: Option<Arc<Incoming>>,
}

impl<'a> Taker<'a> {
    pub(super) fn new(side: &'a Side<'a>, lane: LaneId, frames: Frames) -> Taker<'a> {
        let (unpacker, block) = (Unpacker::default(), vec![0; BLOCK_BYTES]);
        Taker { side, lane, frames, unpacker, block, under_way: None, untold: None }
    }

    /// Processes messages until the end of the lane.
    ///
    /// # Errors
    /// Returns the error of the lane.
    pub(super) fn run(&mut self) -> Result<(), FrameError> {
        loop {
            if self.is_time_to_wake() || !self.frames.has_next() {
                self.wake();
            }
            self.wait_for_storage();
            let Some(message) = self.frames.next()? else { return Ok(()) };
            let event = match message {
                Message::BlockDigest(end) => {
                    let found = self.object_ended(&end);
                    Event::ObjectEnd { lane: self.lane, end: *end, found }
                }
                message => {
                    self.side.session.came(&message);
                    Event::Message(self.lane, message)
                }
            };
            self.handle(event)?;
        }
    }

    /// Passes an event to the machine and executes its commands.
    fn handle(&mut self, event: Event) -> Result<(), FrameError> {
        for command in self.tell(event) {
            let event = match command {
                Command::Write { file, attempt, object, range, encoding, payload } => {
                    self.write(file, attempt, object, range, encoding, payload)?
                }
                Command::Discard { payload } => {
                    self.under_way = None;
                    self.wake();
                    self.frames.skip(u64::from(payload))?;
                    None
                }
                other => self.side.obey(other),
            };
            if let Some(event) = event {
                self.handle(event)?;
            }
        }
        Ok(())
    }

    /// Passes an event to the machine. Other threads are woken by [`Taker::wake`], at the latest
    /// when this worker waits for the lane.
    fn tell(&mut self, event: Event) -> Vec<Command> {
        self.untold.get_or_insert_with(Instant::now);
        let mut commands = Vec::new();
        self.side.session.meeting.quietly(|machine, now| machine.handle(event, now, &mut commands));
        commands
    }

    /// Waits while two groups wait for the log, or while too many objects wait to be settled.
    /// Reports progress of the lane meanwhile.
    fn wait_for_storage(&mut self) {
        let side = self.side;
        let log = side.log.as_ref().filter(|log| log.is_full());
        let settling = Some(&side.tasks.settling).filter(|settling| settling.is_full());
        if log.is_none() && settling.is_none() {
            return;
        }
        self.wake();
        let begin = Instant::now();
        // The threads that make space end with the session.
        let is_over = || side.session.over.load(Ordering::Relaxed);
        let has_room = || {
            log.is_none_or(|log| log.makes_room(REPORT_EVERY))
                && settling.is_none_or(|settling| settling.makes_room(REPORT_EVERY))
        };
        while !is_over() && !has_room() {
            side.handle(Event::Progress(self.lane));
        }
        side.session.spent.storage.add(begin.elapsed());
    }

    /// Wakes the threads that wait for the changes of the machine.
    fn wake(&mut self) {
        if self.untold.take().is_some() {
            self.side.session.meeting.wake();
        }
    }

    fn is_time_to_wake(&self) -> bool {
        self.untold.is_some_and(|since| since.elapsed() > WAKE_WITHIN)
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
        let is_same = |known: &UnderWay| {
            known.number == number && known.attempt == attempt && known.object.index == object.index
        };
        if range.start == object.range.start || !self.under_way.as_ref().is_some_and(is_same) {
            let file = self.side.incoming(number);
            let size = file.as_ref().map_or(0, |file| file.facts.size());
            if let Some(file) = &file
                && object.range.start.0 == 0
            {
                file.root.lock().unwrap_or_else(PoisonError::into_inner).begin_again();
            }
            let hash = self.side.recipe.object(object, size);
            self.under_way = Some(UnderWay { number, attempt, object, hash, file });
        }
        let written = match encoding {
            Encoding::Raw => self.raw(range)?,
            Encoding::Zeros | Encoding::Hole => self.zeros(range),
            Encoding::Same => self.same(range),
            Encoding::Zstd => self.packed(range, payload as usize)?,
        };
        Ok(written.err().map(|reason| {
            if let Some(UnderWay { file: Some(file), .. }) = &self.under_way {
                file.fails_for(&reason);
            }
            self.under_way = None;
            Event::WriteFailed { file: number, reason }
        }))
    }

    /// Receives payload that is not packed. Reads it from the lane even if it cannot be written.
    fn raw(&mut self, range: ByteRange) -> Result<Result<(), Reason>, FrameError> {
        let side = self.side;
        if usize::try_from(range.len()).map_or(true, |len| !self.frames.has_payload(len)) {
            self.wake();
        }
        let Some(UnderWay { hash, file, attempt, .. }) = &mut self.under_way else {
            self.frames.skip(range.len())?;
            return Ok(Ok(()));
        };
        let begin = Instant::now();
        let mut arriving = match file {
            Some(file) => file.arriving_of(&side.store.places, *attempt),
            None => Err(Why::Stopped.into()),
        };
        side.session.spent.storage.add(begin.elapsed());
        let mut at = range.start.0;
        let mut reported = Instant::now();
        while at < range.end.0 {
            let len = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(BLOCK_BYTES);
            let block = &mut self.block[..len];
            self.frames.payload(block)?;
            let begin = Instant::now();
            hash.update(block);
            if let Some(file) = file {
                file.root.lock().unwrap_or_else(PoisonError::into_inner).update(block);
            }
            let hashed = Instant::now();
            side.session.spent.hashing.add(hashed - begin);
            if let Ok(open) = &arriving {
                if let Err(error) = open.write(at, block) {
                    arriving = Err(reason(&format!("cannot write at byte {at}"), &error));
                }
                side.session.spent.storage.add(hashed.elapsed());
            }
            at += len as u64;
            if reported.elapsed() > REPORT_EVERY {
                reported = Instant::now();
                side.handle(Event::Progress(self.lane));
            }
        }
        Ok(arriving.map(drop))
    }

    /// Receives packed payload. A frame that cannot be unpacked to exactly this range was damaged
    /// or forged. Zeros replace it, so that the digest differs and the object is requested again.
    /// If the job compares nothing, the file fails.
    fn packed(&mut self, range: ByteRange, payload: usize) -> Result<Result<(), Reason>, FrameError> {
        let side = self.side;
        if !self.frames.has_payload(payload) {
            self.wake();
        }
        self.frames.payload(self.unpacker.room(payload))?;
        let Some(UnderWay { hash, file: Some(file), attempt, .. }) = &mut self.under_way else {
            return Ok(Ok(()));
        };
        let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
        if self.block.len() < len {
            self.block.resize(len, 0);
        }
        let block = &mut self.block[..len];
        let begin = Instant::now();
        let unpacked = self.unpacker.unpack(block);
        side.session.spent.packing.add(begin.elapsed());
        match unpacked {
            Ok(()) => {}
            Err(error) if side.options.verify == Verify::None => {
                return Ok(Err(Reason::new(Why::Differs, &error.to_string())));
            }
            Err(_) => return Ok(self.zeros(range)),
        }
        side.session.spent.packed(len, payload);
        let begin = Instant::now();
        hash.update(block);
        file.root.lock().unwrap_or_else(PoisonError::into_inner).update(block);
        let hashed = Instant::now();
        side.session.spent.hashing.add(hashed - begin);
        let written = file.arriving_of(&side.store.places, *attempt).and_then(|arriving| {
            let at = range.start.0;
            arriving.write(at, block).map_err(|error| reason(&format!("cannot write at byte {at}"), &error))
        });
        side.session.spent.storage.add(hashed.elapsed());
        Ok(written)
    }

    /// Receives a range of zeros, which need not be written in a new file.
    fn zeros(&mut self, range: ByteRange) -> Result<(), Reason> {
        let side = self.side;
        let Some(UnderWay { hash, file: Some(file), attempt, .. }) = &mut self.under_way else {
            return Ok(());
        };
        side.session.spent.hashing.time(|| {
            hash.update_zeros(range.len());
            file.root.lock().unwrap_or_else(PoisonError::into_inner).update_zeros(range.len());
        });
        side.session.spent.storage.time(|| {
            let arriving = file.arriving_of(&side.store.places, *attempt)?;
            // A hole at the end does not extend the file, which must be long enough to be read
            // back.
            let made = arriving.clear(range).and_then(|()| arriving.grow_to(file.facts.size()));
            made.map_err(|error| reason("cannot punch a hole", &error))
        })
    }

    fn same(&mut self, range: ByteRange) -> Result<(), Reason> {
        let side = self.side;
        let Some(UnderWay { hash, file: Some(file), attempt, .. }) = &mut self.under_way else {
            return Ok(());
        };
        let arriving = file.arriving_of(&side.store.places, *attempt)?;
        let root = &file.root;
        let (begin, mut hashing) = (Instant::now(), Duration::ZERO);
        let stays = file.keep_same(&arriving, range, &mut self.block, |bytes| {
            let begin = Instant::now();
            hash.update(bytes);
            root.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
            hashing += begin.elapsed();
        });
        side.session.spent.hashing.add(hashing);
        side.session.spent.storage.add(begin.elapsed().saturating_sub(hashing));
        let stays = stays?;
        if stays && side.goes_on() {
            side.session.spared.fetch_add(range.len(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the digest of the received object, if it is the object that ends.
    fn object_ended(&mut self, end: &BlockDigest) -> Option<Digest> {
        let is_it = |known: &UnderWay| {
            known.number == end.number && known.attempt == end.attempt && known.object.index == end.object
        };
        let under_way = self.under_way.take().filter(is_it)?;
        let begin = Instant::now();
        let (digest, passed) = under_way.hash.finish();
        if let Some(file) = &under_way.file {
            let mut root = file.root.lock().unwrap_or_else(PoisonError::into_inner);
            root.add(under_way.attempt, under_way.object, passed);
        }
        self.side.session.spent.hashing.add(begin.elapsed());
        digest.filter(|_| self.side.recipe.states_objects())
    }
}

/// Interval at which a lane that receives a long object reports progress.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Maximum delay before other threads are woken while a worker has more messages to process.
const WAKE_WITHIN: Duration = Duration::from_millis(5);
