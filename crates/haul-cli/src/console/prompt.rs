//! Answers to questions, read from standard input line by line.

use haul_sys::wait;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes asked for at a time: a terminal gives a line, a pipe or a file gives what it has.
const READ_BYTES: usize = 4096;

/// Standard input, or what stands in its place. It holds what was read and not used: the standard library's own
/// buffer can't be asked whether it is empty, and a wait for the descriptor would miss answers that lie there.
#[derive(Debug)]
pub(crate) struct Answers<F> {
    fd: F,
    unused: Vec<u8>,
    /// The input ended. A terminal would give more after that, but who typed its end (Ctrl-D) wants to be asked no more.
    is_over: bool,
    /// Error of the read that ended the input.
    failure: Option<io::Error>,
}

impl<F: AsFd> Answers<F> {
    pub(crate) fn new(fd: F) -> Answers<F> {
        Answers { fd, unused: Vec::new(), is_over: false, failure: None }
    }

    /// Reads one line; whether it begins as yes does. The end of the input, a failure and a request to stop are no.
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

    /// Returns why the input could not be read, if so.
    pub(crate) fn into_failure(self) -> Option<io::Error> {
        self.failure
    }

    /// Whether there was more to read.
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
    fn each_question_takes_one_line() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"y\nno\n\nYes\nlast words").unwrap();
        drop(writer);
        let stop = AtomicBool::new(false);
        let mut answers = Answers::new(reader);
        let given: Vec<bool> = (0..7).map(|_| answers.is_yes(&stop)).collect();
        assert_eq!(given, [true, false, false, true, false, false, false]);
    }

    #[test]
    fn a_last_line_need_not_end() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"y").unwrap();
        drop(writer);
        assert!(Answers::new(reader).is_yes(&AtomicBool::new(false)));
    }

    /// The bug: each further question waited for another answer at a terminal, where GNU's tools take the end for a no to all of them.
    #[test]
    fn after_the_end_of_the_input_nothing_more_is_read() {
        let home = tempfile::tempdir().unwrap();
        let fifo = home.path().join("fifo");
        rustix::fs::mkfifoat(haul_sys::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        // Like a terminal, a pipe with a name goes on after its end. Open for both, so that neither end waits for the other.
        let held = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
        let reader = std::fs::File::open(&fifo).unwrap();
        drop(held);
        let stop = AtomicBool::new(false);
        let mut answers = Answers::new(reader);
        assert!(!answers.is_yes(&stop));
        std::fs::File::options().read(true).write(true).open(&fifo).unwrap().write_all(b"y\n").unwrap();
        assert!(!answers.is_yes(&stop));
    }

    #[test]
    fn who_is_told_to_stop_does_not_wait_for_an_answer() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"y").unwrap();
        assert!(!Answers::new(reader).is_yes(&AtomicBool::new(true)));
    }
}
