//! The object log on disk: who holds a job, what it knows, and when what it learns is written.
//!
//! `haul_log::objects` decides which bytes; this room does what it orders. The law: an object's bytes are durable at the
//! sink, then the log is told. A job's log stands in its own folder below the state directory:
//!
//! ```text
//!  STATE/jobs/ID/lock      locked while the job runs; who runs it
//!  STATE/jobs/ID/begun     of a copy or a transfer: when its runs began, and how far they may have come
//!  STATE/jobs/ID/target    of a transfer from a guest: whose it is, where it goes
//!  STATE/jobs/ID/log/      docs/formats/log.md
//!  STATE/jobs/ID/record    what the job is and how it stands: haul_log::record
//!  STATE/jobs/ID/state     of a verification or a repair: how far it came, of a sum what its waybill is; in
//!  STATE/jobs/ID/state.stamps  what the files looked like
//! ```
//!
//! What many clients' jobs may take together is counted by a [`Room`], which a server has in `STATE/serve`; `shares` says whose job gives way there.
//!
//! A command that only wants to be listed takes a [`Hold`] and begins a [`Ledger`]; one that keeps an object log gives the hold to a [`Keeper`]; one whose
//! short runs should leave nothing behind opens a [`Listing`].

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
