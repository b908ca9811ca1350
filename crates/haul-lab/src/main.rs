//! `haul-lab`: command-line tool that creates data sets, compares trees, mounts fault file systems
//! and emulates links.

mod bench_plot;
mod link;
mod network;
mod undetected_damage;

use clap::{Parser, Subcommand};
use haul_lab::bound::{self, BoundConfig};
use haul_lab::dataset::{Built, DataSet};
use haul_lab::faults::FaultFs;
use haul_lab::random_tree::{RandomTree, every_byte_in_names};
use haul_lab::repo_rules::{prose, shape, text};
use haul_lab::snapshot::{Facets, Snapshot};
use haul_model::{ObjectSize, parse_size};
use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
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
    /// Create a data set; the same seed gives the same bytes.
    Make {
        /// Seed of the bytes.
        #[arg(long, default_value_t = 1, global = true)]
        seed: u64,
        /// Number of writer threads.
        #[arg(long, default_value_t = default_workers(), global = true)]
        workers: usize,
        #[command(subcommand)]
        set: Set,
    },
    /// Print the entries of a tree, one per line.
    Snapshot {
        /// Root of the tree.
        root: PathBuf,
    },
    /// List the flagged phrases and the long lines in the comments, strings and documents of a
    /// folder.
    Prose {
        /// Folder of the repository.
        path: PathBuf,
    },
    /// Plot the figures of `haul bench --json` from standard input; print an SVG image.
    BenchPlot {
        /// Text below the title: the machine and the settings.
        #[arg(long, default_value = "")]
        subtitle: String,
    },
    /// Show the corruptions that each checksum misses (docs/undetected-damage.md).
    ///
    /// Some corruptions are constructed for the weaknesses of Adler-32, of the CRCs and of XORed
    /// block digests; others are random. The output shows which checksums detect each constructed
    /// corruption, and how many random corruptions each checksum misses and is expected to miss.
    UndetectedDamage(undetected_damage::Settings),
    /// Print the counts of the code's shape and the lines with code of each crate; exit status 1 if
    /// a count is not at its ceiling.
    Shape {
        /// Root of the repository.
        #[arg(default_value = ".")]
        root: PathBuf,
        /// Write the counts to the table of ceilings.
        #[arg(long)]
        write: bool,
        /// Permit that ceilings rise.
        #[arg(long, requires = "write")]
        raise: bool,
    },
    /// Compare two trees; exit status 1 if they differ.
    Diff {
        /// First tree.
        left: PathBuf,
        /// Second tree.
        right: PathBuf,
        /// Compare kinds, bytes and link targets only.
        #[arg(long, conflicts_with = "holes")]
        content: bool,
        /// Compare holes too.
        #[arg(long)]
        holes: bool,
        /// Maximum number of differences printed.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Do only the I/O of a job, without computing digests, to measure the minimum time of the job.
    Bound {
        /// Bypass the page cache.
        #[arg(long, global = true)]
        direct: bool,
        /// Number of threads that process objects.
        #[arg(long, default_value_t = default_workers(), global = true)]
        threads: usize,
        /// Bytes per read or write.
        #[arg(long, value_parser = block, default_value = "256K", global = true)]
        block: usize,
        /// Size of the objects that the threads share.
        #[arg(long, value_parser = object, default_value = "4M", global = true)]
        object: ObjectSize,
        /// Number of objects of read-ahead, through the page cache.
        #[arg(long, default_value_t = 0, global = true)]
        ahead: u64,
        #[command(subcommand)]
        job: Job,
    },
    /// Show the directory SOURCE at MOUNTPOINT with the faults of RULES, until it is unmounted.
    Faultfs {
        /// Source directory.
        source: PathBuf,
        /// Empty directory.
        mountpoint: PathBuf,
        /// File of rules (GLOB OP FROM..TO ACTION), read again when it changes.
        rules: PathBuf,
    },
    #[command(flatten)]
    Network(network::Network),
}

