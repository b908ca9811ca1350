//! Narrows damage down to leaves, if the waybill contains leaves.
//!
//! Only the damaged objects are read again. Their lines in the waybill are also read again,
//! starting at the entry, so that only the leaves of one line are in memory. If the leaves do not
//! match the digest of their object, they say nothing about the data. The whole object then stays
//! in the damage ranges.

use super::VerifySettings;
use super::judge::{Verdict, join};
use super::orders::open_parent;
use crate::sum::{RangeReader, Settings, Source, SumError};
use haul_digest::{Algorithm, Digest, Hasher, Joint, LeafHasher, PartPlace};
use haul_log::waybill::{Content, Entry, Kind, LeafRun, Mark, Objects, Reader, Record};
use haul_model::{ByteLen, ByteRange, Geometry, LeafSize, Object, limits};
use haul_storage::Dir;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of ranges per object; an object with more ranges is reported as a whole.
const RANGES_MAX: usize = 1 << 16;

/// Precision of the damage ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// Leaf size of the ranges; `None` if no damage was narrowed down.
    pub leaf: Option<LeafSize>,
    /// Reason why some ranges, or all, are whole objects.
    pub whole: Option<WholeObjectReason>,
}

/// Reason why a damaged object is reported as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WholeObjectReason {
    /// The waybill has no leaves of the file.
    NoLeaves,
    /// The leaves are damaged, missing, or do not match the digest of the object.
    BadLeaves,
    /// Every leaf was intact when the object was read again.
    RightAgain,
    /// The file changed meanwhile.
    Changed,
    /// The object could not be read again; holds the reason.
    Unreadable(String),
    /// The object has too many damaged ranges.
    TooMany,
    /// The verification was stopped.
    Stopped,
}

impl fmt::Display for WholeObjectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WholeObjectReason::NoLeaves => f.write_str("the waybill has no leaves of this file"),
            WholeObjectReason::BadLeaves => {
                f.write_str("the leaves in the waybill do not match the digest of the object")
            }
            WholeObjectReason::RightAgain => f.write_str("no difference in the second read"),
            WholeObjectReason::Changed => f.write_str("the file changed since the first read"),
            WholeObjectReason::Unreadable(reason) => write!(f, "cannot read the object again: {reason}"),
            WholeObjectReason::TooMany => write!(f, "more than {RANGES_MAX} damaged ranges"),
            WholeObjectReason::Stopped => f.write_str("interrupted"),
        }
    }
}

/// Narrows damage down to leaves.
pub(super) struct Locator<'a> {
    waybill: &'a OsStr,
    root: Arc<dyn Dir>,
    reading: &'a Settings,
    stop: &'a AtomicBool,
}

