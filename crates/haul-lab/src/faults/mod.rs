//! Storage fault injection: a FUSE file system that passes every operation through to a directory,
//! except for the faults that its rules inject.

pub mod enumeration;
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
