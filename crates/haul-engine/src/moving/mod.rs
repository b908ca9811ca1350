//! Moving files and trees, with the rules of `mv`.
//!
//! An operand is renamed where that can be ([`job`]); what stands at its sink is met by mv's rules ([`meet`]). Across
//! file systems the operands gather ([`across`]): they are copied by the copy engine all together, every object
//! compared with what was read, then made durable at once, and only then removed at their source ([`removal`]), each
//! name only if its copy has all that the source has at that moment ([`compare`]).

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
pub use settings::{MoveExisting, MoveOperands, MoveReport, MoveRules, MoveSettings};
