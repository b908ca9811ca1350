//! `--debug`: the copy method of a file, in cp's words.

use super::deliver::{Delivery, Holes};
use super::file::FileMove;
use super::job::Job;
use super::reread::Method;
use super::settings::Reflink;
use std::ffi::OsString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Copy method of one file, recorded for `--debug`.
#[derive(Debug, Default)]
pub(crate) struct CopyDetails {
    /// The line of `--verbose`. It is printed together with the explanation, so that lines of other
    /// workers do not separate them.
    made: Option<OsString>,
    chosen: OnceLock<Chosen>,
    /// True if copy_file_range(2) failed although it was chosen.
    offload_refused: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Chosen {
    offload: &'static str,
    reflink: &'static str,
    sparse: &'static str,
}

impl CopyDetails {
    /// Creates the record of a file whose `--verbose` line waits for the explanation.
    pub(crate) fn of(made: Option<OsString>) -> CopyDetails {
        CopyDetails { made, ..CopyDetails::default() }
    }

    /// Records the method that was chosen for a file.
    pub(crate) fn choose(&self, job: &Job<'_>, file: &FileMove, delivery: &Delivery) {
        if !job.settings.rules.debug {
            return;
        }
        let is_empty = file.sink_is_regular && file.source_stat.size == 0;
        let reflink = match job.settings.rules.reflink {
            _ if delivery.done_by_clone => "yes",
            Reflink::Never => "no",
            // Bytes to verify must be written.
            _ if job.settings.moving.verify.needs_bytes() => "no",
            // There is nothing to share, so cloning is not tried.
            _ if is_empty => "unknown",
            _ => "unsupported",
        };
        let moving = &job.settings.moving;
        let looks_at_bytes = moving.digest.is_some() || delivery.method != Method::Nothing;
        let offload = match () {
            () if delivery.done_by_clone || is_empty => "unknown",
            () if delivery.kernel_copies && !looks_at_bytes => "yes",
            // Not wanted, or slower than blocks through memory.
            () => "avoided",
        };
        let sparse = match delivery.holes {
            _ if delivery.done_by_clone => "unknown",
            Holes::Dense => "no",
            Holes::OfSource => "SEEK_HOLE",
            Holes::Zeros => "zeros",
        };
        // The method of a file is chosen only once.
        let _ = self.chosen.set(Chosen { offload, reflink, sparse });
    }

    /// Records that copy_file_range(2) failed: blocks went through memory.
    pub(crate) fn offload_refused(&self) {
        self.offload_refused.store(true, Ordering::Relaxed);
    }

    /// Returns the text to print when the file is finished, or `None` without `--debug`.
    pub(crate) fn debug_text(&self) -> Option<OsString> {
        let mut text = self.made.clone().unwrap_or_default();
        if let Some(Chosen { offload, reflink, sparse }) = self.chosen.get() {
            let refused = *offload == "yes" && self.offload_refused.load(Ordering::Relaxed);
            let offload = if refused { "unsupported" } else { offload };
            text.push(if text.is_empty() { "" } else { "\n" });
            text.push(format!("copy offload: {offload}, reflink: {reflink}, sparse detection: {sparse}"));
        }
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_line_precedes_its_explanation() {
        let copy_details = CopyDetails::of(Some(OsString::from("'a' -> 'b'")));
        assert_eq!(
            copy_details.debug_text(),
            Some(OsString::from("'a' -> 'b'")),
            "a file that did not come so far"
        );
        copy_details.chosen.set(Chosen { offload: "yes", reflink: "no", sparse: "zeros" }).unwrap();
        let text =
            |offload| format!("'a' -> 'b'\ncopy offload: {offload}, reflink: no, sparse detection: zeros");
        assert_eq!(copy_details.debug_text(), Some(OsString::from(text("yes"))));
        copy_details.offload_refused();
        assert_eq!(copy_details.debug_text(), Some(OsString::from(text("unsupported"))));
        assert_eq!(CopyDetails::default().debug_text(), None);
    }
}
