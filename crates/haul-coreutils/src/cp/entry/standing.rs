//! Existing regular files at the sink: those that need no write, and those that must not be
//! overwritten.

use super::task::{Sink, Task};
use crate::cp::links::WriteTurn;
use haul_engine::copy::{CopyError, CopySource, Refusal, Verify, is_same_time};
use haul_storage::{Create, FileKind, Follow, SinkFile, Stat};
use std::io;
use std::sync::Arc;

/// Refuses to overwrite verified or recorded bytes of one source with those of another, through
/// another name of the sink.
pub(super) fn refuse_second_writer(task: &Task<'_, '_>, standing: &Stat) -> Result<(), CopyError> {
    let moving = task.job.context.moving;
    let is_vouched_for = moving.receipt.is_some() || moving.verify != Verify::No;
    if !is_vouched_for || standing.kind != FileKind::Regular || task.keeps_bytes() {
        return Ok(());
    }
    let may_have_others = standing.nlink > 1 || task.sink_at().is_link();
    let source = task.source.identity();
    let before =
        task.job.memory.written_before(standing.identity(), source, may_have_others, || task.sink_path());
    before.map_or(Ok(()), |earlier| {
        let (source_path, sink) = (task.source_path(), task.sink_path());
        Err(Refusal::WrittenBefore { source_path, sink, earlier }.into())
    })
}

/// An existing sink that needs no write.
pub(super) struct CompleteSink {
    pub(super) file: Arc<dyn SinkFile>,
    /// Its metadata.
    pub(super) standing: Stat,
    pub(super) turn: WriteTurn,
}

/// Returns the existing sink of a one-object file, open for reading, if it looks finished and has
/// the bytes of the source, also on the device. A resumable job then does not write the sink, even
/// if the log has no entry for it. No other worker of the job writes it meanwhile.
///
/// # Errors
/// Returns an error if one of the files cannot be read. The sink stays unchanged.
pub(super) fn complete(
    task: &Task<'_, '_>,
    sink: &Sink,
    source: &CopySource,
    source_stat: &Stat,
) -> Result<Option<CompleteSink>, CopyError> {
    let moving = task.job.context.moving;
    let (Some(log), Some(before)) = (task.job.context.log, sink.before.filter(|_| !sink.is_new)) else {
        return Ok(None);
    };
    let is_alone = task.entry.ranges.is_none() && !task.keeps_bytes();
    let is_seen_alike = looks_finished(source_stat, &before) && moving.verify == Verify::No;
    if !is_alone || !is_seen_alike || source_stat.size > moving.object_size().bytes() {
        return Ok(None);
    }
    let lengths = source.inode().device().capabilities.lengths;
    if source_stat.blocks == 0 && !lengths.is_certain(source_stat.size) {
        return Ok(None);
    }
    if log.may_lack(&before, source_stat) {
        return Ok(None);
    }
    let there = Create::Complete { follow: Follow::Yes };
    let file = match task.sink_at().sink(there, &task.job.opened) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        opened => opened.map_err(task.cannot("open"))?,
    };
    let (turn, _) = task.job.memory.write_alone(before.identity());
    let standing = file.stat().map_err(task.cannot("fstat"))?;
    let is_it = standing.identity() == before.identity() && looks_finished(source_stat, &standing);
    let is_whole = || {
        let (source, sink) = (source.file()?, file.reader()?);
        log.is_whole(&task.job.context.observer, source, &*sink, || task.sink_path())
    };
    let is_complete = is_it && is_whole().map_err(task.cannot("compare"))?;
    Ok(is_complete.then_some(CompleteSink { file, standing, turn }))
}

/// Returns true if size and modification time of the sink are those of a finished copy of the
/// source.
fn looks_finished(source: &Stat, sink: &Stat) -> bool {
    let both = source.kind == FileKind::Regular && sink.kind == FileKind::Regular;
    both && source.size == sink.size && is_same_time(sink, source)
}
