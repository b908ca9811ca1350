//! Answers to questions, read from standard input line by line.

use haul_sys::wait;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of bytes per read: a terminal returns one line, a pipe or a file returns the
/// available bytes.
const READ_BYTES: usize = 4096;

/// Line reader for standard input or a substitute. Holds bytes that were read and not used. The
/// standard library's buffer cannot report whether it is empty, and a wait for the descriptor would
/// miss buffered answers.
#[derive(Debug)]
pub(crate) struct AnswerReader<F> {
    fd: F,
    unused: Vec<u8>,
    /// True after the end of the input. A terminal could return more, but a user who types Ctrl-D
    /// wants no more questions.
    is_over: bool,
    /// Error of the read that ended the input.
    failure: Option<io::Error>,
}

impl<F: AsFd> AnswerReader<F> {
    pub(crate) fn new(fd: F) -> AnswerReader<F> {
        AnswerReader { fd, unused: Vec::new(), is_over: false, failure: None }
    }

    /// Reads one line and returns true if the line starts as "yes" does. Returns false at the end
    /// of the input, after a failure, and on a request to stop.
    pub(crate) fn is_yes(&mut self, stop: &AtomicBool) -> bool {
        let line = loop {
            if let Some(end) = self.unused.iter().position(|&byte| byte == b'\n') {
                break self.unused.drain(..=end).collect();
            }
            if !self.read_more(stop) {
                if stop.load(Ordering::Relaxed) {
                    return false;
                }
                break std::mem::take(&mut self.unused);
            }
        };
        matches!(line.first(), Some(b'y' | b'Y'))
    }

    /// Returns the error that ended the input, if any.
    pub(crate) fn into_failure(self) -> Option<io::Error> {
        self.failure
    }

    /// Reads more input; returns true if there was any.
    fn read_more(&mut self, stop: &AtomicBool) -> bool {
        if self.is_over {
            return false;
        }
        let mut block = [0; READ_BYTES];
        let read = match wait::until_readable(&self.fd, || stop.load(Ordering::Relaxed)) {
            Ok(false) => return false,
            Ok(true) => {
                rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut block)).map_err(io::Error::from)
            }
            Err(error) => Err(error),
        };
        let got = read.unwrap_or_else(|error| {
            self.failure = Some(error);
            0
        });
        self.unused.extend_from_slice(&block[..got]);
        self.is_over = got == 0;
        got > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn each_prompt_reads_one_line() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"y\nno\n\nYes\nlast words").unwrap();
        drop(writer);
        let stop = AtomicBool::new(false);
        let mut answers = AnswerReader::new(reader);
        let given: Vec<bool> = (0..7).map(|_| answers.is_yes(&stop)).collect();
        assert_eq!(given, [true, false, false, true, false, false, false]);
    }

    #[test]
    fn the_last_answer_needs_no_newline() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"y").unwrap();
        drop(writer);
        assert!(AnswerReader::new(reader).is_yes(&AtomicBool::new(false)));
    }

    /// Regression: each further question at a terminal waited for another answer. GNU's tools take
    /// the end of the input as "no" to all further questions.
    #[test]
    fn no_input_is_read_after_end_of_file() {
        let home = tempfile::tempdir().unwrap();
        let fifo = home.path().join("fifo");
        rustix::fs::mkfifoat(haul_sys::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        // A named pipe delivers data after its end, like a terminal. It is opened for reading and
        // writing, so that no end waits for the other.
        let held = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
        let reader = std::fs::File::open(&fifo).unwrap();
        drop(held);
        let stop = AtomicBool::new(false);
        let mut answers = AnswerReader::new(reader);
        assert!(!answers.is_yes(&stop));
        std::fs::File::options().read(true).write(true).open(&fifo).unwrap().write_all(b"y\n").unwrap();
        assert!(!answers.is_yes(&stop));
    }

    #[test]
    fn a_stop_request_prevents_reading_an_answer() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"y").unwrap();
        assert!(!AnswerReader::new(reader).is_yes(&AtomicBool::new(true)));
    }
}
