//! Properties of every decoder for any bytes. A decoder returns facts or an error and never panics.
//! Decoded values encode to bytes that decode to the same values. Each function takes any bytes.
//!
//! Random bytes do not pass a checksum. Therefore the bytes are also taken as the fields of a frame
//! whose checksum is then computed.

#[path = "receiver_target.rs"]
pub mod receiver_target;
#[path = "sink_target.rs"]
pub mod sink_target;
#[path = "udp_target.rs"]
pub mod udp_target;

use haul_digest::list::{self, Hints, Kind};
use haul_digest::{Algorithm, Digest, KEYED_DIGEST_BYTES, KeyedDigest};
use haul_engine::fuzzing;
use haul_engine::transfer::Unpacker;
use haul_log::objects::{self, Flaw, Identity, Mechanism, Style};
use haul_log::record::JobRecord;
use haul_log::stored::{Stored, eos, xrootd};
use haul_log::{journal, waybill};
use haul_model::{ByteRange, Moment, ObjectSize};
use haul_net::{Address, Host, Ticket};
use haul_proto::source::Work;
use haul_proto::{
    CONTROL, Fate, FileKind, FileNumber, HEADER_LEN, Header, JobOptions, LaneId, Message, Named, NewFile,
    OperandList, Runs, Source, Timing, Update, Window, check_accepted, check_list, check_name,
    check_received, source,
};
use haul_udp::packet;
use std::collections::BTreeMap;
use std::time::Duration;

/// A fuzz target, which takes any bytes.
pub type Target = fn(&[u8]);

/// All targets with their names.
pub const TARGETS: [(&str, Target); 26] = [
    ("wire", wire),
    ("sink", sink_target::sink_machine),
    ("receiver", receiver_target::receiver),
    ("source", source_machine),
    ("names", names),
    ("hello", hello),
    ("answer", answer),
    ("address", address),
    ("ticket", ticket),
    ("identity", identity),
    ("waybill", read_waybill),
    ("object_log", object_log),
    ("record", record),
    ("journal", read_journal),
    ("list", read_list),
    ("stored", stored),
    ("signature", signature),
    ("packed", packed),
    ("rules", fuzzing::rules),
    ("acl", fuzzing::acl),
    ("history", fuzzing::history),
    ("job_target", fuzzing::job_target),
    ("holder", fuzzing::holder),
    ("resume", resume),
    ("datagram", datagram),
    ("association", udp_target::association),
];

/// Decodes a datagram of an association.
pub fn datagram(data: &[u8]) {
    let Some(header) = packet::Header::decode(data) else { return };
    assert_eq!(header.encode(), data[..packet::HEADER_LEN]);
    for frame in packet::Frames::new(&data[packet::HEADER_LEN..]).flatten() {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert_eq!(packet::Frames::new(&bytes).collect::<Vec<_>>(), [Ok(frame)]);
        let packet::Frame::Ack(ack) = frame else { continue };
        let mut below = ack.largest + 1;
        for range in ack.ranges() {
            assert!(range.start() <= range.end() && *range.end() < below, "{ack:?}");
            below = *range.start();
        }
    }
}

/// Decodes a sequence of frames.
pub fn wire(data: &[u8]) {
    let mut rest = data;
    while let Some((header, after)) = rest.split_first_chunk::<HEADER_LEN>() {
        let Ok(header) = Header::decode(header) else { break };
        let Some(body) = after.get(..header.body_len()) else { break };
        if let Ok(Some(message)) = Message::decode(&header, body) {
            comes_back(&message);
        }
        rest = &after[body.len()..];
    }
    let messages = frames(data);
    messages.iter().for_each(comes_back);
    let mut list = OperandList::default();
    for message in messages {
        let Message::Operands(operands) = message else { continue };
        match list.take(*operands) {
            Ok(false) => {}
            Ok(true) => {
                let paths = list.into_paths();
                assert_eq!(check_list(paths.len(), paths.iter().map(|path| path.len()).sum()), Ok(()));
                return;
            }
            Err(_) => return,
        }
    }
}

