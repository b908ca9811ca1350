//! Power cuts: what is durable survives each of them, and what is not may be lost.

use super::tools::*;
use super::{Faults, Subject, cases};
use haul_storage::{
    Create, Dir, DropRetries, FileKind, Follow, Metadata, Missing, Offload, Remove, Replace, SinkFile,
    SyncWhat, Times, Timespec,
};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicBool;

cases! {
    synced_file_survives: Faults;
    unsynced_bytes_may_be_lost: Faults;
    unsynced_overwrite_is_torn_by_sectors: Faults;
    synced_range_is_not_durable: Faults;
    evicted_bytes_are_not_durable: Faults;
    bytes_synced_before_later_writes_survive: Faults;
    data_sync_keeps_the_length: Faults;
    data_sync_need_not_keep_the_metadata: Faults;
    full_sync_keeps_the_metadata: Faults;
    unsynced_length_is_the_old_or_the_new_one: Faults;
    unsynced_hole_is_the_old_or_the_new_one: Faults;
    unsynced_name_may_be_lost: Faults;
    synced_name_survives: Faults;
    sync_of_another_directory_keeps_no_name: Faults;
    unsynced_rename_leaves_the_old_or_the_new_name: Faults;
    unsynced_rename_over_a_file_leaves_one_of_both: Faults;
    synced_rename_survives: Faults;
    move_between_directories_never_loses_the_file: Faults;
    unsynced_names_are_lost_in_any_order: Faults;
    unsynced_removal_may_bring_the_file_back: Faults;
    synced_removal_survives: Faults;
    link_and_removal_never_lose_the_file: Faults, HardLinks;
    move_of_a_directory_never_loses_its_files: Faults;
    file_moved_out_of_a_removed_directory_survives: Faults;
    unsynced_exchange_swaps_both_or_none: Faults, Exchange;
    names_in_a_directory_that_is_not_durable_go_with_it: Faults;
    committed_file_is_the_old_or_the_new_one: Faults;
    committed_file_is_the_new_one_after_a_sync_of_its_name: Faults;
    temporary_file_is_resumed_after_a_power_cut: Faults;
    device_sync_makes_everything_durable: Faults;
    shared_blocks_survive_a_sync: Faults, Sharing;
    same_seed_leaves_the_same_storage: Faults;
    power_cut_leaves_this_storage_as_it_is: Faults;
    storage_is_usable_after_a_power_cut: Faults;
    lock_ends_with_a_power_cut: Faults, Locks;
    link_and_special_file_survive_a_sync: Faults, Links, Specials;
}

/// Number of power cuts of a case.
const SEEDS: u64 = 40;

fn faults(subject: &dyn Subject) -> &dyn Faults {
    subject.faults().expect("the case needs them")
}

/// Returns the different results of `look` after power cuts.
fn outcomes<T: Ord>(subject: &dyn Subject, look: impl Fn(&dyn Dir) -> T) -> BTreeSet<T> {
    (0..SEEDS).map(|seed| look(&*faults(subject).after_power_cut(seed).root())).collect()
}

fn finish_and_sync(sink: &dyn SinkFile, len: usize) {
    sink.finish(len as u64, &Metadata::default()).expect("finished");
    sink.sync(SyncWhat::All).expect("synced");
}

fn synced_file_survives(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", &pattern(20_000));
    assert_eq!(outcomes(subject, |root| read(root, "f") == pattern(20_000)), [true].into());
}

fn unsynced_bytes_may_be_lost(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(20_000));
    root.sync().expect("names synced");
    let intact = outcomes(subject, |root| read(root, "f") == pattern(20_000));
    assert!(intact.contains(&false), "{intact:?}");
}

fn unsynced_overwrite_is_torn_by_sectors(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", &[1; 8192]);
    in_place(&*root, "f").write_at(0, &[2; 8192]).expect("written");
    let torn = outcomes(subject, |root| {
        let bytes = read(root, "f");
        for sector in bytes.chunks(512) {
            assert!(sector == [1; 512] || sector == [2; 512], "a sector is the old or the new one");
        }
        bytes.contains(&1) && bytes.contains(&2)
    });
    assert!(torn.contains(&true), "some power cut mixes sectors");
}

fn synced_range_is_not_durable(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", &[1; 8192]);
    let sink = in_place(&*root, "f");
    sink.write_at(0, &[2; 8192]).expect("written");
    sink.sync(SyncWhat::Range(range(0, 8192))).expect("synced");
    assert!(outcomes(subject, |root| read(root, "f").contains(&1)).contains(&true));
    sink.sync(SyncWhat::Data).expect("synced");
    assert_eq!(outcomes(subject, |root| read(root, "f").contains(&1)), [false].into());
}

