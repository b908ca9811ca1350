//! Tests of names: directories, stat, opening, linking, renaming.

use crate::{errno, opened, places};
use haul_lab::mounts::FsKind;
use haul_lab::needs::{Need, met_or_skip};
use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::open::{self, RenameMode};
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{CWD, FileKind, Follow};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// Returns difficult names: the longest, bytes that are not UTF-8, escapes, a leading dash.
fn odd_names() -> Vec<OsString> {
    vec![
        OsString::from_vec(vec![b'n'; 255]),
        OsString::from_vec(vec![0xff; 255]),
        OsString::from_vec(b"caf\xe9".to_vec()),
        OsString::from_vec(b"line\nbreak\\and\x1b[31mred".to_vec()),
        OsString::from("-rf"),
        OsString::from("..."),
        OsString::from(" "),
    ]
}

#[test]
fn batches_of_any_size_return_every_name_once() {
    for place in places() {
        let mut expected: BTreeSet<OsString> = odd_names().into_iter().collect();
        expected.extend((0..2_500).map(|n| OsString::from(format!("entry number {n}"))));
        for name in &expected {
            fs::write(place.path().join(name), b"").expect("a file is made");
        }
        for max in [1, 7, 128, 5_000] {
            let fd = open_dir_at(CWD, place.path(), Follow::No).expect("the folder opens");
            let mut reader = DirReader::new(fd);
            let mut found = Vec::new();
            let mut before = 0;
            while reader.read_batch(max, &mut found).expect("the folder is read") {
                assert!(found.len() - before <= max, "no batch is larger than asked");
                before = found.len();
            }
            assert_eq!(found.len(), expected.len(), "each name once, in batches of {max}");
            let names: BTreeSet<OsString> = found.iter().map(|entry| entry.name_os().to_owned()).collect();
            assert_eq!(names, expected);
            for entry in found.iter().take(50) {
                let stat = stat_at(&reader, &*entry.name, Follow::No).expect("the entry is there");
                assert_eq!(entry.ino, stat.ino);
                assert!(entry.kind_hint.is_none_or(|kind| kind == FileKind::Regular));
            }
        }
    }
}

#[test]
fn removed_directory_lists_nothing_and_a_file_is_refused() {
    for place in places() {
        let dir = opened(place.path());
        open::mkdir_at(&dir, c"gone", 0o755).expect("made");
        let fd = open_dir_at(&dir, c"gone", Follow::No).expect("opens");
        open::rmdir_at(&dir, c"gone").expect("removed");
        let mut entries = Vec::new();
        assert!(!DirReader::new(fd).read_batch(10, &mut entries).expect("an end, not a failure"));
        assert_eq!(entries, []);

        fs::write(place.path().join("file"), b"x").expect("written");
        let error = open_dir_at(&dir, c"file", Follow::No).expect_err("a file is no directory");
        assert_eq!(errno(&error), Some(Errno::NOTDIR));
        let file = open::open_source_at(&dir, c"file", Follow::No, false).expect("opens");
        let error = DirReader::new(file).read_batch(10, &mut entries).expect_err("a file holds no names");
        assert_eq!(errno(&error), Some(Errno::NOTDIR));
    }
}

#[test]
fn tree_deeper_than_path_max_is_created_read_and_removed() {
    const LEVELS: usize = 40;
    let name = CString::new(vec![b'd'; 200]).expect("no NUL");
    for place in places() {
        let mut dirs = vec![open_dir_at(CWD, place.path(), Follow::No).expect("opens")];
        for _ in 0..LEVELS {
            let parent = dirs.last().expect("never empty");
            open::mkdir_at(parent, &*name, 0o755).expect("made");
            let child = open_dir_at(parent, &*name, Follow::No).expect("opens");
            dirs.push(child);
        }
        let deepest = dirs.last().expect("never empty");
        drop(open::create_new_at(deepest, c"leaf", 0o600).expect("made"));
        assert_eq!(stat_at(deepest, c"leaf", Follow::No).expect("found").kind, FileKind::Regular);
        open::unlink_at(deepest, c"leaf").expect("removed");
        for parent in dirs.iter().rev().skip(1) {
            open::rmdir_at(parent, &*name).expect("removed, deepest first");
        }
        assert_eq!(fs::read_dir(place.path()).expect("listed").count(), 0);
    }
}

