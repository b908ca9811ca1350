//! Moving files and trees, with the rules of `mv`.
//!
//! An operand is renamed if possible ([`job`]); mv's rules apply to an existing sink ([`meet`]).
//! Across file systems, the operands are collected ([`across`]). One copy job ([`crate::cp`])
//! copies them and compares every object with the bytes that were read. Then all copies are synced
//! in one call. Only then are the sources removed ([`removal`]). Each name is removed only if its
//! copy matches the source at that moment ([`compare`]).

mod across;
mod compare;
mod ends;
mod error;
mod job;
mod meet;
mod relabel;
mod removal;
mod settings;

pub use error::MoveError;
pub use job::{Outcome, move_all};
pub use settings::{MoveExisting, MoveObserver, MoveOperands, MoveRules, MoveSettings};
