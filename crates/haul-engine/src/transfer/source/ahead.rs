//! Objects that a lane's worker reads and hashes before it sends them, several at once: of a serial digest the bytes of one object wait
//! for each other, and those of several share a register.

use super::Side;
use haul_digest::Digest;
use haul_digest::lanes::{LaneAlgorithm, Streams};
use haul_model::Object;
use haul_proto::source::Work;
use haul_proto::{FileNumber, NewFile, Source};
use haul_sys::transfer;
use std::time::Instant;

/// Objects at once at most: more gain little, and wait in memory.
const WIDTH_MAX: usize = 4;

/// The part of the job's buffers that objects which wait so may take in all lanes together.
const SHARE_OF_BUFFERS: u64 = 4;

/// Bytes between two objects in memory, so that they don't contend for the same places of the first-level cache.
const GAP_BYTES: usize = 64;

/// What one worker has read ahead.
pub(super) struct Ahead {
    /// How it is hashed; `None` where nothing is gained.
    lanes: Option<LaneAlgorithm>,
    streams: Option<Streams>,
    /// The objects' bytes, each object's at a multiple of `stride`.
    bytes: Vec<u8>,
    stride: usize,
    objects: Vec<Known>,
}

/// An object that was read and hashed.
struct Known {
    number: FileNumber,
    object: Object,
    digest: Digest,
}

impl Ahead {
    /// Of a worker of this side.
    pub(super) fn new(side: &Side<'_>) -> Ahead {
        let lanes = LaneAlgorithm::of(side.recipe.algorithm()).filter(|_| side.recipe.states_objects());
        let len = usize::try_from(side.options.object.bytes()).unwrap_or(usize::MAX - GAP_BYTES);
        let stride = len + GAP_BYTES;
        Ahead { lanes, streams: None, bytes: Vec::new(), stride, objects: Vec::new() }
    }

    /// Whether a worker who has taken so much should take one more object, so that more are hashed at once.
    pub(super) fn wants_more(&self, taken: &[Work], machine: &Source) -> bool {
        let width = self.width(machine.lanes(), machine.window().bytes);
        taken.len() < width
            && taken.iter().all(|work| new_object(work).is_some())
            && machine.has_for_each_lane(width as u64)
    }

    /// How many objects go at once beside other lanes that do the same, of a job with so many bytes of buffers; 0 where nothing is gained.
    fn width(&self, lanes: usize, buffers: u64) -> usize {
        let Some(algorithm) = self.lanes else { return 0 };
        let len = (self.stride - GAP_BYTES) as u64;
        let share = buffers / SHARE_OF_BUFFERS / len / lanes.max(1) as u64;
        let width = usize::try_from(share).unwrap_or(WIDTH_MAX).min(WIDTH_MAX);
        if width < algorithm.pays_from() { 0 } else { width }
    }

    /// Reads and hashes the objects among `works` at once, where they are enough, and forgets the earlier ones. If one can't be read as
    /// it was announced none is kept: each is read again when it is sent, and that one fails then.
    pub(super) fn read(&mut self, side: &Side<'_>, works: &[Work]) {
        self.objects.clear();
        let Some(algorithm) = self.lanes else { return };
        let wanted: Vec<_> = works.iter().filter_map(new_object).collect();
        if !(algorithm.pays_from()..=WIDTH_MAX).contains(&wanted.len()) {
            return;
        }
        self.bytes.resize(self.bytes.len().max(wanted.len() * self.stride), 0);
        let begin = Instant::now();
        let mut places = self.bytes.chunks_exact_mut(self.stride);
        let are_read = wanted.iter().all(|(facts, object)| {
            places.next().is_some_and(|place| fill(side, facts.number, *object, place).is_some())
        });
        let read = Instant::now();
        side.session.spent.storage.add(read - begin);
        if !are_read {
            return;
        }
        let streams = self.streams.get_or_insert_with(|| Streams::new(algorithm));
        let filled = self.bytes.chunks_exact(self.stride).zip(&wanted);
        let inputs: Vec<(usize, &[u8])> =
            filled.map(|(place, (_, object))| &place[..object.range.len() as usize]).enumerate().collect();
        streams.update(&inputs);
        let slots: Vec<usize> = (0..inputs.len()).collect();
        let digests = streams.finish_many(&slots);
        self.objects.extend(wanted.iter().zip(&digests).map(|(&(facts, object), digest)| Known {
            number: facts.number,
            object,
            digest: algorithm.digest(digest),
        }));
        side.session.spent.hashing.add(read.elapsed());
    }

    /// An object's bytes and their digest, if it is one that was read last.
    pub(super) fn known(&self, number: FileNumber, object: Object) -> Option<(&[u8], Digest)> {
        let is_it = |known: &Known| known.number == number && known.object == object;
        let at = self.objects.iter().position(is_it)?;
        let bytes = &self.bytes[at * self.stride..][..object.range.len() as usize];
        Some((bytes, self.objects[at].digest))
    }
}

/// The object that is to be sent for the first time, and is not compared before.
fn new_object(work: &Work) -> Option<(&NewFile, Object)> {
    match work {
        Work::Object { facts, object, theirs: None, again: false, .. } => Some((facts, *object)),
        _ => None,
    }
}

/// Reads an object of a file without holes.
fn fill(side: &Side<'_>, number: FileNumber, object: Object, place: &mut [u8]) -> Option<()> {
    let held = side.held(number).filter(|held| !held.item.facts.is_sparse())?;
    let file = held.open().ok()?;
    held.ask_ahead(&file, object);
    let bytes = &mut place[..object.range.len() as usize];
    let got = transfer::read_at(&file, object.range.start.0, bytes).ok()?;
    (got == bytes.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(lanes: Option<LaneAlgorithm>, object: usize) -> Ahead {
        Ahead { lanes, streams: None, bytes: Vec::new(), stride: object + GAP_BYTES, objects: Vec::new() }
    }

    #[test]
    fn what_waits_is_bounded_whatever_the_lanes_and_objects() {
        let width = |lanes, object, algorithm| ahead(Some(algorithm), object).width(lanes, 256 << 20);
        for (lanes, object, md5, sha256) in [
            (1, 4 << 20, 4, 4),
            (4, 4 << 20, 4, 4),
            (5, 4 << 20, 3, 0),
            (6, 4 << 20, 0, 0),
            (16, 1 << 20, 4, 4),
            (1, 16 << 20, 4, 4),
            (1, 64 << 20, 0, 0),
            (0, 4 << 20, 4, 4),
        ] {
            let found =
                (width(lanes, object, LaneAlgorithm::Md5), width(lanes, object, LaneAlgorithm::Sha256));
            assert_eq!(found, (md5, sha256), "{lanes} lanes, objects of {object}");
        }
        assert_eq!(ahead(None, 4 << 20).width(1, 256 << 20), 0, "other digests have no lanes");
        let small = |buffers| ahead(Some(LaneAlgorithm::Md5), 4 << 20).width(1, buffers);
        assert_eq!(
            (small(8 << 20), small(48 << 20), small(64 << 20)),
            (0, 3, 4),
            "buffers are the user's to set"
        );
    }
}
