//! Waybill of a copy: what it contains, and digests from the same bytes that are copied.

use crate::waybill::{LeafStore, LeafSums, Root, WaybillWriter};
use haul_digest::{Algebra, Algorithm, Digest, ObjectTable};
use haul_log::waybill::CopyMethod;
use haul_storage::Stat;
use std::sync::Arc;

/// Content of the waybill of a copy, and its destination.
#[derive(Debug)]
pub struct Receipt {
    /// Digest algorithms for each file. The first is BLAKE3, which objects have too.
    algorithms: Vec<Algorithm>,
    waybill_writer: WaybillWriter,
    /// Directory that the paths of the sinks are relative to.
    pub root: Root,
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
    pub fn is(&self, file: &Stat) -> bool {
        self.waybill_writer.identity() == file.identity()
    }

    /// Returns the digest algorithms for each file, BLAKE3 first.
    pub fn algorithms(&self) -> &[Algorithm] {
        &self.algorithms
    }

    /// Returns the store of the leaves, if the waybill has them.
    pub fn leaves(&self) -> Option<&Arc<LeafStore>> {
        self.leaves.as_ref()
    }

    /// Returns true if one of the digests needs the bytes of a file in order.
    pub fn is_serial(&self) -> bool {
        self.algorithms.iter().any(|algorithm| algorithm.algebra() == Algebra::Serial)
    }
}

/// Digests of a file's bytes for the waybill.
#[derive(Debug)]
pub struct ReceiptSums {
    /// Digests of the whole file, BLAKE3 first.
    pub digests: Vec<Digest>,
    /// Digests of the objects, if there is more than one.
    pub objects: Option<ObjectTable>,
    /// Leaves of the hash tree, if the waybill has them.
    pub leaves: Option<LeafSums>,
    /// Copy method of the file.
    pub way: CopyMethod,
}

impl ReceiptSums {
    pub(crate) fn new(
        digests: Vec<Digest>,
        objects: Option<ObjectTable>,
        leaves: Option<LeafSums>,
    ) -> ReceiptSums {
        ReceiptSums { digests, objects, leaves, way: CopyMethod::ReadWrite }
    }

    /// Records the copy method of the file.
    pub(crate) fn delivered(&mut self, way: CopyMethod) {
        self.way = way;
    }
}
