//! Objects that a lane's worker reads and hashes before it sends them, several in parallel. A
//! serial digest processes the bytes of one object in order, but several objects share a SIMD
//! register.

use super::SourceContext;
use crate::pipeline::ReadAt;
use haul_digest::Digest;
use haul_digest::lanes::{LaneAlgorithm, Streams};
use haul_model::Object;
use haul_proto::source::Work;
use haul_proto::{FileNumber, NewFile, Source};
use std::time::Instant;

/// Maximum number of objects in parallel. More gain little and use memory.
const WIDTH_MAX: usize = 4;

/// Divisor of the job's buffers: all lanes together may use this fraction for objects that wait.
const SHARE_OF_BUFFERS: u64 = 4;

/// Distance between two objects in memory, in bytes. It prevents conflicts in the first-level
/// cache.
const GAP_BYTES: usize = 64;

/// Objects that one worker has read ahead.
pub(super) struct ReadAhead {
    /// Lanes for hashing in parallel; `None` if that gains nothing.
    streams: Option<Streams>,
    /// Bytes of the objects; each object starts at a multiple of `stride`.
    bytes: Vec<u8>,
    stride: usize,
    objects: Vec<BufferedObject>,
}

/// An object that was read and hashed.
struct BufferedObject {
    number: FileNumber,
    object: Object,
    digest: Digest,
}

impl ReadAhead {
    /// Creates the state of a worker of this side.
    pub(super) fn new(context: &SourceContext<'_>) -> ReadAhead {
        let lanes = LaneAlgorithm::of(context.hash_plan.algorithm())
            .filter(|_| context.hash_plan.sends_object_digests());
        let len = usize::try_from(context.options.object.bytes()).unwrap_or(usize::MAX - GAP_BYTES);
        ReadAhead::with(lanes.map(Streams::new), len)
    }

    /// Creates the state of a worker that hashes objects of at most `len` bytes in `streams`.
    fn with(streams: Option<Streams>, len: usize) -> ReadAhead {
        ReadAhead { streams, bytes: Vec::new(), stride: len + GAP_BYTES, objects: Vec::new() }
    }

    /// Returns true if a worker that has taken `taken` should take one more object, so that more
    /// objects are hashed in parallel.
    pub(super) fn wants_more(&self, taken: &[Work], machine: &Source) -> bool {
        let width = self.width(machine.lanes(), machine.window().bytes);
        taken.len() < width
            && taken.iter().all(|work| new_object(work).is_some())
            && machine.has_for_each_lane(width as u64)
    }

    /// Returns the number of objects to hash in parallel, if `lanes` lanes do the same and the job
    /// has `buffers` bytes of buffers. Returns 0 if that gains nothing.
    fn width(&self, lanes: usize, buffers: u64) -> usize {
        let Some(streams) = &self.streams else { return 0 };
        let len = (self.stride - GAP_BYTES) as u64;
        let share = buffers / SHARE_OF_BUFFERS / len / lanes.max(1) as u64;
        let width = usize::try_from(share).unwrap_or(WIDTH_MAX).min(width_max(streams));
        if width < streams.algorithm().streams_min() { 0 } else { width }
    }

    /// Reads and hashes the objects among `works` in parallel, if there are enough, and discards
    /// the earlier ones. If an object cannot be read as announced, none is kept. Each is then read
    /// again when it is sent, and the defective one fails.
    pub(super) fn read(&mut self, context: &SourceContext<'_>, works: &[Work]) {
        self.objects.clear();
        let Some(streams) = &mut self.streams else { return };
        let algorithm = streams.algorithm();
        let wanted: Vec<_> = works.iter().filter_map(new_object).collect();
        if !(algorithm.streams_min()..=width_max(streams)).contains(&wanted.len()) {
            return;
        }
        self.bytes.resize(self.bytes.len().max(wanted.len() * self.stride), 0);
        let begin = Instant::now();
        let mut places = self.bytes.chunks_exact_mut(self.stride);
        let are_read = wanted.iter().all(|(facts, object)| {
            places.next().is_some_and(|place| fill(context, facts.number, *object, place).is_some())
        });
        let read = Instant::now();
        context.session.spent.storage.add(read - begin);
        if !are_read {
            return;
        }
        let filled = self.bytes.chunks_exact(self.stride).zip(&wanted);
        let inputs: Vec<(usize, &[u8])> =
            filled.map(|(place, (_, object))| &place[..object.range.len() as usize]).enumerate().collect();
        streams.update(&inputs);
        let slots: Vec<usize> = (0..inputs.len()).collect();
        let digests = streams.finish_many(&slots);
        self.objects.extend(wanted.iter().zip(&digests).map(|(&(facts, object), digest)| BufferedObject {
            number: facts.number,
            object,
            digest: algorithm.digest(digest),
        }));
        context.session.spent.hashing.add(read.elapsed());
    }

