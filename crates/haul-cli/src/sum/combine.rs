//! `--combine`: computes the value of a file from the values of its blocks, without its bytes.

use super::list::{Piece, read_piece};
use super::output::Output;
use super::quote::quotef;
use haul_digest::{Algorithm, Digest, combine};
use haul_engine::sum::reason;
use haul_model::ByteLen;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader};

/// Digits of a hexadecimal `cksum` value.
const CKSUM_HEX_DIGITS: usize = 8;

/// A combination of given values.
pub(crate) struct CombineJob {
    pub(crate) algorithm: Algorithm,
    /// Parts as `VALUE:LENGTH`; empty for lines `VALUE LENGTH` on standard input.
    pub(crate) parts: Vec<OsString>,
    pub(crate) json: bool,
}

impl CombineJob {
    /// Prints `VALUE LENGTH` of the whole, in a form that is valid as input again.
    pub(crate) fn run(&self, out: &mut Output<'_>) -> bool {
        let joined = self.read().and_then(|parts| self.join(&parts));
        match &joined {
            Ok(line) => out.line(line.as_bytes()),
            Err(error) => out.complain(error),
        }
        joined.is_ok()
    }

    fn join(&self, parts: &[(Digest, ByteLen)]) -> Result<String, String> {
        let whole = combine(self.algorithm, parts).map_err(|error| error.to_string())?;
        let len: u64 = parts.iter().map(|(_, len)| len.0).sum();
        if self.json {
            let record =
                serde_json::json!({"size": len, "digests": {self.algorithm.name(): whole.to_string()}});
            return Ok(format!("{record}\n"));
        }
        Ok(match (self.algorithm, whole.value()) {
            (Algorithm::Cksum, Some(value)) => format!("{value} {len}\n"),
            _ => format!("{whole} {len}\n"),
        })
    }

    fn read(&self) -> Result<Vec<(Digest, ByteLen)>, String> {
        if self.parts.is_empty() {
            return self.read_lines();
        }
        let split = |part: &OsString| {
            let split = part.to_str().and_then(|text| text.rsplit_once(':'));
            let (value, len) = split.ok_or_else(|| self.malformed(part))?;
            Ok::<_, String>((value.to_owned(), len.to_owned(), part.clone()))
        };
        self.values(self.parts.iter().map(split).collect::<Result<Vec<_>, _>>()?)
    }

    fn read_lines(&self) -> Result<Vec<(Digest, ByteLen)>, String> {
        let mut input = BufReader::new(io::stdin());
        let (mut line, mut parts) = (Vec::new(), Vec::new());
        loop {
            let piece =
                read_piece(&mut input, b'\n', &mut line).map_err(|error| format!("-: {}", reason(&error)))?;
            if piece == Piece::End {
                return self.values(parts);
            }
            let text = String::from_utf8_lossy(&line);
            let mut words = text.split_ascii_whitespace();
            let Some(value) = words.next() else { continue };
            let len = words.next().filter(|_| words.next().is_none());
            let len = len.ok_or_else(|| self.malformed(OsStr::new(&*text)))?;
            parts.push((value.to_owned(), len.to_owned(), OsString::from(&*text)));
        }
    }

    /// Reads values, each with its length in bytes and its source text. Values are hexadecimal of
    /// full width; those of `cksum` may be decimal. All values have one form. For `cksum`, a letter
    /// or `0x` indicates hexadecimal, and a value without exactly eight digits indicates decimal.
    ///
    /// # Errors
    /// Returns a message if a value has neither form, or if all of them can have both.
    fn values(&self, parts: Vec<(String, String, OsString)>) -> Result<Vec<(Digest, ByteLen)>, String> {
        let is_hex = |value: &str| value.bytes().any(|byte| byte.is_ascii_alphabetic());
        let values = || parts.iter().map(|(value, ..)| value.as_str());
        let decimal = self.algorithm == Algorithm::Cksum && !values().any(is_hex);
        if decimal && !parts.is_empty() && values().all(|value| value.len() == CKSUM_HEX_DIGITS) {
            let value = &parts[0].0;
            return Err(format!(
                "{value} can be decimal or hexadecimal: write 0x{value} if it is hexadecimal, or 00{value} if it is decimal"
            ));
        }
        let read = |(value, len, text): &(String, String, OsString)| {
            let digest = if decimal {
                let value = value.parse::<u32>().ok();
                value.and_then(|value| Digest::from_bytes(Algorithm::Cksum, &value.to_be_bytes()).ok())
            } else {
                let is_cksum = self.algorithm == Algorithm::Cksum;
                let value = value.strip_prefix("0x").filter(|_| is_cksum).unwrap_or(value);
                Digest::from_hex(self.algorithm, value).ok()
            };
            let part = digest.zip(len.parse().ok().map(ByteLen));
            part.ok_or_else(|| self.malformed(text))
        };
        parts.iter().map(read).collect()
    }

    fn malformed(&self, part: &OsStr) -> String {
        let digits = self.algorithm.digest_len() * 2;
        format!("{}: not a {} value of {digits} digits with a length", quotef(part), self.algorithm)
    }
}
