//! Errors of a device and of a full one: each is reported, changes nothing, and the next call
//! works. A failed sync is remembered.

use super::tools::*;
use super::{Subject, cases};
use haul_storage::memory::Call;
use haul_storage::{
    Create, Dir, DropRetries, Follow, Metadata, Missing, Node, Offload, Part, Remove, Replace, SinkFile,
    SourceFile, SyncWhat, Times, Timespec,
};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

cases! {
    list_reports_an_error: Faults;
    list_reports_an_error_of_a_later_batch: Faults;
    stat_reports_an_error: Faults;
    hold_reports_an_error: Faults;
    opening_a_directory_reports_an_error: Faults;
    creating_a_directory_reports_an_error: Faults;
    opening_a_source_reports_an_error: Faults;
    opening_a_sink_reports_an_error: Faults;
    making_an_entry_reports_an_error: Faults;
    link_reports_an_error: Faults, HardLinks;
    rename_reports_an_error: Faults;
    exchange_reports_an_error: Faults, Exchange;
    remove_reports_an_error: Faults;
    sync_of_names_reports_an_error: Faults;
    sync_of_the_device_reports_an_error: Faults;
    space_reports_an_error: Faults;
    read_reports_an_error: Faults;
    search_for_data_reports_an_error: Faults;
    reserve_reports_an_error: Faults;
    set_len_reports_an_error: Faults;
    offload_reports_an_error: Faults;
    lock_reports_an_error: Faults, Locks;
    reader_reports_an_error: Faults;
    reading_a_link_reports_an_error: Faults, Links;
    attributes_report_an_error: Faults, Attributes;
    setting_an_attribute_reports_an_error: Faults, Attributes;
    setting_the_owner_reports_an_error: Faults;
    setting_the_mode_reports_an_error: Faults;
    setting_the_times_reports_an_error: Faults;
    finish_reports_an_error_of_each_part: Faults, Attributes;
    commit_reports_an_error_and_is_repeated: Faults;
    abandonment_reports_an_error_and_is_repeated: Faults;
    write_that_fails_may_be_written_in_part: Faults;
    clearing_that_fails_may_be_done_in_part: Faults;
    only_the_planned_call_fails: Faults;
    failed_write_back_fails_every_later_sync: Faults;
    failed_write_back_loses_bytes: Faults;
    lost_bytes_seem_written_until_they_are_evicted: Faults;
    failed_sync_of_a_range_fails_every_later_sync: Faults;
    failed_flush_fails_every_later_sync: Faults;
    failed_sync_prevents_the_commit: Faults;
    failed_sync_leaves_the_old_file: Faults;
    failed_sync_of_a_file_in_place_prevents_its_commit: Faults;
    lost_bytes_are_reported_to_each_open_file: Faults;
    lost_bytes_are_not_reported_to_a_file_opened_later: Faults;
    write_back_in_the_background_fails_the_next_sync: Faults;
    device_sync_leaves_lost_bytes_to_the_check: Faults;
    failed_eviction_fails_the_writer: Faults;
    failed_write_back_by_the_reader_fails_the_writer: Faults;
    reopened_file_reports_lost_bytes_apart_from_its_writer: Faults;
    failed_sync_of_one_file_leaves_others: Faults;
    full_device_refuses_writes: Faults, Space;
    full_device_takes_overwrites: Faults, Space;
    full_device_takes_writes_to_reserved_space: Faults, Space;
    removed_file_gives_its_space_back: Faults, Space;
    removed_file_keeps_its_space_while_it_is_open: Faults, Space, OpenAfterRemove;
    shorter_file_gives_its_space_back: Faults, Space;
    cleared_range_gives_its_space_back: Faults, Space, Holes;
    replaced_file_gives_its_space_back: Faults, Space;
    error_of_a_failed_sync_keeps_its_number: Faults;
}

/// `errno` of a full device.
const ENOSPC: i32 = 28;

/// `errno` of an exceeded quota.
const EDQUOT: i32 = 122;

/// Checks that `act` fails once if the next call of this kind fails, and then succeeds.
#[track_caller]
fn fails_once<T>(subject: &dyn Subject, call: Call, act: impl Fn() -> io::Result<T>) -> T {
    fail(subject, call, 1, EIO);
    fails_with(act(), EIO);
    act().expect("only one call fails")
}

