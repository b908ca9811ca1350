//! Floor 4: the jobs themselves: walk, plan, run, settle; copy and sum.

mod pool;

pub mod copy;
pub mod repair;
pub mod sum;
pub mod verify;
pub mod waybill;
