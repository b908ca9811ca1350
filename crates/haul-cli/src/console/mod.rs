//! Output of a copy or a move: lines on standard output and standard error, or JSON events.

mod prompt;

use crate::json;
use crate::tool::{is_own_name, without_controls};
use haul_coreutils::cp::Print;
use haul_coreutils::mv::{MoveError, MoveObserver};
use haul_digest::Digest;
use haul_engine::copy::{
    CopyError, CopyObserver, FileFigures, HashLine, Question, Tally, cause, quote_for_shell,
};
use haul_model::{Level, format_count, format_size};
use haul_sys::{program, signals, transfer};
use parking_lot::Mutex;
use prompt::AnswerReader;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Exit status if the reader of standard output closed the pipe: 128 plus SIGPIPE, as a shell
/// reports it.
pub(crate) const BROKEN_PIPE: u8 = 141;

/// Facts about a finished job for its last line.
pub(crate) struct Totals {
    /// True if an option requested progress or verification.
    pub(crate) is_asked: bool,
    /// True if each copy of this run was compared with its source.
    pub(crate) is_verified: bool,
    /// True if everything arrived.
    pub(crate) is_complete: bool,
}

/// Receiver of a job's reports, which prints to standard output and standard error.
pub(crate) struct Console<'a> {
    tool: &'a str,
    json: bool,
    figures: bool,
    source_name: bool,
    /// Set to `true` to cancel the wait for an answer.
    stop: &'a AtomicBool,
    answers: Mutex<AnswerReader<io::Stdin>>,
    /// Number of files that arrived completely.
    copied: AtomicU64,
    /// First failed write to standard output or to a pipe that is a sink. Reported once, at the
    /// end.
    broken: Mutex<Option<io::Error>>,
    is_broken: AtomicBool,
}

