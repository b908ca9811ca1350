//! Tests of the page cache: residency and dropping of pages.

use crate::{errno, noise, opened, places};
use haul_lab::needs::shown_or_skip;
use haul_model::ByteRange;
use haul_sys::cache::{self, Advice, FOLIO_BYTES_MAX};
use haul_sys::open::create_new_at;
use haul_sys::transfer::{read_at, write_all_at};
use rustix::fd::AsFd;
use rustix::io::Errno;

const PAGES: u64 = 64;

/// Drops a range, widened to full folios, from the page cache.
fn drop_range(file: impl AsFd, range: ByteRange) {
    let start = range.start.0 / FOLIO_BYTES_MAX * FOLIO_BYTES_MAX;
    let end = range.end.0.next_multiple_of(FOLIO_BYTES_MAX);
    cache::advise(file, ByteRange::between(start, end), Advice::DontNeed).expect("taken");
}

#[test]
fn pages_are_cached_written_and_dropped() {
    for place in places() {
        let page = cache::page_bytes();
        let file = create_new_at(opened(place.path()), c"file", 0o600).expect("made");
        write_all_at(&file, 0, &noise((PAGES * page) as usize, 7)).expect("written");
        let whole = ByteRange::between(0, PAGES * page);
        let before = cache::residency(&file, whole).expect("asked");
        if !shown_or_skip(before.is_some(), "a kernel that says what the page cache holds") {
            return;
        }
        let before = before.expect("shown");
        assert_eq!(before.cached, PAGES);
        cache::start_writeback(&file, whole).expect("started");
        cache::wait_writeback(&file, whole).expect("written");
        cache::check_writeback(&file).expect("nothing was lost");
        cache::sync_data(&file).expect("durable");
        cache::sync_all(&file).expect("durable");
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        let kind = rustix::fs::fstatfs(&file).expect("asked").f_type;
        if u64::try_from(kind) == Ok(TMPFS_MAGIC) {
            // On tmpfs the page cache is the only storage: nothing is dropped.
            drop_range(&file, whole);
            assert_eq!(cache::residency(&file, whole).expect("asked").expect("known").cached, PAGES);
            continue;
        }
        assert_eq!(cache::residency(&file, whole).expect("asked").expect("known").dirty, 0);

        // If a range covers only part of a large folio, the kernel keeps the folio. The range must
        // be widened.
        let part = ByteRange::between(page * 16 + 1, page * 32 - 1);
        drop_range(&file, part);
        let inside = ByteRange::between(page * 16, page * 32);
        assert_eq!(cache::residency(&file, inside).expect("asked").expect("known").cached, 0);
        drop_range(&file, whole);
        assert_eq!(cache::residency(&file, whole).expect("asked").expect("known").cached, 0);

        let mut bytes = vec![0; (PAGES * page) as usize];
        assert_eq!(read_at(&file, 0, &mut bytes).expect("read"), bytes.len());
        assert_eq!(bytes, noise((PAGES * page) as usize, 7), "the device gives the same bytes back");
    }
}

#[test]
fn advice_is_accepted_for_files_and_refused_for_pipes() {
    for place in places() {
        let file = create_new_at(opened(place.path()), c"file", 0o600).expect("made");
        for advice in [Advice::Sequential, Advice::WillNeed, Advice::DontNeed, Advice::Normal] {
            cache::advise(&file, ByteRange::between(0, 1 << 20), advice).expect("taken");
            cache::advise_all(&file, advice).expect("taken");
        }
    }
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let error = cache::advise_all(&reader, Advice::Sequential).expect_err("no file");
    assert_eq!(errno(&error), Some(Errno::SPIPE));
    cache::advise(&reader, ByteRange::between(5, 5), Advice::Sequential).expect("advice about nothing");
    let error = cache::start_writeback(&reader, ByteRange::between(0, 5)).expect_err("no file");
    assert_eq!(errno(&error), Some(Errno::SPIPE));
    let error = cache::check_writeback(&reader).expect_err("no file");
    assert_eq!(errno(&error), Some(Errno::SPIPE));
}

#[test]
fn range_whose_last_page_is_cached_ends_in_memory() {
    for place in places() {
        let file = create_new_at(opened(place.path()), c"file", 0o600).expect("made");
        write_all_at(&file, 0, &[7; 1 << 16]).expect("written");
        let whole = ByteRange::between(0, 1 << 16);
        if !shown_or_skip(
            cache::residency(&file, whole).expect("asked").is_some(),
            "a kernel that says what the page cache holds",
        ) {
            return;
        }
        assert!(cache::ends_in_memory(&file, whole), "the bytes were just written");
        assert!(!cache::ends_in_memory(&file, ByteRange::between(1 << 20, 2 << 20)), "past the end");
    }
}
