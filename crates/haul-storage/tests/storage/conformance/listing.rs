//! Lists of directories.

use super::tools::*;
use super::{Subject, cases};
use haul_storage::{FileKind, Name, Remove};
use std::collections::{BTreeSet, HashSet};

cases! {
    empty_directory_has_no_entries;
    list_returns_each_entry_once_in_batches;
    list_says_whether_more_entries_follow;
    entry_has_the_kind_of_its_inode: Links, Specials;
    entry_has_the_number_of_its_inode: StableInodes;
    second_list_starts_at_the_first_entry;
    two_lists_at_once_do_not_share_their_position;
    entries_that_are_removed_while_they_are_listed_all_go;
    entries_that_stay_are_listed_once_while_others_come_and_go;
    list_of_a_removed_directory_ends: OpenAfterRemove;
    list_does_not_descend;
    list_keeps_names_of_any_bytes: AnyNames;
    list_has_the_names_after_a_rename;
    names_behind_a_name_are_the_first_ones_in_order;
}

fn fill(dir: &dyn haul_storage::Dir, count: usize) -> BTreeSet<String> {
    (0..count).map(|number| format!("entry-{number}")).inspect(|name| write(dir, name, b"")).collect()
}

fn empty_directory_has_no_entries(subject: &dyn Subject) {
    let root = subject.root();
    assert_eq!(listed(&*root), [""; 0]);
    assert_eq!(listed(&*mkdir(&*root, "d")), [""; 0]);
}

fn list_returns_each_entry_once_in_batches(subject: &dyn Subject) {
    let root = subject.root();
    let names = fill(&*root, 300);
    for max in [1, 7, 1000] {
        let found = list(&*root, max);
        assert_eq!(found.len(), names.len(), "in batches of {max}");
        assert_eq!(found.iter().map(|entry| entry.name.to_string()).collect::<BTreeSet<_>>(), names);
    }
}

fn list_says_whether_more_entries_follow(subject: &dyn Subject) {
    let root = subject.root();
    fill(&*root, 10);
    let (mut listing, mut entries) = (root.list().expect("started"), Vec::new());
    assert!(listing.next(4, &mut entries).expect("listed"), "six follow");
    while listing.next(4, &mut entries).expect("listed") {}
    assert_eq!(entries.len(), 10);
    assert!(!listing.next(4, &mut entries).expect("listed"), "the end stays the end");
    assert_eq!(entries.len(), 10);
}

fn entry_has_the_kind_of_its_inode(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "file", b"");
    mkdir(&*root, "dir");
    symlink(&*root, "link", "dir");
    fifo(&*root, "pipe");
    for entry in list(&*root, 10) {
        let expected = match entry.name.as_bytes() {
            b"file" => FileKind::Regular,
            b"dir" => FileKind::Directory,
            b"link" => FileKind::Symlink,
            _ => FileKind::Fifo,
        };
        assert_eq!(entry.kind.unwrap_or(expected), expected, "{}", entry.name);
    }
}

fn entry_has_the_number_of_its_inode(subject: &dyn Subject) {
    let root = subject.root();
    fill(&*root, 5);
    for entry in list(&*root, 10) {
        assert_eq!(entry.ino, stat(&*root, &entry.name.to_string()).ino);
    }
}

fn second_list_starts_at_the_first_entry(subject: &dyn Subject) {
    let root = subject.root();
    fill(&*root, 20);
    let mut some = Vec::new();
    root.list().expect("started").next(5, &mut some).expect("listed");
    assert_eq!(list(&*root, 100).len(), 20);
    assert_eq!(list(&*root, 100).len(), 20);
}

fn two_lists_at_once_do_not_share_their_position(subject: &dyn Subject) {
    let root = subject.root();
    fill(&*root, 20);
    let mut lists = [root.list().expect("started"), root.list().expect("started")];
    let mut found = [Vec::new(), Vec::new()];
    for _ in 0..30 {
        for (listing, found) in lists.iter_mut().zip(&mut found) {
            listing.next(1, found).expect("listed");
        }
    }
    for found in found {
        assert_eq!(found.into_iter().map(|entry| entry.name).collect::<HashSet<_>>().len(), 20);
    }
}

