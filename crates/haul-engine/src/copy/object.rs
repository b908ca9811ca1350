//! One object: the bytes of a range of the plan, from the source to the sink.

use super::blocks::Blocks;
use super::details::Holes;
use super::digesting::DataObserver;
use super::error::CopyError;
use super::reread::Method;
use super::run::Run;
use haul_digest::Digest;
use haul_model::{ByteLen, ByteRange};
use haul_sys::cache::{self, Advice};

/// An object that reached the sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Length of the object, in bytes.
    pub(crate) bytes: u64,
    /// The [`CHECK_DIGEST`](super::reread::CHECK_DIGEST) of the source bytes, if the object must
    /// still be verified.
    pub(crate) to_prove: Option<Digest>,
}

impl Run<'_> {
    /// Copies one object.
    ///
    /// # Errors
    /// Returns a [`CopyError`] that names the side, the offset and the cause. A source that ends
    /// before its reported length has changed.
    pub(crate) fn object(
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
            // Ignored advice only occupies cache, so an error must not fail the copy.
            let _ = cache::advise(&self.file.source, read, Advice::DontNeed);
        }
        Ok(Written { bytes: moved.len(), to_prove: digest })
    }
}
