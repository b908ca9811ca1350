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
use haul_sys::{cache, filesystem, open};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
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
    file: Arc<OwnedFd>,
    range: ByteRange,
}

/// Opens a sink a second time, to wait for its write-back. The kernel reports each write error once
/// per open file, and the sync must receive that report. Returns `None` if the device is not local,
/// or if the sink cannot be read.
pub(super) fn open_again(sink: impl AsFd) -> Option<Arc<OwnedFd>> {
    let is_local = filesystem::is_local(&sink);
    is_local.then(|| open::reopen_source(sink, false).ok()).flatten().map(Arc::new)
}

impl WritebackQueue {
    /// Starts write-back of a range that was written. Returns when few enough bytes are in
    /// write-back.
    pub(super) fn give(&self, file: &Arc<OwnedFd>, range: ByteRange) {
        // Errors are ignored here and below, because the sync of the group reports failed writes.
        let _ = cache::start_writeback(file, range);
        let piece = Piece { file: Arc::clone(file), range };
        let oldest = self.0.lock().take(piece);
        for Piece { file, range } in oldest {
            let _ = cache::wait_writeback(file, range);
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
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt;

    const OBJECT: u64 = 4 << 20;

    #[test]
    fn ranges_above_the_limits_are_waited_for_oldest_first() {
        let file = Arc::new(OwnedFd::from(File::open("/").unwrap()));
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
        let path = std::env::temp_dir().join(format!("haul-behind-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        let again = open_again(&file);
        fs::remove_file(&path).unwrap();
        let Some(again) = again else { return assert!(!filesystem::is_local(&file)) };
        let (writeback, block) = (WritebackQueue::default(), vec![7; OBJECT as usize]);
        let objects: Vec<ByteRange> = (0..=PIECES_MAX as u64)
            .map(|index| ByteRange::between(index * OBJECT, (index + 1) * OBJECT))
            .collect();
        for (range, place) in objects.iter().zip(0..) {
            file.write_all_at(&block, range.start.0).unwrap();
            if place < PIECES_MAX {
                // The state that a device leaves that has not started the write-back.
                writeback.0.lock().take(Piece { file: Arc::clone(&again), range: *range });
            } else {
                writeback.give(&again, *range);
            }
        }
        if let Some(oldest) = cache::residency(&file, objects[0]).unwrap() {
            assert_eq!((oldest.cached, oldest.dirty, oldest.writeback), (OBJECT / cache::page_bytes(), 0, 0));
        }
    }
}
