//! Writer: encodes one section line by line.

use super::facts::{
    Content, End, Entry, Job, Kind, LeafRun, ObjectDigests, Objects, Proven, Section, Special,
};
use super::fields::put;
use super::line::{Chain, LINE_BYTES_MAX, MAGIC, VERSION};
use super::tail::Tail;
use super::time;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use haul_digest::{Blake3Mode, Digest, ExtendedBlake3};
use haul_model::Percent;
use std::fmt::Write as _;
use std::io::{self, Write};
use thiserror::Error;

/// Error of a writer.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The output failed.
    #[error("cannot write the waybill: {0}")]
    Io(#[from] io::Error),
    /// A line would be longer than [`LINE_BYTES_MAX`], which readers reject.
    #[error("cannot write the waybill: a line would exceed {LINE_BYTES_MAX} bytes")]
    TooLong,
}

/// Writer of one section of a waybill. Without a call of [`Writer::close`] the waybill stays
/// truncated, and readers detect that.
///
/// The calls must have the order of the lines: an entry, its objects in order, each followed by its
/// leaves, its ranges. The writer does not check the order; the reader reports violations.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    chain: Chain,
    /// Not a `Hasher`, which would link all algorithms into a module for browsers.
    hasher: ExtendedBlake3,
    end: End,
    line: String,
}

/// State of a [`Writer`] between two lines.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    chain: Chain,
    hasher: ExtendedBlake3,
    end: End,
}

impl<W: Write> Writer<W> {
    /// Returns the present state, for [`Writer::restore`].
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { chain: self.chain, hasher: self.hasher.clone(), end: self.end }
    }

    /// Returns to an earlier state. The caller removes the lines since then from the output.
    pub fn restore(&mut self, earlier: Checkpoint) {
        (self.chain, self.hasher, self.end) = (earlier.chain, earlier.hasher, earlier.end);
        self.line.clear();
    }

    /// Starts a waybill.
    ///
    /// # Errors
    ///
    /// Returns a [`WriteError`] if the output fails or the line is too long.
    pub fn new(out: W, job: &Job) -> Result<Writer<W>, WriteError> {
        Writer::begin(out, &Section { number: 1, after: None, job: job.clone() })
    }

    /// Starts another section after a closed one, which the [`Tail`] describes. `out` must append
    /// to the waybill.
    ///
    /// # Errors
    ///
    /// Returns a [`WriteError`] if the output fails or the line is too long.
    pub fn append(out: W, job: &Job, tail: &Tail) -> Result<Writer<W>, WriteError> {
        Writer::begin(out, &Section { number: tail.section + 1, after: Some(tail.digest), job: job.clone() })
    }

    fn begin(out: W, section: &Section) -> Result<Writer<W>, WriteError> {
        let hasher = ExtendedBlake3::new(&Blake3Mode::Hash);
        let digest = hasher.digest();
        let end = End { section: section.number, entries: 0, files: 0, bytes: 0, lines: 0, digest };
        let mut writer = Writer { out, chain: Chain::default(), hasher, end, line: String::new() };
        head(&mut writer.line, section);
        writer.send()?;
        Ok(writer)
    }

    /// Writes an entry.
    ///
    /// # Errors
    ///
    /// Returns a [`WriteError`] if the output fails or the line is too long.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), WriteError> {
        self.line.push_str(tag(&entry.kind));
        put(&mut self.line, "path", &entry.path);
        match &entry.kind {
            Kind::File(content) => put(&mut self.line, "size", content.size),
            Kind::Same { first } => put(&mut self.line, "first", first),
            Kind::Link { target } => put(&mut self.line, "target", Percent(target)),
            Kind::Special(Special::CharDevice(device) | Special::BlockDevice(device)) => {
                put(&mut self.line, "device", device);
            }
            Kind::Directory | Kind::Special(_) => {}
        }
        put(&mut self.line, "mode", format_args!("{:04o}", entry.mode & 0o7777));
        put(&mut self.line, "mtime", entry.mtime.to_decimal());
        if let Kind::File(content) = &entry.kind {
            put_content(&mut self.line, content);
            self.end.files += 1;
            self.end.bytes = self.end.bytes.saturating_add(content.size);
        }
        self.end.entries += 1;
        self.send()
    }

    /// Writes the digests of the next object of the current file.
    ///
    /// # Errors
    ///
    /// Returns a [`WriteError`] if the output fails or the line is too long.
    pub fn object(&mut self, object: &ObjectDigests) -> Result<(), WriteError> {
        let _ = write!(self.line, "{}", object.index.0);
        for digest in &object.digests {
            self.line.push(' ');
            STANDARD_NO_PAD.encode_string(digest.as_bytes(), &mut self.line);
        }
        self.send()
    }

    /// Writes the next leaves of the current object; for their number see [`LeafRun`].
    ///
    /// # Errors
    ///
    /// Returns a [`WriteError`] if the output fails or the line is too long.
    pub fn leaves(&mut self, run: &LeafRun) -> Result<(), WriteError> {
        let _ = write!(self.line, "{}.{} ", run.object.0, run.first);
        let bytes: Vec<u8> = run.digests.iter().flat_map(Digest::as_bytes).copied().collect();
        STANDARD_NO_PAD.encode_string(bytes, &mut self.line);
        self.send()
    }

    /// Writes a range of the current file that reached a higher level than the complete file.
    ///
    /// # Errors
    ///
    /// Returns a [`WriteError`] if the output fails or the line is too long.
    pub fn proven(&mut self, proven: &Proven) -> Result<(), WriteError> {
        let _ = write!(self.line, "range {} {}", proven.range, proven.level);
        self.send()
    }

    /// Flushes the output.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::Io`] if the output fails.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        Ok(self.out.flush()?)
    }

    /// Returns the output, which has all lines so far.
    pub fn output(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes the closing line and returns the output.
    ///
    /// # Errors
    ///
    /// Returns a [`WriteError`] if the output fails; the waybill then stays without an intact
    /// closing line.
    pub fn close(mut self) -> Result<(W, End), WriteError> {
        let mut end = self.end;
        end.digest = self.hasher.digest();
        self.line.push_str("end");
        put(&mut self.line, "section", end.section);
        put(&mut self.line, "entries", end.entries);
        put(&mut self.line, "files", end.files);
        put(&mut self.line, "bytes", end.bytes);
        put(&mut self.line, "lines", end.lines);
        put(&mut self.line, "blake3", end.digest);
        self.send()?;
        self.out.flush()?;
        Ok((self.out, end))
    }

    /// Seals the line and writes it.
    fn send(&mut self) -> Result<(), WriteError> {
        let is_short = self.line.len() + "_12345678\n".len() <= LINE_BYTES_MAX;
        if is_short {
            self.chain.seal(&mut self.line);
            self.hasher.update(self.line.as_bytes());
            self.end.lines += 1;
            self.out.write_all(self.line.as_bytes())?;
        }
        self.line.clear();
        if is_short { Ok(()) } else { Err(WriteError::TooLong) }
    }
}

