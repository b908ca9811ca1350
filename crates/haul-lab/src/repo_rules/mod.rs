//! Rules of this repository, as checks that list violations. `tests/repo_rules.rs` applies them to
//! the repository; the tests here show that each check can fail.

pub mod allocations;
pub mod cycles;
pub mod layers;
pub mod licences;
pub mod options;
pub mod order;
pub mod prose;
pub mod purity;
pub mod shape;
pub mod source;
pub mod text;
