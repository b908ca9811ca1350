//! Waybill of a copy: digests from the same bytes that are copied, and entries for everything that
//! arrived.

use super::deliver::Delivery;
use super::descriptors::Opened;
use super::digesting::FileHash;
use super::directory::Directory;
use super::entry::{DirectorySettle, Entry as CopyEntry};
use super::error::CopyError;
use super::file::{FileMove, SinkState};
use super::job::Job;
use super::pipeline::{Moved, interrupted};
use crate::waybill::{FileFacts, LeafStore, LeafSums, Named, Root, WaybillWriter, file_entry, name_entry};
use haul_digest::{Algebra, Algorithm, Digest, ObjectTable};
use haul_log::waybill::{CopyMethod, Entry, Kind, PathError, Proven, RelPath};
use haul_model::Level;
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{FileKind, Follow, Stat, open};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

/// Content of the waybill of a copy, and its destination.
#[derive(Debug)]
pub struct Receipt {
    /// Digest algorithms for each file. The first is BLAKE3, which objects have too.
    algorithms: Vec<Algorithm>,
    waybill_writer: WaybillWriter,
    /// Directory that the paths of the sinks are relative to.
    root: Root,
    /// Temporary store of the leaves until the entry of their file is written; `None` without
    /// leaves.
    leaves: Option<Arc<LeafStore>>,
}

impl Receipt {
    /// Creates a receipt for sinks beneath `root`, with the digests `others` in addition to BLAKE3.
    /// It includes leaves if there is a store for them.
    pub fn new(
        waybill_writer: WaybillWriter,
        root: Root,
        others: &[Algorithm],
        leaves: Option<Arc<LeafStore>>,
    ) -> Receipt {
        let mut algorithms = vec![Algorithm::Blake3];
        for &other in others {
            if !algorithms.contains(&other) {
                algorithms.push(other);
            }
        }
        Receipt { algorithms, waybill_writer, root, leaves }
    }

    /// Returns the waybill on disk.
    pub fn waybill_writer(&self) -> &WaybillWriter {
        &self.waybill_writer
    }

    /// Returns true if the file is the waybill that is being written.
    pub(crate) fn is(&self, file: &Stat) -> bool {
        self.waybill_writer.identity() == file.identity()
    }

    /// Returns the digest algorithms for each file, BLAKE3 first.
    pub(crate) fn algorithms(&self) -> &[Algorithm] {
        &self.algorithms
    }

    /// Returns the store of the leaves, if the waybill has them.
    pub(crate) fn leaves(&self) -> Option<&Arc<LeafStore>> {
        self.leaves.as_ref()
    }

    /// Returns true if one of the digests needs the bytes of a file in order.
    pub(crate) fn is_serial(&self) -> bool {
        self.algorithms.iter().any(|algorithm| algorithm.algebra() == Algebra::Serial)
    }
}

/// Digests of a file's bytes for the waybill.
#[derive(Debug)]
pub(crate) struct ReceiptSums {
    pub(crate) digests: Vec<Digest>,
    /// Digests of the objects, if there is more than one.
    objects: Option<ObjectTable>,
    leaves: Option<LeafSums>,
    way: CopyMethod,
}

impl ReceiptSums {
    pub(crate) fn new(
        digests: Vec<Digest>,
        objects: Option<ObjectTable>,
        leaves: Option<LeafSums>,
    ) -> ReceiptSums {
        ReceiptSums { digests, objects, leaves, way: CopyMethod::ReadWrite }
    }

    fn delivered(&mut self, delivery: &Delivery) {
        self.way = delivery.way();
    }
}

/// Records the copy method for the waybill.
pub(crate) fn delivered(mut hash: Option<FileHash>, delivery: &Delivery) -> Option<FileHash> {
    if let Some(receipt) = hash.as_mut().and_then(|hash| hash.receipt.as_mut()) {
        receipt.delivered(delivery);
    }
    hash
}

