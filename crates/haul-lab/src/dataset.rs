//! Data sets for measurements: trees of files with chosen sizes, built on disk reproducibly from a
//! seed.

use crate::random::Random;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use thiserror::Error;

const MB: u64 = 1_000_000;
const GB: u64 = 1_000_000_000;

/// Number of bytes generated before they are written; small enough to stay in the L2 cache.
const CHUNK_BYTES: usize = 256 * 1024;

/// A data set by name. Sizes are in bytes; the papers' sets are divided by `scale`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSet {
    /// `files` files of `bytes` each in one directory (FIVER, section IV: uniform).
    Uniform {
        /// Number of files.
        files: u64,
        /// Length of each file.
        bytes: u64,
    },
    /// `files` files of `bytes` each, spread evenly over `dirs` directories.
    Small {
        /// Number of directories.
        dirs: u64,
        /// Total number of files.
        files: u64,
        /// Length of each file.
        bytes: u64,
    },
    /// Equal numbers of 5 MB and 250 MB files, each small one before a large one (FIVER:
    /// Sorted-5M250M).
    Sorted5M250M {
        /// Number of pairs.
        pairs: u64,
        /// Divisor of the sizes.
        scale: u64,
    },
    /// Equal numbers of 10 MB and 500 MB files in a random order (FIVER: Shuffled, 1 Gbit/s lab).
    Shuffled {
        /// Number of pairs.
        pairs: u64,
        /// Divisor of the sizes.
        scale: u64,
    },
    /// 271 files, 165.5 GB: 100 of 10 MB, 100 of 50 MB, 50 of 250 MB, 10 of 2 GB, 4 of 8 GB, 4 of
    /// 10 GB, one of 15 GB, 2 of 20 GB, in a random order (FIVER: the mixed set of its ESnet
    /// experiments).
    EsnetMixed {
        /// Divisor of the sizes.
        scale: u64,
    },
}

/// Error of building a data set or a tree.
#[derive(Debug, Error)]
pub enum BuildError {
    /// A scale or a number of directories of 0.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// A step failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// Description of the step.
        what: &'static str,
        /// File or directory of the step.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl BuildError {
    pub(crate) fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }
}

/// Totals of a built data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// Number of regular files.
    pub files: u64,
    /// Number of directories without the root.
    pub dirs: u64,
    /// Sum of the file lengths in bytes.
    pub bytes: u64,
}

/// A directory of a data set: its name below the root (empty for the root itself) and its files'
/// lengths.
#[derive(Clone, Debug)]
struct DirectorySpec {
    name: String,
    first: u64,
    lens: Vec<u64>,
}

impl DataSet {
    /// Builds the set in `root`, which is created if it is missing, with `workers` threads (at
    /// least one). Existing files of the same names are replaced. The bytes depend only on the
    /// seed.
    ///
    /// # Errors
    /// Returns [`BuildError`] with the step and the path that failed.
    pub fn build(&self, root: &Path, seed: u64, workers: usize) -> Result<Built, BuildError> {
        let folders = self.folders(seed)?;
        fs::create_dir_all(root).map_err(BuildError::at("create the directory", root))?;
        let workers = workers.clamp(1, folders.len().max(1));
        thread::scope(|scope| {
            let running: Vec<_> = (0..workers)
                .map(|worker| {
                    let mine = folders.iter().skip(worker).step_by(workers);
                    scope.spawn(move || build_folders(root, mine, seed))
                })
                .collect();
            running.into_iter().try_fold(Built::default(), |sum, thread| {
                let part = match thread.join() {
                    Ok(part) => part?,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                Ok(Built {
                    files: sum.files + part.files,
                    dirs: sum.dirs + part.dirs,
                    bytes: sum.bytes + part.bytes,
                })
            })
        })
    }

    fn folders(&self, seed: u64) -> Result<Vec<DirectorySpec>, BuildError> {
        let mut random = Random::from_seed(seed);
        let lens = match *self {
            Self::Uniform { files, bytes } => lens_of(&[(files, bytes)], 1)?,
            Self::Small { dirs, files, bytes } => return small_folders(dirs, files, bytes),
            Self::Sorted5M250M { pairs, scale } => {
                let pair = lens_of(&[(1, 5 * MB), (1, 250 * MB)], scale)?;
                (0..pairs).flat_map(|_| pair.clone()).collect()
            }
            Self::Shuffled { pairs, scale } => {
                let mut lens = lens_of(&[(pairs, 10 * MB), (pairs, 500 * MB)], scale)?;
                random.shuffle(&mut lens);
                lens
            }
            Self::EsnetMixed { scale } => {
                let mut lens = lens_of(&ESNET_MIXED, scale)?;
                random.shuffle(&mut lens);
                lens
            }
        };
        Ok(vec![DirectorySpec { name: String::new(), first: 0, lens }])
    }
}

/// The mixed set of FIVER's ESnet experiments: number of files and length of each.
const ESNET_MIXED: [(u64, u64); 8] = [
    (100, 10 * MB),
    (100, 50 * MB),
    (50, 250 * MB),
    (10, 2 * GB),
    (4, 8 * GB),
    (4, 10 * GB),
    (1, 15 * GB),
    (2, 20 * GB),
];

fn lens_of(groups: &[(u64, u64)], scale: u64) -> Result<Vec<u64>, BuildError> {
    if scale == 0 {
        return Err(BuildError::Zero("the scale"));
    }
    Ok(groups.iter().flat_map(|&(count, bytes)| (0..count).map(move |_| bytes / scale)).collect())
}

fn small_folders(dirs: u64, files: u64, bytes: u64) -> Result<Vec<DirectorySpec>, BuildError> {
    if dirs == 0 {
        return Err(BuildError::Zero("the number of directories"));
    }
    // Directory d gets files from files*d/dirs on, so the counts differ by at most one.
    let border =
        |d: u64| u64::try_from(u128::from(files) * u128::from(d) / u128::from(dirs)).unwrap_or(files);
    Ok((0..dirs)
        .map(|d| {
            let count = border(d + 1) - border(d);
            DirectorySpec {
                name: format!("d{d:05}"),
                first: border(d),
                lens: (0..count).map(|_| bytes).collect(),
            }
        })
        .collect())
}

fn build_folders<'a>(
    root: &Path,
    folders: impl Iterator<Item = &'a DirectorySpec>,
    seed: u64,
) -> Result<Built, BuildError> {
    let mut built = Built::default();
    let mut buffer = vec![0; CHUNK_BYTES];
    for folder in folders {
        let path = root.join(&folder.name);
        if !folder.name.is_empty() {
            fs::create_dir_all(&path).map_err(BuildError::at("create the directory", &path))?;
            built.dirs += 1;
        }
        let dir = openat(CWD, &path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| BuildError::at("open the directory", &path)(e.into()))?;
        for (index, &len) in (folder.first..).zip(&folder.lens) {
            let name = format!("f{index:07}");
            let random = Random::for_part(seed, index);
            write_file(&dir, &name, len, random, &mut buffer)
                .map_err(|e| BuildError::at("write", &path.join(&name))(e))?;
            built.files += 1;
            built.bytes += len;
        }
    }
    Ok(built)
}

