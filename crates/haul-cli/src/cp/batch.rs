//! mcp's `--read-stdin`: one copy per line, as `SOURCE DEST [START-END,...]`, with percent-encoded
//! names (RFC 3986).

use haul_coreutils::cp::{BatchFailure, BatchItem, BatchSource};
use haul_engine::copy::quote;
use haul_model::limits;
use haul_sys::wait;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use thiserror::Error;

/// Streamed list; at most one line is in memory.
pub(super) struct Lines<R> {
    input: R,
    text: Vec<u8>,
    line: u64,
    /// True if no more input can be read.
    ended: bool,
}

/// Input that may block.
pub(super) trait Input: BufRead + Send {
    /// Waits until data or the end is readable. Returns false if `stopping` returned true first.
    ///
    /// # Errors
    /// Returns the error of poll(2).
    fn wait(&mut self, stopping: &dyn Fn() -> bool) -> io::Result<bool>;
}

impl Input for BufReader<File> {
    fn wait(&mut self, stopping: &dyn Fn() -> bool) -> io::Result<bool> {
        if self.buffer().is_empty() { wait::until_readable(self.get_ref(), stopping) } else { Ok(true) }
    }
}

/// Returns standard input, for this list alone.
///
/// # Errors
/// Returns the error of dup(2).
pub(super) fn standard_input() -> io::Result<Lines<BufReader<File>>> {
    let stdin: BorrowedFd<'_> = rustix::stdio::stdin();
    Ok(Lines::new(BufReader::new(File::from(stdin.as_fd().try_clone_to_owned()?))))
}

/// Error of a line that names nothing to copy.
#[derive(Debug, Error)]
pub(super) enum BatchError {
    #[error("standard input: {0}")]
    Read(#[from] io::Error),
    #[error("standard input, line {line}: expected two names: SOURCE DEST [START-END,...]")]
    Names { line: u64 },
    #[error("standard input, line {line}: {} is not percent-encoded", quote(name))]
    Encoding { line: u64, name: OsString },
    #[error(
        "standard input, line {line}: invalid range {}: expected START-END with START below END",
        quote(range)
    )]
    Range { line: u64, range: OsString },
    #[error("standard input, line {line}: longer than {} bytes", limits::LIST_LINE_BYTES_MAX)]
    TooLong { line: u64 },
}

impl<R: Input> Lines<R> {
    fn new(input: R) -> Lines<R> {
        Lines { input, text: Vec::new(), line: 0, ended: false }
    }

    /// Reads up to the next line end. `None` at the end of the list, or if `stopping` returns true.
    fn read(&mut self, stopping: &dyn Fn() -> bool) -> io::Result<Option<Length>> {
        self.text.clear();
        let (mut length, mut is_begun) = (Length::Fits, false);
        loop {
            if !self.input.wait(stopping)? {
                return Ok(None);
            }
            let bytes = match self.input.fill_buf() {
                Ok([]) => return Ok(is_begun.then_some(length)),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            is_begun = true;
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let used = end.map_or(bytes.len(), |end| end + 1);
            if self.text.len() + used > limits::LIST_LINE_BYTES_MAX {
                length = Length::TooLong;
            }
            if length == Length::Fits {
                self.text.extend_from_slice(&bytes[..used]);
            }
            self.input.consume(used);
            if end.is_some() {
                return Ok(Some(length));
            }
        }
    }
}

/// Outcome of reading a line: within the length limit or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Fits,
    TooLong,
}

impl<R: Input> BatchSource for Lines<R> {
    fn next(&mut self, stopping: &dyn Fn() -> bool) -> Option<Result<BatchItem, BatchFailure>> {
        while !self.ended {
            self.line += 1;
            let line = self.line;
            let found = match self.read(stopping) {
                Ok(Some(Length::Fits)) => item(line, &self.text),
                Ok(Some(Length::TooLong)) => Err(BatchError::TooLong { line }),
                Ok(None) => break,
                Err(error) => {
                    self.ended = true;
                    Err(error.into())
                }
            };
            if let Some(found) = found.transpose() {
                return Some(found.map_err(Into::into));
            }
        }
        self.ended = true;
        None
    }
}

/// Parses one line; `None` for an empty one.
fn item(line: u64, text: &[u8]) -> Result<Option<BatchItem>, BatchError> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(source) = words.next() else { return Ok(None) };
    let (Some(sink), ranges, None) = (words.next(), words.next(), words.next()) else {
        return Err(BatchError::Names { line });
    };
    let name = |word: &[u8]| {
        decode(word).ok_or_else(|| BatchError::Encoding { line, name: OsStr::from_bytes(word).to_owned() })
    };
    let mut item = BatchItem { source: name(source)?, sink: name(sink)?, ranges: Vec::new(), backup: None };
    for word in ranges.into_iter().flat_map(|ranges| ranges.split(|&byte| byte == b',')) {
        let range = range(word)
            .ok_or_else(|| BatchError::Range { line, range: OsStr::from_bytes(word).to_owned() })?;
        item.ranges.push(range);
    }
    Ok(Some(item))
}

/// Decodes percent-encoding. Returns `None` if `%` is not followed by two hexadecimal digits, or if
/// the result contains NUL.
fn decode(word: &[u8]) -> Option<OsString> {
    let mut name = Vec::with_capacity(word.len());
    let mut rest = word.iter();
    while let Some(&byte) = rest.next() {
        let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16));
        let decoded = match byte {
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            other => other,
        };
        if decoded == 0 {
            return None;
        }
        name.push(decoded);
    }
    Some(OsString::from_vec(name))
}

fn range(word: &[u8]) -> Option<(u64, u64)> {
    let (start, end) = std::str::from_utf8(word).ok()?.split_once('-')?;
    let (start, end) = (start.parse().ok()?, end.parse().ok()?);
    (start < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    impl Input for &[u8] {
        fn wait(&mut self, _: &dyn Fn() -> bool) -> io::Result<bool> {
            Ok(true)
        }
    }

    /// Reads a complete list: its items, and the messages about other lines.
    fn read(text: &'static [u8]) -> (Vec<BatchItem>, Vec<String>) {
        let (mut items, mut errors) = (Vec::new(), Vec::new());
        let mut lines = Lines::new(text);
        while let Some(found) = lines.next(&|| false) {
            match found {
                Ok(item) => items.push(item),
                Err(error) => errors.push(error.to_string()),
            }
        }
        (items, errors)
    }

    #[test]
    fn lines_are_parsed_into_names_and_ranges() {
        let (items, errors) = read(b"a%20b c\n\nd e 0-5,7-9\n");
        assert_eq!(errors, [""; 0]);
        assert_eq!(items[0].source, "a b");
        assert_eq!((items[0].sink.as_os_str(), items[0].ranges.len()), (OsStr::new("c"), 0));
        assert_eq!(items[1].ranges, [(0, 5), (7, 9)]);
    }

    #[test]
    fn bad_lines_are_reported_and_the_other_lines_are_read() {
        let long = vec![b'x'; limits::LIST_LINE_BYTES_MAX * 2];
        let text = [&b"one\na%4 b\na b 5-5\na b c d\n"[..], &long, b"\na%00 b\nlast one"].concat();
        let (items, errors) = read(text.leak());
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].source, "last");
        let lines: Vec<u64> =
            errors.iter().map(|error| error[21..].split(':').next().unwrap().parse().unwrap()).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_stop_request_ends_the_list() {
        let (reader, _writer) = io::pipe().unwrap();
        let mut lines = Lines::new(BufReader::new(File::from(OwnedFd::from(reader))));
        assert!(lines.next(&|| true).is_none());
    }
}
