//! What a waybill claims about one file, piece by piece.

use crate::verify::Verdict;
use haul_digest::{Algorithm, Digest, Hasher, PartHasher, PartPlace};
use haul_log::waybill::{
    Content, Entry, Kind, LEAVES_PER_LINE, LeafRun, ObjectDigests, ReadError, Reader, Record,
};
use haul_model::{ByteRange, ObjectIndex};
use std::collections::HashMap;
use std::io::BufRead;

/// Lines of leaves that are kept of one file: 2^18 digests of 66 bytes are 17 MiB.
const LEAF_RUNS_MAX: u64 = (1 << 18) / LEAVES_PER_LINE;

/// A file that is to be repaired, with all that the waybill says of it.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) entry: Entry,
    objects: Vec<ObjectDigests>,
    leaves: Vec<LeafRun>,
}

/// Some bytes of a file and their digest: the smallest thing that can be proven right, and so the smallest that is
/// replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) range: ByteRange,
    digest: Digest,
    /// It is the whole file.
    whole: bool,
}

/// Hashes one piece.
#[derive(Debug)]
pub(super) enum PieceHasher {
    /// A subtree of BLAKE3, bound to its place.
    Part(PartHasher),
    /// Bytes as of a file of their own.
    Plain(Hasher),
}

impl Claim {
    /// The pieces as the objects are cut: all of the file in order, or the whole file as one where objects have no
    /// digests of their own. Empty where there is no digest at all.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let Kind::File(content) = &self.entry.kind else { return Vec::new() };
        if let (Some(geometry), false) = (content.geometry(), self.objects.is_empty()) {
            let piece = |found: &ObjectDigests| {
                let digest = best(&found.digests)?;
                Some(Piece { range: geometry.object(found.index)?.range, digest, whole: false })
            };
            return self.objects.iter().filter_map(piece).collect();
        }
        let range = ByteRange::between(0, content.size);
        best(&content.digests).map(|digest| Piece { range, digest, whole: true }).into_iter().collect()
    }

    /// The leaves of one of the pieces, where the waybill keeps them; else the piece itself.
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
        if covered == piece.range.len() && leaves.len() > 1 { leaves } else { vec![piece] }
    }

    /// Whether more leaves are kept: of what lies behind them whole objects are replaced.
    fn has_room(&self) -> bool {
        (self.leaves.len() as u64) < LEAF_RUNS_MAX
    }

    /// The digests of all bytes of the file.
    pub(super) fn digests(&self) -> &[Digest] {
        match &self.entry.kind {
            Kind::File(content) => &content.digests,
            _ => &[],
        }
    }

    /// How many bytes the file has by the waybill.
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

    /// Whether a hasher that took bytes for this piece took the right ones.
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

/// The digest that proves most: BLAKE3's, else the longest.
fn best(digests: &[Digest]) -> Option<Digest> {
    let rank = |digest: &&Digest| {
        let algorithm = digest.algorithm();
        (algorithm == Algorithm::Blake3, algorithm.digest_len())
    };
    digests.iter().max_by_key(rank).copied()
}

/// Brings what the waybill says last of each of the `wanted` paths, in its order. Digests of leaves are kept only below
/// objects that the path's ranges meet: of a file without ranges, all of them.
pub(super) fn each<R: BufRead>(
    open: impl Fn() -> Result<Reader<R>, ReadError>,
    wanted: &HashMap<Vec<u8>, Verdict>,
    mut visit: impl FnMut(Claim),
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
    let mut open_claim: Option<Claim> = None;
    section = 0;
    for record in open()? {
        match (record?, &mut open_claim) {
            (Record::Section(_), _) => section += 1,
            (Record::Entry(entry), claim) => {
                if let Some(done) = claim.take() {
                    visit(done);
                }
                if last.get(entry.path.as_bytes()) == Some(&section) {
                    *claim = Some(Claim { entry, objects: Vec::new(), leaves: Vec::new() });
                }
            }
            (Record::Object(object), Some(claim)) => claim.objects.push(object),
            (Record::Leaves(run), Some(claim)) if claim.has_room() && is_met(claim, &run, wanted) => {
                claim.leaves.push(run);
            }
            _ => {}
        }
    }
    if let Some(done) = open_claim {
        visit(done);
    }
    Ok(())
}

/// Whether the leaves lie in damage.
fn is_met(claim: &Claim, run: &LeafRun, wanted: &HashMap<Vec<u8>, Verdict>) -> bool {
    let Kind::File(content) = &claim.entry.kind else { return false };
    let object = content.geometry().and_then(|geometry| geometry.object(run.object));
    let damage = wanted.get(claim.entry.path.as_bytes()).map_or(&[][..], |verdict| &verdict.damage[..]);
    let meets = |object: ByteRange| damage.iter().any(|range| range.intersect(object).is_some());
    damage.is_empty() || object.is_some_and(|object| meets(object.range))
}
