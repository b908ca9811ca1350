//! Digests that an earlier run of a job computed: entries of its section, for files that did not
//! change since.
//!
//! Both runs visit the files in the same order, apart from added and removed files. This module
//! therefore reads the section in parallel with the walk, and keeps the positions of a window of
//! entries. An entry is read when its file is visited. Memory use is constant for any number of
//! files.

use super::leaves::LeafGatherer;
use super::{LeafStore, LeafSums, moment};
use crate::log::EarlierStamps;
use crate::sum::Sums;
use haul_digest::{Algorithm, ObjectTable};
use haul_log::waybill::{Content, Entry, Kind, Mark, Reader, Record, RelPath};
use haul_model::{ByteRange, ObjectIndex, ObjectSize};
use haul_storage::Stat;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of entries with a known position: 4 MiB.
const WINDOW: usize = 1 << 16;

/// Number of these entries that are after the most recently visited one.
const AHEAD: u64 = WINDOW as u64 / 2;

/// Requirements for the reuse of a file's digests.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Algorithms of the digests of the whole file, in this order.
    pub algorithms: Vec<Algorithm>,
    /// Object size.
    pub object: ObjectSize,
    /// Store for leaves, if they are kept.
    pub leaves: Option<Arc<LeafStore>>,
}

/// Entries that an earlier run wrote.
#[derive(Debug)]
pub struct EarlierDigests {
    /// The section, for random access.
    section: File,
    /// The same section, read in order; `None` after its end.
    ahead: Option<Reader<BufReader<File>>>,
    stamps: EarlierStamps,
    /// Positions of entries, in their order.
    window: VecDeque<Seen>,
    /// Number of the first entry in the window.
    first: u64,
    /// Numbers of the entries in the window, by the hashes of their paths.
    numbers: HashMap<u64, u64>,
    wanted: Wanted,
}

/// Entry whose position is known.
#[derive(Debug)]
struct Seen {
    path: u64,
    mark: Mark,
}

impl EarlierDigests {
    /// Opens a copy of the section, and the stamps of its files.
    pub(super) fn open(section: &Path, stamps: &Path, wanted: Wanted) -> io::Result<EarlierDigests> {
        let reader = Reader::new(BufReader::with_capacity(1 << 18, File::open(section)?));
        Ok(EarlierDigests {
            section: File::open(section)?,
            ahead: Some(reader),
            stamps: EarlierStamps::open(stamps)?,
            window: VecDeque::new(),
            first: 0,
            numbers: HashMap::new(),
            wanted,
        })
    }

    /// Returns the result of hashing a regular file with this metadata, if the earlier run hashed
    /// it and it did not change since.
    pub fn find(&mut self, path: &RelPath, facts: &Stat) -> Option<Box<Sums>> {
        let number = self.number(hash(path))?;
        if !self.stamps.knows(number, path.as_bytes(), facts) {
            return None;
        }
        let mark = self.window.get(usize::try_from(number - self.first).ok()?)?.mark;
        let (entry, objects, leaves) = self.read(mark).ok()??;
        let Kind::File(content) = &entry.kind else { return None };
        if entry.path != *path || content.size != facts.size || entry.mtime != moment(facts) {
            return None;
        }
        let wanted = &self.wanted.algorithms;
        let digests: Vec<_> = wanted.iter().map_while(|&algorithm| content.digest(algorithm)).collect();
        let is_cut_alike = content.size <= self.wanted.object.bytes()
            || content.objects.as_ref().is_some_and(|objects| objects.size == self.wanted.object);
        let is_whole = digests.len() == wanted.len() && objects.len() == content.object_lines();
        if !(is_cut_alike && is_whole) {
            return None;
        }
        let leaf_sums = match &self.wanted.leaves {
            // A file of one leaf has no other digest than its own.
            Some(store) if content.size > store.leaf().bytes() => Some(Arc::new(leaves?)),
            _ => None,
        };
        Some(Box::new(Sums {
            range: ByteRange::between(0, content.size),
            partial: false,
            digests,
            leaves: 1,
            subtrees: Vec::new(),
            objects: (content.object_lines() > 0).then_some(objects),
            leaf_sums,
            facts: Some(Box::new(*facts)),
        }))
    }

