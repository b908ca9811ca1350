//! Open source: its range to read, its reads, and the check that it did not change.

use super::order::{Source, SumError, Task};
use super::settings::Settings;
use haul_model::{ByteOffset, ByteRange};
use haul_plan::Pace;
use haul_sys::beneath::open_source_beneath;
use haul_sys::cache::{self, Advice};
use haul_sys::dir::CWD;
use haul_sys::direct::{self, Alignment};
use haul_sys::open::{open_source_at, open_stream_at};
use haul_sys::{Contents, FileKind, Follow, Stat, stat, transfer, wait};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// Error number of an open socket name, the same on every architecture.
const ENXIO: i32 = 6;

/// Source that is being read.
#[derive(Debug)]
pub(super) struct Opened {
    fd: OwnedFd,
    /// Metadata before the first read; `None` for a source without lasting contents.
    before: Option<Stat>,
    reach: SourceRange,
    direct: Option<Alignment>,
    drop_behind: bool,
    pace: Option<Arc<Mutex<Pace>>>,
}

/// Part of a source to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceRange {
    /// Bytes at offsets.
    Range(ByteRange),
    /// All bytes after the first `skip` ones, at most `most`.
    Stream { skip: u64, most: u64 },
    /// Nothing: the stream has been read before.
    Spent,
}

impl Opened {
    /// Opens the source of the task. Waits for the writer of a pipe until `stop` is true.
    pub(super) fn open(task: &Task, settings: &Settings, stop: &AtomicBool) -> Result<Opened, SumError> {
        let opened = open_fd(&task.source, stop).map_err(|error| match &task.source {
            // A socket, or a device without a driver.
            Source::Named(_) | Source::Beneath(..) | Source::Within(..)
                if error.raw_os_error() == Some(ENXIO) =>
            {
                SumError::NotRegular
            }
            Source::Within(..) if error.kind() == io::ErrorKind::CrossesDevices => SumError::LeadsOut,
            _ => SumError::Open(error),
        })?;
        let (fd, start) = opened.ok_or(SumError::Stopped)?;
        let facts = stat::stat_fd(&fd).map_err(SumError::Open)?;
        let reach = match facts.kind {
            FileKind::Directory => return Err(SumError::Directory),
            FileKind::Fifo
                if matches!(task.source, Source::Named(_) | Source::Beneath(..) | Source::Within(..)) =>
            {
                return Err(SumError::NotRegular);
            }
            _ if matches!(task.source, Source::StdinAgain) => SourceRange::Spent,
            FileKind::Regular if facts.size > 0 => SourceRange::Range(range_of(task, start, facts.size)),
            _ => {
                let most = task.length.map_or(u64::MAX, |length| length.0);
                SourceRange::Stream { skip: task.offset.0, most }
            }
        };
        let before = (facts.kind == FileKind::Regular).then_some(facts);
        let seekable = matches!(reach, SourceRange::Range(_));
        let mut opened = Opened {
            fd,
            before,
            reach,
            direct: None,
            drop_behind: settings.drop_behind,
            pace: settings.pace.clone(),
        };
        if settings.direct && seekable {
            opened.direct = direct::probe_read(&opened.fd).map_err(SumError::Open)?;
        }
        if settings.drop_before && opened.direct.is_none() && seekable {
            cache::drop_range(&opened.fd, ByteRange::between(0, facts.size)).map_err(SumError::Open)?;
        }
        if settings.drop_behind && opened.direct.is_none() && seekable {
            // If the file system ignores the advice, the bytes are the same.
            let _ = cache::advise_all(&opened.fd, Advice::Sequential);
        }
        Ok(opened)
    }

    /// Returns the metadata before the first byte was read; `None` for streams.
    pub(super) fn facts(&self) -> Option<Box<Stat>> {
        self.before.map(Box::new)
    }

    pub(super) fn reach(&self) -> SourceRange {
        self.reach
    }

    /// Returns the number of bytes to hash, as far as known; 0 for a stream.
    pub(super) fn len(&self) -> u64 {
        if let SourceRange::Range(range) = self.reach { range.len() } else { 0 }
    }

    /// Returns true for a regular file, whose reads do not wait for a writer.
    pub(super) fn is_regular(&self) -> bool {
        self.before.is_some()
    }

    /// Returns the size of the file before its first byte was read; 0 if it has no size.
    pub(super) fn size(&self) -> u64 {
        self.before.map_or(0, |facts| facts.size)
    }

