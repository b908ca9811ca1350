//! Recorded digests of one file, by pieces.

use crate::verify::Verdict;
use haul_digest::{Algorithm, Digest, Hasher, PartHasher, PartPlace};
use haul_log::waybill::{
    Content, Entry, Kind, LEAVES_PER_LINE, LeafRun, ObjectDigests, ReadError, Reader, Record,
};
use haul_model::{ByteRange, ObjectIndex};
use std::collections::HashMap;
use std::io::BufRead;
#[cfg(test)]
use {haul_log::waybill::Moment, haul_log::waybill::RelPath};

/// Maximum number of leaf lines kept for one file: 2^18 digests of 66 bytes take 17 MiB.
const LEAF_RUNS_MAX: u64 = (1 << 18) / LEAVES_PER_LINE;

/// File to repair, with everything that the waybill records about it.
#[derive(Debug)]
pub(super) struct RepairTarget {
    pub(super) entry: Entry,
    objects: Vec<ObjectDigests>,
    leaves: Vec<LeafRun>,
}

/// Range of a file and its digest: the smallest unit that can be verified, and therefore the
/// smallest unit that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) range: ByteRange,
    digest: Digest,
    /// True if the piece is the whole file.
    whole: bool,
}

/// Hasher for one piece.
#[derive(Debug)]
pub(super) enum PieceHasher {
    /// Subtree of BLAKE3, which depends on the offset.
    Part(PartHasher),
    /// Plain hash of the bytes.
    Plain(Hasher),
}

impl RepairTarget {
    /// Returns a file whose only digest is BLAKE3 of all its bytes.
    #[cfg(test)]
    pub(super) fn of_bytes(path: &[u8], bytes: &[u8], mode: u32, mtime: Moment) -> RepairTarget {
        let digests = vec![haul_digest::digest(Algorithm::Blake3, bytes)];
        let size = bytes.len() as u64;
        let kind = Kind::File(Content { size, digests, way: None, level: None, objects: None });
        let path = RelPath::new(path).expect("a relative path");
        let entry = Entry { path, kind, mode, mtime };
        RepairTarget { entry, objects: Vec::new(), leaves: Vec::new() }
    }

    /// Returns one piece for each object, covering the file in order. If objects have no digests of
    /// their own, returns the whole file as one piece; without any digest, returns no pieces.
    ///
    /// Also returns the whole file as one piece if only its digest is cryptographic: a digest of an
    /// object that is not would accept forged bytes.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let Kind::File(content) = &self.entry.kind else { return Vec::new() };
        let range = ByteRange::between(0, content.size);
        let whole = best(&content.digests).map(|digest| Piece { range, digest, whole: true });
        if let (Some(geometry), false) = (content.geometry(), self.objects.is_empty()) {
            let piece = |found: &ObjectDigests| {
                let digest = best(&found.digests)?;
                Some(Piece { range: geometry.object(found.index)?.range, digest, whole: false })
            };
            let objects: Vec<Piece> = self.objects.iter().filter_map(piece).collect();
            let needs_whole = objects.iter().any(|piece| !piece.proves_bytes());
            return match whole.filter(|whole| needs_whole && whole.proves_bytes()) {
                Some(whole) => vec![whole],
                None => objects,
            };
        }
        whole.into_iter().collect()
    }

    /// Returns the leaves of a piece if the waybill contains them, else the piece itself.
    pub(super) fn finer(&self, piece: Piece) -> Vec<Piece> {
        let Kind::File(Content { objects: Some(objects), size, .. }) = &self.entry.kind else {
            return vec![piece];
        };
        let index = ObjectIndex(piece.range.start.0 / objects.size.bytes());
        let runs = self.leaves.iter().filter(|run| run.object == index);
        let numbered = runs.flat_map(|run| (run.first..).zip(&run.digests));
        let leaf = |(number, &digest)| {
            let range = objects.leaf_range(piece.range, number)?;
            Some(Piece { range, digest, whole: range.len() == *size })
        };
        let leaves: Vec<Piece> = numbered.filter_map(leaf).collect();
        let covered: u64 = leaves.iter().map(|leaf| leaf.range.len()).sum();
        let is_weaker = piece.proves_bytes() && leaves.iter().any(|leaf| !leaf.proves_bytes());
        if covered == piece.range.len() && leaves.len() > 1 && !is_weaker { leaves } else { vec![piece] }
    }

    /// Returns the approximate number of bytes in memory that the digests take.
    pub(super) fn digest_bytes(&self) -> u64 {
        let objects: usize = self.objects.iter().map(|object| object.digests.len()).sum();
        let leaves: usize = self.leaves.iter().map(|run| run.digests.len()).sum();
        ((objects + leaves) * size_of::<Digest>()) as u64
    }

    /// Forgets the digests of objects and leaves, which a repair needs and its report does not.
    pub(super) fn forget_digests(&mut self) {
        (self.objects, self.leaves) = Default::default();
    }

    /// Returns true if more leaves fit. Beyond the limit, whole objects are replaced.
    fn has_room(&self) -> bool {
        (self.leaves.len() as u64) < LEAF_RUNS_MAX
    }

    /// Returns the recorded digests of the whole file.
    pub(super) fn digests(&self) -> &[Digest] {
        match &self.entry.kind {
            Kind::File(content) => &content.digests,
            _ => &[],
        }
    }

    /// Returns the recorded size of the file, in bytes.
    pub(super) fn size(&self) -> u64 {
        match &self.entry.kind {
            Kind::File(content) => content.size,
            _ => 0,
        }
    }
}

