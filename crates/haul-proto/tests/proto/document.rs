//! Second encoder of all messages, written from docs/formats/wire.md alone. It must give the same
//! bytes as the codec.

use crate::any::message;
use crate::codec::{cases, encoded};
use haul_digest::{Algorithm, Digest};
use haul_model::{Level, Moment};
use haul_proto::{
    Answer, Close, Compression, Encoding, Fate, FileKind, JobOptions, LogRequest, Message, NameRule, NewFile,
    Outcome, PeerText, Reason, Role, Runs, Stated, Times, Unit, Update, Verify, Window,
};
use proptest::prelude::*;
use std::sync::LazyLock;
use std::time::Duration;

const DOCUMENT: &str = include_str!("../../../../docs/formats/wire.md");

/// Returns numbers and their names from a list in the document.
fn numbered(begin: &str) -> Vec<(u8, String)> {
    let list = DOCUMENT.split(begin).nth(1).unwrap().split(". ").next().unwrap().split(".\n").next().unwrap();
    let entry = |entry: &str| {
        let mut words = entry.split_whitespace();
        (words.next().unwrap().parse().unwrap(), words.next().unwrap().to_owned())
    };
    list.split(',').map(entry).collect()
}

/// Returns the number of a message's kind from the table of messages.
fn kind(message: &Message) -> u8 {
    let row = |line: &str| {
        let mut columns = line.strip_prefix("| ")?.split(" | ");
        let number = columns.next()?.parse().ok()?;
        (columns.next()? == message.name()).then_some(number)
    };
    DOCUMENT.lines().find_map(row).unwrap()
}

static ALGORITHMS: LazyLock<Vec<(u8, String)>> = LazyLock::new(|| numbered("Codes of algorithms: "));

static KINDS: LazyLock<Vec<(u8, String)>> = LazyLock::new(|| numbered("Kinds of entries: "));

/// The encoded fields of a body.
#[derive(Default)]
struct Page(Vec<u8>);

