//! The file to read: the user's, or a temporary one with data from a seed.

use super::args::FileChoice;
use super::error::BenchError;
use haul_model::ByteRange;
use haul_sys::CWD;
use haul_sys::buffer::AlignedBuffer;
use haul_sys::cache::{Advice, FOLIO_BYTES_MAX, advise, page_bytes, residency, sync_data};
use haul_sys::open::{create_nameless, open_source_at};
use haul_sys::sparse::allocate;
use haul_sys::stat::{FileKind, Follow, stat_fd};
use haul_sys::transfer::{read_at, write_all_at};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Bytes per write to the temporary file.
const WRITE_BYTES: usize = 1 << 20;

/// An open file.
#[derive(Debug)]
pub(super) struct TestFile {
    fd: OwnedFd,
    /// Path for messages: the file's own, or the directory of a temporary one.
    path: PathBuf,
    size: u64,
}

impl TestFile {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// Returns [`BenchError`] if the file cannot be read, is empty, or is too large for the file
    /// system.
    pub(super) fn prepare(choice: &FileChoice) -> Result<TestFile, BenchError> {
        match choice {
            FileChoice::Given { path, at_most } => TestFile::open(path, *at_most),
            FileChoice::Temporary { dir, size } => TestFile::temporary(dir, *size),
        }
    }

    fn open(path: &Path, at_most: u64) -> Result<TestFile, BenchError> {
        let failed = |source| BenchError::Open { path: path.to_owned(), source };
        let fd = open_source_at(CWD, path, Follow::Yes, false).map_err(failed)?;
        let stat = stat_fd(&fd).map_err(failed)?;
        if stat.kind != FileKind::Regular {
            return Err(BenchError::NotRegular(path.to_owned()));
        }
        if stat.size == 0 {
            return Err(BenchError::Empty(path.to_owned()));
        }
        Ok(TestFile { fd, path: path.to_owned(), size: stat.size.min(at_most) })
    }

    /// Creates a file without a name: the kernel removes it when this process ends, even if it is
    /// killed.
    fn temporary(dir: &Path, size: u64) -> Result<TestFile, BenchError> {
        let no_room = || BenchError::NoRoom { dir: dir.to_owned(), needed: size };
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                no_room()
            }
            _ => BenchError::Create { dir: dir.to_owned(), source },
        };
        let fd = create_nameless(dir).map_err(failed)?;
        if free_bytes(&fd).is_some_and(|free| free < size) {
            return Err(no_room());
        }
        // A quota may leave less space. If the file system cannot reserve space, writing reports
        // the error.
        allocate(&fd, ByteRange::between(0, size), false).map_err(failed)?;
        write_from_seed(&fd, size).map_err(failed)?;
        Ok(TestFile { fd, path: dir.to_owned(), size })
    }

    /// Returns the number of bytes in use, at least 1.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Reads the bytes of `range` to the start of `buffer`.
    ///
    /// # Errors
    /// Returns [`BenchError::Read`], or [`BenchError::Shrank`] if the file ends before the range
    /// does.
    pub(super) fn read(&self, range: ByteRange, buffer: &mut [u8]) -> Result<(), BenchError> {
        let at = range.start.0;
        let wanted = range.len() as usize;
        match read_at(&self.fd, at, &mut buffer[..wanted]) {
            Ok(got) if got == wanted => Ok(()),
            Ok(_) => Err(BenchError::Shrank(self.path.clone())),
            Err(source) => Err(BenchError::Read { path: self.path.clone(), at, source }),
        }
    }

    /// Syncs the file and drops a range from the page cache. The range is widened to full folios,
    /// because the kernel keeps a folio that is requested only in part.
    ///
    /// # Errors
    /// Returns [`BenchError::Cache`] if the system refuses.
    pub(super) fn drop_from_cache(&self, range: ByteRange) -> Result<(), BenchError> {
        let start = range.start.0 / FOLIO_BYTES_MAX * FOLIO_BYTES_MAX;
        let end = range.end.0.checked_next_multiple_of(FOLIO_BYTES_MAX).unwrap_or(range.end.0);
        sync_data(&self.fd)
            .and_then(|()| advise(&self.fd, ByteRange::between(start, end), Advice::DontNeed))
            .map_err(|source| self.cache_error(source))
    }

    /// Returns the share of a range in the page cache, 0 to 1; `None` if the system does not report
    /// it.
    ///
    /// # Errors
    /// Returns [`BenchError::Cache`] for any other failure.
    pub(super) fn cached_share(&self, range: ByteRange) -> Result<Option<f64>, BenchError> {
        let found = residency(&self.fd, range).map_err(|source| self.cache_error(source))?;
        let page = page_bytes();
        let pages = range.end.0.div_ceil(page) - range.start.0 / page;
        Ok(found.map(|held| held.cached as f64 / pages.max(1) as f64))
    }

    fn cache_error(&self, source: io::Error) -> BenchError {
        BenchError::Cache { path: self.path.clone(), source }
    }
}