impl<'a> Locator<'a> {
    /// Creates a locator for the files of a waybill below this root.
    pub(super) fn new(settings: &'a VerifySettings, root: Arc<dyn Dir>, stop: &'a AtomicBool) -> Locator<'a> {
        Locator { waybill: &settings.waybill, root, reading: &settings.reading, stop }
    }

    /// Narrows the damage of a verdict on a file whose entry is at `mark`.
    pub(super) fn narrow(&self, mark: Mark, entry: &Entry, verdict: &mut Verdict) {
        if !verdict.damage.is_empty() {
            verdict.located = Some(self.locate(mark, entry, &mut verdict.damage));
        }
    }

    fn locate(&self, mark: Mark, entry: &Entry, damage: &mut Vec<ByteRange>) -> Located {
        let Kind::File(content) = &entry.kind else { return Located::default() };
        let cut = content.objects.as_ref().zip(content.geometry());
        let Some((objects, geometry, leaf)) =
            cut.and_then(|(cut, geometry)| Some((cut, geometry, cut.leaf?)))
        else {
            let is_fine = damage.iter().all(|range| range.len() <= limits::LEAF_BYTES_MIN);
            return Located { leaf: None, whole: (!is_fine).then_some(WholeObjectReason::NoLeaves) };
        };
        let file = match self.open(entry) {
            Ok(file) => file,
            Err(error) => return Located { leaf: None, whole: Some(why(&error)) },
        };
        let mut search = Search {
            content,
            objects,
            geometry,
            file,
            damage: &damage[..],
            current: None,
            through: Vec::new(),
            finer: Vec::new(),
            why: None,
        };
        let walked = self.walk(mark, entry, &mut search);
        let Search { mut through, mut finer, why: mut reason, .. } = search;
        if let Err(error) = &walked {
            reason.get_or_insert(why(error));
        }
        if matches!(walked, Err(SumError::Changed | SumError::MayHaveChanged)) {
            // The results may come from different contents of the file. Many programs set the
            // modification time back after a write; the change time moves nevertheless.
            (through, finer, reason) = (Vec::new(), Vec::new(), Some(WholeObjectReason::Changed));
        }
        if finer.is_empty() && !through.is_empty() {
            // The file was damaged, but no leaf is.
            through.clear();
            reason.get_or_insert(WholeObjectReason::RightAgain);
        }
        let whole = without(damage, &through);
        let located = Located {
            leaf: (!through.is_empty()).then_some(leaf),
            whole: (!whole.is_empty()).then(|| reason.unwrap_or(WholeObjectReason::BadLeaves)),
        };
        finer.extend(whole);
        finer.sort_unstable_by_key(|range| range.start);
        damage.clear();
        finer.into_iter().for_each(|range| join(damage, range));
        located
    }

    fn open(&self, entry: &Entry) -> Result<RangeReader, SumError> {
        let (dir, name) = open_parent(&self.root, &entry.path).map_err(SumError::Open)?;
        RangeReader::open(Source::Beneath(dir, name), self.reading, self.stop)
    }

    /// Reads the lines of the entry, and the bytes that the lines of damaged objects cover.
    fn walk(&self, mark: Mark, entry: &Entry, search: &mut Search<'_>) -> Result<(), SumError> {
        let again = |source: io::Error| SumError::Open(source);
        let mut waybill = File::open(self.waybill).map_err(again)?;
        waybill.seek(SeekFrom::Start(mark.offset())).map_err(again)?;
        let mut records = Reader::resume(BufReader::with_capacity(1 << 20, waybill), mark);
        match records.next() {
            Some(Ok(Record::Entry(found))) if found == *entry => {}
            // The waybill was replaced meanwhile.
            _ => return Ok(()),
        }
        if search.content.object_lines() == 0 {
            let value = search.objects.algorithms.first().and_then(|first| search.content.digest(*first));
            search.enter(search.geometry.objects().next(), value);
        }
        for record in records {
            match record {
                Ok(Record::Object(object)) => {
                    search.leave();
                    let value = object.digests.first().copied();
                    search.enter(search.geometry.object(object.index), value);
                }
                Ok(Record::Leaves(run)) => search.compare(&run)?,
                Ok(Record::Proven(_)) => {}
                // The first pass through the waybill reported flaws already; here they appear as
                // bad leaves.
                Err(_) => {}
                Ok(Record::Entry(_) | Record::Section(_) | Record::End(_)) => break,
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(SumError::Stopped);
            }
            if search.is_over() {
                break;
            }
        }
        search.leave();
        search.file.check_unchanged()
    }
}

fn why(error: &SumError) -> WholeObjectReason {
    match error {
        SumError::Changed | SumError::MayHaveChanged => WholeObjectReason::Changed,
        SumError::Stopped => WholeObjectReason::Stopped,
        error => WholeObjectReason::Unreadable(error.to_string()),
    }
}

/// State of the search in one file.
struct Search<'a> {
    content: &'a Content,
    objects: &'a Objects,
    geometry: Geometry,
    file: RangeReader,
    /// Known damage: whole objects, or the whole file.
    damage: &'a [ByteRange],
    current: Option<Leaves>,
    /// Objects whose damage was narrowed down; `finer` holds the result.
    through: Vec<ByteRange>,
    finer: Vec<ByteRange>,
    /// Reason for the first object whose damage was not narrowed down.
    why: Option<WholeObjectReason>,
}

/// Leaves of one damaged object.
struct Leaves {
    object: Object,
    /// Digest of the object, and the digest of the leaves so far; `None` if digests of the
    /// algorithm cannot be joined.
    proof: Option<(Digest, Joint)>,
    next: u64,
    /// True if no leaf was missing or out of order.
    in_order: bool,
    found: Vec<ByteRange>,
}

