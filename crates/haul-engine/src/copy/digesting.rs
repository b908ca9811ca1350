//! The digest of a file from the very bytes that are copied.
//!
//! A file that one worker takes in order feeds one [`InOrder`]. A file whose objects several workers take
//! has one [`FileDigest`], and each object brings its [`ObjectDigest`].

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
}

/// Whether the digest asked for needs each file from its first byte to its last.
pub(crate) fn is_serial(moving: &Moving) -> bool {
    matches!(moving.digest, Some((algorithm, HashForm::Plain)) if algorithm.algebra() == Algebra::Serial)
}

/// The object size that suits the digest: never smaller than a leaf, so that no leaf is shared by two workers.
pub(crate) fn object_size(moving: &Moving) -> ObjectSize {
    match moving.digest {
        Some((_, HashForm::Tree(leaf) | HashForm::Leaves(leaf))) => moving.object.max(leaf),
        _ => moving.object,
    }
}

/// The digest of a file that is fed in order.
pub(crate) enum InOrder {
    /// None is asked for.
    None,
    /// The algorithm's own value.
    Plain(Hasher),
    /// A tree's leaves.
    Leaves(LeafHasher, Leaves),
}

impl InOrder {
    /// What the job asks for.
    pub(crate) fn new(moving: &Moving) -> InOrder {
        match moving.digest {
            None => InOrder::None,
            Some((algorithm, HashForm::Plain)) => InOrder::Plain(Hasher::new(algorithm)),
            Some((algorithm, form @ (HashForm::Tree(leaf) | HashForm::Leaves(leaf)))) => {
                InOrder::Leaves(LeafHasher::new(algorithm, leaf, 0), Leaves::new(algorithm, leaf, form))
            }
        }
    }

    /// Whether there is anything to compute.
    pub(crate) fn is_asked_for(&self) -> bool {
        !matches!(self, InOrder::None)
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            InOrder::None => {}
            InOrder::Plain(hasher) => hasher.update(bytes),
            InOrder::Leaves(hasher, leaves) => {
                hasher.update(bytes, |index, digest| leaves.add(index, digest));
            }
        }
    }

    /// The value over all bytes taken, `len` of them; `None` where none was asked for.
    pub(crate) fn finish(self, len: u64) -> Option<FileHash> {
        match self {
            InOrder::None => None,
            InOrder::Plain(hasher) => Some(FileHash { digests: vec![hasher.finish()], tree: false }),
            InOrder::Leaves(hasher, mut leaves) => {
                hasher.finish(|index, digest| leaves.add(index, digest));
                leaves.finish(len)
            }
        }
    }
}

/// The digest of a file whose objects come in any order.
#[derive(Debug)]
pub(crate) enum FileDigest {
    /// None is asked for.
    None,
    /// An algorithm whose parts combine.
    Parts(Algorithm, Mutex<Assembly>),
    /// A tree's leaves.
    Leaves(Algorithm, ObjectSize, Mutex<Leaves>),
}

impl FileDigest {
    /// What the job asks for, of a file cut as `plan` says.
    pub(crate) fn new(moving: &Moving, plan: &Plan) -> FileDigest {
        match moving.digest {
            None => FileDigest::None,
            Some((algorithm, HashForm::Plain)) => {
                let assembly = Assembly::new(algorithm, plan.geometry().object_size());
                FileDigest::Parts(algorithm, Mutex::new(assembly))
            }
            Some((algorithm, form @ (HashForm::Tree(leaf) | HashForm::Leaves(leaf)))) => {
                FileDigest::Leaves(algorithm, leaf, Mutex::new(Leaves::new(algorithm, leaf, form)))
            }
        }
    }

    /// Begins one object.
    pub(crate) fn object(&self, object: Object) -> ObjectDigest {
        match self {
            FileDigest::None => ObjectDigest::None,
            FileDigest::Parts(algorithm, _) => {
                let place = PartPlace { offset: object.range.start, whole: false };
                ObjectDigest::Part(PartHasher::new(*algorithm, place))
            }
            FileDigest::Leaves(algorithm, leaf, _) => {
                let first = object.range.start.0 / leaf.bytes();
                ObjectDigest::Leaves(LeafHasher::new(*algorithm, *leaf, first), Vec::new())
            }
        }
    }

    /// Takes a finished object.
    pub(crate) fn add(&self, object: Object, digest: ObjectDigest) {
        match (self, digest) {
            (FileDigest::Parts(_, assembly), ObjectDigest::Part(part)) => {
                let part = part.finish();
                assembly.lock().unwrap_or_else(PoisonError::into_inner).add(object.index, part);
            }
            (FileDigest::Leaves(_, _, leaves), ObjectDigest::Leaves(hasher, mut found)) => {
                hasher.finish(|index, digest| found.push((index, digest)));
                let mut leaves = leaves.lock().unwrap_or_else(PoisonError::into_inner);
                found.into_iter().for_each(|(index, digest)| leaves.add(index, digest));
            }
            _ => {}
        }
    }

    /// The file's value. `None` where none was asked for.
    ///
    /// # Panics
    /// If an object is missing: the caller settles a file only when every object is through.
    pub(crate) fn finish(&self, len: u64) -> Option<FileHash> {
        match self {
            FileDigest::None => None,
            FileDigest::Parts(_, assembly) => {
                let assembly = assembly.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let digest = assembly.finish(ByteLen(len)).expect("every object of the file was hashed once");
                Some(FileHash { digests: vec![digest], tree: false })
            }
            FileDigest::Leaves(_, _, leaves) => {
                let mut leaves = leaves.lock().unwrap_or_else(PoisonError::into_inner);
                leaves.take().finish(len)
            }
        }
    }
}

/// The digest of one object.
pub(crate) enum ObjectDigest {
    /// None is asked for.
    None,
    /// A part that combines with others.
    Part(PartHasher),
    /// The leaves within the object.
    Leaves(LeafHasher, Vec<(u64, Digest)>),
}

impl ObjectDigest {
    /// Takes the object's next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            ObjectDigest::None => {}
            ObjectDigest::Part(hasher) => hasher.update(bytes),
            ObjectDigest::Leaves(hasher, found) => {
                hasher.update(bytes, |index, digest| found.push((index, digest)));
            }
        }
    }

    /// Whether there is anything to compute.
    pub(crate) fn is_asked_for(&self) -> bool {
        !matches!(self, ObjectDigest::None)
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
        Some(FileHash { digests, tree })
    }
}
