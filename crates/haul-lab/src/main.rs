//! `haul-lab`: makes data sets, compares trees, mounts storage that fails, and joins hosts by links, from the command line.

mod network;

use clap::{Parser, Subcommand};
use haul_lab::bound::{self, Way};
use haul_lab::dataset::{Built, DataSet};
use haul_lab::faults::FaultFs;
use haul_lab::house::{prose, text};
use haul_lab::random_tree::{RandomTree, every_byte_in_names};
use haul_lab::snapshot::{Facets, Snapshot};
use haul_model::{ObjectSize, parse_size};
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    version,
    about = "Data sets from seeds, tree comparison and fault injection for Surehaul's developers"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a data set; the same seed gives the same bytes.
    Make {
        /// What the bytes depend on.
        #[arg(long, default_value_t = 1, global = true)]
        seed: u64,
        /// Threads that write.
        #[arg(long, default_value_t = default_workers(), global = true)]
        workers: usize,
        #[command(subcommand)]
        set: Set,
    },
    /// Print what a tree holds, one entry a line.
    Snapshot {
        /// The tree.
        root: PathBuf,
    },
    /// List the flagged phrases and the long lines in the comments, strings and documents of a folder.
    Prose {
        /// A folder of the repository.
        path: PathBuf,
    },
    /// Compare two trees; exit status 1 if they differ.
    Diff {
        /// One tree.
        left: PathBuf,
        /// The other.
        right: PathBuf,
        /// Compare kinds, bytes and link targets only.
        #[arg(long, conflicts_with = "holes")]
        content: bool,
        /// Compare holes too.
        #[arg(long)]
        holes: bool,
        /// Differences printed at most.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Do what a job does to its files and compute nothing: the least time it can take on this machine.
    Bound {
        /// Past the page cache.
        #[arg(long, global = true)]
        direct: bool,
        /// Threads that take objects.
        #[arg(long, default_value_t = default_workers(), global = true)]
        threads: usize,
        /// Bytes of one read or write.
        #[arg(long, value_parser = block, default_value = "256K", global = true)]
        block: usize,
        /// The pieces in which threads share the file.
        #[arg(long, value_parser = object, default_value = "4M", global = true)]
        object: ObjectSize,
        /// Through the page cache: ask for an object so many objects before its turn.
        #[arg(long, default_value_t = 0, global = true)]
        ahead: u64,
        #[command(subcommand)]
        job: Job,
    },
    /// Show the directory SOURCE at MOUNTPOINT with the faults of RULES, until it is unmounted.
    Faultfs {
        /// The directory with the files.
        source: PathBuf,
        /// An empty directory.
        mountpoint: PathBuf,
        /// A file of rules: GLOB OP FROM..TO ACTION, read again when it changes.
        rules: PathBuf,
    },
    #[command(flatten)]
    Network(network::Network),
}