fn write_file(dir: &OwnedFd, name: &str, len: u64, mut random: Random, buffer: &mut [u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mut file = File::from(openat(dir, name, flags, Mode::from_raw_mode(0o644))?);
    let mut left = len;
    while left > 0 {
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        random.fill(&mut buffer[..take]);
        file.write_all(&buffer[..take])?;
        left -= take as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Facets, Snapshot};

    fn build(set: &DataSet, seed: u64, workers: usize) -> (tempfile::TempDir, Built) {
        let dir = tempfile::tempdir().unwrap();
        let built = set.build(dir.path(), seed, workers).unwrap();
        (dir, built)
    }

    #[test]
    fn bytes_depend_only_on_the_seed() {
        let set = DataSet::Small { dirs: 7, files: 50, bytes: 1000 };
        let (a, built) = build(&set, 11, 1);
        let (b, _) = build(&set, 11, 3);
        let (c, _) = build(&set, 12, 3);
        assert_eq!(built, Built { files: 50, dirs: 7, bytes: 50_000 });
        let [a, b, c] = [&a, &b, &c].map(|d| Snapshot::take(d.path()).unwrap());
        assert_eq!(a.diff(&b, Facets::CONTENT, 9), []);
        assert_eq!(a.diff(&c, Facets::CONTENT, 9).len(), 9);
    }

    #[test]
    fn files_are_spread_evenly_and_numbered_consecutively() {
        let folders = small_folders(3, 10, 5).unwrap();
        let counts: Vec<usize> = folders.iter().map(|f| f.lens.len()).collect();
        assert_eq!(counts, [3, 3, 4]);
        assert_eq!(folders.iter().map(|f| f.first).collect::<Vec<_>>(), [0, 3, 6]);
    }

    #[test]
    fn files_longer_than_one_chunk_have_full_length() {
        let (dir, built) = build(&DataSet::Uniform { files: 2, bytes: CHUNK_BYTES as u64 * 2 + 3 }, 1, 2);
        assert_eq!(built.files, 2);
        let one = fs::read(dir.path().join("f0000000")).unwrap();
        let two = fs::read(dir.path().join("f0000001")).unwrap();
        assert_eq!(one.len(), CHUNK_BYTES * 2 + 3);
        assert_ne!(one, two);
        assert_ne!(one[..8], one[CHUNK_BYTES..CHUNK_BYTES + 8], "the second chunk is no copy of the first");
    }

    #[test]
    fn esnet_set_matches_the_paper() {
        let folders = DataSet::EsnetMixed { scale: 1 }.folders(4).unwrap();
        assert_eq!(folders[0].lens.len(), 271);
        assert_eq!(folders[0].lens.iter().sum::<u64>(), 165_500 * MB);
    }

    #[test]
    fn the_sorted_set_has_a_small_file_before_each_large_one() {
        let folders = DataSet::Sorted5M250M { pairs: 3, scale: 1000 }.folders(4).unwrap();
        assert_eq!(folders[0].lens, [5000, 250_000, 5000, 250_000, 5000, 250_000]);
    }

    #[test]
    fn zero_scales_and_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for set in [DataSet::EsnetMixed { scale: 0 }, DataSet::Small { dirs: 0, files: 1, bytes: 1 }] {
            assert!(matches!(set.build(dir.path(), 1, 1), Err(BuildError::Zero(_))));
        }
    }
}
