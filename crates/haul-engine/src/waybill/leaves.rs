//! Temporary storage of leaf digests for a waybill.
//!
//! Leaves of 1 KiB need 1/32 of the data size, and the lines of a file are written after the whole
//! file was hashed. For a file of 1 TiB, memory would hold 32 GiB until then. So the digests wait
//! in an unnamed file next to the waybill (the spill), in one page for each object:
//!
//! ```text
//!  | page 0 | page 1 | page 2 | ...      a page has room for the leaves of a whole object
//! ```
//!
//! Pages of written objects are used again, so the file grows to 1/32 of the data in flight. A
//! small file has few leaves, which stay in memory.

use super::Scratch;
use haul_digest::{Algorithm, Digest, ObjectLeaf};
use haul_log::waybill::{LEAVES_PER_LINE, LeafRun};
use haul_model::{LeafSize, ObjectIndex, ObjectSize};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Size of one leaf digest, in bytes.
const VALUE_BYTES: usize = 32;

/// Block size for reads and writes of the spill, in bytes: digests of 2 MiB of data.
const PIECE_BYTES: usize = 64 << 10;

/// Maximum size of the digests that a file with one object keeps in memory, in bytes: 64 leaves. A
/// full window of 4,096 results then needs 8 MiB.
const MEMORY_BYTES: usize = 2 << 10;

const _: () = assert!(PIECE_BYTES.is_multiple_of(VALUE_BYTES * LEAVES_PER_LINE as usize));

/// Store for the leaf digests of a job.
#[derive(Debug)]
pub struct LeafStore {
    leaf: LeafSize,
    object: ObjectSize,
    spill: Scratch,
    pages: Mutex<Pages>,
    /// First error of a write.
    failure: Mutex<Option<io::Error>>,
}

/// Usage of the pages of the spill.
#[derive(Debug, Default)]
struct Pages {
    free: Vec<u64>,
    /// Number after the last page ever used.
    end: u64,
}

impl LeafStore {
    /// Creates a store for leaves and objects of these sizes in an unnamed file.
    pub(super) fn new(spill: Scratch, leaf: LeafSize, object: ObjectSize) -> Arc<LeafStore> {
        Arc::new(LeafStore { leaf, object, spill, pages: Mutex::default(), failure: Mutex::default() })
    }

    /// Returns the leaf size.
    pub fn leaf(&self) -> LeafSize {
        self.leaf
    }

    /// Returns the object size.
    pub fn object(&self) -> ObjectSize {
        self.object
    }

    /// Returns the reason why leaves were lost; the original error only once.
    fn take_failure(&self) -> io::Error {
        let failure = self.failure.lock().take();
        failure.unwrap_or_else(|| io::Error::other("digests of leaves are missing"))
    }

    fn page(self: &Arc<Self>) -> Page {
        let mut pages = self.pages.lock();
        let number = pages.free.pop().unwrap_or_else(|| {
            pages.end += 1;
            pages.end - 1
        });
        Page { store: Arc::clone(self), number }
    }
}

/// Page in use; dropping it frees the page.
#[derive(Debug)]
struct Page {
    store: Arc<LeafStore>,
    number: u64,
}

impl Page {
    /// Returns the offset of byte `at` of the page in the spill.
    fn offset(&self, at: u64) -> u64 {
        let leaves = self.store.object.bytes() / self.store.leaf.bytes();
        self.number * leaves * VALUE_BYTES as u64 + at
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.store.pages.lock().free.push(self.number);
    }
}

/// Leaves of one object while it is hashed.
#[derive(Debug)]
pub(crate) struct LeafWriter {
    store: Arc<LeafStore>,
    page: Option<Page>,
    /// Number of bytes written to the page.
    spilled: u64,
    /// Bytes that are not written yet.
    ready: Vec<u8>,
    lost: bool,
}

/// Leaves of one object that was hashed.
#[derive(Debug)]
pub(crate) struct ObjectLeaves {
    count: u64,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    Memory(Vec<u8>),
    Page(Page),
    /// The write failed; the store has the error.
    Lost,
}

impl LeafWriter {
    pub(crate) fn new(store: &Arc<LeafStore>) -> LeafWriter {
        LeafWriter { store: Arc::clone(store), page: None, spilled: 0, ready: Vec::new(), lost: false }
    }

    /// Adds the BLAKE3 digest of the next leaf.
    pub(crate) fn push(&mut self, leaf: Digest) {
        self.ready.extend_from_slice(leaf.as_bytes());
        if self.ready.len() >= PIECE_BYTES {
            self.spill();
        }
    }

