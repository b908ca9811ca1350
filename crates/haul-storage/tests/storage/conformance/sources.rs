//! Reading of files, and the definition of "unchanged".

use super::tools::*;
use super::{Subject, cases};
use haul_storage::{
    Advice, Change, DropRetries, Place, Remove, Replace, SourceFile, Times, Timespec, Version,
};
use haul_sys::buffer::AlignedBuffer;
use std::io::ErrorKind;

cases! {
    read_returns_the_bytes_at_its_offset;
    read_at_the_end_is_short_and_behind_it_empty;
    empty_file_has_no_bytes;
    file_up_to_a_limit_is_read_to_its_end;
    read_fills_a_large_buffer;
    hole_reads_as_zeros;
    reads_of_several_threads_do_not_mix;
    bytes_written_later_are_read;
    data_is_found_in_a_file_without_holes;
    data_is_searched_within_the_range_only;
    no_data_is_found_behind_the_end;
    data_is_found_between_holes: Holes;
    ranges_of_data_are_those_between_holes: Holes;
    data_is_not_found_in_a_hole: Holes;
    data_in_the_middle_of_the_range_is_found_from_its_start: Holes;
    files_without_data_have_no_place;
    opened_has_the_metadata_of_the_opening;
    file_is_unchanged_while_it_is_only_read: StableInodes;
    file_that_grows_has_changed: StableInodes;
    file_with_other_bytes_has_changed: StableInodes, Nanoseconds;
    file_with_its_old_modification_time_is_unknown: StableInodes, Nanoseconds;
    file_with_another_mode_is_unknown: StableInodes, Modes, Nanoseconds;
    file_with_the_same_name_is_another_one: StableInodes;
    lock_of_a_source_excludes_a_sink_and_another_source: Locks;
    lock_of_a_source_ends_with_its_handle: Locks;
    reader_of_a_sink_takes_no_lock;
    advice_changes_no_byte;
    evicted_bytes_are_read_again;
    eviction_of_an_empty_file_succeeds;
    direct_reads_return_the_same_bytes;
    holes_are_allocated_by_no_read: Holes;
    removed_file_has_changed: StableInodes, OpenAfterRemove, Nanoseconds;
}

fn version(file: &dyn SourceFile) -> Version {
    Version::of(file.opened())
}

fn read_returns_the_bytes_at_its_offset(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(20_000);
    write(&*root, "f", &bytes);
    let file = open(&*root, "f");
    for (at, len) in [(0, 1), (1, 4095), (4095, 2), (4096, 4096), (5000, 9000), (19_999, 1)] {
        let mut into = vec![0; len];
        assert_eq!(file.read_at(at as u64, &mut into).expect("read"), len);
        assert_eq!(into, bytes[at..at + len], "{len} bytes from {at}");
    }
}

fn read_at_the_end_is_short_and_behind_it_empty(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(5000));
    let file = open(&*root, "f");
    for (at, expected) in [(4000, 1000), (4999, 1), (5000, 0), (5001, 0), (1 << 40, 0)] {
        assert_eq!(file.read_at(at, &mut [0; 2000]).expect("read"), expected, "from {at}");
    }
}

fn empty_file_has_no_bytes(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = open(&*root, "f");
    assert_eq!((file.opened().size, file.read_at(0, &mut [0; 10]).expect("read")), (0, 0));
    assert_eq!(file.next_data(range(0, 0)).expect("searched"), None);
}

fn file_up_to_a_limit_is_read_to_its_end(subject: &dyn Subject) {
    let root = subject.root();
    for len in [0, 1, 65_535, 65_536, 65_537, 200_000] {
        let name = len.to_string();
        let bytes = pattern(len);
        write(&*root, &name, &bytes);
        let file = open(&*root, &name);
        assert!(file.read_all(len).expect("read") == bytes, "{len}");
        if let Some(less) = len.checked_sub(1) {
            fails(file.read_all(less), ErrorKind::FileTooLarge);
        }
    }
}

fn read_fills_a_large_buffer(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(3_000_001);
    write(&*root, "f", &bytes);
    let mut into = vec![0; 4_000_000];
    assert_eq!(open(&*root, "f").read_at(0, &mut into).expect("read"), bytes.len());
    assert!(into[..bytes.len()] == bytes);
}

fn hole_reads_as_zeros(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(100_000, b"end").expect("written");
    sink.write_at(50_001, b"middle").expect("written");
    let mut expected = vec![0; 100_003];
    expected[50_001..50_007].copy_from_slice(b"middle");
    expected[100_000..].copy_from_slice(b"end");
    let mut into = vec![0xff; 100_003];
    assert_eq!(open(&*root, "f").read_at(0, &mut into).expect("read"), 100_003);
    assert!(into == expected);
}

fn reads_of_several_threads_do_not_mix(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(200_000);
    write(&*root, "f", &bytes);
    let file = open(&*root, "f");
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                for at in (part * 100..180_000).step_by(7001) {
                    let mut into = vec![0; 10_000];
                    file.read_at(at as u64, &mut into).expect("read");
                    assert!(into == bytes[at..at + 10_000], "from {at}");
                    file.next_data(range(at as u64, 190_000)).expect("searched");
                }
            });
        }
    });
}

