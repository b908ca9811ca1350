//! Reader: decodes a waybill line by line and continues after damage.

use super::decode;
use super::facts::{End, Entry, Kind, LeafRun, ObjectDigests, Proven, Section};
use super::fields::{Fields, number};
use super::flaw::{Flaw, FlawKind, ReadError, Refusal};
use super::follow::Following;
use super::line::{LINE_BYTES_MAX, Links, MAGIC, VERSION};
use haul_digest::{Blake3Mode, Digest, ExtendedBlake3};
use std::collections::VecDeque;
use std::io::{self, BufRead};

/// Contents of one line. Objects, leaves and ranges belong to the entry before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Start of a section.
    Section(Section),
    /// A name.
    Entry(Entry),
    /// Digests of one object.
    Object(ObjectDigests),
    /// Digests of leaves of the previous object.
    Leaves(LeafRun),
    /// A range that reached a higher level.
    Proven(Proven),
    /// End of a section whose totals and digest match its lines.
    End(End),
}

/// Reader of a waybill: an iterator over its records and flaws, in the order of the lines.
///
/// One line and a few checksums are in memory at a time, for any input. The iterator ends after
/// [`ReadError::Io`] and [`ReadError::Refused`]. It continues after a [`Flaw`], without the
/// contents of the damaged line.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// Current line without its end.
    line: Vec<u8>,
    number: u64,
    /// Number of bytes read, counted from the first byte of the waybill.
    offset: u64,
    links: Links,
    /// Start of the current line.
    mark: Mark,
    section: Option<Open>,
    /// Number of sections closed so far, and the digest of the last one.
    closed: u64,
    before: Option<Digest>,
    following: Option<Following>,
    ready: VecDeque<Result<Record, ReadError>>,
    ended: bool,
}

/// Size of a stored [`Mark`] in bytes.
pub const MARK_BYTES: usize = 24;

/// Start of the line of an entry, from which [`Reader::resume`] can read the entry again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    offset: u64,
    line: u64,
    links: Links,
}

impl Mark {
    /// Returns the offset of the line in the waybill.
    pub fn offset(self) -> u64 {
        self.offset
    }

    /// Returns the mark as bytes, for storage during a job.
    pub fn to_bytes(self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.line.to_le_bytes());
        bytes[16..].copy_from_slice(&self.links.to_bytes());
        bytes
    }

    /// Returns the mark of these bytes.
    pub fn from_bytes(bytes: [u8; MARK_BYTES]) -> Mark {
        let (mut offset, mut line, mut links) = ([0; 8], [0; 8], [0; 8]);
        offset.copy_from_slice(&bytes[..8]);
        line.copy_from_slice(&bytes[8..16]);
        links.copy_from_slice(&bytes[16..]);
        let (offset, line) = (u64::from_le_bytes(offset), u64::from_le_bytes(line));
        Mark { offset, line, links: Links::from_bytes(links) }
    }
}

/// A section that has started.
#[derive(Debug)]
struct Open {
    number: u64,
    /// Not a `Hasher`, which would link all algorithms into a module for browsers.
    hasher: ExtendedBlake3,
    lines: u64,
    entries: u64,
    files: u64,
    bytes: u64,
    /// True after damage: totals and digest will differ, which is not reported again.
    flawed: bool,
}

/// Result of reading a line.
enum Taken {
    Whole,
    /// Longer than the maximum; the excess was skipped.
    TooLong,
    /// Ended by the end of the input.
    CutOff,
    Nothing,
}

impl<R: BufRead> Reader<R> {
    /// Returns a reader that starts at the first byte of a waybill.
    pub fn new(input: R) -> Reader<R> {
        Reader {
            input,
            line: Vec::new(),
            number: 0,
            offset: 0,
            links: Links::default(),
            mark: Mark::default(),
            section: None,
            closed: 0,
            before: None,
            following: None,
            ready: VecDeque::new(),
            ended: false,
        }
    }

    /// Returns the number of the last line read, counted from 1.
    pub fn line(&self) -> u64 {
        self.number
    }

    /// Returns the start of the last line read. Called directly after an entry, it is the start of
    /// the entry.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// Returns a reader that continues from the mark of an entry in the same waybill; `input` must
    /// be positioned at [`Mark::offset`].
    ///
    /// The caller can stop at any record. Lines and digests are checked as usual, but the totals of
    /// the section are not.
    pub fn resume(input: R, mark: Mark) -> Reader<R> {
        let mut reader = Reader::new(input);
        (reader.number, reader.offset, reader.links) = (mark.line - 1, mark.offset, mark.links);
        reader.open(0, true);
        reader
    }

