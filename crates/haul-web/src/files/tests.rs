//! Tests of listings, changes and downloads beneath a root, on the local file system and in memory.

mod faults;

use super::copies::check;
use super::descriptors::ensure_same;
use super::*;
use haul_storage::memory::MemoryStorage;
use haul_storage::{Create, FileKind, Follow, Missing, Node};
use std::fs;
use std::future::Future as _;

/// A root with a secret beside it.
struct World {
    /// Directory of the root and of the secret.
    home: Arc<dyn Dir>,
    root: Arc<dyn Dir>,
}

fn path(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).expect("a path")
}

fn n(name: impl Into<Vec<u8>>) -> Name {
    Name::new(name).expect("a name")
}

impl World {
    fn plant(home: Arc<dyn Dir>) -> World {
        make_dirs(&home, "root/a/b");
        make_dirs(&home, "outside");
        let root = home.beneath(&path("root"), Follow::No).expect("opened");
        let world = World { home, root };
        world.write("root/a/file", b"contents");
        world.write("outside/secret", b"secret");
        world.link("root/out", "../outside");
        world.link("root/in", "a");
        world.link("root/leak", "../outside/secret");
        world
    }

    fn in_memory() -> (MemoryStorage, World) {
        let storage = MemoryStorage::new(7);
        let world = World::plant(storage.root());
        (storage, world)
    }

    /// Returns the directory of a path from the home, and its last name.
    fn at(&self, text: &str) -> (Arc<dyn Dir>, Name) {
        let (above, name) = split(text.as_bytes());
        let above = std::str::from_utf8(above).expect("text");
        (self.home.beneath(&path(above), Follow::No).expect("opened"), n(name))
    }

    fn write(&self, text: &str, bytes: &[u8]) {
        let (dir, name) = self.at(text);
        let how = Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow: Follow::No };
        let file = dir.sink(&name, how).expect("created");
        file.set_len(0).expect("emptied");
        file.write_at(0, bytes).expect("written");
    }

    fn link(&self, text: &str, target: &str) {
        let (dir, name) = self.at(text);
        dir.make(&name, &Node::Link { target: target.as_bytes() }).expect("made");
    }

    fn read(&self, text: &str) -> Vec<u8> {
        let (dir, name) = self.at(text);
        let file = dir.source(&name, Follow::No).expect("opened");
        let mut bytes = vec![0; file.opened().size as usize];
        file.read_at(0, &mut bytes).expect("read");
        bytes
    }

    fn exists(&self, text: &str) -> bool {
        let (above, name) = split(text.as_bytes());
        let above = std::str::from_utf8(above).expect("text");
        let dir = self.home.beneath(&path(above), Follow::No);
        dir.is_ok_and(|dir| dir.stat_at(&n(name), Follow::No).is_ok())
    }
}

/// Makes a directory, and those above it.
fn make_dirs(from: &Arc<dyn Dir>, text: &str) {
    let missing = Missing::Create { mode: 0o755 };
    let mut dir = Arc::clone(from);
    for part in path(text).parts() {
        dir = dir.dir(&n(part), Follow::No, missing).expect("made");
    }
}

/// Calls `test` with a world on the local file system, and with one in memory.
fn on_each_storage(test: fn(&World)) {
    let folder = tempfile::tempdir().expect("a folder");
    test(&World::plant(local::open(folder.path(), Follow::Yes).expect("opened")));
    test(&World::in_memory().1);
}

fn names(root: &Arc<dyn Dir>, path: &[u8], after: &[u8], max: usize) -> (Vec<Vec<u8>>, bool) {
    let listing = list(root, path, after, max).expect("listed");
    (listing.entries.into_iter().map(|(name, _)| name.as_bytes().to_vec()).collect(), listing.has_more)
}

/// Paths that lead out of the root, or are not paths beneath it.
const TRICKS: [&[u8]; 9] = [
    b"..",
    b"../outside",
    b"/etc",
    b"a/../../outside",
    b"out/secret",
    b"out/../..",
    b"a\0b",
    b"a//../..",
    b"out/x",
];

