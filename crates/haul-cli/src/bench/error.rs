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
    #[error("cannot open {}: {}; name another file with --file", quoted(path), reason(source))]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file to read is a directory, a pipe or a device.
    #[error("{} is not a regular file; name one with --file", quoted(.0))]
    NotRegular(PathBuf),
    /// The file to read is empty.
    #[error("{} is empty; name a file with --file that takes a while to read", quoted(.0))]
    Empty(PathBuf),
    /// The file became shorter during the measurement.
    #[error("{} became shorter while it was measured; name a file with --file that stays", quoted(.0))]
    Shrank(PathBuf),
    /// A read failed.
    #[error("error reading {} at byte {at}: {}; try another file with --file", quoted(path), reason(source))]
    Read {
        path: PathBuf,
        at: u64,
        #[source]
        source: io::Error,
    },
    /// The kernel could not drop the file from the page cache, or report the cached part.
    #[error(
        "error dropping {} from the page cache: {}; try another file with --file",
        quoted(path),
        reason(source)
    )]
    Cache {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The temporary file cannot be created.
    #[error(
        "cannot make a temporary file in {}: {}; \
         choose another folder with --dir, a file to read with --file, or --no-io",
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
        "no room in {} for a temporary file: {} needed; \
         choose another folder with --dir, less with --size, or a file to read with --file",
        quoted(dir),
        format_size(*needed)
    )]
    NoRoom { dir: PathBuf, needed: u64 },
    /// There is no memory for buffers.
    #[error("no memory for {count} buffers of {}; choose less with --block", format_size(*bytes as u64))]
    NoMemory { count: usize, bytes: usize },
    /// The plot cannot be written.
    #[error("cannot write the plot to {}: {}; choose another file with --svg", quoted(path), reason(source))]
    Svg {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The plot cannot be drawn, which is a bug.
    #[error("cannot draw the plot: {0}; do without --svg")]
    Draw(String),
    /// Standard output is full or closed.
    #[error("error writing to standard output: {}", reason(.0))]
    Output(#[source] io::Error),
}

fn quoted(path: &Path) -> impl std::fmt::Display + '_ {
    quote(path.as_os_str())
}
