//! Method by which a file was copied, as far as the caller reports it.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Selects the zeros of a file that are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// None: every byte is written.
    Dense,
    /// Holes that the source reports are neither read nor written.
    OfSource,
    /// Every block is read; runs of zeros in it are not written.
    Zeros,
}

/// Method that was chosen before the first byte of a file was copied.
#[derive(Clone, Copy, Debug)]
pub struct ChosenMethod {
    /// True if the sink shares the blocks of its source.
    pub is_cloned: bool,
    /// True if copy_file_range(2) was to copy the bytes.
    pub is_offloaded: bool,
    /// Zeros that are not written.
    pub holes: Holes,
}

/// Copy method of one file.
#[derive(Debug, Default)]
pub struct CopyDetails {
    chosen: Mutex<Option<ChosenMethod>>,
    offload_refused: AtomicBool,
}

impl CopyDetails {
    /// Records the method that was chosen for the file. Only the first call has an effect.
    pub(crate) fn choose(&self, chosen: ChosenMethod) {
        self.chosen.lock().get_or_insert(chosen);
    }

    /// Records that copy_file_range(2) failed: blocks went through memory.
    pub(crate) fn refuse_offload(&self) {
        self.offload_refused.store(true, Ordering::Relaxed);
    }

    /// Returns the method, or `None` if the file did not come so far.
    pub fn chosen(&self) -> Option<ChosenMethod> {
        *self.chosen.lock()
    }

    /// Returns true if copy_file_range(2) failed although it was chosen.
    pub fn is_offload_refused(&self) -> bool {
        self.offload_refused.load(Ordering::Relaxed)
    }
}
