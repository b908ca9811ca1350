//! A range of a file after the first: it uses the sink that the first range opened.

use super::regular::is_of_another_kind;
use crate::cp::copied_file::CopiedFile;
use crate::cp::directory::Directory;
use crate::cp::job::Job;
use crate::cp::ranges::Ranges;
use crate::location::EntryName;
use haul_engine::copy::{CopyError, CopySource, FileEnds, FileJob, Part, Refusal, Tally};
use haul_storage::FileKind;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Instant;

/// A range after the first.
#[derive(Debug)]
pub(crate) struct LaterRange<'a> {
    pub(crate) ranges: &'a Arc<Ranges>,
    pub(crate) source_name: OsString,
    /// The operand that the range is.
    pub(crate) parent: &'a Arc<Directory>,
    pub(crate) part: Part,
    /// True for the last range of its file.
    pub(crate) is_last: bool,
}

/// Opens a range after the first. Returns `None` if the later ranges cannot be copied.
///
/// # Errors
/// Returns an error if no descriptors are left, or if a stream cannot be reopened.
pub(super) fn open<'j>(job: &'j Job<'j>, range: LaterRange<'_>) -> Result<Option<FileJob<'j>>, CopyError> {
    let LaterRange { ranges, source_name, parent, part, is_last } = range;
    let Some(first) = ranges.ends() else { return Ok(None) };
    let (turn, _) = job.memory.write_alone(first.sink_identity);
    let unopened = |source| CopyError::OpenSource { path: parent.source_path_of(&source_name), source };
    let (source, source_stat) = match &first.source {
        CopySource::File(_) => (first.source.clone(), first.source_stat),
        // Data that was read from a stream cannot be read again.
        CopySource::Generated(..) | CopySource::Stream(_) => {
            let (place, kind) = (parent.source_at(&source_name), first.source_stat.kind);
            let opened = match job.open_source(&place, kind, first.follow) {
                Err(error) if is_of_another_kind(&error) => {
                    return Err(Refusal::Replaced(parent.source_path_of(&source_name)).into());
                }
                opened => opened.map_err(unopened)?,
            };
            let Some((source, found)) = opened else { return Ok(None) };
            if found.identity() != first.source_stat.identity() {
                return Err(Refusal::Replaced(parent.source_path_of(&source_name)).into());
            }
            (source, found)
        }
    };
    if source_stat.kind == FileKind::Regular {
        Tally::add(&job.tally().files_found, 1);
    }
    let ends = FileEnds { source, source_stat, sink: first.sink.clone(), sink_state: first.sink_state };
    let copied = CopiedFile {
        job,
        parent: Arc::clone(parent),
        source_name: EntryName::Path(source_name),
        sink_name: first.sink_name.clone(),
        differing: first.differing,
        before: first.before,
        backup: first.backup.clone(),
        linked: first.linked.filter(|_| is_last),
        turn: Some(turn),
        ranges: Some(Arc::clone(ranges)),
        made: None,
        more_follows: !is_last,
    };
    Ok(Some(FileJob::new(ends, Some(part), Instant::now(), copied)))
}