fn entries_that_are_removed_while_they_are_listed_all_go(subject: &dyn Subject) {
    let root = subject.root();
    fill(&*root, 300);
    let (mut listing, mut entries, mut more) = (root.list().expect("started"), Vec::new(), true);
    while more {
        more = listing.next(10, &mut entries).expect("listed");
        for entry in entries.drain(..) {
            root.remove(&entry.name, Remove::File).expect("removed");
        }
    }
    assert_eq!(listed(&*root), [""; 0]);
}

fn entries_that_stay_are_listed_once_while_others_come_and_go(subject: &dyn Subject) {
    let root = subject.root();
    let names = fill(&*root, 200);
    let (mut listing, mut entries, mut more) = (root.list().expect("started"), Vec::new(), true);
    let mut number = 0;
    while more {
        more = listing.next(10, &mut entries).expect("listed");
        number += 1;
        assert!(number < 1000, "the list ends");
        write(&*root, &format!("new-{number}"), b"");
        if number % 2 == 0 {
            root.remove(&n(&format!("new-{number}")), Remove::File).expect("removed");
        }
    }
    let found: Vec<String> = entries.iter().map(|entry| entry.name.to_string()).collect();
    let unique: BTreeSet<String> = found.iter().cloned().collect();
    assert_eq!(unique.len(), found.len(), "no entry twice");
    assert!(unique.is_superset(&names));
}

fn list_of_a_removed_directory_ends(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    let mut listing = dir.list().expect("started");
    root.remove(&n("d"), Remove::Directory).expect("removed");
    let mut entries = Vec::new();
    assert!(!listing.next(10, &mut entries).expect("it ends"));
    assert_eq!(entries, []);
}

fn list_does_not_descend(subject: &dyn Subject) {
    let root = subject.root();
    write(&*mkdir(&*root, "d"), "inner", b"");
    assert_eq!(listed(&*root), ["d"]);
}

fn list_keeps_names_of_any_bytes(subject: &dyn Subject) {
    let root = subject.root();
    let names: HashSet<Name> =
        [&b"\xff\xfe"[..], b"a\nb", b" ", b"...", b"a\\b", b"a:b*?", b"\x01", b"trailing. "]
            .map(|bytes| Name::new(bytes).expect("a name"))
            .into();
    for name in &names {
        root.sink(name, haul_storage::Create::New { mode: 0o600 }).expect("created");
    }
    assert_eq!(list(&*root, 100).into_iter().map(|entry| entry.name).collect::<HashSet<_>>(), names);
}

fn list_has_the_names_after_a_rename(subject: &dyn Subject) {
    let root = subject.root();
    fill(&*root, 3);
    root.rename(&n("entry-1"), &*root, &n("other"), haul_storage::Replace::Yes).expect("renamed");
    assert_eq!(listed(&*root), ["entry-0", "entry-2", "other"]);
}

fn names_behind_a_name_are_the_first_ones_in_order(subject: &dyn Subject) {
    let root = subject.root();
    let is_wanted = |name: &[u8]| Ok::<_, std::io::Error>(!name.ends_with(b"7"));
    let names: Vec<String> = fill(&*root, 300).into_iter().filter(|name| !name.ends_with('7')).collect();
    for after in ["", "entry-1", "entry-17", "entry-98", "entry-99", "z"] {
        let behind: Vec<&String> = names.iter().filter(|name| name.as_str() > after).collect();
        for max in [0, 1, 9, behind.len(), 1000] {
            let mut listing = root.list().expect("started");
            let (found, has_more) = listing.names_behind(after.as_bytes(), max, is_wanted).expect("listed");
            let found: Vec<String> = found.iter().map(Name::to_string).collect();
            assert!(found.iter().eq(behind.iter().take(max).copied()), "{max} behind '{after}': {found:?}");
            assert_eq!(has_more, behind.len() > max, "{max} behind '{after}'");
        }
    }
    let failing = |_: &[u8]| Err(std::io::Error::from(std::io::ErrorKind::Interrupted));
    fails(root.list().expect("started").names_behind(b"", 1, failing), std::io::ErrorKind::Interrupted);
}