fn comes_back(message: &Message) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let (header, body) = bytes.split_first_chunk::<HEADER_LEN>().expect("a header is written");
    let header = Header::decode(header).expect("its own header is understood");
    assert_eq!(Message::decode(&header, body).expect("its own body is"), Some(message.clone()));
}

/// Splits the bytes into kind, flags, length and body, computes the checksums, and returns the
/// messages that decode.
fn frames(data: &[u8]) -> Vec<Message> {
    let mut found = Vec::new();
    let mut rest = data;
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let len = usize::from(u16::from_le_bytes([head[2], head[3]])).min(after.len());
        let (body, after) = after.split_at(len);
        rest = after;
        found.extend(message_of(head, body));
    }
    found
}

/// Returns the message of a frame with this kind, flags, length (unused) and payload in KiB, if it
/// decodes.
fn message_of(head: &[u8; 5], body: &[u8]) -> Option<Message> {
    let bytes = forged(head[0], head[1], u32::from(head[4]) << 10, body);
    let (header, body) = bytes.split_first_chunk::<HEADER_LEN>().expect("one was made");
    Message::decode(&Header::decode(header).ok()?, body).ok().flatten()
}

/// Returns a frame with these fields, as docs/formats/wire.md draws it.
pub fn forged(kind: u8, flags: u8, payload: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, flags];
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(payload.to_le_bytes());
    bytes.extend(crc32fast::hash(body).to_le_bytes());
    let crc = crc32fast::hash(&bytes);
    let check = ((crc >> 16) ^ (crc & 0xffff)) as u16;
    bytes.splice(2..2, check.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn options(first: u8) -> JobOptions {
    let update = [Update::Always, Update::SizeTime, Update::Digest, Update::Object];
    JobOptions {
        object: ObjectSize::new(64 << 10).expect("a power of two"),
        update: update[usize::from(first & 3)],
        delete: first & 4 != 0,
        in_place: first & 8 != 0,
        ..JobOptions::default()
    }
}

fn window() -> Window {
    Window { files: 64, facts: 1 << 20, bytes: 1 << 24 }
}

/// Feeds messages to a source: it continues or ends the session.
pub fn source_machine(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let settings = source::Settings {
        options: options(first),
        window: window(),
        timing: Timing::default(),
        retries: 2,
        awaits_answers: false,
    };
    let mut machine = Source::new(settings);
    let (mut now, mut out) = (Duration::ZERO, Vec::new());
    for (number, size) in [0, 1, 200_000, 70_000].into_iter().enumerate() {
        machine.offer(regular(number, size), None).expect("it is short");
    }
    for lane in [CONTROL, LaneId(1)] {
        machine.handle(source::Event::LaneUp(lane), now, &mut out);
    }
    machine.handle(source::Event::WalkEnded, now, &mut out);
    for (index, message) in frames(data).into_iter().enumerate() {
        let lane = LaneId(index as u32 & 1);
        now += Duration::from_millis(1);
        worked(&mut machine, lane, now, &mut out);
        machine.handle(source::Event::Message(lane, message), now, &mut out);
        while let Some(command) = out.pop() {
            let event = match command {
                source::Command::FindMissing { batch, names, .. } => {
                    source::Event::MissingFound { batch, fates: vec![Fate::Gone; names.len()] }
                }
                source::Command::FindNames { batch, .. } => {
                    source::Event::NamesFound(Named { batch, certain: true, last: true, names: Vec::new() })
                }
                _ => continue,
            };
            machine.handle(event, now, &mut out);
        }
        assert!(machine.open_files() <= 64);
    }
}

/// Returns NEW_FILE of a regular file.
pub fn regular(number: usize, size: u64) -> NewFile {
    let kind = FileKind::File { size, holes: Runs::default() };
    NewFile {
        number: FileNumber(0),
        mode: 0o644,
        mtime: Moment { sec: 5, nsec: 6 },
        atime: Moment { sec: 7, nsec: 8 },
        uid: 1,
        gid: 1,
        ..NewFile::new(format!("f{number}").into_bytes(), kind)
    }
}

/// Performs the work that the state machine has for a lane's worker.
fn worked(machine: &mut Source, lane: LaneId, now: Duration, out: &mut Vec<source::Command>) {
    let read = |size, mtime| haul_proto::Close::Read { size, mtime, root: None };
    for _ in 0..64 {
        let event = match machine.next(lane, now) {
            Work::Send(message) => {
                comes_back(&message);
                continue;
            }
            Work::Whole { facts, .. } => {
                let close = read(facts.size(), facts.mtime);
                source::Event::WholeSent { lane, file: facts.number, close }
            }
            Work::Object { facts, attempt, object, .. } => {
                source::Event::ObjectSent { lane, file: facts.number, attempt, object: object.index }
            }
            Work::Compare { facts, attempt, objects } => {
                let count = objects.map_or(1, |objects| objects.len());
                let digests = Ok(vec![KeyedDigest::from_bytes([9; KEYED_DIGEST_BYTES]); count]);
                source::Event::Compared { lane, file: facts.number, attempt, digests }
            }
            Work::Close { facts, attempt, .. } => {
                let close = read(facts.size(), facts.mtime);
                source::Event::Closed { lane, file: facts.number, attempt, close }
            }
            _ => return,
        };
        machine.handle(event, now, out);
    }
}

/// Checks that an accepted name leads to a path below the root, and nowhere else.
pub fn names(data: &[u8]) {
    if let Ok(path) = check_name(data) {
        let parts = path.as_bytes().split(|byte| *byte == b'/');
        assert!(parts.into_iter().all(|part| !matches!(part, b"" | b"." | b"..") && !part.contains(&0)));
        let is_reserved = data.split(|byte| *byte == b'/').any(|part| part.starts_with(b".haul-"));
        assert!(!is_reserved || check_accepted(data).is_err());
        assert!(check_accepted(data).is_ok() || check_received(data).is_err());
    }
}

/// Decodes the first bytes of an unauthenticated client.
pub fn hello(data: &[u8]) {
    if let Ok(said) = haul_net::hello::describe(data) {
        assert!(said.is_ascii());
    }
}

/// Decodes the answer of a server before authentication, and messages about UDP.
pub fn answer(data: &[u8]) {
    if let Ok(said) = haul_net::hello::describe_answer(data) {
        assert!(said.is_ascii());
    }
    for said in [haul_net::describe_upgrade(data), haul_net::describe_departure(data)].into_iter().flatten() {
        assert!(said.is_ascii());
    }
}

/// Parses a host and a port in the form of a ticket or of a user.
pub fn address(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse::<Address>().as_ref(), Ok(&address));
    }
    if let Ok(host) = Host::parse(&text) {
        assert_eq!(Host::parse(&host.to_string()), Ok(host));
    }
}

