//! Copy of sparse files by the ranges that SEEK_DATA reports.
//!
//! Data is read and written. Holes are left out of the copy, hashed as zeros, and compared with the
//! holes of the copy.

use super::digesting::DataObserver;
use super::error::CopyError;
use super::lane::Lane;
use super::pipeline::Run;
use super::report::Tally;
use super::reread::CHECK_DIGEST;
use haul_digest::Hasher;
use haul_model::ByteRange;
use haul_sys::sparse::DataRanges;

impl Run<'_> {
    /// Copies the ranges that the source reports as data, and counts its holes as copied. With
    /// `compares`, compares the data with the copy in the page cache, and the holes with the holes
    /// of the copy.
    pub(super) fn around_holes(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl DataObserver,
        compares: bool,
    ) -> Result<u64, CopyError> {
        let first = self.plan.source().start.0;
        let mut hole = range.start;
        for data in DataRanges::new(&self.file.source, self.source_range(range)) {
            let data = data.map_err(|source| self.read_failed(range.start.0, source))?;
            let data = ByteRange::between(data.start.0 - first, data.end.0 - first);
            self.hole(lane, ByteRange::between(hole.0, data.start.0), watch, compares)?;
            hole = data.end;
            let moved = match () {
                () if compares || watch.watches() => self.seen(lane, data, watch, compares)?.0,
                () if self.delivery.kernel_copies => self.in_kernel(lane, data, watch)?,
                () => self.blocks(lane, data, watch, None)?,
            };
            if moved < data.len() {
                return Ok(data.start.0 + moved - range.start.0);
            }
        }
        self.hole(lane, ByteRange::between(hole.0, range.end.0), watch, compares)?;
        Ok(range.len())
    }

    /// Leaves a hole of the source out of the copy. With `compares`, the copy must have a hole
    /// there; any data found instead is read and must be zeros.
    fn hole(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl DataObserver,
        compares: bool,
    ) -> Result<(), CopyError> {
        let written = self.sink_range(range);
        self.delivery.leave_out(self.file, written);
        watch.see_hole(range.len());
        let compared = Some(written).filter(|_| compares && !range.is_empty());
        let reader = self.delivery.reader(self.file);
        for data in compared.into_iter().flat_map(|written| DataRanges::new(reader, written)) {
            let data = data.map_err(|source| self.write_failed(written.start.0, source))?;
            let moved = ByteRange::between(
                range.start.0 + (data.start.0 - written.start.0),
                range.start.0 + (data.end.0 - written.start.0),
            );
            let mut zeros = Hasher::new(CHECK_DIGEST);
            zeros.update_zeros(data.len());
            if self.sink_digest(lane, moved)? != zeros.finish() {
                return Err(self.differs(data));
            }
        }
        Tally::add(&self.job.tally.bytes_done, range.len());
        Ok(())
    }
}
