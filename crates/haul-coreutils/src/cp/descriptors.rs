//! Descriptors of open files, for what the storage traits do not have: security contexts, and a new
//! file that its caller finishes.

use haul_engine::copy::{CopySink, CopySource};
use haul_storage::local;
use std::os::fd::BorrowedFd;

/// Returns the descriptor of an open source.
pub(crate) fn source_descriptor(source: &CopySource) -> BorrowedFd<'_> {
    match source {
        CopySource::File(file) | CopySource::Generated(file, _) => local::source_descriptor(&**file),
        CopySource::Stream(stream) => local::source_descriptor(stream.file()),
    }
    .unwrap_or_else(|| unreachable!("the caller uses only files of the local file system"))
}

/// Returns the descriptor of an open sink.
pub(crate) fn sink_descriptor(sink: &CopySink) -> BorrowedFd<'_> {
    match sink {
        CopySink::File(file) => local::sink_descriptor(&**file),
        CopySink::Stream(stream) => local::source_descriptor(stream.file()),
    }
    .unwrap_or_else(|| unreachable!("the caller uses only files of the local file system"))
}