fn fail(subject: &dyn Subject, call: Call, nth: u64, errno: i32) {
    subject.faults().expect("the case needs them").fail(call, nth, errno);
}

fn list_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    fails_once(subject, Call::List, || root.list());
}

fn list_reports_an_error_of_a_later_batch(subject: &dyn Subject) {
    let root = subject.root();
    for number in 0..10 {
        write(&*root, &format!("{number}"), b"");
    }
    let (mut listing, mut entries) = (root.list().expect("started"), Vec::new());
    listing.next(4, &mut entries).expect("listed");
    fail(subject, Call::List, 1, EIO);
    fails_with(listing.next(4, &mut entries), EIO);
    assert_eq!(entries.len(), 4, "entries from before the error stay");
}

fn stat_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let file = open(&*root, "f");
    fails_once(subject, Call::Stat, || root.stat_at(&n("f"), Follow::No));
    fails_once(subject, Call::Stat, || root.stat());
    fails_once(subject, Call::Stat, || file.changed_since(&haul_storage::Version::of(file.opened())));
}

fn hold_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    fails_once(subject, Call::Hold, || root.hold(&n("f")));
}

fn opening_a_directory_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, "d");
    fails_once(subject, Call::OpenDir, || root.dir(&n("d"), Follow::No, Missing::Fail));
}

fn creating_a_directory_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    let create = || root.dir(&n("d"), Follow::No, Missing::Create { mode: 0o700 });
    fail(subject, Call::Make, 1, ENOSPC);
    fails(create(), ErrorKind::StorageFull);
    assert_eq!(listed(&*root), [""; 0]);
    create().expect("created");
}

fn opening_a_source_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    fails_once(subject, Call::OpenSource, || root.source(&n("f"), Follow::No));
}

fn opening_a_sink_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let all = [
        ("a", Create::New { mode: 0o600 }),
        ("f", Create::InPlace { missing: Missing::Fail, follow: Follow::No }),
        ("f", Create::Complete { follow: Follow::No }),
        ("b", Create::Temporary(TAG)),
        ("b", Create::Resume(TAG)),
    ];
    for (name, create) in all {
        let before = listed(&*root);
        fail(subject, Call::OpenSink, 1, EIO);
        fails_with(root.sink(&n(name), create), EIO);
        assert_eq!(listed(&*root), before);
        root.sink(&n(name), create).expect("only one call fails");
    }
}

fn making_an_entry_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    fails_once(subject, Call::Make, || root.make(&n("d"), &Node::Directory { mode: 0o700 }));
    fail(subject, Call::Make, 1, EIO);
    fails_with(root.make(&n("e"), &Node::Directory { mode: 0o700 }), EIO);
    assert_eq!(listed(&*root), ["d"]);
}

fn link_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    // A file with too many names: EMLINK.
    fail(subject, Call::Link, 1, 31);
    fails(root.link(&n("a"), Follow::No, &*root, &n("b")), ErrorKind::TooManyLinks);
    assert_eq!(listed(&*root), ["a"]);
    root.link(&n("a"), Follow::No, &*root, &n("b")).expect("linked");
}

fn rename_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    write(&*root, "b", b"others");
    fail(subject, Call::Rename, 1, EIO);
    fails_with(root.rename(&n("a"), &*root, &n("b"), Replace::Yes), EIO);
    assert_eq!((read(&*root, "a"), read(&*root, "b")), (b"bytes".to_vec(), b"others".to_vec()));
}

fn exchange_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    write(&*root, "b", b"others");
    fail(subject, Call::Rename, 1, EIO);
    fails_with(root.exchange(&n("a"), &*root, &n("b")), EIO);
    assert_eq!((read(&*root, "a"), read(&*root, "b")), (b"bytes".to_vec(), b"others".to_vec()));
}

fn remove_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    fail(subject, Call::Remove, 1, EIO);
    fails_with(root.remove(&n("f"), Remove::File), EIO);
    assert_eq!(read(&*root, "f"), b"bytes");
}