fn evicted_bytes_are_not_durable(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", &[1; 8192]);
    let sink = in_place(&*root, "f");
    sink.write_at(0, &[2; 8192]).expect("written");
    sink.reader().expect("opened").evict(range(0, 8192), DropRetries::Some).expect("evicted");
    assert!(outcomes(subject, |root| read(root, "f").contains(&1)).contains(&true));
}

fn bytes_synced_before_later_writes_survive(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", &[1; 8192]);
    let sink = in_place(&*root, "f");
    sink.write_at(0, &[2; 8192]).expect("written");
    sink.sync(SyncWhat::Data).expect("synced");
    sink.write_at(0, &[3; 8192]).expect("written");
    assert_eq!(outcomes(subject, |root| read(root, "f").contains(&1)), [false].into());
}

fn data_sync_keeps_the_length(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", &pattern(10_000));
    let sink = in_place(&*root, "f");
    sink.write_at(10_000, b"more").expect("written");
    sink.sync(SyncWhat::Data).expect("synced");
    assert_eq!(outcomes(subject, |root| stat(root, "f").size), [10_004].into());
    sink.set_len(500).expect("set");
    sink.sync(SyncWhat::Data).expect("synced");
    assert_eq!(outcomes(subject, |root| read(root, "f")), [pattern(500)].into());
}

fn data_sync_need_not_keep_the_metadata(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", b"bytes");
    let sink = in_place(&*root, "f");
    sink.set_mode(0o640).expect("set");
    sink.sync(SyncWhat::Data).expect("synced");
    assert_eq!(outcomes(subject, |root| stat(root, "f").mode), [0o600, 0o640].into());
}

fn full_sync_keeps_the_metadata(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", b"bytes");
    let old = Some(Timespec { sec: 1_000_000, nsec: 0 });
    let metadata =
        Metadata { mode: Some(0o640), times: Times { atime: old, mtime: old }, ..Metadata::default() };
    let sink = in_place(&*root, "f");
    sink.set_attribute(c"user.a", b"value").expect("set");
    sink.finish(5, &metadata).expect("finished");
    sink.sync(SyncWhat::All).expect("synced");
    let kept = outcomes(subject, |root| {
        let found = stat(root, "f");
        (found.mode, found.mtime.sec, hold(root, "f").attribute(c"user.a").expect("read"))
    });
    assert_eq!(kept, [(0o640, 1_000_000, Some(b"value".to_vec()))].into());
}

fn unsynced_length_is_the_old_or_the_new_one(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", &pattern(10_000));
    in_place(&*root, "f").set_len(50_000).expect("set");
    assert_eq!(outcomes(subject, |root| stat(root, "f").size), [10_000, 50_000].into());
    assert_eq!(outcomes(subject, |root| read(root, "f")[..10_000] == pattern(10_000)), [true].into());
}

fn unsynced_hole_is_the_old_or_the_new_one(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", &[7; 4096]);
    in_place(&*root, "f").clear(range(0, 4096), &AtomicBool::new(false)).expect("cleared");
    let found = outcomes(subject, |root| read(root, "f"));
    assert!(found.len() > 1 && found.iter().flatten().all(|&byte| byte == 7 || byte == 0));
}

fn unsynced_name_may_be_lost(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    in_place(&*root, "f").sync(SyncWhat::All).expect("synced");
    mkdir(&*root, "d");
    assert_eq!(outcomes(subject, |root| is_there(root, "f")), [false, true].into());
    assert_eq!(outcomes(subject, |root| is_there(root, "d")), [false, true].into());
}

fn synced_name_survives(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, "d");
    write(&*root, "f", b"bytes");
    root.sync().expect("synced");
    assert_eq!(outcomes(subject, listed), [vec!["d".into(), "f".into()]].into());
}

fn sync_of_another_directory_keeps_no_name(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    root.sync().expect("synced");
    write(&*root, "f", b"bytes");
    dir.sync().expect("synced");
    assert!(outcomes(subject, |root| is_there(root, "f")).contains(&false));
}

fn unsynced_rename_leaves_the_old_or_the_new_name(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "a", b"bytes");
    root.rename(&n("a"), &*root, &n("b"), Replace::Yes).expect("renamed");
    assert_eq!(outcomes(subject, listed), [vec!["a".into()], vec!["b".into()]].into());
}

fn unsynced_rename_over_a_file_leaves_one_of_both(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "a", b"new");
    write_durably(&*root, "b", b"old");
    root.rename(&n("a"), &*root, &n("b"), Replace::Yes).expect("renamed");
    let found = outcomes(subject, |root| (read_if_there(root, "a"), read(root, "b")));
    let expected = [(None, b"new".to_vec()), (Some(b"new".to_vec()), b"old".to_vec())];
    assert_eq!(found, expected.into());
}