#[test]
fn stat_agrees_with_the_standard_library_on_every_kind() {
    for place in places() {
        let dir = opened(place.path());
        fs::write(place.path().join("regular"), b"seven b").expect("written");
        fs::set_permissions(place.path().join("regular"), fs::Permissions::from_mode(0o4751)).expect("set");
        fs::hard_link(place.path().join("regular"), place.path().join("second")).expect("linked");
        open::mkdir_at(&dir, c"directory", 0o1777).expect("made");
        open::symlink_at(c"regular", &dir, c"symlink").expect("made");
        open::mknod_at(&dir, c"fifo", FileKind::Fifo, 0o640, 0).expect("made");
        open::mknod_at(&dir, c"socket", FileKind::Socket, 0o600, 0).expect("made");
        let kinds = [
            ("regular", FileKind::Regular),
            ("second", FileKind::Regular),
            ("directory", FileKind::Directory),
            ("symlink", FileKind::Symlink),
            ("fifo", FileKind::Fifo),
            ("socket", FileKind::Socket),
        ];
        for (name, kind) in kinds {
            let ours = stat_at(&dir, name, Follow::No).expect("found");
            let theirs = fs::symlink_metadata(place.path().join(name)).expect("found");
            assert_eq!(ours.kind, kind);
            assert_eq!(ours.mode, theirs.mode() & 0o7777);
            assert_eq!(ours.identity(), (theirs.dev(), theirs.ino()));
            assert_eq!((ours.uid, ours.gid, ours.size), (theirs.uid(), theirs.gid(), theirs.size()));
            assert_eq!((ours.nlink, ours.blocks), (theirs.nlink(), theirs.blocks()));
            assert_eq!((ours.mtime.sec, i64::from(ours.mtime.nsec)), (theirs.mtime(), theirs.mtime_nsec()));
            assert_eq!((ours.ctime.sec, i64::from(ours.ctime.nsec)), (theirs.ctime(), theirs.ctime_nsec()));
            assert_eq!((ours.atime.sec, i64::from(ours.atime.nsec)), (theirs.atime(), theirs.atime_nsec()));
            assert_eq!(ours.rdev, theirs.rdev());
        }
        let regular = stat_at(&dir, "regular", Follow::No).expect("found");
        assert_eq!(regular.mode, 0o4751);
        assert_eq!(stat_at(&dir, "second", Follow::No).expect("found").identity(), regular.identity());
        assert_eq!(stat_at(&dir, "symlink", Follow::Yes).expect("followed"), regular);
        let file = open::open_source_at(&dir, "regular", Follow::No, false).expect("opens");
        assert_eq!(stat_fd(&file).expect("found"), regular);
    }
}

#[test]
fn device_numbers_match_the_standard_library() {
    let ours = stat_at(CWD, "/dev/null", Follow::No).expect("every system has it");
    let theirs = fs::symlink_metadata("/dev/null").expect("found");
    assert_eq!(ours.kind, FileKind::CharDevice);
    assert_eq!((ours.rdev, ours.dev), (theirs.rdev(), theirs.dev()));
}

