//! Creating, linking, renaming, exchanging and removing entries.

use super::tools::*;
use super::{Subject, cases};
use haul_storage::memory::MemoryStorage;
use haul_storage::{FileKind, Follow, Node, Remove, Replace};
use std::io::ErrorKind;

cases! {
    made_entry_has_its_kind: Links, Specials;
    made_device_has_its_number: Devices;
    made_link_has_its_target: Links;
    long_target_of_a_link_is_kept_and_a_longer_one_fails: Links;
    existing_entry_is_not_made_again: Links, Specials;
    dangling_link_is_not_replaced_by_a_new_entry: Links;
    regular_file_and_directory_are_not_made_as_special_files;
    other_kinds_have_no_target;
    second_name_leads_to_the_same_inode: HardLinks;
    second_name_in_another_directory_leads_to_the_same_inode: HardLinks;
    bytes_written_by_one_name_are_read_by_the_other: HardLinks;
    removing_one_name_keeps_the_other: HardLinks;
    second_name_of_a_link_is_that_of_the_link: HardLinks, Links;
    second_name_of_a_link_that_is_followed_is_that_of_its_target: HardLinks, Links;
    existing_name_is_not_linked: HardLinks;
    missing_name_is_not_linked: HardLinks;
    directory_has_one_name: HardLinks;
    renamed_entry_has_only_its_new_name;
    rename_keeps_the_inode: StableInodes;
    rename_into_another_directory_moves_the_entry;
    rename_replaces_a_file;
    rename_replaces_a_link_itself: Links;
    rename_of_a_link_moves_the_link: Links;
    rename_without_replacement_keeps_an_existing_entry: NoReplace;
    rename_without_replacement_takes_a_free_name: NoReplace;
    rename_of_a_missing_entry_is_not_found;
    rename_of_a_directory_moves_its_entries;
    link_in_a_moved_directory_leads_up_to_its_new_parent: Links;
    directory_is_not_moved_beneath_itself_after_a_move;
    rename_replaces_an_empty_directory_by_a_directory;
    rename_does_not_replace_a_directory_with_entries;
    rename_does_not_replace_a_directory_by_a_file;
    rename_does_not_replace_a_file_by_a_directory;
    directory_is_not_moved_beneath_itself;
    rename_to_the_same_name_changes_nothing;
    rename_between_names_of_one_inode_keeps_both: HardLinks;
    file_that_is_replaced_stays_readable_while_it_is_open: OpenAfterRemove;
    rename_to_another_device_fails: Elsewhere;
    link_to_another_device_fails: Elsewhere, HardLinks;
    rename_to_another_kind_of_storage_fails;
    exchange_swaps_a_file_and_a_directory: Exchange;
    exchange_between_directories_swaps_entries: Exchange;
    exchange_of_a_missing_entry_is_not_found: Exchange;
    exchange_beneath_itself_fails: Exchange;
    exchange_moves_the_entries_of_directories: Exchange;
    removed_file_is_gone;
    removed_directory_is_gone;
    directory_is_not_removed_as_a_file;
    file_is_not_removed_as_a_directory;
    directory_with_entries_is_not_removed;
    missing_entry_is_not_removed;
    removed_link_leaves_its_target: Links;
    removed_pipe_is_gone: Specials;
    removed_file_stays_readable_while_it_is_open: OpenAfterRemove;
    names_are_free_after_a_removal;
}

fn made_entry_has_its_kind(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, "d");
    symlink(&*root, "l", "target");
    fifo(&*root, "p");
    root.make(&n("s"), &Node::Special { kind: FileKind::Socket, mode: 0o600, rdev: 0 }).expect("made");
    let kinds = ["d", "l", "p", "s"].map(|name| stat(&*root, name).kind);
    assert_eq!(kinds, [FileKind::Directory, FileKind::Symlink, FileKind::Fifo, FileKind::Socket]);
}

