//! Checks that the lines below the line of a file are complete. Also checks that the digest of an
//! object matches those of its leaves, and the digest of a file those of its objects.

use super::LEAVES_PER_LINE;
use super::facts::{Content, Entry, Kind, LeafRun, ObjectDigests, Objects, Proven};
use super::flaw::FlawKind;
use haul_digest::{Algorithm, Assembly, Digest, Joint, Part, PartPlace};
use haul_model::RelPath;
use haul_model::{ByteLen, Geometry, Object, ObjectIndex};

/// Expected lines below the line of one file. Memory use is logarithmic in the size of the file.
#[derive(Debug)]
pub(super) struct Following {
    path: RelPath,
    size: u64,
    objects: Option<Objects>,
    geometry: Option<Geometry>,
    /// Total number of object lines, and the number of the next one.
    lines: u64,
    next: u64,
    roots: Vec<(Digest, Assembly)>,
    leaves: Option<Leaves>,
    /// Length in bytes of the damaged lines. If there are any, missing lines prove nothing.
    lost: u64,
    /// Number of object lines that were missing so far.
    skipped: u64,
}

/// Leaves of one object.
#[derive(Debug)]
struct Leaves {
    object: Object,
    count: u64,
    next: u64,
    leaf: u64,
    /// Expected digest of the object and the combination of its leaves so far, if the algorithm can
    /// combine digests.
    value: Option<(Digest, Joint)>,
}

impl Following {
    /// Returns the lines to expect after an entry; `None` for an entry that is not a file.
    pub(super) fn new(entry: &Entry) -> Option<Following> {
        let Kind::File(content) = &entry.kind else { return None };
        let mut following = Following {
            path: entry.path.clone(),
            size: content.size,
            objects: content.objects.clone(),
            geometry: content.geometry(),
            lines: content.object_lines(),
            next: 0,
            roots: roots(content),
            leaves: None,
            lost: 0,
            skipped: 0,
        };
        if let (0, Some(geometry), Some(objects)) = (following.lines, following.geometry, &following.objects)
        {
            // The digest of the only object is that of the file.
            let value = objects.algorithms.first().and_then(|algorithm| content.digest(*algorithm));
            following.leaves =
                geometry.object(ObjectIndex(0)).and_then(|only| Leaves::of(only, objects, true, value));
        }
        Some(following)
    }

    /// Returns the division of the file, or `None` if it has none.
    pub(super) fn objects(&self) -> Option<&Objects> {
        self.objects.as_ref()
    }

    /// Notes a damaged line of `bytes` bytes, its end included.
    pub(super) fn damaged(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_add(bytes);
    }

    /// Returns true after a damaged line.
    pub(super) fn is_damaged(&self) -> bool {
        self.lost > 0
    }

    /// Skips the object lines before `index`. Returns false, and skips none, if that many lines
    /// cannot have been in the damaged ones: object numbers grow no faster than the waybill.
    fn skip_to(&mut self, index: ObjectIndex) -> bool {
        let Some(missing) = index.0.checked_sub(self.next) else { return false };
        // A line that is missing damages the line after it, whose checksum continues its own.
        let (lost, shortest) = (self.lost, self.objects.as_ref().map_or(u64::MAX, shortest_line));
        let skippable = if lost > 0 { 1 + lost / shortest } else { 0 };
        let is_possible = self.skipped.saturating_add(missing) <= skippable;
        if is_possible {
            self.skipped += missing;
            self.next = index.0;
        }
        is_possible
    }

    /// Returns true if all lines of objects and leaves have been read.
    pub(super) fn is_complete(&self) -> bool {
        self.next == self.lines && self.leaves.is_none()
    }

    /// Adds the next object line. After the last one, the inner result reports if the digests of
    /// the file match.
    ///
    /// # Errors
    ///
    /// Returns [`FlawKind`] if the line is not allowed here.
    pub(super) fn object(&mut self, found: &ObjectDigests) -> Result<Result<(), FlawKind>, FlawKind> {
        self.end_of_leaves()?;
        let Some(object) = self.geometry.and_then(|geometry| geometry.object(found.index)) else {
            return Err(FlawKind::Misplaced("object number out of range"));
        };
        let is_damaged = self.is_damaged();
        if self.next >= self.lines || !self.skip_to(found.index) {
            return Err(FlawKind::Misplaced("objects are out of order, or repeated"));
        }
        self.next += 1;
        let place = PartPlace { offset: object.range.start, whole: false };
        let len = ByteLen(object.range.len());
        for (root, assembly) in &mut self.roots {
            let digest = found.digests.iter().find(|digest| digest.algorithm() == root.algorithm());
            if let Some(digest) = digest.filter(|_| !is_damaged) {
                assembly.add(found.index, Part::from_digest(*digest, place, len));
            }
        }
        let objects = self.objects.as_ref();
        self.leaves =
            objects.and_then(|objects| Leaves::of(object, objects, false, found.digests.first().copied()));
        Ok(if self.next == self.lines { self.check_roots() } else { Ok(()) })
    }

