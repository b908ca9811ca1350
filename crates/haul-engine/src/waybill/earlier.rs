//! Entries of the earlier sections of a waybill, to which a job appends.
//!
//! A later section replaces the entries of earlier ones. It must not hide what they recorded about
//! a file that did not change, and a file that decayed must not get a new digest unnoticed. So each
//! new entry is compared with the one that it replaces.
//!
//! The positions of all entries wait in an unnamed file, as a hash table: memory use is constant
//! for any number of entries.
//!
//! ```text
//!  | hash of a path, 16 bytes | position of its last entry, 24 bytes | next slot ...
//! ```

use super::known::read_file;
use super::{LeafStore, LeafSums, Scratch};
use haul_digest::{Algorithm, Digest, ObjectTable, digest};
use haul_log::waybill::{Content, Entry, Kind, MARK_BYTES, Mark, Reader, Record, RelPath};
use haul_model::{LeafSize, ObjectSize};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Size of the hash of a path, in bytes.
const HASH_BYTES: usize = 16;

/// Size of a slot of the table, in bytes.
const SLOT_BYTES: usize = HASH_BYTES + MARK_BYTES;

/// Number of bytes of a waybill for each slot of its table. The shortest line of an entry has 46
/// bytes, so that a third of the slots stay empty.
const BYTES_PER_SLOT: u64 = 32;

/// The earlier sections of a waybill.
#[derive(Debug)]
pub(super) struct EarlierEntries {
    waybill: File,
    /// Length of the earlier sections in bytes.
    end: u64,
    table: Scratch,
    slots: u64,
    /// Store for the leaves that are copied from an earlier section.
    leaves: Option<Arc<LeafStore>>,
}

/// Returns true if two versions of a file have digests of the same algorithm that are not equal.
pub(crate) fn differ(was: &[Digest], is: &[Digest]) -> bool {
    let differs = |was: &Digest| is.iter().any(|is| is.algorithm() == was.algorithm() && is != was);
    was.iter().any(differs)
}

/// Content of an entry to write.
pub(super) struct Carried {
    pub(super) entry: Entry,
    /// Digests of objects and leaves of the earlier entry, which stand for those of the new one.
    pub(super) sums: Option<(ObjectTable, Option<LeafSums>)>,
}

/// Reader of the first bytes of a file that does not move its offset, which the writer uses.
struct Sections<'a> {
    waybill: &'a File,
    at: u64,
    end: u64,
}

