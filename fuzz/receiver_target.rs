//! Target of the real receiver: the bytes become the messages of a source, which
//! `transfer::answer` receives into a temporary directory.
//!
//! ```text
//!  way | options | digest | operations        an operation: its number, then its fields
//! ```

use super::message_of;
use super::sink_target::job_options;
use haul_digest::{Algorithm, KEYED_DIGEST_BYTES, KeyedDigest, digest};
use haul_engine::transfer::{Offer, SimpleObserver, answer};
use haul_model::{ByteRange, Moment, ObjectIndex};
use haul_net::StreamLane;
use haul_proto::{
    BlockDigest, Bye, Close, Connect, Delete, Encoding, Fate, FileClose, FileKind, FileNumber, JobOptions,
    Keep, Message, Named, NewBlock, NewFile, ObjectDigests, PeerText, Role, Runs, Stated, Summary, WalkEnd,
    Why, Xattr,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// Size in bytes of an object.
const OBJECT: u64 = 64 << 10;

/// Maximum size in bytes of the payload of a block.
const PAYLOAD_MAX: u32 = 4096;

/// Maximum time of a session.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Name at the root of the file system that a receiver must not create.
const ABSOLUTE: &str = "/haul-fuzzed-outside";

/// Names that the source announces.
pub const PATHS: [&[u8]; 16] = [
    b"a",
    b"d",
    b"d/x",
    b"own",
    b"planted",
    b"planted/x",
    b"planted/secret",
    b"pipe",
    b"a/x",
    b"../outside/x",
    ABSOLUTE.as_bytes(),
    b"d/../../outside/x",
    b".haul-0-1",
    b"d/.haul-0-1",
    b".",
    b"",
];

/// Number of kinds of entries.
pub const KINDS: u8 = 13;

/// Number of operations.
pub const OPERATIONS: u8 = 11;

/// Runs a session of a hostile source with the real receiver. Nothing outside the directory
/// changes, and within it no special file, no set-ID bit, no link out of it and no temporary file
/// appears.
pub fn receiver(data: &[u8]) {
    let home = tempfile::tempdir().expect("a temporary directory");
    receive(home.path(), data);
}

/// Does the same in the empty directory `home`, and leaves what the session made in `root` there.
pub fn receive(home: &Path, data: &[u8]) {
    let Some((head, operations)) = data.split_first_chunk::<3>() else { return };
    let options = JobOptions { keep: Keep(!Keep::SETUID.0), ..job_options(*head) };
    let root = home.join("root");
    prepare(home);
    let outside = snapshot(&home.join("outside"));
    let begun = Instant::now();
    session(&root, &options, head[1] & 128 != 0, operations);
    assert!(begun.elapsed() < TIME_MAX, "the session took {:?}", begun.elapsed());
    assert_eq!(snapshot(&home.join("outside")), outside, "something outside changed");
    assert!(fs::symlink_metadata(ABSOLUTE).is_err(), "{ABSOLUTE} exists");
    let mut names: Vec<_> = fs::read_dir(home).expect("it is there").flatten().collect();
    names.retain(|entry| entry.file_name() != "root" && entry.file_name() != "outside");
    assert!(names.is_empty(), "beside the root: {names:?}");
    check(&root, &root);
}

/// Creates the root with files of the receiver, and a directory outside it.
fn prepare(home: &Path) {
    let written = |path: &str, text: &str| fs::write(home.join(path), text).expect("it is written");
    fs::create_dir_all(home.join("root/d")).expect("a directory");
    fs::create_dir_all(home.join("outside/d")).expect("a directory");
    written("root/own", "of the receiver");
    written("root/d/own", "of the receiver");
    written("outside/secret", "of another");
    fs::set_permissions(home.join("outside/secret"), fs::Permissions::from_mode(0o640)).expect("it is set");
    symlink("../outside", home.join("root/planted")).expect("a link");
    let root = fs::File::open(home.join("root")).expect("it is opened");
    haul_sys::open::mknod_at(&root, c"pipe", haul_sys::FileKind::Fifo, 0o600, 0).expect("a pipe");
}

/// Mode, number of links, size in bytes, modification time and content of an entry.
type Facts = (u32, u64, u64, (i64, i64), Vec<u8>);

/// Facts of each entry beneath a directory, and of the directory itself.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut found = BTreeMap::new();
    let facts = fs::symlink_metadata(dir).expect("it is there");
    let bytes = if facts.is_file() { fs::read(dir).expect("it is read") } else { Vec::new() };
    let times = (facts.mtime(), facts.mtime_nsec());
    found.insert(dir.to_path_buf(), (facts.mode(), facts.nlink(), facts.len(), times, bytes));
    if facts.is_dir() {
        for entry in fs::read_dir(dir).expect("it is listed").flatten() {
            found.extend(snapshot(&entry.path()));
        }
    }
    found
}