#[derive(Subcommand)]
enum Set {
    /// Files of one size in one directory.
    Uniform {
        /// Target directory.
        dir: PathBuf,
        /// Number of files.
        #[arg(long, default_value_t = 1)]
        files: u64,
        /// Size of each file, for example 4G.
        #[arg(long, value_parser = size)]
        bytes: u64,
    },
    /// Many small files in many directories.
    Small {
        /// Target directory.
        dir: PathBuf,
        /// Number of directories.
        #[arg(long, default_value_t = 1000)]
        dirs: u64,
        /// Number of files.
        #[arg(long, default_value_t = 100_000)]
        files: u64,
        /// Size of each file.
        #[arg(long, value_parser = size, default_value = "4K")]
        bytes: u64,
    },
    /// FIVER's Sorted-5M250M: pairs of a 5 MB and a 250 MB file.
    Sorted {
        /// Target directory.
        dir: PathBuf,
        /// Number of pairs.
        #[arg(long, default_value_t = 10)]
        pairs: u64,
        /// Divisor of the sizes.
        #[arg(long, default_value_t = 1)]
        scale: u64,
    },
    /// FIVER's Shuffled: 10 MB and 500 MB files in a random order.
    Shuffled {
        /// Target directory.
        dir: PathBuf,
        /// Number of files of each size.
        #[arg(long, default_value_t = 10)]
        pairs: u64,
        /// Divisor of the sizes.
        #[arg(long, default_value_t = 1)]
        scale: u64,
    },
    /// FIVER's mixed set of its ESnet experiments: 271 files, 165.5 GB divided by the scale.
    Esnet {
        /// Target directory.
        dir: PathBuf,
        /// Divisor of the sizes.
        #[arg(long, default_value_t = 100)]
        scale: u64,
    },
    /// A random tree with links, holes, fifos, odd names, modes and times.
    Random {
        /// Target directory.
        dir: PathBuf,
        /// Number of entries.
        #[arg(long, default_value_t = 40)]
        entries: usize,
        /// Maximum size of a file without its holes.
        #[arg(long, value_parser = size, default_value = "64K")]
        bytes: u64,
    },
    /// One file for each byte that a name can contain.
    Names {
        /// Target directory.
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
enum Job {
    /// Read a file.
    Read {
        /// Source file.
        source: PathBuf,
    },
    /// Copy a file, make it durable, and read it back from the device.
    Reread {
        /// Source file.
        source: PathBuf,
        /// Copy, which must not exist yet.
        sink: PathBuf,
    },
}

/// Parses a size that is a multiple of a page, as direct I/O requires.
fn block(text: &str) -> Result<usize, String> {
    let bytes = size(text).map_err(|error| error.to_string())?;
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0 && bytes.is_multiple_of(4096));
    bytes.ok_or_else(|| "the block size must be a multiple of 4K".to_owned())
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
                // Skip files that are not text.
                let Ok(source) = std::fs::read_to_string(path.join(&file)) else { continue };
                for finding in prose::findings(&file, &source) {
                    writeln!(out, "{}:{finding}", path.join(&file).display())?;
                }
            }
        }
        Command::BenchPlot { subtitle } => {
            let lines = io::read_to_string(io::stdin())?;
            write!(out, "{}", bench_plot::svg(&lines, &subtitle)?)?;
        }
        Command::UndetectedDamage(settings) => {
            write!(out, "{}", undetected_damage::text(&settings))?;
        }
        Command::Shape { root, write, raise } => return shape(&root, write, raise, &mut out),
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
            let config = BoundConfig { direct, threads, block, object, ahead };
            let bytes = match job {
                Job::Read { source } => bound::read(&source, &config)?,
                Job::Reread { source, sink } => bound::reread(&source, &sink, &config)?,
            };
            writeln!(out, "{bytes} bytes")?;
        }
        Command::Faultfs { source, mountpoint, rules } => {
            FaultFs::mount_with_file(&source, &mountpoint, &rules)?.wait()?;
        }
        Command::Network(command) => return network::run(command, &mut out),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the shape of the code in `root`. If `write` is true, makes the counts the ceilings;
/// otherwise compares them.
fn shape(root: &Path, write: bool, raise: bool, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    let path = root.join(shape::TABLE);
    let table = std::fs::read_to_string(&path)?;
    let sources = shape::sources(root)?;
    let counts = shape::counts(&sources);
    let wrong = if write {
        match shape::rewritten(&table, &counts, raise) {
            Ok(text) => {
                std::fs::write(&path, text)?;
                Vec::new()
            }
            Err(risen) => risen,
        }
    } else {
        for ((bar, package), found) in &counts {
            let bar = &shape::BARS[*bar];
            writeln!(out, "{:>6} {:18} {} ({})", found.len(), package, bar.counts, bar.name)?;
        }
        let lines = shape::lines(&sources);
        for (package, lines) in &lines {
            writeln!(out, "{lines:>6} {package:18} lines with code")?;
        }
        writeln!(out, "{:>6} {:18} lines with code", lines.values().sum::<usize>(), "all")?;
        shape::breaches(&table, &counts)
    };
    for line in &wrong {
        writeln!(out, "{line}")?;
    }
    if write && !wrong.is_empty() {
        return Err("no ceiling was changed; --raise permits that ceilings rise".into());
    }
    Ok(ExitCode::from(u8::from(!wrong.is_empty())))
}

/// Creates a data set. Returns the totals for sets that count them.
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