fn sync_of_names_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    fail(subject, Call::SyncNames, 1, EIO);
    fails_with(root.sync(), EIO);
    let faults = subject.faults().expect("there");
    let is_lost = |seed| !is_there(&*faults.after_power_cut(seed).root(), "f");
    assert!((0..40).any(is_lost), "the name is not durable");
    root.sync().expect("only one call fails");
    assert!(!(0..40).any(is_lost));
}

fn sync_of_the_device_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    fails_once(subject, Call::SyncDevice, || root.sync_device());
}

fn space_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    fails_once(subject, Call::Space, || root.space());
}

fn file(subject: &dyn Subject) -> (Arc<dyn Dir>, Arc<dyn SourceFile>, Arc<dyn SinkFile>) {
    let root = subject.root();
    write_durably(&*root, "f", &pattern(20_000));
    (Arc::clone(&root), open(&*root, "f"), in_place(&*root, "f"))
}

fn read_reports_an_error(subject: &dyn Subject) {
    let (_, source, _) = file(subject);
    let got = fails_once(subject, Call::Read, || source.read_at(0, &mut [0; 100]));
    assert_eq!(got, 100);
}

fn search_for_data_reports_an_error(subject: &dyn Subject) {
    let (_, source, _) = file(subject);
    fails_once(subject, Call::NextData, || source.next_data(range(0, 100)));
}

fn reserve_reports_an_error(subject: &dyn Subject) {
    let (_, _, sink) = file(subject);
    fail(subject, Call::Reserve, 1, EDQUOT);
    fails(sink.reserve(1 << 20), ErrorKind::QuotaExceeded);
    sink.reserve(1 << 20).expect("only one call fails");
}

fn set_len_reports_an_error(subject: &dyn Subject) {
    let (root, _, sink) = file(subject);
    fail(subject, Call::SetLen, 1, EIO);
    fails_with(sink.set_len(10), EIO);
    assert_eq!(stat(&*root, "f").size, 20_000);
}

fn offload_reports_an_error(subject: &dyn Subject) {
    let (root, source, _) = file(subject);
    let sink = new(&*root, "g");
    fail(subject, Call::Offload, 1, ENOSPC);
    fails(sink.offload(&*source, range(0, 100), 0, Offload::Copy), ErrorKind::StorageFull);
    assert_eq!(stat(&*root, "g").size, 0);
}

fn lock_reports_an_error(subject: &dyn Subject) {
    let (_, _, sink) = file(subject);
    fails_once(subject, Call::Lock, || sink.lock());
}

fn reader_reports_an_error(subject: &dyn Subject) {
    let (_, _, sink) = file(subject);
    fails_once(subject, Call::OpenSource, || sink.reader());
}

fn reading_a_link_reports_an_error(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "l", "target");
    let link = hold(&*root, "l");
    fails_once(subject, Call::ReadLink, || link.read_link());
}

fn attributes_report_an_error(subject: &dyn Subject) {
    let (_, source, _) = file(subject);
    fails_once(subject, Call::Attribute, || source.attributes());
    fails_once(subject, Call::Attribute, || source.attribute(c"user.a"));
}

fn setting_an_attribute_reports_an_error(subject: &dyn Subject) {
    let (_, source, sink) = file(subject);
    fails_once(subject, Call::SetAttribute, || sink.set_attribute(c"user.a", b"value"));
    fail(subject, Call::SetAttribute, 1, ENOSPC);
    fails(sink.remove_attribute(c"user.a"), ErrorKind::StorageFull);
    assert!(source.attribute(c"user.a").expect("read").is_some());
}

fn setting_the_owner_reports_an_error(subject: &dyn Subject) {
    let (_, source, sink) = file(subject);
    let before = source.stat().expect("found");
    // This user may not set it: EPERM.
    fail(subject, Call::SetOwner, 1, 1);
    fails(sink.set_owner(Some(5), Some(5)), ErrorKind::PermissionDenied);
    assert_eq!(source.stat().expect("found"), before);
}

fn setting_the_mode_reports_an_error(subject: &dyn Subject) {
    let (_, source, sink) = file(subject);
    fail(subject, Call::SetMode, 1, 1);
    fails(sink.set_mode(0o444), ErrorKind::PermissionDenied);
    assert_eq!(source.stat().expect("found").mode, 0o600);
}

