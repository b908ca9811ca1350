//! Check at the end of a copy that its bytes are one state of the source, because other processes
//! may write to the source meanwhile.
//!
//! Most writes change the size or the modification time. A process that resets the modification
//! time changes only the change time, which also changes with a new mode, owner or link. In this
//! case the bytes are compared.

use super::context::CopyContext;
use super::error::CopyError;
use super::file::{FileJob, Moved};
use crate::pipeline::BLOCK_BYTES;
use haul_model::{ByteOffset, Level};
use haul_storage::{Change, FileKind, SourceFile};
use std::io;

/// Maximum number of comparisons of a source with its copy while the change time keeps changing.
const PASSES_MAX: u32 = 4;

/// Checks that a source is unchanged since it was opened. Either size and times are the same, or
/// only the change time differs and the copy has the bytes of the source. Bytes that differ are
/// copied again, unless a digest covers the bytes read first.
///
/// # Errors
/// Returns [`CopyError::SourceChanged`], or an error of reading and writing.
pub fn check(context: &CopyContext<'_>, file: &FileJob<'_>, moved: &Moved) -> Result<(), CopyError> {
    if file.source_stat.kind != FileKind::Regular {
        return Ok(());
    }
    let mut last = file.source_stat;
    let mut was_same = true;
    for pass in 0..=PASSES_MAX {
        let now = file.source.stat().map_err(|_| file.changed())?;
        if file.source_change(&now).is_some_and(|change| change > Change::Unknown) {
            return Err(file.changed());
        }
        if now.ctime == last.ctime {
            return Ok(());
        }
        if pass == 0 {
            warn_of_another_name(context, file);
        }
        if pass < PASSES_MAX {
            last = now;
            was_same &= compare(context, file, moved)?;
        }
    }
    // Some file systems always report the present time as the change time.
    if was_same { Ok(()) } else { Err(file.changed()) }
}

/// Compares the source with its copy and copies the bytes that differ. Returns true if nothing
/// differed.
fn compare(context: &CopyContext<'_>, file: &FileJob<'_>, moved: &Moved) -> Result<bool, CopyError> {
    let (Ok(source), Ok(sink)) = (file.source.file(), file.sink.file()) else {
        // Data of a pipe or a device cannot be read again.
        return Err(file.changed());
    };
    let plan = file.plan(context.moving);
    let is_vouched_for = moved.hash.is_some() || moved.level > Level::Received || file.logged.is_some();
    let read_failed =
        |path, at| move |source: io::Error| CopyError::ReadFailed { path, at: ByteOffset(at), source };
    let cached = source.set_direct(false).and_then(|_| sink.set_direct(false));
    cached.map_err(read_failed(file.source_path(), 0))?;
    let reader = sink.reader().map_err(read_failed(file.sink_path(), 0))?;
    let [mut here, mut there] = [(); 2].map(|()| vec![0; BLOCK_BYTES]);
    let (mut at, mut is_same) = (0, true);
    while at < moved.bytes {
        if context.is_stopping() {
            return Err(file.interrupted());
        }
        let wanted = usize::try_from(moved.bytes - at).unwrap_or(usize::MAX).min(BLOCK_BYTES);
        let [from, to] = [plan.in_source(ByteOffset(at)).0, plan.in_sink(ByteOffset(at)).0];
        let got = SourceFile::read_at(source, from, &mut here[..wanted])
            .map_err(read_failed(file.source_path(), from))?;
        let back = reader.read_at(to, &mut there[..wanted]).map_err(read_failed(file.sink_path(), to))?;
        if got < wanted {
            return Err(file.changed());
        }
        if here[..got] != there[..back] {
            if is_vouched_for {
                return Err(file.changed());
            }
            is_same = false;
            let failed =
                |source| CopyError::WriteFailed { path: file.sink_path(), at: ByteOffset(to), source };
            sink.write_at(to, &here[..got]).map_err(failed)?;
        }
        at += got as u64;
    }
    Ok(is_same)
}

/// Warns that the path of a source now names another file, in jobs that record paths: in a waybill
/// or a log. The copy has the bytes of the file that was opened.
fn warn_of_another_name(context: &CopyContext<'_>, file: &FileJob<'_>) {
    let records_paths = context.moving.receipt.is_some() || context.log.is_some();
    if records_paths && !file.finish.has_source_name(file) {
        context.observer.warn(&CopyError::SourceReplaced { path: file.source_path() });
    }
}
