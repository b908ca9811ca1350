//! Properties of this crate's own decoders for any bytes, for the fuzz targets in `fuzz/`. Each
//! function takes any bytes, and panics if a property does not hold.

use crate::{log, transfer, verify, waybill};

/// Checks holder records of job locks.
pub fn holder(bytes: &[u8]) {
    log::holder::any(bytes);
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