fn made_device_has_its_number(subject: &dyn Subject) {
    let root = subject.root();
    for (name, kind, rdev) in [("c", FileKind::CharDevice, 0x103), ("b", FileKind::BlockDevice, 0x702)] {
        root.make(&n(name), &Node::Special { kind, mode: 0o600, rdev }).expect("made");
        assert_eq!((stat(&*root, name).kind, stat(&*root, name).rdev), (kind, rdev));
    }
}

fn made_link_has_its_target(subject: &dyn Subject) {
    let root = subject.root();
    for (name, target) in [("a", &b"/absolute/../path"[..]), ("b", b"x"), ("c", b"\xff/\n")] {
        root.make(&n(name), &Node::Link { target }).expect("made");
        assert_eq!(hold(&*root, name).read_link().expect("read"), target);
    }
    root.make(&n("d"), &Node::Link { target: b"" }).expect_err("an empty target");
}

fn long_target_of_a_link_is_kept_and_a_longer_one_fails(subject: &dyn Subject) {
    let root = subject.root();
    // XFS stores 1,023 bytes.
    let target = vec![b't'; 1023];
    root.make(&n("l"), &Node::Link { target: &target }).expect("made");
    assert_eq!(hold(&*root, "l").read_link().expect("read"), target);
    assert_eq!(root.read_link_at(&n("l")).expect("read"), target);
    let long = Node::Link { target: &[b't'; 4096] };
    fails(root.make(&n("m"), &long), ErrorKind::InvalidFilename);
}

fn existing_entry_is_not_made_again(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    mkdir(&*root, "d");
    symlink(&*root, "l", "f");
    for name in ["f", "d", "l"] {
        let nodes = [
            Node::Directory { mode: 0o700 },
            Node::Link { target: b"x" },
            Node::Special { kind: FileKind::Fifo, mode: 0o600, rdev: 0 },
        ];
        let before = stat(&*root, name).kind;
        for node in nodes {
            fails(root.make(&n(name), &node), ErrorKind::AlreadyExists);
        }
        assert_eq!(stat(&*root, name).kind, before);
    }
    assert_eq!(read(&*root, "f"), b"bytes");
}

fn dangling_link_is_not_replaced_by_a_new_entry(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "l", "none");
    fails(root.make(&n("l"), &Node::Directory { mode: 0o700 }), ErrorKind::AlreadyExists);
    assert_eq!(listed(&*root), ["l"]);
}

fn regular_file_and_directory_are_not_made_as_special_files(subject: &dyn Subject) {
    let root = subject.root();
    for kind in [FileKind::Regular, FileKind::Directory, FileKind::Symlink, FileKind::Unknown] {
        let node = Node::Special { kind, mode: 0o600, rdev: 0 };
        fails(root.make(&n("x"), &node), ErrorKind::InvalidInput);
    }
    assert_eq!(listed(&*root), [""; 0]);
}

fn other_kinds_have_no_target(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    fails(hold(&*root, "f").read_link(), ErrorKind::InvalidInput);
    fails(root.read_link(), ErrorKind::InvalidInput);
    fails(root.read_link_at(&n("f")), ErrorKind::InvalidInput);
    fails(root.read_link_at(&n("none")), ErrorKind::NotFound);
}

fn second_name_leads_to_the_same_inode(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    root.link(&n("a"), Follow::No, &*root, &n("b")).expect("linked");
    assert_eq!(stat(&*root, "a").identity(), stat(&*root, "b").identity());
    assert_eq!((stat(&*root, "a").nlink, stat(&*root, "b").nlink), (2, 2));
}

fn second_name_in_another_directory_leads_to_the_same_inode(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    write(&*root, "a", b"bytes");
    root.link(&n("a"), Follow::No, &*dir, &n("b")).expect("linked");
    assert_eq!(stat(&*root, "a").identity(), stat(&*dir, "b").identity());
    assert_eq!(listed(&*root), ["a", "d"]);
}

fn bytes_written_by_one_name_are_read_by_the_other(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    root.link(&n("a"), Follow::No, &*root, &n("b")).expect("linked");
    in_place(&*root, "b").write_at(0, b"BYT").expect("written");
    assert_eq!(read(&*root, "a"), b"BYTes");
}