/// Parses the line of a ticket.
pub fn ticket(data: &[u8]) {
    let mut sealed = data.to_vec();
    sealed.extend(crc32fast::hash(data).to_le_bytes());
    let texts = [String::from_utf8_lossy(data).into_owned(), format!("haul1{}", base32(&sealed))];
    for ticket in texts.iter().filter_map(|text| Ticket::parse(text).ok()) {
        let line = ticket.to_line();
        let again = Ticket::parse(&line).expect("its own line is understood");
        assert_eq!((again.id(), again.addresses()), (ticket.id(), ticket.addresses()));
        assert_eq!(*again.to_line(), *line);
    }
}

/// Reads a stored certificate and its key.
pub fn identity(data: &[u8]) {
    if let Ok(identity) = haul_net::Identity::from_pem(&String::from_utf8_lossy(data)) {
        let again = haul_net::Identity::from_pem(&identity.to_pem()).expect("its own text is understood");
        assert_eq!(again.fingerprint(), identity.fingerprint());
    }
}

/// Encodes bytes by RFC 4648 section 6, in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    let bits = |at: usize| (bytes[at / 8] >> (7 - at % 8)) & 1;
    let count = bytes.len() * 8;
    let letter = |first: usize| {
        let value = (first..first + 5).fold(0, |all, at| all << 1 | if at < count { bits(at) } else { 0 });
        char::from(b"abcdefghijklmnopqrstuvwxyz234567"[usize::from(value)])
    };
    (0..count).step_by(5).map(letter).collect()
}

