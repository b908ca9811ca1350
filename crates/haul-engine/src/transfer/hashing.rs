//! Digests of transferred data: of each object, of the whole file, and for a waybill.

use haul_digest::{
    Algebra, Algorithm, Assembly, Digest, DigestKey, Hasher, KeyedDigest, ObjectTable, Part, PartHasher,
    PartPlace,
};
use haul_model::{ByteLen, Geometry, Object, ObjectIndex, ObjectSize};
use haul_proto::{JobOptions, Runs, Unit, Verify};
use haul_sys::{Stat, filesystem, sparse};
use std::os::fd::AsFd;

/// Selection of the digests that are computed while data is transferred.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashPlan {
    algorithm: Algorithm,
    object: ObjectSize,
    objects: bool,
    root: bool,
    reads_twice: bool,
    /// True if this side writes a waybill. It then keeps the BLAKE3 of every object in addition.
    waybill: bool,
    /// Use that a source makes of SEEK_DATA.
    holes: HoleTrust,
    /// Key of the digests that decide what is the same.
    key: DigestKey,
}

/// Condition under which the holes that SEEK_DATA reports are skipped, as in a local copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoleTrust {
    /// No digest is taken: see [`sparse::may_skip_holes`].
    Plausible,
    /// A digest is taken object by object: only on file systems that never reported data as a hole.
    FileSystem,
    /// A digest is taken in order, or the sink reads its copy back: every byte is read.
    Never,
}

impl HoleTrust {
    fn of(options: &JobOptions, waybill: bool) -> HoleTrust {
        let is_in_order = options.unit == Unit::File && options.algorithm.algebra() == Algebra::Serial;
        match options.verify {
            Verify::None if !waybill => HoleTrust::Plausible,
            Verify::Reread | Verify::Hybrid => HoleTrust::Never,
            Verify::None => HoleTrust::FileSystem,
            _ if is_in_order => HoleTrust::Never,
            _ => HoleTrust::FileSystem,
        }
    }
}

impl HashPlan {
    /// Derives the recipe from the options of a job and the key of the session. `waybill` is true
    /// if this side writes a waybill.
    pub(super) fn of(options: &JobOptions, key: DigestKey, waybill: bool) -> HashPlan {
        let passing = options.verify != Verify::None && !options.verify.reads_twice();
        HashPlan {
            algorithm: options.algorithm,
            object: options.object,
            objects: passing && options.unit == Unit::Object,
            root: passing && options.unit == Unit::File,
            reads_twice: options.verify.reads_twice(),
            waybill,
            holes: HoleTrust::of(options, waybill),
            key,
        }
    }

    /// Returns true if the source may skip the holes that SEEK_DATA reports in a sparse file.
    pub(super) fn may_skip_holes(&self, file: impl AsFd, facts: &Stat) -> bool {
        match self.holes {
            HoleTrust::Plausible => sparse::may_skip_holes(file, facts),
            HoleTrust::FileSystem => filesystem::reports_holes(file),
            HoleTrust::Never => false,
        }
    }

    /// Returns the hasher for one object of a file of `size` bytes, for use during the transfer.
    pub(super) fn object(&self, object: Object, size: u64) -> ObjectHash {
        let is_part_of_root = self.root && self.algorithm.algebra() == Algebra::Combines;
        if self.objects || is_part_of_root {
            return self.object_again(object, size);
        }
        ObjectHash { own: JobHasher::Nothing, waybill: self.for_waybill(object, size) }
    }

    /// Returns the hasher for reading an object again, which always computes the job's digest.
    pub(super) fn object_again(&self, object: Object, size: u64) -> ObjectHash {
        let own = if self.algorithm.algebra() == Algebra::Combines {
            JobHasher::Part(PartHasher::new(self.algorithm, place(object, size)))
        } else {
            JobHasher::Serial(Hasher::new(self.algorithm))
        };
        // One BLAKE3 serves both purposes.
        let is_same = self.algorithm == Algorithm::Blake3;
        let waybill = if is_same { None } else { self.for_waybill(object, size) };
        ObjectHash { own, waybill }
    }

