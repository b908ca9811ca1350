//! Lower bound for the I/O time of a job on this machine. The same bytes are read, written, synced
//! to the device, dropped from the page cache and read back, and nothing is computed. The rest of a
//! job's time is overhead of the job.
//!
//! The fastest configuration depends on the machine: the benchmark runs several and compares `haul`
//! with the best. To avoid needless waiting, writer threads never wait for the device. Separate
//! threads wait for the device and read from it.

mod reread;
#[cfg(test)]
mod tests;

pub use reread::reread;

use haul_model::{ByteLen, ByteOffset, ByteRange, Geometry, Object, ObjectIndex, ObjectSize};
use haul_sys::buffer::AlignedBuffer;
use haul_sys::cache::{self, Advice};
use haul_sys::direct::{self, Alignment};
use haul_sys::transfer;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use thiserror::Error;

/// Configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundConfig {
    /// True if every step bypasses the page cache.
    pub direct: bool,
    /// Number of threads that process objects of the source. Through the page cache, twice as many
    /// additional threads read back.
    pub threads: usize,
    /// Number of bytes per read and per write.
    pub block: usize,
    /// Size of the objects that threads take.
    pub object: ObjectSize,
    /// Number of objects of read-ahead from the source, through the page cache.
    pub ahead: u64,
}

/// Error of measuring a bound.
#[derive(Debug, Error)]
pub enum BoundError {
    /// A system call failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Failed {
        /// Description of the attempted step.
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file system has no direct I/O.
    #[error("cannot use direct I/O on {}: not supported by its file system; omit --direct", .0.display())]
    NoDirect(PathBuf),
    /// The source became shorter.
    #[error("cannot read {}: end of file at byte {at}, before its length", path.display())]
    Shrank {
        /// Path of the source.
        path: PathBuf,
        /// Offset at which the source ended.
        at: u64,
    },
}

/// Reads a whole file, with its objects in parallel. Returns the number of bytes.
///
/// # Errors
/// Returns [`BoundError`] if a read fails, if the file shrinks, or if `config` asks for direct I/O
/// and the file system has none.
pub fn read(source: &Path, config: &BoundConfig) -> Result<u64, BoundError> {
    let end = End::open(source, config)?;
    let cut = ObjectQueue::of(&end, config)?;
    if !config.direct {
        // Failed advice does not change the bytes.
        let _ = cache::advise_all(&end.file, Advice::Sequential);
    }
    side_by_side(config.threads, || {
        let mut block = end.block(config.block)?;
        while let Some(object) = cut.take() {
            cut.read_ahead(&end, object);
            end.read(object, &mut block)?;
        }
        Ok(())
    })?;
    Ok(cut.geometry.len())
}

/// An open source or sink with its path.
struct End<'p> {
    path: &'p Path,
    file: File,
    /// Alignment of direct I/O; `None` through the page cache.
    direct: Option<Alignment>,
}

impl<'p> End<'p> {
    fn open(path: &'p Path, config: &BoundConfig) -> Result<End<'p>, BoundError> {
        let file = File::open(path).map_err(|source| failed("open", path, source))?;
        End::of(path, file, config)
    }

    fn of(path: &'p Path, file: File, config: &BoundConfig) -> Result<End<'p>, BoundError> {
        let mut end = End { path, file, direct: None };
        if config.direct {
            let alignment = direct::alignment(&end.file)
                .map_err(|source| end.failed("query direct I/O alignment of", source))?;
            let set = alignment.filter(|_| direct::set_direct(&end.file, true).is_ok());
            end.direct = Some(set.ok_or_else(|| BoundError::NoDirect(path.to_owned()))?);
        }
        Ok(end)
    }

    fn block(&self, bytes: usize) -> Result<AlignedBuffer, BoundError> {
        AlignedBuffer::new(bytes).map_err(|source| self.failed("allocate a buffer for", source))
    }

    /// Reads a whole object, block by block.
    fn read(&self, object: Object, block: &mut AlignedBuffer) -> Result<(), BoundError> {
        let mut at = object.range.start.0;
        while at < object.range.end.0 {
            at += self.read_block(at, object.range.end.0, block)? as u64;
        }
        Ok(())
    }

    /// Reads from offset `at` until the block is full, but not beyond `end`.
    fn read_block(&self, at: u64, end: u64, block: &mut AlignedBuffer) -> Result<usize, BoundError> {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(block.len());
        let got = match self.direct {
            Some(alignment) => {
                let room = want.next_multiple_of(alignment.offset as usize).min(block.len());
                direct::read_at(&self.file, at, &mut block[..room], alignment).map(|got| got.min(want))
            }
            None => transfer::read_at(&self.file, at, &mut block[..want]),
        };
        match got.map_err(|source| self.failed("read", source))? {
            got if got == want => Ok(got),
            got => Err(BoundError::Shrank { path: self.path.to_owned(), at: at + got as u64 }),
        }
    }

    fn write_block(&self, at: u64, bytes: &[u8]) -> Result<(), BoundError> {
        let written = match self.direct {
            Some(alignment) => direct::write_all_at(&self.file, at, bytes, alignment),
            None => transfer::write_all_at(&self.file, at, bytes),
        };
        written.map_err(|source| self.failed("write", source))
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> BoundError {
        failed(doing, self.path, source)
    }
}

/// Objects of a file; each is taken once.
struct ObjectQueue {
    geometry: Geometry,
    next: AtomicU64,
    ahead: u64,
}

impl ObjectQueue {
    fn of(end: &End<'_>, config: &BoundConfig) -> Result<ObjectQueue, BoundError> {
        let facts = end.file.metadata().map_err(|source| end.failed("stat", source))?;
        Ok(ObjectQueue {
            geometry: Geometry::new(ByteLen(facts.len()), config.object),
            next: AtomicU64::new(0),
            ahead: config.ahead,
        })
    }

    fn take(&self) -> Option<Object> {
        self.geometry.object(ObjectIndex(self.next.fetch_add(1, Ordering::Relaxed)))
    }

    /// Requests read-ahead of the object that is `ahead` objects later. For the first object,
    /// requests all objects up to there.
    fn read_ahead(&self, end: &End<'_>, object: Object) {
        let Some(last) = self.geometry.object(ObjectIndex(object.index.0.saturating_add(self.ahead))) else {
            return;
        };
        let first = if object.index.0 == 0 { object } else { last };
        if self.ahead > 0 && end.direct.is_none() {
            // The advice only starts the read earlier.
            let range = ByteRange { start: first.range.start, end: last.range.end };
            let _ = cache::advise(&end.file, range, Advice::WillNeed);
        }
    }

    fn end(&self) -> ByteOffset {
        ByteOffset(self.geometry.len())
    }
}

/// Runs `work` in `threads` threads. Returns the first error, in the order of the threads.
fn side_by_side(threads: usize, work: impl Fn() -> Result<(), BoundError> + Sync) -> Result<(), BoundError> {
    thread::scope(|scope| {
        let hired: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(&work)).collect();
        hired.into_iter().map(joined).fold(Ok(()), Result::and)
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> BoundError {
    BoundError::Failed { doing, path: path.to_owned(), source }
}
