//! Options of each tool.

use super::super::getopt::Row;
use super::super::personality::{Family, Personality};
use haul_digest::Algorithm;
use std::fmt::Write;

/// An option of one of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opt {
    Algorithm,
    Base64,
    Binary,
    Bsd,
    BufferSize,
    Check,
    Debug,
    DirectRead,
    FadviseRead,
    Help,
    IgnoreMissing,
    Length,
    Progress,
    Quiet,
    Raw,
    Status,
    Strict,
    Sysv,
    Tag,
    Text,
    Threads,
    /// A letter that `cksum` 9.1 accepts because the other tools do, and answers only with its
    /// usage.
    Unknown,
    Untagged,
    Version,
    Warn,
    Zero,
}

/// Sets of tools.
const DIGESTS: u8 = 1;
const B2SUM: u8 = 2;
const CKSUM: u8 = 4;
const SUM: u8 = 8;
const ALL: u8 = DIGESTS | B2SUM | CKSUM | SUM;
const CHECKING: u8 = DIGESTS | B2SUM | CKSUM;

struct Line {
    tools: u8,
    row: Row<Opt>,
    help: &'static str,
}

const fn line(
    tools: u8,
    id: Opt,
    short: Option<u8>,
    long: Option<&'static str>,
    value: bool,
    original: bool,
    help: &'static str,
) -> Line {
    Line { tools, row: Row { id, short, long, value, original }, help }
}

/// Options in the order in which the original lists the candidates of an abbreviation.
static LINES: [Line; 28] = [
    line(
        CKSUM,
        Opt::Algorithm,
        Some(b'a'),
        Some("algorithm"),
        true,
        true,
        "the checksum algorithm: crc (default), bsd, sysv, crc32b, md5, sha1, sha2 and sha3 with --length, sha224, sha256, sha384, sha512, blake2b, sm3",
    ),
    line(
        CHECKING,
        Opt::Check,
        Some(b'c'),
        Some("check"),
        false,
        true,
        "read lists of checksums and check the files they name",
    ),
    line(
        B2SUM | CKSUM,
        Opt::Length,
        Some(b'l'),
        Some("length"),
        true,
        true,
        "length of the digest in bits, a multiple of 8",
    ),
    line(
        CKSUM,
        Opt::Untagged,
        None,
        Some("untagged"),
        false,
        true,
        "print DIGEST  FILE, without the name of the algorithm",
    ),
    line(
        CHECKING,
        Opt::IgnoreMissing,
        None,
        Some("ignore-missing"),
        false,
        true,
        "with -c, skip missing files",
    ),
    line(
        CHECKING,
        Opt::Quiet,
        None,
        Some("quiet"),
        false,
        true,
        "with -c, do not print OK for each matching file",
    ),
    line(
        CHECKING,
        Opt::Status,
        None,
        Some("status"),
        false,
        true,
        "with -c, print nothing; only the exit status shows the result",
    ),
    line(
        CHECKING,
        Opt::Warn,
        Some(b'w'),
        Some("warn"),
        false,
        true,
        "with -c, report lines that are not checksums",
    ),
    line(
        CHECKING,
        Opt::Strict,
        None,
        Some("strict"),
        false,
        true,
        "with -c, fail for lines that are not checksums",
    ),
    line(CHECKING, Opt::Tag, None, Some("tag"), false, true, "ALGORITHM (FILE) = DIGEST"),
    line(
        CHECKING,
        Opt::Zero,
        Some(b'z'),
        Some("zero"),
        false,
        true,
        "end lines with NUL and do not escape names",
    ),
    line(
        DIGESTS | B2SUM,
        Opt::Binary,
        Some(b'b'),
        Some("binary"),
        false,
        true,
        "mark lines with *; files are always read as binary",
    ),
    line(
        DIGESTS | B2SUM,
        Opt::Text,
        Some(b't'),
        Some("text"),
        false,
        true,
        "do not mark lines (the default)",
    ),
    line(CKSUM, Opt::Unknown, Some(b'b'), None, false, true, ""),
    line(CKSUM, Opt::Unknown, Some(b't'), None, false, true, ""),
    line(
        CKSUM,
        Opt::Debug,
        None,
        Some("debug"),
        false,
        true,
        "print on standard error which CPU features compute the CRC",
    ),
    line(SUM, Opt::Bsd, Some(b'r'), None, false, true, "the BSD sum, in blocks of 1,024 bytes (the default)"),
    line(SUM, Opt::Sysv, Some(b's'), Some("sysv"), false, true, "the System V sum, in blocks of 512 bytes"),
    line(CKSUM, Opt::Base64, None, Some("base64"), false, false, "print digests in base64"),
    line(CKSUM, Opt::Raw, None, Some("raw"), false, false, "print only the bytes of one file's digest"),
    line(ALL, Opt::Help, None, Some("help"), false, true, "print this help"),
    line(ALL, Opt::Version, None, Some("version"), false, true, "print the version"),
    line(ALL, Opt::Threads, None, Some("threads"), true, false, "number of worker threads"),
    line(
        ALL,
        Opt::BufferSize,
        None,
        Some("buffer-size"),
        true,
        false,
        "size of one read; a plain number counts MiB",
    ),
    line(ALL, Opt::DirectRead, None, Some("direct-read"), false, false, "read without the page cache"),
    line(
        ALL,
        Opt::FadviseRead,
        None,
        Some("fadvise-read"),
        false,
        false,
        "drop the read data from the page cache",
    ),
    line(ALL, Opt::Progress, None, Some("progress"), false, false, "show a progress bar on a terminal"),
    line(0, Opt::Unknown, None, None, false, false, ""),
];

