//! For developers: data sets from seeds, fault injectors and the rules of the house as tests.

use std::time::Duration;

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

/// How long a test waits for an event before it fails. An event that can come does so in milliseconds; the limit covers a machine under load.
pub const PATIENCE: Duration = Duration::from_secs(300);
