//! Valid input of every target, written by the encoder of each format: the starting point of
//! mutations.

#[path = "sink_seeds.rs"]
mod sink_seeds;

use super::newer;
use super::targets::{journal_key, log_job, receiver_target, regular, udp_target};
use haul_digest::{Algorithm, KEYED_DIGEST_BYTES, KeyedDigest, digest};
use haul_log::objects::{Encoding, Identity, Log, Mechanism, Order, SourceVersion, Style, Subject};
use haul_log::record::{JobRecord, Progress, Status, SyncedRange};
use haul_log::stored::{Stored, StoredObjects, xrootd};
use haul_log::{journal, waybill};
use haul_model::{ByteLen, ByteRange, Geometry, Level, Moment, ObjectIndex, ObjectSize, RelPath};
use haul_net::{Address, Grant, Host, Role, Ticket, Uses};
use haul_proto::{
    Answer, BlockDigest, BlockReject, BlockSync, Bye, Close, Compared, Connect, Delete, Encoding as Carried,
    Entries, EntryKind, Fate, Features, FileClose, FileDone, FileId, FileNumber, HEADER_LEN, JobOptions,
    Join, LaneId, List, ListedEntry, Message, Named, Names, NewBlock, NewFile, ObjectDigests, Operands,
    Outcome, PeerText, Principal, Reason, Role as Side, Runs, SESSION_TOKEN_BYTES, Stated, Summary, Unread,
    VERSION, WalkEnd, Why, Window,
};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Returns the inputs of each target.
pub fn all() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    vec![
        ("wire", [begins(), source_says(), sink_says(), a_list_says()].map(|all| framed(&all)).into()),
        ("sink", sink_seeds::all()),
        ("receiver", receiver_target::seeds()),
        ("source", (0..8).map(|first| [&[first], &cut(&sink_says())[..]].concat()).collect()),
        (
            "names",
            ["a/b", "..", "a/../b", "/etc", "con", "a\u{7}b", ""].map(|name| name.as_bytes().to_vec()).into(),
        ),
        ("hello", vec![hello()]),
        ("answer", (0..9).map(answer).collect()),
        (
            "address",
            ["192.0.2.7:7433", "[2001:db8::1]:2", "dtn.example.org:1", "::1"]
                .map(|text| text.as_bytes().to_vec())
                .into(),
        ),
        ("ticket", tickets()),
        ("identity", certificates()),
        ("waybill", vec![a_waybill()]),
        ("object_log", object_logs()),
        ("record", vec![a_record()]),
        ("journal", vec![a_journal()]),
        ("list", lists()),
        ("stored", a_stored()),
        ("signature", vec![SIGNATURE.into(), SIGNERS.into()]),
        ("packed", packed_blocks()),
        ("rules", rules()),
        ("acl", acls()),
        ("history", texts(&["life 10 7 group 700\nother 1 0 none 5\n- 3 999999999 object -4\n"])),
        (
            "job_target",
            texts(&[
                "65536 4 07070707070707070707070707070707\n/srvin/x",
                "4194304 1 00000000000000000000000000000000\n/",
            ]),
        ),
        ("holder", texts(&["", "7 host\n", "? \n", "12345 node.example.org"])),
        ("resume", texts(&[VERIFY_STATE, WAYBILL_STATE])),
        ("datagram", udp_target::datagrams()),
        ("association", udp_target::seeds()),
    ]
}

/// A resume state of a verification, and one of a waybill, without the checksum.
const VERIFY_STATE: &str = "surehaul-verify-state version=2\nbound=fuzzed\nshare=0 next=1234 done=1230 bytes=99 seed=7\nagain=17,801\n";
const WAYBILL_STATE: &str = "surehaul-sum-state version=1\noffset=4711 head=\
    af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262\n";

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Returns a path and the patterns of a job, separated by NUL. The first byte of each pattern is
/// the kind of its rule.
fn rules() -> Vec<Vec<u8>> {
    let patterns =
        ["*.o", "keep.o", "/build/", "#draft#", "!x", "a/**/b", "{a,b}*", "[!a-c]?", "**", "d/", "\\ "];
    let all = patterns.iter().enumerate().map(|(index, pattern)| format!("{index}{pattern}"));
    let all: Vec<String> = all.collect();
    let with = |path: &str| format!("{path}\0{}", all.join("\0")).into_bytes();
    ["a.o", "src/deep/keep.o", "build", "a/x/y/b", "d"].map(with).into()
}