fn synced_rename_survives(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "a", b"new");
    write_durably(&*root, "b", b"old");
    root.rename(&n("a"), &*root, &n("b"), Replace::Yes).expect("renamed");
    root.sync().expect("synced");
    assert_eq!(
        outcomes(subject, |root| (listed(root), read(root, "b"))),
        [(vec!["b".into()], b"new".to_vec())].into()
    );
}

fn move_between_directories_never_loses_the_file(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    write_durably(&*root, "a", b"bytes");
    root.rename(&n("a"), &*dir, &n("b"), Replace::Yes).expect("renamed");
    let places = |root: &dyn Dir| (is_there(root, "a"), is_there(&*opened_dir(root, "d"), "b"));
    assert_eq!(outcomes(subject, places), [(false, true), (true, false)].into());
    // One of the two directories is enough, because the move happens as a whole.
    dir.sync().expect("synced");
    assert_eq!(outcomes(subject, places), [(false, true)].into());
}

fn unsynced_names_are_lost_in_any_order(subject: &dyn Subject) {
    let root = subject.root();
    for name in ["a", "b"] {
        write(&*root, name, b"");
    }
    let all = [vec![], vec!["a".into()], vec!["b".into()], vec!["a".into(), "b".into()]];
    assert_eq!(outcomes(subject, listed), all.into());
}

fn unsynced_removal_may_bring_the_file_back(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", b"bytes");
    root.remove(&n("f"), Remove::File).expect("removed");
    assert_eq!(outcomes(subject, |root| read_if_there(root, "f")), [None, Some(b"bytes".to_vec())].into());
}

fn synced_removal_survives(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", b"bytes");
    root.remove(&n("f"), Remove::File).expect("removed");
    root.sync().expect("synced");
    assert_eq!(outcomes(subject, listed), [vec![]].into());
}

fn link_and_removal_never_lose_the_file(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "a", b"bytes");
    root.link(&n("a"), Follow::No, &*root, &n("b")).expect("linked");
    root.remove(&n("a"), Remove::File).expect("removed");
    let found = outcomes(subject, |root| {
        let names = listed(root);
        assert_eq!(read(root, &names[0]), b"bytes");
        assert_eq!(stat(root, &names[0]).nlink, names.len() as u64);
        names
    });
    let expected = [vec!["a".into()], vec!["b".into()], vec!["a".into(), "b".into()]];
    assert_eq!(found, expected.into());
}

fn move_of_a_directory_never_loses_its_files(subject: &dyn Subject) {
    let root = subject.root();
    let (a, b) = (mkdir(&*root, "a"), mkdir(&*root, "b"));
    root.sync().expect("synced");
    write_durably(&*a, "f", b"bytes");
    root.rename(&n("a"), &*b, &n("inner"), Replace::Yes).expect("renamed");
    b.rename(&n("inner"), &*root, &n("c"), Replace::Yes).expect("renamed");
    root.rename(&n("b"), &*opened_dir(&*root, "c"), &n("b"), Replace::Yes).expect("renamed");
    let found = outcomes(subject, |root| {
        let paths = [&["a"][..], &["b", "inner"], &["c"]];
        let places: Vec<bool> = paths
            .iter()
            .map(|path| {
                let mut at = Some(root.dir(&n(path[0]), Follow::No, Missing::Fail));
                for part in &path[1..] {
                    at = at.and_then(Result::ok).map(|dir| dir.dir(&n(part), Follow::No, Missing::Fail));
                }
                at.and_then(Result::ok).is_some_and(|dir| read_if_there(&*dir, "f").is_some())
            })
            .collect();
        places.iter().filter(|is_there| **is_there).count()
    });
    assert_eq!(found, [1].into());
}

fn file_moved_out_of_a_removed_directory_survives(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    root.sync().expect("synced");
    write_durably(&*dir, "f", b"bytes");
    dir.rename(&n("f"), &*root, &n("f"), Replace::Yes).expect("renamed");
    root.remove(&n("d"), Remove::Directory).expect("removed");
    let is_found = |root: &dyn Dir| {
        let in_dir = root.dir(&n("d"), Follow::No, Missing::Fail).is_ok_and(|dir| is_there(&*dir, "f"));
        is_there(root, "f") != in_dir
    };
    assert_eq!(outcomes(subject, is_found), [true].into());
}

fn unsynced_exchange_swaps_both_or_none(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "a", b"first");
    write_durably(&*root, "b", b"second");
    root.exchange(&n("a"), &*root, &n("b")).expect("exchanged");
    let both = outcomes(subject, |root| (read(root, "a"), read(root, "b")));
    let (first, second) = (b"first".to_vec(), b"second".to_vec());
    assert_eq!(both, [(first.clone(), second.clone()), (second, first)].into());
}

fn names_in_a_directory_that_is_not_durable_go_with_it(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*mkdir(&*root, "d"), "f", b"bytes");
    let found = outcomes(subject, |root| {
        let dir = root.dir(&n("d"), Follow::No, Missing::Fail);
        dir.ok().map(|dir| read(&*dir, "f"))
    });
    assert_eq!(found, [None, Some(b"bytes".to_vec())].into());
}

