//! `haul cp --waybill`: where the receipt goes, and what its paths are relative to.

use super::resolve::UsageError;
use crate::receipt;
use haul_digest::Algorithm;
use haul_engine::copy::{CopyRules, Existing, Make, Moving, Operands, Receipt};
use haul_engine::waybill::{Bill, BillError, Root};
use haul_model::{LeafSize, ObjectSize};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// A receipt that is asked for.
#[derive(Debug)]
pub(super) struct WaybillOrder {
    path: OsString,
    root: Root,
    /// Digests besides BLAKE3.
    digests: Vec<Algorithm>,
    /// The sizes of leaves and of their objects, if leaves are kept.
    leaves: Option<(LeafSize, ObjectSize)>,
    /// The same command copies everything again.
    copies_all: bool,
}

/// What was typed about receipts.
#[derive(Debug)]
pub(super) struct Asked {
    /// `--waybill`.
    pub(super) path: Option<OsString>,
    /// `--waybill-digests`.
    pub(super) digests: Vec<Algorithm>,
    /// `--leaf`, in bytes.
    pub(super) leaf: Option<u64>,
}

impl WaybillOrder {
    /// What `--waybill`, `--waybill-digests` and `--leaf` ask for.
    ///
    /// # Errors
    /// [`UsageError`]: beside the job's other options that makes no receipt.
    pub(super) fn resolve(
        Asked { path, digests, leaf }: Asked,
        rules: &CopyRules,
        operands: &Operands,
        moving: &Moving,
    ) -> Result<Option<WaybillOrder>, UsageError> {
        let Some(path) = path else {
            return match (digests.is_empty(), leaf) {
                (false, _) => Err(UsageError::DigestsAlone),
                (true, Some(_)) => Err(UsageError::LeavesAlone),
                (true, None) => Ok(None),
            };
        };
        if rules.attributes_only {
            return Err(UsageError::NoData("--waybill"));
        }
        if rules.make == Make::HardLink {
            return Err(UsageError::LinksAndWaybill);
        }
        let is_part = moving.offset.0 > 0 || moving.length.is_some() || moving.sink_offset.is_some();
        let root = WaybillOrder::root(operands).filter(|_| !is_part).ok_or(UsageError::PartAndWaybill)?;
        let object = moving.receipt_object();
        let leaf = leaf.map(|bytes| LeafSize::new(bytes, object)).transpose()?;
        let leaves = leaf.map(|leaf| (leaf, object));
        let copies_all = rules.existing == Existing::Overwrite && !rules.update;
        Ok(Some(WaybillOrder { path, root, digests, leaves, copies_all }))
    }

    /// The directory that all sinks stand in; `None` for batches, which have no such place.
    fn root(operands: &Operands) -> Option<Root> {
        Some(match operands {
            Operands::IntoDirectory { directory, .. } => Root::new(directory.clone()),
            Operands::Onto { sink, .. } => Root::new(parent(sink)),
            Operands::Batch(_) => return None,
        })
    }

    /// Begins the waybill.
    pub(super) fn begin(&self, tool: &str) -> Result<Arc<Receipt>, BillError> {
        let job = receipt::job(tool, &self.root);
        // What a run that was killed had noted is noted again only where all is copied again.
        let bill = match self.copies_all {
            true => Bill::begin_again(&self.path, &job),
            false => Bill::begin(&self.path, &job),
        }?;
        let leaves = self.leaves.map(|(leaf, object)| bill.leaf_store(leaf, object)).transpose()?;
        Ok(Arc::new(Receipt::new(bill, self.root.clone(), &self.digests, leaves)))
    }
}

/// The directory of a name as it was typed; nothing for the working directory.
fn parent(typed: &OsStr) -> OsString {
    let bytes = typed.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let parent = match bytes[..end].iter().rposition(|&byte| byte == b'/') {
        None => &bytes[..0],
        Some(0) => &bytes[..1],
        Some(at) => &bytes[..at],
    };
    OsStr::from_bytes(parent).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_their_parents() {
        for (typed, expected) in [
            ("a", ""),
            ("a/", ""),
            ("a/b", "a"),
            ("/a", "/"),
            ("/a/b//", "/a"),
            ("./a", "."),
            ("../a/b", "../a"),
        ] {
            assert_eq!(parent(OsStr::new(typed)), expected, "{typed}");
        }
    }
}
