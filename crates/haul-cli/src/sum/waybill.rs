//! `haul sum --waybill`: the receipt beside the lines.

use super::personality::Personality;
use super::resolve::Files;
use crate::receipt;
use haul_digest::Algorithm;
use haul_engine::sum::{Form, Recipe, Sums};
use haul_engine::waybill::{Bill, BillError, FileFacts, LeafStore, Root, file_entry};
use haul_log::waybill::PathFault;
use haul_model::{LeafSize, ObjectSize};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use thiserror::Error;

/// Where the receipt goes, and what is printed beside it.
#[derive(Debug)]
pub(crate) struct WaybillOrder {
    path: OsString,
    root: Root,
    /// The digests that were asked for; the receipt may need one more.
    shown: Vec<Algorithm>,
    object: ObjectSize,
    /// The size of the leaves, if they are kept.
    leaf: Option<LeafSize>,
}

impl WaybillOrder {
    /// Finds out what paths are relative to, and makes the recipe keep objects, which are BLAKE3's.
    pub(super) fn resolve(
        (path, leaf): (OsString, Option<LeafSize>),
        files: &Files,
        is_part: bool,
        object: ObjectSize,
        recipe: &mut Recipe,
    ) -> Result<WaybillOrder, String> {
        if recipe.form != Form::Plain {
            return Err("--waybill keeps plain digests: it can't be combined with hash trees".to_owned());
        }
        if is_part {
            return Err(
                "--waybill is about whole files: it can't be combined with --offset or --length".to_owned()
            );
        }
        let root = match files {
            Files::Given(paths) if paths.iter().any(|path| path == "-") => {
                return Err("--waybill is about files: the standard input is none".to_owned());
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
        Ok(WaybillOrder { path, root, shown, object, leaf })
    }
}

/// The receipt under way.
pub(super) struct Receipt<'a> {
    order: &'a WaybillOrder,
    bill: Bill,
    leaves: Option<Arc<LeafStore>>,
}

/// What became of a file in the receipt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// It has an entry.
    Written,
    /// It is the receipt, which can't hold its own digest.
    TheWaybillItself,
}

/// Why a file has no entry.
#[derive(Debug, Error)]
pub(super) enum NoEntry {
    #[error("not in the waybill: its path is refused: {0}")]
    Path(#[from] PathFault),
    #[error("not in the waybill: it is no regular file")]
    Stream,
}

impl<'a> Receipt<'a> {
    pub(super) fn begin(tool: Personality, order: &'a WaybillOrder) -> Result<Receipt<'a>, BillError> {
        let bill = Bill::begin(&order.path, &receipt::job(tool.name, &order.root))?;
        let leaves = order.leaf.map(|leaf| bill.leaf_store(leaf, order.object)).transpose()?;
        Ok(Receipt { order, bill, leaves })
    }

    /// Where the leaves of files wait, if they are kept.
    pub(super) fn leaves(&self) -> Option<Arc<LeafStore>> {
        self.leaves.clone()
    }

    /// Writes a file's entry, and leaves in `sums` the digests that were asked for.
    pub(super) fn add(&self, path: &OsStr, sums: &mut Sums) -> Result<Noted, NoEntry> {
        let all = std::mem::take(&mut sums.digests);
        let asked = self.order.shown.iter();
        sums.digests = asked
            .filter_map(|asked| all.iter().copied().find(|digest| digest.algorithm() == *asked))
            .collect();
        let facts = sums.facts.take().ok_or(NoEntry::Stream)?;
        if facts.identity() == self.bill.identity() {
            return Ok(Noted::TheWaybillItself);
        }
        let size = sums.range.len();
        let (objects, leaves) = (sums.objects.as_ref(), sums.leaf_sums.take());
        let leaves = leaves.as_deref();
        let file = FileFacts { size, digests: &all, objects, leaves, way: None, level: None };
        let entry = file_entry(self.order.root.path_of(path)?, &facts, &file);
        self.bill.add(&entry, objects, leaves);
        Ok(Noted::Written)
    }

    pub(super) fn close(self) -> Result<(), BillError> {
        self.bill.close().map(drop)
    }
}
