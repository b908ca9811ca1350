//! Look-up of names, and opening of directories and entries.

use super::tools::*;
use super::{Subject, cases};
use haul_model::RelPath;
use haul_storage::{Create, FileKind, Follow, Missing, Name, Node, Remove, Replace};
use std::io::ErrorKind;
use std::sync::{Arc, Barrier};

cases! {
    stat_of_a_missing_name_is_not_found;
    stat_of_a_file_has_its_kind_size_and_device;
    stat_of_a_directory_has_its_kind;
    opened_has_the_identity_of_the_directory: StableInodes;
    another_directory_is_not_the_same: StableInodes;
    stat_of_a_link_is_that_of_the_link_unless_it_is_followed: Links;
    dangling_link_is_not_found_when_it_is_followed: Links;
    links_in_a_circle_end: Links;
    link_with_a_path_is_followed_from_its_own_directory: Links;
    stat_of_a_name_agrees_with_the_open_inode: StableInodes;
    name_of_255_bytes_is_kept: AnyNames;
    name_that_is_too_long_is_an_invalid_filename;
    names_in_different_cases_differ: AnyNames;
    name_in_another_spelling_exists: FoldsCase;
    missing_directory_is_not_found;
    file_is_not_a_directory;
    link_to_a_directory_is_followed_only_on_request: Links;
    missing_directory_is_created_on_request;
    existing_directory_is_opened_instead_of_created;
    file_is_not_replaced_by_a_directory;
    dangling_link_is_not_created_as_a_directory: Links;
    mode_of_a_created_directory_is_as_asked: Modes;
    threads_that_create_one_directory_all_open_it;
    one_of_several_threads_creates_a_file;
    one_of_several_threads_renames_an_entry;
    open_directory_stays_the_same_when_it_is_renamed;
    open_directory_stays_the_same_when_its_name_is_replaced: OpenAfterRemove;
    nothing_is_created_in_a_removed_directory: OpenAfterRemove;
    tree_deeper_than_a_path_is_reached_and_removed: Deep;
    source_of_a_missing_name_is_not_found;
    source_is_a_regular_file;
    source_that_is_a_pipe_does_not_block: Specials;
    source_follows_a_link_only_on_request: Links;
    held_entry_of_each_kind_is_the_entry_itself: Links, Specials;
    held_entry_stays_the_same_when_its_name_leads_elsewhere: OpenAfterRemove, StableInodes;
    holding_a_missing_name_fails;
    made_entry_is_held: Links, Specials;
    made_device_is_held: Devices;
    entry_that_replaced_a_made_one_is_not_held: Links, Specials;
    link_with_a_second_name_is_not_the_made_one: Links, HardLinks;
    directory_is_reached_by_its_path;
    path_beneath_through_a_file_fails;
    link_in_a_path_beneath_is_not_followed_unless_asked: Links;
    link_in_a_path_beneath_never_leads_out: Links;
    source_is_reached_by_its_path;
    device_is_the_same_for_all_inodes;
    free_space_is_known: Space;
}

fn stat_of_a_missing_name_is_not_found(subject: &dyn Subject) {
    let root = subject.root();
    for follow in [Follow::No, Follow::Yes] {
        fails(root.stat_at(&n("none"), follow), ErrorKind::NotFound);
    }
}

fn stat_of_a_file_has_its_kind_size_and_device(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", &pattern(12_345));
    let found = stat(&*root, "f");
    assert_eq!((found.kind, found.size, found.nlink), (FileKind::Regular, 12_345, 1));
    assert_eq!(found.dev, root.device().id);
}

fn stat_of_a_directory_has_its_kind(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    assert_eq!(stat(&*root, "d").kind, FileKind::Directory);
    assert_eq!(dir.stat().expect("found").kind, FileKind::Directory);
}

