//! `xxhsum`: its options, read letter by letter up to the first file.

use super::args::{self, Args, Stop};
use super::check::{CheckJob, ListTool, OutputOptions};
use super::format::{Format, Shape};
use super::list::ListKind;
use super::personality::Personality;
use super::resolve::{Files, PrintJob, SumJob, settings_of};
use haul_digest::Algorithm;
use haul_engine::sum::{Form, Recipe};
use haul_model::{ByteLen, ByteOffset};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const HELP: &str = "\
Usage: xxhsum [OPTION]... [FILE]...

Print or check xxHash checksums. With no FILE, or when FILE is -, read standard input.

  -H#              select the algorithm: 0 or 32, 1 or 64 (default), 2 or 128, 3 for XXH3 with 64 bits
      --tag        print ALGORITHM (FILE) = DIGEST
      --little-endian  print digests with the lowest byte first
      --files-from  read names of files from the FILEs, one per line
  -c, --check      read lists of checksums and check the files they name
  -q, --quiet      with -c, do not print OK for each matching file
      --status     with -c, print nothing; only the exit status shows the result
      --ignore-missing  with -c, skip missing files
      --strict     with -c, fail for lines that are not checksums
  -w, --warn       with -c, report lines that are not checksums
      --binary     accepted and ignored: files are always read as binary
  -h, --help       print this help
  -V, --version    print the version

Benchmarks (-b, -i, --bench-all) are part of 'haul bench'.
";

/// Options as typed.
#[derive(Debug)]
struct ParsedArgs {
    algorithm: Algorithm,
    check: bool,
    lists: bool,
    little_endian: bool,
    output_options: OutputOptions,
    tag: bool,
    files: Vec<OsString>,
}

/// Reason to stop reading options.
enum End {
    Stop(Stop),
    Wrong,
}

/// Parses and resolves a command line.
///
/// # Errors
/// Returns the text to print instead of a result.
pub(super) fn read(tool: Personality, args: &[OsString]) -> Result<SumJob, Stop> {
    match ParsedArgs::read(tool, args) {
        Ok(typed) if typed.files.is_empty() && std::io::stdin().is_terminal() => Err(wrong()),
        Ok(typed) => typed.meaning(),
        Err(End::Stop(stop)) => Err(stop),
        Err(End::Wrong) => Err(wrong()),
    }
}

fn wrong() -> Stop {
    Stop::Words { text: format!("Wrong parameters\n\n{HELP}"), well: false }
}

impl ParsedArgs {
    fn read(tool: Personality, args: &[OsString]) -> Result<ParsedArgs, End> {
        let mut typed = ParsedArgs {
            algorithm: tool.algorithm,
            check: false,
            lists: false,
            little_endian: false,
            output_options: OutputOptions::default(),
            tag: false,
            files: Vec::new(),
        };
        let mut words = args.iter();
        for word in words.by_ref() {
            match word.as_bytes() {
                b"--" => break,
                b"-" => {}
                long if long.starts_with(b"--") => typed.long(tool, long)?,
                [b'-', letters @ ..] => typed.letters(tool, letters)?,
                _ => {
                    typed.files.push(word.clone());
                    break;
                }
            }
        }
        typed.files.extend(words.cloned());
        Ok(typed)
    }

    fn long(&mut self, tool: Personality, word: &[u8]) -> Result<(), End> {
        match word {
            b"--check" => self.check = true,
            b"--quiet" => self.output_options.quiet = true,
            b"--status" => self.output_options.status = true,
            b"--strict" => self.output_options.strict = true,
            b"--warn" => self.output_options.warn = true,
            b"--ignore-missing" => self.output_options.ignore_missing = true,
            // Binary is the only mode.
            b"--binary" => {}
            b"--tag" => self.tag = true,
            b"--little-endian" => self.little_endian = true,
            b"--files-from" | b"--filelist" => self.lists = true,
            b"--help" => return Err(End::Stop(Stop::Words { text: HELP.to_owned(), well: true })),
            b"--version" => return Err(version(tool)),
            b"--benchmark-all" | b"--bench-all" => return Err(benchmark()),
            _ => return Err(End::Wrong),
        }
        Ok(())
    }

