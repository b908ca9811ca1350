//! Writing of waybills: the results of a job for each name, as entries of a receipt on disk.

mod cut_off;
mod earlier;
mod facts;
mod known;
mod leaves;
mod reuse;
mod scratch;
mod writer;

pub(crate) use cut_off::any_state;
pub(crate) use earlier::differ;
pub use facts::moment;
pub use facts::{FileFacts, Named, Root, file_entry, name_entry};
pub use known::{EarlierDigests, Wanted};
pub(crate) use leaves::{LeafGatherer, LeafWriter, ObjectLeaves};
pub use leaves::{LeafStore, LeafSums};
pub use reuse::{OrderTag, ReusingOrders};
use scratch::Scratch;
pub use writer::{WaybillError, WaybillWriter};