fn opened_has_the_identity_of_the_directory(subject: &dyn Subject) {
    let root = subject.root();
    let dirs = ["a", "b"].map(|name| mkdir(&*root, name));
    for (name, dir) in ["a", "b"].iter().zip(&dirs) {
        let opened = dir.opened().expect("found");
        assert_eq!((opened.identity(), opened.kind), (stat(&*root, name).identity(), FileKind::Directory));
    }
}

fn another_directory_is_not_the_same(subject: &dyn Subject) {
    let root = subject.root();
    let [a, b] = ["a", "b"].map(|name| mkdir(&*root, name));
    let then = stat(&*root, "a");
    a.reach().expect("reached");
    assert!(a.is_same(&then).expect("compared") && !b.is_same(&then).expect("compared"));
}

fn stat_of_a_link_is_that_of_the_link_unless_it_is_followed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"12345");
    symlink(&*root, "l", "f");
    symlink(&*root, "ll", "l");
    assert_eq!(stat(&*root, "l").kind, FileKind::Symlink);
    assert_eq!(stat(&*root, "l").size, 1, "the length of the target");
    for link in ["l", "ll"] {
        let followed = root.stat_at(&n(link), Follow::Yes).expect("followed");
        assert_eq!((followed.kind, followed.size), (FileKind::Regular, 5));
    }
}

fn dangling_link_is_not_found_when_it_is_followed(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "l", "none");
    fails(root.stat_at(&n("l"), Follow::Yes), ErrorKind::NotFound);
    fails(root.source(&n("l"), Follow::Yes), ErrorKind::NotFound);
    fails(root.dir(&n("l"), Follow::Yes, Missing::Fail), ErrorKind::NotFound);
    assert_eq!(stat(&*root, "l").kind, FileKind::Symlink);
}

fn links_in_a_circle_end(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "a", "b");
    symlink(&*root, "b", "a");
    fails_with(root.stat_at(&n("a"), Follow::Yes), ELOOP);
    fails_with(root.source(&n("b"), Follow::Yes), ELOOP);
}

fn link_with_a_path_is_followed_from_its_own_directory(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    write(&*root, "f", b"outer");
    write(&*dir, "f", b"in");
    symlink(&*dir, "up", "../f");
    symlink(&*root, "down", "d/./f");
    symlink(&*root, "both", "d/../d/up");
    assert_eq!(dir.stat_at(&n("up"), Follow::Yes).expect("followed").size, 5);
    assert_eq!(root.stat_at(&n("down"), Follow::Yes).expect("followed").size, 2);
    assert_eq!(root.stat_at(&n("both"), Follow::Yes).expect("followed").size, 5);
}

fn stat_of_a_name_agrees_with_the_open_inode(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let found = stat(&*root, "f");
    assert_eq!(open(&*root, "f").stat().expect("found").identity(), found.identity());
    assert_eq!(in_place(&*root, "f").stat().expect("found").identity(), found.identity());
    assert_eq!(hold(&*root, "f").stat().expect("found").identity(), found.identity());
    assert_eq!(open(&*root, "f").opened().identity(), found.identity());
}

fn name_of_255_bytes_is_kept(subject: &dyn Subject) {
    let root = subject.root();
    let name = "n".repeat(255);
    write(&*root, &name, b"bytes");
    assert_eq!(listed(&*root), [name]);
}

fn name_that_is_too_long_is_an_invalid_filename(subject: &dyn Subject) {
    let root = subject.root();
    let name = Name::new("n".repeat(1024)).expect("a name");
    fails(root.sink(&name, Create::New { mode: 0o600 }), ErrorKind::InvalidFilename);
    fails(root.make(&name, &Node::Directory { mode: 0o700 }), ErrorKind::InvalidFilename);
    fails(root.dir(&name, Follow::No, Missing::Create { mode: 0o700 }), ErrorKind::InvalidFilename);
    assert_eq!(listed(&*root), [""; 0]);
}

fn names_in_different_cases_differ(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "a", b"small");
    write(&*root, "A", b"great");
    assert_eq!((read(&*root, "a"), read(&*root, "A")), (b"small".to_vec(), b"great".to_vec()));
}

