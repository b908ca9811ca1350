//! Writing of files under their final name.

use super::tools::*;
use super::{Subject, cases};
use haul_storage::{
    Create, DropRetries, FileKind, Follow, Metadata, Missing, Node, Offload, Offloaded, Part, Remove,
    Replace, SyncWhat, Times, Timespec,
};
use haul_sys::buffer::AlignedBuffer;
use std::borrow::Cow;
use std::io::ErrorKind;
use std::sync::atomic::AtomicBool;

cases! {
    new_file_is_there_at_once;
    mode_of_a_new_file_is_as_asked: Modes;
    new_file_replaces_nothing;
    new_file_is_not_created_through_a_link: Links;
    file_in_place_keeps_its_bytes_and_its_inode;
    nameless_file_is_in_no_directory;
    nameless_files_are_apart;
    missing_file_in_place_is_not_found;
    missing_file_in_place_is_created_on_request;
    other_kinds_are_not_opened_in_place: Links, Specials;
    file_with_several_names_is_opened_in_place: HardLinks;
    complete_file_gets_only_metadata: Modes;
    complete_file_must_be_there: Links, Specials;
    existing_file_has_the_metadata_of_its_open;
    link_is_followed_in_place_on_request: Links;
    dangling_link_is_followed_in_place_on_request: Links;
    links_in_a_circle_are_not_opened_in_place: Links;
    other_kinds_are_not_opened_in_place_through_a_link: Links, Specials;
    other_spelling_is_opened_in_place_on_request: FoldsCase;
    write_extends_the_file_with_zeros;
    write_overwrites_only_its_range;
    empty_write_changes_no_length;
    blocks_written_in_any_order_form_the_file;
    writes_of_several_threads_do_not_mix;
    write_far_away_leaves_a_hole: Holes;
    file_that_is_too_large_is_refused: FileLimit;
    cleared_range_reads_as_zeros;
    clearing_changes_no_length;
    cleared_blocks_become_holes: Holes;
    clearing_stops_on_request;
    range_that_is_left_out_reads_as_zeros;
    shorter_file_loses_its_end;
    longer_file_gets_zeros;
    file_that_was_shorter_does_not_show_its_old_end;
    reserved_space_changes_neither_length_nor_bytes;
    more_than_the_free_space_is_not_reserved: Space;
    reserved_range_changes_neither_length_nor_bytes;
    range_beyond_the_free_space_is_not_reserved: Faults;
    finish_sets_the_length;
    finish_sets_times_last;
    finish_sets_all_metadata: Modes, Attributes;
    finish_keeps_set_user_id: Modes, Owners;
    finish_gives_back_reserved_space: Holes, Space;
    finish_names_the_part_that_failed;
    finish_without_metadata_keeps_it: Modes;
    committed_file_keeps_its_times;
    commit_of_a_file_in_place_keeps_its_name;
    abandoned_file_without_a_temporary_name_stays;
    reader_reads_what_is_written;
    reader_needs_no_permission: Modes;
    reader_survives_the_writer;
    reader_evicts_and_reads_again;
    reopened_file_has_the_bytes_and_can_be_written_back;
    lock_excludes_another_handle: Locks;
    lock_ends_with_its_handle: Locks;
    lock_of_one_file_leaves_others: Locks;
    storage_without_locks_says_so;
    shared_blocks_have_the_same_bytes: Sharing;
    shared_blocks_are_independent: Sharing;
    shared_range_goes_to_its_offset: Sharing;
    range_off_the_blocks_is_not_shared: Sharing;
    storage_copies_or_says_that_it_cannot;
    range_behind_the_end_is_not_offloaded;
    bytes_are_not_offloaded_between_kinds_of_storage;
    sync_of_each_extent_succeeds;
    file_without_a_failed_sync_has_no_failure;
    direct_writes_write_the_same_bytes;
    sink_has_the_metadata_of_its_file;
    write_changes_the_modification_time;
    committed_is_false_before_the_commit;
}

fn stop(is_over: bool) -> AtomicBool {
    AtomicBool::new(is_over)
}

fn new_file_is_there_at_once(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    assert!(sink.is_new());
    assert_eq!((stat(&*root, "f").kind, stat(&*root, "f").size), (FileKind::Regular, 0));
}

fn mode_of_a_new_file_is_as_asked(subject: &dyn Subject) {
    let root = subject.root();
    root.sink(&n("a"), Create::New { mode: 0o500 }).expect("created");
    root.sink(&n("b"), Create::InPlace { missing: Missing::Create { mode: 0o500 }, follow: Follow::No })
        .expect("created");
    for name in ["a", "b"] {
        assert_eq!(stat(&*root, name).mode, 0o500);
    }
}