/// Checks what a session left in the root.
fn check(root: &Path, dir: &Path) {
    for entry in fs::read_dir(dir).expect("it is listed").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("a type"));
        let below = path.strip_prefix(root).expect("beneath");
        let name = entry.file_name();
        assert!(
            !name.as_encoded_bytes().to_ascii_lowercase().starts_with(b".haul-"),
            "{} is left",
            below.display()
        );
        let is_ordinary = kind.is_file() || kind.is_dir() || kind.is_symlink();
        assert!(
            is_ordinary || (kind.is_fifo() && below == Path::new("pipe")),
            "{} is special",
            below.display()
        );
        if kind.is_symlink() {
            let target = fs::read_link(&path).expect("a target");
            let is_inside = match fs::canonicalize(&path) {
                Ok(leads) => leads.starts_with(fs::canonicalize(root).expect("the root")),
                Err(_) => stays_beneath(below, &target),
            };
            let is_own = below == Path::new("planted") || target.starts_with("planted");
            assert!(is_inside || is_own, "{} leads to {}", below.display(), target.display());
            continue;
        }
        let facts = entry.metadata().expect("facts");
        assert_eq!(facts.mode() & 0o6000, 0, "{} has mode {:o}", below.display(), facts.mode());
        // To open a pipe would block.
        if (kind.is_file() || kind.is_dir())
            && let Ok(file) = fs::File::open(&path)
        {
            let names =
                haul_sys::metadata::list_xattrs(haul_sys::metadata::Place::file(&file)).unwrap_or_default();
            for name in names {
                let name = name.to_bytes();
                let is_common = name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_");
                assert!(
                    is_common || name == b"security.selinux",
                    "{} has {}",
                    below.display(),
                    name.escape_ascii()
                );
            }
        }
        if kind.is_dir() {
            check(root, &path);
        }
    }
}

/// Returns true if a link that leads nowhere would not lead out of the root.
fn stays_beneath(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count() - 1;
    target.components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::CurDir => true,
        Component::ParentDir => depth.checked_sub(1).inspect(|less| depth = *less).is_some(),
        Component::RootDir | Component::Prefix(_) => false,
    })
}

/// Sends the operations to the receiver, and reads all that it answers.
fn session(root: &Path, options: &JobOptions, has_quota: bool, operations: &[u8]) {
    let (ours, theirs) = StreamLane::pair();
    let offer = Offer {
        may_read: true,
        may_list: true,
        lanes: 1,
        buffers: 16 << 20,
        quota: has_quota.then_some(64 << 10),
        keep: Keep(!Keep::SETUID.0),
        ..Offer::writable(root.into())
    };
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let observer = SimpleObserver::default();
            // A source that breaks the rules ends the session with an error, or without one.
            let _ = answer(theirs.into(), &mut || None, &offer, &observer.run_context());
        });
        let (mut reader, mut writer) = ours.split();
        let reading =
            scope.spawn(move || while reader.read_some(&mut [0; 4096]).is_ok_and(|read| read > 0) {});
        let mut source = Operations { rest: operations, options };
        let mut frames = vec![(Message::Connect(Box::new(connect(options))), Vec::new())];
        while frames.iter().all(|(message, payload)| {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            bytes.extend_from_slice(payload);
            writer.write_all(&bytes).is_ok()
        }) {
            match source.next() {
                Some(more) => frames = more,
                None => break,
            }
        }
        let _ = writer.finish();
        answering.join().expect("the receiver does not panic");
        reading.join().expect("no panic");
    });
}

fn connect(options: &JobOptions) -> Connect {
    Connect::new(Role::Source, options.clone(), PeerText::new("fuzzed"))
}

/// Messages of the source, read from the input.
struct Operations<'a> {
    rest: &'a [u8],
    options: &'a JobOptions,
}