impl Read for Sections<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let got = self.waybill.read_at(&mut buffer[..room], self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl EarlierEntries {
    /// Reads the first `end` bytes of a waybill; `table` is an empty unnamed file. Damaged lines
    /// are skipped.
    pub(super) fn open(waybill: File, end: u64, table: Scratch) -> io::Result<EarlierEntries> {
        let earlier = EarlierEntries { waybill, end, table, slots: 1 + end / BYTES_PER_SLOT, leaves: None };
        let mut reader = Reader::new(BufReader::with_capacity(
            1 << 18,
            Sections { waybill: &earlier.waybill, at: 0, end },
        ));
        while let Some(record) = reader.next() {
            if let Ok(Record::Entry(entry)) = record {
                let hash = hash(&entry.path);
                let (at, _) = earlier.slot(hash)?;
                let slot = [&hash[..], &reader.mark().to_bytes()].concat();
                earlier.table.write_at(at, &slot)?;
            }
        }
        Ok(earlier)
    }

    /// Returns the offset of the slot of a path, and the position of its entry if it has one.
    fn slot(&self, hash: [u8; HASH_BYTES]) -> io::Result<(u64, Option<Mark>)> {
        let mut number = [0; 8];
        number.copy_from_slice(&hash[..8]);
        let mut number = u64::from_le_bytes(number) % self.slots;
        loop {
            let (mut slot, at) = ([0; SLOT_BYTES], number * SLOT_BYTES as u64);
            // Beyond the end of the file, and in its holes, are empty slots.
            self.table.read_at(at, &mut slot)?;
            let mut mark = [0; MARK_BYTES];
            mark.copy_from_slice(&slot[HASH_BYTES..]);
            match &slot[..HASH_BYTES] {
                known if *known == hash => return Ok((at, Some(Mark::from_bytes(mark)))),
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] => return Ok((at, None)),
                _ => number = (number + 1) % self.slots,
            }
        }
    }

    fn reader(&self, mark: Mark) -> Reader<BufReader<Sections<'_>>> {
        let sections = Sections { waybill: &self.waybill, at: mark.offset(), end: self.end };
        Reader::resume(BufReader::new(sections), mark)
    }

    /// Returns the entry of a file that the new one replaces, and its position.
    fn find(&self, path: &RelPath) -> io::Result<Option<(Entry, Mark)>> {
        let (_, Some(mark)) = self.slot(hash(path))? else { return Ok(None) };
        Ok(match self.reader(mark).next() {
            Some(Ok(Record::Entry(entry))) if entry.path == *path => Some((entry, mark)),
            _ => None,
        })
    }

    /// Returns true if the file of an entry has the size and the modification time of the earlier
    /// entry, and other bytes.
    pub(super) fn contradicts(&self, new: &Entry) -> io::Result<bool> {
        let Some((old, _)) = self.find(&new.path)? else { return Ok(false) };
        let (Kind::File(was), Kind::File(is)) = (&old.kind, &new.kind) else { return Ok(false) };
        let is_same = was.size == is.size && old.mtime == new.mtime;
        Ok(is_same && differ(&was.digests, &is.digests))
    }

    /// Adds to the entry of a file with unchanged bytes the digests that only the earlier entry
    /// has. `store` makes a store for leaves.
    pub(super) fn carry(
        &mut self,
        new: &Entry,
        store: impl FnOnce(LeafSize, ObjectSize) -> io::Result<Arc<LeafStore>>,
    ) -> io::Result<Option<Carried>> {
        let Some((old, mark)) = self.find(&new.path)? else { return Ok(None) };
        let (Kind::File(was), Kind::File(is)) = (&old.kind, &new.kind) else { return Ok(None) };
        let [was_value, is_value] = [was, is].map(|content| content.digest(Algorithm::Blake3));
        if was.size != is.size || was_value.is_none() || was_value != is_value {
            return Ok(None);
        }
        let only_there = was.digests.iter().filter(|was| is.digest(was.algorithm()).is_none());
        let digests: Vec<_> = is.digests.iter().chain(only_there).copied().collect();
        let leaf = |content: &Content| content.objects.as_ref().and_then(|objects| objects.leaf);
        let lacks_leaves = leaf(was).is_some() && leaf(is).is_none();
        let lacks_objects = was.object_lines() > 0 && is.objects.is_none();
        let mut objects = is.objects.clone();
        let mut sums = None;
        if let Some(cut) = was.objects.as_ref().filter(|_| lacks_leaves || lacks_objects)
            && cut.algorithms == [Algorithm::Blake3]
        {
            let store = cut.leaf.map(|leaf| self.store(leaf, cut.size, store)).transpose()?;
            let found = read_file(self.reader(mark), cut.size, store.as_ref())?;
            sums = found.map(|(_, objects, leaves)| (objects, leaves)).filter(|(objects, leaves)| {
                let is_whole = objects.count() == was.object_lines();
                is_whole && leaves.is_some() == cut.leaf.is_some()
            });
            if sums.is_some() {
                objects = Some(cut.clone());
            }
        }
        if digests.len() == is.digests.len() && sums.is_none() {
            return Ok(None);
        }
        let kind = Kind::File(Content { digests, objects, ..is.clone() });
        Ok(Some(Carried { entry: Entry { kind, ..new.clone() }, sums }))
    }

    /// Returns the store for leaves of this size. One is kept, because the sections of a waybill
    /// usually have leaves of one size.
    fn store(
        &mut self,
        leaf: LeafSize,
        object: ObjectSize,
        make: impl FnOnce(LeafSize, ObjectSize) -> io::Result<Arc<LeafStore>>,
    ) -> io::Result<Arc<LeafStore>> {
        let is_it = |store: &&Arc<LeafStore>| (store.leaf(), store.object()) == (leaf, object);
        if let Some(store) = self.leaves.as_ref().filter(is_it) {
            return Ok(Arc::clone(store));
        }
        let store = make(leaf, object)?;
        self.leaves = Some(Arc::clone(&store));
        Ok(store)
    }
}

/// Returns the first bytes of a digest of the path; never zeros, which mark an empty slot.
fn hash(path: &RelPath) -> [u8; HASH_BYTES] {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&digest(Algorithm::Blake3, path.as_bytes()).as_bytes()[..HASH_BYTES]);
    hash[HASH_BYTES - 1] |= 1;
    hash
}
