//! Bytes of one file in order, for a caller that hashes them itself.

use super::order::{Outcome, Source, SumError, Sums, Task};
use super::serial::{RunningDigests, check_parts};
use super::settings::{Form, Recipe, Settings};
use super::source::Opened;
use crate::pipeline::{BLOCK_BYTES, Block, read_blocks};
use haul_digest::Algorithm;
use haul_model::{ByteOffset, ByteRange};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Passes all bytes of a file (`-` is the standard input) to `take`, block by block.
///
/// # Errors
/// Returns a [`SumError`] if the file cannot be read or changed during the read.
pub fn read_through(path: &OsStr, mut take: impl FnMut(&[u8])) -> Result<(), SumError> {
    let source = if path == "-" { Source::Stdin } else { Source::Path(path.to_owned()) };
    // The caller lets a signal terminate the process.
    let never = AtomicBool::new(false);
    let recipe = Arc::new(Recipe { algorithms: vec![Algorithm::Blake3], form: Form::Plain });
    let task = Task { source, recipe, offset: ByteOffset(0), length: None };
    let opened = Opened::open(&task, &Settings::new(), &never)?;
    opened.each_block(&mut vec![0; BLOCK_BYTES], &never, |bytes| {
        take(bytes);
        Ok(())
    })?;
    opened.check_unchanged()
}

/// Hashes the rest of a stream in the calling thread, for a caller that itself reads the stream
/// before or afterwards. Reads nothing from the source of the task.
pub fn hash_rest(stream: impl Read, task: &Task) -> Outcome {
    match rest(stream, task) {
        Ok(sums) => Outcome::Done(sums),
        Err(error) => Outcome::Failed(error),
    }
}

/// Same as [`hash_rest`], for the standard input, if this process has not buffered any of it.
pub fn hash_rest_of_stdin(task: &Task) -> Outcome {
    match io::stdin().as_fd().try_clone_to_owned() {
        Ok(stdin) => hash_rest(File::from(stdin), task),
        Err(error) => Outcome::Failed(SumError::Open(error)),
    }
}

fn rest(mut stream: impl Read, task: &Task) -> Result<Sums, SumError> {
    let failed = |at| move |source| SumError::Read { at: ByteOffset(at), source };
    let start = io::copy(&mut stream.by_ref().take(task.offset.0), &mut io::sink()).map_err(failed(0))?;
    let mut wanted = stream.take(task.length.map_or(u64::MAX, |length| length.0));
    let mut running_digests = RunningDigests::new(&task.recipe, None);
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut at = start;
    loop {
        let got = match wanted.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(failed(at))?,
        };
        if got == 0 {
            let partial = task.offset.0 > 0 || task.length.is_some();
            return running_digests.finish(ByteRange::between(start, at), partial);
        }
        at += got as u64;
        check_parts(task.recipe.form, at - start)?;
        running_digests.update(&buffer[..got]);
    }
}

/// File that is read again at given ranges, with the settings of a job.
#[derive(Debug)]
pub(crate) struct RangeReader {
    opened: Opened,
    buffer: Block,
}

impl RangeReader {
    /// Opens the file, past the page cache if the settings request it.
    ///
    /// # Errors
    /// Returns a [`SumError`] if the file cannot be opened.
    pub(crate) fn open(
        source: Source,
        settings: &Settings,
        stop: &AtomicBool,
    ) -> Result<RangeReader, SumError> {
        let recipe = Arc::new(Recipe { algorithms: vec![Algorithm::Blake3], form: Form::Plain });
        let task = Task { source, recipe, offset: ByteOffset(0), length: None };
        let opened = Opened::open(&task, settings, stop)?;
        let buffer = Block::new(settings.block_bytes).map_err(SumError::Open)?;
        Ok(RangeReader { opened, buffer })
    }

    /// Passes the bytes of a range to `take`, block by block.
    ///
    /// # Errors
    /// Returns [`SumError::Changed`] if the file ends before the range does, and another
    /// [`SumError`] if a read fails.
    pub(crate) fn read(&mut self, range: ByteRange, mut take: impl FnMut(&[u8])) -> Result<(), SumError> {
        // The caller ends the job between two ranges.
        let never = AtomicBool::new(false);
        read_blocks(&self.opened, range, &mut self.buffer, &never, |_, bytes| {
            take(bytes);
            Ok(())
        })
        .map_err(SumError::from)
    }

    /// Checks that the file did not change since it was opened.
    ///
    /// # Errors
    /// Returns [`SumError::Changed`] if it changed, and [`SumError::MayHaveChanged`] if only its
    /// change time moved.
    pub(crate) fn check_unchanged(&self) -> Result<(), SumError> {
        self.opened.check_unchanged()
    }
}
