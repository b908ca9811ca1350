//! Open source: its range to read, its reads, and the check that it did not change.

use super::input::Input;
use super::order::{Source, SumError, Task};
use super::settings::Settings;
use crate::pipeline::{Block, BlockFault, ReadAt, read_blocks};
use haul_model::{ByteOffset, ByteRange, PathError, RelPath};
use haul_plan::Pace;
use haul_storage::{Advice, Alignment, Change, DropRetries, FileKind, Follow, SourceFile, Stat, Version};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// Error number of an open socket name, the same on every architecture.
const ENXIO: i32 = 6;

/// Source that is being read.
#[derive(Debug)]
pub(super) struct Opened {
    input: Input,
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
        let (input, start) = open_input(&task.source, stop)?;
        let reach = match &input {
            _ if matches!(task.source, Source::StdinAgain) => SourceRange::Spent,
            Input::File(file) if file.opened().size > 0 => {
                SourceRange::Range(range_of(task, start, file.opened().size))
            }
            _ => {
                let most = task.length.map_or(u64::MAX, |length| length.0);
                SourceRange::Stream { skip: task.offset.0, most }
            }
        };
        let (drop_behind, pace) = (settings.drop_behind, settings.pace.clone());
        let mut opened = Opened { input, reach, direct: None, drop_behind, pace };
        if let (SourceRange::Range(_), Input::File(file)) = (reach, &opened.input) {
            let all = ByteRange::between(0, file.opened().size);
            if settings.direct {
                opened.direct = file.set_direct(true).map_err(SumError::Open)?;
            }
            if settings.drop_before && opened.direct.is_none() {
                file.evict(all, DropRetries::None).map_err(SumError::Open)?;
            }
            if settings.drop_behind && opened.direct.is_none() {
                file.advise(all, Advice::Sequential);
            }
        }
        Ok(opened)
    }

    /// Returns the metadata of a regular file before its first byte was read.
    fn before(&self) -> Option<&Stat> {
        Some(self.input.opened()).filter(|opened| opened.kind == FileKind::Regular)
    }

    /// Returns the metadata before the first byte was read; `None` for streams.
    pub(super) fn facts(&self) -> Option<Box<Stat>> {
        self.before().map(|before| Box::new(*before))
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
        self.before().is_some()
    }

    /// Returns the size of the file before its first byte was read; 0 if it has no size.
    pub(super) fn size(&self) -> u64 {
        self.before().map_or(0, |before| before.size)
    }

    /// Passes the bytes to hash to `take`, block by block and in order. Returns their range.
    ///
    /// A file may report a larger size than it has (files in sysfs do). Its end is accepted;
    /// [`Opened::check_unchanged`] decides whether the file changed.
    pub(super) fn each_block(
        &self,
        block: &mut [u8],
        stop: &AtomicBool,
        mut take: impl FnMut(&[u8]) -> Result<(), SumError>,
    ) -> Result<ByteRange, SumError> {
        match self.reach {
            SourceRange::Spent => Ok(ByteRange::default()),
            SourceRange::Range(range) => {
                match read_blocks(self, range, block, stop, |_, bytes| take(bytes)) {
                    Ok(()) => Ok(range),
                    Err(BlockFault::Ended(at, got)) => {
                        take(&block[..got])?;
                        Ok(ByteRange::between(range.start.0, at + got as u64))
                    }
                    Err(fault) => Err(fault.into()),
                }
            }
            SourceRange::Stream { skip, most } => {
                let last = skip.saturating_add(most);
                let mut at = 0;
                while at < last {
                    let target = if at < skip { skip } else { last };
                    let want = block.len().min(usize::try_from(target - at).unwrap_or(usize::MAX));
                    let read = self.input.read_next(at, &mut block[..want], stop);
                    let read = read.map_err(|source| SumError::Read { at: ByteOffset(at), source })?;
                    let got = read.ok_or(SumError::Stopped)?;
                    if got == 0 {
                        break;
                    }
                    if at >= skip {
                        take(&block[..got])?;
                    }
                    at += got as u64;
                }
                Ok(ByteRange::between(skip.min(at), at))
            }
        }
    }

    /// Fills `buffer` from offset `at`, as far as the file goes.
    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> Result<usize, SumError> {
        self.read_at(at, buffer).map_err(|source| SumError::Read { at: ByteOffset(at), source })
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

    /// Checks that size and times are the same as before the first read.
    ///
    /// # Errors
    /// Returns [`SumError::Changed`] if the file changed, and [`SumError::MayHaveChanged`] if only
    /// the change time moved.
    pub(super) fn check_unchanged(&self) -> Result<(), SumError> {
        let Some(before) = self.before() else { return Ok(()) };
        let now = self.input.stat().map_err(|source| SumError::Read { at: ByteOffset(0), source })?;
        match Version::of(before).change(&now) {
            None => Ok(()),
            Some(Change::Unknown) => Err(SumError::MayHaveChanged),
            Some(Change::Contents | Change::Replaced) => Err(SumError::Changed),
        }
    }
}

