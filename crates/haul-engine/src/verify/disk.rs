//! Reads files in the order of their positions on the disk, one batch of the waybill at a time. The
//! verdicts are put back into the order of the waybill.
//!
//! A waybill is sorted by name, and names say little about positions. Reading in that order moves
//! the head of a disk for each small file. Reading a batch of many files by position turns this
//! into one sweep.
//!
//! A batch ends after [`FILES_MAX`] entries, or after [`BYTES_MAX`] bytes of data, because large
//! files gain little from the order. Memory use therefore stays constant. The next batch is
//! collected entry by entry while the previous one is read.

use super::judge::Expected;
use crate::sum::{Order, Orders, Settings, Source, Task, WINDOW, Window, Work};
use haul_log::waybill::Kind;
use haul_plan::Pace;
use haul_storage::{Follow, Place};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of entries in a batch. At most two batches and the results of one wait at a time.
const FILES_MAX: usize = 1024;

/// Maximum amount of data in a batch, in bytes, including the last file. With a rate limit, a batch
/// has at most the bytes of one second. This is because an interrupted job loses data that was read
/// and not reported.
const BYTES_MAX: u64 = 64 << 20;

const _: () = assert!((FILES_MAX as u64) < WINDOW, "a stretch fits into the window of results");

/// An entry with its position in the sequence of the job's entries.
#[derive(Debug)]
pub(super) struct NumberedEntry {
    number: u64,
    expected: Expected,
}

/// Orders sorted by position on the disk.
pub(super) struct ByPlace<O> {
    orders: O,
    /// True if the disk is read; otherwise the orders pass unchanged.
    sorts: bool,
    /// Maximum amount of data in a batch, in bytes; at most [`BYTES_MAX`].
    bytes_max: u64,
    taken: u64,
    ended: bool,
    gathered: Vec<(Key, Order<NumberedEntry>)>,
    gathered_bytes: u64,
    ready: VecDeque<Order<NumberedEntry>>,
    /// Devices whose file systems do not report positions.
    silent: Vec<u64>,
}

/// Sort key: device, and the best known position on it.
type Key = (u64, u64);

impl<O: Orders<Ticket = Expected>> ByPlace<O> {
    /// Wraps `orders` for a job with these read settings. If reads come from the page cache, keeps
    /// the original order, because positions do not matter.
    pub(super) fn new(orders: O, reading: &Settings) -> ByPlace<O> {
        let rate = |pace: &Arc<Mutex<Pace>>| pace.lock().bytes_per_second();
        ByPlace {
            orders,
            sorts: reading.direct || reading.drop_before,
            bytes_max: reading.pace.as_ref().map_or(BYTES_MAX, rate).min(BYTES_MAX),
            taken: 0,
            ended: false,
            gathered: Vec::new(),
            gathered_bytes: 0,
            ready: VecDeque::new(),
            silent: Vec::new(),
        }
    }

    /// Returns the next order in the original sequence, with its number.
    fn take(&mut self) -> Option<(Key, Order<NumberedEntry>)> {
        let Order { ticket, work } = self.orders.next()?;
        let number = self.taken;
        self.taken += 1;
        let key = match &work {
            Work::Hash(task) if self.sorts => self.key(&ticket, task),
            _ => (0, 0),
        };
        Some((key, Order { ticket: NumberedEntry { number, expected: ticket }, work }))
    }

    /// Adds one order to the next batch. Returns false if the batch is full or no orders are left.
    fn gather(&mut self) -> bool {
        if self.ended || self.gathered.len() >= FILES_MAX || self.gathered_bytes >= self.bytes_max {
            return false;
        }
        match self.take() {
            Some((key, order)) => {
                if let (Work::Hash(_), Kind::File(content)) = (&order.work, &order.ticket.expected.entry.kind)
                {
                    self.gathered_bytes = self.gathered_bytes.saturating_add(content.size);
                }
                self.gathered.push((key, order));
            }
            None => self.ended = true,
        }
        !self.ended
    }

    /// Returns the sort key of a file. The position is the file's first byte on the device if the
    /// file system reports it. Otherwise it is the inode number, which most file systems assign by
    /// position.
    fn key(&mut self, expected: &Expected, task: &Task) -> Key {
        let Some((device, inode)) = expected.inode else { return (0, 0) };
        if self.silent.contains(&device) {
            return (device, inode);
        }
        let Source::Beneath(dir, name) = &task.source else { return (device, inode) };
        // A file that cannot be opened is reported when it is read.
        let Ok(file) = dir.source(name, Follow::No) else { return (device, 0) };
        match file.place() {
            Ok(Place::At(place)) => (device, place.0),
            // No data is read, or the data is in the inode, which was read already.
            Ok(Place::Nowhere) => (device, 0),
            Ok(Place::Untold) | Err(_) => {
                self.silent.push(device);
                (device, inode)
            }
        }
    }
}

impl<O: Orders<Ticket = Expected>> Orders for ByPlace<O> {
    type Ticket = NumberedEntry;

    fn next(&mut self) -> Option<Order<NumberedEntry>> {
        if !self.sorts {
            return self.take().map(|(_, order)| order);
        }
        if self.ready.is_empty() {
            while self.gather() {}
            // The sort is stable for entries at the same position.
            self.gathered.sort_by_key(|(key, _)| *key);
            self.ready.extend(self.gathered.drain(..).map(|(_, order)| order));
            self.gathered_bytes = 0;
        } else {
            self.gather();
        }
        self.ready.pop_front()
    }
}