fn removing_one_name_keeps_the_other(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    root.link(&n("a"), Follow::No, &*root, &n("b")).expect("linked");
    root.remove(&n("a"), Remove::File).expect("removed");
    assert_eq!((read(&*root, "b"), stat(&*root, "b").nlink), (b"bytes".to_vec(), 1));
}

fn second_name_of_a_link_is_that_of_the_link(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    symlink(&*root, "l", "f");
    root.link(&n("l"), Follow::No, &*root, &n("m")).expect("linked");
    assert_eq!(stat(&*root, "m").kind, FileKind::Symlink);
    assert_eq!(stat(&*root, "f").nlink, 1);
}

fn second_name_of_a_link_that_is_followed_is_that_of_its_target(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    symlink(&*root, "l", "f");
    symlink(&*root, "k", "l");
    symlink(&*root, "dangling", "none");
    root.link(&n("k"), Follow::Yes, &*root, &n("m")).expect("linked");
    assert_eq!(stat(&*root, "m").identity(), stat(&*root, "f").identity());
    root.link(&n("f"), Follow::Yes, &*root, &n("o")).expect("linked");
    assert_eq!(stat(&*root, "f").nlink, 3);
    fails(root.link(&n("dangling"), Follow::Yes, &*root, &n("p")), ErrorKind::NotFound);
}

fn existing_name_is_not_linked(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    write(&*root, "b", b"others");
    fails(root.link(&n("a"), Follow::No, &*root, &n("b")), ErrorKind::AlreadyExists);
    assert_eq!((read(&*root, "b"), stat(&*root, "a").nlink), (b"others".to_vec(), 1));
}

fn missing_name_is_not_linked(subject: &dyn Subject) {
    let root = subject.root();
    fails(root.link(&n("none"), Follow::No, &*root, &n("b")), ErrorKind::NotFound);
}

fn directory_has_one_name(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, "d");
    fails(root.link(&n("d"), Follow::No, &*root, &n("e")), ErrorKind::PermissionDenied);
    assert_eq!(listed(&*root), ["d"]);
}

fn renamed_entry_has_only_its_new_name(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    root.rename(&n("a"), &*root, &n("b"), Replace::Yes).expect("renamed");
    assert_eq!((listed(&*root), read(&*root, "b")), (vec!["b".into()], b"bytes".to_vec()));
}

fn rename_keeps_the_inode(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    let before = stat(&*root, "a");
    root.rename(&n("a"), &*root, &n("b"), Replace::Yes).expect("renamed");
    let after = stat(&*root, "b");
    assert_eq!((after.identity(), after.mtime), (before.identity(), before.mtime));
}

fn rename_into_another_directory_moves_the_entry(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    write(&*root, "a", b"bytes");
    root.rename(&n("a"), &*dir, &n("b"), Replace::Yes).expect("renamed");
    assert_eq!((listed(&*root), listed(&*dir)), (vec!["d".into()], vec!["b".into()]));
    dir.rename(&n("b"), &*root, &n("a"), Replace::Yes).expect("renamed back");
    assert_eq!((listed(&*root), listed(&*dir)), (vec!["a".into(), "d".into()], vec![]));
}

fn rename_replaces_a_file(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    write(&*root, "b", b"others");
    root.rename(&n("a"), &*root, &n("b"), Replace::Yes).expect("renamed");
    assert_eq!((listed(&*root), read(&*root, "b")), (vec!["b".into()], b"bytes".to_vec()));
}

fn rename_replaces_a_link_itself(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    write(&*root, "target", b"others");
    symlink(&*root, "l", "target");
    root.rename(&n("a"), &*root, &n("l"), Replace::Yes).expect("renamed");
    assert_eq!(stat(&*root, "l").kind, FileKind::Regular);
    assert_eq!(read(&*root, "target"), b"others");
}

