//! The object log on disk: who holds a job, what it knows, and when what it learns is written.
//!
//! `haul_log::objects` decides which bytes; this room does what it orders. The law: an object's bytes are durable at the
//! sink, then the log is told. A job's log stands in its own folder below the state directory:
//!
//! ```text
//!  STATE/jobs/ID/lock      locked while the job runs; who runs it
//!  STATE/jobs/ID/log/      docs/formats/log.md
//! ```

mod claim;
mod error;
mod folder;
mod keeper;
mod pace;
mod state;

pub use claim::Holder;
pub use error::LogError;
pub use keeper::{Found, Keeper, Settings};
pub use pace::SyncPolicy;
pub use state::state_dir;
