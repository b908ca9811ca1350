//! Files of which several ranges are copied. The rules are applied once, for the first range. The
//! others use the sink that it opened, and each starts when the previous one is settled.

use super::directory::Identity;
use crate::location::EntryName;
use haul_engine::copy::{CopySink, CopySource, SinkState};
use haul_storage::{Follow, Stat};
use std::ffi::OsString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// State shared by the ranges of one file.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    begun: OnceLock<OpenedEnds>,
    failed: AtomicBool,
}

/// Both ends, as the first range opened them.
#[derive(Debug)]
pub(crate) struct OpenedEnds {
    pub(crate) source: CopySource,
    pub(crate) source_stat: Stat,
    pub(crate) follow: Follow,
    pub(crate) sink: CopySink,
    pub(crate) sink_identity: Identity,
    pub(crate) sink_name: EntryName,
    pub(crate) sink_state: SinkState,
    pub(crate) differing: u32,
    pub(crate) before: Option<Stat>,
    pub(crate) backup: Option<OsString>,
    pub(crate) linked: Option<Identity>,
}

impl Ranges {
    /// Stores both ends before the first range is copied.
    pub(crate) fn begin(&self, ends: OpenedEnds) {
        // Only the first range calls this function.
        let _ = self.begun.set(ends);
    }

    /// Returns both ends, if the later ranges can be copied.
    pub(crate) fn ends(&self) -> Option<&OpenedEnds> {
        self.begun.get().filter(|_| self.can_continue())
    }

    /// Returns true if the later ranges can be copied: the rules allow writing the file, and no
    /// range failed.
    pub(crate) fn can_continue(&self) -> bool {
        self.begun.get().is_some() && !self.failed.load(Ordering::Acquire)
    }

    /// Records that a range failed. Later ranges would make the file look finished.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Returns the source if other names of it are linked to the sink.
    pub(crate) fn linked(&self) -> Option<Identity> {
        self.begun.get().and_then(|begun| begun.linked)
    }
}
