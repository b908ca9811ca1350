//! mcp's `--read-stdin`: one copy a line, as `SOURCE DEST [START-END,...]`, names percent-encoded (RFC 3986).

use haul_engine::copy::{BatchItem, quote};
use haul_model::limits;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use thiserror::Error;

/// Why a line says nothing to copy.
#[derive(Debug, Error)]
pub(super) enum BatchError {
    #[error("standard input: {0}")]
    Read(#[from] io::Error),
    #[error("standard input, line {line}: two names were expected: SOURCE DEST [START-END,...]")]
    Names { line: u64 },
    #[error("standard input, line {line}: {} is not percent-encoded", quote(name))]
    Encoding { line: u64, name: OsString },
    #[error("standard input, line {line}: {} is no range START-END with START below END", quote(range))]
    Range { line: u64, range: OsString },
    #[error("standard input, line {line}: longer than {} bytes", limits::LIST_LINE_BYTES_MAX)]
    TooLong { line: u64 },
}

/// Reads all lines; those that say nothing to copy are told to `report`, and the rest goes on.
pub(super) fn read(mut input: impl BufRead, mut report: impl FnMut(BatchError)) -> Vec<BatchItem> {
    let mut items = Vec::new();
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let most = limits::LIST_LINE_BYTES_MAX as u64 + 1;
        match input.by_ref().take(most).read_until(b'\n', &mut text) {
            Ok(0) => break,
            Ok(_) if text.len() > limits::LIST_LINE_BYTES_MAX => {
                report(BatchError::TooLong { line });
                if let Err(error) = skip_line(&mut input) {
                    report(error.into());
                    break;
                }
            }
            Ok(_) => match item(line, &text) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => {}
                Err(error) => report(error),
            },
            Err(error) => {
                report(error.into());
                break;
            }
        }
    }
    items
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let (used, ended) = match input.fill_buf()? {
            [] => return Ok(()),
            bytes => match bytes.iter().position(|&byte| byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (bytes.len(), false),
            },
        };
        input.consume(used);
        if ended {
            return Ok(());
        }
    }
}

/// One line; `None` for an empty one.
fn item(line: u64, text: &[u8]) -> Result<Option<BatchItem>, BatchError> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(source) = words.next() else { return Ok(None) };
    let (Some(sink), ranges, None) = (words.next(), words.next(), words.next()) else {
        return Err(BatchError::Names { line });
    };
    let name = |word: &[u8]| {
        decode(word).ok_or_else(|| BatchError::Encoding { line, name: OsStr::from_bytes(word).to_owned() })
    };
    let mut item = BatchItem { source: name(source)?, sink: name(sink)?, ranges: Vec::new() };
    for word in ranges.into_iter().flat_map(|ranges| ranges.split(|&byte| byte == b',')) {
        let range = range(word)
            .ok_or_else(|| BatchError::Range { line, range: OsStr::from_bytes(word).to_owned() })?;
        item.ranges.push(range);
    }
    Ok(Some(item))
}

/// Undoes percent-encoding; `None` where `%` is not followed by two hexadecimal digits, or a NUL comes out.
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

    #[test]
    fn lines_give_names_and_ranges() {
        let mut errors = Vec::new();
        let items = read(&b"a%20b c\n\nd e 0-5,7-9\n"[..], |error| errors.push(error.to_string()));
        assert_eq!(errors, [""; 0]);
        assert_eq!(items[0].source, "a b");
        assert_eq!((items[0].sink.as_os_str(), items[0].ranges.len()), (OsStr::new("c"), 0));
        assert_eq!(items[1].ranges, [(0, 5), (7, 9)]);
    }

    #[test]
    fn bad_lines_are_named_and_the_rest_goes_on() {
        let long = vec![b'x'; limits::LIST_LINE_BYTES_MAX * 2];
        let text = [&b"one\na%4 b\na b 5-5\na b c d\n"[..], &long, b"\na%00 b\nlast one"].concat();
        let mut errors = Vec::new();
        let items = read(&text[..], |error| errors.push(error.to_string()));
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].source, "last");
        let lines: Vec<u64> =
            errors.iter().map(|error| error[21..].split(':').next().unwrap().parse().unwrap()).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 6]);
    }
}