    fn letters(&mut self, tool: Personality, letters: &[u8]) -> Result<(), End> {
        let mut rest = letters;
        while let Some((&letter, behind)) = rest.split_first() {
            let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (number, behind_number) = behind.split_at(digits);
            rest = behind;
            match letter {
                b'c' => self.check = true,
                b'q' => self.output_options.quiet = true,
                b'w' => self.output_options.warn = true,
                b'h' => return Err(End::Stop(Stop::Words { text: HELP.to_owned(), well: true })),
                b'V' => return Err(version(tool)),
                b'b' => return Err(benchmark()),
                // Number and size of the blocks of a benchmark: ignored.
                b'i' | b'B' => rest = behind_number.strip_prefix(b"K").unwrap_or(behind_number),
                b'H' => {
                    self.algorithm = algorithm(number).ok_or(End::Wrong)?;
                    // A 64-bit XXH3 looks like an XXH64: the original tags it, and tags all further
                    // output.
                    self.tag |= self.algorithm == Algorithm::Xxh3_64;
                    rest = behind_number;
                }
                _ => return Err(End::Wrong),
            }
        }
        Ok(())
    }

    fn meaning(self) -> Result<SumJob, Stop> {
        let settings = settings_of(&Args::default()).map_err(Stop::UsageError)?;
        let named = !self.files.is_empty();
        // After the first file a dash is an ordinary name.
        let files = match named {
            true => self.files.into_iter().map(not_stdin).collect(),
            false => vec!["-".into()],
        };
        if self.check {
            return Ok(SumJob::Check(CheckJob {
                settings,
                reading: ListTool::Xxhsum { little_endian: self.little_endian },
                output_options: self.output_options,
                lists: files,
                leaf: ByteLen(1),
                subtree: ByteLen(1),
                progress: false,
            }));
        }
        let files = match self.lists {
            true => Files::Listed(files, ListKind::Names(b'\n')),
            false => Files::Given(files),
        };
        let shape = if self.tag { Shape::Tagged } else { Shape::Untagged { binary: false } };
        let format = Format {
            shape,
            zero: false,
            base64: false,
            family: super::personality::Family::Xxhsum,
            little_endian: self.little_endian,
        };
        Ok(SumJob::Print(PrintJob {
            waybill: None,
            store: None,
            settings,
            recipe: Arc::new(Recipe { algorithms: vec![self.algorithm], form: Form::Plain }),
            files,
            offset: ByteOffset(0),
            length: None,
            recurse: false,
            format,
            named: true,
            progress: false,
        }))
    }
}

/// Returns a path that is never standard input; [`shown`] reverses this.
fn not_stdin(path: OsString) -> OsString {
    if path == "-" { "./-".into() } else { path }
}

/// Returns the name as typed.
pub(super) fn shown(path: &std::ffi::OsStr) -> &std::ffi::OsStr {
    if path == "./-" { std::ffi::OsStr::new("-") } else { path }
}

fn algorithm(number: &[u8]) -> Option<Algorithm> {
    match number {
        b"" | b"0" | b"32" => Some(Algorithm::Xxh32),
        b"1" | b"64" => Some(Algorithm::Xxh64),
        b"2" | b"128" => Some(Algorithm::Xxh3_128),
        b"3" => Some(Algorithm::Xxh3_64),
        _ => None,
    }
}

fn version(tool: Personality) -> End {
    End::Stop(Stop::Words { text: args::version(tool), well: true })
}

fn benchmark() -> End {
    let text = "this xxhsum has no benchmarks; use 'haul bench -a xxh32,xxh64,xxh3-64,xxh3-128'";
    End::Stop(Stop::Failure(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;

    /// Every option that the parser above knows.
    const KNOWN: [&str; 30] = [
        "-H0",
        "-H1",
        "-H2",
        "-H3",
        "-H32",
        "-H64",
        "-H128",
        "--tag",
        "--little-endian",
        "-c",
        "--check",
        "-q",
        "--quiet",
        "--status",
        "--strict",
        "-w",
        "--warn",
        "--ignore-missing",
        "--binary",
        "--files-from",
        "--filelist",
        "-b",
        "--bench-all",
        "--benchmark-all",
        "-i",
        "-B",
        "-h",
        "--help",
        "-V",
        "--version",
    ];

    #[test]
    fn every_option_is_documented_and_tested() {
        let tool = Personality::of("xxhsum");
        for option in KNOWN {
            let read = ParsedArgs::read(tool, &[option.into()]);
            assert!(!matches!(read, Err(End::Wrong)), "{option}");
        }
        documented::in_sections("docs/options/sums.md", &["xxhsum"], KNOWN.map(str::to_owned));
    }
}