/// Returns access control lists as Linux stores them: a usual one, and a short one.
fn acls() -> Vec<Vec<u8>> {
    let entries: [(u16, u16, u32); 6] =
        [(1, 6, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (8, 5, 100), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut list = vec![2, 0, 0, 0];
    for (tag, permissions, number) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(number.to_le_bytes());
    }
    vec![list.clone(), list[..11].to_vec()]
}

fn number() -> FileNumber {
    FileNumber(0)
}

/// Returns the first messages of sessions, accepted and refused.
fn begins() -> Vec<Message> {
    let connect = Connect {
        versions: (VERSION, VERSION),
        offers: Features(1),
        needs: Features(0),
        role: Side::Sink,
        job: [7; 16],
        options: JobOptions::default(),
        window: Window { files: 64, facts: 1 << 20, bytes: 1 << 24 },
        operands: vec![b"a".as_slice().into(), b"b/c/".as_slice().into()],
        agent: PeerText::new("haul"),
        log: None,
        resumes: true,
        rules: Vec::new(),
    };
    let entry = |name: &[u8; 1]| ListedEntry {
        name: name.as_slice().into(),
        kind: EntryKind::File,
        size: 7,
        mtime: Moment { sec: 5, nsec: 6 },
        mode: 0o644,
    };
    let accept = connect
        .answer(Features(1), connect.window, 4, [9; SESSION_TOKEN_BYTES], PeerText::new("haul"))
        .expect("they agree");
    vec![
        Message::Connect(Box::new(connect)),
        Message::Accept(Box::new(accept)),
        Message::Entries(Box::new(Entries { last: true, entries: [b"a", b"b"].map(entry).into() })),
        Message::Refuse(Reason::new(Why::Denied, "fetching files from this host")),
    ]
}

/// Returns the messages of a source: a whole file, one in objects, and the end.
fn source_says() -> Vec<Message> {
    let bytes = |len| ByteRange::between(0, len);
    let block = |number, len: u64, encoding, payload| {
        let range = bytes(len);
        Message::NewBlock(NewBlock { number, attempt: 0, object: ObjectIndex(0), range, encoding, payload })
    };
    let end = |number| {
        let stated = Stated::Digest(digest(Algorithm::Blake3, b"x"));
        Message::BlockDigest(Box::new(BlockDigest { number, attempt: 0, object: ObjectIndex(0), stated }))
    };
    let close = |number, size| {
        let close = Close::Read { size, mtime: Moment { sec: 5, nsec: 6 }, root: None };
        Message::FileClose(Box::new(FileClose { number, attempt: 0, close }))
    };
    let digests = |number, first, count| {
        let digests = vec![KeyedDigest::from_bytes([9; KEYED_DIGEST_BYTES]); count];
        Message::ObjectDigests(Box::new(ObjectDigests { number, attempt: 0, first, digests }))
    };
    let second = FileNumber(1);
    vec![
        Message::Join(Join { token: [7; SESSION_TOKEN_BYTES], lane: LaneId(1) }),
        Message::NewFile(Box::new(NewFile { whole: true, principals: a_principal(), ..regular(0, 2048) })),
        block(number(), 2048, Carried::Raw, 2048),
        end(number()),
        close(number(), 2048),
        Message::KeepAlive,
        Message::NewFile(Box::new(NewFile { number: second, ..regular(1, 65_536) })),
        block(second, 65_536, Carried::Zeros, 0),
        end(second),
        close(second, 65_536),
        digests(second, None, 1),
        digests(second, Some(ObjectIndex(0)), 3),
        Message::Unread(Box::new(Unread { path: b"p".as_slice().into(), reason: Why::Io.into() })),
        Message::WalkEnd(WalkEnd { files: 2, errors: 0, unread: 1, delete: true }),
        Message::Delete(Box::new(Delete { batch: 0, fates: vec![Fate::Gone, Fate::Stays] })),
        Message::Named(Box::new(Named {
            batch: 1,
            certain: true,
            last: true,
            names: vec![b"n".as_slice().into()],
        })),
        bye(),
    ]
}

fn a_principal() -> Vec<Principal> {
    vec![Principal { is_group: true, number: 7, name: b"wheel".as_slice().into() }]
}

/// Returns the operand list of a sink, in two messages.
fn a_list_says() -> Vec<Message> {
    let operands = |last, paths: &[&[u8]]| {
        let paths = paths.iter().map(|&path| path.into()).collect();
        Message::Operands(Box::new(Operands { last, paths }))
    };
    vec![operands(false, &[b"a", b"b/c"]), operands(true, &[b"d/"])]
}

fn bye() -> Message {
    Message::Bye(Box::new(Bye { reason: None, summary: Summary::default(), times: None }))
}

/// Returns the messages of a sink: answers, rejected objects, and the end.
fn sink_says() -> Vec<Message> {
    let large = FileNumber(2);
    let id = |answer| Message::FileId(Box::new(FileId { number: large, attempt: 0, answer }));
    let reject = |object| {
        let reason = Reason::new(Why::Differs, "it differs");
        Message::BlockReject(BlockReject { number: large, attempt: 0, object, reason })
    };
    let sync = |number, end| {
        let objects = Runs::of(0, end);
        let sync = BlockSync { number, attempt: 0, level: Level::Verified, objects };
        Message::BlockSync(Box::new(sync))
    };
    let done =
        |number| Message::FileDone(Box::new(FileDone { number, outcome: Outcome::Done(Level::Verified) }));
    vec![
        id(Answer::Take { have: Runs::of(1, 2) }),
        sync(FileNumber(1), 1),
        done(FileNumber(0)),
        done(FileNumber(1)),
        reject(Some(ObjectIndex(0))),
        reject(None),
        sync(large, 4),
        done(large),
        id(Answer::UnlessDigest),
        id(Answer::Differing { have: Runs::of(0, 1), end: 3 }),
        Message::Compared(Box::new(Compared { number: large, attempt: 0, end: 3, wanted: Runs::of(1, 2) })),
        Message::List(Box::new(List {
            batch: 0,
            directory: b"d".as_slice().into(),
            names: vec![b"n".as_slice().into(), b"m".as_slice().into()],
        })),
        Message::Names(Box::new(Names { batch: 1, directory: b"d".as_slice().into(), from: 0 })),
        bye(),
    ]
}

fn framed(messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut bytes));
    bytes
}

