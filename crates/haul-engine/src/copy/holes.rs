//! Copy of sparse files by the ranges that SEEK_DATA reports.
//!
//! Data is read and written. Holes are left out of the copy, hashed as zeros, and compared with the
//! holes of the copy.

use super::blocks::Blocks;
use super::details::Holes;
use super::digesting::DataObserver;
use super::error::CopyError;
use super::open_copy::OpenCopy;
use super::report::Tally;
use super::reread::{CHECK_DIGEST, Method};
use haul_digest::Hasher;
use haul_model::{ByteRange, Object};
use haul_storage::SourceFile;
use std::ops::Range;

/// Number of zeros, in bytes, that are hashed between two checks for a stop.
const ZEROS_AT_ONCE: u64 = 16 << 20;

impl OpenCopy<'_> {
    /// Returns the number after the last of the consecutive objects, from `object` on, that are
    /// completely in one hole of the source. Returns `None` if `object` has data, or if each object
    /// needs work of its own, for a digest (`is_hashed`) or for the log.
    pub(super) fn end_of_hole(&self, object: Object, is_hashed: bool) -> Result<Option<u64>, CopyError> {
        let needs_each = is_hashed || self.file.logged.is_some();
        if needs_each || self.delivery.holes != Holes::OfSource {
            return Ok(None);
        }
        let (geometry, first) = (self.plan.geometry(), self.plan.source().start.0);
        let range_start = object.range.start.0;
        let rest = self.source_range(ByteRange::between(range_start, geometry.len()));
        let data = self
            .source(range_start)?
            .next_data(rest)
            .map_err(|source| self.read_failed(range_start, source))?;
        let end =
            data.map_or(geometry.count(), |data| (data.start.0 - first) / geometry.object_size().bytes());
        Ok((end > object.index.0).then_some(end))
    }

    /// Leaves objects that are in a hole of the source out of the copy, all at once. Returns the
    /// number of their bytes.
    pub(super) fn skip(
        &self,
        blocks: &mut Blocks,
        objects: Range<u64>,
        watch: &mut impl DataObserver,
    ) -> Result<u64, CopyError> {
        let geometry = self.plan.geometry();
        let byte = |index: u64| index.saturating_mul(geometry.object_size().bytes()).min(geometry.len());
        let range = ByteRange::between(byte(objects.start), byte(objects.end));
        self.hole(blocks, range, watch, self.delivery.method == Method::Cache)?;
        Ok(range.len())
    }

    /// Copies the ranges that the source reports as data, and counts its holes as copied. With
    /// `compares`, compares the data with the copy in the page cache, and the holes with the holes
    /// of the copy.
    pub(super) fn around_holes(
        &self,
        blocks: &mut Blocks,
        range: ByteRange,
        watch: &mut impl DataObserver,
        compares: bool,
    ) -> Result<u64, CopyError> {
        let first = self.plan.source().start.0;
        let mut hole = range.start;
        for data in self.source(range.start.0)?.data_ranges(self.source_range(range)) {
            let data = data.map_err(|source| self.read_failed(range.start.0, source))?;
            let data = ByteRange::between(data.start.0 - first, data.end.0 - first);
            self.hole(blocks, ByteRange::between(hole.0, data.start.0), watch, compares)?;
            hole = data.end;
            let moved = match () {
                () if compares || watch.watches() => self.seen(blocks, data, watch, compares)?.0,
                () if self.delivery.kernel_copies => self.in_kernel(blocks, data, watch)?,
                () => self.blocks(blocks, data, watch, None)?,
            };
            if moved < data.len() {
                return Ok(data.start.0 + moved - range.start.0);
            }
        }
        self.hole(blocks, ByteRange::between(hole.0, range.end.0), watch, compares)?;
        Ok(range.len())
    }

    /// Returns the source of the range of the plan that starts at `at`.
    fn source(&self, at: u64) -> Result<&dyn SourceFile, CopyError> {
        self.file.source.file().map_err(|source| self.read_failed(at, source))
    }

    /// Leaves a hole of the source out of the copy. With `compares`, the copy must have a hole
    /// there; any data found instead is read and must be zeros.
    fn hole(
        &self,
        blocks: &mut Blocks,
        range: ByteRange,
        watch: &mut impl DataObserver,
        compares: bool,
    ) -> Result<(), CopyError> {
        let written = self.sink_range(range);
        self.delivery.leave_out(self.file, written);
        for step in
            Some(range).filter(|_| watch.watches()).into_iter().flat_map(|all| all.steps(ZEROS_AT_ONCE))
        {
            if self.context.is_stopping() {
                return Err(self.file.interrupted());
            }
            watch.see_hole(step.len());
        }
        let compared = Some(written).filter(|_| compares && !range.is_empty());
        let reader = compared.map(|_| self.delivery.reader()).transpose();
        let reader = reader.map_err(|source| self.write_failed(written.start.0, source))?;
        for data in reader.into_iter().flat_map(|reader| reader.data_ranges(written)) {
            let data = data.map_err(|source| self.write_failed(written.start.0, source))?;
            let moved = ByteRange::between(
                range.start.0 + (data.start.0 - written.start.0),
                range.start.0 + (data.end.0 - written.start.0),
            );
            let mut zeros = Hasher::new(CHECK_DIGEST);
            zeros.update_zeros(data.len());
            if self.sink_digest(blocks, moved)? != zeros.finish() {
                return Err(self.differs(data));
            }
        }
        Tally::add(&self.context.observer.tally.bytes_done, range.len());
        Ok(())
    }
}
