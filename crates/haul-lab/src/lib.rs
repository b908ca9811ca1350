//! Developer tools: data sets from seeds, fault injectors, and tests of the repository's rules.

pub mod attempt;
pub mod bound;
pub mod dataset;
pub mod faults;
pub mod house;
pub mod liar;
pub mod line;
pub mod link;
pub mod mounts;
pub mod needs;
pub mod newer;
pub mod parts;
pub mod random;
pub mod random_tree;
pub mod snapshot;
pub mod tool;
pub mod traced;

pub use attempt::{PATIENCE, attempt, wait_until};
