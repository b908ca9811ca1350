//! Write-back throttling.
//!
//! A worker starts write-back of each range as soon as it has written it. It waits for the oldest
//! range when more than [`IN_FLIGHT_BYTES_MAX`] bytes are in flight.
//!
//! Without throttling, the page cache takes gigabytes that a slow device has yet to write. Groups
//! would grow to that size while the previous one is synced, and so would the loss by an
//! interruption. The job would not be faster, because a logged job ends when everything is durable.
//! In addition, each write of a record or a log would wait for all of that data.

use haul_model::ByteRange;
use haul_storage::{SinkFile, SourceFile};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of bytes in write-back that no worker waits for yet. The device stays busy while
/// workers copy the next object, and concurrent syncs do not wait for long.
const IN_FLIGHT_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of ranges in write-back. Each keeps its file open.
const PIECES_MAX: usize = 16;

/// Minimum size, in bytes, of a finished file for an explicit write-back call. The kernel batches
/// smaller files.
pub(super) const FILE_BYTES_MIN: u64 = 256 << 10;

/// The ranges recently given to the device.
#[derive(Debug, Default)]
pub(super) struct WritebackQueue(Mutex<InFlight>);

#[derive(Debug, Default)]
struct InFlight {
    pieces: VecDeque<Piece>,
    bytes: u64,
}

#[derive(Debug)]
struct Piece {
    file: Arc<dyn SourceFile>,
    range: ByteRange,
}

/// Opens a sink a second time, to wait for its write-back: the sync of the group receives its own
/// report of an error, and a finished file is not kept open for writing. Returns `None` if the
/// device is not local, or if the sink cannot be read.
pub(super) fn open_again(sink: &dyn SinkFile) -> Option<Arc<dyn SourceFile>> {
    sink.device().capabilities.is_local.then(|| sink.reopen().ok()).flatten()
}

impl WritebackQueue {
    /// Starts write-back of a range of `sink` that was written. Returns when few enough bytes are
    /// in write-back. `again` is the sink from [`open_again`].
    pub(super) fn give(&self, sink: &dyn SinkFile, again: &Arc<dyn SourceFile>, range: ByteRange) {
        sink.start_writeback(range);
        let piece = Piece { file: Arc::clone(again), range };
        let oldest = self.0.lock().take(piece);
        for Piece { file, range } in oldest {
            // The sync of the group reports an error.
            let _ = file.write_back(range);
        }
    }
}

impl InFlight {
    /// Adds a range. Returns the oldest ranges that exceed the limits.
    fn take(&mut self, piece: Piece) -> Vec<Piece> {
        self.bytes += piece.range.len();
        self.pieces.push_back(piece);
        let mut oldest = Vec::new();
        while self.bytes > IN_FLIGHT_BYTES_MAX || self.pieces.len() > PIECES_MAX {
            let Some(first) = self.pieces.pop_front() else { break };
            self.bytes -= first.range.len();
            oldest.push(first);
        }
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::memory::MemoryStorage;
    use haul_storage::{Create, Follow, Name};

    const OBJECT: u64 = 4 << 20;

    fn name() -> Name {
        Name::new("f").unwrap()
    }

    #[test]
    fn ranges_above_the_limits_are_waited_for_oldest_first() {
        let sink = MemoryStorage::new(1).root().sink(&name(), Create::New { mode: 0o600 }).unwrap();
        let file = sink.reopen().unwrap();
        let piece =
            |start, len| Piece { file: Arc::clone(&file), range: ByteRange::between(start, start + len) };
        let mut in_flight = InFlight::default();
        let (len, room) = (2 * OBJECT, IN_FLIGHT_BYTES_MAX / (2 * OBJECT));
        assert!((0..room).all(|index| in_flight.take(piece(index * len, len)).is_empty()));
        let oldest = in_flight.take(piece(room * len, len));
        assert_eq!(oldest.iter().map(|piece| piece.range.start.0).collect::<Vec<_>>(), [0]);
        assert_eq!(
            in_flight.take(piece(0, 3 * IN_FLIGHT_BYTES_MAX)).len() as u64,
            room + 1,
            "one larger than all is waited for itself"
        );
        assert_eq!((in_flight.bytes, in_flight.pieces.len()), (0, 0));
        assert_eq!((0..100).map(|_| in_flight.take(piece(0, 1)).len()).sum::<usize>(), 100 - PIECES_MAX);
    }

    /// Regression test: on a slow device, a group contained everything written during the previous
    /// sync. That was gigabytes, which an interruption then lost.
    #[test]
    fn waited_for_ranges_are_on_the_device() {
        let home = tempfile::tempdir().unwrap();
        let dir = haul_storage::local::open(home.path(), Follow::Yes).unwrap();
        let file = dir.sink(&name(), Create::New { mode: 0o600 }).unwrap();
        let Some(again) = open_again(&*file) else {
            return assert!(!file.device().capabilities.is_local);
        };
        let (writeback, block) = (WritebackQueue::default(), vec![7; OBJECT as usize]);
        let objects: Vec<ByteRange> = (0..=PIECES_MAX as u64)
            .map(|index| ByteRange::between(index * OBJECT, (index + 1) * OBJECT))
            .collect();
        for (range, place) in objects.iter().zip(0..) {
            file.write_at(range.start.0, &block).unwrap();
            if place < PIECES_MAX {
                // The state that a device leaves that has not started the write-back.
                writeback.0.lock().take(Piece { file: Arc::clone(&again), range: *range });
            } else {
                writeback.give(&*file, &again, *range);
            }
        }
        let reader = file.reader().unwrap();
        if let Some(oldest) = reader.residency(objects[0]) {
            let pages = OBJECT / haul_sys::cache::page_bytes();
            assert_eq!((oldest.cached, oldest.dirty, oldest.writeback), (pages, 0, 0));
        }
    }
}
