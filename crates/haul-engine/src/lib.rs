//! Layer 4: the jobs: the bytes of copies, sum, verify, repair, and transfers to another host.

mod copied_attributes;
mod descent;
mod hybrid;
mod open_files;
mod pipeline;
mod pool;
mod readahead;
mod sealed;
mod settle;

pub use copied_attributes::is_attribute_copied;
pub use descent::{Descent, Examine, Step, WalkEntry};
pub use open_files::{files_left, workers_within};
pub use pool::{Pool, WorkItem};

pub mod copy;
#[doc(hidden)]
pub mod fuzzing;
pub mod log;
pub mod repair;
pub mod signature;
pub mod stored;
pub mod sum;
pub mod transfer;
pub mod verify;
pub mod waybill;
