//! `md5sum` and similar tools, `b2sum`, `cksum` and `sum`: their options, checks and messages.

mod options;

use super::args::Stop;
use super::check::{CheckJob, ListTool, OutputOptions};
use super::format::{Format, Shape};
use super::getopt::{Getopt, Item};
use super::line::gnu::GnuRules;
use super::personality::{Family, Personality};
use super::quote::quote;
use super::resolve::{Files, PrintJob, SumJob, settings_of};
use haul_digest::{Algorithm, Blake2bLen};
use haul_engine::sum::{Form, Recipe};
use haul_model::{ByteLen, ByteOffset};
use options::{Opt, table};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// Options as typed.
#[derive(Debug, Default)]
struct ParsedArgs {
    algorithm: Option<&'static Kind>,
    base64: bool,
    /// The last of `--binary` and `--text`; `--tag` counts as the first.
    binary: Option<bool>,
    check: bool,
    debug: bool,
    ignore_missing: bool,
    /// Length in bits, with the typed text.
    length: Option<(u64, OsString)>,
    /// The last of `--quiet`, `--status` and `--warn`; each overrides the others.
    output_options: Verbosity,
    raw: bool,
    strict: bool,
    tag: bool,
    untagged: bool,
    zero: bool,
    sysv: bool,
    own: super::args::Args,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verbosity {
    #[default]
    Common,
    Quiet,
    Status,
    Warn,
}

/// Value of `cksum -a`.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    algorithm: Algorithm,
    /// True if coreutils 9.1 knows the value; later releases added the others.
    early: bool,
}

const fn kind(name: &'static str, algorithm: Algorithm, early: bool) -> Kind {
    Kind { name, algorithm, early }
}

/// Values in the order in which `cksum` lists them. `sha2` and `sha3` stand for several algorithms;
/// `--length` selects one.
static KINDS: [Kind; 14] = [
    kind("bsd", Algorithm::Bsd, true),
    kind("sysv", Algorithm::Sysv, true),
    kind("crc", Algorithm::Cksum, true),
    kind("crc32b", Algorithm::Crc32, false),
    kind("md5", Algorithm::Md5, true),
    kind("sha1", Algorithm::Sha1, true),
    kind("sha2", Algorithm::Sha256, false),
    kind("sha224", Algorithm::Sha224, true),
    kind("sha256", Algorithm::Sha256, true),
    kind("sha384", Algorithm::Sha384, true),
    kind("sha512", Algorithm::Sha512, true),
    kind("sha3", Algorithm::Sha3_256, false),
    kind("blake2b", Algorithm::Blake2b, true),
    kind("sm3", Algorithm::Sm3, true),
];

/// Parses and resolves a command line.
///
/// # Errors
/// Returns the text to print instead: an answer, or a usage error in the tool's own wording.
pub(super) fn read(tool: Personality, args: &[OsString]) -> Result<SumJob, Stop> {
    let options_first = std::env::var_os("POSIXLY_CORRECT").is_some();
    let mut typed = ParsedArgs::default();
    for item in Getopt::new(table(tool), args, options_first) {
        match item.map_err(|mistake| Stop::UsageError(mistake.to_string()))? {
            Item::Option(option, value) => typed.take(tool, option, value.unwrap_or_default())?,
            Item::Operand(operand) => typed.own.files.push(operand),
        }
    }
    typed.meaning(tool)
}

impl ParsedArgs {
    fn take(&mut self, tool: Personality, option: Opt, value: OsString) -> Result<(), Stop> {
        let text = || value.to_string_lossy().into_owned();
        match option {
            Opt::Algorithm => self.algorithm = Some(find_kind(&value)?),
            Opt::Base64 => self.base64 = true,
            Opt::Binary => self.binary = Some(true),
            Opt::Check => self.check = true,
            Opt::Debug => self.debug = true,
            Opt::Help => return Err(Stop::Answer(options::help(tool))),
            Opt::IgnoreMissing => self.ignore_missing = true,
            Opt::Length => self.length = Some((parse_length(&value)?, value)),
            Opt::Quiet => self.output_options = Verbosity::Quiet,
            Opt::Raw => self.raw = true,
            Opt::Status => self.output_options = Verbosity::Status,
            Opt::Strict => self.strict = true,
            Opt::Tag => (self.tag, self.untagged, self.binary) = (true, false, Some(true)),
            Opt::Text => self.binary = Some(false),
            Opt::Untagged => {
                // The mode that `--tag` set is reset with it.
                self.binary = self.binary.filter(|_| !self.tag);
                (self.tag, self.untagged) = (false, true);
            }
            Opt::Version => return Err(Stop::Answer(super::args::version(tool))),
            Opt::Warn => self.output_options = Verbosity::Warn,
            Opt::Zero => self.zero = true,
            Opt::Bsd => self.sysv = false,
            Opt::Sysv => self.sysv = true,
            Opt::Unknown => return Err(Stop::Usage),
            Opt::Threads => self.own.threads = Some(text()),
            Opt::BufferSize => self.own.buffer_size = Some(text()),
            Opt::DirectRead => self.own.direct_read = true,
            Opt::FadviseRead => self.own.fadvise_read = true,
            Opt::Progress => self.own.progress = true,
        }
        Ok(())
    }

