//! Errors of a measurement.

use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_model::format_size;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Error of a measurement. Each message names the object and the next step.
#[derive(Debug, Error)]
pub(super) enum BenchError {
    /// The file to read cannot be opened.
    #[error("cannot open {}: {}; use another --file", quoted(path), reason(source))]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file to read is a directory, a pipe or a device.
    #[error("cannot measure {}: not a regular file; use another --file", quoted(.0))]
    NotRegular(PathBuf),
    /// The file to read is empty.
    #[error("cannot measure {}: the file is empty; use a larger --file", quoted(.0))]
    Empty(PathBuf),
    /// The file became shorter during the measurement.
    #[error("cannot measure {}: the file became shorter; use a --file that does not change", quoted(.0))]
    Shrank(PathBuf),
    /// A read failed.
    #[error("cannot read {} at byte {at}: {}; use another --file", quoted(path), reason(source))]
    Read {
        path: PathBuf,
        at: u64,
        #[source]
        source: io::Error,
    },
    /// The kernel could not drop the file from the page cache, or report the cached part.
    #[error("cannot drop {} from the page cache: {}; use another --file", quoted(path), reason(source))]
    Cache {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The temporary file cannot be created.
    #[error(
        "cannot create a temporary file in {}: {}; \
         use another --dir, an existing --file, or --no-io",
        quoted(dir),
        reason(source)
    )]
    Create {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The free space is too small for the temporary file.
    #[error(
        "cannot create a temporary file in {}: {} of free space needed; \
         use another --dir, a smaller --size, or an existing --file",
        quoted(dir),
        format_size(*needed)
    )]
    NoRoom { dir: PathBuf, needed: u64 },
    /// There is no memory for buffers.
    #[error("cannot allocate {count} buffers of {}: out of memory; use a smaller --block", format_size(*bytes as u64))]
    NoMemory { count: usize, bytes: usize },
    /// Standard output is full or closed.
    #[error("cannot write to standard output: {}", reason(.0))]
    Output(#[source] io::Error),
}

fn quoted(path: &Path) -> impl std::fmt::Display + '_ {
    quote(path.as_os_str())
}
