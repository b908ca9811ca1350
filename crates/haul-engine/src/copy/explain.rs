//! `--debug`: how a file's bytes went to its sink, in cp's words.

use super::deliver::{Delivery, Holes};
use super::file::FileMove;
use super::job::Job;
use super::reread::Method;
use super::settings::Reflink;
use std::ffi::OsString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// How one file's bytes go, noted where `--debug` asks for it.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The line of `--verbose`, which comes together with the explanation: other workers' lines don't part them.
    made: Option<OsString>,
    chosen: OnceLock<Chosen>,
    /// The server would not copy after all.
    offload_refused: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Chosen {
    offload: &'static str,
    reflink: &'static str,
    sparse: &'static str,
}

impl Way {
    /// The way of a file whose line of `--verbose` waits for what is to be said of it.
    pub(crate) fn of(made: Option<OsString>) -> Way {
        Way { made, ..Way::default() }
    }

    /// Notes the way that was chosen for a file.
    pub(crate) fn choose(&self, job: &Job<'_>, file: &FileMove, delivery: &Delivery) {
        if !job.settings.rules.debug {
            return;
        }
        let is_empty = file.sink_is_regular && file.source_stat.size == 0;
        let reflink = match job.settings.rules.reflink {
            _ if delivery.done_by_clone => "yes",
            Reflink::Never => "no",
            // What is to be proved is written.
            _ if job.settings.moving.verify.needs_bytes() => "no",
            // Nothing is there to be shared: it is not tried.
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
        // A file's way is chosen once.
        let _ = self.chosen.set(Chosen { offload, reflink, sparse });
    }

    /// The server would not copy: blocks went through memory.
    pub(crate) fn offload_refused(&self) {
        self.offload_refused.store(true, Ordering::Relaxed);
    }

    /// What is printed when the file is through, and nothing where nobody asked.
    pub(crate) fn told(&self) -> Option<OsString> {
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
    fn the_line_stands_before_its_explanation() {
        let way = Way::of(Some(OsString::from("'a' -> 'b'")));
        assert_eq!(way.told(), Some(OsString::from("'a' -> 'b'")), "a file that did not come so far");
        way.chosen.set(Chosen { offload: "yes", reflink: "no", sparse: "zeros" }).unwrap();
        let text =
            |offload| format!("'a' -> 'b'\ncopy offload: {offload}, reflink: no, sparse detection: zeros");
        assert_eq!(way.told(), Some(OsString::from(text("yes"))));
        way.offload_refused();
        assert_eq!(way.told(), Some(OsString::from(text("unsupported"))));
        assert_eq!(Way::default().told(), None);
    }
}
