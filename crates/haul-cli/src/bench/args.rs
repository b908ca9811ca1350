//! Options of `haul bench`, as typed and resolved.

use clap::Parser;
use haul_digest::Algorithm;
use haul_model::parse_size;
use std::path::PathBuf;
use std::time::Duration;

/// Measure the speed of each checksum: in memory, and while a file is read.
///
/// Measures every algorithm in memory and with a file. In memory: on one core; with several streams
/// in the SIMD lanes of one core, if the algorithm supports them; and with all workers, if its
/// values can be combined. With a file: from the page cache (warm) and from the device (cold), read
/// and hashed in turn by one thread (synchronous) or by two threads with a queue between them
/// (pipelined). To show the cost of the checksum, each measurement is compared with reading alone.
/// All numbers are medians, followed by the smallest and the largest value; 1 GB is 10^9 bytes.
#[derive(Debug, Parser)]
#[command(name = "haul bench", bin_name = "haul bench", version)]
pub(super) struct Args {
    /// Measure only these algorithms, separated by commas [default: all]
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = Algorithm::parse)]
    algorithms: Vec<Algorithm>,
    /// Read at most the first --size bytes of FILE instead of a temporary file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "no_io"])]
    file: Option<PathBuf>,
    /// Create the temporary file in DIR. haul removes the file when it exits
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Use SIZE bytes of the file [default: 1GiB; with --quick 64MiB]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Read and hash blocks of SIZE bytes, 4KiB to 64MiB
    #[arg(long, value_name = "SIZE", value_parser = block, default_value = "256KiB")]
    block: usize,
    /// Measure each figure N times [default: 5; with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Measure in memory only
    #[arg(long)]
    no_io: bool,
    /// Measure for some seconds in total, with more noise
    #[arg(long)]
    quick: bool,
    /// Print one JSON object per measurement instead of tables
    #[arg(long)]
    json: bool,
}

/// Figures to measure, and their parameters.
#[derive(Debug)]
pub(super) struct Settings {
    /// Algorithms, each at most once, in the requested order.
    pub(super) algorithms: Vec<Algorithm>,
    /// The file to read; `None` to stay in memory.
    pub(super) file: Option<FileChoice>,
    /// Block size for reading and hashing, in bytes: [`BLOCK_BYTES_MIN`] to [`BLOCK_BYTES_MAX`].
    pub(super) block: usize,
    /// Samples of each figure, at least 1.
    pub(super) runs: u32,
    /// Time of one sample in memory.
    pub(super) memory_time: Duration,
    /// Time of one sample with a file that is read and hashed in turn.
    pub(super) io_time: Duration,
    /// True for JSON instead of tables.
    pub(super) json: bool,
}

/// File to read.
#[derive(Debug)]
pub(super) enum FileChoice {
    /// A file of the user, of which at most `at_most` bytes are used.
    Given { path: PathBuf, at_most: u64 },
    /// A new file of `size` bytes in this directory.
    Temporary { dir: PathBuf, size: u64 },
}

/// Smallest block: a page. Smaller blocks would measure system calls.
pub(super) const BLOCK_BYTES_MIN: usize = 4 << 10;

/// Largest block. The pipeline has several blocks in flight, which this limits to less than 1 GiB.
pub(super) const BLOCK_BYTES_MAX: usize = 64 << 20;

impl Args {
    /// Resolves the options.
    pub(super) fn resolve(self) -> Settings {
        let size = self.size.unwrap_or(if self.quick { 64 << 20 } else { 1 << 30 });
        let file = match (self.no_io, self.file) {
            (true, _) => None,
            (false, Some(path)) => Some(FileChoice::Given { path, at_most: size }),
            (false, None) => Some(FileChoice::Temporary { dir: self.dir, size }),
        };
        let millis = |usual, quick| Duration::from_millis(if self.quick { quick } else { usual });
        Settings {
            algorithms: each_once(self.algorithms),
            file,
            block: self.block,
            runs: self.runs.unwrap_or(if self.quick { 3 } else { 5 }),
            memory_time: millis(40, 5),
            io_time: millis(100, 15),
            json: self.json,
        }
    }
}

/// Returns the list without repetitions; all algorithms if it is empty.
fn each_once(asked: Vec<Algorithm>) -> Vec<Algorithm> {
    if asked.is_empty() {
        return Algorithm::ALL.to_vec();
    }
    let mut kept = Vec::new();
    for algorithm in asked {
        if !kept.contains(&algorithm) {
            kept.push(algorithm);
        }
    }
    kept
}

fn size(text: &str) -> Result<u64, String> {
    match parse_size(text, 1) {
        Ok(0) => Err("0 bytes are not enough; the minimum is 1".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

fn block(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text, 1).map_err(|error| error.to_string())?;
    let bytes =
        usize::try_from(bytes).ok().filter(|bytes| (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| "valid values are 4KiB to 64MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Settings, clap::Error> {
        Args::try_parse_from(["haul bench"].iter().chain(words)).map(Args::resolve)
    }

    #[test]
    fn algorithm_list_is_deduplicated_in_order() {
        let settings = parsed(&["-a", "md5,crc32", "-a", "MD5,b3"]).unwrap();
        assert_eq!(settings.algorithms, [Algorithm::Md5, Algorithm::Crc32, Algorithm::Blake3]);
        assert_eq!(parsed(&[]).unwrap().algorithms, Algorithm::ALL);
    }

    #[test]
    fn explicit_options_override_quick() {
        let settings = parsed(&["--quick", "--size", "1M", "--runs", "7"]).unwrap();
        assert!(matches!(settings.file, Some(FileChoice::Temporary { size: 1_048_576, .. })));
        assert_eq!(settings.runs, 7);
        assert!(settings.io_time < parsed(&[]).unwrap().io_time);
    }

    #[test]
    fn invalid_values_and_conflicts_are_refused() {
        let senseless: [&[&str]; 6] = [
            &["--size", "0"],
            &["--block", "4095"],
            &["--block", "1G"],
            &["--runs", "0"],
            &["--file", "f", "--no-io"],
            &["--file", "f", "--dir", "d"],
        ];
        for words in senseless {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