impl<'a> Console<'a> {
    /// Creates a console that signs its messages as `tool`, prints JSON events instead of lines if
    /// `json`, and stops waiting for answers when `stop` turns true. `print` selects the details
    /// that are printed for each file.
    pub(crate) fn new(tool: &'a str, json: bool, print: &Print, stop: &'a AtomicBool) -> Console<'a> {
        Console {
            tool,
            json,
            figures: print.stats,
            source_name: print.source_name,
            stop,
            answers: Mutex::new(AnswerReader::new(io::stdin())),
            copied: AtomicU64::new(0),
            broken: Mutex::default(),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Prints one message to standard error, in one write.
    pub(crate) fn say(&self, message: &dyn std::fmt::Display) {
        say(self.tool, message);
    }

    /// `--json`: prints the totals of the job.
    pub(crate) fn summary(&self, tally: &Tally, failures: u64, interrupted: bool) {
        if self.json {
            self.event(&Event::Summary {
                files: self.copied.load(Ordering::Relaxed),
                files_met: Tally::get(&tally.files_found),
                bytes: Tally::get(&tally.bytes_done),
                bytes_met: Tally::get(&tally.bytes_found),
                bytes_skipped: Tally::get(&tally.bytes_skipped),
                files_kept: Tally::get(&tally.files_kept),
                bytes_kept: Tally::get(&tally.bytes_kept),
                bytes_reread: Tally::get(&tally.bytes_reread),
                bytes_read_back: Tally::get(&tally.bytes_read_back),
                objects_mended: Tally::get(&tally.objects_mended),
                failures,
                interrupted,
            });
        }
    }

    /// Prints the totals of a job: with `--print-stats` after the lines of the files, and otherwise
    /// if the job was `asked` to show progress or to verify, under haul's own names and to a
    /// terminal, if everything arrived.
    pub(crate) fn totals(&self, tally: &Tally, took: Duration, totals: &Totals) {
        let (files, bytes) = (Tally::get(&tally.files_done), Tally::get(&tally.bytes_done));
        if self.json || files == 0 {
            return;
        }
        if self.figures {
            let (copied, seconds) = (self.copied.load(Ordering::Relaxed), took.as_secs_f64());
            let rate = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
            let files = if copied == 1 { "file" } else { "files" };
            let rate = format_size(rate as u64);
            return self
                .say(&format_args!("total: {copied} {files}, {bytes} bytes in {seconds:.3} s ({rate}/s)"));
        }
        let shows = totals.is_asked && is_own_name(self.tool) && io::stderr().is_terminal();
        if shows && totals.is_complete {
            let word = if files == 1 { "file" } else { "files" };
            let verified = if totals.is_verified { ", verified" } else { "" };
            let (files, size) = (format_count(files), format_size(bytes));
            self.say(&format_args!("{files} {word}, {size}{verified}, {}", format_time(took)));
        }
    }

    /// Returns the exit status of a job that finished; `failed` if a part of the job failed.
    /// Reports output that could not be written, which also fails the job.
    pub(crate) fn close(self, failed: bool) -> ExitCode {
        let unread = self.answers.into_inner().into_failure();
        if let Some(error) = unread.as_ref().filter(|_| !is_own_name(self.tool)) {
            // GNU's tools close their input at the end. If it was closed before, they print the
            // error of that close.
            let why = if program::was_closed(0) { format!(": {}", cause(error)) } else { String::new() };
            say(self.tool, &format_args!("error closing file{why}"));
        }
        let failed = failed || (!is_own_name(self.tool) && (unread.is_some() || has_stderr_failed()));
        match self.broken.into_inner() {
            Some(error) => ExitCode::from(unwritten(self.tool, &error, 1)),
            None if failed => ExitCode::FAILURE,
            None => ExitCode::SUCCESS,
        }
    }

    /// Reports a failure that no event of a copy reports.
    pub(crate) fn failure(&self, error: &dyn std::fmt::Display) {
        self.say(error);
        if self.json {
            self.event(&Event::Error { message: error.to_string() });
        }
    }

    /// Prints one line to standard output in one write, so that lines of several workers do not
    /// mix.
    fn print(&self, mut line: Vec<u8>) {
        if self.is_broken.load(Ordering::Relaxed) {
            return;
        }
        line.push(b'\n');
        if let Err(error) = write_out(&line) {
            self.is_broken.store(true, Ordering::Relaxed);
            *self.broken.lock() = Some(error);
        }
    }

    fn event(&self, event: &Event<'_>) {
        match json::to_vec(event) {
            Ok(line) => self.print(line),
            Err(error) => self.say(&error),
        }
    }
}

impl CopyObserver for Console<'_> {
    fn failed(&self, error: &CopyError) {
        match error {
            // The sink is a pipe, such as /dev/stdout, and its reader has closed it.
            CopyError::WriteFailed { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
                *self.broken.lock() = Some(source.kind().into());
            }
            _ => self.failure(error),
        }
    }

    fn warned(&self, warning: &CopyError) {
        self.say(warning);
        if self.json {
            self.event(&Event::Warning { message: warning.to_string() });
        }
    }

    fn made(&self, line: &OsStr) {
        if self.json {
            self.event(&Event::Made { line: line.to_string_lossy().into_owned() });
        } else {
            self.print(line.as_bytes().to_vec());
        }
    }

    fn hashed(&self, line: &HashLine<'_>) {
        if !self.json {
            return self.print(hash_line(line));
        }
        let Some(first) = line.digests.first() else { return };
        self.event(&Event::Hash {
            path: line.name.to_string_lossy().into_owned(),
            algorithm: first.algorithm().name(),
            digests: line.digests.iter().map(ToString::to_string).collect(),
            tree: line.tree,
            range: line.part.map(|part| [part.start.0, part.end.0]),
        });
    }

    fn wants_figures(&self) -> bool {
        self.figures || self.json
    }

    fn finished(&self, figures: &FileFigures<'_>) {
        self.copied.fetch_add(1, Ordering::Relaxed);
        let seconds = figures.took.as_secs_f64();
        if self.json {
            return self.event(&Event::File {
                source: figures.source.to_string_lossy().into_owned(),
                sink: figures.sink.to_string_lossy().into_owned(),
                bytes: figures.bytes,
                seconds,
                proof: figures.level.to_string(),
                passed: figures.passed.map(|digest| UncheckedDigest {
                    algorithm: digest.algorithm().name(),
                    digest: digest.to_string(),
                }),
            });
        }
        let name = if self.source_name { figures.source } else { figures.sink };
        let rate = if seconds > 0.0 { figures.bytes as f64 / seconds } else { 0.0 };
        self.say(&format_args!(
            "{}: {} bytes in {seconds:.3} s ({}/s){}{}",
            haul_engine::copy::quote(name),
            figures.bytes,
            format_size(rate as u64),
            proved(figures.level),
            figures.passed.map(|digest| passed(&digest)).unwrap_or_default()
        ));
    }

