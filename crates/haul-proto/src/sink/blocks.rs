//! Arrival of objects at the sink.

use super::file::{Stage, Writing};
use super::{Command, Receiving, Sink, Violation};
use crate::limits::ZERO_BYTES_MAX;
use crate::{
    BlockDigest, BlockReject, FileNumber, LaneId, Message, NewBlock, Reason, Stated, Unit, Verify, Why,
};
use haul_digest::Digest;
use haul_model::ObjectIndex;

impl Sink {
    /// Handles bytes of an object: they are written, or discarded if they are not wanted.
    pub(super) fn new_block(
        &mut self,
        lane: LaneId,
        block: &NewBlock,
        out: &mut Vec<Command>,
    ) -> Result<(), Violation> {
        if self.settings.short_blocks && block.payload == 0 && block.range.len() > ZERO_BYTES_MAX {
            return Err("a block of too many zeros");
        }
        let receiving = self.lanes.get(&lane).and_then(|state| state.receiving);
        let receiving = match receiving {
            Some(going) if going.file == block.number && going.object == block.object => {
                if going.at != block.range.start.0 || going.attempt != block.attempt {
                    return Err("a block that does not follow the previous one");
                }
                going
            }
            Some(_) => return Err("a block within another object"),
            None => self.begin_object(block, out)?,
        };
        // A file that ended, or started again, wants nothing more of this object.
        let file = self.files.get(&block.number).filter(|file| file.attempt == block.attempt);
        let file = file.filter(|file| file.stage == Stage::Open);
        let object = file.and_then(|file| file.object(block.object));
        if object.is_some_and(|object| block.range.end > object.range.end) {
            return Err("a block past the end of its object");
        }
        let is_wanted = receiving.is_wanted && object.is_some();
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.receiving = Some(Receiving { at: block.range.end.0, is_wanted, ..receiving });
        }
        out.push(match object.filter(|_| is_wanted) {
            Some(object) => Command::Write {
                file: block.number,
                attempt: block.attempt,
                object,
                range: block.range,
                encoding: block.encoding,
                payload: block.payload,
            },
            None => Command::Discard { payload: block.payload },
        });
        Ok(())
    }

    /// Handles the first block of an object and decides if the object is wanted.
    fn begin_object(&mut self, block: &NewBlock, out: &mut Vec<Command>) -> Result<Receiving, Violation> {
        let unwanted = Receiving {
            file: block.number,
            attempt: block.attempt,
            object: block.object,
            at: block.range.start.0,
            is_wanted: false,
        };
        if block.number.0 >= self.announced {
            return Err("a block of a file that was never announced");
        }
        let in_order = self.hashes_in_order();
        let Some(file) = self.files.get_mut(&block.number).filter(|file| file.attempt == block.attempt)
        else {
            return Ok(unwanted);
        };
        let Some(object) = file.object(block.object) else {
            return Err("an object past the end of its file");
        };
        if object.range.start != block.range.start {
            return Err("an object that does not start at its first byte");
        }
        if file.is_undecided(block.object.0) {
            return Err("an object before it was compared");
        }
        match file.stage {
            // The block arrived on a lane that the source has closed and this side has not.
            Stage::Opening | Stage::Finishing => return Ok(unwanted),
            Stage::Open => {}
        }
        let index = block.object.0;
        // Do not write an object that waits for its second read: the read would verify bytes that
        // no longer exist.
        if file.done.contains(index) || file.pairs.contains_key(&index) {
            return Ok(unwanted);
        }
        if let Some(writing) = file.writing.get_mut(&index) {
            writing.again = true;
            return Ok(unwanted);
        }
        if file.samples.contains(index) {
            self.restart(block.number, Reason::new(Why::Differs, "data of an earlier run"), out);
            return Ok(unwanted);
        }
        if in_order && (file.done.first_gap(0) != index || !file.writing.is_empty()) {
            // A lane was lost, and another lane brings its objects, while the running hash is at
            // another offset.
            self.restart(block.number, Reason::new(Why::LanesLost, "its objects arrived out of order"), out);
            return Ok(unwanted);
        }
        if !self.charge_entry(block.number) {
            self.fail(block.number, Why::Quota.into(), out);
            return Ok(unwanted);
        }
        let Some(file) = self.files.get_mut(&block.number) else { return Ok(unwanted) };
        let transferred = file.transferred.saturating_add(object.range.len()).min(file.may_transfer);
        let more = transferred.saturating_sub(file.charged);
        if self.quota.is_some_and(|quota| self.charged.saturating_add(more) > quota) {
            self.fail(block.number, Why::Quota.into(), out);
            return Ok(unwanted);
        }
        self.charged = self.charged.saturating_add(more);
        (file.charged, file.transferred) = (file.charged + more, transferred);
        file.writing.insert(index, Writing { again: false });
        Ok(Receiving { is_wanted: true, ..unwanted })
    }

    /// Handles BLOCK_DIGEST: the end of the object that the lane is receiving, or the digest of one
    /// that ended earlier.
    pub(super) fn object_end(
        &mut self,
        lane: LaneId,
        end: &BlockDigest,
        found: Option<Digest>,
        out: &mut Vec<Command>,
    ) -> Result<(), Violation> {
        if self.is_over() {
            return Ok(());
        }
        if end.number.0 >= self.announced {
            return Err("a digest of a file that was never announced");
        }
        let Some(state) = self.lanes.get_mut(&lane) else { return Ok(()) };
        let Some(receiving) = state.receiving.take() else {
            return self.digest_came_later(end, out);
        };
        if receiving.file != end.number || receiving.object != end.object || receiving.attempt != end.attempt
        {
            return Err("the end of another object");
        }
        let file = self.files.get_mut(&end.number).filter(|file| file.attempt == end.attempt);
        let Some(file) = file.filter(|file| file.stage == Stage::Open) else { return Ok(()) };
        let whole = file.object(end.object).is_some_and(|object| object.range.end.0 == receiving.at);
        if !receiving.is_wanted {
            let index = end.object.0;
            if file.done.contains(index) {
                // The object was present before; the source may not know that.
                let level = self.flight_level();
                self.queue_report(end.number, level, index);
            }
            return Ok(());
        }
        let writing = file.writing.remove(&end.object.0);
        if end.stated == Stated::Abandoned {
            if writing.is_some_and(|writing| writing.again) {
                self.reject(end.number, end.object, Why::Io.into(), out);
            }
            return Ok(());
        }
        if !whole {
            return Err("an object that ends too early");
        }
        self.arrived(end, found, out)
    }

    /// Handles an object of which all bytes are written.
    fn arrived(
        &mut self,
        end: &BlockDigest,
        found: Option<Digest>,
        out: &mut Vec<Command>,
    ) -> Result<(), Violation> {
        let options = &self.settings.options;
        let (verify, algorithm) = (options.verify, options.algorithm);
        match (end.stated, verify) {
            (Stated::Later, Verify::BlockPipeline) => {
                let Some(file) = self.files.get_mut(&end.number) else { return Ok(()) };
                file.pairs.insert(end.object.0, super::file::Pair::default());
                let object = file.object(end.object);
                out.push(Command::Rehash { file: end.number, attempt: end.attempt, object });
            }
            (Stated::Digest(stated), Verify::Stream | Verify::Reread | Verify::Hybrid)
                if self.settings.options.unit == Unit::Object =>
            {
                if stated.algorithm() != algorithm {
                    return Err("a digest of another algorithm");
                }
                if found == Some(stated) {
                    self.object_verified(end.number, end.object, Some(stated), out);
                } else {
                    self.reject(end.number, end.object, Why::Differs.into(), out);
                }
            }
            (_, _) if !self.compares_objects() => self.object_verified(end.number, end.object, None, out),
            _ => return Err("an object without its digest"),
        }
        Ok(())
    }

    /// Handles an object that equals what the source sent, as far as the job compares objects.
    pub(super) fn object_verified(
        &mut self,
        number: FileNumber,
        object: ObjectIndex,
        digest: Option<Digest>,
        out: &mut Vec<Command>,
    ) {
        let level = self.flight_level();
        let settles_above = self.settles_above();
        let Some(file) = self.files.get_mut(&number) else { return };
        file.done.insert(object.0);
        if file.is_scattered() {
            return self.fail(
                number,
                Reason::new(Why::Protocol, "its objects arrived in too many ranges"),
                out,
            );
        }
        let attempt = file.attempt;
        match file.object(object) {
            Some(object) if file.settles_objects(settles_above) => {
                out.push(Command::Settle { file: number, attempt, object, to: file.settle, digest });
            }
            Some(object) if file.has_several() => {
                out.push(Command::ObjectVerified { file: number, attempt, object });
            }
            _ => {}
        }
        if !(file.whole && file.geometry.count() == 1) {
            self.queue_report(number, level, object.0);
        }
        self.advance(number, out);
    }

    fn queue_report(&mut self, number: FileNumber, level: haul_model::Level, index: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            file.queue_report(level, index);
            let lane = file.home;
            self.syncs.insert((lane, number));
        }
    }

    /// Requests an object again.
    pub(super) fn reject(
        &mut self,
        number: FileNumber,
        object: ObjectIndex,
        reason: Reason,
        out: &mut Vec<Command>,
    ) {
        let retries_max = self.settings.retries;
        let Some(file) = self.files.get_mut(&number) else { return };
        file.pairs.remove(&object.0);
        let retries = file.retries.entry(object.0).or_insert(0);
        *retries += 1;
        if *retries > retries_max {
            return self.fail(number, Why::Differs.into(), out);
        }
        self.summary.again += 1;
        let (lane, attempt) = (file.home, file.attempt);
        // An object that is the same is known to the source only from COMPARED.
        let compared = file.next_compared(number);
        compared.into_iter().for_each(|compared| self.post(lane, compared));
        self.post(lane, Message::BlockReject(BlockReject { number, attempt, object: Some(object), reason }));
    }

    /// Handles the loss of the lane that was receiving an object.
    pub(super) fn object_lost(&mut self, receiving: &Receiving, out: &mut Vec<Command>) {
        let in_order = self.hashes_in_order();
        let file = self.files.get_mut(&receiving.file).filter(|file| file.attempt == receiving.attempt);
        let Some(file) = file.filter(|_| receiving.is_wanted) else { return };
        let Some(writing) = file.writing.remove(&receiving.object.0) else { return };
        if in_order {
            self.restart(receiving.file, Why::LanesLost.into(), out);
        } else if writing.again {
            self.reject(receiving.file, receiving.object, Why::LanesLost.into(), out);
        }
    }

    /// Handles the digest of a second read at the source (block-pipeline).
    fn digest_came_later(&mut self, end: &BlockDigest, out: &mut Vec<Command>) -> Result<(), Violation> {
        let file = self.files.get_mut(&end.number).filter(|file| file.attempt == end.attempt);
        let Some(file) = file else { return Ok(()) };
        let Stated::Digest(stated) = end.stated else {
            return Err("the end of an object that did not start");
        };
        let Some(pair) = file.pairs.get_mut(&end.object.0).filter(|pair| pair.stated.is_none()) else {
            return Ok(());
        };
        pair.stated = Some(stated);
        self.compare_pair(end.number, end.object, out);
        Ok(())
    }

    pub(super) fn rehashed(
        &mut self,
        number: FileNumber,
        attempt: u16,
        object: Option<ObjectIndex>,
        digest: Result<Digest, Reason>,
        out: &mut Vec<Command>,
    ) {
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == attempt) else { return };
        let digest = match digest {
            Ok(digest) => digest,
            Err(reason) => return self.fail(number, reason, out),
        };
        match object {
            None => {
                file.whole_pair.found = Some(digest);
                self.advance(number, out);
            }
            Some(object) => {
                if let Some(pair) = file.pairs.get_mut(&object.0) {
                    pair.found = Some(digest);
                    self.compare_pair(number, object, out);
                }
            }
        }
    }

    fn compare_pair(&mut self, number: FileNumber, object: ObjectIndex, out: &mut Vec<Command>) {
        let Some(file) = self.files.get_mut(&number) else { return };
        let Some(pair) = file.pairs.get(&object.0).copied() else { return };
        let Some(agree) = pair.agree() else { return };
        file.pairs.remove(&object.0);
        if agree {
            self.object_verified(number, object, pair.stated, out);
        } else {
            self.reject(number, object, Why::Differs.into(), out);
        }
    }

    pub(super) fn settle_failed(
        &mut self,
        number: FileNumber,
        attempt: u16,
        object: ObjectIndex,
        reason: Option<Reason>,
        out: &mut Vec<Command>,
    ) {
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == attempt) else { return };
        match reason {
            Some(reason) => self.fail(number, reason, out),
            None => {
                file.done.remove(object.0);
                file.settled.remove(object.0);
                for runs in file.syncs.values_mut() {
                    runs.remove(object.0);
                }
                self.reject(
                    number,
                    object,
                    Reason::new(Why::Differs, "the read-back from the device differs"),
                    out,
                );
            }
        }
    }
}