fn commit_new_bytes(root: &dyn Dir) {
    let sink = temporary(root, "f");
    sink.write_at(0, &pattern(9000)).expect("written");
    finish_and_sync(&*sink, 9000);
    sink.commit(Replace::Yes).expect("committed");
}

fn committed_file_is_the_old_or_the_new_one(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", b"old");
    commit_new_bytes(&*root);
    let found = outcomes(subject, |root| read(root, "f"));
    assert_eq!(found, [b"old".to_vec(), pattern(9000)].into());
}

fn committed_file_is_the_new_one_after_a_sync_of_its_name(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", b"old");
    commit_new_bytes(&*root);
    root.sync().expect("synced");
    assert_eq!(
        outcomes(subject, |root| (listed(root), read(root, "f"))),
        [(vec!["f".into()], pattern(9000))].into()
    );
}

fn temporary_file_is_resumed_after_a_power_cut(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    sink.write_at(0, &pattern(9000)).expect("written");
    sink.sync(SyncWhat::Data).expect("synced");
    root.sync().expect("synced");
    sink.write_at(9000, &[3; 9000]).expect("written");
    let kept = outcomes(subject, |root| {
        let sink = root.sink(&n("f"), Create::Resume(TAG)).expect("resumed");
        read_all(&*sink.reader().expect("opened"))[..9000] == pattern(9000)
    });
    assert_eq!(kept, [true].into());
}

fn device_sync_makes_everything_durable(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    let ways: [&dyn Fn() -> io::Result<()>; 2] =
        [&|| root.sync_device(), &|| dir.hold_device().expect("held").sync_device()];
    for (name, sync) in ["f", "g"].into_iter().zip(ways) {
        write(&*dir, name, &pattern(9000));
        hold(&*dir, name).set_mode(0o640).expect("set");
        sync().expect("synced");
        let kept = outcomes(subject, |root| {
            let dir = opened_dir(root, "d");
            read(&*dir, name) == pattern(9000) && stat(&*dir, name).mode == 0o640
        });
        assert_eq!(kept, [true].into());
    }
}

fn shared_blocks_survive_a_sync(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", &pattern(8192));
    let sink = new(&*root, "g");
    sink.offload(&*open(&*root, "f"), range(0, 8192), 0, Offload::Share).expect("shared");
    root.sync().expect("synced");
    assert!(outcomes(subject, |root| read(root, "g") == pattern(8192)).contains(&false));
    finish_and_sync(&*sink, 8192);
    assert_eq!(outcomes(subject, |root| read(root, "g") == pattern(8192)), [true].into());
}

fn same_seed_leaves_the_same_storage(subject: &dyn Subject) {
    let root = subject.root();
    for name in ["a", "b", "c", "d"] {
        write(&*root, name, &pattern(9000));
    }
    for seed in 0..10 {
        let look = || {
            let root = faults(subject).after_power_cut(seed).root();
            listed(&*root).into_iter().map(|name| (read(&*root, &name), name)).collect::<Vec<_>>()
        };
        assert!(look() == look(), "seed {seed}");
    }
}

fn power_cut_leaves_this_storage_as_it_is(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(9000));
    let after = faults(subject).after_power_cut(1).root();
    write(&*after, "g", b"bytes");
    assert_eq!(listed(&*root), ["f"]);
    assert!(read(&*root, "f") == pattern(9000));
}

fn storage_is_usable_after_a_power_cut(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*mkdir(&*root, "d"), "f", b"bytes");
    root.sync().expect("synced");
    let next = faults(subject).after_power_cut(3);
    let root = next.root();
    let dir = opened_dir(&*root, "d");
    dir.remove(&n("f"), Remove::File).expect("removed");
    root.remove(&n("d"), Remove::Directory).expect("removed");
    write_durably(&*root, "g", b"bytes");
    let faults = next.faults().expect("there");
    assert_eq!(listed(&*faults.after_power_cut(4).root()), ["g"]);
}

fn lock_ends_with_a_power_cut(subject: &dyn Subject) {
    let root = subject.root();
    write_durably(&*root, "f", b"bytes");
    let sink = in_place(&*root, "f");
    sink.lock().expect("locked");
    assert!(in_place(&*faults(subject).after_power_cut(1).root(), "f").lock().expect("free"));
}

fn link_and_special_file_survive_a_sync(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "l", "target");
    fifo(&*root, "p");
    root.sync().expect("synced");
    let kept = outcomes(subject, |root| {
        (hold(root, "l").read_link().expect("read"), stat(root, "p").kind == FileKind::Fifo)
    });
    assert_eq!(kept, [(b"target".to_vec(), true)].into());
}
