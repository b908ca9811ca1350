//! The one accumulator of the digests of a file: of objects in any order, of a file in order, and
//! of the leaves of a tree.
//!
//! A [`FileDigest`] gets each object from an [`ObjectDigest`], which a worker feeds without any
//! lock. A [`StreamDigest`] is the same for bytes that one worker reads in order up to an end that
//! is not known before.
//!
//! ```text
//!              begin                 finish               add, replace
//!  FileDigest ------> ObjectDigest  -------> ObjectSums  --------------> FileDigest ----> FileSum
//!                     update, zeros                known, known_leaves -->         finish
//! ```
//!
//! Each digest of a [`Recipe`] has its own [`Form`], because jobs mix them: a copy that prints the
//! tree of SHA-256 writes a waybill with the objects of BLAKE3 and the plain MD5 from one read.
//!
//! The plain digest of a serial algorithm needs the bytes in order. [`FileDigest::begin`] copies
//! its state into the object, and [`FileDigest::add`] takes the state over. An object that is
//! dropped half way, or hashed twice, therefore changes nothing.
//!
//! Memory use grows with the number of gaps, and not with the length of the file. Two forms keep
//! more, as documented there: [`Form::Objects`] the digests of objects that were added, and
//! [`Form::Tree`] at most [`KEPT_MAX`] subtrees.

use crate::hasher::each_zero_block;
use crate::tree::{TreeAssembly, TreeHasher, TreeShape, root_of};
use crate::{
    Algebra, Algorithm, Assembly, Digest, Hasher, LeafHasher, ObjectTable, Part, PartHasher, PartPlace,
};
use haul_model::{ByteLen, ByteRange, Geometry, LeafSize, Object, ObjectIndex, ObjectSize, Runs};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// Maximum number of subtrees of one digest whose roots are kept: 2^20 digests take 110 MiB.
pub const KEPT_MAX: u64 = 1 << 20;

/// Digests to compute of a file, from one pass over its bytes. A copy shares the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    specs: Arc<[DigestSpec]>,
}

/// One digest of a [`Recipe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestSpec {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Form of the digest.
    pub form: Form,
}

/// Form of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Digest of the bytes of the file. Objects come in any order if the algorithm combines, and
    /// otherwise in the order of the file.
    Plain,
    /// Digest of the bytes of the file and digests of its objects, which are kept. The algorithm
    /// must have digests that can be joined ([`Algorithm::digests_join`]).
    Objects {
        /// Size of leaves whose digests are passed on as well, but not kept.
        leaf: Option<LeafSize>,
    },
    /// Digest of each object, and none of the file: [`Part::digest`] if the algorithm combines, and
    /// otherwise the digest of the object's own bytes.
    Apart,
    /// Root of a hash tree ([`crate::tree`]).
    Tree {
        /// Leaf size in bytes; each object starts at a multiple of it.
        leaf: ByteLen,
        /// Size in bytes of the subtrees whose roots are kept as well, at most [`KEPT_MAX`]: the
        /// leaf size times a power of two. Each object then starts at a multiple of it.
        keep: Option<ByteLen>,
    },
}

impl Recipe {
    /// Creates a recipe with these digests. Methods take their numbers, counted from 0.
    ///
    /// # Panics
    ///
    /// Panics if digests of objects are requested from an algorithm whose digests cannot be joined.
    pub fn new(specs: impl IntoIterator<Item = DigestSpec>) -> Recipe {
        let specs: Arc<[DigestSpec]> = specs.into_iter().collect();
        for DigestSpec { algorithm, form } in specs.iter() {
            let is_joined = !matches!(form, Form::Objects { .. }) || algorithm.digests_join();
            assert!(is_joined, "digests of {algorithm} cannot be joined");
        }
        Recipe { specs }
    }

    /// Returns the digests.
    pub fn specs(&self) -> &[DigestSpec] {
        &self.specs
    }

    /// Returns true if a digest needs the bytes of the file in order.
    pub fn is_serial(&self) -> bool {
        self.specs.iter().any(DigestSpec::is_serial)
    }

    /// Starts an object that counts for no file, for example because it is read again. It has no
    /// part of the digests that need the file in order. `whole` is true if the object is the
    /// complete file.
    pub fn object(&self, object: Object, whole: bool) -> ObjectDigest {
        let columns = self.specs.iter().map(|spec| match spec.is_serial() {
            true => ObjectColumn::OutOfTurn,
            false => ObjectColumn::new(*spec, object, whole, spec.unit()),
        });
        ObjectDigest { object, whole, fed: 0, columns: columns.collect() }
    }