    /// Returns the hasher for an object whose digest is already known.
    pub(super) fn object_known(&self, object: Object, size: u64, digest: Digest) -> ObjectHash {
        ObjectHash { own: JobHasher::Known(digest), waybill: self.for_waybill(object, size) }
    }

    fn for_waybill(&self, object: Object, size: u64) -> Option<PartHasher> {
        self.waybill.then(|| PartHasher::new(Algorithm::Blake3, place(object, size)))
    }

    /// Returns the hasher for a whole file of `size` bytes.
    pub(super) fn root(&self, size: u64) -> RootHash {
        let (serial, parts) = match (self.root, self.algorithm.algebra()) {
            (false, _) => (None, None),
            (true, Algebra::Combines) => (None, Some(PartSet::new(self.algorithm, self.object))),
            (true, Algebra::Serial) => (Some(Hasher::new(self.algorithm)), None),
        };
        RootHash {
            attempt: 0,
            geometry: Geometry::new(ByteLen(size), self.object),
            serial,
            parts,
            objects: self.waybill.then(|| ObjectTable::new(self.object)),
            has_late: false,
            sent: SentDigests::default(),
            told: SentDigests::default(),
        }
    }

    /// Returns true if both sides read their files again after the transfer and compare the
    /// digests.
    pub(super) fn reads_twice(&self) -> bool {
        self.reads_twice
    }

    /// Returns true if each object is followed by its digest.
    pub(super) fn sends_object_digests(&self) -> bool {
        self.objects
    }

    /// Returns the key of the digests that decide what is the same.
    pub(super) fn key(&self) -> &DigestKey {
        &self.key
    }

    /// Returns the hasher for the digest of a whole file that the waybill contains, if this side
    /// writes one.
    pub(super) fn whole_for_waybill(&self) -> Option<Hasher> {
        self.waybill.then(|| Hasher::new(self.algorithm))
    }

    /// Returns the algorithm of the job.
    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

fn place(object: Object, size: u64) -> PartPlace {
    PartPlace { offset: object.range.start, whole: object.range.len() == size }
}

/// Hasher of one object.
#[derive(Clone, Debug)]
pub(super) struct ObjectHash {
    own: JobHasher,
    /// BLAKE3 for the waybill, if the job uses another algorithm.
    waybill: Option<PartHasher>,
}

/// Hasher for the digest that the job compares.
#[derive(Clone, Debug)]
enum JobHasher {
    /// Not requested.
    Nothing,
    /// Algorithm whose parts combine.
    Part(PartHasher),
    /// Any other algorithm: over the object's bytes alone.
    Serial(Hasher),
    /// Digest computed earlier.
    Known(Digest),
}

/// Digests of a transferred object, as input to the digests of its file.
#[derive(Clone, Debug)]
pub(super) struct ObjectHashes {
    digest: Option<Digest>,
    own: Option<Part>,
    waybill: Option<Digest>,
}

impl ObjectHash {
    /// Adds the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match &mut self.own {
            JobHasher::Nothing | JobHasher::Known(_) => {}
            JobHasher::Part(hasher) => hasher.update(bytes),
            JobHasher::Serial(hasher) => hasher.update(bytes),
        }
        if let Some(hasher) = &mut self.waybill {
            hasher.update(bytes);
        }
    }

    /// Adds `len` zeros.
    pub(super) fn update_zeros(&mut self, len: u64) {
        match &mut self.own {
            JobHasher::Nothing | JobHasher::Known(_) => {}
            JobHasher::Part(hasher) => hasher.update_zeros(len),
            JobHasher::Serial(hasher) => hasher.update_zeros(len),
        }
        if let Some(hasher) = &mut self.waybill {
            hasher.update_zeros(len);
        }
    }

    /// Returns the digest to compare, and the input to the digests of the file.
    pub(super) fn finish(self) -> (Option<Digest>, ObjectHashes) {
        let (digest, own) = match self.own {
            JobHasher::Nothing => (None, None),
            JobHasher::Part(hasher) => {
                let part = hasher.finish();
                (Some(part.digest()), Some(part))
            }
            JobHasher::Serial(hasher) => (Some(hasher.finish()), None),
            JobHasher::Known(digest) => (Some(digest), None),
        };
        let blake3 = digest.filter(|digest| digest.algorithm() == Algorithm::Blake3);
        let waybill = self.waybill.map(|hasher| hasher.finish().digest()).or(blake3);
        (digest, ObjectHashes { digest, own, waybill })
    }
}