fn rename_of_a_link_moves_the_link(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    symlink(&*root, "l", "f");
    root.rename(&n("l"), &*root, &n("m"), Replace::Yes).expect("renamed");
    assert_eq!(listed(&*root), ["f", "m"]);
    assert_eq!(stat(&*root, "m").kind, FileKind::Symlink);
}

fn rename_without_replacement_keeps_an_existing_entry(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    write(&*root, "b", b"others");
    fails(root.rename(&n("a"), &*root, &n("b"), Replace::No), ErrorKind::AlreadyExists);
    mkdir(&*root, "d");
    fails(root.rename(&n("a"), &*root, &n("d"), Replace::No), ErrorKind::AlreadyExists);
    assert_eq!((read(&*root, "a"), read(&*root, "b")), (b"bytes".to_vec(), b"others".to_vec()));
}

fn rename_without_replacement_takes_a_free_name(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    root.rename(&n("a"), &*root, &n("b"), Replace::No).expect("renamed");
    assert_eq!(listed(&*root), ["b"]);
}

fn rename_of_a_missing_entry_is_not_found(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "b", b"others");
    fails(root.rename(&n("none"), &*root, &n("b"), Replace::Yes), ErrorKind::NotFound);
    assert_eq!(read(&*root, "b"), b"others");
}

fn rename_of_a_directory_moves_its_entries(subject: &dyn Subject) {
    let root = subject.root();
    let (a, b) = (mkdir(&*root, "a"), mkdir(&*root, "b"));
    write(&*mkdir(&*a, "inner"), "f", b"bytes");
    a.rename(&n("inner"), &*b, &n("moved"), Replace::Yes).expect("renamed");
    assert_eq!(read(&*opened_dir(&*b, "moved"), "f"), b"bytes");
    assert_eq!(listed(&*a), [""; 0]);
}

fn link_in_a_moved_directory_leads_up_to_its_new_parent(subject: &dyn Subject) {
    let root = subject.root();
    let (a, b) = (mkdir(&*root, "a"), mkdir(&*root, "b"));
    write(&*a, "f", b"of a");
    write(&*b, "f", b"is of b");
    let moved = mkdir(&*a, "moved");
    symlink(&*moved, "up", "../f");
    assert_eq!(moved.stat_at(&n("up"), Follow::Yes).expect("followed").size, 4);
    a.rename(&n("moved"), &*b, &n("moved"), Replace::Yes).expect("renamed");
    assert_eq!(moved.stat_at(&n("up"), Follow::Yes).expect("followed").size, 7);
}

fn directory_is_not_moved_beneath_itself_after_a_move(subject: &dyn Subject) {
    let root = subject.root();
    let (a, b) = (mkdir(&*root, "a"), mkdir(&*root, "b"));
    let inner = mkdir(&*a, "inner");
    a.rename(&n("inner"), &*b, &n("inner"), Replace::Yes).expect("renamed");
    fails(root.rename(&n("b"), &*inner, &n("x"), Replace::Yes), ErrorKind::InvalidInput);
    root.rename(&n("a"), &*inner, &n("x"), Replace::Yes).expect("it is not beneath a any more");
    assert_eq!(listed(&*opened_dir(&*opened_dir(&*root, "b"), "inner")), ["x"]);
}

fn rename_replaces_an_empty_directory_by_a_directory(subject: &dyn Subject) {
    let root = subject.root();
    write(&*mkdir(&*root, "a"), "f", b"bytes");
    mkdir(&*root, "b");
    root.rename(&n("a"), &*root, &n("b"), Replace::Yes).expect("renamed");
    assert_eq!((listed(&*root), listed(&*opened_dir(&*root, "b"))), (vec!["b".into()], vec!["f".into()]));
}

fn rename_does_not_replace_a_directory_with_entries(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, "a");
    write(&*mkdir(&*root, "b"), "f", b"bytes");
    fails(root.rename(&n("a"), &*root, &n("b"), Replace::Yes), ErrorKind::DirectoryNotEmpty);
    assert_eq!(listed(&*root), ["a", "b"]);
}

