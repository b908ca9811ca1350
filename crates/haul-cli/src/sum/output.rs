//! The standard output: buffered, and a failed write is an error that is told once.

use super::personality::Personality;
use super::quote::quotef;
use crate::console::{complain, is_unheard};
use haul_engine::sum::reason;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

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
    gave_up: bool,
    /// Its messages and its status are those of GNU's tools.
    is_gnus: bool,
    /// The latest output ended in a newline: GNU's tools had written it before they closed their output.
    ends_a_line: bool,
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

    /// Writes a line, or what stands for one.
    pub(crate) fn line(&mut self, line: &[u8]) {
        self.ends_a_line = line.ends_with(b"\n");
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
        self.say_error(&format!("{}: {text}", self.tool));
    }

    /// A line on the standard error, after all that was said before. Nothing can be done where that is closed too.
    pub(crate) fn say_error(&mut self, line: &str) {
        self.flush();
        complain(format!("{line}\n").as_bytes());
    }

    /// The same with a name in it, byte for byte as it is but for what would steer a terminal.
    pub(crate) fn say_error_of(&mut self, before: &[u8], name: &OsStr, after: &str) {
        self.flush();
        let name = name.as_bytes().iter().map(|&byte| if byte == 0x1b { b'?' } else { byte }).collect();
        let line: Vec<u8> = [before.to_vec(), name, after.as_bytes().to_vec(), b"\n".to_vec()].concat();
        complain(&line);
    }

    /// Ends the job at what the tool takes for the end of everything.
    pub(crate) fn give_up(&mut self) {
        self.gave_up = true;
        self.stop.store(true, Ordering::Relaxed);
    }

    /// `tool: name: text` on the standard error, the name quoted.
    pub(crate) fn complain_of(&mut self, name: &OsStr, text: &str) {
        self.complain(&format!("{}: {text}", quotef(name)));
    }

    /// Where the reader of a pipe went away, the process ends here.
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

    /// Whether the job was ended from here: a write failed, or the tool gave up.
    pub(crate) fn ended_the_job(&self) -> bool {
        self.broken.is_some() || self.gave_up
    }

    /// Writes what is left; false, with a message, if any write failed.
    pub(crate) fn close(mut self) -> bool {
        self.flush();
        if let Some(error) = &self.broken {
            // Of a write before the last one GNU's tools know that it failed, and not why.
            let is_closed = error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error());
            let why = match self.is_gnus && self.ends_a_line && !is_closed {
                true => String::new(),
                false => format!(": {}", reason(error)),
            };
            complain(format!("{}: write error{why}\n", self.tool).as_bytes());
        }
        self.broken.is_none() && !(self.is_gnus && is_unheard())
    }
}