    /// Adds leaves of the current object. After the last one, the inner result reports if the
    /// digest of the object matches.
    ///
    /// # Errors
    ///
    /// Returns [`FlawKind`] if the line is not allowed here.
    pub(super) fn leaves(&mut self, found: &LeafRun) -> Result<Result<(), FlawKind>, FlawKind> {
        let misplaced = FlawKind::Misplaced("leaves are out of order, or below another object");
        if self.is_damaged() {
            return if self.follow_past_damage(found) { Ok(Ok(())) } else { Err(misplaced) };
        }
        let Some(leaves) = &mut self.leaves else { return Err(misplaced) };
        let expected = leaves.count.saturating_sub(leaves.next).min(LEAVES_PER_LINE);
        let in_order = found.first == leaves.next && found.digests.len() as u64 == expected;
        if found.object != leaves.object.index || !in_order {
            return Err(misplaced);
        }
        for &digest in &found.digests {
            let start = leaves.object.range.start.0 + leaves.next * leaves.leaf;
            let len = ByteLen(leaves.leaf.min(leaves.object.range.end.0 - start));
            if let Some((_, joint)) = &mut leaves.value
                && joint.add(digest, len).is_err()
            {
                leaves.value = None;
            }
            leaves.next += 1;
        }
        if leaves.next < leaves.count {
            return Ok(Ok(()));
        }
        let range = leaves.object.range;
        let differs = self
            .leaves
            .take()
            .and_then(|leaves| leaves.value)
            .is_some_and(|(value, joint)| joint.finish() != Some(value));
        Ok(if differs { Err(FlawKind::ObjectDiffers { path: self.path.clone(), range }) } else { Ok(()) })
    }

    /// Adds leaves after a damaged line, which may have held the leaves before them or the digest
    /// of their object. Nothing is verified with them.
    ///
    /// Returns true if the leaves are possible at this position.
    fn follow_past_damage(&mut self, found: &LeafRun) -> bool {
        let object = self.geometry.and_then(|geometry| geometry.object(found.object));
        let (Some(object), Some(objects)) = (object, &self.objects) else { return false };
        let count = objects.leaves_of(object.range.len());
        let (Some(leaf), Some(next)) = (objects.leaf, found.first.checked_add(found.digests.len() as u64))
        else {
            return false;
        };
        let before = match &self.leaves {
            Some(leaves) if leaves.object.index == found.object => leaves.next,
            _ => 0,
        };
        // They must belong to the object before the next object line or to a later one: the leaves
        // of earlier objects are complete.
        if next > count || found.first < before || found.object.0 + 1 < self.next {
            return false;
        }
        if self.lines > 0 && !self.skip_to(ObjectIndex(found.object.0 + 1)) {
            return false;
        }
        let leaf = leaf.bytes();
        self.leaves = (next < count).then_some(Leaves { object, count, next, leaf, value: None });
        true
    }

    /// Checks the line of a range.
    pub(super) fn proven(&self, found: &Proven) -> Result<(), FlawKind> {
        let inside = found.range.end.0 <= self.size;
        if inside { Ok(()) } else { Err(FlawKind::Misplaced("the range exceeds the end of the file")) }
    }

    /// Checks at the next entry that no lines are missing.
    pub(super) fn end(mut self) -> Result<(), FlawKind> {
        self.end_of_leaves()?;
        if self.next < self.lines && !self.is_damaged() {
            let (path, found, expected) = (self.path, self.next, self.lines);
            return Err(FlawKind::MissingObjects { path, found, expected });
        }
        Ok(())
    }

    fn end_of_leaves(&mut self) -> Result<(), FlawKind> {
        match self.leaves.take() {
            Some(leaves) if !self.is_damaged() => Err(FlawKind::MissingLeaves {
                path: self.path.clone(),
                object: leaves.object.index,
                found: leaves.next,
                expected: leaves.count,
            }),
            _ => Ok(()),
        }
    }

    fn check_roots(&mut self) -> Result<(), FlawKind> {
        for (root, assembly) in std::mem::take(&mut self.roots) {
            let algorithm = root.algorithm();
            if !self.is_damaged() && assembly.finish(ByteLen(self.size)) != Ok(root) {
                return Err(FlawKind::RootDiffers { path: self.path.clone(), algorithm });
            }
        }
        Ok(())
    }
}

/// Returns the minimum length in bytes of an object line: a digit, the digests in base64, the
/// checksum and the line end.
fn shortest_line(objects: &Objects) -> u64 {
    let digests =
        objects.algorithms.iter().map(|algorithm| 1 + (4 * algorithm.digest_len() as u64).div_ceil(3));
    1 + digests.sum::<u64>() + " 01234567\n".len() as u64
}

/// Returns the digests of a file that must match those of its objects.
fn roots(content: &Content) -> Vec<(Digest, Assembly)> {
    let Some(objects) = content.objects.as_ref().filter(|_| content.object_lines() > 0) else {
        return Vec::new();
    };
    let combining = objects.algorithms.iter().filter(|algorithm| algorithm.digests_join());
    let root =
        |algorithm: &Algorithm| Some((content.digest(*algorithm)?, Assembly::new(*algorithm, objects.size)));
    combining.filter_map(root).collect()
}

impl Leaves {
    fn of(object: Object, objects: &Objects, whole: bool, value: Option<Digest>) -> Option<Leaves> {
        let leaf = objects.leaf?.bytes();
        let count = objects.leaves_of(object.range.len());
        let place = PartPlace { offset: object.range.start, whole };
        let combining = value.filter(|value| value.algorithm().digests_join());
        let value = combining.map(|value| (value, Joint::new(value.algorithm(), place)));
        Some(Leaves { object, count, next: 0, leaf, value })
    }
}
