//! `haul sum --waybill`: writes a waybill in addition to the output.

use super::personality::{Family, Personality};
use super::resolve::Files;
use crate::jobs::log_args::StateArgs;
use crate::jobs::own::OwnJob;
use crate::receipt;
use haul_digest::Algorithm;
use haul_engine::sum::{Form, Recipe, Sums};
use haul_engine::waybill::{
    EarlierDigests, FileFacts, LeafStore, Named, Root, Wanted, WaybillError, WaybillWriter, file_entry,
};
use haul_log::waybill::PathError;
use haul_model::{LeafSize, ObjectSize};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// Waybill to write, and the digests that are printed.
#[derive(Debug)]
pub(crate) struct WaybillRequest {
    path: OsString,
    root: Root,
    /// Requested digests; the waybill may need one more.
    shown: Vec<Algorithm>,
    /// Digests of the waybill.
    algorithms: Vec<Algorithm>,
    object: ObjectSize,
    /// The size of the leaves, if they are kept.
    leaf: Option<LeafSize>,
    /// True if a rerun can name the same files.
    comes_again: bool,
    /// True if a new digest replaces an earlier one of a file of the same size and time.
    pub(super) accepts_changes: bool,
}

impl WaybillRequest {
    /// Determines the root of the paths, and makes the recipe keep objects, whose digests are
    /// BLAKE3.
    pub(super) fn resolve(
        path: OsString,
        leaf: Option<LeafSize>,
        files: &Files,
        is_part: bool,
        object: ObjectSize,
        recipe: &mut Recipe,
    ) -> Result<WaybillRequest, String> {
        if recipe.form != Form::Plain {
            return Err("cannot combine --waybill with hash trees: a waybill holds plain digests".to_owned());
        }
        if is_part {
            return Err("cannot combine --waybill with --offset or --length: a waybill lists complete files"
                .to_owned());
        }
        let root = match files {
            Files::Given(paths) if paths.iter().any(|path| path == "-") => {
                return Err("cannot combine --waybill with standard input; name files".to_owned());
            }
            Files::Given(paths) => Root::of_operands(paths).ok_or(
                "with --waybill, name all files relative to one directory, or all by absolute paths",
            )?,
            Files::Listed(..) => Root::new(OsString::new()),
        };
        let shown = recipe.algorithms.clone();
        recipe.algorithms.retain(|&algorithm| algorithm != Algorithm::Blake3);
        recipe.algorithms.insert(0, Algorithm::Blake3);
        recipe.form = Form::Objects { size: object, sample: None };
        // A list from standard input cannot be read again.
        let comes_again = !matches!(files, Files::Listed(names, _) if names.iter().any(|name| name == "-"));
        let algorithms = recipe.algorithms.clone();
        Ok(WaybillRequest {
            path,
            root,
            shown,
            algorithms,
            object,
            leaf,
            comes_again,
            accepts_changes: false,
        })
    }

    /// Returns the job that writes the waybill. It is resumable under haul's own name, unless the
    /// list of files comes from standard input. (Under another tool's name, a signal ends the
    /// process without a message.)
    pub(super) fn job(&self, tool: Personality) -> OwnJob {
        if tool.family == Family::Haul && self.comes_again {
            OwnJob::open(tool.name, "sum", &StateArgs::default())
        } else {
            OwnJob::never(tool.name)
        }
    }
}

/// The waybill in progress.
pub(super) struct OpenWaybill<'a> {
    order: &'a WaybillRequest,
    waybill_writer: WaybillWriter,
    leaves: Option<Arc<LeafStore>>,
    /// Operands that are links, or that a link leads out of the root. Beneath a directory, the walk
    /// follows no link.
    linked: HashMap<PathBuf, Result<Named, PathError>>,
    /// True if the files come from a list: each of them is an operand.
    are_listed: bool,
    /// True if a file was added.
    has_entries: AtomicBool,
}

/// Result of adding a file to the waybill.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddOutcome {
    /// The file has an entry.
    Written,
    /// The file is the waybill, which cannot hold its own digest.
    TheWaybillItself,
    /// An earlier section has another digest of the file, whose size and time are the same. That
    /// digest stays in force.
    Rotted,
    /// A stop came before the end of the entry, which was removed again.
    Stopped,
}

/// Error of a file without an entry.
#[derive(Debug, Error)]
pub(super) enum NoEntry {
    #[error("not added to the waybill: invalid path: {0}")]
    Path(#[from] PathError),
    #[error("not added to the waybill: not a regular file")]
    Stream,
}

impl<'a> OpenWaybill<'a> {
    /// Starts the waybill of a job, or rewrites the one of an interrupted run; the digests of that
    /// run are then known.
    pub(super) fn begin(
        tool: Personality,
        order: &'a WaybillRequest,
        job: &OwnJob,
    ) -> Result<(OpenWaybill<'a>, Option<EarlierDigests>), WaybillError> {
        let told = receipt::job(tool.name, &order.root);
        let leaf_store = |waybill_writer: &WaybillWriter| {
            order.leaf.map(|leaf| waybill_writer.leaf_store(leaf, order.object)).transpose()
        };
        let Some(deferred_record) = job.deferred_record() else {
            let waybill_writer = WaybillWriter::begin(&order.path, &told)?;
            let leaves = leaf_store(&waybill_writer)?;
            return Ok((OpenWaybill::new(order, waybill_writer, leaves), None));
        };
        let mut store = None;
        let wanted = |waybill_writer: &WaybillWriter| {
            store = leaf_store(waybill_writer)?;
            Ok(Wanted { algorithms: order.algorithms.clone(), object: order.object, leaves: store.clone() })
        };
        let (waybill_writer, known) =
            WaybillWriter::begin_or_resume(&order.path, &told, deferred_record, wanted)?;
        let leaves = if store.is_none() { leaf_store(&waybill_writer)? } else { store };
        Ok((OpenWaybill::new(order, waybill_writer, leaves), known))
    }