/// Returns the free space for this user on the file system of an open file, in bytes; `None` if it
/// is not reported.
fn free_bytes(fd: &OwnedFd) -> Option<u64> {
    let found = rustix::fs::fstatvfs(fd).ok()?;
    // File systems without a size limit (such as some network file systems) report zeros.
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

fn write_from_seed(fd: &OwnedFd, size: u64) -> io::Result<()> {
    let mut buffer = AlignedBuffer::new(WRITE_BYTES)?;
    let mut at = 0;
    while at < size {
        let len = (size - at).min(WRITE_BYTES as u64) as usize;
        fill_from_seed(&mut buffer[..len], at);
        write_all_at(fd, at, &buffer[..len])?;
        at += len as u64;
    }
    sync_data(fd)
}

/// Fills `bytes` with pseudorandom data that depends only on the seed and the position in 8-byte
/// words (SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014).
pub(super) fn fill_from_seed(bytes: &mut [u8], seed: u64) {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = seed.wrapping_mul(GAMMA);
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_add(GAMMA);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        chunk.copy_from_slice(&z.to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_output_matches_the_published_values() {
        let mut bytes = [0; 20];
        fill_from_seed(&mut bytes, 0);
        assert_eq!(bytes[..8], 0xe220_a839_7b1d_cdaf_u64.to_le_bytes());
        assert_eq!(bytes[8..16], 0x6e78_9e6a_a1b9_65f4_u64.to_le_bytes());
        assert_eq!(bytes[16..], 0x06c4_5d18_8009_454f_u64.to_le_bytes()[..4]);
    }

    #[test]
    fn temporary_file_has_the_requested_size_and_no_name() {
        let folder = tempfile::tempdir().unwrap();
        for size in [1, WRITE_BYTES as u64, WRITE_BYTES as u64 + 1] {
            let file = TestFile::temporary(folder.path(), size).unwrap();
            assert_eq!(stat_fd(&file.fd).unwrap().size, size);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            let mut last = [0];
            file.read(ByteRange::between(size - 1, size), &mut last).unwrap();
        }
    }

    #[test]
    fn reading_a_truncated_file_returns_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, [7; 100]).unwrap();
        let file = TestFile::open(&path, u64::MAX).unwrap();
        std::fs::write(&path, [7; 50]).unwrap();
        let got = file.read(ByteRange::between(0, 100), &mut [0; 100]);
        assert!(matches!(got, Err(BenchError::Shrank(named)) if named == path));
    }

    #[test]
    fn a_file_larger_than_any_disk_is_refused_for_lack_of_space() {
        let folder = tempfile::tempdir().unwrap();
        let error = TestFile::temporary(folder.path(), 1 << 62).unwrap_err();
        assert!(matches!(error, BenchError::NoRoom { needed, .. } if needed == 1 << 62), "{error}");
    }
}