impl Operations<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        *first
    }

    fn path(&mut self) -> &'static [u8] {
        PATHS[usize::from(self.byte()) % PATHS.len()]
    }

    fn number(&mut self) -> FileNumber {
        FileNumber(u64::from(self.byte() & 31))
    }

    fn object(&mut self) -> (u16, ObjectIndex) {
        let byte = self.byte();
        (u16::from(byte >> 4 & 3), ObjectIndex(u64::from(byte & 3)))
    }

    /// Returns the frames of the next operation; `None` at the end of the input.
    fn next(&mut self) -> Option<Vec<(Message, Vec<u8>)>> {
        if self.rest.is_empty() {
            return None;
        }
        let alone = |message| Some(vec![(message, Vec::new())]);
        match self.byte() % OPERATIONS {
            0 => {
                let (number, path, kind) = (self.number(), self.path(), self.kind());
                alone(Message::NewFile(Box::new(self.facts(number, path, kind))))
            }
            1 => {
                let (number, path) = (self.number(), self.path());
                Some(self.whole_file(number, path))
            }
            2 => Some(vec![self.block()]),
            3 => {
                let (number, (attempt, object), stated) = (self.number(), self.object(), self.stated());
                alone(Message::BlockDigest(Box::new(BlockDigest { number, attempt, object, stated })))
            }
            4 => {
                let (number, (attempt, _), how) = (self.number(), self.object(), self.byte());
                let close = match how & 3 {
                    0 => Close::Failed(Why::Io.into()),
                    _ => {
                        let root = (how & 1 != 0).then(|| digest(self.options.algorithm, &[how & 4; 9]));
                        Close::Read { size: u64::from(how >> 3) * 9, mtime: Moment::default(), root }
                    }
                };
                alone(Message::FileClose(Box::new(FileClose { number, attempt, close })))
            }
            5 => {
                let (number, (attempt, object), how) = (self.number(), self.object(), self.byte());
                let digests =
                    vec![KeyedDigest::from_bytes([how; KEYED_DIGEST_BYTES]); usize::from(how & 7) + 1];
                let (first, digests) =
                    if how & 8 == 0 { (None, vec![digests[0]]) } else { (Some(object), digests) };
                alone(Message::ObjectDigests(Box::new(ObjectDigests { number, attempt, first, digests })))
            }
            6 => {
                let how = self.byte();
                let files = u64::from(how >> 1);
                alone(Message::WalkEnd(WalkEnd { files, errors: 0, unread: 0, delete: how & 1 != 0 }))
            }
            7 => {
                let how = self.byte();
                let batch = u32::from(how >> 1 & 7);
                let fate = if how & 1 != 0 { Fate::Gone } else { Fate::Stays };
                alone(match how >> 4 {
                    15 => {
                        let names = vec![b"n".as_slice().into()];
                        Message::Named(Box::new(Named { batch, certain: true, last: how & 1 != 0, names }))
                    }
                    count => {
                        Message::Delete(Box::new(Delete { batch, fates: vec![fate; usize::from(count)] }))
                    }
                })
            }
            8 => {
                let head = [self.byte(), self.byte(), self.byte(), 0, 0];
                let (body, rest) = self.rest.split_at(usize::from(head[2]).min(self.rest.len()));
                self.rest = rest;
                let message = message_of(&head, body).filter(|message| message.payload_len() == 0);
                Some(message.into_iter().map(|message| (message, Vec::new())).collect())
            }
            9 => {
                let (path, reason) = (self.path().into(), Why::Io.into());
                alone(Message::Unread(Box::new(haul_proto::Unread { path, reason })))
            }
            _ => {
                alone(Message::Bye(Box::new(Bye { reason: None, summary: Summary::default(), times: None })))
            }
        }
    }

    fn kind(&mut self) -> FileKind {
        let target = |path: &[u8]| FileKind::Symlink { target: path.into() };
        let byte = self.byte();
        match byte % KINDS {
            0 => FileKind::File { size: u64::from(byte / KINDS) * 9, holes: Runs::default() },
            1 => FileKind::Directory,
            2 => FileKind::Fifo,
            3 => FileKind::Socket,
            4 => FileKind::CharDevice { major: 1, minor: 3 },
            5 => FileKind::BlockDevice { major: 8, minor: 0 },
            6 => target(b"../outside/secret"),
            7 => target(b"/etc/passwd"),
            8 => target(b"d"),
            9 => target(PATHS[usize::from(byte / KINDS) % PATHS.len()]),
            10 => FileKind::HardLink { first: PATHS[usize::from(byte / KINDS) % PATHS.len()].into() },
            11 => FileKind::File { size: 2 * OBJECT + 9, holes: Runs::of(0, u64::from(byte / KINDS) & 3) },
            _ => FileKind::File { size: u64::MAX >> 1, holes: Runs::default() },
        }
    }

    fn facts(&mut self, number: FileNumber, path: &[u8], kind: FileKind) -> NewFile {
        let flags = self.byte();
        let modes = [0o644, 0o6777, 0o700, 0];
        let xattr = |name: &str| Xattr { name: name.as_bytes().into(), value: b"value".as_slice().into() };
        let names = ["user.note", "trusted.note", "security.capability", "system.posix_acl_access"];
        NewFile {
            number,
            whole: flags & 1 != 0,
            again: flags & 2 != 0,
            is_linked: flags & 4 != 0,
            mode: modes[usize::from(flags >> 3 & 3)],
            xattrs: if flags & 32 == 0 { Vec::new() } else { names.map(xattr).into() },
            ..NewFile::new(path, kind)
        }
    }

    /// Returns a correct small file.
    fn whole_file(&mut self, number: FileNumber, path: &[u8]) -> Vec<(Message, Vec<u8>)> {
        let bytes = vec![7; usize::from(self.byte()) + 1];
        let (size, algorithm) = (bytes.len() as u64, self.options.algorithm);
        let by_file = self.options.unit == haul_proto::Unit::File;
        let found = digest(algorithm, &bytes);
        let mut facts = self.facts(number, path, FileKind::File { size, holes: Runs::default() });
        (facts.whole, facts.again) = (true, false);
        let (attempt, object, payload) = (0, ObjectIndex(0), size as u32);
        let range = ByteRange::between(0, size);
        let block = NewBlock { number, attempt, object, range, encoding: Encoding::Raw, payload };
        let later = self.options.verify == haul_proto::Verify::BlockPipeline;
        let stated = match () {
            () if by_file || self.options.verify == haul_proto::Verify::None => Stated::Nothing,
            () if later => Stated::Later,
            () => Stated::Digest(found),
        };
        let end = |stated| Message::BlockDigest(Box::new(BlockDigest { number, attempt, object, stated }));
        let close = Close::Read { size, mtime: Moment { sec: 5, nsec: 6 }, root: by_file.then_some(found) };
        let mut frames = vec![
            (Message::NewFile(Box::new(facts)), Vec::new()),
            (Message::NewBlock(block), bytes),
            (end(stated), Vec::new()),
        ];
        frames.extend(later.then(|| (end(Stated::Digest(found)), Vec::new())));
        frames.push((Message::FileClose(Box::new(FileClose { number, attempt, close })), Vec::new()));
        frames
    }

    fn block(&mut self) -> (Message, Vec<u8>) {
        let (number, (attempt, object), how) = (self.number(), self.object(), self.byte());
        let encoding = [Encoding::Raw, Encoding::Zeros, Encoding::Zstd][usize::from(how % 3)];
        let start = object.0 * OBJECT;
        let len = match how >> 2 & 3 {
            0 => 9,
            1 => OBJECT,
            2 => 1,
            _ => u64::from(PAYLOAD_MAX),
        };
        let payload = match encoding {
            Encoding::Zeros => 0,
            Encoding::Raw => (len as u32).min(PAYLOAD_MAX),
            _ => 9,
        };
        let len = if encoding == Encoding::Raw { u64::from(payload) } else { len };
        let range = ByteRange::between(start, start + len);
        let bytes = vec![how; payload as usize];
        (Message::NewBlock(NewBlock { number, attempt, object, range, encoding, payload }), bytes)
    }

    fn stated(&mut self) -> Stated {
        match self.byte() & 7 {
            0 => Stated::Nothing,
            1 => Stated::Later,
            2 => Stated::Abandoned,
            3 => Stated::Digest(digest(Algorithm::Crc32c, b"x")),
            byte => Stated::Digest(digest(self.options.algorithm, &[byte & 4; 9])),
        }
    }
}