    /// Reads the file from offset `at` until `buffer` is full or the file ends.
    pub(super) fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize, SumError> {
        let failed = |source| SumError::Read { at: ByteOffset(at), source };
        self.keep_pace(buffer.len());
        let Some(alignment) = self.direct else {
            let read = transfer::read_at(&self.fd, at, buffer).map_err(failed)?;
            if self.drop_behind {
                let range = ByteRange::between(at, at + read as u64);
                let _ = cache::advise(&self.fd, range, Advice::DontNeed);
            }
            return Ok(read);
        };
        let block = u64::from(alignment.offset);
        if at.is_multiple_of(block) && (buffer.len() as u64).is_multiple_of(block) {
            return direct::read_at(&self.fd, at, buffer, alignment).map_err(failed);
        }
        // The range starts or ends within a block: read the blocks around it into a separate
        // buffer.
        self.read_unaligned(at, buffer, alignment).map_err(failed)
    }

    /// Waits until the rate limit allows `bytes` more bytes.
    fn keep_pace(&self, bytes: usize) {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        if let Some(pace) = &self.pace {
            let mut pace = pace.lock();
            let wait = pace.take(BEGUN.elapsed(), bytes as u64);
            drop(pace);
            std::thread::sleep(wait);
        }
    }

    fn read_unaligned(&self, at: u64, buffer: &mut [u8], alignment: Alignment) -> io::Result<usize> {
        let block = u64::from(alignment.offset);
        let start = at / block * block;
        let skip = (at - start) as usize;
        let len = (skip + buffer.len()).next_multiple_of(block as usize);
        let mut wide = haul_sys::buffer::AlignedBuffer::new(len)?;
        let read = direct::read_at(&self.fd, start, &mut wide, alignment)?;
        let got = read.saturating_sub(skip).min(buffer.len());
        buffer[..got].copy_from_slice(&wide[skip..skip + got]);
        Ok(got)
    }

    /// Reads from a stream until `buffer` is full or the stream ends. Waits for data until `stop`
    /// is true.
    pub(super) fn read_stream(
        &self,
        at: u64,
        buffer: &mut [u8],
        stop: &AtomicBool,
    ) -> Result<usize, SumError> {
        let read = wait::read_stream(&self.fd, buffer, || stop.load(Ordering::Relaxed));
        let read = read.map_err(|source| SumError::Read { at: ByteOffset(at), source })?;
        read.ok_or(SumError::Stopped)
    }

    /// Checks that size and times are the same as before the first read.
    ///
    /// # Errors
    /// Returns [`SumError::Changed`] if the file changed, and [`SumError::MayHaveChanged`] if only
    /// the change time moved.
    pub(super) fn check_unchanged(&self) -> Result<(), SumError> {
        let Some(before) = self.before else { return Ok(()) };
        let at = ByteOffset(0);
        let now = stat::stat_fd(&self.fd).map_err(|source| SumError::Read { at, source })?;
        match now.contents_since(&before) {
            Contents::Unchanged => Ok(()),
            Contents::Unknown => Err(SumError::MayHaveChanged),
            Contents::Changed => Err(SumError::Changed),
        }
    }
}

/// Returns the range of a regular file of `size` bytes that a task requests; `start` is the read
/// position.
fn range_of(task: &Task, start: u64, size: u64) -> ByteRange {
    let first = start.saturating_add(task.offset.0).min(size);
    let end = task.length.map_or(size, |length| first.saturating_add(length.0).min(size));
    ByteRange::between(first, end)
}

/// Opens the source. Returns the descriptor and the start offset of reads, which is above 0 only
/// for a standard input positioned within a file. Returns `None` if `stop` ended the wait for the
/// writer of a pipe.
fn open_fd(source: &Source, stop: &AtomicBool) -> io::Result<Option<(OwnedFd, u64)>> {
    match source {
        Source::Beneath(dir, name) => Ok(Some((open_source_at(dir, name.as_c_str(), Follow::No, false)?, 0))),
        Source::Within(dir, path) => Ok(Some((open_source_beneath(dir, path)?, 0))),
        Source::Named(path) => Ok(Some((open_source_at(CWD, path.as_os_str(), Follow::Yes, false)?, 0))),
        Source::Path(path) => {
            let path = path.as_os_str();
            let fd = match stat::stat_at(CWD, path, Follow::Yes)?.kind {
                FileKind::Regular | FileKind::Directory => {
                    Some(open_source_at(CWD, path, Follow::Yes, false)?)
                }
                FileKind::Fifo => {
                    wait::open_pipe_source_at(CWD, path, Follow::Yes, || stop.load(Ordering::Relaxed))?
                }
                _ => Some(open_stream_at(CWD, path, Follow::Yes)?),
            };
            Ok(fd.map(|fd| (fd, 0)))
        }
        Source::Stdin | Source::StdinAgain => {
            let mut file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
            let start = file.stream_position().unwrap_or(0);
            if file.metadata().is_ok_and(|facts| facts.is_file() && facts.len() > 0)
                && matches!(source, Source::Stdin)
            {
                // Processes that share the descriptor find it at the end, as after any other
                // reader.
                let end = file.metadata()?.len();
                file.seek(SeekFrom::Start(end.max(start)))?;
            }
            Ok(Some((file.into(), start)))
        }
    }
}