fn new_file_replaces_nothing(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    mkdir(&*root, "d");
    for name in ["f", "d"] {
        fails(root.sink(&n(name), Create::New { mode: 0o600 }), ErrorKind::AlreadyExists);
    }
    assert_eq!(read(&*root, "f"), b"bytes");
}

fn new_file_is_not_created_through_a_link(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "l", "target");
    fails(root.sink(&n("l"), Create::New { mode: 0o600 }), ErrorKind::AlreadyExists);
    let in_place = Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow: Follow::No };
    fails(root.sink(&n("l"), in_place), ErrorKind::AlreadyExists);
    assert_eq!(listed(&*root), ["l"]);
}

fn file_in_place_keeps_its_bytes_and_its_inode(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    for missing in [Missing::Fail, Missing::Create { mode: 0o600 }] {
        let sink = root.sink(&n("f"), Create::InPlace { missing, follow: Follow::No }).expect("opened");
        assert!(!sink.is_new());
        assert_eq!(sink.stat().expect("found").size, 5);
    }
    in_place(&*root, "f").write_at(0, b"B").expect("written");
    assert_eq!(read(&*root, "f"), b"Bytes");
}

fn nameless_file_is_in_no_directory(subject: &dyn Subject) {
    let root = subject.root();
    let file = root.nameless().expect("created");
    file.write_at(0, b"bytes").expect("written");
    assert!(file.is_new() && listed(&*root).is_empty());
    assert_eq!(file.stat().expect("found").size, 5);
}

fn nameless_files_are_apart(subject: &dyn Subject) {
    let files = [(); 2].map(|()| subject.root().nameless().expect("created"));
    for (file, bytes) in files.iter().zip([b"one", b"two"]) {
        file.write_at(0, bytes).expect("written");
    }
    let read = files.map(|file| read_all(&*file.reader().expect("opened")));
    assert_eq!(read, [b"one", b"two"]);
}

fn missing_file_in_place_is_not_found(subject: &dyn Subject) {
    let root = subject.root();
    fails(
        root.sink(&n("f"), Create::InPlace { missing: Missing::Fail, follow: Follow::No }),
        ErrorKind::NotFound,
    );
    assert_eq!(listed(&*root), [""; 0]);
}

fn missing_file_in_place_is_created_on_request(subject: &dyn Subject) {
    let root = subject.root();
    let sink = root
        .sink(&n("f"), Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow: Follow::No })
        .expect("created");
    assert!(sink.is_new());
    assert_eq!(listed(&*root), ["f"]);
}

fn other_kinds_are_not_opened_in_place(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    mkdir(&*root, "d");
    symlink(&*root, "l", "f");
    fifo(&*root, "p");
    for name in ["d", "l", "p"] {
        for missing in [Missing::Fail, Missing::Create { mode: 0o600 }] {
            fails(
                root.sink(&n(name), Create::InPlace { missing, follow: Follow::No }),
                ErrorKind::AlreadyExists,
            );
        }
    }
    assert_eq!(stat(&*root, "l").kind, FileKind::Symlink);
}

fn file_with_several_names_is_opened_in_place(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    root.link(&n("f"), Follow::No, &*root, &n("g")).expect("linked");
    assert_eq!(in_place(&*root, "g").stat().expect("found").nlink, 2);
}

fn complete_file_gets_only_metadata(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let sink = root.sink(&n("f"), Create::Complete { follow: Follow::No }).expect("opened");
    assert!(!sink.is_new());
    sink.set_mode(0o640).expect("set");
    sink.sync(SyncWhat::All).expect("synced");
    assert_eq!(read_all(&*sink.reader().expect("opened")), b"bytes");
    assert_eq!((stat(&*root, "f").mode, read(&*root, "f")), (0o640, b"bytes".to_vec()));
}

fn complete_file_must_be_there(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    mkdir(&*root, "d");
    symlink(&*root, "l", "f");
    fifo(&*root, "p");
    for follow in [Follow::No, Follow::Yes] {
        let complete = |name| root.sink(&n(name), Create::Complete { follow });
        fails(complete("g"), ErrorKind::NotFound);
        for name in ["d", "p"] {
            fails(complete(name), ErrorKind::AlreadyExists);
        }
    }
    fails(root.sink(&n("l"), Create::Complete { follow: Follow::No }), ErrorKind::AlreadyExists);
    let behind = root.sink(&n("l"), Create::Complete { follow: Follow::Yes }).expect("followed");
    assert_eq!(behind.stat().expect("found").ino, stat(&*root, "f").ino);
}

