//! Records verified objects and the ends of files in the log of the sink.

use super::SinkContext;
use super::incoming::IncomingFile;
use super::object_log::SinkLog;
use crate::copy::quote;
use haul_model::{Object, format_size};
use haul_proto::{FileNumber, Outcome};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

impl SinkContext<'_> {
    /// Handles an object that was received and verified.
    pub(super) fn object_verified(&self, file: FileNumber, attempt: u16, object: Object) {
        let Some(incoming) = self.incoming(file) else { return };
        self.session.tally.settled(incoming.count(object.range.len()));
        let is_logged = |log: &&SinkLog| !self.options.in_place && log.resumes_within_files();
        let Some(log) = self.log_for(&incoming).filter(is_logged) else { return };
        if let Some(partial_file) = incoming.open_attempt(attempt) {
            log.object_verified(file, attempt, object, incoming, partial_file);
        }
    }

    /// Records that a file has finished without a failure.
    pub(super) fn arrived(&self, incoming: &IncomingFile, outcome: &Outcome) {
        if *outcome == Outcome::Same {
            // A temporary file may have been created for its bytes.
            incoming.end_incomplete(false);
        }
        let Some(log) = self.log_for(incoming) else { return };
        log.release(&incoming.path);
        match outcome {
            Outcome::Done(_) => log.complete(incoming.last().as_deref()),
            Outcome::Same if self.counts_as_received() => {
                self.session.reused_bytes.fetch_add(incoming.facts.size(), Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Returns the log, if the file has claimed its path there.
    pub(super) fn log_for(&self, incoming: &IncomingFile) -> Option<&SinkLog> {
        self.log.as_ref().filter(|_| incoming.is_claimed)
    }

    /// Releases the path of a file that is no longer in progress.
    pub(super) fn release(&self, incoming: &IncomingFile) {
        if let Some(log) = self.log_for(incoming) {
            log.release(&incoming.path);
        }
    }

    /// Ends a file that did not arrive. Keeps its data if the next run can resume from it and
    /// `may_complete_later` is true.
    pub(super) fn end_incomplete(&self, incoming: &IncomingFile, may_complete_later: bool) {
        let Some(log) = self.log_for(incoming) else { return incoming.end_incomplete(false) };
        let last = incoming.last();
        let may_be_kept = last.as_ref().is_none_or(|partial_file| partial_file.may_be_kept());
        let keeps = may_complete_later && incoming.was_kept() && may_be_kept && log.try_keep_partial();
        if keeps {
            self.kept_bytes.fetch_add(incoming.kept_bytes(), Ordering::Relaxed);
        }
        if !keeps {
            log.forget(last.as_deref());
        } else if incoming.may_complete_later()
            && !incoming.lacks_space()
            && let Some(kept) = last
            && let Some(name) = &kept.temporary
        {
            let blocks = kept.file.stat().map_or(0, |now| now.blocks);
            self.session.report.note(&format!(
                "{}: incomplete; run the same command again to complete it, or remove its partial data ({} in {})",
                quote(OsStr::from_bytes(incoming.path.as_bytes())),
                format_size(blocks.saturating_mul(512)),
                name
            ));
        }
        incoming.end_incomplete(keeps);
        if !keeps {
            log.release(&incoming.path);
        }
    }
}
