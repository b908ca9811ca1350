//! `haul cp --waybill`: file of the waybill, and the directory that its paths are relative to.

use super::resolve::UsageError;
use crate::receipt;
use haul_coreutils::cp::{CopyRules, Existing, Make, Operands};
use haul_digest::Algorithm;
use haul_engine::copy::{Moving, Receipt};
use haul_engine::waybill::{Root, WaybillError, WaybillWriter};
use haul_model::{LeafSize, ObjectSize};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// A requested waybill.
#[derive(Debug)]
pub(super) struct WaybillRequest {
    path: OsString,
    root: Root,
    /// Digests besides BLAKE3.
    digests: Vec<Algorithm>,
    /// The sizes of leaves and of their objects, if leaves are kept.
    leaves: Option<(LeafSize, ObjectSize)>,
    /// True if a rerun of the command copies everything again.
    copies_all: bool,
}

/// Waybill options as typed.
#[derive(Debug)]
pub(super) struct WaybillArgs {
    /// `--waybill`.
    pub(super) path: Option<OsString>,
    /// `--waybill-digests`.
    pub(super) digests: Vec<Algorithm>,
    /// `--leaf`, in bytes.
    pub(super) leaf: Option<u64>,
}

impl WaybillRequest {
    /// Resolves `--waybill`, `--waybill-digests` and `--leaf`.
    ///
    /// # Errors
    /// Returns [`UsageError`] if the job's other options allow no waybill.
    pub(super) fn resolve(
        WaybillArgs { path, digests, leaf }: WaybillArgs,
        rules: &CopyRules,
        operands: &Operands,
        moving: &Moving,
    ) -> Result<Option<WaybillRequest>, UsageError> {
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
        let root = WaybillRequest::root(operands).filter(|_| !is_part).ok_or(UsageError::PartAndWaybill)?;
        let object = moving.object_size();
        let leaf = leaf.map(|bytes| LeafSize::new(bytes, object)).transpose()?;
        let leaves = leaf.map(|leaf| (leaf, object));
        let copies_all = rules.existing == Existing::Overwrite && !rules.update;
        Ok(Some(WaybillRequest { path, root, digests, leaves, copies_all }))
    }

    /// Returns the directory of all sinks; `None` for batches, which have no common one.
    fn root(operands: &Operands) -> Option<Root> {
        Some(match operands {
            Operands::IntoDirectory { directory, .. } => Root::new(directory.clone()),
            Operands::Onto { sink, .. } => Root::new(parent(sink)),
            Operands::Batch(_) => return None,
        })
    }

    /// Starts the waybill.
    pub(super) fn begin(&self, tool: &str) -> Result<Arc<Receipt>, WaybillError> {
        let job = receipt::job(tool, &self.root);
        // The entries of a killed run are recorded again only if everything is copied again.
        let waybill_writer = match self.copies_all {
            true => WaybillWriter::begin_again(&self.path, &job),
            false => WaybillWriter::begin(&self.path, &job),
        }?;
        let leaves = self.leaves.map(|(leaf, object)| waybill_writer.leaf_store(leaf, object)).transpose()?;
        Ok(Arc::new(Receipt::new(waybill_writer, self.root.clone(), &self.digests, leaves)))
    }
}

/// Returns the parent directory of a name, as typed; empty for the working directory.
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
    fn parent_of_a_typed_name_is_its_directory() {
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