fn existing_file_has_the_metadata_of_its_open(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let before = stat(&*root, "f");
    let sink = in_place(&*root, "f");
    sink.write_at(5, b" and more").expect("written");
    let opened = sink.opened().expect("known");
    assert_eq!((opened.size, opened.identity()), (5, before.identity()));
    assert_eq!(sink.stat().expect("found").size, 14);
}

/// Opens what a link leads to.
fn follow(missing: Missing) -> Create {
    Create::InPlace { missing, follow: Follow::Yes }
}

const CREATE: Missing = Missing::Create { mode: 0o600 };

fn link_is_followed_in_place_on_request(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    write(&*dir, "f", b"bytes");
    symlink(&*root, "l", "d/f");
    symlink(&*dir, "m", "../l");
    for (dir, name) in [(&root, "l"), (&dir, "m"), (&dir, "f")] {
        for missing in [Missing::Fail, CREATE] {
            let sink = dir.sink(&n(name), follow(missing)).expect("followed");
            assert!(!sink.is_new());
            assert_eq!(sink.stat().expect("found").ino, stat(&*opened_dir(&*root, "d"), "f").ino);
        }
    }
    root.sink(&n("l"), follow(Missing::Fail)).expect("followed").write_at(0, b"B").expect("written");
    assert_eq!(read(&*dir, "f"), b"Bytes");
    assert_eq!(stat(&*root, "l").kind, FileKind::Symlink);
}

fn dangling_link_is_followed_in_place_on_request(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    symlink(&*root, "l", "d/f");
    symlink(&*root, "lost", "none/f");
    fails(root.sink(&n("l"), follow(Missing::Fail)), ErrorKind::NotFound);
    fails(root.sink(&n("lost"), follow(CREATE)), ErrorKind::NotFound);
    assert_eq!(listed(&*dir), [""; 0]);
    let sink = root.sink(&n("l"), follow(CREATE)).expect("created");
    assert!(sink.is_new());
    sink.write_at(0, b"bytes").expect("written");
    sink.commit(Replace::Yes).expect("committed");
    assert_eq!((read(&*dir, "f"), stat(&*root, "l").kind), (b"bytes".to_vec(), FileKind::Symlink));
    root.sink(&n("new"), follow(CREATE)).expect("a name that is no link");
    assert_eq!(listed(&*root), ["d", "l", "lost", "new"]);
}

fn links_in_a_circle_are_not_opened_in_place(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "a", "b");
    symlink(&*root, "b", "a");
    for missing in [Missing::Fail, CREATE] {
        fails_with(root.sink(&n("a"), follow(missing)), ELOOP);
    }
}

fn other_kinds_are_not_opened_in_place_through_a_link(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, "d");
    fifo(&*root, "p");
    for (link, target) in [("l", "d"), ("m", "p"), ("o", ".")] {
        symlink(&*root, link, target);
        fails(root.sink(&n(link), follow(Missing::Fail)), ErrorKind::AlreadyExists);
    }
    for name in ["d", "p"] {
        fails(root.sink(&n(name), follow(CREATE)), ErrorKind::AlreadyExists);
    }
}

fn other_spelling_is_opened_in_place_on_request(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "name", b"bytes");
    root.sink(&n("NAME"), follow(Missing::Fail)).expect("opened").write_at(0, b"B").expect("written");
    assert_eq!((listed(&*root), read(&*root, "name")), (vec!["name".into()], b"Bytes".to_vec()));
}

fn write_extends_the_file_with_zeros(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(3, b"abc").expect("written");
    sink.write_at(10, b"z").expect("written");
    assert_eq!(read(&*root, "f"), b"\0\0\0abc\0\0\0\0z");
}

fn write_overwrites_only_its_range(subject: &dyn Subject) {
    let root = subject.root();
    let mut bytes = pattern(20_000);
    write(&*root, "f", &bytes);
    let sink = in_place(&*root, "f");
    for (at, len) in [(0, 1), (4000, 200), (8192, 4096), (19_000, 1000)] {
        sink.write_at(at as u64, &vec![0xcc; len]).expect("written");
        bytes[at..at + len].fill(0xcc);
    }
    assert!(read(&*root, "f") == bytes);
}

