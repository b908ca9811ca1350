//! Being written.
use super::job::Job;
use super::pipeline::Lane;
#[derive(Debug)]
pub(crate) struct OperandWalk;
pub(crate) fn begin(_job: &Job<'_>) -> Option<OperandWalk> { None }
pub(crate) fn workers(job: &Job<'_>) -> usize { job.settings.moving.workers }
pub(crate) fn take(_job: &Job<'_>, _lane: &mut Lane, _walk: OperandWalk) {}
