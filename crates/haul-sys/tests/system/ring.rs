//! Tests of the ring: every copy equals its source, and every error names its side and its offset.

use crate::{errno, noise, opened, places};
use haul_lab::needs::shown_or_skip;
use haul_sys::open::create_new_at;
use haul_sys::uring::{CopyError, CopyRing, is_unavailable};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns a ring; prints a skip if this machine has none.
fn ring(depth: usize, block: usize) -> Option<CopyRing> {
    match CopyRing::new(depth, block) {
        Ok(ring) => Some(ring),
        Err(error) => {
            assert!(is_unavailable(&error), "{error}");
            shown_or_skip(false, "io_uring");
            None
        }
    }
}

/// Collects the bytes that the ring passes on, and checks that they are in the order of the file.
struct Seen {
    next: u64,
    bytes: Vec<u8>,
}

impl Seen {
    fn from(offset: u64) -> Seen {
        Seen { next: offset, bytes: Vec::new() }
    }

    fn take(&mut self, offset: u64, block: &[u8]) {
        assert_eq!(offset, self.next, "blocks are shown in order, without gaps");
        assert!(!block.is_empty());
        self.next += block.len() as u64;
        self.bytes.extend_from_slice(block);
    }
}

#[test]
fn copies_of_edge_lengths_equal_their_source() {
    for place in places() {
        let dir = opened(place.path());
        for (depth, block) in [(1, 1_000), (2, 4_096), (4, 1_000), (4, 4_096), (7, 513)] {
            let Some(mut ring) = ring(depth, block) else { return };
            let row = depth * block;
            let edges = [0, 1, block - 1, block, block + 1, row - 1, row, row + 1, 3 * row + 17];
            for (index, len) in edges.into_iter().enumerate() {
                let bytes = noise(len, index as u64 + 9);
                let name = format!("{depth} {block} {index}");
                let path = place.path().join(format!("src {name}"));
                fs::write(&path, &bytes).expect("written");
                let src = File::open(&path).expect("opens");
                let dst = create_new_at(&dir, name.as_str(), 0o600).expect("made");
                let mut seen = Seen::from(0);
                let copied = ring
                    .copy(src.as_fd(), dst.as_fd(), 0, 0, len as u64, &mut |at, block| seen.take(at, block))
                    .expect("copied");
                assert_eq!(copied, len as u64);
                assert_eq!(seen.bytes, bytes);
                assert_eq!(fs::read(place.path().join(name)).expect("read"), bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_range_matches_the_naive_copy(
        size in 0_usize..60_000, from in 0_usize..70_000, to in 0_usize..20_000, len in 0_usize..70_000,
        depth in 1_usize..9, block in 1_usize..9_000,
    ) {
        // Small blocks mean many requests: a lower bound keeps the test quick.
        let block = block.max(64);
        let place = tempfile::tempdir().expect("a temporary folder");
        let Some(mut ring) = ring(depth, block) else { return Ok(()) };
        let bytes = noise(size, to as u64);
        fs::write(place.path().join("src"), &bytes).expect("written");
        let src = File::open(place.path().join("src")).expect("opens");
        let dst = create_new_at(opened(place.path()), c"dst", 0o600).expect("made");
        let there = &bytes[from.min(size)..(from + len).min(size).max(from.min(size))];
        let mut seen = Seen::from(from as u64);
        let copied = ring
            .copy(src.as_fd(), dst.as_fd(), from as u64, to as u64, len as u64, &mut |at, b| seen.take(at, b))
            .expect("copied");
        prop_assert_eq!(copied, there.len() as u64, "fewer only where the source ends");
        prop_assert_eq!(&seen.bytes, there);
        let mut expected = if there.is_empty() { Vec::new() } else { vec![0; to] };
        expected.extend_from_slice(there);
        prop_assert_eq!(fs::read(place.path().join("dst")).expect("read"), expected);
    }
}

#[test]
fn unlimited_length_stops_at_the_end_of_the_source() {
    let Some(mut ring) = ring(4, 4_096) else { return };
    for place in places() {
        fs::write(place.path().join("src"), noise(10_001, 1)).expect("written");
        let src = File::open(place.path().join("src")).expect("opens");
        let dst = create_new_at(opened(place.path()), c"dst", 0o600).expect("made");
        let copied = ring.copy(src.as_fd(), dst.as_fd(), 1, 5, u64::MAX, &mut |_, _| {}).expect("copied");
        assert_eq!(copied, 10_000);
        let error =
            ring.copy(src.as_fd(), dst.as_fd(), u64::MAX, 0, 1, &mut |_, _| {}).expect_err("no offset");
        assert!(matches!(error, CopyError::Read { at: u64::MAX, .. }), "{error}");
    }
}

#[test]
fn full_destination_error_has_the_offset_and_the_ring_stays_usable() {
    let Some(mut ring) = ring(4, 4_096) else { return };
    let place = tempfile::tempdir().expect("a temporary folder");
    let bytes = noise(100_000, 2);
    fs::write(place.path().join("src"), &bytes).expect("written");
    let src = File::open(place.path().join("src")).expect("opens");
    let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
    match ring.copy(src.as_fd(), full.as_fd(), 0, 777, 100_000, &mut |_, _| {}) {
        Err(CopyError::Write { at: 777, source }) => assert_eq!(errno(&source), Some(Errno::NOSPC)),
        other => panic!("{other:?}"),
    }
    let dst = create_new_at(opened(place.path()), c"dst", 0o600).expect("made");
    ring.copy(src.as_fd(), dst.as_fd(), 0, 0, 100_000, &mut |_, _| {}).expect("the ring is as good as new");
    assert_eq!(fs::read(place.path().join("dst")).expect("read"), bytes);
}

#[test]
fn write_error_has_the_offset_of_the_first_refused_byte() {
    // A memfd that may not grow accepts bytes up to its length and refuses the rest.
    const ROOM: u64 = 5 * 4_096;
    let place = tempfile::tempdir().expect("a temporary folder");
    let bytes = noise(100_000, 3);
    fs::write(place.path().join("src"), &bytes).expect("written");
    let src = File::open(place.path().join("src")).expect("opens");
    for depth in [1, 3, 8] {
        let Some(mut ring) = ring(depth, 8_192) else { return };
        let dst = rustix::fs::memfd_create(c"dst", MemfdFlags::ALLOW_SEALING).expect("made");
        rustix::fs::ftruncate(&dst, ROOM).expect("extended");
        rustix::fs::fcntl_add_seals(&dst, SealFlags::GROW).expect("sealed");
        match ring.copy(src.as_fd(), dst.as_fd(), 0, 0, 100_000, &mut |_, _| {}) {
            Err(CopyError::Write { at, source }) => {
                assert_eq!(errno(&source), Some(Errno::PERM));
                assert_eq!(at, ROOM, "with {depth} blocks in flight");
            }
            other => panic!("{other:?}"),
        }
        let mut back = vec![0; ROOM as usize];
        haul_sys::transfer::read_at(&dst, 0, &mut back).expect("read");
        assert_eq!(back, bytes[..ROOM as usize]);
    }
}

#[test]
fn read_error_is_reported_and_earlier_bytes_arrive() {
    // /proc/self/pagemap answers reads of whole 8-byte entries only: the last, short block fails.
    let src = File::open("/proc/self/pagemap").expect("opens");
    for depth in [1, 2, 4] {
        let Some(mut ring) = ring(depth, 16) else { return };
        let place = tempfile::tempdir().expect("a temporary folder");
        let dst = create_new_at(opened(place.path()), c"dst", 0o600).expect("made");
        let mut seen = Seen::from(64);
        match ring.copy(src.as_fd(), dst.as_fd(), 64, 0, 36, &mut |at, block| seen.take(at, block)) {
            Err(CopyError::Read { at: 96, source }) => assert_eq!(errno(&source), Some(Errno::INVAL)),
            other => panic!("{other:?}"),
        }
        assert_eq!(seen.bytes.len(), 32);
        assert_eq!(fs::read(place.path().join("dst")).expect("read"), seen.bytes);
    }
    let Some(mut ring) = ring(4, 4_096) else { return };
    let place = tempfile::tempdir().expect("a temporary folder");
    let dst = create_new_at(opened(place.path()), c"dst", 0o600).expect("made");
    match ring.copy(opened(place.path()).as_fd(), dst.as_fd(), 0, 0, 50_000, &mut |_, _| {}) {
        Err(CopyError::Read { at: 0, source }) => assert_eq!(errno(&source), Some(Errno::ISDIR)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn panic_in_the_callback_leaves_the_ring_usable() {
    let Some(mut ring) = ring(4, 4_096) else { return };
    let place = tempfile::tempdir().expect("a temporary folder");
    let bytes = noise(200_000, 4);
    fs::write(place.path().join("src"), &bytes).expect("written");
    let src = File::open(place.path().join("src")).expect("opens");
    let dst = create_new_at(opened(place.path()), c"dst", 0o600).expect("made");
    for stop in [0, 4_096, 20 * 4_096] {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            ring.copy(src.as_fd(), dst.as_fd(), 0, 0, 200_000, &mut |at, _| {
                // Without the message of the panic hook, because the panic is intended.
                if at == stop {
                    std::panic::resume_unwind(Box::new("meant"));
                }
            })
        }));
        assert!(outcome.is_err());
    }
    ring.copy(src.as_fd(), dst.as_fd(), 0, 0, 200_000, &mut |_, _| {}).expect("copied");
    assert_eq!(fs::read(place.path().join("dst")).expect("read"), bytes);
}

#[test]
fn threads_with_separate_rings_copy_one_file() {
    const PART: u64 = 300_000;
    for place in places() {
        let bytes = noise(4 * PART as usize, 5);
        fs::write(place.path().join("src"), &bytes).expect("written");
        let src = File::open(place.path().join("src")).expect("opens");
        let dst = create_new_at(opened(place.path()), c"dst", 0o600).expect("made");
        std::thread::scope(|scope| {
            for part in 0..4 {
                let (src, dst) = (src.as_fd(), dst.as_fd());
                scope.spawn(move || {
                    let Some(mut ring) = ring(4, 16 << 10) else { return };
                    let at = part * PART;
                    assert_eq!(ring.copy(src, dst, at, at, PART, &mut |_, _| {}).expect("copied"), PART);
                });
            }
        });
        if ring(1, 1).is_some() {
            assert_eq!(fs::read(place.path().join("dst")).expect("read"), bytes);
        }
    }
}

#[test]
fn file_that_returns_eagain_is_read_without_the_ring() {
    // A file of /proc that is opened with O_NONBLOCK cannot be polled: for such a file the ring
    // always returns EAGAIN.
    let Some(mut ring) = ring(4, 16) else { return };
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let src = rustix::fs::open(c"/proc/version", flags, rustix::fs::Mode::empty()).expect("opens");
    let expected = fs::read("/proc/version").expect("read");
    let place = tempfile::tempdir().expect("a temporary folder");
    let dst = create_new_at(opened(place.path()), c"dst", 0o600).expect("made");
    let copied = ring.copy(src.as_fd(), dst.as_fd(), 0, 0, u64::MAX, &mut |_, _| {}).expect("copied");
    assert_eq!(copied, expected.len() as u64);
    assert_eq!(fs::read(place.path().join("dst")).expect("read"), expected);
}