fn empty_write_changes_no_length(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(1000, b"").expect("nothing to write");
    assert_eq!(stat(&*root, "f").size, 0);
}

fn blocks_written_in_any_order_form_the_file(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(1_000_003);
    let sink = new(&*root, "f");
    for number in [7, 2, 0, 9, 4, 1, 8, 3, 6, 5, 10] {
        let (start, end) = (number * 100_000, bytes.len().min((number + 1) * 100_000));
        sink.write_at(start as u64, &bytes[start..end]).expect("written");
    }
    assert!(read(&*root, "f") == bytes);
}

fn writes_of_several_threads_do_not_mix(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(400_000);
    let sink = new(&*root, "f");
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (sink, bytes) = (&sink, &bytes);
            scope.spawn(move || {
                for start in (part * 1000..400_000).step_by(4000) {
                    sink.write_at(start as u64, &bytes[start..start + 1000]).expect("written");
                }
            });
        }
    });
    assert!(read(&*root, "f") == bytes);
}

fn write_far_away_leaves_a_hole(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(1 << 33, b"end").expect("written");
    let found = stat(&*root, "f");
    assert_eq!(found.size, (1 << 33) + 3);
    assert!(found.blocks < 1000, "{} blocks", found.blocks);
    assert_eq!(open(&*root, "f").next_data(range(0, 1 << 30)).expect("searched"), None);
}

fn file_that_is_too_large_is_refused(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    fails(sink.set_len(1 << 62), ErrorKind::FileTooLarge);
    fails(sink.write_at(1 << 62, b"x"), ErrorKind::FileTooLarge);
    assert_eq!(stat(&*root, "f").size, 0);
}

fn cleared_range_reads_as_zeros(subject: &dyn Subject) {
    let root = subject.root();
    let mut bytes = pattern(50_000);
    write(&*root, "f", &bytes);
    let sink = in_place(&*root, "f");
    for (start, end) in [(0, 10), (4096, 8192), (10_001, 20_002), (49_999, 50_000), (30_000, 30_000)] {
        sink.clear(range(start as u64, end as u64), &stop(false)).expect("cleared");
        bytes[start..end].fill(0);
        assert!(read(&*root, "f") == bytes, "{start}-{end}");
    }
}

fn clearing_changes_no_length(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(5000));
    let sink = in_place(&*root, "f");
    sink.clear(range(4000, 5000), &stop(false)).expect("cleared");
    assert_eq!(stat(&*root, "f").size, 5000);
    sink.clear(range(4500, 100_000), &stop(false)).expect("cleared to the end");
    sink.clear(range(50_000, 100_000), &stop(false)).expect("nothing to clear");
    assert_eq!(stat(&*root, "f").size, 5000);
    assert!(read(&*root, "f")[..4000] == pattern(4000));
}

fn cleared_blocks_become_holes(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(16 * BLOCK as usize));
    let sink = in_place(&*root, "f");
    sink.sync(SyncWhat::Data).expect("synced");
    sink.clear(range(0, 12 * BLOCK), &stop(false)).expect("cleared");
    let data = open(&*root, "f").next_data(range(0, 16 * BLOCK)).expect("searched");
    assert_eq!(data, Some(range(12 * BLOCK, 16 * BLOCK)));
}

fn clearing_stops_on_request(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(5000));
    let sink = in_place(&*root, "f");
    match sink.clear(range(0, 5000), &stop(true)) {
        // One call cleared everything before the request was seen.
        Ok(()) => assert!(read(&*root, "f").iter().all(|&byte| byte == 0)),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted),
    }
}

fn range_that_is_left_out_reads_as_zeros(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, &pattern(10_000)).expect("written");
    sink.leave_out(range(10_000, 500_000));
    sink.write_at(500_000, b"end").expect("written");
    let bytes = read(&*root, "f");
    assert!(bytes[..10_000] == pattern(10_000) && bytes[500_000..] == *b"end");
    assert!(bytes[10_000..500_000].iter().all(|&byte| byte == 0));
}

fn shorter_file_loses_its_end(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(10_000));
    in_place(&*root, "f").set_len(4321).expect("set");
    assert!(read(&*root, "f") == pattern(4321));
}

fn longer_file_gets_zeros(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    in_place(&*root, "f").set_len(10_000).expect("set");
    let bytes = read(&*root, "f");
    assert_eq!((bytes.len(), &bytes[..5]), (10_000, &b"bytes"[..]));
    assert!(bytes[5..].iter().all(|&byte| byte == 0));
}

