//! The digest of a file from the very bytes that are copied.
//!
//! A file that one worker takes in order feeds one [`InOrder`]. A file whose objects several workers take
//! has one [`FileDigest`], and each object brings its [`ObjectDigest`].

use super::receipt::{ReceiptPart, ReceiptParts, ReceiptStream, ReceiptSums};
use super::settings::{HashForm, Moving};
use haul_digest::tree::{TreeAssembly, TreeShape};
use haul_digest::{Algebra, Algorithm, Assembly, Digest, Hasher, PartHasher, PartPlace};
use haul_model::{ByteLen, Object, ObjectSize};
use haul_plan::Plan;
use std::sync::{Mutex, PoisonError};

/// What a file's digest came to.
#[derive(Debug)]
pub(crate) struct FileHash {
    /// One value, or one per leaf where leaves were asked for.
    pub(crate) digests: Vec<Digest>,
    /// Whether the value is a tree's of more than one leaf.
    pub(crate) tree: bool,
    /// What the waybill is told.
    pub(crate) receipt: Option<ReceiptSums>,
}

impl FileHash {
    /// The digest of the whole file by an algorithm's own rules.
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

/// Whether any digest is asked for, so that every byte is hashed on its way.
pub(crate) fn is_any(moving: &Moving) -> bool {
    moving.digest.is_some() || moving.receipt.is_some()
}

/// Whether the digest asked for needs each file from its first byte to its last.
pub(crate) fn is_serial(moving: &Moving) -> bool {
    let printed =
        matches!(moving.digest, Some((algorithm, HashForm::Plain)) if algorithm.algebra() == Algebra::Serial);
    printed || moving.receipt.as_ref().is_some_and(|receipt| receipt.is_serial())
}

/// The object size that suits the digest: never smaller than a leaf, so that no leaf is shared by two workers.
pub(crate) fn object_size(moving: &Moving) -> ObjectSize {
    match moving.digest {
        Some((_, HashForm::Tree(leaf) | HashForm::Leaves(leaf))) => moving.object.max(leaf),
        _ => moving.object,
    }
}

/// What is computed of a file that is fed in order.
pub(crate) struct InOrder {
    printed: Printed,
    receipt: Option<ReceiptStream>,
}

impl InOrder {
    /// What the job asks for.
    pub(crate) fn new(moving: &Moving) -> InOrder {
        let receipt = moving.receipt.as_ref();
        let receipt = receipt.map(|receipt| ReceiptStream::new(receipt, object_size(moving)));
        InOrder { printed: Printed::new(&printed_apart(moving)), receipt }
    }

    /// Whether there is anything to compute.
    pub(crate) fn is_asked_for(&self) -> bool {
        !matches!(self.printed, Printed::None) || self.receipt.is_some()
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.printed.update(bytes);
        if let Some(receipt) = &mut self.receipt {
            receipt.update(bytes);
        }
    }

    /// The values over all bytes taken, `len` of them; `None` where none was asked for.
    pub(crate) fn finish(self, moving: &Moving, len: u64) -> Option<FileHash> {
        with_receipt(moving, self.printed.finish(len), self.receipt.map(ReceiptStream::finish))
    }
}

/// The digest that is printed, where it is not one of the waybill's.
fn printed_apart(moving: &Moving) -> Option<(Algorithm, HashForm)> {
    let in_receipt = |algorithm| moving.receipt.as_ref().is_some_and(|receipt| receipt.has(algorithm));
    moving.digest.filter(|(algorithm, form)| !(*form == HashForm::Plain && in_receipt(*algorithm)))
}

/// What is printed and what the waybill is told, together.
fn with_receipt(moving: &Moving, printed: Option<FileHash>, sums: Option<ReceiptSums>) -> Option<FileHash> {
    let Some(sums) = sums else { return printed };
    let wanted = moving.digest.map(|(algorithm, _)| algorithm);
    let shared = sums.digests.iter().copied().filter(|digest| Some(digest.algorithm()) == wanted);
    let mut hash = printed.unwrap_or_else(|| FileHash::printed(shared.collect(), false));
    hash.receipt = Some(sums);
    Some(hash)
}

/// The digest to print of a file that is fed in order.
enum Printed {
    /// None is asked for.
    None,
    /// The algorithm's own value.
    Plain(Hasher),
    /// A tree's leaves.
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

/// What is computed of a file whose objects come in any order.
#[derive(Debug)]
pub(crate) struct FileDigest {
    printed: PrintedParts,
    receipt: Option<ReceiptParts>,
}

impl FileDigest {
    /// What the job asks for, of a file cut as `plan` says.
    pub(crate) fn new(moving: &Moving, plan: &Plan) -> FileDigest {
        let size = plan.geometry().object_size();
        let receipt = moving.receipt.as_ref().map(|receipt| ReceiptParts::new(receipt, size));
        FileDigest { printed: PrintedParts::new(&printed_apart(moving), size), receipt }
    }

