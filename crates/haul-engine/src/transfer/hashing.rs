//! Digests of transferred data: of each object, of the whole file, and for a waybill.

use haul_digest::{
    Algebra, Algorithm, Digest, DigestKey, DigestSpec, FileDigest, Form, Hasher, KeyedDigest, ObjectDigest,
    ObjectSums, ObjectTable, Recipe,
};
use haul_model::{ByteLen, Geometry, Object, ObjectIndex, ObjectSize};
use haul_proto::{JobOptions, Runs, Unit, Verify};
use haul_storage::{SourceFile, Stat};

/// Selection of the digests that are computed while data is transferred.
#[derive(Clone, Debug)]
pub(super) struct HashPlan {
    algorithm: Algorithm,
    object: ObjectSize,
    /// Digests that are computed of each file while it is transferred.
    recipe: Recipe,
    numbers: Numbers,
    /// Digest of an object that is read again.
    again: Recipe,
    objects: bool,
    reads_twice: bool,
    /// Use that a source makes of SEEK_DATA.
    holes: HoleTrust,
    /// Key of the digests that decide what is the same.
    key: DigestKey,
}

/// Places of digests in the recipe of a job. One BLAKE3 can serve both purposes.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    /// Digest that the job compares, of objects or of the whole file.
    own: Option<usize>,
    /// True if that of the whole file is compared.
    is_root: bool,
    /// BLAKE3 of the file and of its objects, if this side writes a waybill.
    waybill: Option<usize>,
}