fn file_that_was_shorter_does_not_show_its_old_end(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(10_000));
    let sink = in_place(&*root, "f");
    sink.set_len(100).expect("set");
    sink.set_len(10_000).expect("set");
    assert!(read(&*root, "f")[100..].iter().all(|&byte| byte == 0));
    sink.set_len(0).expect("set");
    sink.write_at(20, b"x").expect("written");
    assert_eq!(read(&*root, "f"), [&[0; 20][..], b"x"].concat());
}

fn reserved_space_changes_neither_length_nor_bytes(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, b"bytes").expect("written");
    sink.reserve(3 << 20).expect("reserved");
    sink.reserve(0).expect("nothing to reserve");
    assert_eq!(read(&*root, "f"), b"bytes");
    sink.write_at(1 << 20, b"more").expect("written");
    assert_eq!(stat(&*root, "f").size, (1 << 20) + 4);
}

fn more_than_the_free_space_is_not_reserved(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, b"bytes").expect("written");
    let free = root.space().expect("known").free.expect("known");
    fails(sink.reserve(free.saturating_add(1 << 40)), ErrorKind::StorageFull);
    assert_eq!(read(&*root, "f"), b"bytes");
    assert!(root.space().expect("known").free.is_some_and(|now| now > free / 2), "nothing stays reserved");
}

fn reserved_range_changes_neither_length_nor_bytes(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(100_000, b"bytes").expect("written");
    let expected = read(&*root, "f");
    for (start, end) in [(0, 50_000), (99_000, 200_000), (1 << 20, 2 << 20)] {
        sink.reserve_range(range(start, end)).expect("reserved");
        assert!(read(&*root, "f") == expected, "{start} to {end}");
    }
    sink.set_len(150_000).expect("extended");
    assert!(read(&*root, "f")[100_005..] == [0; 49_995]);
    sink.write_at(0, b"more").expect("written");
    assert_eq!(stat(&*root, "f").size, 150_000);
}

fn range_beyond_the_free_space_is_not_reserved(subject: &dyn Subject) {
    let faults = subject.faults().expect("needed");
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, b"bytes").expect("written");
    faults.set_capacity(20 * BLOCK);
    sink.reserve_range(range(4 * BLOCK, 20 * BLOCK)).expect("fits");
    let other = new(&*root, "g");
    fails(other.reserve_range(range(0, 8 * BLOCK)), ErrorKind::StorageFull);
    fails(other.write_at(0, &pattern(8 * BLOCK as usize)), ErrorKind::StorageFull);
    sink.write_at(4 * BLOCK, &pattern(16 * BLOCK as usize)).expect("the space is reserved");
    assert_eq!(stat(&*root, "g").size, 0);
}

fn finish_sets_the_length(subject: &dyn Subject) {
    let root = subject.root();
    for (name, len) in [("shorter", 100), ("same", 5000), ("longer", 100_000)] {
        let sink = new(&*root, name);
        sink.write_at(0, &pattern(5000)).expect("written");
        sink.finish(len, &Metadata::default()).expect("finished");
        let bytes = read(&*root, name);
        assert_eq!(bytes.len() as u64, len);
        assert!(bytes.iter().zip(pattern(5000)).all(|(byte, expected)| *byte == expected));
    }
}

fn old_times() -> Times {
    let old = Some(Timespec { sec: 1_000_000_000, nsec: 0 });
    Times { atime: old, mtime: old }
}

fn finish_sets_times_last(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, &pattern(5000)).expect("written");
    let metadata = Metadata { times: old_times(), ..Metadata::default() };
    sink.finish(4000, &metadata).expect("finished");
    assert_eq!(stat(&*root, "f").mtime, old_times().mtime.expect("given"));
}

fn finish_sets_all_metadata(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    let attributes = [(c"user.a".to_owned(), b"value".to_vec())];
    let metadata = Metadata {
        attributes: Cow::Borrowed(&attributes),
        mode: Some(0o444),
        times: old_times(),
        ..Metadata::default()
    };
    sink.finish(0, &metadata).expect("finished");
    let found = stat(&*root, "f");
    assert_eq!((found.mode, Times::of(&found)), (0o444, old_times()));
    assert_eq!(sink.attribute(c"user.a").expect("read").as_deref(), Some(&b"value"[..]));
}

