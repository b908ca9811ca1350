//! Bytes of a file in memory: what reads return, what the device received, and what is durable.

use super::faults::Choices;
use haul_model::ByteRange;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Size in bytes of a page, and of a block of the device.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Size in bytes of a sector: a device writes it as a whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Bytes of a page; `None` is a hole.
type PageBytes = Option<Arc<[u8; PAGE_BYTES as usize]>>;

/// State of a page in the page cache.
#[derive(Clone, Debug)]
enum Cached {
    /// Absent: the device has the bytes.
    No,
    /// The device is assumed to have these bytes.
    Clean(PageBytes),
    /// The device lacks these bytes.
    Dirty(PageBytes),
}

#[derive(Clone, Debug)]
struct CachedPage {
    cached: Cached,
    device: PageBytes,
    durable: PageBytes,
}

/// The bytes of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    by_index: BTreeMap<u64, CachedPage>,
    len: u64,
    durable_len: u64,
    /// Number of pages from the first one for which space is reserved.
    reserved: u64,
    /// Number of pages with bytes or reserved space.
    occupied: u64,
}

impl CachedPage {
    const HOLE: CachedPage = CachedPage { cached: Cached::No, device: None, durable: None };

    fn now(&self) -> &PageBytes {
        match &self.cached {
            Cached::No => &self.device,
            Cached::Clean(bytes) | Cached::Dirty(bytes) => bytes,
        }
    }

    fn is_nothing(&self) -> bool {
        let is_cached = matches!(self.cached, Cached::Clean(Some(_)) | Cached::Dirty(_));
        !is_cached && self.device.is_none() && self.durable.is_none()
    }

    /// Returns the bytes that a power cut leaves: for each sector one of its states since the last
    /// flush.
    fn torn(&self, choices: &mut Choices) -> PageBytes {
        let states: [&PageBytes; 3] = match &self.cached {
            Cached::Dirty(bytes) => [&self.durable, &self.device, bytes],
            Cached::No | Cached::Clean(_) => [&self.durable, &self.device, &self.device],
        };
        if states.iter().all(|state| state.is_none()) {
            return None;
        }
        let mut torn = [0; PAGE_BYTES as usize];
        for (index, sector) in torn.chunks_mut(SECTOR_BYTES).enumerate() {
            if let Some(bytes) = states[choices.below(3)] {
                let start = index * SECTOR_BYTES;
                sector.copy_from_slice(&bytes[start..start + SECTOR_BYTES]);
            }
        }
        Some(Arc::new(torn))
    }
}

impl Pages {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of pages with bytes or reserved space.
    pub(super) fn occupied(&self) -> u64 {
        self.occupied
    }

    /// Returns the number of pages that a write to this range would occupy in addition.
    pub(super) fn missing(&self, range: ByteRange) -> u64 {
        let (first, end) = (range.start.0 / PAGE_BYTES, range.end.0.div_ceil(PAGE_BYTES));
        let first = first.max(self.reserved);
        if first >= end {
            return 0;
        }
        let present = self.by_index.range(first..end).filter(|(_, page)| page.now().is_some()).count();
        end - first - present as u64
    }

    /// Reserves space for the first `len` bytes.
    pub(super) fn reserve(&mut self, len: u64) {
        self.occupied += self.missing(ByteRange::between(0, len));
        self.reserved = self.reserved.max(len.div_ceil(PAGE_BYTES));
    }

    /// Reserves space for a range: its holes become pages of zeros, also behind the end.
    pub(super) fn reserve_range(&mut self, range: ByteRange) {
        for index in range.start.0 / PAGE_BYTES..range.end.0.div_ceil(PAGE_BYTES) {
            if self.by_index.get(&index).is_none_or(|page| page.now().is_none()) {
                self.put(index, Some(Arc::new([0; PAGE_BYTES as usize])));
            }
        }
    }

