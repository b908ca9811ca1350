//! Costs of the parts of a transfer between two hosts, each measured alone. The parts are sending
//! bytes through a connection, hashing them once at each end, reading a file and writing a file.
//! The rest of a job's time is overhead of the job.

mod wire;

pub use wire::Encryption;

use haul_digest::{Algorithm, Hasher};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Number of bytes that are read, hashed and written at once, as in a job.
const BLOCK_BYTES: usize = 256 << 10;

/// Time that a part took in all its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartTime {
    /// Wall-clock time.
    pub wall: Duration,
    /// CPU time, user and system.
    pub processor: Duration,
}

/// The parts of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Number of bytes that each part processed.
    pub bytes: u64,
    /// Transfer through one connection, both ends.
    pub wire: PartTime,
    /// Hashing twice: once for each end.
    pub hash: PartTime,
    /// Reading and writing a file once.
    pub files: PartTime,
}

/// Error of a measurement.
#[derive(Debug, Error)]
pub enum PartError {
    /// A file cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The connection failed.
    #[error("cannot connect: {0}")]
    Wire(#[from] io::Error),
    /// TLS setup failed.
    #[error("cannot use TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The certificate could not be created.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

impl Parts {
    /// Measures the parts of sending the file `source` to `sink`, which is created, with
    /// `algorithm` as the digest.
    ///
    /// # Errors
    /// Returns [`PartError`] if a part fails.
    pub fn measure(
        source: &Path,
        sink: &Path,
        algorithm: Algorithm,
        encryption: Encryption,
    ) -> Result<Parts, PartError> {
        let (bytes, files) = timed(|| copy(source, sink))?;
        let ((), hash) = timed(|| {
            hash_twice(algorithm, bytes);
            Ok(())
        })?;
        let wire = wire::measure(bytes, encryption)?;
        Ok(Parts { bytes, wire, hash, files })
    }

    /// Returns the CPU time of all parts.
    pub fn processor(&self) -> Duration {
        self.wire.processor + self.hash.processor + self.files.processor
    }
}

fn timed<T>(work: impl FnOnce() -> Result<T, PartError>) -> Result<(T, PartTime), PartError> {
    let (begin, before) = (Instant::now(), processor_time());
    let done = work()?;
    Ok((done, PartTime { wall: begin.elapsed(), processor: processor_time() - before }))
}

/// Returns the CPU time of all threads of this process.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn copy(source: &Path, sink: &Path) -> Result<u64, PartError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PartError::File { path, source }
    };
    let mut from = File::open(source).map_err(failed(source))?;
    let mut to = File::create(sink).map_err(failed(sink))?;
    let mut block = vec![0; BLOCK_BYTES];
    let mut bytes = 0;
    loop {
        let read = from.read(&mut block).map_err(failed(source))?;
        if read == 0 {
            return Ok(bytes);
        }
        to.write_all(&block[..read]).map_err(failed(sink))?;
        bytes += read as u64;
    }
}

fn hash_twice(algorithm: Algorithm, bytes: u64) {
    let block = vec![7; BLOCK_BYTES];
    for _ in 0..2 {
        let mut hasher = Hasher::new(algorithm);
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(BLOCK_BYTES as u64);
            hasher.update(&block[..usize::try_from(piece).unwrap_or(BLOCK_BYTES)]);
            left -= piece;
        }
        std::hint::black_box(hasher.finish());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_processes_every_byte() {
        let home = tempfile::tempdir().expect("a directory");
        let (source, sink) = (home.path().join("source"), home.path().join("sink"));
        std::fs::write(&source, vec![5; 1_000_003]).expect("writes");
        for encryption in [Encryption::Plain, Encryption::Tls] {
            let parts =
                Parts::measure(&source, &sink, Algorithm::Blake3, encryption).expect("all parts work");
            assert_eq!(parts.bytes, 1_000_003);
            assert_eq!(std::fs::read(&sink).expect("is there"), vec![5; 1_000_003]);
            assert!(parts.processor() >= parts.wire.processor);
        }
        let missing = home.path().join("missing");
        let error =
            Parts::measure(&missing, &sink, Algorithm::Blake3, Encryption::Plain).expect_err("no file");
        assert!(error.to_string().contains("missing"), "{error}");
    }
}
