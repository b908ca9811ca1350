//! Writing waybills: what a job found out about each name, as entries of a receipt on disk.

mod bill;
mod facts;
mod hashing;
mod leaves;
mod objects;

pub use bill::{Bill, BillError};
pub(crate) use facts::moment;
pub use facts::{FileFacts, Root, file_entry, name_entry};
pub(crate) use hashing::{ObjectHasher, StreamSums};
pub(crate) use leaves::ObjectLeaves;
pub use leaves::{LeafStore, LeafSums};
pub use objects::ObjectSums;
