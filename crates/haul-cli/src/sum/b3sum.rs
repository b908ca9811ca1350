//! Options of `b3sum` and their exclusions.

use super::args::{self, Args, Stop};
use super::check::{CheckJob, ListTool, OutputOptions};
use super::format::{Format, Shape};
use super::getopt::{Getopt, Item, Row};
use super::keyed::{KeyedJob, Mode};
use super::personality::Personality;
use super::resolve::{Files, PrintJob, SumJob, settings_of};
use haul_digest::Algorithm;
use haul_engine::sum::{Form, Recipe};
use haul_model::{ByteLen, ByteOffset, limits};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const HELP: &str = "\
Usage: b3sum [OPTION]... [FILE]...

Print or check BLAKE3 checksums. With no FILE, or when FILE is -, read standard input.

  -l, --length LEN       length of the digest in bytes (default 32)
      --seek POS         start at byte POS of the output stream of the digest (default 0)
      --keyed            use a key of 32 bytes from standard input
      --derive-key CONTEXT  derive a key for this context
      --num-threads NUM  use NUM worker threads; 0 for one per core
      --no-mmap          accepted and ignored: files are never mapped
      --no-names         print digests without names
      --raw              print only the bytes of one file's digest
      --tag              print BLAKE3 (FILE) = DIGEST
  -c, --check            read lists of checksums and check the files they name
      --quiet            with -c, do not print OK for each matching file
  -h, --help             print this help
  -V, --version          print the version
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opt {
    Check,
    DeriveKey,
    Help,
    Keyed,
    Length,
    NoMmap,
    NoNames,
    NumThreads,
    Quiet,
    Raw,
    Seek,
    Tag,
    Version,
}

const fn row(id: Opt, short: Option<u8>, long: &'static str, value: bool) -> Row<Opt> {
    Row { id, short, long: Some(long), value, original: true }
}

static TABLE: [Row<Opt>; 13] = [
    row(Opt::Check, Some(b'c'), "check", false),
    row(Opt::DeriveKey, None, "derive-key", true),
    row(Opt::Help, Some(b'h'), "help", false),
    row(Opt::Keyed, None, "keyed", false),
    row(Opt::Length, Some(b'l'), "length", true),
    row(Opt::NoMmap, None, "no-mmap", false),
    row(Opt::NoNames, None, "no-names", false),
    row(Opt::NumThreads, None, "num-threads", true),
    row(Opt::Quiet, None, "quiet", false),
    row(Opt::Raw, None, "raw", false),
    row(Opt::Seek, None, "seek", true),
    row(Opt::Tag, None, "tag", false),
    row(Opt::Version, Some(b'V'), "version", false),
];

/// Options as typed, each at most once.
#[derive(Debug, Default)]
struct ParsedArgs {
    options: Vec<(Opt, OsString)>,
    files: Vec<OsString>,
}

/// Pairs of options that exclude each other.
const EXCLUDED: [(Opt, &[Opt]); 3] = [
    (Opt::Check, &[Opt::DeriveKey, Opt::Keyed, Opt::Length, Opt::Seek, Opt::Raw, Opt::NoNames, Opt::Tag]),
    (Opt::Keyed, &[Opt::DeriveKey]),
    (Opt::Quiet, &[]),
];

/// Parses and resolves a command line.
///
/// # Errors
/// Returns the text to print instead of a result.
pub(super) fn read(tool: Personality, args: &[OsString]) -> Result<SumJob, Stop> {
    let mut typed = ParsedArgs::default();
    for item in Getopt::new(TABLE.to_vec(), args, false) {
        match item.map_err(|mistake| Stop::UsageError(mistake.to_string()))? {
            Item::Option(Opt::Help, _) => return Err(Stop::Answer(HELP.to_owned())),
            Item::Option(Opt::Version, _) => return Err(Stop::Answer(args::version(tool))),
            Item::Option(option, _) if typed.has(option) => {
                let text = format!("the option {} was given more than once", name(option));
                return Err(Stop::UsageError(text));
            }
            Item::Option(option, value) => typed.options.push((option, value.unwrap_or_default())),
            Item::Operand(operand) => typed.files.push(operand),
        }
    }
    typed.complain_of_contradictions()?;
    typed.meaning(tool)
}

fn name(option: Opt) -> String {
    let row = TABLE.iter().find(|row| row.id == option);
    format!("--{}", row.and_then(|row| row.long).unwrap_or_default())
}

impl ParsedArgs {
    fn has(&self, option: Opt) -> bool {
        self.value(option).is_some()
    }

    fn value(&self, option: Opt) -> Option<&OsString> {
        self.options.iter().find(|(typed, _)| *typed == option).map(|(_, value)| value)
    }