/// Returns frames in the form of the state machines' targets: kind, flags, length, payload in KiB,
/// body.
fn cut(messages: &[Message]) -> Vec<u8> {
    let mut all = Vec::new();
    for message in messages {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let (header, body) = bytes.split_at(HEADER_LEN);
        all.extend([header[0], header[1]]);
        all.extend((body.len() as u16).to_le_bytes());
        all.push((message.payload_len() >> 10) as u8);
        all.extend_from_slice(body);
    }
    all
}

fn hello() -> Vec<u8> {
    let mut bytes = b"HAUL\x01\x00\x03\x00".to_vec();
    bytes.resize(64, 9);
    bytes
}

/// Returns an answer with this verdict.
fn answer(verdict: u8) -> Vec<u8> {
    let mut bytes = b"HAUL\x01\x00\x04\x00".to_vec();
    bytes[5] = verdict;
    bytes.resize(40, 9);
    bytes
}

fn a_record() -> Vec<u8> {
    let record = JobRecord {
        kind: "send".into(),
        words: vec![b"send".to_vec(), b"a b\xff".to_vec(), b"host:".to_vec()],
        cwd: b"/home".to_vec(),
        begun: Moment { sec: 5, nsec: 6 },
        runs: 2,
        status: Status::Finished,
        progress: Progress {
            is_counting: true,
            files_done: 1,
            files_found: 2,
            bytes_done: 3,
            bytes_found: 4,
        },
        ended: Some(Moment { sec: 7, nsec: 8 }),
        exit: Some(1),
        boot: "b".into(),
        kept: vec![SyncedRange { dev: 1, from: -5, until: 9 }],
    };
    record.encode()
}

fn certificates() -> Vec<Vec<u8>> {
    let made = haul_net::Identity::generate().expect("a certificate");
    vec![made.to_pem().as_bytes().to_vec()]
}

