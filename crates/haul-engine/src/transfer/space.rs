//! Comparison of the size of a job with the free space of the sink, before the transfer starts.
//!
//! The source announces the size in the `budget` of CONNECT. The sink lowers it to its available
//! space in ACCEPT.

use super::error::TransferError;
use super::jobs::{CheckSpace, SendJob};
use super::report::RunContext;
use super::sink::Destination;
use super::source::{Operand, Tree, WalkStep};
use haul_model::format_size;
use haul_proto::{JobOptions, Keep, Update};
use haul_storage::FileKind;
use std::collections::HashSet;

/// Maximum number of operands whose sizes are added up by default.
const OPERANDS_MAX: usize = 64;

/// Returns the number of bytes that `job` needs at the sink, or 0 if that is not known.
pub(super) fn announced(job: &SendJob) -> u64 {
    let JobOptions { update, in_place, keep, .. } = job.options;
    let is_quick = job.check_space == CheckSpace::Files;
    if update != Update::Always || in_place || is_quick && job.sources.len() > OPERANDS_MAX {
        return 0;
    }
    let operands = job.sources.iter().map(|source| Operand::of_host(&job.storage, source)).collect();
    let mut tree = Tree::new(operands, job.filter.clone(), job.one_file_system);
    let (mut total, mut linked) = (0_u64, HashSet::new());
    while let Some(step) = tree.next() {
        match step {
            WalkStep::Enter(..) if is_quick => return 0,
            WalkStep::Item(item, _) if item.facts.kind == FileKind::Regular => {
                let facts = &item.facts;
                if facts.nlink > 1 && keep.has(Keep::HARD_LINKS) && !linked.insert(facts.identity()) {
                    continue;
                }
                let holds = if facts.is_sparse() && keep.has(Keep::HOLES) {
                    facts.blocks.saturating_mul(512)
                } else {
                    facts.size
                };
                total = total.saturating_add(holds);
            }
            // The walk of the job itself reports what cannot be read.
            _ => {}
        }
    }
    total
}

/// Lowers the announced size in `options` to the available space of the sink: its free space, and
/// the quota of the peer.
pub(super) fn lower(options: &mut JobOptions, destination: &Destination) {
    options.budget = options.budget.min(destination.space().unwrap_or(u64::MAX));
}

/// Compares the announced size of a job with the available space that the sink reported.
///
/// # Errors
/// Returns [`TransferError::NoRoom`] if the space is too small and the job uses
/// [`CheckSpace::Refuse`].
pub(super) fn check(
    job: &SendJob,
    announced: u64,
    room: u64,
    run_context: &RunContext<'_>,
) -> Result<(), TransferError> {
    if room >= announced {
        return Ok(());
    }
    if job.check_space == CheckSpace::Refuse {
        return Err(TransferError::NoRoom { announced, room });
    }
    run_context.report.note(&format!(
        "the job has {}, and the receiver has {} of free space; files that do not fit will fail",
        format_size(announced),
        format_size(room)
    ));
    Ok(())
}
