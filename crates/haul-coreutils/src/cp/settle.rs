//! End of directories: each is settled after everything beneath it, and then notifies its parent.

use super::descriptors::Opened;
use super::directory::{Directory, DirectorySettle, OperandSettle};
use super::job::Job;
use super::operand_walk::OperandWalk;
use super::receipt_entries;
use haul_engine::copy::CopyError;
use std::sync::Arc;

impl Job<'_> {
    /// Records that one item beneath a directory has finished. Settles the directory if it was the
    /// last one, and continues upward.
    pub(crate) fn leave(&self, directory: &Arc<Directory>) {
        self.go_up(directory, None);
    }

    /// Like [`Job::leave`], for an open directory, which is closed as early as possible.
    pub(crate) fn leave_open(&self, opened: Opened) {
        let directory = Arc::clone(&opened);
        self.go_up(&directory, Some(opened));
    }

    fn go_up(&self, mut current: &Arc<Directory>, mut above: Option<Opened>) {
        // An open directory beneath another opens the upper one in one step.
        while current.finish_one() {
            let opened = above.take().map_or_else(|| self.descriptors.open(current), Ok);
            // This must happen before the directory gets its mode, which may deny access to its
            // parent.
            above = opened.as_ref().ok().and_then(|opened| self.descriptors.open_above(opened));
            let has_receipt = self.context.moving.receipt.is_some();
            let standing = opened.as_ref().ok().filter(|_| has_receipt).cloned();
            match &current.settle {
                DirectorySettle::Nothing => {}
                DirectorySettle::Operand(operand) => self.end_operand(opened, operand),
                DirectorySettle::Copied(facts) => {
                    self.settle_directory(opened, above.as_ref(), facts);
                }
            }
            receipt_entries::directory(&self.context, current, standing.as_ref());
            match &current.parent {
                Some(parent) => current = parent,
                None => return,
            }
        }
    }

    /// Finishes one operand: sets the preserved metadata of the directories above it, and offers
    /// the waiting work.
    fn end_operand(&self, opened: Result<Opened, CopyError>, operand: &OperandSettle) {
        match opened {
            Ok(place) => self.protect_parents(&place, &operand.parents),
            Err(error) => self.fail(&error),
        }
        let next = operand.next.lock().take();
        if !matches!(next, Some(OperandWalk::Parts(_))) {
            self.line_ended(operand.names.index);
        }
        next.into_iter().for_each(|walk| self.make_ready(walk));
    }
}
