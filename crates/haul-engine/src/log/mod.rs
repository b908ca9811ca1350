//! Object log on disk: job locks, logged objects, and the schedule of log writes.
//!
//! `haul_log::objects` decides which bytes to write; this module does the I/O. Invariant: an object
//! is logged only after its bytes are durable at the sink. The log of a job is in the job's own
//! directory below the state directory:
//!
//! ```text
//!  STATE/jobs/ID/lock      locked while the job runs; holder of the job
//!  STATE/jobs/ID/begun     copies and transfers: run history
//!  STATE/jobs/ID/target    transfers of a client: owner and destination
//!  STATE/jobs/ID/log/      docs/formats/log.md
//!  STATE/jobs/ID/record    description and status of the job: haul_log::record
//!  STATE/jobs/ID/state     resume state: progress of a verification or repair, section of a sum
//!  STATE/jobs/ID/state.stamps  stamps of the files
//! ```
//!
//! A [`Room`] limits the space that the jobs of many clients use together; a server keeps it in
//! `STATE/serve`. The module `shares` selects the job that is evicted when the space is used up.
//!
//! A command that is only listed takes a [`Hold`] and begins a [`Ledger`]. A command with an object
//! log passes the hold to a [`Keeper`]. A command whose short runs leave no files opens a
//! [`Listing`].

mod begun;
mod claim;
pub(crate) mod command;
mod error;
mod folder;
mod hold;
mod keeper;
mod ledger;
mod list;
mod listing;
mod pace;
mod recheck;
mod room;
mod shares;
mod stamps;
mod state;
mod target;

pub use begun::Begun;
pub use claim::Holder;
pub use error::LogError;
pub use hold::Hold;
pub use keeper::{Found, Keeper, Settings};
pub(crate) use ledger::now;
pub use ledger::{Call, Ledger, identity};
pub use list::{
    FINISHED_DAYS_MAX, FINISHED_MAX, LATELY_DAYS, Listed, UNFINISHED_DAYS_MAX, UNFINISHED_MAX, find,
    job_folder, jobs, prune,
};
pub(crate) use listing::STATE;
pub use listing::{Listing, PATIENCE};
pub use pace::SyncPolicy;
pub(crate) use pace::{GROUP_BYTES, GROUP_TIME, Pace};
pub use recheck::{Recheck, SAMPLE_OBJECTS_MAX, SAMPLE_ONE_IN};
pub use room::{Forget, Room, RoomLimit, RoomLimits};
pub(crate) use stamps::{EarlierStamps, Stamp, StampFile, Stamped};
pub use state::state_dir;
pub(crate) use target::{Target, logged_paths};