    /// Returns the bytes and the digest of an object, if it was among the last ones read.
    pub(super) fn buffered(&self, number: FileNumber, object: Object) -> Option<(&[u8], Digest)> {
        let is_it = |buffered: &BufferedObject| buffered.number == number && buffered.object == object;
        let at = self.objects.iter().position(is_it)?;
        let bytes = &self.bytes[at * self.stride..][..object.range.len() as usize];
        Some((bytes, self.objects[at].digest))
    }
}

/// Returns the maximum number of objects in parallel. A CPU may have fewer slots for an algorithm
/// than [`WIDTH_MAX`]: two for SHA-256 in its SHA instructions, one in plain words.
fn width_max(streams: &Streams) -> usize {
    streams.width().min(WIDTH_MAX)
}

/// Returns the object, if it is sent for the first time.
fn new_object(work: &Work) -> Option<(&NewFile, Object)> {
    match work {
        Work::Object { facts, object, again: false, .. } => Some((facts, *object)),
        _ => None,
    }
}

/// Reads an object of a file without holes.
fn fill(context: &SourceContext<'_>, number: FileNumber, object: Object, place: &mut [u8]) -> Option<()> {
    let offered_file =
        context.offered_file(number).filter(|offered_file| !offered_file.item.facts.is_sparse())?;
    let file = offered_file.open().ok()?;
    offered_file.read_ahead(&file, object);
    let bytes = &mut place[..object.range.len() as usize];
    let got = file.read_at(object.range.start.0, bytes).ok()?;
    (got == bytes.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use haul_digest::lanes::{Backend, backends};

    #[test]
    fn objects_ahead_are_bounded_for_any_lanes_and_sizes() {
        // MD5 has four slots in plain words, on any CPU.
        let md5 = |object| {
            let streams = Streams::with_backend(LaneAlgorithm::Md5, Backend::Portable).unwrap();
            ReadAhead::with(Some(streams), object)
        };
        for (lanes, object, expected) in [
            (1, 4 << 20, 4),
            (4, 4 << 20, 4),
            (5, 4 << 20, 3),
            (6, 4 << 20, 0),
            (16, 1 << 20, 4),
            (1, 16 << 20, 4),
            (1, 64 << 20, 0),
            (0, 4 << 20, 4),
        ] {
            let found = md5(object).width(lanes, 256 << 20);
            assert_eq!(found, expected, "{lanes} lanes, objects of {object}");
        }
        assert_eq!(ReadAhead::with(None, 4 << 20).width(1, 256 << 20), 0, "other digests have no lanes");
        let small = |buffers| md5(4 << 20).width(1, buffers);
        assert_eq!(
            (small(8 << 20), small(48 << 20), small(64 << 20)),
            (0, 3, 4),
            "buffers are the user's to set"
        );
    }

    /// Regression: four objects were taken on CPUs with two slots or one, and the source panicked.
    #[test]
    fn objects_ahead_never_exceed_the_slots_of_any_backend() {
        for algorithm in LaneAlgorithm::ALL {
            for backend in backends() {
                let Some(streams) = Streams::with_backend(algorithm, backend) else { continue };
                let (slots, least) = (streams.width(), algorithm.streams_min());
                let expected = if slots < least { 0 } else { slots.min(WIDTH_MAX) };
                let found = ReadAhead::with(Some(streams), 1 << 20).width(1, 256 << 20);
                assert_eq!(found, expected, "{algorithm:?} with {backend:?}");
            }
        }
    }
}
