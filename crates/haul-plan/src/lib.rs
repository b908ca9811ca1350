//! Division of files into objects, and selection of the next work.
//!
//! All parts are pure: [`Plan`], [`Pace`] and [`Layout`] are arithmetic over lengths, times and
//! offsets. [`Scheduler`] is a data structure that uses no clock, file or thread; the engine puts a
//! lock around it.

mod arena;
mod layout;
mod pace;
mod plan;
mod scheduler;

pub use layout::{Layout, TargetId};
pub use pace::Pace;
pub use plan::{FileFacts, Plan, Requirements, Route};
pub use scheduler::{Assign, Depth, Done, FileId, ObjectOrder, ObjectTask, Scheduler, TaskId, WorkerId};
