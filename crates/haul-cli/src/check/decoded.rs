//! Text in a declared encoding, read as UTF-8.

use encoding_rs::{Decoder, Encoding, UTF_16BE, UTF_16LE};
use std::io::{self, Read};

/// Read size in bytes.
const READ_BYTES: usize = 8 << 10;

/// Reader that converts text to UTF-8. A byte order mark at the start is removed, and decides.
pub(super) struct DecodedText<R> {
    source: R,
    encoding: &'static Encoding,
    /// `None` before the first read.
    decoder: Option<Decoder>,
    bytes: Vec<u8>,
    text: String,
    /// Number of bytes of `text` that were read.
    at: usize,
    is_over: bool,
}

impl<R: Read> DecodedText<R> {
    pub(super) fn new(source: R, encoding: &'static Encoding) -> DecodedText<R> {
        let (bytes, text) = (vec![0; READ_BYTES], String::new());
        DecodedText { source, encoding, decoder: None, bytes, text, at: 0, is_over: false }
    }

    /// Decodes the next bytes of the source into `text`.
    fn fill(&mut self) -> io::Result<()> {
        let got = loop {
            match self.source.read(&mut self.bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.is_over = got == 0;
        let bytes = &self.bytes[..got];
        let decoder = self.decoder.get_or_insert_with(|| without_mark(self.encoding, bytes).new_decoder());
        let room = decoder.max_utf8_buffer_length(got).unwrap_or(4 * READ_BYTES);
        self.at = 0;
        self.text.clear();
        self.text.reserve(room);
        let (_, _, is_damaged) = decoder.decode_to_string(bytes, &mut self.text, self.is_over);
        if is_damaged {
            let text = format!("not text in {}", self.encoding.name());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }
}

impl<R: Read> Read for DecodedText<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.text.len() && !self.is_over {
            self.fill()?;
        }
        let rest = &self.text.as_bytes()[self.at..];
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        self.at += len;
        Ok(len)
    }
}

/// Returns the order of bytes in UTF-16 text without a byte order mark: its first character is
/// usually an ASCII one, whose high byte is 0.
fn without_mark(encoding: &'static Encoding, start: &[u8]) -> &'static Encoding {
    match start {
        [0, low, ..] if encoding == UTF_16LE && *low != 0 => UTF_16BE,
        [low, 0, ..] if encoding == UTF_16BE && *low != 0 => UTF_16LE,
        _ => encoding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of a source that yields the bytes one at a time.
    fn text(encoding: &'static Encoding, bytes: &[u8]) -> io::Result<String> {
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let len = self.0.len().min(2).min(buffer.len());
                self.0.read(&mut buffer[..len])
            }
        }
        let mut text = String::new();
        DecodedText::new(Slow(bytes), encoding).read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn utf16_is_decoded_in_both_orders_with_and_without_a_mark() {
        let written = "data/\u{e4}\u{1f600}\r\nx";
        let bytes = |big: bool| -> Vec<u8> {
            let units = written.encode_utf16();
            units.flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
        };
        for encoding in [UTF_16LE, UTF_16BE] {
            for big in [false, true] {
                let mark: &[u8] = if big { b"\xfe\xff" } else { b"\xff\xfe" };
                assert_eq!(text(encoding, &bytes(big)).unwrap(), written);
                assert_eq!(text(encoding, &[mark, &bytes(big)].concat()).unwrap(), written);
            }
        }
        assert_eq!(text(UTF_16LE, b"").unwrap(), "");
        assert_eq!(text(encoding_rs::WINDOWS_1252, b"\xe4").unwrap(), "\u{e4}");
    }

    #[test]
    fn damaged_text_is_an_error() {
        for bytes in [&b"a\0b"[..], b"a\0\0\xd8b\0"] {
            assert_eq!(text(UTF_16LE, bytes).unwrap_err().to_string(), "not text in UTF-16LE");
        }
    }
}