fn name_in_another_spelling_exists(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "name", b"first");
    fails(root.sink(&n("NAME"), Create::New { mode: 0o600 }), ErrorKind::AlreadyExists);
    let in_place = Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow: Follow::No };
    fails(root.sink(&n("NAME"), in_place), ErrorKind::AlreadyExists);
    let sink = temporary(&*root, "NAME");
    fails(sink.commit(Replace::Yes), ErrorKind::AlreadyExists);
    sink.abandon().expect("abandoned");
    mkdir(&*root, "dir");
    let missing = Missing::Create { mode: 0o700 };
    fails(root.dir(&n("DIR"), Follow::No, missing), ErrorKind::AlreadyExists);
    assert_eq!(
        (listed(&*root), read(&*root, "name")),
        (vec!["dir".into(), "name".into()], b"first".to_vec())
    );
}

fn missing_directory_is_not_found(subject: &dyn Subject) {
    fails(subject.root().dir(&n("none"), Follow::No, Missing::Fail), ErrorKind::NotFound);
}

fn file_is_not_a_directory(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    for follow in [Follow::No, Follow::Yes] {
        fails(root.dir(&n("f"), follow, Missing::Fail), ErrorKind::NotADirectory);
    }
}

fn link_to_a_directory_is_followed_only_on_request(subject: &dyn Subject) {
    let root = subject.root();
    write(&*mkdir(&*root, "d"), "inner", b"");
    symlink(&*root, "l", "d");
    for missing in [Missing::Fail, Missing::Create { mode: 0o700 }] {
        let error = root.dir(&n("l"), Follow::No, missing).expect_err("a link");
        let is_expected = error.kind() == ErrorKind::NotADirectory || error.raw_os_error() == Some(ELOOP);
        assert!(is_expected, "{error}");
        assert_eq!(listed(&*root.dir(&n("l"), Follow::Yes, missing).expect("followed")), ["inner"]);
    }
}

fn missing_directory_is_created_on_request(subject: &dyn Subject) {
    let root = subject.root();
    let dir = root.dir(&n("d"), Follow::No, Missing::Create { mode: 0o700 }).expect("created");
    write(&*dir, "inner", b"bytes");
    assert_eq!(read(&*opened_dir(&*root, "d"), "inner"), b"bytes");
}

fn existing_directory_is_opened_instead_of_created(subject: &dyn Subject) {
    let root = subject.root();
    write(&*mkdir(&*root, "d"), "inner", b"bytes");
    let dir = root.dir(&n("d"), Follow::No, Missing::Create { mode: 0o700 }).expect("opened");
    assert_eq!(listed(&*dir), ["inner"]);
}

fn file_is_not_replaced_by_a_directory(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let missing = Missing::Create { mode: 0o700 };
    fails(root.dir(&n("f"), Follow::No, missing), ErrorKind::NotADirectory);
    assert_eq!(read(&*root, "f"), b"bytes");
}

fn dangling_link_is_not_created_as_a_directory(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "l", "none");
    root.dir(&n("l"), Follow::No, Missing::Create { mode: 0o700 }).expect_err("a link");
    assert_eq!(listed(&*root), ["l"]);
}

fn mode_of_a_created_directory_is_as_asked(subject: &dyn Subject) {
    let root = subject.root();
    root.dir(&n("a"), Follow::No, Missing::Create { mode: 0o500 }).expect("created");
    root.make(&n("b"), &Node::Directory { mode: 0o500 }).expect("created");
    for name in ["a", "b"] {
        assert_eq!(stat(&*root, name).mode & 0o777, 0o500);
    }
}

/// Runs `act` in four threads at once, and returns the number of them in which it succeeded.
fn successes(act: impl Fn(usize) -> bool + Sync) -> usize {
    let begin = Barrier::new(4);
    std::thread::scope(|scope| {
        let (begin, act) = (&begin, &act);
        let threads = [0, 1, 2, 3].map(|number| {
            scope.spawn(move || {
                begin.wait();
                act(number)
            })
        });
        threads.into_iter().map(|thread| thread.join().expect("no panic")).filter(|is| *is).count()
    })
}

