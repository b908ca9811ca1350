//! Storage that lies and fails: a file system that passes everything through to a directory, but for the
//! faults that rules ask for.

mod faultfs;
mod nodes;
mod pass;
mod rules;
mod serve;
mod shown;
#[cfg(test)]
mod tests;

pub use faultfs::{FaultFs, FaultFsError, Fired, Recorded};
pub use rules::{Action, Op, Rule, RuleError, Rules};