fn finish_keeps_set_user_id(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, b"program").expect("written");
    let metadata = Metadata { user: Some(7), group: Some(8), mode: Some(0o4755), ..Metadata::default() };
    sink.finish(7, &metadata).expect("finished");
    let found = stat(&*root, "f");
    assert_eq!((found.uid, found.gid, found.mode), (7, 8, 0o4755));
}

fn finish_gives_back_reserved_space(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.reserve(8 << 20).expect("reserved");
    sink.write_at(0, &pattern(5000)).expect("written");
    sink.finish(5000, &Metadata::default()).expect("finished");
    sink.commit(Replace::No).expect("committed");
    sink.sync(SyncWhat::All).expect("synced");
    assert!(stat(&*root, "f").blocks < 1000, "{} blocks", stat(&*root, "f").blocks);
}

fn finish_names_the_part_that_failed(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, b"bytes").expect("written");
    let name = c"haul-has-no-such-class.a".to_owned();
    let attributes = [(name.clone(), b"value".to_vec())];
    let metadata =
        Metadata { attributes: Cow::Borrowed(&attributes), times: old_times(), ..Metadata::default() };
    let unset = sink.finish(3, &metadata).expect_err("unsupported");
    assert_eq!((unset.part, unset.error.kind()), (Part::Attribute(name), ErrorKind::Unsupported));
    assert_eq!(read(&*root, "f"), b"byt", "the length comes first");
    assert_ne!(stat(&*root, "f").mtime.sec, 1_000_000_000, "the times come last");
}

fn finish_without_metadata_keeps_it(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    hold(&*root, "f").set_mode(0o640).expect("set");
    in_place(&*root, "f").finish(5, &Metadata::default()).expect("finished");
    assert_eq!(stat(&*root, "f").mode, 0o640);
}

fn committed_file_keeps_its_times(subject: &dyn Subject) {
    let root = subject.root();
    for (name, sink) in [("a", new(&*root, "a")), ("b", temporary(&*root, "b"))] {
        sink.write_at(0, b"bytes").expect("written");
        sink.finish(5, &Metadata { times: old_times(), ..Metadata::default() }).expect("finished");
        sink.sync(SyncWhat::All).expect("synced");
        sink.commit(Replace::Yes).expect("committed");
        drop(sink);
        assert_eq!(stat(&*root, name).mtime, old_times().mtime.expect("given"));
    }
}

fn commit_of_a_file_in_place_keeps_its_name(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let sink = in_place(&*root, "f");
    for replace in [Replace::No, Replace::Yes] {
        sink.commit(replace).expect("committed");
    }
    assert!(sink.is_committed());
    assert_eq!((listed(&*root), read(&*root, "f")), (vec!["f".into()], b"bytes".to_vec()));
}

fn abandoned_file_without_a_temporary_name_stays(subject: &dyn Subject) {
    let root = subject.root();
    new(&*root, "a").abandon().expect("abandoned");
    write(&*root, "b", b"bytes");
    in_place(&*root, "b").abandon().expect("abandoned");
    assert_eq!(listed(&*root), ["a", "b"]);
}

fn reader_reads_what_is_written(subject: &dyn Subject) {
    let root = subject.root();
    for sink in [new(&*root, "a"), temporary(&*root, "b")] {
        sink.write_at(0, &pattern(10_000)).expect("written");
        let reader = sink.reader().expect("opened");
        assert!(read_all(&*reader) == pattern(10_000));
        sink.write_at(0, b"later").expect("written");
        assert_eq!(read_all(&*reader)[..5], *b"later");
        assert_eq!(reader.stat().expect("found").identity(), sink.stat().expect("found").identity());
    }
}

fn reader_needs_no_permission(subject: &dyn Subject) {
    let root = subject.root();
    let sink = root.sink(&n("f"), Create::New { mode: 0o000 }).expect("created");
    sink.write_at(0, b"bytes").expect("written");
    assert_eq!(read_all(&*sink.reader().expect("opened")), b"bytes");
}

fn reader_survives_the_writer(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, b"bytes").expect("written");
    let reader = sink.reader().expect("opened");
    drop(sink);
    assert_eq!(read_all(&*reader), b"bytes");
}

fn reopened_file_has_the_bytes_and_can_be_written_back(subject: &dyn Subject) {
    let sink = new(&*subject.root(), "f");
    sink.write_at(0, &pattern(100_000)).expect("written");
    let again = sink.reopen().expect("opened");
    for file in [&again, &sink.reader().expect("opened")] {
        file.write_back(range(0, 50_000)).expect("written back");
        assert!(read_all(&**file) == pattern(100_000));
    }
    drop(sink);
    again.write_back(range(0, 1 << 30)).expect("written back");
    assert!(read_all(&*again) == pattern(100_000));
}

