//! How files become objects and which work comes next.
//!
//! All parts are pure: [`Plan`] and [`Pace`] are arithmetic over lengths and times, and [`Schedule`] is a data structure that never
//! looks at a clock, a file or a thread. The engine puts a lock around it.

mod pace;
mod plan;
mod schedule;

pub use pace::Pace;
pub use plan::{FileFacts, Plan, Route, Wanted};
pub use schedule::{Next, Schedule};
