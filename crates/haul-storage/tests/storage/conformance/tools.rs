//! Short forms of calls that many cases make.

use haul_model::ByteRange;
use haul_storage::{
    Create, Dir, Entry, FileKind, Follow, Inode, Metadata, Missing, Name, Node, Replace, SinkFile,
    SourceFile, Stat, SyncWhat, Tag,
};
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// `errno` of a path with too many links.
pub(super) const ELOOP: i32 = 40;

/// `errno` of an input or output error.
pub(super) const EIO: i32 = 5;

/// Size in bytes of a block, of which holes and shared ranges consist.
pub(super) const BLOCK: u64 = 4096;

/// Tag of the temporary files.
pub(super) const TAG: Tag = Tag { session: 0x5eed, number: 7 };

pub(super) fn n(name: &str) -> Name {
    Name::new(name).expect("a name")
}

pub(super) fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::between(start, end)
}

/// Returns bytes that differ at all offsets that are less than 65,521 apart.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at % 65_521 * 40_503) >> 7) as u8 | 1).collect()
}

/// Creates the file with these bytes.
pub(super) fn write(dir: &dyn Dir, name: &str, bytes: &[u8]) {
    let sink = new(dir, name);
    sink.write_at(0, bytes).expect("written");
    sink.finish(bytes.len() as u64, &Metadata::default()).expect("finished");
    sink.commit(Replace::No).expect("committed");
}

/// Creates the file, syncs it and its name.
pub(super) fn write_durably(dir: &dyn Dir, name: &str, bytes: &[u8]) {
    write(dir, name, bytes);
    in_place(dir, name).sync(SyncWhat::All).expect("synced");
    dir.sync().expect("names synced");
}

pub(super) fn new(dir: &dyn Dir, name: &str) -> Arc<dyn SinkFile> {
    dir.sink(&n(name), Create::New { mode: 0o600 }).expect("created")
}

pub(super) fn in_place(dir: &dyn Dir, name: &str) -> Arc<dyn SinkFile> {
    dir.sink(&n(name), Create::InPlace { missing: Missing::Fail, follow: Follow::No })
        .expect("opened in place")
}

pub(super) fn temporary(dir: &dyn Dir, name: &str) -> Arc<dyn SinkFile> {
    dir.sink(&n(name), Create::Temporary(TAG)).expect("created temporarily")
}

pub(super) fn open(dir: &dyn Dir, name: &str) -> Arc<dyn SourceFile> {
    dir.source(&n(name), Follow::No).expect("opened")
}

/// Returns all bytes of a file, by reads of 1,000 bytes.
pub(super) fn read_all(file: &dyn SourceFile) -> Vec<u8> {
    let (mut bytes, mut block) = (Vec::new(), [0xaa; 1000]);
    loop {
        let got = file.read_at(bytes.len() as u64, &mut block).expect("read");
        bytes.extend_from_slice(&block[..got]);
        if got < block.len() {
            return bytes;
        }
    }
}

pub(super) fn read(dir: &dyn Dir, name: &str) -> Vec<u8> {
    read_all(&*open(dir, name))
}

/// Returns the bytes of a file, or `None` if there is no such entry.
pub(super) fn read_if_there(dir: &dyn Dir, name: &str) -> Option<Vec<u8>> {
    match dir.source(&n(name), Follow::No) {
        Ok(file) => Some(read_all(&*file)),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("cannot open {name}: {error}"),
    }
}

pub(super) fn mkdir(dir: &dyn Dir, name: &str) -> Arc<dyn Dir> {
    dir.make(&n(name), &Node::Directory { mode: 0o700 }).expect("directory made");
    opened_dir(dir, name)
}

pub(super) fn opened_dir(dir: &dyn Dir, name: &str) -> Arc<dyn Dir> {
    dir.dir(&n(name), Follow::No, Missing::Fail).expect("directory opened")
}

pub(super) fn symlink(dir: &dyn Dir, name: &str, target: &str) {
    dir.make(&n(name), &Node::Link { target: target.as_bytes() }).expect("link made");
}

pub(super) fn fifo(dir: &dyn Dir, name: &str) {
    dir.make(&n(name), &Node::Special { kind: FileKind::Fifo, mode: 0o600, rdev: 0 }).expect("pipe made");
}

pub(super) fn stat(dir: &dyn Dir, name: &str) -> Stat {
    dir.stat_at(&n(name), Follow::No).expect("found")
}

pub(super) fn hold(dir: &dyn Dir, name: &str) -> Arc<dyn Inode> {
    dir.hold(&n(name)).expect("held")
}

pub(super) fn is_there(dir: &dyn Dir, name: &str) -> bool {
    match dir.stat_at(&n(name), Follow::No) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => panic!("cannot stat {name}: {error}"),
    }
}

/// Lists a directory to its end in batches.
pub(super) fn list(dir: &dyn Dir, max: usize) -> Vec<Entry> {
    let mut listing = dir.list().expect("list started");
    let mut entries = Vec::new();
    loop {
        let before = entries.len();
        let more = listing.next(max, &mut entries).expect("listed");
        assert!(entries.len() - before <= max, "at most {max} entries at once");
        if !more {
            return entries;
        }
    }
}

/// Returns the names in a directory, sorted.
pub(super) fn listed(dir: &dyn Dir) -> Vec<String> {
    let mut names: Vec<String> = list(dir, 100).iter().map(|entry| entry.name.to_string()).collect();
    names.sort();
    names
}

/// Checks the kind of an error.
#[track_caller]
pub(super) fn fails<T>(result: io::Result<T>, kind: ErrorKind) {
    match result {
        Ok(_) => panic!("it succeeded instead of failing with {kind:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
    }
}

/// Checks the `errno` of an error.
#[track_caller]
pub(super) fn fails_with<T>(result: io::Result<T>, errno: i32) {
    match result {
        Ok(_) => panic!("it succeeded instead of failing with errno {errno}"),
        Err(error) => assert_eq!(error.raw_os_error(), Some(errno), "{error}"),
    }
}
