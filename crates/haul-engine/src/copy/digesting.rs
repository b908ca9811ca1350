//! Digest of a file, computed from the same bytes that are copied.
//!
//! A file that one worker copies in order feeds one [`InOrder`]. A file whose objects several
//! workers copy has one [`FileDigest`], and each object supplies its [`ObjectDigest`].

use super::receipt::{ReceiptPart, ReceiptParts, ReceiptStream, ReceiptSums};
use super::settings::{HashForm, Moving};
use haul_digest::tree::{TreeAssembly, TreeShape};
use haul_digest::{Algebra, Algorithm, Assembly, Digest, Hasher, PartHasher, PartPlace};
use haul_model::{ByteLen, ByteOffset, ByteRange, Object, ObjectSize};
use haul_plan::Plan;
use parking_lot::Mutex;

/// The digests of a file.
#[derive(Debug)]
pub(crate) struct FileHash {
    /// One value, or one per leaf if leaves were requested.
    pub(crate) digests: Vec<Digest>,
    /// True if the value is the root of a tree with more than one leaf.
    pub(crate) tree: bool,
    /// Digests for the waybill.
    pub(crate) receipt: Option<ReceiptSums>,
}

impl FileHash {
    /// Returns the digest of the complete file, as the algorithm itself defines it.
    pub(crate) fn whole(&self) -> Option<Digest> {
        match (self.digests.as_slice(), &self.receipt) {
            ([digest], _) if !self.tree => Some(*digest),
            (_, Some(receipt)) => receipt.digests.first().copied(),
            _ => None,
        }
    }

    fn printed(digests: Vec<Digest>, tree: bool) -> FileHash {
        FileHash { digests, tree, receipt: None }
    }
}

/// Returns true if any digest is requested, so that every byte is hashed while it is copied.
pub(crate) fn is_any(moving: &Moving) -> bool {
    moving.digest.is_some() || moving.receipt.is_some()
}

/// Returns true if the requested digest needs each file in order, from the first byte to the last.
pub(crate) fn is_serial(moving: &Moving) -> bool {
    let printed =
        matches!(moving.digest, Some((algorithm, HashForm::Plain)) if algorithm.algebra() == Algebra::Serial);
    printed || moving.receipt.as_ref().is_some_and(|receipt| receipt.is_serial())
}

/// Returns the object size that suits the digest: at least one leaf, so that two workers never
/// share a leaf.
pub(crate) fn object_size(moving: &Moving) -> ObjectSize {
    match moving.digest {
        Some((_, HashForm::Tree(leaf) | HashForm::Leaves(leaf))) => moving.object.max(leaf),
        _ => moving.object,
    }
}

/// The digests of a file whose bytes arrive in order.
pub(crate) struct InOrder {
    printed: Printed,
    receipt: Option<ReceiptStream>,
}

impl InOrder {
    /// Creates the hashers that the job requests.
    pub(crate) fn new(moving: &Moving) -> InOrder {
        let receipt = moving.receipt.as_ref();
        let receipt = receipt.map(|receipt| ReceiptStream::new(receipt, object_size(moving)));
        InOrder { printed: Printed::new(&printed_apart(moving)), receipt }
    }

    /// Returns true if there is anything to compute.
    pub(crate) fn is_asked_for(&self) -> bool {
        !matches!(self.printed, Printed::None) || self.receipt.is_some()
    }

    /// Hashes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.printed.update(bytes);
        if let Some(receipt) = &mut self.receipt {
            receipt.update(bytes);
        }
    }

    fn update_zeros(&mut self, len: u64) {
        self.printed.update_zeros(len);
        if let Some(receipt) = &mut self.receipt {
            receipt.update_zeros(len);
        }
    }

    /// Returns the digests of all `len` bytes, or `None` if no digest was requested.
    pub(crate) fn finish(self, moving: &Moving, len: u64) -> Option<FileHash> {
        with_receipt(moving, self.printed.finish(len), self.receipt.map(ReceiptStream::finish))
    }
}

