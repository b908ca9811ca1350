//! Reader of one list.

use super::json;
use crate::sum::list::{Piece, read_piece};
use haul_digest::Algorithm;
use haul_digest::list::{Flaw, Hints, Line, Reader, is_start_of_an_entry};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

/// Identity of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List {
    /// Number of the list within the run; a list that is given twice has two numbers.
    pub(super) number: u64,
    /// Name in messages.
    pub(super) name: OsString,
    /// True for a bag as a whole, which has no lines of its own.
    pub(super) is_bag: bool,
}

/// A list and its read position.
pub(super) struct ListReader {
    pub(super) list: Arc<List>,
    pub(super) line: u64,
    source: BufReader<Box<dyn Read + Send>>,
    reader: Reader,
    end: u8,
    /// True if another process may still write the lines, as in a pipe.
    waits: bool,
    is_stdin: bool,
    forced: Option<Vec<Algorithm>>,
}

/// Next item of a list.
pub(super) enum Next {
    Line(Line),
    End,
    Failed(String),
}

/// Read size in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Byte order marks of UTF-16 text, which Windows writes.
const UTF16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

impl ListReader {
    /// Opens a list; `-` is standard input.
    pub(super) fn open(path: &Path, list: List, hints: &Hints) -> io::Result<ListReader> {
        let is_stdin = path.as_os_str() == "-";
        let (source, waits): (Box<dyn Read + Send>, bool) = match is_stdin {
            true => (Box::new(io::stdin()), true),
            false => {
                let file = File::open(path)?;
                let waits = !file.metadata()?.is_file();
                (Box::new(file), waits)
            }
        };
        Ok(ListReader { waits, is_stdin, ..ListReader::new(source, list, hints) })
    }

    /// Creates the reader of a regular file that is open.
    pub(super) fn new(source: Box<dyn Read + Send>, list: List, hints: &Hints) -> ListReader {
        let source = BufReader::with_capacity(BUFFER_BYTES, source);
        let end = if hints.zero { 0 } else { b'\n' };
        let (list, reader, forced) = (Arc::new(list), Reader::new(hints), hints.forced.clone());
        ListReader { list, line: 0, source, reader, end, waits: false, is_stdin: false, forced }
    }

    /// Returns true if the next line is available without waiting for the writer of the list.
    pub(super) fn is_ready(&self) -> bool {
        !self.waits || self.source.buffer().contains(&self.end)
    }

    /// Reads the next line.
    pub(super) fn next(&mut self) -> Next {
        let mut line = Vec::new();
        self.line += 1;
        let is_cut = match read_piece(&mut self.source, self.end, &mut line) {
            Ok(Piece::Whole) => false,
            Ok(Piece::Unended) => is_start_of_an_entry(&line),
            Ok(Piece::TooLong) => return Next::Line(Line::Malformed(Flaw::TooLong)),
            Ok(Piece::End) => return Next::End,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Next::Failed(error.to_string());
            }
            Err(_) => return Next::Failed("read error".to_owned()),
        };
        if self.line == 1 && UTF16_MARKS.iter().any(|mark| line.starts_with(mark)) {
            return Next::Failed("cannot read UTF-16 text; convert the list to UTF-8 first".to_owned());
        }
        let read = match line.first() {
            Some(b'{') if !self.reader.is_sfv() => json::read(&line, self.forced.as_deref()),
            _ => self.reader.read(&line),
        };
        Next::Line(match read {
            Line::Claim(claim) if self.is_stdin && claim.name == b"-" => Line::Malformed(Flaw::OwnSource),
            Line::Malformed(Flaw::NoChecksum) | Line::Excluded if is_cut => Line::Malformed(Flaw::Damaged),
            Line::Remark if is_cut && line.starts_with(b"#") => Line::Malformed(Flaw::Damaged),
            read => read,
        })
    }
}
