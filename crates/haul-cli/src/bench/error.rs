//! What can go wrong while measuring.

use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_model::format_size;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why there are no figures. Each names the thing and what to do next.
#[derive(Debug, Error)]
pub(super) enum BenchError {
    /// The file to read can't be opened.
    #[error("cannot open {}: {}; name another file with --file", quoted(path), reason(source))]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file to read is a folder, a pipe, a device.
    #[error("{} is not a regular file; name one with --file", quoted(.0))]
    NotRegular(PathBuf),
    /// The file to read has no bytes.
    #[error("{} is empty; name a file with --file that takes a while to read", quoted(.0))]
    Empty(PathBuf),
    /// The file ended before where it ended at first.
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
    /// The cache refused to drop the file, or to say what it holds.
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
    /// The temporary file can't be made.
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
    /// The temporary file does not fit.
    #[error(
        "no room in {} for a temporary file: {} needed; \
         choose another folder with --dir, less with --size, or a file to read with --file",
        quoted(dir),
        format_size(*needed)
    )]
    NoRoom { dir: PathBuf, needed: u64 },
    /// No memory for buffers.
    #[error("no memory for {count} buffers of {}; choose less with --block", format_size(*bytes as u64))]
    NoMemory { count: usize, bytes: usize },
    /// The plot can't be written.
    #[error("cannot write the plot to {}: {}; choose another file with --svg", quoted(path), reason(source))]
    Svg {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The plot can't be drawn: a fault of this program.
    #[error("cannot draw the plot: {0}; do without --svg")]
    Draw(String),
    /// Standard output is full or gone.
    #[error("error writing to standard output: {}", reason(.0))]
    Output(#[source] io::Error),
}

fn quoted(path: &Path) -> impl std::fmt::Display + '_ {
    quote(path.as_os_str())
}
