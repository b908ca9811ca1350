//! Writing behind: the device is given what was written at once, and workers that are far ahead of it wait for it.
//!
//! Left to itself, the page cache takes gigabytes that a slow device has yet to write. Groups would grow to that while the one before them is synced,
//! and so would what a cut costs, although none of it is faster for it: a job that is logged ends when all is durable. And a record or a log that is
//! written beside them would wait behind all of it.

use haul_model::ByteRange;
use haul_sys::{cache, filesystem, open};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that the device is given and that nobody waits for yet, at most. It is not idle while workers copy the next object, and what is
/// synced beside them is not kept waiting for long.
const BYTES_MAX: u64 = 64 << 20;

/// As many pieces at most: each holds its file open.
const PIECES_MAX: usize = 16;

/// From so many bytes on a finished file is worth the calls. The kernel has smaller ones written together.
pub(super) const FILE_BYTES_MIN: u64 = 256 << 10;

/// What the device was given lately.
#[derive(Debug, Default)]
pub(super) struct Behind(Mutex<Given>);

#[derive(Debug, Default)]
struct Given {
    pieces: VecDeque<Piece>,
    bytes: u64,
}

#[derive(Debug)]
struct Piece {
    file: Arc<OwnedFd>,
    range: ByteRange,
}

/// A sink, open once more to be waited for: the kernel tells each open file once of what could not be written, and that is for those to hear
/// who sync. `None` where its device is not this machine's, or it can't be read.
pub(super) fn open_again(sink: impl AsFd) -> Option<Arc<OwnedFd>> {
    let is_local = filesystem::is_local(&sink);
    is_local.then(|| open::reopen_source(sink, false).ok()).flatten().map(Arc::new)
}

impl Behind {
    /// Gives a range that was written to the device. Returns when the device has little enough before it.
    pub(super) fn give(&self, file: &Arc<OwnedFd>, range: ByteRange) {
        // Best effort, here and below: what is not written is told by the group's sync.
        let _ = cache::start_writeback(file, range);
        let piece = Piece { file: Arc::clone(file), range };
        let oldest = self.0.lock().unwrap_or_else(PoisonError::into_inner).take(piece);
        for Piece { file, range } in oldest {
            let _ = cache::wait_writeback(file, range);
        }
    }
}

impl Given {
    /// One more; those that are too many now, the oldest first.
    fn take(&mut self, piece: Piece) -> Vec<Piece> {
        self.bytes += piece.range.len();
        self.pieces.push_back(piece);
        let mut oldest = Vec::new();
        while self.bytes > BYTES_MAX || self.pieces.len() > PIECES_MAX {
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
    fn whoever_writes_waits_for_the_oldest_and_few_files_are_held_open() {
        let file = Arc::new(OwnedFd::from(File::open("/").unwrap()));
        let piece =
            |start, len| Piece { file: Arc::clone(&file), range: ByteRange::between(start, start + len) };
        let mut given = Given::default();
        let (len, room) = (2 * OBJECT, BYTES_MAX / (2 * OBJECT));
        assert!((0..room).all(|index| given.take(piece(index * len, len)).is_empty()));
        let oldest = given.take(piece(room * len, len));
        assert_eq!(oldest.iter().map(|piece| piece.range.start.0).collect::<Vec<_>>(), [0]);
        assert_eq!(
            given.take(piece(0, 3 * BYTES_MAX)).len() as u64,
            room + 1,
            "one larger than all is waited for itself"
        );
        assert_eq!((given.bytes, given.pieces.len()), (0, 0));
        assert_eq!((0..100).map(|_| given.take(piece(0, 1)).len()).sum::<usize>(), 100 - PIECES_MAX);
    }

    /// On a slow device a group was all that had been written while the one before it was synced: gigabytes, which a cut then cost.
    #[test]
    fn what_is_waited_for_is_on_the_device() {
        let path = std::env::temp_dir().join(format!("haul-behind-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        let again = open_again(&file);
        fs::remove_file(&path).unwrap();
        let Some(again) = again else { return assert!(!filesystem::is_local(&file)) };
        let (behind, block) = (Behind::default(), vec![7; OBJECT as usize]);
        let objects: Vec<ByteRange> = (0..=PIECES_MAX as u64)
            .map(|index| ByteRange::between(index * OBJECT, (index + 1) * OBJECT))
            .collect();
        for (range, place) in objects.iter().zip(0..) {
            file.write_all_at(&block, range.start.0).unwrap();
            if place < PIECES_MAX {
                // As a device leaves it that has not begun.
                behind.0.lock().unwrap().take(Piece { file: Arc::clone(&again), range: *range });
            } else {
                behind.give(&again, *range);
            }
        }
        if let Some(oldest) = cache::residency(&file, objects[0]).unwrap() {
            assert_eq!((oldest.cached, oldest.dirty, oldest.writeback), (OBJECT / cache::page_bytes(), 0, 0));
        }
    }
}