    /// Returns true if a digest of objects is requested.
    fn has_objects(&self) -> bool {
        self.specs.iter().any(|spec| matches!(spec.form, Form::Objects { .. } | Form::Apart))
    }
}

impl DigestSpec {
    /// Creates a digest in this form.
    pub const fn new(algorithm: Algorithm, form: Form) -> DigestSpec {
        DigestSpec { algorithm, form }
    }

    fn is_serial(&self) -> bool {
        self.form == Form::Plain && self.algorithm.algebra() == Algebra::Serial
    }

    /// Returns the size of the subtrees of which an object has one or several.
    fn unit(&self) -> u64 {
        match self.form {
            Form::Tree { leaf, keep } => keep.unwrap_or(leaf).0,
            Form::Plain | Form::Objects { .. } | Form::Apart => 0,
        }
    }
}

/// Digests of one file in progress.
#[derive(Clone, Debug)]
pub struct FileDigest {
    recipe: Recipe,
    /// Length of the file in bytes; `None` for a stream that has not ended.
    len: Option<u64>,
    /// Size of every object except the last, in bytes.
    piece: u64,
    columns: Vec<Column>,
    /// Objects that were added.
    seen: Runs,
}

/// One digest of the file.
#[derive(Clone, Debug)]
enum Column {
    Plain(Assembly),
    InOrder(InOrder),
    Objects(ObjectTable),
    Apart,
    Tree(TreeUnits),
}

/// A digest that needs the bytes in order.
#[derive(Clone, Debug)]
struct InOrder {
    hasher: Hasher,
    /// End of the last object that was added, and the number of bytes added.
    end: u64,
    len: u64,
}

/// The subtrees of a tree.
#[derive(Clone, Debug)]
struct TreeUnits {
    /// Size of every subtree except the last, in bytes.
    unit: u64,
    assembly: TreeAssembly,
    kept: Option<BTreeMap<u64, Digest>>,
}

/// Effect of an object that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The object counts from now on.
    Once,
    /// The object was added before.
    Twice,
    /// The object is not one of the file, or not all of its bytes were hashed: it does not count.
    Misfit,
}

/// Reason why a file has no digest.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Missing {
    /// No object covers these bytes.
    #[error("bytes {0} were not hashed")]
    Bytes(ByteRange),
    /// The objects were not added in the order of the file, which this algorithm needs.
    #[error("the bytes were not hashed in order, which {0} needs")]
    Order(Algorithm),
    /// More subtrees would have to be kept than [`KEPT_MAX`].
    #[error("more than {KEPT_MAX} subtrees; choose larger ones")]
    Subtrees,
}

/// One digest of a complete file, with what its form keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSum {
    /// Digest of the file, or root of its tree; `None` for [`Form::Apart`].
    pub digest: Option<Digest>,
    /// Digests of the objects, if they are kept and there is more than one.
    pub objects: Option<ObjectTable>,
    /// Roots of the subtrees in their order, if they are kept. An empty file has one.
    pub kept: Vec<Digest>,
}

impl FileDigest {
    /// Returns the digests of a file without objects.
    pub fn new(recipe: &Recipe, geometry: Geometry) -> FileDigest {
        let size = geometry.object_size();
        FileDigest::with(recipe, Some(geometry.len()), size.bytes(), size)
    }

    /// Returns the digests of a file of `len` bytes whose objects have `piece` bytes, which need
    /// not be a power of two.
    ///
    /// # Panics
    ///
    /// Panics if a digest is not a tree, or if `piece` is 0.
    pub fn in_pieces(recipe: &Recipe, len: ByteLen, piece: ByteLen) -> FileDigest {
        let are_trees = recipe.specs.iter().all(|spec| matches!(spec.form, Form::Tree { .. }));
        assert!(are_trees && piece.0 > 0, "only trees are cut into pieces of any size");
        FileDigest::with(recipe, Some(len.0), piece.0, ObjectSize::DEFAULT)
    }

    /// Returns the digests of a stream, whose bytes are fed in order. Digests of objects are those
    /// of objects of this size.
    ///
    /// # Panics
    ///
    /// Panics if a tree is requested together with digests of objects, and its leaf size, or the
    /// size of its subtrees that are kept, does not divide the object size.
    pub fn stream(recipe: &Recipe, object: ObjectSize) -> StreamDigest {
        let is_cut = recipe.has_objects();
        let mut file = FileDigest::with(recipe, None, object.bytes(), object);
        for (column, spec) in file.columns.iter_mut().zip(recipe.specs.iter()) {
            if let (Column::Tree(units), Form::Tree { keep: None, .. }, false) = (column, spec.form, is_cut) {
                units.unit = u64::MAX;
            }
        }
        StreamDigest { file, is_cut, current: None, at: 0, leaves: Vec::new() }
    }

