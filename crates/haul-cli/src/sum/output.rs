//! Buffered standard output; a failed write is reported once.

use super::personality::Personality;
use super::quote::quotef;
use crate::console::{complain, has_stderr_failed};
use haul_engine::sum::reason;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Receiver of results and messages.
pub(crate) struct Output<'a> {
    tool: &'static str,
    out: BufWriter<Box<dyn Write + Send>>,
    /// True if standard output is a terminal, so that each line is flushed.
    watched: bool,
    broken: Option<io::Error>,
    /// Set to `true` to stop the job when standard output cannot be written.
    stop: &'a AtomicBool,
    gave_up: bool,
    /// True if the messages and the exit status are those of GNU's tools.
    is_gnus: bool,
    /// True if the latest output ended in a newline: GNU's tools had written it before they closed
    /// their output.
    ends_a_line: bool,
}

/// Substitute for a missing standard output: every write fails with the kernel's error.
struct ClosedStdout(Option<i32>);

impl Write for ClosedStdout {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.map_or_else(|| io::ErrorKind::BrokenPipe.into(), io::Error::from_raw_os_error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Buffer size for one write.
const BUFFER_BYTES: usize = 64 << 10;

impl<'a> Output<'a> {
    pub(crate) fn new(tool: &'static str, stop: &'a AtomicBool) -> Output<'a> {
        let watched = io::stdout().is_terminal();
        // A duplicated descriptor, because the library silently discards output to a closed one.
        let out: Box<dyn Write + Send> = match io::stdout().as_fd().try_clone_to_owned() {
            Ok(fd) => Box::new(File::from(fd)),
            Err(error) => Box::new(ClosedStdout(error.raw_os_error())),
        };
        Output {
            tool,
            out: BufWriter::with_capacity(BUFFER_BYTES, out),
            watched,
            broken: None,
            stop,
            gave_up: false,
            is_gnus: Personality::of(tool).is_gnus(),
            ends_a_line: true,
        }
    }

    /// Writes a line, or the tool's equivalent.
    pub(crate) fn line(&mut self, line: &[u8]) {
        self.ends_a_line = line.ends_with(b"\n");
        let written = self.out.write_all(line);
        self.note(written);
        if self.watched {
            self.flush();
        }
    }

    /// Flushes the buffer, so that messages follow the lines before them.
    pub(crate) fn flush(&mut self) {
        let flushed = self.out.flush();
        self.note(flushed);
    }

    /// Prints `tool: text` to standard error.
    pub(crate) fn complain(&mut self, text: &str) {
        self.say_error(&format!("{}: {text}", self.tool));
    }

    /// Prints a line to standard error, after all earlier output. An error is ignored, because no
    /// other output is left.
    pub(crate) fn say_error(&mut self, line: &str) {
        self.flush();
        complain(format!("{line}\n").as_bytes());
    }

    /// Ends the job at an error that ends the tool.
    pub(crate) fn give_up(&mut self) {
        self.gave_up = true;
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Prints `tool: name: text` to standard error, with the name quoted.
    pub(crate) fn complain_of(&mut self, name: &OsStr, text: &str) {
        self.complain(&format!("{}: {text}", quotef(name)));
    }

    /// Records a failed write. If the reader of a pipe has closed it, ends the process.
    fn note(&mut self, result: io::Result<()>) {
        let broken_pipe = Some(rustix::io::Errno::PIPE.raw_os_error());
        if result.as_ref().is_err_and(|error| error.raw_os_error() == broken_pipe) {
            haul_sys::signals::end_by_broken_pipe();
        }
        if let Err(error) = result
            && self.broken.is_none()
        {
            self.broken = Some(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if a failed write or the tool's abort ended the job.
    pub(crate) fn ended_the_job(&self) -> bool {
        self.broken.is_some() || self.gave_up
    }

    /// Flushes the output. Returns false, after a message, if any write failed.
    pub(crate) fn close(mut self) -> bool {
        self.flush();
        if let Some(error) = &self.broken {
            // For a write before the last one, GNU's tools know only that it failed, and not the
            // error.
            let is_closed = error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error());
            let why = match self.is_gnus && self.ends_a_line && !is_closed {
                true => String::new(),
                false => format!(": {}", reason(error)),
            };
            complain(format!("{}: write error{why}\n", self.tool).as_bytes());
        }
        self.broken.is_none() && !(self.is_gnus && has_stderr_failed())
    }
}
