//! Tests of listings, changes and downloads beneath a root.

use super::*;
use haul_sys::FileKind;
use std::fs;
use std::future::Future as _;
use std::io::{Read as _, Seek as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// A root with a secret beside it.
fn world() -> (TempDir, OwnedFd) {
    let home = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(home.path().join("root/a/b")).expect("made");
    fs::write(home.path().join("root/a/file"), "contents").expect("written");
    fs::create_dir(home.path().join("outside")).expect("made");
    fs::write(home.path().join("outside/secret"), "secret").expect("written");
    symlink("../outside", home.path().join("root/out")).expect("made");
    symlink("a", home.path().join("root/in")).expect("made");
    symlink("../outside/secret", home.path().join("root/leak")).expect("made");
    let root = open_root(home.path().join("root").as_os_str()).expect("opened");
    (home, root)
}

fn names(root: &OwnedFd, path: &[u8], after: &[u8], max: usize) -> (Vec<Vec<u8>>, bool) {
    let listing = list(root, path, after, max).expect("listed");
    (listing.entries.into_iter().map(|(name, _)| name.into_bytes()).collect(), listing.has_more)
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
    let (home, root) = world();
    for path in TRICKS {
        let shown = String::from_utf8_lossy(path);
        assert!(list(&root, path, b"", 10).is_err(), "list {shown}");
        assert!(open_file(&root, path).is_err(), "open {shown}");
        assert!(create_folder(&root, path).is_err(), "create {shown}");
        assert!(delete(&root, path, true).is_err(), "delete {shown}");
        assert!(rename(&root, path, b"new", true).is_err(), "rename from {shown}");
        assert!(rename(&root, b"a/file", path, true).is_err(), "rename to {shown}");
    }
    // Links are entries: they are listed, renamed and deleted themselves, and never followed.
    assert!(list(&root, b"out", b"", 10).is_err() && list(&root, b"in", b"", 10).is_err());
    assert!(open_file(&root, b"leak").is_err());
    delete(&root, b"out", true).expect("the link itself");
    delete(&root, b"leak", true).expect("the link itself");
    assert_eq!(fs::read_to_string(home.path().join("outside/secret")).expect("untouched"), "secret");
    for root_itself in [&b""[..], b".", b"/"] {
        assert!(delete(&root, root_itself, true).is_err());
        assert!(rename(&root, root_itself, b"x", true).is_err());
    }
}

#[test]
fn listings_are_sorted_pages_without_own_files() {
    let (home, root) = world();
    let many = home.path().join("root/many");
    fs::create_dir(&many).expect("made");
    for number in 0..25 {
        fs::write(many.join(format!("{number:02}")), "").expect("written");
    }
    fs::write(many.join(".haul-1-2"), "").expect("written");
    let odd = OsString::from_vec(b"\xff\n<b>".to_vec());
    fs::write(many.join(odd), "").expect("written");
    let (mut all, mut after, mut pages) = (Vec::new(), Vec::new(), 0);
    loop {
        let (page, has_more) = names(&root, b"many", &after, 10);
        pages += 1;
        after = page.last().cloned().unwrap_or_default();
        all.extend(page);
        if !has_more {
            break;
        }
    }
    assert_eq!((all.len(), pages), (26, 3));
    assert!(all.is_sorted() && all[0] == b"00" && all[25] == b"\xff\n<b>");
    let listing = list(&root, b"", b"", 10).expect("listed");
    let kinds: Vec<_> = listing.entries.iter().map(|(_, facts)| facts.map(|facts| facts.kind)).collect();
    let (dir, link) = (Some(FileKind::Directory), Some(FileKind::Symlink));
    assert_eq!(kinds, [dir, link, link, dir, link]);
    assert!(list(&root, b"a/file", b"", 10).is_err() && list(&root, b"none", b"", 10).is_err());
}

#[test]
fn directories_are_created_renamed_and_deleted() {
    let (home, root) = world();
    let path = |name: &str| home.path().join("root").join(name);
    create_folder(&root, b"new").expect("created");
    assert!(create_folder(&root, b"new").is_err(), "it exists");
    assert!(create_folder(&root, b"none/new").is_err(), "its parent is missing");
    for reserved in [&b".haul-x"[..], b"a/.HAUL-x/y", b".haul", b".Haul/sums/a", b"a/.haul/sums/b"] {
        assert!(matches!(create_folder(&root, reserved), Err(FileError::Name(_))));
        assert!(matches!(rename(&root, b"a", reserved, false), Err(FileError::Name(_))));
        assert!(matches!(delete(&root, reserved, true), Err(FileError::Name(_))));
    }
    rename(&root, b"a/file", b"new/moved", false).expect("renamed");
    assert_eq!(fs::read_to_string(path("new/moved")).expect("there"), "contents");
    fs::write(path("other"), "other").expect("written");
    assert!(rename(&root, b"other", b"new/moved", false).is_err(), "it exists");
    assert_eq!(fs::read_to_string(path("new/moved")).expect("kept"), "contents");
    rename(&root, b"other", b"new/moved", true).expect("replaced");
    assert_eq!(fs::read_to_string(path("new/moved")).expect("there"), "other");
    let inside = rename(&root, b"new", b"new/inner", false).expect_err("into itself").to_string();
    assert!(inside.contains("into itself"), "{inside}");
    assert!(delete(&root, b"new", false).is_err(), "it is not empty");
    delete(&root, b"new", true).expect("deleted");
    delete(&root, b"a/b", false).expect("it is empty");
    assert!(!path("new").exists() && !path("a/b").exists());
}

#[test]
fn trees_are_deleted_whole_and_links_in_them_are_not_followed() {
    let (home, root) = world();
    let tree = home.path().join("root/tree");
    let deepest = (0..60).fold(tree.clone(), |above, level| above.join(level.to_string()));
    fs::create_dir_all(&deepest).expect("made");
    for number in 0..600 {
        fs::write(tree.join(format!("f{number}")), "").expect("written");
    }
    symlink(home.path().join("outside"), deepest.join("link")).expect("made");
    delete(&root, b"tree", true).expect("deleted");
    assert!(!tree.exists() && home.path().join("outside/secret").exists());
    let too_deep = (0..300).fold(tree.clone(), |above, _| above.join("d"));
    fs::create_dir_all(&too_deep).expect("made");
    let refused = delete(&root, b"tree", true).expect_err("too deep").to_string();
    assert!(refused.contains("256 levels"), "{refused}");
}

#[test]
fn only_regular_files_are_opened() {
    let (home, root) = world();
    let opened = open_file(&root, b"a/file").expect("opened");
    assert_eq!(opened.facts.size, 8);
    haul_sys::open::mknod_at(haul_sys::CWD, home.path().join("root/pipe"), FileKind::Fifo, 0o600, 0)
        .expect("made");
    for (path, why) in
        [(&b"pipe"[..], "not a regular file"), (b"a", "not a regular file"), (b"none", "No such file")]
    {
        let error = open_file(&root, path).expect_err("refused").to_string();
        assert!(error.contains(why), "{error}");
    }
    let link = open_file(&root, b"in/file").expect_err("through a link").to_string();
    assert!(link.contains("symbolic link"), "{link}");
}

/// The response states a length before it reads the bytes.
#[test]
fn file_that_reports_another_length_is_opened_with_all_of_its_bytes() {
    let root = open_root("/proc".as_ref()).expect("opened");
    for name in ["version", "filesystems"] {
        let expected = fs::read(format!("/proc/{name}")).expect("read");
        let mut opened = open_file(&root, name.as_bytes()).expect("opened");
        let mut bytes = Vec::new();
        opened.file.rewind().expect("a file");
        opened.file.read_to_end(&mut bytes).expect("read");
        assert_eq!((opened.facts.size, bytes), (expected.len() as u64, expected), "{name}");
    }
}

#[test]
fn work_is_done_on_confined_threads_and_its_queue_is_limited() {
    let (home, _root) = world();
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
    let listed = runtime.block_on(threads.run(|root| list(root, b"", b"", 10)));
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
    let refused = runtime.block_on(threads.run(|root| list(root, b"", b"", 10)));
    assert!(matches!(refused, Err(FileError::Unavailable(why)) if why == "no sandbox"));
}
