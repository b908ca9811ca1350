//! Developer tools: data sets from seeds, fault injectors, and tests of the repository's rules.

pub mod attempt;
pub mod bound;
pub mod browser;
pub mod dataset;
pub mod emulated_link;
pub mod fault_proxy;
pub mod faults;
pub mod misbehaving_peer;
pub mod mounts;
pub mod needs;
pub mod newer;
pub mod parts;
pub mod random;
pub mod random_tree;
pub mod repo_rules;
pub mod snapshot;
pub mod tool;
pub mod traced;

pub use attempt::{TEST_TIMEOUT, attempt, wait_until};