    fn with(recipe: &Recipe, len: Option<u64>, piece: u64, object: ObjectSize) -> FileDigest {
        let columns = recipe.specs.iter().map(|spec| Column::new(*spec, object)).collect();
        FileDigest { recipe: recipe.clone(), len, piece, columns, seen: Runs::default() }
    }

    /// Returns the recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Returns an object of the file, or `None` past its end.
    pub fn object(&self, index: ObjectIndex) -> Option<Object> {
        let start = index.0.checked_mul(self.piece)?;
        let end = start.saturating_add(self.piece).min(self.len.unwrap_or(u64::MAX));
        (start < end).then(|| Object { index, range: ByteRange::between(start, end) })
    }

    /// Starts an object of the file.
    pub fn begin(&self, object: Object) -> ObjectDigest {
        let whole = self.len == Some(object.range.len());
        let is_new = !self.has(object.index);
        let columns = self.columns.iter().zip(self.recipe.specs.iter());
        let columns = columns.map(|(column, spec)| match column {
            Column::InOrder(state) if is_new && state.end <= object.range.start.0 => {
                ObjectColumn::InOrder(state.hasher.clone())
            }
            Column::InOrder(_) => ObjectColumn::OutOfTurn,
            Column::Tree(units) => ObjectColumn::new(*spec, object, whole, units.unit),
            _ => ObjectColumn::new(*spec, object, whole, 0),
        });
        ObjectDigest { object, whole, fed: 0, columns: columns.collect() }
    }

    /// Adds an object. If the object was added before, nothing changes.
    pub fn add(&mut self, sums: ObjectSums) -> Added {
        self.put(sums, false)
    }

    /// Adds an object. If the object was added before, its new digest replaces the one that is kept
    /// ([`Form::Objects`]): the object was rejected, and moved again. All other digests of the file
    /// keep the first value, and differ from those of the peer if the values did.
    pub fn replace(&mut self, sums: ObjectSums) -> Added {
        self.put(sums, true)
    }

    /// Adds an object by its digests in the order of the recipe, from a log or a waybill. For a
    /// combining algorithm it is that of [`Part::digest`], and for a tree the root of a subtree
    /// that is the object. Digests that need the bytes in order get nothing.
    ///
    /// # Panics
    ///
    /// Panics if the digests are not those of the recipe or cannot be joined, or if an object is
    /// not one subtree.
    pub fn known(&mut self, object: Object, digests: &[Digest]) -> Added {
        assert_eq!(digests.len(), self.columns.len(), "one digest for each of the recipe");
        let place = PartPlace { offset: object.range.start, whole: self.len == Some(object.range.len()) };
        let columns = self.columns.iter().zip(self.recipe.specs.iter()).zip(digests);
        let columns = columns.map(|((column, spec), digest)| {
            assert_eq!(digest.algorithm(), spec.algorithm, "each digest has its place in the recipe");
            match column {
                Column::Plain(_) | Column::Objects(_) => {
                    ObjectSum::Part(Part::from_digest(*digest, place, ByteLen(object.range.len())))
                }
                Column::InOrder(_) => ObjectSum::Nothing,
                Column::Apart => ObjectSum::Apart(*digest),
                Column::Tree(units) => {
                    assert!(object.range.len() <= units.unit, "an object is one subtree");
                    ObjectSum::Units(object.range.start.0 / units.unit, vec![*digest])
                }
            }
        });
        let columns = columns.collect();
        self.add(ObjectSums { object, fed: object.range.len(), columns, leaves: Vec::new() })
    }

    /// Adds an object by the digests of its leaves for each digest of the recipe, all of which are
    /// trees.
    ///
    /// # Panics
    ///
    /// Panics if a digest is not a tree.
    pub fn known_leaves(&mut self, object: Object, leaves: Vec<Vec<Digest>>) -> Added {
        assert_eq!(leaves.len(), self.columns.len(), "leaves for each digest of the recipe");
        let columns = self.recipe.specs.iter().zip(leaves).map(|(spec, leaves)| {
            let Form::Tree { leaf, .. } = spec.form else { panic!("only a tree has leaves") };
            let unit = spec.unit();
            let roots = match usize::try_from(unit / leaf.0) {
                Ok(1) => leaves,
                per_unit => {
                    let units = leaves.chunks(per_unit.unwrap_or(usize::MAX));
                    units.map(|unit| root_of(spec.algorithm, unit)).collect()
                }
            };
            ObjectSum::Units(object.range.start.0 / unit, roots)
        });
        let columns = columns.collect();
        self.add(ObjectSums { object, fed: object.range.len(), columns, leaves: Vec::new() })
    }

