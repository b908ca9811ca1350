//! Tests of positioned and streamed transfers, copies inside the kernel, and clones.

use crate::{errno, noise, opened, places};
use haul_lab::mounts::FsKind;
use haul_sys::open::create_new_at;
use haul_sys::transfer::{self, CopyRange};
use proptest::prelude::*;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::thread;

/// File systems without shared extents.
const NO_CLONES: [FsKind; 2] = [FsKind::Ext4, FsKind::Tmpfs];

#[test]
fn reads_fill_the_buffer_up_to_the_end_of_the_file() {
    for place in places() {
        let dir = opened(place.path());
        let file = create_new_at(&dir, c"file", 0o600).expect("made");
        let bytes = noise(10_000, 1);
        transfer::write_all_at(&file, 0, &bytes).expect("written");
        for (offset, len, expected) in [
            (0, 10_000, 10_000),
            (0, 10_001, 10_000),
            (9_999, 5, 1),
            (10_000, 5, 0),
            (20_000, 5, 0),
            (3, 0, 0),
        ] {
            let mut buffer = vec![0; len];
            let read = transfer::read_at(&file, offset as u64, &mut buffer).expect("read");
            assert_eq!(read, expected);
            assert_eq!(&buffer[..read], &bytes[offset.min(10_000)..][..expected]);
        }
    }
}

#[test]
fn writes_to_a_full_device_fail_with_enospc() {
    let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
    let error = transfer::write_all_at(&full, 0, b"x").expect_err("full");
    assert_eq!(errno(&error), Some(Errno::NOSPC));
    assert_eq!(errno(&transfer::write_stream(&full, b"x").expect_err("full")), Some(Errno::NOSPC));
    transfer::write_all_at(&full, 0, b"").expect("nothing to write is no failure");
}

#[test]
fn streams_in_pieces_are_transferred_completely() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let bytes = noise(300_000, 2);
    let sent = bytes.clone();
    let feeder = thread::spawn(move || {
        for piece in sent.chunks(777) {
            writer.write_all(piece).expect("sent");
        }
    });
    let mut received = vec![0; bytes.len() + 10];
    let len = transfer::read_stream(&reader, &mut received).expect("read");
    feeder.join().expect("the feeder ends");
    assert_eq!(&received[..len], bytes);

    let (reader, writer) = std::io::pipe().expect("a pipe");
    let sent = bytes.clone();
    let feeder =
        thread::spawn(move || transfer::write_stream(&writer, &sent).expect("more than a pipe holds"));
    let mut received = vec![0; bytes.len()];
    assert_eq!(transfer::read_stream(&reader, &mut received).expect("read"), bytes.len());
    feeder.join().expect("the feeder ends");
    assert_eq!(received, bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn kernel_copy_matches_the_naive_copy(
        size in 0_usize..20_000, from in 0_usize..25_000, to in 0_usize..9_000, len in 0_usize..25_000,
    ) {
        for place in places() {
            let dir = opened(place.path());
            let bytes = noise(size, from as u64);
            fs::write(place.path().join("src"), &bytes).expect("written");
            let src = File::open(place.path().join("src")).expect("opens");
            let dst = create_new_at(&dir, c"dst", 0o600).expect("made");
            let outcome = transfer::copy_range(&src, from as u64, &dst, to as u64, len as u64);
            let there = &bytes[from.min(size)..(from + len).min(size).max(from.min(size))];
            let copied = match outcome.expect("copied") {
                CopyRange::Whole => len as u64,
                CopyRange::SourceEnded { copied } => {
                    prop_assert!(there.len() < len);
                    copied
                }
                CopyRange::Unsupported { .. } => {
                    place.lacks("copies inside the kernel", &[]);
                    continue;
                }
            };
            prop_assert_eq!(copied, there.len() as u64);
            let mut expected = if there.is_empty() { Vec::new() } else { vec![0; to] };
            expected.extend_from_slice(there);
            prop_assert_eq!(fs::read(place.path().join("dst")).expect("read"), expected);
        }
    }
}

#[test]
fn proc_file_is_not_treated_as_empty() {
    let src = File::open("/proc/self/status").expect("opens");
    for place in places() {
        let dst = create_new_at(opened(place.path()), c"dst", 0o600).expect("made");
        let outcome = transfer::copy_range(&src, 0, &dst, 0, 4096).expect("an answer, not a failure");
        assert_eq!(outcome, CopyRange::Unsupported { copied: 0 });
    }
}

#[test]
fn copy_to_another_file_system_or_pipe_is_complete_or_unsupported() {
    let places = places();
    let bytes = noise(9_999, 3);
    fs::write(places[0].path().join("src"), &bytes).expect("written");
    let src = File::open(places[0].path().join("src")).expect("opens");
    let (_reader, pipe) = std::io::pipe().expect("a pipe");
    let outcome = transfer::copy_range(&src, 0, &pipe, 0, 100).expect("an answer");
    assert_eq!(outcome, CopyRange::Unsupported { copied: 0 });
    for other in &places[1..] {
        let dst = create_new_at(opened(other.path()), c"dst", 0o600).expect("made");
        match transfer::copy_range(&src, 0, &dst, 0, 9_999).expect("an answer") {
            CopyRange::Whole => assert_eq!(fs::read(other.path().join("dst")).expect("read"), bytes),
            outcome => assert_eq!(outcome, CopyRange::Unsupported { copied: 0 }),
        }
    }
}

#[test]
fn clones_share_bytes_or_return_unsupported() {
    for place in places() {
        let dir = opened(place.path());
        let bytes = noise(128 << 10, 4);
        fs::write(place.path().join("src"), &bytes).expect("written");
        let src = File::open(place.path().join("src")).expect("opens");
        let dst = create_new_at(&dir, c"dst", 0o600).expect("made");
        match transfer::clone_file(&src, &dst) {
            Ok(()) => {
                place.has("shared extents", &NO_CLONES);
                assert_eq!(fs::read(place.path().join("dst")).expect("read"), bytes);
            }
            Err(error) => {
                place.lacks("shared extents", &NO_CLONES);
                assert!(transfer::clone_is_unsupported(&error), "{error}");
            }
        }
        let dst = create_new_at(&dir, c"part", 0o600).expect("made");
        match transfer::clone_range(src.as_fd(), 64 << 10, &dst, 0, 64 << 10) {
            Ok(()) => {
                place.has("shared extents", &NO_CLONES);
                assert_eq!(fs::read(place.path().join("part")).expect("read"), &bytes[64 << 10..]);
            }
            Err(error) => {
                place.lacks("shared extents", &NO_CLONES);
                assert!(transfer::clone_is_unsupported(&error), "{error}");
            }
        }
        transfer::clone_range(&src, 0, &dst, 0, 0).expect("nothing to share is no failure");
    }
    let full = std::io::Error::from(Errno::NOSPC);
    assert!(!transfer::clone_is_unsupported(&full));
}