/// Writes the entry of a settled file, with its final metadata.
///
/// # Errors
/// Returns [`CopyError::Interrupted`] if a stop came before the end. The file then has no entry.
pub(crate) fn file(
    job: &Job<'_>,
    file: &FileMove,
    moved: &Moved,
    sums: &ReceiptSums,
) -> Result<(), CopyError> {
    let objects = sums.objects.as_ref();
    let leaves = sums.leaves.as_ref();
    let (way, level) = (Some(sums.way), Some(moved.level));
    let facts = FileFacts { size: moved.bytes, digests: &sums.digests, objects, leaves, way, level };
    let parts = moved.parts_reread.iter();
    let proven: Vec<Proven> = parts.map(|&range| Proven { range, level: Level::Reread }).collect();
    let Some(receipt) = &job.settings.moving.receipt else { return Ok(()) };
    let sink = file.sink_path();
    let is_link = || {
        stat_at(file.parent.sink(), &*file.sink_name, Follow::No)
            .is_ok_and(|found| found.kind == FileKind::Symlink)
    };
    // A file that this job created is not reached through a link.
    let named = match file.sink_state != SinkState::New && is_link() {
        true => receipt.root.named(&sink),
        false => receipt.root.path_of(&sink).map(|file| Named { link: None, file }),
    };
    let named = match named {
        Ok(named) => named,
        Err(fault) => {
            refuse(job, &sink, fault);
            return Ok(());
        }
    };
    let Ok(stat) = stat_fd(&file.sink) else { return Ok(()) };
    if let Some(link) = named.link {
        receipt.waybill_writer.add(&link, None, None);
    }
    let (entry, lines) = (file_entry(named.file, &stat, &facts), (objects, leaves, &proven[..]));
    let is_written = receipt.waybill_writer.add_proven(&entry, lines, job.pool.stop_flag());
    if is_written { Ok(()) } else { Err(interrupted(file)) }
}

/// Writes the entry of a settled directory.
pub(crate) fn directory(job: &Job<'_>, directory: &Directory, opened: Option<&Opened>) {
    let is_copied = matches!(directory.settle, DirectorySettle::Copied(_));
    if let Some(opened) = opened.filter(|_| is_copied) {
        write(job, &directory.sink_path(), |path| {
            stat_fd(opened.sink()).ok().and_then(|stat| name_entry(path, &stat, None))
        });
    }
}

/// Writes the entry of a link or a special file that was created.
pub(crate) fn name(job: &Job<'_>, entry: &CopyEntry) {
    if job.settings.moving.receipt.is_some() {
        write(job, &entry.sink_path(), |path| {
            let sink = (entry.parent.sink(), &*entry.sink_name);
            let target = open::read_link_at(sink.0, sink.1).ok();
            stat_at(sink.0, sink.1, Follow::No).ok().and_then(|stat| name_entry(path, &stat, target))
        });
    }
}

/// Writes the entry of an additional name of a settled file that was copied to `first`. `stat`
/// returns the metadata of the file.
pub(crate) fn same(job: &Job<'_>, sink: &OsStr, first: &OsStr, stat: impl FnOnce() -> io::Result<Stat>) {
    let Some(receipt) = &job.settings.moving.receipt else { return };
    match receipt.root.path_of(first) {
        Ok(first) => write(job, sink, |path| {
            let stat = stat().ok()?;
            let mtime = crate::waybill::moment(&stat);
            Some(Entry { path, kind: Kind::Same { first }, mode: stat.mode & 0o7777, mtime })
        }),
        Err(fault) => refuse(job, first, fault),
    }
}

/// Writes the entry of an object without data. A sink that no longer exists gets no entry.
fn write(job: &Job<'_>, sink: &OsStr, entry: impl FnOnce(RelPath) -> Option<Entry>) {
    let Some(receipt) = &job.settings.moving.receipt else { return };
    match receipt.root.path_of(sink) {
        Ok(path) => {
            if let Some(entry) = entry(path) {
                receipt.waybill_writer.add(&entry, None, None);
            }
        }
        // The root itself has no name relative to the root.
        Err(PathError::Empty) => {}
        Err(fault) => refuse(job, sink, fault),
    }
}

fn refuse(job: &Job<'_>, sink: &OsStr, fault: PathError) {
    job.fail(&CopyError::NotInWaybill { path: sink.to_owned(), fault });
}