fn tickets() -> Vec<Vec<u8>> {
    let address = |host: &str, port| Address { host: Host::parse(host).expect("a host"), port };
    let addresses =
        vec![address("192.0.2.7", 7433), address("dtn.example.org", 1), address("2001:db8::1", 2)];
    let grant = |uses, role| Grant { role, uses, expires: Some(std::time::UNIX_EPOCH) };
    [grant(Uses::Once, Role::Both), grant(Uses::Lasting, Role::Write)]
        .map(|grant| Ticket::issue(grant, addresses.clone(), None).expect("three addresses"))
        .map(|ticket| ticket.to_line().as_bytes().to_vec())
        .into()
}

fn path(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).expect("beneath")
}

fn a_waybill() -> Vec<u8> {
    let job =
        waybill::Job { run: b"haul cp a b".to_vec(), program: "haul 0".into(), at: 5, root: b".".to_vec() };
    let mut writer = waybill::Writer::new(Vec::new(), &job).expect("memory takes it");
    let content = waybill::Content {
        size: 3,
        digests: vec![digest(Algorithm::Blake3, b"abc"), digest(Algorithm::Md5, b"abc")],
        way: Some(waybill::CopyMethod::ReadWrite),
        level: Some(Level::Durable),
        objects: None,
    };
    let kinds = [
        ("a", waybill::Kind::File(content)),
        ("b", waybill::Kind::Same { first: path("a") }),
        ("c", waybill::Kind::Directory),
        ("d", waybill::Kind::Link { target: b"a".to_vec() }),
        ("e", waybill::Kind::Special(waybill::Special::Fifo)),
    ];
    for (name, kind) in kinds {
        let mtime = Moment { sec: 1, nsec: 2 };
        let entry = waybill::Entry { path: path(name), kind, mode: 0o644, mtime };
        writer.entry(&entry).expect("memory takes it");
    }
    writer.close().expect("memory takes it").0
}

fn object_logs() -> Vec<Vec<u8>> {
    let two = NonZeroU32::new(2).expect("not 0");
    let mechanisms = [Mechanism::File, Mechanism::Transaction(two), Mechanism::Universal];
    let styles =
        mechanisms.into_iter().flat_map(|mechanism| Encoding::ALL.map(|encoding| (mechanism, encoding)));
    let styles = styles.map(|(mechanism, encoding)| Style { mechanism, encoding });
    styles.map(|style| packed(object_log(style))).chain([packed(newer_object_log())]).collect()
}

/// Returns an object log as the next version of this program would write it.
fn newer_object_log() -> BTreeMap<String, Vec<u8>> {
    let mut files = object_log(Style::DEFAULT);
    files.values_mut().for_each(|bytes| newer::log(bytes, 2));
    files
}

fn object_log(style: Style) -> BTreeMap<String, Vec<u8>> {
    let mut log = Log::new(log_job(), style, 1);
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (name, objects) in [("x", 5), ("y/z", 300)] {
        let source = SourceVersion {
            size: objects << 16,
            mtime: Moment { sec: 9, nsec: 8 },
            identity: Identity::of(name.as_bytes()),
        };
        let subject = Subject { path: path(name), source, sink: Identity::of(b"sink") };
        let key = log.open(&subject).expect("few objects");
        (0..objects).step_by(2).for_each(|index| log.done(key, ObjectIndex(index)));
        log.commit().into_iter().for_each(|order| obey(&mut files, order));
    }
    files
}

fn packed(files: BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        bytes.push(name.len() as u8);
        bytes.extend(name.as_bytes());
        bytes.extend((content.len() as u16).to_le_bytes());
        bytes.extend(content);
    }
    bytes
}

fn obey(files: &mut BTreeMap<String, Vec<u8>>, order: Order) {
    match order {
        Order::Write { name, at, bytes } => {
            let file = files.entry(name).or_default();
            let end = at as usize + bytes.len();
            file.resize(file.len().max(end), 0);
            file[at as usize..end].copy_from_slice(&bytes);
        }
        Order::Replace { name, parts } => {
            files.remove(&name);
            parts
                .into_iter()
                .for_each(|(at, bytes)| obey(files, Order::Write { name: name.clone(), at, bytes }));
        }
        Order::Remove { name } => drop(files.remove(&name)),
        Order::Sync => {}
    }
}