/// Restores the order of the entries for their results.
#[derive(Debug)]
pub(super) struct InOrder<R> {
    window: Window<R>,
}

impl<R> InOrder<R> {
    pub(super) fn new() -> InOrder<R> {
        InOrder { window: Window::new() }
    }

    /// Adds the result of an entry and passes on all results that are next in order.
    pub(super) fn take(
        &mut self,
        NumberedEntry { number, expected }: NumberedEntry,
        result: impl FnOnce(Expected) -> R,
        mut hand_on: impl FnMut(R),
    ) {
        self.window.put(number, result(expected));
        while let Some(result) = self.window.pop() {
            hand_on(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sum::{Form, Recipe};
    use haul_digest::Algorithm;
    use haul_log::waybill::{Content, Entry, Mark, Moment, RelPath};
    use haul_model::ByteOffset;
    use haul_storage::{Dir, Name, local};
    use std::fs::File;
    use std::io::Write;
    use std::path::Path;

    struct Listed(VecDeque<Order<Expected>>);

    impl Orders for Listed {
        type Ticket = Expected;

        fn next(&mut self) -> Option<Order<Expected>> {
            self.0.pop_front()
        }
    }

    /// Creates an order for a file with an assumed size of `size` bytes.
    fn order(dir: &Arc<dyn Dir>, name: &str, size: u64) -> Order<Expected> {
        let name_of = Name::new(name).unwrap();
        let inode = Some(dir.stat_at(&name_of, Follow::No).unwrap().identity());
        let content = Content { size, digests: Vec::new(), way: None, level: None, objects: None };
        let path = RelPath::new(name.as_bytes()).unwrap();
        let entry = Entry { path, kind: Kind::File(content), mode: 0, mtime: Moment::default() };
        let recipe = Arc::new(Recipe { algorithms: vec![Algorithm::Blake3], form: Form::Plain });
        let source = Source::Beneath(Arc::clone(dir), name_of);
        let work = Work::Hash(Task { source, recipe, offset: ByteOffset(0), length: None });
        let ticket = Expected {
            number: 0,
            mark: Mark::default(),
            entry,
            objects: None,
            sampled: false,
            early: None,
            inode,
        };
        Order { ticket, work }
    }

    /// Creates files, and allocates their blocks, in an order that differs from their names.
    fn files(dir: &Path, count: u64) -> (Arc<dyn Dir>, Vec<String>) {
        let names: Vec<String> = (0..count).map(|number| format!("{:04}", number * 7 % count)).collect();
        for name in &names {
            let mut file = File::create(dir.join(name)).unwrap();
            file.write_all(&[1; 5000]).unwrap();
            file.sync_data().unwrap();
        }
        let mut sorted = names;
        sorted.sort();
        (local::open(dir, Follow::Yes).unwrap(), sorted)
    }

    fn place(dir: &Arc<dyn Dir>, name: &str) -> u64 {
        let file = dir.source(&Name::new(name).unwrap(), Follow::No).unwrap();
        match file.place().unwrap() {
            Place::At(place) => place.0,
            Place::Nowhere => 0,
            Place::Untold => file.opened().ino,
        }
    }

    fn taken(orders: Vec<Order<Expected>>, direct: bool) -> Vec<(u64, String)> {
        let reading = Settings { direct, ..Settings::for_workers(1) };
        let mut orders = ByPlace::new(Listed(orders.into()), &reading);
        let next = || orders.next().map(|order| order.ticket);
        std::iter::from_fn(next)
            .map(|ticket| (ticket.number, ticket.expected.entry.path.to_string()))
            .collect()
    }

    #[test]
    fn batch_is_read_by_disk_position_and_returned_in_order() {
        let home = tempfile::tempdir().unwrap();
        let (dir, names) = files(home.path(), 100);
        let orders = || names.iter().map(|name| order(&dir, name, 5000)).collect();
        let as_they_come = taken(orders(), false);
        assert!(as_they_come.iter().map(|(_, name)| name).eq(&names));
        let by_place = taken(orders(), true);
        let places: Vec<u64> = by_place.iter().map(|(_, name)| place(&dir, name)).collect();
        assert!(places.is_sorted(), "{places:?}");
        let mut in_order = InOrder::new();
        let mut told = Vec::new();
        for (number, name) in by_place {
            let expected = order(&dir, &name, 0).ticket;
            in_order.take(
                NumberedEntry { number, expected },
                |expected| expected.entry.path.to_string(),
                |name| {
                    told.push(name);
                },
            );
        }
        assert_eq!(told, names);
    }

    #[test]
    fn large_files_end_a_batch() {
        let home = tempfile::tempdir().unwrap();
        let (dir, names) = files(home.path(), 30);
        // Every third file fills a batch: no other file moves past it.
        let sized =
            names.iter().enumerate().map(|(at, name)| (name, if at % 3 == 2 { BYTES_MAX } else { 1 }));
        let orders = sized.map(|(name, size)| order(&dir, name, size)).collect();
        let found = taken(orders, true);
        for (stretch, three) in found.chunks(3).enumerate() {
            let mut numbers: Vec<u64> = three.iter().map(|(number, _)| *number).collect();
            numbers.sort_unstable();
            let first = 3 * stretch as u64;
            assert_eq!(numbers, [first, first + 1, first + 2]);
        }
    }
}