impl ReadAt for Opened {
    /// Keeps the rate limit, and drops the bytes from the page cache if the job requests it. Reads
    /// past the cache also a range that starts or ends within a block of the device.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let Input::File(file) = &self.input else { return Err(io::ErrorKind::NotSeekable.into()) };
        self.keep_pace(buffer.len());
        let Some(alignment) = self.direct else {
            let read = file.read_at(at, buffer)?;
            if self.drop_behind {
                file.advise(ByteRange::between(at, at + read as u64), Advice::DontNeed);
            }
            return Ok(read);
        };
        let block = u64::from(alignment.offset);
        let (start, end) = (at / block * block, at + buffer.len() as u64);
        if start == at && end.is_multiple_of(block) {
            return file.read_at(at, buffer);
        }
        let skip = (at - start) as usize;
        let mut wide = Block::new((skip + buffer.len()).next_multiple_of(block as usize))?;
        let read = file.read_at(start, &mut wide)?;
        let got = read.saturating_sub(skip).min(buffer.len());
        buffer[..got].copy_from_slice(&wide[skip..skip + got]);
        Ok(got)
    }
}

impl From<BlockFault<SumError>> for SumError {
    /// A file that ends within its range has changed.
    fn from(fault: BlockFault<SumError>) -> SumError {
        match fault {
            BlockFault::Stopped => SumError::Stopped,
            BlockFault::Read(at, source) => SumError::Read { at: ByteOffset(at), source },
            BlockFault::Ended(..) => SumError::Changed,
            BlockFault::Receiver(error) => error,
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

/// Opens a source, with the offset where reads of a file start.
fn open_input(source: &Source, stop: &AtomicBool) -> Result<(Input, u64), SumError> {
    let (opened, start) = match source {
        Source::Beneath(dir, name) => {
            let is_dir =
                || dir.stat_at(name, Follow::No).is_ok_and(|found| found.kind == FileKind::Directory);
            return Ok((Input::File(regular(dir.source(name, Follow::No), is_dir)?), 0));
        }
        Source::Within(dir, path) => {
            let path = within(path)?;
            let is_dir = || dir.beneath(&path, Follow::Yes).is_ok();
            return Ok((Input::File(regular(dir.source_beneath(&path), is_dir)?), 0));
        }
        Source::Path(path) => (Input::open(path, true, stop), 0),
        Source::Named(path) => (Input::open(path, false, stop), 0),
        Source::Stdin | Source::StdinAgain => {
            let opened = Input::stdin(matches!(source, Source::StdinAgain));
            let (input, start) = opened.map_err(refused)?;
            (Ok(Some(input)), start)
        }
    };
    let is_named = matches!(source, Source::Named(_));
    match opened {
        // A socket, or a device without a driver.
        Err(error) if is_named && error.raw_os_error() == Some(ENXIO) => Err(SumError::NotRegular),
        Ok(Some(input)) if is_named && input.opened().kind == FileKind::Fifo => Err(SumError::NotRegular),
        opened => Ok((opened.map_err(refused)?.ok_or(SumError::Stopped)?, start)),
    }
}

/// Returns the reason why an input cannot be opened.
fn refused(error: io::Error) -> SumError {
    if error.kind() == io::ErrorKind::IsADirectory { SumError::Directory } else { SumError::Open(error) }
}

/// Returns a file that was opened in a directory, or the reason why it is none.
fn regular(
    opened: io::Result<Arc<dyn SourceFile>>,
    is_directory: impl Fn() -> bool,
) -> Result<Arc<dyn SourceFile>, SumError> {
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput if is_directory() => SumError::Directory,
        io::ErrorKind::InvalidInput => SumError::NotRegular,
        io::ErrorKind::CrossesDevices => SumError::LeadsOut,
        _ if error.raw_os_error() == Some(ENXIO) => SumError::NotRegular,
        _ => SumError::Open(error),
    })
}

/// Returns a path that another party names beneath a directory.
fn within(path: &OsStr) -> Result<RelPath, SumError> {
    RelPath::clean(path.as_bytes()).map_err(|fault| match fault {
        PathError::Climbs | PathError::Absolute => SumError::LeadsOut,
        PathError::Empty => SumError::Open(io::ErrorKind::NotFound.into()),
        fault => SumError::Open(io::Error::new(io::ErrorKind::InvalidFilename, fault)),
    })
}
