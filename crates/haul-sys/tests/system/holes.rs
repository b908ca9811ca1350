//! Tests of the maps of sparse files against a simple model, and of making holes.

use crate::{noise, opened, places};
use haul_model::{ByteRange, is_zero};
use haul_sys::open::create_new_at;
use haul_sys::sparse::{self, Support, next_data};
use haul_sys::stat::stat_fd;
use haul_sys::transfer::{read_at, write_all_at};
use proptest::prelude::*;
use rustix::fd::OwnedFd;
use std::path::Path;

/// Block size; every file system under test can represent a hole of this size.
const BLOCK: u64 = 64 << 10;

fn file_in(folder: &Path) -> OwnedFd {
    let name = format!("file {}", std::fs::read_dir(folder).expect("listed").count());
    create_new_at(opened(folder), name.as_str(), 0o600).expect("made")
}

/// Returns the expected map, computed from every written block.
fn naive_ranges(written: &[bool], from: u64, end: u64) -> Vec<ByteRange> {
    let mut ranges: Vec<ByteRange> = Vec::new();
    for (index, _) in written.iter().enumerate().filter(|(_, written)| **written) {
        let block = ByteRange::between(index as u64 * BLOCK, (index as u64 + 1) * BLOCK);
        let Some(part) = block.intersect(ByteRange::between(from, end)) else { continue };
        match ranges.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => ranges.push(part),
        }
    }
    ranges
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn data_ranges_match_the_naive_map(
        written in prop::collection::vec(any::<bool>(), 0..24), from in 0..24 * BLOCK, len in 0..26 * BLOCK,
    ) {
        for place in places() {
            let file = file_in(place.path());
            let size = written.len() as u64 * BLOCK;
            sparse::set_len(&file, size).expect("extended");
            for (index, _) in written.iter().enumerate().filter(|(_, written)| **written) {
                write_all_at(&file, index as u64 * BLOCK, &noise(BLOCK as usize, 5)).expect("written");
            }
            let (mut found, mut at) = (Vec::new(), from);
            while let Some(data) = next_data(&file, at, from + len - at).expect("mapped") {
                at = data.end.0;
                found.push(data);
            }
            let expected = naive_ranges(&written, from, (from + len).min(size).max(from));
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn data_after_a_terabyte_hole_is_found() {
    for place in places() {
        let file = file_in(place.path());
        sparse::set_len(&file, 1 << 40).expect("extended");
        assert_eq!(next_data(&file, 0, 1 << 40).expect("mapped"), None);
        let stat = stat_fd(&file).expect("found");
        assert!(stat.is_sparse() && stat.size == 1 << 40);
        write_all_at(&file, (1 << 40) - BLOCK, &noise(BLOCK as usize, 6)).expect("written");
        let found = next_data(&file, 0, u64::MAX).expect("mapped");
        assert_eq!(found, Some(ByteRange::between((1 << 40) - BLOCK, 1 << 40)));
    }
}

#[test]
fn cleared_ranges_read_as_zeros() {
    for place in places() {
        let file = file_in(place.path());
        write_all_at(&file, 0, &vec![7; 4 * BLOCK as usize]).expect("written");
        let range = ByteRange::between(BLOCK - 1, 3 * BLOCK + 1);
        assert!(sparse::clear(&file, range, || false).expect("cleared"));
        let mut bytes = vec![1; 4 * BLOCK as usize];
        assert_eq!(read_at(&file, 0, &mut bytes).expect("read"), bytes.len());
        let (begin, end) = (range.start.0 as usize, range.end.0 as usize);
        assert!(
            is_zero(&bytes[begin..end])
                && [&bytes[..begin], &bytes[end..]].iter().all(|kept| kept.iter().all(|byte| *byte == 7))
        );
    }
}

/// Regression test: a terabyte was cleared to its end, whatever signal came.
#[test]
fn clearing_without_holes_ends_when_it_is_over() {
    // The device accepts all writes and cannot punch.
    let file = std::fs::File::options().write(true).open("/dev/null").expect("opened");
    let clear = |most: u32, len: u64| {
        let mut calls = 0;
        let done = sparse::clear(&file, ByteRange::between(5, 5 + len), || {
            calls += 1;
            calls > most
        });
        (done.expect("written"), calls)
    };
    assert_eq!(clear(3, 1 << 40), (false, 4));
    assert_eq!(clear(u32::MAX, 3 * BLOCK + 1), (true, 4));
    assert_eq!(clear(u32::MAX, 0), (true, 0));
}

#[test]
fn input_without_a_map_is_all_data() {
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    assert_eq!(next_data(&reader, 5, 10).expect("an answer"), Some(ByteRange::between(5, 15)));
    assert_eq!(next_data(&reader, 5, 0).expect("an answer"), None);
}

#[test]
fn punched_ranges_read_as_zeros_and_free_their_space() {
    for place in places() {
        let file = file_in(place.path());
        write_all_at(&file, 0, &vec![7; 4 * BLOCK as usize]).expect("written");
        let hole = ByteRange::between(BLOCK, 3 * BLOCK);
        if sparse::punch_hole(&file, hole).expect("punched") == Support::Unsupported {
            place.lacks("holes that are punched", &[]);
            continue;
        }
        let mut bytes = vec![1; 4 * BLOCK as usize];
        assert_eq!(read_at(&file, 0, &mut bytes).expect("read"), bytes.len());
        assert!(is_zero(&bytes[BLOCK as usize..3 * BLOCK as usize]));
        assert!(bytes[..BLOCK as usize].iter().chain(&bytes[3 * BLOCK as usize..]).all(|&byte| byte == 7));
        assert!(stat_fd(&file).expect("found").is_sparse());
        assert_eq!(next_data(&file, BLOCK, u64::MAX).expect("mapped").expect("data").start.0, 3 * BLOCK);
        sparse::punch_hole(&file, ByteRange::between(9, 9)).expect("an empty hole is no failure");
    }
}

#[test]
fn space_is_allocated_with_or_without_the_length() {
    for place in places() {
        let file = file_in(place.path());
        let range = ByteRange::between(0, 4 * BLOCK);
        if sparse::allocate(&file, range, true).expect("allocated") == Support::Unsupported {
            place.lacks("space that is kept", &[]);
            continue;
        }
        let stat = stat_fd(&file).expect("found");
        assert_eq!(stat.size, 0, "a file truncated here must not look complete");
        assert!(stat.blocks * 512 >= 4 * BLOCK);
        assert_eq!(sparse::allocate(&file, range, false).expect("allocated"), Support::Done);
        assert_eq!(stat_fd(&file).expect("found").size, 4 * BLOCK);
        sparse::set_len(&file, 3).expect("cut");
        assert_eq!(stat_fd(&file).expect("found").size, 3);
    }
}
