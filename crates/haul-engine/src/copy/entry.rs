//! What becomes of one entry of the tree.

use super::directory::Directory;
use super::job::Job;
use super::pipeline::Lane;
use haul_sys::FileKind;
use haul_sys::dir::{DirEntry, DirReader};
use std::ffi::OsString;
use std::sync::Arc;

/// One entry to copy.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) parent: Arc<Directory>,
    pub(crate) source_name: OsString,
    pub(crate) sink_name: OsString,
    /// What the directory said the entry is.
    pub(crate) kind_hint: Option<FileKind>,
    /// Named on the command line, not found in a directory.
    pub(crate) operand: bool,
}

/// What is set on a file when its bytes have arrived.
#[derive(Debug, Default)]
pub(crate) struct FileSettle {}

/// What is set on a directory when all beneath it is through.
#[derive(Debug, Default)]
pub(crate) struct DirectorySettle {}

/// A directory made at the sink, not yet opened.
#[derive(Debug)]
pub(crate) struct NewDirectory {}

/// What was met and made so far: hard links to keep, directories made, operands seen.
#[derive(Debug, Default)]
pub(crate) struct Memory {}

impl Entry {
    /// An entry found in a directory.
    pub(crate) fn found(parent: &Arc<Directory>, entry: DirEntry) -> Entry {
        let name = entry.name_os().to_owned();
        Entry { parent: Arc::clone(parent), source_name: name.clone(), sink_name: name, kind_hint: entry.kind_hint, operand: false }
    }
}

/// Decides what becomes of an entry and does it; regular files go on to the pipeline.
pub(crate) fn copy(_job: &Job<'_>, _lane: &mut Lane, _entry: Entry) {}

/// Opens a directory that was made at the sink.
pub(crate) fn enter(_job: &Job<'_>, _new: NewDirectory) -> Option<(Arc<Directory>, DirReader)> { None }
