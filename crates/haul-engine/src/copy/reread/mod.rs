//! Verification that reaches the device: written data goes to the device, is dropped from the page
//! cache, re-read and compared, while other objects are still being copied.
//!
//! An object goes through three stages, each some objects behind the previous one ([`queue`]).
//! First, the object is written and its write-back starts. Second, its range is waited for, dropped
//! and requested again ([`check`]). Third, the data is hashed and compared with the digest of the
//! bytes read from the source. Only digests are kept between the stages, never payload. Small files
//! wait together, so that one sync serves many ([`held`]).
//!
//! FIVER (papers: Arslan and Alhussen, "Fast Integrity Verification for High-Speed File Transfers")
//! hashes the buffer that is sent; that is `--verify=stream` here. Its hybrid form compares the
//! size of a file with the free memory.

mod check;
mod held;
mod queue;
mod stream_range;

pub(crate) use check::prove_objects;
pub use held::HeldFiles;
pub(crate) use queue::{CheckSelection, FileVerification};
pub(crate) use stream_range::StreamRange;

use super::digesting;
use super::error::CopyError;
use super::file::FileJob;
use super::report::JobObserver;
use super::settings::{HashForm, Moving, Verify};
use crate::hybrid::HybridThreshold;
use crate::settle::DeviceSyncs;
use haul_digest::Algorithm;
use haul_plan::{Plan, Route};
use std::sync::atomic::{AtomicBool, Ordering};

/// Verification method of one file's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// No verification.
    Nothing,
    /// Every written byte is hashed, and the digest is reported: nothing is compared.
    Journey,
    /// Each object is read back through the page cache.
    Cache,
    /// Each object is re-read from the device.
    Device,
}

/// Verification state of a job that is not specific to a file.
#[derive(Debug)]
pub struct Proof {
    /// Settings of files that are hashed during the copy: with a digest, even if none is printed.
    journey: Moving,
    /// True if files may wait for their verification.
    holds_files: bool,
    hybrid: HybridThreshold,
    device_syncs: DeviceSyncs,
    cache_warning_printed: AtomicBool,
    clone_warning_printed: AtomicBool,
    special_warning_printed: AtomicBool,
}

/// Default digest for hashing during the copy. The digest is reported and compared with nothing,
/// because the buffer that was read is the buffer that is written. A later comparison with the
/// contents of the copy has to find accidents. A CRC of 64 bits misses one in 2^64 of them, its
/// parts combine, and it is the fastest such digest.
const JOURNEY_DIGEST: Algorithm = Algorithm::Crc64Nvme;

/// Digest for comparing a copy that is re-read. It exists only in this process, between the read of
/// the source and the read of the sink. No attacker can craft other bytes for it. It has to find
/// faults of cables, memory and media, and misses one in 2^128 of them. BLAKE3 took a sixth of the
/// CPU time of a copy that is read back; this digest takes a fortieth.
pub(crate) const CHECK_DIGEST: Algorithm = Algorithm::Xxh3_128;

impl Proof {
    /// Creates the state for a job.
    pub fn new(moving: &Moving) -> Proof {
        let mut journey = moving.clone();
        journey.digest = journey.digest.or(Some((JOURNEY_DIGEST, HashForm::Plain)));
        Proof {
            journey,
            holds_files: matches!(moving.verify, Verify::Reread | Verify::Hybrid),
            hybrid: HybridThreshold::default(),
            device_syncs: DeviceSyncs::default(),
            cache_warning_printed: AtomicBool::new(false),
            clone_warning_printed: AtomicBool::new(false),
            special_warning_printed: AtomicBool::new(false),
        }
    }

    /// Returns the verification method of a file.
    pub(crate) fn method(&self, verify: Verify, file: &FileJob<'_>, plan: &Plan) -> Method {
        let has_copy = file.sink.is_file();
        match verify {
            Verify::No => Method::Nothing,
            Verify::Stream => Method::Journey,
            Verify::ReadBack => {
                if has_copy {
                    Method::Cache
                } else {
                    Method::Nothing
                }
            }
            Verify::Reread | Verify::Hybrid if !has_copy => Method::Journey,
            Verify::Reread => Method::Device,
            Verify::Hybrid if self.fits_in_memory(file, plan) => Method::Journey,
            Verify::Hybrid => Method::Device,
        }
    }

    /// Returns true if the file is below the size threshold of FIVER-Hybrid, which is the free
    /// memory. The re-read of a smaller file would be served from memory. A stream of unknown
    /// length may not fit.
    fn fits_in_memory(&self, file: &FileJob<'_>, plan: &Plan) -> bool {
        if plan.route() == Route::Stream && file.source_stat.size == 0 {
            return false;
        }
        self.hybrid.holds(plan.geometry().len())
    }

    /// Returns the settings that determine the digests of a file with this method.
    pub(crate) fn moving<'m>(&'m self, asked: &'m Moving, method: Method) -> &'m Moving {
        if method == Method::Journey && !digesting::is_any(asked) { &self.journey } else { asked }
    }

    /// Reports that a sink shares the blocks of its source: nothing was written that could be
    /// re-read.
    pub(crate) fn warn_cloned(&self, observer: &JobObserver<'_>, file: &FileJob<'_>) {
        let why = "it shares its blocks with its source, so no data was written";
        warn_once(observer, &self.clone_warning_printed, file, why);
    }

    /// Reports that a sink is not a regular file.
    pub(crate) fn warn_special(&self, observer: &JobObserver<'_>, file: &FileJob<'_>) {
        warn_once(observer, &self.special_warning_printed, file, "it is not a regular file");
    }

    /// Reports that a copy was read back, but not from the device.
    fn warn_cached(&self, observer: &JobObserver<'_>, file: &FileJob<'_>, why: &'static str) {
        warn_once(observer, &self.cache_warning_printed, file, why);
    }
}

/// Reports once per job that a file was not verified as far as requested, with the reason.
fn warn_once(observer: &JobObserver<'_>, printed: &AtomicBool, file: &FileJob<'_>, why: &'static str) {
    if !printed.swap(true, Ordering::Relaxed) {
        observer.warn(&CopyError::NotReread { sink: file.sink_path(), why });
    }
}