/// Returns the digest to print if it is not one of the waybill's digests.
fn printed_apart(moving: &Moving) -> Option<(Algorithm, HashForm)> {
    let in_receipt = |algorithm| moving.receipt.as_ref().is_some_and(|receipt| receipt.has(algorithm));
    moving.digest.filter(|(algorithm, form)| !(*form == HashForm::Plain && in_receipt(*algorithm)))
}

/// Combines the digest to print with the digests for the waybill.
fn with_receipt(moving: &Moving, printed: Option<FileHash>, sums: Option<ReceiptSums>) -> Option<FileHash> {
    let Some(sums) = sums else { return printed };
    let wanted = moving.digest.map(|(algorithm, _)| algorithm);
    let shared = sums.digests.iter().copied().filter(|digest| Some(digest.algorithm()) == wanted);
    let mut hash = printed.unwrap_or_else(|| FileHash::printed(shared.collect(), false));
    hash.receipt = Some(sums);
    Some(hash)
}

/// Digest to print, for a file whose bytes arrive in order.
enum Printed {
    /// No digest is requested.
    None,
    /// The value of the algorithm itself.
    Plain(Hasher),
    /// The leaves of a tree.
    Leaves(LeafHasher, Leaves),
}

impl Printed {
    fn new(digest: &Option<(Algorithm, HashForm)>) -> Printed {
        match *digest {
            None => Printed::None,
            Some((algorithm, HashForm::Plain)) => Printed::Plain(Hasher::new(algorithm)),
            Some((algorithm, form @ (HashForm::Tree(leaf) | HashForm::Leaves(leaf)))) => {
                Printed::Leaves(LeafHasher::new(algorithm, leaf, 0), Leaves::new(algorithm, leaf, form))
            }
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Printed::None => {}
            Printed::Plain(hasher) => hasher.update(bytes),
            Printed::Leaves(hasher, leaves) => {
                hasher.update(bytes, |index, digest| leaves.add(index, digest));
            }
        }
    }

    fn update_zeros(&mut self, len: u64) {
        match self {
            Printed::None => {}
            Printed::Plain(hasher) => hasher.update_zeros(len),
            Printed::Leaves(..) => each_zero_block(len, |zeros| self.update(zeros)),
        }
    }

    fn finish(self, len: u64) -> Option<FileHash> {
        match self {
            Printed::None => None,
            Printed::Plain(hasher) => Some(FileHash::printed(vec![hasher.finish()], false)),
            Printed::Leaves(hasher, mut leaves) => {
                hasher.finish(|index, digest| leaves.add(index, digest));
                leaves.finish(len)
            }
        }
    }
}

/// The digests of a file whose objects arrive in any order.
#[derive(Debug)]
pub(crate) struct FileDigest {
    printed: PrintedParts,
    receipt: Option<ReceiptParts>,
}

impl FileDigest {
    /// Creates the hashers that the job requests, for a file cut as `plan` specifies.
    pub(crate) fn new(moving: &Moving, plan: &Plan) -> FileDigest {
        let size = plan.geometry().object_size();
        let receipt = moving.receipt.as_ref().map(|receipt| ReceiptParts::new(receipt, size));
        FileDigest { printed: PrintedParts::new(&printed_apart(moving), size), receipt }
    }

    /// Starts one object.
    pub(crate) fn object(&self, object: Object) -> ObjectDigest {
        let receipt = self.receipt.as_ref().map(|receipt| receipt.object(object));
        ObjectDigest { printed: self.printed.object(object), receipt }
    }

    /// Adds a finished object.
    pub(crate) fn add(&self, object: Object, digest: ObjectDigest) {
        self.printed.add(object, digest.printed);
        if let Some((receipt, part)) = self.receipt.as_ref().zip(digest.receipt) {
            receipt.add(object, part);
        }
    }

    /// Returns the digests of the file, or `None` if no digest was requested.
    ///
    /// # Panics
    /// Panics if an object is missing. The caller settles a file only after every object has
    /// finished.
    pub(crate) fn finish(&self, moving: &Moving, len: u64) -> Option<FileHash> {
        with_receipt(
            moving,
            self.printed.finish(len),
            self.receipt.as_ref().map(|receipt| receipt.finish(len)),
        )
    }
}