    /// Returns all leaves of the object. The leaves of a file with only one object may stay in
    /// memory.
    pub(crate) fn finish(mut self, only: bool) -> ObjectLeaves {
        let count = (self.spilled + self.ready.len() as u64) / VALUE_BYTES as u64;
        if only && self.page.is_none() && self.ready.len() <= MEMORY_BYTES {
            return ObjectLeaves { count, kept: Kept::Memory(self.ready) };
        }
        self.spill();
        let kept = match self.page {
            Some(page) if !self.lost => Kept::Page(page),
            _ => Kept::Lost,
        };
        ObjectLeaves { count, kept }
    }

    /// Adds the last leaves of the object, and returns all of them.
    pub(crate) fn finish_with(mut self, last: &[Digest], only: bool) -> ObjectLeaves {
        last.iter().for_each(|&leaf| self.push(leaf));
        self.finish(only)
    }

    fn spill(&mut self) {
        let page = self.page.get_or_insert_with(|| self.store.page());
        let written = self.store.spill.write_at(page.offset(self.spilled), &self.ready);
        self.spilled += self.ready.len() as u64;
        self.ready.clear();
        if let Err(error) = written {
            self.lost = true;
            self.store.failure.lock().get_or_insert(error);
        }
    }
}

/// Leaves of one file, by objects.
#[derive(Debug)]
pub struct LeafSums {
    store: Arc<LeafStore>,
    /// By objects: a peer or a waybill can name any object of a file of any length.
    objects: BTreeMap<ObjectIndex, ObjectLeaves>,
}

/// Leaves are equal only to themselves, because they are in a file.
impl PartialEq for LeafSums {
    fn eq(&self, other: &LeafSums) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for LeafSums {}

impl LeafSums {
    /// Creates an empty value.
    pub(crate) fn new(store: &Arc<LeafStore>) -> LeafSums {
        LeafSums { store: Arc::clone(store), objects: BTreeMap::new() }
    }

    /// Sets the leaves of an object.
    pub(crate) fn set(&mut self, index: ObjectIndex, leaves: ObjectLeaves) {
        self.objects.insert(index, leaves);
    }

    /// Returns the store of the leaves.
    pub(crate) fn store(&self) -> &Arc<LeafStore> {
        &self.store
    }

    /// Passes the leaves of an object to `take`, one line at a time.
    ///
    /// # Errors
    /// Returns an error if the leaves could not be written or read back; the file then has no
    /// complete entry.
    pub(crate) fn each_run<E: From<io::Error>>(
        &self,
        index: ObjectIndex,
        mut take: impl FnMut(&LeafRun) -> Result<(), E>,
    ) -> Result<(), E> {
        let lost = || E::from(self.store.take_failure());
        let leaves = self.objects.get(&index).ok_or_else(lost)?;
        let mut piece = vec![0; PIECE_BYTES.min(leaves.count as usize * VALUE_BYTES)];
        let mut first = 0;
        while first < leaves.count {
            let now = piece.len().min((leaves.count - first) as usize * VALUE_BYTES);
            let at = first * VALUE_BYTES as u64;
            match &leaves.kept {
                Kept::Memory(values) => piece[..now].copy_from_slice(&values[at as usize..][..now]),
                Kept::Page(page) => {
                    let got = self.store.spill.read_at(page.offset(at), &mut piece[..now])?;
                    if got < now {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                    }
                }
                Kept::Lost => return Err(lost()),
            }
            for values in piece[..now].chunks(LEAVES_PER_LINE as usize * VALUE_BYTES) {
                let digests = values.chunks_exact(VALUE_BYTES).map(digest).collect();
                let run = LeafRun { object: index, first, digests };
                first += run.digests.len() as u64;
                take(&run)?;
            }
        }
        Ok(())
    }
}

/// Leaves of one file that come in order.
#[derive(Debug)]
pub(crate) struct LeafGatherer {
    sums: LeafSums,
    now: Option<(ObjectIndex, LeafWriter)>,
}

impl LeafGatherer {
    /// Creates an empty value.
    pub(crate) fn new(store: &Arc<LeafStore>) -> LeafGatherer {
        LeafGatherer { sums: LeafSums::new(store), now: None }
    }

    /// Adds the next leaves, each with its object.
    pub(crate) fn take(&mut self, leaves: impl IntoIterator<Item = ObjectLeaf>) {
        leaves.into_iter().for_each(|(object, leaf)| self.push(object, leaf));
    }

