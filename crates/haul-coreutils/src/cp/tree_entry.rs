//! An entry of the tree, as the walk or the command line names it.

use super::directory::Directory;
use super::ranges::Ranges;
use super::tree_worker::Counted;
use crate::location::{EntryName, Location};
use haul_engine::copy::Part;
use haul_storage::{FileKind, Stat};
use std::ffi::OsString;
use std::sync::Arc;

/// One entry to copy.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) parent: Arc<Directory>,
    pub(crate) source_name: EntryName,
    pub(crate) sink_name: EntryName,
    /// File type that the directory reported.
    pub(crate) kind_hint: Option<FileKind>,
    /// Facts about the operand if the command line named this entry.
    pub(crate) operand: Option<Operand>,
    /// Range to copy if it differs from the job's settings.
    pub(crate) part: Option<Part>,
    /// Ranges that follow this one and depend on its outcome.
    pub(crate) ranges: Option<Arc<Ranges>>,
    /// Backup name that the existing sink got before the job started.
    pub(crate) backup: Option<OsString>,
    pub(crate) counted: Counted,
}

/// Facts about an entry that the command line named.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operand {
    /// Result of an earlier stat call; operands are stat'ed in their order.
    pub(crate) source: Option<Stat>,
    /// True if a stat call that follows links found nothing at the sink.
    pub(crate) sink_is_missing: bool,
    /// True if the sink cannot exist, because its directory was created a moment ago.
    pub(crate) sink_is_new: bool,
    /// True if other operands may have the same sink.
    pub(crate) sinks_collide: bool,
}

impl Entry {
    /// Creates an entry for a name found in a directory.
    pub(crate) fn found(parent: &Arc<Directory>, entry: haul_storage::Entry, counted: Counted) -> Entry {
        let name = EntryName::Name(entry.name);
        Entry {
            parent: Arc::clone(parent),
            source_name: name.clone(),
            sink_name: name,
            kind_hint: entry.kind,
            operand: None,
            part: None,
            ranges: None,
            backup: None,
            counted,
        }
    }

    /// Returns the location of the source.
    pub(crate) fn source(&self) -> Location<'_> {
        self.parent.source_at(&self.source_name)
    }

    /// Returns the path of the source for messages.
    pub(crate) fn source_path(&self) -> OsString {
        self.parent.source_path_of(&self.source_name)
    }

    /// Returns the path of the sink for messages.
    pub(crate) fn sink_path(&self) -> OsString {
        self.parent.sink_path_of(&self.sink_name)
    }
}
