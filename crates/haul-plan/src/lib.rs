//! How files become objects and which work comes next.
//!
//! Both halves are pure: [`Plan`] is arithmetic over lengths, and [`Schedule`] is a data structure that never
//! looks at a clock, a file or a thread. The engine puts a lock around it.

mod plan;
mod schedule;

pub use plan::{FileFacts, Plan, Route, Wanted};
pub use schedule::{Next, Schedule};