fn rename_does_not_replace_a_directory_by_a_file(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    mkdir(&*root, "d");
    fails(root.rename(&n("f"), &*root, &n("d"), Replace::Yes), ErrorKind::IsADirectory);
    assert_eq!(listed(&*root), ["d", "f"]);
}

fn rename_does_not_replace_a_file_by_a_directory(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    mkdir(&*root, "d");
    fails(root.rename(&n("d"), &*root, &n("f"), Replace::Yes), ErrorKind::NotADirectory);
    assert_eq!(read(&*root, "f"), b"bytes");
}

fn directory_is_not_moved_beneath_itself(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    let inner = mkdir(&*dir, "inner");
    for to in [&dir, &inner] {
        fails(root.rename(&n("d"), &**to, &n("e"), Replace::Yes), ErrorKind::InvalidInput);
    }
    assert_eq!((listed(&*root), listed(&*dir)), (vec!["d".into()], vec!["inner".into()]));
}

fn rename_to_the_same_name_changes_nothing(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    root.rename(&n("a"), &*root, &n("a"), Replace::Yes).expect("renamed");
    assert_eq!(read(&*root, "a"), b"bytes");
}

fn rename_between_names_of_one_inode_keeps_both(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    root.link(&n("a"), Follow::No, &*root, &n("b")).expect("linked");
    root.rename(&n("a"), &*root, &n("b"), Replace::Yes).expect("renamed");
    assert_eq!(listed(&*root), ["a", "b"]);
}

fn file_that_is_replaced_stays_readable_while_it_is_open(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    write(&*root, "b", b"others");
    let replaced = open(&*root, "b");
    root.rename(&n("a"), &*root, &n("b"), Replace::Yes).expect("renamed");
    assert_eq!((read_all(&*replaced), read(&*root, "b")), (b"others".to_vec(), b"bytes".to_vec()));
}

fn rename_to_another_device_fails(subject: &dyn Subject) {
    let (root, elsewhere) = (subject.root(), subject.elsewhere().expect("there"));
    write(&*root, "a", b"bytes");
    fails(root.rename(&n("a"), &*elsewhere, &n("a"), Replace::Yes), ErrorKind::CrossesDevices);
    assert_eq!((listed(&*root), listed(&*elsewhere)), (vec!["a".into()], vec![]));
}

fn link_to_another_device_fails(subject: &dyn Subject) {
    let (root, elsewhere) = (subject.root(), subject.elsewhere().expect("there"));
    write(&*root, "a", b"bytes");
    fails(root.link(&n("a"), Follow::No, &*elsewhere, &n("a")), ErrorKind::CrossesDevices);
}

fn rename_to_another_kind_of_storage_fails(subject: &dyn Subject) {
    let (root, foreign) = (subject.root(), MemoryStorage::new(99).root());
    write(&*root, "a", b"bytes");
    let errors = [
        root.rename(&n("a"), &*foreign, &n("a"), Replace::Yes),
        root.link(&n("a"), Follow::No, &*foreign, &n("a")),
        root.exchange(&n("a"), &*foreign, &n("a")),
    ];
    for error in errors.map(|result| result.expect_err("another storage")) {
        // A memory storage sees another device.
        assert!(matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::CrossesDevices), "{error}");
    }
    assert_eq!(listed(&*root), ["a"]);
}

fn exchange_swaps_a_file_and_a_directory(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    write(&*mkdir(&*root, "b"), "f", b"inner");
    root.exchange(&n("a"), &*root, &n("b")).expect("exchanged");
    assert_eq!((read(&*root, "b"), listed(&*opened_dir(&*root, "a"))), (b"bytes".to_vec(), vec!["f".into()]));
}

fn exchange_between_directories_swaps_entries(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    write(&*root, "a", b"bytes");
    write(&*dir, "b", b"others");
    root.exchange(&n("a"), &*dir, &n("b")).expect("exchanged");
    assert_eq!((read(&*root, "a"), read(&*dir, "b")), (b"others".to_vec(), b"bytes".to_vec()));
}

