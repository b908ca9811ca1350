//! Verification of one object: write back, drop from the page cache, re-read, compare, and rewrite
//! if the object differs.

use super::CHECK_DIGEST;
use super::queue::{Check, CheckSelection, PendingReread, Step};
use crate::copy::blocks::Blocks;
use crate::copy::error::CopyError;
use crate::copy::open_copy::{OpenCopy, drop_clean_pages};
use crate::copy::report::Tally;
use crate::copy::shared_file::SharedFile;
use haul_digest::{Digest, Hasher};
use haul_model::{ByteOffset, ByteRange};
use haul_plan::Route;
use haul_storage::{Advice, DropRetries, ReadBack, SyncWhat};
use std::io;

/// Maximum number of rewrites of an object before its file fails. An accidental bit flip in transit
/// does not recur three times. A medium that returns wrong bytes after this number of writes is
/// unlikely to store another write correctly.
const REWRITES_MAX: u32 = 3;

impl OpenCopy<'_> {
    /// Starts write-back of a written object and queues its verification.
    pub(crate) fn queue_reread(&self, range: ByteRange, digest: Digest) {
        if let Some(sink) = self.file.sink.file().ok().filter(|_| !range.is_empty()) {
            sink.start_writeback(self.sink_range(range));
            self.delivery.verification.add(Check { range, digest });
        }
    }

    /// Verifies the due objects of a file that only this worker copies.
    ///
    /// # Errors
    /// See [`OpenCopy::step`].
    pub(crate) fn prove(&self, blocks: &mut Blocks, selection: CheckSelection) -> Result<(), CopyError> {
        while let Some(step) = self.delivery.verification.next(selection) {
            self.step(blocks, step)?;
        }
        Ok(())
    }

    /// Starts re-reading all waiting objects of a file.
    ///
    /// # Errors
    /// Returns an error if the device could not store the written data.
    pub(crate) fn ask_all(&self) -> Result<(), CopyError> {
        while let Some(check) = self.delivery.verification.next_written() {
            self.delivery.verification.asked(self.ask(check)?);
        }
        Ok(())
    }

    /// Executes one step for one object. Returns true if the object has finished.
    ///
    /// # Errors
    /// Returns an error if the device could not store the object, returns wrong bytes after every
    /// rewrite, or cannot be read. Also returns an error if the source cannot be read again or has
    /// changed, or if the job was stopped.
    pub(crate) fn step(&self, blocks: &mut Blocks, step: Step) -> Result<bool, CopyError> {
        if self.context.is_stopping() {
            return Err(self.file.interrupted());
        }
        match step {
            Step::Ask(check) => {
                self.delivery.verification.asked(self.ask(check)?);
                Ok(false)
            }
            Step::Compare(asked) => self.compare_or_mend(blocks, asked).map(|()| true),
        }
    }

    /// Syncs the complete file.
    ///
    /// # Errors
    /// Returns the error of fdatasync(2).
    pub(crate) fn sync(&self) -> Result<(), CopyError> {
        self.synced(self.file.sink.file().and_then(|sink| sink.sync(SyncWhat::Data)))
    }

    /// Returns the result of a sync of the complete file.
    pub(super) fn synced(&self, synced: io::Result<()>) -> Result<(), CopyError> {
        synced.map_err(|source| {
            self.file.sync_failed();
            CopyError::Failed { doing: "error syncing", path: self.file.sink_path(), source }
        })
    }

    fn ask(&self, check: Check) -> Result<PendingReread, CopyError> {
        let range = self.sink_range(check.range);
        let path = self.evict(range)?;
        if let Ok(reader) = self.delivery.reader() {
            reader.advise(range, Advice::WillNeed);
        }
        Ok(PendingReread { check, path })
    }

    /// Writes a range of the sink to the device and drops it from the page cache. Returns the path
    /// that a read takes now.
    fn evict(&self, range: ByteRange) -> Result<ReadBack, CopyError> {
        let is_no_use = self.delivery.verification.has_hit_page_cache();
        let retries = if is_no_use { DropRetries::None } else { DropRetries::Some };
        let evicted = self.delivery.reader().and_then(|reader| reader.evict(range, retries));
        evicted.map_err(|source| {
            self.file.sync_failed();
            self.write_failed(range.start.0, source)
        })
    }

    fn compare_or_mend(&self, blocks: &mut Blocks, asked: PendingReread) -> Result<(), CopyError> {
        let PendingReread { check, mut path } = asked;
        let mut told = self.sink_matches_source(blocks, check);
        let mut rewrites = 0;
        while !matches!(told, Ok(true)) {
            // Data that came through a pipe cannot be read again.
            let can_mend = rewrites < REWRITES_MAX && self.plan.route() != Route::Stream;
            if self.context.is_stopping() {
                return Err(self.file.interrupted());
            }
            if !can_mend {
                return Err(told.err().unwrap_or_else(|| self.not_mended(check, rewrites)));
            }
            rewrites += 1;
            told = if self.write_again(blocks, check)? {
                path = self.evict(self.sink_range(check.range))?;
                self.sink_matches_source(blocks, check)
            } else {
                Err(self.unsteady(check))
            };
        }
        self.proved(check, path, rewrites)
    }

    fn proved(&self, check: Check, path: ReadBack, rewrites: u32) -> Result<(), CopyError> {
        let tally = self.context.observer.tally;
        let counter = if path == ReadBack::FromDevice { &tally.bytes_reread } else { &tally.bytes_read_back };
        Tally::add(counter, check.range.len());
        self.delivery.verification.proved(check.range, path);
        self.log(check.range)?;
        if let ReadBack::FromCache(why) = path {
            self.context.proof.warn_cached(&self.context.observer, self.file, why);
        }
        if rewrites > 0 {
            Tally::add(&tally.objects_mended, 1);
            let range = self.sink_range(check.range);
            self.context.observer.warn(&CopyError::Mended { sink: self.file.sink_path(), range, rewrites });
        }
        Ok(())
    }

    /// Returns true if the sink returns the bytes that were read from the source.
    fn sink_matches_source(&self, blocks: &mut Blocks, check: Check) -> Result<bool, CopyError> {
        Ok(self.sink_digest(blocks, check.range)? == check.digest)
    }

    /// Reads an object of the source again, from the device if its pages are clean, and writes
    /// every byte, including zeros. Returns `false` if the unchanged source returns other bytes
    /// than before.
    fn write_again(&self, blocks: &mut Blocks, check: Check) -> Result<bool, CopyError> {
        let start = check.range.start.0;
        let source = self.file.source.file().map_err(|source| self.read_failed(start, source))?;
        // Pages that stay in the cache are read from there; their digest shows whether they are
        // right.
        drop_clean_pages(source, self.source_range(check.range));
        let mut hasher = Hasher::new(CHECK_DIGEST);
        let block = blocks.one().map_err(|source| self.read_failed(start, source))?;
        self.read_source(check.range, block, |at, bytes| {
            hasher.update(bytes);
            self.delivery.put_dense(self.file, self.plan.in_sink(ByteOffset(at)), bytes)
        })?;
        if self.file.source_was_replaced() {
            return Err(self.file.changed());
        }
        self.sync()?;
        Ok(hasher.finish() == check.digest)
    }

    fn not_mended(&self, check: Check, rewrites: u32) -> CopyError {
        let (path, sink) = (self.file.source_path(), self.file.sink_path());
        CopyError::NotMended { path, sink, range: self.sink_range(check.range), writes: rewrites + 1 }
    }

    fn unsteady(&self, check: Check) -> CopyError {
        CopyError::SourceUnsteady { path: self.file.source_path(), range: self.source_range(check.range) }
    }
}

/// Verifies objects of a shared file, whichever worker wrote them. Returns the number of objects
/// that have finished.
#[must_use]
pub(crate) fn prove_objects(
    open: &OpenCopy<'_>,
    blocks: &mut Blocks,
    shared: &SharedFile<'_>,
    selection: CheckSelection,
) -> u64 {
    let mut finished = 0;
    while let Some(step) = shared.delivery.verification.next(selection) {
        let is_finished = shared.is_broken()
            || open.step(blocks, step).unwrap_or_else(|error| {
                shared.record_failure(error);
                true
            });
        finished += u64::from(is_finished);
    }
    finished
}