fn threads_that_create_one_directory_all_open_it(subject: &dyn Subject) {
    let root = subject.root();
    for round in 0..20 {
        let name = n(&format!("{round}"));
        let missing = Missing::Create { mode: 0o700 };
        let opened = successes(|thread| {
            let dir = root.dir(&name, Follow::No, missing).expect("created or opened");
            dir.sink(&n(&format!("{thread}")), Create::New { mode: 0o600 }).is_ok()
        });
        assert_eq!(opened, 4);
        assert_eq!(listed(&*opened_dir(&*root, &format!("{round}"))), ["0", "1", "2", "3"]);
    }
}

fn one_of_several_threads_creates_a_file(subject: &dyn Subject) {
    let root = subject.root();
    for round in 0..20 {
        let name = n(&format!("{round}"));
        assert_eq!(successes(|_| root.sink(&name, Create::New { mode: 0o600 }).is_ok()), 1);
        let create = Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow: Follow::No };
        let other = n(&format!("{round}-in-place"));
        assert_eq!(successes(|_| root.sink(&other, create).expect("opened").is_new()), 1);
    }
}

fn one_of_several_threads_renames_an_entry(subject: &dyn Subject) {
    let root = subject.root();
    for _ in 0..20 {
        write(&*root, "f", b"bytes");
        let renamed =
            |thread| root.rename(&n("f"), &*root, &n(&format!("to-{thread}")), Replace::Yes).is_ok();
        assert_eq!(successes(renamed), 1);
        let left = listed(&*root);
        assert_eq!(left.len(), 1);
        root.remove(&n(&left[0]), Remove::File).expect("removed");
    }
}

fn open_directory_stays_the_same_when_it_is_renamed(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    root.rename(&n("d"), &*root, &n("e"), Replace::Yes).expect("renamed");
    write(&*dir, "inner", b"");
    assert_eq!(listed(&*opened_dir(&*root, "e")), ["inner"]);
}

fn open_directory_stays_the_same_when_its_name_is_replaced(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    root.rename(&n("d"), &*root, &n("e"), Replace::Yes).expect("renamed");
    mkdir(&*root, "d");
    write(&*dir, "inner", b"");
    assert_eq!(listed(&*opened_dir(&*root, "d")), [""; 0]);
    assert_eq!(listed(&*opened_dir(&*root, "e")), ["inner"]);
}

fn nothing_is_created_in_a_removed_directory(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    root.remove(&n("d"), Remove::Directory).expect("removed");
    fails(dir.sink(&n("f"), Create::New { mode: 0o600 }), ErrorKind::NotFound);
    fails(dir.make(&n("f"), &Node::Directory { mode: 0o700 }), ErrorKind::NotFound);
    fails(dir.stat_at(&n("f"), Follow::No), ErrorKind::NotFound);
}

fn tree_deeper_than_a_path_is_reached_and_removed(subject: &dyn Subject) {
    let root = subject.root();
    let name = Name::new("d".repeat(200)).expect("a name");
    let missing = Missing::Create { mode: 0o700 };
    let mut chain = vec![Arc::clone(&root)];
    for level in 0..50 {
        let next = chain[level].dir(&name, Follow::No, missing).expect("created");
        chain.push(next);
    }
    write(&**chain.last().expect("the last"), "f", b"deep");
    let mut at = root;
    for _ in 0..50 {
        at = at.dir(&name, Follow::No, Missing::Fail).expect("opened");
    }
    assert_eq!(read(&*at, "f"), b"deep");
    at.remove(&n("f"), Remove::File).expect("removed");
    chain.pop();
    for dir in chain.into_iter().rev() {
        dir.remove(&name, Remove::Directory).expect("removed");
    }
}