fn setting_the_times_reports_an_error(subject: &dyn Subject) {
    let (_, source, sink) = file(subject);
    let before = source.stat().expect("found");
    let old = Some(Timespec { sec: 1_000_000, nsec: 0 });
    fail(subject, Call::SetTimes, 1, 1);
    fails(sink.set_times(Times { atime: old, mtime: old }), ErrorKind::PermissionDenied);
    assert_eq!(source.stat().expect("found"), before);
}

fn finish_reports_an_error_of_each_part(subject: &dyn Subject) {
    let old = Some(Timespec { sec: 1_000_000, nsec: 0 });
    let name = c"user.a".to_owned();
    let metadata = Metadata {
        user: Some(5),
        group: Some(6),
        attributes: vec![(name.clone(), b"value".to_vec())].into(),
        mode: Some(0o640),
        times: Times { atime: old, mtime: old },
    };
    let (_, source, sink) = file(subject);
    let parts = [
        (Call::SetLen, Part::Length),
        (Call::SetOwner, Part::Owner),
        (Call::SetAttribute, Part::Attribute(name.clone())),
        (Call::SetMode, Part::Mode),
        (Call::SetTimes, Part::Times),
    ];
    for (number, (call, part)) in parts.into_iter().enumerate() {
        sink.set_len(20_000).expect("set");
        sink.set_owner(Some(0), Some(0)).expect("set");
        sink.remove_attribute(&name).expect("removed");
        sink.set_mode(0o600).expect("set");
        fail(subject, call, 1, EIO);
        let unset = sink.finish(100, &metadata).expect_err("a part fails");
        assert_eq!((unset.part, unset.error.raw_os_error()), (part, Some(EIO)));
        // The parts before it are set, and those after it are not.
        let found = source.stat().expect("found");
        let is_set = [
            found.size == 100,
            found.uid == 5,
            source.attribute(&name).expect("read").is_some(),
            found.mode == 0o640,
        ];
        for (part, is_set) in is_set.into_iter().enumerate() {
            assert_eq!(is_set, part < number, "part {part} when part {number} fails");
        }
        assert_ne!(found.mtime.sec, 1_000_000);
    }
    sink.finish(100, &metadata).expect("no part fails any more");
    assert_eq!(source.stat().expect("found").mtime.sec, 1_000_000);
}

fn commit_reports_an_error_and_is_repeated(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    fail(subject, Call::Rename, 1, EIO);
    fails_with(sink.commit(Replace::Yes), EIO);
    assert!(!sink.is_committed() && sink.failure().is_none(), "it is not a failed sync");
    assert_eq!(listed(&*root), [TAG.name().to_string()]);
    sink.commit(Replace::Yes).expect("committed");
    assert_eq!(listed(&*root), ["f"]);
}

fn abandonment_reports_an_error_and_is_repeated(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    fails_once(subject, Call::Remove, || sink.abandon());
    assert_eq!(listed(&*root), [""; 0]);
}

fn write_that_fails_may_be_written_in_part(subject: &dyn Subject) {
    let (root, _, sink) = file(subject);
    fail(subject, Call::Write, 1, ENOSPC);
    fails(sink.write_at(0, &[0xcc; 10_000]), ErrorKind::StorageFull);
    let bytes = read(&*root, "f");
    let count = bytes.iter().take_while(|&&byte| byte == 0xcc).count();
    assert!(count < 10_000, "not all bytes are written");
    assert!(bytes[count + 1..] == pattern(20_000)[count + 1..]);
    sink.write_at(0, &[0xcc; 10_000]).expect("only one call fails");
    assert!(read(&*root, "f")[..10_000] == [0xcc; 10_000]);
}

fn clearing_that_fails_may_be_done_in_part(subject: &dyn Subject) {
    let (root, _, sink) = file(subject);
    fail(subject, Call::Clear, 1, EIO);
    fails_with(sink.clear(range(0, 20_000), &AtomicBool::new(false)), EIO);
    let bytes = read(&*root, "f");
    let expected = pattern(20_000);
    assert!(bytes.iter().zip(&expected).all(|(byte, expected)| *byte == 0 || byte == expected));
    assert!(bytes.iter().any(|&byte| byte != 0), "not everything is cleared");
}