/// Digest to print, for a file whose objects arrive in any order.
#[derive(Debug)]
enum PrintedParts {
    /// No digest is requested.
    None,
    /// An algorithm whose parts combine.
    Parts(Algorithm, Mutex<Assembly>),
    /// The leaves of a tree.
    Leaves(Algorithm, ObjectSize, Mutex<Leaves>),
}

impl PrintedParts {
    fn new(digest: &Option<(Algorithm, HashForm)>, size: ObjectSize) -> PrintedParts {
        match *digest {
            None => PrintedParts::None,
            Some((algorithm, HashForm::Plain)) => {
                PrintedParts::Parts(algorithm, Mutex::new(Assembly::new(algorithm, size)))
            }
            Some((algorithm, form @ (HashForm::Tree(leaf) | HashForm::Leaves(leaf)))) => {
                PrintedParts::Leaves(algorithm, leaf, Mutex::new(Leaves::new(algorithm, leaf, form)))
            }
        }
    }

    fn object(&self, object: Object) -> PrintedPart {
        match self {
            PrintedParts::None => PrintedPart::None,
            PrintedParts::Parts(algorithm, _) => {
                let place = PartPlace { offset: object.range.start, whole: false };
                PrintedPart::Part(PartHasher::new(*algorithm, place))
            }
            PrintedParts::Leaves(algorithm, leaf, _) => {
                let first = object.range.start.0 / leaf.bytes();
                PrintedPart::Leaves(LeafHasher::new(*algorithm, *leaf, first), Vec::new())
            }
        }
    }

    fn add(&self, object: Object, digest: PrintedPart) {
        match (self, digest) {
            (PrintedParts::Parts(_, assembly), PrintedPart::Part(part)) => {
                let part = part.finish();
                assembly.lock().add(object.index, part);
            }
            (PrintedParts::Leaves(_, _, leaves), PrintedPart::Leaves(hasher, mut found)) => {
                hasher.finish(|index, digest| found.push((index, digest)));
                let mut leaves = leaves.lock();
                found.into_iter().for_each(|(index, digest)| leaves.add(index, digest));
            }
            _ => {}
        }
    }

    fn finish(&self, len: u64) -> Option<FileHash> {
        match self {
            PrintedParts::None => None,
            PrintedParts::Parts(_, assembly) => {
                let assembly = assembly.lock().clone();
                let digest = assembly.finish(ByteLen(len)).expect("every object of the file was hashed once");
                Some(FileHash::printed(vec![digest], false))
            }
            PrintedParts::Leaves(_, _, leaves) => {
                let mut leaves = leaves.lock();
                leaves.take().finish(len)
            }
        }
    }
}

/// The digests of one object.
pub(crate) struct ObjectDigest {
    printed: PrintedPart,
    /// Digests for the waybill.
    receipt: Option<ReceiptPart>,
}

impl ObjectDigest {
    /// Hashes the next bytes of the object.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.printed.update(bytes);
        if let Some(receipt) = &mut self.receipt {
            receipt.update(bytes);
        }
    }

    fn update_zeros(&mut self, len: u64) {
        self.printed.update_zeros(len);
        if let Some(receipt) = &mut self.receipt {
            receipt.update_zeros(len);
        }
    }

    /// Returns true if there is anything to compute.
    pub(crate) fn is_asked_for(&self) -> bool {
        !matches!(self.printed, PrintedPart::None) || self.receipt.is_some()
    }
}

/// Observer of the bytes between read and write.
pub(crate) trait DataObserver {
    /// Returns true if the observer needs the bytes at all.
    fn watches(&self) -> bool;
    /// Observes the next bytes.
    fn see(&mut self, bytes: &[u8]);
    /// Observes the next `len` bytes, which are a hole.
    fn see_hole(&mut self, len: u64);
}

/// Passes `len` zeros to `take`, in blocks.
pub(super) fn each_zero_block(len: u64, mut take: impl FnMut(&[u8])) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let range = ByteRange::from_len(ByteOffset(0), ByteLen(len));
    range.steps(ZEROS.len() as u64).for_each(|step| take(&ZEROS[..step.len() as usize]));
}

