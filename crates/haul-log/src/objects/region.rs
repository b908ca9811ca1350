//! Region: the part of a log that belongs to one file. It holds consecutive groups of numbers or
//! the pages of a bit vector.

use super::entry::Extent;
use super::group;
use super::page::{PageState, Vector};
use super::seal::ChecksumContext;
use super::{Encoding, ObjectSet, PAGE_OBJECTS};
use haul_model::ObjectIndex;
use std::collections::BTreeMap;
use std::iter::Peekable;

/// Maximum size, in bytes, of the first region for appended numbers. Each additional region has
/// twice the size.
const FIRST_BYTES_MAX: u64 = 512;

/// Maximum number of times that the region size of a file doubles.
const DOUBLINGS_MAX: u32 = 7;

/// Number of groups (without their numbers) for which a region has space, in addition to the
/// numbers of all objects. The maximum size of the region takes precedence.
const SPARE_GROUPS: u64 = 4;

/// Format of the objects of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) encoding: Encoding,
    /// Number of objects of the file.
    pub(super) blocks: u64,
}

/// A region that is being written.
#[derive(Clone, Debug)]
pub(super) struct Region {
    form: Form,
    seal: ChecksumContext,
    extent: Extent,
    /// Offset of the next group.
    at: u64,
    /// Last written turn of each page.
    turns: BTreeMap<u64, u32>,
}

/// Decoded contents of a region.
#[derive(Debug, Default)]
pub(super) struct RegionContents {
    pub(super) objects: ObjectSet,
    /// Offset and kind of the fault that limits the result.
    pub(super) fault: Option<(u64, Fault)>,
}

/// Kind of a fault in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Incomplete data.
    Torn,
    /// Both slots of a page are damaged.
    Damaged,
    /// An object number beyond the objects of the file.
    Beyond,
}

impl Form {
    fn vector(self) -> Option<Vector> {
        let Form { encoding, blocks } = self;
        encoding.word_bytes().map(|word| Vector { blocks, word })
    }

    /// Returns the size, in bytes, of the next region of a file that already has `others` regions.
    pub(super) fn region_bytes(self, others: u32) -> u64 {
        self.vector().map_or_else(
            || {
                let frame = group::frame_bytes(self.encoding);
                let number = group::number_bytes_max(self.encoding, self.blocks);
                let all = self.blocks.saturating_mul(number).saturating_add(SPARE_GROUPS * frame);
                all.min(FIRST_BYTES_MAX << others.min(DOUBLINGS_MAX))
            },
            Vector::bytes,
        )
    }

    /// Returns the extent of a region with nothing after it.
    pub(super) fn open_extent(self, offset: u64) -> Extent {
        Extent { offset, length: self.vector().map_or(u64::MAX - offset, Vector::bytes) }
    }

    /// Returns true if a file that already has `others` regions may have a region with this extent.
    pub(super) fn allows(self, extent: Extent, others: usize) -> bool {
        self.vector().is_none_or(|vector| others == 0 && extent.length == vector.bytes())
    }

    /// Decodes a region; `bytes` are those of its complete file.
    pub(super) fn read(self, seal: ChecksumContext, extent: Extent, bytes: &[u8]) -> RegionContents {
        let clip = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let region = &bytes[..clip(extent.end())];
        match self.vector() {
            None => self.read_groups(seal, extent.offset, &region[clip(extent.offset).min(region.len())..]),
            Some(vector) => {
                read_pages(vector, seal, extent.offset, &region[clip(extent.offset).min(region.len())..])
            }
        }
    }

    fn read_groups(self, seal: ChecksumContext, offset: u64, mut rest: &[u8]) -> RegionContents {
        let (mut contents, mut at) = (RegionContents::default(), offset);
        loop {
            match group::decode(self.encoding, seal, at, rest) {
                group::Step::End => return contents,
                group::Step::Broken => {
                    contents.fault = Some((at, Fault::Torn));
                    return contents;
                }
                group::Step::Group(objects, len) => {
                    if objects.iter().any(|object| object.0 >= self.blocks) {
                        contents.fault = Some((at, Fault::Beyond));
                        return contents;
                    }
                    contents.objects = objects.into_iter().fold(contents.objects, |mut set, object| {
                        set.insert(object);
                        set
                    });
                    (rest, at) = (&rest[len..], at + len as u64);
                }
            }
        }
    }
}

fn read_pages(vector: Vector, seal: ChecksumContext, offset: u64, bytes: &[u8]) -> RegionContents {
    let mut contents = RegionContents::default();
    for page in (0..vector.pages()).map(|number| vector.page(number)) {
        let (start, end) = page.range();
        let Some(rest) = usize::try_from(start).ok().and_then(|start| bytes.get(start..)) else { break };
        if rest.is_empty() {
            break;
        }
        let both = &rest[..rest.len().min((end - start) as usize)];
        let at = offset + start;
        let fault = match page.decode(seal, at, both) {
            PageState::Blank => None,
            PageState::Broken => Some(Fault::Damaged),
            PageState::Sound(objects, is_whole) => {
                objects.into_iter().for_each(|object| {
                    contents.objects.insert(object);
                });
                (!is_whole).then_some(Fault::Torn)
            }
        };
        contents.fault = contents.fault.or(fault.map(|fault| (at, fault)));
    }
    contents
}

impl Region {
    /// Returns a region in which nothing is written yet.
    pub(super) fn new(form: Form, seal: ChecksumContext, extent: Extent) -> Region {
        Region { form, seal, extent, at: extent.offset, turns: BTreeMap::new() }
    }

    /// Returns the writes that add the `new` objects, all of which are in `done`. Objects that do
    /// not fit stay in `new`.
    pub(super) fn put(
        &mut self,
        done: &ObjectSet,
        new: &mut Peekable<impl Iterator<Item = ObjectIndex>>,
    ) -> Vec<(u64, Vec<u8>)> {
        let mut writes = Vec::new();
        if let Some(vector) = self.form.vector() {
            while let Some(ObjectIndex(first)) = new.peek().copied() {
                let number = first / PAGE_OBJECTS;
                let page = vector.page(number);
                while new.next_if(|object| object.0 < page.end).is_some() {}
                let turn = self.turns.entry(number).or_default();
                // No overflow: each turn adds at least one object, and a page has at most 4,096.
                *turn += 1;
                let at = self.extent.offset + page.place(*turn);
                writes.push((at, page.encode(self.seal, at, *turn, done)));
            }
            return writes;
        }
        let room = |at: u64| self.extent.end() - at;
        while let Some(bytes) = group::encode(self.form.encoding, self.seal, self.at, room(self.at), new) {
            let at = self.at;
            self.at += bytes.len() as u64;
            writes.push((at, bytes));
        }
        writes
    }
}