/// Hasher of a whole file.
#[derive(Clone, Debug)]
pub(super) struct RootHash {
    /// Transfer attempt that the digests belong to.
    attempt: u16,
    geometry: Geometry,
    /// Serial hasher, from the first byte to the last.
    serial: Option<Hasher>,
    /// Combining hasher, from parts in any order.
    parts: Option<PartSet>,
    /// BLAKE3 of the objects, for the waybill.
    objects: Option<ObjectTable>,
    /// True if some objects were not transferred but hashed locally.
    has_late: bool,
    sent: SentDigests,
    /// Objects whose digests the sink received for its comparison.
    told: SentDigests,
}

/// Digests of the transferred objects, combined into a number of constant size that does not depend
/// on their order.
#[derive(Clone, Debug, Default)]
pub(super) struct SentDigests {
    seen: Runs,
    sum: u128,
    /// True if an object was transferred twice, or without a digest.
    is_unclear: bool,
}

impl SentDigests {
    /// Adds an object. `None` means that the object was not hashed.
    pub(super) fn add(&mut self, index: ObjectIndex, digest: Option<&[u8]>) {
        let Some(digest) = digest.filter(|_| self.seen.insert(index.0)) else {
            self.is_unclear = true;
            return;
        };
        let mut hasher = Hasher::new(Algorithm::Blake3);
        hasher.update(&index.0.to_le_bytes());
        hasher.update(digest);
        let folded = hasher.finish();
        let half = folded.as_bytes().first_chunk().copied().unwrap_or_default();
        self.sum ^= u128::from_le_bytes(half);
    }

    /// Returns true if the object was added.
    pub(super) fn has(&self, index: ObjectIndex) -> bool {
        self.seen.contains(index.0)
    }

    /// Returns true if both have the same digests of the same objects.
    pub(super) fn is_same(&self, other: &SentDigests) -> bool {
        let is_clear = !self.is_unclear && !other.is_unclear;
        is_clear && self.seen == other.seen && self.sum == other.sum
    }
}

/// Parts of which each counts once, even if its object is transferred several times.
#[derive(Clone, Debug)]
struct PartSet {
    assembly: Assembly,
    seen: Runs,
}

impl PartSet {
    fn new(algorithm: Algorithm, object: ObjectSize) -> PartSet {
        PartSet { assembly: Assembly::new(algorithm, object), seen: Runs::default() }
    }
}