    fn ask(&self, question: &Question<'_>) -> bool {
        let mut text = format!("{}: ", self.tool).into_bytes();
        text.extend_from_slice(question.text.as_bytes());
        // Standard input still answers a question that could not be printed.
        complain(&text);
        self.answers.lock().is_yes(self.stop)
    }
}

impl MoveObserver for Console<'_> {
    fn not_moved(&self, error: &MoveError) {
        self.failure(error);
    }
}

/// Writes to standard output without the library's buffer, which silently discards output to a
/// closed descriptor.
fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.flush()?;
    transfer::write_stream(&out, bytes)
}

/// Prints the answer to a question about the tool itself, such as `--help`.
pub(crate) fn answer(tool: &str, text: &str) -> ExitCode {
    match write_out(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(unwritten(tool, &error, 1)),
    }
}

/// Parses the arguments of a command with clap. On failure returns the exit status: `trouble` for
/// an invalid command line, and the status of the print for help and the like.
pub(crate) fn typed<Args: clap::Parser>(
    tool: &str,
    args: &[OsString],
    trouble: u8,
) -> Result<Args, ExitCode> {
    let words = std::iter::once(OsString::from(tool)).chain(args.iter().cloned());
    Args::try_parse_from(words).map_err(|answer| {
        if !answer.use_stderr() {
            return self::answer(tool, &answer.to_string());
        }
        // An error is ignored: without standard error, only the exit status can report the failure.
        let _ = io::stderr().write_all(without_controls(&answer.to_string()).as_bytes());
        ExitCode::from(trouble)
    })
}

/// Returns the exit status after a failed write to standard output.
///
/// If the reader closed the pipe, there is no message: the status is [`BROKEN_PIPE`], and a tool
/// under another tool's name ends by SIGPIPE here. Every other failure is reported, and the status
/// is `trouble`.
pub(crate) fn unwritten(tool: &str, error: &io::Error, trouble: u8) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        if !is_own_name(tool) {
            signals::end_by_broken_pipe();
        }
        return BROKEN_PIPE;
    }
    say(tool, &format_args!("write error: {}", cause(error)));
    trouble
}

/// Reports why a command line cannot be run; with `has_hint` the message ends with a hint at
/// `--help`.
pub(crate) fn refuse(tool: &str, message: &dyn std::fmt::Display, has_hint: bool) -> ExitCode {
    // User input is printed with its control characters escaped.
    let shown = without_controls(&message.to_string());
    if has_hint {
        say(tool, &format_args!("{shown}\nTry '{tool} --help' for more information."));
    } else {
        say(tool, &shown);
    }
    ExitCode::FAILURE
}

/// Returns the verification level of a file as the end of its line; empty if nothing was verified.
fn proved(level: Level) -> String {
    if level > Level::Received { format!(", {level}") } else { String::new() }
}

