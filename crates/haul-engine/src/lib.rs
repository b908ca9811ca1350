//! Layer 4: the jobs with their walk, plan, run and settle steps: copy, move, sum, verify, repair,
//! and transfers to another host.

mod close_checks;
mod descent;
mod hybrid;
mod pool;
mod readahead;
mod uncached;

pub mod copy;
#[doc(hidden)]
pub mod fuzzing;
pub mod log;
pub mod moving;
pub mod repair;
pub mod signature;
pub mod stored;
pub mod sum;
pub mod transfer;
pub mod verify;
pub mod waybill;
