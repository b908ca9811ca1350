//! What was typed, and what it means.

use super::blindness;
use clap::Parser;
use haul_digest::Algorithm;
use haul_model::parse_size;
use std::path::PathBuf;
use std::time::Duration;

/// How fast this machine computes each checksum: in memory, and while it reads a file.
///
/// Every algorithm is measured on one core, in the lanes of one register where it has them, over all workers where
/// its values combine, and with a file: in the page cache (warm) and from the device (cold), each with reading and
/// hashing in turn in one thread (synchronous) and in two threads with a queue between them (pipelined). Reading
/// alone is measured beside each, so that the cost of the checksum is seen. All numbers are medians, with the
/// smallest and the largest behind them; 1 GB is 10^9 bytes.
#[derive(Debug, Parser)]
#[command(name = "haul bench", bin_name = "haul bench", version)]
pub(super) struct Args {
    /// Only these algorithms, separated by commas [default: all]
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = Algorithm::parse)]
    algorithms: Vec<Algorithm>,
    /// Read this file instead of a temporary one; at most the first --size bytes of it are used
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "no_io"])]
    file: Option<PathBuf>,
    /// Where to put the temporary file; it has no name where the file system allows, and is gone when haul ends
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// How many bytes of file to use [default: 1GiB; with --quick 64MiB]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// How many bytes are read and hashed at a time, 4KiB to 64MiB
    #[arg(long, value_name = "SIZE", value_parser = block, default_value = "256KiB")]
    block: usize,
    /// How often each thing is measured [default: 5; with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Measure in memory only
    #[arg(long)]
    no_io: bool,
    /// Measure each thing for a moment only: seconds in all, and noisier
    #[arg(long)]
    quick: bool,
    /// Show which corruptions each checksum can't see, instead of how fast it is
    ///
    /// Corruptions are made for the weak spots of Adler-32, of the CRCs and of XORed block digests, and others are drawn
    /// at random; the answer says which checksum saw which, how many were missed and how many had to be expected.
    #[arg(long, conflicts_with_all = ["file", "dir", "size", "block", "runs", "no_io", "svg"])]
    blindness: bool,
    /// Where the data for --blindness comes from
    #[arg(long, value_name = "N", default_value_t = 1, requires = "blindness")]
    seed: u32,
    /// Print one JSON object per measurement instead of tables
    #[arg(long)]
    json: bool,
    /// Draw the rates as a plot into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What the command is to do.
#[derive(Debug)]
pub(super) enum Task {
    /// Measure how fast checksums are.
    Speed(Settings),
    /// Show what they can't see.
    Blindness(blindness::Settings),
}

/// What is to be measured and how.
#[derive(Debug)]
pub(super) struct Settings {
    /// Each at most once, in the order asked for.
    pub(super) algorithms: Vec<Algorithm>,
    /// The file to read; `None` to stay in memory.
    pub(super) file: Option<FileChoice>,
    /// Bytes read and hashed at a time: [`BLOCK_BYTES_MIN`] to [`BLOCK_BYTES_MAX`].
    pub(super) block: usize,
    /// Samples of each figure, 1 or more.
    pub(super) runs: u32,
    /// Time for one sample in memory.
    pub(super) memory_time: Duration,
    /// Time for one sample with a file, read and hashed in turn.
    pub(super) io_time: Duration,
    /// JSON instead of tables.
    pub(super) json: bool,
    /// Where the plot goes.
    pub(super) svg: Option<PathBuf>,
}

/// Which file is read.
#[derive(Debug)]
pub(super) enum FileChoice {
    /// One of the reader's own, of which at most so many bytes are used.
    Given { path: PathBuf, at_most: u64 },
    /// A new one of so many bytes in this folder.
    Temporary { dir: PathBuf, size: u64 },
}

/// Smallest block: a page. Smaller ones measure system calls.
pub(super) const BLOCK_BYTES_MIN: usize = 4 << 10;

/// Largest block; some of them are in flight in the pipeline, which stays below 1 GiB so.
pub(super) const BLOCK_BYTES_MAX: usize = 64 << 20;

impl Args {
    /// What was meant.
    pub(super) fn resolve(self) -> Task {
        if !self.blindness {
            return Task::Speed(self.speed());
        }
        let algorithms = each_once(self.algorithms, &blindness::USUAL);
        Task::Blindness(blindness::Settings {
            algorithms,
            seed: self.seed,
            quick: self.quick,
            json: self.json,
        })
    }

    /// What is measured where speed is asked for.
    pub(super) fn speed(self) -> Settings {
        let size = self.size.unwrap_or(if self.quick { 64 << 20 } else { 1 << 30 });
        let file = match (self.no_io, self.file) {
            (true, _) => None,
            (false, Some(path)) => Some(FileChoice::Given { path, at_most: size }),
            (false, None) => Some(FileChoice::Temporary { dir: self.dir, size }),
        };
        let millis = |usual, quick| Duration::from_millis(if self.quick { quick } else { usual });
        Settings {
            algorithms: each_once(self.algorithms, Algorithm::ALL),
            file,
            block: self.block,
            runs: self.runs.unwrap_or(if self.quick { 3 } else { 5 }),
            memory_time: millis(40, 5),
            io_time: millis(100, 15),
            json: self.json,
            svg: self.svg,
        }
    }
}

/// The list without repetitions; the usual algorithms if it is empty.
fn each_once(asked: Vec<Algorithm>, usual: &[Algorithm]) -> Vec<Algorithm> {
    if asked.is_empty() {
        return usual.to_vec();
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
        Ok(0) => Err("there is nothing to read in 0 bytes".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

fn block(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text, 1).map_err(|error| error.to_string())?;
    let bytes =
        usize::try_from(bytes).ok().filter(|bytes| (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| "a block has 4KiB to 64MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Settings, clap::Error> {
        Args::try_parse_from(["haul bench"].iter().chain(words)).map(Args::speed)
    }

    #[test]
    fn blindness_goes_with_what_it_heeds_alone() {
        let task =
            |words: &[&str]| Args::try_parse_from(["haul bench"].iter().chain(words)).map(Args::resolve);
        let usual = task(&["--blindness", "--json"]).unwrap();
        let Task::Blindness(settings) = usual else { panic!("another task") };
        assert_eq!((settings.algorithms.as_slice(), settings.seed), (blindness::USUAL.as_slice(), 1));
        assert!(settings.json && !settings.quick);
        assert!(matches!(task(&[]), Ok(Task::Speed(_))));
        let senseless: [&[&str]; 4] = [
            &["--seed", "3"],
            &["--blindness", "--no-io"],
            &["--blindness", "--svg", "f"],
            &["--blindness", "--seed", "-1"],
        ];
        for words in senseless {
            assert!(task(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_list_names_each_algorithm_once_and_in_its_order() {
        let settings = parsed(&["-a", "md5,crc32", "-a", "MD5,b3"]).unwrap();
        assert_eq!(settings.algorithms, [Algorithm::Md5, Algorithm::Crc32, Algorithm::Blake3]);
        assert_eq!(parsed(&[]).unwrap().algorithms, Algorithm::ALL);
    }

    #[test]
    fn quick_gives_way_to_what_is_asked() {
        let settings = parsed(&["--quick", "--size", "1M", "--runs", "7"]).unwrap();
        assert!(matches!(settings.file, Some(FileChoice::Temporary { size: 1_048_576, .. })));
        assert_eq!(settings.runs, 7);
        assert!(settings.io_time < parsed(&[]).unwrap().io_time);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
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