#[test]
fn devices_are_created_with_their_numbers() {
    let null = stat_at(CWD, "/dev/null", Follow::No).expect("found");
    let may = met_or_skip(&[Need::Root]);
    for place in places() {
        let dir = opened(place.path());
        if may {
            open::mknod_at(&dir, c"null", FileKind::CharDevice, 0o600, null.rdev).expect("made");
            let stat = stat_at(&dir, c"null", Follow::No).expect("found");
            assert_eq!((stat.kind, stat.rdev), (FileKind::CharDevice, null.rdev));
        }
        let error = open::mknod_at(&dir, c"x", FileKind::Directory, 0o700, 0).expect_err("no node");
        assert_eq!(errno(&error), Some(Errno::INVAL));
    }
}

#[test]
fn open_source_follows_symlinks_only_on_request_and_never_blocks() {
    for place in places() {
        let dir = opened(place.path());
        fs::write(place.path().join("file"), b"bytes").expect("written");
        open::symlink_at("file", &dir, c"link").expect("made");
        open::mknod_at(&dir, c"fifo", FileKind::Fifo, 0o600, 0).expect("made");

        let error = open::open_source_at(&dir, c"link", Follow::No, false).expect_err("not followed");
        assert_eq!(errno(&error), Some(Errno::LOOP));
        let fd = open::open_source_at(&dir, c"link", Follow::Yes, false).expect("followed");
        let flags = rustix::fs::fcntl_getfl(&fd).expect("flags");
        assert!(!flags.contains(OFlags::NONBLOCK), "reads must wait for their data");
        let mut read = String::new();
        fs::File::from(fd).read_to_string(&mut read).expect("read");
        assert_eq!(read, "bytes");

        let fifo = open::open_source_at(&dir, c"fifo", Follow::No, false).expect("opens without a writer");
        assert_eq!(stat_fd(&fifo).expect("found").kind, FileKind::Fifo);
    }
}

#[test]
fn create_new_refuses_existing_names() {
    for place in places() {
        let dir = opened(place.path());
        for name in odd_names() {
            let fd = open::create_new_at(&dir, name.as_os_str(), 0o600).expect("made");
            rustix::io::pwrite(&fd, b"back", 0).expect("written");
            let mut back = [0; 4];
            rustix::io::pread(&fd, &mut back, 0).expect("read back");
            assert_eq!(&back, b"back");
            let error = open::create_new_at(&dir, name.as_os_str(), 0o600).expect_err("taken");
            assert_eq!(errno(&error), Some(Errno::EXIST));
            open::unlink_at(&dir, name.as_os_str()).expect("removed");
        }
        open::symlink_at("nowhere", &dir, c"dangling").expect("made");
        let error = open::create_new_at(&dir, c"dangling", 0o600).expect_err("taken by a link");
        assert_eq!(errno(&error), Some(Errno::EXIST));
        assert!(!place.path().join("nowhere").exists());
        let error = open::open_existing_at(&dir, c"dangling", Follow::Yes).expect_err("leads nowhere");
        assert_eq!(errno(&error), Some(Errno::NOENT));
    }
}

#[test]
fn existing_file_keeps_its_bytes_when_it_is_opened() {
    for place in places() {
        let dir = opened(place.path());
        let path = place.path().join("file");
        fs::write(&path, b"123456").expect("written");
        let fd = open::open_existing_at(&dir, c"file", Follow::No).expect("opens");
        fs::File::from(fd).write_all(b"new").expect("written");
        assert_eq!(fs::read(&path).expect("read"), b"new456");
    }
}

#[test]
fn open_file_is_reopened_after_its_name_was_removed() {
    for place in places() {
        let dir = opened(place.path());
        let fd = open::create_new_at(&dir, c"file", 0o600).expect("made");
        rustix::io::pwrite(&fd, b"held", 0).expect("written");
        open::unlink_at(&dir, c"file").expect("removed");
        fs::write(place.path().join("file"), b"other").expect("another file of that name");
        let again = open::reopen_source(&fd, false).expect("opens");
        let mut read = String::new();
        fs::File::from(again).read_to_string(&mut read).expect("read");
        assert_eq!(read, "held");
    }
}

