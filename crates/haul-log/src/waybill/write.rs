//! Writing: one section, line by line.

use super::facts::{
    Content, End, Entry, Job, Kind, LeafRun, ObjectDigests, Objects, Proven, Section, Special,
};
use super::fields::put;
use super::line::{Chain, LINE_BYTES_MAX, MAGIC, VERSION};
use super::tail::Tail;
use super::time;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use haul_digest::{Algorithm, Digest, Hasher};
use haul_model::Percent;
use std::fmt::Write as _;
use std::io::{self, Write};
use thiserror::Error;

/// Why a record can't be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The output failed.
    #[error("the waybill can't be written: {0}")]
    Io(#[from] io::Error),
    /// A line would be longer than [`LINE_BYTES_MAX`], which no reader takes.
    #[error("a line of the waybill would be longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
}

/// Writes one section of a waybill. Whoever drops it without [`Writer::close`] leaves a waybill that its readers know
/// for cut off.
///
/// The order of calls is that of the lines: an entry, its objects in order each with its leaves, its ranges. What does
/// not belong together is a mistake of the caller, and the reader says so.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    chain: Chain,
    hasher: Hasher,
    end: End,
    line: String,
}

impl<W: Write> Writer<W> {
    /// Begins a waybill.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn new(out: W, job: &Job) -> Result<Writer<W>, WriteError> {
        Writer::begin(out, &Section { number: 1, after: None, job: job.clone() })
    }

    /// Begins a further section behind one that was closed, as its [`Tail`] says; `out` writes behind that.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn append(out: W, job: &Job, tail: &Tail) -> Result<Writer<W>, WriteError> {
        Writer::begin(out, &Section { number: tail.section + 1, after: Some(tail.digest), job: job.clone() })
    }

    fn begin(out: W, section: &Section) -> Result<Writer<W>, WriteError> {
        let digest = haul_digest::digest(Algorithm::Blake3, &[]);
        let end = End { section: section.number, entries: 0, files: 0, bytes: 0, lines: 0, digest };
        let hasher = Hasher::new(Algorithm::Blake3);
        let mut writer = Writer { out, chain: Chain::default(), hasher, end, line: String::new() };
        head(&mut writer.line, section);
        writer.send()?;
        Ok(writer)
    }

    /// Writes an entry.
    ///
    /// # Errors
    /// [`WriteError`].
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

    /// Writes the digests of the next object of the file before.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn object(&mut self, object: &ObjectDigests) -> Result<(), WriteError> {
        let _ = write!(self.line, "{}", object.index.0);
        for digest in &object.digests {
            self.line.push(' ');
            STANDARD_NO_PAD.encode_string(digest.as_bytes(), &mut self.line);
        }
        self.send()
    }

    /// Writes the next leaves of the object before; see [`LeafRun`] for how many.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn leaves(&mut self, run: &LeafRun) -> Result<(), WriteError> {
        let _ = write!(self.line, "{}.{} ", run.object.0, run.first);
        let bytes: Vec<u8> = run.digests.iter().flat_map(Digest::as_bytes).copied().collect();
        STANDARD_NO_PAD.encode_string(bytes, &mut self.line);
        self.send()
    }

    /// Writes that a range of the file before reached a higher level than the file as a whole.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn proven(&mut self, proven: &Proven) -> Result<(), WriteError> {
        let _ = write!(self.line, "range {} {}", proven.range, proven.level);
        self.send()
    }

    /// Sends on what the output holds back.
    ///
    /// # Errors
    /// [`WriteError::Io`].
    pub fn flush(&mut self) -> Result<(), WriteError> {
        Ok(self.out.flush()?)
    }

    /// Writes the closing line, and gives the output back.
    ///
    /// # Errors
    /// [`WriteError`]; the output is then without it.
    pub fn close(mut self) -> Result<(W, End), WriteError> {
        let mut end = self.end;
        end.digest = self.hasher.clone().finish();
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

/// The word that begins an entry's line.
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
    /// The word for it in a waybill: `file`, `dir`, `link`, ...
    pub fn name(&self) -> &'static str {
        tag(self)
    }
}

impl Job {
    /// When it began, as a date: `2026-11-21T10:43:25Z`.
    pub fn date(&self) -> String {
        time::date(self.at)
    }

    /// The words of a command line as one text, cut where it would be longer than [`super::RUN_BYTES_MAX`].
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