fn bytes_written_later_are_read(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let file = open(&*root, "f");
    in_place(&*root, "f").write_at(3, b"12345").expect("written");
    assert_eq!(read_all(&*file), b"byt12345");
    assert_eq!((file.stat().expect("found").size, file.opened().size), (8, 5));
}

fn data_is_found_in_a_file_without_holes(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(10_000));
    assert_eq!(open(&*root, "f").next_data(range(0, 10_000)).expect("found"), Some(range(0, 10_000)));
}

fn data_is_searched_within_the_range_only(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(10_000));
    let file = open(&*root, "f");
    for wanted in [range(1, 2), range(100, 5000), range(4097, 9999)] {
        assert_eq!(file.next_data(wanted).expect("found"), Some(wanted));
    }
    assert_eq!(file.next_data(range(5, 5)).expect("searched"), None);
}

fn no_data_is_found_behind_the_end(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(10_000));
    let found = open(&*root, "f").next_data(range(8192, 1 << 20)).expect("searched");
    let is_within = |found: haul_model::ByteRange| found.start.0 == 8192 && found.end.0 <= 1 << 20;
    assert!(found.is_some_and(is_within), "{found:?}");
}

/// Creates a file with blocks of data at the blocks 2, 3 and 8 of 12, and returns it.
fn sparse(subject: &dyn Subject) -> std::sync::Arc<dyn SourceFile> {
    let root = subject.root();
    let sink = new(&*root, "f");
    // Larger blocks of a file system have no holes of 4,096 bytes.
    for block in [2, 3, 8] {
        sink.write_at(block * BLOCK, &pattern(BLOCK as usize)).expect("written");
    }
    sink.set_len(12 * BLOCK).expect("set");
    open(&*root, "f")
}

fn data_is_found_between_holes(subject: &dyn Subject) {
    let file = sparse(subject);
    let find = |start: u64, end: u64| file.next_data(range(start * BLOCK, end * BLOCK)).expect("searched");
    assert_eq!(find(0, 12), Some(range(2 * BLOCK, 4 * BLOCK)));
    assert_eq!(find(4, 12), Some(range(8 * BLOCK, 9 * BLOCK)));
    assert_eq!(find(0, 3), Some(range(2 * BLOCK, 3 * BLOCK)));
    assert_eq!(find(3, 12), Some(range(3 * BLOCK, 4 * BLOCK)));
}

fn ranges_of_data_are_those_between_holes(subject: &dyn Subject) {
    let file = sparse(subject);
    let find = |start: u64, end: u64| {
        let found: Result<Vec<_>, _> = file.data_ranges(range(start * BLOCK, end * BLOCK)).collect();
        found.expect("searched")
    };
    let [first, second] = [range(2 * BLOCK, 4 * BLOCK), range(8 * BLOCK, 9 * BLOCK)];
    assert_eq!(find(0, 12), [first, second]);
    assert_eq!(find(2, 9), [first, second]);
    assert_eq!(find(4, 8), []);
    assert_eq!(find(5, 5), []);
}

fn data_is_not_found_in_a_hole(subject: &dyn Subject) {
    let file = sparse(subject);
    for (start, end) in [(0, 2), (4, 8), (5, 6), (9, 12), (12, 20)] {
        assert_eq!(file.next_data(range(start * BLOCK, end * BLOCK)).expect("searched"), None);
    }
}

fn data_in_the_middle_of_the_range_is_found_from_its_start(subject: &dyn Subject) {
    let file = sparse(subject);
    let found = file.next_data(range(2 * BLOCK + 10, 3 * BLOCK + 20)).expect("searched");
    assert_eq!(found, Some(range(2 * BLOCK + 10, 3 * BLOCK + 20)));
}

fn files_without_data_have_no_place(subject: &dyn Subject) {
    let root = subject.root();
    let place = |name: &str| open(&*root, name).place().expect("a place or none");
    write(&*root, "empty", b"");
    write(&*root, "one", &pattern(100_000));
    write(&*root, "other", &pattern(100_000));
    root.sync_device().expect("synced");
    assert!(!matches!(place("empty"), Place::At(_)));
    let (one, other) = (place("one"), place("other"));
    assert!(one != other || !matches!(one, Place::At(_)), "{one:?} of two files");
}

fn opened_has_the_metadata_of_the_opening(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let file = open(&*root, "f");
    let before = *file.opened();
    in_place(&*root, "f").set_len(100).expect("set");
    assert_eq!((*file.opened(), before.size), (before, 5));
}

fn file_is_unchanged_while_it_is_only_read(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let file = open(&*root, "f");
    read_all(&*file);
    assert_eq!(file.changed_since(&version(&*file)).expect("compared"), None);
    assert_eq!(open(&*root, "f").changed_since(&version(&*file)).expect("compared"), None);
}

fn file_that_grows_has_changed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let file = open(&*root, "f");
    in_place(&*root, "f").write_at(5, b"more").expect("written");
    assert_eq!(file.changed_since(&version(&*file)).expect("compared"), Some(Change::Contents));
}