    /// Returns the number of the entry with this path.
    fn number(&mut self, path: u64) -> Option<u64> {
        if !self.numbers.contains_key(&path) {
            while self.window.len() < WINDOW && self.read_next_entry() {}
        }
        let number = *self.numbers.get(&path)?;
        while self.first + (self.window.len() as u64) < number + AHEAD && self.read_next_entry() {
            if self.window.len() > WINDOW {
                self.release();
            }
        }
        Some(number)
    }

    /// Reads up to the next entry; returns false after the last complete one.
    fn read_next_entry(&mut self) -> bool {
        let Some(reader) = &mut self.ahead else { return false };
        loop {
            match reader.next() {
                Some(Ok(Record::Entry(entry))) if matches!(entry.kind, Kind::File(_)) => {
                    let path = hash(&entry.path);
                    self.numbers.insert(path, self.first + self.window.len() as u64);
                    self.window.push_back(Seen { path, mark: reader.mark() });
                    return true;
                }
                // The entry of a link next to the file that was read through it is not counted.
                Some(Ok(
                    Record::Section(_)
                    | Record::Entry(_)
                    | Record::Object(_)
                    | Record::Leaves(_)
                    | Record::Proven(_),
                )) => {}
                // The copy of a later section starts with a header that refers to the previous
                // section, which the copy lacks. Ignore this error.
                Some(Err(_)) if reader.line() == 1 => {}
                Some(Ok(Record::End(_)) | Err(_)) | None => {
                    self.ahead = None;
                    return false;
                }
            }
        }
    }

    fn release(&mut self) {
        if let Some(seen) = self.window.pop_front() {
            if self.numbers.get(&seen.path) == Some(&self.first) {
                self.numbers.remove(&seen.path);
            }
            self.first += 1;
        }
    }

    /// Reads an entry with its objects and leaves; returns `None` if a part is missing.
    fn read(&mut self, mark: Mark) -> io::Result<Option<(Entry, ObjectTable, Option<LeafSums>)>> {
        self.section.seek(SeekFrom::Start(mark.offset()))?;
        let reader = Reader::resume(BufReader::new(&self.section), mark);
        read_file(reader, self.wanted.object, self.wanted.leaves.as_ref())
    }
}

/// Reads the entry of a file with its objects of size `object`, and with its leaves if there is a
/// store for them. Returns `None` if a part is missing.
pub(super) fn read_file(
    mut reader: Reader<impl io::BufRead>,
    object: ObjectSize,
    store: Option<&Arc<LeafStore>>,
) -> io::Result<Option<(Entry, ObjectTable, Option<LeafSums>)>> {
    let Some(Ok(Record::Entry(entry))) = reader.next() else { return Ok(None) };
    let Kind::File(content) = &entry.kind else { return Ok(None) };
    let mut objects = ObjectTable::new(object);
    let mut leaves = store.map(|store| CopiedLeaves::new(store, content));
    for record in reader {
        match record {
            Ok(Record::Object(object)) => {
                let blake3 = object.digests.iter().find(|digest| digest.algorithm() == Algorithm::Blake3);
                let Some(&digest) = blake3 else { return Ok(None) };
                objects.set(object.index, digest);
            }
            Ok(Record::Leaves(run)) => {
                let Some(leaves) = &mut leaves else { return Ok(None) };
                run.digests.iter().for_each(|&digest| leaves.push(run.object, digest));
            }
            Ok(Record::Proven(_)) => return Ok(None),
            // The next entry, the end, or the interruption: the caller checks the counts.
            _ => break,
        }
    }
    let leaves = leaves.and_then(CopiedLeaves::all);
    Ok(Some((entry, objects, leaves)))
}

/// Leaves of a file that are copied from one waybill to another.
struct CopiedLeaves<'a> {
    store: &'a Arc<LeafStore>,
    content: &'a Content,
    leaves: LeafGatherer,
    /// Number of leaves so far, over all objects.
    count: u64,
}