    fn complain_of_contradictions(&self) -> Result<(), Stop> {
        for (one, others) in EXCLUDED.iter().filter(|(one, _)| self.has(*one)) {
            if let Some(other) = others.iter().find(|other| self.has(**other)) {
                return Err(Stop::UsageError(format!("{} cannot be used with {}", name(*other), name(*one))));
            }
        }
        if self.has(Opt::Quiet) && !self.has(Opt::Check) {
            return Err(Stop::UsageError("--quiet needs --check".to_owned()));
        }
        if self.files.iter().any(|file| file.is_empty()) {
            return Err(Stop::UsageError("a FILE has an empty name".to_owned()));
        }
        if self.has(Opt::Keyed) && self.files.is_empty() {
            return Err(Stop::UsageError("--keyed needs a FILE: standard input holds the key".to_owned()));
        }
        Ok(())
    }

    fn meaning(self, tool: Personality) -> Result<SumJob, Stop> {
        let mut own = Args::default();
        if let Some(number) = self.number(Opt::NumThreads)? {
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            own.threads = (number > 0).then(|| number.min(limits::WORKERS_MAX).to_string());
        }
        let settings = settings_of(&own).map_err(Stop::UsageError)?;
        let files = if self.files.is_empty() { vec!["-".into()] } else { self.files.clone() };
        if self.has(Opt::Check) {
            let output_options = OutputOptions { quiet: self.has(Opt::Quiet), ..OutputOptions::default() };
            let (leaf, subtree) = (ByteLen(1), ByteLen(1));
            let reading = ListTool::B3sum;
            let job =
                CheckJob { settings, reading, output_options, lists: files, leaf, subtree, progress: false };
            return Ok(SumJob::Check(job));
        }
        if self.has(Opt::Raw) && files.len() > 1 {
            return Err(said("Error: Only one filename can be provided when using --raw"));
        }
        let shape = match () {
            () if self.has(Opt::Raw) => Shape::Raw,
            () if self.has(Opt::NoNames) => Shape::NoNames,
            () if self.has(Opt::Tag) => Shape::Tagged,
            () => Shape::Untagged { binary: false },
        };
        let format = Format { shape, zero: false, base64: false, family: tool.family };
        if let Some(job) = self.keyed(&files, format)? {
            return Ok(SumJob::Keyed(job));
        }
        Ok(SumJob::Print(PrintJob {
            waybill: None,
            store: None,
            settings,
            recipe: Arc::new(Recipe { algorithms: vec![Algorithm::Blake3], form: Form::Plain }),
            files: Files::Given(files),
            offset: ByteOffset(0),
            length: None,
            recurse: false,
            format,
            named: true,
            progress: false,
        }))
    }

    /// Returns the number that is the value of an option.
    fn number(&self, option: Opt) -> Result<Option<u64>, Stop> {
        let Some(value) = self.value(option) else { return Ok(None) };
        let text = value.as_bytes().strip_prefix(b"=").unwrap_or(value.as_bytes());
        match std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok()) {
            Some(number) => Ok(Some(number)),
            None => {
                let (text, name) = (value.to_string_lossy(), name(option));
                Err(Stop::UsageError(format!("invalid value '{text}' for '{name}'")))
            }
        }
    }

    /// Returns the job for a keyed digest or another length; `None` for the plain digest.
    fn keyed(&self, files: &[OsString], format: Format) -> Result<Option<KeyedJob>, Stop> {
        let (length, seek) = (self.number(Opt::Length)?, self.number(Opt::Seek)?);
        let mode = match self.value(Opt::DeriveKey) {
            Some(context) => Mode::DeriveKey(context.to_string_lossy().into_owned()),
            None if self.has(Opt::Keyed) => Mode::Keyed,
            None => Mode::Hash,
        };
        let (length, seek) = (length.unwrap_or(32), seek.unwrap_or(0));
        let common = matches!(mode, Mode::Hash) && length == 32 && seek == 0;
        let files = files.to_vec();
        Ok((!common).then_some(KeyedJob { mode, length, seek, files, format }))
    }
}

fn said(text: &str) -> Stop {
    Stop::Words(format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;

    #[test]
    fn every_option_is_documented_and_tested() {
        let ways = |row: &Row<Opt>| {
            let short = row.short.map(|letter| format!("-{}", char::from(letter)));
            short.into_iter().chain(row.long.map(|long| format!("--{long}"))).collect::<Vec<_>>()
        };
        documented::in_sections("docs/options/sums.md", &["b3sum"], TABLE.iter().flat_map(ways));
    }
}