#[test]
fn no_path_leads_out_of_the_root() {
    on_each_storage(|world| {
        let root = &world.root;
        for path in TRICKS {
            let shown = String::from_utf8_lossy(path);
            assert!(list(root, path, b"", 10).is_err(), "list {shown}");
            assert!(open_file(root, path).is_err(), "open {shown}");
            assert!(create_folder(root, path).is_err(), "create {shown}");
            assert!(delete(root, path, true).is_err(), "delete {shown}");
            assert!(rename(root, path, b"new", true).is_err(), "rename from {shown}");
            assert!(rename(root, b"a/file", path, true).is_err(), "rename to {shown}");
        }
        // Links are entries: they are listed, renamed and deleted themselves, and never followed.
        assert!(list(root, b"out", b"", 10).is_err() && list(root, b"in", b"", 10).is_err());
        assert!(open_file(root, b"leak").is_err());
        delete(root, b"out", true).expect("the link itself");
        delete(root, b"leak", true).expect("the link itself");
        assert_eq!(world.read("outside/secret"), b"secret", "untouched");
        for root_itself in [&b""[..], b".", b"/"] {
            assert!(delete(root, root_itself, true).is_err());
            assert!(rename(root, root_itself, b"x", true).is_err());
        }
    });
}

/// The engine resolves what it gets by a descriptor, which no link may lead to.
#[test]
fn no_descriptor_of_the_engine_leads_out_of_the_root() {
    let home = tempfile::tempdir().expect("a folder");
    World::plant(local::open(home.path(), Follow::Yes).expect("opened"));
    let root = OpenRoot::open(home.path().join("root").as_os_str()).expect("opened");
    for path in TRICKS.into_iter().chain([&b"out"[..], b"in"]) {
        let shown = String::from_utf8_lossy(path);
        assert!(open_directory(&root, path).is_err(), "directory {shown}");
        assert!(open_waybill(&root, path).is_err(), "waybill {shown}");
        assert!(ancestors(&root, path).is_err(), "ancestors of {shown}");
        assert!(open_for_copy(&root, path, &[n("file")], &[]).is_err(), "copy from {shown}");
    }
    let ino = |fd: OwnedFd| haul_sys::stat::stat_fd(&fd).expect("examined").ino;
    let of = |name: &str| {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(home.path().join(name)).expect("there").ino()
    };
    assert_eq!(ino(open_directory(&root, b"").expect("opened")), of("root"));
    assert_eq!(ino(open_directory(&root, b"a/b").expect("opened")), of("root/a/b"));
    assert_eq!(ino(open_waybill(&root, b"a/file").expect("opened")), of("root/a/file"));
    assert_eq!(ino(open_for_copy(&root, b"a", &[n("file")], &[]).expect("opened")), of("root/a"));
    assert!(matches!(open_for_copy(&root, b"a", &[], &[]), Err(FileError::Name(_))), "no entry");
    let above = ancestors(&root, b"a").expect("found");
    assert_eq!(above.iter().take(3).map(|found| found.1).collect::<Vec<_>>(), ["root/a", "root", ""].map(of));
}

#[test]
fn descriptor_of_another_inode_than_the_examined_one_is_refused() {
    let home = tempfile::tempdir().expect("a folder");
    let world = World::plant(local::open(home.path(), Follow::Yes).expect("opened"));
    let root = OpenRoot::open(home.path().join("root").as_os_str()).expect("opened");
    let opened = open_directory(&root, b"a").expect("opened");
    let same = |dir: &str| {
        let examined = world.home.beneath(&path(dir), Follow::No).expect("opened").stat();
        ensure_same(&opened, examined, "open the directory")
    };
    same("root/a").expect("the same");
    assert!(matches!(same("root/a/b"), Err(FileError::Kind(_))));
    let failed = ensure_same(&opened, Err(io::ErrorKind::NotFound.into()), "open the directory");
    assert!(matches!(failed, Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound));
}

