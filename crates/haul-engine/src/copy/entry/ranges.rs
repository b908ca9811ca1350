//! Files of which several ranges are copied. The rules are applied once, for the first range. The
//! others use the sink that it opened, and each starts when the previous one is settled.

use super::regular::FileSettle;
use crate::copy::descriptors::Opened;
use crate::copy::error::CopyError;
use crate::copy::explain::CopyDetails;
use crate::copy::file::{FileMove, Part, SinkState};
use crate::copy::job::Job;
use crate::copy::links::Identity;
use crate::copy::report::Tally;
use haul_sys::{FileKind, Follow, Stat, open, stat};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// State shared by the ranges of one file.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    begun: OnceLock<OpenedEnds>,
    failed: AtomicBool,
}

/// Both ends, as the first range opened them.
#[derive(Debug)]
struct OpenedEnds {
    source: OwnedFd,
    source_stat: Stat,
    follow: Follow,
    sink: OwnedFd,
    sink_identity: Identity,
    sink_name: OsString,
    sink_state: SinkState,
    sink_is_regular: bool,
    differing: u32,
    before: Option<Stat>,
    backup: Option<OsString>,
    linked: Option<Identity>,
}

impl Ranges {
    /// Stores both ends before the first range is copied.
    ///
    /// # Errors
    /// Returns an error if no descriptors are left for the other ranges.
    pub(super) fn begin(
        &self,
        file: &FileMove,
        sink_identity: Identity,
        follow: Follow,
        linked: Option<Identity>,
    ) -> io::Result<()> {
        let begun = OpenedEnds {
            source: file.source.try_clone()?,
            source_stat: file.source_stat,
            follow,
            sink: file.sink.try_clone()?,
            sink_identity,
            sink_name: file.sink_name.clone(),
            sink_state: file.sink_state,
            sink_is_regular: file.sink_is_regular,
            differing: file.settle.differing,
            before: file.settle.before,
            backup: file.settle.backup.clone(),
            linked,
        };
        // Only the first range calls this function.
        let _ = self.begun.set(begun);
        Ok(())
    }

    /// Returns true if the later ranges can be copied: the rules allow writing the file, and no
    /// range failed.
    pub(crate) fn can_continue(&self) -> bool {
        self.begun.get().is_some() && !self.failed.load(Ordering::Acquire)
    }

    /// Records that a range failed. Later ranges would make the file look finished.
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Returns the source if other names of it are linked to the sink.
    pub(super) fn linked(&self) -> Option<Identity> {
        self.begun.get().and_then(|begun| begun.linked)
    }
}

/// Opens a range after the first. Returns `None` if the later ranges cannot be copied.
///
/// # Errors
/// Returns an error if no descriptors are left, or if a stream cannot be reopened.
pub(super) fn open_later(
    job: &Job<'_>,
    ranges: &Arc<Ranges>,
    parent: &Opened,
    source_name: OsString,
    (part, is_last): (Part, bool),
) -> Result<Option<FileMove>, CopyError> {
    let Some(first) = ranges.begun.get().filter(|_| ranges.can_continue()) else { return Ok(None) };
    let (turn, _) = job.memory.write_alone(first.sink_identity);
    let unopened = |source| CopyError::OpenSource { path: parent.source_path_of(&source_name), source };
    let (source, source_stat) = if first.source_stat.kind == FileKind::Regular {
        (first.source.try_clone().map_err(unopened)?, first.source_stat)
    } else {
        // Data that was read from a stream cannot be read again.
        let fd = open::open_stream_at(parent.source(), &*source_name, first.follow).map_err(unopened)?;
        let found = stat::stat_fd(&fd).map_err(unopened)?;
        (fd, found)
    };
    let sink = first.sink.try_clone().map_err(|source| CopyError::Cannot {
        action: "open",
        path: parent.sink_path_of(&first.sink_name),
        source,
    })?;
    if source_stat.kind == FileKind::Regular {
        Tally::add(&job.tally.files_found, 1);
    }
    Ok(Some(FileMove {
        parent: parent.clone(),
        source_name,
        sink_name: first.sink_name.clone(),
        source,
        source_stat,
        sink,
        sink_state: first.sink_state,
        sink_dev: first.sink_identity.0,
        sink_is_regular: first.sink_is_regular,
        part: Some(part),
        settle: FileSettle {
            differing: first.differing,
            before: first.before,
            backup: first.backup.clone(),
            linked: first.linked.filter(|_| is_last),
            turn: Some(turn),
            ranges: Some(Arc::clone(ranges)),
            copy_details: CopyDetails::default(),
            more_follows: !is_last,
            ..FileSettle::default()
        },
        begun: Instant::now(),
    }))
}
