//! Entries that this process created by name: proof that the open entry is the created one.
//!
//! Only regular files are created and opened in one call. Between the two calls for any other
//! entry, another process with write access to the directory can replace the name. Metadata must
//! then not go to the replacement.

use haul_proto::{FileKind as Kind, NewFile};
use haul_sys::dir::{open_dir_at, open_place_at};
use haul_sys::open::{create_new_at, hold_at, read_link_at, unlink_at};
use haul_sys::{FileKind, Follow, Stat, process, stat};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Opens the entry `name` that was just created for `facts`, with `O_PATH`. Returns it if it is
/// that entry, so that its metadata can be set.
///
/// # Errors
/// Returns the error of the failed system call, or an error if the entry was replaced.
pub(super) fn hold(place: &OwnedFd, name: &CStr, facts: &NewFile) -> io::Result<OwnedFd> {
    let held = hold_at(place, name)?;
    let found = stat::stat_fd(&held)?;
    let device = |major, minor| found.rdev == stat::device_of(major, minor);
    let is_same = match &facts.kind {
        Kind::Symlink { target } => {
            found.kind == FileKind::Symlink && read_link_at(&held, c"")?.as_bytes() == &**target
        }
        Kind::Fifo => found.kind == FileKind::Fifo,
        Kind::Socket => found.kind == FileKind::Socket,
        Kind::CharDevice { major, minor } => found.kind == FileKind::CharDevice && device(*major, *minor),
        Kind::BlockDevice { major, minor } => found.kind == FileKind::BlockDevice && device(*major, *minor),
        Kind::File { .. } | Kind::Directory | Kind::HardLink { .. } => false,
    };
    if is_same && found.nlink == 1 && is_own(place, &found)? { Ok(held) } else { Err(replaced()) }
}

/// Opens the symbolic link `name` that was just created, with `O_PATH`. Returns it if it is that
/// link.
///
/// # Errors
/// Same as [`hold`].
pub(crate) fn hold_link(place: &OwnedFd, name: &CStr, target: &[u8]) -> io::Result<OwnedFd> {
    hold(place, name, &NewFile::new(&b""[..], Kind::Symlink { target: target.into() }))
}

/// Opens the directory `name`. One without read permission is opened with `O_PATH`: it can resolve
/// names.
///
/// # Errors
/// Returns the errors of openat(2).
pub(super) fn open_directory(place: &OwnedFd, name: &CStr, follow: Follow) -> io::Result<OwnedFd> {
    match open_dir_at(place, name, follow) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open_place_at(place, name, follow),
        other => other,
    }
}

/// Opens the directory `name` that was just created. Returns it if it is that directory.
///
/// # Errors
/// Same as [`hold`].
pub(crate) fn open_created_directory(place: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let opened = open_directory(place, name, Follow::No)?;
    if is_own(place, &stat::stat_fd(&opened)?)? { Ok(opened) } else { Err(replaced()) }
}

/// Returns true if an entry of `place` with the metadata `found` can have been created by this
/// process: no other user can create an entry that belongs to this one.
///
/// Some file systems give every new entry another owner, for example a server that maps root to
/// a user without rights. A new file then shows that owner.
fn is_own(place: &OwnedFd, found: &Stat) -> io::Result<bool> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if found.uid == process::effective_user() {
        return Ok(true);
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = CString::new(format!(".haul-own-{}-{number:x}", std::process::id()))?;
    let new = create_new_at(place, name.as_c_str(), 0o600)?;
    unlink_at(place, name.as_c_str())?;
    Ok(stat::stat_fd(new)?.uid == found.uid)
}