/// Decodes a job record, also with its digest corrected.
pub fn record(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let body = text.rfind("blake3=").map_or(&*text, |at| &text[..at]);
    let sealed = format!("{body}blake3={}\n", haul_digest::digest(Algorithm::Blake3, body.as_bytes()));
    for bytes in [data, sealed.as_bytes()] {
        if let Ok(record) = JobRecord::decode(bytes) {
            assert_eq!(JobRecord::decode(&record.encode()), Ok(record));
        }
    }
}

/// Decodes a waybill and its end alone, also with the checksum of each line corrected.
pub fn read_waybill(data: &[u8]) {
    for bytes in [data.to_vec(), resealed(data)] {
        let records = waybill::Reader::new(bytes.as_slice()).count();
        assert!(records <= 2 * bytes.len() + 2, "more records than lines could bring");
        let _ = waybill::may_append(&bytes);
        let _ = waybill::Tail::of(&bytes[bytes.len().saturating_sub(waybill::TAIL_BYTES)..]);
    }
    if let Some(seconds) = waybill::parse_date(&String::from_utf8_lossy(data)) {
        assert_eq!(waybill::parse_date(&waybill::date(seconds)), Some(seconds));
    }
}

/// Returns the lines with correct checksums, by the rule of docs/formats/waybill.md.
fn resealed(data: &[u8]) -> Vec<u8> {
    let (mut bytes, mut sum) = (Vec::new(), 0);
    for line in data.split(|byte| *byte == b'\n') {
        let end = line.iter().rposition(|byte| *byte == b' ').unwrap_or(line.len());
        let line = &line[..end];
        if line.starts_with(b"surehaul-waybill") {
            sum = 0;
        }
        let mut crc = crc32fast::Hasher::new_with_initial(sum);
        crc.update(line);
        crc.update(b" ");
        sum = crc.finalize();
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(format!(" {sum:08x}\n").as_bytes());
    }
    bytes
}

/// Decodes the files of an object log. Each has the length of its name in one byte, the name, the
/// length of its bytes in two bytes, and the bytes.
pub fn object_log(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = (Identity::from_hex(&text), text.parse::<Mechanism>(), text.parse::<objects::Encoding>());
    let mut files = BTreeMap::new();
    let mut rest = data;
    while let Some((&len, after)) = rest.split_first() {
        let (name, after) = after.split_at(usize::from(len).min(after.len()));
        let Some((len, after)) = after.split_first_chunk::<2>() else { break };
        let (bytes, after) = after.split_at(usize::from(u16::from_le_bytes(*len)).min(after.len()));
        files.insert(String::from_utf8_lossy(name).into_owned(), bytes.to_vec());
        rest = after;
    }
    let job = log_job();
    let found = objects::replay(&job, &files);
    let log = objects::Log::resume(job, Style::DEFAULT, 7, &found);
    assert_eq!(log.facts(), found.facts, "what is resumed from knows no more and no less");
    for flaw in &found.flaws {
        if let Flaw::Newer { name, .. } = flaw {
            assert_eq!(
                objects::newer(name, &files[name]).as_ref(),
                Some(flaw),
                "it is refused before it is read"
            );
        }
    }
}

/// Returns the job of the logs of [`object_log`].
pub fn log_job() -> objects::Job {
    objects::Job { id: Identity::of(b"fuzzed"), object: ObjectSize::new(64 << 10).expect("a power of two") }
}