    fn put(&mut self, sums: ObjectSums, replaces: bool) -> Added {
        let is_of_file = self.len.is_none() || self.object(sums.object.index) == Some(sums.object);
        if !is_of_file || sums.fed != sums.object.range.len() || sums.columns.len() != self.columns.len() {
            return Added::Misfit;
        }
        let is_new = self.seen.insert(sums.object.index.0);
        if !is_new && !replaces {
            return Added::Twice;
        }
        for (column, sum) in self.columns.iter_mut().zip(sums.columns) {
            match column {
                Column::Objects(_) => column.add(sums.object, sum),
                _ if is_new => column.add(sums.object, sum),
                _ => {}
            }
        }
        if is_new { Added::Once } else { Added::Twice }
    }

    /// Returns true if an object was added.
    pub fn has(&self, index: ObjectIndex) -> bool {
        self.seen.contains(index.0)
    }

    /// Returns the next object, from index `from` on, that was not added and that a digest needs.
    /// Digests of a file in order and of objects alone need none: an object cannot be added to them
    /// later.
    pub fn missing(&self, from: ObjectIndex) -> Option<Object> {
        let needs = |column: &Column| !matches!(column, Column::InOrder(_) | Column::Apart);
        let next = || self.object(ObjectIndex(self.seen.first_gap(from.0)));
        self.columns.iter().any(needs).then(next)?
    }

    /// Discards all objects.
    pub fn restart(&mut self) {
        for (column, spec) in self.columns.iter_mut().zip(self.recipe.specs.iter()) {
            column.restart(*spec);
        }
        self.seen = Runs::default();
    }

    /// Returns a digest of the complete file; `None` if its form has none.
    ///
    /// # Errors
    ///
    /// Returns [`Missing`] if an object is missing, or came out of order.
    ///
    /// # Panics
    ///
    /// Panics if the recipe has no digest with this number.
    pub fn digest(&self, number: usize) -> Result<Option<Digest>, Missing> {
        let column = &self.columns[number];
        if matches!(column, Column::Apart) {
            return Ok(None);
        }
        let len = self.complete_len()?;
        column.digest(self.recipe.specs[number].algorithm, self.piece, len).map(Some)
    }

    /// Returns the digest of the bytes that were added in order, whichever bytes of the file these
    /// are; `None` if the digest does not need the bytes in order. Both sides of a resumed
    /// transfer add the same objects.
    pub fn digest_of_added(&self, number: usize) -> Option<Digest> {
        match &self.columns[number] {
            Column::InOrder(state) => Some(state.hasher.clone().finish()),
            _ => None,
        }
    }

    /// Returns the digests of the objects that were added so far, if this digest keeps them.
    pub fn objects(&self, number: usize) -> Option<&ObjectTable> {
        match &self.columns[number] {
            Column::Objects(table) => Some(table),
            _ => None,
        }
    }

    /// Takes the digests of the objects of which a sample was added.
    pub fn into_objects(self) -> impl Iterator<Item = Option<ObjectTable>> {
        self.columns.into_iter().map(|column| match column {
            Column::Objects(table) => Some(table),
            _ => None,
        })
    }

    /// Returns each digest of the recipe.
    ///
    /// # Errors
    ///
    /// Same as [`FileDigest::digest`].
    pub fn finish(self) -> Result<Vec<FileSum>, Missing> {
        let len = self.complete_len()?;
        let has_objects = len > self.piece;
        let piece = self.piece;
        let columns = self.columns.into_iter().zip(self.recipe.specs.iter());
        let finish = |(column, spec): (Column, &DigestSpec)| -> Result<FileSum, Missing> {
            let algorithm = spec.algorithm;
            let digest = match column {
                Column::Apart => None,
                _ => Some(column.digest(algorithm, piece, len)?),
            };
            let (objects, kept) = match column {
                Column::Objects(table) => (Some(table).filter(|_| has_objects), Vec::new()),
                Column::Tree(TreeUnits { kept: Some(kept), .. }) if len > 0 => {
                    (None, kept.into_values().collect())
                }
                Column::Tree(TreeUnits { kept: Some(_), .. }) => (None, digest.into_iter().collect()),
                _ => (None, Vec::new()),
            };
            Ok(FileSum { digest, objects, kept })
        };
        columns.map(finish).collect()
    }