impl Piece {
    pub(super) fn hasher(&self) -> PieceHasher {
        match (self.digest.algorithm(), self.whole) {
            (Algorithm::Blake3, false) => {
                let place = PartPlace { offset: self.range.start, whole: false };
                PieceHasher::Part(PartHasher::new(Algorithm::Blake3, place))
            }
            (algorithm, _) => PieceHasher::Plain(Hasher::new(algorithm)),
        }
    }

    /// Returns the algorithm of the digest.
    pub(super) fn algorithm(&self) -> Algorithm {
        self.digest.algorithm()
    }

    /// Returns true if no other bytes with this digest can be made: bytes of an untrusted replica
    /// are correct if they match.
    pub(super) fn proves_bytes(&self) -> bool {
        self.range.is_empty() || self.algorithm().is_cryptographic()
    }

    /// Returns true if the bytes that the hasher received match the digest of this piece.
    pub(super) fn is_proven_by(&self, hasher: PieceHasher) -> bool {
        self.digest
            == match hasher {
                PieceHasher::Part(part) => part.finish().digest(),
                PieceHasher::Plain(plain) => plain.finish(),
            }
    }
}

impl PieceHasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            PieceHasher::Part(part) => part.update(bytes),
            PieceHasher::Plain(plain) => plain.update(bytes),
        }
    }
}

/// Returns the strongest digest: BLAKE3, else the longest cryptographic one, else the longest.
fn best(digests: &[Digest]) -> Option<Digest> {
    let rank = |digest: &&Digest| {
        let algorithm = digest.algorithm();
        (algorithm == Algorithm::Blake3, algorithm.is_cryptographic(), algorithm.digest_len())
    };
    digests.iter().max_by_key(rank).copied()
}

/// Calls `visit` with the last record of each of the `wanted` paths, in the order of the waybill.
/// Keeps leaf digests only for objects that intersect the damage of the path. For a path without
/// damage ranges, keeps all of them.
pub(super) fn each<R: BufRead>(
    open: impl Fn() -> Result<Reader<R>, ReadError>,
    wanted: &HashMap<Vec<u8>, Verdict>,
    mut visit: impl FnMut(RepairTarget),
) -> Result<(), ReadError> {
    let mut last: HashMap<&[u8], u64> = HashMap::new();
    let mut section = 0;
    for record in open()? {
        match record? {
            Record::Section(_) => section += 1,
            Record::Entry(entry) => {
                if let Some((path, _)) = wanted.get_key_value(entry.path.as_bytes()) {
                    last.insert(path, section);
                }
            }
            _ => {}
        }
    }
    let mut open_claim: Option<RepairTarget> = None;
    section = 0;
    for record in open()? {
        match (record?, &mut open_claim) {
            (Record::Section(_), _) => section += 1,
            (Record::Entry(entry), repair_target) => {
                if let Some(done) = repair_target.take() {
                    visit(done);
                }
                if last.get(entry.path.as_bytes()) == Some(&section) {
                    *repair_target = Some(RepairTarget { entry, objects: Vec::new(), leaves: Vec::new() });
                }
            }
            (Record::Object(object), Some(repair_target)) => repair_target.objects.push(object),
            (Record::Leaves(run), Some(repair_target))
                if repair_target.has_room() && is_met(repair_target, &run, wanted) =>
            {
                repair_target.leaves.push(run);
            }
            _ => {}
        }
    }
    if let Some(done) = open_claim {
        visit(done);
    }
    Ok(())
}

/// Returns true if the leaves belong to a damaged object.
fn is_met(repair_target: &RepairTarget, run: &LeafRun, wanted: &HashMap<Vec<u8>, Verdict>) -> bool {
    let Kind::File(content) = &repair_target.entry.kind else { return false };
    let object = content.geometry().and_then(|geometry| geometry.object(run.object));
    let damage =
        wanted.get(repair_target.entry.path.as_bytes()).map_or(&[][..], |verdict| &verdict.damage[..]);
    let meets = |object: ByteRange| damage.iter().any(|range| range.intersect(object).is_some());
    damage.is_empty() || object.is_some_and(|object| meets(object.range))
}