fn head(line: &mut String, section: &Section) {
    line.push_str(MAGIC);
    put(line, "version", VERSION);
    put(line, "section", section.number);
    if let Some(after) = section.after {
        put(line, "after", after);
    }
    put(line, "at", time::date(section.job.at));
    put(line, "program", Percent(section.job.program.as_bytes()));
    put(line, "root", Percent(&section.job.root));
    put(line, "run", Percent(&section.job.run));
}

fn put_content(line: &mut String, content: &Content) {
    if let Some(way) = content.way {
        put(line, "way", way.name());
    }
    if let Some(level) = content.level {
        put(line, "level", level);
    }
    if let Some(Objects { size, algorithms, leaf }) = &content.objects {
        put(line, "object", size.bytes());
        let names: Vec<&str> = algorithms.iter().map(|algorithm| algorithm.name()).collect();
        put(line, "of", names.join(","));
        if let Some(leaf) = leaf {
            put(line, "leaf", leaf.bytes());
        }
    }
    for digest in &content.digests {
        put(line, digest.algorithm().name(), digest);
    }
}

/// Returns the tag of an entry's line.
pub(super) fn tag(kind: &Kind) -> &'static str {
    match kind {
        Kind::File(_) => "file",
        Kind::Same { .. } => "same",
        Kind::Directory => "dir",
        Kind::Link { .. } => "link",
        Kind::Special(Special::Fifo) => "fifo",
        Kind::Special(Special::Socket) => "socket",
        Kind::Special(Special::CharDevice(_)) => "char",
        Kind::Special(Special::BlockDevice(_)) => "block",
    }
}

impl Kind {
    /// Returns the name of the kind in a waybill: `file`, `dir`, `link`, ...
    pub fn name(&self) -> &'static str {
        tag(self)
    }
}

impl Job {
    /// Returns the start time as a date: `2026-11-21T10:43:25Z`.
    pub fn date(&self) -> String {
        time::date(self.at)
    }

    /// Joins the words of a command line into one text, truncated to [`super::RUN_BYTES_MAX`]
    /// bytes.
    pub fn run_of<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut run = Vec::new();
        for word in words {
            if !run.is_empty() {
                run.push(b' ');
            }
            run.extend_from_slice(word);
            if run.len() > super::RUN_BYTES_MAX {
                run.truncate(super::RUN_BYTES_MAX - 4);
                run.extend_from_slice(b" ...");
                break;
            }
        }
        run
    }
}