    /// Returns the length of the file, if no object is missing.
    fn complete_len(&self) -> Result<u64, Missing> {
        let len = self.len.unwrap_or(0);
        let count = len.div_ceil(self.piece);
        let gap = self.seen.first_gap(0);
        if gap >= count {
            return Ok(len);
        }
        let next = self.seen.iter().map(|(start, _)| start).find(|start| *start > gap);
        let byte = |index: u64| index.saturating_mul(self.piece).min(len);
        Err(Missing::Bytes(ByteRange::between(byte(gap), next.map_or(len, byte))))
    }
}

impl Column {
    fn new(spec: DigestSpec, object: ObjectSize) -> Column {
        let DigestSpec { algorithm, form } = spec;
        match form {
            Form::Plain if spec.is_serial() => {
                Column::InOrder(InOrder { hasher: Hasher::new(algorithm), end: 0, len: 0 })
            }
            Form::Plain => Column::Plain(Assembly::new(algorithm, object)),
            Form::Objects { .. } => Column::Objects(ObjectTable::of(algorithm, object)),
            Form::Apart => Column::Apart,
            Form::Tree { keep, .. } => Column::Tree(TreeUnits {
                unit: spec.unit(),
                assembly: TreeAssembly::new(algorithm),
                kept: keep.map(|_| BTreeMap::new()),
            }),
        }
    }

    fn restart(&mut self, spec: DigestSpec) {
        match self {
            Column::Plain(assembly) => *assembly = Assembly::new(spec.algorithm, assembly.object_size()),
            Column::InOrder(state) => {
                *state = InOrder { hasher: Hasher::new(spec.algorithm), end: 0, len: 0 };
            }
            Column::Objects(table) => *table = ObjectTable::of(spec.algorithm, table.size()),
            Column::Apart => {}
            Column::Tree(units) => {
                units.assembly = TreeAssembly::new(spec.algorithm);
                units.kept = units.kept.take().map(|_| BTreeMap::new());
            }
        }
    }

