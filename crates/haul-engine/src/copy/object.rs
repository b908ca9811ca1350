//! One object: the bytes of a range of the plan, from the source to the sink.

use super::blocks::Blocks;
use super::details::Holes;
use super::digesting::DataObserver;
use super::error::CopyError;
use super::open_copy::OpenCopy;
use super::reread::{CHECK_DIGEST, Method};
use haul_digest::{Digest, Hasher};
use haul_model::{ByteLen, ByteRange, Object};
use haul_storage::Advice;

/// An object that reached the sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Length of the object, in bytes.
    pub(crate) bytes: u64,
    /// The [`CHECK_DIGEST`](super::reread::CHECK_DIGEST) of the source bytes, if the object must
    /// still be verified.
    pub(crate) to_prove: Option<Digest>,
}

impl OpenCopy<'_> {
    /// Copies an object to the sink, unless it already exists there. An object that must still be
    /// verified is logged after its verification.
    ///
    /// # Errors
    /// Returns the errors of [`OpenCopy::copy_range`]. Also returns an error if a log entry is
    /// false, or if the object cannot be synced.
    pub(crate) fn copy_object(
        &self,
        blocks: &mut Blocks,
        object: Object,
        watch: &mut impl DataObserver,
    ) -> Result<Written, CopyError> {
        if self.is_there(blocks, object)? {
            return Ok(Written { bytes: object.range.len(), to_prove: None });
        }
        let written = self.copy_range(blocks, object.range, watch)?;
        if written.to_prove.is_none() {
            self.log(ByteRange::from_len(object.range.start, ByteLen(written.bytes)))?;
        }
        Ok(written)
    }

    /// Copies a range of the plan.
    ///
    /// # Errors
    /// Returns a [`CopyError`] that names the side, the offset and the cause. A source that ends
    /// before its reported length has changed.
    fn copy_range(
        &self,
        blocks: &mut Blocks,
        range: ByteRange,
        watch: &mut impl DataObserver,
    ) -> Result<Written, CopyError> {
        let compares = matches!(self.delivery.method, Method::Cache | Method::Device);
        let unseen = !watch.watches() && !compares;
        let (moved, digest) = match () {
            () if self.delivery.holes == Holes::OfSource => {
                (self.around_holes(blocks, range, watch, compares)?, None)
            }
            () if unseen && self.delivery.kernel_copies => (self.in_kernel(blocks, range, watch)?, None),
            () => self.seen(blocks, range, watch, compares)?,
        };
        let moved = ByteRange::from_len(range.start, ByteLen(moved));
        let (read, written) = (self.source_range(moved), self.sink_range(moved));
        self.delivery.behind(self.file, written)?;
        self.push(written);
        self.forget(read);
        if self.context.moving.fadvise_read {
            let source = self.file.source.file().map_err(|source| self.read_failed(range.start.0, source))?;
            source.advise(read, Advice::DontNeed);
        }
        Ok(Written { bytes: moved.len(), to_prove: digest })
    }

    /// Copies bytes that a digest or a comparison needs. With `compares`, compares them with the
    /// copy in the page cache, or returns their digest for a later comparison with the device.
    pub(crate) fn seen(
        &self,
        blocks: &mut Blocks,
        range: ByteRange,
        watch: &mut impl DataObserver,
        compares: bool,
    ) -> Result<(u64, Option<Digest>), CopyError> {
        let is_checked_later = compares && self.delivery.method != Method::Cache;
        let mut check = is_checked_later.then(|| Hasher::new(CHECK_DIGEST));
        let moved = self.blocks(blocks, range, watch, check.as_mut())?;
        Ok((moved, check.map(Hasher::finish)))
    }
}