/// Returns valid input: each kind of entry under each name, correct files under each name in each
/// way to verify, and names below links.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    let mut number = 0;
    for path in 0..PATHS.len() as u8 {
        let mut input = vec![2, 0, 0];
        for kind in 0..KINDS {
            number = (number + 1) & 31;
            input.extend([0, number, path, kind + KINDS * (kind & 3), 0b10_1001]);
        }
        input.extend([6, 13 << 1]);
        inputs.push(input);
    }
    for way in 0..super::sink_target::WAYS.len() as u8 {
        for flags in [0, 2, 3, 8, 16, 32, 128] {
            let mut input = vec![way, flags, way];
            for path in 0..PATHS.len() as u8 {
                input.extend([1, path, path, 40, 0b10_1100]);
            }
            input.extend([6, (PATHS.len() as u8) << 1 | u8::from(flags == 8)]);
            (0..3).for_each(|batch| input.extend([7, batch << 1 | 0x31]));
            input.push(10);
            inputs.push(input);
        }
    }
    // A link, then names below it; a linked file, then its further names; an incomplete file.
    for steps in [
        &[0, 0, 0, 8, 1, 1, 1, 8, 20, 0, 0, 2, 8, 1, 1][..],
        &[1, 0, 0, 20, 4, 0, 1, 2, 10, 1, 0, 2, 2, 10 + 13 * 3, 1],
        &[0, 0, 0, 11, 0, 2, 0, 1, 5, 3, 0, 1, 4, 2, 0, 0, 5],
    ] {
        inputs.push([&[2, 0, 0][..], steps].concat());
    }
    inputs
}