    fn add(&mut self, object: Object, sum: ObjectSum) {
        match (self, sum) {
            (Column::Plain(assembly), ObjectSum::Part(part)) => assembly.add(object.index, part),
            (Column::Objects(table), ObjectSum::Part(part)) => table.set(object.index, part.digest()),
            // Another object may have been added since this one was started.
            (Column::InOrder(state), ObjectSum::InOrder(hasher)) if state.end <= object.range.start.0 => {
                let len = state.len + object.range.len();
                *state = InOrder { hasher, end: object.range.end.0, len };
            }
            (Column::Tree(units), ObjectSum::Units(first, roots)) => {
                for (unit, root) in (first..).zip(roots) {
                    units.assembly.add(unit, root);
                    if let Some(kept) = units.kept.as_mut().filter(|kept| kept.len() as u64 <= KEPT_MAX) {
                        kept.insert(unit, root);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns the digest of a file of `len` bytes, all of which were added.
    fn digest(&self, algorithm: Algorithm, piece: u64, len: u64) -> Result<Digest, Missing> {
        let complete = "each object of the file was added once";
        Ok(match self {
            Column::Plain(assembly) => assembly.clone().finish(ByteLen(len)).expect(complete),
            Column::InOrder(state) if state.len == len => state.hasher.clone().finish(),
            Column::InOrder(_) => return Err(Missing::Order(algorithm)),
            Column::Objects(table) => {
                let mut assembly = Assembly::new(algorithm, table.size());
                for (index, digest) in table.iter() {
                    let start = index.0 * piece;
                    let range = ByteRange::between(start, start.saturating_add(piece).min(len));
                    let place = PartPlace { offset: range.start, whole: range.len() == len };
                    assembly.add(index, Part::from_digest(digest, place, ByteLen(range.len())));
                }
                assembly.finish(ByteLen(len)).expect(complete)
            }
            Column::Tree(units) => {
                if units.kept.as_ref().is_some_and(|kept| kept.len() as u64 > KEPT_MAX) {
                    return Err(Missing::Subtrees);
                }
                let shape = TreeShape::new(ByteLen(len), ByteLen(units.unit));
                units.assembly.clone().finish(shape).expect(complete)
            }
            Column::Apart => unreachable!("objects alone give no digest of their file"),
        })
    }
}

/// Digests of one object in progress, fed in order. It belongs to its worker alone.
#[derive(Clone, Debug)]
pub struct ObjectDigest {
    object: Object,
    whole: bool,
    fed: u64,
    columns: Vec<ObjectColumn>,
}

/// Part of one digest.
#[derive(Clone, Debug)]
enum ObjectColumn {
    Part(PartHasher),
    /// Hasher of a part by leaves, and leaves that were not taken yet.
    Leaves(Box<LeafHasher>, Vec<Digest>),
    /// The digest of the file so far.
    InOrder(Hasher),
    /// That of the object's own bytes.
    Apart(Hasher),
    Units(Box<UnitHasher>),
    /// Digest that was computed elsewhere.
    Known(Digest),
    /// The bytes before the object are missing, or the object was added before.
    OutOfTurn,
}

/// Result of an object, for [`FileDigest::add`].
#[derive(Clone, Debug)]
pub struct ObjectSums {
    object: Object,
    fed: u64,
    columns: Vec<ObjectSum>,
    leaves: Vec<Digest>,
}

#[derive(Clone, Debug)]
enum ObjectSum {
    Part(Part),
    Apart(Digest),
    InOrder(Hasher),
    /// Roots of the subtrees from the one with this number on.
    Units(u64, Vec<Digest>),
    Nothing,
}

impl ObjectDigest {
    /// Returns true if there is anything to compute.
    pub fn is_needed(&self) -> bool {
        let is_fed =
            |column: &ObjectColumn| !matches!(column, ObjectColumn::Known(_) | ObjectColumn::OutOfTurn);
        self.columns.iter().any(is_fed)
    }

    /// Uses a digest of the object that was computed elsewhere, for a digest in the form
    /// [`Form::Apart`]. The other digests must be fed.
    ///
    /// # Panics
    ///
    /// Panics if the digest has another form.
    #[must_use]
    pub fn with_known(mut self, number: usize, digest: Digest) -> ObjectDigest {
        let column = &mut self.columns[number];
        let is_apart =
            matches!(column, ObjectColumn::Apart(hasher) if hasher.algorithm() == digest.algorithm());
        assert!(is_apart, "only digests of objects alone are computed elsewhere");
        *column = ObjectColumn::Known(digest);
        self
    }

    /// Feeds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.fed += bytes.len() as u64;
        for column in &mut self.columns {
            match column {
                ObjectColumn::Part(hasher) => hasher.update(bytes),
                ObjectColumn::Leaves(hasher, leaves) => hasher.update(bytes, |leaf| leaves.push(leaf)),
                ObjectColumn::InOrder(hasher) | ObjectColumn::Apart(hasher) => hasher.update(bytes),
                ObjectColumn::Units(hasher) => hasher.update(bytes),
                ObjectColumn::Known(_) | ObjectColumn::OutOfTurn => {}
            }
        }
    }

    /// Feeds `len` zero bytes, like a hole of a sparse file.
    pub fn zeros(&mut self, len: u64) {
        self.fed += len;
        for column in &mut self.columns {
            match column {
                ObjectColumn::Part(hasher) => hasher.update_zeros(len),
                ObjectColumn::Leaves(hasher, leaves) => {
                    each_zero_block(len, |zeros| hasher.update(zeros, |leaf| leaves.push(leaf)));
                }
                ObjectColumn::InOrder(hasher) | ObjectColumn::Apart(hasher) => hasher.update_zeros(len),
                ObjectColumn::Units(hasher) => hasher.zeros(len),
                ObjectColumn::Known(_) | ObjectColumn::OutOfTurn => {}
            }
        }
    }

    /// Takes the digests of leaves since the last call ([`Form::Objects`]). Unless they are taken
    /// after each block, memory grows with the number of leaves of the object.
    pub fn take_leaves(&mut self) -> impl Iterator<Item = Digest> {
        self.columns.iter_mut().flat_map(|column| match column {
            ObjectColumn::Leaves(_, leaves) => std::mem::take(leaves),
            _ => Vec::new(),
        })
    }

    /// Returns the result.
    pub fn finish(self) -> ObjectSums {
        let whole = self.whole;
        self.finish_as(whole)
    }

    fn finish_as(self, whole: bool) -> ObjectSums {
        let mut rest = Vec::new();
        let finish = |column: ObjectColumn| match column {
            ObjectColumn::Part(hasher) if whole => ObjectSum::Part(hasher.finish_whole()),
            ObjectColumn::Part(hasher) => ObjectSum::Part(hasher.finish()),
            ObjectColumn::Leaves(hasher, mut leaves) => {
                let part = hasher.finish(whole, |leaf| leaves.push(leaf));
                rest.append(&mut leaves);
                ObjectSum::Part(part)
            }
            ObjectColumn::InOrder(hasher) => ObjectSum::InOrder(hasher),
            ObjectColumn::Apart(hasher) => ObjectSum::Apart(hasher.finish()),
            ObjectColumn::Units(hasher) => hasher.finish(),
            ObjectColumn::Known(digest) => ObjectSum::Apart(digest),
            ObjectColumn::OutOfTurn => ObjectSum::Nothing,
        };
        let columns = self.columns.into_iter().map(finish).collect();
        ObjectSums { object: self.object, fed: self.fed, columns, leaves: rest }
    }
}

impl ObjectColumn {
    fn new(spec: DigestSpec, object: Object, whole: bool, unit: u64) -> ObjectColumn {
        let DigestSpec { algorithm, form } = spec;
        let offset = object.range.start;
        match form {
            Form::Objects { leaf: Some(leaf) } => {
                ObjectColumn::Leaves(Box::new(LeafHasher::new(algorithm, offset, leaf)), Vec::new())
            }
            Form::Tree { leaf, keep } => {
                assert!(offset.0.is_multiple_of(unit), "an object starts at a subtree");
                let most = keep.map_or(u64::MAX, |_| KEPT_MAX);
                ObjectColumn::Units(Box::new(UnitHasher::new(algorithm, leaf, unit, offset.0 / unit, most)))
            }
            Form::Apart if algorithm.algebra() == Algebra::Serial => {
                ObjectColumn::Apart(Hasher::new(algorithm))
            }
            Form::Plain | Form::Objects { leaf: None } | Form::Apart => {
                ObjectColumn::Part(PartHasher::new(algorithm, PartPlace { offset, whole }))
            }
        }
    }
}

impl ObjectSums {
    /// Returns the digest of the object: [`Part::digest`] if the algorithm combines, and otherwise
    /// the digest of its own bytes, if the form is [`Form::Apart`].
    ///
    /// # Panics
    ///
    /// Panics if the recipe has no digest with this number.
    pub fn digest(&self, number: usize) -> Option<Digest> {
        match &self.columns[number] {
            ObjectSum::Part(part) => Some(part.digest()),
            ObjectSum::Apart(digest) => Some(*digest),
            ObjectSum::InOrder(_) | ObjectSum::Units(..) | ObjectSum::Nothing => None,
        }
    }

    /// Returns the digests of leaves after the last call of [`ObjectDigest::take_leaves`].
    pub fn leaves(&self) -> &[Digest] {
        &self.leaves
    }
}

/// Hasher of consecutive subtrees.
#[derive(Clone, Debug)]
struct UnitHasher {
    leaf: ByteLen,
    unit: u64,
    first: u64,
    /// The current subtree, and the number of bytes that it still takes.
    current: TreeHasher,
    room: u64,
    /// Roots so far, at most one more than `most`.
    roots: Vec<Digest>,
    most: u64,
}

impl UnitHasher {
    fn new(algorithm: Algorithm, leaf: ByteLen, unit: u64, first: u64, most: u64) -> UnitHasher {
        let current = TreeHasher::new(algorithm, leaf);
        UnitHasher { leaf, unit, first, current, room: unit, roots: Vec::new(), most }
    }

    /// Adds a root, unless there are too many already.
    fn push(&mut self, root: Digest) {
        if self.roots.len() as u64 <= self.most {
            self.roots.push(root);
        }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let now = usize::try_from(self.room).map_or(bytes.len(), |room| room.min(bytes.len()));
            let (head, tail) = bytes.split_at(now);
            self.current.update(head);
            self.filled(now as u64);
            bytes = tail;
        }
    }

    /// Feeds zeros. All subtrees that lie completely in the hole share one root, which is computed
    /// once.
    fn zeros(&mut self, len: u64) {
        let (mut rest, mut root_of_zeros) = (len, None);
        while rest > 0 {
            let now = self.room.min(rest);
            if now == self.unit {
                let (algorithm, leaf) = (self.current.algorithm(), self.leaf);
                let root = *root_of_zeros.get_or_insert_with(|| {
                    let mut zeros = TreeHasher::new(algorithm, leaf);
                    zeros.update_zeros(now);
                    zeros.finish()
                });
                self.push(root);
            } else {
                self.current.update_zeros(now);
                self.filled(now);
            }
            rest -= now;
        }
    }

    fn filled(&mut self, len: u64) {
        self.room -= len;
        if self.room == 0 {
            self.close();
        }
    }

    fn close(&mut self) {
        let next = TreeHasher::new(self.current.algorithm(), self.leaf);
        let root = std::mem::replace(&mut self.current, next).finish();
        self.push(root);
        self.room = self.unit;
    }

    fn finish(mut self) -> ObjectSum {
        if self.room < self.unit {
            self.close();
        }
        ObjectSum::Units(self.first, self.roots)
    }
}

/// Object, and the digest of its next leaf.
pub type ObjectLeaf = (ObjectIndex, Digest);

/// Digests of a stream, fed in order.
#[derive(Clone, Debug)]
pub struct StreamDigest {
    file: FileDigest,
    /// True if the stream is divided into objects; otherwise all of it is one object.
    is_cut: bool,
    /// The current object. A full one stays here until more bytes come, because only then is it
    /// known not to be the complete stream.
    current: Option<ObjectDigest>,
    at: u64,
    leaves: Vec<ObjectLeaf>,
}

impl StreamDigest {
    /// Feeds the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (object, room) = self.object();
            let now = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            let (head, tail) = bytes.split_at(now);
            object.update(head);
            self.fed(now as u64);
            bytes = tail;
        }
    }

    /// Feeds `len` zero bytes, like a hole of a sparse file.
    pub fn zeros(&mut self, len: u64) {
        let mut rest = len;
        while rest > 0 {
            let (object, room) = self.object();
            let now = room.min(rest);
            object.zeros(now);
            self.fed(now);
            rest -= now;
        }
    }

    /// Takes the digests of leaves since the last call, each with its object ([`Form::Objects`]).
    /// Unless they are taken after each block, memory grows with their number.
    pub fn take_leaves(&mut self) -> Vec<ObjectLeaf> {
        std::mem::take(&mut self.leaves)
    }

    /// Ends the stream and returns each digest of the recipe. The leaves that were not taken are
    /// returned too.
    ///
    /// # Errors
    ///
    /// Returns [`Missing::Subtrees`] if there are more of them than are kept.
    pub fn finish(mut self) -> Result<(Vec<FileSum>, Vec<ObjectLeaf>), Missing> {
        let is_whole = self.at <= self.file.piece || !self.is_cut;
        if is_whole && let Some(sums) = self.finish_alone() {
            return Ok((sums, self.leaves));
        }
        self.end_object(is_whole);
        self.file.len = Some(self.at);
        let StreamDigest { mut file, is_cut, at, leaves, .. } = self;
        if !is_cut {
            file.piece = at.max(1);
        }
        Ok((file.finish()?, leaves))
    }

    /// Returns the digests of a stream that is one object, if no digest keeps leaves or subtrees.
    /// The digests of such a file are those of its object, so that nothing is joined.
    fn finish_alone(&mut self) -> Option<Vec<FileSum>> {
        let is_kept = |spec: &DigestSpec| !matches!(spec.form, Form::Plain | Form::Objects { leaf: None });
        if self.file.recipe.specs.iter().any(is_kept) {
            return None;
        }
        let digest = |column: ObjectColumn| match column {
            ObjectColumn::Part(hasher) => Some(hasher.finish_whole().digest()),
            ObjectColumn::InOrder(hasher) => Some(hasher.finish()),
            _ => unreachable!("the only object of a stream is fed from its first byte, in a plain form"),
        };
        let columns = self.current.take()?.columns.into_iter().map(digest);
        Some(columns.map(|digest| FileSum { digest, objects: None, kept: Vec::new() }).collect())
    }

    /// Returns the current object, and the number of bytes that it still takes.
    fn object(&mut self) -> (&mut ObjectDigest, u64) {
        let piece = if self.is_cut { self.file.piece } else { u64::MAX };
        let filled = self.at % piece;
        if filled == 0 {
            self.end_object(false);
        }
        let (file, at) = (&self.file, self.at);
        let object = self.current.get_or_insert_with(|| {
            let range = ByteRange::between(at, at.saturating_add(piece));
            file.begin(Object { index: ObjectIndex(at / piece), range })
        });
        (object, piece - filled)
    }

    fn fed(&mut self, len: u64) {
        self.at += len;
        if let Some(object) = &mut self.current {
            let index = object.object.index;
            self.leaves.extend(object.take_leaves().map(|leaf| (index, leaf)));
        }
    }

    fn end_object(&mut self, whole: bool) {
        let Some(object) = self.current.take() else { return };
        let mut sums = object.finish_as(whole);
        let start = sums.object.range.start.0;
        sums.object.range = ByteRange::between(start, start + sums.fed);
        self.leaves.extend(sums.leaves.drain(..).map(|leaf| (sums.object.index, leaf)));
        self.file.add(sums);
    }
}