impl<'a> CopiedLeaves<'a> {
    fn new(store: &'a Arc<LeafStore>, content: &'a Content) -> CopiedLeaves<'a> {
        CopiedLeaves { store, content, leaves: LeafGatherer::new(store), count: 0 }
    }

    fn push(&mut self, object: ObjectIndex, digest: haul_digest::Digest) {
        self.leaves.push(object, digest);
        self.count += 1;
    }

    /// Returns all leaves, if none is missing and their sizes match the store.
    fn all(self) -> Option<LeafSums> {
        let objects = self.content.objects.as_ref()?;
        let is_of_size = objects.leaf == Some(self.store.leaf()) && objects.size == self.store.object();
        // Each object has a leaf: a stated size cannot make this loop longer than the waybill.
        let geometry = self.content.geometry().filter(|geometry| geometry.count() <= self.count)?;
        let expected: u64 = geometry.objects().map(|object| objects.leaves_of(object.range.len())).sum();
        let is_complete = is_of_size && self.count == expected;
        is_complete.then(|| self.leaves.finish(self.content.object_lines() == 0))
    }
}

fn hash(path: &RelPath) -> u64 {
    let digest = haul_digest::digest(Algorithm::Xxh64, path.as_bytes());
    digest.as_bytes().iter().fold(0, |hash, &byte| hash << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Stamp, StampFile};
    use crate::waybill::{FileFacts, file_entry};
    use haul_log::waybill::{Job, Writer};
    use haul_sys::stat::stat_fd;
    use std::io::{BufWriter, Write};

    fn path(number: u64) -> RelPath {
        RelPath::new(format!("{:08}", number * 7919 % 100_000_007).as_bytes()).unwrap()
    }

    /// More entries than fit into the window. The second run visits some of them, new files, and
    /// some files in another order.
    #[test]
    fn window_covers_more_entries_than_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let facts = stat_fd(tempfile::tempfile().unwrap()).unwrap();
        let count = WINDOW as u64 + 3 * AHEAD / 2;
        let digests = [haul_digest::digest(Algorithm::Blake3, b"")];
        let mut writer =
            Writer::new(BufWriter::new(File::create(at("known")).unwrap()), &Job::default()).unwrap();
        let mut stamps = StampFile::default();
        for number in 0..count {
            let file =
                FileFacts { size: 0, digests: &digests, objects: None, leaves: None, way: None, level: None };
            writer.entry(&file_entry(path(number), &facts, &file)).unwrap();
            // Every tenth file was changed right before it was read.
            let stamp = Stamp::of(path(number).as_bytes(), &facts);
            stamps.set(number, if number % 10 == 0 { Stamp::default() } else { stamp });
        }
        // Interrupted within a line.
        writer.flush().unwrap();
        File::options().append(true).open(at("known")).unwrap().write_all(b"file path=").unwrap();
        stamps.write(&at("stamps"), false).unwrap();
        let object = ObjectSize::new(64 << 10).unwrap();
        let wanted = || Wanted { algorithms: vec![Algorithm::Blake3], object, leaves: None };
        let mut known = EarlierDigests::open(&at("known"), &at("stamps"), wanted()).unwrap();
        for number in (0..count).step_by(13) {
            assert_eq!(known.find(&path(number), &facts).is_some(), number % 10 != 0, "{number}");
            assert!(known.find(&path(count + number), &facts).is_none(), "{number} is new");
        }
        // Slightly before the current position, far before it, and again.
        for (number, is_known) in
            [(count - 1, true), (count - AHEAD / 2, true), (1, false), (count - 7, true)]
        {
            let is_there = number % 10 != 0 && is_known;
            assert_eq!(known.find(&path(number), &facts).is_some(), is_there, "{number}");
        }
        assert!(known.window.len() <= WINDOW && known.numbers.len() <= WINDOW);
        let other = Stat { ino: facts.ino + 1, ..facts };
        assert!(known.find(&path(count - 1), &other).is_none());
        let more = Wanted { algorithms: vec![Algorithm::Blake3, Algorithm::Md5], ..wanted() };
        let mut known = EarlierDigests::open(&at("known"), &at("stamps"), more).unwrap();
        assert!(known.find(&path(1), &facts).is_none(), "a requested digest is missing");
    }
}
