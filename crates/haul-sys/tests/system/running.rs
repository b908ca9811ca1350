//! The process and what it is granted.

use crate::{opened, skipped};
use haul_sys::metadata::{self, Place};
use haul_sys::open::{create_new_at, mkdir_at};
use haul_sys::stat::stat_at;
use haul_sys::{Follow, process};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

#[test]
fn the_umask_is_what_new_directories_lack() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let dir = opened(place.path());
    mkdir_at(&dir, c"made", 0o777).expect("made");
    let mode = stat_at(&dir, c"made", Follow::No).expect("found").mode;
    assert_eq!(mode & 0o777, 0o777 & !process::umask());
}

#[test]
fn what_the_machine_grants_is_within_reason() {
    let cpus = process::cpu_count();
    assert!((1..=65_536).contains(&cpus));
    let memory = process::memory().expect("/proc is mounted");
    assert!(memory.total >= 1 << 24);
    assert!(memory.available <= memory.total);
    assert!(memory.limit.is_none_or(|limit| limit < memory.total));
}

#[test]
fn the_limit_on_open_files_is_raised_to_the_allowed() {
    let raised = process::raise_open_file_limit().expect("raising to what is allowed needs no privilege");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert_eq!(limit.current.unwrap_or(u64::MAX), raised);
    assert_eq!(limit.current, limit.maximum);
    assert_eq!(process::raise_open_file_limit().expect("again"), raised);
}

#[test]
fn ids_are_those_of_the_files_made() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let made = std::fs::metadata(place.path()).expect("found");
    assert_eq!((made.uid(), made.gid()), (process::effective_user(), process::effective_group()));
    assert_eq!(process::groups().expect("asked").first(), Some(&process::effective_group()));
}

#[test]
fn a_thread_with_its_own_table_keeps_old_descriptors_and_hides_new_ones() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let dir = opened(place.path());
    let number = dir.as_raw_fd();
    let path = place.path().to_owned();
    std::thread::spawn(move || {
        if let Err(error) = process::unshare_fd_table() {
            skipped(&format!("no table of one's own: {error}"));
            return;
        }
        assert_eq!(dir.as_raw_fd(), number);
        let file = File::from(create_new_at(&dir, c"file", 0o600).expect("old descriptors still work"));
        let new = file.as_raw_fd();
        let mine = std::fs::read_link(format!("/proc/thread-self/fd/{new}")).expect("mine");
        assert_eq!(mine, path.join("file"));
        let theirs = std::fs::read_link(format!("/proc/self/fd/{new}")).unwrap_or_else(|_| PathBuf::new());
        assert_ne!(theirs, mine, "the rest of the process does not see it");

        // Attributes of names go by way of /proc, where they must find this thread's own table.
        let sub = File::open(path).expect("opens");
        let by_name = Place::name(&sub, c"file");
        match metadata::set_xattr(by_name, c"user.own", b"table") {
            Ok(()) => {
                let read = metadata::get_xattr(Place::file(&file), c"user.own").expect("read");
                assert_eq!(read, Some(b"table".to_vec()));
            }
            Err(error) => {
                assert_eq!(crate::errno(&error), Some(rustix::io::Errno::OPNOTSUPP));
                skipped("no attributes of users on this file system");
            }
        }
    })
    .join()
    .expect("the thread ends well");
    // The scope of the other table ended with its thread; this one is as it was.
    assert!(place.path().join("file").exists());
}
