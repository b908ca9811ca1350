//! Pages of a bit vector, each stored twice.
//!
//! Object K is bit K mod N of word K / N (the paper's algorithm 1, N = 8 or 64, little-endian
//! words). Up to 4,096 objects form a page. A region is the sequence of the pages, each as two
//! adjacent slots:
//!
//! ```text
//!  +------+-------+-----+------+-------+-----+
//!  | turn | words | CRC | turn | words | CRC |     turn: 4 bytes; CRC: 4 bytes
//!  +------+-------+-----+------+-------+-----+
//!   place of even turns  place of odd turns
//! ```
//!
//! Each commit writes the page with the next turn number, so it never overwrites what the previous
//! commit made durable. Whatever happens to a write, the other slot holds everything that was
//! synced.

use super::seal::{ChecksumContext, SUM_BYTES, number};
use super::{ObjectSet, PAGE_OBJECTS};
use haul_model::ObjectIndex;

/// Size of a turn number in bytes.
const TURN_BYTES: usize = 4;

/// Format of the bit vector of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vector {
    /// Number of objects of the file.
    pub(super) blocks: u64,
    /// Size of a word in bytes: 1 or 8.
    pub(super) word: u64,
}

/// One page of a bit vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// First object of the page.
    pub(super) first: u64,
    /// Exclusive end of its objects.
    pub(super) end: u64,
    /// Offset of its two slots, from the start of the region.
    offset: u64,
    /// Size of a slot in bytes.
    len: usize,
}

/// Contents of the two slots of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PageState {
    /// Nothing was written.
    Blank,
    /// The objects of the latest turn; true if the other slot is intact as well.
    Sound(Vec<ObjectIndex>, bool),
    /// Data was written, and neither slot is intact.
    Broken,
}

impl Vector {
    /// Returns the page with this number, counted from 0.
    pub(super) fn page(self, page: u64) -> Page {
        let first = (page * PAGE_OBJECTS).min(self.blocks);
        let end = (first + PAGE_OBJECTS).min(self.blocks);
        let words = |objects: u64| objects.div_ceil(8 * self.word) * self.word;
        let place = |objects: u64| words(objects) + (TURN_BYTES + SUM_BYTES) as u64;
        Page { first, end, offset: page * 2 * place(PAGE_OBJECTS), len: place(end - first) as usize }
    }

    /// Returns the number of pages.
    pub(super) fn pages(self) -> u64 {
        self.blocks.div_ceil(PAGE_OBJECTS)
    }

    /// Returns the size of the region in bytes.
    pub(super) fn bytes(self) -> u64 {
        let last = self.page(self.pages().saturating_sub(1));
        last.offset + 2 * last.len as u64
    }
}

impl Page {
    /// Returns the offset of the slot of a turn, from the start of the region.
    pub(super) fn place(self, turn: u32) -> u64 {
        self.offset + u64::from(turn & 1) * self.len as u64
    }

    /// Returns the start and the end of both slots, from the start of the region.
    pub(super) fn range(self) -> (u64, u64) {
        (self.offset, self.offset + 2 * self.len as u64)
    }

    /// Encodes the slot at offset `at` of its file.
    pub(super) fn encode(self, seal: ChecksumContext, at: u64, turn: u32, done: &ObjectSet) -> Vec<u8> {
        let mut bytes = Vec::from(turn.to_le_bytes());
        bytes.resize(self.len - SUM_BYTES, 0);
        for ObjectIndex(object) in done.between(self.first, self.end) {
            let bit = object - self.first;
            bytes[TURN_BYTES + (bit / 8) as usize] |= 1 << (bit % 8);
        }
        seal.close(at, &mut bytes);
        bytes
    }

    /// Decodes the two slots of the page. `bytes` are those of both slots, fewer if the file ends
    /// earlier, and start at offset `at` of their file.
    pub(super) fn decode(self, seal: ChecksumContext, at: u64, bytes: &[u8]) -> PageState {
        let (even, odd) = bytes.split_at(self.len.min(bytes.len()));
        let is_blank = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
        let read = |bytes: &[u8], parity: u32| {
            let body = seal.open(at + u64::from(parity) * self.len as u64, bytes.get(..self.len)?)?;
            let turn = number(&body[..TURN_BYTES]) as u32;
            let objects = self.objects(&body[TURN_BYTES..])?;
            (turn & 1 == parity).then_some((turn, objects))
        };
        let places = [(even, read(even, 0)), (odd, read(odd, 1))];
        let is_whole = places.iter().all(|(bytes, found)| found.is_some() || is_blank(bytes));
        match places.into_iter().filter_map(|(_, found)| found).max_by_key(|(turn, _)| *turn) {
            Some((_, objects)) => PageState::Sound(objects, is_whole),
            None if is_whole => PageState::Blank,
            None => PageState::Broken,
        }
    }

    /// Returns the objects whose bits are set, or `None` if a bit is set that belongs to no object.
    fn objects(self, words: &[u8]) -> Option<Vec<ObjectIndex>> {
        let bits = words.iter().zip((self.first..).step_by(8));
        let set = bits.flat_map(|(&byte, first)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| first + bit)
        });
        set.map(|object| (object < self.end).then_some(ObjectIndex(object))).collect()
    }
}
