//! Object log on disk: job locks, logged objects, and the schedule of log writes.
//!
//! `haul_log::objects` decides which bytes to write; this module does the I/O. Invariant: an object
//! is logged only after its bytes are durable at the sink. The log of a job is in the job's own
//! directory below the state directory:
//!
//! ```text
//!  STATE/key               secret of the user, which authenticates journals of repairs
//!  STATE/jobs/ID/lock      locked while the job runs; holder of the job
//!  STATE/jobs/ID/begun     copies and transfers: run history
//!  STATE/jobs/ID/unsynced  copies: a sync failed
//!  STATE/jobs/ID/target    transfers of a client: owner and destination
//!  STATE/jobs/ID/log/      docs/formats/log.md
//!  STATE/jobs/ID/record    description and status of the job: haul_log::record
//!  STATE/jobs/ID/state     resume state: progress of a verification or repair, section of a sum
//!  STATE/jobs/ID/state.stamps  stamps of the files
//! ```
//!
//! A [`LogStore`] limits the space that the jobs of many clients use together; a server keeps it in
//! `STATE/serve`, and evicts the least recently used job when the space is used up.
//!
//! A command that is only listed takes a [`LockedJob`] and begins a [`RecordWriter`]. A command
//! with an object log passes the hold to a [`LogWriter`]. A command whose short runs leave no files
//! opens a [`DeferredRecord`].

pub(crate) mod command;
mod deferred_record;
mod error;
mod folder;
mod group_timer;
pub(crate) mod holder;
mod job_lock;
mod list;
mod locked_job;
mod log_store;
mod log_writer;
mod record_writer;
mod resume_check;
pub(crate) mod run_history;
mod stamps;
mod state;
pub(crate) mod target;
pub(crate) mod unsynced;
mod user_key;

pub(crate) use deferred_record::STATE;
pub use deferred_record::{DeferredRecord, REGISTER_AFTER};
pub use error::{LogError, LogStoreLimit};
pub(crate) use folder::make as create_directory;
#[cfg(test)]
pub(crate) use group_timer::GROUP_BYTES;
pub use group_timer::SyncPolicy;
pub(crate) use group_timer::{GROUP_TIME, GroupTimer};
pub use holder::Holder;
pub use list::{
    FINISHED_DAYS_MAX, FINISHED_MAX, LATELY_DAYS, Listed, UNFINISHED_DAYS_MAX, UNFINISHED_MAX, find,
    job_folder, jobs, prune,
};
pub use locked_job::LockedJob;
pub use log_store::{Forget, LogStore, LogStoreLimits};
pub use log_writer::{LogContents, LogWriter, Settings};
pub(crate) use record_writer::now;
pub use record_writer::{CommandLine, RecordWriter, identity};
pub use resume_check::{ResumeCheck, SAMPLE_OBJECTS_MAX, SAMPLE_ONE_IN};
pub use run_history::RunHistory;
pub(crate) use stamps::{EarlierStamps, Stamp, StampFile, Stamped};
pub use state::state_dir;
pub(crate) use target::{Target, logged_paths};
pub(crate) use user_key::passing_key;
pub use user_key::{journal_key, new_journal_key};
