//! What a copy or a move tells, as lines on standard output and standard error, or as JSON events.

mod prompt;

use crate::tool::{is_own_name, without_controls};
use haul_digest::Digest;
use haul_engine::copy::{
    CopyError, FileFigures, HashLine, Print, Question, Report, Tally, cause, quote_if_needed,
};
use haul_engine::moving::{MoveError, MoveReport};
use haul_model::{Level, format_size};
use haul_sys::{program, signals, transfer};
use prompt::Answers;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Exit status if the reader of standard output closed the pipe: what a shell makes of SIGPIPE, 128 and its number.
pub(crate) const BROKEN_PIPE: u8 = 141;

/// The terminal, or what stands in its place.
pub(crate) struct Console<'a> {
    tool: &'a str,
    json: bool,
    figures: bool,
    source_name: bool,
    /// Turns true when nobody is to be asked any more.
    stop: &'a AtomicBool,
    answers: Mutex<Answers<io::Stdin>>,
    /// Files that arrived whole.
    copied: AtomicU64,
    /// First failed write to standard output or to a pipe that was copied into. Reported once, at the end.
    broken: Mutex<Option<io::Error>>,
    is_broken: AtomicBool,
}

impl<'a> Console<'a> {
    /// A console that signs its messages as `tool`, prints JSON events instead of lines if `json`, and stops waiting
    /// for answers when `stop` turns true. `print` says what is told of each file.
    pub(crate) fn new(tool: &'a str, json: bool, print: &Print, stop: &'a AtomicBool) -> Console<'a> {
        Console {
            tool,
            json,
            figures: print.stats,
            source_name: print.source_name,
            stop,
            answers: Mutex::new(Answers::new(io::stdin())),
            copied: AtomicU64::new(0),
            broken: Mutex::default(),
            is_broken: AtomicBool::new(false),
        }
    }

    /// One message on standard error, in one write.
    pub(crate) fn say(&self, message: &dyn std::fmt::Display) {
        say(self.tool, message);
    }

    /// `--json`: what the job came to.
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

    /// The exit status of a job that came to its end, and `failed` in part or did not. Output that could not be written
    /// is told now, and fails it.
    pub(crate) fn close(self, failed: bool) -> ExitCode {
        let unread = self.answers.into_inner().unwrap_or_else(PoisonError::into_inner).into_failure();
        if let Some(error) = unread.as_ref().filter(|_| !is_own_name(self.tool)) {
            // As GNU's tools, which close their input at the end: what closing it says, if it was closed before.
            let why = if program::was_closed(0) { format!(": {}", cause(error)) } else { String::new() };
            say(self.tool, &format_args!("error closing file{why}"));
        }
        let failed = failed || (!is_own_name(self.tool) && (unread.is_some() || is_unheard()));
        match self.broken.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => ExitCode::from(unwritten(self.tool, &error, 1)),
            None if failed => ExitCode::FAILURE,
            None => ExitCode::SUCCESS,
        }
    }

    /// Something failed, which no event of a copy says.
    pub(crate) fn failure(&self, error: &dyn std::fmt::Display) {
        self.say(error);
        if self.json {
            self.event(&Event::Error { message: error.to_string() });
        }
    }

    /// One line on standard output, in one write, so that lines of several workers do not mix.
    fn print(&self, mut line: Vec<u8>) {
        if self.is_broken.load(Ordering::Relaxed) {
            return;
        }
        line.push(b'\n');
        if let Err(error) = write_out(&line) {
            self.is_broken.store(true, Ordering::Relaxed);
            *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    fn event(&self, event: &Event<'_>) {
        match serde_json::to_vec(event) {
            Ok(line) => self.print(line),
            Err(error) => self.say(&error),
        }
    }
}

impl Report for Console<'_> {
    fn failed(&self, error: &CopyError) {
        match error {
            // A sink that is a pipe, such as /dev/stdout, and its reader went away.
            CopyError::WriteFailed { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
                *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(source.kind().into());
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
                passed: figures.passed.map(|digest| Passed {
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
        // Where nobody sees the question, standard input still answers it.
        complain(&text);
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).is_yes(self.stop)
    }
}

impl MoveReport for Console<'_> {
    fn not_moved(&self, error: &MoveError) {
        self.failure(error);
    }
}

/// Writes to standard output, past the library's buffer, which takes a closed one for a sink that swallows all.
fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.flush()?;
    transfer::write_stream(&out, bytes)
}

/// Prints what was asked about the tool itself.
pub(crate) fn answer(tool: &str, text: &str) -> ExitCode {
    match write_out(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(unwritten(tool, &error, 1)),
    }
}

/// What was typed behind the name of a command that clap parses; else the status that the command ends with: `trouble` for
/// what can't be understood, and that of printing for help and the like.
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
        // Best effort: where nothing can be said, the status says it.
        let _ = io::stderr().write_all(without_controls(&answer.to_string()).as_bytes());
        ExitCode::from(trouble)
    })
}