impl Search<'_> {
    /// Starts an object with this digest, if it is damaged.
    fn enter(&mut self, object: Option<Object>, value: Option<Digest>) {
        let is_damaged = |object: &Object| {
            // The ranges are sorted: find the first one that ends after the start of the object.
            let at = self.damage.partition_point(|range| range.end <= object.range.start);
            self.damage.get(at).is_some_and(|range| range.start < object.range.end)
        };
        let Some(object) = object.filter(is_damaged) else { return };
        let place = PartPlace { offset: object.range.start, whole: self.geometry.count() == 1 };
        let joins = value.filter(|value| value.algorithm().digests_join());
        let proof = joins.map(|value| (value, Joint::new(value.algorithm(), place)));
        let found = Vec::new();
        self.current = Some(Leaves { object, proof, next: 0, in_order: value.is_some(), found });
    }

    /// Takes over the results of the current object.
    fn leave(&mut self) {
        let Some(Leaves { object, proof, next, in_order, found }) = self.current.take() else { return };
        let adds_up = proof.is_none_or(|(value, joint)| joint.finish() == Some(value));
        let is_complete = in_order && next == self.objects.leaves_of(object.range.len());
        let why = match () {
            () if !(is_complete && adds_up) => WholeObjectReason::BadLeaves,
            () if found.is_empty() && self.is_known_by_object() => WholeObjectReason::RightAgain,
            () if found.len() > RANGES_MAX => WholeObjectReason::TooMany,
            () => {
                join(&mut self.through, object.range);
                return found.into_iter().for_each(|range| join(&mut self.finer, range));
            }
        };
        self.why.get_or_insert(why);
    }

    /// Returns true if the damage of each object is known. Otherwise only the damage of the whole
    /// file is known.
    fn is_known_by_object(&self) -> bool {
        self.content.object_lines() > 0 && self.objects.algorithms.contains(&Algorithm::Blake3)
    }

    /// Returns true if no damage lies after the examined objects.
    fn is_over(&self) -> bool {
        let last = self.damage.last().map_or(0, |range| range.end.0);
        let reached = self.through.last().map_or(0, |range| range.end.0);
        self.current.is_none() && last <= reached
    }

    /// Compares the leaves of one line with the bytes of the file, if their object is damaged.
    fn compare(&mut self, run: &LeafRun) -> Result<(), SumError> {
        let Some(leaves) = &mut self.current else { return Ok(()) };
        if run.object != leaves.object.index || run.first != leaves.next {
            leaves.in_order = false;
            return Ok(());
        }
        let ranges = (run.first..).zip(&run.digests).map_while(|(number, digest)| {
            Some((self.objects.leaf_range(leaves.object.range, number)?, *digest))
        });
        let ranges: Vec<(ByteRange, Digest)> = ranges.collect();
        leaves.next += ranges.len() as u64;
        leaves.in_order &= ranges.len() == run.digests.len();
        for (range, digest) in &ranges {
            if let Some((_, joint)) = &mut leaves.proof {
                leaves.in_order &= joint.add(*digest, ByteLen(range.len())).is_ok();
            }
        }
        let is_file = self.geometry.count() == 1 && self.objects.leaves_of(self.content.size) == 1;
        let is = digests(&mut self.file, &ranges, self.objects, is_file)?;
        for ((range, digest), is) in ranges.iter().zip(is) {
            if is != *digest && leaves.found.len() <= RANGES_MAX {
                join(&mut leaves.found, *range);
            }
        }
        Ok(())
    }
}

/// Returns the digests of adjacent leaves, computed from the current contents of the file.
/// `is_file`: the only leaf is the whole file.
fn digests(
    file: &mut RangeReader,
    leaves: &[(ByteRange, Digest)],
    objects: &Objects,
    is_file: bool,
) -> Result<Vec<Digest>, SumError> {
    let mut found = Vec::with_capacity(leaves.len());
    let (Some(first), Some(last), Some(leaf)) = (leaves.first(), leaves.last(), objects.leaf) else {
        return Ok(found);
    };
    let algorithm = first.1.algorithm();
    if algorithm.digests_join() {
        let mut hasher = LeafHasher::new(algorithm, first.0.start, leaf);
        let all = ByteRange { start: first.0.start, end: last.0.end };
        file.read(all, |bytes| hasher.update(bytes, |digest| found.push(digest)))?;
        let part = hasher.finish(is_file, |digest| found.push(digest));
        if is_file {
            found = vec![part.digest()];
        }
        return Ok(found);
    }
    for (range, _) in leaves {
        let mut hasher = Hasher::new(algorithm);
        file.read(*range, |bytes| hasher.update(bytes))?;
        found.push(hasher.finish());
    }
    Ok(found)
}

/// Subtracts `others` from `ranges`; both lists are sorted, with adjacent ranges joined.
fn without(ranges: &[ByteRange], others: &[ByteRange]) -> Vec<ByteRange> {
    let mut left = Vec::new();
    let mut others = others.iter().peekable();
    for range in ranges {
        let mut at = range.start;
        while let Some(other) = others.next_if(|other| other.start < range.end) {
            if at < other.start {
                left.push(ByteRange { start: at, end: other.start });
            }
            at = at.max(other.end);
        }
        if at < range.end {
            left.push(ByteRange { start: at, end: range.end });
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn located_ranges_are_subtracted() {
        let ranges = |pairs: &[(u64, u64)]| -> Vec<ByteRange> {
            pairs.iter().map(|&(start, end)| ByteRange::between(start, end)).collect()
        };
        for (all, taken, left) in [
            (&[(0, 10)][..], &[][..], &[(0, 10)][..]),
            (&[(0, 10)], &[(0, 10)], &[]),
            (&[(0, 10)], &[(2, 4), (6, 8)], &[(0, 2), (4, 6), (8, 10)]),
            (&[(0, 4), (8, 12)], &[(8, 12)], &[(0, 4)]),
            (&[(0, 4), (8, 12), (20, 24)], &[(0, 4), (20, 22)], &[(8, 12), (22, 24)]),
        ] {
            assert_eq!(without(&ranges(all), &ranges(taken)), ranges(left), "{all:?} without {taken:?}");
        }
    }
}
