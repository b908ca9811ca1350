//! Streams, whose objects are unknown until they are read.

use super::{CHECK_DIGEST, Method};
use crate::copy::open_copy::OpenCopy;
use haul_digest::Hasher;
use haul_model::ByteRange;

/// The range of a stream that is verified next.
pub(crate) struct StreamRange {
    hasher: Option<Hasher>,
    /// Number of bytes in the range so far.
    pub(crate) bytes: u64,
}

impl StreamRange {
    /// Creates an empty range for a stream with this verification method.
    pub(crate) fn new(method: Method) -> StreamRange {
        StreamRange { hasher: (method == Method::Device).then(|| Hasher::new(CHECK_DIGEST)), bytes: 0 }
    }

    /// Hashes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
            self.bytes += bytes.len() as u64;
        }
    }

    /// Ends the range at offset `end` of the copied bytes, and starts the next.
    pub(crate) fn close(&mut self, open: &OpenCopy<'_>, end: u64) {
        if let Some(hasher) = &mut self.hasher {
            let full = std::mem::replace(hasher, Hasher::new(CHECK_DIGEST));
            open.queue_reread(ByteRange::between(end - self.bytes, end), full.finish());
            self.bytes = 0;
        }
    }
}