fn set_of(tool: Personality) -> u8 {
    match tool.family {
        Family::Cksum => CKSUM,
        Family::Sum => SUM,
        _ if tool.algorithm == Algorithm::Blake2b => B2SUM,
        _ => DIGESTS,
    }
}

fn lines(tool: Personality) -> impl Iterator<Item = &'static Line> {
    let set = set_of(tool);
    LINES.iter().filter(move |line| line.tools & set != 0)
}

/// Returns the options of a tool.
pub(super) fn table(tool: Personality) -> Vec<Row<Opt>> {
    lines(tool).map(|line| line.row).collect()
}

/// Returns the output of `--help`.
pub(super) fn help(tool: Personality) -> String {
    let mut text = format!("Usage: {} [OPTION]... [FILE]...\n\n", tool.name);
    let what = match tool.family {
        Family::Sum => "Print 16-bit sums of files.",
        _ => "Print or check checksums of files.",
    };
    // Writing to a String does not fail.
    let _ = writeln!(text, "{what} With no FILE, or when FILE is -, read standard input.\n");
    for line in lines(tool).filter(|line| !line.help.is_empty()) {
        let short =
            line.row.short.map_or_else(|| "   ".to_owned(), |letter| format!("-{},", char::from(letter)));
        let value = if line.row.value { "=VALUE" } else { "" };
        let name = match line.row.long {
            Some(long) => format!("  {short} --{long}{value}"),
            None => format!("  {}", short.trim_end_matches(',')),
        };
        let _ = writeln!(text, "{name:<28} {}", line.help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;

    /// Returns the options that help names: haul refuses the others.
    fn typed(tool: &str) -> Vec<String> {
        let shown = lines(Personality::of(tool)).filter(|line| !line.help.is_empty());
        let ways = |line: &Line| {
            let short = line.row.short.map(|letter| format!("-{}", char::from(letter)));
            short.into_iter().chain(line.row.long.map(|long| format!("--{long}"))).collect::<Vec<_>>()
        };
        shown.flat_map(ways).collect()
    }

    #[test]
    fn every_option_is_documented_and_tested() {
        // A section applies to tools that have all or some of its options.
        for (section, tools) in
            [("md5sum", &["md5sum", "sha512sum", "b2sum"][..]), ("cksum", &["cksum"]), ("sum", &["sum"])]
        {
            let typed = tools.iter().flat_map(|tool| typed(tool));
            documented::in_sections("docs/options/sums.md", &["All tools", section], typed);
        }
    }
}
