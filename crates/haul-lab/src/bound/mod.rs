//! The least time that a job's input and output take on this machine: the same bytes are read, written, brought to the
//! device, dropped and read back, and nothing is computed of them. What a job takes beyond that is its own.
//!
//! Which way is the fastest depends on the machine: the benchmark runs several and holds `haul` against the best. So
//! that none of them waits without need, whoever writes never waits for the device, and whoever waits for it or
//! reads from it is a thread of its own.

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

/// How the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Past the page cache at every step.
    pub direct: bool,
    /// Threads that take objects of the source. Through the page cache, twice as many more read back.
    pub threads: usize,
    /// Bytes of one read and one write.
    pub block: usize,
    /// The pieces that threads take.
    pub object: ObjectSize,
    /// Through the page cache: how many objects before its turn the source is asked for one.
    pub ahead: u64,
}

/// Why there is no bound to tell.
#[derive(Debug, Error)]
pub enum BoundError {
    /// A call failed.
    #[error("{}: {doing}: {source}", path.display())]
    Failed {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file system reads and writes through the page cache only.
    #[error("{}: its file system has no direct I/O; leave --direct out", .0.display())]
    NoDirect(PathBuf),
    /// The source got shorter.
    #[error("{}: it ended at byte {at}, before its length", path.display())]
    Shrank {
        /// The source.
        path: PathBuf,
        /// Where it ended.
        at: u64,
    },
}

/// Reads a whole file, its objects side by side; returns the bytes.
///
/// # Errors
/// [`BoundError`].
pub fn read(source: &Path, way: &Way) -> Result<u64, BoundError> {
    let end = End::open(source, way)?;
    let cut = Cut::of(&end, way)?;
    if !way.direct {
        // Advice that is not taken changes nothing about the bytes.
        let _ = cache::advise_all(&end.file, Advice::Sequential);
    }
    side_by_side(way.threads, || {
        let mut block = end.block(way.block)?;
        while let Some(object) = cut.take() {
            cut.ask_ahead(&end, object);
            end.read(object, &mut block)?;
        }
        Ok(())
    })?;
    Ok(cut.geometry.len())
}

/// One end of the way: an open file and its name.
struct End<'p> {
    path: &'p Path,
    file: File,
    /// What direct transfers keep to, where they are direct.
    direct: Option<Alignment>,
}

impl<'p> End<'p> {
    fn open(path: &'p Path, way: &Way) -> Result<End<'p>, BoundError> {
        let file = File::open(path).map_err(|source| failed("open", path, source))?;
        End::of(path, file, way)
    }

    fn of(path: &'p Path, file: File, way: &Way) -> Result<End<'p>, BoundError> {
        let mut end = End { path, file, direct: None };
        if way.direct {
            let alignment = direct::alignment(&end.file).map_err(|source| end.failed("ask", source))?;
            let set = alignment.filter(|_| direct::set_direct(&end.file, true).is_ok());
            end.direct = Some(set.ok_or_else(|| BoundError::NoDirect(path.to_owned()))?);
        }
        Ok(end)
    }

    fn block(&self, bytes: usize) -> Result<AlignedBuffer, BoundError> {
        AlignedBuffer::new(bytes).map_err(|source| self.failed("buffer", source))
    }

    /// Reads all of an object, block by block.
    fn read(&self, object: Object, block: &mut AlignedBuffer) -> Result<(), BoundError> {
        let mut at = object.range.start.0;
        while at < object.range.end.0 {
            at += self.read_block(at, object.range.end.0, block)? as u64;
        }
        Ok(())
    }

    /// Reads from `at` as much as the block holds, not beyond `end`.
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

/// A file's objects, of which each is taken once.
struct Cut {
    geometry: Geometry,
    next: AtomicU64,
    ahead: u64,
}

impl Cut {
    fn of(end: &End<'_>, way: &Way) -> Result<Cut, BoundError> {
        let facts = end.file.metadata().map_err(|source| end.failed("stat", source))?;
        Ok(Cut {
            geometry: Geometry::new(ByteLen(facts.len()), way.object),
            next: AtomicU64::new(0),
            ahead: way.ahead,
        })
    }

    fn take(&self) -> Option<Object> {
        self.geometry.object(ObjectIndex(self.next.fetch_add(1, Ordering::Relaxed)))
    }

    /// Lets the device begin with an object whose turn comes later; with the first one, all those before it too.
    fn ask_ahead(&self, end: &End<'_>, object: Object) {
        let Some(last) = self.geometry.object(ObjectIndex(object.index.0.saturating_add(self.ahead))) else {
            return;
        };
        let first = if object.index.0 == 0 { object } else { last };
        if self.ahead > 0 && end.direct.is_none() {
            // Only makes the read begin sooner.
            let range = ByteRange { start: first.range.start, end: last.range.end };
            let _ = cache::advise(&end.file, range, Advice::WillNeed);
        }
    }

    fn end(&self) -> ByteOffset {
        ByteOffset(self.geometry.len())
    }
}

/// Runs `work` in so many threads; the first failure is the one that is told.
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