    fn new(
        order: &'a WaybillRequest,
        waybill_writer: WaybillWriter,
        leaves: Option<Arc<LeafStore>>,
    ) -> OpenWaybill<'a> {
        let (linked, has_entries) = Default::default();
        OpenWaybill { order, waybill_writer, leaves, linked, are_listed: false, has_entries }
    }

    /// Returns the directory that paths are relative to.
    pub(super) fn root(&self) -> Root {
        self.order.root.clone()
    }

    /// Flushes the written entries, so that a later run can resume from there.
    pub(super) fn keep(&self) {
        self.waybill_writer.keep();
    }

    /// Returns true if no file was added.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_entries.load(Ordering::Relaxed)
    }

    /// Deletes the resume state after the job has finished.
    pub(super) fn forget(&self) -> Result<(), WaybillError> {
        self.waybill_writer.forget()
    }

    /// Returns the temporary store of leaves, if they are kept.
    pub(super) fn leaves(&self) -> Option<Arc<LeafStore>> {
        self.leaves.clone()
    }

    /// Writes a file's entry, and leaves only the requested digests in `sums`.
    pub(super) fn add(
        &self,
        path: &OsStr,
        sums: &mut Sums,
        stop: &AtomicBool,
    ) -> Result<AddOutcome, NoEntry> {
        let all = std::mem::take(&mut sums.digests);
        let asked = self.order.shown.iter();
        sums.digests = asked
            .filter_map(|asked| all.iter().copied().find(|digest| digest.algorithm() == *asked))
            .collect();
        let facts = sums.facts.take().ok_or(NoEntry::Stream)?;
        if facts.identity() == self.waybill_writer.identity() {
            return Ok(AddOutcome::TheWaybillItself);
        }
        let size = sums.range.len();
        let (objects, leaves) = (sums.objects.as_ref(), sums.leaf_sums.take());
        let leaves = leaves.as_deref();
        let file = FileFacts { size, digests: &all, objects, leaves, way: None, level: None };
        let named = self.named(Path::new(path))?;
        let entry = file_entry(named.file, &facts, &file);
        if !self.order.accepts_changes && self.waybill_writer.contradicts(&entry) {
            return Ok(AddOutcome::Rotted);
        }
        if let Some(link) = named.link {
            self.waybill_writer.add(&link, None, None);
        }
        if !self.waybill_writer.add_read(&entry, objects, leaves, &facts, stop) {
            return Ok(AddOutcome::Stopped);
        }
        self.has_entries.store(true, Ordering::Relaxed);
        Ok(AddOutcome::Written)
    }

    /// Finds the operands that are reached through links, once for all files.
    pub(super) fn with_operands(mut self, files: &Files) -> OpenWaybill<'a> {
        let Files::Given(operands) = files else { return OpenWaybill { are_listed: true, ..self } };
        let mut clear: Option<&Path> = None;
        for path in operands.iter().map(Path::new) {
            // Files of one directory are reached through the same links.
            let is_clear = clear.is_some() && clear == path.parent();
            if is_clear && !path.is_symlink() {
                continue;
            }
            let named = self.order.root.named(path.as_os_str());
            match &named {
                Ok(Named { link: None, .. }) => clear = path.parent(),
                Ok(_) | Err(PathError::LeadsOut) => drop(self.linked.insert(path.to_owned(), named)),
                // A directory can have a path that no file can have, such as the root's.
                Err(_) => {}
            }
        }
        self
    }

    /// Returns the names of a file in the waybill.
    fn named(&self, path: &Path) -> Result<Named, PathError> {
        if self.are_listed {
            return self.order.root.named(path.as_os_str());
        }
        let linked = |above: &Path| self.linked.get(above);
        match linked(path) {
            Some(named) => named.clone(),
            None if self.linked.is_empty() => self.unlinked(path),
            None => match path.ancestors().find_map(|above| linked(above)?.as_ref().err()) {
                Some(fault) => Err(*fault),
                None => self.unlinked(path),
            },
        }
    }

    fn unlinked(&self, path: &Path) -> Result<Named, PathError> {
        Ok(Named { link: None, file: self.order.root.path_of(path.as_os_str())? })
    }

    /// Removes the section.
    pub(super) fn discard(&self) -> Result<(), WaybillError> {
        self.waybill_writer.discard()
    }

    pub(super) fn close(&self) -> Result<(), WaybillError> {
        self.waybill_writer.close().map(drop)
    }
}
