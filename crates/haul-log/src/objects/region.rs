//! The part of a log that belongs to one file: groups of numbers one behind the other, or the pages of a bit vector.

use super::entry::Extent;
use super::group;
use super::page::{Standing, Vector};
use super::seal::Seal;
use super::{Encoding, ObjectSet, PAGE_OBJECTS};
use haul_model::ObjectIndex;
use std::collections::BTreeMap;
use std::iter::Peekable;

/// Bytes of the first region for appended numbers, at most; each further one has twice as many.
const FIRST_BYTES_MAX: u64 = 512;

/// How often the size of a file's regions doubles, at most.
const DOUBLINGS_MAX: u32 = 7;

/// Groups that a region has room for beside the numbers of all objects.
const SPARE_GROUPS: u64 = 4;

/// How the objects of a file are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) encoding: Encoding,
    /// Objects of the file.
    pub(super) blocks: u64,
}

/// A region that is written.
#[derive(Clone, Debug)]
pub(super) struct Region {
    form: Form,
    seal: Seal,
    extent: Extent,
    /// Where the next group goes.
    at: u64,
    /// The last turn of each page that was written.
    turns: BTreeMap<u64, u32>,
}

/// What a region tells.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) objects: ObjectSet,
    /// Where and why it tells no more, or less.
    pub(super) fault: Option<(u64, Fault)>,
}

/// What is wrong with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Something is not whole.
    Torn,
    /// Both places of a page are damaged.
    Damaged,
    /// An object that the file does not have.
    Beyond,
}

impl Form {
    fn vector(self) -> Option<Vector> {
        let Form { encoding, blocks } = self;
        encoding.word_bytes().map(|word| Vector { blocks, word })
    }

    /// Bytes of the next region of a file, after so many others.
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

    /// Where the region of a log with nothing behind it ends.
    pub(super) fn open_extent(self, offset: u64) -> Extent {
        Extent { offset, length: self.vector().map_or(u64::MAX - offset, Vector::bytes) }
    }

    /// Whether a region may be there, after so many others.
    pub(super) fn allows(self, extent: Extent, others: usize) -> bool {
        self.vector().is_none_or(|vector| others == 0 && extent.length == vector.bytes())
    }

    /// What stands in a region: `bytes` are those of its whole file.
    pub(super) fn read(self, seal: Seal, extent: Extent, bytes: &[u8]) -> Told {
        let clip = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let region = &bytes[..clip(extent.end())];
        match self.vector() {
            None => self.read_groups(seal, extent.offset, &region[clip(extent.offset).min(region.len())..]),
            Some(vector) => {
                read_pages(vector, seal, extent.offset, &region[clip(extent.offset).min(region.len())..])
            }
        }
    }

    fn read_groups(self, seal: Seal, offset: u64, mut rest: &[u8]) -> Told {
        let (mut told, mut at) = (Told::default(), offset);
        loop {
            match group::decode(self.encoding, seal, at, rest) {
                group::Step::End => return told,
                group::Step::Broken => {
                    told.fault = Some((at, Fault::Torn));
                    return told;
                }
                group::Step::Group(objects, len) => {
                    if objects.iter().any(|object| object.0 >= self.blocks) {
                        told.fault = Some((at, Fault::Beyond));
                        return told;
                    }
                    told.objects = objects.into_iter().fold(told.objects, |mut set, object| {
                        set.insert(object);
                        set
                    });
                    (rest, at) = (&rest[len..], at + len as u64);
                }
            }
        }
    }
}

fn read_pages(vector: Vector, seal: Seal, offset: u64, bytes: &[u8]) -> Told {
    let mut told = Told::default();
    for page in (0..vector.pages()).map(|number| vector.page(number)) {
        let (start, end) = page.range();
        let Some(rest) = usize::try_from(start).ok().and_then(|start| bytes.get(start..)) else { break };
        if rest.is_empty() {
            break;
        }
        let both = &rest[..rest.len().min((end - start) as usize)];
        let at = offset + start;
        let fault = match page.decode(seal, at, both) {
            Standing::Blank => None,
            Standing::Broken => Some(Fault::Damaged),
            Standing::Sound(objects, is_whole) => {
                objects.into_iter().for_each(|object| {
                    told.objects.insert(object);
                });
                (!is_whole).then_some(Fault::Torn)
            }
        };
        told.fault = told.fault.or(fault.map(|fault| (at, fault)));
    }
    told
}

impl Region {
    /// A region in which nothing is written yet.
    pub(super) fn new(form: Form, seal: Seal, extent: Extent) -> Region {
        Region { form, seal, extent, at: extent.offset, turns: BTreeMap::new() }
    }

    /// The writes that add `new` objects, all of which are in `done`. What is left in `new` found no room.
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
                // Each turn adds at least one object to at most 4,096.
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
