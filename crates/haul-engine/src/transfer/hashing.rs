//! Digests of what passes: of each object, or of the file as a whole.

use haul_digest::{Algebra, Algorithm, Assembly, Digest, Hasher, Part, PartHasher, PartPlace};
use haul_model::{ByteLen, Object, ObjectSize};
use haul_proto::{JobOptions, Unit, Verify};

/// What of a job's bytes is hashed while they pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe {
    algorithm: Algorithm,
    object: ObjectSize,
    objects: bool,
    root: bool,
}

impl Recipe {
    /// What a job asks for.
    pub(super) fn of(options: &JobOptions) -> Recipe {
        let passing = options.verify != Verify::None && !options.verify.reads_twice();
        Recipe {
            algorithm: options.algorithm,
            object: options.object,
            objects: passing && options.unit == Unit::Object,
            root: passing && options.unit == Unit::File,
        }
    }

    /// A hash of one object of a file of `size` bytes, as it is wanted while the bytes pass.
    pub(super) fn object(&self, object: Object, size: u64) -> ObjectHash {
        let is_part_of_root = self.root && self.algorithm.algebra() == Algebra::Combines;
        if self.objects || is_part_of_root { self.object_again(object, size) } else { ObjectHash::Nothing }
    }

    /// A hash of one object for a second look, whatever is hashed while bytes pass.
    pub(super) fn object_again(&self, object: Object, size: u64) -> ObjectHash {
        if self.algorithm.algebra() == Algebra::Combines {
            let place = PartPlace { offset: object.range.start, whole: object.range.len() == size };
            ObjectHash::Part(PartHasher::new(self.algorithm, place))
        } else {
            ObjectHash::Serial(Hasher::new(self.algorithm))
        }
    }

    /// A hash of a whole file.
    pub(super) fn root(&self) -> RootHash {
        match (self.root, self.algorithm.algebra()) {
            (false, _) => RootHash::Nothing,
            (true, Algebra::Combines) => {
                RootHash::Parts(Box::new(Assembly::new(self.algorithm, self.object)))
            }
            (true, Algebra::Serial) => RootHash::Serial(Hasher::new(self.algorithm)),
        }
    }

    /// Whether digests of objects travel behind them.
    pub(super) fn states_objects(&self) -> bool {
        self.objects
    }

    /// The algorithm.
    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// One object's hash in the making.
#[derive(Clone, Debug)]
pub(super) enum ObjectHash {
    /// Not asked for.
    Nothing,
    /// Of an algorithm whose parts combine.
    Part(PartHasher),
    /// Of any other: the object's bytes alone.
    Serial(Hasher),
}

impl ObjectHash {
    /// Takes the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            ObjectHash::Nothing => {}
            ObjectHash::Part(hasher) => hasher.update(bytes),
            ObjectHash::Serial(hasher) => hasher.update(bytes),
        }
    }

    /// Takes zeros.
    pub(super) fn update_zeros(&mut self, len: u64) {
        match self {
            ObjectHash::Nothing => {}
            ObjectHash::Part(hasher) => hasher.update_zeros(len),
            ObjectHash::Serial(hasher) => hasher.update_zeros(len),
        }
    }

    /// The digest, and the part for a file's own.
    pub(super) fn finish(self) -> (Option<Digest>, Option<Part>) {
        match self {
            ObjectHash::Nothing => (None, None),
            ObjectHash::Part(hasher) => {
                let part = hasher.finish();
                (Some(part.digest()), Some(part))
            }
            ObjectHash::Serial(hasher) => (Some(hasher.finish()), None),
        }
    }
}

/// A whole file's hash in the making.
#[derive(Clone, Debug)]
pub(super) enum RootHash {
    /// Not asked for.
    Nothing,
    /// From parts, in any order.
    Parts(Box<Assembly>),
    /// From the first byte to the last.
    Serial(Hasher),
}

impl RootHash {
    /// Takes bytes where they come in order.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        if let RootHash::Serial(hasher) = self {
            hasher.update(bytes);
        }
    }

    /// Takes zeros where they come in order.
    pub(super) fn update_zeros(&mut self, len: u64) {
        if let RootHash::Serial(hasher) = self {
            hasher.update_zeros(len);
        }
    }

    /// Whether it must see every byte in order.
    pub(super) fn is_serial(&self) -> bool {
        matches!(self, RootHash::Serial(_))
    }

    /// Takes a finished object.
    pub(super) fn add(&mut self, object: Object, part: Option<Part>) {
        if let (RootHash::Parts(assembly), Some(part)) = (self, part) {
            assembly.add(object.index, part);
        }
    }

    /// The digest of `len` bytes; `None` where it is not asked for or bytes are missing.
    pub(super) fn finish(self, len: u64) -> Option<Digest> {
        match self {
            RootHash::Nothing => None,
            RootHash::Parts(assembly) => assembly.finish(ByteLen(len)).ok(),
            RootHash::Serial(hasher) => Some(hasher.finish()),
        }
    }
}
