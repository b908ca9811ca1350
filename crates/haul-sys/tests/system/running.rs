//! Tests of the process and its limits.

use crate::{Place, errno, opened, places};
use haul_lab::mounts::FsKind;
use haul_lab::needs::shown_or_skip;
use haul_sys::metadata::{self, Place as Attributes};
use haul_sys::open::{create_new_at, mkdir_at};
use haul_sys::stat::stat_at;
use haul_sys::{Follow, process};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;

#[test]
fn umask_matches_the_mode_of_new_directories() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let dir = opened(place.path());
    mkdir_at(&dir, c"made", 0o777).expect("made");
    let mode = stat_at(&dir, c"made", Follow::No).expect("found").mode;
    assert_eq!(mode & 0o777, 0o777 & !process::umask());
}

#[test]
fn cpu_count_and_memory_are_plausible() {
    let cpus = process::cpu_count();
    assert!((1..=65_536).contains(&cpus));
    let memory = process::memory().expect("/proc is mounted");
    assert!(memory.total >= 1 << 24);
    assert!(memory.available <= memory.total);
    assert!(memory.limit.is_none_or(|limit| limit < memory.total));
}

#[test]
fn open_file_limit_is_raised_to_the_maximum() {
    let raised = process::raise_open_file_limit().expect("raising to what is allowed needs no privilege");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert_eq!(limit.current.unwrap_or(u64::MAX), raised);
    assert_eq!(limit.current, limit.maximum);
    assert_eq!(process::raise_open_file_limit().expect("again"), raised);
}

#[test]
fn effective_ids_match_those_of_new_files() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let made = std::fs::metadata(place.path()).expect("found");
    assert_eq!((made.uid(), made.gid()), (process::effective_user(), process::effective_group()));
    assert_eq!(process::groups().expect("asked").first(), Some(&process::effective_group()));
}

#[test]
fn unshared_descriptor_table_keeps_old_and_hides_new_descriptors() {
    for place in places() {
        let dir = opened(place.path());
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let unshared = process::unshare_fd_table();
                if shown_or_skip(unshared.is_ok(), "a table of descriptors for each thread") {
                    see_own_table(&place, &dir);
                }
                unshared.is_ok()
            });
            let unshared = other.join().expect("the thread ends well");
            // The other table ended with its thread; this one is unchanged.
            assert_eq!(place.path().join("file").exists(), unshared);
        });
    }
}

/// Runs in a thread with its own descriptor table; `dir` was opened before.
fn see_own_table(place: &Place, dir: &File) {
    let file = File::from(create_new_at(dir, c"file", 0o600).expect("old descriptors still work"));
    let new = file.as_raw_fd();
    let mine = std::fs::read_link(format!("/proc/thread-self/fd/{new}")).expect("mine");
    assert_eq!(mine, place.path().join("file"));
    let theirs = std::fs::read_link(format!("/proc/self/fd/{new}")).unwrap_or_else(|_| PathBuf::new());
    assert_ne!(theirs, mine, "the rest of the process does not see it");

    // Attributes of names are set through /proc, which must show this thread's own table.
    let sub = File::open(place.path()).expect("opens");
    match metadata::set_xattr(Attributes::name(&sub, c"file"), c"user.own", b"table") {
        Ok(()) => {
            let read = metadata::get_xattr(Attributes::file(&file), c"user.own").expect("read");
            assert_eq!(read, Some(b"table".to_vec()));
        }
        Err(error) => {
            assert_eq!(errno(&error), Some(Errno::OPNOTSUPP));
            place.lacks("attributes of users", &[FsKind::Tmpfs]);
        }
    }
}

#[test]
fn opened_files_are_counted() {
    // Other tests of this process open and close files meanwhile; five hundred more files are still
    // noticeable.
    let before = process::open_files().expect("every Linux has /proc");
    let files: Vec<File> = (0..500).map(|_| File::open("/dev/null").expect("opens")).collect();
    let after = process::open_files().expect("every Linux has /proc");
    assert!(after >= before + 400, "{before} and {after}");
    assert!(process::open_file_limit() >= files.len() as u64);
}