fn reader_evicts_and_reads_again(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, &pattern(100_000)).expect("written");
    let reader = sink.reader().expect("opened");
    reader.evict(range(0, 100_000), DropRetries::Some).expect("evicted");
    assert!(read_all(&*reader) == pattern(100_000));
    sink.write_at(50_000, b"later").expect("written");
    reader.evict(range(50_000, 50_005), DropRetries::None).expect("evicted");
    assert_eq!(read_all(&*reader)[50_000..50_005], *b"later");
}

fn lock_excludes_another_handle(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let (first, second) = (in_place(&*root, "f"), in_place(&*root, "f"));
    assert!(first.lock().expect("locked"));
    assert!(first.lock().expect("it has the lock"));
    fails(second.lock(), ErrorKind::ResourceBusy);
    fails(second.lock(), ErrorKind::ResourceBusy);
}

fn lock_ends_with_its_handle(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let (first, second) = (in_place(&*root, "f"), in_place(&*root, "f"));
    first.lock().expect("locked");
    drop(first);
    assert!(second.lock().expect("free again"));
}

fn lock_of_one_file_leaves_others(subject: &dyn Subject) {
    let root = subject.root();
    let (first, second) = (new(&*root, "a"), new(&*root, "b"));
    assert!(first.lock().expect("locked") && second.lock().expect("locked"));
    second.write_at(0, b"bytes").expect("a lock is advisory");
    open(&*root, "a");
}

fn storage_without_locks_says_so(subject: &dyn Subject) {
    let has_locks = !subject.lacks().contains(&super::Feature::Locks);
    assert_eq!(new(&*subject.root(), "f").lock().expect("asked"), has_locks);
}

fn shared_blocks_have_the_same_bytes(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(100_000);
    write(&*root, "f", &bytes);
    let sink = new(&*root, "g");
    let done = sink.offload(&*open(&*root, "f"), range(0, 100_000), 0, Offload::Share).expect("shared");
    assert_eq!(done, Offloaded::Done(100_000));
    assert!(read(&*root, "g") == bytes);
}

fn shared_blocks_are_independent(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(2 * BLOCK as usize);
    write(&*root, "f", &bytes);
    let sink = new(&*root, "g");
    sink.offload(&*open(&*root, "f"), range(0, 2 * BLOCK), 0, Offload::Share).expect("shared");
    sink.write_at(10, b"changed").expect("written");
    assert!(read(&*root, "f") == bytes);
    in_place(&*root, "f").write_at(BLOCK, b"other").expect("written");
    assert!(read(&*root, "g")[BLOCK as usize..] == bytes[BLOCK as usize..]);
}

fn shared_range_goes_to_its_offset(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(4 * BLOCK as usize);
    write(&*root, "f", &bytes);
    write(&*root, "g", &vec![0xee; 8 * BLOCK as usize]);
    let sink = in_place(&*root, "g");
    let done = sink.offload(&*open(&*root, "f"), range(BLOCK, 3 * BLOCK), 4 * BLOCK, Offload::Share);
    assert_eq!(done.expect("shared"), Offloaded::Done(2 * BLOCK));
    let found = read(&*root, "g");
    let block = BLOCK as usize;
    assert!(found[4 * block..6 * block] == bytes[block..3 * block]);
    assert!(found[..4 * block].iter().chain(&found[6 * block..]).all(|&byte| byte == 0xee));
    assert_eq!(found.len(), 8 * block);
}

fn range_off_the_blocks_is_not_shared(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(4 * BLOCK as usize));
    write(&*root, "g", &pattern(4 * BLOCK as usize));
    let (file, sink) = (open(&*root, "f"), in_place(&*root, "g"));
    for (from, to) in [(range(1, 4097), 0), (range(0, 4096), 100), (range(0, 100), 0)] {
        let done = sink.offload(&*file, from, to, Offload::Share).expect("answered");
        assert!(matches!(done, Offloaded::Unsupported(_)), "{from} to {to}: {done:?}");
    }
    assert!(read(&*root, "g") == pattern(4 * BLOCK as usize));
}