fn only_the_planned_call_fails(subject: &dyn Subject) {
    let (_, source, _) = file(subject);
    fail(subject, Call::Read, 3, EIO);
    fail(subject, Call::Read, 5, EDQUOT);
    let errors: Vec<Option<i32>> = (0..7)
        .map(|_| source.read_at(0, &mut [0; 10]).err().and_then(|error| error.raw_os_error()))
        .collect();
    assert_eq!(errors, [None, None, Some(EIO), None, Some(EDQUOT), None, None]);
}

/// Checks that every sync of a file fails.
#[track_caller]
fn stays_failed(sink: &dyn SinkFile) {
    for what in [SyncWhat::Range(range(0, 10)), SyncWhat::Data, SyncWhat::All] {
        fails_with(sink.sync(what), EIO);
    }
    fails_with(sink.check(), EIO);
    assert_eq!(sink.failure().and_then(|error| error.raw_os_error()), Some(EIO));
    fails_with(sink.commit(Replace::Yes), EIO);
    assert!(!sink.is_committed());
}

fn failed_write_back_fails_every_later_sync(subject: &dyn Subject) {
    for what in [SyncWhat::Data, SyncWhat::All] {
        let root = subject.root();
        let sink = root.sink(&n("f"), Create::Temporary(TAG)).expect("created");
        sink.write_at(0, &pattern(20_000)).expect("written");
        fail(subject, Call::WriteBack, 1, EIO);
        fails_with(sink.sync(what), EIO);
        stays_failed(&*sink);
        // Also with bytes that are written now.
        sink.write_at(0, &pattern(20_000)).expect("written");
        stays_failed(&*sink);
    }
}

fn failed_write_back_loses_bytes(subject: &dyn Subject) {
    let (root, _, sink) = file(subject);
    sink.write_at(0, &[0xcc; 20_000]).expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(sink.sync(SyncWhat::Data), EIO);
    // The pages are clean, so a sync by another open file writes nothing.
    in_place(&*root, "f").sync(SyncWhat::All).expect("nothing is dirty");
    let faults = subject.faults().expect("there");
    for seed in 0..10 {
        let bytes = read(&*faults.after_power_cut(seed).root(), "f");
        assert!(bytes != [0xcc; 20_000], "the lost bytes are not on the device");
    }
}

fn lost_bytes_seem_written_until_they_are_evicted(subject: &dyn Subject) {
    let (_, source, sink) = file(subject);
    sink.write_at(0, &[0xcc; 20_000]).expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(sink.sync(SyncWhat::Data), EIO);
    assert!(read_all(&*source) == [0xcc; 20_000], "the page cache has them");
    // The source file did not report the loss yet.
    fails_with(source.evict(range(0, 20_000), DropRetries::Some), EIO);
    source.evict(range(0, 20_000), DropRetries::Some).expect("evicted");
    assert!(read_all(&*source) != [0xcc; 20_000], "the device lacks them");
}

fn failed_sync_of_a_range_fails_every_later_sync(subject: &dyn Subject) {
    let sink = temporary(&*subject.root(), "f");
    sink.write_at(0, &pattern(20_000)).expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(sink.sync(SyncWhat::Range(range(0, 20_000))), EIO);
    stays_failed(&*sink);
}

fn failed_flush_fails_every_later_sync(subject: &dyn Subject) {
    let sink = temporary(&*subject.root(), "f");
    sink.write_at(0, &pattern(20_000)).expect("written");
    fail(subject, Call::Flush, 1, EIO);
    fails_with(sink.sync(SyncWhat::Data), EIO);
    stays_failed(&*sink);
}

fn failed_sync_prevents_the_commit(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    sink.write_at(0, b"bytes").expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(sink.sync(SyncWhat::All), EIO);
    fails_with(sink.commit(Replace::Yes), EIO);
    assert_eq!(listed(&*root), [TAG.name().to_string()]);
    sink.abandon().expect("abandoned");
    assert_eq!(listed(&*root), [""; 0]);
}