/// Gives a file a modification time that no write gives it.
fn age(root: &dyn haul_storage::Dir, name: &str) -> Times {
    let old = Some(Timespec { sec: 1_000_000, nsec: 5 });
    let times = Times { atime: old, mtime: old };
    hold(root, name).set_times(times).expect("set");
    times
}

fn file_with_other_bytes_has_changed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    age(&*root, "f");
    let file = open(&*root, "f");
    in_place(&*root, "f").write_at(0, b"BYTES").expect("written");
    assert_eq!(file.changed_since(&version(&*file)).expect("compared"), Some(Change::Contents));
}

fn file_with_its_old_modification_time_is_unknown(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let times = age(&*root, "f");
    // The change time of a local file system has the granularity of a tick.
    let before = Version { ctime: Timespec::default(), ..version(&*open(&*root, "f")) };
    in_place(&*root, "f").write_at(0, b"BYTES").expect("written");
    hold(&*root, "f").set_times(times).expect("set");
    assert_eq!(open(&*root, "f").changed_since(&before).expect("compared"), Some(Change::Unknown));
}

fn file_with_another_mode_is_unknown(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let before = Version { ctime: Timespec::default(), ..version(&*open(&*root, "f")) };
    hold(&*root, "f").set_mode(0o640).expect("set");
    assert_eq!(open(&*root, "f").changed_since(&before).expect("compared"), Some(Change::Unknown));
}

fn file_with_the_same_name_is_another_one(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    write(&*root, "g", b"bytes");
    let before = version(&*open(&*root, "f"));
    root.rename(&n("g"), &*root, &n("f"), Replace::Yes).expect("renamed");
    assert_eq!(open(&*root, "f").changed_since(&before).expect("compared"), Some(Change::Replaced));
}

fn lock_of_a_source_excludes_a_sink_and_another_source(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let (first, second) = (open(&*root, "f"), open(&*root, "f"));
    assert!(first.lock().expect("locked"));
    assert!(first.lock().expect("it has the lock"));
    fails(second.lock(), ErrorKind::ResourceBusy);
    fails(in_place(&*root, "f").lock(), ErrorKind::ResourceBusy);
    assert_eq!(read(&*root, "f"), b"bytes");
}

fn lock_of_a_source_ends_with_its_handle(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let (first, second) = (open(&*root, "f"), in_place(&*root, "f"));
    first.lock().expect("locked");
    drop(first);
    assert!(second.lock().expect("free again"));
    fails(open(&*root, "f").lock(), ErrorKind::ResourceBusy);
}

fn reader_of_a_sink_takes_no_lock(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let sink = in_place(&*root, "f");
    let reader = sink.reader().expect("opened");
    fails(reader.lock(), ErrorKind::InvalidInput);
    sink.lock().expect("free");
    drop(reader);
    if !subject.lacks().contains(&super::Feature::Locks) {
        fails(open(&*root, "f").lock(), ErrorKind::ResourceBusy);
    }
}

fn advice_changes_no_byte(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(100_000);
    write(&*root, "f", &bytes);
    let file = open(&*root, "f");
    for advice in [Advice::WillNeed, Advice::Sequential, Advice::Random, Advice::DontNeed, Advice::Normal] {
        file.advise(range(0, 100_000), advice);
        file.advise(range(50_000, 1 << 40), advice);
    }
    assert!(read_all(&*file) == bytes);
}

fn evicted_bytes_are_read_again(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(300_000);
    write(&*root, "f", &bytes);
    let file = open(&*root, "f");
    for evicted in [range(0, 4096), range(100_000, 200_001), range(0, 300_000), range(0, 1 << 30)] {
        for retries in [DropRetries::Some, DropRetries::None] {
            file.evict(evicted, retries).expect("evicted");
            assert!(read_all(&*file) == bytes);
        }
    }
}

fn eviction_of_an_empty_file_succeeds(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    open(&*root, "f").evict(range(0, 0), DropRetries::Some).expect("nothing to evict");
}

fn direct_reads_return_the_same_bytes(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(100_000);
    write(&*root, "f", &bytes);
    let file = open(&*root, "f");
    let mut into = AlignedBuffer::new(1 << 17).expect("memory");
    if file.set_direct(true).expect("switched").is_some() {
        assert_eq!(file.read_at(0, &mut into).expect("read"), bytes.len());
        assert!(into[..bytes.len()] == bytes);
        file.set_direct(false).expect("switched");
    }
    assert!(read_all(&*file) == bytes);
}

fn holes_are_allocated_by_no_read(subject: &dyn Subject) {
    let file = sparse(subject);
    let before = file.stat().expect("found").blocks;
    read_all(&*file);
    assert_eq!(file.stat().expect("found").blocks, before);
    assert!(file.stat().expect("found").is_sparse());
}

fn removed_file_has_changed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let file = open(&*root, "f");
    let before = Version { ctime: Timespec::default(), ..version(&*file) };
    root.remove(&n("f"), Remove::File).expect("removed");
    assert_eq!(file.changed_since(&before).expect("compared"), Some(Change::Unknown));
}
