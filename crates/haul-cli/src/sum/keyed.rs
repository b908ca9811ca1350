//! b3sum's keyed modes and its digests of any length: one file after the other.

use super::check::in_rust;
use super::format::Format;
use super::output::Output;
use haul_digest::{Blake3Mode, Blake3Output, ExtendedBlake3};
use haul_engine::sum::{SumError, read_through};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};

/// Key of the digests.
#[derive(Debug)]
pub(crate) enum Mode {
    /// No key: only the length differs.
    Hash,
    /// A key from standard input.
    Keyed,
    /// A key that is derived for this context.
    DeriveKey(String),
}

/// Job that prints such digests.
#[derive(Debug)]
pub(crate) struct KeyedJob {
    pub(crate) mode: Mode,
    /// Length of a digest in bytes; any number, because the output of BLAKE3 has no end.
    pub(crate) length: u64,
    /// First byte of the digest within the output.
    pub(crate) seek: u64,
    pub(crate) files: Vec<OsString>,
    pub(crate) format: Format,
}

/// Bytes of a long digest per write.
const PIECE_BYTES: u64 = 16 << 10;

impl KeyedJob {
    /// Prints all digests; returns true if all of them could be computed.
    pub(crate) fn run(&self, out: &mut Output<'_>) -> bool {
        let mode = match self.blake3_mode() {
            Ok(mode) => mode,
            Err(why) => {
                out.say_error(&format!("Error: {why}"));
                return false;
            }
        };
        let mut well = true;
        for file in &self.files {
            match self.hash(&mode, file) {
                Ok(output) => self.print(file, output, out),
                Err(why) => {
                    well = false;
                    out.complain(&format!("{}: {why}", file.to_string_lossy()));
                }
            }
            if out.ended_the_job() {
                break;
            }
        }
        well
    }

    fn blake3_mode(&self) -> Result<Blake3Mode, String> {
        match &self.mode {
            Mode::Hash => Ok(Blake3Mode::Hash),
            Mode::DeriveKey(context) => Ok(Blake3Mode::DeriveKey(context.clone())),
            Mode::Keyed => {
                let mut key = Vec::new();
                // One byte more than a key detects longer input.
                io::stdin().take(33).read_to_end(&mut key).map_err(|error| error.to_string())?;
                match <[u8; 32]>::try_from(key.as_slice()) {
                    Ok(key) => Ok(Blake3Mode::Keyed(key)),
                    Err(_) if key.len() > 32 => Err("read more than 32 key bytes from stdin".to_owned()),
                    Err(_) => Err(format!("expected 32 key bytes from stdin, found {}", key.len())),
                }
            }
        }
    }

    fn hash(&self, mode: &Blake3Mode, file: &OsStr) -> Result<Blake3Output, String> {
        if file == "-" && matches!(mode, Blake3Mode::Keyed(_)) {
            return Err("Cannot open `-` in keyed mode".to_owned());
        }
        let mut hasher = ExtendedBlake3::new(mode);
        let read = read_through(file, |bytes| hasher.update(bytes));
        read.map_err(|error: SumError| in_rust(&error))?;
        Ok(hasher.finish())
    }

    fn print(&self, file: &OsStr, mut output: Blake3Output, out: &mut Output<'_>) {
        let mut line = Vec::new();
        self.format.before_digest(file, &mut line);
        out.line(&line);
        output.seek(self.seek);
        let mut left = self.length;
        let mut piece = vec![0; left.min(PIECE_BYTES) as usize];
        while left > 0 && !out.ended_the_job() {
            let now = left.min(PIECE_BYTES) as usize;
            output.fill(&mut piece[..now]);
            line.clear();
            self.format.digest_bytes(&piece[..now], &mut line);
            out.line(&line);
            left -= now as u64;
        }
        line.clear();
        self.format.after_digest(file, &mut line);
        out.line(&line);
    }
}