    pub(super) fn read_at(&self, at: u64, into: &mut [u8]) -> usize {
        let len = into.len().min(usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX));
        into[..len].fill(0);
        for (index, start, piece) in pieces(at, len) {
            if let Some(bytes) = self.by_index.get(&index).and_then(|page| page.now().as_ref()) {
                into[piece.clone()].copy_from_slice(&bytes[start..start + piece.len()]);
            }
        }
        len
    }

    pub(super) fn write_at(&mut self, at: u64, bytes: &[u8]) {
        for (index, start, piece) in pieces(at, bytes.len()) {
            let mut page = match self.by_index.get(&index).and_then(|page| page.now().as_ref()) {
                Some(page) => **page,
                None => [0; PAGE_BYTES as usize],
            };
            page[start..start + piece.len()].copy_from_slice(&bytes[piece]);
            self.put(index, Some(Arc::new(page)));
        }
        if !bytes.is_empty() {
            self.len = self.len.max(at + bytes.len() as u64);
        }
    }

    /// Makes a range read as zeros: whole pages become holes.
    pub(super) fn clear(&mut self, range: ByteRange) {
        let (first, end) = (range.start.0 / PAGE_BYTES, range.end.0.div_ceil(PAGE_BYTES));
        let present: Vec<u64> = self.by_index.range(first..end).map(|(&index, _)| index).collect();
        for index in present {
            let page = ByteRange::between(index * PAGE_BYTES, (index + 1) * PAGE_BYTES);
            let Some(cleared) = page.intersect(range) else { continue };
            let now = self.by_index[&index].now().clone();
            match now {
                None => {}
                Some(_) if cleared == page => self.put(index, None),
                Some(mut bytes) => {
                    let offset = |at: u64| (at - page.start.0) as usize;
                    Arc::make_mut(&mut bytes)[offset(cleared.start.0)..offset(cleared.end.0)].fill(0);
                    self.put(index, Some(bytes));
                }
            }
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        let end = self.by_index.last_key_value().map_or(0, |(&last, _)| (last + 1) * PAGE_BYTES);
        if len < end {
            self.clear(ByteRange::between(len, end));
        }
        self.len = len;
        let kept = len.div_ceil(PAGE_BYTES);
        if kept < self.reserved {
            let given_back = ByteRange::between(kept * PAGE_BYTES, self.reserved * PAGE_BYTES);
            self.reserved = kept;
            self.occupied -= self.missing(given_back);
        }
    }

    /// Returns the first range of data within a range.
    pub(super) fn next_data(&self, range: ByteRange) -> Option<ByteRange> {
        let range = range.intersect(ByteRange::between(0, self.len))?;
        let (first, end) = (range.start.0 / PAGE_BYTES, range.end.0.div_ceil(PAGE_BYTES));
        let mut data = self.by_index.range(first..end).filter(|(_, page)| page.now().is_some());
        let start = *data.next()?.0;
        let mut stop = start + 1;
        while data.next().is_some_and(|(&index, _)| index == stop) {
            stop += 1;
        }
        ByteRange::between(start * PAGE_BYTES, stop * PAGE_BYTES).intersect(range)
    }

    /// Shares the pages of a range of another file, which starts and ends at pages or at the end of
    /// that file. `to` is a multiple of [`PAGE_BYTES`].
    pub(super) fn share(&mut self, from: &Pages, range: ByteRange, to: u64) {
        for at in range.steps(PAGE_BYTES) {
            let bytes = from.by_index.get(&(at.start.0 / PAGE_BYTES)).and_then(|page| page.now().clone());
            self.put((to + at.start.0 - range.start.0) / PAGE_BYTES, bytes);
        }
        if !range.is_empty() {
            self.len = self.len.max(to + range.len());
        }
    }

    /// Returns true if a page in this range is dirty.
    pub(super) fn is_dirty(&self, range: ByteRange) -> bool {
        !self.dirty(range).is_empty()
    }

    /// Writes the dirty pages of a range to the device. `is_lost`: the second half of the pages,
    /// and at least one, becomes clean without that.
    pub(super) fn write_back(&mut self, range: ByteRange, is_lost: bool) {
        let dirty = self.dirty(range);
        let kept = if is_lost { dirty.len() / 2 } else { dirty.len() };
        for (number, index) in dirty.into_iter().enumerate() {
            let Some(page) = self.by_index.get_mut(&index) else { continue };
            let bytes = page.now().clone();
            if number < kept {
                page.device = bytes.clone();
            }
            page.cached = Cached::Clean(bytes);
        }
    }

    /// Makes the pages that the device has durable, and the length.
    pub(super) fn flush(&mut self) {
        self.durable_len = self.len;
        self.by_index.retain(|_, page| {
            page.durable.clone_from(&page.device);
            !page.is_nothing()
        });
    }

    /// Drops the clean pages of a range. Returns true if none remains.
    pub(super) fn evict(&mut self, range: ByteRange) -> bool {
        let (first, end) = (range.start.0 / PAGE_BYTES, range.end.0.div_ceil(PAGE_BYTES));
        let mut is_clean = true;
        let (mut before, mut after) = (0, 0);
        for (index, page) in self.by_index.range_mut(first..end) {
            let counts = |page: &CachedPage| u64::from(*index >= self.reserved && page.now().is_some());
            before += counts(page);
            match page.cached {
                Cached::Dirty(_) => is_clean = false,
                Cached::No | Cached::Clean(_) => page.cached = Cached::No,
            }
            after += counts(page);
        }
        // Pages that were lost are gone now, and older ones return.
        self.occupied = self.occupied + after - before;
        is_clean
    }

    /// Changes the byte at an offset on the device. Returns false if the device has no such byte.
    pub(super) fn damage(&mut self, at: u64) -> bool {
        let Some(page) = self.by_index.get_mut(&(at / PAGE_BYTES)) else { return false };
        for bytes in [&mut page.device, &mut page.durable].into_iter().flatten() {
            Arc::make_mut(bytes)[(at % PAGE_BYTES) as usize] ^= 1;
        }
        page.device.is_some()
    }

    /// Returns the file that a power cut leaves.
    pub(super) fn after_power_cut(&self, choices: &mut Choices) -> Pages {
        let len = if choices.either() { self.len } else { self.durable_len };
        let mut left = Pages::default();
        for (&index, page) in &self.by_index {
            if let Some(bytes) = page.torn(choices) {
                let bytes = Some(bytes);
                let page = CachedPage { cached: Cached::No, device: bytes.clone(), durable: bytes };
                left.by_index.insert(index, page);
                left.occupied += 1;
            }
        }
        left.len = left.by_index.last_key_value().map_or(len, |(&last, _)| len.max((last + 1) * PAGE_BYTES));
        left.set_len(len);
        left.write_back(ByteRange::between(0, u64::MAX), false);
        left.flush();
        left
    }

    fn dirty(&self, range: ByteRange) -> Vec<u64> {
        let (first, end) = (range.start.0 / PAGE_BYTES, range.end.0.div_ceil(PAGE_BYTES));
        let is_dirty = |page: &CachedPage| matches!(page.cached, Cached::Dirty(_));
        self.by_index.range(first..end).filter(|(_, page)| is_dirty(page)).map(|(&index, _)| index).collect()
    }

    fn put(&mut self, index: u64, bytes: PageBytes) {
        let page = self.by_index.entry(index).or_insert(CachedPage::HOLE);
        if index >= self.reserved {
            let (before, after) = (u64::from(page.now().is_some()), u64::from(bytes.is_some()));
            self.occupied = self.occupied + after - before;
        }
        page.cached = Cached::Dirty(bytes);
    }
}

