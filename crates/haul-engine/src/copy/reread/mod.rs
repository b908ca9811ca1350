//! Verification that reaches the disk: what is written is brought to the device, dropped from the page cache, read back
//! and compared, while other objects are still being copied.
//!
//! An object goes through three stages, each some objects behind the one before ([`queue`]): it is written and its
//! write-back begins; its range is waited for, dropped, and asked for again ([`check`]); what comes back is hashed and
//! compared with the digest of what was read of the source. In between only digests wait, never payload. Small files
//! wait together, so that one sync serves many ([`held`]).
//!
//! FIVER (papers: Arslan and Alhussen, "Fast Integrity Verification for High-Speed File Transfers") hashes the buffer
//! that is sent; that is `--verify=stream` here. Its hybrid form chooses by the size of a file against free memory.

mod check;
mod held;
mod queue;
mod stretch;

pub(crate) use check::prove_objects;
pub(crate) use held::{Held, prove_rest, settle_held};
pub(crate) use queue::{Pace, Proving};
pub(crate) use stretch::Stretch;

use super::digesting;
use super::error::CopyError;
use super::file::FileMove;
use super::job::Job;
use super::settings::{HashForm, Moving, Verify};
use crate::border::Border;
use haul_digest::Algorithm;
use haul_model::limits;
use haul_plan::{Plan, Route};
use std::sync::atomic::{AtomicBool, Ordering};

/// How one file's copy is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Not at all.
    Nothing,
    /// Every byte that is written is hashed on its way, and the digest is told: nothing is compared.
    Journey,
    /// Each object is read back through the page cache.
    Cache,
    /// Each object is read back from the device.
    Device,
}

/// What a job knows of proving, beside its files.
#[derive(Debug)]
pub(crate) struct Proof {
    /// The settings of files that are hashed on their way: with a digest, whatever is printed.
    journey: Moving,
    /// Most files that one worker lets wait for their proof.
    pub(super) held_most: usize,
    border: Border,
    told_cached: AtomicBool,
    told_cloned: AtomicBool,
    told_special: AtomicBool,
}

/// The digest of what is hashed on its way, where none is asked for. It is told and held against nothing: the buffer that
/// was read is the buffer that is written. So it is there to be compared later, with what the copy holds then, and
/// what it has to find is accidents: a CRC of 64 bits misses one in 2^64 of them, combines, and is the fastest that does.
const JOURNEY_DIGEST: Algorithm = Algorithm::Crc64Nvme;

/// What a copy that is read back is compared by. It lives in this process only, between the read of the source and the one
/// of the sink, so nobody can fit other bytes to it, and what it has to find is what cables, memories and media do: it misses
/// one accident in 2^128. BLAKE3 took a sixth of the processors' time of a copy that is read back, this takes a fortieth.
pub(crate) const CHECK_DIGEST: Algorithm = Algorithm::Xxh3_128;

/// Most files that one worker lets wait for one sync: more gain nothing that could be measured, and each keeps two
/// descriptors open.
const HELD_MOST: u64 = 64;

impl Proof {
    /// For a job of so many workers in a process that may open so many files.
    pub(crate) fn new(moving: &Moving, workers: usize, open_files: u64) -> Proof {
        let mut journey = moving.clone();
        journey.digest = journey.digest.or(Some((JOURNEY_DIGEST, HashForm::Plain)));
        let for_workers = open_files.saturating_sub(limits::OPEN_FILES_OF_THE_PROCESS) / 2;
        let share = for_workers / (workers.max(1) as u64);
        // Both ends of a file.
        let held = share.saturating_sub(limits::OPEN_FILES_OF_A_WORKER) / 2;
        Proof {
            journey,
            held_most: usize::try_from(held.min(HELD_MOST)).unwrap_or(0),
            border: Border::default(),
            told_cached: AtomicBool::new(false),
            told_cloned: AtomicBool::new(false),
            told_special: AtomicBool::new(false),
        }
    }

    /// How a file is proved.
    pub(crate) fn method(&self, verify: Verify, file: &FileMove, plan: &Plan) -> Method {
        let has_copy = file.sink_is_regular;
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

    /// FIVER-Hybrid's border: what fits into free memory would be read back from there. A stream of unknown length
    /// may not fit.
    fn fits_in_memory(&self, file: &FileMove, plan: &Plan) -> bool {
        if plan.route() == Route::Stream && file.source_stat.size == 0 {
            return false;
        }
        self.border.holds(plan.geometry().len())
    }

    /// What is to be computed of a file that is proved like this.
    pub(crate) fn moving<'m>(&'m self, asked: &'m Moving, method: Method) -> &'m Moving {
        if method == Method::Journey && !digesting::is_any(asked) { &self.journey } else { asked }
    }
}

/// Tells once a job that a file was not proved as far as was asked for, and why.
fn tell_once(job: &Job<'_>, told: &AtomicBool, file: &FileMove, why: &'static str) {
    if !told.swap(true, Ordering::Relaxed) {
        job.report.warned(&CopyError::NotReread { sink: file.sink_path(), why });
    }
}

/// Tells that a sink shares its source's blocks: nothing was written that could be read back.
pub(crate) fn tell_cloned(job: &Job<'_>, file: &FileMove) {
    let why = "it shares its blocks with its source, and nothing new was written";
    tell_once(job, &job.proof.told_cloned, file, why);
}

/// Tells that a sink is no regular file.
pub(crate) fn tell_special(job: &Job<'_>, file: &FileMove) {
    tell_once(job, &job.proof.told_special, file, "it is no regular file");
}

/// Tells that a copy was read back, but not from the device.
fn tell_cached(job: &Job<'_>, file: &FileMove, why: &'static str) {
    tell_once(job, &job.proof.told_cached, file, why);
}