fn source_of_a_missing_name_is_not_found(subject: &dyn Subject) {
    fails(subject.root().source(&n("none"), Follow::No), ErrorKind::NotFound);
}

fn source_is_a_regular_file(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, "d");
    fails(root.source(&n("d"), Follow::No), ErrorKind::InvalidInput);
}

fn source_that_is_a_pipe_does_not_block(subject: &dyn Subject) {
    let root = subject.root();
    fifo(&*root, "p");
    fails(root.source(&n("p"), Follow::No), ErrorKind::InvalidInput);
    root.make(&n("s"), &Node::Special { kind: FileKind::Socket, mode: 0o600, rdev: 0 }).expect("made");
    root.source(&n("s"), Follow::No).expect_err("not a regular file");
}

fn source_follows_a_link_only_on_request(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    symlink(&*root, "l", "f");
    fails_with(root.source(&n("l"), Follow::No), ELOOP);
    assert_eq!(read_all(&*root.source(&n("l"), Follow::Yes).expect("followed")), b"bytes");
}

fn held_entry_of_each_kind_is_the_entry_itself(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    mkdir(&*root, "d");
    symlink(&*root, "l", "f");
    fifo(&*root, "p");
    for name in ["f", "d", "l", "p"] {
        let held = hold(&*root, name).stat().expect("found");
        assert_eq!((held.kind, held.ino), (stat(&*root, name).kind, stat(&*root, name).ino), "{name}");
    }
}

fn held_entry_stays_the_same_when_its_name_leads_elsewhere(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    write(&*root, "g", b"others");
    let held = hold(&*root, "f");
    root.rename(&n("g"), &*root, &n("f"), Replace::Yes).expect("renamed");
    let found = held.stat().expect("found");
    assert_eq!((found.size, found.nlink), (5, 0));
    held.set_mode(0o400).expect("set on the held inode");
    assert_eq!(stat(&*root, "f").mode & 0o777, 0o600);
}

fn holding_a_missing_name_fails(subject: &dyn Subject) {
    fails(subject.root().hold(&n("none")), ErrorKind::NotFound);
}

fn made_entry_is_held(subject: &dyn Subject) {
    let root = subject.root();
    let nodes = [
        ("d", Node::Directory { mode: 0o700 }),
        ("l", Node::Link { target: b"some/target" }),
        ("p", Node::Special { kind: FileKind::Fifo, mode: 0o600, rdev: 0 }),
        ("s", Node::Special { kind: FileKind::Socket, mode: 0o600, rdev: 0 }),
    ];
    for (name, node) in nodes {
        root.make(&n(name), &node).expect("made");
        let held = root.hold_made(&n(name), &node).expect("it is the made one");
        assert_eq!(held.stat().expect("found").ino, stat(&*root, name).ino);
    }
}

fn made_device_is_held(subject: &dyn Subject) {
    let root = subject.root();
    let node = Node::Special { kind: FileKind::CharDevice, mode: 0o600, rdev: 0x103 };
    root.make(&n("c"), &node).expect("made");
    root.hold_made(&n("c"), &node).expect("it is the made one");
    let other = Node::Special { kind: FileKind::CharDevice, mode: 0o600, rdev: 0x104 };
    fails(root.hold_made(&n("c"), &other), ErrorKind::Other);
}

fn entry_that_replaced_a_made_one_is_not_held(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    mkdir(&*root, "d");
    symlink(&*root, "l", "elsewhere");
    fifo(&*root, "p");
    let nodes = [
        ("d", Node::Directory { mode: 0o700 }),
        ("", Node::Link { target: b"target" }),
        ("p", Node::Special { kind: FileKind::Fifo, mode: 0o600, rdev: 0 }),
        ("", Node::Special { kind: FileKind::Socket, mode: 0o600, rdev: 0 }),
    ];
    for (own, node) in nodes {
        for name in ["f", "d", "l", "p"].into_iter().filter(|name| *name != own) {
            fails(root.hold_made(&n(name), &node), ErrorKind::Other);
        }
        fails(root.hold_made(&n("none"), &node), ErrorKind::NotFound);
    }
}