impl DataObserver for InOrder {
    fn watches(&self) -> bool {
        self.is_asked_for()
    }
    fn see(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
    fn see_hole(&mut self, len: u64) {
        self.update_zeros(len);
    }
}

impl DataObserver for ObjectDigest {
    fn watches(&self) -> bool {
        self.is_asked_for()
    }
    fn see(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
    fn see_hole(&mut self, len: u64) {
        self.update_zeros(len);
    }
}

/// Digest to print, for one object.
enum PrintedPart {
    /// No digest is requested.
    None,
    /// A part that combines with others.
    Part(PartHasher),
    /// The leaves within the object.
    Leaves(LeafHasher, Vec<(u64, Digest)>),
}

impl PrintedPart {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            PrintedPart::None => {}
            PrintedPart::Part(hasher) => hasher.update(bytes),
            PrintedPart::Leaves(hasher, found) => {
                hasher.update(bytes, |index, digest| found.push((index, digest)));
            }
        }
    }

    fn update_zeros(&mut self, len: u64) {
        match self {
            PrintedPart::None => {}
            PrintedPart::Part(hasher) => hasher.update_zeros(len),
            PrintedPart::Leaves(..) => each_zero_block(len, |zeros| self.update(zeros)),
        }
    }
}

/// Cuts a run of bytes into leaves and hashes each leaf.
pub(crate) struct LeafHasher {
    leaf: u64,
    index: u64,
    filled: u64,
    hasher: Hasher,
}

impl LeafHasher {
    fn new(algorithm: Algorithm, leaf: ObjectSize, first: u64) -> LeafHasher {
        LeafHasher { leaf: leaf.bytes(), index: first, filled: 0, hasher: Hasher::new(algorithm) }
    }

    fn update(&mut self, mut bytes: &[u8], mut found: impl FnMut(u64, Digest)) {
        while !bytes.is_empty() {
            let room = usize::try_from(self.leaf - self.filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.hasher.update(now);
            self.filled += now.len() as u64;
            bytes = later;
            if self.filled == self.leaf {
                let next = Hasher::new(self.hasher.algorithm());
                found(self.index, std::mem::replace(&mut self.hasher, next).finish());
                (self.index, self.filled) = (self.index + 1, 0);
            }
        }
    }

    fn finish(self, mut found: impl FnMut(u64, Digest)) {
        if self.filled > 0 {
            found(self.index, self.hasher.finish());
        }
    }
}

/// The leaves of one file's tree. They are combined as they arrive, or kept if each leaf is to be
/// printed.
#[derive(Debug)]
pub(crate) struct Leaves {
    algorithm: Algorithm,
    leaf: ObjectSize,
    root: TreeAssembly,
    kept: Option<Vec<(u64, Digest)>>,
}

impl Leaves {
    fn new(algorithm: Algorithm, leaf: ObjectSize, form: HashForm) -> Leaves {
        let kept = matches!(form, HashForm::Leaves(_)).then(Vec::new);
        Leaves { algorithm, leaf, root: TreeAssembly::new(algorithm), kept }
    }

    fn add(&mut self, index: u64, digest: Digest) {
        match &mut self.kept {
            Some(kept) => kept.push((index, digest)),
            None => self.root.add(index, digest),
        }
    }

    /// Moves the leaves out of a mutex.
    fn take(&mut self) -> Leaves {
        let form = if self.kept.is_some() { HashForm::Leaves(self.leaf) } else { HashForm::Tree(self.leaf) };
        std::mem::replace(self, Leaves::new(self.algorithm, self.leaf, form))
    }

    fn finish(self, len: u64) -> Option<FileHash> {
        let tree = len > self.leaf.bytes();
        let digests = match self.kept {
            Some(mut kept) => {
                kept.sort_unstable_by_key(|(index, _)| *index);
                let mut digests: Vec<Digest> = kept.into_iter().map(|(_, digest)| digest).collect();
                if digests.is_empty() {
                    digests.push(haul_digest::digest(self.algorithm, b""));
                }
                digests
            }
            None => {
                let shape = TreeShape::new(ByteLen(len), ByteLen(self.leaf.bytes()));
                vec![self.root.finish(shape).expect("every leaf of the file was hashed once")]
            }
        };
        Some(FileHash::printed(digests, tree))
    }
}
