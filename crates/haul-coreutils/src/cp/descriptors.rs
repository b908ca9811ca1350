//! Descriptors of open files, for metadata that the storage traits cannot copy.

use haul_engine::copy::{CopySink, CopySource};
use haul_storage::local::{sink_descriptor, source_descriptor};
use std::os::fd::{AsFd, BorrowedFd};

/// Returns the descriptor of an open source.
pub(crate) fn source_fd(source: &CopySource) -> BorrowedFd<'_> {
    match source {
        CopySource::File(file) => source_descriptor(&**file),
        CopySource::Generated(_, stream) | CopySource::Stream(stream) => Some(stream.as_fd()),
    }
    .unwrap_or_else(|| unreachable!("cp opens files of the local file system"))
}

/// Returns the descriptor of an open sink.
pub(crate) fn sink_fd(sink: &CopySink) -> BorrowedFd<'_> {
    match sink {
        CopySink::File(file) => sink_descriptor(&**file),
        CopySink::Stream(stream) => Some(stream.as_fd()),
    }
    .unwrap_or_else(|| unreachable!("cp opens files of the local file system"))
}