#[test]
fn listings_are_sorted_pages_without_own_files() {
    on_each_storage(|world| {
        make_dirs(&world.root, "many");
        for number in 0..25 {
            world.write(&format!("root/many/{number:02}"), b"");
        }
        world.write("root/many/.haul-1-2", b"");
        let many = world.root.beneath(&path("many"), Follow::No).expect("opened");
        many.sink(&n(b"\xff\n<b>"), Create::New { mode: 0o600 }).expect("created");
        let (mut all, mut after, mut pages) = (Vec::new(), Vec::new(), 0);
        loop {
            let (page, has_more) = names(&world.root, b"many", &after, 10);
            pages += 1;
            after = page.last().cloned().unwrap_or_default();
            all.extend(page);
            if !has_more {
                break;
            }
        }
        assert_eq!((all.len(), pages), (26, 3));
        assert!(all.is_sorted() && all[0] == b"00" && all[25] == b"\xff\n<b>");
        let listing = list(&world.root, b"", b"", 10).expect("listed");
        let kinds: Vec<_> = listing.entries.iter().map(|(_, facts)| facts.map(|facts| facts.kind)).collect();
        let (dir, link) = (Some(FileKind::Directory), Some(FileKind::Symlink));
        assert_eq!(kinds, [dir, link, link, dir, link]);
        assert!(list(&world.root, b"a/file", b"", 10).is_err());
        assert!(list(&world.root, b"none", b"", 10).is_err());
    });
}

#[test]
fn directories_are_created_renamed_and_deleted() {
    on_each_storage(|world| {
        let root = &world.root;
        create_folder(root, b"new").expect("created");
        assert!(create_folder(root, b"new").is_err(), "it exists");
        assert!(create_folder(root, b"none/new").is_err(), "its parent is missing");
        for reserved in [&b".haul-x"[..], b"a/.HAUL-x/y", b".haul", b".Haul/sums/a", b"a/.haul/sums/b"] {
            assert!(matches!(create_folder(root, reserved), Err(FileError::Name(_))));
            assert!(matches!(rename(root, b"a", reserved, false), Err(FileError::Name(_))));
            assert!(matches!(delete(root, reserved, true), Err(FileError::Name(_))));
        }
        rename(root, b"a/file", b"new/moved", false).expect("renamed");
        assert_eq!(world.read("root/new/moved"), b"contents");
        world.write("root/other", b"other");
        assert!(rename(root, b"other", b"new/moved", false).is_err(), "it exists");
        assert_eq!(world.read("root/new/moved"), b"contents", "kept");
        rename(root, b"other", b"new/moved", true).expect("replaced");
        assert_eq!(world.read("root/new/moved"), b"other");
        let inside = rename(root, b"new", b"new/inner", false).expect_err("into itself").to_string();
        assert!(inside.contains("into itself"), "{inside}");
        assert!(delete(root, b"new", false).is_err(), "it is not empty");
        delete(root, b"new", true).expect("deleted");
        delete(root, b"a/b", false).expect("it is empty");
        assert!(!world.exists("root/new") && !world.exists("root/a/b"));
    });
}

#[test]
fn another_name_of_one_file_goes_when_it_is_renamed_to_the_first() {
    on_each_storage(|world| {
        let (a, file) = world.at("root/a/file");
        a.link(&file, Follow::No, &*a, &n("second")).expect("linked");
        a.link(&file, Follow::No, &*world.root, &n("third")).expect("linked");
        rename(&world.root, b"a/second", b"a/file", true).expect("renamed");
        rename(&world.root, b"third", b"a/file", true).expect("renamed");
        assert!(!world.exists("root/a/second") && !world.exists("root/third"));
        rename(&world.root, b"a/file", b"a/file", true).expect("renamed to itself");
        assert_eq!(world.read("root/a/file"), b"contents");
    });
}

