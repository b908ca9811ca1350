//! Division of files into objects, and selection of the next work.
//!
//! All parts are pure: [`Plan`] and [`Pace`] are arithmetic over lengths and times. [`Schedule`] is
//! a data structure that uses no clock, file or thread; the engine puts a lock around it.

mod pace;
mod plan;
mod schedule;

pub use pace::Pace;
pub use plan::{FileFacts, Plan, Requirements, Route};
pub use schedule::{Next, Schedule};
