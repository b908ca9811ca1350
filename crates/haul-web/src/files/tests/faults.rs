//! Each function with a fault of the storage at each of its calls.

use super::*;
use crate::answer::Reply;
use crate::attachment;
use haul_storage::memory::Call;
use http_body_util::BodyExt as _;
use hyper::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;

const EPERM: i32 = 1;
const EIO: i32 = 5;

/// A function under test, with the contents that it must not lose.
struct Case {
    what: &'static str,
    run: fn(&Arc<dyn Dir>) -> Result<(), FileError>,
    /// Names of which at least one has the bytes "contents" afterwards; empty if they may go.
    keeps: &'static [&'static str],
}

const CASES: [Case; 9] = [
    Case { what: "list", run: listed_whole, keeps: &["root/a/file"] },
    Case { what: "create", run: |root| create_folder(root, b"a/new"), keeps: &["root/a/file"] },
    Case {
        what: "rename",
        run: |root| rename(root, b"a/file", b"tree/moved", false),
        keeps: &["root/a/file", "root/tree/moved"],
    },
    Case {
        what: "replace",
        run: |root| rename(root, b"a/file", b"tree/f1", true),
        keeps: &["root/a/file", "root/tree/f1"],
    },
    Case {
        what: "rename to another name of the file",
        run: |root| rename(root, b"a/file", b"a/second", true),
        keeps: &["root/a/second"],
    },
    Case { what: "delete a file", run: |root| delete(root, b"a/file", false), keeps: &[] },
    Case { what: "delete a tree", run: |root| delete(root, b"tree", true), keeps: &["root/a/file"] },
    Case { what: "open", run: |root| open_file(root, b"a/file").map(drop), keeps: &["root/a/file"] },
    Case {
        what: "check a copy",
        run: |root| {
            let dir = directory(root, b"tree", "open the directory")?;
            check(&*dir, &[n("f1"), n("d")], &[])
        },
        keeps: &["root/a/file"],
    },
];

/// Lists a directory, and fails if an entry has no metadata.
fn listed_whole(root: &Arc<dyn Dir>) -> Result<(), FileError> {
    let listing = list(root, b"tree", b"", 10)?;
    let is_whole = listing.entries.iter().all(|(_, facts)| facts.is_some());
    if is_whole { Ok(()) } else { Err(failed("examine the entry")(io::Error::from_raw_os_error(EIO))) }
}

/// A world in memory with a tree, and with two names of one file.
fn world() -> (MemoryStorage, World) {
    let (storage, world) = World::in_memory();
    make_dirs(&world.root, "tree/d/e");
    for name in ["tree/f1", "tree/f2", "tree/d/f3", "tree/d/e/f4"] {
        world.write(&format!("root/{name}"), b"other");
    }
    let (a, file) = world.at("root/a/file");
    a.link(&file, Follow::No, &*a, &n("second")).expect("linked");
    (storage, world)
}

/// Runs a function and returns the number of its calls of each kind.
fn calls_of(storage: &MemoryStorage, run: impl FnOnce()) -> BTreeMap<Call, u64> {
    let calls: Arc<Mutex<BTreeMap<Call, u64>>> = Arc::default();
    let counted = Arc::clone(&calls);
    storage.observe(move |call, _| *counted.lock().entry(call).or_default() += 1);
    run();
    storage.observe(|_, _| {});
    let calls = calls.lock().clone();
    assert!(!calls.is_empty());
    calls
}

#[test]
fn a_fault_at_any_call_is_reported_and_loses_nothing() {
    for Case { what, run, keeps } in CASES {
        let (storage, planted) = world();
        let calls = calls_of(&storage, || run(&planted.root).expect(what));
        for (call, nth) in calls.into_iter().flat_map(|(call, count)| (1..=count).map(move |nth| (call, nth)))
        {
            let case = format!("{what}, {call:?} {nth}");
            let (storage, world) = world();
            storage.fail(call, nth, EIO);
            match run(&world.root).expect_err(&case) {
                FileError::Io { source, .. } => assert_eq!(source.raw_os_error(), Some(EIO), "{case}"),
                other => panic!("{case}: {other}"),
            }
            let is_kept = |name: &&str| world.exists(name) && world.read(name) == b"contents";
            assert!(keeps.is_empty() || keeps.iter().any(is_kept), "{case}");
            // Again: it works, or it was done before the fault.
            match run(&world.root) {
                Ok(()) => {}
                Err(FileError::Io { source, .. }) => {
                    let done = [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists];
                    assert!(done.contains(&source.kind()), "{case}: {source}");
                }
                Err(other) => panic!("{case}: {other}"),
            }
        }
    }
}

/// Regression: a directory that may not be removed was emptied before its removal failed.
#[test]
fn a_directory_that_may_not_be_removed_is_not_emptied() {
    let (storage, world) = World::in_memory();
    make_dirs(&world.root, "tree/other");
    world.write("root/tree/other/file", b"contents");
    storage.fail(Call::Remove, 1, EPERM);
    let refused = delete(&world.root, b"tree", true).expect_err("refused");
    assert!(matches!(refused, FileError::Io { source, .. } if source.raw_os_error() == Some(EPERM)));
    assert_eq!(world.read("root/tree/other/file"), b"contents");
}

/// Length of the file that is downloaded: three blocks.
const LEN: usize = 600 << 10;

/// Returns a response with the file of a world, and the number of bytes that the connection did not
/// take, once the response has ended.
fn download(root: &Arc<dyn Dir>) -> (Reply, Arc<AtomicU64>) {
    let opened = open_file(root, b"large").expect("opened");
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("free");
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let counted = Arc::clone(&left);
    let on_end = move |_, left| counted.store(left, Ordering::Relaxed);
    (attachment::reply(opened, b"large", &HeaderMap::new(), permit, on_end), left)
}

/// Takes the body of a response. Returns the number of bytes, or `None` if it failed.
async fn body_of(reply: Reply) -> Option<usize> {
    reply.into_body().collect().await.ok().map(|body| body.to_bytes().len())
}

#[test]
fn a_download_that_meets_an_error_ends_as_a_failed_response() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let large = || {
        let (storage, world) = World::in_memory();
        world.write("root/large", &vec![7; LEN]);
        (storage, world)
    };
    runtime.block_on(async {
        let (_, world) = large();
        let (reply, left) = download(&world.root);
        assert_eq!(reply.status(), StatusCode::OK);
        assert_eq!(body_of(reply).await, Some(LEN));
        assert_eq!(left.load(Ordering::Relaxed), 0);
        // The last call compares the file with the opened one.
        for (call, nth, blocks) in
            [(Call::Read, 1, 0), (Call::Read, 2, 1), (Call::Read, 3, 2), (Call::Stat, 1, 2)]
        {
            let (storage, world) = large();
            let (reply, left) = download(&world.root);
            storage.fail(call, nth, EIO);
            assert_eq!(body_of(reply).await, None, "{call:?} {nth}");
            let taken = LEN as u64 - left.load(Ordering::Relaxed);
            assert_eq!(taken, blocks * (256 << 10), "{call:?} {nth}");
        }
        for bytes in [b"short".to_vec(), vec![8; LEN], vec![8; LEN + 1]] {
            let (_, world) = large();
            let (reply, left) = download(&world.root);
            world.write("root/large", &bytes);
            assert_eq!(body_of(reply).await, None, "{} bytes", bytes.len());
            assert!(left.load(Ordering::Relaxed) > 0);
        }
    });
}
