//! End of directories: each is settled after everything beneath it, and then notifies its parent.

use super::directory::{Directory, DirectorySettle, OperandSettle};
use super::job::Job;
use super::operand_walk::OperandWalk;
use super::receipt_entries;
use std::sync::Arc;

impl Job<'_> {
    /// Records that one item beneath a directory has finished. Settles the directory if it was the
    /// last one, and continues upward.
    pub(crate) fn leave(&self, mut current: &Arc<Directory>) {
        // The directory above stays open until it is settled.
        let mut held = None;
        while current.finish_one() {
            let reached = current.reach();
            // A directory leads to the one above in one step, unless its mode then denies that. An
            // error occurs again when the directory above is settled.
            let above = match (&reached, &current.parent) {
                (Ok(_), Some(parent)) => parent.reach_ends().ok(),
                _ => None,
            };
            match &current.settle {
                DirectorySettle::Nothing => {}
                DirectorySettle::Operand(operand) => self.end_operand(current, operand),
                DirectorySettle::Copied(facts) => match &reached {
                    Ok(_) => self.settle_directory(current, facts),
                    Err(error) => self.unsettled(error, facts),
                },
            }
            if reached.is_ok() {
                receipt_entries::directory(&self.context, current);
            }
            drop(held.take());
            held = above;
            match &current.parent {
                Some(parent) => current = parent,
                None => return,
            }
        }
    }

    /// Finishes one operand: sets the preserved metadata of the directories above it, and offers
    /// the waiting work.
    fn end_operand(&self, place: &Directory, operand: &OperandSettle) {
        self.protect_parents(place, &operand.parents);
        let next = operand.next.lock().take();
        if !matches!(next, Some(OperandWalk::Parts(_))) {
            self.line_ended(operand.names.index);
        }
        next.into_iter().for_each(|walk| self.make_ready(walk));
    }
}
