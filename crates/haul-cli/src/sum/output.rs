//! The standard output: buffered, and a failed write is an error that is told once.

use super::quote::quotef;
use haul_engine::sum::reason;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where results and messages go.
pub(crate) struct Output<'a> {
    tool: &'static str,
    out: BufWriter<Box<dyn Write + Send>>,
    /// Whether someone watches, so that lines go out one by one.
    watched: bool,
    broken: Option<io::Error>,
    /// Ends the job when nobody takes its results any more.
    stop: &'a AtomicBool,
}

/// A standard output that is not there: every write fails with what the kernel said.
struct Closed(Option<i32>);

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.map_or_else(|| io::ErrorKind::BrokenPipe.into(), io::Error::from_raw_os_error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that wait for one write.
const BUFFER_BYTES: usize = 64 << 10;

impl<'a> Output<'a> {
    pub(crate) fn new(tool: &'static str, stop: &'a AtomicBool) -> Output<'a> {
        let watched = io::stdout().is_terminal();
        // A descriptor of its own: the library's standard output takes a closed one for a sink that swallows all.
        let out: Box<dyn Write + Send> = match io::stdout().as_fd().try_clone_to_owned() {
            Ok(fd) => Box::new(File::from(fd)),
            Err(error) => Box::new(Closed(error.raw_os_error())),
        };
        Output { tool, out: BufWriter::with_capacity(BUFFER_BYTES, out), watched, broken: None, stop }
    }

    /// Writes a line, or what stands for one.
    pub(crate) fn line(&mut self, line: &[u8]) {
        let written = self.out.write_all(line);
        self.note(written);
        if self.watched {
            self.flush();
        }
    }

    /// Sends on what waits, so that messages come after the lines before them.
    pub(crate) fn flush(&mut self) {
        let flushed = self.out.flush();
        self.note(flushed);
    }

    /// `tool: text` on the standard error.
    pub(crate) fn complain(&mut self, text: &str) {
        self.flush();
        eprintln!("{}: {text}", self.tool);
    }

    /// `tool: name: text` on the standard error, the name quoted.
    pub(crate) fn complain_of(&mut self, name: &OsStr, text: &str) {
        self.complain(&format!("{}: {text}", quotef(name)));
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result
            && self.broken.is_none()
        {
            self.broken = Some(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a write failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Writes what is left; false, with a message, if any write failed.
    pub(crate) fn close(mut self) -> bool {
        self.flush();
        if let Some(error) = &self.broken {
            eprintln!("{}: write error: {}", self.tool, reason(error));
        }
        self.broken.is_none()
    }
}