#[test]
fn renames_replace_refuse_or_exchange() {
    for place in places() {
        let dir = opened(place.path());
        let read = |name: &str| fs::read_to_string(place.path().join(name)).expect("read");
        fs::write(place.path().join("a"), "a").expect("written");
        fs::write(place.path().join("b"), "b").expect("written");
        let error = open::rename_at(&dir, c"a", &dir, c"b", RenameMode::NoReplace).expect_err("taken");
        assert_eq!(errno(&error), Some(Errno::EXIST));
        open::rename_at(&dir, c"a", &dir, c"b", RenameMode::Exchange).expect("exchanged");
        assert_eq!((read("a"), read("b")), ("b".into(), "a".into()));
        open::rename_at(&dir, c"a", &dir, c"b", RenameMode::Replace).expect("replaced");
        assert_eq!(read("b"), "b");
        assert!(!place.path().join("a").exists());
        open::rename_at(&dir, c"b", &dir, c"c", RenameMode::NoReplace).expect("the name was free");
        assert_eq!(read("c"), "b");
    }
}

#[test]
fn symlinks_are_linked_or_followed_and_targets_read_completely() {
    for place in places() {
        let dir = opened(place.path());
        fs::write(place.path().join("file"), "x").expect("written");
        open::symlink_at("file", &dir, c"link").expect("made");
        open::link_at(&dir, c"link", &dir, c"to link", Follow::No).expect("linked");
        open::link_at(&dir, c"link", &dir, c"to file", Follow::Yes).expect("linked");
        let ino = |name: &str| stat_at(&dir, name, Follow::No).expect("found").ino;
        assert_eq!(ino("to link"), ino("link"));
        assert_eq!(ino("to file"), ino("file"));

        for len in [1, 255, 256, 257, 1_000, 4_000] {
            let target = [b"t\xff".as_slice(), &vec![b'/'; len]].concat();
            let name = format!("target of {len}");
            match open::symlink_at(target.as_slice(), &dir, name.as_str()) {
                // XFS stores at most 1,024 bytes of a target.
                Err(error) if len > 1_022 && errno(&error) == Some(Errno::NAMETOOLONG) => {
                    place.lacks("links to long names", &[FsKind::Xfs]);
                    continue;
                }
                made => made.expect("made"),
            }
            let read = open::read_link_at(&dir, name.as_str()).expect("read");
            assert_eq!(read.as_os_str(), OsStr::from_bytes(&target));
        }
        let error = open::read_link_at(&dir, c"file").expect_err("no link");
        assert_eq!(errno(&error), Some(Errno::INVAL));
    }
}

/// Sets a lease of this process on a file, or asks for the one that it will keep (fcntl(2)).
fn lease(file: &fs::File, command: i32, kind: i32) -> std::io::Result<i32> {
    // SAFETY: these commands take the open descriptor and a number.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, kind) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}

#[test]
fn open_for_update_waits_until_a_lease_is_given_up() {
    const F_SETSIG: i32 = 10;
    for place in places() {
        let dir = opened(place.path());
        let path = place.path().join("file");
        fs::write(&path, b"bytes").expect("written");
        let holder = fs::File::open(&path).expect("opens");
        // The default signal would end this process. This one has no effect.
        lease(&holder, F_SETSIG, libc::SIGURG).expect("set");
        if lease(&holder, libc::F_SETLEASE, libc::F_RDLCK).is_err() {
            continue;
        }
        std::thread::scope(|scope| {
            let open = scope.spawn(|| open::open_regular_for_update_at(&dir, c"file", Follow::No));
            while lease(&holder, libc::F_GETLEASE, 0).expect("an answer") == libc::F_RDLCK {
                assert!(!open.is_finished(), "{:?}", open.join());
                std::thread::yield_now();
            }
            lease(&holder, libc::F_SETLEASE, libc::F_UNLCK).expect("given up");
            assert!(open.join().expect("ends").expect("opened").is_some());
        });
    }
}