impl Page {
    fn u8(&mut self, value: u8) -> &mut Page {
        self.0.push(value);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Page {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Page {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Page {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Page {
        self.0.extend_from_slice(bytes);
        self
    }

    fn count(&mut self, count: usize) -> &mut Page {
        self.u32(u32::try_from(count).unwrap())
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Page {
        self.count(bytes.len()).raw(bytes)
    }

    fn moment(&mut self, moment: Moment) -> &mut Page {
        self.raw(&moment.sec.to_le_bytes()).u32(moment.nsec)
    }

    fn level(&mut self, level: Level) -> &mut Page {
        self.u8(match level {
            Level::Received => 1,
            Level::Verified => 2,
            Level::Durable => 3,
            Level::Reread => 4,
        })
    }

    fn algorithm(&mut self, algorithm: Algorithm) -> &mut Page {
        // BLAKE2b of all lengths has one name.
        let name = algorithm.name().to_ascii_lowercase();
        let is_it = |listed: &str| listed == name || listed == "blake2b" && name.starts_with("blake2b");
        let (code, _) = ALGORITHMS.iter().find(|(_, listed)| is_it(listed)).expect(&name);
        self.u8(*code).u8(u8::try_from(algorithm.digest_len()).unwrap())
    }

    fn digest(&mut self, digest: &Digest) -> &mut Page {
        self.algorithm(digest.algorithm()).raw(digest.as_bytes())
    }

    fn runs(&mut self, runs: &Runs) -> &mut Page {
        self.count(runs.pieces());
        for (start, end) in runs.iter() {
            self.u64(start).u64(end - start);
        }
        self
    }

    fn text(&mut self, text: &PeerText) -> &mut Page {
        self.bytes(&plain(&text.to_string()))
    }

    fn reason(&mut self, reason: &Reason) -> &mut Page {
        self.u16(reason.why.code()).text(&reason.text)
    }

    fn flag(&mut self, flag: bool) -> &mut Page {
        self.u8(u8::from(flag))
    }

    fn window(&mut self, window: &Window) -> &mut Page {
        self.u32(window.files).u64(window.facts).u64(window.bytes)
    }

    fn options(&mut self, options: &JobOptions) -> &mut Page {
        let (compression, level) = match options.compression {
            Compression::Off => (0, 0),
            Compression::Auto => (1, 0),
            Compression::Zstd(level) => (2, level),
        };
        let is_limited = options.max_delete != u64::MAX;
        let first = [options.in_order, options.in_place, options.delete, options.dry_run];
        let bits = [&first[..], &[options.delete_all, is_limited]].concat();
        self.u64(options.object.bytes()).u64(options.budget).u32(options.keep.0).algorithm(options.algorithm);
        self.u8(match options.verify {
            Verify::None => 0,
            Verify::Stream => 1,
            Verify::Reread => 2,
            Verify::Hybrid => 3,
            Verify::Sequential => 4,
            Verify::FilePipeline => 5,
            Verify::BlockPipeline => 6,
        });
        self.u8(match options.unit {
            Unit::Object => 0,
            Unit::File => 1,
        });
        self.level(options.settle).u8(match options.update {
            Update::Always => 0,
            Update::SizeTime => 1,
            Update::Digest => 2,
            Update::Object => 3,
            Update::Newer => 4,
            Update::Missing => 5,
        });
        self.u8(compression).raw(&level.to_le_bytes());
        self.u8(bits.iter().rev().fold(0, |all, bit| all << 1 | u8::from(*bit)));
        if is_limited { self.u64(options.max_delete) } else { self }
    }

    /// Appends an optional field.
    fn tagged(&mut self, tag: u16, field: &Page) -> &mut Page {
        self.u16(tag).bytes(&field.0)
    }

    fn resumes(&mut self, resumes: bool) -> &mut Page {
        if resumes { self.tagged(1, &Page::default()) } else { self }
    }

    fn log(&mut self, log_request: &Option<LogRequest>) -> &mut Page {
        if let Some(LogRequest { mechanism, files, encoding, sync, verify }) = *log_request {
            let mut field = Page::default();
            field.u8(mechanism).u8(encoding).u8(sync).u8(verify).u32(files);
            self.tagged(2, &field);
        }
        self
    }

    fn rules(&mut self, rules: &[NameRule]) -> &mut Page {
        if !rules.is_empty() {
            let mut field = Page::default();
            field.count(rules.len());
            for NameRule { is_include, pattern } in rules {
                field.flag(*is_include).bytes(pattern);
            }
            self.tagged(0x8003, &field);
        }
        self
    }

    fn new_file(&mut self, file: &NewFile) -> &mut Page {
        let code = match file.kind {
            FileKind::File { .. } => 0,
            FileKind::Directory => 1,
            FileKind::Symlink { .. } => 2,
            FileKind::HardLink { .. } => 3,
            FileKind::Fifo => 4,
            FileKind::Socket => 5,
            FileKind::CharDevice { .. } => 6,
            FileKind::BlockDevice { .. } => 7,
        };
        self.u64(file.number.0)
            .u8(u8::from(file.whole) | u8::from(file.again) << 1 | u8::from(file.is_linked) << 2)
            .u8(code)
            .u32(file.mode);
        self.moment(file.mtime).moment(file.atime).u32(file.uid).u32(file.gid);
        match &file.kind {
            FileKind::File { size, holes } => self.u64(*size).runs(holes),
            FileKind::Symlink { target } => self.bytes(target),
            FileKind::HardLink { first } => self.bytes(first),
            FileKind::CharDevice { major, minor } | FileKind::BlockDevice { major, minor } => {
                self.u32(*major).u32(*minor)
            }
            FileKind::Directory | FileKind::Fifo | FileKind::Socket => self,
        };
        self.bytes(&file.path).bytes(&file.user).bytes(&file.group).count(file.xattrs.len());
        for xattr in &file.xattrs {
            self.bytes(&xattr.name).bytes(&xattr.value);
        }
        if let Some(version) = &file.version {
            self.u16(1).bytes(version);
        }
        if file.principals.is_empty() {
            return self;
        }
        let mut field = Page::default();
        field.count(file.principals.len());
        for principal in &file.principals {
            field.u8(u8::from(principal.is_group)).u32(principal.number).bytes(&principal.name);
        }
        self.tagged(2, &field)
    }

    fn times(&mut self, times: &Times) -> &mut Page {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap();
        let mut field = Page::default();
        for time in [times.storage, times.hashing, times.packing, times.crypto] {
            field.u64(micros(time));
        }
        field.count(times.lanes.len());
        for lane in &times.lanes {
            field.u32(lane.lane.0).u64(micros(lane.sending)).u64(micros(lane.receiving));
        }
        self.tagged(1, &field);
        if micros(times.run_delay) == 0 {
            return self;
        }
        self.tagged(2, Page::default().u64(micros(times.run_delay)))
    }
}

/// Decodes a printed text in which each unprintable byte is `%` and two digits.
fn plain(printed: &str) -> Vec<u8> {
    let mut parts = printed.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

/// Returns the body of a message: the fields listed under its name in the document, then its
/// optional ones.
fn body(message: &Message) -> Page {
    let mut page = Page::default();
    match message {
        Message::Connect(connect) => {
            let (lowest, highest) = connect.versions;
            page.raw(b"haul").u16(lowest).u16(highest).u64(connect.offers.0).u64(connect.needs.0);
            page.raw(&connect.job).u8(u8::from(connect.role == Role::Sink));
            page.options(&connect.options).window(&connect.window).text(&connect.agent);
            page.count(connect.operands.len());
            for operand in &connect.operands {
                page.bytes(operand);
            }
            // The document does not specify the order of optional fields.
            page.log(&connect.log).resumes(connect.resumes).rules(&connect.rules)
        }
        Message::Accept(accept) => page
            .u16(accept.version)
            .u64(accept.features.0)
            .u32(accept.lanes)
            .raw(&accept.token)
            .options(&accept.options)
            .window(&accept.window)
            .text(&accept.agent)
            .resumes(accept.resumes),
        Message::Refuse(reason) => page.reason(reason),
        Message::Join(join) => page.raw(b"haul").u32(join.lane.0).raw(&join.token),
        Message::Operands(operands) => {
            page.flag(operands.last).count(operands.paths.len());
            operands.paths.iter().fold(&mut page, |page, path| page.bytes(path))
        }
        Message::NewFile(file) => page.new_file(file),
        Message::FileId(id) => {
            page.u64(id.number.0).u16(id.attempt);
            match &id.answer {
                Answer::Take { have } => page.u8(0).runs(have),
                Answer::Differing { have, end } => page.u8(1).runs(have).u64(*end),
                Answer::UnlessDigest => page.u8(2),
            }
        }
        Message::ObjectDigests(told) => {
            page.u64(told.number.0).u16(told.attempt);
            page.u64(told.first.map_or(u64::MAX, |object| object.0)).count(told.digests.len());
            told.digests.iter().fold(&mut page, |page, digest| page.raw(digest.as_bytes()))
        }
        Message::Compared(told) => page.u64(told.number.0).u16(told.attempt).u64(told.end).runs(&told.wanted),
        Message::NewBlock(block) => {
            page.u64(block.number.0).u64(block.object.0).u64(block.range.start.0).u64(block.range.len());
            page.u16(block.attempt).u8(match block.encoding {
                Encoding::Raw => 0,
                Encoding::Zstd => 1,
                Encoding::Zeros => 2,
                Encoding::Hole => 3,
            })
        }
        Message::BlockDigest(digest) => {
            page.u64(digest.number.0).u64(digest.object.0).u16(digest.attempt);
            match &digest.stated {
                Stated::Nothing => page.u8(0),
                Stated::Digest(digest) => page.u8(1).digest(digest),
                Stated::Later => page.u8(2),
                Stated::Abandoned => page.u8(3),
            }
        }
        Message::BlockSync(sync) => {
            page.u64(sync.number.0).u16(sync.attempt).level(sync.level).runs(&sync.objects)
        }
        Message::BlockReject(reject) => page
            .u64(reject.number.0)
            .u16(reject.attempt)
            .u64(reject.object.map_or(u64::MAX, |object| object.0))
            .reason(&reject.reason),
        Message::FileClose(told) => {
            page.u64(told.number.0).u16(told.attempt);
            match &told.close {
                Close::Read { size, mtime, root } => {
                    page.u8(0).u64(*size).moment(*mtime);
                    match root {
                        Some(root) => page.digest(root),
                        None => page.u8(0).u8(0),
                    }
                }
                Close::Failed(reason) => page.u8(2).reason(reason),
            }
        }
        Message::FileDone(done) => {
            page.u64(done.number.0);
            match &done.outcome {
                Outcome::Done(level) => page.u8(0).level(*level),
                Outcome::Same => page.u8(1),
                Outcome::DryRun => page.u8(2),
                Outcome::Failed(reason) => page.u8(3).reason(reason),
            }
        }
        Message::Unread(unread) => page.bytes(&unread.path).reason(&unread.reason),
        Message::WalkEnd(end) => page.u64(end.files).u64(end.errors).u64(end.unread).flag(end.delete),
        Message::List(list) => {
            page.u32(list.batch).bytes(&list.directory).count(list.names.len());
            list.names.iter().fold(&mut page, |page, name| page.bytes(name))
        }
        Message::Delete(delete) => {
            page.u32(delete.batch).count(delete.fates.len());
            delete.fates.iter().fold(&mut page, |page, fate| {
                page.u8(match fate {
                    Fate::Stays => 0,
                    Fate::Gone => 1,
                    Fate::Excluded => 2,
                    Fate::Guarded => 3,
                })
            })
        }
        Message::Names(names) => page.u32(names.batch).bytes(&names.directory).u64(names.from),
        Message::Named(named) => {
            page.u32(named.batch).flag(named.certain).flag(named.last).count(named.names.len());
            named.names.iter().fold(&mut page, |page, name| page.bytes(name))
        }
        Message::Bye(bye) => {
            let told = bye.summary;
            for number in [told.done, told.same, told.would, told.failed, told.unread] {
                page.u64(number);
            }
            for number in [told.deleted, told.undeleted, told.bytes, told.again] {
                page.u64(number);
            }
            page.flag(bye.reason.is_some());
            if let Some(reason) = &bye.reason {
                page.reason(reason);
            }
            bye.times.iter().fold(&mut page, |page, times| page.times(times));
            if told.over_limit > 0 {
                page.tagged(3, Page::default().u64(told.over_limit));
            }
            &mut page
        }
        Message::KeepAlive => &mut page,
        Message::Entries(told) => {
            page.flag(told.last).count(told.entries.len());
            for entry in &told.entries {
                let kind = KINDS.iter().find(|(_, name)| name == entry.kind.name());
                page.u8(kind.unwrap().0).u64(entry.size).moment(entry.mtime).u32(entry.mode);
                page.bytes(&entry.name);
            }
            &mut page
        }
    };
    page
}

/// Returns a frame, header and body, as the document draws it.
fn drawn(message: &Message) -> Vec<u8> {
    let body = body(message).0;
    let is_ignorable = matches!(message.name(), "UNREAD" | "KEEPALIVE");
    let payload = if let Message::NewBlock(block) = message { block.payload } else { 0 };
    let mut rest = Page::default();
    rest.count(body.len()).u32(payload).u32(crc32fast::hash(&body));
    let begin = [kind(message), u8::from(is_ignorable)];
    let check = crc32fast::hash(&[&begin[..], &rest.0].concat());
    let mut frame = Page::default();
    frame.raw(&begin).u16((check >> 16) as u16 ^ (check & 0xffff) as u16).raw(&rest.0).raw(&body);
    frame.0
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn encoded_messages_match_the_document(message in message()) {
        prop_assert_eq!(encoded(&message), drawn(&message));
    }
}

#[test]
fn document_lists_the_codes_of_all_algorithms() {
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        assert!(ALGORITHMS.iter().any(|(_, listed)| name.starts_with(listed.as_str())), "{name}");
    }
    assert_eq!(ALGORITHMS.len(), 27, "{ALGORITHMS:?}");
}