/// Returns the pieces of `len` bytes from offset `at` by pages: index of the page, offset in it,
/// and range of the piece in the `len` bytes.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let now = at + done as u64;
        let start = (now % PAGE_BYTES) as usize;
        let end = len.min(done + PAGE_BYTES as usize - start);
        let piece = done..end;
        done = end;
        (!piece.is_empty()).then_some((now / PAGE_BYTES, start, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes in one piece.
    #[derive(Default)]
    struct Reference(Vec<u8>);

    impl Reference {
        fn write_at(&mut self, at: usize, bytes: &[u8]) {
            if !bytes.is_empty() {
                self.0.resize(self.0.len().max(at + bytes.len()), 0);
                self.0[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }

        fn clear(&mut self, start: usize, end: usize) {
            let end = end.min(self.0.len());
            self.0[start.min(end)..end].fill(0);
        }
    }

    fn all(pages: &Pages) -> Vec<u8> {
        let mut bytes = vec![0xee; pages.len() as usize + 10];
        let len = pages.read_at(0, &mut bytes);
        bytes.truncate(len);
        bytes
    }

    /// Makes one random change of both, or a step of the device that changes no byte.
    fn step(pages: &mut Pages, reference: &mut Reference, choices: &mut Choices) {
        const MAX: usize = 60_000;
        let (start, len) = (choices.below(MAX), choices.below(20_000));
        let range = ByteRange::between(start as u64, (start + len) as u64);
        match choices.below(8) {
            0..3 => {
                let bytes = vec![choices.below(255) as u8 + 1; len];
                pages.write_at(start as u64, &bytes);
                reference.write_at(start, &bytes);
            }
            3 => {
                pages.clear(range);
                reference.clear(start, start + len);
            }
            4 => {
                pages.set_len(start as u64);
                reference.0.resize(start, 0);
            }
            5 if choices.either() => pages.reserve_range(range),
            5 => pages.reserve(range.len()),
            6 => {
                pages.write_back(range, false);
                pages.evict(range);
            }
            _ => {
                pages.write_back(ByteRange::between(0, u64::MAX), false);
                pages.flush();
            }
        }
    }

    #[test]
    fn pages_have_the_bytes_of_one_piece_and_count_what_they_occupy() {
        for seed in 0..60 {
            let (mut pages, mut reference) = (Pages::default(), Reference::default());
            let mut choices = Choices(seed);
            for number in 0..60 {
                step(&mut pages, &mut reference, &mut choices);
                assert!(all(&pages) == reference.0, "seed {seed}, step {number}");
                let of_pages =
                    |(index, page): (&u64, &CachedPage)| *index < pages.reserved || page.now().is_some();
                let behind = pages.by_index.iter().filter(|(index, _)| **index >= pages.reserved);
                let occupied = pages.reserved + behind.filter(|entry| of_pages(*entry)).count() as u64;
                assert_eq!(pages.occupied(), occupied, "seed {seed}, step {number}");
            }
        }
    }

    #[test]
    fn data_ranges_cover_all_bytes_that_are_not_zero() {
        for seed in 0..60 {
            let (mut pages, mut reference) = (Pages::default(), Reference::default());
            let mut choices = Choices(seed);
            for _ in 0..20 {
                step(&mut pages, &mut reference, &mut choices);
            }
            let (mut at, len) = (0, pages.len());
            while at < len {
                let data = pages.next_data(ByteRange::between(at, len));
                let (start, end) = data.map_or((len, len), |data| (data.start.0, data.end.0));
                assert!(reference.0[at as usize..start as usize].iter().all(|&byte| byte == 0));
                at = end;
            }
        }
    }

    #[test]
    fn power_cut_leaves_each_sector_as_it_was_since_the_last_flush() {
        for seed in 0..60 {
            let (mut pages, mut reference) = (Pages::default(), Reference::default());
            let mut choices = Choices(seed);
            let mut states = vec![Vec::new()];
            for _ in 0..40 {
                step(&mut pages, &mut reference, &mut choices);
                let is_durable = |page: &CachedPage| {
                    [page.now(), &page.device].iter().all(|bytes| same(bytes, &page.durable))
                };
                if pages.durable_len == pages.len && pages.by_index.values().all(is_durable) {
                    states.clear();
                }
                states.push(reference.0.clone());
                let left = all(&pages.after_power_cut(&mut choices));
                assert!(states.iter().any(|state| state.len() == left.len()), "seed {seed}");
                for (number, sector) in left.chunks(SECTOR_BYTES).enumerate() {
                    let start = number * SECTOR_BYTES;
                    let is_state = |state: &Vec<u8>| {
                        let mut was: Vec<u8> = state.iter().skip(start).take(sector.len()).copied().collect();
                        was.resize(sector.len(), 0);
                        was == sector
                    };
                    assert!(states.iter().any(is_state), "seed {seed}, sector {number}");
                }
            }
        }
    }

    fn same(one: &PageBytes, other: &PageBytes) -> bool {
        match (one, other) {
            (Some(one), Some(other)) => one == other,
            (None, None) => true,
            _ => false,
        }
    }

    #[test]
    fn lost_pages_return_to_their_old_bytes_when_they_are_evicted() {
        let mut pages = Pages::default();
        pages.write_at(0, &[1; 4 * PAGE_BYTES as usize]);
        let range = ByteRange::between(0, u64::MAX);
        pages.write_back(range, false);
        pages.write_at(0, &[2; 4 * PAGE_BYTES as usize]);
        pages.write_back(range, true);
        assert!(!pages.is_dirty(range), "the kernel takes lost pages for clean");
        assert!(all(&pages) == [2; 4 * PAGE_BYTES as usize]);
        assert!(pages.evict(range));
        let half = 2 * PAGE_BYTES as usize;
        assert!(all(&pages) == [vec![2; half], vec![1; half]].concat());
    }
}
