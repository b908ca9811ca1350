//! Writing of waybills: the results of a job for each name, as entries of a receipt on disk.

mod bill;
mod cut_off;
mod facts;
mod hashing;
mod known;
mod leaves;
mod objects;
mod spared;

pub use bill::{Bill, BillError};
pub(crate) use facts::moment;
pub use facts::{FileFacts, Named, Root, file_entry, name_entry};
pub(crate) use hashing::{ObjectHasher, StreamSums};
pub use known::{Known, Wanted};
pub(crate) use leaves::ObjectLeaves;
pub use leaves::{LeafStore, LeafSums};
pub use objects::ObjectSums;
pub use spared::{Spared, Sparing};