fn link_with_a_second_name_is_not_the_made_one(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "l", "target");
    root.link(&n("l"), Follow::No, &*root, &n("m")).expect("linked");
    fails(root.hold_made(&n("m"), &Node::Link { target: b"target" }), ErrorKind::Other);
}

fn path(path: &str) -> RelPath {
    RelPath::new(path.as_bytes()).expect("a path")
}

fn directory_is_reached_by_its_path(subject: &dyn Subject) {
    let root = subject.root();
    write(&*mkdir(&*mkdir(&*mkdir(&*root, "a"), "b"), "c"), "f", b"deep");
    for links in [Follow::No, Follow::Yes] {
        let dir = root.beneath(&path("a/b/c"), links).expect("reached");
        assert_eq!(read(&*dir, "f"), b"deep");
        assert_eq!(listed(&*root.beneath(&path("a"), links).expect("reached")), ["b"]);
        fails(root.beneath(&path("a/none/c"), links), ErrorKind::NotFound);
    }
}

fn path_beneath_through_a_file_fails(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    for links in [Follow::No, Follow::Yes] {
        fails(root.beneath(&path("f"), links), ErrorKind::NotADirectory);
        fails(root.beneath(&path("f/d"), links), ErrorKind::NotADirectory);
    }
    fails(root.source_beneath(&path("f/d")), ErrorKind::NotADirectory);
}

fn link_in_a_path_beneath_is_not_followed_unless_asked(subject: &dyn Subject) {
    let root = subject.root();
    write(&*mkdir(&*mkdir(&*root, "a"), "b"), "f", b"bytes");
    symlink(&*root, "l", "a");
    symlink(&*opened_dir(&*root, "a"), "m", "../a/b");
    for path in [path("l"), path("l/b"), path("a/m")] {
        root.beneath(&path, Follow::No).expect_err("a link");
        // A storage that cannot check where links lead follows none.
        if let Ok(dir) = root.beneath(&path, Follow::Yes) {
            assert!(["b", "f", "m"].contains(&listed(&*dir)[0].as_str()));
        }
    }
}

fn link_in_a_path_beneath_never_leads_out(subject: &dyn Subject) {
    let root = subject.root();
    let inner = mkdir(&*root, "inner");
    write(&*mkdir(&*root, "outer"), "f", b"bytes");
    write(&*root, "g", b"bytes");
    symlink(&*inner, "out", "../outer");
    symlink(&*inner, "root", "/");
    symlink(&*inner, "file", "../g");
    for name in ["out", "root"] {
        for links in [Follow::No, Follow::Yes] {
            inner.beneath(&path(name), links).expect_err("it leads out");
        }
    }
    inner.source_beneath(&path("out/f")).expect_err("it leads out");
    inner.source_beneath(&path("file")).expect_err("it leads out");
}

fn source_is_reached_by_its_path(subject: &dyn Subject) {
    let root = subject.root();
    write(&*mkdir(&*mkdir(&*root, "a"), "b"), "f", b"deep");
    write(&*root, "g", b"flat");
    assert_eq!(read_all(&*root.source_beneath(&path("a/b/f")).expect("opened")), b"deep");
    assert_eq!(read_all(&*root.source_beneath(&path("g")).expect("opened")), b"flat");
    fails(root.source_beneath(&path("a/none")), ErrorKind::NotFound);
    fails(root.source_beneath(&path("a/b")), ErrorKind::InvalidInput);
}

fn device_is_the_same_for_all_inodes(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let dir = mkdir(&*root, "d");
    for device in [dir.device(), open(&*root, "f").device(), in_place(&*root, "f").device()] {
        assert_eq!(device, root.device());
    }
}

fn free_space_is_known(subject: &dyn Subject) {
    let space = subject.root().space().expect("known");
    assert!(space.free.is_some_and(|free| free > 0));
}
