//! `--combine`: the value of a file from those of its blocks, without its bytes.

use super::list::{Piece, read_piece};
use super::output::Output;
use super::quote::quotef;
use haul_digest::{Algorithm, Digest, combine};
use haul_engine::sum::reason;
use haul_model::ByteLen;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader};

/// Joining given values.
pub(crate) struct CombineJob {
    pub(crate) algorithm: Algorithm,
    /// `VALUE:LENGTH` each; none for lines `VALUE LENGTH` on the standard input.
    pub(crate) parts: Vec<OsString>,
    pub(crate) json: bool,
}

impl CombineJob {
    /// Prints `VALUE LENGTH` of the whole; what it was given in the same form can be given again.
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
        let read = |part: &OsString| {
            let split = part.to_str().and_then(|text| text.rsplit_once(':'));
            split.and_then(|(value, len)| self.part(value, len)).ok_or_else(|| self.malformed(part))
        };
        self.parts.iter().map(read).collect()
    }

    fn read_lines(&self) -> Result<Vec<(Digest, ByteLen)>, String> {
        let mut input = BufReader::new(io::stdin());
        let (mut line, mut parts) = (Vec::new(), Vec::new());
        loop {
            let piece =
                read_piece(&mut input, b'\n', &mut line).map_err(|error| format!("-: {}", reason(&error)))?;
            if piece == Piece::End {
                return Ok(parts);
            }
            let text = String::from_utf8_lossy(&line);
            let mut words = text.split_ascii_whitespace();
            let Some(value) = words.next() else { continue };
            let len = words.next().filter(|_| words.next().is_none());
            let part = len.and_then(|len| self.part(value, len));
            parts.push(part.ok_or_else(|| self.malformed(OsStr::new(&*text)))?);
        }
    }

    /// A value in hexadecimal of full width, or a decimal one for `cksum`; and a length in bytes.
    fn part(&self, value: &str, len: &str) -> Option<(Digest, ByteLen)> {
        let len = len.parse().ok()?;
        let decimal = || {
            let value: u32 = value.parse().ok().filter(|_| self.algorithm == Algorithm::Cksum)?;
            Digest::from_bytes(Algorithm::Cksum, &value.to_be_bytes()).ok()
        };
        let hex = || Digest::from_hex(self.algorithm, value).ok();
        decimal().or_else(hex).map(|digest| (digest, ByteLen(len)))
    }

    fn malformed(&self, part: &OsStr) -> String {
        let digits = self.algorithm.digest_len() * 2;
        format!("{}: not a {} value of {digits} digits with a length", quotef(part), self.algorithm)
    }
}
