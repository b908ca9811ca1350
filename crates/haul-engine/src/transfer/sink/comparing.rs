//! Comparison tasks: hash an existing file of the sink, and compare it with digests of the source,
//! so that the source sends only the differences.
//!
//! The worker waits for the source, which states the digests. No other task runs on its thread.

use super::SinkContext;
use super::incoming::{Base, IncomingFile};
use super::tasks::Compare;
use crate::pipeline::BLOCK_BYTES;
use crate::transfer::file_hasher::FileHasher;
use crate::transfer::monitor::{Reply, WaitKey};
use haul_digest::{Digest, Hasher, KeyedDigest};
use haul_model::limits::OBJECT_BYTES_MIN;
use haul_model::{ByteLen, ByteRange, Geometry, Object};
use haul_proto::sink::{Event, Verdict};
use haul_proto::{FileNumber, Reason};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Reader of the local file that a comparison takes objects from.
struct BaseReader<'a, 'h> {
    file_hasher: &'a mut FileHasher<'h>,
    block: Vec<u8>,
}

impl SinkContext<'_> {
    /// Runs comparison tasks until the session ends.
    pub(super) fn run_comparing(&self) {
        let mut file_hasher =
            FileHasher::new(self.hash_plan.clone(), &self.session.spent, &self.session.over);
        while let Some(task) = self.tasks.comparing.next() {
            match task {
                Compare::Whole { file } => self.hash_existing(file, &mut file_hasher),
                Compare::Objects { file } => self.compare_objects(file, &mut file_hasher),
            }
        }
    }

    fn hash_existing(&self, file: FileNumber, file_hasher: &mut FileHasher<'_>) {
        let Some(incoming) = self.incoming(file) else { return };
        let size = incoming.facts.size();
        let mut waybill = self.hash_plan.whole_for_waybill();
        let existing = incoming.existing(&self.destination.dirs).ok().flatten();
        let digest = existing.filter(|existing| existing.opened().size == size).and_then(|existing| {
            let update = |bytes: &[u8]| waybill.iter_mut().for_each(|hasher| hasher.update(bytes));
            file_hasher.keyed(&*existing, ByteRange::between(0, size), update).ok()
        });
        *incoming.existing_digest.lock() = waybill.map(Hasher::finish);
        // A file that cannot be read is sent again.
        self.handle(Event::OwnDigest { file, digest });
    }

    fn compare_objects(&self, file: FileNumber, file_hasher: &mut FileHasher<'_>) {
        let Some(incoming) = self.incoming(file) else { return };
        let (have, samples) = incoming.comparison();
        let size = incoming.facts.size();
        let geometry = Geometry::new(ByteLen(size), self.options.object);
        let is_hidden = self.destination.is_hidden;
        let present = |file: Option<u64>| file.map_or(0, |len| objects_in(len, geometry, is_hidden));
        let existing = present(incoming.compared_len(&self.destination.dirs));
        let sampled = incoming.sampled_len().map(|len| present(Some(len)));
        let end = existing.max(sampled.unwrap_or(0));
        if end == 0 {
            return self.handle(self.opened(file, Verdict::Take { have }, size));
        }
        let differing = Verdict::Differing { have, end, samples: samples.clone() };
        self.handle(self.opened(file, differing, size));
        let mut reader = BaseReader { file_hasher, block: vec![0; BLOCK_BYTES] };
        loop {
            self.wait_for_settling();
            let next = self.session.monitor.ask(|machine, now| match machine.next_stated(file) {
                Some(next) => Reply::Ready(Some(next)),
                None if machine.is_over() || !machine.compares(file) => Reply::Ready(None),
                None => Reply::Wait(WaitKey::Digests(file), now + Duration::from_secs(1)),
            });
            let Some((attempt, object, stated)) = next else { return };
            let index = object.index.0;
            let end = sampled.filter(|_| samples.contains(index)).unwrap_or(existing);
            let same = match incoming.base_at(object.range.start).filter(|_| index < end) {
                Some(base) => self.same(&incoming, &base, attempt, object, stated, &mut reader),
                None => Ok(None),
            };
            self.handle(match same {
                Ok(same) => Event::Compared { file, attempt, object: object.index, same },
                Err(reason) => {
                    incoming.record_failure(&reason);
                    Event::WriteFailed { file, reason }
                }
            });
        }
    }

    /// Waits while too many objects wait to be settled. The settling worker waits only for storage.
    fn wait_for_settling(&self) {
        let is_over = || self.session.over.load(Ordering::Relaxed);
        while !is_over() && !self.tasks.settling.wait_for_capacity(Duration::from_secs(1)) {}
    }

    /// Takes over an object from the local file `base` if its digest is the one that the source
    /// stated. Returns its digest by the algorithm of the job, if the job compares objects, or
    /// `None` if it differs or cannot be read.
    fn same(
        &self,
        incoming: &IncomingFile,
        base: &Base,
        attempt: u16,
        object: Object,
        stated: KeyedDigest,
        reader: &mut BaseReader<'_, '_>,
    ) -> Result<Option<Option<Digest>>, Reason> {
        let BaseReader { file_hasher, block } = reader;
        // Copy no bytes that the source sends again.
        if !base.is_partial_file && file_hasher.keyed(&*base.file, object.range, |_| ()) != Ok(stated) {
            return Ok(None);
        }
        let partial_file = incoming.partial_file_for(&self.destination.dirs, attempt, &self.session.over)?;
        let mut hash = incoming.begin(attempt, object);
        // The bytes may have changed since they were read first.
        let mut found = self.hash_plan.key().hasher();
        let stays = self.session.spent.storage.time(|| {
            incoming.take_equal_range(base, &partial_file, object.range, block, &self.session.over, |bytes| {
                found.update(bytes);
                hash.update(bytes);
            })
        })?;
        let Some(stays) = stays.filter(|_| found.finish() == stated) else { return Ok(None) };
        let sums = hash.finish();
        let digest = self.hash_plan.object_digest(&sums);
        incoming.root.lock().add(attempt, object, sums);
        if stays && self.counts_as_received() {
            self.session.reused_bytes.fetch_add(object.range.len(), Ordering::Relaxed);
        }
        Ok(Some(digest))
    }
}