fn failed_sync_leaves_the_old_file(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", b"old");
    let sink = temporary(&*root, "f");
    sink.write_at(0, b"new").expect("written");
    fail(subject, Call::Flush, 1, EIO);
    fails_with(sink.sync(SyncWhat::All), EIO);
    fails_with(sink.commit(Replace::Yes), EIO);
    assert_eq!(read(&*root, "f"), b"old");
}

fn failed_sync_of_a_file_in_place_prevents_its_commit(subject: &dyn Subject) {
    let (_, _, sink) = file(subject);
    sink.write_at(0, b"new").expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(sink.sync(SyncWhat::Data), EIO);
    stays_failed(&*sink);
}

fn lost_bytes_are_reported_to_each_open_file(subject: &dyn Subject) {
    let (root, _, sink) = file(subject);
    let other = in_place(&*root, "f");
    sink.write_at(0, b"new").expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(sink.sync(SyncWhat::Data), EIO);
    fails_with(other.sync(SyncWhat::Data), EIO);
    stays_failed(&*other);
}

fn lost_bytes_are_not_reported_to_a_file_opened_later(subject: &dyn Subject) {
    let (root, _, sink) = file(subject);
    sink.write_at(0, b"new").expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(sink.sync(SyncWhat::Data), EIO);
    let later = in_place(&*root, "f");
    later.sync(SyncWhat::All).expect("the kernel has reported the loss");
    later.commit(Replace::Yes).expect("committed");
}

fn write_back_in_the_background_fails_the_next_sync(subject: &dyn Subject) {
    let (_, _, sink) = file(subject);
    sink.write_at(0, b"new").expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    subject.faults().expect("there").write_back();
    assert!(sink.failure().is_none(), "no sync has reported it");
    fails_with(sink.sync(SyncWhat::Data), EIO);
    stays_failed(&*sink);
}

fn device_sync_leaves_lost_bytes_to_the_check(subject: &dyn Subject) {
    let (root, _, sink) = file(subject);
    let other = new(&*root, "g");
    sink.write_at(0, b"new").expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    root.sync_device().expect("the file reports it");
    other.check().expect("nothing lost here");
    fails_with(sink.check(), EIO);
    stays_failed(&*sink);
}

fn failed_eviction_fails_the_writer(subject: &dyn Subject) {
    let sink = temporary(&*subject.root(), "f");
    sink.write_at(0, &pattern(20_000)).expect("written");
    let reader = sink.reader().expect("opened");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(reader.evict(range(0, 20_000), DropRetries::Some), EIO);
    assert!(sink.failure().is_some(), "before the next sync");
    fails_with(reader.evict(range(0, 20_000), DropRetries::Some), EIO);
    stays_failed(&*sink);
}

fn failed_write_back_by_the_reader_fails_the_writer(subject: &dyn Subject) {
    let sink = temporary(&*subject.root(), "f");
    sink.write_at(0, &pattern(20_000)).expect("written");
    let reader = sink.reader().expect("opened");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(reader.write_back(range(0, 20_000)), EIO);
    assert!(sink.failure().is_some(), "before the next sync");
    fails_with(reader.write_back(range(0, 20_000)), EIO);
    stays_failed(&*sink);
}

fn reopened_file_reports_lost_bytes_apart_from_its_writer(subject: &dyn Subject) {
    let sink = temporary(&*subject.root(), "f");
    let again = sink.reopen().expect("opened");
    sink.write_at(0, &pattern(20_000)).expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(again.write_back(range(0, 20_000)), EIO);
    again.write_back(range(0, 20_000)).expect("reported once");
    assert!(sink.failure().is_none(), "the writer has not met it");
    stays_failed(&*sink);
}

fn failed_sync_of_one_file_leaves_others(subject: &dyn Subject) {
    let root = subject.root();
    let (first, second) = (new(&*root, "a"), new(&*root, "b"));
    first.write_at(0, b"bytes").expect("written");
    second.write_at(0, b"bytes").expect("written");
    fail(subject, Call::WriteBack, 1, EIO);
    fails_with(first.sync(SyncWhat::All), EIO);
    second.sync(SyncWhat::All).expect("synced");
    second.commit(Replace::No).expect("committed");
}

