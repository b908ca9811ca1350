//! Properties of this crate's own decoders for any bytes, for the fuzz targets in `fuzz/`. Each
//! function takes any bytes, and panics if a property does not hold.

use crate::{log, transfer, verify, waybill};
use haul_digest::{Algorithm, digest};

/// Checks holder records of job locks.
pub fn holder(bytes: &[u8]) {
    log::job_lock::any(bytes);
}

/// Checks run histories of jobs.
pub fn history(bytes: &[u8]) {
    log::run_history::any(bytes);
}

/// Checks destinations of clients' jobs.
pub fn job_target(bytes: &[u8]) {
    log::target::any(bytes);
}

/// Checks access control lists of peers.
pub fn acl(bytes: &[u8]) {
    transfer::any_acl(bytes);
}

/// Checks name rules of peers.
pub fn rules(bytes: &[u8]) {
    transfer::any_rules(bytes);
}

/// Checks resume states of verifications.
pub fn verify_state(bytes: &[u8]) {
    verify::any_state(bytes);
}

/// Checks resume states of waybills.
pub fn waybill_state(bytes: &[u8]) {
    waybill::any_state(bytes);
}

/// Returns the text of a file, and the same with its last line, the digest of all others,
/// corrected.
pub(crate) fn sealed(bytes: &[u8]) -> [String; 2] {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let body = text.rfind("blake3=").map_or(&*text, |at| &text[..at]);
    let sealed = format!("{body}blake3={}\n", digest(Algorithm::Blake3, body.as_bytes()));
    [text, sealed]
}