/// Returns the number of objects, from the first, that a local file of `len` bytes has in their
/// full length.
///
/// The last object counts only if the local file ends with it. Otherwise a source could announce a
/// longer and longer beginning of a file, and guess it byte by byte. If the file is hidden from the
/// source, a last object that is short enough to be guessed does not count either, unless it is the
/// only one.
fn objects_in(len: u64, geometry: Geometry, is_hidden: bool) -> u64 {
    let (whole, object) = (geometry.len(), geometry.object_size().bytes());
    let is_guessable = is_hidden && whole > object && whole % object < OBJECT_BYTES_MIN;
    if len == whole && !is_guessable { geometry.count() } else { len.min(whole) / object }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::ObjectSize;

    #[test]
    fn the_last_object_is_compared_only_if_both_files_end_with_it() {
        let object = ObjectSize::new(64 << 10).unwrap();
        let geometry = |len: u64| Geometry::new(ByteLen(len), object);
        for (announced, own, objects) in [
            (1, 8, 0),
            (8, 8, 1),
            (8, 1, 0),
            (65_536, 65_537, 1),
            (65_537, 65_538, 1),
            (65_537, 65_537, 2),
            (131_072, 131_071, 1),
            (131_073, 200_000, 2),
            (0, 0, 0),
            (0, 5, 0),
            (5, 0, 0),
        ] {
            assert_eq!(objects_in(own, geometry(announced), false), objects, "{announced} of {own} bytes");
        }
        for (own, objects) in [(8, 1), (65_536, 1), (65_537, 1), (131_072, 2), (131_073, 2)] {
            assert_eq!(objects_in(own, geometry(own), true), objects, "hidden, {own} bytes");
        }
    }
}