#[test]
fn trees_are_deleted_whole_and_links_in_them_are_not_followed() {
    on_each_storage(|world| {
        let deepest = format!("tree{}", "/d".repeat(60));
        make_dirs(&world.root, &deepest);
        for number in 0..600 {
            world.write(&format!("root/tree/f{number}"), b"");
        }
        world.link(&format!("root/{deepest}/link"), "/outside");
        world.link(&format!("root/{deepest}/up"), "../..");
        delete(&world.root, b"tree", true).expect("deleted");
        assert!(!world.exists("root/tree") && world.exists("outside/secret"));
        make_dirs(&world.root, &format!("tree{}", "/d".repeat(300)));
        let refused = delete(&world.root, b"tree", true).expect_err("too deep").to_string();
        assert!(refused.contains("256 levels"), "{refused}");
    });
}

#[test]
fn only_regular_files_are_opened() {
    on_each_storage(|world| {
        let root = &world.root;
        let opened = open_file(root, b"a/file").expect("opened");
        let mut bytes = [0; 8];
        opened.read_exact_at(0, &mut bytes).expect("read");
        assert_eq!((opened.size(), &bytes), (8, b"contents"));
        let behind = opened.read_exact_at(4, &mut bytes).expect_err("too short");
        assert_eq!(behind.kind(), io::ErrorKind::UnexpectedEof);
        let pipe = Node::Special { kind: FileKind::Fifo, mode: 0o600, rdev: 0 };
        root.make(&n("pipe"), &pipe).expect("made");
        for (path, why) in [
            (&b"pipe"[..], "not a regular file"),
            (b"a", "not a regular file"),
            (b"leak", "not a regular file"),
            (b"none", "No such file"),
        ] {
            let error = open_file(root, path).expect_err("refused").to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(open_file(root, b"in/file").is_err(), "through a link");
    });
}

#[test]
fn refusal_of_a_path_with_a_link_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::plant(local::open(folder.path(), Follow::Yes).expect("opened"));
    let link = open_file(&world.root, b"in/file").expect_err("through a link").to_string();
    assert!(link.contains("symbolic link"), "{link}");
}

#[test]
fn opened_file_has_another_tag_and_fails_its_check_once_it_changes() {
    on_each_storage(|world| {
        let open = || open_file(&world.root, b"a/file").expect("opened");
        let (first, second) = (open(), open());
        assert_eq!(first.tag(), second.tag());
        first.check().expect("unchanged");
        world.write("root/a/file", b"changed!");
        let (a, file) = world.at("root/a/file");
        let times = haul_storage::Times {
            atime: None,
            mtime: Some(a.stat_at(&file, Follow::No).expect("there").mtime),
        };
        a.hold(&file).expect("held").set_times(times).expect("set");
        assert!(first.check().is_err());
        assert_ne!(first.tag(), open().tag());
    });
}

/// The response states a length before it reads the bytes.
#[test]
fn file_that_reports_another_length_is_opened_with_all_of_its_bytes() {
    let root = OpenRoot::open("/proc".as_ref()).expect("opened");
    for name in ["version", "filesystems"] {
        let expected = fs::read(format!("/proc/{name}")).expect("read");
        let opened = open_file(&root.dir, name.as_bytes()).expect("opened");
        let mut bytes = vec![0; opened.size() as usize];
        opened.read_exact_at(0, &mut bytes).expect("read");
        assert_eq!((opened.size(), &bytes), (expected.len() as u64, &expected), "{name}");
        let tail = &mut [0; 3];
        opened.read_exact_at(opened.size() - 3, tail).expect("read");
        assert_eq!(tail[..], expected[expected.len() - 3..]);
        assert!(opened.read_exact_at(opened.size() - 2, tail).is_err());
        opened.check().expect("held bytes do not change");
        let mut waybill: fs::File = open_waybill(&root, name.as_bytes()).expect("opened").into();
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut waybill, &mut bytes).expect("read");
        assert_eq!(
            (bytes.len(), waybill.metadata().expect("examined").len() as usize),
            (expected.len(), expected.len())
        );
    }
    let tags = ["version", "filesystems", "version"]
        .map(|name| open_file(&root.dir, name.as_bytes()).expect("opened").tag());
    assert!(tags[0] == tags[2] && tags[0] != tags[1], "{tags:?}");
}

