//! Entries of the waybill of a copy, for everything that arrived.

use super::directory::{Directory, DirectorySettle};
use super::tree_entry::Entry as CopyEntry;
use crate::location::{Base, Location};
use haul_engine::copy::{CopyContext, CopyError, FileJob, Moved, ReceiptSums, SinkState};
use haul_engine::waybill::{FileFacts, Named, file_entry, name_entry};
use haul_log::waybill::{Entry, Kind, PathError, Proven, RelPath};
use haul_model::Level;
use haul_storage::{Follow, Stat};
use std::ffi::OsStr;
use std::io;

/// Writes the entry of a settled file, with its final metadata.
///
/// # Errors
/// Returns [`CopyError::Interrupted`] if a stop came before the end. The file then has no entry.
pub(crate) fn file(
    context: &CopyContext<'_>,
    file: &FileJob<'_>,
    sink_at: &Location<'_>,
    moved: &Moved,
    sums: &ReceiptSums,
) -> Result<(), CopyError> {
    let objects = sums.objects.as_ref();
    let leaves = sums.leaves.as_ref();
    let (way, level) = (Some(sums.way), Some(moved.level));
    let facts = FileFacts { size: moved.bytes, digests: &sums.digests, objects, leaves, way, level };
    let parts = moved.parts_reread.iter();
    let proven: Vec<Proven> = parts.map(|&range| Proven { range, level: Level::Reread }).collect();
    let Some(receipt) = context.moving.receipt.as_ref() else { return Ok(()) };
    let sink = file.sink_path();
    // A file that this job created is not reached through a link.
    let named = match file.sink_state != SinkState::New && sink_at.is_link() {
        true => receipt.root.named(&sink),
        false => receipt.root.path_of(&sink).map(|file| Named { link: None, file }),
    };
    let named = match named {
        Ok(named) => named,
        Err(fault) => {
            refuse(context, &sink, fault);
            return Ok(());
        }
    };
    let Ok(stat) = file.sink.file().and_then(|sink| sink.stat()) else { return Ok(()) };
    if let Some(link) = named.link {
        receipt.waybill_writer().add(&link, None, None);
    }
    let entry = file_entry(named.file, &stat, &facts);
    let is_written = receipt.waybill_writer().add_proven(&entry, objects, leaves, &proven, context.stop);
    if is_written { Ok(()) } else { Err(file.interrupted()) }
}

/// Writes the entry of a settled directory.
pub(crate) fn directory(context: &CopyContext<'_>, directory: &Directory) {
    let is_copied = matches!(directory.settle, DirectorySettle::Copied(_));
    if let (Base::Dir(sink), true) = (&directory.sink, is_copied && context.moving.receipt.is_some()) {
        write(context, &directory.sink_path(), |path| {
            sink.stat().ok().and_then(|stat| name_entry(path, &stat, None))
        });
    }
}

/// Writes the entry of a link or a special file that was created.
pub(crate) fn name(context: &CopyContext<'_>, entry: &CopyEntry) {
    if context.moving.receipt.is_some() {
        write(context, &entry.sink_path(), |path| {
            let sink = entry.parent.sink_at(&entry.sink_name);
            let target = sink.read_link().ok();
            sink.stat(Follow::No).ok().and_then(|stat| name_entry(path, &stat, target))
        });
    }
}

/// Writes the entry of an additional name of a settled file that was copied to `first`. `stat`
/// returns the metadata of the file.
pub(crate) fn same(
    context: &CopyContext<'_>,
    sink: &OsStr,
    first: &OsStr,
    stat: impl FnOnce() -> io::Result<Stat>,
) {
    let Some(receipt) = context.moving.receipt.as_ref() else { return };
    match receipt.root.path_of(first) {
        Ok(first) => write(context, sink, |path| {
            let stat = stat().ok()?;
            let mtime = haul_engine::waybill::moment(&stat);
            Some(Entry { path, kind: Kind::Same { first }, mode: stat.mode & 0o7777, mtime })
        }),
        Err(fault) => refuse(context, first, fault),
    }
}

/// Writes the entry of an object without data. A sink that no longer exists gets no entry.
fn write(context: &CopyContext<'_>, sink: &OsStr, entry: impl FnOnce(RelPath) -> Option<Entry>) {
    let Some(receipt) = context.moving.receipt.as_ref() else { return };
    match receipt.root.path_of(sink) {
        Ok(path) => {
            if let Some(entry) = entry(path) {
                receipt.waybill_writer().add(&entry, None, None);
            }
        }
        // The root itself has no name relative to the root.
        Err(PathError::Empty) => {}
        Err(fault) => refuse(context, sink, fault),
    }
}

fn refuse(context: &CopyContext<'_>, sink: &OsStr, fault: PathError) {
    context.observer.fail(&CopyError::NotInWaybill { path: sink.to_owned(), fault });
}