    /// Begins one object.
    pub(crate) fn object(&self, object: Object) -> ObjectDigest {
        let receipt = self.receipt.as_ref().map(|receipt| receipt.object(object));
        ObjectDigest { printed: self.printed.object(object), receipt }
    }

    /// Takes a finished object.
    pub(crate) fn add(&self, object: Object, digest: ObjectDigest) {
        self.printed.add(object, digest.printed);
        if let Some((receipt, part)) = self.receipt.as_ref().zip(digest.receipt) {
            receipt.add(object, part);
        }
    }

    /// The file's values. `None` where none was asked for.
    ///
    /// # Panics
    /// If an object is missing: the caller settles a file only when every object is through.
    pub(crate) fn finish(&self, moving: &Moving, len: u64) -> Option<FileHash> {
        with_receipt(
            moving,
            self.printed.finish(len),
            self.receipt.as_ref().map(|receipt| receipt.finish(len)),
        )
    }
}

/// The digest to print of a file whose objects come in any order.
#[derive(Debug)]
enum PrintedParts {
    /// None is asked for.
    None,
    /// An algorithm whose parts combine.
    Parts(Algorithm, Mutex<Assembly>),
    /// A tree's leaves.
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
                assembly.lock().unwrap_or_else(PoisonError::into_inner).add(object.index, part);
            }
            (PrintedParts::Leaves(_, _, leaves), PrintedPart::Leaves(hasher, mut found)) => {
                hasher.finish(|index, digest| found.push((index, digest)));
                let mut leaves = leaves.lock().unwrap_or_else(PoisonError::into_inner);
                found.into_iter().for_each(|(index, digest)| leaves.add(index, digest));
            }
            _ => {}
        }
    }

    fn finish(&self, len: u64) -> Option<FileHash> {
        match self {
            PrintedParts::None => None,
            PrintedParts::Parts(_, assembly) => {
                let assembly = assembly.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let digest = assembly.finish(ByteLen(len)).expect("every object of the file was hashed once");
                Some(FileHash::printed(vec![digest], false))
            }
            PrintedParts::Leaves(_, _, leaves) => {
                let mut leaves = leaves.lock().unwrap_or_else(PoisonError::into_inner);
                leaves.take().finish(len)
            }
        }
    }
}

/// What is computed of one object.
pub(crate) struct ObjectDigest {
    printed: PrintedPart,
    /// What the waybill is told.
    receipt: Option<ReceiptPart>,
}

impl ObjectDigest {
    /// Takes the object's next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.printed.update(bytes);
        if let Some(receipt) = &mut self.receipt {
            receipt.update(bytes);
        }
    }

    /// Whether there is anything to compute.
    pub(crate) fn is_asked_for(&self) -> bool {
        !matches!(self.printed, PrintedPart::None) || self.receipt.is_some()
    }
}

/// What looks at bytes between read and write.
pub(crate) trait Watch {
    /// Whether it needs to see them at all.
    fn watches(&self) -> bool;
    /// The next bytes.
    fn see(&mut self, bytes: &[u8]);
    /// The next `len` bytes, which are a hole.
    fn see_hole(&mut self, len: u64) {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut left = len;
        while left > 0 && self.watches() {
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
            self.see(&ZEROS[..now]);
            left -= now as u64;
        }
    }
}

impl Watch for InOrder {
    fn watches(&self) -> bool {
        self.is_asked_for()
    }
    fn see(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

impl Watch for ObjectDigest {
    fn watches(&self) -> bool {
        self.is_asked_for()
    }
    fn see(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

/// The digest to print, of one object.
enum PrintedPart {
    /// None is asked for.
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
}

/// Cuts a run of bytes into leaves and hashes each.
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

/// The leaves of one file's tree, joined as they come, or kept where each is to be printed.
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

    /// Moves the leaves out from behind a lock.
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
