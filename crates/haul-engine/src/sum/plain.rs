//! One file's bytes in order, for a caller that hashes in a way of its own.

use super::buffer::PageBuffer;
use super::order::{Source, SumError, Task};
use super::settings::{BLOCK_BYTES, Form, Recipe, Settings};
use super::source::{Opened, Reach};
use haul_digest::Algorithm;
use haul_model::{ByteOffset, ByteRange};
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Hands all bytes of a file (`-` is the standard input) to `take`, block by block.
///
/// # Errors
/// [`SumError`], also where the file changed while it was read.
pub fn read_through(path: &OsStr, mut take: impl FnMut(&[u8])) -> Result<(), SumError> {
    let source = if path == "-" { Source::Stdin } else { Source::Path(path.to_owned()) };
    // Its caller lets a signal end the process.
    let never = AtomicBool::new(false);
    let recipe = Arc::new(Recipe { algorithms: vec![Algorithm::Blake3], form: Form::Plain });
    let task = Task { source, recipe, offset: ByteOffset(0), length: None };
    let opened = Opened::open(&task, &Settings::new(), &never)?;
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut at = match opened.reach() {
        Reach::Range(range) => range.start.0,
        Reach::Stream { .. } | Reach::Spent => 0,
    };
    loop {
        let got = match opened.reach() {
            Reach::Range(_) => opened.read_at(at, &mut buffer)?,
            Reach::Stream { .. } | Reach::Spent => opened.read_stream(at, &mut buffer, &never)?,
        };
        if got == 0 {
            return opened.check_unchanged();
        }
        take(&buffer[..got]);
        at += got as u64;
    }
}

/// A file that is read once more, place by place, as a job reads it.
#[derive(Debug)]
pub(crate) struct Again {
    opened: Opened,
    buffer: PageBuffer,
}

impl Again {
    /// Opens it, past the page cache if the settings say so.
    ///
    /// # Errors
    /// [`SumError`].
    pub(crate) fn open(source: Source, settings: &Settings, stop: &AtomicBool) -> Result<Again, SumError> {
        let recipe = Arc::new(Recipe { algorithms: vec![Algorithm::Blake3], form: Form::Plain });
        let task = Task { source, recipe, offset: ByteOffset(0), length: None };
        let opened = Opened::open(&task, settings, stop)?;
        let buffer = PageBuffer::new(settings.block_bytes).map_err(SumError::Open)?;
        Ok(Again { opened, buffer })
    }

    /// Hands the bytes of a range to `take`, block by block.
    ///
    /// # Errors
    /// [`SumError`]; [`SumError::Changed`] where the file ends before the range does.
    pub(crate) fn read(&mut self, range: ByteRange, mut take: impl FnMut(&[u8])) -> Result<(), SumError> {
        let mut at = range.start.0;
        while at < range.end.0 {
            let want = self.buffer.len().min(usize::try_from(range.end.0 - at).unwrap_or(usize::MAX));
            if self.opened.read_at(at, &mut self.buffer[..want])? < want {
                return Err(SumError::Changed);
            }
            take(&self.buffer[..want]);
            at += want as u64;
        }
        Ok(())
    }

    /// Whether the file stayed the same since it was opened.
    ///
    /// # Errors
    /// [`SumError::Changed`].
    pub(crate) fn check_unchanged(&self) -> Result<(), SumError> {
        self.opened.check_unchanged()
    }
}
