//! Streams, which have no objects until they were read.

use super::{CHECK_DIGEST, Method};
use crate::copy::pipeline::Run;
use haul_digest::Hasher;
use haul_model::ByteRange;

/// The stretch of a stream that is proved next.
pub(crate) struct Stretch {
    hasher: Option<Hasher>,
    /// Bytes in it so far.
    pub(crate) bytes: u64,
}

impl Stretch {
    /// Nothing yet, of a stream that is proved like this.
    pub(crate) fn new(method: Method) -> Stretch {
        Stretch { hasher: (method == Method::Device).then(|| Hasher::new(CHECK_DIGEST)), bytes: 0 }
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
            self.bytes += bytes.len() as u64;
        }
    }

    /// Ends the stretch, which ends at byte `end` of what was moved, and begins the next.
    pub(crate) fn close(&mut self, run: &Run<'_>, end: u64) {
        if let Some(hasher) = &mut self.hasher {
            let full = std::mem::replace(hasher, Hasher::new(CHECK_DIGEST));
            run.written(ByteRange::between(end - self.bytes, end), full.finish());
            self.bytes = 0;
        }
    }
}