fn a_journal() -> Vec<u8> {
    let shape = |size| {
        let moment = Moment { sec: 3, nsec: 4 };
        journal::Shape { size, mtime: moment, atime: moment }
    };
    let head = journal::Head {
        inode: 7,
        birth: None,
        name: b"name".to_vec(),
        mode: 0o600,
        capability: vec![1, 2],
        before: shape(1100),
        after: shape(1500),
    };
    let mut writer = journal::Writer::new(Vec::new(), &head, &journal_key()).expect("memory takes it");
    for at in (0..1500_usize).step_by(512) {
        let len = |size: usize| size.saturating_sub(at).min(512);
        let chunk = journal::Chunk::new(at as u64, vec![9; len(1100)], &vec![5; len(1500)]);
        writer.chunk(&chunk).expect("memory takes it");
    }
    writer.close().expect("memory takes it")
}

fn lists() -> Vec<Vec<u8>> {
    let texts = [
        "900150983cd24fb0d6963f7d28e17f72  abc\n\\900150983cd24fb0d6963f7d28e17f72 *a\\nb\r\n",
        "MD5 (abc) = 900150983cd24fb0d6963f7d28e17f72\nSHA256 (a (b) = c) = 00\n",
        "XXH3_0123456789abcdef  f\n#mutil#[0-5]#0123\n%%%% HASHDEEP-1.0\n%%%% size,md5,sha256,filename\n## x\n",
        "; comment\nfile name.txt 352441c2\n",
        "3,900150983cd24fb0d6963f7d28e17f72,00,/x\nzcrc32:352441c2 f\n352441C2 3 f\n",
    ];
    let both = |text: &str| (0..8).map(|first| [&[first], text.as_bytes()].concat()).collect::<Vec<_>>();
    texts.into_iter().flat_map(both).collect()
}

fn a_stored() -> Vec<Vec<u8>> {
    let size = ObjectSize::new(64 << 10).expect("a power of two");
    let objects = Geometry::new(ByteLen(200_000), size).count();
    let blake3 = digest(Algorithm::Blake3, b"z");
    let value = Stored {
        size: 200_000,
        mtime: Moment { sec: 1, nsec: 2 },
        digests: vec![blake3, digest(Algorithm::Adler32, b"z")],
        objects: Some(StoredObjects { size, digests: vec![blake3; objects as usize] }),
    };
    let whole = value.encode();
    let unsealed = whole[..whole.len() - 4].to_vec();
    let xrootd = xrootd::XrootdValue { digest: digest(Algorithm::Adler32, b"z"), mtime: 4, delay: 5 };
    let xrootd = xrootd.encode().expect("XRootD computes it").to_vec();
    vec![whole, unsealed, xrootd, b"adler   \x00\x00\x00\x01".to_vec()]
}

/// A signature by `ssh-keygen -Y sign -n file` with a discarded key.
const SIGNATURE: &str = "\
-----BEGIN SSH SIGNATURE-----\n\
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgBDU7fRc6T1q+znHFAguWo1RcSt\n\
nm7YT4OtHvrZM5ioMAAAAEZmlsZQAAAAAAAAAGc2hhNTEyAAAAUwAAAAtzc2gtZWQyNTUx\n\
OQAAAEANAfAdZTt7NvzLansqlSRkUuc3IWo5klfeTmP8xwo7S2zR0RBvwziuZ62tOXd9SC\n\
tz4sn7+KjhPixKpeq8UooI\n\
-----END SSH SIGNATURE-----\n";

/// A list of allowed signers as in ssh-keygen(1).
const SIGNERS: &str = "\
# comment\n\
a@example.org,b* namespaces=\"file,git\",valid-after=\"20260101Z\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAQ1O30XOk9avs5xxQILlqNUXErZ5u2E+DrR762TOYqD c\n\
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAQ1O30XOk9avs5xxQILlqNUXErZ5u2E+DrR762TOYqD\n";

/// Returns compressed blocks of one repeated byte, of words and of noise, at a low and a high
/// level.
fn packed_blocks() -> Vec<Vec<u8>> {
    let words = || (0..600_u32).flat_map(|number| format!("{} of {} ", number % 7, number % 11).into_bytes());
    let chance = (0..900_u32).map(|number| (number.wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0]);
    let blocks: [Vec<u8>; 3] = [vec![7; 4096], words().collect(), chance.collect()];
    let packed = |block: &Vec<u8>, level| {
        let len = u16::try_from(block.len()).expect("it is short");
        let frame = zstd::bulk::compress(block, level).expect("it is packed");
        [&len.to_le_bytes()[..], &frame].concat()
    };
    blocks.iter().flat_map(|block| [packed(block, 1), packed(block, 19)]).collect()
}