/// Returns the key of the journals of [`read_journal`].
pub fn journal_key() -> haul_digest::DigestKey {
    haul_digest::DigestKey::of_journals(&[7; 32])
}

/// Decodes the resume states of a verification and of a waybill.
pub fn resume(data: &[u8]) {
    fuzzing::verify_state(data);
    fuzzing::waybill_state(data);
}

/// Decodes the journal of an in-place repair.
pub fn read_journal(data: &[u8]) {
    let Ok(reader) = journal::Reader::new(data, &journal_key()) else { return };
    let mut end = 0;
    for chunk in reader {
        let Ok(chunk) = chunk else { return };
        let ByteRange { start, end: after } = chunk.range();
        assert!(start.0 >= end && after > start, "chunks are in order");
        end = after.0;
        assert_ne!(chunk.state(&chunk.old), journal::ChunkState::Foreign);
    }
}

/// Decodes a list of checksums, as each kind that hints can select.
pub fn read_list(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else { return };
    let kinds = [Kind::Any, Kind::Sfv];
    let forced =
        (first & 4 != 0).then(|| vec![Algorithm::ALL[usize::from(first >> 3) % Algorithm::ALL.len()]]);
    let zero = first & 2 != 0;
    let hints = Hints { kind: kinds[usize::from(first & 1)].clone(), forced, zero, ..Hints::default() };
    let mut reader = list::Reader::new(&hints);
    for line in text.split(|byte| *byte == if zero { 0 } else { b'\n' }) {
        if let list::Line::Claim(claim) = reader.read(line) {
            assert!(!claim.stated.is_empty(), "a claim states something");
        }
    }
    if let Some(name) = list::unescape(text)
        && let Some(again) = list::escape(&name)
    {
        assert_eq!(list::unescape(&again), Some(name));
    }
}

/// Decodes digests stored with files: haul's format with a corrected CRC, XRootD's, and EOS's.
pub fn stored(data: &[u8]) {
    let mut sealed = data.to_vec();
    let crc = haul_digest::digest(Algorithm::Crc32c, data).value().unwrap_or(0) as u32;
    sealed.extend(crc.to_le_bytes());
    for bytes in [data, &sealed] {
        if let Ok(value) = Stored::decode(bytes) {
            assert_eq!(Stored::decode(&value.encode()), Ok(value));
        }
    }
    for algorithm in xrootd::algorithms() {
        if let Ok(value) = xrootd::XrootdValue::decode(algorithm, data) {
            let again = value.encode().expect("XRootD computes it");
            assert_eq!(xrootd::XrootdValue::decode(algorithm, &again), Ok(value));
        }
    }
    let at = data.len().min(8);
    if let Ok(digest) = eos::decode(&data[..at], &data[at..]) {
        let _: Digest = digest;
    }
}

/// Decodes a signature of a waybill, and a list of allowed signers.
pub fn signature(data: &[u8]) {
    let understood = haul_engine::signature::key_fingerprint(data);
    let lines = haul_engine::signature::count_signers(data);
    // No input is both.
    assert!(understood.is_err() || lines.is_err());
}

/// Maximum length of a decompressed block in this target.
const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Decompresses a block: its decompressed length in two bytes, and a frame.
pub fn packed(data: &[u8]) {
    let Some((len, frame)) = data.split_first_chunk() else { return };
    let len = usize::from(u16::from_le_bytes(*len));
    // A frame without an end must not count as one that fills the block.
    let mut block = vec![0xa5; BLOCK_BYTES_MAX + 1];
    let mut unpacker = Unpacker::default();
    unpacker.room(frame.len()).copy_from_slice(frame);
    if unpacker.unpack(&mut block[..len]).is_ok() {
        let theirs = zstd::bulk::decompress(frame, len).expect("a frame to the library's other way in");
        assert!(block[..len] == theirs, "it is what the frame holds");
    }
    assert!(block[len..].iter().all(|&byte| byte == 0xa5), "nothing is written behind the block");
}