/// Condition under which the holes that SEEK_DATA reports are skipped, as in a local copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoleTrust {
    /// No digest is taken: also if at least as much data as allocated space is reported. Mounts of
    /// virtiofs have reported files with data as holes from end to end.
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
        let (algorithm, form) = match options.unit {
            Unit::Object => (options.algorithm, Form::Apart),
            Unit::File => (options.algorithm, Form::Plain),
        };
        let own = passing.then_some(DigestSpec::new(algorithm, form));
        let kept = waybill.then_some(DigestSpec::new(Algorithm::Blake3, Form::Objects { leaf: None }));
        let is_shared = own.zip(kept).is_some_and(|(own, kept)| own.algorithm == kept.algorithm);
        let specs: Vec<DigestSpec> = own.filter(|_| !is_shared).into_iter().chain(kept).collect();
        HashPlan {
            algorithm,
            object: options.object,
            numbers: Numbers {
                own: passing.then_some(0),
                is_root: passing && options.unit == Unit::File,
                waybill: waybill.then(|| specs.len() - 1),
            },
            recipe: Recipe::new(specs),
            again: Recipe::new([DigestSpec::new(algorithm, Form::Apart)]),
            objects: passing && options.unit == Unit::Object,
            reads_twice: options.verify.reads_twice(),
            holes: HoleTrust::of(options, waybill),
            key,
        }
    }

    /// Returns true if the source may skip the holes that SEEK_DATA reports in a sparse file.
    pub(super) fn may_skip_holes(&self, file: &dyn SourceFile, facts: &Stat) -> bool {
        let is_reliable = file.device().capabilities.reports_holes;
        match self.holes {
            HoleTrust::Plausible => is_reliable || file.reports_its_data(facts),
            HoleTrust::FileSystem => is_reliable,
            HoleTrust::Never => false,
        }
    }

    /// Returns the hasher for an object of a file of `size` bytes that is not transferred but
    /// counts for the digests of its file.
    pub(super) fn late(&self, object: Object, size: u64) -> ObjectDigest {
        self.recipe.object(object, object.range.len() == size)
    }

    /// Returns the hasher for reading an object again, which always computes the job's digest.
    pub(super) fn again(&self, object: Object, size: u64) -> ObjectDigest {
        self.again.object(object, object.range.len() == size)
    }

    /// Returns the digests for a whole file of `size` bytes.
    pub(super) fn root(&self, size: u64) -> RootHash {
        RootHash {
            attempt: 0,
            geometry: Geometry::new(ByteLen(size), self.object),
            digests: FileDigest::new(&self.recipe, Geometry::new(ByteLen(size), self.object)),
            numbers: self.numbers,
            sent: SentDigests::default(),
            told: SentDigests::default(),
        }
    }

    /// Returns the digest of an object to send or to compare, if the job does so.
    pub(super) fn object_digest(&self, sums: &ObjectSums) -> Option<Digest> {
        sums.digest(self.numbers.own.filter(|_| self.objects)?)
    }

    /// Uses a digest of the object that was computed together with those of other objects.
    pub(super) fn with_known(&self, hash: ObjectDigest, digest: Digest) -> ObjectDigest {
        match self.numbers.own {
            Some(own) => hash.with_known(own, digest),
            None => hash,
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
        self.numbers.waybill.map(|_| Hasher::new(self.algorithm))
    }

    /// Returns the algorithm of the job.
    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// Digests of a file in one attempt to transfer it.
#[derive(Clone, Debug)]
pub(super) struct RootHash {
    /// Transfer attempt that the digests belong to.
    attempt: u16,
    geometry: Geometry,
    digests: FileDigest,
    numbers: Numbers,
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

impl RootHash {
    /// Returns the division of the file into objects.
    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns true if the digest of the whole file is compared.
    pub(super) fn is_compared(&self) -> bool {
        self.numbers.is_root
    }

    /// Returns true if the digest needs every byte in order.
    pub(super) fn is_serial(&self) -> bool {
        self.digests.recipe().is_serial()
    }

    /// Switches to a later attempt and discards the earlier ones. An earlier attempt changes
    /// nothing.
    pub(super) fn set_attempt(&mut self, attempt: u16) {
        if attempt > self.attempt {
            (self.attempt, self.sent) = (attempt, SentDigests::default());
            self.digests.restart();
        }
    }

    /// Starts an object. Its hasher needs no lock while the object is sent or received, also if the
    /// digest needs every byte in order: an object is in order if all before it were added.
    pub(super) fn begin(&self, attempt: u16, object: Object) -> ObjectDigest {
        match attempt == self.attempt {
            true => self.digests.begin(object),
            false => self.digests.recipe().object(object, object.range.len() == self.geometry.len()),
        }
    }

    /// Adds an object of the current attempt. If it was transferred before, the waybill gets its
    /// latest digest. The digest of the file counts it once: a difference is found by the
    /// comparison.
    pub(super) fn add(&mut self, attempt: u16, object: Object, sums: ObjectSums) {
        if attempt != self.attempt {
            return;
        }
        let digest = self.numbers.own.and_then(|own| sums.digest(own));
        self.sent.add(object.index, digest.as_ref().map(Digest::as_bytes));
        // An object that is not complete is missing.
        let _ = self.digests.replace(sums);
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
    pub(super) fn add_late(&mut self, object: Object, sums: ObjectSums) {
        self.add(self.attempt, object, sums);
    }

    /// Returns the next object, from index `from` on, that was not transferred and must be hashed
    /// for a digest: a hole, or an object that was already present.
    pub(super) fn missing(&self, from: u64) -> Option<Object> {
        self.digests.missing(ObjectIndex(from))
    }

    /// Returns the digest by the job's algorithm of the file, or of its transferred objects if the
    /// digest needs them in order. Returns `None` if it is not requested, if bytes are missing, or
    /// if the file has not `len` bytes.
    pub(super) fn finish(&self, len: u64) -> Option<Digest> {
        let own = self.numbers.own.filter(|_| self.is_compared() && len == self.geometry.len())?;
        self.digests.digest_of_added(own).or_else(|| self.digests.digest(own).ok()?)
    }

    /// Returns the digests of the whole file for the waybill, BLAKE3 first, and those of its
    /// objects. Returns `None` if no waybill is written or if objects are missing.
    pub(super) fn for_waybill(&self) -> Option<(Vec<Digest>, &ObjectTable)> {
        let number = self.numbers.waybill?;
        let blake3 = self.digests.digest(number).ok()??;
        // A digest that needs every byte in order is not that of the file if objects were not
        // transferred.
        let own = self.numbers.own.filter(|own| *own != number);
        let own = own.and_then(|own| self.digests.digest(own).ok()?);
        let digests = std::iter::once(blake3).chain(own).collect();
        Some((digests, self.digests.objects(number)?))
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

    fn pass(root: &mut RootHash, attempt: u16, index: u64, bytes: &[u8]) {
        let geometry = Geometry::new(ByteLen(bytes.len() as u64), ObjectSize::new(OBJECT).unwrap());
        let object = geometry.object(ObjectIndex(index)).unwrap();
        let range = object.range.start.0 as usize..object.range.end.0 as usize;
        let mut hash = root.begin(attempt, object);
        hash.update(&bytes[range]);
        root.add(attempt, object, hash.finish());
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
                pass(&mut root, 0, index, &bytes);
            }
            assert_eq!(root.finish(bytes.len() as u64), Some(haul_digest::digest(algorithm, &bytes)));
        }
    }

    /// A lane that blocks in the middle of an object holds no lock. If it is lost, its object
    /// counts as not sent, also for a digest that needs every byte in order.
    #[test]
    fn object_in_progress_holds_no_lock_and_counts_when_it_is_complete() {
        let bytes = bytes();
        let geometry = Geometry::new(ByteLen(bytes.len() as u64), ObjectSize::new(OBJECT).unwrap());
        for algorithm in [Algorithm::Md5, Algorithm::Blake3, Algorithm::Crc32c] {
            let hash_plan = hash_plan(algorithm, Unit::File, true);
            let root = parking_lot::Mutex::new(hash_plan.root(bytes.len() as u64));
            pass(&mut root.lock(), 0, 0, &bytes);
            let mut blocked = root.lock().begin(0, geometry.object(ObjectIndex(1)).unwrap());
            blocked.update(&bytes[OBJECT as usize..][..1000]);
            let mut free = root.try_lock().expect("an object in progress holds no lock");
            assert_eq!(free.missing(0).map(|object| object.index), Some(ObjectIndex(1)));
            drop(blocked);
            (1..4).for_each(|index| pass(&mut free, 0, index, &bytes));
            assert_eq!(free.finish(bytes.len() as u64), Some(haul_digest::digest(algorithm, &bytes)));
        }
    }

    /// A resumed file: both sides hash the objects that this run transfers.
    #[test]
    fn digest_in_order_covers_the_objects_of_this_run() {
        let (hash_plan, bytes) = (hash_plan(Algorithm::Md5, Unit::File, true), bytes());
        let mut root = hash_plan.root(bytes.len() as u64);
        (2..4).for_each(|index| pass(&mut root, 0, index, &bytes));
        let rest = haul_digest::digest(Algorithm::Md5, &bytes[2 * OBJECT as usize..]);
        assert_eq!(root.finish(bytes.len() as u64), Some(rest));
        while let Some(object) = root.missing(0) {
            let mut hash = hash_plan.late(object, bytes.len() as u64);
            hash.update(&bytes[object.range.start.0 as usize..object.range.end.0 as usize]);
            root.add_late(object, hash.finish());
        }
        assert_eq!(root.finish(bytes.len() as u64), Some(rest));
        assert_eq!(root.for_waybill().unwrap().0, [haul_digest::digest(Algorithm::Blake3, &bytes)]);
    }

    #[test]
    fn waybill_has_blake3_for_any_verification_digest() {
        use Algorithm::{Blake3, Crc32c, Md5};
        for (algorithm, unit) in
            [(Md5, Unit::Object), (Blake3, Unit::Object), (Crc32c, Unit::File), (Md5, Unit::File)]
        {
            let (hash_plan, bytes) = (hash_plan(algorithm, unit, true), bytes());
            let mut root = hash_plan.root(bytes.len() as u64);
            (0..4).for_each(|index| pass(&mut root, 0, index, &bytes));
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
        pass(&mut root, 0, 0, &damaged);
        assert_eq!(root.missing(0).map(|object| object.index), Some(ObjectIndex(1)));
        assert!(root.for_waybill().is_none(), "objects are missing");
        root.set_attempt(1);
        (1..4).for_each(|index| pass(&mut root, 1, index, &bytes));
        pass(&mut root, 0, 0, &damaged);
        assert_eq!(root.missing(0).map(|object| object.index), Some(ObjectIndex(0)));
        pass(&mut root, 1, 0, &damaged);
        pass(&mut root, 1, 0, &bytes);
        assert_eq!(root.missing(0), None);
        assert_eq!(root.for_waybill().unwrap().0, [haul_digest::digest(Algorithm::Blake3, &bytes)]);
    }
}