    /// Reads one line and appends the resulting records to `ready`.
    fn step(&mut self) -> io::Result<()> {
        self.number += 1;
        self.mark = Mark { offset: self.offset, line: self.number, links: self.links };
        let taken = self.take_line()?;
        if self.number == 1 && !(self.line.starts_with(MAGIC.as_bytes()) && matches!(taken, Taken::Whole)) {
            self.refuse(Refusal::NotAWaybill);
            return Ok(());
        }
        match taken {
            Taken::Nothing => {
                self.ended = true;
                if self.section.is_some() {
                    self.flaw(FlawKind::NoEnd);
                }
            }
            Taken::CutOff => {
                self.ended = true;
                self.flaw(FlawKind::CutOff);
            }
            Taken::TooLong => self.damaged(FlawKind::TooLong),
            Taken::Whole => self.whole_line(),
        }
        Ok(())
    }

    fn whole_line(&mut self) {
        let is_head = self.line.starts_with(MAGIC.as_bytes());
        if is_head {
            self.links = Links::default();
        }
        let line = std::mem::take(&mut self.line);
        match self.links.take(&line) {
            None if is_head && self.number == 1 => self.refuse(Refusal::NotAWaybill),
            None => {
                self.count(&line);
                self.damaged(FlawKind::Damaged);
                if self.section.is_none() {
                    // The line was the head of a section, or replaced it.
                    self.open(self.closed + 1, true);
                }
            }
            Some(text) => {
                let (tag, rest) = text.split_once(' ').unwrap_or((text, ""));
                let record = self.record(tag, rest, text, &line);
                if let Err(kind) = record {
                    self.flaw(kind);
                }
            }
        }
        self.line = line;
    }

    fn record(&mut self, tag: &str, rest: &str, text: &str, line: &[u8]) -> Result<(), FlawKind> {
        if tag == MAGIC {
            return self.begin(&Fields::parse(rest)?, line);
        }
        if self.section.is_none() {
            return Err(FlawKind::Misplaced("no section is open"));
        }
        if tag == "end" {
            self.close_entry();
            return self.end(decode::end(&Fields::parse(rest)?)?);
        }
        self.count(line);
        if tag.starts_with(|first: char| first.is_ascii_digit()) {
            return self.below(text, tag.contains('.'));
        }
        if tag == "range" {
            let found = decode::proven(rest)?;
            let file = self.following.as_ref();
            file.ok_or(FlawKind::Misplaced("no file precedes the range"))?.proven(&found)?;
            self.give(Record::Proven(found));
            return Ok(());
        }
        if !decode::ENTRY_TAGS.contains(&tag) {
            // Later versions may add lines that this version can ignore.
            return if tag.starts_with("x-") { Ok(()) } else { Err(FlawKind::UnknownRecord) };
        }
        self.close_entry();
        let entry = decode::entry(tag, &Fields::parse(rest)?)?;
        if let Some(open) = &mut self.section {
            open.entries += 1;
            if let Kind::File(content) = &entry.kind {
                open.files += 1;
                open.bytes = open.bytes.saturating_add(content.size);
            }
        }
        self.following = Following::new(&entry);
        self.give(Record::Entry(entry));
        Ok(())
    }

    /// Reads a line of objects or leaves.
    fn below(&mut self, text: &str, leaves: bool) -> Result<(), FlawKind> {
        let Some(following) = &mut self.following else {
            // The line of their file was damaged and has been reported.
            let orphaned = self.section.as_ref().is_some_and(|open| open.flawed);
            return if orphaned {
                Ok(())
            } else {
                Err(FlawKind::Misplaced("no file with objects precedes the line"))
            };
        };
        match Reader::<R>::below_file(following, text, leaves) {
            Ok((record, followed)) => {
                self.give(record);
                followed
            }
            // After a damaged line it may belong to another file, whose own line is the damaged
            // one.
            Err(_) if following.is_damaged() => {
                self.following = None;
                Ok(())
            }
            Err(kind) => Err(kind),
        }
    }

    /// Decodes a line that belongs to a file, and checks that the digests match.
    fn below_file(
        following: &mut Following,
        text: &str,
        leaves: bool,
    ) -> Result<(Record, Result<(), FlawKind>), FlawKind> {
        let objects = following.objects().ok_or(FlawKind::Misplaced("the file has no objects"))?;
        if leaves {
            let found = decode::leaves(text, objects)?;
            let followed = following.leaves(&found)?;
            Ok((Record::Leaves(found), followed))
        } else {
            let found = decode::object(text, objects)?;
            let followed = following.object(&found)?;
            Ok((Record::Object(found), followed))
        }
    }