    /// Adds the next leaf.
    pub(crate) fn push(&mut self, object: ObjectIndex, leaf: Digest) {
        if self.now.as_ref().is_none_or(|(now, _)| *now != object) {
            self.end_object(false);
            self.now = Some((object, LeafWriter::new(self.sums.store())));
        }
        if let Some((_, writer)) = &mut self.now {
            writer.push(leaf);
        }
    }

    /// Returns all leaves. `only`: the file has only one object.
    pub(crate) fn finish(mut self, only: bool) -> LeafSums {
        if only && self.now.is_none() {
            // A file of one leaf has no leaves besides itself.
            self.now = Some((ObjectIndex(0), LeafWriter::new(self.sums.store())));
        }
        self.end_object(only);
        self.sums
    }

    fn end_object(&mut self, only: bool) {
        if let Some((object, writer)) = self.now.take() {
            self.sums.set(object, writer.finish(only));
        }
    }
}

fn digest(value: &[u8]) -> Digest {
    let digest = Digest::from_bytes(Algorithm::Blake3, value);
    digest.unwrap_or_else(|error| unreachable!("32 bytes are a value of BLAKE3: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::memory::{Call, MemoryStorage};

    /// Creates a store of leaves of 1 KiB on a storage.
    fn store(storage: &MemoryStorage, object: ObjectSize) -> Arc<LeafStore> {
        let spill = Scratch::in_dir(&*storage.root()).unwrap();
        LeafStore::new(spill, LeafSize::new(1024, object).unwrap(), object)
    }

    /// Returns the size of the spill.
    fn size(store: &LeafStore) -> u64 {
        store.spill.size().unwrap()
    }

    fn value(number: u64) -> Digest {
        haul_digest::digest(Algorithm::Blake3, &number.to_le_bytes())
    }

    fn written(store: &Arc<LeafStore>, count: u64, only: bool) -> ObjectLeaves {
        let mut writer = LeafWriter::new(store);
        (0..count).for_each(|number| writer.push(value(number)));
        writer.finish(only)
    }

    fn read(sums: &LeafSums, object: u64) -> io::Result<Vec<(u64, Digest)>> {
        let mut found = Vec::new();
        sums.each_run(ObjectIndex(object), |run| {
            assert_eq!((run.object, run.first % LEAVES_PER_LINE), (ObjectIndex(object), 0));
            found.extend((run.first..).zip(run.digests.iter().copied()));
            Ok::<(), io::Error>(())
        })?;
        Ok(found)
    }

    #[test]
    fn leaves_are_read_back_and_their_pages_reused() {
        let object = ObjectSize::round_up(4 << 20);
        let store = store(&MemoryStorage::new(1), object);
        for round in 0..5 {
            let mut sums = LeafSums::new(&store);
            let counts = [1, 63, 64, 65, 2047, 2048, 2049, 4096];
            for (index, count) in counts.into_iter().enumerate().rev() {
                sums.set(ObjectIndex(index as u64), written(&store, count, false));
            }
            for (index, count) in counts.into_iter().enumerate() {
                let expected: Vec<_> = (0..count).map(|number| (number, value(number))).collect();
                assert_eq!(read(&sums, index as u64).unwrap(), expected, "round {round}");
            }
            assert!(read(&sums, 8).is_err(), "an object that never came");
        }
        let size = size(&store);
        assert!(size <= 8 * 4096 * 32, "five times eight pages took the room of {size} bytes");
    }

    #[test]
    fn few_leaves_of_a_single_object_stay_in_memory() {
        let store = store(&MemoryStorage::new(1), ObjectSize::DEFAULT);
        for (count, spilled) in [(0, 0), (2, 0), (64, 0), (65, 65 * 32)] {
            let mut sums = LeafSums::new(&store);
            sums.set(ObjectIndex(0), written(&store, count, true));
            assert_eq!(read(&sums, 0).unwrap().len() as u64, count);
            assert_eq!(size(&store), spilled, "{count} leaves");
        }
    }

    #[test]
    fn leaf_write_error_is_reported() {
        let storage = MemoryStorage::new(1);
        let store = store(&storage, ObjectSize::DEFAULT);
        storage.fail(Call::Write, 1, 28);
        let mut sums = LeafSums::new(&store);
        sums.set(ObjectIndex(0), written(&store, 100, true));
        let error = read(&sums, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(28), "ENOSPC, as the write said");
    }
}
