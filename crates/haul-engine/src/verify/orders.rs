//! Converts the records of a waybill to orders for reading files.

use super::VerdictKind;
use super::index::Index;
use super::judge::{Change, Expected, unopened};
use super::resume::Earlier;
use crate::sum::{Form, Order, Orders, Recipe, Sample, Source, Task, Work};
use haul_digest::{Algorithm, ObjectTable};
use haul_log::waybill::{Content, Entry, Kind, Mark, Reader, Record, RelPath, Special};
use haul_model::{ByteOffset, ObjectIndex};
use haul_storage::{Dir, FileKind, Follow, Name, Stat};
use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::sync::Arc;

/// Maximum number of directories kept open. A waybill that several workers wrote alternates between
/// a few directories.
const PLACES_KEPT: usize = 16;

/// Orders for the entries of a waybill.
pub(super) struct Waybill<R> {
    reader: Reader<R>,
    root: Arc<dyn Dir>,
    sample: Option<(f64, u64)>,
    index: Option<Arc<Index>>,
    section: u32,
    /// Number of entries read so far.
    entries: u64,
    share: u64,
    /// Entries that an earlier run verified.
    before: Option<Earlier>,
    /// Record that was read after an entry and belongs to the next one, with the position of its
    /// line.
    ahead: Option<(Record, Mark)>,
    /// Recently used directories by path, the most recent first.
    places: VecDeque<(RelPath, Arc<dyn Dir>)>,
}

impl<R: BufRead + Send> Waybill<R> {
    /// Creates orders for the entries of `reader`, relative to `root`. If there is an `index`,
    /// skips entries that are not current. Files that were verified `before` and did not change
    /// since are not read.
    pub(super) fn new(
        reader: Reader<R>,
        root: Arc<dyn Dir>,
        sample: Option<(f64, u64)>,
        index: Option<Arc<Index>>,
        share: u64,
        before: Option<Earlier>,
    ) -> Waybill<R> {
        let places = VecDeque::new();
        Waybill { reader, root, sample, index, section: 0, entries: 0, share, before, ahead: None, places }
    }

    /// Returns the next record. Skips flaws, because the first pass through the waybill reported
    /// them.
    fn record(&mut self) -> Option<(Record, Mark)> {
        if let Some(ahead) = self.ahead.take() {
            return Some(ahead);
        }
        let record = self.reader.by_ref().find_map(Result::ok)?;
        Some((record, self.reader.mark()))
    }

    /// Reads the object digests of the entry that was just read.
    fn objects(&mut self, entry: &Entry) -> Option<ObjectTable> {
        let mut sums = match &entry.kind {
            Kind::File(Content { objects: Some(objects), .. }) => Some(ObjectTable::new(objects.size)),
            _ => None,
        };
        while let Some((record, mark)) = self.record() {
            match record {
                Record::Object(object) => {
                    let blake3 = object.digests.iter().find(|found| found.algorithm() == Algorithm::Blake3);
                    if let (Some(sums), Some(&digest)) = (&mut sums, blake3) {
                        sums.set(object.index, digest);
                    }
                }
                Record::Leaves(_) | Record::Proven(_) => {}
                other => {
                    self.ahead = Some((other, mark));
                    break;
                }
            }
        }
        sums.filter(|sums| !sums.is_empty())
    }

    fn order(&mut self, mut expected: Expected) -> Order<Expected> {
        match self.work(&mut expected) {
            Ok(task) => Order { ticket: expected, work: Work::Hash(task) },
            Err(early) => {
                expected.early = Some(early);
                Order { ticket: expected, work: Work::Nothing }
            }
        }
    }

    /// Returns the task for an entry, or the verdict if it is known without reading.
    fn work(&mut self, expected: &mut Expected) -> Result<Task, VerdictKind> {
        let (dir, name, stat) = self.resolve(&expected.entry.path)?;
        expected.inode = Some(stat.identity());
        let kind_differs = VerdictKind::Modified(Change::Kind);
        let intact = Err(VerdictKind::Intact { touched: false });
        let is = |kind| if stat.kind == kind { Ok(()) } else { Err(kind_differs.clone()) };
        match &expected.entry.kind {
            Kind::File(content) => {
                is(FileKind::Regular)?;
                let lengths = dir.device().capabilities.lengths;
                if stat.size != content.size && lengths.is_certain(stat.size) {
                    return Err(VerdictKind::Modified(Change::Size { was: content.size, is: stat.size }));
                }
                let recipe = recipe(expected, self.sample)?;
                let path = expected.entry.path.as_bytes();
                let before = self.before.as_ref();
                if before.is_some_and(|before| before.knows(self.share, expected.number, path, &stat)) {
                    return Err(VerdictKind::Before);
                }
                let source = Source::Beneath(dir, name);
                Ok(Task { source, recipe: Arc::new(recipe), offset: ByteOffset(0), length: None })
            }
            Kind::Same { first } => {
                let same = match self.resolve(first) {
                    Ok((_, _, other)) => stat.identity() == other.identity(),
                    // The first name has its own entry, which reports that it is missing; this name
                    // exists.
                    Err(VerdictKind::Missing) => false,
                    Err(other) => return Err(other),
                };
                if same { intact } else { Err(VerdictKind::Modified(Change::NotSame)) }
            }
            Kind::Directory => is(FileKind::Directory).and(intact),
            Kind::Link { target } => {
                is(FileKind::Symlink)?;
                let found = dir.hold(&name).and_then(|link| link.read_link());
                if found.map_err(|error| unopened(&error))? == *target {
                    intact
                } else {
                    Err(VerdictKind::Modified(Change::Target))
                }
            }
            Kind::Special(special) => {
                let (kind, device) = match special {
                    Special::Fifo => (FileKind::Fifo, None),
                    Special::Socket => (FileKind::Socket, None),
                    Special::CharDevice(device) => (FileKind::CharDevice, Some(*device)),
                    Special::BlockDevice(device) => (FileKind::BlockDevice, Some(*device)),
                };
                is(kind)?;
                let same = device.is_none_or(|device| device == stat.rdev);
                if same { intact } else { Err(kind_differs) }
            }
        }
    }