fn replaced() -> io::Error {
    io::Error::other("another process replaced it at once")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::sink::metadata::MetadataWriter;
    use crate::transfer::sink::policy::SinkPolicy;
    use haul_lab::needs::{Need, met_or_skip};
    use haul_model::Moment;
    use haul_proto::Keep;
    use haul_sys::metadata::set_owner_at;
    use haul_sys::open::{RenameMode, mkdir_at, mknod_at, rename_at, symlink_at};
    use std::os::fd::AsFd;

    fn folder() -> (tempfile::TempDir, OwnedFd) {
        let home = tempfile::tempdir().expect("a folder");
        let place = open_dir_at(haul_sys::CWD, home.path(), Follow::No).expect("opens");
        (home, place)
    }

    fn link(target: &str) -> NewFile {
        let moment = Moment { sec: 1_000_000, nsec: 0 };
        let kind = Kind::Symlink { target: target.as_bytes().into() };
        NewFile { mtime: moment, atime: moment, mode: 0o777, ..NewFile::new(&b"x"[..], kind) }
    }

    fn swap(place: &OwnedFd, from: &CStr, to: &CStr) {
        rename_at(place, from, place, to, RenameMode::Replace).expect("swapped");
    }

    /// Metadata was set by the temporary name: another user who could write to the directory
    /// replaced the name by a link to, or a hard link of, a file whose owner and times then
    /// changed.
    #[test]
    fn an_entry_that_replaces_a_held_one_keeps_its_metadata() {
        let (_home, place) = folder();
        create_new_at(&place, c"victim", 0o640).expect("made");
        for kind in [link("t").kind, Kind::Fifo] {
            let facts = NewFile { kind: kind.clone(), ..link("t") };
            match kind {
                Kind::Fifo => mknod_at(place.as_fd(), c"entry", FileKind::Fifo, 0o600, 0).expect("made"),
                _ => symlink_at("t", &place, c"entry").expect("made"),
            }
            let before = stat::stat_at(&place, c"victim", Follow::No).expect("there");
            let held = hold(&place, c"entry", &facts).expect("it is the created one");
            swap(&place, c"victim", c"entry");
            let writer =
                MetadataWriter::new(Keep::MODE.with(Keep::TIMES).with(Keep::XATTRS), SinkPolicy::ALL);
            writer.apply(held.as_fd(), &facts, None).expect("set on the held entry");
            assert_eq!(stat::stat_fd(&held).expect("held").mtime.sec, 1_000_000);
            let after = stat::stat_at(&place, c"entry", Follow::No).expect("there");
            assert_eq!((after.mtime, after.mode), (before.mtime, before.mode), "the victim");
            swap(&place, c"entry", c"victim");
        }
    }

    #[test]
    fn an_entry_that_was_replaced_before_it_is_held_is_refused() {
        let (_home, place) = folder();
        let facts = link("target");
        type Plant = fn(&OwnedFd);
        let plants: [(&str, Plant); 4] = [
            ("a file", |place| drop(create_new_at(place, c"entry", 0o600).expect("made"))),
            ("a directory", |place| mkdir_at(place, c"entry", 0o700).expect("made")),
            ("another link", |place| symlink_at("elsewhere", place, c"entry").expect("made")),
            ("a pipe", |place| mknod_at(place, c"entry", FileKind::Fifo, 0o600, 0).expect("made")),
        ];
        for (what, plant) in plants {
            plant(&place);
            assert!(hold(&place, c"entry", &facts).is_err(), "{what}");
            swap(&place, c"entry", &CString::new(what).expect("a name"));
        }
        symlink_at("target", &place, c"entry").expect("made");
        assert!(hold(&place, c"entry", &facts).is_ok());
    }

    #[test]
    fn a_directory_of_another_user_is_not_taken_for_the_created_one() {
        if !met_or_skip(&[Need::Root]) {
            return;
        }
        let (_home, place) = folder();
        mkdir_at(&place, c"planted", 0o700).expect("made");
        set_owner_at(&place, c"planted", Some(65534), Some(65534)).expect("given away");
        assert!(open_created_directory(&place, c"planted").is_err());
        mkdir_at(&place, c"own", 0o700).expect("made");
        assert!(open_created_directory(&place, c"own").is_ok());
    }
}