/// Returns the exit status after a failed write to standard output.
///
/// If the reader closed the pipe, there is no message: the status is [`BROKEN_PIPE`], and a tool under another's name
/// ends by SIGPIPE here. Every other failure is reported, and the status is `trouble`.
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

/// Says why a command line can't be carried out, and with `has_hint` where to read what can.
pub(crate) fn refuse(tool: &str, message: &dyn std::fmt::Display, has_hint: bool) -> ExitCode {
    // What was typed is shown, but steers no terminal.
    let shown = without_controls(&message.to_string());
    if has_hint {
        say(tool, &format_args!("{shown}\nTry '{tool} --help' for more information."));
    } else {
        say(tool, &shown);
    }
    ExitCode::FAILURE
}

/// What was proved of a file, as the end of its line; nothing where nothing was.
fn proved(level: Level) -> String {
    if level > Level::Received { format!(", {level}") } else { String::new() }
}

/// What went by, as the end of a file's line.
fn passed(digest: &Digest) -> String {
    format!(", {} of what passed by: {digest}", digest.algorithm().name())
}

/// Returns the command of this process, as it was typed and quoted for a shell.
pub(crate) fn this_command() -> String {
    let mut words = std::env::args_os();
    let called = words.next().unwrap_or_default();
    let name = std::path::Path::new(&called).file_name().map(OsStr::to_owned);
    let words = name.into_iter().chain(words);
    words.map(|word| quote_if_needed(&word).to_string()).collect::<Vec<_>>().join(" ")
}

/// One message on standard error, in one write.
pub(crate) fn say(tool: &str, message: &dyn std::fmt::Display) {
    let text = format!("{tool}: {message}\n");
    complain(text.as_bytes());
}

/// A message could not be written.
static UNHEARD: AtomicBool = AtomicBool::new(false);

/// Writes to standard error, past the library, which takes a closed one for a sink that swallows all.
pub(crate) fn complain(text: &[u8]) {
    // If standard error is closed, the exit status alone can report it.
    if transfer::write_stream(io::stderr(), text).is_err() {
        UNHEARD.store(true, Ordering::Relaxed);
    }
}

/// Returns true if a message could not be written: then GNU's tools fail.
pub(crate) fn is_unheard() -> bool {
    UNHEARD.load(Ordering::Relaxed)
}

/// `HEX  NAME` as md5sum prints it, marked as mutil marks trees and parts.
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
        /// Of what was read and handed to the sink, where no more was proved.
        #[serde(skip_serializing_if = "Option::is_none")]
        passed: Option<Passed<'a>>,
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
    /// Something is worth a line.
    Warning { message: String },
    /// The job is over. `files` arrived whole; the other files met were left alone, linked, not reached or failed.
    /// `bytes_reread` came back from the device and were right, `bytes_read_back` were to and came from the page cache.
    Summary {
        files: u64,
        files_met: u64,
        bytes: u64,
        /// Bytes of the regular files that were met: moved, skipped, or of files that failed.
        bytes_met: u64,
        /// Bytes of files that the rules leave as they are, or whose names became links.
        bytes_skipped: u64,
        /// What was there already in a job that goes on; of `bytes`.
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

/// Counts of jobs that go on are left out of all others.
fn is_nothing(count: &u64) -> bool {
    *count == 0
}

/// A digest that was compared with nothing yet.
#[derive(Serialize)]
struct Passed<'a> {
    algorithm: &'a str,
    digest: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_digest::{Algorithm, digest};
    use haul_model::ByteRange;

    #[test]
    fn hash_lines_are_md5sums_and_mutils() {
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
