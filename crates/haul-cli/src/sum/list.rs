//! Names of files from a list: `--files-from`, and msum's `--read-stdin`.

use super::line::read_range;
use super::quote::quotef;
use haul_engine::sum::{Operand, Operands, reason};
use haul_model::{ByteLen, ByteOffset, ByteRange, limits};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A list that is read while its files are hashed.
pub(crate) struct List {
    name: OsString,
    reader: BufReader<Box<dyn Read + Send>>,
    kind: ListKind,
    line: u64,
    /// Remaining ranges of the last line's file.
    pending: VecDeque<Operand>,
    ended: bool,
    offset: ByteOffset,
    length: Option<ByteLen>,
}

/// Format of a list's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// Names that end with this byte: a line break or NUL.
    Names(u8),
    /// Lines `FILE RANGES`.
    Ranges,
}

impl List {
    /// Opens a list; `-` is the standard input.
    ///
    /// # Errors
    /// Returns the error of open(2).
    pub(crate) fn open(
        name: &OsStr,
        kind: ListKind,
        offset: ByteOffset,
        length: Option<ByteLen>,
    ) -> io::Result<List> {
        let source: Box<dyn Read + Send> =
            if name == "-" { Box::new(io::stdin()) } else { Box::new(File::open(name)?) };
        let reader = BufReader::with_capacity(64 << 10, source);
        let (name, pending) = (name.to_owned(), VecDeque::new());
        Ok(List { name, reader, kind, line: 0, pending, ended: false, offset, length })
    }

    fn complaint(&self, why: &str) -> Operand {
        Operand::Malformed { complaint: format!("{}:{}: {why}", quotef(&self.name), self.line) }
    }

    /// Returns true if a list on standard input names standard input, which cannot be hashed
    /// meanwhile.
    fn is_its_own(&self, path: &[u8]) -> bool {
        self.name == "-" && path == b"-"
    }

    fn piece(&mut self) -> Option<Operand> {
        let end = match self.kind {
            ListKind::Names(end) => end,
            ListKind::Ranges => b'\n',
        };
        loop {
            self.line += 1;
            let mut piece = Vec::new();
            match read_piece(&mut self.reader, end, &mut piece) {
                Err(error) => {
                    self.ended = true;
                    return Some(self.complaint(&reason(&error)));
                }
                Ok(Piece::End) => {
                    self.ended = true;
                    return None;
                }
                Ok(Piece::TooLong) => return Some(self.complaint("line is too long")),
                Ok(Piece::Whole) if piece.is_empty() => {}
                Ok(Piece::Whole | Piece::Unended) => return Some(self.operand(piece)),
            }
        }
    }

    fn operand(&mut self, piece: Vec<u8>) -> Operand {
        if piece.contains(&0) {
            return self.complaint("file name contains a NUL byte");
        }
        if self.kind != ListKind::Ranges {
            if self.is_its_own(&piece) {
                return self.complaint(ITS_OWN);
            }
            return Operand::File {
                path: OsString::from_vec(piece),
                offset: self.offset,
                length: self.length,
            };
        }
        let Some((path, ranges)) = split_ranges(&piece) else {
            return self.complaint("not of the form FILE START-END,...");
        };
        if self.is_its_own(path.as_bytes()) {
            return self.complaint(ITS_OWN);
        }
        let whole = Operand::File { path: path.clone(), offset: self.offset, length: self.length };
        let part = |range: ByteRange| Operand::File {
            path: path.clone(),
            offset: range.start,
            length: Some(ByteLen(range.len())),
        };
        self.pending.extend(ranges.into_iter().map(part));
        self.pending.pop_front().unwrap_or(whole)
    }
}

impl Operands for List {
    fn next(&mut self) -> Option<Operand> {
        if let Some(operand) = self.pending.pop_front() {
            return Some(operand);
        }
        if self.ended { None } else { self.piece() }
    }

    fn ready(&self) -> bool {
        let end = if let ListKind::Names(end) = self.kind { end } else { b'\n' };
        self.ended || !self.pending.is_empty() || self.reader.buffer().contains(&end)
    }
}

/// Message for `-` in a list that is `-` itself.
const ITS_OWN: &str = "a list on standard input cannot name standard input";

/// Result of reading one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The complete entry, without its end mark.
    Whole,
    /// The last entry of a list that ends without an end mark. It may be truncated.
    Unended,
    /// The entry exceeds [`limits::LIST_LINE_BYTES_MAX`] and was skipped.
    TooLong,
    /// The end of the list.
    End,
}

/// Reads up to the next `end` byte, or to the list's end.
pub(crate) fn read_piece(reader: &mut impl BufRead, end: u8, piece: &mut Vec<u8>) -> io::Result<Piece> {
    piece.clear();
    let read = reader.by_ref().take(limits::LIST_LINE_BYTES_MAX as u64).read_until(end, piece)?;
    if read == 0 {
        return Ok(Piece::End);
    }
    if piece.last() == Some(&end) {
        piece.pop();
        return Ok(Piece::Whole);
    }
    if read < limits::LIST_LINE_BYTES_MAX {
        return Ok(Piece::Unended);
    }
    reader.skip_until(end)?;
    piece.clear();
    Ok(Piece::TooLong)
}

/// Splits `NAME[ RANGES]` and unescapes the name.
fn split_ranges(line: &[u8]) -> Option<(OsString, Vec<ByteRange>)> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let path = unescape_uri(words.next()?)?;
    let ranges = match words.next() {
        None => Vec::new(),
        Some(text) => {
            let text = std::str::from_utf8(text).ok()?;
            let ranges: Option<Vec<ByteRange>> = text.split(',').map(read_range).collect();
            ranges.filter(|ranges| ranges.iter().all(|range| !range.is_empty()))?
        }
    };
    words.next().is_none().then(|| (OsString::from_vec(path), ranges))
}

/// Decodes `%41` and similar escapes (RFC 3986).
fn unescape_uri(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = tail;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_ranges_are_parsed() {
        let path = |text: &str| OsString::from(text);
        assert_eq!(split_ranges(b"a%20b"), Some((path("a b"), vec![])));
        let two = vec![ByteRange::between(1, 3), ByteRange::between(10, 12)];
        assert_eq!(split_ranges(b"f 1-3,10-12\r"), Some((path("f"), two)));
        for line in ["f 3-3", "f 3-1", "f 1-", "f 1-2 3", "%4", "%zz", "", "f -1-2"] {
            assert_eq!(split_ranges(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let long = vec![b'x'; limits::LIST_LINE_BYTES_MAX + 10];
        let bytes = [b"one\n".as_slice(), &long, b"\ntwo"].concat();
        let (mut reader, mut piece) = (io::Cursor::new(bytes), Vec::new());
        let mut read = |piece: &mut Vec<u8>| read_piece(&mut reader, b'\n', piece).unwrap();
        assert_eq!((read(&mut piece), piece.as_slice()), (Piece::Whole, b"one".as_slice()));
        assert_eq!(read(&mut piece), Piece::TooLong);
        assert_eq!((read(&mut piece), piece.as_slice()), (Piece::Unended, b"two".as_slice()));
        assert_eq!(read(&mut piece), Piece::End);
    }
}
