//! The local file system: what a file system of each kind does, and faults of a disk.

use haul_lab::faults::{FaultFs, Rules};
use haul_lab::mounts::{Format, FsKind, SmallFs, shared_dir};
use haul_lab::needs::{Need, met_or_skip};
use haul_model::ByteRange;
use haul_storage::{
    Create, Dir, DropRetries, Follow, Metadata, Missing, Name, Part, ReadBack, Replace, SinkFile, SyncWhat,
    Tag, Times, Timespec, local,
};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

const TAG: Tag = Tag { session: 1, number: 2 };
const EIO: i32 = 5;
const EDQUOT: i32 = 122;

fn open(path: &Path) -> Arc<dyn Dir> {
    local::open(path, Follow::No).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A directory of a file system with faults, and the directory that stores it.
struct Faulty {
    home: TempDir,
    faults: FaultFs,
}

impl Faulty {
    /// Returns `None` if this machine has no FUSE.
    fn new() -> Option<Faulty> {
        if !met_or_skip(&[Need::Fuse]) {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        for place in ["store", "view"] {
            fs::create_dir(home.path().join(place)).unwrap();
        }
        let [store, view] = ["store", "view"].map(|place| home.path().join(place));
        let faults = FaultFs::mount(&store, &view, Rules::default()).unwrap();
        Some(Faulty { home, faults })
    }

    fn dir(&self) -> Arc<dyn Dir> {
        open(&self.home.path().join("view"))
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.home.path().join("store")).unwrap();
        let mut names: Vec<_> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn set(&self, rules: &str) {
        self.faults.set_rules(rules.parse().unwrap());
    }
}

fn temporary(dir: &dyn Dir) -> Arc<dyn SinkFile> {
    let sink = dir.sink(&name("f"), Create::Temporary(TAG)).unwrap();
    sink.write_at(0, b"bytes").unwrap();
    sink
}

#[test]
fn first_error_of_a_sync_fails_every_later_sync_and_the_commit() {
    let Some(faulty) = Faulty::new() else { return };
    let dir = faulty.dir();
    for what in [SyncWhat::Data, SyncWhat::All] {
        let sink = temporary(&*dir);
        faulty.set("* fsync .. errno EIO times 1");
        let other = dir.sink(&name("g"), Create::New { mode: 0o600 }).unwrap();
        assert_eq!(sink.sync(what).unwrap_err().raw_os_error(), Some(EIO));
        other.sync(what).unwrap();
        for later in [SyncWhat::Data, SyncWhat::All, SyncWhat::Range(ByteRange::between(0, 5))] {
            assert_eq!(sink.sync(later).unwrap_err().raw_os_error(), Some(EIO));
        }
        let reader = sink.reader().unwrap();
        let evicted = reader.evict(ByteRange::between(0, 5), DropRetries::None);
        assert_eq!(evicted.unwrap_err().raw_os_error(), Some(EIO));
        assert_eq!(sink.check().unwrap_err().raw_os_error(), Some(EIO));
        sink.finish(5, &Metadata::default()).unwrap_err();
        assert_eq!(sink.commit(Replace::Yes).unwrap_err().raw_os_error(), Some(EIO));
        assert!(!sink.is_committed() && sink.failure().is_some());
        assert_eq!(faulty.names(), [TAG.name().to_string(), "g".into()]);
        sink.abandon().unwrap();
        assert_eq!(faulty.names(), ["g"]);
        dir.remove(&name("g"), haul_storage::Remove::File).unwrap();
    }
    drop(dir);
    faulty.faults.close();
}

#[test]
fn bytes_lost_at_close_fail_the_file_before_its_times_are_set() {
    let Some(faulty) = Faulty::new() else { return };
    let dir = faulty.dir();
    assert!(dir.device().capabilities.close_may_fail);
    let sink = temporary(&*dir);
    faulty.set("* flush .. errno EDQUOT times 1");
    let mtime = Some(Timespec { sec: 1_000_000, nsec: 0 });
    let metadata = Metadata { times: Times { atime: None, mtime }, ..Metadata::default() };
    let unset = sink.finish(5, &metadata).unwrap_err();
    assert_eq!((unset.part, unset.error.raw_os_error()), (Part::Bytes, Some(EDQUOT)));
    assert_ne!(Some(sink.stat().unwrap().mtime), mtime);
    assert_eq!(sink.commit(Replace::Yes).unwrap_err().raw_os_error(), Some(EDQUOT));
    assert_eq!(faulty.names(), [TAG.name().to_string()]);
    drop((sink, dir));
    faulty.faults.close();
}

/// On vfat, names that differ only in case are one name, and dots at the end are dropped.
#[test]
fn second_spelling_of_a_name_replaces_nothing() {
    let Some(faulty) = Faulty::new() else { return };
    let dir = faulty.dir();
    faulty.set("* name .. fold");
    for (number, text) in ["name", "NAME", "name"].into_iter().enumerate() {
        let tag = Tag { session: 9, number: number as u64 };
        let sink = dir.sink(&name(text), Create::Temporary(tag)).unwrap();
        sink.write_at(0, text.as_bytes()).unwrap();
        let committed = sink.commit(Replace::Yes);
        if text == "NAME" {
            assert_eq!(committed.unwrap_err().kind(), ErrorKind::AlreadyExists);
            sink.abandon().unwrap();
        } else {
            committed.unwrap();
        }
    }
    assert_eq!(faulty.names(), ["name"]);
    for create in [
        Create::New { mode: 0o600 },
        Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow: Follow::No },
    ] {
        assert_eq!(dir.sink(&name("nAme"), create).unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
    dir.sink(&name("name"), Create::InPlace { missing: Missing::Fail, follow: Follow::No }).unwrap();
    let create = Missing::Create { mode: 0o700 };
    dir.dir(&name("d"), Follow::No, create).unwrap();
    assert_eq!(dir.dir(&name("D"), Follow::No, create).unwrap_err().kind(), ErrorKind::AlreadyExists);
    dir.dir(&name("D"), Follow::No, Missing::Fail).unwrap();
    dir.rename(&name("name"), &*dir, &name("Name"), Replace::Yes).unwrap();
    assert_eq!(faulty.names().len(), 2, "a file that gets its own name in another spelling stays");
    drop(dir);
    faulty.faults.close();
}

/// A file is reserved before bytes arrive, and a file that does not fit stays empty.
#[test]
fn space_is_reserved_where_that_does_not_change_how_bytes_are_stored() {
    const LEN: u64 = 20 << 20;
    for (kind, reserves) in [
        (FsKind::Ext4, true),
        (FsKind::Xfs, true),
        (FsKind::Btrfs, false),
        (FsKind::BtrfsZstd, false),
        (FsKind::Tmpfs, false),
        (FsKind::Overlay, false),
        (FsKind::Fuse, false),
    ] {
        let Some(room) = shared_dir(kind) else { continue };
        let dir = open(room.path());
        assert_eq!(dir.device().capabilities.reserves, reserves, "{kind:?}");
        let sink = dir.sink(&name("f"), Create::New { mode: 0o600 }).unwrap();
        sink.reserve(LEN).unwrap();
        let found = sink.stat().unwrap();
        assert_eq!((found.size, found.blocks * 512 >= LEN), (0, reserves), "{kind:?}: {found:?}");
        let error = sink.reserve(1 << 40).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{kind:?}");
        assert_eq!(sink.stat().unwrap().size, 0, "{kind:?}");
    }
}

#[test]
fn reservation_that_fails_takes_no_space() {
    if !met_or_skip(&Format::Ext4.needs()) {
        return;
    }
    let small = SmallFs::of(Format::Ext4, 32).unwrap();
    let dir = open(&small.path());
    let sink = dir.sink(&name("f"), Create::Temporary(TAG)).unwrap();
    assert_eq!(sink.reserve(64 << 20).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(sink.stat().unwrap().blocks, 0);
    drop((sink, dir));
    small.close().unwrap();
}

#[test]
fn compressed_file_stays_compressed_after_a_reservation() {
    let Some(room) = shared_dir(FsKind::BtrfsZstd) else { return };
    let dir = open(room.path());
    let free = || {
        dir.sync_device().unwrap();
        dir.space().unwrap().free.unwrap()
    };
    let (before, bytes) = (free(), vec![7; 64 << 20]);
    let sink = dir.sink(&name("f"), Create::New { mode: 0o600 }).unwrap();
    sink.reserve(bytes.len() as u64).unwrap();
    sink.write_at(0, &bytes).unwrap();
    sink.sync(SyncWhat::All).unwrap();
    // Other tests use the file system as well.
    assert!(before.saturating_sub(free()) < 32 << 20, "it takes less than half of its length");
}

#[test]
fn reader_reports_where_its_bytes_come_from() {
    for (kind, from_device) in
        [(FsKind::Ext4, true), (FsKind::Xfs, true), (FsKind::Btrfs, true), (FsKind::Tmpfs, false)]
    {
        let Some(room) = shared_dir(kind) else { continue };
        let sink = open(room.path()).sink(&name("f"), Create::Temporary(TAG)).unwrap();
        sink.write_at(0, &[7; 100_000]).unwrap();
        let reader = sink.reader().unwrap();
        let path = reader.evict(ByteRange::between(0, 100_000), DropRetries::Some).unwrap();
        assert_eq!(path == ReadBack::FromDevice, from_device, "{kind:?}: {path:?}");
        let mut bytes = vec![0; 100_001];
        assert_eq!(reader.read_at(0, &mut bytes).unwrap(), 100_000);
        assert_eq!((reader.opened().size, bytes[99_999]), (100_000, 7));
    }
}

#[test]
fn file_can_be_read_back_whatever_its_mode_is() {
    let home = tempfile::tempdir().unwrap();
    let dir = open(home.path());
    for create in [Create::Temporary(TAG), Create::Resume(TAG)] {
        let sink = dir.sink(&name("f"), create).unwrap();
        sink.write_at(0, b"x").unwrap();
        sink.finish(1, &Metadata { mode: Some(0o000), ..Metadata::default() }).unwrap();
        assert_eq!(sink.reader().unwrap().read_at(0, &mut [0; 2]).unwrap(), 1);
        assert_eq!(sink.is_new(), create == Create::Temporary(TAG));
        sink.set_mode(0o600).unwrap();
    }
}

#[test]
fn lock_ends_with_the_sink_although_a_reader_stays() {
    let home = tempfile::tempdir().unwrap();
    let dir = open(home.path());
    let in_place = || {
        dir.sink(&name("f"), Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow: Follow::No })
            .unwrap()
    };
    let (one, other) = (in_place(), in_place());
    assert!(one.lock().unwrap());
    assert_eq!(other.lock().unwrap_err().kind(), ErrorKind::ResourceBusy);
    let _reader = one.reader().unwrap();
    drop(one);
    assert!(other.lock().unwrap());
}

/// The caller's blocks are aligned; the tail is written through the page cache.
#[test]
fn direct_writes_and_reads_return_the_same_bytes() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let Some(room) = shared_dir(kind) else { continue };
        let dir = open(room.path());
        let sink = dir.sink(&name("f"), Create::New { mode: 0o600 }).unwrap();
        let Some(alignment) = sink.set_direct(true).unwrap() else { continue };
        let mut block = haul_sys::buffer::AlignedBuffer::new(256 << 10).unwrap();
        block.fill(7);
        sink.write_at(0, &block).unwrap();
        sink.write_at(256 << 10, &block[..1000]).unwrap();
        // A reader has a descriptor of its own now, and needs no alignment.
        let reader = sink.reader().unwrap();
        let mut bytes = vec![0; 300_000];
        assert_eq!(reader.read_at(1, &mut bytes).unwrap(), (256 << 10) + 999, "{kind:?}");
        assert_eq!(reader.set_direct(true).unwrap(), Some(alignment));
        block.fill(0);
        assert_eq!(reader.read_at(0, &mut block).unwrap(), 256 << 10);
        assert!(block.iter().all(|&byte| byte == 7));
        assert_eq!((reader.set_direct(false).unwrap(), sink.set_direct(false).unwrap()), (None, None));
        assert_eq!(reader.read_at(3, &mut bytes[..5]).unwrap(), 5);
        sink.write_at(1, b"y").unwrap();
        assert_eq!(fs::metadata(room.path().join("f")).unwrap().size(), (256 << 10) + 1000);
    }
}

/// User ID of no user. Root ignores permissions.
const USER: u32 = 47_113;

/// Runs a test of this executable again, as a user without rights.
fn run_as_user(test: &str) {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for (path, mode) in [(home.path(), 0o777), (&program, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new(&program);
    command.args(["--exact", test]).uid(USER).gid(USER).env("TMPDIR", home.path()).current_dir("/");
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

#[test]
fn directory_without_read_permission_resolves_names_and_is_synced() {
    if haul_sys::process::effective_user() == 0 {
        return run_as_user("local::directory_without_read_permission_resolves_names_and_is_synced");
    }
    let home = tempfile::tempdir().unwrap();
    let root = open(home.path());
    let dir = root.dir(&name("d"), Follow::No, Missing::Create { mode: 0o300 }).unwrap();
    let sink = dir.sink(&name("f"), Create::Temporary(TAG)).unwrap();
    sink.write_at(0, b"bytes").unwrap();
    sink.finish(5, &Metadata { mode: Some(0o000), ..Metadata::default() }).unwrap();
    sink.commit(Replace::No).unwrap();
    assert_eq!(sink.reader().unwrap().read_at(0, &mut [0; 9]).unwrap(), 5);
    assert_eq!(dir.list().unwrap_err().kind(), ErrorKind::PermissionDenied);
    dir.sync().unwrap();
    dir.sync_device().unwrap();
    let again = root.dir(&name("d"), Follow::No, Missing::Fail).unwrap();
    assert_eq!(again.stat_at(&name("f"), Follow::No).unwrap().size, 5);
    assert_eq!(again.source(&name("f"), Follow::No).unwrap_err().kind(), ErrorKind::PermissionDenied);
    // A file that its owner may only write is opened in place.
    again.hold(&name("f")).unwrap().set_mode(0o200).unwrap();
    let sink =
        again.sink(&name("f"), Create::InPlace { missing: Missing::Fail, follow: Follow::No }).unwrap();
    sink.write_at(5, b" more").unwrap();
    assert_eq!(sink.stat().unwrap().size, 10);
    assert_eq!(sink.reader().unwrap_err().kind(), ErrorKind::PermissionDenied);
    again.set_mode(0o700).unwrap();
    assert!(dir.list().is_ok(), "by a new descriptor");
}