#[derive(Subcommand)]
enum Set {
    /// Files of one size in one directory.
    Uniform {
        /// Where.
        dir: PathBuf,
        /// How many.
        #[arg(long, default_value_t = 1)]
        files: u64,
        /// How long each is, e.g. 4G.
        #[arg(long, value_parser = size)]
        bytes: u64,
    },
    /// Many small files in many directories.
    Small {
        /// Where.
        dir: PathBuf,
        /// How many directories.
        #[arg(long, default_value_t = 1000)]
        dirs: u64,
        /// How many files.
        #[arg(long, default_value_t = 100_000)]
        files: u64,
        /// How long each is.
        #[arg(long, value_parser = size, default_value = "4K")]
        bytes: u64,
    },
    /// FIVER's Sorted-5M250M: pairs of a 5 MB and a 250 MB file.
    Sorted {
        /// Where.
        dir: PathBuf,
        /// How many pairs.
        #[arg(long, default_value_t = 10)]
        pairs: u64,
        /// What the sizes are divided by.
        #[arg(long, default_value_t = 1)]
        scale: u64,
    },
    /// FIVER's Shuffled: 10 MB and 500 MB files in a random order.
    Shuffled {
        /// Where.
        dir: PathBuf,
        /// How many of each.
        #[arg(long, default_value_t = 10)]
        pairs: u64,
        /// What the sizes are divided by.
        #[arg(long, default_value_t = 1)]
        scale: u64,
    },
    /// FIVER's mixed set of its ESnet experiments: 271 files, 165.5 GB by the scale.
    Esnet {
        /// Where.
        dir: PathBuf,
        /// What the sizes are divided by.
        #[arg(long, default_value_t = 100)]
        scale: u64,
    },
    /// A random tree with links, holes, fifos, odd names, modes and times.
    Random {
        /// Where.
        dir: PathBuf,
        /// How many entries.
        #[arg(long, default_value_t = 40)]
        entries: usize,
        /// The longest file without its holes.
        #[arg(long, value_parser = size, default_value = "64K")]
        bytes: u64,
    },
    /// One file for each byte that a name can hold.
    Names {
        /// Where.
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
enum Job {
    /// Read a file.
    Read {
        /// The file.
        source: PathBuf,
    },
    /// Copy a file, make it durable, and read it back from the device.
    Reread {
        /// The file.
        source: PathBuf,
        /// Its copy, which is not there yet.
        sink: PathBuf,
    },
}

/// A multiple of a page, as direct transfers need it.
fn block(text: &str) -> Result<usize, String> {
    let bytes = size(text).map_err(|error| error.to_string())?;
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0 && bytes.is_multiple_of(4096));
    bytes.ok_or_else(|| "not a multiple of 4K".to_owned())
}

fn object(text: &str) -> Result<ObjectSize, String> {
    let bytes = size(text).map_err(|error| error.to_string())?;
    ObjectSize::new(bytes).map_err(|error| error.to_string())
}

fn size(text: &str) -> Result<u64, haul_model::SizeError> {
    parse_size(text, 1)
}

fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("haul-lab: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let mut out = io::stdout().lock();
    match command {
        Command::Make { seed, workers, set } => {
            if let Some(built) = make(set, seed, workers)? {
                writeln!(out, "{} files, {} directories, {} bytes", built.files, built.dirs, built.bytes)?;
            }
        }
        Command::Snapshot { root } => {
            for (path, entry) in Snapshot::take(&root)?.entries() {
                writeln!(out, "{path:?} {entry:?}")?;
            }
        }
        Command::Prose { path } => {
            for file in text::files(&path)? {
                // Files that are no text have no prose.
                let Ok(source) = std::fs::read_to_string(path.join(&file)) else { continue };
                for finding in prose::findings(&file, &source) {
                    writeln!(out, "{}:{finding}", path.join(&file).display())?;
                }
            }
        }
        Command::Diff { left, right, content, holes, limit } => {
            let facets = match (content, holes) {
                (true, _) => Facets::CONTENT,
                (_, true) => Facets::ALL,
                _ => Facets::ARCHIVE,
            };
            let found = Snapshot::take(&left)?.diff(&Snapshot::take(&right)?, facets, limit);
            for difference in &found {
                writeln!(out, "{difference}")?;
            }
            return Ok(ExitCode::from(u8::from(!found.is_empty())));
        }
        Command::Bound { direct, threads, block, object, ahead, job } => {
            let way = Way { direct, threads, block, object, ahead };
            let bytes = match job {
                Job::Read { source } => bound::read(&source, &way)?,
                Job::Reread { source, sink } => bound::reread(&source, &sink, &way)?,
            };
            writeln!(out, "{bytes} bytes")?;
        }
        Command::Faultfs { source, mountpoint, rules } => {
            FaultFs::mount_with_file(&source, &mountpoint, &rules)?.wait()?;
        }
        Command::Network(command) => network::run(command, &mut out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What was made, for sets that count it.
fn make(set: Set, seed: u64, workers: usize) -> Result<Option<Built>, Box<dyn Error>> {
    let (set, dir) = match set {
        Set::Uniform { dir, files, bytes } => (DataSet::Uniform { files, bytes }, dir),
        Set::Small { dir, dirs, files, bytes } => (DataSet::Small { dirs, files, bytes }, dir),
        Set::Sorted { dir, pairs, scale } => (DataSet::Sorted5M250M { pairs, scale }, dir),
        Set::Shuffled { dir, pairs, scale } => (DataSet::Shuffled { pairs, scale }, dir),
        Set::Esnet { dir, scale } => (DataSet::EsnetMixed { scale }, dir),
        Set::Random { dir, entries, bytes } => {
            RandomTree { entries, file_bytes_max: bytes, ..RandomTree::default() }.build(&dir, seed)?;
            return Ok(None);
        }
        Set::Names { dir } => {
            every_byte_in_names(&dir)?;
            return Ok(None);
        }
    };
    Ok(Some(set.build(&dir, seed, workers)?))
}