impl RootHash {
    /// Returns the division of the file into objects.
    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Adds bytes, for a digest that needs them in order.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.serial {
            hasher.update(bytes);
        }
    }

    /// Adds zeros, for a digest that needs its input in order.
    pub(super) fn update_zeros(&mut self, len: u64) {
        if let Some(hasher) = &mut self.serial {
            hasher.update_zeros(len);
        }
    }

    /// Returns true if the digest of the whole file is compared.
    pub(super) fn is_compared(&self) -> bool {
        self.serial.is_some() || self.parts.is_some()
    }

    /// Returns true if the digest needs every byte in order.
    pub(super) fn is_serial(&self) -> bool {
        self.serial.is_some()
    }

    /// Discards the bytes that were added in order.
    pub(super) fn begin_again(&mut self) {
        if let Some(hasher) = &mut self.serial {
            *hasher = Hasher::new(hasher.algorithm());
        }
    }

    /// Switches to a later attempt and discards the earlier ones. An earlier attempt changes
    /// nothing.
    pub(super) fn set_attempt(&mut self, attempt: u16) {
        if attempt <= self.attempt {
            return;
        }
        (self.attempt, self.has_late, self.sent) = (attempt, false, SentDigests::default());
        self.begin_again();
        if let Some(parts) = &mut self.parts {
            *parts = PartSet::new(parts.assembly.algorithm(), self.geometry.object_size());
        }
        if let Some(objects) = &mut self.objects {
            *objects = ObjectTable::new(objects.size());
        }
    }

    /// Adds an object of the current attempt. If it was transferred before, the waybill gets its
    /// latest digest. The digest of the file counts it once: a difference is found by the
    /// comparison.
    pub(super) fn add(&mut self, attempt: u16, object: Object, passed: ObjectHashes) {
        if attempt != self.attempt {
            return;
        }
        self.sent.add(object.index, passed.digest.as_ref().map(Digest::as_bytes));
        if let (Some(parts), Some(part)) = (&mut self.parts, passed.own)
            && parts.seen.insert(object.index.0)
        {
            parts.assembly.add(object.index, part);
        }
        if let (Some(objects), Some(digest)) = (&mut self.objects, passed.waybill) {
            objects.set(object.index, digest);
        }
    }

    /// Returns the digests of the objects that were sent in this attempt.
    pub(super) fn sent(&self) -> &SentDigests {
        &self.sent
    }

    /// Adds an object whose digest the sink receives for its comparison. Its first digest counts.
    pub(super) fn tell(&mut self, index: ObjectIndex, digest: &KeyedDigest) {
        if !self.told.has(index) {
            self.told.add(index, Some(digest.as_bytes()));
        }
    }

    /// Returns the digests that the sink received for its comparison.
    pub(super) fn told(&self) -> &SentDigests {
        &self.told
    }

    /// Adds an object that [`RootHash::missing`] returned.
    pub(super) fn add_late(&mut self, object: Object, passed: ObjectHashes) {
        self.has_late = true;
        self.add(self.attempt, object, passed);
    }

    /// Returns the next object, from index `from` on, that was not transferred and must be hashed
    /// for a digest: a hole, or an object that was already present.
    pub(super) fn missing(&self, from: u64) -> Option<Object> {
        let of_parts = self.parts.as_ref().map(|parts| parts.seen.first_gap(from));
        let of_objects = self.objects.as_ref().and_then(|objects| {
            let is_missing = |index: &u64| objects.get(ObjectIndex(*index)).is_none();
            (from..self.geometry.count()).find(is_missing)
        });
        let index = of_parts.into_iter().chain(of_objects).min()?;
        self.geometry.object(ObjectIndex(index))
    }

    /// Returns the digest of `len` bytes by the job's algorithm. Returns `None` if it is not
    /// requested or if bytes are missing.
    pub(super) fn finish(&self, len: u64) -> Option<Digest> {
        match (&self.serial, &self.parts) {
            (Some(hasher), _) => Some(hasher.clone().finish()),
            (None, Some(parts)) => parts.assembly.clone().finish(ByteLen(len)).ok(),
            (None, None) => None,
        }
    }

    /// Returns the digests of the whole file for the waybill, BLAKE3 first, and those of its
    /// objects. Returns `None` if no waybill is written or if objects are missing.
    pub(super) fn for_waybill(&self) -> Option<(Vec<Digest>, &ObjectTable)> {
        let objects = self.objects.as_ref()?;
        let len = ByteLen(self.geometry.len());
        let mut assembly = Assembly::new(Algorithm::Blake3, objects.size());
        for object in self.geometry.objects() {
            let digest = objects.get(object.index)?;
            let part = Part::from_digest(digest, place(object, len.0), ByteLen(object.range.len()));
            assembly.add(object.index, part);
        }
        // The serial hasher has seen only the transferred bytes: without the holes its digest is
        // not that of the file.
        let own = if self.serial.is_some() && self.has_late { None } else { self.finish(len.0) };
        let own = own.filter(|digest| digest.algorithm() != Algorithm::Blake3);
        Some((assembly.finish(len).ok().into_iter().chain(own).collect(), objects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: u64 = 64 << 10;

    fn hash_plan(algorithm: Algorithm, unit: Unit, waybill: bool) -> HashPlan {
        let object = ObjectSize::new(OBJECT).unwrap();
        let options = JobOptions { algorithm, unit, object, ..JobOptions::default() };
        HashPlan::of(&options, DigestKey::derive(b""), waybill)
    }

    fn pass(hash_plan: &HashPlan, root: &mut RootHash, attempt: u16, index: u64, bytes: &[u8]) {
        let geometry = Geometry::new(ByteLen(bytes.len() as u64), ObjectSize::new(OBJECT).unwrap());
        let object = geometry.object(ObjectIndex(index)).unwrap();
        let range = object.range.start.0 as usize..object.range.end.0 as usize;
        let mut hash = hash_plan.object(object, bytes.len() as u64);
        hash.update(&bytes[range.clone()]);
        root.update(&bytes[range]);
        root.add(attempt, object, hash.finish().1);
    }

    fn bytes() -> Vec<u8> {
        (0..OBJECT * 3 + 17).map(|at| (at * 31 % 251) as u8).collect()
    }

    /// An object that is sent again after a lane was lost counts once, so that the file still has a
    /// digest.
    #[test]
    fn object_hashed_twice_counts_once_in_the_file_digest() {
        for algorithm in [Algorithm::Blake3, Algorithm::Crc32c] {
            let (hash_plan, bytes) = (hash_plan(algorithm, Unit::File, true), bytes());
            let mut root = hash_plan.root(bytes.len() as u64);
            for index in [3, 0, 1, 0, 2, 3] {
                pass(&hash_plan, &mut root, 0, index, &bytes);
            }
            assert_eq!(root.finish(bytes.len() as u64), Some(haul_digest::digest(algorithm, &bytes)));
        }
    }

    #[test]
    fn waybill_has_blake3_for_any_verification_digest() {
        use Algorithm::{Blake3, Crc32c, Md5};
        for (algorithm, unit) in
            [(Md5, Unit::Object), (Blake3, Unit::Object), (Crc32c, Unit::File), (Md5, Unit::File)]
        {
            let (hash_plan, bytes) = (hash_plan(algorithm, unit, true), bytes());
            let mut root = hash_plan.root(bytes.len() as u64);
            (0..4).for_each(|index| pass(&hash_plan, &mut root, 0, index, &bytes));
            let (digests, objects) = root.for_waybill().unwrap();
            assert_eq!(digests[0], haul_digest::digest(Blake3, &bytes));
            assert_eq!(objects.len(), 4);
            let own = (unit == Unit::File).then(|| haul_digest::digest(algorithm, &bytes));
            assert_eq!(digests.get(1).copied(), own);
        }
    }

    #[test]
    fn last_attempt_counts_and_earlier_attempts_are_discarded() {
        let (hash_plan, bytes) = (hash_plan(Algorithm::Md5, Unit::Object, true), bytes());
        let mut damaged = bytes.clone();
        damaged[5] ^= 1;
        let mut root = hash_plan.root(bytes.len() as u64);
        pass(&hash_plan, &mut root, 0, 0, &damaged);
        assert_eq!(root.missing(0).map(|object| object.index), Some(ObjectIndex(1)));
        assert!(root.for_waybill().is_none(), "objects are missing");
        root.set_attempt(1);
        (1..4).for_each(|index| pass(&hash_plan, &mut root, 1, index, &bytes));
        pass(&hash_plan, &mut root, 0, 0, &damaged);
        assert_eq!(root.missing(0).map(|object| object.index), Some(ObjectIndex(0)));
        pass(&hash_plan, &mut root, 1, 0, &damaged);
        pass(&hash_plan, &mut root, 1, 0, &bytes);
        assert_eq!(root.missing(0), None);
        assert_eq!(root.for_waybill().unwrap().0, [haul_digest::digest(Algorithm::Blake3, &bytes)]);
    }
}