    fn meaning(mut self, tool: Personality) -> Result<SumJob, Stop> {
        let algorithm = self.algorithm(tool)?;
        self.complain_of_contradictions(tool)?;
        let settings = settings_of(&self.own).map_err(Stop::UsageError)?;
        let named = !self.own.files.is_empty();
        let files = if named { std::mem::take(&mut self.own.files) } else { vec!["-".into()] };
        if self.check {
            let rules = match tool.family {
                Family::Cksum => GnuRules::cksum(self.algorithm.map(|kind| kind.algorithm)),
                _ => GnuRules::of(tool.algorithm),
            };
            let output_options = OutputOptions {
                quiet: self.output_options == Verbosity::Quiet,
                status: self.output_options == Verbosity::Status,
                strict: self.strict,
                warn: self.output_options == Verbosity::Warn,
                ignore_missing: self.ignore_missing,
                json: false,
            };
            return Ok(SumJob::Check(CheckJob {
                settings,
                reading: ListTool::Gnu(rules),
                output_options,
                lists: files,
                leaf: ByteLen(1),
                subtree: ByteLen(1),
                progress: self.own.progress,
            }));
        }
        if self.raw && files.len() > 1 {
            return Err(Stop::UsageError("the --raw option is not supported with multiple files".to_owned()));
        }
        if self.debug && algorithm == Algorithm::Cksum {
            eprintln!("{}: using {} hardware support", tool.name, crc_hardware());
        }
        let recipe = Arc::new(Recipe { algorithms: vec![algorithm], form: Form::Plain });
        let format = Format {
            shape: self.shape(tool, algorithm),
            zero: self.zero,
            base64: self.base64,
            family: tool.family,
        };
        Ok(SumJob::Print(PrintJob {
            waybill: None,
            store: None,
            settings,
            recipe,
            files: Files::Given(files),
            offset: ByteOffset(0),
            length: None,
            recurse: false,
            format,
            named,
            progress: self.own.progress,
        }))
    }

    /// Returns the algorithm: the tool's own, or the one that `-a`, `-l`, `-s` select.
    fn algorithm(&self, tool: Personality) -> Result<Algorithm, Stop> {
        let kind = match tool.family {
            Family::Sum if self.sysv => return Ok(Algorithm::Sysv),
            Family::Cksum => self.algorithm,
            _ => None,
        };
        let algorithm = kind.map_or(tool.algorithm, |kind| kind.algorithm);
        let bits = self.length.as_ref().map_or(0, |(bits, _)| *bits);
        match kind.map(|kind| kind.name) {
            Some(family @ ("sha2" | "sha3")) => return self.of_family(family, bits),
            _ if self.check && is_legacy(algorithm) && kind.is_some() => {
                let early = "--check is not supported with --algorithm={bsd,sysv,crc}";
                // The original checks lengths first.
                if bits == 0 {
                    return Err(Stop::Failure(early.to_owned()));
                }
            }
            _ => {}
        }
        if bits == 0 {
            return Ok(algorithm);
        }
        if algorithm != Algorithm::Blake2b {
            return Err(Stop::Failure("--length is only supported with --algorithm=blake2b".to_owned()));
        }
        if bits == 512 {
            return Ok(algorithm);
        }
        let short = usize::try_from(bits / 8).ok().and_then(Blake2bLen::new).map(Algorithm::Blake2bOf);
        short.ok_or_else(|| {
            let name = quote(OsStr::new("BLAKE2b"));
            self.invalid_length(&format!("maximum digest length for {name} is 512 bits"))
        })
    }

    /// Returns the algorithm of `-a sha2 -l 256` and similar options.
    fn of_family(&self, family: &str, bits: u64) -> Result<Algorithm, Stop> {
        if self.check {
            return Algorithm::parse(family).or(Ok(Algorithm::Sha256));
        }
        let algorithm = match (family, bits) {
            ("sha2", 224) => Algorithm::Sha224,
            ("sha2", 256) => Algorithm::Sha256,
            ("sha2", 384) => Algorithm::Sha384,
            ("sha2", 512) => Algorithm::Sha512,
            ("sha3", 224) => Algorithm::Sha3_224,
            ("sha3", 256) => Algorithm::Sha3_256,
            ("sha3", 384) => Algorithm::Sha3_384,
            ("sha3", 512) => Algorithm::Sha3_512,
            (_, 0) => {
                let why = format!("--algorithm={family} requires specifying --length 224, 256, 384, or 512");
                return Err(Stop::Failure(why));
            }
            _ => {
                let name = quote(OsStr::new(&family.to_ascii_uppercase()));
                return Err(
                    self.invalid_length(&format!("digest length for {name} must be 224, 256, 384, or 512"))
                );
            }
        };
        Ok(algorithm)
    }