#[test]
fn copies_into_themselves_and_of_devices_are_refused() {
    on_each_storage(|world| {
        let dir = |text: &str| world.home.beneath(&path(text), Follow::No).expect("opened");
        let id = |text: &str| dir(text).stat().expect("examined").identity();
        let (a, inner) = (dir("root/a"), [id("root/a/b"), id("root/a"), id("root")]);
        check(&*a, &[n("file")], &inner).expect("permitted");
        check(&*world.root, &[n("out"), n("leak")], &inner).expect("links are copied");
        let refused =
            |dir: &dyn Dir, names: &[Name], target: &[_]| check(dir, names, target).expect_err("refused");
        assert!(matches!(refused(&*a, &[n("b")], &inner), FileError::Kind(why) if why.contains("itself")));
        assert!(
            matches!(refused(&*world.root, &[n("a")], &inner), FileError::Kind(why) if why.contains("itself"))
        );
        assert!(
            matches!(refused(&*a, &[n("file")], &inner[1..]), FileError::Kind(why) if why.contains("own directory"))
        );
        let pipe = Node::Special { kind: FileKind::Fifo, mode: 0o600, rdev: 0 };
        a.make(&n("pipe"), &pipe).expect("made");
        assert!(
            matches!(refused(&*a, &[n("file"), n("pipe")], &inner), FileError::Kind(why) if why.contains("pipe"))
        );
    });
}

#[test]
fn work_is_done_on_confined_threads_and_its_queue_is_limited() {
    let home = tempfile::tempdir().expect("a folder");
    World::plant(local::open(home.path(), Follow::Yes).expect("opened"));
    let confined = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = confined.clone();
    let root = WebRoot {
        name: "root".into(),
        path: home.path().join("root").into(),
        role: Role::Both,
        ticket: TicketId([0; 8]),
        quota: None,
        expires: None,
        confine: Arc::new(move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let threads = RootThreads::new(root.clone());
    let listed = runtime.block_on(threads.run(|root| list(&root.dir, b"", b"", 10)));
    assert_eq!(listed.expect("listed").entries.len(), 4);
    let (release, wait) = crossbeam_channel::bounded::<()>(0);
    runtime.block_on(async {
        let block = |wait: crossbeam_channel::Receiver<()>| {
            threads.run(move |_| {
                let _ = wait.recv();
                Ok(())
            })
        };
        let mut waiting: Vec<_> = Vec::new();
        let refused = loop {
            let mut run = Box::pin(block(wait.clone()));
            let polled =
                std::future::poll_fn(|context| std::task::Poll::Ready(run.as_mut().poll(context))).await;
            match polled {
                std::task::Poll::Pending => waiting.push(run),
                std::task::Poll::Ready(result) => break result,
            }
            assert!(waiting.len() <= THREADS_PER_ROOT + QUEUE_LEN);
        };
        assert!(matches!(refused, Err(FileError::Busy)));
        drop(release);
        for run in waiting {
            run.await.expect("done");
        }
    });
    // The last thread may start after the others have done all of the work.
    let all_started = || confined.load(std::sync::atomic::Ordering::Relaxed) == THREADS_PER_ROOT;
    haul_lab::wait_until("the start of all threads", all_started);
    let failing = WebRoot { confine: Arc::new(|| Err("no sandbox".into())), ..root };
    let threads = RootThreads::new(failing);
    let refused = runtime.block_on(threads.run(|root| list(&root.dir, b"", b"", 10)));
    assert!(matches!(refused, Err(FileError::Unavailable(why)) if why == "no sandbox"));
}