/// Fills the device up to `free` blocks with a file `filler`, and returns the root.
fn nearly_full(subject: &dyn Subject, free: u64) -> Arc<dyn Dir> {
    let root = subject.root();
    subject.faults().expect("there").set_capacity(100 * BLOCK);
    write(&*root, "filler", &pattern(((100 - free) * BLOCK) as usize));
    assert_eq!(root.space().expect("known").free, Some(free * BLOCK));
    root
}

fn full_device_refuses_writes(subject: &dyn Subject) {
    let root = nearly_full(subject, 2);
    let sink = new(&*root, "f");
    sink.write_at(0, &pattern(2 * BLOCK as usize)).expect("written");
    fails(sink.write_at(2 * BLOCK, b"x"), ErrorKind::StorageFull);
    fails(sink.reserve(3 * BLOCK), ErrorKind::StorageFull);
    assert_eq!(stat(&*root, "f").size, 2 * BLOCK);
    assert!(read(&*root, "f") == pattern(2 * BLOCK as usize));
}

fn full_device_takes_overwrites(subject: &dyn Subject) {
    let root = nearly_full(subject, 0);
    let sink = in_place(&*root, "filler");
    sink.write_at(5, b"changed").expect("written");
    sink.sync(SyncWhat::All).expect("synced");
    sink.reserve(50 * BLOCK).expect("the file has the space already");
}

fn full_device_takes_writes_to_reserved_space(subject: &dyn Subject) {
    let root = nearly_full(subject, 10);
    let (sink, other) = (new(&*root, "f"), new(&*root, "g"));
    sink.reserve(8 * BLOCK).expect("reserved");
    assert_eq!(root.space().expect("known").free, Some(2 * BLOCK));
    other.write_at(0, &pattern(2 * BLOCK as usize)).expect("written");
    fails(other.write_at(2 * BLOCK, b"x"), ErrorKind::StorageFull);
    sink.write_at(0, &pattern(8 * BLOCK as usize)).expect("it has the space");
    assert_eq!(root.space().expect("known").free, Some(0));
}

fn removed_file_gives_its_space_back(subject: &dyn Subject) {
    let root = nearly_full(subject, 0);
    root.remove(&n("filler"), Remove::File).expect("removed");
    assert_eq!(root.space().expect("known").free, Some(100 * BLOCK));
    write(&*root, "f", &pattern(100 * BLOCK as usize));
}

fn removed_file_keeps_its_space_while_it_is_open(subject: &dyn Subject) {
    let root = nearly_full(subject, 0);
    let file = open(&*root, "filler");
    root.remove(&n("filler"), Remove::File).expect("removed");
    assert_eq!(root.space().expect("known").free, Some(0));
    drop(file);
    assert_eq!(root.space().expect("known").free, Some(100 * BLOCK));
}

fn shorter_file_gives_its_space_back(subject: &dyn Subject) {
    let root = nearly_full(subject, 0);
    in_place(&*root, "filler").set_len(10 * BLOCK + 1).expect("set");
    assert_eq!(root.space().expect("known").free, Some(89 * BLOCK));
}

fn cleared_range_gives_its_space_back(subject: &dyn Subject) {
    let root = nearly_full(subject, 0);
    let stop = AtomicBool::new(false);
    in_place(&*root, "filler").clear(range(BLOCK - 1, 4 * BLOCK), &stop).expect("cleared");
    assert_eq!(root.space().expect("known").free, Some(3 * BLOCK));
}

fn replaced_file_gives_its_space_back(subject: &dyn Subject) {
    let root = nearly_full(subject, 1);
    write(&*root, "f", b"bytes");
    root.rename(&n("f"), &*root, &n("filler"), Replace::Yes).expect("renamed");
    assert_eq!(root.space().expect("known").free, Some(99 * BLOCK));
}

fn error_of_a_failed_sync_keeps_its_number(subject: &dyn Subject) {
    let (_, _, sink) = file(subject);
    sink.write_at(0, b"new").expect("written");
    fail(subject, Call::WriteBack, 1, EDQUOT);
    fails(sink.sync(SyncWhat::Data), ErrorKind::QuotaExceeded);
    fails(sink.sync(SyncWhat::All), ErrorKind::QuotaExceeded);
    fails(sink.commit(Replace::Yes), ErrorKind::QuotaExceeded);
}
