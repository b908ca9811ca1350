//! Method by which a file was copied, for `--debug`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Copy method of one file.
#[derive(Debug, Default)]
pub struct CopyDetails {
    chosen: OnceLock<Chosen>,
    /// True if copy_file_range(2) failed although it was chosen.
    offload_refused: AtomicBool,
}

/// Method that was chosen before the first byte was copied, in the words of `cp --debug`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) offload: &'static str,
    pub(crate) reflink: &'static str,
    pub(crate) sparse: &'static str,
}

impl CopyDetails {
    /// Records the method that was chosen for the file. Only the first call has an effect.
    pub(crate) fn choose(&self, chosen: Chosen) {
        // The method of a file is chosen only once.
        let _ = self.chosen.set(chosen);
    }

    /// Records that copy_file_range(2) failed: blocks went through memory.
    pub(crate) fn offload_refused(&self) {
        self.offload_refused.store(true, Ordering::Relaxed);
    }

    /// Returns the method as text, or `None` if the file did not come so far.
    pub fn text(&self) -> Option<String> {
        let Chosen { offload, reflink, sparse } = self.chosen.get()?;
        let refused = *offload == "yes" && self.offload_refused.load(Ordering::Relaxed);
        let offload = if refused { "unsupported" } else { offload };
        Some(format!("copy offload: {offload}, reflink: {reflink}, sparse detection: {sparse}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_offload_is_unsupported() {
        let details = CopyDetails::default();
        assert_eq!(details.text(), None, "a file that did not come so far");
        details.choose(Chosen { offload: "yes", reflink: "no", sparse: "zeros" });
        let text = |offload| Some(format!("copy offload: {offload}, reflink: no, sparse detection: zeros"));
        assert_eq!(details.text(), text("yes"));
        details.offload_refused();
        assert_eq!(details.text(), text("unsupported"));
    }
}