    /// Returns two messages, as the coreutils print them.
    fn invalid_length(&self, why: &str) -> Stop {
        let typed = self.length.as_ref().map_or_else(Default::default, |(_, typed)| typed.clone());
        Stop::Failure(format!("invalid length: {}\n{why}", quote(&typed)))
    }

    /// Checks for contradictions in the order of the coreutils.
    fn complain_of_contradictions(&self, tool: Personality) -> Result<(), Stop> {
        let complain =
            |on: bool, text: &str| if on { Err(Stop::UsageError(text.to_owned())) } else { Ok(()) };
        let only = |on, name| {
            complain(
                on && !self.check,
                &format!("the --{name} option is meaningful only when verifying checksums"),
            )
        };
        if tool.family == Family::Sum {
            return Ok(());
        }
        let is_digest_tool = tool.family == Family::Coreutils;
        complain(
            is_digest_tool && self.tag && self.binary == Some(false),
            "--tag does not support --text mode",
        )?;
        complain(self.zero && self.check, "the --zero option is not supported when verifying checksums")?;
        let tag = "the --tag option is meaningless when verifying checksums";
        complain(is_digest_tool && self.tag && self.check, tag)?;
        let mode = "the --binary and --text options are meaningless when verifying checksums";
        complain(is_digest_tool && self.binary.is_some() && self.check, mode)?;
        only(self.ignore_missing, "ignore-missing")?;
        only(self.output_options == Verbosity::Status, "status")?;
        only(self.output_options == Verbosity::Warn, "warn")?;
        only(self.output_options == Verbosity::Quiet, "quiet")?;
        only(self.strict, "strict")
    }

    fn shape(&self, tool: Personality, algorithm: Algorithm) -> Shape {
        let by_tag = match tool.family {
            Family::Cksum => !self.untagged,
            _ => self.tag,
        };
        match () {
            () if self.raw => Shape::Raw,
            () if is_legacy(algorithm) => Shape::Decimal,
            () if by_tag => Shape::Tagged,
            () => Shape::Untagged { binary: self.binary == Some(true) && !self.tag },
        }
    }
}

/// Returns true for sums that are printed in decimal with a size, and that `--check` does not read.
fn is_legacy(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::Bsd | Algorithm::Sysv | Algorithm::Cksum | Algorithm::Crc32)
}

fn find_kind(value: &OsStr) -> Result<&'static Kind, Stop> {
    if let Some(kind) = KINDS.iter().find(|kind| value == kind.name) {
        return Ok(kind);
    }
    // The names of later releases start with names that every 9.x has.
    let listed = |early| KINDS.iter().filter(move |kind| kind.early == early);
    let names: String = listed(true).map(|kind| format!("\n  - {}", quote(OsStr::new(kind.name)))).collect();
    let quoted = quote(value);
    let option = quote(OsStr::new("--algorithm"));
    Err(Stop::UsageError(format!("invalid argument {quoted} for {option}\nValid arguments are:{names}")))
}

/// Parses a length as xstrtoumax does: blanks and a plus before a decimal number, nothing after it.
fn parse_length(value: &OsStr) -> Result<u64, Stop> {
    let text = value.to_string_lossy();
    let digits = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    let failure = |why: &str| Stop::Failure(format!("invalid length: {}{why}", quote(value)));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failure(""));
    }
    let bits: u64 = digits.parse().map_err(|_| failure(": Value too large for defined data type"))?;
    if bits.is_multiple_of(8) {
        return Ok(bits);
    }
    Err(failure("\nlength is not a multiple of 8"))
}

/// Returns the CRC implementation, as `cksum --debug` names it.
fn crc_hardware() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("pclmulqdq") {
        return "pclmul";
    }
    "generic"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_lengths_are_parsed_as_by_coreutils() {
        let read = |text: &str| parse_length(OsStr::new(text)).map_err(|stop| format!("{stop:?}"));
        for (text, bits) in
            [("8", 8), ("08", 8), (" 8", 8), ("+16", 16), ("0", 0), ("18446744073709551608", u64::MAX - 7)]
        {
            assert_eq!(read(text), Ok(bits), "{text}");
        }
        for text in ["", "x", "-8", "8k", "0x8", "1e", "8 ", "99999999999999999999", "7"] {
            assert!(read(text).unwrap_err().contains("invalid length: "), "{text}");
        }
    }

    #[test]
    fn every_cksum_algorithm_is_found_by_name() {
        for kind in &KINDS {
            assert_eq!(find_kind(OsStr::new(kind.name)).map(|found| found.name).ok(), Some(kind.name));
        }
        let Err(Stop::UsageError(text)) = find_kind(OsStr::new("md")) else { panic!("no kind") };
        assert_eq!(text.lines().count(), 13, "{text}");
    }
}