fn storage_copies_or_says_that_it_cannot(subject: &dyn Subject) {
    let root = subject.root();
    let bytes = pattern(3_000_000);
    write(&*root, "f", &bytes);
    let (file, sink) = (open(&*root, "f"), new(&*root, "g"));
    let mut at = 0;
    while at < 3_000_000 {
        match sink.offload(&*file, range(at, 3_000_000), at, Offload::Copy).expect("answered") {
            Offloaded::Done(0) => panic!("a part was copied"),
            Offloaded::Done(count) => at += count,
            Offloaded::Unsupported(_) | Offloaded::NeverBetween(_) => {
                assert_eq!((at, stat(&*root, "g").size), (0, 0));
                return;
            }
        }
    }
    assert_eq!(at, 3_000_000);
    assert!(read(&*root, "g") == bytes);
    let done = sink.offload(&*file, range(0, 0), 0, Offload::Copy).expect("nothing to copy");
    assert!(matches!(done, Offloaded::Done(0) | Offloaded::Unsupported(_)));
}

fn range_behind_the_end_is_not_offloaded(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(5000));
    let sink = new(&*root, "g");
    for how in [Offload::Share, Offload::Copy] {
        match sink.offload(&*open(&*root, "f"), range(0, 100_000), 0, how) {
            // The caller gets what is there.
            Ok(Offloaded::Done(count)) => assert_eq!(count, 5000),
            Ok(Offloaded::Unsupported(_) | Offloaded::NeverBetween(_)) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
        }
    }
    assert!(stat(&*root, "g").size <= 5000);
}

fn bytes_are_not_offloaded_between_kinds_of_storage(subject: &dyn Subject) {
    let other = haul_storage::memory::MemoryStorage::new(98).root();
    write(&*other, "f", b"bytes");
    let sink = new(&*subject.root(), "g");
    for how in [Offload::Share, Offload::Copy] {
        let done = sink.offload(&*open(&*other, "f"), range(0, 5), 0, how).expect("answered");
        assert!(matches!(done, Offloaded::NeverBetween(_)), "{done:?}");
    }
}

fn sync_of_each_extent_succeeds(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    let extents =
        [SyncWhat::Range(range(0, 10)), SyncWhat::Range(range(5, 1 << 20)), SyncWhat::Data, SyncWhat::All];
    for what in extents {
        sink.write_at(0, &pattern(100_000)).expect("written");
        sink.sync(what).expect("synced");
        assert!(read(&*root, "f") == pattern(100_000));
    }
    root.sync().expect("names synced");
    root.sync_device().expect("device synced");
    sink.check().expect("nothing lost");
}

fn file_without_a_failed_sync_has_no_failure(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, b"bytes").expect("written");
    sink.sync(SyncWhat::All).expect("synced");
    assert!(sink.failure().is_none() && !sink.is_syncing());
}

fn direct_writes_write_the_same_bytes(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    let bytes = pattern(100_000);
    let mut block = AlignedBuffer::new(1 << 17).expect("memory");
    block[..bytes.len()].copy_from_slice(&bytes);
    if sink.set_direct(true).expect("switched").is_some() {
        sink.write_at(0, &block[..bytes.len()]).expect("written");
        sink.set_direct(false).expect("switched");
        assert!(read(&*root, "f") == bytes);
    }
    sink.write_at(1, &bytes).expect("written");
    assert!(read(&*root, "f")[1..] == bytes);
}

fn sink_has_the_metadata_of_its_file(subject: &dyn Subject) {
    let root = subject.root();
    let sink = new(&*root, "f");
    sink.write_at(0, b"bytes").expect("written");
    let found = sink.stat().expect("found");
    assert_eq!((found.kind, found.size), (FileKind::Regular, 5));
    fails(sink.read_link(), ErrorKind::InvalidInput);
}

fn write_changes_the_modification_time(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    for change in ["write", "length", "clear"] {
        hold(&*root, "f").set_times(old_times()).expect("set");
        let sink = in_place(&*root, "f");
        match change {
            "write" => sink.write_at(0, b"B").expect("written"),
            "length" => sink.set_len(4).expect("set"),
            _ => sink.clear(range(0, 4), &stop(false)).expect("cleared"),
        }
        drop(sink);
        assert_ne!(stat(&*root, "f").mtime.sec, 1_000_000_000, "{change}");
    }
}

fn committed_is_false_before_the_commit(subject: &dyn Subject) {
    let root = subject.root();
    root.make(&n("d"), &Node::Directory { mode: 0o700 }).expect("made");
    let sink = new(&*root, "f");
    assert!(!sink.is_committed());
    sink.commit(Replace::No).expect("committed");
    assert!(sink.is_committed());
    root.remove(&n("f"), Remove::File).expect("removed");
}