/// Returns a duration for a sentence: `0.4 s`, `14 s`, `2:05 min`, `1:02 h`.
fn format_time(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

/// Returns the digest of the copied bytes as the end of a file's line.
fn passed(digest: &Digest) -> String {
    format!(", {} of the copied bytes: {digest}", digest.algorithm().name())
}

/// Returns the command of this process, as it was typed and quoted for a shell.
pub(crate) fn this_command() -> String {
    let mut words = std::env::args_os();
    let called = words.next().unwrap_or_default();
    let name = std::path::Path::new(&called).file_name().map(OsStr::to_owned);
    let words = name.into_iter().chain(words);
    words.map(|word| quote_for_shell(&word).to_string()).collect::<Vec<_>>().join(" ")
}

/// Prints one message to standard error, in one write.
pub(crate) fn say(tool: &str, message: &dyn std::fmt::Display) {
    let text = format!("{tool}: {message}\n");
    complain(text.as_bytes());
}

/// Set to `true` if a message could not be written.
static STDERR_FAILED: AtomicBool = AtomicBool::new(false);

/// Writes to standard error without the library, which silently discards output to a closed
/// descriptor.
pub(crate) fn complain(text: &[u8]) {
    // If standard error is closed, the exit status alone can report it.
    if transfer::write_stream(io::stderr(), text).is_err() {
        STDERR_FAILED.store(true, Ordering::Relaxed);
    }
}

/// Returns true if a message could not be written: GNU's tools then fail.
pub(crate) fn has_stderr_failed() -> bool {
    STDERR_FAILED.load(Ordering::Relaxed)
}

/// Returns `HEX  NAME` as md5sum prints it, with mutil's marks for trees and parts.
fn hash_line(hash: &HashLine<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    if hash.tree || hash.part.is_some() {
        line.extend_from_slice(b"#mutil#");
        if let Some(part) = hash.part {
            line.extend_from_slice(part.to_string().as_bytes());
        }
        line.push(b'#');
    }
    let name = hash.name.as_bytes();
    let escaped = name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'));
    if escaped {
        line.push(b'\\');
    }
    for digest in hash.digests {
        line.extend_from_slice(digest.to_string().as_bytes());
    }
    line.extend_from_slice(b"  ");
    for &byte in name {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            other => line.push(other),
        }
    }
    line
}

/// One line of `--json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    /// A file is finished.
    File {
        source: String,
        sink: String,
        bytes: u64,
        seconds: f64,
        proof: String,
        /// Digest of the bytes that were read and handed to the sink, if no higher level was
        /// verified.
        #[serde(skip_serializing_if = "Option::is_none")]
        passed: Option<UncheckedDigest<'a>>,
    },
    /// A file's digest is known.
    Hash {
        path: String,
        algorithm: &'a str,
        digests: Vec<String>,
        tree: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        range: Option<[u64; 2]>,
    },
    /// `-v`.
    Made { line: String },
    /// Something failed.
    Error { message: String },
    /// A warning.
    Warning { message: String },
    /// The job has ended. `files` counts the files that arrived completely; the other files found
    /// were left unchanged, linked, not reached, or failed. `bytes_reread` were read back from the
    /// device and matched. `bytes_read_back` were meant to be, but came from the page cache.
    Summary {
        files: u64,
        files_met: u64,
        bytes: u64,
        /// Bytes of all regular files found: copied, skipped, or of files that failed.
        bytes_met: u64,
        /// Bytes of files that the rules leave unchanged, or whose names became links.
        bytes_skipped: u64,
        /// Data of a resumed job that was there already; included in `bytes`.
        #[serde(skip_serializing_if = "is_nothing")]
        files_kept: u64,
        #[serde(skip_serializing_if = "is_nothing")]
        bytes_kept: u64,
        bytes_reread: u64,
        bytes_read_back: u64,
        objects_mended: u64,
        failures: u64,
        interrupted: bool,
    },
}

/// Leaves the counts of resumed jobs out of the output of all other jobs.
fn is_nothing(count: &u64) -> bool {
    *count == 0
}

/// A digest that was not compared with anything.
#[derive(Serialize)]
struct UncheckedDigest<'a> {
    algorithm: &'a str,
    digest: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_digest::{Algorithm, digest};
    use haul_model::ByteRange;

    #[test]
    fn hash_lines_use_the_formats_of_md5sum_and_mutil() {
        let digests = [digest(Algorithm::Md5, b"")];
        let line = |name: &str, tree, part| {
            let hash = HashLine { name: OsStr::new(name), digests: &digests, tree, part };
            String::from_utf8(hash_line(&hash)).unwrap()
        };
        let hex = "d41d8cd98f00b204e9800998ecf8427e";
        assert_eq!(line("a b", false, None), format!("{hex}  a b"));
        assert_eq!(line("a\nb\\", false, None), format!("\\{hex}  a\\nb\\\\"));
        assert_eq!(line("a", true, None), format!("#mutil##{hex}  a"));
        assert_eq!(line("a", false, Some(ByteRange::between(5, 9))), format!("#mutil#5-9#{hex}  a"));
    }
}