    fn begin(&mut self, fields: &Fields<'_>, line: &[u8]) -> Result<(), FlawKind> {
        let version = fields.must("version", |text| number(text).filter(|version| *version > 0))?;
        if version > VERSION {
            self.refuse(Refusal::Newer { line: self.number, version });
            return Ok(());
        }
        self.close_entry();
        // If the end of the previous section was damaged, that has been reported.
        let unclosed = self.section.take().map(|open| open.flawed);
        if unclosed == Some(false) {
            self.flaw(FlawKind::NoEnd);
        }
        let section = decode::section(fields);
        self.open(section.as_ref().map_or(self.closed + 1, |section| section.number), section.is_err());
        self.count(line);
        let section = section?;
        let continues = section.number == self.closed + 1 && section.after == self.before;
        self.give(Record::Section(section));
        if continues || unclosed.is_some() { Ok(()) } else { Err(FlawKind::NotContinued) }
    }

    fn open(&mut self, number: u64, flawed: bool) {
        let hasher = ExtendedBlake3::new(&Blake3Mode::Hash);
        self.section = Some(Open { number, hasher, lines: 0, entries: 0, files: 0, bytes: 0, flawed });
    }

    fn end(&mut self, end: End) -> Result<(), FlawKind> {
        let Some(open) = self.section.take() else { return Ok(()) };
        (self.closed, self.before) = (end.section, Some(end.digest));
        if open.flawed {
            // The flaws have been reported where they are.
            return Ok(());
        }
        if end.section != open.number {
            return Err(FlawKind::NotContinued);
        }
        for (what, stated, found) in [
            ("entries", end.entries, open.entries),
            ("files", end.files, open.files),
            ("bytes", end.bytes, open.bytes),
            ("lines", end.lines, open.lines),
        ] {
            if stated != found {
                return Err(FlawKind::Totals { what, stated, found });
            }
        }
        if open.hasher.digest() != end.digest {
            return Err(FlawKind::SectionDiffers);
        }
        self.give(Record::End(end));
        Ok(())
    }

    /// Counts a line in its section.
    fn count(&mut self, line: &[u8]) {
        if let Some(open) = &mut self.section {
            open.lines += 1;
            open.hasher.update(line);
            open.hasher.update(b"\n");
        }
    }

    /// Checks at the start of the next entry that the previous one is complete.
    fn close_entry(&mut self) {
        if let Some(following) = self.following.take()
            && let Err(kind) = following.end()
        {
            self.flaw(kind);
        }
    }

    fn damaged(&mut self, kind: FlawKind) {
        self.flaw(kind);
        let length = self.offset - self.mark.offset;
        match &mut self.following {
            // The file was already complete, so the line belonged to another entry.
            Some(following) if following.is_complete() => self.following = None,
            Some(following) => following.damaged(length),
            None => {}
        }
    }

    fn flaw(&mut self, kind: FlawKind) {
        if let Some(open) = &mut self.section {
            open.flawed = true;
        }
        self.ready.push_back(Err(Flaw { line: self.number, kind }.into()));
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.ended = true;
        self.ready.push_back(Err(refusal.into()));
    }

    fn give(&mut self, record: Record) {
        self.ready.push_back(Ok(record));
    }

    /// Reads up to the next line end into `line`.
    fn take_line(&mut self) -> io::Result<Taken> {
        self.line.clear();
        let mut too_long = false;
        loop {
            let found = match self.input.fill_buf() {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if found.is_empty() {
                let nothing = self.line.is_empty() && !too_long;
                return Ok(if nothing { Taken::Nothing } else { Taken::CutOff });
            }
            let end = found.iter().position(|&byte| byte == b'\n');
            let piece = &found[..end.unwrap_or(found.len())];
            too_long |= self.line.len() + piece.len() >= LINE_BYTES_MAX;
            if !too_long {
                self.line.extend_from_slice(piece);
            }
            let used = piece.len() + usize::from(end.is_some());
            self.input.consume(used);
            self.offset += used as u64;
            if end.is_some() {
                return Ok(if too_long { Taken::TooLong } else { Taken::Whole });
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Result<Record, ReadError>> {
        while self.ready.is_empty() && !self.ended {
            if let Err(error) = self.step() {
                self.ended = true;
                self.ready.push_back(Err(error.into()));
            }
        }
        self.ready.pop_front()
    }
}