    /// Resolves a path without leaving the root. Returns its directory, its name there, and the
    /// metadata of the existing file.
    fn resolve(&mut self, path: &RelPath) -> Result<(Arc<dyn Dir>, Name, Stat), VerdictKind> {
        let (dir, name) = dir_and_name(path).map_err(|error| unopened(&error))?;
        let dir = match dir {
            Some(dir) => self.place(dir),
            None => Ok(Arc::clone(&self.root)),
        };
        let found = dir.and_then(|dir| Ok((dir.stat_at(&name, Follow::No)?, dir)));
        found.map(|(stat, dir)| (dir, name, stat)).map_err(|error| unopened(&error))
    }

    fn place(&mut self, path: RelPath) -> io::Result<Arc<dyn Dir>> {
        let known = self.places.iter().position(|(known, _)| *known == path);
        let found = match known.and_then(|at| self.places.remove(at)) {
            Some((_, found)) => found,
            None => self.root.beneath(&path, Follow::Yes)?,
        };
        self.places.truncate(PLACES_KEPT - 1);
        self.places.push_front((path, Arc::clone(&found)));
        Ok(found)
    }
}

/// Opens the directory of a path beneath a root, without leaving the root. Returns it with the last
/// component.
///
/// # Errors
/// Returns the errors of [`Dir::beneath`].
pub(super) fn open_parent(root: &Arc<dyn Dir>, path: &RelPath) -> io::Result<(Arc<dyn Dir>, Name)> {
    let (dir, name) = dir_and_name(path)?;
    let dir = dir.map_or_else(|| Ok(Arc::clone(root)), |dir| root.beneath(&dir, Follow::Yes))?;
    Ok((dir, name))
}

/// Splits a path into its directory, if it has one, and its last component.
fn dir_and_name(path: &RelPath) -> io::Result<(Option<RelPath>, Name)> {
    let bytes = path.as_bytes();
    let slash = bytes.iter().rposition(|&byte| byte == b'/');
    let dir = slash.map(|at| RelPath::new(&bytes[..at])).transpose().map_err(io::Error::other)?;
    let name = Name::new(&bytes[slash.map_or(0, |at| at + 1)..]);
    Ok((dir, name.ok_or(io::ErrorKind::InvalidFilename)?))
}

/// Returns the recipe for a file: digests of its objects, or the best of the recorded digests.
pub(super) fn recipe(expected: &mut Expected, sample: Option<(f64, u64)>) -> Result<Recipe, VerdictKind> {
    let Kind::File(content) = &expected.entry.kind else { return Err(VerdictKind::NoDigest) };
    // Mix in the path, so that the sample differs from file to file.
    let path = haul_digest::digest(Algorithm::Xxh64, expected.entry.path.as_bytes())
        .as_bytes()
        .iter()
        .fold(0, |seed, &byte| seed << 8 | u64::from(byte));
    let sample = sample.map(|(share, seed)| Sample { share, seed: seed ^ path });
    if let Some(objects) = &expected.objects {
        expected.sampled = sample.is_some();
        let form = Form::Objects { size: objects.size(), sample };
        return Ok(Recipe { algorithms: vec![Algorithm::Blake3], form });
    }
    if sample.is_some_and(|sample| !sample.picks(ObjectIndex(0))) {
        return Err(VerdictKind::Passed);
    }
    let algorithms = content.digests.iter().map(|digest| digest.algorithm());
    let best = algorithms.max_by_key(|algorithm| (*algorithm == Algorithm::Blake3, algorithm.digest_len()));
    let best = best.ok_or(VerdictKind::NoDigest)?;
    Ok(Recipe { algorithms: vec![best], form: Form::Plain })
}

impl<R: BufRead + Send> Orders for Waybill<R> {
    type Ticket = Expected;

    fn next(&mut self) -> Option<Order<Expected>> {
        loop {
            match self.record()? {
                (Record::Section(_), _) => self.section += 1,
                (Record::Entry(entry), mark) => {
                    let objects = self.objects(&entry);
                    let (section, number) = (self.section, self.entries);
                    self.entries += 1;
                    if self.index.as_ref().is_none_or(|index| index.is_current(&entry.path, section)) {
                        let expected = Expected {
                            number,
                            mark,
                            entry,
                            objects,
                            sampled: false,
                            early: None,
                            inode: None,
                        };
                        return Some(self.order(expected));
                    }
                }
                _ => {}
            }
        }
    }
}
