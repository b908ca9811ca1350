//! Tests of setting and reading owner, mode, times and attributes.

use crate::{Place as Folder, errno, opened, places};
use haul_lab::mounts::FsKind;
use haul_lab::needs::{Need, met_or_skip};
use haul_sys::metadata::{self, Place, Times};
use haul_sys::open::{create_new_at, mkdir_at, mknod_at, symlink_at};
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{FileKind, Follow, Timespec, process};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::File;

#[test]
fn modes_are_set_on_files_and_names_but_not_through_symlinks() {
    for place in places() {
        let dir = opened(place.path());
        let file = create_new_at(&dir, c"file", 0o600).expect("made");
        mknod_at(&dir, c"fifo", FileKind::Fifo, 0o600, 0).expect("made");
        mkdir_at(&dir, c"directory", 0o700).expect("made");
        symlink_at("file", &dir, c"link").expect("made");
        for mode in [0o000, 0o777, 0o644, 0o4755, 0o1700] {
            metadata::set_mode_fd(&file, mode).expect("set");
            assert_eq!(stat_fd(&file).expect("found").mode, mode);
            for name in [c"fifo", c"directory"] {
                metadata::set_mode_at(&dir, name, mode).expect("set");
                assert_eq!(stat_at(&dir, name, Follow::No).expect("found").mode, mode);
            }
        }
        let error = metadata::set_mode_at(&dir, c"link", 0o777).expect_err("a link has no mode");
        assert_eq!(errno(&error), Some(Errno::OPNOTSUPP));
        assert_eq!(stat_fd(&file).expect("found").mode, 0o1700);
    }
}

#[test]
fn owners_are_set_on_files_and_symlinks() {
    for place in places() {
        let dir = opened(place.path());
        let file = create_new_at(&dir, c"file", 0o600).expect("made");
        symlink_at("file", &dir, c"link").expect("made");
        let (user, group) = (process::effective_user(), process::effective_group());
        metadata::set_owner_fd(&file, Some(user), Some(group)).expect("one's own ids need no privilege");
        metadata::set_owner_fd(&file, None, None).expect("nothing to do");
        if !met_or_skip(&[Need::Root]) {
            return;
        }
        metadata::set_owner_fd(&file, Some(12_345), None).expect("set");
        metadata::set_owner_at(&dir, c"link", Some(23_456), Some(34_567)).expect("set");
        metadata::set_owner_fd(&file, Some(u32::MAX), Some(45_678)).expect("set");
        let owner = |name: &CStr| {
            let stat = stat_at(&dir, name, Follow::No).expect("found");
            (stat.uid, stat.gid)
        };
        assert_eq!(owner(c"file"), (12_345, 45_678));
        assert_eq!(owner(c"link"), (23_456, 34_567));
    }
}

#[test]
fn times_are_kept_to_the_nanosecond_before_and_after_the_epoch() {
    let at = |sec, nsec| Some(Timespec { sec, nsec });
    for place in places() {
        let dir = opened(place.path());
        let file = create_new_at(&dir, c"file", 0o600).expect("made");
        symlink_at("file", &dir, c"link").expect("made");
        let old = stat_fd(&file).expect("found");
        metadata::set_times_at(&dir, c"link", Times { atime: at(1, 2), mtime: at(3, 4) }).expect("set");
        let link = stat_at(&dir, c"link", Follow::No).expect("found");
        assert_eq!((Some(link.atime), Some(link.mtime)), (at(1, 2), at(3, 4)));
        assert_eq!(stat_fd(&file).expect("found").mtime, old.mtime, "the link's own times were set");

        for mtime in [at(1_700_000_000, 999_999_999), at(0, 1), at(-1_000, 123_456_789)] {
            metadata::set_times_fd(&file, Times { atime: None, mtime }).expect("set");
            assert_eq!(Some(stat_fd(&file).expect("found").mtime), mtime);
        }
        let now = stat_fd(&file).expect("found");
        assert_eq!(now.atime, old.atime, "a time not given stays");
        let other = create_new_at(&dir, c"other", 0o600).expect("made");
        metadata::set_times_fd(&other, Times::of(&now)).expect("set");
        let other = stat_fd(&other).expect("found");
        assert_eq!((other.atime, other.mtime), (now.atime, now.mtime));
    }
}

/// Returns true if user attributes can be set here. tmpfs supports them since Linux 6.6.
fn has_user_attributes(place: &Folder, file: &File) -> bool {
    match metadata::set_xattr(Place::file(file), c"user.probe", b"") {
        Ok(()) => metadata::remove_xattr(Place::file(file), c"user.probe").expect("removed"),
        Err(error) => {
            assert_eq!(errno(&error), Some(Errno::OPNOTSUPP));
            place.lacks("attributes of users", &[FsKind::Tmpfs]);
            false
        }
    }
}

#[test]
fn xattrs_round_trip_by_file_and_by_name() {
    for place in places() {
        let dir = opened(place.path());
        let file = File::from(create_new_at(&dir, c"file", 0o600).expect("made"));
        if !has_user_attributes(&place, &file) {
            continue;
        }
        let odd = CString::new(b"user.\xff\xfe odd".to_vec()).expect("no NUL");
        let values: [(&CStr, Vec<u8>); 4] = [
            (c"user.empty", Vec::new()),
            (c"user.text", b"value".to_vec()),
            (&odd, vec![0, 255, 0]),
            (c"user.long", vec![7; 2_000]),
        ];
        for (name, value) in &values {
            metadata::set_xattr(Place::file(&file), name, value).expect("set");
        }
        let by_name = Place::name(&dir, c"file");
        for from in [Place::file(&file), by_name] {
            let names: BTreeSet<CString> = metadata::list_xattrs(from).expect("listed").into_iter().collect();
            for (name, value) in &values {
                assert!(names.contains(*name));
                assert_eq!(metadata::get_xattr(from, name).expect("read").as_ref(), Some(value));
            }
            assert_eq!(metadata::get_xattr(from, c"user.none").expect("an answer"), None);
            assert!(!metadata::remove_xattr(from, c"user.none").expect("an answer"));
        }
        metadata::set_xattr(by_name, c"user.text", b"replaced").expect("set");
        assert_eq!(
            metadata::get_xattr(Place::file(&file), c"user.text").expect("read"),
            Some(b"replaced".to_vec())
        );
        assert!(metadata::remove_xattr(by_name, c"user.text").expect("removed"));
        assert_eq!(metadata::get_xattr(by_name, c"user.text").expect("an answer"), None);
    }
}

#[test]
fn xattrs_of_a_symlink_are_set_without_following_it() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    for place in places() {
        let dir = opened(place.path());
        let file = File::from(create_new_at(&dir, c"file", 0o600).expect("made"));
        symlink_at("file", &dir, c"link").expect("made");
        if let Err(error) = metadata::set_xattr(Place::name(&dir, c"link"), c"trusted.haul", b"link") {
            assert_eq!(errno(&error), Some(Errno::OPNOTSUPP), "{error}");
            place.lacks("attributes of links", &[]);
            continue;
        }
        assert_eq!(
            metadata::get_xattr(Place::name(&dir, c"link"), c"trusted.haul").expect("read"),
            Some(b"link".to_vec())
        );
        assert_eq!(metadata::get_xattr(Place::file(&file), c"trusted.haul").expect("an answer"), None);
    }
}
