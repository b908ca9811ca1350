//! The rules of the house, as checks that list what breaks them. `tests/house.rs` holds the repository to them;
//! the tests here show that each can fail.

pub mod floors;
pub mod licences;
pub mod options;
pub mod order;
pub mod prose;
pub mod purity;
pub mod source;
pub mod text;