fn exchange_of_a_missing_entry_is_not_found(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    fails(root.exchange(&n("a"), &*root, &n("none")), ErrorKind::NotFound);
    fails(root.exchange(&n("none"), &*root, &n("a")), ErrorKind::NotFound);
    assert_eq!(listed(&*root), ["a"]);
}

fn exchange_beneath_itself_fails(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    write(&*dir, "f", b"bytes");
    fails(root.exchange(&n("d"), &*dir, &n("f")), ErrorKind::InvalidInput);
    fails(dir.exchange(&n("f"), &*root, &n("d")), ErrorKind::InvalidInput);
    assert_eq!(read(&*dir, "f"), b"bytes");
}

fn exchange_moves_the_entries_of_directories(subject: &dyn Subject) {
    let root = subject.root();
    let (a, b) = (mkdir(&*root, "a"), mkdir(&*root, "b"));
    write(&*mkdir(&*a, "x"), "of-x", b"");
    write(&*mkdir(&*b, "y"), "of-y", b"");
    a.exchange(&n("x"), &*b, &n("y")).expect("exchanged");
    assert_eq!(listed(&*opened_dir(&*a, "x")), ["of-y"]);
    assert_eq!(listed(&*opened_dir(&*b, "y")), ["of-x"]);
}

fn removed_file_is_gone(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"bytes");
    write(&*root, "b", b"others");
    root.remove(&n("a"), Remove::File).expect("removed");
    assert_eq!(listed(&*root), ["b"]);
    fails(root.stat_at(&n("a"), Follow::No), ErrorKind::NotFound);
}

fn removed_directory_is_gone(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, "d");
    root.remove(&n("d"), Remove::Directory).expect("removed");
    assert_eq!(listed(&*root), [""; 0]);
}

fn directory_is_not_removed_as_a_file(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, "d");
    fails(root.remove(&n("d"), Remove::File), ErrorKind::IsADirectory);
    assert_eq!(listed(&*root), ["d"]);
}

fn file_is_not_removed_as_a_directory(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    fails(root.remove(&n("f"), Remove::Directory), ErrorKind::NotADirectory);
    assert_eq!(listed(&*root), ["f"]);
}

fn directory_with_entries_is_not_removed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*mkdir(&*root, "d"), "f", b"bytes");
    fails(root.remove(&n("d"), Remove::Directory), ErrorKind::DirectoryNotEmpty);
    assert_eq!(read(&*opened_dir(&*root, "d"), "f"), b"bytes");
}

fn missing_entry_is_not_removed(subject: &dyn Subject) {
    let root = subject.root();
    for what in [Remove::File, Remove::Directory] {
        fails(root.remove(&n("none"), what), ErrorKind::NotFound);
    }
}

fn removed_link_leaves_its_target(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    mkdir(&*root, "d");
    for (link, target) in [("l", "f"), ("m", "d")] {
        symlink(&*root, link, target);
        fails(root.remove(&n(link), Remove::Directory), ErrorKind::NotADirectory);
        root.remove(&n(link), Remove::File).expect("removed");
    }
    assert_eq!(listed(&*root), ["d", "f"]);
}

fn removed_pipe_is_gone(subject: &dyn Subject) {
    let root = subject.root();
    fifo(&*root, "p");
    root.remove(&n("p"), Remove::File).expect("removed");
    assert!(!is_there(&*root, "p"));
}

fn removed_file_stays_readable_while_it_is_open(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let (file, sink) = (open(&*root, "f"), in_place(&*root, "f"));
    root.remove(&n("f"), Remove::File).expect("removed");
    sink.write_at(5, b" and more").expect("written");
    assert_eq!(read_all(&*file), b"bytes and more");
    assert_eq!(file.stat().expect("found").nlink, 0);
}

fn names_are_free_after_a_removal(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "x", b"bytes");
    root.remove(&n("x"), Remove::File).expect("removed");
    mkdir(&*root, "x");
    root.remove(&n("x"), Remove::Directory).expect("removed");
    write(&*root, "x", b"others");
    assert_eq!(read(&*root, "x"), b"others");
}
